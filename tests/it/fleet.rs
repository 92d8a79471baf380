//! Several nodes and one Redis: one limit, whichever node is asked.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::redis::Redis;
use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Upstream, eventually};

/// A gateway of a fleet with one policy `p`. What is counted here is not to hang on how busy the machine is, so its
/// requests wait for Redis longer than a gateway's should.
fn node(redis: &Redis, policy: &str) -> Gateway {
    node_with(redis, policy, "deadline = \"1s\"")
}

/// The same with more keys under `[redis]`.
fn node_with(redis: &Redis, policy: &str, more: &str) -> Gateway {
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nrespond = {{ status = 200, body = \"\" }}\n\
         [policy.p]\nby = []\n{policy}\n[redis]\nurl = \"redis://{}\"\n{more}\n",
        redis.addr()
    ));
    connected(&gateway);
    gateway
}

/// Waits until the gateway asks Redis: it starts without Redis, too, and connects when it can.
fn connected(gateway: &Gateway) {
    let is = |name: &str| gateway.metric(name, &[]) > 0.0;
    eventually("it is connected", || {
        (is("sluicegate_redis_connects_total") && is("sluicegate_redis_up")).then_some(())
    });
}

/// How many of so many requests on one connection are admitted.
fn spend(gateway: &Gateway, requests: usize) -> usize {
    let mut client = gateway.client();
    (0..requests).filter(|_| ask(&mut client) == 200).count()
}

fn ask(client: &mut Client) -> u16 {
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.response().status
}

/// Lets all gateways spend at once for so long, as fast as one connection each can: how many were admitted, and how
/// many were asked for.
fn storm(gateways: &[Gateway], time: Duration) -> (usize, usize) {
    let until = Instant::now() + time;
    thread::scope(|scope| {
        let spenders: Vec<_> = gateways
            .iter()
            .map(|gateway| {
                scope.spawn(move || {
                    let mut client = gateway.client();
                    let (mut admitted, mut asked) = (0, 0);
                    while Instant::now() < until {
                        admitted += usize::from(ask(&mut client) == 200);
                        asked += 1;
                    }
                    (admitted, asked)
                })
            })
            .collect();
        let spent = spenders.into_iter().map(|spender| spender.join().expect("no spender panics"));
        spent.fold((0, 0), |(admitted, asked), spent| (admitted + spent.0, asked + spent.1))
    })
}

#[test]
fn an_exact_limit_is_exact_over_all_gateways() {
    let redis = Redis::start(&[]);
    for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        let policy = format!("limit = \"40/d\"\nalgorithm = \"{algorithm}\"\novershoot = 0");
        let nodes = [node(&redis, &policy), node(&redis, &policy), node(&redis, &policy)];
        let admitted: usize = nodes.iter().map(|node| spend(node, 25)).sum();
        assert_eq!(admitted, 40, "{algorithm}");
        let refused = nodes[0].get("/");
        assert_eq!(refused.status, 429, "{algorithm}");
        redis.cli(&["FLUSHALL"]);
    }
}

#[test]
fn a_leased_limit_is_kept_by_all_gateways_and_asked_for_now_and_then() {
    let redis = Redis::start(&[]);
    let nodes: Vec<_> =
        (0..3).map(|_| node(&redis, "limit = \"300/s burst 300\"\novershoot = \"5%\"")).collect();
    let time = Duration::from_secs(3);
    let begin = Instant::now();
    let (admitted, asked) = storm(&nodes, time);
    let seconds = begin.elapsed().as_secs_f64();
    let exact = 300.0 + 300.0 * seconds;
    assert!(admitted as f64 <= exact * 1.05, "{admitted} of {exact}");
    assert!(admitted as f64 >= (exact * 0.5).min(asked as f64 / 2.0), "{admitted} of {asked}, {exact}");
    let requests: f64 = nodes.iter().map(|node| node.metric("sluicegate_requests_total", &[])).sum();
    let operations: f64 =
        nodes.iter().map(|node| node.metric("sluicegate_redis_operations_total", &[])).sum();
    // Renewals go by the clock: where a busy machine asks for little, they are more of it.
    assert!(operations < (requests / 5.0).max(150.0), "{operations} operations for {requests} requests");
}

