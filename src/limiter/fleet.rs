//! [`Fleet`]: what this node knows of the limits it shares, and how it decides one shared charge: from its lease, from a
//! denial that Redis gave, by asking Redis, or by fallback (`when-redis-down`).
//!
//! It decides single charges only; `attempt.rs` combines them. It sends nothing itself.

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::check::charge_state::{ChargeState, Refund, Said, said, unheard};
use super::exact::advances::Advances;
use super::exact::questions::Questions;
use super::exact::taken_late::TakenLate;
use super::fallback::debts::Debts;
use super::fallback::unsent_queue::UnsentQueue;
use super::leases::renewal_queue::Renewals;
use super::leases::sweep_queue::SweepQueue;
use super::link::Link;
use super::permits::holdings::Permits;
use super::plans::Plans;
use super::{ClientAddress, Decision, Limiter};
use crate::local::Leases;
use limit::Plan;
use limit::{Algorithm, Answer, Charge, Key, Outcome, Quota, WhenDown};
use limit::{LEAD_MIN_NS, Lease, LeaseAnswer, PlanId, View};
use metrics::DecidingTier;

/// The shared half of a limiter.
pub struct Fleet {
    pub(super) link: Arc<dyn Link>,
    pub(super) shares: Leases,
    pub(super) plans: Plans,
    pub(super) renewals: Renewals,
    pub(super) sweep_queue: SweepQueue,
    pub(super) permits: Permits,
    /// How much ahead of need leases are renewed, nanoseconds.
    lead_ns: AtomicU64,
    /// The hash state that keys of client addresses start from.
    addresses: SipHasher13,
    pub(super) questions: Questions,
    pub(super) debts: Debts,
    pub(super) unsent: UnsentQueue,
    pub(super) taken_late: TakenLate,
    pub(super) advances: Advances,
}

impl Fleet {
    /// A node with `bytes` for its leases.
    pub fn new(link: Arc<dyn Link>, bytes: usize) -> Fleet {
        Fleet {
            link,
            shares: Leases::with_memory(bytes),
            plans: Plans::default(),
            renewals: Renewals::default(),
            sweep_queue: SweepQueue::default(),
            permits: Permits::default(),
            lead_ns: AtomicU64::new(LEAD_MIN_NS),
            addresses: SipHasher13::new(),
            questions: Questions::default(),
            debts: Debts::default(),
            unsent: UnsentQueue::default(),
            taken_late: TakenLate::default(),
            advances: Advances::default(),
        }
    }

    /// Hashes client addresses under this salt, so that no client can choose addresses whose keys collide.
    pub fn salted(self, salt: &[u8; 16]) -> Fleet {
        Fleet { addresses: SipHasher13::new_with_key(salt), ..self }
    }

    /// How much ahead of need leases are renewed, nanoseconds.
    #[inline]
    pub(super) fn lead_ns(&self) -> u64 {
        self.lead_ns.load(Ordering::Relaxed)
    }

    /// Whether answers for a key take longer than a request may wait.
    fn is_late(&self, key: Key) -> bool {
        u128::from(self.link.round_trip_ns(key)) > self.link.deadline(key).as_nanos()
    }

    /// How far ahead leases of a key are renewed: as long as its answers take, if requests cannot wait for them.
    pub(super) fn lead_for(&self, key: Key) -> u64 {
        let round_trip_ns = self.link.round_trip_ns(key);
        let lead_ns = round_trip_ns + round_trip_ns / 4 + LEAD_MIN_NS;
        if self.is_late(key) { lead_ns.min(LEAD_MAX_NS) } else { LEAD_MIN_NS }
    }

    /// Adapts how far ahead leases are renewed to the slowest shard.
    pub(super) fn follow(&self, lead_ns: u64) {
        self.lead_ns.store(lead_ns, Ordering::Relaxed);
    }

    /// How long a request waits for answers for these keys.
    pub(super) fn deadline(&self, keys: impl Iterator<Item = Key>) -> Duration {
        keys.map(|key| self.link.deadline(key)).max().unwrap_or_default()
    }

    /// This node's leases of all keys that the fleet shares.
    pub fn leases(&self) -> &Leases {
        &self.shares
    }

