//! Leases that nobody uses go back.
//!
//! Every key that was granted something is watched until it holds nothing any more. It runs on the control runtime;
//! no request waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Limiter;
use super::fleet::Fleet;
use crate::limit::Plan;
use crate::limit::Share;
use crate::limit::central::Op;

/// Keys that hold something, and the number of their plan.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashMap<u128, u32>>);

impl Watched {
    pub(super) fn add(&self, key: u128, plan: u32) {
        self.keys().insert(key, plan);
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<u128, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limiter {
    /// Gives back leases whose keys have gone idle, and follows the size of the fleet. To be called every
    /// `SWEEP_EVERY`.
    pub fn sweep(self: &Arc<Self>, now_ns: u64) {
        let Some(fleet) = &self.fleet else { return };
        let shares = fleet.plans.resize(fleet.link.nodes());
        if !shares.is_empty() {
            self.table.declare(shares);
        }
        self.release_where(fleet, now_ns, |share, plan| share.is_idle(plan, now_ns));
        self.say_permits(fleet, now_ns);
    }

    /// Gives back every lease: this node decides nothing any more.
    pub fn release_all(&self, now_ns: u64) {
        if let Some(fleet) = &self.fleet {
            self.release_where(fleet, now_ns, |_, _| true);
        }
    }

    fn release_where(&self, fleet: &Fleet, now_ns: u64, is_over: impl Fn(&Share, &Plan) -> bool) {
        let mut released = Vec::new();
        let plans = &fleet.plans;
        fleet.watched.keys().retain(|&key, &mut number| {
            let Some(plan) = plans.get(number) else { return false };
            let kept = fleet.change_known(key, |_, share| {
                if share.says_nothing(plan, now_ns) {
                    return false;
                }
                share.forgive(now_ns);
                if is_over(share, plan) && fleet.link.is_up(key) {
                    released.extend(share.release(plan, key, now_ns));
                    return false;
                }
                true
            });
            kept.unwrap_or(false)
        });
        for renewal in released {
            fleet.link.send(Op::Renew(renewal), Box::new(|_, _| {}));
        }
    }
}
