//! Exact windows (no leases): Redis decides every admission, and the requests of a key in their order. This is where an
//! answer of Redis becomes the outcome of a charge: `exact_answered` → `decided` → `resolve_one`.
//!
//! While plenty is left, a few questions about a key are in flight at a time, else one. Requests that come meanwhile are
//! asked for together by the next question: all of them, or as many as Redis has room for. So a rush costs a few
//! questions however many requests it has, and once Redis has refused one request, those that want the same are refused
//! without asking.
//!
//! An answer that comes after its request was decided still counts. If the request was admitted, what Redis took stands;
//! if it was refused, that is returned; and if it was admitted and Redis took nothing, it is a debt (`debts.rs`).

use std::sync::Arc;

use smallvec::SmallVec;

use super::charge_state::{ChargeState, Refund, Said, said, unheard};
use super::fleet::{Fleet, denied_before};
use super::questions::{Group, Question, Rooms, cost_of, next_group};
use super::wait::{Fate, Late, Reserved, Wait};
use super::{Decision, Limiter};
use limit::lease_messages::{Op, Part, Reply, Taken, Unanswered};
use limit::{Algorithm, Answer, Charge, Key, Outcome, WhenDown};

impl Limiter {
    /// Asks Redis for the exact charges of one request on one shard, now or with the next question.
    pub(super) fn ask_exact(self: &Arc<Self>, fleet: &Fleet, question: Question, now_ns: u64) {
        if !question.is_plain() {
            return self.send_group(fleet, SmallVec::from_iter([question]), now_ns);
        }
        let left = |charge: &Charge| fleet.left(charge, now_ns);
        let room = question.charges.iter().map(left).min().unwrap_or(0);
        if let Some(question) = fleet.questions.begin(question, room) {
            self.send_group(fleet, SmallVec::from_iter([question]), now_ns);
        }
    }

    fn send_group(self: &Arc<Self>, fleet: &Fleet, group: Group, sent_ns: u64) {
        let Some(first) = group.first() else { return };
        if !fleet.debts.is_empty() {
            // Sent before the question, so that Redis does not admit units that this node has already spent.
            first.charges.iter().for_each(|charge| self.tell_debt(fleet, charge.key, sent_ns));
        }
        let parts = first.charges.iter().enumerate().filter_map(|(at, charge)| {
            let cost = cost_of(&group, at);
            Some(Part::of(&Charge { cost, ..*charge }, fleet.plans.get(charge.plan)?))
        });
        let parts: SmallVec<[Part; 2]> = parts.collect();
        let limiter = Arc::clone(self);
        let done = move |answer, now_ns| limiter.exact_answered(group, answer, sent_ns, now_ns);
        fleet.link.send(Op::Take(parts), Box::new(done));
    }

    fn exact_answered(
        self: &Arc<Self>,
        group: Group,
        answer: Result<Reply, Unanswered>,
        sent_ns: u64,
        now_ns: u64,
    ) {
        let (Some(fleet), Some(first)) = (&self.fleet, group.first()) else { return };
        let (key, is_plain) = (first.key(), first.is_plain());
        match answer {
            Ok(Reply::Taken(taken)) if taken.admitted || group.len() == 1 => {
                let refused = (!taken.admitted && is_plain).then(|| group[0].clone());
                self.decided(fleet, group, &taken, sent_ns);
                if let Some(refused) = refused {
                    self.refuse_alike(fleet, &refused, &taken);
                }
            }
            // The group was too much. Ask for as many as fit, at least one fewer, so that this ends.
            Ok(Reply::Taken(taken)) => {
                let rooms = taken.outcomes.iter().map(|outcome| outcome.remaining).collect();
                let most = group.len() - 1;
                let mut again = group.into_iter().collect();
                let fewer = next_group(&mut again, &rooms, most);
                fleet.questions.put_back(key, again);
                return self.send_group(fleet, fewer, now_ns);
            }
            answer => {
                let is_undone = answer.err().is_none_or(Unanswered::is_undone);
                let late = if is_undone { Late::Untaken } else { Late::Unknown };
                let state = if is_undone { ChargeState::Untaken } else { ChargeState::Unanswered };
                group.iter().for_each(|question| self.resolve_all(fleet, question, state, late));
                // Requests queued behind it would get no answer either.
                if is_plain {
                    let queued = fleet.questions.take_queued(key);
                    if queued.is_empty() {
                        return;
                    }
                    queued.iter().for_each(|question| {
                        self.resolve_all(fleet, question, ChargeState::Untaken, Late::Untaken);
                    });
                }
            }
        }
        if is_plain {
            self.ask_next(fleet, key, now_ns);
        }
    }

