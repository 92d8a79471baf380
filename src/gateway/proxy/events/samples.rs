//! Gathers the facts of a decision that was drawn as a sample. Nothing here runs for a request that was not.
//! Checks of other proxies have theirs of `app/envoy`, with windows of here.

use super::event::DecidedRequest;
use crate::proxy::facts::RequestFacts;
use crate::proxy::services::Services;
use crate::proxy::snapshot::Snapshot;
use base::clock;
use base::identity::NOBODY;
use limit::{Algorithm, Charge, Outcome};
use limiter::{Check, Limiter, Override};
use observe::record::decisions::{DecisionSample, SampledWindow, WINDOWS_MAX, printable};
use policy::{HttpSubject, KeyNaming, RouteTable, Subject};

/// Keeps what is known of the decision if it is drawn as a sample; whether it is.
#[inline]
pub fn decided(services: &Services, event: &DecidedRequest<'_>) -> bool {
    let second = || clock::ns_of(event.request.started) / SECOND_NS;
    let is_of_limits = event.check.missing.is_none() && !event.check.charges.is_empty();
    let is_drawn =
        is_of_limits && services.decisions.draws(&event.snapshot.draws, event.check.is_admitted(), second);
    if is_drawn {
        keep(services, event);
    }
    is_drawn
}

/// Keeps the refusal of whoever an override blocks if it is drawn as a sample; whether it is.
pub fn blocked(
    services: &Services,
    snapshot: &Snapshot,
    request: &RequestFacts,
    (by, now_ns): (&Override, u64),
) -> bool {
    if !services.decisions.draws(&snapshot.draws, false, || now_ns / SECOND_NS) {
        return false;
    }
    let text = |value: &str| -> Box<str> { printable(value.as_bytes()).into() };
    let identity = request.identity.as_deref().unwrap_or(&NOBODY);
    let route = request.route.map_or("", |route| &*snapshot.table.routes()[route.index()].name);
    services.decisions.keep(DecisionSample {
        time: services.unix(request.started),
        request_id: printable(request.request_id.as_bytes()).into(),
        node: snapshot.node.name.clone(),
        route: text(route),
        consumer: text(identity.consumer.as_deref().unwrap_or_default()),
        tenant: text(identity.tenant.as_deref().unwrap_or_default()),
        blocked: by.id.clone(),
        wait_ns: by.left_ns(now_ns),
        ..DecisionSample::default()
    });
    true
}

#[cold]
fn keep(services: &Services, event: &DecidedRequest<'_>) {
    let DecidedRequest { snapshot, request, decided_after_ns, table, subject, check } = *event;
    let HttpSubject { route, facts, .. } = *subject;
    let now_ns = clock::ns_of(request.started);
    let limiter = &services.shared.limiter;
    let (windows, windows_left_out) =
        sampled_windows((limiter, &snapshot.naming, table), check, |_| Some(subject), now_ns);
    let text = |value: &[u8]| -> Box<str> { printable(value).into() };
    let of_identity =
        |value: &Option<Box<str>>| value.as_deref().map_or_else(Box::default, |value| text(value.as_bytes()));
    services.decisions.keep(DecisionSample {
        time: services.unix(request.started),
        request_id: text(request.request_id.as_bytes()),
        node: snapshot.node.name.clone(),
        route: text(route.as_bytes()),
        domain: Box::default(),
        consumer: of_identity(&facts.identity.consumer),
        tenant: of_identity(&facts.identity.tenant),
        is_admitted: check.is_admitted(),
        blocked: Box::default(),
        is_redis_down: check.decision.is_redis_down,
        wait_ns: check.decision.retry_after_ns(),
        latency_ns: decided_after_ns,
        windows,
        windows_left_out,
    });
}

/// The windows that a check was decided by, those that refused first, and how many are left out. `subject` gives the subject
/// of a part.
pub fn sampled_windows<'s, S: Subject + 's>(
    (limiter, naming, table): (&Limiter, &KeyNaming, &RouteTable),
    check: &Check<'_>,
    subject: impl Fn(u16) -> Option<&'s S>,
    now_ns: u64,
) -> (Box<[SampledWindow]>, usize) {
    let decision = &check.decision;
    let mut decided: Vec<(usize, &Charge, &Outcome)> = check
        .charges
        .iter()
        .zip(&decision.outcomes)
        .enumerate()
        .map(|(index, (charge, outcome))| (index, charge, outcome))
        .collect();
    // A stable sort, so that among those that refuse the one that did first stays first.
    decided.sort_by_key(|(_, charge, outcome)| match (outcome.is_admitted(), charge.shadow) {
        (false, false) => 0,
        (false, true) => 1,
        (true, _) => 2,
    });
    let left_out = decided.len().saturating_sub(WINDOWS_MAX);
    let window = |(index, charge, outcome): (usize, &Charge, &Outcome)| {
        let policy = &table.policies()[charge.policy.index()];
        let provenance = limiter.inspect().provenance(decision, (index, charge), now_ns);
        let subject = subject(charge.part);
        // A hot key that each node decides alone has another limit, too.
        let overridden = subject.filter(|_| charge.is_overridden).and_then(|subject| {
            let (consumer, tenant) = (subject.consumer(), subject.tenant());
            limiter.overrides().of(policy, consumer, tenant, now_ns).map(|found| found.id.clone())
        });
        let is_in_flight = charge.quota.algorithm() == Algorithm::Concurrency;
        SampledWindow {
            policy: policy.name.clone(),
            window: policy.windows[usize::from(charge.window)].label.clone(),
            key: subject.map(|subject| naming.name(policy, subject)).unwrap_or_default().into(),
            limit: charge.quota.limit().get(),
            burst: charge.quota.at_once(),
            period_ns: if is_in_flight { 0 } else { charge.quota.period_at_ns(clock::unix()) },
            remaining: outcome.remaining,
            cost: charge.cost,
            is_allowed: outcome.is_admitted(),
            is_shadow: charge.shadow,
            wait_ns: outcome.retry_after_ns(),
            tier: provenance.by,
            age_ns: provenance.age_ns,
            overridden,
            is_penalty: check.keeps_out(charge),
            anchor: policy::counting::own_anchor(policy, charge),
        }
    };
    (decided.into_iter().take(WINDOWS_MAX).map(window).collect(), left_out)
}

const SECOND_NS: u64 = 1_000_000_000;
