//! The limiting arithmetic: pure functions of (state, quota, cost, now). No I/O, no clock, no tokio.

pub mod breaker;
pub mod central;
pub mod charge;
mod fixed_window;
pub mod outcome;
pub mod plan;
pub mod quota;
mod sliding_window;
pub mod state;
mod token_bucket;

pub use breaker::Breaker;
pub use charge::Charge;
pub use outcome::{Answer, Outcome};
pub use plan::{Plan, Sharing, WhenDown};
pub use quota::{Algorithm, Quota};
pub use state::State;
