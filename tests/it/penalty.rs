//! Penalties, as clients that ignore `Retry-After` meet them.

use std::time::{Duration, Instant};

use base::random::Random;
use limit::Penalty;
use limit::penalty::Record;

use crate::support::redis::Redis;
use crate::support::{Gateway, Response, eventually};

/// A gateway that trusts the tests to be anybody, with one route `/a` under this policy `login`.
fn gateway(policy: &str) -> Gateway {
    Gateway::start(&config(policy))
}

fn config(policy: &str) -> String {
    format!(
        "[client-ip]\ntrust = [\"127.0.0.1/32\"]\n[policy.login]\nby = [\"ip\"]\n{policy}\n\
         [[route]]\npath = \"/a\"\nlimit = \"login\"\nrespond = {{ status = 200, body = \"ok\" }}\n"
    )
}

fn ask(gateway: &Gateway, client: &str) -> Response {
    gateway.client().request("GET", "/a", &[&format!("x-forwarded-for: {client}")], "")
}

fn is_penalty(answer: &Response) -> bool {
    answer.status == 429 && answer.json()["violations"][0]["penalty"] == true
}

/// What `explain` says of the limit for this client. Nothing is counted by it.
fn explained(gateway: &Gateway, client: &str) -> serde_json::Value {
    gateway.admin(&format!("/v1/explain?url=/a&from={client}")).json()["limits"][0].clone()
}

/// Asks until the client has a penalty, and returns the refusal.
fn provoke(gateway: &Gateway, client: &str) -> Response {
    (0..1_000).map(|_| ask(gateway, client)).find(is_penalty).expect("whoever asks on is kept out")
}

const HOURLY: &str = "limit = \"1/h\"\npenalty = { after = 3, within = \"1h\", factor = 2, max = \"5h\" }";

#[test]
fn clients_that_ignore_retry_after_wait_longer() {
    let gateway = gateway(HOURLY);
    assert_eq!(ask(&gateway, "192.0.2.1").status, 200);
    for _ in 0..3 {
        let denied = ask(&gateway, "192.0.2.1");
        assert!(!is_penalty(&denied) && (3_500..=3_960).contains(&denied.number("retry-after")));
    }
    // Two hours, four, and then no more than five; up to a tenth is added.
    for hours in [2, 4, 5, 5] {
        let refused = ask(&gateway, "192.0.2.1");
        assert!(is_penalty(&refused), "{refused:?}");
        let seconds = hours * 3_600;
        assert!((seconds - 100..=seconds * 11 / 10 + 1).contains(&refused.number("retry-after")));
        assert_eq!(refused.number("x-ratelimit-remaining"), 0);
        assert!(refused.header("ratelimit").is_some_and(|field| field.starts_with("\"login\";r=0;t=")));
        assert!(refused.json()["detail"].as_str().is_some_and(|text| text.contains("do not wait")));
        for _ in 0..3 {
            assert!(is_penalty(&ask(&gateway, "192.0.2.1")));
        }
    }
    let limit = explained(&gateway, "192.0.2.1");
    assert_eq!((&limit["penalty"], &limit["admitted"]), (&true.into(), &false.into()), "{limit}");
    let line = gateway.logged_where("a penalty", |line| line["decision"] == "penalised");
    assert_eq!((line["policy"].as_str(), line["reason"].as_str()), (Some("login"), Some("limited")));
    let outcome = |word: &str| {
        gateway.metric("sluicegate_decisions_total", &["policy=\"login\"", &format!("outcome=\"{word}\"")])
    };
    assert_eq!((outcome("admitted"), outcome("denied"), outcome("penalised")), (1.0, 3.0, 16.0));
    assert_eq!(ask(&gateway, "192.0.2.2").status, 200, "others are not kept out");
}

#[test]
fn clients_that_wait_are_admitted_and_forgiven() {
    let gateway = gateway(
        "limit = \"2/s burst 1\"\npenalty = { after = 2, within = \"1s\", factor = 2, max = \"1h\" }",
    );
    let started = Instant::now();
    let refused = provoke(&gateway, "192.0.2.1");
    assert!((2..=3).contains(&refused.number("retry-after")));
    eventually("the penalty ends", || (explained(&gateway, "192.0.2.1")["admitted"] == true).then_some(()));
    assert!(started.elapsed() >= Duration::from_secs(2), "the plain limit had room before");
    assert_eq!(ask(&gateway, "192.0.2.1").status, 200);
    // Forgiven, it begins as the first time; else it would be four seconds.
    assert!((2..=3).contains(&provoke(&gateway, "192.0.2.1").number("retry-after")));
}

#[test]
fn a_penalty_outlives_a_reload() {
    let gateway = gateway(HOURLY);
    provoke(&gateway, "192.0.2.1");
    gateway.reload(&config(&HOURLY.replace("1/h", "1000/s")));
    let refused = ask(&gateway, "192.0.2.1");
    assert!(is_penalty(&refused) && refused.number("retry-after") > 3_600);
    assert_eq!(ask(&gateway, "192.0.2.2").status, 200);
    gateway.reload(&config("limit = \"1000/s\""));
    // What was spent is still spent, and back within a moment.
    eventually("no policy keeps anybody out", || (ask(&gateway, "192.0.2.1").status == 200).then_some(()));
}

