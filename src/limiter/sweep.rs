//! The sweep: returns leases that nobody uses, repeats permits, and sends debts.
//!
//! Every key that was granted something is watched until it holds nothing. The sweep runs on the control runtime; no
//! request waits for it.

use std::sync::Arc;

use super::Limiter;
use super::fleet::Fleet;
use crate::limit::{Lease, Plan};

impl Limiter {
    /// Returns idle leases, adapts this node's shares to the number of nodes, and sends permits and debts that are due.
    /// Call it every `SWEEP_EVERY`.
    pub fn sweep(self: &Arc<Self>, now_ns: u64) {
        let Some(fleet) = &self.fleet else { return };
        let quotas = fleet.plans.resize(fleet.link.nodes());
        if !quotas.is_empty() {
            self.table.declare(quotas);
        }
        self.release_where(fleet, now_ns, |share, plan| share.is_idle(plan, now_ns));
        self.say_permits(fleet, now_ns);
        self.tell_debts(fleet, now_ns);
    }

    /// Returns all leases, when this node stops. Returns whether to call again in a moment: some are left, or have a
    /// renewal in flight.
    pub fn release_all(self: &Arc<Self>, now_ns: u64) -> bool {
        self.fleet.as_ref().is_some_and(|fleet| self.release_where(fleet, now_ns, |_, _| true))
    }

    /// Returns the leases for which `is_over` holds, at most `RELEASED_MAX`: a request's question must not queue behind
    /// thousands of returns, and a return that finds the pipeline's queue full is lost. Whether some are left.
    fn release_where(
        self: &Arc<Self>,
        fleet: &Fleet,
        now_ns: u64,
        is_over: impl Fn(&Lease, &Plan) -> bool,
    ) -> bool {
        let (mut over, mut is_more) = (Vec::new(), false);
        let (plans, mut round_trip_ns) = (&fleet.plans, 0);
        fleet.watched.keys().retain(|&key, &mut number| {
            let Some(plan) = plans.get(number) else { return false };
            round_trip_ns = round_trip_ns.max(fleet.link.round_trip_ns(key));
            let kept = fleet.change_known(key, |_, share| {
                if share.says_nothing(plan, now_ns) {
                    return false;
                }
                share.forgive(now_ns);
                let is_out = share.has_something_of_redis() || share.is_in_flight();
                if is_out && is_over(share, plan) && fleet.link.is_up(key) {
                    is_more |= share.is_in_flight() || over.len() >= RELEASED_MAX;
                    if over.len() < RELEASED_MAX {
                        over.push((key, number));
                    }
                }
                true
            });
            kept.unwrap_or(false)
        });
        fleet.follow(round_trip_ns);
        for (key, number) in over {
            if let Some(plan) = plans.get(number) {
                is_more |= !self.release(fleet, key, number, plan, now_ns);
            }
        }
        is_more
    }
}

/// The most leases returned at a time: about what one call on each connection to a Redis takes.
const RELEASED_MAX: usize = 512;
