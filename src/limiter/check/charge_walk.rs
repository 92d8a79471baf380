//! [`ChargeWalk`]: the charges of one request, from the first to the decision: which of them this node decides, which it asks
//! Redis for, and how the outcomes combine into one decision, all or nothing.
//!
//! How a single shared charge is decided is in `shared_limits.rs`.

use std::slice;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::Limiter;
use crate::check::charge_state::{ChargeOutcome, ChargeState, Refund, said};
use crate::decision::{ClientAddress, Decision, RemoteDecider};
use crate::local::TakeResult;
use crate::wait::{EarlyDecision, Wait};
use crate::waiting::Waiting;
use limit::{Algorithm, Charge, Outcome};
use metrics::DecidingTier;

pub(crate) struct ChargeWalk<'w> {
    pub(crate) limiter: &'w Arc<Limiter>,
    pub(crate) charges: &'w [Charge],
    pub(crate) client: ClientAddress,
    pub(crate) now_ns: u64,
}

type States = SmallVec<[ChargeState; 4]>;

impl Limiter {
    /// Decides a request into `decision`, which it overwrites: filling it in place is cheaper than returning it, because
    /// moving it costs as much as a decision. A refused request spends nothing, except on charges that count denials.
    ///
    /// Returns what to wait for if Redis has to be asked; `decision` is not valid then until [`Waiting::resume`].
    #[inline]
    pub fn decide(
        self: &Arc<Self>,
        charges: &[Charge],
        client: ClientAddress,
        now_ns: u64,
        decision: &mut Decision,
    ) -> Option<Waiting> {
        decision.clear();
        let walk = || ChargeWalk { limiter: self, charges, client, now_ns };
        match (charges, &self.shared) {
            ([charge], None) => {
                let TakeResult { outcome, place } = self.table.take(charge, now_ns);
                decision.decided(charge, outcome, Refund::Table(place));
                None
            }
            ([charge], Some(shared)) => match shared.leases.table.spend(charge, now_ns) {
                Some(outcome) => {
                    decision.decided(charge, outcome, Refund::Lease);
                    None
                }
                None => walk().decide_one(decision),
            },
            _ => walk().decide_all(decision),
        }
    }
}

