//! What a check of one subject would come to, with nothing spent: the windows that it would be charged to, without a request
//! and a route around them.

use std::sync::Arc;
use std::time::Duration;

use super::limit::{Limit, limits, penalise, refusal, without_request};
use crate::views::override_view::OverrideView;
use control::admin::{CheckVerdict, ViolatedWindow};
use control::database::Time;
use gateway::service::refusal::Refusal;
use limit::TrialSet;
use limit::lease_messages::{WindowBalance, WindowRecord};
use limiter::{Check, Limiter, Override, RedisView};
use policy::{PolicySelection, RouteTable, Subject};

/// Asks Redis what it has left of shared windows, and decides by that and by what this node knows. `wall` is the time of
/// `now_ns`.
pub(crate) async fn look_ahead(
    table: &RouteTable,
    limiter: &Limiter,
    policies: PolicySelection<'_>,
    subject: &(impl Subject + Sync),
    (now_ns, wall): (u64, Time),
) -> CheckVerdict {
    let (mut limits, penalties) = {
        let mut check = Check::default();
        let peeked = match limiter.peek(policies, subject, now_ns, &mut check) {
            Ok(peeked) => peeked,
            Err(missing) => return lacking(&missing.dimension.to_string()),
        };
        if let Some(by) = &check.blocked {
            return blocked(by, now_ns, wall);
        }
        (limits(table, &check, &peeked.foretold), check.penalties)
    };
    let charges: Vec<_> = limits.iter().map(|limit| limit.charge).collect();
    for (limit, look) in limits.iter_mut().zip(limiter.inspect().look_in_redis(&charges).await) {
        limit.hear(look);
    }
    penalise(&mut limits, &penalties, limiter, now_ns);
    let limited = match refusal(&limits) {
        Some(Refusal::Limited(limited) | Refusal::RedisDown(limited)) => Some(limited),
        _ => None,
    };
    if limited.is_some() {
        without_request(&mut limits);
    }
    let refuses = |limit: &&Limit| !limit.charge.shadow && limit.is_refused();
    // One without a wait counts as the longest, because it is for ever.
    let longest = limits.iter().filter(refuses).max_by_key(|limit| limit.told_ns().unwrap_or(u64::MAX));
    // Of a trial only what decides binds; any other shadow's windows are all that is known of it.
    let deciding = |limit: &&Limit| limit.charge.world() == TrialSet::OWN;
    let binding = longest.or(limits.iter().filter(deciding).min_by_key(|limit| limit.remaining));
    let remaining = binding.and_then(|limit| limit.remaining);
    let binding = (remaining, binding.and_then(reset_ns).map(|ns| later((now_ns, wall), ns)));
    let Some(limited) = limited else {
        let delay_ns = limits.iter().filter(|limit| !limit.charge.shadow).map(|limit| limit.delay_ns).max();
        return CheckVerdict::allowed(binding, delay_ns.unwrap_or(0) as f64 / 1e9);
    };
    let label = |limit: &Limit| {
        let policy = &table.policies()[limit.charge.policy.index()];
        policy.windows[usize::from(limit.charge.window)].label.to_string()
    };
    let unix = Time(0).until(wall);
    let labels = limits.iter().filter(refuses).map(label);
    let violated = limited.violated.into_iter().zip(labels).map(|(violation, window)| ViolatedWindow {
        window,
        limit: violation.quota.limit().get(),
        period_seconds: violation.period_seconds(unix).unwrap_or_default(),
        retry_after_seconds: violation.retry_after_seconds,
        policy: violation.policy,
    });
    let violated = violated.collect();
    CheckVerdict::refused(binding, limited.retry_after_seconds, violated)
}

/// A policy counts by a dimension that the subject does not have.
pub(crate) fn lacking(dimension: &str) -> CheckVerdict {
    CheckVerdict::undecided(format!("the policy counts by `{dimension}`: add a value for it to the check"))
}

pub(crate) fn blocked(by: &Arc<Override>, now_ns: u64, wall: Time) -> CheckVerdict {
    let left_ns = by.left_ns(now_ns);
    let binding = (Some(0), left_ns.map(|left_ns| later((now_ns, wall), left_ns)));
    CheckVerdict {
        blocked: Some(OverrideView::alone(by, now_ns).sentence()),
        ..CheckVerdict::refused(binding, left_ns.map(seconds), Vec::new())
    }
}

/// So much after a moment, whose reading of the wall has no part of a microsecond, and the other has.
pub(crate) fn later((now_ns, wall): (u64, Time), ns: u64) -> Time {
    wall.after(Duration::from_nanos(ns.saturating_add(now_ns % 1_000)))
}

/// Whole seconds, never early, so that who heeds them is not refused again.
pub(crate) fn seconds(wait_ns: u64) -> u64 {
    wait_ns.div_ceil(1_000_000_000).max(1)
}

fn reset_ns(limit: &Limit) -> Option<u64> {
    match limit.redis {
        Some(RedisView::Seen(WindowRecord { left: WindowBalance::Exact(outcome), .. })) => {
            Some(outcome.reset_ns)
        }
        _ => limit.foretold.map(|foretold| foretold.outcome.reset_ns),
    }
}