    /// Asks for the queued requests, except those that gave up and those that are known to be refused.
    fn ask_next(self: &Arc<Self>, fleet: &Fleet, key: Key, now_ns: u64) {
        loop {
            let mut queued = fleet.questions.take_queued(key);
            if queued.is_empty() {
                return;
            }
            queued.retain(|question| {
                // A reserved one that no longer waits was admitted, so Redis still has to count it.
                if question.wait.is_over() && !question.is_reserved() {
                    self.resolve_all(fleet, question, ChargeState::Untaken, Late::Untaken);
                    return false;
                }
                !self.refuse_by_memory(fleet, question, now_ns)
            });
            let Some(first) = queued.front() else { continue };
            // No more than may be left. If more has been refunded since, a request that asks alone finds out.
            let room = |charge: &Charge| charge.quota.capacity().min(fleet.left(charge, now_ns));
            let rooms = first.charges.iter().map(room).collect();
            let group = next_group(&mut queued, &rooms, GROUP_MAX);
            fleet.questions.put_back(key, queued);
            return self.send_group(fleet, group, now_ns);
        }
    }

    /// Refuses a question if Redis has lately refused as much; returns whether it did.
    fn refuse_by_memory(self: &Arc<Self>, fleet: &Fleet, question: &Question, now_ns: u64) -> bool {
        let denied = |charge: &Charge| denied_before(fleet, fleet.plans.get(charge.plan)?, charge, now_ns);
        let denials: SmallVec<[Option<Outcome>; 2]> = question.charges.iter().map(denied).collect();
        if denials.iter().all(Option::is_none) {
            return false;
        }
        for ((index, charge), denial) in question.charges().zip(denials) {
            let answer = || match denial {
                Some(outcome) => (ChargeState::Refused, outcome),
                None => (ChargeState::Fits, self.foresee_refused(charge, now_ns)),
            };
            self.resolve_one(fleet, &question.wait, (index, charge), Late::Untaken, answer);
        }
        true
    }

    /// Refuses queued requests that want at least as much of the same windows as the one that was refused.
    fn refuse_alike(self: &Arc<Self>, fleet: &Fleet, refused: &Question, taken: &Taken) {
        for question in fleet.questions.take_alike(refused) {
            for (which, outcome) in question.charges().zip(&taken.outcomes) {
                let state = if outcome.is_admitted() { ChargeState::Fits } else { ChargeState::Refused };
                self.resolve_one(fleet, &question.wait, which, Late::Untaken, || (state, *outcome));
            }
        }
    }

    /// Takes the charges from this node's own table, within its even share, before Redis is asked. So if the answer is
    /// late, it is already known which requests are admitted, in the order in which they came; and an answer that comes
    /// after that finds them counted once.
    pub(super) fn reserve(
        &self,
        fleet: &Fleet,
        charges: &[Charge],
        asked: &[usize],
        now_ns: u64,
    ) -> SmallVec<[Reserved; 2]> {
        let reserve = |index: &usize| {
            let charge = charges[*index];
            if !fleet.is_reservable(&charge) {
                return None;
            }
            let quota = fleet.share_of(&charge);
            let taken = self.table.take(&Charge { quota, ..charge }, now_ns);
            if !taken.outcome.is_admitted() {
                return None;
            }
            let (whole, even) =
                (quota.capacity(), charge.quota.capacity() / u64::from(fleet.link.nodes().max(1)));
            let is_first = taken.outcome.remaining.saturating_add(charge.cost) >= whole;
            if !is_first && taken.outcome.remaining < whole.saturating_sub(even) {
                self.table.give_back(&Charge { quota, ..charge }, taken.place, now_ns);
                return None;
            }
            let refund = Refund::Fallback { place: taken.place, taken_ns: now_ns };
            Some(Reserved { index: *index, refund, outcome: taken.outcome })
        };
        asked.iter().filter_map(reserve).collect()
    }