impl ChargeWalk<'_> {
    /// Decides a request with one charge, which needs no combining. Returns `None` if it is decided.
    #[inline(never)]
    pub(crate) fn decide_one(self, decision: &mut Decision) -> Option<Waiting> {
        let charge = &self.charges[0];
        let (state, outcome) = self.decide(0, charge, decision);
        decision.outcomes.push(outcome.short_of(charge.cost));
        match state {
            ChargeState::Taken { refund, .. } => {
                self.follow_up(slice::from_ref(&state), decision);
                decision.note(0, refund);
            }
            ChargeState::Refused => decision.refused = charge.refuses(),
            ChargeState::Asked => return self.ask(smallvec![state], decision),
            ChargeState::Fits | ChargeState::Unanswered | ChargeState::Untaken => {}
        }
        if !charge.shadow {
            decision.binding = Some(0);
        }
        None
    }

    /// Decides any number of charges. Returns `None` if they are decided.
    #[inline(never)]
    pub(crate) fn decide_all(self, decision: &mut Decision) -> Option<Waiting> {
        let mut states = States::new();
        for (index, charge) in self.charges.iter().enumerate() {
            let is_refused = decision.is_refused_to(charge);
            let is_spared = is_refused && (!charge.count_denied || decision.kept_out.has(charge.world()));
            let (state, outcome) = if is_spared {
                if charge.plan.is_some() {
                    decision.note_elsewhere(index, RemoteDecider::Nobody);
                }
                (ChargeState::Fits, self.limiter.foresee_refused(charge, self.now_ns))
            } else {
                self.decide(index, charge, decision)
            };
            if state == ChargeState::Refused {
                decision.refused.add(charge.refuses());
            }
            states.push(state);
            decision.outcomes.push(outcome);
        }
        for (index, charge) in self.charges.iter().enumerate() {
            if states[index] == ChargeState::Asked && decision.is_refused_to(charge) {
                // Redis is not asked, because another window refuses the request from memory; so does this one, perhaps.
                decision.outcomes[index] = self.limiter.foresee_refused(charge, self.now_ns);
                states[index] = ChargeState::Untaken;
                decision.note_elsewhere(index, RemoteDecider::Nobody);
                self.limiter.shared.iter().for_each(|shared| shared.leases.table.forget_wanted(charge));
            }
        }
        if states.contains(&ChargeState::Asked) {
            return self.ask(states, decision);
        }
        self.conclude(&states, self.now_ns, decision);
        self.follow_up(&states, decision);
        None
    }

    /// Decides the charge of this index, and notes if that was without Redis.
    fn decide(&self, index: usize, charge: &Charge, decision: &mut Decision) -> ChargeOutcome {
        let Some((shared, plan)) = self.limiter.shared(charge) else {
            let taken = self.limiter.table.take(charge, self.now_ns);
            return said(taken.outcome, Refund::Table(taken.place));
        };
        decision.decide_at(index, |decision| shared.decide(&plan, charge, self.client, self.now_ns, decision))
    }

    /// Asks Redis for the charges that wait for it, and returns what to wait for; `None`: nobody waits, it is decided.
    #[cold]
    fn ask(&self, states: States, decision: &mut Decision) -> Option<Waiting> {
        let asked: SmallVec<[usize; 4]> =
            (0..states.len()).filter(|index| states[*index] == ChargeState::Asked).collect();
        let wait = Arc::new(Wait::new(states.len(), asked.len()));
        let waiting = Waiting {
            limiter: Arc::clone(self.limiter),
            charges: self.charges.into(),
            states,
            wait: Arc::clone(&wait),
            client: self.client,
            started_ns: self.now_ns,
        };
        if let Some(shared) = &self.limiter.shared {
            shared.ask(self.charges, asked.into_iter(), &wait, self.now_ns);
        }
        if decision.waits {
            return Some(waiting);
        }
        waiting.resume(self.now_ns, decision);
        None
    }

    /// Renews leases that run low, and records the debts of charges that were admitted by fallback without asking Redis. Only
    /// after admission, because a request that another window refused is no demand.
    fn follow_up(&self, states: &[ChargeState], decision: &Decision) {
        let Some(shared) = &self.limiter.shared else { return };
        for (charge, state) in self.charges.iter().zip(states) {
            if decision.is_refused_to(charge) {
                continue;
            }
            if let ChargeState::Taken { renews: true, .. } = state {
                shared.leases.renew_ahead(charge, self.now_ns);
            }
            shared.fallback.owe_fallback(charge, state, self.now_ns);
        }
    }

    /// Makes the outcomes one decision: refunds what was taken where the request is refused, else notes where each charge
    /// is refunded later. `taken_ns` is when this node took charges whose [`Refund`] holds no time.
    fn conclude(&self, states: &[ChargeState], taken_ns: u64, decision: &mut Decision) {
        let charges = self.charges;
        for (index, (charge, state)) in charges.iter().zip(states).enumerate() {
            if decision.is_refused_to(charge) {
                self.limiter.refund_refused(charge, state, taken_ns);
                continue;
            }
            match state {
                // If a policy outside this comparison refuses the request, nothing of it is in flight.
                ChargeState::Taken { refund, .. }
                    if !decision.is_admitted() && charge.quota.algorithm() == Algorithm::Concurrency =>
                {
                    self.limiter.refund(charge, *refund, taken_ns);
                }
                ChargeState::Taken { refund, .. } => decision.note(index, *refund),
                _ => {}
            }
        }
        // All is refunded now, because a window that several of these charge must not be looked at before.
        for (index, (charge, state)) in charges.iter().zip(states).enumerate() {
            if !decision.is_refused_to(charge) {
                continue;
            }
            let outcome = decision.outcomes[index];
            decision.outcomes[index] = match state {
                // Redis reported what is left after the cost, which has just been refunded.
                ChargeState::Taken { refund: Refund::Redis { .. } | Refund::Permit, .. } => {
                    outcome.uncharged(charge.cost)
                }
                ChargeState::Refused | ChargeState::Fits if charge.plan.is_some() => outcome,
                _ => {
                    let left = self.limiter.look(charge, taken_ns);
                    Outcome::new(outcome.answer(), left.remaining, left.reset_ns)
                }
            };
        }
        for (charge, outcome) in charges.iter().zip(&mut decision.outcomes) {
            *outcome = outcome.short_of(charge.cost);
        }
        decision.agree(charges);
        decision.bind(charges);
    }
}