    /// How many nodes share limits, this one included.
    pub fn nodes(&self) -> u32 {
        self.link.nodes()
    }

    /// The plans of every configuration so far.
    pub fn plans(&self) -> &Plans {
        &self.plans
    }

    /// Changes a key's lease, creating it if needed; `None` if the table has no room for it.
    pub(super) fn change<R>(
        &self,
        charge: &Charge,
        now_ns: u64,
        change: impl FnOnce(&mut Lease) -> R,
    ) -> Option<R> {
        let says_nothing = |under, words| {
            self.plans.get(under).is_none_or(|plan| Lease::from_words(words).says_nothing(plan, now_ns))
        };
        self.shares.change(charge.key, charge.plan, says_nothing, |under, words| {
            let mut share = self.share_under(charge, under, *words, now_ns);
            let result = change(&mut share);
            *words = share.into_words();
            result
        })
    }

    /// The fast path: spends a charge from a lease that holds enough and needs no renewal. `None`: use `decide_charge`.
    #[inline(always)]
    pub(super) fn spend(&self, charge: &Charge, now_ns: u64) -> Option<Outcome> {
        let plan = self.plans.get(charge.plan).filter(|plan| !plan.sharing.is_exact())?;
        let spent = self.shares.change_known(charge.key, |under, words| {
            let mut share = Lease::from_words(*words);
            // After a reload the lease may still belong to another plan.
            let left = if under == charge.plan {
                share.spend(plan, charge.cost, now_ns, self.lead_ns())
            } else {
                None
            };
            *words = share.into_words();
            left
        });
        spent?.map(|(remaining, reset_ns)| Outcome::new(Answer::Admitted, remaining, reset_ns))
    }

    /// A key's lease for a charge. If it was written under another plan, the limit has changed: a denial is dropped, and what
    /// is lent keeps its share.
    pub(super) fn share_under(
        &self,
        charge: &Charge,
        under: Option<PlanId>,
        words: [u64; 6],
        now_ns: u64,
    ) -> Lease {
        let mut share = Lease::from_words(words);
        if under != charge.plan {
            share.end_denial();
            if let (Some(old), Some(new)) = (self.plans.get(under), self.plans.get(charge.plan)) {
                share.adopt(old, new, now_ns);
            }
        }
        share
    }

    /// Changes the lease of a key that has one. `change` gets the plan under which it was written.
    pub(super) fn change_known<R>(
        &self,
        key: Key,
        change: impl FnOnce(Option<PlanId>, &mut Lease) -> R,
    ) -> Option<R> {
        self.shares.change_known(key, |under, words| {
            let mut share = Lease::from_words(*words);
            let result = change(under, &mut share);
            *words = share.into_words();
            result
        })
    }

    /// The key by which `when-redis-down = "allow"` limits a client. By address even if the policy counts by something
    /// else, because clients may choose that (a header, say).
    fn key_of_address(&self, charge: &Charge, client: ClientAddress) -> Key {
        let mut state = self.addresses;
        state.write_u32(PlanId::into_bits(charge.plan));
        state.write_u16(charge.window);
        state.write_u128(client.0);
        Key::new(state.finish128().as_u128())
    }

    /// The charge to the coarse limit of `when-redis-down = "allow"`.
    pub(super) fn coarse(&self, plan: &Plan, charge: &Charge, client: ClientAddress) -> Charge {
        let (key, quota) = (self.key_of_address(charge, client), plan.quota.for_address());
        Charge { key, quota, ..*charge }
    }

    /// This node's lease of a key, for operators; `None` if it has none.
    pub fn view(&self, key: Key, now_ns: u64) -> Option<View> {
        let (_, words) = self.shares.peek(key)?;
        Some(Lease::from_words(words).view(now_ns))
    }

    /// Whether to lease even a small limit: there is no other node to miss the units, or answers come too late for
    /// requests to wait.
    pub(super) fn wants_ahead(&self, key: Key) -> bool {
        self.link.nodes() <= 1 || self.is_late(key)
    }