#[test]
fn a_window_of_a_second_is_asked_for_now_and_then() {
    let redis = Redis::start(&[]);
    for algorithm in ["fixed-window", "sliding-window"] {
        let policy = format!("limit = \"1000/s\"\nalgorithm = \"{algorithm}\"");
        let nodes = [node(&redis, &policy), node(&redis, &policy)];
        let mut clients = nodes.each_ref().map(Gateway::client);
        let (mut admitted, mut asked, begin) = (0, 0, Instant::now());
        while begin.elapsed() < Duration::from_secs(3) {
            admitted += clients.iter_mut().map(ask).filter(|status| *status == 200).count();
            asked += clients.len();
            thread::sleep(Duration::from_millis(5));
        }
        let operations: f64 =
            nodes.iter().map(|node| node.metric("sluicegate_redis_operations_total", &[])).sum();
        assert_eq!(admitted, asked, "{algorithm}");
        // A node that has just begun asks for its first requests; a busy machine asks for little.
        assert!(
            operations < (asked as f64 / 10.0).max(60.0),
            "{algorithm}: {operations} operations for {asked} requests"
        );
    }
}

#[test]
fn a_gateway_that_stops_gives_its_lease_back() {
    let redis = Redis::start(&[]);
    let policy = "limit = \"2000/m\"\novershoot = \"5%\"";
    let mut first = node(&redis, policy);
    let begin = Instant::now();
    let admitted = spend(&first, 500);
    assert_eq!(admitted, 500);
    first.signal("TERM");
    first.wait();
    let second = node(&redis, policy);
    let admitted = spend(&second, 2_000);
    // A loaded machine takes its time, in which the bucket refills.
    let most = 1_600.0 + 2_000.0 / 60.0 * begin.elapsed().as_secs_f64();
    assert!(admitted >= 1_400 && admitted as f64 <= most, "{admitted} after 500 of 2,000, {most:.0} at most");
}

/// Whose answers have a head and no end: a request is in flight until its client goes.
fn endless() -> Upstream {
    Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        }
    })
}

/// A gateway of a fleet that lets so many requests be in flight.
fn holder(redis: &Redis, upstream: &Upstream, permits: usize) -> Gateway {
    Gateway::start(&format!(
        "[[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nto = \"http://{}\"\n\
         [policy.p]\nby = []\nlimit = \"{permits} in flight\"\n\
         [redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n",
        upstream.addr(),
        redis.addr()
    ))
}

/// Begins a request, which lasts as long as its client, and says how it began.
fn begin(node: &Gateway) -> (Client, u16) {
    let mut client = node.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let status = client.head().status;
    (client, status)
}

#[test]
fn what_is_in_flight_after_an_outage_counts_with_what_began_in_it() {
    let mut redis = Redis::start(&[]);
    let upstream = endless();
    let nodes = [0, 1].map(|_| holder(&redis, &upstream, 6));
    let mut held: Vec<_> = (0..2).map(|_| begin(&nodes[0])).collect();
    redis.kill();
    eventually("the gateways have noticed", || {
        let is_away = |node: &Gateway| node.metric("sluicegate_redis_up", &[]) == 0.0;
        nodes.iter().all(is_away).then_some(())
    });
    // Two held before and three held now, of which Redis knows nothing when it is back.
    held.extend((0..3).map(|_| begin(&nodes[0])));
    assert!(held.iter().all(|(_, status)| *status == 200));
    redis.restart();
    eventually("Redis counts what the first gateway holds", || {
        nodes.iter().all(|node| node.metric("sluicegate_redis_up", &[]) == 1.0).then_some(())?;
        let (_one, first) = begin(&nodes[1]);
        let (_other, second) = begin(&nodes[1]);
        ((first, second) == (200, 503)).then_some(())
    });
    drop(held);
    eventually("all permits are back", || {
        let all: Vec<_> = (0..6).map(|turn| begin(&nodes[turn % 2])).collect();
        all.iter().all(|(_, status)| *status == 200).then_some(())
    });
}

