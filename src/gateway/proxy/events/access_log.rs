//! Writes events to the access log: one line each, if the sampler keeps it. `record` formats and queues the lines.

use http::{Uri, Version};

use super::event::{FailedHandshake, FinishedRequest, UnreadHead};
use crate::proxy::services::Services;
use crate::proxy::snapshot::Snapshot;
use crate::service::reason::Reason;
use base::cause::Cause;
use base::clock;
use limiter::Count;
use metrics::PolicyDecision;
use observe::record;
use policy::RouteTable;

pub fn finished(services: &Services, event: &FinishedRequest<'_>) {
    let sampler = &event.snapshot.sampler;
    if !sampler.is_off(event.status) {
        services.log.write(sampler, &event.snapshot.style, &entry(services, event));
    }
}

fn entry<'r>(services: &Services, event: &'r FinishedRequest<'_>) -> record::AccessEntry<'r> {
    let FinishedRequest { conn, snapshot, request, attempts, outcome, .. } = event;
    let table = &snapshot.table;
    let (upstream, server) = attempts.server.map_or(("", ""), |index| {
        let upstream = &event.pools[index.upstream].upstream;
        (&*upstream.config.name, &*upstream.servers[index.server].label)
    });
    let us = |ns: u64| (ns > 0).then_some(ns / 1_000);
    let identity = request.identity.as_deref();
    let (decision, policy) = event.verdict.map_or(("", ""), |verdict| decision(table, verdict));
    let steps = &attempts.steps;
    record::AccessEntry {
        time: services.unix(event.ended),
        request_id: request.request_id.as_bytes(),
        trace: event.trace.map(|trace| trace.ids),
        node: &snapshot.style.node,
        listener: &conn.config.name,
        client: Some(request.client),
        peer: (conn.tcp_peer != request.client).then_some(conn.tcp_peer),
        protocol: protocol(request.version),
        tls: conn.tls,
        sni: conn.sni.as_bytes(),
        method: request.method.as_str().as_bytes(),
        host: request.authority.as_bytes(),
        path: path(&request.uri),
        query: request.uri.query().map(str::as_bytes),
        shown_query: snapshot.shown.query,
        route: request.route.map_or("", |route| &*table.routes()[route.index()].name),
        consumer: identity.and_then(|identity| identity.consumer.as_deref()).unwrap_or(""),
        tenant: identity.and_then(|identity| identity.tenant.as_deref()).unwrap_or(""),
        tier: identity.and_then(|identity| identity.tier.as_deref()).unwrap_or(""),
        fields: &snapshot.shown.fields,
        values: &request.shown,
        status: event.status,
        grpc_status: outcome.grpc_status,
        reason: event.reason.map_or("", Reason::word),
        cause: outcome.cause.map_or("", Cause::word),
        decision,
        policy,
        decided: event.verdict.map_or("", |verdict| verdict.tier.word()),
        left: event.left,
        upstream,
        server,
        retries: u32::from(attempts.retries),
        total_us: Some(event.duration.as_nanos() as u64 / 1_000),
        decide_us: us(steps.decide),
        delay_us: us(steps.delay),
        wait_us: us(steps.wait),
        connect_us: us(steps.connect),
        first_byte_us: us(steps.first_byte()),
        bytes_in: event.bytes_in,
        bytes_out: outcome.bytes_out,
    }
}

/// The path of a target; of CONNECT all of it, which is the authority.
fn path(target: &Uri) -> &[u8] {
    match (target.path_and_query(), target.authority()) {
        (Some(path), _) => path.path().as_bytes(),
        (None, authority) => authority.map_or(b"", |authority| authority.as_str().as_bytes()),
    }
}

/// What was decided, in a word, and the policy that did; an admission is no single policy's.
pub(super) fn decision(table: &RouteTable, verdict: Count) -> (&'static str, &str) {
    let policy = &*table.policies()[verdict.policy.index()].name;
    match verdict.decision {
        PolicyDecision::Admitted => (PolicyDecision::Admitted.word(), ""),
        // Because the cause is told apart from it.
        PolicyDecision::MissingRejected => (PolicyDecision::Denied.word(), policy),
        decision => (decision.word(), policy),
    }
}

pub fn unread_head(services: &Services, snapshot: &Snapshot, event: &UnreadHead<'_>) {
    let conn = event.conn;
    let entry = record::AccessEntry {
        time: clock::unix(),
        request_id: event.request_id.as_bytes(),
        node: &snapshot.style.node,
        listener: &conn.config.name,
        client: Some(conn.peer.ip),
        peer: Some(conn.tcp_peer),
        protocol: protocol(event.version),
        tls: conn.tls,
        sni: conn.sni.as_bytes(),
        status: event.status,
        reason: event.reason.word(),
        ..record::AccessEntry::default()
    };
    services.log.write(&snapshot.sampler, &snapshot.style, &entry);
}

/// Only refused client certificates get a line, because their owners ask operators why. Other failed handshakes do not,
/// so that port scanners cannot fill the log.
pub fn failed_handshake(services: &Services, event: &FailedHandshake<'_>) {
    if !event.cause.is_of_certificate() {
        return;
    }
    let snapshot = &services.view().snapshot;
    let entry = record::AccessEntry {
        time: clock::unix(),
        node: &snapshot.style.node,
        listener: event.listener,
        client: Some(event.ends.announced_peer.to_canonical()),
        peer: Some(event.ends.tcp_peer.to_canonical()),
        reason: Reason::TlsHandshake.word(),
        cause: event.cause.word(),
        ..record::AccessEntry::default()
    };
    services.log.write(&snapshot.sampler, &snapshot.style, &entry);
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}
