//! One request's walk over its charges: what this node can say by itself, what Redis must, and how it all ends
//! in one decision.

use std::slice;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::exact::Fate;
use super::waiting::{Verdict, Wait, Waiting};
use super::{Caller, Decision, Limiter};
use crate::limit::{Algorithm, Charge, Outcome};
use crate::local::Place;
use crate::metrics::Tier;

/// What became of one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// It is spent.
    Taken {
        /// So it is given back.
        undo: Refund,
        /// The lease it came from should be renewed, if the request passes.
        renews: bool,
    },
    /// It does not fit.
    Refused,
    /// Nothing was spent on it: another charge refuses the request already.
    Unspent,
    /// Redis must say.
    Asked,
}

impl Stand {
    /// It is spent, and what it was spent of is as it should be.
    pub(super) fn taken(undo: Refund) -> Stand {
        Stand::Taken { undo, renews: false }
    }
}

/// How a charge is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refund {
    /// To this node's own table, under its own quota.
    Table(Place),
    /// To the same, under this node's share of the quota: it was decided without Redis, perhaps after a wait.
    Fallback {
        /// Where in the table.
        place: Place,
        /// When, nanoseconds.
        taken_ns: u64,
    },
    /// To the lease.
    Lease,
    /// To Redis, which took it at this time of its clock.
    Redis {
        /// Microseconds since 1970.
        taken_us: u64,
    },
    /// To this node's permits, which Redis is told of.
    Permit,
    /// Not at all: nothing was counted.
    Nothing,
}

impl Default for Refund {
    fn default() -> Refund {
        Refund::Table(Place::Slot)
    }
}

impl Limiter {
    /// Decides the one charge of a fleet's request: the usual one, with nothing to be weighed against. `None`: it is
    /// decided.
    #[inline(never)]
    pub(super) fn decide_shared(
        self: &Arc<Self>,
        charge: &Charge,
        caller: Caller,
        now_ns: u64,
        decision: &mut Decision,
    ) -> Option<Waiting> {
        let (stand, outcome) = self.stand(charge, caller, now_ns, decision);
        if let Stand::Taken { renews: true, .. } = stand {
            self.renew_ahead(charge, now_ns);
        }
        decision.outcomes.push(outcome);
        match stand {
            Stand::Taken { undo, .. } => {
                decision.note(0, undo);
                self.fleet.iter().for_each(|fleet| fleet.owe_fallback(charge, &stand));
            }
            Stand::Refused => decision.is_refused = !charge.shadow,
            Stand::Asked => return Some(self.ask(slice::from_ref(charge), smallvec![stand], caller, now_ns)),
            Stand::Unspent => {}
        }
        if !charge.shadow {
            decision.binding = Some(0);
        }
        None
    }

    /// Decides any number of charges. `None`: they are decided.
    #[inline(never)]
    pub(super) fn decide_all(
        self: &Arc<Self>,
        charges: &[Charge],
        caller: Caller,
        now_ns: u64,
        decision: &mut Decision,
    ) -> Option<Waiting> {
        let mut stands: SmallVec<[Stand; 4]> = SmallVec::new();
        let mut waits = false;
        for charge in charges {
            let (stand, outcome) = if decision.is_refused && !charge.count_denied {
                (Stand::Unspent, self.foresee(charge, now_ns))
            } else {
                self.stand(charge, caller, now_ns, decision)
            };
            decision.is_refused |= stand == Stand::Refused && !charge.shadow;
            waits |= stand == Stand::Asked;
            stands.push(stand);
            decision.outcomes.push(outcome);
        }
        if waits && !decision.is_refused {
            return Some(self.ask(charges, stands, caller, now_ns));
        }
        for (charge, _) in charges.iter().zip(&stands).filter(|(_, stand)| **stand == Stand::Asked) {
            self.forget_wanted(charge);
        }
        self.conclude(charges, &stands, now_ns, decision);
        if decision.is_admitted() {
            self.renew_all(charges, &stands, now_ns);
            self.owe_all(charges, &stands);
        }
        None
    }

    /// Notes what was admitted without Redis where it had not even been asked.
    fn owe_all(&self, charges: &[Charge], stands: &[Stand]) {
        if let Some(fleet) = &self.fleet {
            charges.iter().zip(stands).for_each(|(charge, stand)| fleet.owe_fallback(charge, stand));
        }
    }

