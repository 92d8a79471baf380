//! Which keys use most of a policy: every worker counts for itself, and the control runtime gathers that each second into
//! minutes, of which an hour is kept.
//!
//! Nothing is decided by it. A decision takes no lock for it and asks no clock. Keys are hashes here; a key has its name made
//! only when it is among the heavy ones.

mod book;
mod fleet;
mod gathered;
mod inbox;
mod named;
mod sketch;
mod slots;
mod tally;

pub use book::{
    Asked, Book, Change, EACH_MAX, FLOOR, Facts, HotKeyStat, MINUTES_MAX, ROWS_MAX, Shown, Standing,
};
pub use fleet::{FleetRow, decode, encode, sum};
pub use gathered::Gathered;
pub use named::{Named, shown_name};
pub use sketch::{BYTES, Counts, KEYS, Sketch};
pub use tally::Tally;

#[cfg(test)]
mod tests;