#[test]
fn what_a_killed_gateway_had_in_flight_is_anothers_within_five_seconds() {
    let redis = Redis::start(&[]);
    let upstream = endless();
    let [first, second] = [0, 1].map(|_| holder(&redis, &upstream, 3));
    let held: Vec<_> = (0..3).map(|_| begin(&first)).collect();
    assert!(held.iter().all(|(_, status)| *status == 200));
    // For longer than what was said once is counted: it is said again, and nobody else has it.
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(6) {
        assert_eq!(begin(&second).1, 503);
    }
    first.signal("KILL");
    let killed = Instant::now();
    let mut mine = Vec::new();
    eventually("all permits are the other's", || {
        let (client, status) = begin(&second);
        (status == 200).then(|| mine.push(client));
        (mine.len() == 3).then_some(())
    });
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
}

#[test]
fn what_is_in_flight_counts_over_all_gateways() {
    let redis = Redis::start(&[]);
    let upstream = endless();
    let nodes = [0, 1].map(|_| holder(&redis, &upstream, 5));
    let mut held: Vec<_> = (0..5).map(|turn| begin(&nodes[turn % 2])).collect();
    assert!(held.iter().all(|(_, status)| *status == 200));
    for node in &nodes {
        assert_eq!(begin(node).1, 503);
    }
    held.pop();
    eventually("the permit is another gateway's", || {
        let (client, status) = begin(&nodes[1]);
        (status == 200).then(|| held.push((client, status)))
    });
    assert_eq!(begin(&nodes[0]).1, 503);
    drop(held);
    eventually("all permits are back", || {
        let all: Vec<_> = (0..5).map(|turn| begin(&nodes[turn % 2])).collect();
        all.iter().all(|(_, status)| *status == 200).then_some(())
    });
}

#[test]
fn a_key_can_be_looked_at() {
    let redis = Redis::start(&[]);
    let leased = node(&redis, "limit = \"2000/m\"\novershoot = \"5%\"");
    assert_eq!(spend(&leased, 500), 500);
    // A lease that nobody uses for a while goes back.
    let shown = eventually("it holds a lease", || {
        assert_eq!(spend(&leased, 1), 1);
        let shown = leased.admin("/v1/keys/p").json();
        (shown["windows"][0]["decided"] == "local").then_some(shown)
    });
    let window = &shown["windows"][0];
    assert_eq!((&window["shared"], &window["limit"]), (&"leased".into(), &2000.into()));
    assert!(window["lease"]["demand-per-second"].as_f64().is_some_and(|demand| demand > 1.0), "{shown}");
    assert!((1_000..=1_700).contains(&window["remaining"].as_u64().expect("a number")), "{shown}");
    let exact = Gateway::start(&format!(
        "[[route]]\npath = \"/{{*rest}}\"\nlimit = \"10/d by ip, header:x-a\"\nto = \"echo\"\nname = \"r\"\n\
         [redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n",
        redis.addr()
    ));
    let mut client = exact.client();
    let response = client.request("GET", "/", &["x-a: b c"], "");
    assert_eq!((response.status, response.header("x-ratelimit-remaining")), (200, Some("9")));
    let policy = exact.admin("/v1/explain?url=/").json();
    let name = policy["limits"][0]["policy"].as_str().expect("it is limited").replace('/', "%2F");
    let shown = || exact.admin(&format!("/v1/keys/{name}/127.0.0.1/b%20c")).json();
    assert_eq!(shown()["key"], serde_json::json!(["127.0.0.1", "b c"]));
    eventually("Redis has heard of it", || (shown()["windows"][0]["remaining"] == 9).then_some(()));
    assert_eq!(exact.admin(&format!("/v1/keys/{name}/127.0.0.1")).status, 404);
}

