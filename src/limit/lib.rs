//! The arithmetic of limits: pure functions from (state, quota, cost, now) to (state, outcome). No I/O, no clock, no tokio.
//!
//! A limit of five a second for each client, wherever the states are kept:
//!
//! ```
//! use std::collections::HashMap;
//! use std::num::NonZeroU64;
//!
//! use limit::{Algorithm, Quota, State};
//!
//! const SECOND: NonZeroU64 = NonZeroU64::new(1_000_000_000).unwrap();
//! const FIVE: NonZeroU64 = NonZeroU64::new(5).unwrap();
//! let quota = Quota::new(Algorithm::TokenBucket, FIVE, SECOND, FIVE);
//! let mut clients: HashMap<&str, State> = HashMap::new();
//! let mut take = |client, now_ns| {
//!     let state = clients.entry(client).or_default();
//!     let (after, outcome) = state.take(&quota, 1, now_ns);
//!     *state = after;
//!     outcome
//! };
//!
//! let now_ns = 1_000_000_000;
//! assert!((0..5).all(|_| take("ann", now_ns).is_admitted()));
//! assert_eq!(take("ann", now_ns).retry_after_ns(), Some(200_000_000));
//! assert!(take("bob", now_ns).is_admitted());
//! assert!(take("ann", now_ns + 200_000_000).is_admitted());
//! ```

#![warn(missing_docs)]

mod axis;
pub mod breaker;
pub mod calendar;
pub mod charge;
mod concurrency;
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
mod small_window;
pub mod state;
mod token_bucket;
pub mod trial;

pub use breaker::Breaker;
pub use calendar::{Calendar, CalendarUnit, Zone};
pub use charge::Charge;
pub use id::{PlanId, PolicyId};
pub use key::Key;
pub use lease::{LEAD_MIN_NS, Lease, LeaseAnswer, LeaseDemand, View, hear_level, outgrows, owed};
pub use outcome::{Answer, Outcome};
pub use penalty::{FleetRecord, Penalty, PenaltyCheck};
pub use plan::{Plan, Sharing, WhenDown};
pub use quota::{Algorithm, Quota};
pub use script_model::ScriptModel;
pub use sliding_log::Log;
pub use state::State;
pub use trial::{Side, Trial, TrialSet};
