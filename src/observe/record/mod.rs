//! The access log: one line for each finished request; samples of decisions; and the process's own log. All are bounded,
//! and no request waits for them.
//!
//! A worker formats each line straight into a [`Buffer`] of its own and hands whole chunks to the one thread that writes.
//! If that thread falls behind, lines are lost and counted, so that the log never slows a request down.

mod buffer;
pub mod decisions;
mod entry;
mod field;
pub mod format;
mod log;
mod logged_parts;
pub mod process;
mod queue;
mod sampler;
mod style;
pub mod syslog;

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use http::header::{REFERER, USER_AGENT};

pub use buffer::Buffer;
pub use entry::{AccessEntry, RemainingLimit};
pub use field::{FIELD_NAME_BYTES_MAX, FIELDS_MAX, LoggedField, QueryDetail};
pub use format::{LogFormat, PATH_BYTES_MAX, push_address, shown_query};
pub use log::{Error, LineLog, OpenSink};
pub use logged_parts::{LoggedParts, Values, detach};
pub use sampler::StatusSampler;
pub use style::Style;
pub use syslog::Syslog;

/// Where the access log goes, and what it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessConfig {
    pub to: Sink,
    /// Parts per million of requests that are logged, by status (`429`) or class (`2xx`). A status that is not named is
    /// always logged.
    pub sample: Vec<(StatusMatch, u32)>,
    pub headers: Vec<HeaderName>,
    /// How much of a query lines show.
    pub query: QueryDetail,
    pub format: LogFormat,
}

impl Default for AccessConfig {
    fn default() -> AccessConfig {
        AccessConfig {
            to: Sink::Stdout,
            sample: Vec::new(),
            headers: vec![USER_AGENT, REFERER],
            query: QueryDetail::default(),
            format: LogFormat::default(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    Stdout,
    Stderr,
    /// A file, appended to; it is opened again on SIGHUP, so that it can be rotated.
    File(PathBuf),
    /// A syslog daemon, a message a line.
    Syslog(Syslog),
    Off,
}

/// Statuses that a sampling rule covers; an exact status wins over its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusMatch {
    /// One status, such as `429`.
    Exact(u16),
    /// A class by its hundreds digit, such as `2` for `2xx`.
    Class(u16),
}

/// How often a worker calls [`Buffer::hand_over`], so that the lines of a gateway with little traffic appear soon.
pub const TICK: Duration = Duration::from_millis(200);
