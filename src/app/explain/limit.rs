//! One window of an explained request: the key it counts under, what is left here and in Redis, as text and as JSON.

use std::net::IpAddr;

use serde_json::json;

use crate::app::redis_view;
use crate::limit::lease_messages::Lent;
use crate::limit::{Algorithm, Answer, Charge, Outcome, PenaltyCheck};
use crate::limiter::{Check, Limiter, Look};
use crate::policy::definition::Dimension;
use crate::policy::key::Value;
use crate::policy::{Policy, Subject, Table};
use crate::{clock, config};

/// One window that the request would be charged to.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) policy: String,
    pub(super) by: String,
    /// Each dimension of the key with its value, secrets masked.
    pub(super) key: Vec<(String, String)>,
    pub(super) window: String,
    pub(super) limit: u64,
    pub(super) cost: u64,
    /// Units left after this request; `None` if no gateway and no Redis could be asked.
    pub(super) remaining: Option<u64>,
    pub(super) answer: Option<Answer>,
    /// How long the request would be delayed, nanoseconds.
    pub(super) delay_ns: u64,
    pub(super) shadow: bool,
    /// Whether it is not charged, because a request with the same idempotency key has paid.
    pub(super) paid: bool,
    /// Whether a penalty denies the key, because its client kept sending after being denied.
    pub(super) penalty: bool,
    pub(super) charge: Charge,
    /// The answer of Redis, if it was asked.
    pub(super) redis: Option<Look>,
}

/// The windows of a check that spent nothing. `is_known` says whether its decision comes from a running gateway's state;
/// from an empty table it would mean nothing.
pub(super) fn limits(table: &Table, check: &Check<'_>, is_known: bool) -> Vec<Limit> {
    let mut limits: Vec<Limit> = check
        .charges
        .iter()
        .enumerate()
        .map(|(index, charge)| {
            let policy = &table.policies()[charge.policy.index()];
            let outcome = check.decision.outcomes.get(index).filter(|_| is_known);
            Limit {
                policy: policy.name.to_string(),
                by: policy.by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                key: Vec::new(),
                window: policy.windows[usize::from(charge.window)].item.to_string(),
                limit: charge.quota.limit().get(),
                cost: charge.cost,
                remaining: outcome.map(|outcome| outcome.remaining),
                answer: outcome.map(Outcome::answer),
                delay_ns: outcome.map_or(0, Outcome::delay_ns),
                shadow: charge.shadow,
                paid: false,
                penalty: false,
                charge: *charge,
                redis: None,
            }
        })
        .collect();
    if is_known {
        apply_penalties(&mut limits, &check.penalties);
    }
    limits
}

/// Marks the limits whose key is under a penalty, and for how long. A penalty of a policy denies all of its windows, but
/// not its concurrency limits.
fn apply_penalties(limits: &mut [Limit], penalties: &[PenaltyCheck]) {
    for penalty in penalties.iter().filter(|penalty| penalty.wait_ns > 0) {
        let own = limits.iter_mut().filter(|limit| {
            limit.charge.policy == penalty.policy && limit.charge.quota.algorithm() != Algorithm::Concurrency
        });
        for limit in own {
            let retry_after_ns = match limit.answer {
                Some(Answer::Later { retry_after_ns }) => retry_after_ns.max(penalty.wait_ns),
                _ => penalty.wait_ns,
            };
            limit.answer = Some(Answer::Later { retry_after_ns });
            limit.remaining = Some(0);
            limit.penalty = true;
        }
    }
}

/// The key that a policy counts a request under: each dimension and its value.
pub(super) fn key(policy: &Policy, subject: &impl Subject) -> Vec<(String, String)> {
    let values = policy.counted_as(subject);
    let shown = policy.by.iter().zip(values).map(|(by, value)| (by.to_string(), value_shown(by, &value)));
    shown.collect()
}

/// A value as operators see it: an address as text, a secret masked, everything else quoted, escaped and cut, because a
/// client may have chosen it.
fn value_shown(by: &Dimension, value: &Value) -> String {
    if value.substituted {
        return format!("is absent, ip {} instead", address(&value.bytes));
    }
    let is_secret = match by {
        Dimension::Header(name) => name == http::header::COOKIE || config::is_secret_name(name.as_str()),
        Dimension::Query(name) | Dimension::Param(name) | Dimension::Claim(name) => {
            config::is_secret_name(name)
        }
        _ => false,
    };
    match by {
        Dimension::Ip => address(&value.bytes),
        _ if is_secret => config::MASK.to_owned(),
        _ => {
            let kept = &value.bytes[..value.bytes.len().min(VALUE_BYTES_MAX)];
            let cut = if kept.len() < value.bytes.len() { "…" } else { "" };
            format!("\"{}{cut}\"", kept.escape_ascii())
        }
    }
}

