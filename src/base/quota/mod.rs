//! Units of a limit handed out in advance to reporters: other proxies that tell now and then what they let through, and
//! are told how much they may (`envoy.service.rate_limit_quota.v3`).
//!
//! What is handed out was drawn from the limit before, so all reporters together spend no more than the limit admits,
//! however late their reports come. What a reporter spends while an answer is on its way to it is paid for with its next
//! report. Pure: no I/O, no clock. Who reports, what a bucket is limited by and where units are drawn from is up to the
//! caller.

mod bucket;
mod fleet_part;
mod own;
mod pot;
mod receipts;
mod share;
mod shares;
#[cfg(test)]
mod tests;
pub mod told;

use std::num::NonZeroU64;
use std::time::Duration;

pub use bucket::BucketId;
pub use fleet_part::{Others, Refill};
pub use pot::{OwnTurn, Pot, Rivals, Wants};
pub use receipts::Back;
pub use shares::{Heard, Left, SHARES_MAX, Shares, Turn};

/// A stream of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// What a reporter did with a bucket since its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests that it let through.
    pub allowed: u64,
    /// Requests that it refused.
    pub denied: u64,
    /// Whether it has only begun the bucket, so that it was told nothing of it before, on another stream either.
    pub is_begun: bool,
    /// How long that took by its own clock, nanoseconds; 0: it does not say.
    pub elapsed_ns: u64,
}

/// What a reporter is told about a bucket. It holds in the place of whatever the reporter was told before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// It may spend these units, and no others. They do not refill. It was told nothing of the bucket before.
    Begin {
        /// How many.
        units: NonZeroU64,
        /// How long.
        ttl: Duration,
    },
    /// It may spend these units, and no others. They do not refill.
    Spend {
        /// How many.
        units: NonZeroU64,
        /// How long.
        ttl: Duration,
    },
    /// It may spend what is left of the units that it was assigned last.
    Keep {
        /// How many it was assigned.
        units: NonZeroU64,
        /// How long from now.
        ttl: Duration,
    },
    /// It may let nothing through.
    Deny {
        /// How long.
        ttl: Duration,
    },
}
