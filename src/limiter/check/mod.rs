//! [`Limiter::check`] decides the policies of one subject (a request, or anything else with dimensions).
//!
//! A subject that is blocked is refused before that, and one that is unlimited is charged nothing. In this order it:
//! collects the charges of the policies, drops the charges that a retry has already paid, refuses
//! penalised clients, decides the charges, records denials for penalties, remembers the idempotency key of an admitted
//! subject, and reports what each policy decided. What needs no Redis is decided at once and without allocating; for
//! the rest it returns a [`Pending`], which [`Limiter::finish`] waits for.
//!
//! It knows no HTTP. Its users bring a [`Subject`], turn the [`Check`] into an answer, and hand the [`Event`] to metrics
//! and logs.

pub(super) mod charge_state;
pub(super) mod charge_walk;
pub(super) mod counted_keys;
pub(super) mod event;
pub(super) mod forecast;
pub(super) mod joint_check;
pub(super) mod penalties;
pub(super) mod provenance;
pub(super) mod recall;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::timeout;

use crate::Limiter;
use crate::check::charge_walk::ChargeWalk;
use crate::check::event::{Count, Event};
use crate::check::forecast::Forecast;
use crate::check::penalties::is_kept_out;
use crate::check::recall::{Recall, has_repeats, is_remembered, remember, repeat};
use crate::decision::{ClientAddress, Decision};
use crate::holders::Holders;
use crate::holders::overrides::Override;
use crate::waiting::Waiting;
use base::clock;
use limit::{Algorithm, Charge, Outcome, PenaltyCheck, PolicyId, TrialSet};
use metrics::{self, Comparison};
use policy::{MissingDimension, PolicySelection, Subject};

/// A subject while it is decided, and the result. Functions fill it in place, because moving a struct of this size
/// costs as much as a decision.
#[derive(Debug, Default)]
pub struct Check<'t> {
    /// What the subject is charged. A retry is not charged again.
    pub charges: SmallVec<[Charge; 4]>,
    /// What was decided of its charges; valid once the check is finished.
    pub decision: Decision,
    /// What each policy decided, for metrics and logs.
    pub event: Event,
    /// The dimension that a policy requires and the subject does not have. If there is one, nothing is charged.
    pub missing: Option<MissingDimension<'t>>,
    /// The override that refuses the subject whatever it has spent. If there is one, nothing is charged.
    pub blocked: Option<Arc<Override>>,
    /// The penalties of the policies that have a `penalty`.
    pub penalties: SmallVec<[PenaltyCheck; 1]>,
    /// Numbers of the [parts](Charge::part) that are only looked at, said before the check: their charges go back as soon as
    /// they are taken, and to refuse one is no denial that a penalty could follow.
    pub looks: SmallVec<[u16; 1]>,
    pub(super) policies: PolicySelection<'t>,
    /// Charges that remember the subject's idempotency key, spent once it is admitted.
    memories: SmallVec<[Charge; 1]>,
    pub(super) begun_ns: u64,
}

/// What a peek finds, as far as this node knows.
#[derive(Debug, Default)]
pub struct PeekResult {
    /// What each charge would be told, in their order.
    pub foretold: Vec<Forecast>,
    /// Policies that a retry has paid: they do not charge it again.
    pub paid: Vec<PolicyId>,
    /// What remembers its idempotency keys elsewhere: only Redis can say whether they are known.
    pub unknown: Vec<Charge>,
}

/// A check that waits for Redis.
#[must_use = "a pending check holds the units it has taken until it is finished or dropped"]
pub enum Pending {
    /// Redis is asked whether the subject is a retry.
    Recall(Recall),
    /// Redis is asked for the charges.
    Charges(Box<Waiting>),
}

