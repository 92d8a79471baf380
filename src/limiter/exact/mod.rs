//! [`Exact`]: windows without leases. Redis decides every admission, and the requests of a key in their order. This is where an
//! answer of Redis becomes the outcome of a charge: `answered` → `decided` → `resolve_one`.
//!
//! While plenty is left, a few questions about a key are in flight at a time, else one. Requests that come meanwhile are
//! asked for together by the next question: all of them, or as many as Redis has room for. So a rush costs a few
//! questions however many requests it has, and once Redis has refused one request, those that want the same are refused
//! without asking.
//!
//! An answer that comes after its request was decided (`decide_ahead`) still counts. If the request was admitted, what
//! Redis took stands; if it was refused, the next request gets that, or it is returned; and if it was admitted and Redis
//! took nothing, it is a debt (`debts.rs`).

pub(super) mod advances;
pub(super) mod late_charges;
pub(super) mod questions;

use std::sync::Arc;

use smallvec::SmallVec;

use super::check::charge_state::{ChargeOutcome, ChargeState, Refund, said, unheard};
use super::exact::advances::{Advances, KEPT_NS};
use super::exact::late_charges::LateCharges;
use super::exact::questions::{FreeUnits, Group, Question, Questions, cost_of, next_group};
use super::fallback::Fallback;
use super::fallback::debts::DebtKind;
use super::fleet::Fleet;
use super::leases::Leases;
use super::local::{StateLocation, Table};
use super::wait::{EarlyDecision, LateAnswer, Wait};
use limit::lease_messages::{ExactCharge, LinkError, Op, Reply, TakeReply};
use limit::{Algorithm, Answer, Charge, Key, Outcome, Plan, Quota};

pub(crate) struct Exact {
    fleet: Arc<Fleet>,
    table: Arc<Table>,
    leases: Arc<Leases>,
    fallback: Arc<Fallback>,
    pub(crate) questions: Questions,
    advances: Advances,
    pub(crate) taken_late: LateCharges,
}

impl Exact {
    pub(crate) fn new(
        fleet: &Arc<Fleet>,
        table: &Arc<Table>,
        leases: &Arc<Leases>,
        fallback: &Arc<Fallback>,
    ) -> Exact {
        Exact {
            fleet: Arc::clone(fleet),
            table: Arc::clone(table),
            leases: Arc::clone(leases),
            fallback: Arc::clone(fallback),
            questions: Questions::default(),
            advances: Advances::default(),
            taken_late: LateCharges::default(),
        }
    }

    /// Asks Redis for the exact charges of one request on one shard, now or with the next question.
    pub(crate) fn ask(self: &Arc<Self>, question: Question, now_ns: u64) {
        if !question.is_plain() {
            return self.send_group(SmallVec::from_iter([question]), now_ns);
        }
        let left = |charge: &Charge| self.leases.table.left(charge, now_ns);
        let room = question.charges.iter().map(left).min().unwrap_or(0);
        // Sent at once to a slow Redis, because nobody waits for it and would be served sooner by asking together.
        let is_ahead = !self.fleet.link.is_quick(question.key());
        if let Some(question) = self.questions.begin(question, room, is_ahead, now_ns) {
            self.send_group(SmallVec::from_iter([question]), now_ns);
        }
    }

    fn send_group(self: &Arc<Self>, group: Group, sent_ns: u64) {
        let Some(first) = group.first() else { return };
        // Sent before the question, so that Redis does not admit units that this node has already spent.
        for charge in &first.charges {
            self.leases.return_former(charge, sent_ns);
            self.fallback.tell_debt(charge.key, sent_ns);
        }
        let parts = first.charges.iter().enumerate().filter_map(|(at, charge)| {
            let cost = cost_of(&group, at);
            Some(ExactCharge::of(&Charge { cost, ..*charge }, &*self.fleet.plans.get(charge.plan)?))
        });
        let parts: SmallVec<[ExactCharge; 2]> = parts.collect();
        let exact = Arc::clone(self);
        let done = move |answer, now_ns| exact.answered(group, answer, sent_ns, now_ns);
        self.fleet.link.send(Op::Take(parts), Box::new(done));
    }

