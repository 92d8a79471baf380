//! The charges of one request, from the first to the decision: which of them this node decides, which it asks Redis
//! for, and how the outcomes combine into one decision, all or nothing.
//!
//! How a single charge is decided is in `fleet.rs`; how Redis is asked in `renewals.rs`, `exact.rs` and `permits.rs`.

use std::slice;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::check::charge_state::{ChargeState, Refund};
use crate::fleet::others_spend;
use crate::wait::{Fate, Wait};
use crate::waiting::Waiting;
use crate::{ClientAddress, Decision, Elsewhere, Limiter};
use limit::{Algorithm, Answer, Charge, Outcome};
use metrics::DecidingTier;

impl Limiter {
    /// Decides a request with one charge, which needs no combining. Returns `None` if it is decided.
    #[inline(never)]
    pub(crate) fn decide_shared(
        self: &Arc<Self>,
        charge: &Charge,
        client: ClientAddress,
        now_ns: u64,
        decision: &mut Decision,
    ) -> Option<Waiting> {
        let (state, outcome) =
            decision.decide_at(0, |decision| self.decide_charge(charge, client, now_ns, decision));
        if let ChargeState::Taken { renews: true, .. } = state {
            self.renew_ahead(charge, now_ns);
        }
        decision.outcomes.push(outcome);
        match state {
            ChargeState::Taken { refund, .. } => {
                decision.note(0, refund);
                self.fleet.iter().for_each(|fleet| fleet.owe_fallback(charge, &state));
            }
            ChargeState::Refused => decision.refused = charge.refuses(),
            ChargeState::Asked => {
                let waiting = self.ask(slice::from_ref(charge), smallvec![state], client, now_ns);
                if decision.waits {
                    return Some(waiting);
                }
                self.resume(waiting, now_ns, decision);
                return None;
            }
            ChargeState::Fits | ChargeState::Unanswered | ChargeState::Untaken => {}
        }
        if !charge.shadow {
            decision.binding = Some(0);
        }
        None
    }

    /// Decides any number of charges. Returns `None` if they are decided.
    #[inline(never)]
    pub(crate) fn decide_all(
        self: &Arc<Self>,
        charges: &[Charge],
        client: ClientAddress,
        now_ns: u64,
        decision: &mut Decision,
    ) -> Option<Waiting> {
        let mut states: SmallVec<[ChargeState; 4]> = SmallVec::new();
        let mut waits = false;
        for (index, charge) in charges.iter().enumerate() {
            let is_refused = decision.is_refused_to(charge);
            let is_spared = is_refused && (!charge.count_denied || decision.kept_out.has(charge.world()));
            let (state, outcome) = if is_spared {
                if charge.plan.is_some() {
                    decision.note_elsewhere(index, Elsewhere::Nobody);
                }
                (ChargeState::Fits, self.foresee_refused(charge, now_ns))
            } else {
                decision.decide_at(index, |decision| self.decide_charge(charge, client, now_ns, decision))
            };
            if state == ChargeState::Refused {
                decision.refused.add(charge.refuses());
            }
            states.push(state);
            decision.outcomes.push(outcome);
        }
        for (index, charge) in charges.iter().enumerate() {
            if states[index] != ChargeState::Asked {
                continue;
            }
            if decision.is_refused_to(charge) {
                // Redis is not asked, because another window refuses the request from memory; so does this one, perhaps.
                decision.outcomes[index] = self.foresee_refused(charge, now_ns);
                states[index] = ChargeState::Untaken;
                decision.note_elsewhere(index, Elsewhere::Nobody);
                self.forget_wanted(charge);
            } else {
                waits = true;
            }
        }
        if waits {
            let waiting = self.ask(charges, states, client, now_ns);
            if decision.waits {
                return Some(waiting);
            }
            self.resume(waiting, now_ns, decision);
            return None;
        }
        self.conclude(charges, &states, now_ns, decision);
        self.renew_all(charges, &states, decision, now_ns);
        self.owe_all(charges, &states, decision);
        None
    }

    /// Records the debts of charges that were admitted by fallback without asking Redis.
    fn owe_all(&self, charges: &[Charge], states: &[ChargeState], decision: &Decision) {
        let Some(fleet) = &self.fleet else { return };
        for (charge, state) in
            charges.iter().zip(states).filter(|(charge, _)| !decision.is_refused_to(charge))
        {
            fleet.owe_fallback(charge, state);
        }
    }