    /// Decides a charge whose answer is late: admitted if it was reserved, unless Redis has said meanwhile that nothing is
    /// left. `None` if such charges are not reserved, or the shard is down.
    pub(super) fn decide_late(
        &self,
        fleet: &Fleet,
        charge: &Charge,
        reserved: Option<&Reserved>,
        now_ns: u64,
    ) -> Option<Said> {
        if !fleet.is_reservable(charge) {
            return None;
        }
        let plan = fleet.plans.get(charge.plan)?;
        let denied = denied_before(fleet, plan, charge, now_ns);
        match (denied, reserved) {
            (None, Some(reserved)) => return Some((ChargeState::taken(reserved.refund), reserved.outcome)),
            (_, Some(reserved)) => self.refund_reserved(fleet, charge, reserved.refund),
            (_, None) if !fleet.link.is_up(charge.key) => return None,
            (_, None) => {}
        }
        let refused = || {
            let left = self.table.peek(&Charge { quota: fleet.share_of(charge), ..*charge }, now_ns);
            let retry_after_ns = left.retry_after_ns().unwrap_or(LATE_RETRY_NS).max(LATE_RETRY_NS);
            // What lies beyond its even part this node may not give before Redis has answered.
            let remaining = left.remaining.min(charge.cost.saturating_sub(1));
            Outcome::new(Answer::Later { retry_after_ns }, remaining, left.reset_ns.max(retry_after_ns))
        };
        Some((ChargeState::Refused, denied.unwrap_or_else(refused)))
    }

    /// Refunds a reservation.
    pub(super) fn refund_reserved(&self, fleet: &Fleet, charge: &Charge, refund: Refund) {
        if let Refund::Fallback { place, taken_ns } = refund {
            self.refund_share(fleet, charge, place, taken_ns);
        }
    }

    /// Resolves the charges of all requests of a group.
    fn decided(self: &Arc<Self>, fleet: &Fleet, group: Group, taken: &Taken, sent_ns: u64) {
        if let Some(last) = group.last() {
            self.note_said(fleet, &last.charges, taken, sent_ns);
        }
        // Redis reported what is left after the whole group. For each request, add what those behind it took.
        let mut behind: Rooms = (0..taken.outcomes.len()).map(|at| cost_of(&group, at)).collect();
        for question in &group {
            for (at, which) in question.charges().enumerate() {
                let Some(said) = taken.outcomes.get(at) else { continue };
                behind[at] = behind[at].saturating_sub(which.1.cost);
                let outcome = match behind[at] {
                    0 => *said,
                    more => Outcome::new(said.answer(), said.remaining.saturating_add(more), said.reset_ns),
                };
                self.decided_one(fleet, &question.wait, which, (taken, outcome), sent_ns);
            }
        }
    }

    /// Resolves one charge.
    fn decided_one(
        self: &Arc<Self>,
        fleet: &Fleet,
        wait: &Wait,
        (index, charge): (usize, &Charge),
        (taken, outcome): (&Taken, Outcome),
        sent_ns: u64,
    ) {
        let said = match taken.admitted {
            false if outcome.is_admitted() => (ChargeState::Fits, outcome),
            _ => said(outcome, Refund::Redis { taken_us: taken.at_us }),
        };
        let is_taken = matches!(said.0, ChargeState::Taken { .. });
        let is_reserved = wait.is_reserved(index);
        let note = || {
            // Counted here too, for fallback in case Redis goes down.
            if is_taken && !is_reserved {
                self.table.take(&fleet.own_part(charge), sent_ns);
            }
            said
        };
        let late = if is_taken { Late::Taken { taken_us: taken.at_us } } else { Late::Untaken };
        self.resolve_one(fleet, wait, (index, charge), late, note);
    }

    /// Resolves every charge of a question alike.
    fn resolve_all(self: &Arc<Self>, fleet: &Fleet, question: &Question, state: ChargeState, late: Late) {
        for which in question.charges() {
            self.resolve_one(fleet, &question.wait, which, late, || unheard(state));
        }
    }

    /// Resolves one charge. If its request no longer waits, treats the answer as late, or leaves it to the thread that is
    /// deciding the request right now.
    fn resolve_one(
        self: &Arc<Self>,
        fleet: &Fleet,
        wait: &Wait,
        (index, charge): (usize, &Charge),
        late: Late,
        answer: impl FnOnce() -> Said,
    ) {
        if !wait.resolve(index, answer)
            && let Some(fate) = wait.resolve_late(index, late)
        {
            self.late_decided(fleet, charge, late, fate);
        }
    }