impl Check<'_> {
    /// Whether the subject may pass, by every policy that decides.
    pub fn is_admitted(&self) -> bool {
        self.missing.is_none() && self.blocked.is_none() && self.decision.is_admitted()
    }

    /// Whether the client has a penalty under this policy, which refuses it unless the policy is a shadow.
    pub fn is_penalised(&self, policy: PolicyId) -> bool {
        self.penalties.iter().any(|penalty| penalty.policy == policy && penalty.wait_ns > 0)
    }

    /// Whether the client of this charge has a penalty under its policy.
    pub fn keeps_out(&self, charge: &Charge) -> bool {
        let is_own = |penalty: &PenaltyCheck| (penalty.policy, penalty.part) == (charge.policy, charge.part);
        self.penalties.iter().any(|penalty| is_own(penalty) && penalty.wait_ns > 0)
    }
}

impl Limiter {
    /// Decides a subject under these policies: all of its charges are taken, or none. `check` must be new. Returns
    /// `None` if the decision is made, else what to pass to [`Limiter::finish`].
    pub fn check<'t>(
        self: &Arc<Self>,
        policies: PolicySelection<'t>,
        subject: &impl Subject,
        now_ns: u64,
        check: &mut Check<'t>,
    ) -> Option<Pending> {
        check.policies = policies;
        check.begun_ns = now_ns;
        if check.has_standing(&self.holders, policies, (subject, 0)) {
            return None;
        }
        match policies.charges(subject, &mut check.charges) {
            Ok(exempting) => check.event.exempt(&exempting, 0),
            Err(missing) => {
                check.lack(missing, 0);
                return None;
            }
        }
        if let Some(refusing) = self.holders.change(policies, subject, &mut check.charges, now_ns) {
            check.block(refusing, 0);
            return None;
        }
        check.memories = policies.memories(subject);
        if !check.memories.is_empty() {
            // A policy that charges this subject nothing (its `matches` does not hold, say) has no retry to recognise.
            let charges = &check.charges;
            check.memories.retain(|memory| charges.iter().any(|charge| charge.policy == memory.policy));
            self.route_tenant(&mut check.memories, subject.tenant());
            check.pass_retries(|memory, charge| {
                is_remembered(&self.table, memory, now_ns) && repeat(&self.table, memory, charge, now_ns)
            });
            if let Some(recall) = self.fleet().and_then(|fleet| Recall::ask(fleet, &check.memories)) {
                return Some(Pending::Recall(recall));
            }
        }
        check.charge(self, subject).map(Pending::Charges)
    }

    /// Waits for Redis, at most `redis.deadline` for each answer, and completes the check. Charges without an answer by then are decided
    /// by fallback.
    pub async fn finish(self: &Arc<Self>, pending: Pending, subject: &impl Subject, check: &mut Check<'_>) {
        let (waiting, left) = match pending {
            Pending::Charges(waiting) => return self.finish_together(waiting, check).await,
            Pending::Recall(recall) => {
                let deadline = recall.deadline;
                let asked_ns = clock::now_ns();
                let _ = timeout(deadline, recall.wait.resolved()).await;
                let Some(waiting) = check.recalled(self, recall, subject) else { return };
                // Both waits share one deadline, because the client waits for their sum.
                let waited = Duration::from_nanos(clock::now_ns() - asked_ns);
                (waiting, deadline.saturating_sub(waited))
            }
        };
        check.wait(self, *waiting, left).await;
    }

    /// Goes on with a check at `now_ns`, with what Redis has answered by then and without waiting: for whoever drives time.
    /// Returns what to pass again once Redis has answered more; `None` if the decision is made.
    pub fn proceed(
        self: &Arc<Self>,
        pending: Pending,
        subject: &impl Subject,
        now_ns: u64,
        check: &mut Check<'_>,
    ) -> Option<Pending> {
        match pending {
            Pending::Recall(recall) => check.recalled(self, recall, subject).map(Pending::Charges),
            Pending::Charges(waiting) => {
                check.resume(self, *waiting, now_ns);
                None
            }
        }
    }

    /// What a check would decide now. It spends, counts and remembers nothing. Penalties are read into `check` but do
    /// not change its decision, so that `explain` can show both; nor do charges that a retry has paid, which it returns.
    ///
    /// # Errors
    /// If a policy requires a dimension that the subject does not have.
    pub fn peek<'t>(
        &self,
        policies: PolicySelection<'t>,
        subject: &impl Subject,
        now_ns: u64,
        check: &mut Check<'t>,
    ) -> Result<PeekResult, MissingDimension<'t>> {
        check.policies = policies;
        check.begun_ns = now_ns;
        if check.has_standing(&self.holders, policies, (subject, 0)) {
            return Ok(PeekResult::default());
        }
        policies.charges(subject, &mut check.charges)?;
        let refusing = self.holders.change(policies, subject, &mut check.charges, now_ns);
        check.blocked = refusing.map(|(_, by)| by);
        let mut memories = policies.memories(subject);
        self.route_tenant(&mut memories, subject.tenant());
        // Who has no repeats left is charged, whoever knows the key.
        memories.retain(|memory| {
            first_charge(&check.charges, memory)
                .is_some_and(|charge| has_repeats(&self.table, memory, charge, now_ns))
        });
        let (known, unknown): (Vec<_>, Vec<_>) =
            memories.into_iter().partition(|memory| is_remembered(&self.table, memory, now_ns));
        let paid = known.iter().map(|memory| memory.policy).collect();
        check.penalties = policies.penalty_checks(&check.charges);
        for penalty in &mut check.penalties {
            penalty.wait_ns = self.table.penalty_ns(penalty.key, now_ns);
        }
        self.route_tenant(&mut check.charges, subject.tenant());
        self.hot.keep_local(&mut check.charges);
        check.decision = self.peek_charges(&check.charges, now_ns);
        let client = ClientAddress::from(policies.client_of(subject));
        let foretell = |charge| Forecast::of(self, charge, client, now_ns);
        Ok(PeekResult { foretold: check.charges.iter().map(foretell).collect(), paid, unknown })
    }

    /// Whether the policies whose decision does not depend on the client's identity would admit the subject. Nothing is
    /// spent. Authentication asks this before costly work (a password, a signature), so that guessing runs into a limit.
    pub fn has_room(&self, policies: PolicySelection<'_>, subject: &impl Subject, now_ns: u64) -> bool {
        let unlimited = &self.holders.overrides.unlimited;
        // True as well if it may be, because once it is known the client may be unlimited.
        if unlimited.needs_identity() || unlimited.of(subject, now_ns).is_some() {
            return true;
        }
        let mut check = Check::default();
        if policies.charges(subject, &mut check.charges).is_err() {
            return false;
        }
        // Not even their penalties count, because once it is known the client may be exempt.
        check.charges.retain(|charge| !policies.policy_of(charge).exempts_identities());
        // Before penalties are looked at, because a reset ends them.
        self.holders.change(policies, subject, &mut check.charges, now_ns);
        if is_kept_out(&self.table, &policies.penalty_checks(&check.charges), now_ns) {
            return false;
        }
        check.charges.retain(|charge| policies.policy_of(charge).is_blind());
        self.route_tenant(&mut check.charges, subject.tenant());
        self.hot.keep_local(&mut check.charges);
        check.charges.is_empty() || self.peek_charges(&check.charges, now_ns).is_admitted()
    }
}

