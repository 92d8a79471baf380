//! One window of an explained request: the key it counts under, what is left here and in Redis, as text and as JSON.

use serde_json::json;

use crate::views::{override_view, redis_view};
use base::clock;
use gateway::service::refusal::{LimitExceeded, Refusal, Violation};
use limit::lease_messages::{LentWindow, WindowBalance, WindowRecord};
use limit::{Algorithm, Answer, Calendar, Charge, Outcome, PenaltyCheck, Side, TrialSet};
use limiter::{Check, Decider, Forecast, Limiter, RedisView};
use policy::definition::{Actual, LimitOrigin};
use policy::{Policy, RouteTable};

/// One window that the request would be charged to.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) policy: String,
    pub(super) by: String,
    /// Each dimension of the key with its value, secrets masked.
    pub(super) key: Vec<(String, String)>,
    pub(super) window: String,
    pub(super) cost: u64,
    /// The tier that it belongs to, if limits depend on the client's.
    tier: Option<String>,
    pub(super) origin: LimitOrigin,
    /// The override that its limit comes from.
    pub(super) overridden: Option<override_view::OverrideView>,
    /// The limit by the tenant's override, beneath the consumer's own.
    pub(super) tenant_limit: Option<u64>,
    /// The policy's own limit, if the key is so hot that this node decides it alone, by another.
    pub(super) hot_instead_of: Option<u64>,
    /// Units left after this request; `None` if no gateway and no Redis could be asked.
    pub(super) remaining: Option<u64>,
    pub(super) answer: Option<Answer>,
    pub(super) delay_ns: u64,
    /// What it is compared with, if its policy is in a trial.
    pub(super) trial: Option<TrialPolicy>,
    /// The statuses that it charges, if not all.
    pub(super) counted_statuses: Option<String>,
    /// Whether it is not charged, because a request with the same idempotency key has paid.
    pub(super) paid: bool,
    /// Whether a penalty denies the key, because its client kept sending after being denied.
    pub(super) penalty: bool,
    /// Whether the wait is an estimate: Redis says exactly how long only to a request.
    is_estimate: bool,
    /// Whether it refuses because Redis does not answer (`when-redis-down = "deny"`).
    is_redis_down: bool,
    pub(super) charge: Charge,
    /// What this node would tell the charge; `None` if no gateway could be asked.
    pub(super) foretold: Option<Forecast>,
    pub(super) redis: Option<RedisView>,
}

#[derive(Debug)]
pub(super) struct TrialPolicy {
    side: Side,
    is_candidate: bool,
    other: String,
}

impl TrialPolicy {
    fn of(charge: &Charge, policy: &Policy, table: &RouteTable) -> Option<TrialPolicy> {
        let side = charge.trial?.side;
        let candidate = policy.tried.map(|candidate| table.policies()[candidate.index()].name.to_string());
        let is_candidate = candidate.is_some();
        let other = candidate.or_else(|| Some(policy.replaces()?.name.to_string()))?;
        Some(TrialPolicy { side, is_candidate, other })
    }

    pub(super) fn sentence(&self) -> String {
        let TrialPolicy { other, .. } = self;
        match (self.side, self.is_candidate) {
            (Side::Decides, true) => {
                format!("decides about this key; its candidate {other} is compared with it")
            }
            (Side::Decides, false) => format!("decides about this key as a candidate of {other}"),
            (Side::Compared, true) => {
                format!("is compared with its candidate {other}, which decides about this key")
            }
            (Side::Compared, false) => format!("is a candidate of {other} and is compared with it"),
        }
    }

    fn to_json(&self) -> serde_json::Value {
        let decides = self.side == Side::Decides;
        let key = if self.is_candidate { "candidate" } else { "replaces" };
        json!({ key: self.other, "decides": decides })
    }
}