    /// Whether a request may overdraw the lease by one unit instead of waiting. Each node may owe one, so this needs at
    /// least as many spare units as nodes; otherwise the fleet would exceed its `overshoot`.
    pub fn may_owe(&self, charge: &Charge, plan: &Plan) -> bool {
        charge.cost == 1 && self.link.nodes() <= plan.sharing.spare && self.link.is_quick(charge.key)
    }

    /// What a lease answers to a charge, overdrawn and rechecked as the policy allows. `LeaseAnswer::Ask`: Redis has
    /// to be asked.
    #[inline]
    pub(super) fn take_from(
        &self,
        share: &mut Lease,
        plan: &Plan,
        charge: &Charge,
        now_ns: u64,
    ) -> LeaseAnswer {
        match share.take(plan, charge.cost, now_ns, self.lead_ns()) {
            LeaseAnswer::Ask if self.may_owe(charge, plan) && share.overdraw(plan, now_ns) => {
                LeaseAnswer::Admitted { renew: true }
            }
            LeaseAnswer::Denied { .. } if share.is_denial_old(now_ns) && self.link.is_quick(charge.key) => {
                LeaseAnswer::Ask
            }
            // Redis is asked, because only it knows how long a cost above one has to wait in a sliding window.
            LeaseAnswer::Denied { .. }
                if charge.cost > 1
                    && plan.quota.algorithm() == Algorithm::SlidingWindow
                    && self.link.is_quick(charge.key) =>
            {
                LeaseAnswer::Ask
            }
            told => told,
        }
    }

    /// The outcome of a charge on an exact window that Redis has denied before, while that denial lasts.
    pub(super) fn denied_by(
        &self,
        share: &mut Lease,
        plan: &Plan,
        charge: &Charge,
        now_ns: u64,
    ) -> Option<Outcome> {
        let retry_after_ns = match self.link.is_quick(charge.key) {
            true => share.refuses(plan, charge.cost, now_ns),
            // No recheck, because Redis cannot be asked again.
            false => share.refused_for(plan, charge.cost, now_ns),
        }?;
        let (remaining, reset_ns) = share.estimate(plan, now_ns);
        Some(Outcome::new(Answer::Later { retry_after_ns }, remaining, reset_ns.max(retry_after_ns)))
    }

    /// What a lease answers to a charge without Redis, and what is left then.
    pub(super) fn fall_back(
        &self,
        share: &mut Lease,
        plan: &Plan,
        charge: &Charge,
        now_ns: u64,
    ) -> (LeaseAnswer, (u64, u64)) {
        let (nodes, is_away) = (self.spenders(charge), !self.link.answers(charge.key));
        if !is_away && share.advance(charge.cost, now_ns, self.link.nodes()) {
            return (LeaseAnswer::Admitted { renew: false }, share.estimate(plan, now_ns));
        }
        let told = share.take_fallback(plan, charge.cost, now_ns, nodes, is_away);
        (told, share.fallback_left(plan, now_ns, nodes, is_away))
    }

    /// Whether a key stays in fallback a little longer, so that a Redis that has just come back does not meet every key of
    /// every node at once. Chosen by bits of the key, so that all nodes bring the same keys back first.
    pub(super) fn is_held_back(&self, key: Key) -> bool {
        self.shares.peek(key).is_some_and(|(_, words)| self.is_held_back_as(key, &Lease::from_words(words)))
    }

    /// The same of a key with this lease.
    pub(super) fn is_held_back_as(&self, key: Key, share: &Lease) -> bool {
        share.is_fallback() && key.high() % 100 >= u64::from(self.link.ramp_percent(key))
    }

    /// Whether Redis answers, but later than a request may wait.
    pub(super) fn is_late_as_a_rule(&self, key: Key) -> bool {
        self.link.answers(key) && !self.link.is_quick(key)
    }

    /// Whether Redis is asked about a key that this node cannot decide. A slow one is not, because nobody waits for it.
    pub(super) fn is_asked(&self, key: Key) -> bool {
        self.link.is_quick(key) && !self.is_held_back(key)
    }

    /// This node's share of a charge's quota; the quota itself if the fleet does not share it.
    pub(super) fn share_of(&self, charge: &Charge) -> Quota {
        self.plans.share(charge.plan).unwrap_or(charge.quota)
    }