    fn answered(self: &Arc<Self>, group: Group, answer: Result<Reply, LinkError>, sent_ns: u64, now_ns: u64) {
        let Some(first) = group.first() else { return };
        let (key, is_plain) = (first.key(), first.is_plain());
        match answer {
            Ok(Reply::Taken(taken)) if taken.admitted || group.len() == 1 => {
                let refused = (!taken.admitted && is_plain).then(|| group[0].clone());
                self.decided(group, &taken, (sent_ns, now_ns));
                if let Some(refused) = refused {
                    self.refuse_alike(&refused, &taken, now_ns);
                }
            }
            // The group was too much. Ask for as many as fit, at least one fewer, so that this ends.
            Ok(Reply::Taken(taken)) => {
                let rooms = taken.outcomes.iter().map(|outcome| outcome.remaining).collect();
                let most = group.len() - 1;
                let mut again = group.into_iter().collect();
                let fewer = next_group(&mut again, &rooms, most);
                self.questions.put_back(key, again, now_ns);
                return self.send_group(fewer, now_ns);
            }
            answer => {
                let is_undone = answer.err().is_none_or(LinkError::is_undone);
                let late = if is_undone { LateAnswer::Unheard } else { LateAnswer::Unknown };
                let state = if is_undone { ChargeState::Untaken } else { ChargeState::Unanswered };
                group.iter().for_each(|question| self.resolve_all(question, (state, late), now_ns));
                // Ended, too, because requests queued behind it would get no answer either.
                if is_plain {
                    let queued = self.questions.take_queued(key, now_ns);
                    if queued.is_empty() {
                        return;
                    }
                    queued.iter().for_each(|question| {
                        self.resolve_all(question, (ChargeState::Untaken, LateAnswer::Unheard), now_ns);
                    });
                }
            }
        }
        if is_plain {
            self.ask_next(key, now_ns);
        }
    }

    /// Asks for the queued requests, except those that gave up and those that are known to be refused.
    fn ask_next(self: &Arc<Self>, key: Key, now_ns: u64) {
        loop {
            let mut queued = self.questions.take_queued(key, now_ns);
            if queued.is_empty() {
                return;
            }
            queued.retain(|question| {
                // One that was admitted before its answer no longer waits, but Redis still has to count it.
                if question.wait.is_over() && !question.is_admitted() {
                    self.resolve_all(question, (ChargeState::Untaken, LateAnswer::Untaken), now_ns);
                    return false;
                }
                !self.refuse_by_memory(question, now_ns)
            });
            let Some(first) = queued.front() else { continue };
            // No more than may be left. If more has been refunded since, a request that asks alone finds out.
            let room = |charge: &Charge| charge.quota.capacity().min(self.leases.table.left(charge, now_ns));
            let rooms = first.charges.iter().map(room).collect();
            let group = next_group(&mut queued, &rooms, GROUP_MAX);
            self.questions.put_back(key, queued, now_ns);
            return self.send_group(group, now_ns);
        }
    }

    /// Refuses a question if Redis has lately refused as much; returns whether it did.
    fn refuse_by_memory(&self, question: &Question, now_ns: u64) -> bool {
        let denied = |charge: &Charge| {
            let plan = self.fleet.plans.get(charge.plan)?;
            self.leases.table.denied_before(&plan, charge, now_ns)
        };
        let denials: SmallVec<[Option<Outcome>; 2]> = question.charges.iter().map(denied).collect();
        if denials.iter().all(Option::is_none) {
            return false;
        }
        for ((index, charge), denial) in question.charges().zip(denials) {
            let answer = || match denial {
                Some(outcome) => (ChargeState::Refused, outcome),
                None => (ChargeState::Fits, self.fallback.foresee_refused(charge, now_ns)),
            };
            self.resolve_one(&question.wait, (index, charge), (LateAnswer::Untaken, now_ns), answer);
        }
        true
    }