#[test]
fn a_shadow_counts_penalties_and_refuses_nothing() {
    let gateway = gateway(&format!("shadow = true\n{HOURLY}"));
    for _ in 0..8 {
        assert_eq!(ask(&gateway, "192.0.2.1").status, 200);
    }
    let outcome =
        |word: &str| gateway.metric("sluicegate_decisions_total", &[&format!("outcome=\"{word}\"")]);
    assert_eq!((outcome("shadow-denied"), outcome("shadow-penalised")), (3.0, 4.0));
    gateway.logged_where("a penalty in shadow", |line| line["decision"] == "shadow-penalised");
}

/// Nodes of one fleet under this policy `login`.
fn fleet<const N: usize>(redis: &Redis, policy: &str) -> [Gateway; N] {
    let redis = format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr());
    let nodes = [(); N].map(|()| gateway(&format!("{policy}\n{redis}")));
    nodes.iter().for_each(|node| is_up(node, 1.0));
    nodes
}

fn is_up(node: &Gateway, wanted: f64) {
    eventually("the node knows how Redis is", || {
        (node.metric("sluicegate_redis_up", &[]) == wanted).then_some(())
    });
}

/// For how many seconds a node keeps a client out; 0: it does not. Nothing is counted by asking.
fn left(node: &Gateway, client: &str) -> f64 {
    let shown = node.admin(&format!("/v1/keys/login/{client}")).json();
    shown["penalty"]["ends-in-seconds"].as_f64().unwrap_or_default()
}

fn is_kept_out(node: &Gateway, client: &str) -> bool {
    left(node, client) > 0.0
}

/// Refusals that none of the nodes would penalise alone are one penalty, which all of them keep.
fn counts_together<const N: usize>() {
    let redis = Redis::start(&[]);
    let nodes: [Gateway; N] = fleet(
        &redis,
        "limit = \"1/h\"\novershoot = 0\npenalty = { after = 7, within = \"1h\", factor = 2, max = \"9h\" }",
    );
    let client = "192.0.2.1";
    let (mut turn, mut lengths) = (0, Vec::new());
    let mut ask_next = || {
        turn += 1;
        ask(&nodes[turn % N], client)
    };
    assert_eq!(ask_next().status, 200);
    for hours in [2_u16, 4, 8] {
        let refusals: Vec<Response> = (0..8).map(|_| ask_next()).collect();
        assert!(refusals.iter().all(|refusal| refusal.status == 429));
        assert!(hours > 2 || !refusals.iter().any(is_penalty), "each node has seen too few");
        let began = Instant::now();
        eventually("all nodes have it", || {
            nodes.iter().all(|node| left(node, client) > f64::from(hours) * 3_600.0 - 60.0).then_some(())
        });
        lengths.push(began.elapsed());
    }
    let answers = nodes.each_ref().map(|node| ask(node, client));
    for answer in &answers {
        assert!(is_penalty(answer), "{answer:?}");
        assert!((28_700..=31_681).contains(&answer.number("retry-after")), "{answer:?}");
    }
    assert!(nodes.iter().all(|node| !is_kept_out(node, "192.0.2.2")));
    // The most that a machine with nothing else to do needs is 0.8 s.
    assert!(lengths.iter().min() < Some(&Duration::from_secs(2)), "{lengths:?}");
}

#[test]
fn two_nodes_count_refusals_together() {
    counts_together::<2>();
}

#[test]
fn four_nodes_count_refusals_together() {
    counts_together::<4>();
}

#[test]
fn a_burst_of_refusals_on_one_node_is_penalised_as_without_a_fleet() {
    let redis = Redis::start(&[]);
    let policy =
        "limit = \"1/h\"\novershoot = 0\npenalty = { after = 3, within = \"1h\", factor = 2, max = \"1d\" }";
    let nodes: [Gateway; 2] = fleet(&redis, policy);
    let alone = gateway(policy);
    for (number, requests) in [5, 6, 8, 9, 13, 21].into_iter().enumerate() {
        let client = format!("192.0.2.{number}");
        for node in [&alone, &nodes[0]] {
            (0..requests).for_each(|_| drop(ask(node, &client)));
        }
        eventually("both nodes keep it out for as long as one alone does", || {
            let told = left(&alone, &client);
            nodes.iter().all(|node| (left(node, &client) - told).abs() < 60.0).then_some(())
        });
    }
}