    /// How many permits this node may hold without asking: its share, even if Redis is only late, because Redis goes on
    /// giving. By the policy's key even for `allow`, because Redis is told what is in flight when it is back.
    pub(super) fn permits_of(&self, charge: &Charge, when_down: WhenDown) -> Quota {
        match when_down {
            WhenDown::Local if self.link.answers(charge.key) => charge.quota.part_of(self.link.nodes(), 1),
            WhenDown::Local => self.share_of(charge),
            WhenDown::Allow | WhenDown::Deny => charge.quota,
        }
    }

    /// Among how many nodes the limit of a charge is divided without Redis; 0: this one is not among them. Of a limit with
    /// fewer units than there are nodes the key names as many, so that it is neither each node's nor nobody's.
    pub(super) fn spenders(&self, charge: &Charge) -> u32 {
        let nodes = self.link.nodes().max(1);
        let spenders = charge.quota.spenders(nodes);
        if spenders == nodes || self.link.rank(charge.key) < spenders { spenders } else { 0 }
    }

    /// The charge that this node's table counts beside Redis, so that fallback knows what was spent if Redis goes down.
    pub(super) fn own_part(&self, charge: &Charge) -> Charge {
        Charge { quota: self.share_of(charge), count_denied: true, ..*charge }
    }

    /// The quota that this node enforces for an exact window while Redis is down (`when-redis-down = "local"`); `None`
    /// if Redis is up or the policy says otherwise.
    pub(super) fn fallback_share(&self, charge: &Charge) -> Option<Quota> {
        let sharing = &self.plans.get(charge.plan)?.sharing;
        let is_fallback =
            sharing.is_exact() && sharing.when_down == WhenDown::Local && !self.link.is_up(charge.key);
        if is_fallback { self.plans.share(charge.plan) } else { None }
    }

    /// Units left of an exact window as far as this node knows, and nanoseconds until it is whole.
    pub(super) fn estimate(&self, plan: &Plan, charge: &Charge, now_ns: u64) -> (u64, u64) {
        let (under, words) = self.shares.peek(charge.key).unwrap_or_default();
        self.share_under(charge, under, words, now_ns).estimate(plan, now_ns)
    }

    /// Units left of an exact window as Redis said and as are certain to have refilled since, if others spend nothing.
    pub(super) fn heard_left(&self, plan: &Plan, charge: &Charge, now_ns: u64) -> u64 {
        let (under, words) = self.shares.peek(charge.key).unwrap_or_default();
        self.share_under(charge, under, words, now_ns).heard_left(plan, now_ns)
    }

    /// How long ago Redis said what is left of a window, nanoseconds; `None`: never.
    pub(super) fn heard_ago_ns(&self, charge: &Charge, is_exact: bool, now_ns: u64) -> Option<u64> {
        let (_, words) = self.shares.peek(charge.key)?;
        Lease::from_words(words).age_ns(is_exact, now_ns)
    }

    /// Units left of an exact window as far as this node knows.
    pub(super) fn left(&self, charge: &Charge, now_ns: u64) -> u64 {
        self.plans.get(charge.plan).map_or(0, |plan| self.estimate(plan, charge, now_ns).0)
    }

    /// How long an exact window refuses a charge at most, by what Redis last said was left of it; `None`: it may admit it.
    pub(super) fn known_wait_ns(&self, charge: &Charge, now_ns: u64) -> Option<u64> {
        let plan = self.plans.get(charge.plan).filter(|plan| plan.sharing.is_exact())?;
        let (under, words) = self.shares.peek(charge.key).filter(|(under, _)| *under == charge.plan)?;
        self.share_under(charge, under, words, now_ns).heard_wait_ns(plan, charge.cost, now_ns)
    }

