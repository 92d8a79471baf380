//! The limiting arithmetic: pure functions of (state, quota, cost, now). No I/O, no clock, no tokio.

pub mod charge;
pub mod quota;

pub use charge::Charge;
pub use quota::{Algorithm, Quota};
