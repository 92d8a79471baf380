//! Counts events in the metrics. The cells belong to the worker, so nothing here waits for another thread.

use super::event::{DecidedRequest, FailedHandshake, FinishedRequest, UnreadHead};
use crate::proxy::exemplars;
use crate::proxy::services::Services;
use crate::proxy::snapshot::Snapshot;
use crate::service::reason::Reason;
use metrics::{ExchangeOutcome, RequestCounts};

/// Counts the decision at each policy that took part.
pub fn decided(services: &Services, event: &DecidedRequest<'_>) {
    event.snapshot.series.decided(&services.metrics, event.check);
}

/// Counts a request at its route, at the reason why it failed, and at its upstream if one was asked.
pub fn finished(services: &Services, event: &FinishedRequest<'_>) {
    let series = &event.snapshot.series;
    let route = event.request.route.map_or(&series.no_route, |route| &series.routes[route.index()]);
    let request = RequestCounts {
        status: event.status,
        duration_ns: event.duration.as_nanos() as u64,
        bytes_in: event.bytes_in,
        bytes_out: event.outcome.bytes_out,
    };
    route.finished(&services.metrics, &request);
    if let Some(kept) = exemplars::kept(event.is_sampled, event.trace) {
        let (id, time) = (&event.request.request_id, services.unix(event.ended));
        if let Some(exemplar) = kept.exemplar(id, request.duration_ns, time) {
            route.exemplify(exemplar);
        }
    }
    if let Some(reason) = event.reason {
        services.refused(reason);
    }
    if let Some(cause) = event.outcome.cause {
        services.caused(cause);
    }
    if let Some(status) = event.outcome.grpc_status {
        services.called(status);
    }
    answered(services, event);
}

/// Counts how the exchange with the upstream ended after the head of its answer had come, or when its client left before
/// that. Failures before that were counted in `forward`.
fn answered(services: &Services, event: &FinishedRequest<'_>) {
    let attempts = event.attempts;
    let is_counted = attempts.steps.answered == 0 && !attempts.is_awaiting_head;
    let Some(server) = attempts.server.filter(|_| !is_counted) else { return };
    let allowed = &attempts.allowed;
    let outcome = match event.reason {
        _ if attempts.is_awaiting_head => ExchangeOutcome::ClientGone,
        Some(Reason::UpstreamTimeout) if allowed.is_past_total(event.duration) => {
            ExchangeOutcome::TotalTimeout
        }
        Some(Reason::UpstreamTimeout) => ExchangeOutcome::StallTimeout,
        Some(Reason::UpstreamReset) => ExchangeOutcome::Reset,
        Some(Reason::ClientGone | Reason::BodyStall | Reason::BodySlow | Reason::Drain) => {
            ExchangeOutcome::ClientGone
        }
        Some(Reason::UpstreamBadResponse) => ExchangeOutcome::BadAnswer,
        _ => ExchangeOutcome::Answered,
    };
    event.snapshot.series.upstreams[server.upstream].exchanged(&services.metrics, outcome);
}

/// Counts a head that never became a request: under no route, and without a duration, because no head began one.
pub fn unread_head(services: &Services, snapshot: &Snapshot, event: &UnreadHead<'_>) {
    services.refused(event.reason);
    snapshot.series.no_route.unread(&services.metrics, event.status);
}

/// Counts the cause; it is a refusal only if the client's certificate was refused.
pub fn failed_handshake(services: &Services, event: &FailedHandshake<'_>) {
    services.caused(event.cause);
    if event.cause.is_of_certificate() {
        services.refused(Reason::TlsHandshake);
    }
}