    /// The outcome that a shared charge would have as far as this node knows; `None` if the fleet does not share it.
    pub(super) fn foresee(&self, charge: &Charge, now_ns: u64) -> Option<Outcome> {
        let plan = self.plans.get(charge.plan)?;
        let (under, words) = self.shares.peek(charge.key).unwrap_or_default();
        let mut share = self.share_under(charge, under, words, now_ns);
        let (remaining, reset_ns) = match share.is_fallback() && !plan.sharing.is_exact() {
            true => share.fallback_left(plan, now_ns, self.spenders(charge), !self.link.answers(charge.key)),
            false => share.estimate(plan, now_ns),
        };
        let told = match (plan.sharing.is_exact(), share.refused_for(plan, charge.cost, now_ns)) {
            _ if charge.cost > plan.quota.capacity() => {
                return Some(Outcome::new(Answer::Never, remaining, reset_ns));
            }
            (true, Some(retry_after_ns)) if charge.cost > 0 => LeaseAnswer::Denied { retry_after_ns },
            (false, _) if charge.cost > remaining => {
                let told = share.take(plan, charge.cost, now_ns, self.lead_ns());
                return Some(lease_outcome(plan, charge.cost, told, (remaining, reset_ns)));
            }
            _ => LeaseAnswer::Admitted { renew: false },
        };
        let remaining = match told {
            LeaseAnswer::Admitted { .. } => remaining.saturating_sub(charge.cost),
            LeaseAnswer::Denied { .. } | LeaseAnswer::Ask => remaining,
        };
        Some(outcome_of(told, (remaining, reset_ns)))
    }
}

impl Limiter {
    /// Decides one charge if this node can, else returns `ChargeState::Asked`: the charge has to be asked of Redis.
    pub(super) fn decide_charge(
        self: &Arc<Self>,
        charge: &Charge,
        client: ClientAddress,
        now_ns: u64,
        decision: &mut Decision,
    ) -> Said {
        let shared = self.fleet.as_ref().and_then(|fleet| Some((fleet, fleet.plans.get(charge.plan)?)));
        let Some((fleet, plan)) = shared else {
            let taken = self.table.take(charge, now_ns);
            return said(taken.outcome, Refund::Table(taken.place));
        };
        // Only larger costs can be too large, because every window holds at least one unit.
        if charge.cost > 1 && charge.cost > plan.quota.capacity() {
            return (ChargeState::Refused, self.foresee(charge, now_ns));
        }
        let known = if !plan.sharing.is_exact() {
            self.spend_lease(fleet, plan, charge, now_ns)
        } else if plan.quota.algorithm() == Algorithm::Concurrency || charge.count_denied {
            // No denial is remembered, because permits may be free again at any moment. A policy that counts denials
            // has to tell Redis each of them.
            None
        } else {
            denied_before(fleet, plan, charge, now_ns).map(|denied| {
                // What a slow Redis has given for a request before is there all the same.
                let is_late = fleet.is_late_as_a_rule(charge.key);
                let granted = is_late.then(|| self.spend_granted(fleet, plan, charge, now_ns)).flatten();
                granted.unwrap_or((ChargeState::Refused, denied))
            })
        };
        match known {
            Some(known) => known,
            None if fleet.is_asked(charge.key) => {
                decision.waits = true;
                unheard(ChargeState::Asked)
            }
            None if Fleet::is_advanced(plan) && fleet.link.answers(charge.key) => {
                self.decide_or_ask(fleet, plan, charge, now_ns)
            }
            None => self.without_answer(fleet, plan, charge, client, now_ns, decision),
        }
    }

    /// Decides a charge without waiting, because its shard is down or slower than a request may wait. A slow shard is
    /// still asked for a lease for later requests. A key that has one already spends beyond it no more than its part of what
    /// Redis said is left, because otherwise the node would spend both the lease and its fallback share.
    fn without_answer(
        self: &Arc<Self>,
        fleet: &Fleet,
        plan: &Arc<Plan>,
        charge: &Charge,
        client: ClientAddress,
        now_ns: u64,
        decision: &mut Decision,
    ) -> Said {
        let is_slow =
            !plan.sharing.is_exact() && fleet.link.is_up(charge.key) && !fleet.is_held_back(charge.key);
        let lead_ns = fleet.lead_ns();
        let known = fleet.change_known(charge.key, |_, share| {
            let told = match is_slow && share.has_lease(plan, now_ns, lead_ns) {
                false => return None,
                true if share.advance(charge.cost, now_ns, fleet.nodes()) => {
                    LeaseAnswer::Admitted { renew: false }
                }
                true => LeaseAnswer::Denied { retry_after_ns: lead_ns },
            };
            Some((told, share.estimate(plan, now_ns)))
        });
        if is_slow {
            self.renew(fleet, charge.key, charge.plan, plan, None, now_ns);
        }
        match known.flatten() {
            Some((told, left)) => said(lease_outcome(plan, charge.cost, told, left), Refund::Lease),
            None => self.take_fallback(fleet, plan, charge, client, now_ns, decision),
        }
    }

