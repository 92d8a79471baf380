//! Gathers the facts of a decision that was drawn as a sample. Nothing here runs for a request that was not.

use super::context::RequestContext;
use crate::clock;
use crate::limit::{Algorithm, Charge, Outcome};
use crate::limiter::Check;
use crate::policy::{HttpSubject, Table};
use crate::record::decisions::{Sample, WINDOWS_MAX, Window, printable};

/// Draws the decision of a check, and keeps what is known of it if it is drawn.
#[inline]
pub fn sample(context: &RequestContext, table: &Table, subject: &HttpSubject<'_>, check: &Check<'_>) {
    let draws = &context.view.snapshot.draws;
    let second = || clock::ns_of(context.facts.started) / SECOND_NS;
    if context.services.decisions.draws(draws, check.is_admitted(), second) {
        keep(context, table, subject, check);
    }
}

#[cold]
fn keep(context: &RequestContext, table: &Table, subject: &HttpSubject<'_>, check: &Check<'_>) {
    let HttpSubject { route, facts, .. } = *subject;
    let now_ns = clock::ns_of(context.facts.started);
    let decision = &check.decision;
    let mut decided: Vec<(&Charge, &Outcome)> = check.charges.iter().zip(&decision.outcomes).collect();
    // Stable: among those that refuse, the one that did first stays first.
    decided.sort_by_key(|(charge, outcome)| match (outcome.is_admitted(), charge.shadow) {
        (false, false) => 0,
        (false, true) => 1,
        (true, _) => 2,
    });
    let windows_left_out = decided.len().saturating_sub(WINDOWS_MAX);
    let limiter = &context.services.shared.limiter;
    let window = |(charge, outcome): (&Charge, &Outcome)| {
        let policy = &table.policies()[charge.policy.index()];
        let provenance = limiter.provenance(charge, decision.tier, now_ns);
        // A hot key that each node decides alone has another limit, too.
        let overridden = charge.is_overridden.then(|| {
            let (consumer, tenant) = (facts.identity.consumer.as_deref(), facts.identity.tenant.as_deref());
            limiter.overrides().of(policy, consumer, tenant, now_ns).map(|found| found.id.clone())
        });
        let is_in_flight = charge.quota.algorithm() == Algorithm::Concurrency;
        Window {
            policy: policy.name.clone(),
            window: policy.windows[usize::from(charge.window)].label.clone(),
            key: context.view.snapshot.naming.name(policy, subject).into(),
            limit: charge.quota.capacity(),
            period_ns: if is_in_flight { 0 } else { charge.quota.period_ns().get() },
            remaining: outcome.remaining,
            cost: charge.cost,
            is_allowed: outcome.is_admitted(),
            is_shadow: charge.shadow,
            wait_ns: outcome.retry_after_ns(),
            tier: provenance.by,
            age_ns: provenance.age_ns,
            overridden: overridden.flatten(),
            is_penalty: check.keeps_out(charge),
        }
    };
    let windows = decided.into_iter().take(WINDOWS_MAX).map(window).collect();
    let text = |value: &[u8]| -> Box<str> { printable(value).into() };
    let of_identity =
        |value: &Option<Box<str>>| value.as_deref().map_or_else(Box::default, |value| text(value.as_bytes()));
    context.services.decisions.keep(Sample {
        time: context.services.unix(context.facts.started),
        request_id: text(context.facts.request_id.as_bytes()),
        node: context.view.snapshot.node.name.clone(),
        route: text(route.as_bytes()),
        consumer: of_identity(&facts.identity.consumer),
        tenant: of_identity(&facts.identity.tenant),
        is_admitted: check.is_admitted(),
        is_redis_down: decision.is_redis_down,
        wait_ns: decision.retry_after_ns(),
        latency_ns: context.attempts.steps.decide,
        windows,
        windows_left_out,
    });
}

const SECOND_NS: u64 = 1_000_000_000;
