//! Which families of figures there are and what they are called: here and nowhere else. How they are written is
//! [`super::text`]'s.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text as openmetrics};
use prometheus_client::registry::{Registry, Unit};

use super::text::{Families, Format, as_prometheus};
use super::{
    Deadline, Decision, Exchange, Metrics, RedisUsage, Refused, Tier, UPSTREAMS_MAX, Upstream, lock,
};

impl Metrics {
    /// All figures as of now. Takes time with the number of series used; never call it from a worker.
    pub fn encode(self: &Arc<Self>, format: Format) -> String {
        let mut registry = Registry::with_prefix("sluicegate");
        registry.register_collector(Box::new(Scrape(self.clone())));
        let mut open_metrics = String::new();
        openmetrics::encode(&mut open_metrics, &registry).expect("a String takes any text");
        match format {
            Format::OpenMetrics => open_metrics,
            Format::Prometheus => as_prometheus(&open_metrics),
        }
    }
}

#[derive(Debug)]
struct Scrape(Arc<Metrics>);

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        process(&self.0, &mut families)?;
        routes(&self.0, &mut families)?;
        decisions(&self.0, &mut families)?;
        upstreams(&self.0, &mut families)?;
        upstream_connections(&self.0, &mut families)?;
        listeners(&self.0, &mut families)?;
        workers(&self.0, &mut families)?;
        certificates(&self.0, &mut families)?;
        memory(&self.0, &mut families)?;
        table(&self.0, &mut families)?;
        redis(&self.0, &mut families)
    }
}

fn process(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let configuration = *lock(&metrics.configuration);
    families.gauges("build_info", "Version that runs", None, [([("version", VERSION)], 1_u64)])?;
    families.counters(
        "auth_verifications",
        "Tokens and passwords looked at because nothing was known of them",
        None,
        [([], metrics.auth_verifications.value())],
    )?;
    families.counters(
        "worker_panics",
        "Panics in a worker, each of which took one request or one connection",
        None,
        [([], metrics.panics.value())],
    )?;
    families.counters(
        "accept_errors",
        "Times the kernel would not hand a connection over, for want of descriptors or memory",
        None,
        [([], metrics.accept_errors.value())],
    )?;
    families.counters(
        "access_log_lines",
        "Access-log lines written and lost",
        None,
        [
            ([("result", "written")], metrics.access_log.written.value()),
            ([("result", "dropped")], metrics.access_log.dropped.value()),
        ],
    )?;
    families.counters(
        "config_reloads",
        "Reloads by their result",
        None,
        [
            ([("result", "succeeded")], metrics.reloads_succeeded.value()),
            ([("result", "failed")], metrics.reloads_failed.value()),
        ],
    )?;
    families.gauges(
        "config_generation",
        "Number of the configuration in force",
        None,
        [([], configuration.generation)],
    )?;
    families.gauges(
        "config_last_reload_success_timestamp",
        "When the configuration in force was loaded",
        Some(&Unit::Seconds),
        [([], configuration.loaded_unix_seconds)],
    )
}

fn routes(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let used: Vec<_> = metrics.routes.all().into_iter().filter(|(_, route)| route.is_used()).collect();
    let by_code: Vec<_> = used.iter().map(|(name, route)| (name, route.by_code())).collect();
    families.counters(
        "requests",
        "Requests answered, by route and status (its class where it is a rare one)",
        None,
        by_code.iter().flat_map(|(name, codes)| {
            codes.iter().map(move |(code, count)| ([("route", &***name), ("code", code.as_str())], *count))
        }),
    )?;
    families.histograms(
        "request_duration",
        "From a request's head to its answer's last byte",
        used.iter().map(|(name, route)| ([("route", &**name)], route.durations())),
    )?;
    families.counters(
        "request_body",
        "Body bytes received from clients",
        Some(&Unit::Bytes),
        used.iter().map(|(name, route)| ([("route", &**name)], route.bytes_in())),
    )?;
    families.counters(
        "response_body",
        "Body bytes sent to clients",
        Some(&Unit::Bytes),
        used.iter().map(|(name, route)| ([("route", &**name)], route.bytes_out())),
    )
}

fn decisions(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let policies = metrics.policies.all();
    families.counters(
        "decisions",
        "What each policy decided",
        None,
        policies.iter().flat_map(|(name, policy)| {
            Decision::ALL.map(|decision| {
                ([("policy", &**name), ("outcome", decision.label())], policy.decisions(decision))
            })
        }),
    )?;
    families.counters(
        "decisions_by",
        "Where each policy's decisions were made",
        None,
        policies.iter().flat_map(|(name, policy)| {
            Tier::ALL.map(|tier| ([("policy", &**name), ("tier", tier.label())], policy.decisions_by(tier)))
        }),
    )?;
    let refusals = metrics.refusals.all();
    families.counters(
        "refused_requests",
        "Requests this gateway refused, by reason",
        None,
        refusals.iter().map(|(reason, refusal)| ([("reason", &**reason)], refusal.total())),
    )?;
    let causes = metrics.causes.all();
    families.counters(
        "causes",
        "What exactly was wrong with refused credentials, certificates and connections",
        None,
        causes.iter().map(|(cause, count)| ([("cause", &**cause)], count.total())),
    )
}

