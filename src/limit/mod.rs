//! The limiting arithmetic: pure functions of (state, quota, cost, now). No I/O, no clock, no tokio.

pub mod breaker;
pub mod central;
pub mod centre;
pub mod charge;
mod concurrency;
mod fixed_window;
mod leaky_bucket;
pub mod outcome;
pub mod penalty;
pub mod plan;
pub mod quota;
mod share;
pub mod sliding_log;
mod sliding_window;
pub mod state;
mod token_bucket;

pub use breaker::Breaker;
pub use centre::Centre;
pub use charge::Charge;
pub use outcome::{Answer, Outcome};
pub use penalty::{Conduct, Penalty};
pub use plan::{Plan, Sharing, WhenDown};
pub use quota::{Algorithm, Quota};
pub use share::{LEAD_MIN_NS, Share, Told, View, Wanted};
pub use sliding_log::Log;
pub use state::State;
