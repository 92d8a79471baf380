//! Real Envoys that are assigned quotas, configured as docs/envoy.md shows: what their clients are let through, together.
//!
//! Counted are answers with status 200, from the first request to the last. A limit of so many in a period has as many at
//! once and then what comes back, so over a time it is both.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::documents::{blocks, documents};
use crate::support::envoy::Envoy;
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, Stop, Upstream, eventually, heavy};

/// The gateway of docs/envoy.md with this limit for a user, who is counted on a route, too, and more of the configuration.
fn gateway(limit: &str, more: &str) -> Gateway {
    let (_, document) =
        documents().into_iter().find(|(name, _)| name == "docs/envoy.md").expect("it is there");
    let shown = blocks("docs/envoy.md", &document);
    let shown = shown.iter().find(|block| block.kind == "toml").expect("it shows one").text;
    let config = shown
        .replace("grpc = \"127.0.0.1:9901\"", "bind = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"")
        .replace(
            "limit = \"per-user\" }",
            "limit = \"per-user\", dimensions = { \"header:x-user\" = \"{user}\" } }",
        )
        .replace(
            "limit = \"100/m\"\nby = [\"entry:user\"]",
            &format!("limit = \"{limit}\"\nby = [\"header:x-user\"]"),
        );
    assert!(config.contains(limit) && config.contains("dimensions"), "{config}");
    let route =
        "[[route]]\npath = \"/own\"\nlimit = \"per-user\"\nrespond = { status = 200, body = \"ok\" }\n";
    Gateway::start(&format!("{config}\n{more}\n{route}"))
}

fn envoys(origin: SocketAddr, gateway: &Gateway) -> [Envoy; 3] {
    let quotas = gateway.listener("grpc");
    [(); 3].map(|()| Envoy::start_as("rlqs", origin, quotas, |config| config))
}

/// A client that asks so often a second until it is stopped, and counts what it is let through. A server that is away is
/// tried again.
fn ask(addr: SocketAddr, path: &str, each_second: u32, stopped: &AtomicBool, passed: &AtomicUsize) {
    let (began, mut asked) = (Instant::now(), 0);
    let connect = || eventually("it listens", || std::net::TcpStream::connect(addr).ok());
    drop(connect());
    let mut client = Client::connect(addr);
    while !stopped.load(Ordering::SeqCst) {
        let due = began + Duration::from_secs(1) / each_second * asked;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        asked += 1;
        match client.try_request("GET", path, &["X-User: ann"]) {
            Some(answer) if answer.status == 200 => drop(passed.fetch_add(1, Ordering::SeqCst)),
            Some(answer) => assert_eq!(answer.status, 429),
            None if stopped.load(Ordering::SeqCst) => {}
            None => {
                drop(connect());
                client = Client::connect(addr);
            }
        }
    }
}

/// Lets clients ask for so many seconds while something happens; returns what each was let through, and the seconds.
fn run(asked: &[(SocketAddr, &str, u32)], meanwhile: impl FnOnce()) -> (Vec<usize>, f64) {
    let (stopped, began) = (AtomicBool::new(false), Instant::now());
    let passed: Vec<AtomicUsize> = asked.iter().map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        let _stop = Stop(&stopped);
        for ((addr, path, each_second), passed) in asked.iter().zip(&passed) {
            let stopped = &stopped;
            scope.spawn(move || ask(*addr, path, *each_second, stopped, passed));
        }
        meanwhile();
    });
    (passed.into_iter().map(AtomicUsize::into_inner).collect(), began.elapsed().as_secs_f64())
}

#[track_caller]
fn within(passed: &[usize], allowed: f64) {
    let all = passed.iter().sum::<usize>() as f64;
    assert!((0.95 * allowed..=1.05 * allowed).contains(&all), "{all} of {allowed}: {passed:?}");
}