    /// Ends a wait with what Redis has said so far, in the decision that began it. What it has not said is
    /// decided as the policies want it without Redis, and an answer that comes later is undone.
    pub fn resume(self: &Arc<Self>, mut waiting: Waiting, now_ns: u64, decision: &mut Decision) {
        let verdicts = waiting.wait.close();
        // From here on it is undone here, not when the wait is dropped.
        let mut stands = std::mem::take(&mut waiting.stands);
        let fleet = self.fleet.as_ref().expect("only a fleet's requests wait");
        let (before, reserved) = (stands.clone(), std::mem::take(&mut waiting.reserved));
        let plans = &fleet.plans;
        // Who wait for an answer still, and whose questions Redis certainly did nothing about.
        let (mut awaits, mut undone) = (SmallVec::<[usize; 4]>::new(), SmallVec::<[usize; 4]>::new());
        for (index, verdict) in verdicts.into_iter().enumerate() {
            if stands[index] != Stand::Asked {
                continue;
            }
            let charge = &waiting.charges[index];
            match verdict {
                None => awaits.push(index),
                Some(Verdict::Undone) => undone.push(index),
                Some(_) => {}
            }
            let said = verdict.and_then(Verdict::stand);
            let mine = reserved.iter().find(|reserved| reserved.index == index);
            let (stand, outcome) = match (said, plans.get(charge.plan)) {
                (Some(said), _) => {
                    decision.tier = decision.tier.max(Tier::Global);
                    if let (Some(mine), false) = (mine, matches!(said.0, Stand::Taken { .. })) {
                        self.give_back_share(fleet, charge, mine.undo);
                    }
                    said
                }
                (None, Some(_)) if let Some(late) = self.decide_late(fleet, charge, mine, now_ns) => {
                    decision.tier = Tier::Fallback;
                    late
                }
                (None, Some(plan)) => self.alone(fleet, plan, charge, waiting.caller, now_ns, decision),
                (None, None) => unreachable!("what was asked of Redis has a plan"),
            };
            decision.is_refused |= stand == Stand::Refused && !charge.shadow;
            decision.outcomes[index] = outcome;
            stands[index] = stand;
        }
        self.conclude(&waiting.charges, &stands, waiting.started_ns, decision);
        if decision.is_admitted() {
            // What another window was owed while this one was asked is told, too.
            self.renew_all(&waiting.charges, &stands, now_ns);
            self.owe_all(&waiting.charges, &before);
        }
        if awaits.is_empty() && undone.is_empty() {
            return;
        }
        let fates = Limiter::fates(&waiting.charges, &stands, decision.is_admitted());
        for index in undone {
            if fates[index] == Some(Fate::Stands) {
                fleet.owe_fallback(&waiting.charges[index], &stands[index]);
            }
        }
        self.tell_fates(&waiting.wait, &waiting.charges, fates);
    }

    /// Says what stands, all or nothing. What this node took by itself it took at `taken_ns`, or says when.
    fn conclude(
        self: &Arc<Self>,
        charges: &[Charge],
        stands: &[Stand],
        taken_ns: u64,
        decision: &mut Decision,
    ) {
        if decision.is_refused {
            self.undo(charges, stands, taken_ns);
            for ((charge, stand), outcome) in charges.iter().zip(stands).zip(&mut decision.outcomes) {
                match stand {
                    // What Redis said holds without the cost that has just been given back.
                    Stand::Taken { undo: Refund::Redis { .. } | Refund::Permit, .. } => {
                        let remaining = outcome.remaining.saturating_add(charge.cost);
                        *outcome = Outcome::new(outcome.answer(), remaining, outcome.reset_ns);
                    }
                    Stand::Refused | Stand::Unspent if charge.plan != 0 => {}
                    _ => {
                        let left = self.look(charge, taken_ns);
                        *outcome = Outcome::new(outcome.answer(), left.remaining, left.reset_ns);
                    }
                }
            }
        } else {
            for (index, stand) in stands.iter().enumerate() {
                if let Stand::Taken { undo, .. } = stand {
                    decision.note(index, *undo);
                }
            }
        }
        decision.bind(charges);
    }