    pub(super) fn late_decided(self: &Arc<Self>, fleet: &Fleet, charge: &Charge, late: Late, fate: Fate) {
        match (late, fate) {
            (Late::Taken { taken_us }, Fate::Refused) => self.return_to_redis(fleet, charge, taken_us),
            (Late::Untaken, Fate::Stands { .. }) => fleet.owe(charge),
            (Late::Taken { taken_us }, Fate::Stands { decided_ns: Some(decided_ns) }) => {
                fleet.taken_late.note(charge.key, decided_ns, taken_us);
            }
            (Late::Taken { .. } | Late::Unknown, Fate::Stands { .. }) => {}
            (Late::Untaken | Late::Unknown, Fate::Refused) => {}
        }
    }

    /// Remembers what Redis said about exact windows: what is left, and denials until they end.
    fn note_said(&self, fleet: &Fleet, charges: &[Charge], taken: &Taken, sent_ns: u64) {
        for (index, (charge, outcome)) in charges.iter().zip(&taken.outcomes).enumerate() {
            let Some(plan) = fleet.plans.get(charge.plan) else { continue };
            // Of a key that comes several times all that was asked for so far is refused, and no single cost.
            let alike = charges[..=index].iter().filter(|it| it.key == charge.key);
            let cost = alike.map(|it| it.cost).fold(0, u64::saturating_add);
            fleet.change(charge, sent_ns, |share| {
                share.hear(outcome.remaining, outcome.reset_ns, sent_ns);
                match outcome.answer() {
                    // A larger cost does not fit the field that remembers it, and says nothing about smaller ones.
                    Answer::Later { retry_after_ns } if cost <= u64::from(u32::MAX) => {
                        share.refuse(cost, retry_after_ns, sent_ns);
                    }
                    // Units have come back since the denial.
                    Answer::Admitted if share.refused_for(plan, charge.cost, sent_ns).is_some() => {
                        share.end_denial();
                    }
                    Answer::Later { .. } | Answer::Admitted | Answer::Never => {}
                }
            });
        }
    }

    /// Publishes how the charges of a wait were decided, for answers that are still to come, and handles those that came
    /// meanwhile.
    pub(super) fn tell_fates(
        self: &Arc<Self>,
        wait: &Wait,
        charges: &[Charge],
        fates: SmallVec<[Option<Fate>; 4]>,
    ) {
        let Some(fleet) = &self.fleet else { return };
        for (index, late) in wait.tell_fates(fates.clone()) {
            if let Some(fate) = fates[index] {
                self.late_decided(fleet, &charges[index], late, fate);
            }
        }
    }

    /// How each charge was decided, for late answers.
    pub(super) fn fates(
        charges: &[Charge],
        states: &[ChargeState],
        decision: &Decision,
    ) -> SmallVec<[Option<Fate>; 4]> {
        let fate = |(charge, state): (&Charge, &ChargeState)| match state {
            ChargeState::Taken { refund, .. } if !decision.is_refused_to(charge) || charge.count_denied => {
                let decided_ns = match refund {
                    Refund::Fallback { taken_ns, .. } => Some(*taken_ns),
                    _ => None,
                };
                Some(Fate::Stands { decided_ns })
            }
            _ => Some(Fate::Refused),
        };
        charges.iter().zip(states).map(fate).collect()
    }
}

impl Fleet {
    /// Whether a charge is reserved in this node's table while Redis is asked. Not if it counts denials, because then a
    /// refused request stays charged, and not for concurrency, which `permits.rs` keeps.
    fn is_reservable(&self, charge: &Charge) -> bool {
        let is_exact = |plan: &Arc<limit::Plan>| {
            let sharing = &plan.sharing;
            sharing.is_exact()
                && sharing.when_down == WhenDown::Local
                && plan.quota.algorithm() != Algorithm::Concurrency
        };
        !charge.count_denied && self.plans.get(charge.plan).is_some_and(is_exact)
    }
}

/// The least `Retry-After` of a client whose answer was late and for whom this node's share had no room.
const LATE_RETRY_NS: u64 = 10_000_000;
/// The most requests that one question asks for.
const GROUP_MAX: usize = 1_024;