    /// Refuses queued requests that want at least as much of the same windows as the one that was refused.
    fn refuse_alike(&self, refused: &Question, taken: &TakeReply, now_ns: u64) {
        for question in self.questions.take_alike(refused) {
            for (which, outcome) in question.charges().zip(&taken.outcomes) {
                let state = if outcome.is_admitted() { ChargeState::Fits } else { ChargeState::Refused };
                self.resolve_one(&question.wait, which, (LateAnswer::Untaken, now_ns), || (state, *outcome));
            }
        }
    }

    /// Decides a charge of an exact window whose answers come too late to wait for; `ChargeState::Asked`: Redis has to be
    /// asked first, for this request or for those after it. While much is left, what Redis has given goes before a question,
    /// and a node that has admitted its part asks for no more, because the rest is the others'.
    pub(crate) fn decide_or_ask(&self, plan: &Plan, charge: &Charge, now_ns: u64) -> ChargeOutcome {
        if charge.count_denied {
            return unheard(ChargeState::Asked);
        }
        if let Means::Part(part) = self.means(plan, charge, now_ns) {
            if let Some(granted) = self.spend_granted(plan, charge, now_ns) {
                return granted;
            }
            if self.advances.unanswered(charge.key).saturating_add(charge.cost) > part {
                return (ChargeState::Refused, self.refused_ahead(plan, charge, now_ns));
            }
        }
        unheard(ChargeState::Asked)
    }

    /// Decides a charge before Redis has answered, which it does later: by what it has given before or, while much is left,
    /// within this node's even part. `None`: Redis does not answer at all, or such charges have to wait for it.
    pub(crate) fn decide_ahead(&self, plan: &Plan, charge: &Charge, now_ns: u64) -> Option<ChargeOutcome> {
        if !Fleet::is_advanced(plan) || !self.fleet.link.answers(charge.key) {
            return None;
        }
        if let Some(granted) = self.spend_granted(plan, charge, now_ns) {
            return Some(granted);
        }
        if let Some(denied) = self.leases.table.denied_before(plan, charge, now_ns) {
            return Some((ChargeState::Refused, denied));
        }
        if let Means::Part(part) = self.means(plan, charge, now_ns)
            && self.advances.admit(charge, part)
        {
            let ahead = self.advances.unanswered(charge.key);
            let place = self.table.take(&self.fleet.own_part(charge), now_ns).place;
            let refund = Refund::Fallback { place, taken_ns: now_ns };
            return Some((
                ChargeState::taken(refund),
                self.outcome_ahead(plan, charge, (part, ahead), now_ns),
            ));
        }
        Some((ChargeState::Refused, self.refused_ahead(plan, charge, now_ns)))
    }

    /// Spends what Redis has given for a request that was refused.
    pub(crate) fn spend_granted(&self, plan: &Plan, charge: &Charge, now_ns: u64) -> Option<ChargeOutcome> {
        let taken_us = self.advances.spend(charge)?;
        self.table.take(&self.fleet.own_part(charge), now_ns);
        let outcome = self.outcome_ahead(plan, charge, (u64::MAX, 0), now_ns);
        Some((ChargeState::taken(Refund::Redis { taken_us }), outcome))
    }

    /// Resolves the charges of all requests of a group.
    fn decided(&self, group: Group, taken: &TakeReply, (sent_ns, now_ns): (u64, u64)) {
        if let Some(last) = group.last() {
            self.note_said(&last.charges, taken, (sent_ns, now_ns));
        }
        // Redis reported what is left after the whole group. For each request, add what those behind it took.
        let mut behind: FreeUnits = (0..taken.outcomes.len()).map(|at| cost_of(&group, at)).collect();
        for question in &group {
            for (at, which) in question.charges().enumerate() {
                let Some(said) = taken.outcomes.get(at) else { continue };
                behind[at] = behind[at].saturating_sub(which.1.cost);
                let outcome = match behind[at] {
                    0 => *said,
                    more => Outcome::new(said.answer(), said.remaining.saturating_add(more), said.reset_ns),
                };
                self.decided_one(&question.wait, which, (taken, outcome), (sent_ns, now_ns));
            }
        }
    }