#[test]
fn every_node_shows_when_a_leased_window_is_whole() {
    let redis = Redis::start(&[]);
    for (limit, spent) in [
        ("limit = \"40/month\"", 20),
        ("limit = \"40/month\"", 40),
        ("limit = \"100/h\"\nalgorithm = \"fixed-window\"", 50),
        ("limit = \"100/h\"\nalgorithm = \"sliding-window\"", 50),
    ] {
        redis.cli(&["FLUSHALL"]);
        let nodes = [0, 1].map(|_| node(&redis, limit));
        assert_eq!(spend(&nodes[0], spent - 1), spent - 1, "{limit}");
        let told = nodes[0].client().request("GET", "/", &[], "");
        let told = told.header("ratelimit").and_then(|it| it.rsplit_once(";t=")).expect("it is told").1;
        let told: f64 = told.parse().expect("a number");
        for node in &nodes {
            eventually("all that is left is shown", || {
                let window = node.admin("/v1/keys/p").json()["windows"][0].clone();
                assert_eq!(window["shared"], "leased", "{limit}");
                let reset_s = window["reset-seconds"].as_f64().expect("a number");
                // What is spent of a sliding window counts until the next one ends at the latest.
                ((reset_s - told).abs() < 30.0).then_some(())
            });
        }
    }
}

#[test]
fn a_retry_at_another_gateway_is_not_charged_again() {
    let redis = Redis::start(&[]);
    let nodes = [0, 1].map(|_| {
        node(
            &redis,
            "limit = \"3/d\"\nidempotency-key = { key = \"header:idempotency-key\", by-address = true }",
        )
    });
    let ask = |node: &Gateway, key: &str| {
        node.client().request("GET", "/", &[&format!("Idempotency-Key: {key}")], "").status
    };
    assert_eq!(ask(&nodes[0], "one"), 200);
    eventually("it is remembered", || (!redis.cli(&["KEYS", "*"]).trim().is_empty()).then_some(()));
    for node in nodes.iter().cycle().take(6) {
        assert_eq!(ask(node, "one"), 200);
    }
    assert_eq!((ask(&nodes[1], "two"), ask(&nodes[0], "three"), ask(&nodes[1], "four")), (200, 200, 429));
    assert_eq!(
        (ask(&nodes[0], "four"), ask(&nodes[0], "two")),
        (429, 200),
        "what was refused is not remembered"
    );
}

#[test]
fn a_request_with_a_key_waits_no_longer_than_one_without() {
    let redis = Redis::start(&[]);
    let policy = "limit = \"1000/s\"\novershoot = 0\nidempotency-key = { key = \"header:idempotency-key\", by-address = true }";
    let node = node_with(&redis, policy, "deadline = \"300ms\"");
    // Asked first whether it is remembered, then for a unit: the two together have the time of one.
    let waits = (0..5).map(|number| {
        eventually("Redis answers", || (node.metric("sluicegate_redis_up", &[]) == 1.0).then_some(()));
        redis.signal("STOP");
        let begin = Instant::now();
        let key = format!("Idempotency-Key: {number}");
        assert_eq!(node.client().request("GET", "/", &[&key], "").status, 200);
        let wait = begin.elapsed();
        redis.signal("CONT");
        wait
    });
    // A busy machine takes its time; twice the deadline is what none may have cost.
    let is_once = |wait: &Duration| (300..550).contains(&wait.as_millis());
    let waits: Vec<_> = waits.take_while(|wait| !is_once(wait)).collect();
    assert!(waits.len() < 5, "{waits:?}");
}