fn address(octets: &[u8]) -> String {
    match (<[u8; 4]>::try_from(octets), <[u8; 16]>::try_from(octets)) {
        (Ok(octets), _) => IpAddr::from(octets).to_string(),
        (_, Ok(octets)) => IpAddr::from(octets).to_string(),
        _ => octets.escape_ascii().to_string(),
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
            "limit": self.limit,
            "cost": self.cost,
            "remaining": self.remaining,
            "admitted": self.answer.map(|answer| answer == Answer::Admitted),
            "shadow": self.shadow,
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

    /// Takes what Redis says of an exact window, which Redis decides, instead of what this node remembers of it. A
    /// penalty is the node's own and stays.
    pub(super) fn correct(&mut self, outcome: Outcome) {
        if !self.penalty {
            (self.remaining, self.answer) = (Some(outcome.remaining), Some(outcome.answer()));
            self.delay_ns = outcome.delay_ns();
        }
    }

    /// Lowers a leased window to what Redis has left, if this node has no lease on it: it could get no more. One unit it
    /// may spend on debt (`Fleet::may_owe`).
    pub(super) fn bound(&mut self, lent: &Lent, limiter: &Limiter) {
        let Some(fleet) = limiter.fleet() else { return };
        let Some(plan) = fleet.plans().get(self.charge.plan) else { return };
        if fleet.view(self.charge.key, clock::now_ns()).is_some_and(|view| view.has_lease) {
            return;
        }
        let left = lent.level.max(0.0) as u64;
        let is_lacking = self.cost > left && !fleet.may_owe(&self.charge, plan);
        if is_lacking && self.answer == Some(Answer::Admitted) {
            let retry_after_ns = retry_after_ns(&self.charge, lent);
            (self.remaining, self.answer) = (Some(left), Some(Answer::Later { retry_after_ns }));
        } else {
            let most = left.saturating_sub(self.cost);
            self.remaining = self.remaining.map(|remaining| remaining.min(most));
        }
    }

    pub(super) fn sentence(&self) -> String {
        match &self.redis {
            None => self.decision(),
            Some(look @ Look::Seen(_)) if self.answer.is_none() => redis_view::sentence(look),
            Some(look) => format!("{}; {}", self.decision(), redis_view::sentence(look)),
        }
    }

    fn decision(&self) -> String {
        match self.answer {
            _ if self.paid => "not charged, a request with the same idempotency key has paid".to_owned(),
            None => "what is left is known only to a running gateway".to_owned(),
            Some(Answer::Admitted) if self.delay_ns > 0 => format!(
                "admitted after waiting {:.1} s, {} left after it",
                self.delay_ns as f64 / 1e9,
                self.remaining.unwrap_or(0)
            ),
            Some(Answer::Admitted) => format!("admitted, {} left after it", self.remaining.unwrap_or(0)),
            Some(Answer::Later { retry_after_ns }) if self.penalty => {
                let seconds = retry_after_ns as f64 / 1e9;
                format!("denied by a penalty, admitted again in {seconds:.1} s")
            }
            Some(Answer::Later { retry_after_ns }) => {
                format!("over, admitted again in {:.1} s", retry_after_ns as f64 / 1e9)
            }
            Some(Answer::Never) => "over, it costs more than the limit ever holds".to_owned(),
        }
    }
}

/// An estimate, from its record in Redis, of when a leased window admits a charge that it has too little left for,
/// nanoseconds.
fn retry_after_ns(charge: &Charge, lent: &Lent) -> u64 {
    let (limit, period_ns) = (charge.quota.limit().get() as f64, charge.quota.period_ns().get());
    match charge.quota.algorithm() {
        // Nodes return unspent units when the epoch ends.
        Algorithm::FixedWindow if lent.out >= 1.0 => lent.lasts_ns.max(1),
        Algorithm::FixedWindow => {
            let into_ns = clock::unix().as_nanos() % u128::from(period_ns);
            period_ns - into_ns as u64
        }
        // Buckets refill, and sliding windows forget, at the rate of the limit at most.
        _ => ((charge.cost as f64 - lent.level) * period_ns as f64 / limit).max(1.0) as u64,
    }
}

/// Longer values are cut.
const VALUE_BYTES_MAX: usize = 80;
