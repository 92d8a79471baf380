//! Samples of decisions on limits: every refusal by default, so that a person who has only a request's id learns why.
//!
//! A worker draws first and gathers facts only of what is drawn. Drawn samples go into one [`SampleMemory`] of the process, which
//! keeps the last of them; whoever writes them on (to a log, to a database) follows it. No request waits for any of that.

mod memory;
mod narrative;
mod sample;
mod sample_buffer;
mod sampling;

pub use memory::{KEPT_MAX, SampleCursor, SampleMemory};
pub use narrative::{steady, told};
pub use sample::{DecisionSample, SampledWindow, WINDOWS_MAX, printable};
pub use sample_buffer::SampleBuffer;
pub use sampling::{DecisionSampling, PER_SECOND_MAX};

use std::time::Duration;

use super::Sink;

/// How long a database keeps samples if nothing is said: a week.
pub const RETENTION: Duration = Duration::from_secs(7 * 86_400);

/// Which decisions are drawn, and where they are written beside the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionsConfig {
    pub to: Sink,
    pub draws: DecisionSampling,
    /// Whether the control plane's database gets them, too.
    pub in_database: bool,
    /// How long a database keeps them.
    pub retention: Duration,
}
