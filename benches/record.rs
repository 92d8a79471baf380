//! What recording a request costs a worker: its line in the access log, formatted and handed over, against the same
//! line by serde_json from a ready `Value`; and its metrics, against one shared atomic counter.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use metrics::{self, AccessLog, Metrics, RequestCounts};
use observe::record::{AccessConfig, AccessEntry, LineLog, LogFormat, Sink, StatusSampler, Style};
use serde_json::json;

fn line(criterion: &mut Criterion) {
    let figures = AccessLog::default();
    let sink = Sink::File("/dev/null".into());
    let log = LineLog::open(&sink, &figures).expect("/dev/null opens");
    let buffer = log.buffer();
    let sampler =
        StatusSampler::new(&AccessConfig { to: sink, headers: Vec::new(), ..AccessConfig::default() });
    let style = Style::new(&AccessConfig::default(), "");
    let plain = entry(b"/v1/orders/4711?expand=lines");
    let mut group = criterion.benchmark_group("record");
    group
        .bench_function("line", |bencher| bencher.iter(|| buffer.write(&sampler, &style, black_box(&plain))));
    let hostile = entry(b"/v1/orders/\"\x1b[31m\xff\xfe?expand=lines");
    group.bench_function("line_escaped", |bencher| {
        bencher.iter(|| buffer.write(&sampler, &style, black_box(&hostile)))
    });
    let combined = AccessConfig { format: LogFormat::Combined, ..AccessConfig::default() };
    let combined = Style::new(&combined, "");
    group.bench_function("line_combined", |bencher| {
        bencher.iter(|| buffer.write(&sampler, &combined, black_box(&plain)))
    });
    let value = json!({
        "time": "2024-02-29T00:00:00.123Z", "request_id": "01JDCQ7ZK3V5N8W9X2Y4A6B8C0", "listener": "edge",
        "client": "198.51.100.23", "protocol": "HTTP/2.0", "tls": "TLSv1.3", "method": "GET",
        "host": "api.example.com", "path": "/v1/orders/4711?expand=lines", "route": "orders", "status": 200,
        "decision": "admitted", "upstream": "orders", "server": "10.0.1.10:8080", "retries": 0,
        "total_us": 1234, "decide_us": 1, "wait_us": 0, "first_byte_us": 1100, "bytes_in": 0, "bytes_out": 5120,
    });
    let mut text = Vec::with_capacity(1 << 20);
    group.bench_function("serde_json_value", |bencher| {
        bencher.iter(|| {
            text.clear();
            serde_json::to_writer(&mut text, black_box(&value)).expect("a Vec takes it");
        });
    });
    group.finish();
}

fn figures(criterion: &mut Criterion) {
    let (metrics, workers) = Metrics::new(1);
    let (route, policy) = (metrics.route("orders"), metrics.policy("per-tenant"));
    let worker = &workers[0];
    let mut group = criterion.benchmark_group("metrics");
    let request = RequestCounts { status: 200, duration_ns: 1_234_567, bytes_in: 0, bytes_out: 5_120 };
    group.bench_function("request", |bencher| bencher.iter(|| route.finished(worker, black_box(&request))));
    group.bench_function("decision", |bencher| {
        bencher.iter(|| policy.decided(worker, black_box(metrics::PolicyDecision::Admitted)));
    });
    group.bench_function("shared_counter", |bencher| bencher.iter(|| metrics.panics.add(black_box(1))));
    group.finish();
}

fn entry(path: &[u8]) -> AccessEntry<'_> {
    AccessEntry {
        time: Duration::from_millis(1_709_164_800_123),
        request_id: b"01JDCQ7ZK3V5N8W9X2Y4A6B8C0",
        listener: "edge",
        client: Some([198, 51, 100, 23].into()),
        protocol: "HTTP/2.0",
        tls: "TLSv1.3",
        method: b"GET",
        host: b"api.example.com",
        path,
        route: "orders",
        status: 200,
        decision: "admitted",
        upstream: "orders",
        server: "10.0.1.10:8080",
        total_us: Some(1_234),
        decide_us: Some(1),
        wait_us: Some(0),
        first_byte_us: Some(1_100),
        bytes_out: 5_120,
        ..AccessEntry::default()
    }
}

criterion_group!(benches, line, figures);
criterion_main!(benches);
