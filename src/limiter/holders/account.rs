//! The charges of one subject for operators: what its windows hold, and how they are carried over a reset that grants units.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::check::forecast::{Decider, Forecast};
use crate::decision::ClientAddress;
use crate::holders::overrides::Override;
use crate::holders::resets::Reset;
use crate::inspection::{Inspection, PATIENCE, RedisView};
use base::clock;
use limit::lease_messages::{ExactCharge, Op, Renewal, Reply, WindowBalance};
use limit::{Algorithm, Charge, Outcome, PenaltyCheck};
use policy::{Holder, Policy, PolicySelection, Subject};

/// What one window of a subject holds, for operators.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// A charge of no units, as a request would make it, before its key is routed to the tenant's shard.
    pub charge: Charge,
    /// Units left that nobody holds in a lease.
    pub remaining: u64,
    /// Units that nodes hold in leases and have not spent, as far as they have told.
    pub leased: u64,
    /// Nanoseconds until it is full again if nobody spends; of a leased one at most.
    pub reset_ns: u64,
    /// What came of asking Redis. `None`: the fleet does not share it, and this node alone has counted.
    pub look: Option<RedisView>,
}

impl Inspection<'_> {
    /// The windows that a subject is charged to under one policy; none if the policy does not apply to it.
    pub fn windows_of(
        &self,
        policies: PolicySelection<'_>,
        subject: &impl Subject,
        now_ns: u64,
    ) -> Vec<Charge> {
        let mut charges = Default::default();
        if policies.charges(subject, &mut charges).is_err() {
            return Vec::new();
        }
        self.limiter.holders.change(policies, subject, &mut charges, now_ns);
        charges.into_iter().map(|charge| Charge { cost: 0, ..charge }).collect()
    }

    /// Whether this is the charge of a hot key that this node decides alone, as it is decided.
    pub fn is_hot(&self, charge: &Charge) -> bool {
        self.limiter.hot.has(charge)
    }

    /// The policy's own limit, if the key is hot and this node enforces the charge's limit instead.
    pub fn hot_instead_of(&self, policy: &Policy, charge: &Charge) -> Option<u64> {
        self.is_hot(charge).then(|| policy.own_limit(charge.window.into()))
    }

    /// The charges of one policy as they are decided here while their key is hot; `None`: it is not. `charges` as
    /// [`Inspection::windows_of`] gives them, before they have the shard of a tenant.
    pub fn hot_charges(&self, charges: &[Charge], tenant: Option<&str>) -> Option<Vec<Charge>> {
        let mut charges: SmallVec<[Charge; 4]> = charges.iter().copied().collect();
        self.limiter.route_tenant(&mut charges, tenant);
        self.limiter.hot.keep_local(&mut charges);
        charges.iter().any(|charge| self.is_hot(charge)).then(|| charges.into_vec())
    }

    /// What these windows of a tenant hold over the whole fleet: Redis is asked all at once.
    pub async fn accounts(&self, charges: Vec<Charge>, tenant: Option<&str>, now_ns: u64) -> Vec<Account> {
        let mut routed = charges.clone();
        self.limiter.route_tenant(&mut routed, tenant);
        let looks = self.look_in_redis(&routed).await;
        let account = |((charge, routed), look): ((Charge, Charge), Option<RedisView>)| {
            let (remaining, leased, reset_ns) = match look {
                Some(RedisView::Seen(seen)) => match seen.left {
                    WindowBalance::Exact(outcome) => (outcome.remaining, 0, outcome.reset_ns),
                    WindowBalance::Leased(lent) => {
                        let whole = |units: f64| units.max(0.0).floor() as u64;
                        let (level, out) = (whole(lent.level), whole(lent.out));
                        (level, out, self.whole_again_ns(&routed, level))
                    }
                },
                Some(RedisView::Away | RedisView::Late | RedisView::Refused) => {
                    let alone = self.without_look(&routed, now_ns);
                    (alone.remaining, 0, alone.reset_ns)
                }
                None => {
                    let known = self.limiter.foresee(&routed, now_ns);
                    (known.remaining, 0, known.reset_ns)
                }
            };
            Account { charge, remaining, leased, reset_ns, look }
        };
        charges.into_iter().zip(routed).zip(looks).map(account).collect()
    }

    /// The longest time until a leased window with this many units left is full again, nanoseconds: only Redis knows when the
    /// missing units were spent.
    pub fn whole_again_ns(&self, charge: &Charge, left: u64) -> u64 {
        let quota = &charge.quota;
        let period_ns = quota.period_ns().get();
        let missing = quota.capacity().saturating_sub(left);
        let (here, shared) = (clock::unix(), self.limiter.shared_window(charge));
        let to_end_ns = quota.window_left_ns(shared.map_or(here, |shared| shared.unix(here)));
        match quota.algorithm() {
            _ if missing == 0 => 0,
            Algorithm::FixedWindow => to_end_ns,
            // What is spent in one window still counts at the end of the next.
            Algorithm::SlidingWindow => to_end_ns.saturating_add(period_ns),
            _ => (missing as f64 * period_ns as f64 / quota.limit().get() as f64).ceil() as u64,
        }
    }

    /// What a shared window holds for requests of this node while Redis does not say it: a denial that it remembers, else
    /// what it decides by alone. The address that `when-redis-down = "allow"` counts by is not known here.
    pub(crate) fn without_look(&self, charge: &Charge, now_ns: u64) -> Outcome {
        let one = Charge { cost: charge.cost.max(1), ..*charge };
        let foretold = Forecast::of(self.limiter, &one, ClientAddress::default(), now_ns);
        let outcome = match foretold.decider {
            Decider::Node => foretold.outcome,
            Decider::Redis | Decider::Fallback => foretold.without_redis,
        };
        let taken = if outcome.is_admitted() { one.cost } else { 0 };
        Outcome::new(outcome.answer(), outcome.remaining.saturating_add(taken), outcome.reset_ns)
    }

    /// Changes a charge of this policy as the overrides and the resets of a consumer and a tenant say, and returns the override.
    pub fn change(
        &self,
        policy: &Policy,
        names: (Option<&str>, Option<&str>),
        charge: &mut Charge,
        now_ns: u64,
    ) -> Option<Arc<Override>> {
        self.limiter.holders.change_one(policy, names, charge, now_ns)
    }

    /// How long a penalty would last after one more denial of a client that is told to wait `told_ns`. Nothing is counted.
    pub fn foresee_penalty(&self, penalty: &PenaltyCheck, told_ns: u64, now_ns: u64) -> u64 {
        let record = self.limiter.table.penalty_record(penalty.key).unwrap_or_default();
        record.denied(&penalty.rule, told_ns, now_ns).wait_ns(now_ns)
    }

    /// For how much longer this node keeps the subject of these charges out for a penalty, nanoseconds; 0: it has none. The
    /// charges as [`Inspection::windows_of`] gives them, before they have the shard of a tenant.
    pub fn penalty_left_ns(&self, policies: PolicySelection<'_>, charges: &[Charge], now_ns: u64) -> u64 {
        let penalties = policies.penalty_checks(charges);
        let left_ns = |penalty: &PenaltyCheck| self.limiter.table.penalty_ns(penalty.key, now_ns);
        penalties.iter().map(left_ns).max().unwrap_or(0)
    }

    /// The limit that a window would have by the override of the tenant, if the consumer had none of its own.
    pub fn limit_beneath(
        &self,
        policy: &Policy,
        (consumer, tenant): (Option<&str>, Option<&str>),
        window: u16,
        now_ns: u64,
    ) -> Option<u64> {
        let found = self.limiter.holders.overrides.beneath(policy, consumer?, tenant?, now_ns)?;
        let factor = found.factor(policy.first_limit(window.into()));
        Some(policy.windows[usize::from(window)].quota.multiplied(factor).limit().get())
    }

    /// Starts the counts of shared windows, under a reset that is not in force yet, at the units spent now less `units`.
    /// Returns how many units each window has then, or `None` if Redis did not take it.
    pub async fn carry_in_redis(
        &self,
        accounts: &[Account],
        (holder, policy): (&Holder, &str),
        tenant: Option<&str>,
        reset: &Reset,
        units: u64,
    ) -> Option<Vec<u64>> {
        let before = self.limiter.holders.resets.of(holder, policy);
        let mut left = Vec::with_capacity(accounts.len());
        let mut answers = Vec::new();
        for account in accounts {
            let (spent, remaining) = carried(account, units);
            left.push(remaining);
            let (Some((shared, plan)), 1..) = (self.limiter.shared(&account.charge), spent) else { continue };
            let mut charge = Charge { cost: spent, ..reset.after(before.as_ref(), &account.charge) };
            self.limiter.route_tenant(std::slice::from_mut(&mut charge), tenant);
            let part = ExactCharge { count_denied: false, shadow: false, ..ExactCharge::of(&charge, &plan) };
            let op = if plan.sharing.is_exact() {
                Op::Take([part].into_iter().collect())
            } else {
                Op::Renew(Renewal::report(part.key, part.plan, part.cost as f64))
            };
            let (tx, rx) = oneshot::channel();
            shared.fleet.link.send(op, Box::new(move |answer, _| drop(tx.send(answer))));
            answers.push(rx);
        }
        for answer in answers {
            match timeout(PATIENCE * 4, answer).await {
                Ok(Ok(Ok(Reply::Grant(_)))) => {}
                Ok(Ok(Ok(Reply::Taken(taken)))) if taken.admitted => {}
                _ => return None,
            }
        }
        Some(left)
    }

    /// The same for the windows that this node counts on its own. The reset must not be in force yet.
    pub fn carry(
        &self,
        charges: &[Charge],
        (holder, policy): (&Holder, &str),
        reset: &Reset,
        units: u64,
        now_ns: u64,
    ) {
        let before = self.limiter.holders.resets.of(holder, policy);
        for charge in charges.iter().filter(|charge| charge.plan.is_none()) {
            let known = self.limiter.table.peek(charge, now_ns);
            let account =
                Account { charge: *charge, remaining: known.remaining, leased: 0, reset_ns: 0, look: None };
            let (spent, _) = carried(&account, units);
            if spent > 0 {
                self.limiter
                    .table
                    .take(&Charge { cost: spent, ..reset.after(before.as_ref(), charge) }, now_ns);
            }
        }
    }
}

/// What is spent of a window once so many units are given back, and what is left of it then.
fn carried(account: &Account, units: u64) -> (u64, u64) {
    if account.charge.quota.algorithm() == Algorithm::Concurrency {
        return (0, account.remaining);
    }
    let capacity = account.charge.quota.capacity();
    // A reset voids the leases, so units in leases count as left.
    let left = account.remaining.saturating_add(account.leased).saturating_add(units).min(capacity);
    (capacity - left, left)
}
