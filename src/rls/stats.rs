//! What is counted of the rate limit service.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::messages::RateLimitCode;
use metrics::{Families, SharedCounter};

/// Counts of one process; clones share them.
#[derive(Clone, Debug, Default)]
pub struct RlsStats {
    ok: SharedCounter,
    over_limit: SharedCounter,
    invalid: SharedCounter,
    /// Descriptors of requests whose domain no configuration names.
    unknown_domain: SharedCounter,
    /// Descriptors that no rule of their domain is for.
    unknown_descriptor: SharedCounter,
    /// Descriptors' own limits that were not heeded, because too many different ones have come.
    overrides_left: SharedCounter,
    /// Descriptors that asked for units to be given back.
    negative_hits: SharedCounter,
    /// Connections that were closed at once: too many, or of nobody who may ask.
    connections_refused: SharedCounter,
    connections: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub(super) struct ConnectionCount(Arc<AtomicUsize>);

impl RlsStats {
    pub fn answered(&self, code: RateLimitCode) {
        match code {
            RateLimitCode::OverLimit => self.over_limit.add(1),
            RateLimitCode::Ok | RateLimitCode::Unknown => self.ok.add(1),
        }
    }

    /// Counts descriptors of a domain that no configuration names.
    pub fn unknown_domain(&self, descriptors: u64) {
        self.unknown_domain.add(descriptors);
    }

    /// Counts descriptors that no rule is for.
    pub fn unknown_descriptors(&self, descriptors: u64) {
        self.unknown_descriptor.add(descriptors);
    }

    /// Counts a limit of a descriptor's own that is not heeded.
    pub fn override_left(&self) {
        self.overrides_left.add(1);
    }

    /// Counts a descriptor that asks for its units to be given back.
    pub fn negative_hits(&self) {
        self.negative_hits.add(1);
    }

    pub(super) fn invalid(&self) {
        self.invalid.add(1);
    }

    pub(super) fn refused_connection(&self) {
        self.connections_refused.add(1);
    }

    /// Counts a connection until the value is dropped; `None` if there are that many already.
    pub(super) fn connect(&self, most: usize) -> Option<ConnectionCount> {
        let connected = ConnectionCount(Arc::clone(&self.connections));
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        (before < most).then_some(connected)
    }

    pub fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let answers = [("ok", &self.ok), ("over_limit", &self.over_limit), ("invalid", &self.invalid)];
        let answers = answers.map(|(code, count)| ([("code", code)], count.value()));
        families.counters("rls_requests", "Checks of the rate limit service, by result", None, answers)?;
        let unknown = [("domain", &self.unknown_domain), ("descriptor", &self.unknown_descriptor)];
        let unknown = unknown.map(|(what, count)| ([("what", what)], count.value()));
        let help =
            "Descriptors that were admitted because no rule matches them, or their domain is not configured";
        families.counters("rls_unknown_descriptors", help, None, unknown)?;
        let help =
            "Limits sent with descriptors that were ignored, because there were too many different ones";
        families.counter("rls_overrides_ignored", help, self.overrides_left.value())?;
        let help = "Descriptors with negative hits, which were checked but refunded nothing";
        families.counter("rls_returns_ignored", help, self.negative_hits.value())?;
        let help = "gRPC connections that were closed: too many of them, no permitted certificate, or a flood \
            of frames";
        families.counter("grpc_connections_refused", help, self.connections_refused.value())?;
        let connections = self.connections.load(Ordering::Relaxed) as u64;
        families.gauge("grpc_connections", "gRPC connections that are open", connections)
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