#[test]
fn three_envoys_admit_together_what_a_limit_holds() {
    let _alone = heavy();
    let (origin, gateway) = (Upstream::ok(), gateway("600/m", ""));
    let envoys = envoys(origin.addr(), &gateway);
    let asked = [0, 1, 2].map(|number| (envoys[number].addr(), "/", 40));
    let (passed, seconds) = run(&asked, || thread::sleep(Duration::from_secs(22)));
    within(&passed, 600.0 + 10.0 * seconds);
    // Who comes first has more of what a full bucket holds; what comes back is divided.
    assert!(passed.iter().all(|passed| *passed > 60), "{passed:?}");
    assert_eq!(gateway.metric("sluicegate_rls_unknown_descriptors_total", &[]), 0.0);
}

#[test]
fn an_envoy_that_ends_and_one_that_restarts_take_nothing_along() {
    let _alone = heavy();
    let (origin, gateway) = (Upstream::ok(), gateway("600/m", ""));
    let [first, mut second, mut third] = envoys(origin.addr(), &gateway);
    let asked = [(first.addr(), "/", 60), (second.addr(), "/", 60)];
    let (stopped, of_third) = (AtomicBool::new(false), AtomicUsize::new(0));
    let third_addr = third.addr();
    let (mut passed, seconds) = thread::scope(|scope| {
        let _stop = Stop(&stopped);
        let asks = scope.spawn(|| ask(third_addr, "/", 60, &stopped, &of_third));
        run(&asked, || {
            thread::sleep(Duration::from_secs(7));
            stopped.store(true, Ordering::SeqCst);
            asks.join().expect("no panic");
            third.kill();
            second.restart();
            thread::sleep(Duration::from_secs(15));
        })
    });
    passed.push(of_third.into_inner());
    within(&passed, 600.0 + 10.0 * seconds);
}

#[test]
fn envoys_and_the_gateways_own_routes_share_a_limit() {
    let _alone = heavy();
    let (origin, gateway) = (Upstream::ok(), gateway("600/m", ""));
    let envoys = envoys(origin.addr(), &gateway);
    let mut asked = [0, 1, 2].map(|number| (envoys[number].addr(), "/", 40)).to_vec();
    asked.push((gateway.plain(), "/own", 20));
    let (passed, seconds) = run(&asked, || thread::sleep(Duration::from_secs(22)));
    within(&passed, 600.0 + 10.0 * seconds);
    assert!(passed.iter().all(|passed| *passed > 60), "{passed:?}");
}

#[test]
fn an_envoy_and_own_routes_have_shares_by_demand_until_it_ends() {
    let _alone = heavy();
    let (origin, gateway) = (Upstream::ok(), gateway("20/s", ""));
    let mut envoy = Envoy::start_as("rlqs", origin.addr(), gateway.listener("grpc"), |config| config);
    let (addr, own) = (envoy.addr(), gateway.plain());
    let [of_envoy, of_own] = [(); 2].map(|()| (AtomicBool::new(false), AtomicUsize::new(0)));
    let passed = || [&of_envoy, &of_own].map(|(_, passed)| passed.load(Ordering::SeqCst));
    let over = |seconds| {
        let (before, began) = (passed(), Instant::now());
        thread::sleep(Duration::from_secs(seconds));
        let after = passed();
        let allowed = 20.0 * began.elapsed().as_secs_f64();
        ([0, 1].map(|who: usize| (after[who] - before[who]) as f64), allowed)
    };
    thread::scope(|scope| {
        let _stops = [Stop(&of_envoy.0), Stop(&of_own.0)];
        let asks = scope.spawn(|| ask(addr, "/", 40, &of_envoy.0, &of_envoy.1));
        scope.spawn(|| ask(own, "/own", 40, &of_own.0, &of_own.1));
        // Until it has reported twice.
        thread::sleep(Duration::from_secs(8));
        let ([envoys, owns], allowed) = over(20);
        let said = format!("{envoys} and {owns} of {allowed}");
        assert!((0.95 * allowed..=1.05 * allowed).contains(&(envoys + owns)), "{said}");
        assert!((envoys - owns).abs() <= 0.1 * allowed, "{said}");
        of_envoy.0.store(true, Ordering::SeqCst);
        asks.join().expect("no panic");
        envoy.kill();
        over(2);
        let ([_, owns], allowed) = over(5);
        assert!(owns >= 0.95 * allowed, "{said}; then {owns} of {allowed}");
    });
}

