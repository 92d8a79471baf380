//! Exact windows whose answers come after their requests are decided: what this node admits before Redis has answered, and
//! the units that Redis gave to requests that had been refused by then, which go to the next ones.
//!
//! While much is left, a node admits its even part of what Redis last said is left, less what it has not been answered
//! about: so all nodes together admit no more than there is, and each question is charged when it arrives. Once little is
//! left it admits only what Redis has given. What Redis refuses afterwards is a debt (`debts.rs`).

use std::collections::VecDeque;

use crate::local::striped_map::StripedMap;
use limit::{Charge, Key};

/// What was advanced and what is there to spend, by key.
#[derive(Debug, Default)]
pub(crate) struct Advances(StripedMap<Advance>);

#[derive(Debug, Default)]
struct Advance {
    /// Units admitted about which Redis has not answered.
    unanswered: u64,
    /// Units admitted since all were answered.
    admitted: u64,
    /// Units that Redis took and no request has, the oldest first.
    granted: VecDeque<LateGrant>,
}

/// Units that Redis took for a request that was refused.
#[derive(Clone, Copy, Debug)]
struct LateGrant {
    /// Its cost is what is left of it.
    charge: Charge,
    /// When Redis took it, microseconds of its clock.
    taken_us: u64,
    since_ns: u64,
}

impl Advances {
    /// Takes the cost of a charge out of what Redis has given. Returns when Redis took it, microseconds of its clock.
    pub(crate) fn spend(&self, charge: &Charge) -> Option<u64> {
        let mut keys = self.0.of(charge.key);
        let granted = &mut keys.get_mut(&charge.key)?.granted;
        // What was given under another plan is left: `take_unused` returns it under that.
        let alike = |granted: &LateGrant| granted.charge.plan == charge.plan;
        let costs = granted.iter().filter(|granted| alike(granted)).map(|granted| granted.charge.cost);
        if costs.fold(0, u64::saturating_add) < charge.cost {
            return None;
        }
        let (mut missing, mut taken_us) = (charge.cost, None);
        for granted in granted.iter_mut().filter(|granted| alike(granted)) {
            let part = granted.charge.cost.min(missing);
            granted.charge.cost -= part;
            missing -= part;
            taken_us = Some(granted.taken_us);
            if missing == 0 {
                break;
            }
        }
        while granted.pop_front_if(|granted| granted.charge.cost == 0).is_some() {}
        taken_us
    }

    /// Admits a charge before its answer, if it and what is not answered yet are within `part`.
    pub(crate) fn admit(&self, charge: &Charge, part: u64) -> bool {
        let mut keys = self.0.of(charge.key);
        let advance = keys.entry(charge.key).or_default();
        let sum = advance.unanswered.saturating_add(charge.cost);
        if sum <= part {
            advance.unanswered = sum;
            advance.admitted = advance.admitted.saturating_add(charge.cost);
        }
        sum <= part
    }

    pub(crate) fn unanswered(&self, key: Key) -> u64 {
        self.0.of(key).get(&key).map_or(0, |advance| advance.unanswered)
    }

    /// A charge that was admitted has its answer, or is not spent after all. Returns what was admitted since all was answered
    /// before, if all is again.
    pub(crate) fn answered(&self, charge: &Charge) -> Option<u64> {
        let mut keys = self.0.of(charge.key);
        let advance = keys.get_mut(&charge.key)?;
        advance.unanswered = advance.unanswered.saturating_sub(charge.cost);
        (advance.unanswered == 0).then(|| std::mem::take(&mut advance.admitted))
    }

    /// Keeps what Redis took for a charge that was refused, for the next requests.
    pub(crate) fn keep(&self, charge: &Charge, taken_us: u64, now_ns: u64) {
        let granted = LateGrant { charge: *charge, taken_us, since_ns: now_ns };
        self.0.of(charge.key).entry(charge.key).or_default().granted.push_back(granted);
    }

    /// Takes out what no request has come for in `kept_ns`, with when Redis took it.
    pub(crate) fn take_unused(&self, kept_ns: u64, now_ns: u64) -> Vec<(Charge, u64)> {
        let mut unused = Vec::new();
        self.0.retain(|_, advance| {
            let is_old = |granted: &mut LateGrant| now_ns.saturating_sub(granted.since_ns) >= kept_ns;
            while let Some(old) = advance.granted.pop_front_if(is_old) {
                if old.charge.cost > 0 {
                    unused.push((old.charge, old.taken_us));
                }
            }
            advance.unanswered > 0 || !advance.granted.is_empty()
        });
        unused
    }
}

/// How long units that Redis gave wait for a request: longer than the shortest `Retry-After`.
pub(crate) const KEPT_NS: u64 = 1_500_000_000;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use limit::{Algorithm, PlanId, Quota};

    fn charge(plan: u32, cost: u64) -> Charge {
        let ten = NonZeroU64::new(10).expect("it is not zero");
        let quota = Quota::new(Algorithm::FixedWindow, ten, ten, ten);
        Charge { cost, plan: PlanId::from_bits(plan), ..Charge::one(Key::new(7), quota) }
    }

    #[test]
    fn what_was_given_under_another_limit_is_returned_and_not_spent() {
        let advances = Advances::default();
        advances.keep(&charge(1, 3), 11, 0);
        advances.keep(&charge(2, 2), 12, 0);
        advances.keep(&charge(1, 1), 13, 0);
        advances.keep(&charge(2, 4), 14, 0);
        assert_eq!(advances.spend(&charge(2, 7)), None);
        assert_eq!(advances.spend(&charge(3, 1)), None);
        assert_eq!(advances.spend(&charge(2, 3)), Some(14));
        let unused = advances.take_unused(KEPT_NS, KEPT_NS);
        let unused: Vec<_> = unused
            .into_iter()
            .map(|(charge, taken_us)| (PlanId::into_bits(charge.plan), charge.cost, taken_us))
            .collect();
        assert_eq!(unused, [(1, 3, 11), (1, 1, 13), (2, 3, 14)]);
        assert_eq!(advances.spend(&charge(2, 1)), None, "it was returned");
    }
}