    fn decided_one(
        &self,
        wait: &Wait,
        (index, charge): (usize, &Charge),
        (taken, outcome): (&TakeReply, Outcome),
        (sent_ns, now_ns): (u64, u64),
    ) {
        let said = match taken.admitted {
            false if outcome.is_admitted() => (ChargeState::Fits, outcome),
            _ => said(outcome, Refund::Redis { taken_us: taken.at_us }),
        };
        let is_taken = matches!(said.0, ChargeState::Taken { .. });
        let note = || {
            // Counted here too, for fallback in case Redis goes down.
            if is_taken {
                self.table.take(&self.fleet.own_part(charge), sent_ns);
            }
            said
        };
        let late = if is_taken { LateAnswer::Taken { taken_us: taken.at_us } } else { LateAnswer::Untaken };
        self.resolve_one(wait, (index, charge), (late, now_ns), note);
    }

    fn resolve_all(&self, question: &Question, (state, late): (ChargeState, LateAnswer), now_ns: u64) {
        for which in question.charges() {
            self.resolve_one(&question.wait, which, (late, now_ns), || unheard(state));
        }
    }

    /// Resolves one charge. If its request no longer waits, treats the answer as late, or leaves it to the thread that is
    /// deciding the request right now.
    fn resolve_one(
        &self,
        wait: &Wait,
        (index, charge): (usize, &Charge),
        (late, now_ns): (LateAnswer, u64),
        answer: impl FnOnce() -> ChargeOutcome,
    ) {
        if !wait.resolve(index, answer)
            && let Some(fate) = wait.resolve_late(index, late)
        {
            self.late_decided(charge, late, fate, now_ns);
        }
    }

    pub(crate) fn late_decided(&self, charge: &Charge, late: LateAnswer, fate: EarlyDecision, now_ns: u64) {
        if let EarlyDecision::Stands { decided_ns: Some(_) } = fate
            && let Some(admitted) = self.advances.answered(charge)
            && let Some(plan) = self.fleet.plans.get(charge.plan)
        {
            self.leases.note_ahead(charge.key, (charge.plan, &plan), admitted as f64, now_ns);
        }
        match (late, fate) {
            // It counts denials.
            (LateAnswer::Taken { .. }, EarlyDecision::Refused) if charge.count_denied => {}
            // The next request gets it, because nobody waits for a slow Redis.
            (LateAnswer::Taken { taken_us }, EarlyDecision::Refused)
                if !self.fleet.link.is_quick(charge.key) =>
            {
                self.advances.keep(charge, taken_us, now_ns);
            }
            (LateAnswer::Taken { taken_us }, EarlyDecision::Refused) => {
                self.fallback.give_back(charge, taken_us)
            }
            (LateAnswer::Untaken | LateAnswer::Unheard, EarlyDecision::Stands { decided_ns: Some(_) })
                if self.fleet.link.answers(charge.key) =>
            {
                let is_refused = late == LateAnswer::Untaken;
                let kind = if is_refused { DebtKind::Refused } else { DebtKind::Unheard };
                self.fallback.add_debt(charge, kind, now_ns);
                self.fallback.tell_debt(charge.key, now_ns);
            }
            (LateAnswer::Untaken | LateAnswer::Unheard, EarlyDecision::Stands { .. }) => {
                self.fallback.owe(charge, now_ns)
            }
            (LateAnswer::Taken { taken_us }, EarlyDecision::Stands { decided_ns: Some(decided_ns) }) => {
                self.taken_late.note(charge.key, decided_ns, taken_us);
            }
            (LateAnswer::Taken { .. } | LateAnswer::Unknown, EarlyDecision::Stands { .. }) => {}
            (LateAnswer::Untaken | LateAnswer::Unheard | LateAnswer::Unknown, EarlyDecision::Refused) => {}
        }
    }

