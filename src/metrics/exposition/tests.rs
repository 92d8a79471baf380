use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;
use std::time::Duration;

use prost::Message;

use super::protobuf::{HISTOGRAM, HistogramMessage, MetricFamily};
use super::*;
use crate::{
    ConnectionDeadline, DecidingTier, ExchangeOutcome, Exemplar, PolicyDecision, RefusedConnection,
    RequestCounts,
};

#[test]
fn both_formats_are_well_formed() {
    let metrics = busy();
    let open_metrics = page(&metrics, ScrapeFormat::OpenMetrics);
    let body = open_metrics.strip_suffix("# EOF\n").expect("ends with its end mark");
    let families = parse(body, ScrapeFormat::OpenMetrics);
    assert!(families.len() > 20, "{families:?}");
    let prometheus = parse(&page(&metrics, ScrapeFormat::Prometheus), ScrapeFormat::Prometheus);
    assert_eq!(families.len(), prometheus.len());
}

#[test]
fn a_fresh_registry_is_well_formed() {
    let (metrics, _) = Metrics::new(0);
    parse(&page(&metrics, ScrapeFormat::Prometheus), ScrapeFormat::Prometheus);
}

#[test]
fn a_scrape_shows_what_was_counted() {
    let text = page(&busy(), ScrapeFormat::Prometheus);
    for line in [
        r#"sluicegate_requests_total{route="or\"d\\ers",code="200"} 3"#,
        r#"sluicegate_requests_total{route="or\"d\\ers",code="4xx"} 1"#,
        r#"sluicegate_request_duration_seconds_count{route="or\"d\\ers"} 4"#,
        r#"sluicegate_request_body_bytes_total{route="or\"d\\ers"} 40"#,
        r#"sluicegate_decisions_total{policy="search",outcome="shadow-denied"} 1"#,
        r#"sluicegate_window_decisions_total{policy="search",window="search-1h",by="ip,route",tier="global",outcome="denied"} 1"#,
        r#"sluicegate_window_decisions_total{policy="search",window="search-1h",by="ip,route",tier="global",outcome="admitted"} 0"#,
        r#"sluicegate_decision_duration_seconds_count{tier="fallback"} 16"#,
        r#"sluicegate_refused_requests_total{reason="no-route"} 1"#,
        r#"sluicegate_upstream_exchanges_total{upstream="orders",outcome="stall-timeout"} 1"#,
        r#"sluicegate_connections_open{listener="edge"} 1"#,
        r#"sluicegate_connection_deadlines_total{listener="edge",deadline="header"} 1"#,
        r#"sluicegate_worker_requests_total{worker="1"} 4"#,
        r#"sluicegate_parts{part="a"} 7"#,
        "sluicegate_config_generation 2",
        "sluicegate_config_last_reload_successful 0",
        r#"sluicegate_config_reloads_total{result="failed"} 1"#,
        r#"sluicegate_upgrades_total{result="failed"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing from\n{text}");
    }
}

#[test]
fn only_open_metrics_has_exemplars_in_text() {
    let metrics = busy();
    let shown = page(&metrics, ScrapeFormat::OpenMetrics);
    for line in [
        r#"sluicegate_request_duration_seconds_bucket{route="or\"d\\ers",le="0.005"} 3 # {request_id="a\"1"} 0.003 1700000000.120"#,
        r#"sluicegate_decision_duration_seconds_bucket{tier="fallback",le="1.04e-06"} 16 # {request_id="a\"1",trace_id="0000000000000000000000000000002a"} 1e-06 1700000000.120"#,
    ] {
        assert!(shown.lines().any(|found| found == line), "{line} is missing from\n{shown}");
    }
    assert_eq!(shown.matches(" # {").count(), 2);
    assert!(!page(&metrics, ScrapeFormat::Prometheus).contains(" # {"));
    let without = shown.lines().map(|line| line.split(" # {").next().unwrap_or_default());
    let without: Vec<_> = without.filter(|line| !line.starts_with('#')).collect();
    let plain = page(&metrics, ScrapeFormat::Prometheus);
    let plain: Vec<_> = plain.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(without, plain);
}

#[test]
fn protobuf_has_what_the_text_has() {
    let metrics = busy();
    let mut shown: Vec<Sample> = Vec::new();
    for family in messages(&metrics.encode(ScrapeFormat::Protobuf)) {
        for metric in family.metric {
            let labels: BTreeMap<_, _> = metric.label.into_iter().map(|it| (it.name, it.value)).collect();
            let name = family.name.clone();
            assert_eq!(family.kind == HISTOGRAM, metric.histogram.is_some(), "{name}");
            match (metric.histogram, metric.counter.or(metric.gauge)) {
                (Some(histogram), None) => shown.extend(classic_samples(&name, &labels, &histogram)),
                (None, Some(number)) => shown.push((name, labels, number.value)),
                _ => panic!("{name} has not one value"),
            }
        }
    }
    let text = page(&metrics, ScrapeFormat::Prometheus);
    let told: Vec<Sample> = text.lines().filter(|line| !line.starts_with('#')).map(sample).collect();
    assert_eq!(shown, told);
}