/// The windows of a check that spent nothing, with what each charge would be told; without that if nobody knows it.
pub(super) fn limits(table: &RouteTable, check: &Check<'_>, foretold: &[Forecast]) -> Vec<Limit> {
    let limit = |(index, charge): (usize, &Charge)| {
        let policy = &table.policies()[charge.policy.index()];
        let foretold = foretold.get(index).copied();
        let outcome = foretold.map(|foretold| foretold.outcome);
        Limit {
            policy: policy.name.to_string(),
            by: policy.by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            key: Vec::new(),
            window: policy.item_of(charge, clock::unix().as_secs()).into_owned(),
            cost: charge.cost,
            tier: policy.tier_of(charge.window.into()).map(str::to_owned),
            origin: policy.origin_of(charge.window.into()),
            overridden: None,
            tenant_limit: None,
            hot_instead_of: None,
            remaining: outcome.map(|outcome| outcome.remaining),
            answer: outcome.as_ref().map(Outcome::answer),
            delay_ns: outcome.map_or(0, |outcome| outcome.delay_ns()),
            trial: TrialPolicy::of(charge, policy, table),
            counted_statuses: policy.actual_cost().and_then(Actual::statuses).map(ToString::to_string),
            paid: false,
            penalty: false,
            is_estimate: false,
            is_redis_down: false,
            charge: *charge,
            foretold,
            redis: None,
        }
    };
    check.charges.iter().enumerate().map(limit).collect()
}

/// Applies penalties: those that last, and those that this request would begin or prolong by being refused. A penalty of a
/// policy denies all of its windows, but not its concurrency limits.
pub(super) fn penalise(limits: &mut [Limit], penalties: &[PenaltyCheck], limiter: &Limiter, now_ns: u64) {
    // A refusal because Redis is down does not count against the client.
    let is_redis_down = limits.iter().any(|limit| limit.is_redis_down && !limit.charge.shadow);
    for penalty in penalties {
        let is_own =
            |limit: &&mut Limit| limit.charge.policy == penalty.policy && limit.is_timed() && !limit.paid;
        let told_ns = match penalty.wait_ns {
            0 if is_redis_down => None,
            0 => limits.iter_mut().filter(is_own).filter_map(|limit| limit.told_ns()).max(),
            wait_ns => Some(wait_ns),
        };
        let Some(told_ns) = told_ns else { continue };
        let wait_ns = limiter.inspect().foresee_penalty(penalty, told_ns, now_ns);
        for limit in limits.iter_mut().filter(is_own).filter(|_| wait_ns > 0) {
            if limit.answer != Some(Answer::Never) {
                let retry_after_ns = limit.told_ns().unwrap_or(0).max(wait_ns);
                limit.answer = Some(Answer::Later { retry_after_ns });
                (limit.remaining, limit.penalty, limit.is_estimate) = (Some(0), true, false);
            }
        }
    }
}

/// What refuses the request for its limits; `None` if nothing does, or nobody knows.
pub(super) fn refusal(limits: &[Limit]) -> Option<Refusal> {
    let refusing = limits.iter().filter(|limit| !limit.charge.shadow && limit.is_refused());
    let violated: Vec<Violation> = refusing.map(Limit::violation).collect();
    if violated.is_empty() {
        return None;
    }
    // One that never admits the request has no wait.
    let waits: Option<Vec<u64>> = violated.iter().map(|violation| violation.retry_after_seconds).collect();
    let retry_after_seconds = waits.and_then(|waits| waits.into_iter().max());
    let limited = Box::new(LimitExceeded { violated, retry_after_seconds });
    let is_redis_down = limits.iter().any(|limit| limit.is_redis_down && !limit.charge.shadow);
    Some(if is_redis_down { Refusal::RedisDown(limited) } else { Refusal::Limited(limited) })
}

/// Gives back the charges of a request that is refused: nothing of it is counted by the windows that would admit it, but by
/// those of a policy that is compared with the one that refuses.
pub(super) fn without_request(limits: &mut [Limit]) {
    let mut refused = TrialSet::NONE;
    limits.iter().filter(|limit| limit.is_refused()).for_each(|limit| refused.add(limit.charge.refuses()));
    let is_refused = |limit: &&mut Limit| refused.has(limit.charge.world());
    for limit in limits.iter_mut().filter(is_refused).filter(|limit| !limit.paid && !limit.is_refused()) {
        let stays = limit.charge.count_denied && limit.is_timed();
        limit.remaining = limit.remaining.map(|left| if stays { left } else { left + limit.cost });
    }
}