    /// Begins what counts a charge while Redis does not answer, as the next request would: from then on units come back to
    /// it. For who looks whether there are any before it takes some. Nothing is spent.
    pub fn begin_without_answer(self: &Arc<Self>, charge: &Charge, client: ClientAddress, now_ns: u64) {
        let shared = self.fleet.as_ref().and_then(|fleet| Some((fleet, fleet.plans.get(charge.plan)?)));
        if let Some((fleet, plan)) = shared
            && plan.quota.algorithm() != Algorithm::Concurrency
        {
            let free = Charge { cost: 0, ..*charge };
            self.without_answer(fleet, plan, &free, client, now_ns, &mut Decision::default());
        }
    }

    /// Spends from this node's lease; `None`: Redis has to be asked.
    fn spend_lease(&self, fleet: &Fleet, plan: &Plan, charge: &Charge, now_ns: u64) -> Option<Said> {
        let (told, left) = fleet.change(charge, now_ns, |share| {
            (fleet.take_from(share, plan, charge, now_ns), share.estimate(plan, now_ns))
        })?;
        let state = match told {
            LeaseAnswer::Ask => return None,
            LeaseAnswer::Admitted { renew } => ChargeState::Taken { refund: Refund::Lease, renews: renew },
            LeaseAnswer::Denied { .. } => ChargeState::Refused,
        };
        Some((state, lease_outcome(plan, charge.cost, told, left)))
    }

    /// Decides a charge without Redis, as `when-redis-down` of its policy says.
    pub(super) fn take_fallback(
        &self,
        fleet: &Fleet,
        plan: &Arc<Plan>,
        charge: &Charge,
        client: ClientAddress,
        now_ns: u64,
        decision: &mut Decision,
    ) -> Said {
        decision.tier = DecidingTier::Fallback;
        // A Redis that is only late is not down.
        let is_late = fleet.link.answers(charge.key) && !Fleet::is_advanced(plan);
        let is_permit = plan.quota.algorithm() == Algorithm::Concurrency;
        match if is_late { WhenDown::Local } else { plan.sharing.when_down } {
            WhenDown::Deny => {
                decision.is_redis_down |= !charge.shadow;
                (ChargeState::Refused, Outcome::new(Answer::Later { retry_after_ns: DOWN_RETRY_NS }, 0, 0))
            }
            // It answers nearly always in time, and may have given the units to others.
            _ if is_late && plan.sharing.when_down == WhenDown::Deny && fleet.link.is_quick(charge.key) => {
                (ChargeState::Refused, Outcome::new(Answer::Later { retry_after_ns: ASK_RETRY_NS }, 0, 0))
            }
            when_down if is_permit => {
                if when_down == WhenDown::Local && fleet.spenders(charge) == 0 {
                    return (ChargeState::Refused, others_spend(charge));
                }
                let share = fleet.permits_of(charge, when_down);
                let outcome = fleet.permits.take_fallback(charge, plan, &share);
                said(outcome, Refund::Permit)
            }
            WhenDown::Allow => {
                // A coarse limit: it is not refunded if another policy refuses the request.
                let coarse = fleet.coarse(plan, charge, client);
                said(coarse_outcome(plan, self.table.take(&coarse, now_ns).outcome), Refund::Nothing)
            }
            WhenDown::Local if plan.sharing.is_exact() => self.take_share(fleet, charge, now_ns),
            WhenDown::Local => {
                let fallen =
                    fleet.change(charge, now_ns, |share| fleet.fall_back(share, plan, charge, now_ns));
                match fallen {
                    Some((told, left)) => {
                        // It is wanted back, and what it spends is told, as soon as Redis answers.
                        fleet.watch(charge.key, true, now_ns);
                        said(outcome_of(told, left), Refund::Lease)
                    }
                    // The lease table is full; the other table has an overflow bucket.
                    None => self.take_share(fleet, charge, now_ns),
                }
            }
        }
    }