#[test]
fn a_penalty_that_began_without_redis_holds_on_all_nodes_once_it_is_back() {
    let mut redis = Redis::start(&[]);
    let nodes: [Gateway; 2] = fleet(&redis, HOURLY);
    redis.kill();
    nodes.iter().for_each(|node| is_up(node, 0.0));
    let seconds = provoke(&nodes[0], "192.0.2.1").number("retry-after");
    assert!(!is_kept_out(&nodes[1], "192.0.2.1"), "nobody can tell it");
    redis.restart();
    eventually("it is told", || is_kept_out(&nodes[1], "192.0.2.1").then_some(()));
    let answer = ask(&nodes[1], "192.0.2.1");
    assert!(
        is_penalty(&answer) && answer.number("retry-after").abs_diff(seconds) < seconds / 5,
        "{answer:?}"
    );
    // A Redis that has lost everything ends no penalty, and a node that starts hears of those that began before.
    redis.kill();
    redis.restart();
    eventually("Redis has it again", || {
        (ask(&nodes[0], "192.0.2.1").status == 429 && redis.cli(&["ZCARD", "sg:!penalties"]).trim() != "0")
            .then_some(())
    });
    assert!(nodes.iter().all(|node| is_kept_out(node, "192.0.2.1")));
    let [late]: [Gateway; 1] = fleet(&redis, HOURLY);
    eventually("it hears of it", || is_kept_out(&late, "192.0.2.1").then_some(()));
}

#[test]
fn thousands_of_attackers_cost_redis_few_calls_and_no_memory_for_ever() {
    const CLIENTS: u32 = 2_000;
    let redis = Redis::start(&[]);
    let nodes: [Gateway; 2] =
        fleet(&redis, "limit = \"1/h\"\npenalty = { after = 1, within = \"1s\", factor = 1, max = \"5s\" }");
    let name = |client: u32| format!("198.18.{}.{}", client / 250, client % 250);
    let calls = || {
        let stats = redis.info("commandstats", "cmdstat_eval");
        let calls = stats.split(',').find_map(|part| part.strip_prefix("calls=")).map(str::to_owned);
        calls.and_then(|calls| calls.parse::<u64>().ok()).expect("a number of calls")
    };
    let (before, began) = (calls(), Instant::now());
    let mut connection = nodes[0].client();
    for client in 0..CLIENTS {
        for _ in 0..3 {
            connection
                .send(format!("GET /a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {}\r\n\r\n", name(client)));
            connection.response();
        }
    }
    eventually("the last is known", || is_kept_out(&nodes[1], &name(CLIENTS - 1)).then_some(()));
    // Two nodes count themselves once a second and exchange penalties 2.5 times a second, and full reports follow each other.
    let most = u64::from(CLIENTS) / 64 + (began.elapsed().as_millis() as u64 / 400 + 2) * 4;
    assert!(calls() - before <= most, "{} calls in {:?}", calls() - before, began.elapsed());
    eventually("Redis forgets who is quiet", || {
        redis.cli(&["--scan", "--pattern", "sg:!penalty:*"]).trim().is_empty().then_some(())
    });
}

/// The script beside the arithmetic of one node: denials that are reported together are as many that come one by one.
#[test]
fn a_record_of_the_fleet_is_that_of_one_node_that_has_seen_all_denials() {
    let redis = Redis::start(&[]);
    let client = redis::Client::open(format!("redis://{}", redis.addr())).expect("an address");
    let mut connection = client.get_connection().expect("it answers");
    let random = Random::new(7);
    for history in 0_u128..200 {
        let number = |most: u64| random.next() % most;
        let (after, factor, most) = (number(9), 1 + number(4), 1 + number(86_400));
        let rule = Penalty::new(after as u32, 3_600_000_000_000, factor as u32, most as u32);
        let mut record = Record::default();
        for _ in 0..12 {
            let (count, told) = (number(40), 1 + number(50));
            for _ in 0..count {
                record = record.denied(&rule, told * 1_000_000_000, 3_600_000_000_000);
            }
            let report = [count, told, 0, 0, after, 3_600_000, factor, most]
                .map(|number| (number as f64).to_le_bytes());
            let (_, known): (u64, Vec<u8>) = redis::cmd("EVAL")
                .arg(include_str!("../../lua/penalties.lua"))
                .arg(2)
                .arg("begun")
                .arg(format!("client {history}"))
                .arg(&[b"9007199254740991", &b"1"[..], b"9"])
                .arg([&history.to_be_bytes()[..], report.as_flattened()].concat())
                .query(&mut connection)
                .expect("an answer");
            let number = |place: usize| {
                known[place..].first_chunk().map(|bytes| f64::from_le_bytes(*bytes)).expect("64 bytes")
            };
            let [_, words] = record.into_words();
            let [length, seen] = [words >> 20 & 0x1_ffff, words >> 6 & 0x3fff];
            assert_eq!((number(40) as u64, number(48) as u64), (length, seen), "{rule:?}");
            let left_ms = record.wait_ns(3_600_000_000_000) as f64 / 1e6;
            // Of a penalty that goes on, some of it is over by now.
            assert!((left_ms - 5_000.0..=left_ms + 5_000.0).contains(&number(32)), "{rule:?}");
        }
    }
}
