//! What is counted of the rate limit service.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::messages::Code;
use metrics::{Counter, Families};

/// Counts of one process; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    ok: Counter,
    over_limit: Counter,
    invalid: Counter,
    /// Descriptors of requests whose domain no configuration names.
    unknown_domain: Counter,
    /// Descriptors that no rule of their domain is for.
    unknown_descriptor: Counter,
    /// Descriptors' own limits that were not heeded, because too many different ones have come.
    overrides_left: Counter,
    /// Descriptors that asked for units to be given back.
    negative_hits: Counter,
    /// Connections that were closed at once: too many, or of nobody who may ask.
    connections_refused: Counter,
    connections: Arc<AtomicUsize>,
    /// Streams of usage reports that are open.
    quota_streams: Arc<AtomicUsize>,
    quota_streams_refused: Counter,
    /// Shares of buckets: one for each bucket of each stream.
    shares: Arc<AtomicUsize>,
    told: [Counter; Told::ALL.len()],
    drawn: Counter,
    returned: Counter,
    unassigned: Counter,
    /// Buckets of reports whose names are no text.
    unreadable: Counter,
    unreadable_said: Arc<AtomicBool>,
}

/// A connection, or a stream, while it counts.
#[derive(Debug)]
pub(super) struct Connected(Arc<AtomicUsize>);

/// What a proxy was told about a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It may spend units.
    Spend,
    /// Nothing passes.
    Deny,
    /// All passes.
    Allow,
    /// It is to forget the bucket.
    Abandon,
}

impl Told {
    const ALL: [Told; 4] = [Told::Spend, Told::Deny, Told::Allow, Told::Abandon];

    fn name(self) -> &'static str {
        match self {
            Told::Spend => "spend",
            Told::Deny => "deny",
            Told::Allow => "allow",
            Told::Abandon => "abandon",
        }
    }
}

impl Stats {
    /// Counts an answer.
    pub fn answered(&self, code: Code) {
        match code {
            Code::OverLimit => self.over_limit.add(1),
            Code::Ok | Code::Unknown => self.ok.add(1),
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

    /// Counts a bucket that is told nothing, because its name is no text. The first one is said.
    pub fn unreadable_bucket(&self) {
        self.unreadable.add(1);
        if !self.unreadable_said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a bucket whose name is not UTF-8 is assigned nothing: its proxy could not read it"
            );
        }
    }

    /// Counts what a proxy was told about a bucket.
    pub fn told(&self, told: Told) {
        self.told[told as usize].add(1);
    }

    /// Counts units that were drawn for proxies.
    pub fn drawn(&self, units: u64) {
        self.drawn.add(units);
    }

    /// Counts units that proxies have not spent, and that went back.
    pub fn returned(&self, units: u64) {
        self.returned.add(units);
    }

    /// Counts requests that passed before anything was assigned.
    pub fn unassigned(&self, requests: u64) {
        self.unassigned.add(requests);
    }

    /// Counts a share in; `false` if there are that many already.
    pub fn share(&self, most: usize) -> bool {
        let has_room = self.shares.fetch_add(1, Ordering::Relaxed) < most;
        if !has_room {
            self.no_share();
        }
        has_room
    }

    /// Counts a share out.
    pub fn no_share(&self) {
        self.shares.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a stream of reports until the value is dropped; `None` if there are that many already.
    pub(super) fn quota_stream(&self, most: usize) -> Option<Connected> {
        let stream = Connected(Arc::clone(&self.quota_streams));
        let before = self.quota_streams.fetch_add(1, Ordering::Relaxed);
        (before < most).then_some(stream)
    }

    pub(super) fn refused_quota_stream(&self) {
        self.quota_streams_refused.add(1);
    }

    pub(super) fn invalid(&self) {
        self.invalid.add(1);
    }

    pub(super) fn refused_connection(&self) {
        self.connections_refused.add(1);
    }

    /// Counts a connection until the value is dropped; `None` if there are that many already.
    pub(super) fn connect(&self, most: usize) -> Option<Connected> {
        let connected = Connected(Arc::clone(&self.connections));
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        (before < most).then_some(connected)
    }

    /// Writes the metrics.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let answers = [("ok", &self.ok), ("over_limit", &self.over_limit), ("invalid", &self.invalid)];
        let answers = answers.map(|(code, count)| ([("code", code)], count.value()));
        families.counters(
            "rls_requests",
            "Checks of the rate limit service by their answer",
            None,
            answers,
        )?;
        let unknown = [("domain", &self.unknown_domain), ("descriptor", &self.unknown_descriptor)];
        let unknown = unknown.map(|(what, count)| ([("what", what)], count.value()));
        let help = "Descriptors that passed because nothing is configured for them, or for their domain";
        families.counters("rls_unknown_descriptors", help, None, unknown)?;
        let help = "Limits of descriptors' own that were not heeded: too many different ones";
        families.counters("rls_overrides_ignored", help, None, [([], self.overrides_left.value())])?;
        let help = "Descriptors that asked for units to be given back, which were only looked at";
        families.counters("rls_returns_ignored", help, None, [([], self.negative_hits.value())])?;
        let help =
            "Connections of gRPC that were closed at once: too many, or without a certificate that may ask";
        families.counters(
            "grpc_connections_refused",
            help,
            None,
            [([], self.connections_refused.value())],
        )?;
        self.collect_quotas(families)?;
        let connections = self.connections.load(Ordering::Relaxed) as u64;
        families.gauges("grpc_connections", "Connections of gRPC that are open", None, [([], connections)])
    }

    fn collect_quotas(&self, families: &mut Families<'_>) -> fmt::Result {
        let told = Told::ALL.map(|told| ([("told", told.name())], self.told[told as usize].value()));
        families.counters("rlqs_assignments", "What proxies were told about their buckets", None, told)?;
        let units = [("drawn", &self.drawn), ("returned", &self.returned), ("unassigned", &self.unassigned)];
        let units = units.map(|(what, count)| ([("what", what)], count.value()));
        families.counters("rlqs_requests", "Requests that proxies were assigned", None, units)?;
        let help = "Streams of usage reports that were refused: too many";
        let refused = self.quota_streams_refused.value();
        families.counters("rlqs_streams_refused", help, None, [([], refused)])?;
        let help = "Buckets of reports that were assigned nothing, because their names are not UTF-8";
        families.counters("rlqs_buckets_unreadable", help, None, [([], self.unreadable.value())])?;
        let gauge = |count: &AtomicUsize| [([], count.load(Ordering::Relaxed) as u64)];
        let help = "Streams of usage reports that are open";
        families.gauges("rlqs_streams", help, None, gauge(&self.quota_streams))?;
        let help = "Buckets of all streams of usage reports";
        families.gauges("rlqs_buckets", help, None, gauge(&self.shares))
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