    /// Spends this node's share of a window in its own table.
    fn take_share(&self, fleet: &Fleet, charge: &Charge, now_ns: u64) -> Said {
        if fleet.spenders(charge) == 0 {
            return (ChargeState::Refused, others_spend(charge));
        }
        let quota = fleet.share_of(charge);
        let taken = self.table.take(&Charge { quota, ..*charge }, now_ns);
        let refund = Refund::Fallback { place: taken.place, taken_ns: now_ns };
        said(taken.outcome, refund)
    }
}

/// What a client is told by a node that is not among those that spend this limit without Redis.
pub(super) fn others_spend(charge: &Charge) -> Outcome {
    let retry_after_ns = match charge.quota.algorithm() {
        Algorithm::Concurrency => DOWN_RETRY_NS,
        _ => charge.quota.period_ns().get(),
    };
    Outcome::new(Answer::Later { retry_after_ns }, 0, retry_after_ns)
}

/// What clients are shown of the coarse limit of `when-redis-down = "allow"`: the address may have ten times the policy's
/// units left, and they know the policy's.
pub(super) fn coarse_outcome(plan: &Plan, outcome: Outcome) -> Outcome {
    Outcome::new(outcome.answer(), outcome.remaining.min(plan.quota.capacity()), outcome.reset_ns)
}

/// The outcome of a charge that Redis has denied before, while that denial lasts.
pub(super) fn denied_before(fleet: &Fleet, plan: &Plan, charge: &Charge, now_ns: u64) -> Option<Outcome> {
    let refused = fleet.change_known(charge.key, |under, share| {
        // The denial no longer holds, because a reload has changed the limit.
        if under != charge.plan {
            share.end_denial();
            return None;
        }
        fleet.denied_by(share, plan, charge, now_ns)
    });
    refused.flatten()
}

/// What a lease's answer means to a client. `Ask` is a denial of unknown length: Redis had too little.
pub(super) fn outcome_of(told: LeaseAnswer, (remaining, reset_ns): (u64, u64)) -> Outcome {
    match told {
        LeaseAnswer::Admitted { .. } => Outcome::new(Answer::Admitted, remaining, reset_ns),
        LeaseAnswer::Denied { retry_after_ns } => {
            Outcome::new(Answer::Later { retry_after_ns }, remaining, reset_ns.max(retry_after_ns))
        }
        LeaseAnswer::Ask => Outcome::new(Answer::Later { retry_after_ns: ASK_RETRY_NS }, remaining, reset_ns),
    }
}

/// The same for a lease of a bucket: a lease denies until asking Redis again makes sense, but the client is told when the
/// bucket will have refilled the units, if that is later.
pub(super) fn lease_outcome(plan: &Plan, cost: u64, told: LeaseAnswer, left: (u64, u64)) -> Outcome {
    let outcome = outcome_of(told, left);
    let (Algorithm::TokenBucket, Answer::Later { retry_after_ns }) =
        (plan.quota.algorithm(), outcome.answer())
    else {
        return outcome;
    };
    let (remaining, reset_ns) = left;
    // From the time until it is full, because that counts fractions of a unit, which `remaining` does not.
    let spare = plan.quota.capacity().saturating_sub(cost) as f64;
    let unit_ns = plan.quota.period_ns().get() as f64 / plan.quota.limit().get() as f64;
    let refilled_ns = reset_ns.saturating_sub((spare * unit_ns) as u64);
    let retry_after_ns = retry_after_ns.max(refilled_ns);
    Outcome::new(Answer::Later { retry_after_ns }, remaining, reset_ns.max(retry_after_ns))
}

/// The farthest ahead that leases are renewed: a fifth of their longest life.
const LEAD_MAX_NS: u64 = 100_000_000;
/// `Retry-After` of a client that is denied because Redis is down.
pub(super) const DOWN_RETRY_NS: u64 = 1_000_000_000;
/// `Retry-After` of a client for whom Redis had too little, without saying for how long.
const ASK_RETRY_NS: u64 = 10_000_000;