    /// Remembers what Redis said about exact windows: what is left, and denials until they end.
    fn note_said(&self, charges: &[Charge], taken: &TakeReply, (sent_ns, now_ns): (u64, u64)) {
        for (index, (charge, outcome)) in charges.iter().zip(&taken.outcomes).enumerate() {
            let Some(plan) = self.fleet.plans.get(charge.plan) else { continue };
            // A lease of before goes back under its own plan first.
            if self.leases.table.former(charge).is_some() {
                continue;
            }
            // Of a key that comes several times all that was asked for so far is refused, and no single cost.
            let alike = charges[..=index].iter().filter(|it| it.key == charge.key);
            let cost = alike.map(|it| it.cost).fold(0, u64::saturating_add);
            self.leases.table.change(charge, sent_ns, |share| {
                share.hear(outcome.remaining, outcome.reset_ns, sent_ns);
                match outcome.answer() {
                    // No larger cost, because it does not fit the field that remembers it, and says nothing about
                    // smaller ones.
                    Answer::Later { retry_after_ns } if cost <= u64::from(u32::MAX) => {
                        // A limit that refills fast is not asked about for every unit. Nothing is lost, because the
                        // window has room for what refills meanwhile.
                        let way_ns = now_ns.saturating_sub(sent_ns);
                        let room_ns = refill_ns(&plan.quota).saturating_sub(way_ns);
                        let least_ns = way_ns + REMEMBERED_NS.min(room_ns / ROOMY);
                        share.refuse(cost, retry_after_ns.max(least_ns), sent_ns);
                    }
                    // Units have come back since the denial.
                    Answer::Admitted if share.refused_for(&plan, charge.cost, sent_ns).is_some() => {
                        share.end_denial();
                    }
                    Answer::Later { .. } | Answer::Admitted | Answer::Never => {}
                }
            });
        }
    }

    /// Publishes how the charges of a wait were decided, for answers that are still to come, and handles those that came
    /// meanwhile.
    pub(crate) fn tell_fates(&self, wait: &Wait, charges: &[Charge], fates: &[EarlyDecision], now_ns: u64) {
        for (index, late) in wait.tell_fates(fates) {
            self.late_decided(&charges[index], late, fates[index], now_ns);
        }
    }

    /// What this node may do with a charge before Redis answers, by what Redis last said is left.
    fn means(&self, plan: &Plan, charge: &Charge, now_ns: u64) -> Means {
        let left = self.leases.table.copy(charge, now_ns).heard_left(plan, now_ns);
        let nodes = u64::from(self.fleet.nodes().max(1));
        let part = left / nodes;
        let whole = plan.quota.capacity();
        // Others may have spent more of it meanwhile than this node has, and what refills faster than questions travel is
        // nobody's part, because who has admitted its own would not ask for what refills meanwhile.
        let is_even = left == whole || part / 2 >= charge.cost;
        let is_much = nodes == 1 || is_even && left.saturating_mul(MUCH) >= whole;
        let is_part = part >= charge.cost
            && is_much
            && !self.leases.table.looks.hold(charge.key)
            && !self.refills_on_the_way(plan, charge, now_ns);
        if is_part { Means::Part(part) } else { Means::Granted }
    }

    /// Whether a window that is in use is full again before a question about it is answered.
    fn refills_on_the_way(&self, plan: &Plan, charge: &Charge, now_ns: u64) -> bool {
        let way_ns = self.fleet.link.round_trip_ns(charge.key).saturating_mul(2);
        refill_ns(&plan.quota) < way_ns
            && self.leases.table.heard_ago_ns(charge, true, now_ns).is_some_and(|ago_ns| ago_ns < way_ns)
    }