impl Limit {
    /// The key as text: `ip 192.0.2.1, header:x-plan "pro"`.
    pub(super) fn counted(&self) -> String {
        let parts: Vec<String> = self.key.iter().map(|(by, value)| format!("{by} {value}")).collect();
        if parts.is_empty() { "everybody together".to_owned() } else { parts.join(", ") }
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        let mut shown = json!({
            "policy": self.policy,
            "by": self.by,
            "key": self.key.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "window": self.window,
            "limit": self.charge.quota.limit(),
            "period-at-most": self.charge.quota.worst_period().map(|(units, _)| units),
            "cost": self.cost,
            "anchor": self.anchor(),
            "tier": self.tier,
            "from": self.origin.word(),
            "override": self.overridden.as_ref().map(override_view::OverrideView::to_json),
            "tenant-limit": self.tenant_limit,
            "hot-key": self.hot_instead_of.map(|own| json!({ "instead-of": own })),
            "remaining": self.remaining,
            "admitted": self.answer.map(|answer| answer == Answer::Admitted),
            "shadow": self.charge.shadow,
            "trial": self.trial.as_ref().map(TrialPolicy::to_json),
            "counted-statuses": self.counted_statuses,
            "paid": self.paid,
            "penalty": self.penalty,
            "said": self.sentence(),
        });
        self.redis.iter().for_each(|look| redis_view::show(look, &mut shown));
        shown
    }

    /// Takes the charge back: the request is a retry that has paid. Concurrency is charged again, because a retry is in
    /// flight like any other request.
    pub(super) fn pay(&mut self) {
        if self.charge.quota.algorithm() == Algorithm::Concurrency {
            return;
        }
        if self.answer == Some(Answer::Admitted) {
            self.remaining = self.remaining.map(|remaining| remaining + self.cost);
        }
        (self.paid, self.penalty, self.cost, self.delay_ns) = (true, false, 0, 0);
        self.answer = Some(Answer::Admitted);
    }

    /// Takes what came of a look in Redis. A penalty is the node's own and is applied later.
    pub(super) fn hear(&mut self, look: Option<RedisView>) {
        self.redis = look;
        if self.paid {
            return;
        }
        let Some(foretold) = self.foretold else {
            // Without a gateway Redis knows exact windows all the same.
            if let Some(RedisView::Seen(WindowRecord { left: WindowBalance::Exact(outcome), .. })) = look {
                self.tell(&outcome);
            }
            return;
        };
        match (foretold.decider, look) {
            (
                Decider::Node,
                Some(RedisView::Seen(WindowRecord { left: WindowBalance::Leased(lent), .. })),
            ) => {
                // By what Redis says now, because what this node remembers of it may be as old as a lease.
                let left = (lent.level + foretold.held).max(0.0) as u64;
                let is_admitted = self.answer == Some(Answer::Admitted);
                self.remaining = Some(if is_admitted { left.saturating_sub(self.cost) } else { left });
            }
            (Decider::Node, _) => {}
            (
                Decider::Redis,
                Some(RedisView::Seen(WindowRecord { left: WindowBalance::Exact(outcome), .. })),
            ) => self.tell(&outcome),
            (
                Decider::Redis,
                Some(RedisView::Seen(WindowRecord { left: WindowBalance::Leased(lent), .. })),
            ) => {
                self.lend(&lent, foretold.held);
            }
            (Decider::Redis, None) => {}
            (Decider::Redis | Decider::Fallback, _) => {
                self.tell(&foretold.without_redis);
                self.is_redis_down = foretold.denies_without_redis;
            }
        }
    }

    fn tell(&mut self, outcome: &Outcome) {
        (self.remaining, self.answer) = (Some(outcome.remaining), Some(outcome.answer()));
        self.delay_ns = outcome.delay_ns();
    }

    /// Decides a leased window that this node has to ask about: it gets what is left in Redis, beside what it holds.
    fn lend(&mut self, lent: &LentWindow, held: f64) {
        let left = lent.level + held;
        let whole = left.max(0.0) as u64;
        if self.cost <= whole {
            (self.remaining, self.answer) = (Some(whole - self.cost), Some(Answer::Admitted));
            return;
        }
        let retry_after_ns = retry_after_ns(&self.charge, lent, left);
        (self.remaining, self.answer) = (Some(whole), Some(Answer::Later { retry_after_ns }));
        self.is_estimate = true;
    }

    /// The day on which the months of a limit by the month begin.
    pub(super) fn anchor(&self) -> Option<u8> {
        self.charge.quota.calendar().filter(|calendar| calendar.is_monthly()).map(Calendar::anchor)
    }

    fn is_timed(&self) -> bool {
        self.charge.quota.algorithm() != Algorithm::Concurrency
    }

