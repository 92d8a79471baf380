//! A fleet whose gateways divide one limit among the proxies that report to them and the requests to their own routes.
//!
//! Proxies are simulated over real streams: they count what comes, spend what they were told, and report each second, so
//! a demand of thousands a second costs nothing.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::redis::Redis;
use crate::support::rlqs::{Proxies, Told};
use crate::support::toxic::Toxic;
use crate::support::{Client, Gateway, Stop, eventually, heavy};
use Wants::{Own, Proxy};

/// Who wants how many requests a second.
#[derive(Clone, Copy, Debug)]
enum Wants {
    /// A proxy that reports this bucket to the gateway of this number.
    Proxy(usize, &'static [(&'static str, &'static str)], u64),
    /// Clients of the own route of the gateway of this number.
    Own(usize, u64),
}

const ANN: &[(&str, &str)] = &[("shop", "s1"), ("user", "ann")];

const BOB: &[(&str, &str)] = &[("shop", "s1"), ("user", "bob")];

/// A gateway of a fleet whose policy `shop` counts users of a shop together, whether proxies or its own route let them
/// through.
fn gateway(redis: Option<&Redis>, policy: &str) -> Gateway {
    gateway_of(redis.map(|redis| (redis.addr(), "1s")), policy)
}

/// The same with a Redis at this address, whose answers requests wait so long for.
fn gateway_of(redis: Option<(SocketAddr, &str)>, policy: &str) -> Gateway {
    let redis_url = redis.map_or(String::new(), |(addr, deadline)| {
        format!("[redis]\nurl = \"redis://{addr}\"\ndeadline = \"{deadline}\"\n")
    });
    let gateway = Gateway::start(&format!(
        "[admin]\nbind = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"\n\
         [rls.edge]\ndescriptors = [{{ entries = [{{ shop = \"*\" }}, {{ user = \"*\" }}], limit = \"shop\", \
         dimensions = {{ \"header:x-shop\" = \"{{shop}}\" }} }}]\n\
         [policy.shop]\n{policy}\nby = [\"header:x-shop\"]\n\
         [[route]]\npath = \"/own\"\nlimit = \"shop\"\nrespond = {{ status = 200, body = \"ok\" }}\n{redis_url}"
    ));
    if redis.is_some() {
        eventually("it is connected", || (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
    }
    gateway
}

#[test]
fn a_gateway_without_a_domain_does_not_ask_what_is_divided() {
    let (with, without) = (Redis::start(&[]), Redis::start(&[]));
    let plain = Gateway::start(&format!(
        "[redis]\nurl = \"redis://{}\"\n[[route]]\npath = \"/\"\nlimit = \"5/m by ip\"\nrespond = {{ status = 200 }}\n",
        without.addr()
    ));
    eventually("it is connected", || (plain.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
    let _dividing = gateway(Some(&with), "limit = \"100/m\"");
    // A look is an HGETALL, which nothing else asks for here.
    let looks = |redis: &Redis| {
        let said = redis.cli(&["INFO", "commandstats"]);
        let calls = said.split_once("cmdstat_hgetall:calls=").and_then(|(_, calls)| calls.split(',').next());
        calls.map_or(0, |calls| calls.parse::<u64>().expect("a number"))
    };
    eventually("the other one has looked three times", || (looks(&with) >= 3).then_some(()));
    assert_eq!(looks(&without), 0);
}

/// A proxy with so many requests a second, until it is stopped.
fn report(
    addr: SocketAddr,
    (bucket, each_second): (&[(&str, &str)], u64),
    stopped: &AtomicBool,
    passed: &AtomicU64,
) {
    let proxies = Proxies::connect(addr);
    let mut proxy = proxies.begin("edge");
    let (began, mut came, mut units, mut usage, mut reported) = (Instant::now(), 0, 0, (0, 0), None);
    while !stopped.load(Ordering::SeqCst) {
        let due = (began.elapsed().as_secs_f64() * each_second as f64) as u64;
        let fresh = due - std::mem::replace(&mut came, due);
        let passes = fresh.min(units);
        units -= passes;
        usage = (usage.0 + passes, usage.1 + fresh - passes);
        passed.fetch_add(passes, Ordering::SeqCst);
        if due > 0 && reported.is_none_or(|at: Instant| at.elapsed() >= Duration::from_secs(1)) {
            reported = Some(Instant::now());
            let (allowed, denied) = std::mem::take(&mut usage);
            proxy.send(&[(bucket, allowed, denied)]);
        }
        let told = proxy.next_within(Duration::from_millis(10)).unwrap_or_default();
        // Nothing and then a bucket is a new one; a bucket alone is what there was.
        match told.last().map(|(_, told)| told) {
            Some(Told::Spend { tokens, .. }) if told.len() > 1 => units = u64::from(*tokens),
            Some(Told::Deny | Told::Abandon) => units = 0,
            Some(Told::Spend { .. } | Told::Allow) | None => {}
        }
    }
}

/// Clients of an own route with so many requests a second together, until they are stopped.
fn ask(addr: SocketAddr, each_second: u64, stopped: &AtomicBool, passed: &AtomicU64) {
    let (began, mut asked, mut client) = (Instant::now(), 0, Client::connect(addr));
    while !stopped.load(Ordering::SeqCst) {
        let due = (began.elapsed().as_secs_f64() * each_second as f64) as u64;
        if asked >= due {
            thread::sleep(Duration::from_millis(2));
            continue;
        }
        asked += 1;
        let answer = client.request("GET", "/own", &["X-Shop: s1"], "");
        passed.fetch_add(u64::from(answer.status == 200), Ordering::SeqCst);
    }
}

/// What each of these is let through a second, once the first seconds are over.
fn rates(gateways: &[Gateway], wants: &[Wants], seconds: u64) -> Vec<f64> {
    rates_after(gateways, wants, || (), seconds)
}

/// The same from a moment on.
fn rates_after(gateways: &[Gateway], wants: &[Wants], then: impl FnOnce(), seconds: u64) -> Vec<f64> {
    let stopped = AtomicBool::new(false);
    let passed: Vec<AtomicU64> = wants.iter().map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        let _stop = Stop(&stopped);
        for (wants, passed) in wants.iter().zip(&passed) {
            let stopped = &stopped;
            scope.spawn(move || match wants {
                Wants::Proxy(at, bucket, each_second) => {
                    report(gateways[*at].listener("grpc"), (bucket, *each_second), stopped, passed);
                }
                Wants::Own(at, each_second) => ask(gateways[*at].plain(), *each_second, stopped, passed),
            });
            // So that they report at different times.
            thread::sleep(Duration::from_millis(370));
        }
        thread::sleep(Duration::from_secs(8));
        let read = || passed.iter().map(|passed| passed.load(Ordering::SeqCst)).collect::<Vec<u64>>();
        then();
        let (began, before) = (Instant::now(), read());
        thread::sleep(Duration::from_secs(seconds));
        let (lasted, after) = (began.elapsed().as_secs_f64(), read());
        after.iter().zip(before).map(|(after, before)| (after - before) as f64 / lasted).collect()
    })
}

/// Checks that each had what is due to it, within 5 % of a limit of 100 a second, and that all of that was used.
#[track_caller]
fn shared(gateways: &[Gateway], wants: &[Wants], due: &[f64], what: &str) {
    let rates = rates(gateways, wants, 12);
    let all: f64 = rates.iter().sum();
    let said = format!("{what}: {rates:.1?} = {all:.1} for {wants:?}");
    let due_all: f64 = due.iter().sum();
    assert!((0.95 * due_all..=1.05 * due_all).contains(&all), "{said}");
    assert!(rates.iter().zip(due).all(|(rate, due)| (rate - due).abs() <= 5.0), "{said}");
}

/// Runs scenes beside each other: they take their time, and little of the machine's.
fn at_once<S: Sync>(scenes: &[S], run: impl Fn(&S) + Sync) {
    let run = &run;
    thread::scope(|scope| scenes.iter().for_each(|scene| drop(scope.spawn(move || run(scene)))));
}

/// A limit whose nodes hold leases, and one that Redis decides alone.
const LIMITS: [&str; 2] = ["limit = \"100/s\"", "limit = \"100/s\"\novershoot = 0"];

#[test]
fn proxies_of_three_gateways_have_shares_by_demand() {
    let _alone = heavy();
    at_once(&LIMITS, |policy| {
        let redis = Redis::start(&[]);
        let gateways = [(); 3].map(|()| gateway(Some(&redis), policy));
        let wants = [Proxy(0, ANN, 900), Proxy(1, ANN, 90), Proxy(2, ANN, 10)];
        shared(&gateways, &wants, &[90.0, 9.0, 1.0], policy);
    });
}

#[test]
fn a_proxy_and_own_routes_of_another_gateway_have_shares_by_demand() {
    let _alone = heavy();
    at_once(&LIMITS, |policy| {
        let redis = Redis::start(&[]);
        let gateways = [(); 2].map(|()| gateway(Some(&redis), policy));
        shared(&gateways, &[Proxy(0, ANN, 300), Own(1, 100)], &[75.0, 25.0], policy);
        shared(&gateways, &[Proxy(0, ANN, 60), Own(1, 20)], &[60.0, 20.0], "enough for both");
    });
}

#[test]
fn buckets_of_one_count_have_shares_by_demand_beside_own_requests() {
    let _alone = heavy();
    at_once(&["limit = \"100/s\"", "limit = \"100/s\"\nalgorithm = \"fixed-window\""], |policy| {
        let gateway = [gateway(None, policy)];
        let wants = [Proxy(0, ANN, 300), Proxy(0, BOB, 100), Own(0, 100)];
        shared(&gateway, &wants, &[60.0, 20.0, 20.0], policy);
    });
}

#[test]
fn equal_proxies_have_the_same_of_a_fixed_window() {
    let _alone = heavy();
    at_once(&["100/s", "200/2s"], |limit| {
        let gateway = [gateway(None, &format!("limit = \"{limit}\"\nalgorithm = \"fixed-window\""))];
        shared(&gateway, &[Proxy(0, ANN, 200), Proxy(0, ANN, 200)], &[50.0, 50.0], limit);
        shared(&gateway, &[Proxy(0, ANN, 200), Proxy(0, BOB, 200)], &[50.0, 50.0], limit);
    });
}

/// No request waits for what is drawn, so it can wait longer than a request.
#[test]
fn a_redis_slower_than_requests_wait_for_is_asked_for_what_is_drawn() {
    let _alone = heavy();
    let policies = ["", "\novershoot = 0", "\nwhen-redis-down = \"allow\"\novershoot = 0"];
    at_once(&policies.map(|policy| format!("limit = \"100/s\"{policy}")), |policy| {
        let redis = Redis::start(&[]);
        let toxic = Toxic::start(redis.addr());
        let gateways = [(); 2].map(|()| gateway_of(Some((toxic.addr(), "2ms")), policy));
        toxic.delay(Duration::from_millis(15));
        shared(&gateways, &[Proxy(0, ANN, 300), Proxy(1, ANN, 100)], &[75.0, 25.0], policy);
    });
}

/// Each gateway keeps to its part of what was wanted last. What they hold may be a second's more.
#[test]
fn a_fleet_without_redis_keeps_its_limit_for_ten_seconds() {
    let _alone = heavy();
    let scenes: [[Wants; 3]; 3] = [
        [Proxy(0, ANN, 150), Proxy(1, ANN, 150), Proxy(2, ANN, 150)],
        [Proxy(0, ANN, 900), Proxy(1, ANN, 90), Proxy(2, ANN, 10)],
        [Own(0, 150), Own(1, 150), Own(2, 150)],
    ];
    at_once(&scenes, |wants| {
        let mut redis = Redis::start(&[]);
        let gateways = [(); 3].map(|()| gateway(Some(&redis), "limit = \"100/s\""));
        let rates = rates_after(&gateways, wants, || redis.kill(), 9);
        let all: f64 = rates.iter().sum();
        // One that had more than twice its even share has that.
        assert!((60.0..=115.0).contains(&all), "{rates:.1?} = {all:.1} for {wants:?}");
    });
}

/// What comes back of it between two rounds is gone with the window.
#[test]
fn a_sliding_window_of_a_second_is_used_whole() {
    let _alone = heavy();
    let redis = Redis::start(&[]);
    at_once(&[None, Some(&redis)], |redis| {
        let policy = "limit = \"100/s\"\nalgorithm = \"sliding-window\"";
        let gateway = [gateway(*redis, policy)];
        shared(&gateway, &[Proxy(0, ANN, 300), Proxy(0, ANN, 100)], &[75.0, 25.0], policy);
    });
}

/// Whoever says so wants everybody admitted then.
#[test]
fn a_fleet_without_redis_admits_what_comes_if_its_policy_says_so() {
    let _alone = heavy();
    let mut redis = Redis::start(&[]);
    let policy = "limit = \"50/s\"\nwhen-redis-down = \"allow\"";
    let gateways = [(); 2].map(|()| gateway(Some(&redis), policy));
    let wants = [Proxy(0, ANN, 60), Proxy(1, ANN, 60), Own(0, 30)];
    let is_away = || {
        redis.kill();
        // They are told with their reports.
        thread::sleep(Duration::from_secs(2));
    };
    let rates = rates_after(&gateways, &wants, is_away, 6);
    let due = [60.0, 60.0, 30.0];
    assert!(rates.iter().zip(due).all(|(rate, due)| *rate >= 0.8 * due), "{rates:.1?}");
}

#[test]
fn explain_says_what_requests_may_take_of_a_limit_that_is_divided() {
    let _alone = heavy();
    let redis = Redis::start(&[]);
    let gateways = [(); 2].map(|()| gateway(Some(&redis), "limit = \"100/s\""));
    let explained = |gateway: &Gateway| {
        gateway.admin("/v1/explain?url=/own&header=x-shop:%20s1").json()["limits"][0].clone()
    };
    assert!(explained(&gateways[0])["divided"].is_null());
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stopped);
        scope.spawn(|| report(gateways[0].listener("grpc"), (ANN, 300), &stopped, &AtomicU64::new(0)));
        scope.spawn(|| ask(gateways[1].plain(), 100, &stopped, &AtomicU64::new(0)));
        // The gateway that nobody reports to knows it, too.
        let limit = eventually("it is divided", || {
            let limit = explained(&gateways[1]);
            limit["divided"]["requests"].is_u64().then_some(limit)
        });
        assert_eq!(limit["divided"]["reporters"], 1, "{limit}");
        let said = limit["said"].as_str().expect("a sentence");
        assert!(
            said.contains("of which requests may take ") && said.ends_with("assigned to 1 reporter"),
            "{said}"
        );
    });
    eventually("nobody divides it any more", || explained(&gateways[1])["divided"].is_null().then_some(()));
}