fn upstreams(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let used = used_upstreams(metrics);
    families.counters(
        "upstream_exchanges",
        "Tries to have a request answered upstream, by how they ended",
        None,
        used.iter().flat_map(|(name, upstream)| {
            Exchange::ALL.map(|exchange| {
                ([("upstream", &**name), ("outcome", exchange.label())], upstream.exchanges(exchange))
            })
        }),
    )?;
    families.histograms(
        "upstream_first_byte",
        "From a request's head sent to its answer's head",
        used.iter().map(|(name, upstream)| ([("upstream", &**name)], upstream.first_bytes())),
    )?;
    families.counters(
        "upstream_retries",
        "Requests sent a second time, and those the budget forbade",
        None,
        used.iter().flat_map(|(name, upstream)| {
            [
                ([("upstream", &**name), ("result", "sent")], upstream.retries()),
                ([("upstream", &**name), ("result", "over-budget")], upstream.retries_refused()),
            ]
        }),
    )
}

fn used_upstreams(metrics: &Metrics) -> Vec<(Box<str>, Arc<Upstream>)> {
    metrics.upstreams.all().into_iter().filter(|(_, upstream)| upstream.is_used()).collect()
}

fn upstream_connections(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let used = used_upstreams(metrics);
    families.counters(
        "upstream_connects",
        "Connections made to an upstream",
        None,
        used.iter().map(|(name, upstream)| ([("upstream", &**name)], upstream.connects())),
    )?;
    families.counters(
        "upstream_connect_failures",
        "Connections to an upstream that could not be made",
        None,
        used.iter().map(|(name, upstream)| ([("upstream", &**name)], upstream.connect_failures())),
    )?;
    let mut pools = lock(&metrics.pools).as_ref().map(|read| read()).unwrap_or_default();
    // Beyond the bound on names there is no series to add them to: they are levels of nobody.
    pools.truncate(UPSTREAMS_MAX);
    families.gauges(
        "upstream_connections",
        "Connections open to an upstream, and those of them without work",
        None,
        pools.iter().flat_map(|pool| {
            [
                ([("upstream", pool.upstream.as_str()), ("state", "open")], pool.open),
                ([("upstream", pool.upstream.as_str()), ("state", "idle")], pool.idle),
            ]
        }),
    )?;
    families.gauges(
        "upstream_waiting_requests",
        "Requests that wait for a connection",
        None,
        pools.iter().map(|pool| ([("upstream", pool.upstream.as_str())], pool.waiting)),
    )
}

fn listeners(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let listeners = metrics.listeners.all();
    families.counters(
        "connections_accepted",
        "Connections accepted and served",
        None,
        listeners.iter().map(|(name, listener)| ([("listener", &**name)], listener.accepted())),
    )?;
    families.gauges(
        "connections_open",
        "Connections open",
        None,
        listeners.iter().map(|(name, listener)| ([("listener", &**name)], listener.open())),
    )?;
    families.counters(
        "connections_refused",
        "Connections closed at once because there were too many",
        None,
        listeners.iter().flat_map(|(name, listener)| {
            Refused::ALL.map(|refused| {
                ([("listener", &**name), ("cap", refused.label())], listener.refusals(refused))
            })
        }),
    )?;
    families.counters(
        "handshake_failures",
        "TLS handshakes that failed",
        None,
        listeners.iter().map(|(name, listener)| ([("listener", &**name)], listener.handshake_failures())),
    )?;
    families.counters(
        "proxy_protocol_failures",
        "Connections that did not begin with the PROXY protocol header that they should have",
        None,
        listeners.iter().map(|(name, listener)| ([("listener", &**name)], listener.announcement_failures())),
    )?;
    families.counters(
        "connection_deadlines",
        "Connections closed by a deadline",
        None,
        listeners.iter().flat_map(|(name, listener)| {
            Deadline::ALL.map(|deadline| {
                ([("listener", &**name), ("deadline", deadline.label())], listener.deadlines(deadline))
            })
        }),
    )
}

fn workers(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let names: Vec<_> = (0..metrics.workers).map(|index| index.to_string()).collect();
    let (routes, listeners) = (metrics.routes.all(), metrics.listeners.all());
    families.counters(
        "worker_requests",
        "Requests answered by each worker",
        None,
        names.iter().enumerate().map(|(index, name)| {
            (
                [("worker", name.as_str())],
                routes.iter().map(|(_, route)| route.requests_of_worker(index)).sum(),
            )
        }),
    )?;
    families.counters(
        "worker_connections_accepted",
        "Connections accepted by each worker",
        None,
        names.iter().enumerate().map(|(index, name)| {
            let accepted = listeners.iter().map(|(_, listener)| listener.accepted_of_worker(index)).sum();
            ([("worker", name.as_str())], accepted)
        }),
    )
}