#[test]
fn without_redis_the_policy_decides_and_with_it_again_the_limit() {
    for (when_down, admitted) in [("local", 40), ("allow", 400), ("deny", 0)] {
        let mut redis = Redis::start(&[]);
        let policy = format!("limit = \"40/d\"\novershoot = 0\nwhen-redis-down = \"{when_down}\"");
        let node = node(&redis, &policy);
        assert_eq!(spend(&node, 1), 1);
        redis.kill();
        eventually("the gateway has noticed", || {
            (node.metric("sluicegate_redis_up", &[]) == 0.0).then_some(())
        });
        let begin = Instant::now();
        let spent = spend(&node, admitted.max(40) + 20);
        // The deadline is a second: some that waited would be seen.
        assert!(begin.elapsed() < Duration::from_secs(8), "nothing waits for what is away");
        // What was spent before counts on: a node of one keeps to the whole limit. Where Redis's answer to the first
        // came too late, what it says and what was decided without it are both held against the node.
        assert!(spent <= admitted && spent + 2 >= admitted, "{when_down}: {spent} of {admitted}");
        let said = node.get("/");
        assert_eq!(said.status, if when_down == "deny" { 503 } else { 429 });
        assert!(node.metric("sluicegate_decisions_by_total", &["tier=\"fallback\""]) >= 60.0);
        if when_down == "local" {
            let shown = node.admin("/v1/keys/p").json();
            assert_eq!(shown["windows"][0]["remaining"], 0, "{shown}");
        }
        redis.restart();
        let back = Instant::now();
        eventually("it is exact again", || {
            spend(&node, 1);
            let global = node.metric("sluicegate_decisions_by_total", &["tier=\"global\""]);
            (global >= 2.0).then_some(())
        });
        assert!(back.elapsed() < Duration::from_secs(2), "{:?}", back.elapsed());
    }
}

/// What one exact window of this algorithm admits in a storm of so long that begins with the window whole.
fn exact(algorithm: &str, limit: f64, seconds: f64) -> f64 {
    match algorithm {
        // A whole bucket, and what refills.
        "token-bucket" => limit + limit * seconds,
        // Every window that the storm touches.
        "fixed-window" => limit * (seconds.ceil() + 1.0),
        _ => limit * (seconds + 1.0),
    }
}

#[test]
fn leases_keep_to_the_limit_in_every_algorithm_however_one_sided_the_load_is() {
    let redis = Redis::start(&[]);
    for algorithm in ["token-bucket", "fixed-window", "sliding-window"] {
        for one_sided in [false, true] {
            let policy = format!("limit = \"300/s\"\nalgorithm = \"{algorithm}\"\novershoot = \"15%\"");
            let nodes: Vec<_> = (0..3).map(|_| node(&redis, &policy)).collect();
            let begin = Instant::now();
            let busy = if one_sided { &nodes[..1] } else { &nodes[..] };
            let (admitted, asked) = storm(busy, Duration::from_secs(2));
            let most = exact(algorithm, 300.0, begin.elapsed().as_secs_f64());
            assert!(
                admitted as f64 <= most * 1.15,
                "{algorithm}, one-sided {one_sided}: {admitted} of {most}"
            );
            assert!(
                admitted * 2 > asked.min(400),
                "{algorithm}, one-sided {one_sided}: {admitted} of {asked}, {most}"
            );
            redis.cli(&["FLUSHALL"]);
        }
    }
}

#[test]
fn twenty_gateways_are_one_limit() {
    let redis = Redis::start(&[]);
    let nodes: Vec<_> = (0..20).map(|_| node(&redis, "limit = \"400/s\"\novershoot = \"5%\"")).collect();
    let begin = Instant::now();
    let (admitted, asked) = storm(&nodes, Duration::from_secs(3));
    let most = exact("token-bucket", 400.0, begin.elapsed().as_secs_f64());
    assert!(admitted as f64 <= most * 1.05, "{admitted} of {most}");
    assert!(admitted as f64 >= (most * 0.4).min(asked as f64 / 2.0), "{admitted} of {asked}, {most}");
}