impl Waiting {
    /// Ends a wait and completes the decision that began it. Charges without an answer are decided by fallback, as
    /// `when-redis-down` of their policies says; an answer that arrives later is undone or counted by `tell_fates`.
    pub fn resume(mut self, now_ns: u64, decision: &mut Decision) {
        let answers = self.wait.close();
        // Taken out, so that dropping this does not refund the charges once more.
        let mut states = std::mem::take(&mut self.states);
        let Some(shared) = &self.limiter.shared else { return };
        let before = states.clone();
        // Whether an answer may still come, and the charges that Redis certainly did not take.
        let (mut awaits, mut untaken) = (false, SmallVec::<[usize; 4]>::new());
        for (index, answer) in answers.into_iter().enumerate() {
            if states[index] != ChargeState::Asked {
                continue;
            }
            let charge = &self.charges[index];
            let is_late = answer.0 == ChargeState::Asked;
            awaits |= is_late;
            untaken.extend((answer.0 == ChargeState::Untaken).then_some(index));
            let (state, outcome) = if answer.0.is_decided() {
                decision.tier = decision.tier.max(DecidingTier::Global);
                decision.note_elsewhere(index, RemoteDecider::Redis);
                answer
            } else {
                decision.tier = DecidingTier::Fallback;
                decision.note_elsewhere(index, RemoteDecider::Fallback);
                let plan = &shared.plan(charge).expect("what was asked of Redis has a plan");
                let ahead = is_late.then(|| shared.exact.decide_ahead(plan, charge, now_ns)).flatten();
                ahead.unwrap_or_else(|| shared.fallback.take(plan, charge, self.client, now_ns, decision))
            };
            if state == ChargeState::Refused {
                decision.refused.add(charge.refuses());
            }
            decision.outcomes[index] = outcome;
            states[index] = state;
        }
        let walk = ChargeWalk { limiter: &self.limiter, charges: &self.charges, client: self.client, now_ns };
        walk.conclude(&states, self.started_ns, decision);
        // `before`: charges decided by fallback before another charge had to wait are debts, too.
        walk.follow_up(&before, decision);
        if !awaits && untaken.is_empty() {
            return;
        }
        let fates = fates(&self.charges, &states, decision);
        for index in untaken {
            if fates[index] != EarlyDecision::Refused {
                shared.fallback.owe_fallback(&self.charges[index], &states[index], now_ns);
            }
        }
        shared.exact.tell_fates(&self.wait, &self.charges, &fates, now_ns);
    }
}

/// How each charge was decided, for late answers.
fn fates(charges: &[Charge], states: &[ChargeState], decision: &Decision) -> SmallVec<[EarlyDecision; 4]> {
    let fate = |(charge, state): (&Charge, &ChargeState)| match state {
        // Nobody needs what Redis was asked for, because it was admitted by what Redis had given before.
        ChargeState::Taken { refund: Refund::Redis { .. }, .. } => EarlyDecision::Refused,
        ChargeState::Taken { refund, .. } if !decision.is_refused_to(charge) || charge.count_denied => {
            let decided_ns = match refund {
                Refund::Fallback { taken_ns, .. } => Some(*taken_ns),
                _ => None,
            };
            EarlyDecision::Stands { decided_ns }
        }
        _ => EarlyDecision::Refused,
    };
    charges.iter().zip(states).map(fate).collect()
}
