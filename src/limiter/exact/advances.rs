//! Exact windows whose answers come after their requests are decided: what this node admits before Redis has answered, and
//! the units that Redis gave to requests that had been refused by then, which go to the next ones.
//!
//! While much is left, a node admits its even part of what Redis last said is left, less what it has not been answered
//! about: so all nodes together admit no more than there is, and each question is charged when it arrives. Once little is
//! left it admits only what Redis has given. What Redis refuses afterwards is a debt (`debts.rs`).

use std::collections::VecDeque;

use crate::local::striped::Striped;
use limit::{Charge, Key};

/// What was advanced and what is there to spend, by key.
#[derive(Debug, Default)]
pub(crate) struct Advances(Striped<Advance>);

#[derive(Debug, Default)]
struct Advance {
    /// Units admitted about which Redis has not answered.
    unanswered: u64,
    /// Units that Redis took and no request has, the oldest first.
    granted: VecDeque<Granted>,
}

/// Units that Redis took for a request that was refused.
#[derive(Clone, Copy, Debug)]
struct Granted {
    /// Its cost is what is left of it.
    charge: Charge,
    /// When Redis took it, microseconds of its clock.
    taken_us: u64,
    /// When that was heard, nanoseconds.
    since_ns: u64,
}

impl Advances {
    /// Takes the cost of a charge out of what Redis has given. Returns when Redis took it, microseconds of its clock.
    pub(crate) fn spend(&self, charge: &Charge) -> Option<u64> {
        let mut keys = self.0.of(charge.key);
        let granted = &mut keys.get_mut(&charge.key)?.granted;
        granted.retain(|granted| granted.charge.plan == charge.plan && granted.charge.cost > 0);
        let units = granted.iter().fold(0_u64, |sum, granted| sum.saturating_add(granted.charge.cost));
        let (mut missing, mut taken_us) = (charge.cost, granted.front()?.taken_us);
        if units < missing {
            return None;
        }
        while missing > 0 {
            let first = granted.front_mut()?;
            let part = first.charge.cost.min(missing);
            (first.charge.cost, missing, taken_us) =
                (first.charge.cost - part, missing - part, first.taken_us);
            if first.charge.cost == 0 {
                granted.pop_front();
            }
        }
        Some(taken_us)
    }

    /// Admits a charge before its answer, if it and what is not answered yet are within `part`.
    pub(crate) fn admit(&self, charge: &Charge, part: u64) -> bool {
        let mut keys = self.0.of(charge.key);
        let unanswered = &mut keys.entry(charge.key).or_default().unanswered;
        let sum = unanswered.saturating_add(charge.cost);
        if sum <= part {
            *unanswered = sum;
        }
        sum <= part
    }

    /// Units admitted about which Redis has not answered.
    pub(crate) fn unanswered(&self, key: Key) -> u64 {
        self.0.of(key).get(&key).map_or(0, |advance| advance.unanswered)
    }

    /// A charge that was admitted has its answer, or is not spent after all.
    pub(crate) fn answered(&self, charge: &Charge) {
        if let Some(advance) = self.0.of(charge.key).get_mut(&charge.key) {
            advance.unanswered = advance.unanswered.saturating_sub(charge.cost);
        }
    }

    /// Keeps what Redis took for a charge that was refused, for the next requests.
    pub(crate) fn keep(&self, charge: &Charge, taken_us: u64, now_ns: u64) {
        let granted = Granted { charge: *charge, taken_us, since_ns: now_ns };
        self.0.of(charge.key).entry(charge.key).or_default().granted.push_back(granted);
    }

    /// Takes out what no request has come for in `kept_ns`, with when Redis took it.
    pub(crate) fn take_unused(&self, kept_ns: u64, now_ns: u64) -> Vec<(Charge, u64)> {
        let mut unused = Vec::new();
        self.0.retain(|_, advance| {
            let is_old = |granted: &mut Granted| now_ns.saturating_sub(granted.since_ns) >= kept_ns;
            while let Some(old) = advance.granted.pop_front_if(is_old) {
                unused.push((old.charge, old.taken_us));
            }
            advance.unanswered > 0 || !advance.granted.is_empty()
        });
        unused
    }
}

/// How long units that Redis gave wait for a request: longer than the shortest `Retry-After`.
pub(crate) const KEPT_NS: u64 = 1_500_000_000;
