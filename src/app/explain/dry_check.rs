//! What a check of one subject would come to, with nothing spent: the windows that it would be charged to, without a request
//! and a route around them.

use super::limit::{Limit, limits, penalise, refusal, without_request};
use gateway::service::refusal::{LimitExceeded, Refusal};
use limit::lease_messages::{WindowBalance, WindowRecord};
use limit::{PolicyId, TrialSet};
use limiter::{Check, Limiter, Override, RedisView};
use policy::{PolicySelection, RouteTable, Subject};

/// What a check would come to.
#[derive(Debug)]
pub(crate) struct DryCheck {
    /// The windows that would refuse it. `None`: none would.
    pub limited: Option<LimitExceeded>,
    /// The policy of each of those, and its index in that.
    pub refusing: Vec<(PolicyId, usize)>,
    /// Units that the binding window would have left; `None`: no window counts this subject.
    pub remaining: Option<u64>,
    /// Nanoseconds until that window is full again, as far as it is known.
    pub reset_ns: Option<u64>,
    /// How long the subject would wait in a queue, nanoseconds.
    pub delay_ns: u64,
}

impl DryCheck {
    /// An override refuses the subject.
    fn blocked(by: &Override, now_ns: u64) -> DryCheck {
        let retry_after_seconds = by.left_ns(now_ns).map(|left_ns| left_ns.div_ceil(1_000_000_000));
        DryCheck {
            limited: Some(LimitExceeded { violated: Vec::new(), retry_after_seconds }),
            refusing: Vec::new(),
            remaining: Some(0),
            reset_ns: by.left_ns(now_ns),
            delay_ns: 0,
        }
    }
}

/// Asks Redis what it has left of shared windows, and decides by that and by what this node knows.
///
/// # Errors
/// If a policy requires a dimension that the subject does not have; its name.
pub(crate) async fn look_ahead(
    table: &RouteTable,
    limiter: &Limiter,
    policies: PolicySelection<'_>,
    subject: &(impl Subject + Sync),
    now_ns: u64,
) -> Result<DryCheck, String> {
    let (mut limits, penalties) = {
        let mut check = Check::default();
        let peeked = limiter.peek(policies, subject, now_ns, &mut check);
        let peeked = peeked.map_err(|missing| missing.dimension.to_string())?;
        if let Some(by) = &check.blocked {
            return Ok(DryCheck::blocked(by, now_ns));
        }
        (limits(table, &check, &peeked.foretold), check.penalties)
    };
    let charges: Vec<_> = limits.iter().map(|limit| limit.charge).collect();
    for (limit, look) in limits.iter_mut().zip(limiter.inspect().look_in_redis(&charges).await) {
        limit.hear(look);
    }
    penalise(&mut limits, &penalties, limiter, now_ns);
    let limited = match refusal(&limits) {
        Some(Refusal::Limited(limited) | Refusal::RedisDown(limited)) => Some(*limited),
        _ => None,
    };
    if limited.is_some() {
        without_request(&mut limits);
    }
    let refuses = |limit: &&Limit| !limit.shadow && limit.is_refused();
    // One without a wait counts as the longest, because it is for ever.
    let longest = limits.iter().filter(refuses).max_by_key(|limit| limit.told_ns().unwrap_or(u64::MAX));
    // Of a trial only what decides binds; any other shadow's windows are all that is known of it.
    let deciding = |limit: &&Limit| limit.charge.world() == TrialSet::OWN;
    let binding = longest.or(limits.iter().filter(deciding).min_by_key(|limit| limit.remaining));
    Ok(DryCheck {
        refusing: limits
            .iter()
            .filter(refuses)
            .map(|limit| (limit.charge.policy, limit.charge.window.into()))
            .collect(),
        remaining: binding.and_then(|limit| limit.remaining),
        reset_ns: binding.and_then(reset_ns),
        delay_ns: limits.iter().filter(|limit| !limit.shadow).map(|limit| limit.delay_ns).max().unwrap_or(0),
        limited,
    })
}

fn reset_ns(limit: &Limit) -> Option<u64> {
    match limit.redis {
        Some(RedisView::Seen(WindowRecord { left: WindowBalance::Exact(outcome), .. })) => {
            Some(outcome.reset_ns)
        }
        _ => limit.foretold.map(|foretold| foretold.outcome.reset_ns),
    }
}
