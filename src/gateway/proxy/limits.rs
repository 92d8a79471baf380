//! Asks the limiter about one request and turns its decision into a refusal (429 or 503) or rate-limit fields.
//!
//! It decides nothing: [`Limiter::check`](limiter::Limiter::check) says what is charged and whether it is admitted.
//! `limit_fields.rs` writes the fields, `service/problem.rs` chooses the status.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;

use super::context::RequestContext;
use super::events::{self, DecidedRequest};
use super::exemplars;
use super::request::client;
use super::reservation::Reservation;
use super::response::limit_fields;
use super::response::limit_fields::{RateLimitFields, UnsettledFields, jittered};
use super::services::TIMED_EVERY;
use crate::service::refusal::{LimitExceeded, Refusal, Violation};
use base::clock;
use limit::Charge;
use limiter::{BlockAnswer, Check, Override, Pending};
use policy::{HttpSubject, RouteMatch, RouteTable, RoutingFacts};

/// A decision, with the rate-limit fields that its answer carries.
#[derive(Debug)]
pub enum LimitDecision {
    Admitted(RateLimitFields),
    Refused(Refusal, RateLimitFields),
}

/// A request that waits for Redis: see [`RedisWait::end`].
pub struct RedisWait<'t> {
    pending: Pending,
    check: Check<'t>,
    begun_ns: u64,
}

/// Decides one request on every limit of its route and counts it. Either all limits are charged or none is.
///
/// # Errors
/// If Redis must be asked: what to wait for.
pub fn begin<'t>(
    context: &mut RequestContext,
    table: &'t RouteTable,
    found: &RouteMatch<'t, '_>,
    facts: &RoutingFacts<'_, '_>,
) -> Result<LimitDecision, Box<RedisWait<'t>>> {
    if found.route.policies.is_empty() && context.services.shared.limiter.overrides().blocked.is_empty() {
        return Ok(LimitDecision::Admitted(RateLimitFields::default()));
    }
    let policies = table.chosen(found.route, facts.refused);
    let subject = HttpSubject::new(found, facts);
    let mut check = Check::default();
    let begun_ns = context.services.time_decision();
    let limiter = &context.services.shared.limiter;
    let pending = limiter.check(policies, &subject, clock::ns_of(context.facts.started), &mut check);
    match pending {
        None => {
            let measured_ns =
                begun_ns.map(|begun_ns| record_duration(context, &check, begun_ns, TIMED_EVERY));
            let decided = end(context, table, found, &subject, &check);
            if let Some(duration_ns) = measured_ns {
                exemplify(context, &check, duration_ns);
            }
            Ok(decided)
        }
        // Every wait is measured, because beside it reading the clock costs nothing.
        Some(pending) => {
            let begun_ns = begun_ns.unwrap_or_else(clock::now_ns);
            Err(Box::new(RedisWait { pending, check, begun_ns }))
        }
    }
}

impl RedisWait<'_> {
    /// Waits for Redis, no longer than `redis.deadline`, and decides.
    pub async fn end(
        self: Box<Self>,
        context: &mut RequestContext,
        table: &RouteTable,
        found: &RouteMatch<'_, '_>,
        facts: &RoutingFacts<'_, '_>,
    ) -> LimitDecision {
        let RedisWait { pending, mut check, begun_ns } = *self;
        let limiter = &context.services.shared.limiter;
        let subject = HttpSubject::new(found, facts);
        limiter.finish(pending, &subject, &mut check).await;
        let duration_ns = record_duration(context, &check, begun_ns, 1);
        let decided = end(context, table, found, &subject, &check);
        exemplify(context, &check, duration_ns);
        decided
    }
}

/// Counts a decision and turns it into what the request needs.
fn end(
    context: &mut RequestContext,
    table: &RouteTable,
    found: &RouteMatch<'_, '_>,
    subject: &HttpSubject<'_>,
    check: &Check<'_>,
) -> LimitDecision {
    let Check { charges, decision, .. } = check;
    context.verdict = check.event.deciding();
    // Nothing is measured or left of a decision that no limit took part in.
    if check.missing.is_none() && !charges.is_empty() {
        context.attempts.steps.decide = context.elapsed_ns();
        context.left = limit_fields::left(charges, decision);
    }
    let event = DecidedRequest {
        snapshot: &context.view.snapshot,
        request: &context.facts,
        decided_after_ns: context.attempts.steps.decide,
        table,
        subject,
        check,
    };
    context.is_sampled |= events::decided(&context.services, &event);
    if let Some(by) = &check.blocked {
        return LimitDecision::Refused(block(context, by), RateLimitFields::default());
    }
    if let Some(missing) = &check.missing {
        let refusal = Refusal::MissingKey(missing.dimension.to_string());
        return LimitDecision::Refused(refusal, RateLimitFields::default());
    }
    if charges.is_empty() {
        return LimitDecision::Admitted(RateLimitFields::default());
    }
    let style = context.view.snapshot.limit_headers;
    let unix_seconds = context.services.unix(context.facts.started).as_secs();
    let limiter = &context.services.shared.limiter;
    let shared = |charge: &Charge| limiter.shared_window(charge);
    let policies = || table.rate_limit_policy(found.route, charges, unix_seconds);
    let mut fields = RateLimitFields::of(style, unix_seconds, table, policies, charges, decision, shared);
    // Only who is trusted itself, and not whom a trusted hop speaks for, because it would pass the field on.
    let facts = subject.facts;
    if facts.trusted_peer && client::is_hop(&context.view.snapshot.client_ip, facts.client_ip) {
        fields.debug = debug(context, table, check);
    }
    if decision.is_admitted() {
        if found.route.holds {
            let taken_ns = clock::ns_of(context.facts.started);
            let answer_paths = found.route.answer_paths.as_ref();
            context.held = Reservation::of(table, answer_paths, charges, decision, taken_ns);
            if let Some(decided) = context.held.as_ref().and_then(|held| held.by_status().cloned()) {
                let (snapshot, limiter) = (Arc::clone(&context.view.snapshot), Arc::clone(limiter));
                fields.unsettled = Some(Box::new(UnsettledFields { decided, snapshot, limiter }));
            }
        }
        return LimitDecision::Admitted(fields);
    }
    let limited = Box::new(limited(table, check, context.services.random()));
    let refusal =
        if decision.is_redis_down { Refusal::RedisDown(limited) } else { Refusal::Limited(limited) };
    LimitDecision::Refused(refusal, fields)
}