    /// Ends a wait and completes the decision that began it. Charges without an answer are decided by fallback, as
    /// `when-redis-down` of their policies says; an answer that arrives later is undone or counted by `tell_fates`.
    pub fn resume(self: &Arc<Self>, mut waiting: Waiting, now_ns: u64, decision: &mut Decision) {
        let answers = waiting.wait.close();
        // Taken out, so that dropping `waiting` does not refund the charges once more.
        let mut states = std::mem::take(&mut waiting.states);
        let fleet = self.fleet.as_ref().expect("only a fleet's requests wait");
        let before = states.clone();
        let plans = &fleet.plans;
        // Indices of the charges whose answer may still come, and of those that Redis certainly did not take.
        let (mut awaits, mut untaken) = (SmallVec::<[usize; 4]>::new(), SmallVec::<[usize; 4]>::new());
        for (index, answer) in answers.into_iter().enumerate() {
            if states[index] != ChargeState::Asked {
                continue;
            }
            let charge = &waiting.charges[index];
            match answer.0 {
                ChargeState::Asked => awaits.push(index),
                ChargeState::Untaken => untaken.push(index),
                _ => {}
            }
            let said = Some(answer).filter(|(state, _)| state.is_decided());
            let (state, outcome) = match (said, plans.get(charge.plan)) {
                (Some(said), _) => {
                    decision.tier = decision.tier.max(DecidingTier::Global);
                    decision.note_elsewhere(index, Elsewhere::Redis);
                    said
                }
                (None, Some(plan))
                    if answer.0 == ChargeState::Asked
                        && let Some(ahead) = self.decide_ahead(fleet, plan, charge, now_ns) =>
                {
                    decision.tier = DecidingTier::Fallback;
                    decision.note_elsewhere(index, Elsewhere::Fallback);
                    ahead
                }
                (None, Some(plan)) => decision.decide_at(index, |decision| {
                    self.take_fallback(fleet, plan, charge, waiting.client, now_ns, decision)
                }),
                (None, None) => unreachable!("what was asked of Redis has a plan"),
            };
            if state == ChargeState::Refused {
                decision.refused.add(charge.refuses());
            }
            decision.outcomes[index] = outcome;
            states[index] = state;
        }
        self.conclude(&waiting.charges, &states, waiting.started_ns, decision);
        self.renew_all(&waiting.charges, &states, decision, now_ns);
        // `before`: charges decided by fallback before another charge had to wait are debts, too.
        self.owe_all(&waiting.charges, &before, decision);
        if awaits.is_empty() && untaken.is_empty() {
            return;
        }
        let fates = Limiter::fates(&waiting.charges, &states, decision);
        for index in untaken {
            if matches!(fates[index], Some(Fate::Stands { .. })) {
                fleet.owe_fallback(&waiting.charges[index], &states[index]);
            }
        }
        self.tell_fates(&waiting.wait, &waiting.charges, fates, now_ns);
    }

