//! Refunds and reconciliation: gives units back to wherever they were taken (table, lease, Redis, permits), and corrects
//! an estimated charge once the answer states the cost.

use std::sync::Arc;

use crate::Limiter;
use crate::check::charge_state::Refund;
use crate::fallback::unsent_queue::Settling;
use crate::fleet::Fleet;
use crate::local::StateLocation;
use base::clock;
use limit::Charge;
use limit::lease_messages::ExactCharge;

impl Limiter {
    /// Gives a charge's units back. `refund` is its [`Decision::refund`](crate::Decision::refund), `taken_ns` the time of
    /// the decision.
    pub fn refund(self: &Arc<Self>, charge: &Charge, refund: Refund, taken_ns: u64) {
        match (refund, &self.fleet) {
            (Refund::Nothing, _) => {}
            (Refund::Permit, Some(fleet)) => self.release_permit(fleet, charge),
            (Refund::Table(place), _) => self.table.give_back(charge, place, taken_ns),
            (_, None) => {}
            (Refund::Fallback { place, taken_ns }, Some(fleet)) => {
                self.refund_share(fleet, charge, place, taken_ns);
                match fleet.taken_late.at_us(charge.key, taken_ns) {
                    Some(taken_us) => self.return_to_redis(fleet, charge, taken_us),
                    // If Redis has been told of it, or may have it, nothing goes back, because that could be a unit too
                    // many.
                    None => fleet.debts.forgive(charge),
                }
            }
            (Refund::Lease, Some(fleet)) => {
                // If the lease has gone meanwhile, its units were already returned.
                fleet.change_watched(charge.key, taken_ns, |share| share.give_back(charge.cost));
            }
            (Refund::Redis { taken_us }, Some(fleet)) => {
                self.table.give_back(&fleet.own_part(charge), StateLocation::Slot, taken_ns);
                self.return_to_redis(fleet, charge, taken_us);
            }
        }
    }

    /// Refunds to this node's table what was taken under its share of the quota.
    pub(crate) fn refund_share(&self, fleet: &Fleet, charge: &Charge, place: StateLocation, taken_ns: u64) {
        let quota = fleet.share_of(charge);
        self.table.give_back(&Charge { quota, ..*charge }, place, taken_ns);
    }

    /// Corrects a charge to the cost that the answer stated: refunds the difference if it is less, and debits it where the
    /// charge was taken if it is more.
    pub fn reconcile(
        self: &Arc<Self>,
        charge: &Charge,
        refund: Refund,
        taken_ns: u64,
        cost: u64,
        now_ns: u64,
    ) {
        let Some(more) = cost.checked_sub(charge.cost) else {
            return self.refund(&Charge { cost: charge.cost - cost, ..*charge }, refund, taken_ns);
        };
        let rest = Charge { cost: more, ..*charge };
        match (refund, &self.fleet) {
            _ if more == 0 => {}
            // A permit stands for a request in flight, whatever it costs.
            (Refund::Nothing | Refund::Permit, _) => {}
            (Refund::Table(place), _) => self.table.debit(&rest, place, now_ns),
            (_, None) => {}
            (Refund::Fallback { place, taken_ns }, Some(fleet)) => {
                let quota = fleet.share_of(charge);
                self.table.debit(&Charge { quota, ..rest }, place, now_ns);
                match (fleet.taken_late.at_us(charge.key, taken_ns), fleet.plans.get(charge.plan)) {
                    (Some(_), Some(plan)) => {
                        self.settle(fleet, Settling::debit(ExactCharge::of(&rest, plan), now_ns));
                    }
                    _ => fleet.debts.add(&rest, more, now_ns, fleet.nodes()),
                }
            }
            (Refund::Lease, Some(fleet)) => {
                // Watched, because no request may come that would tell it.
                fleet.change_watched(charge.key, now_ns, |share| share.owe(more));
            }
            (Refund::Redis { .. }, Some(fleet)) => self.debit_in_redis(fleet, &rest, now_ns),
        }
    }

    /// Refunds an exact charge to Redis.
    pub(crate) fn return_to_redis(self: &Arc<Self>, fleet: &Fleet, charge: &Charge, taken_us: u64) {
        let Some(plan) = fleet.plans.get(charge.plan) else { return };
        self.settle(fleet, Settling::give_back(ExactCharge::of(charge, plan), taken_us, clock::now_ns()));
    }

    /// Returns what Redis gave so long ago to requests that were refused, and nobody has spent.
    pub(crate) fn return_unused(self: &Arc<Self>, fleet: &Fleet, kept_ns: u64, now_ns: u64) {
        for (charge, taken_us) in fleet.advances.take_unused(kept_ns, now_ns) {
            self.return_to_redis(fleet, &charge, taken_us);
        }
    }

    /// Debits an exact window in Redis, whether the cost fits or not.
    fn debit_in_redis(self: &Arc<Self>, fleet: &Fleet, charge: &Charge, now_ns: u64) {
        let Some(plan) = fleet.plans.get(charge.plan) else { return };
        self.table.debit(&fleet.own_part(charge), StateLocation::Slot, now_ns);
        self.settle(fleet, Settling::debit(ExactCharge::of(charge, plan), now_ns));
    }
}
