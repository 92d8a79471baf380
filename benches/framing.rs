//! What following the framing of HTTP/1 adds to a request: the bytes of one, scanned in front of hyper.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use net::wire::http1::{Framing, ScanEnd};
use policy::matching::path;

/// A client of an API: 9 fields, 300 bytes.
const API: &str = "GET /v1/orders/4711?expand=lines HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: client/1.4\r\n\
    Accept: application/json\r\nAccept-Encoding: gzip\r\nAuthorization: Bearer 0123456789abcdef0123456789abcdef\r\n\
    X-Request-Id: 0123456789abcdef\r\nConnection: keep-alive\r\nContent-Type: application/json\r\nX-Tenant: acme\r\n\r\n";

/// A browser: 15 fields, 900 bytes.
fn browser() -> String {
    let fields: String =
        (0..12).map(|number| format!("Sec-Field-{number}: {}\r\n", "v".repeat(40))).collect();
    format!(
        "GET / HTTP/1.1\r\nHost: www.example.com\r\n{fields}Cookie: {}\r\nTE: trailers\r\n\r\n",
        "c=1; ".repeat(30)
    )
}

fn scan(criterion: &mut Criterion) {
    let upload = format!("{}Content-Length: 4096\r\n\r\n{}", &API[..API.len() - 2], "x".repeat(4096));
    for (name, request) in [("api", API.to_owned()), ("browser", browser()), ("upload", upload)] {
        let mut framing = Framing::default();
        criterion.bench_function(&format!("scan/{name}"), |bencher| {
            bencher.iter(|| {
                let scanned = framing.scan(black_box(request.as_bytes()));
                assert_eq!(scanned.end, ScanEnd::Bytes);
                scanned.passed
            });
        });
    }
}

fn canonical(criterion: &mut Criterion) {
    for (name, path) in [("as it is", "/v1/orders/4711/lines"), ("encoded", "/v1//orders/%34711/./lines")] {
        criterion.bench_function(&format!("path/{name}"), |bencher| {
            bencher.iter(|| path::canonical(black_box(path)).map(|canonical| canonical.path.len()));
        });
    }
}

criterion_group!(benches, scan, canonical);
criterion_main!(benches);
