//! Which keys use most of a policy: every worker counts for itself, and the control runtime gathers that each second into
//! minutes, of which an hour is kept.
//!
//! Nothing is decided by it. A decision takes no lock for it and asks no clock. Keys are hashes here; a key has its name made
//! only when it is among the heavy ones.

mod book;
mod collector;
mod fleet;
mod inbox;
mod named_key;
mod sketch;
mod slots;
mod tally;

pub use book::{
    Book, EACH_MAX, FLOOR, HotKeyChange, HotKeyFilter, HotKeyReport, HotKeyStat, KeyStanding, MINUTES_MAX,
    PolicyFacts, ROWS_MAX,
};
pub use collector::KeyCollector;
pub use fleet::{FleetRow, decode, encode, sum};
pub use named_key::{NamedKey, ShardNumber, shown_name};
pub use sketch::{BYTES, KEYS, KeyCounts, Sketch};
pub use tally::KeyTally;

#[cfg(test)]
mod tests;
