//! Which keys use most of a policy, as real gateways show it: found among many, named without secrets, told once when they are
//! hot, summed over a fleet, and decided by the node alone where a policy says so.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::decisions::said;
use crate::support::gateway::{binary, binary_off_by};
use crate::support::redis::Redis;
use crate::support::{Client, Directory, Gateway, eventually};

const ADMIN: &str = "[admin]\nbind = \"127.0.0.1:0\"\n";

fn route(limits: &str) -> String {
    format!("[[route]]\npath = \"/{{*rest}}\"\nlimit = {limits}\nrespond = {{ body = \"\" }}\n")
}

/// Sends so many requests for each of these values of a field, in turns.
fn send(gateway: &Gateway, field: &str, values: &[(String, usize)]) {
    let mut client = gateway.client();
    let most = values.iter().map(|(_, times)| *times).max().unwrap_or_default();
    for turn in 0..most {
        for (value, _) in values.iter().filter(|(_, times)| turn < *times) {
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{field}: {value}\r\n\r\n"));
            client.response();
        }
    }
}

fn shown(gateway: &Gateway, query: &str) -> Value {
    let answer = gateway.admin(&format!("/v1/hot-keys{query}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Calls `ask` until it returns something, over a whole minute: a minute has to be over, or a key to be hot for a while.
fn in_a_minute<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn names(shown: &Value) -> Vec<String> {
    let items = shown["items"].as_array().expect("a list").iter();
    items.map(|row| row["key"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn the_five_that_use_most_are_found_among_many() {
    let config = format!(
        "{ADMIN}{}[policy.users]\nlimit = \"20/h\"\nby = [\"header:x-user\"]\n\
         [policy.all]\nlimit = \"1000000/h\"\nby = []\n",
        route("[\"users\", \"all\"]")
    );
    let gateway = Gateway::start(&config);
    let mut users: Vec<(String, usize)> = (0..300).map(|user| (format!("user-{user}"), 2)).collect();
    let hot = [("ann", 100), ("bob", 80), ("eve", 60), ("dan", 50), ("kim", 40)];
    users.extend(hot.map(|(name, times)| (name.to_owned(), times)));
    send(&gateway, "X-User", &users);
    let expected: Vec<String> = hot.iter().map(|(name, _)| format!("header:x-user={name}")).collect();
    let found = eventually("all five are shown", || {
        let found = shown(&gateway, "?policy=users");
        let last = found["items"][4]["requests-per-second"].as_f64().unwrap_or_default();
        let first = found["items"][0]["requests-per-second"].as_f64().unwrap_or_default();
        let is_whole = names(&found) == expected && (first / last - 2.5).abs() < 0.1;
        is_whole.then_some(found)
    });
    let denied = |index: usize| found["items"][index]["denied-per-second"].as_f64().expect("a number");
    let requests = |index: usize| found["items"][index]["requests-per-second"].as_f64().expect("a number");
    // Twenty of each are admitted.
    for (index, (_, times)) in hot.iter().enumerate() {
        let part = denied(index) / requests(index);
        let expected = (*times as f64 - 20.0) / *times as f64;
        assert!((part - expected).abs() < 0.05, "{part} and not {expected}: {found}");
    }
    assert_eq!(found["items"][0]["shard"], Value::Null);
    let all = shown(&gateway, "?policy=all");
    assert_eq!(names(&all), ["everybody"]);
    assert_eq!(names(&shown(&gateway, "?limit=1")).len(), 2, "one of each policy");
    assert_eq!(gateway.metric("sluicegate_hot_keys", &[]), 0.0, "there are too few to be hot");
    let url = format!("http://{}", gateway.listener("admin"));
    let mut ctl = binary();
    ctl.args(["ctl", "--url", &url, "hot-keys", "--policy", "users", "--limit", "2"]);
    let printed = ctl.output().expect("it runs").stdout;
    let listed = String::from_utf8(printed).expect("UTF-8");
    assert!(listed.contains("header:x-user=ann") && !listed.contains("eve"), "{listed}");
}

#[test]
fn credentials_are_masked_and_addresses_cut() {
    let config = format!(
        "{ADMIN}[privacy]\naddresses = \"prefix\"\n{}[policy.keys]\nlimit = \"1000/h\"\n\
         by = [\"header:authorization\"]\n[policy.addresses]\nlimit = \"1000/h\"\nby = [\"ip\"]\n",
        route("[\"keys\", \"addresses\"]")
    );
    let gateway = Gateway::start(&config);
    let secrets = [("Bearer s3cr3t-one".to_owned(), 9), ("Bearer s3cr3t-two".to_owned(), 5)];
    send(&gateway, "Authorization", &secrets);
    let found = eventually("both keys are shown", || {
        let found = shown(&gateway, "");
        (names(&found).len() == 3).then_some(found)
    });
    let masked = "header:authorization=********";
    assert_eq!(names(&found), ["ip=127.0.0.0/24", masked, masked]);
    assert_ne!(found["items"][1]["id"], found["items"][2]["id"], "they are told apart all the same");
    let metrics = gateway.admin("/metrics").text();
    for text in [found.to_string(), metrics, gateway.stderr().join("\n")] {
        assert!(!text.contains("s3cr3t") && !text.contains("127.0.0.1 "), "{text}");
    }
}

#[test]
fn a_policy_that_is_not_in_force_has_no_list() {
    let gateway = Gateway::start(&format!(
        "{ADMIN}[policy.calls]\nlimit = \"10/h\"\nby = \"ip\"\n{}",
        route("\"calls\"")
    ));
    let unknown = gateway.admin("/v1/hot-keys?policy=nope");
    assert_eq!(
        (unknown.status, unknown.json()["detail"].as_str()),
        (404, Some("no policy of this name is in force: write `calls`"))
    );
    assert_eq!(gateway.admin("/v1/hot-keys?policy=calls").json()["items"], serde_json::json!([]));
    let unknown = gateway.admin("/v1/decisions?policy=nope");
    assert_eq!(
        (unknown.status, unknown.json()["detail"].as_str()),
        (404, Some("no policy of this name is in force: write `calls`"))
    );
    assert_eq!(gateway.admin("/v1/decisions?policy=calls").json()["items"], serde_json::json!([]));
    for (path, detail) in [
        ("/v1/keys/nope/192.0.2.1", "no policy of this name is in force: write `calls`"),
        (
            "/v1/keys/calls",
            "the path must have one value for each dimension of the policy, in the order of its `by`",
        ),
    ] {
        let unknown = gateway.admin(path);
        assert_eq!((unknown.status, unknown.json()["detail"].as_str()), (404, Some(detail)), "{path}");
    }
}

#[test]
fn nothing_is_watched_where_it_is_turned_off() {
    let config = format!("{ADMIN}[limits]\nhot-keys = false\n{}", route("\"10/h by ip\""));
    let gateway = Gateway::start(&config);
    gateway.get("/");
    assert_eq!(gateway.admin("/v1/hot-keys").status, 404);
    assert!(!gateway.admin("/metrics").text().contains("sluicegate_hot_keys"));
}

/// One client, as fast as it can, until the gateway says that its key is hot.
fn burn(gateway: &Gateway, user: &str) -> Client {
    let mut client = gateway.client();
    in_a_minute("the key is hot", || {
        for _ in 0..100 {
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\n\r\n"));
            client.response();
        }
        (gateway.metric("sluicegate_hot_keys", &[]) == 1.0).then_some(())
    });
    client
}

#[test]
fn a_hot_key_is_told_once_and_flagged() {
    let config = format!(
        "{ADMIN}{}[policy.users]\nlimit = \"1000000/h\"\nby = [\"header:x-user\"]\n",
        route("\"users\"")
    );
    let gateway = Gateway::start(&config);
    burn(&gateway, "ann");
    assert_eq!(shown(&gateway, "?policy=users")["items"][0]["hot"], true);
    let lines = gateway.stderr();
    let told: Vec<_> = lines.iter().filter(|line| line.contains("a key is hot")).collect();
    assert_eq!(told.len(), 1, "{lines:?}");
    assert!(told[0].contains("header:x-user=ann") && told[0].contains("users"), "{told:?}");
    let metrics = gateway.admin("/metrics").text();
    assert!(!metrics.contains("ann"), "no key is in a label");
}

/// By how many seconds a clock must be ahead so that its minute is nearly over.
fn ahead() -> u64 {
    let second = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() % 60;
    (NEARLY_OVER + 60 - second) % 60
}

/// A node whose clock is so far ahead.
fn node(redis: &Redis, ahead: u64, more: &str) -> Gateway {
    let config = format!(
        "{ADMIN}{}[policy.users]\nlimit = \"1000000/h\"\nby = [\"header:x-user\"]\n{more}\n\
         [redis]\nurl = \"redis://{}\"\n",
        route("\"users\""),
        redis.addr()
    );
    let directory = Directory::new();
    let gateway = Gateway::start_by(binary_off_by(&format!("+{ahead}s")), directory, &config);
    eventually("it is connected", || (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
    gateway
}

#[test]
fn the_nodes_of_a_fleet_are_summed() {
    let redis = Redis::start(&[]);
    let ahead = ahead();
    let nodes = [node(&redis, ahead, ""), node(&redis, ahead, "")];
    for (node, times) in nodes.iter().zip([30, 60]) {
        send(node, "X-User", &[("ann".to_owned(), times), ("bob".to_owned(), 10)]);
    }
    let fleet = in_a_minute("both have told of the minute", || {
        let fleet = shown(&nodes[0], "?minutes=2&policy=users")["fleet"].clone();
        (fleet["nodes"] == 2 && fleet["items"][1]["key"] == "header:x-user=bob").then_some(fleet)
    });
    // Of two minutes.
    assert_eq!(fleet["items"][0]["key"], "header:x-user=ann");
    assert_eq!(fleet["items"][0]["requests-per-second"], 0.75, "{fleet}");
    assert_eq!(fleet["items"][1]["requests-per-second"], 0.167, "{fleet}");
    let own = &shown(&nodes[0], "?minutes=2")["items"][0];
    assert_eq!(own["minutes"][0]["requests-per-second"], 0.5, "{own}");
    assert!(own["shard"].is_string(), "{own}");
    let kept = redis.cli(&["--scan", "--pattern", "*hot-keys-*"]);
    assert_eq!(kept.lines().filter(|line| !line.is_empty()).count(), 1, "one value a minute: {kept}");
    let left = redis.cli(&["TTL", kept.trim()]);
    assert!(left.trim().parse::<u64>().is_ok_and(|left| left <= 3_720), "{left}");
}

#[test]
fn a_hot_key_is_decided_by_the_node_alone_where_its_policy_says_so() {
    let redis = Redis::start(&[]);
    let more = "overshoot = 0\nhot-keys = { above = \"50%\", then = \"local-only:5/h\" }";
    let node = node(&redis, 0, more);
    let mut client = burn(&node, "ann");
    let mut ask = |user: &str| {
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\n\r\n"));
        client.response().status
    };
    let asked = || redis.info("stats", "total_commands_processed").parse::<u64>().expect("a number");
    // On a busy machine it may be too slow to be hot for a while.
    in_a_minute("its own limit holds, and Redis is not asked", || {
        let before = asked();
        let denied = (0..200).filter(|_| ask("ann") == 429).count();
        (denied == 200 && asked() - before < 100).then_some(())
    });
    assert_eq!(ask("bob"), 200, "another key has the policy's limit");
}

#[test]
fn what_is_shown_of_a_hot_key_is_the_limit_that_holds_for_it_here() {
    let redis = Redis::start(&[]);
    let config = format!(
        "{ADMIN}[auth.visitors]\nkind = \"anonymous\"\nconsumer = \"ann\"\n\
         [policy.users]\nlimit = \"1000000/h\"\nby = [\"consumer\"]\n\
         hot-keys = {{ above = \"50%\", then = \"local-only:5/h\" }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nauth = \"visitors\"\nlimit = \"users\"\nrespond = {{}}\n\
         [redis]\nurl = \"redis://{}\"\n",
        redis.addr()
    );
    let gateway = Gateway::start(&config);
    eventually("it is connected", || (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
    let mut client = burn(&gateway, "ann");
    let hot = serde_json::json!({ "instead-of": 1_000_000 });
    // On a busy machine it may be too slow to be hot for a while.
    let (usage, key, why, explained, refused) = in_a_minute("its own limit is shown", || {
        for _ in 0..100 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            client.response();
        }
        let usage = gateway.admin("/v1/usage/consumer/ann").json()["items"][0]["windows"][0].clone();
        let key = gateway.admin("/v1/keys/users/ann").json()["windows"][0].clone();
        let (_, why) = said(&gateway, &["why", "ann"]);
        let explained = gateway.admin("/v1/explain?url=/").json()["limits"][0].clone();
        let refused = gateway.admin("/v1/decisions?consumer=ann&limit=1").json()["items"][0].clone();
        let is_hot = [&usage, &key, &explained].iter().all(|shown| shown["hot-key"] == hot);
        let is_told = why.contains("the key is hot") && refused["windows"][0]["tier"] == "hot";
        (is_hot && is_told && usage["remaining"] == 0).then_some((usage, key, why, explained, refused))
    });
    assert_eq!((&usage["limit"], &usage["used"], &usage["from"]), (&5.into(), &5.into(), &"node".into()));
    assert_eq!((&key["limit"], &key["remaining"], &key["decided"]), (&5.into(), &0.into(), &"local".into()));
    let expected = "limit     policy users, window users: 5 of 5 used, 0 left; the key is hot: this node counts it locally, against a limit of 5 instead of 1000000";
    assert!(why.lines().any(|line| line == expected), "{why}");
    assert!(why.contains(", by its local count, because the key is hot: policy users"), "{why}");
    assert_eq!(explained["limit"], 5, "{explained}");
    let id = refused["request-id"].as_str().expect("its id");
    let (_, told) = said(&gateway, &["explain", "--request", id]);
    assert!(told.contains("decided by this node's local count, because the key is hot"), "{told}");
}

#[test]
fn without_redis_this_node_is_shown_at_once() {
    let mut redis = Redis::start(&[]);
    let node = node(&redis, 0, "");
    redis.kill();
    send(&node, "X-User", &[("ann".to_owned(), 20)]);
    let found = eventually("the key is shown", || {
        let asked = Instant::now();
        let found = shown(&node, "?policy=users");
        assert!(asked.elapsed() < Duration::from_secs(10));
        (!names(&found).is_empty()).then_some(found)
    });
    assert_eq!(names(&found), ["header:x-user=ann"]);
    assert_eq!(found["fleet"], Value::Null);
}

/// Where in its minute a node starts.
const NEARLY_OVER: u64 = 38;
