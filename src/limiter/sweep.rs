//! Leases that nobody uses go back.
//!
//! Every key that was granted something is watched until it holds nothing any more. It runs on the control runtime;
//! no request waits for it.

use std::sync::Arc;

use super::Limiter;
use super::fleet::Fleet;
use crate::limit::{Lease, Plan};

impl Limiter {
    /// Gives back leases whose keys have gone idle, and follows the size of the fleet. To be called every
    /// `SWEEP_EVERY`.
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

    /// Gives back leases: this node decides nothing any more. Whether to call again in a moment, because there are
    /// more of them, or a renewal is on its way.
    pub fn release_all(self: &Arc<Self>, now_ns: u64) -> bool {
        self.fleet.as_ref().is_some_and(|fleet| self.release_where(fleet, now_ns, |_, _| true))
    }

    /// Gives back those that are over, but no more than `RELEASED_MAX` of them: nobody who waits for Redis is to
    /// stand behind thousands, and what has no room on its way there is lost. Whether some are left for the next time.
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

/// Leases that go back at a time: about what one call to each of a Redis's connections takes.
const RELEASED_MAX: usize = 512;