    /// Makes the outcomes one decision: refunds what was taken where the request is refused, else notes where each charge
    /// is refunded later. `taken_ns` is when this node took charges whose [`Refund`] holds no time.
    fn conclude(
        self: &Arc<Self>,
        charges: &[Charge],
        states: &[ChargeState],
        taken_ns: u64,
        decision: &mut Decision,
    ) {
        for (index, (charge, state)) in charges.iter().zip(states).enumerate() {
            if !decision.is_refused_to(charge) {
                match state {
                    // Nothing is in flight of a request that another policy refuses than the one it is compared with.
                    ChargeState::Taken { refund, .. }
                        if !decision.is_admitted() && charge.quota.algorithm() == Algorithm::Concurrency =>
                    {
                        self.refund(charge, *refund, taken_ns);
                    }
                    ChargeState::Taken { refund, .. } => decision.note(index, *refund),
                    _ => {}
                }
                continue;
            }
            self.refund_refused(charge, state, taken_ns);
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
                    let left = self.look(charge, taken_ns);
                    Outcome::new(outcome.answer(), left.remaining, left.reset_ns)
                }
            };
        }
        decision.agree(charges);
        decision.bind(charges);
    }

    /// Refunds what a refused request has taken.
    pub(crate) fn refund_all(self: &Arc<Self>, charges: &[Charge], states: &[ChargeState], taken_ns: u64) {
        for (charge, state) in charges.iter().zip(states) {
            self.refund_refused(charge, state, taken_ns);
        }
    }

    /// Refunds a charge of a refused request. One that counts denials stays taken, except concurrency, because a
    /// refused request is not in flight.
    fn refund_refused(self: &Arc<Self>, charge: &Charge, state: &ChargeState, taken_ns: u64) {
        let stays = charge.count_denied && charge.quota.algorithm() != Algorithm::Concurrency;
        match (state, &self.fleet) {
            _ if stays => {}
            // It is no debt yet. If Redis takes it late, that is undone then.
            (ChargeState::Taken { refund: Refund::Fallback { place, taken_ns }, .. }, Some(fleet)) => {
                self.refund_share(fleet, charge, *place, *taken_ns);
                fleet.advances.answered(charge);
            }
            (ChargeState::Taken { refund, .. }, _) => self.refund(charge, *refund, taken_ns),
            _ => {}
        }
    }

    /// Renews leases that run low. Only after admission, because a request that another window refused is no demand.
    fn renew_all(
        self: &Arc<Self>,
        charges: &[Charge],
        states: &[ChargeState],
        decision: &Decision,
        now_ns: u64,
    ) {
        for (charge, state) in charges.iter().zip(states) {
            if let ChargeState::Taken { renews: true, .. } = state
                && !decision.is_refused_to(charge)
            {
                self.renew_ahead(charge, now_ns);
            }
        }
    }

    /// Renews the lease that a charge was spent from, without anybody waiting for it.
    fn renew_ahead(self: &Arc<Self>, charge: &Charge, now_ns: u64) {
        let Some(fleet) = &self.fleet else { return };
        if let Some(plan) = fleet.plans.get(charge.plan).filter(|_| fleet.link.is_up(charge.key)) {
            self.renew(fleet, charge.key, charge.plan, plan, None, now_ns);
        }
    }

    /// Removes a charge from the demand of its lease, because another window refused the request.
    fn forget_wanted(&self, charge: &Charge) {
        let Some(fleet) = &self.fleet else { return };
        let is_leased = fleet.plans.get(charge.plan).is_some_and(|plan| !plan.sharing.is_exact());
        if is_leased {
            let _ = fleet.change_known(charge.key, |_, share| share.forget_wanted(charge.cost));
        }
    }

    /// What is left of a charge's window as far as this node knows. Spends nothing.
    pub(crate) fn look(&self, charge: &Charge, now_ns: u64) -> Outcome {
        self.foresee(&Charge { cost: 0, ..*charge }, now_ns)
    }

    /// The outcome that a charge would have as far as this node knows. Spends nothing.
    pub(crate) fn foresee(&self, charge: &Charge, now_ns: u64) -> Outcome {
        let Some(fleet) = &self.fleet else { return self.table.peek(charge, now_ns) };
        match fleet.fallback_share(charge) {
            Some(_) if fleet.spenders(charge) == 0 => others_spend(charge),
            Some(share) if share.algorithm() == Algorithm::Concurrency => {
                fleet.permits.foresee(charge, &share)
            }
            Some(quota) => self.table.peek(&Charge { quota, ..*charge }, now_ns),
            None => fleet.foresee(charge, now_ns).unwrap_or_else(|| self.table.peek(charge, now_ns)),
        }
    }

    /// The same for a request that another window refuses: a window that has too little refuses it too, because the client
    /// is told every wait, and none of them spends anything. Of a window that Redis would have to be asked about, what Redis
    /// last said counts.
    pub(crate) fn foresee_refused(&self, charge: &Charge, now_ns: u64) -> Outcome {
        let (outcome, left) = (self.foresee(charge, now_ns), self.look(charge, now_ns));
        let known = self.fleet.as_ref().and_then(|fleet| fleet.known_wait_ns(charge, now_ns));
        let reset_ns = outcome.reset_ns.max(left.reset_ns);
        match known.filter(|_| outcome.is_admitted()) {
            Some(retry_after_ns) => {
                let answer = Answer::Later { retry_after_ns };
                Outcome::new(answer, left.remaining, reset_ns.max(retry_after_ns))
            }
            None => Outcome::new(outcome.answer(), left.remaining, reset_ns),
        }
    }

    /// Asks Redis for all charges of a request that wait for it.
    #[cold]
    fn ask(
        self: &Arc<Self>,
        charges: &[Charge],
        states: SmallVec<[ChargeState; 4]>,
        client: ClientAddress,
        now_ns: u64,
    ) -> Waiting {
        let asked = |state: &&ChargeState| **state == ChargeState::Asked;
        let wait = Arc::new(Wait::new(charges.len(), states.iter().filter(asked).count()));
        let indices: SmallVec<[usize; 4]> =
            (0..charges.len()).filter(|index| states[*index] == ChargeState::Asked).collect();
        let waiting = Waiting {
            limiter: Arc::clone(self),
            charges: charges.into(),
            states,
            wait: Arc::clone(&wait),
            client,
            started_ns: now_ns,
        };
        self.ask_redis(charges, indices, &wait, now_ns);
        waiting
    }
}
