//! Which families of figures there are and what they are called: here and nowhere else. How they are written is
//! [`super::text`]'s.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text as openmetrics};
use prometheus_client::registry::{Registry, Unit};

use super::text::{Families, Format, as_prometheus};
use super::{
    Deadline, Decision, Exchange, Metrics, Refused, StoreUsage, Tier, UPSTREAMS_MAX, Upstream, lock,
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
        store(&self.0, &mut families)
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

fn store(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let Some(shards) = lock(&metrics.store).as_ref().map(|read| read()) else { return Ok(()) };
    let each = |level: fn(&StoreUsage) -> u64| {
        shards.iter().map(move |shard| ([("shard", shard.shard.as_str())], level(shard))).collect::<Vec<_>>()
    };
    let up = each(|shard| u64::from(shard.is_up));
    families.gauges("store_up", "Whether a shard of the shared store is asked", None, up)?;
    let conditions =
        shards.iter().map(|shard| ([("shard", shard.shard.as_str()), ("condition", shard.condition)], 1_u64));
    families.gauges("store_condition", "How a shard of the shared store is", None, conditions)?;
    let evicts = each(|shard| u64::from(shard.evicts));
    families.gauges("store_evicts", "Whether a shard forgets keys when its memory is full", None, evicts)?;
    type Level = fn(&StoreUsage) -> u64;
    let counters: [(&str, &str, Level); 8] = [
        ("store_calls", "Script calls to the shared store", |shard| shard.calls),
        ("store_operations", "Operations in those calls", |shard| shard.operations),
        ("store_late_calls", "Calls not answered within the deadline", |shard| shard.late),
        ("store_lost_operations", "Operations without an answer", |shard| shard.lost),
        ("store_refused_operations", "Operations answered with an error", |shard| shard.refused),
        ("store_resent_calls", "Calls sent again after their answer was lost", |shard| shard.resent),
        ("store_connects", "Connections made to the shared store", |shard| shard.connects),
        ("store_breaker_opened", "Times a shard was given up for a while", |shard| shard.opened),
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
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::metrics::{CertificateExpiry, PoolUsage, Request, TableUsage};

    #[test]
    fn both_formats_are_well_formed() {
        let metrics = busy();
        let open_metrics = metrics.encode(Format::OpenMetrics);
        let body = open_metrics.strip_suffix("# EOF\n").expect("ends with its end mark");
        let families = parse(body, Format::OpenMetrics);
        assert!(families.len() > 25, "{families:?}");
        let prometheus = parse(&metrics.encode(Format::Prometheus), Format::Prometheus);
        assert_eq!(families.len(), prometheus.len());
    }

    #[test]
    fn a_fresh_registry_is_well_formed() {
        let (metrics, _) = Metrics::new(0);
        parse(&metrics.encode(Format::Prometheus), Format::Prometheus);
    }

    #[test]
    fn a_scrape_shows_what_was_counted() {
        let text = busy().encode(Format::Prometheus);
        for line in [
            r#"sluicegate_requests_total{route="or\"d\\ers",code="200"} 3"#,
            r#"sluicegate_requests_total{route="or\"d\\ers",code="4xx"} 1"#,
            r#"sluicegate_request_duration_seconds_count{route="or\"d\\ers"} 4"#,
            r#"sluicegate_request_body_bytes_total{route="or\"d\\ers"} 40"#,
            r#"sluicegate_decisions_total{policy="search",outcome="shadow-denied"} 1"#,
            r#"sluicegate_refused_requests_total{reason="no-route"} 1"#,
            r#"sluicegate_upstream_exchanges_total{upstream="orders",outcome="stall-timeout"} 1"#,
            r#"sluicegate_upstream_connections{upstream="orders",state="open"} 5"#,
            r#"sluicegate_upstream_connections{upstream="orders",state="idle"} 3"#,
            r#"sluicegate_connections_open{listener="edge"} 1"#,
            r#"sluicegate_connection_deadlines_total{listener="edge",deadline="header"} 1"#,
            r#"sluicegate_worker_requests_total{worker="1"} 4"#,
            r#"sluicegate_certificate_expiry_timestamp_seconds{listener="edge",subject="CN=a",file="a.pem"} 99"#,
            "sluicegate_table_keys 7",
            "sluicegate_config_generation 2",
            r#"sluicegate_config_reloads_total{result="failed"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing from\n{text}");
        }
    }

    fn busy() -> Arc<Metrics> {
        let (metrics, workers) = Metrics::new(2);
        let worker = &workers[1];
        let route = metrics.route("or\"d\\ers");
        for (status, duration_ns) in [(200, 50_000), (200, 3_000_000), (200, u64::MAX >> 20), (418, 1)] {
            route.finished(worker, &Request { status, duration_ns, bytes_in: 10, bytes_out: 7 });
        }
        metrics.route("never used");
        metrics.policy("search").decided(worker, Decision::ShadowDenied);
        metrics.refusal("no-route").count(worker);
        let upstream = metrics.upstream("orders");
        upstream.exchanged(worker, Exchange::StallTimeout);
        upstream.answered(worker, 1_000_000);
        let pool = PoolUsage { upstream: "orders".to_owned(), open: 5, idle: 3, waiting: 0 };
        metrics.set_pools(move || vec![pool.clone()]);
        let listener = metrics.listener("edge");
        listener.opened(worker);
        listener.refused(worker, Refused::ConnectionsPerIp);
        listener.deadline_passed(worker, Deadline::Header);
        metrics.started(1, 1_000);
        metrics.reload_succeeded(2, 2_000);
        metrics.reload_failed();
        metrics.set_table(|| TableUsage {
            slots: 10,
            used: 7,
            evictions: 1,
            overflow_decisions: 2,
            logs: 3,
            log_bytes: 4,
        });
        let certificate = CertificateExpiry {
            listener: "edge".into(),
            subject: "CN=a".into(),
            file: "a.pem".into(),
            not_after: 99,
        };
        metrics.set_certificates(vec![certificate.clone(), certificate]);
        metrics
    }

    /// Reads an exposition as strictly as the formats are written down, and panics where it is not one.
    fn parse(text: &str, format: Format) -> BTreeSet<String> {
        let mut families = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut help = None;
        let mut family = (String::new(), String::new());
        let mut samples = Vec::new();
        assert!(text.is_empty() || text.ends_with('\n'));
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, words) = rest.split_once(' ').expect("name and words");
                assert!(!words.is_empty());
                check_histogram(&family, &std::mem::take(&mut samples));
                help = Some(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("name and kind");
                assert_eq!(help.take().as_deref(), Some(name), "help stands before its type");
                assert!(families.insert(name.to_owned()), "{name} comes twice");
                assert!(["counter", "gauge", "histogram"].contains(&kind));
                family = (name.to_owned(), kind.to_owned());
            } else if let Some(rest) = line.strip_prefix("# UNIT ") {
                assert_eq!(format, Format::OpenMetrics, "the older format has no units");
                let (name, unit) = rest.split_once(' ').expect("name and unit");
                assert!(name == family.0 && name.ends_with(unit), "{line}");
            } else {
                let (name, labels, value) = sample(line);
                check_name(&family, &name, format);
                assert!(seen.insert((name.clone(), labels.clone())), "{line} comes twice");
                assert!(family.1 == "gauge" || value >= 0.0, "{line}");
                samples.push((name, labels, value));
            }
        }
        check_histogram(&family, &samples);
        families
    }

    fn check_name((family, kind): &(String, String), name: &str, format: Format) {
        let rest = name.strip_prefix(family.as_str()).expect("a sample stands under its family");
        let fits: &[&str] = match (kind.as_str(), format) {
            ("counter", Format::OpenMetrics) => &["_total"],
            ("histogram", _) => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        assert!(fits.contains(&rest), "{name} under {kind} {family}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        assert!(name.starts_with("sluicegate_"));
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
    }

    type Sample = (String, BTreeMap<String, String>, f64);

    fn check_histogram((family, kind): &(String, String), samples: &[Sample]) {
        if kind != "histogram" {
            return;
        }
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for (name, labels, value) in samples {
            let mut labels = labels.clone();
            let bound = labels.remove("le");
            groups.entry(labels).or_default().push((&name[family.len()..], bound, *value));
        }
        for (labels, group) in groups {
            let of = |suffix| group.iter().filter(move |(found, ..)| *found == suffix);
            let buckets: Vec<_> = of("_bucket").map(|(_, bound, value)| (bound_of(bound), *value)).collect();
            assert!(buckets.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1), "{labels:?}");
            let (last_bound, last) = buckets.last().copied().expect("buckets");
            assert_eq!(last_bound, f64::INFINITY);
            assert_eq!(of("_count").map(|(.., value)| *value).collect::<Vec<_>>(), [last]);
            assert_eq!(of("_sum").count(), 1);
        }
    }

    fn bound_of(bound: &Option<String>) -> f64 {
        match bound.as_deref().expect("a bucket has a bound") {
            "+Inf" => f64::INFINITY,
            number => number.parse().expect("a number"),
        }
    }

    /// `name{label="value",…} number`, with the three escapes a value may hold.
    fn sample(line: &str) -> Sample {
        let end = line.find(['{', ' ']).expect("a sample has a value");
        let (name, mut rest) = line.split_at(end);
        let mut labels = BTreeMap::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            loop {
                let (label, after) = rest.split_once("=\"").expect("a label has a value");
                let (value, after) = quoted(after);
                assert!(label.bytes().all(|byte| byte.is_ascii_lowercase()), "{line}");
                assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
                match after.strip_prefix(',') {
                    Some(more) => rest = more,
                    None => break rest = after.strip_prefix('}').expect("labels end"),
                }
            }
        }
        let number = rest.strip_prefix(' ').expect("one space before the value");
        assert!(!number.contains(' '), "no timestamps: {line}");
        (name.to_owned(), labels, number.parse().expect("a number"))
    }

    fn quoted(text: &str) -> (String, &str) {
        let mut value = String::new();
        let mut characters = text.char_indices();
        while let Some((index, character)) = characters.next() {
            match character {
                '"' => return (value, &text[index + 1..]),
                '\\' => match characters.next().map(|(_, escaped)| escaped) {
                    Some('n') => value.push('\n'),
                    Some(escaped @ ('"' | '\\')) => value.push(escaped),
                    other => panic!("no such escape: {other:?}"),
                },
                '\n' => panic!("a raw line feed"),
                other => value.push(other),
            }
        }
        panic!("a label value without end: {text}")
    }
}
