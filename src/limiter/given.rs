//! Limits that a subject brings itself, in the place of its first policy's windows. Each that is new makes a quota and a plan
//! known for good, so their number is bounded.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Mutex, PoisonError};

use crate::limit::{Algorithm, PlanId, Quota, sliding_log};

/// A limit that a subject brings itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnLimit {
    /// Units.
    pub limit: NonZeroU64,
    /// In this time, nanoseconds.
    pub period_ns: NonZeroU64,
}

/// Those that have come, with what was made of them.
#[derive(Debug, Default)]
pub(super) struct Given(Mutex<HashMap<Base, (Quota, Option<PlanId>)>>);

/// The policy, the quota, and the plan of the window whose place it takes.
type Base = (Box<str>, Quota, Option<PlanId>);

impl Given {
    /// The quota and the plan of a policy's window under another limit, which `make` makes known if they are new; `None` if
    /// there are too many different ones already.
    pub(super) fn of(
        &self,
        policy: &str,
        base: (Quota, Option<PlanId>),
        own: OwnLimit,
        make: impl FnOnce(Quota) -> (Quota, Option<PlanId>),
    ) -> Option<(Quota, Option<PlanId>)> {
        let (quota, plan) = base;
        let most = if quota.algorithm() == Algorithm::SlidingLog { sliding_log::LIMIT_MAX } else { u64::MAX };
        let limit = NonZeroU64::new(own.limit.get().min(most)).unwrap_or(NonZeroU64::MIN);
        let quota = Quota::new(quota.algorithm(), limit, own.period_ns, limit);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (Box::from(policy), quota, plan);
        if let Some(found) = known.get(&key) {
            return Some(*found);
        }
        if known.len() >= GIVEN_MAX {
            return None;
        }
        let made = make(quota);
        known.insert(key, made);
        Some(made)
    }
}

/// Different limits that subjects may bring in the life of a process.
const GIVEN_MAX: usize = 1_024;
