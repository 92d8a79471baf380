//! When a lease has to be looked at again, so that a sweep finds those with something to do without a look at the others.

use super::super::{Lease, UNIT, rate_of};
use super::{HELD_BACK_NS, IDLE_ARRIVALS, IDLE_NS, IDLE_UNITS, QUIET_ARRIVALS, RETURN_NS, SPARSE_NS};
use crate::Plan;
use crate::lease::words::{Flag, REPORT_STEP_NS, SEEN_STEP_NS};

impl Lease {
    /// When it is due if no request comes until then: it is idle ([`Lease::is_idle`]), wanted back
    /// ([`Lease::is_wanted_back`]), its denial can be forgotten ([`Lease::forgive`]), or it says nothing any more. At most
    /// `now_ns`: it is due now. `None`: a message is in flight, and its answer changes all of that.
    ///
    /// A request only postpones this, unless it leaves a debt, gives units back, or begins a fallback.
    pub fn due_ns(&self, plan: &Plan, now_ns: u64) -> Option<u64> {
        if self.is_in_flight() {
            return None;
        }
        if self.is_fallback() {
            return Some(self.fallback_due_ns(plan, now_ns));
        }
        let aged_ns = self.0.end_ns().saturating_add(plan.age_ns()).saturating_add(1);
        let denied_until_ns = self.0.deny_until_ns();
        let quiet_ns = |arrivals: f64, least_ns: u64| (arrivals / self.0.demand() * 1e9).max(least_ns as f64);
        let denial_ns = match now_ns < denied_until_ns {
            true => denied_until_ns.min(self.unseen_for_ns(quiet_ns(QUIET_ARRIVALS, IDLE_NS), now_ns)),
            false => u64::MAX,
        };
        let is_over = self.0.epoch() == 0 || now_ns >= aged_ns;
        let balance = self.0.balance();
        let idle_ns = if !is_over && balance >= IDLE_UNITS * UNIT {
            let least_ns = if self.0.has(Flag::Sparse) { SPARSE_NS } else { IDLE_NS };
            // Once it has ended it has more time.
            Some(self.unseen_for_ns(quiet_ns(IDLE_ARRIVALS, least_ns), now_ns))
                .filter(|idle_ns| *idle_ns < aged_ns)
        } else {
            None
        };
        // A return without an answer is not repeated at once.
        let again_ns = match self.0.epoch() {
            0 => self.0.end_ns().saturating_add(HELD_BACK_NS),
            _ => 0,
        };
        let over_ns = if is_over && balance < 0 { now_ns.max(again_ns) } else { aged_ns };
        let rest_ns = match balance {
            ..0 => over_ns,
            0..UNIT => aged_ns.max(denied_until_ns),
            _ if self.0.epoch() == 0 => self.unseen_for_ns(RETURN_NS as f64, now_ns).max(again_ns),
            _ => aged_ns.max(self.unseen_for_ns(RETURN_NS as f64, now_ns)),
        };
        Some(idle_ns.unwrap_or(rest_ns).min(rest_ns).min(denial_ns))
    }

    /// The same of a fallback bucket, which is wanted back or told of by who has Redis, or has refilled.
    fn fallback_due_ns(&self, plan: &Plan, now_ns: u64) -> u64 {
        if self.is_wanted_back(now_ns) {
            return now_ns;
        }
        let refilled_ns = plan.quota.capacity() as f64 / rate_of(&plan.quota) * 1e9;
        let full_ns = self.0.end_ns().saturating_add(refilled_ns.ceil() as u64).saturating_add(1);
        let nothing_ns = full_ns.max(self.0.deny_until_ns());
        match self.has_something_of_redis() {
            true => nothing_ns.min(
                self.unseen_for_ns(SPARSE_NS as f64, now_ns)
                    .max(self.unreported_for_ns(HELD_BACK_NS, now_ns)),
            ),
            false => nothing_ns,
        }
    }

    /// When no request will have come for so long, in the steps in which arrivals are noted.
    fn unseen_for_ns(&self, quiet_ns: f64, now_ns: u64) -> u64 {
        since_ns(self.0.unseen_ns(now_ns), quiet_ns.ceil() as u64, SEEN_STEP_NS, now_ns)
    }

    /// When the last report will have been so long ago, in the steps in which reports are noted.
    fn unreported_for_ns(&self, pause_ns: u64, now_ns: u64) -> u64 {
        since_ns(self.0.unreported_ns(now_ns), pause_ns, REPORT_STEP_NS, now_ns)
    }
}