#[test]
fn an_outage_under_load_makes_no_request_wait() {
    let mut redis = Redis::start(&[]);
    let gateway = node_with(&redis, "limit = \"1000000/s\"\novershoot = 0", "deadline = \"20ms\"");
    assert_eq!(spend(&gateway, 5), 5);
    let until = Instant::now() + Duration::from_secs(3);
    let waits = thread::scope(|scope| {
        let spender = scope.spawn(|| {
            let mut client = gateway.client();
            let mut waits = Vec::new();
            while Instant::now() < until {
                let begin = Instant::now();
                assert_eq!(ask(&mut client), 200);
                waits.push(begin.elapsed());
            }
            waits
        });
        eventually("it is used", || {
            (gateway.metric("sluicegate_decisions_by_total", &["tier=\"global\""]) > 50.0).then_some(())
        });
        redis.kill();
        eventually("it is missed", || {
            (gateway.metric("sluicegate_decisions_by_total", &["tier=\"fallback\""]) > 50.0).then_some(())
        });
        redis.restart();
        spender.join().expect("no spender panics")
    });
    // A busy machine takes its time; a request that waited for an answer would take a second.
    let longest = waits.iter().max().expect("some were asked");
    assert!(*longest < Duration::from_millis(900), "{longest:?}");
    let late = waits.iter().filter(|wait| **wait > Duration::from_millis(40)).count();
    assert!(late * 10 < waits.len(), "{late} of {} took longer than twice the deadline", waits.len());
}

/// A gateway of a fleet whose answers say what their request cost: what it says of itself.
fn pricing(redis: &Redis, policy: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::replying(|request| {
        let cost = request.header("x-say").unwrap_or_default();
        format!("HTTP/1.1 200 OK\r\nX-Cost: {cost}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let gateway = Gateway::start(&format!(
        "[[route]]\nlimit = \"p\"\nto = \"http://{}\"\n[policy.p]\nby = []\n{policy}\n\
         [redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n",
        upstream.addr(),
        redis.addr()
    ));
    connected(&gateway);
    (upstream, gateway)
}

#[test]
fn nodes_that_have_denied_for_a_day_find_refilled_units() {
    for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        // Of its own: gateways that have gone count for ten seconds, and where a request of a busy machine is decided
        // alone, two have a whole window each.
        let redis = Redis::start(&[]);
        let policy = format!(
            "limit = \"20/365d\"\nalgorithm = \"{algorithm}\"\novershoot = 0\n\
             cost = {{ default = 10, response-header = \"x-cost\" }}"
        );
        let nodes = [0, 1].map(|_| pricing(&redis, &policy));
        let [(_, first), (_, second)] = &nodes;
        let say =
            |node: &Gateway, cost: &str| node.client().request("GET", "/", &[&format!("x-say: {cost}")], "");
        // Estimates fill the window until their answers say less.
        for cost in ["9", "2"] {
            // What a busy machine decides alone may find less than Redis has.
            eventually("it fits", || (say(first, cost).status == 200).then_some(()));
        }
        let refused = eventually("it is refused", || {
            let answer = say(second, "10");
            (answer.status == 429).then_some(answer)
        });
        assert!(refused.number("retry-after") > 3_600, "{algorithm}: {:?}", refused.header("retry-after"));
        redis.cli(&["FLUSHALL"]);
        eventually("the second gateway has found out", || (say(second, "10").status == 200).then_some(()));
        redis.cli(&["FLUSHALL"]);
    }
}

