//! The arithmetic of limits: pure functions from (state, quota, cost, now) to (state, outcome). No I/O, no clock, no tokio.

#![warn(missing_docs)]

mod axis;
pub mod breaker;
pub mod charge;
mod concurrency;
mod few;
mod fixed_window;
pub mod id;
pub mod key;
mod leaky_bucket;
mod lease;
pub mod lease_messages;
pub mod outcome;
pub mod penalty;
pub mod plan;
pub mod quota;
pub mod script_model;
pub mod sliding_log;
mod sliding_window;
pub mod state;
mod token_bucket;
pub mod trial;

pub use breaker::Breaker;
pub use charge::Charge;
pub use id::{PlanId, PolicyId};
pub use key::Key;
pub use lease::{LEAD_MIN_NS, Lease, LeaseAnswer, LeaseDemand, View};
pub use outcome::{Answer, Outcome};
pub use penalty::{Penalty, PenaltyCheck};
pub use plan::{Plan, Sharing, WhenDown};
pub use quota::{Algorithm, Quota};
pub use script_model::ScriptModel;
pub use sliding_log::Log;
pub use state::State;
pub use trial::{Side, Trial, Worlds};