/// When something that was `ago_ns` before now, to a step, will have been `lasts_ns` ago.
fn since_ns(ago_ns: u64, lasts_ns: u64, step_ns: u64, now_ns: u64) -> u64 {
    let began_ns = (now_ns - now_ns % step_ns).saturating_sub(ago_ns);
    began_ns.saturating_add(lasts_ns.div_ceil(step_ns).saturating_mul(step_ns))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::lease::{LEAD_MIN_NS, LeaseDemand};
    use crate::lease_messages::Grant;
    use crate::{Algorithm, Key, Quota, Sharing, WhenDown};

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;
    const NOW: u64 = 3_600 * SECOND;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Take(u64),
        Renew { tokens: f64, rate: f64, lasts_ms: u64, deny_ms: u64 },
        Asks,
        GivesBack(u64),
        Owes(u64),
        FallsBack(u64),
        Returns,
        Passes(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1u64..5).prop_map(Step::Take),
            4 => (0.0f64..20.0, 0.0f64..40.0, 0u64..500, prop::sample::select(vec![0u64, 0, 40, 3_000, 90_000]))
                .prop_map(|(tokens, rate, lasts_ms, deny_ms)| Step::Renew { tokens, rate, lasts_ms, deny_ms }),
            1 => Just(Step::Asks),
            1 => (1u64..5).prop_map(Step::GivesBack),
            1 => (1u64..5).prop_map(Step::Owes),
            2 => (1u64..5).prop_map(Step::FallsBack),
            1 => Just(Step::Returns),
            6 => (0u64..2_500).prop_map(Step::Passes),
        ]
    }

    fn play(lease: &mut Lease, plan: &Arc<Plan>, step: Step, now_ns: &mut u64) {
        let key = Key::new(7);
        match step {
            Step::Take(cost) => drop(lease.take(plan, cost, *now_ns, LEAD_MIN_NS)),
            Step::Renew { tokens, rate, lasts_ms, deny_ms } => {
                let renewal = lease.renewal(plan, key, LeaseDemand::by_one(1), *now_ns);
                let (lasts_ns, deny_ns) = (lasts_ms * MS, deny_ms * MS);
                let grant = Grant { epoch: 9, tokens, rate, lasts_ns, deny_ns, ..Grant::default() };
                lease.granted(&renewal, &grant, *now_ns);
            }
            Step::Asks => drop(lease.renewal(plan, key, LeaseDemand::by_one(1), *now_ns)),
            Step::GivesBack(cost) => lease.give_back(cost),
            Step::Owes(cost) => lease.owe(cost),
            Step::FallsBack(cost) => drop(lease.take_fallback(plan, cost, *now_ns, 2, true)),
            Step::Returns => {
                if let Some(release) = lease.release(plan, key, *now_ns) {
                    lease.released(&release, Ok(0.0));
                }
            }
            Step::Passes(ms) => *now_ns += ms * MS,
        }
    }

    /// Whether there is something to do for a lease.
    fn is_due(lease: &Lease, plan: &Plan, now_ns: u64) -> bool {
        let mut forgiven = *lease;
        forgiven.forgive(now_ns);
        let is_wanted = lease.is_wanted_back(now_ns);
        is_wanted || lease.is_idle(plan, now_ns) || lease.says_nothing(plan, now_ns) || forgiven != *lease
    }

    proptest! {
        #[test]
        fn nothing_is_to_be_done_for_a_lease_before_it_is_due_and_something_then(
            limit in prop::sample::select(vec![20u64, 1_000]), period_s in prop::sample::select(vec![1u64, 60]),
            steps in prop::collection::vec(step(), 1..25),
            within in prop::collection::vec(0.0f64..1.0, 20),
        ) {
            let positive = |number| NonZeroU64::new(number).expect("not zero");
            let (limit, period_ns) = (positive(limit), positive(period_s * SECOND));
            let quota = Quota::new(Algorithm::TokenBucket, limit, period_ns, limit);
            let sharing = Sharing { epoch_ns: 500 * MS, spare: 9, when_down: WhenDown::Local };
            let plan = Arc::new(Plan { policy: "p".into(), quota, sharing });
            let (mut lease, mut now_ns) = (Lease::default(), NOW);
            for step in steps {
                play(&mut lease, &plan, step, &mut now_ns);
            }
            let due_ns = lease.due_ns(&plan, now_ns);
            prop_assert_eq!(due_ns.is_none(), lease.is_in_flight());
            let Some(due_ns) = due_ns else { return Ok(()) };
            // An arrival is known for 275 s.
            let until_ns = due_ns.min(now_ns + 250 * SECOND);
            for part in within.iter().filter(|_| due_ns > now_ns) {
                let at_ns = now_ns + ((until_ns - now_ns) as f64 * part) as u64;
                prop_assert!(!is_due(&lease, &plan, at_ns), "{at_ns} of {now_ns}..{due_ns}: {lease:?}");
            }
            // A denial that has ended needs nothing done.
            let is_denial = due_ns == lease.0.deny_until_ns();
            prop_assert!(
                until_ns < due_ns || is_denial || is_due(&lease, &plan, due_ns.max(now_ns)),
                "at {due_ns} of {now_ns}: {lease:?}"
            );
        }
    }
}