#[test]
fn a_fleet_counts_denied_requests_where_the_policy_does() {
    let redis = Redis::start(&[]);
    let node = node(&redis, "limit = \"2/s\"\ncount-denied = true");
    let mut client = node.client();
    let until = Instant::now() + Duration::from_secs(4);
    let mut admitted = 0;
    let mut longest = Duration::ZERO;
    let mut last = Instant::now();
    while Instant::now() < until {
        admitted += usize::from(ask(&mut client) == 200);
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    // Who never waits for half a second is let in no more, once the bucket is empty.
    assert!(admitted == 2 || longest > Duration::from_millis(300), "{admitted}");
}

#[test]
fn answers_settle_what_the_whole_fleet_has_left() {
    let redis = Redis::start(&[]);
    for algorithm in ["token-bucket", "fixed-window", "sliding-window"] {
        let policy = format!(
            "limit = \"1_000_000/365d\"\nalgorithm = \"{algorithm}\"\novershoot = \"5%\"\n\
             cost = {{ default = 50, response-header = \"x-cost\", max = 100 }}"
        );
        let nodes = [0, 1].map(|_| pricing(&redis, &policy));
        let mut clients = nodes.each_ref().map(|(_, node)| node.client());
        let until = Instant::now() + Duration::from_millis(1_500);
        let mut spent = 0;
        // Longer than any lease lives.
        for (turn, cost) in [3, 0, 80].into_iter().cycle().enumerate() {
            let answer = clients[turn % 2].request("GET", "/", &[&format!("x-say: {cost}")], "");
            assert_eq!(answer.status, 200, "{algorithm}, turn {turn}: {answer:?} {}", answer.text());
            spent += cost;
            if Instant::now() >= until {
                break;
            }
        }
        eventually("Redis has heard what all of it cost", || {
            let shown = nodes[0].1.admin("/v1/keys/p").json();
            (shown["windows"][0]["at-redis"]["left"] == 1_000_000 - spent).then_some(())
        });
        redis.cli(&["FLUSHALL"]);
    }
}

#[test]
fn a_node_in_fallback_gives_the_right_retry_after() {
    let redis = Redis::start(&[]);
    for (algorithm, overshoot) in ["token-bucket", "fixed-window", "sliding-window"]
        .into_iter()
        .flat_map(|name| [(name, "5%"), (name, "0%")])
    {
        redis.cli(&["FLUSHALL"]);
        let policy =
            format!("limit = \"100/365d\"\nalgorithm = \"{algorithm}\"\novershoot = \"{overshoot}\"");
        let node = node(&redis, &policy);
        assert!((95..=100).contains(&spend(&node, 110)), "{algorithm} {overshoot}");
        let local = || node.metric("sluicegate_decisions_by_total", &["tier=\"local\""]);
        let refused = eventually("it is refused from memory", || {
            let before = local();
            let refused = node.get("/");
            (local() > before).then_some(refused)
        });
        assert_eq!(refused.status, 429, "{algorithm} {overshoot}");
        if algorithm == "token-bucket" {
            // A unit takes more than three days.
            assert!(
                refused.number("retry-after") > 3_600,
                "{overshoot}: {:?}",
                refused.header("retry-after")
            );
            continue;
        }
        let year = 365 * 86_400;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
        let ends_in = year - unix % year;
        let reset = refused.number("x-ratelimit-reset") - unix;
        let whole = if algorithm == "fixed-window" { ends_in } else { ends_in + year };
        assert!(reset.abs_diff(whole) < 60, "{algorithm} {overshoot}: {reset}, not {whole}");
    }
}

#[test]
fn leases_find_refilled_units_after_they_have_denied_for_a_day() {
    let redis = Redis::start(&[]);
    for algorithm in ["token-bucket", "fixed-window", "sliding-window"] {
        let policy = format!("limit = \"100/365d\"\nalgorithm = \"{algorithm}\"");
        let node = node(&redis, &policy);
        let mut client = node.client();
        let until = Instant::now() + Duration::from_millis(1_500);
        let mut last = 0;
        // Until every lease is over, and nothing is left to come back from one.
        while Instant::now() < until || last != 429 {
            last = ask(&mut client);
        }
        let operations = || node.metric("sluicegate_redis_operations_total", &[]);
        let (before, begin) = (operations(), Instant::now());
        while begin.elapsed() < Duration::from_secs(1) {
            assert_eq!(ask(&mut client), 429, "{algorithm}");
        }
        // Twice a second, and as often again at the ends of epochs.
        let most = 8.0 * begin.elapsed().as_secs_f64() + 4.0;
        assert!(operations() - before <= most, "{algorithm}: {} operations", operations() - before);
        redis.cli(&["FLUSHALL"]);
        eventually("it is found", || (ask(&mut client) == 200).then_some(()));
    }
}
