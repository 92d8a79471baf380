//! Facts and tools that every crate may use
//! the clock, ids, who is calling, units, words. It knows nothing of limits, of HTTP or of Redis, and does no network I/O.

pub mod cause;
pub mod clock;
pub mod hex;
pub mod identity;
pub mod ids;
pub mod log_lines;
pub mod random;
pub mod rendezvous;
pub mod secret;
pub mod sharded_map;
pub mod units;
pub mod whole_file;
pub mod words;