#[test]
fn envoys_of_two_gateways_have_shares_by_demand() {
    let _alone = heavy();
    let (origin, redis) = (Upstream::ok(), Redis::start(&[]));
    let redis_url = format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr());
    let gateways = [(); 2].map(|()| gateway("40/s", &redis_url));
    let envoys = [0, 1].map(|number: usize| {
        Envoy::start_as("rlqs", origin.addr(), gateways[number].listener("grpc"), |config| config)
    });
    let of = [(); 2].map(|()| (AtomicBool::new(false), AtomicUsize::new(0)));
    let passed = || [0, 1].map(|who: usize| of[who].1.load(Ordering::SeqCst) as f64);
    thread::scope(|scope| {
        let _stops = [Stop(&of[0].0), Stop(&of[1].0)];
        for ((envoy, each_second), (stopped, passed)) in envoys.iter().zip([120, 40]).zip(&of) {
            scope.spawn(move || ask(envoy.addr(), "/", each_second, stopped, passed));
        }
        // Until they have reported twice.
        thread::sleep(Duration::from_secs(12));
        let (before, began) = (passed(), Instant::now());
        thread::sleep(Duration::from_secs(20));
        let (after, allowed) = (passed(), 40.0 * began.elapsed().as_secs_f64());
        let [most, least] = [0, 1].map(|who: usize| after[who] - before[who]);
        let said = format!("{most} and {least} of {allowed}");
        assert!((0.95 * allowed..=1.05 * allowed).contains(&(most + least)), "{said}");
        assert!((most - 0.75 * allowed).abs() <= 0.05 * allowed, "{said}");
    });
}

#[test]
fn the_first_seconds_of_a_bucket_are_as_exact_as_the_others() {
    let _alone = heavy();
    let (origin, gateway) = (Upstream::ok(), gateway("100/s", ""));
    let envoy = Envoy::start_as("rlqs", origin.addr(), gateway.listener("grpc"), |config| config);
    let (stopped, passed) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut seconds = Vec::new();
    thread::scope(|scope| {
        let _stop = Stop(&stopped);
        scope.spawn(|| ask(envoy.addr(), "/", 300, &stopped, &passed));
        eventually("the first passes", || (passed.load(Ordering::SeqCst) > 0).then_some(()));
        let began = Instant::now();
        for _ in 0..8 {
            thread::sleep(Duration::from_secs(1));
            seconds
                .push((passed.load(Ordering::SeqCst) as f64, 100.0 + 100.0 * began.elapsed().as_secs_f64()));
        }
    });
    for (passed, allowed) in &seconds {
        // What comes back waits for the next round, and that for its turn; of what had gathered a half waits each time.
        let least = 0.95 * allowed - 75.0;
        assert!((least..=1.05 * allowed).contains(passed), "{passed} of {allowed}: {seconds:?}");
    }
}

#[test]
fn a_dying_redis_lets_envoys_admit_what_the_policy_says() {
    let _alone = heavy();
    for when in ["deny", "local"] {
        let (origin, mut redis) = (Upstream::ok(), Redis::start(&[]));
        let redis_url = format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr());
        let limit = format!("600/m\"\nwhen-redis-down = \"{when}");
        let gateway = gateway(&limit, &redis_url);
        eventually("it is connected", || (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
        let envoys = envoys(origin.addr(), &gateway);
        let asked = [0, 1, 2].map(|number| (envoys[number].addr(), "/", 40));
        let (passed, seconds) = run(&asked, || {
            thread::sleep(Duration::from_secs(11));
            redis.kill();
            thread::sleep(Duration::from_secs(11));
        });
        let allowed = 600.0 + 10.0 * seconds;
        let all = passed.iter().sum::<usize>() as f64;
        assert!(all <= 1.05 * allowed, "{when}: {all} of {allowed}: {passed:?}");
        match when {
            "deny" => assert!(all >= 0.95 * (600.0 + 10.0 * 9.0), "{all}: {passed:?}"),
            _ => assert!(all >= 0.95 * allowed, "{all} of {allowed}: {passed:?}"),
        }
    }
}