/// Admits a client by its address, before anything else is known of it.
///
/// # Errors
/// If the listener denies the address, or an operator has blocked it.
pub fn admit_address(context: &mut RequestContext, client: IpAddr) -> Result<(), Refusal> {
    if !context.conn.config.addresses.admit(client) {
        return Err(Refusal::AddressDenied);
    }
    let blocked = &context.services.shared.limiter.overrides().blocked;
    match blocked.of_address(client, clock::ns_of(context.facts.started)) {
        Some(by) => Err(block(context, &by)),
        None => Ok(()),
    }
}

/// Counts a request that an override blocks, and refuses it.
#[cold]
fn block(context: &mut RequestContext, by: &Override) -> Refusal {
    let now_ns = clock::ns_of(context.facts.started);
    let snapshot = &context.view.snapshot;
    context.is_sampled |= events::blocked(&context.services, snapshot, &context.facts, (by, now_ns));
    blocked(by, now_ns)
}

/// The refusal by an override that blocks.
pub fn blocked(by: &Override, now_ns: u64) -> Refusal {
    match by.answer() {
        BlockAnswer::Forbidden => Refusal::Blocked,
        BlockAnswer::TooMany => Refusal::BlockedFor {
            retry_after_seconds: by.left_ns(now_ns).map(|left_ns| left_ns.div_ceil(SECOND_NS).max(1)),
        },
    }
}

/// The value of `RateLimit-Debug`, for trusted hops only.
#[cold]
fn debug(context: &RequestContext, table: &RouteTable, check: &Check<'_>) -> Option<HeaderValue> {
    let index = check.decision.binding?;
    let charge = &check.charges[index];
    let now_ns = clock::ns_of(context.facts.started);
    let limiter = &context.services.shared.limiter;
    let provenance = limiter.inspect().provenance(&check.decision, (index, charge), now_ns);
    limit_fields::debug(table, charge, provenance, &context.view.snapshot.node.name)
}

/// Records how long the limiter took, for as many decisions as this one stands for.
fn record_duration(context: &RequestContext, check: &Check<'_>, begun_ns: u64, weight: u64) -> u64 {
    let duration_ns = clock::now_ns().saturating_sub(begun_ns);
    let latency = &context.view.snapshot.series.latency;
    latency.record(&context.services.metrics, check.decision.tier, duration_ns, weight);
    duration_ns
}

/// Shows the request as an exemplar of how long its decision took, if more is kept of it.
fn exemplify(context: &RequestContext, check: &Check<'_>, duration_ns: u64) {
    if let Some(kept) = exemplars::kept(context.is_sampled, context.trace.as_ref()) {
        let time = context.services.unix(clock::instant());
        if let Some(exemplar) = kept.exemplar(&context.facts.request_id, duration_ns, time) {
            context.view.snapshot.series.latency.exemplify(check.decision.tier, exemplar);
        }
    }
}

/// The contents of a refusal: every violated window, and when all of them will admit the request. All waits of one answer
/// get the same jitter, so that the longest of them equals `Retry-After`.
fn limited(table: &RouteTable, check: &Check<'_>, random: u64) -> LimitExceeded {
    let decision = &check.decision;
    let violated = decision
        .violated(&check.charges)
        .map(|(charge, outcome)| {
            let policy = &table.policies()[charge.policy.index()];
            Violation {
                window: policy.windows[usize::from(charge.window)].label.to_string(),
                policy: policy.shown_as.to_string(),
                is_hidden: policy.is_hidden,
                quota: charge.quota,
                retry_after_seconds: outcome.retry_after_ns().map(|wait| jittered(wait, random)),
                decided: decision.tier.word(),
                is_penalty: check.is_penalised(charge.policy),
            }
        })
        .collect();
    // None if one window can never hold the cost.
    let retry_after_seconds = decision.retry_after_ns().map(|wait| jittered(wait, random));
    LimitExceeded { violated, retry_after_seconds }
}

const SECOND_NS: u64 = 1_000_000_000;