    pub(super) fn is_refused(&self) -> bool {
        self.answer.is_some_and(|answer| answer != Answer::Admitted)
    }

    /// The wait that the client is told; `None` if it is not refused, or for ever.
    pub(super) fn told_ns(&self) -> Option<u64> {
        if let Some(Answer::Later { retry_after_ns }) = self.answer { Some(retry_after_ns) } else { None }
    }

    fn violation(&self) -> Violation {
        Violation {
            window: self.window.clone(),
            policy: self.policy.clone(),
            // Operators read it.
            is_hidden: false,
            quota: self.charge.quota,
            retry_after_seconds: self.told_ns().map(|wait_ns| wait_ns.div_ceil(SECOND_NS)),
            decided: "",
            is_penalty: self.penalty,
        }
    }

    pub(super) fn sentence(&self) -> String {
        let Some(look) = self.redis.as_ref().filter(|_| !self.is_redis_down) else { return self.decision() };
        let decider = self.foretold.map_or(Decider::Redis, |foretold| foretold.decider);
        let said = match (decider, look) {
            (Decider::Node, RedisView::Seen(WindowRecord { left: WindowBalance::Exact(_), .. })) => {
                "according to the last response of Redis".to_owned()
            }
            (Decider::Fallback, RedisView::Seen(_)) => {
                format!(
                    "decided by the fallback, because Redis answers late or has just recovered; {}",
                    redis_view::sentence(look)
                )
            }
            _ => redis_view::sentence(look),
        };
        match (look, self.answer) {
            (RedisView::Seen(_), None) => said,
            _ => format!("{}; {said}", self.decision()),
        }
    }

    fn decision(&self) -> String {
        let is_down = matches!(self.redis, Some(RedisView::Away | RedisView::Refused));
        let open = self.foretold.and_then(|foretold| foretold.open_without_redis).filter(|_| is_down);
        let left = self.remaining.unwrap_or(0);
        let left = match (open, self.charge.quota.algorithm()) {
            (Some(_), _) => "because when-redis-down is \"allow\"".to_owned(),
            (None, Algorithm::LeakyBucket) => format!("{left} more may wait"),
            (None, _) => format!("{left} left after it"),
        };
        match self.answer {
            _ if self.paid => {
                "not charged: a request with the same idempotency key was charged before".to_owned()
            }
            None => "only a running gateway knows how many units remain".to_owned(),
            Some(Answer::Admitted) if self.delay_ns > 0 => {
                format!("admitted after waiting {:.1} s, {left}", self.delay_ns as f64 / 1e9)
            }
            Some(Answer::Admitted) => format!("admitted, {left}"),
            Some(Answer::Later { retry_after_ns }) if self.penalty => {
                let seconds = retry_after_ns as f64 / 1e9;
                format!("denied by a penalty, admitted again in {seconds:.1} s")
            }
            Some(Answer::Later { .. }) if self.is_redis_down => {
                "denied, because Redis is down and when-redis-down is \"deny\"".to_owned()
            }
            Some(Answer::Later { .. }) if !self.is_timed() => {
                "denied, admitted again once other requests have ended".to_owned()
            }
            Some(Answer::Later { retry_after_ns }) => {
                let about = if self.is_estimate { "about " } else { "" };
                format!("denied, admitted again in {about}{:.1} s", retry_after_ns as f64 / 1e9)
            }
            Some(Answer::Never) => "denied, its cost exceeds the capacity of the limit".to_owned(),
        }
    }
}

/// An estimate, from its record in Redis, of when a leased window of which so much is `left` admits a charge that costs
/// more, nanoseconds.
fn retry_after_ns(charge: &Charge, lent: &LentWindow, left: f64) -> u64 {
    let (limit, period_ns) = (charge.quota.limit().get() as f64, charge.quota.period_ns().get());
    match charge.quota.algorithm() {
        // Until the epoch ends, because nodes return unspent units then.
        Algorithm::FixedWindow if lent.out >= 1.0 => lent.lasts_ns.max(1),
        Algorithm::FixedWindow => charge.quota.window_left_ns(clock::unix()),
        // By the rate of the limit, because buckets refill, and sliding windows forget, no faster than that.
        _ => ((charge.cost as f64 - left) * period_ns as f64 / limit).max(1.0) as u64,
    }
}

const SECOND_NS: u64 = 1_000_000_000;