/// The samples of a histogram as the text has them.
fn classic_samples(
    name: &str,
    labels: &BTreeMap<String, String>,
    histogram: &HistogramMessage,
) -> Vec<Sample> {
    let bucket = |bucket: &super::protobuf::BucketMessage| {
        let mut labels = labels.clone();
        labels.insert("le".to_owned(), text::float(bucket.upper_bound));
        (format!("{name}_bucket"), labels, bucket.cumulative_count as f64)
    };
    let ends = [("_sum", histogram.sample_sum), ("_count", histogram.sample_count as f64)];
    let ends = ends.map(|(end, value)| (format!("{name}{end}"), labels.clone(), value));
    histogram.bucket.iter().map(bucket).chain(ends).collect()
}

#[test]
fn native_buckets_hold_what_classic_ones_hold() {
    let metrics = busy();
    let mut histograms = 0;
    for family in messages(&metrics.encode(ScrapeFormat::Protobuf)) {
        for histogram in family.metric.into_iter().filter_map(|metric| metric.histogram) {
            histograms += 1;
            let buckets: u32 = histogram.positive_span.iter().map(|span| span.length).sum();
            assert_eq!(buckets as usize, histogram.positive_delta.len());
            let counts = histogram.positive_delta.iter().scan(0, |count, delta| {
                *count += delta;
                Some(*count as u64)
            });
            assert_eq!(counts.sum::<u64>() + histogram.zero_count, histogram.sample_count, "{}", family.name);
        }
    }
    assert!(histograms >= 3, "{histograms}");
}

#[test]
fn exemplars_are_in_the_message_as_well() {
    let metrics = busy();
    let all: Vec<_> = messages(&metrics.encode(ScrapeFormat::Protobuf))
        .into_iter()
        .flat_map(|family| family.metric)
        .filter_map(|metric| metric.histogram)
        .flat_map(|histogram| histogram.bucket)
        .filter_map(|bucket| bucket.exemplar.map(|exemplar| (bucket.upper_bound, exemplar)))
        .collect();
    assert_eq!(all.len(), 2);
    for (bound, exemplar) in all {
        assert!(exemplar.value <= bound && exemplar.value > bound / 2.5, "{exemplar:?}");
        assert_eq!((&*exemplar.label[0].name, &*exemplar.label[0].value), ("request_id", "a\"1"));
    }
}

fn messages(mut page: &[u8]) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    while !page.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut page).expect("a message"));
    }
    families
}

fn page(metrics: &Metrics, format: ScrapeFormat) -> String {
    String::from_utf8(metrics.encode(format)).expect("text")
}

fn busy() -> Arc<Metrics> {
    let (metrics, workers) = Metrics::new(2);
    let worker = &workers[1];
    let route = metrics.route("or\"d\\ers");
    for (status, duration_ns) in [(200, 50_000), (200, 3_000_000), (200, u64::MAX >> 20), (418, 1)] {
        route.finished(worker, &RequestCounts { status, duration_ns, bytes_in: 10, bytes_out: 7 });
    }
    let exemplar = |trace_id, duration_ns| {
        let time = Duration::from_millis(1_700_000_000_120);
        Exemplar::new("a\"1", trace_id, duration_ns, time).expect("it fits")
    };
    route.exemplify(exemplar(None, 3_000_000));
    metrics.latency().exemplify(DecidingTier::Fallback, exemplar(Some(42), 1_000));
    metrics.route("never used");
    metrics.policy("search").decided(worker, PolicyDecision::ShadowDenied);
    metrics.window("search", "search-1h", "ip,route").said(worker, DecidingTier::Global, false);
    metrics.latency().record(worker, DecidingTier::Fallback, 1_000, 16);
    metrics.refusal("no-route").count(worker);
    let upstream = metrics.upstream("orders");
    upstream.exchanged(worker, ExchangeOutcome::StallTimeout);
    upstream.answered(worker, 1_000_000);
    let listener = metrics.listener("edge");
    listener.opened(worker);
    listener.refused(worker, RefusedConnection::ConnectionsPerIp);
    listener.deadline_passed(worker, ConnectionDeadline::Header);
    metrics.published(2, 2_000);
    metrics.reload_succeeded();
    metrics.reload_failed();
    metrics.file_read(false);
    metrics.upgrade_failed();
    metrics.register(|families| families.gauges("parts", "Parts", None, [([("part", "a")], 7_u64)]));
    metrics
}

/// Reads an exposition as strictly as the formats are written down, and panics where it is not one.
fn parse(text: &str, format: ScrapeFormat) -> BTreeSet<String> {
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
            assert_eq!(format, ScrapeFormat::OpenMetrics, "the older format has no units");
            let (name, unit) = rest.split_once(' ').expect("name and unit");
            assert!(name == family.0 && name.ends_with(unit), "{line}");
        } else {
            let (name, labels, value) = sample(line.split(" # {").next().expect("there is a first part"));
            check_name(&family, &name, format);
            assert!(seen.insert((name.clone(), labels.clone())), "{line} comes twice");
            assert!(family.1 == "gauge" || value >= 0.0, "{line}");
            samples.push((name, labels, value));
        }
    }
    check_histogram(&family, &samples);
    families
}

fn check_name((family, kind): &(String, String), name: &str, format: ScrapeFormat) {
    let rest = name.strip_prefix(family.as_str()).expect("a sample stands under its family");
    let fits: &[&str] = match (kind.as_str(), format) {
        ("counter", ScrapeFormat::OpenMetrics) => &["_total"],
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
