//! Finding a route among 10 and among 10,000, and making a request's keys.
//!
//! `cargo bench --bench routes`. What counts is the comparison within a shape: a table of 10,000
//! routes is to answer as fast as one of 10. Where traffic goes to 10 of the 10,000 it does; where it goes
//! over all of them in turn, a table also pays for what does not fit the caches, as it would in service.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Duration;

use base::identity::Identity;
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use http::{HeaderMap, Method};
use limit::Charge;
use policy::counting::shorthand;
use policy::definition::{PolicyDefinition, RouteDefinition};
use policy::{CompileOptions, HttpSubject, RouteTable, RoutingFacts};
use smallvec::SmallVec;

/// One shape of a table: routes and one request for each.
struct Shape {
    name: &'static str,
    route: fn(usize) -> (Option<String>, String),
    request: fn(usize) -> (String, String),
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "literals",
        route: |n| (None, format!("/v1/service{}/resource{n}", n % 100)),
        request: |n| ("api.example.com".to_owned(), format!("/v1/service{}/resource{n}", n % 100)),
    },
    Shape {
        name: "params",
        route: |n| (None, format!("/v1/{{tenant}}/service{n}/{{id}}/items/{{item}}")),
        request: |n| ("api.example.com".to_owned(), format!("/v1/acme/service{n}/8f14e45f/items/{n}")),
    },
    Shape {
        name: "prefixes",
        route: |n| (None, format!("/service{n}{{*rest}}")),
        request: |n| ("api.example.com".to_owned(), format!("/service{n}/v1/orders")),
    },
    Shape {
        name: "hosts",
        route: |n| {
            let host =
                if n.is_multiple_of(2) { format!("t{n}.example.com") } else { format!("*.t{n}.example.com") };
            (Some(host), "/api/{*rest}".to_owned())
        },
        request: |n| {
            let host =
                if n.is_multiple_of(2) { format!("t{n}.example.com") } else { format!("a.t{n}.example.com") };
            (host, "/api/v1/orders".to_owned())
        },
    },
];

fn route(name: String, host: Option<String>, path: String, limits: Vec<String>) -> RouteDefinition {
    RouteDefinition {
        hosts: host.into_iter().collect(),
        methods: vec![Method::GET, Method::POST],
        limits,
        ..RouteDefinition::new(name, path)
    }
}

fn compile(routes: &[RouteDefinition], policies: &[PolicyDefinition]) -> RouteTable {
    let options = CompileOptions { salt: [7; 16], ipv6_prefix: 64, upstreams: &[], auth: &[] };
    RouteTable::compile(routes, policies, &options).expect("the definitions of this benchmark are right")
}

/// A request of example traffic for this host and path.
fn facts<'r, 'h>(
    host: &'r str,
    path: &'r str,
    headers: &'h HeaderMap,
    identity: &'r Identity,
) -> RoutingFacts<'r, 'h> {
    let client_ip = IpAddr::from([192, 0, 2, 1]);
    let trusted_peer = false;
    RoutingFacts {
        method: &Method::GET,
        host,
        path,
        query: None,
        headers,
        client_ip,
        trusted_peer,
        identity,
        refused: false,
        body: None,
    }
}

fn finding(criterion: &mut Criterion) {
    let (headers, identity) = (HeaderMap::new(), Identity::default());
    let mut group = criterion.benchmark_group("find");
    for shape in SHAPES {
        for (count, asked) in [(10, 10), (10_000, 10), (10_000, 10_000)] {
            let routes: Vec<RouteDefinition> = (0..count)
                .map(|n| {
                    let (host, path) = (shape.route)(n);
                    route(format!("r{n}"), host, path, Vec::new())
                })
                .collect();
            let table = compile(&routes, &[]);
            let requests: Vec<(String, String)> =
                (0..asked).map(|n| (shape.request)(n * 7_919 % count)).collect();
            let mut requests = requests.iter().cycle();
            let mut next = || requests.next().expect("a cycle has no end").clone();
            group.bench_function(
                BenchmarkId::new(shape.name, format!("{count} routes, {asked} asked for")),
                |bencher| {
                    // A request has just been read when it is routed, so its bytes are in the cache; the
                    // table's need not be.
                    let find = |(host, path): &mut (String, String)| {
                        let found = table.find(&facts(host, path, &headers, &identity));
                        black_box(found.expect("every request has its route").route.id)
                    };
                    bencher.iter_batched_ref(&mut next, find, BatchSize::NumIterations(64));
                },
            );
        }
    }
    let deep = compile(&[route("r".to_owned(), None, "/v1/{*rest}".to_owned(), Vec::new())], &[]);
    for segments in [4, 4_000] {
        let path = "/v1".repeat(segments);
        group.bench_function(BenchmarkId::new("segments", segments), |bencher| {
            bencher.iter(|| deep.find(black_box(&facts("", &path, &headers, &identity))).is_ok());
        });
    }
}

fn charging(criterion: &mut Criterion) {
    let policy = |name: &str, limits: &[&str]| {
        let read: Vec<_> = limits.iter().map(|text| shorthand::parse(text).expect("a limit")).collect();
        let windows = read.iter().map(|limit| limit.window).collect();
        PolicyDefinition { by: read[0].by.clone(), ..PolicyDefinition::new(name.to_owned(), windows) }
    };
    let policies = [
        policy("ip", &["100/m by ip"]),
        policy("consumer-route", &["100/m by consumer route"]),
        policy("header", &["100/m by header:x-api-key"]),
        policy("windows", &["5/s by ip", "100/m", "1000/h"]),
    ];
    let identity = Identity { consumer: Some("consumer-4711".into()), ..Identity::default() };
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", "sk-0123456789abcdef0123456789abcdef".parse().expect("a value"));
    let mut group = criterion.benchmark_group("charge");
    for policy in &policies {
        let limits = vec![policy.name.clone()];
        let table = compile(&[route("r".to_owned(), None, "/{*rest}".to_owned(), limits)], &policies);
        let facts = facts("api.example.com", "/v1/orders", &headers, &identity);
        let found = table.find(&facts).expect("the only route matches");
        group.bench_function(&policy.name, |bencher| {
            bencher.iter(|| {
                let mut out: SmallVec<[Charge; 4]> = SmallVec::new();
                let subject = HttpSubject::new(black_box(&found), black_box(&facts));
                table.chosen(found.route, false).charges(&subject, &mut out).expect("nothing is missing");
                out
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = finding, charging
}
criterion_main!(benches);