impl Check<'_> {
    /// Charges a subject once it is known whether it is a retry. Returns what to wait for, if anything.
    fn recalled(
        &mut self,
        limiter: &Arc<Limiter>,
        recall: Recall,
        subject: &impl Subject,
    ) -> Option<Box<Waiting>> {
        let memories = &self.memories;
        let known: SmallVec<[Charge; 2]> = recall.remembered().iter().map(|index| memories[*index]).collect();
        let (table, now_ns) = (&limiter.table, self.begun_ns);
        self.pass_retries(|memory, charge| known.contains(memory) && repeat(table, memory, charge, now_ns));
        self.charge(limiter, subject)
    }

    /// Decides the remaining charges. Returns what to wait for if Redis has to be asked.
    fn charge(&mut self, limiter: &Arc<Limiter>, subject: &impl Subject) -> Option<Box<Waiting>> {
        if self.charges.is_empty() {
            return None;
        }
        // Before `route_tenant` changes the keys, because a client has one penalty, whichever shard has its limit.
        self.penalties = self.policies.penalty_checks(&self.charges);
        limiter.route_tenant(&mut self.charges, subject.tenant());
        self.charge_routed(limiter, |policies| ClientAddress::from(policies.client_of(subject)))
    }

    /// The same once penalties are looked up and keys have their shards.
    #[inline]
    fn charge_routed(
        &mut self,
        limiter: &Arc<Limiter>,
        client: impl FnOnce(PolicySelection<'_>) -> ClientAddress,
    ) -> Option<Box<Waiting>> {
        limiter.hot.keep_local(&mut self.charges);
        let now_ns = self.begun_ns;
        if self.penalties.is_empty() || !self.keep_out(limiter) {
            let client = client(self.policies);
            let Check { charges, decision, .. } = self;
            let waiting = match decision.kept_out {
                TrialSet::NONE => limiter.decide(charges, client, now_ns, decision),
                // The penalty of one policy of a trial; the other is decided.
                _ => ChargeWalk { limiter, charges, client, now_ns }.decide_all(decision),
            };
            if waiting.is_some() {
                return waiting.map(Box::new);
            }
        }
        self.conclude(limiter);
        None
    }

    /// Waits for the charges, so long or as long as those before them are answered in time, and completes the check.
    async fn wait(&mut self, limiter: &Limiter, waiting: Waiting, left: Duration) {
        let mut left = left;
        // A timeout is no error here, because the answers that have arrived decide.
        while timeout(left, waiting.resolved()).await.is_err() {
            left = waiting.longer(clock::now_ns());
            if left.is_zero() {
                break;
            }
        }
        self.resume(limiter, waiting, clock::now_ns());
    }

    /// Decides the charges that wait, with the answers that have arrived, and completes the check.
    fn resume(&mut self, limiter: &Limiter, waiting: Waiting, now_ns: u64) {
        waiting.resume(now_ns, &mut self.decision);
        self.conclude(limiter);
    }

    /// Completes a check whose charges are decided: records denials and retries, and counts.
    fn conclude(&mut self, limiter: &Limiter) {
        let now_ns = self.begun_ns;
        // A refusal because Redis is down must not count against the client.
        if !self.penalties.is_empty() && !self.decision.is_redis_down {
            self.watch(limiter);
        }
        if !self.looks.is_empty() {
            self.return_looks(limiter);
        }
        self.count();
        if self.policies.tries {
            self.compare();
        }
        // Only after admission, so that two requests with one key that arrive together are both charged, but none
        // passes under a key that nothing was paid for.
        let paid = self.memories.iter().filter(|memory| !self.decision.is_refused_to(memory));
        paid.for_each(|memory| remember(limiter, memory, now_ns));
    }

    /// Gives back what was taken of parts that are only looked at. Then the decision says what is left with it.
    #[cold]
    fn return_looks(&mut self, limiter: &Limiter) {
        let Check { charges, looks, decision, begun_ns, .. } = self;
        for (index, charge) in charges.iter().enumerate() {
            if !looks.contains(&charge.part) || !decision.has_taken(index, charge) {
                continue;
            }
            limiter.refund(charge, decision.refund(index), *begun_ns);
            let outcome = decision.outcomes[index];
            let remaining = outcome.remaining.saturating_add(charge.cost);
            let left = match charge.plan {
                None => limiter.look(charge, *begun_ns),
                Some(_) if remaining < charge.quota.capacity() => outcome,
                Some(_) => Outcome::new(outcome.answer(), remaining, 0),
            };
            decision.outcomes[index] = Outcome::new(outcome.answer(), remaining, left.reset_ns);
        }
        decision.bind(charges);
    }
}

