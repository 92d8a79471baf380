//! What was taken for a request comes back, or is reconciled with what it cost: wherever it was taken.

use std::sync::Arc;

use super::Limiter;
use super::charge_state::Refund;
use super::fleet::Fleet;
use crate::limit::Charge;
use crate::limit::lease_messages::{Op, Part};
use crate::local::Place;

impl Limiter {
    /// Gives back what a charge took, as its [`Decision::refund`](super::Decision::refund) says, and when.
    pub fn refund(self: &Arc<Self>, charge: &Charge, refund: Refund, taken_ns: u64) {
        match (refund, &self.fleet) {
            (Refund::Nothing, _) => {}
            (Refund::Permit, Some(fleet)) => self.release_permit(fleet, charge),
            (Refund::Table(place), _) => self.table.give_back(charge, place, taken_ns),
            (_, None) => {}
            (Refund::Fallback { place, taken_ns }, Some(fleet)) => {
                self.refund_share(fleet, charge, place, taken_ns);
                fleet.debts.forgive(charge);
            }
            (Refund::Lease, Some(fleet)) => {
                // A share that has gone meanwhile has been returned whole.
                let held = fleet.change_known(charge.key, |number, share| {
                    let held_nothing = share.holds_nothing();
                    share.give_back(charge.cost);
                    held_nothing.then_some(number)
                });
                // One whose lease ended while the request waited may be watched no more.
                if let Some(Some(number)) = held {
                    fleet.watched.add(charge.key, number);
                }
            }
            (Refund::Redis { taken_us }, Some(fleet)) => {
                self.table.give_back(&fleet.own_part(charge), Place::Slot, taken_ns);
                self.return_to_redis(fleet, charge, taken_us);
            }
        }
    }

    /// Gives back to this node's share of a window what was taken of it in the node's own table.
    pub(super) fn refund_share(&self, fleet: &Fleet, charge: &Charge, place: Place, taken_ns: u64) {
        let quota = fleet.share_of(charge);
        self.table.give_back(&Charge { quota, ..*charge }, place, taken_ns);
    }

    /// Reconciles what a charge took with what its request cost, once that is known: less comes back, and what is more
    /// is owed where it was taken.
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
            // Permits are not reconciled: they come back as they were taken.
            (Refund::Nothing | Refund::Permit, _) => {}
            (Refund::Table(place), _) => self.table.debit(&rest, place, now_ns),
            (_, None) => {}
            (Refund::Fallback { place, .. }, Some(fleet)) => {
                let quota = fleet.share_of(charge);
                self.table.debit(&Charge { quota, ..rest }, place, now_ns);
            }
            (Refund::Lease, Some(fleet)) => {
                let _ = fleet.change_known(charge.key, |_, share| share.owe(more));
            }
            (Refund::Redis { .. }, Some(fleet)) => self.debit_in_redis(fleet, &rest, now_ns),
        }
    }

    /// Gives back what Redis took of an exact window. What it denied since may fit then, so this node asks again;
    /// the others learn of it when their denials end.
    pub(super) fn return_to_redis(self: &Arc<Self>, fleet: &Fleet, charge: &Charge, taken_us: u64) {
        let Some(plan) = fleet.plans.get(charge.plan) else { return };
        let (limiter, key) = (Arc::clone(self), charge.key);
        fleet.link.send(
            Op::Return { parts: [Part::of(charge, plan)].into_iter().collect(), taken_us },
            Box::new(move |_, now_ns| {
                if let Some(fleet) = &limiter.fleet {
                    let _ = fleet.change_known(key, |_, share| share.deny_for(0, now_ns));
                }
            }),
        );
    }

    /// Spends more of an exact window than Redis took, whether it fits or not.
    fn debit_in_redis(&self, fleet: &Fleet, charge: &Charge, now_ns: u64) {
        let Some(plan) = fleet.plans.get(charge.plan) else { return };
        self.table.debit(&fleet.own_part(charge), Place::Slot, now_ns);
        let parts = [Part::of(charge, plan)].into_iter().collect();
        fleet.link.send(Op::Debit(parts), Box::new(|_, _| {}));
    }
}