fn certificates(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let certificates = lock(&metrics.certificates).clone();
    let files: Vec<_> = certificates.iter().map(|certificate| certificate.file.to_string_lossy()).collect();
    families.gauges(
        "certificate_expiry_timestamp",
        "When a certificate that is served ends",
        Some(&Unit::Seconds),
        certificates.iter().zip(&files).map(|(certificate, file)| {
            let labels = [
                ("listener", certificate.listener.as_str()),
                ("subject", certificate.subject.as_str()),
                ("file", file),
            ];
            (labels, certificate.not_after)
        }),
    )
}

fn redis(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let Some(shards) = lock(&metrics.redis).as_ref().map(|read| read()) else { return Ok(()) };
    let each = |level: fn(&RedisUsage) -> u64| {
        shards.iter().map(move |shard| ([("shard", shard.shard.as_str())], level(shard))).collect::<Vec<_>>()
    };
    let up = each(|shard| u64::from(shard.is_up));
    families.gauges("redis_up", "Whether a shard of Redis is asked", None, up)?;
    let in_time = each(|shard| u64::from(shard.is_quick));
    let help = "Whether the answers of a shard come within the deadline, so that requests wait for them";
    families.gauges("redis_in_time", help, None, in_time)?;
    let round_trips = shards.iter().map(|shard| {
        ([("shard", shard.shard.as_str())], Duration::from_nanos(shard.round_trip_ns).as_secs_f64())
    });
    let help = "How long nearly all calls to a shard took of late; 0: none was answered yet";
    families.gauges("redis_round_trip", help, Some(&Unit::Seconds), round_trips)?;
    let conditions =
        shards.iter().map(|shard| ([("shard", shard.shard.as_str()), ("condition", shard.condition)], 1_u64));
    families.gauges("redis_condition", "How a shard of Redis is", None, conditions)?;
    let evicts = each(|shard| u64::from(shard.evicts));
    families.gauges("redis_evicts", "Whether a shard forgets keys when its memory is full", None, evicts)?;
    type Level = fn(&RedisUsage) -> u64;
    let counters: [(&str, &str, Level); 8] = [
        ("redis_calls", "Script calls to Redis", |shard| shard.calls),
        ("redis_operations", "Operations in those calls", |shard| shard.operations),
        ("redis_late_calls", "Calls not answered within the deadline", |shard| shard.late),
        ("redis_lost_operations", "Operations without an answer", |shard| shard.lost),
        ("redis_refused_operations", "Operations answered with an error", |shard| shard.refused),
        ("redis_resent_calls", "Calls sent again after their answer was lost", |shard| shard.resent),
        ("redis_connects", "Connections made to Redis", |shard| shard.connects),
        ("redis_breaker_opened", "Times a shard was given up for a while", |shard| shard.opened),
    ];
    for (name, help, level) in counters {
        families.counters(name, help, None, each(level))?;
    }
    Ok(())
}

fn memory(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let Some(usage) = lock(&metrics.memory).as_ref().map(|read| read()) else {
        return Ok(());
    };
    let gauges = [
        ("memory_resident_bytes", "Resident memory of the process", usage.resident_bytes),
        ("memory_limit_bytes", "Memory it may use before it gives up work; 0: not set", usage.limit_bytes),
        (
            "overload_step",
            "What is given up for want of memory: 1 keep-alive, 2 requests, 3 connections",
            usage.overload_step,
        ),
    ];
    gauges.into_iter().try_for_each(|(name, help, value)| families.gauges(name, help, None, [([], value)]))
}

fn table(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let Some(usage) = lock(&metrics.table).as_ref().map(|read| read()) else {
        return Ok(());
    };
    families.gauges("table_slots", "Limiter keys the local table has room for", None, [([], usage.slots)])?;
    families.gauges("table_keys", "Limiter keys the local table holds", None, [([], usage.used)])?;
    families.counters(
        "table_evictions",
        "Limiter keys that had to go for another",
        None,
        [([], usage.evictions)],
    )?;
    families.counters(
        "table_overflow_decisions",
        "Decisions made on the shared overflow bucket",
        None,
        [([], usage.overflow_decisions)],
    )?;
    families.gauges("table_logs", "Limiter keys that have a sliding log", None, [([], usage.logs)])?;
    families.gauges(
        "table_logs_size",
        "Memory that sliding logs take",
        Some(&Unit::Bytes),
        [([], usage.log_bytes)],
    )
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[cfg(test)]
mod tests;