fn first_charge<'c>(charges: &'c [Charge], memory: &Charge) -> Option<&'c Charge> {
    charges.iter().find(|charge| charge.policy == memory.policy)
}

impl<'t> Check<'t> {
    /// The subject of this part has no such dimension, and a policy refuses that.
    pub(super) fn lack(&mut self, missing: MissingDimension<'t>, part: u16) {
        self.event.decide(missing.policy, part, metrics::PolicyDecision::MissingRejected);
        self.missing = Some(missing);
    }

    /// Whether the subject of this part is blocked or unlimited, so that its policies are not asked.
    #[inline]
    pub(super) fn has_standing(
        &mut self,
        holders: &Holders,
        policies: PolicySelection<'_>,
        (subject, part): (&impl Subject, u16),
    ) -> bool {
        self.blocked = holders.overrides.blocked.of_any(subject, self.begun_ns);
        if self.blocked.is_some() {
            return true;
        }
        let is_unlimited = holders.overrides.unlimited.of(subject, self.begun_ns).is_some();
        if is_unlimited {
            let counting = policies.counting(subject);
            counting.for_each(|it| self.event.decide(it.id, part, metrics::PolicyDecision::Exempt));
        }
        is_unlimited
    }

    /// An override leaves nothing of a policy's limit to the subject of this part.
    #[cold]
    pub(super) fn block(&mut self, (policy, by): (PolicyId, Arc<Override>), part: u16) {
        self.event.decide(policy, part, metrics::PolicyDecision::Denied);
        self.charges.clear();
        self.blocked = Some(by);
    }
}

