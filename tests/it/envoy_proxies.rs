//! Real Envoys, configured as a document shows, whose clients see the gateway's limits hold.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::documents::{blocks, documents_with};
use crate::support::envoy::Envoy;
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, Upstream, eventually, heavy};

/// The gateway of that document, with these limits and more of the configuration.
fn gateway(per_address: &str, per_user: &str, more: &str) -> Gateway {
    let (name, document) = documents_with("```yaml rls\n").remove(0);
    let shown = blocks(&name, &document);
    let shown = shown.iter().find(|block| block.kind == "toml").expect("it shows one").text;
    let config = shown
        .replace("grpc = \"127.0.0.1:9901\"", "bind = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"")
        .replace("limit = \"600/m\"", per_address)
        .replace("limit = \"100/m\"", per_user);
    assert!(config.contains(per_address) && config.contains(per_user), "{config}");
    Gateway::start(&format!("{config}\n{more}"))
}

fn statuses(addr: SocketAddr, fields: &[&str], times: usize) -> Vec<u16> {
    let mut client = Client::connect(addr);
    (0..times).map(|_| client.request("GET", "/", fields, "").status).collect()
}

/// How many of so many requests each Envoy admits to a user, of clients that come at once.
fn admitted(envoys: &[Envoy], clients: usize, each: usize) -> usize {
    thread::scope(|scope| {
        let asks: Vec<_> = envoys
            .iter()
            .flat_map(|envoy| (0..clients).map(|_| envoy.addr()))
            .map(|addr| scope.spawn(move || statuses(addr, &["X-User: ann"], each)))
            .collect();
        let all: Vec<u16> = asks.into_iter().flat_map(|ask| ask.join().expect("no panic")).collect();
        assert!(all.iter().all(|status| [200, 429].contains(status)), "{all:?}");
        all.iter().filter(|status| **status == 200).count()
    })
}

/// The whole of a window a day long: nothing of it comes back while a test runs.
const EXACT: &str = "algorithm = \"fixed-window\"\novershoot = 0\nlimit = ";

#[test]
fn clients_of_an_envoy_see_the_gateways_limits_and_fields() {
    let origin = Upstream::ok();
    let gateway = gateway("limit = \"600/h\"", "limit = \"2/h\"", "");
    let envoy = Envoy::start(origin.addr(), gateway.listener("grpc"), |config| config);
    let mut client = Client::connect(envoy.addr());
    for (expected, left) in [(200, 1), (200, 0), (429, 0)] {
        let answer = client.request("GET", "/", &["X-User: ann"], "");
        assert_eq!(answer.status, expected, "{}", answer.text());
        let state = answer.header("ratelimit").unwrap_or_default().to_owned();
        assert!(state.starts_with(&format!("\"per-user\";r={left};t=")), "{state}");
        let policies = "\"per-address\";q=600;w=3600, \"per-user\";q=2;w=3600";
        assert_eq!(answer.header("ratelimit-policy"), Some(policies));
        assert_eq!(answer.header("retry-after").is_some(), expected == 429);
    }
    assert_eq!(statuses(envoy.addr(), &["X-User: bob"], 2), [200, 200]);
    assert_eq!(statuses(envoy.addr(), &[], 3), [200, 200, 200], "without a user only the address counts");
    assert_eq!(gateway.metric("sluicegate_rls_unknown_descriptors_total", &[]), 0.0);
    let refused = gateway.metric("sluicegate_rls_requests_total", &["code=\"over_limit\""]);
    assert_eq!(refused, 1.0);
}

#[test]
fn three_envoys_admit_exactly_what_the_limit_holds() {
    let _alone = heavy();
    let (origin, redis) = (Upstream::ok(), Redis::start(&[]));
    let redis_url = format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr());
    let per_user = format!("{EXACT}\"150/d\"");
    let gateways: Vec<Gateway> =
        (0..2).map(|_| gateway("limit = \"90000/h\"", &per_user, &redis_url)).collect();
    for gateway in &gateways {
        eventually("it is connected", || (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
    }
    let envoys: Vec<Envoy> = (0..3)
        .map(|number| {
            let rls = gateways[number % 2].listener("grpc");
            // A busy machine is slow, and that is not what is looked at.
            Envoy::start(origin.addr(), rls, |config| config.replace("timeout: 0.25s", "timeout: 10s"))
        })
        .collect();
    assert_eq!(admitted(&envoys, 4, 50), 150);
    assert_eq!(admitted(&envoys, 1, 10), 0);
}

#[test]
fn a_dying_redis_lets_no_envoy_admit_more_than_its_policy_says() {
    let _alone = heavy();
    for (when, most) in [("deny", 40), ("local", 80)] {
        let (origin, mut redis) = (Upstream::ok(), Redis::start(&[]));
        let redis_url = format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr());
        let per_user = format!("when-redis-down = \"{when}\"\n{EXACT}\"40/d\"");
        let gateway = gateway("limit = \"90000/h\"", &per_user, &redis_url);
        eventually("it is connected", || (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
        let rls = gateway.listener("grpc");
        let envoys: Vec<Envoy> = (0..3)
            .map(|_| {
                Envoy::start(origin.addr(), rls, |config| config.replace("timeout: 0.25s", "timeout: 10s"))
            })
            .collect();
        let before = admitted(&envoys, 1, 5);
        assert_eq!(before, 15, "{when}");
        let during = thread::scope(|scope| {
            let asks = scope.spawn(|| admitted(&envoys, 4, 25));
            thread::sleep(Duration::from_millis(20));
            redis.kill();
            asks.join().expect("no panic")
        });
        eventually("it is noticed", || (gateway.metric("sluicegate_redis_up", &[]) < 1.0).then_some(()));
        let after = admitted(&envoys, 1, 20);
        // A node that is alone enforces the whole limit by itself, beside what the fleet has spent.
        let all = before + during + after;
        assert!((15..=most).contains(&all), "{when}: {before}, {during} and {after}");
        assert!(when != "deny" || after == 0, "{after}");
    }
}

#[test]
fn an_envoy_that_restarts_finds_its_counts() {
    let origin = Upstream::ok();
    let gateway = gateway("limit = \"600/h\"", "limit = \"5/h\"", "");
    let mut envoy = Envoy::start(origin.addr(), gateway.listener("grpc"), |config| config);
    for _ in 0..2 {
        assert_eq!(statuses(envoy.addr(), &["X-User: ann"], 2), [200, 200]);
        envoy.restart();
    }
    assert_eq!(statuses(envoy.addr(), &["X-User: ann"], 2), [200, 429]);
    eventually("the connections of those before are gone", || {
        (gateway.metric("sluicegate_grpc_connections", &[]) <= 2.0).then_some(())
    });
}
