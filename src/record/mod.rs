//! The access log: one line for each finished request. It is bounded, and no request waits for it.
//!
//! A worker formats each line straight into a [`Buffer`] of its own and hands whole chunks to the one thread that writes.
//! If that thread falls behind, lines are lost and counted, so that the log never slows a request down.

mod buffer;
mod date;
mod entry;
mod escape;
mod line;
mod log;
mod queue;
mod sampler;
mod shown;

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

pub use buffer::Buffer;
pub use entry::{Decision, Entry};
pub use line::PATH_BYTES_MAX;
pub use log::{Error, Log};
pub use sampler::Sampler;
pub use shown::{FIELD_NAME_BYTES_MAX, FIELDS_MAX, Field, Query, Shown, Values, keep_alone};

/// Where the access log goes, and what it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessConfig {
    /// Where to.
    pub to: Sink,
    /// Shares by status: `2xx` or `429` -> parts per million kept. What is not named is kept whole.
    pub sample: Vec<(StatusMatch, u32)>,
    /// Fields of a head that are shown.
    pub headers: Vec<HeaderName>,
    /// How much of a query is shown.
    pub query: Query,
}

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, appended to; opened again on SIGHUP, so it can be rotated.
    File(PathBuf),
    /// Nowhere.
    Off,
}

/// Statuses a sampling rule speaks of; the exact one goes before its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusMatch {
    /// `429`.
    Exact(u16),
    /// `2xx`: the hundreds digit.
    Class(u16),
}

/// How often a worker calls [`Buffer::hand_over`], so that a quiet gateway's lines show soon.
pub const TICK: Duration = Duration::from_millis(200);