impl Check<'_> {
    /// Drops the charges of policies that have already charged this subject, and keeps in `memories` only those that
    /// have not. Concurrency is charged again, because a retry is in flight like any other request. `is_free` is asked
    /// with a memory and the first charge of its policy.
    fn pass_retries(&mut self, is_free: impl Fn(&Charge, &Charge) -> bool) {
        let Check { charges, memories, event, .. } = self;
        memories.retain(|memory| {
            if !first_charge(charges, memory).is_some_and(|charge| is_free(memory, charge)) {
                return true;
            }
            charges.retain(|charge| {
                charge.policy != memory.policy || charge.quota.algorithm() == Algorithm::Concurrency
            });
            if charges.iter().all(|charge| charge.policy != memory.policy) {
                event.decide(memory.policy, 0, metrics::PolicyDecision::Admitted);
            }
            false
        });
    }

    /// Adds one count for each policy, however many windows it has.
    fn count(&mut self) {
        let mut windows = self.charges.iter().zip(&self.decision.outcomes).peekable();
        while let Some((charge, outcome)) = windows.next() {
            let mut is_over = !outcome.is_admitted();
            while let Some((_, outcome)) = windows.next_if(|(next, _)| next.is_beside(charge)) {
                is_over |= !outcome.is_admitted();
            }
            let decision = match (self.keeps_out(charge), is_over, charge.shadow) {
                (true, _, true) => metrics::PolicyDecision::ShadowPenalised,
                (true, _, false) => metrics::PolicyDecision::Penalised,
                (false, true, true) => metrics::PolicyDecision::ShadowDenied,
                (false, true, false) => metrics::PolicyDecision::Denied,
                (false, false, _) => metrics::PolicyDecision::Admitted,
            };
            let Charge { policy, part, .. } = *charge;
            self.event.counts.push(Count { policy, part, decision, tier: self.decision.tier });
        }
    }

    /// Compares the two policies of each trial, and the two algorithms of each policy that changes: whether each would have
    /// refused the subject, whatever others say.
    #[cold]
    fn compare(&mut self) {
        self.compare_algorithms();
        for (index, charge) in self.charges.iter().enumerate() {
            let Some(trial) = charge.trial else { continue };
            let is_of = |other: &&Charge| other.trial.is_some_and(|other| other.is_of(trial));
            if self.charges[..index].iter().any(|earlier| is_of(&earlier)) {
                continue;
            }
            let policy = self.policies.policy_of(charge);
            let Some(candidate) = policy.tried.or(policy.replaces().map(|_| policy.id)) else { continue };
            let denies = |of_candidate: bool| {
                let own = self.charges.iter().zip(&self.decision.outcomes);
                let mut own =
                    own.filter(|(other, _)| is_of(other) && (other.policy == candidate) == of_candidate);
                own.any(|(charge, outcome)| !outcome.is_admitted() || self.keeps_out(charge))
            };
            let comparison = Comparison::of(denies(false), denies(true));
            self.event.comparisons.push((candidate, comparison));
        }
    }

    fn compare_algorithms(&mut self) {
        let mut outcomes = self.decision.outcomes.iter();
        for windows in self.charges.chunk_by(Charge::is_beside) {
            let policy = self.policies.policy_of(&windows[0]);
            let (mut before, mut now) = (false, false);
            for (charge, outcome) in windows.iter().zip(outcomes.by_ref()) {
                before |= !outcome.is_admitted() && !policy.is_incoming(charge);
                now |= !outcome.is_admitted() && !policy.is_outgoing(charge);
            }
            if policy.is_changing() && policy.replaces().is_none() {
                self.event.comparisons.push((policy.id, Comparison::of(before, now)));
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::Reset;
    use crate::local::Table as LocalTable;
    use limit::Penalty;
    use policy::counting::rules::PolicyRules;
    use policy::counting::shorthand;
    use policy::definition::{self, Dimension, Idempotency, Missing};
    use policy::keys::subject::Encoded;
    use policy::{CompileOptions, Holder, RouteTable};

    const SECOND: u64 = 1_000_000_000;
    pub(crate) const NOW: u64 = 3_600 * SECOND;

    /// A subject that is no HTTP request: a consumer who asks for some units.
    pub(crate) struct Job {
        pub(crate) consumer: &'static str,
        pub(crate) units: u64,
        pub(crate) number: Option<&'static str>,
    }

    impl Subject for Job {
        fn write(&self, dimension: &Dimension, out: &mut Encoded) -> bool {
            if *dimension == Dimension::Consumer {
                out.extend_from_slice(self.consumer.as_bytes());
            }
            true
        }

        fn address(&self) -> IpAddr {
            Ipv4Addr::LOCALHOST.into()
        }

        fn tier(&self) -> Option<&str> {
            None
        }

        fn consumer(&self) -> Option<&str> {
            Some(self.consumer)
        }

        fn tenant(&self) -> Option<&str> {
            None
        }

        fn cost(&self, _: &PolicyRules) -> u64 {
            self.units
        }

        fn write_idempotency_key(&self, _: &PolicyRules, out: &mut Encoded) -> bool {
            out.extend_from_slice(self.number.unwrap_or_default().as_bytes());
            self.number.is_some()
        }
    }

    pub(crate) fn policy(name: &str, limit: &str) -> definition::PolicyDefinition {
        let limit = shorthand::parse(limit).expect("a limit");
        definition::PolicyDefinition {
            by: limit.by,
            ..definition::PolicyDefinition::new(name.to_owned(), vec![limit.window])
        }
    }

    /// One route with all of these policies.
    pub(crate) fn table(policies: &[definition::PolicyDefinition]) -> RouteTable {
        let mut route = definition::RouteDefinition::new("all".to_owned(), "/".to_owned());
        let named = policies.iter().filter(|policy| policy.replaces.is_none());
        route.limits = named.map(|policy| policy.name.clone()).collect();
        let options = CompileOptions { salt: [7; 16], ipv6_prefix: 64, upstreams: &[], auth: &[] };
        RouteTable::compile(&[route], policies, &options).expect("a table without mistakes")
    }

    pub(crate) fn limiter() -> Arc<Limiter> {
        Arc::new(Limiter::new(LocalTable::with_memory(1 << 16)))
    }

    pub(crate) fn check<'t>(
        limiter: &Arc<Limiter>,
        table: &'t RouteTable,
        job: &Job,
        now_ns: u64,
    ) -> Check<'t> {
        let mut check = Check::default();
        let chosen = table.chosen(&table.routes()[0], false);
        assert!(limiter.check(chosen, job, now_ns, &mut check).is_none(), "one node waits for nobody");
        check
    }

    fn decisions(check: &Check<'_>) -> Vec<(usize, metrics::PolicyDecision)> {
        check.event.counts.iter().map(|count| (count.policy.index(), count.decision)).collect()
    }

    #[test]
    fn a_subject_that_is_no_request_is_decided_by_its_dimensions() {
        let shadow = definition::PolicyDefinition { shadow: true, ..policy("watched", "1/m by consumer") };
        let (limiter, table) = (limiter(), table(&[policy("jobs", "5/m by consumer"), shadow]));
        let job = |consumer, units| Job { consumer, units, number: None };
        let first = check(&limiter, &table, &job("a", 1), NOW);
        assert!(first.is_admitted());
        assert_eq!(
            decisions(&first),
            [(0, metrics::PolicyDecision::Admitted), (1, metrics::PolicyDecision::Admitted)]
        );
        let second = check(&limiter, &table, &job("a", 4), NOW);
        assert!(second.is_admitted());
        assert_eq!(
            second.event.deciding().map(|count| (count.policy.index(), count.decision)),
            Some((1, metrics::PolicyDecision::ShadowDenied))
        );
        let third = check(&limiter, &table, &job("a", 1), NOW);
        assert_eq!(third.event.deciding().map(|count| count.decision), Some(metrics::PolicyDecision::Denied));
        assert!(
            !third.is_admitted()
                && third.event.deciding().is_some_and(|count| count.policy == PolicyId::default())
        );
        assert!(
            check(&limiter, &table, &job("b", 1), NOW).is_admitted(),
            "another one has a limit of its own"
        );
        assert!(check(&limiter, &table, &job("a", 0), NOW).event.counts.is_empty(), "of no cost, no policy");
    }

    #[test]
    fn a_policy_refuses_a_subject_without_its_dimension() {
        let strict =
            definition::PolicyDefinition { missing: Missing::Reject, ..policy("jobs", "5/m by tenant") };
        let (limiter, table) = (limiter(), table(&[strict]));
        let check = check(&limiter, &table, &Job { consumer: "a", units: 1, number: None }, NOW);
        assert_eq!(check.missing.map(|missing| missing.dimension), Some(&Dimension::Tenant));
        assert!(!check.is_admitted());
        assert_eq!(decisions(&check), [(0, metrics::PolicyDecision::MissingRejected)]);
    }

    #[test]
    fn a_retry_of_an_admitted_subject_is_charged_once() {
        let idempotency = Idempotency {
            header: http::HeaderName::from_static("idempotency-key"),
            window: Duration::from_secs(60),
            by_address: false,
        };
        let jobs = definition::PolicyDefinition {
            idempotency: Some(idempotency),
            ..policy("jobs", "1/m by consumer")
        };
        let (limiter, table) = (limiter(), table(&[jobs]));
        let job = |number| Job { consumer: "a", units: 1, number };
        assert!(check(&limiter, &table, &job(Some("one")), NOW).is_admitted());
        let retry = check(&limiter, &table, &job(Some("one")), NOW);
        assert!(retry.is_admitted() && retry.charges.is_empty());
        assert_eq!(decisions(&retry), [(0, metrics::PolicyDecision::Admitted)]);
        assert!(!check(&limiter, &table, &job(Some("two")), NOW).is_admitted());
        assert!(
            !check(&limiter, &table, &job(Some("two")), NOW).is_admitted(),
            "refused, it was not remembered"
        );
    }

    #[test]
    fn repeats_of_all_keys_together_are_as_many_a_minute_as_the_limit_or_ten() {
        for (limit, keys, free) in [("2/h by consumer", 2, 10), ("30/h by consumer", 25, 30)] {
            let idempotency = Idempotency {
                header: http::HeaderName::from_static("idempotency-key"),
                window: Duration::from_secs(86_400),
                by_address: false,
            };
            let jobs =
                definition::PolicyDefinition { idempotency: Some(idempotency), ..policy("jobs", limit) };
            let (limiter, table) = (limiter(), table(&[jobs]));
            let numbers: Vec<&'static str> = (0..keys).map(|number| &*number.to_string().leak()).collect();
            let is_free = |consumer, number: &'static str, now_ns| {
                let check =
                    check(&limiter, &table, &Job { consumer, units: 1, number: Some(number) }, now_ns);
                check.is_admitted() && check.charges.is_empty()
            };
            assert!(!numbers.iter().any(|number| is_free("a", number, NOW)), "each is charged once");
            let repeats = |now_ns| {
                let all = numbers.iter().cycle().take(keys * 20);
                all.filter(|number| is_free("a", number, now_ns)).count()
            };
            assert_eq!(repeats(NOW + SECOND / 1_000), free, "{limit}");
            assert_eq!(repeats(NOW + 61 * SECOND), free, "{limit}, a minute later");
            assert!(!is_free("b", "0", NOW) && is_free("b", "0", NOW), "another has an allowance of its own");
        }
    }

    #[test]
    fn a_peek_says_what_a_check_would_and_spends_nothing() {
        let rule = Penalty::new(1, 60 * SECOND, 2, 3_600);
        let jobs = definition::PolicyDefinition { penalty: Some(rule), ..policy("jobs", "2/s by consumer") };
        let (limiter, table) = (limiter(), table(&[jobs]));
        let job = Job { consumer: "a", units: 1, number: None };
        let chosen = table.chosen(&table.routes()[0], false);
        let peek = || {
            let mut check = Check::default();
            limiter.peek(chosen, &job, NOW, &mut check).expect("nothing is missing");
            check
        };
        assert_eq!(peek().decision, peek().decision);
        assert!(limiter.has_room(chosen, &job, NOW));
        for left in [1, 0] {
            assert_eq!(peek().decision.outcomes[0].remaining, left);
            assert_eq!(check(&limiter, &table, &job, NOW).decision.outcomes[0].remaining, left);
        }
        assert!(
            !peek().is_admitted()
                && !peek().is_penalised(PolicyId::default())
                && !limiter.has_room(chosen, &job, NOW)
        );
        let refused = [0, 1].map(|_| check(&limiter, &table, &job, NOW));
        assert!(refused[1].is_penalised(PolicyId::default()) && peek().is_penalised(PolicyId::default()));
        assert_eq!(decisions(&refused[1]), [(0, metrics::PolicyDecision::Penalised)]);
        // The limit itself is whole again then, the penalty is not over.
        assert!(!limiter.has_room(chosen, &job, NOW + SECOND));
        limiter.resets().put(&Holder::Consumer("a".into()), Reset::new("1", None, 1));
        assert!(limiter.has_room(chosen, &job, NOW), "a reset ends both");
        let first = check(&limiter, &table, &job, NOW);
        assert!(first.is_admitted() && !first.is_penalised(PolicyId::default()));
        assert_eq!(first.decision.outcomes[0].remaining, 1);
    }
}