    /// Gives back what a refused request has taken. What counts when denied stays taken; but a refused request is not
    /// in flight.
    pub(super) fn undo(self: &Arc<Self>, charges: &[Charge], stands: &[Stand], taken_ns: u64) {
        for (charge, stand) in charges.iter().zip(stands) {
            let stays = charge.count_denied && charge.quota.algorithm() != Algorithm::Concurrency;
            if let Stand::Taken { undo, .. } = stand
                && !stays
            {
                self.give_back(charge, *undo, taken_ns);
            }
        }
    }

    /// Renews the leases that an admitted request has left low.
    fn renew_all(self: &Arc<Self>, charges: &[Charge], stands: &[Stand], now_ns: u64) {
        for (charge, stand) in charges.iter().zip(stands) {
            if let Stand::Taken { renews: true, .. } = stand {
                self.renew_ahead(charge, now_ns);
            }
        }
    }

    /// Renews the lease a charge was spent of, before it is over.
    fn renew_ahead(self: &Arc<Self>, charge: &Charge, now_ns: u64) {
        let Some(fleet) = &self.fleet else { return };
        if let Some(plan) = fleet.plans.get(charge.plan).filter(|_| fleet.link.is_up(charge.key)) {
            self.renew(fleet, charge.key, charge.plan, plan, None, now_ns);
        }
    }

    /// Another window refused the request, and this one was not asked: nobody wanted anything of it.
    fn forget_wanted(&self, charge: &Charge) {
        let Some(fleet) = &self.fleet else { return };
        let is_leased = fleet.plans.get(charge.plan).is_some_and(|plan| !plan.sharing.is_exact());
        if is_leased {
            let _ = fleet.change_known(charge.key, |_, share| share.forget_wanted(charge.cost));
        }
    }

    /// What is left of a charge's window, as this node knows it; nothing is spent.
    pub(super) fn look(&self, charge: &Charge, now_ns: u64) -> Outcome {
        self.foresee(&Charge { cost: 0, ..*charge }, now_ns)
    }

    /// What would be said of a charge, as this node knows it; nothing is spent.
    pub(super) fn foresee(&self, charge: &Charge, now_ns: u64) -> Outcome {
        let Some(fleet) = &self.fleet else { return self.table.peek(charge, now_ns) };
        match fleet.fallback_share(charge) {
            Some(share) if share.algorithm() == Algorithm::Concurrency => {
                fleet.permits.foresee(charge, &share)
            }
            Some(quota) => self.table.peek(&Charge { quota, ..*charge }, now_ns),
            None => fleet.foresee(charge, now_ns).unwrap_or_else(|| self.table.peek(charge, now_ns)),
        }
    }

    /// Sends every question of a request.
    #[cold]
    fn ask(
        self: &Arc<Self>,
        charges: &[Charge],
        stands: SmallVec<[Stand; 4]>,
        caller: Caller,
        now_ns: u64,
    ) -> Waiting {
        let asked = |stand: &&Stand| **stand == Stand::Asked;
        let wait = Arc::new(Wait::new(charges.len(), stands.iter().filter(asked).count()));
        let indices: SmallVec<[usize; 4]> =
            (0..charges.len()).filter(|index| stands[*index] == Stand::Asked).collect();
        let reserved = match &self.fleet {
            Some(fleet) => self.reserve(fleet, charges, &indices, now_ns),
            None => SmallVec::new(),
        };
        wait.reserve(&reserved);
        let waiting = Waiting {
            limiter: Arc::clone(self),
            charges: charges.into(),
            stands,
            wait: Arc::clone(&wait),
            caller,
            started_ns: now_ns,
            reserved,
        };
        self.ask_redis(charges, indices, &wait, now_ns);
        waiting
    }
}

impl Verdict {
    /// What becomes of its charge; `None` where there is no answer.
    fn stand(self) -> Option<(Stand, Outcome)> {
        match self {
            Verdict::Taken(outcome, undo) => Some((Stand::taken(undo), outcome)),
            Verdict::Fits(outcome) => Some((Stand::Unspent, outcome)),
            Verdict::Refused(outcome) => Some((Stand::Refused, outcome)),
            Verdict::Unanswered | Verdict::Undone => None,
        }
    }
}