    /// What a client is told that was admitted before Redis has answered, with so many units of this node's part, of which
    /// so many are not answered.
    fn outcome_ahead(&self, plan: &Plan, charge: &Charge, (part, ahead): (u64, u64), now_ns: u64) -> Outcome {
        let (left, reset_ns) = self.leases.table.copy(charge, now_ns).estimate(plan, now_ns);
        let remaining = left.min(part).saturating_sub(ahead);
        if plan.quota.algorithm() != Algorithm::LeakyBucket {
            return Outcome::new(Answer::Admitted, remaining, reset_ns);
        }
        // Behind those in the queue, and behind those that are on their way to it.
        let unit_ns = plan.quota.period_ns().get() / plan.quota.limit().get();
        let queued =
            plan.quota.capacity().saturating_sub(left).saturating_add(ahead.saturating_sub(charge.cost));
        Outcome::delayed(queued.saturating_mul(unit_ns), remaining, reset_ns)
    }

    /// What a client would be told before Redis has answered.
    pub(crate) fn foresee_ahead(&self, plan: &Plan, charge: &Charge, now_ns: u64) -> Outcome {
        let ahead = self.advances.unanswered(charge.key).saturating_add(charge.cost);
        match self.means(plan, charge, now_ns) {
            Means::Part(part) if ahead <= part => self.outcome_ahead(plan, charge, (part, ahead), now_ns),
            _ => self.refused_ahead(plan, charge, now_ns),
        }
    }

    /// What a client is told that is refused before Redis has answered: no more than this node may give without it.
    pub(crate) fn refused_ahead(&self, plan: &Plan, charge: &Charge, now_ns: u64) -> Outcome {
        let (left, reset_ns) = self.leases.table.copy(charge, now_ns).estimate(plan, now_ns);
        let retry_after_ns = self.fleet.link.round_trip_ns(charge.key).max(LATE_RETRY_NS);
        let remaining = left.min(charge.cost.saturating_sub(1));
        Outcome::new(Answer::Later { retry_after_ns }, remaining, reset_ns.max(retry_after_ns))
    }

    /// A charge that was admitted before its answer is not spent after all.
    pub(crate) fn withdraw(&self, charge: &Charge, place: StateLocation, taken_ns: u64) {
        self.fallback.refund_share(charge, place, taken_ns);
        self.advances.answered(charge);
    }

    /// Returns what Redis gave to requests that were refused, and nobody has spent for long; when the node stops, at once.
    pub(crate) fn return_unused(&self, is_over: bool, now_ns: u64) {
        let kept_ns = if is_over { 0 } else { KEPT_NS };
        for (charge, taken_us) in self.advances.take_unused(kept_ns, now_ns) {
            self.fallback.give_back(&charge, taken_us);
        }
    }
}

fn refill_ns(quota: &Quota) -> u64 {
    let period_ns = quota.period_ns().get();
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            (period_ns as f64 * quota.capacity() as f64 / quota.limit().get() as f64) as u64
        }
        _ => period_ns,
    }
}

/// What a node may do with a charge before Redis answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// Much is left: it may admit so many units that are not answered yet.
    Part(u64),
    /// Little is left, or what is left changes sooner than Redis can say: only what Redis has given.
    Granted,
}

/// The least `Retry-After` of a client that is refused before Redis has answered.
const LATE_RETRY_NS: u64 = 10_000_000;
/// Much is left while it is at least this part of the whole.
const MUCH: u64 = 4;
/// How long a denial is remembered at least, unless its window would be full again before that is over.
const REMEMBERED_NS: u64 = 20_000_000;
/// A denial is remembered for at most this part of the time in which its window is full again.
const ROOMY: u64 = 4;
/// The most requests that one question asks for.
const GROUP_MAX: usize = 1_024;
