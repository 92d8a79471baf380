//! A policy whose algorithm changes, by a reload and from the database, at one node and at two with Redis: nobody gets a
//! limit twice, and the algorithm of before is gone after a period.

use serde_json::{Value, json};

use crate::auth::keys::hashed;
use crate::support::redis::Redis;
use crate::support::{Client, Directory, Gateway, Response, eventually};

fn config(policy: &str, more: &str) -> String {
    format!(
        "[policy.search]\nby = [\"header:x-user\"]\n{policy}\n\
         [[route]]\npath = \"/\"\nlimit = \"search\"\nrespond = {{}}\n{more}"
    )
}

fn ask(client: &mut Client, user: &str) -> Response {
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nx-user: {user}\r\n\r\n"));
    client.response()
}

fn admitted(client: &mut Client, user: &str, requests: usize) -> usize {
    (0..requests).filter(|_| ask(client, user).status == 200).count()
}

#[test]
fn both_algorithms_count_and_the_stricter_decides() {
    let policy = |algorithm: &str| config(&format!("limit = \"10/d\"\nalgorithm = \"{algorithm}\""), "");
    let gateway = Gateway::start(&policy("token-bucket"));
    let mut client = gateway.client();
    assert_eq!(admitted(&mut client, "ann", 6), 6);
    gateway.reload(&policy("sliding-log"));
    let answer = ask(&mut client, "ann");
    assert_eq!(
        answer.header("ratelimit-policy"),
        Some("\"search\";q=10;w=86400, \"search-before\";q=10;w=86400")
    );
    assert!(
        answer.header("ratelimit").is_some_and(|it| it.starts_with("\"search-before\";r=3;t=")),
        "{answer:?}"
    );
    assert_eq!(admitted(&mut client, "ann", 9), 3);
    let refused = ask(&mut client, "ann");
    assert_eq!(refused.status, 429);
    assert!(refused.number("retry-after") > 3_600, "{refused:?}");
    assert_eq!(gateway.compared("search"), [4.0, 7.0, 0.0]);
    // Decisions are counted once, not by algorithm.
    let admitted_by = ["policy=\"search\"", "outcome=\"admitted\""];
    assert_eq!(gateway.metric("sluicegate_decisions_total", &admitted_by), 10.0);
    // A reload of the same keeps it, and so does one of something else.
    gateway.reload(&(policy("sliding-log") + "[[route]]\npath = \"/other\"\nrespond = {}\n"));
    assert_eq!(admitted(&mut client, "ann", 1), 0);
    let explained = gateway.admin("/v1/explain?url=/&header=x-user:%20ann").json();
    let windows: Vec<&Value> =
        explained["limits"].as_array().expect("a list").iter().map(|limit| &limit["window"]).collect();
    let shown = |window: &str| json!(format!("\"{window}\";q=10;w=86400"));
    assert_eq!(windows, [&shown("search"), &shown("search-before")], "{explained}");
    let key = gateway.admin("/v1/keys/search/ann").json();
    let left = |window: usize| {
        (key["windows"][window]["window"].clone(), key["windows"][window]["remaining"].clone())
    };
    assert_eq!(
        [left(0), left(1)],
        [(json!("search"), json!(6)), (json!("search-before"), json!(0))],
        "{key}"
    );
    // Back again: what the bucket knew it still knows.
    gateway.reload(&policy("token-bucket"));
    assert_eq!(admitted(&mut client, "ann", 1), 0);
}

#[test]
fn the_algorithm_of_before_goes_after_a_period() {
    let policy = |algorithm: &str| config(&format!("limit = \"5/2s\"\nalgorithm = \"{algorithm}\""), "");
    let gateway = Gateway::start(&policy("fixed-window"));
    let mut client = gateway.client();
    ask(&mut client, "ann");
    gateway.reload(&policy("sliding-window"));
    let mut shown = || ask(&mut client, "ann").header("ratelimit-policy").unwrap_or_default().to_owned();
    assert_eq!(shown(), "\"search\";q=5;w=2, \"search-before\";q=5;w=2");
    eventually("it is gone", || (shown() == "\"search\";q=5;w=2").then_some(()));
    let before = gateway.compared("search");
    ask(&mut client, "bob");
    assert_eq!(gateway.compared("search"), before, "nothing is compared any more");
}

#[test]
fn a_fleet_hands_out_nothing_twice() {
    for (sharing, from, to) in [
        ("overshoot = 0", "token-bucket", "sliding-log"),
        ("overshoot = 0", "sliding-window", "token-bucket"),
        ("", "token-bucket", "fixed-window"),
        ("", "fixed-window", "token-bucket"),
    ] {
        let redis = Redis::start(&[]);
        let policy = |algorithm: &str| {
            let more = format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr());
            config(&format!("limit = \"40/d\"\nalgorithm = \"{algorithm}\"\n{sharing}"), &more)
        };
        let nodes = [0; 2].map(|_| {
            let gateway = Gateway::start(&policy(from));
            eventually("it is connected", || {
                (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(())
            });
            gateway
        });
        let mut clients = nodes.each_ref().map(Gateway::client);
        let mut spend = |requests: usize| -> usize {
            (0..requests).map(|number| admitted(&mut clients[number % 2], "ann", 1)).sum()
        };
        assert_eq!(spend(30), 30, "{sharing} {from} {to}");
        // One after the other, as a rollout does.
        nodes[0].reload(&policy(to));
        assert_eq!(spend(4), 4);
        nodes[1].reload(&policy(to));
        assert_eq!(spend(60), 6, "{sharing} {from} {to}");
    }
}

#[test]
fn a_change_through_the_api_is_one_too() {
    let directory = Directory::new();
    let keys = hashed("ann", &["--consumer", "ann"]) + "\n";
    directory.write("keys.toml", keys);
    let config = format!(
        "[database]\nurl = \"sqlite:{}\"\n\
         [admin]\nbind = \"127.0.0.1:0\"\ntokens = [{{ name = \"a\", token = \"admin-1\", role = \"admin\" }}]\n\
         [auth.keys]\nkind = \"api-key\"\nkeys = {{ file = \"keys.toml\" }}\n\
         [policy.search]\nby = [\"consumer\"]\nlimit = \"5/h\"\n\
         [[route]]\npath = \"/\"\nauth = \"keys\"\nlimit = \"search\"\nrespond = {{}}\n",
        directory.join("state.db").display()
    );
    let gateway = Gateway::start_in(directory, &config);
    let get = || gateway.client().request("GET", "/", &["X-Api-Key: ann"], "").status;
    assert_eq!([0; 3].map(|_| get()), [200; 3]);
    let headers = ["Authorization: Bearer admin-1", "Content-Type: application/json"];
    let document = json!({ "by": ["consumer"], "limit": "8/h", "algorithm": "sliding-window" }).to_string();
    let put =
        Client::connect(gateway.listener("admin")).request("PUT", "/v1/policies/search", &headers, &document);
    assert_eq!(put.status, 200, "{put:?}");
    // Of eight three are spent: five are left of the bucket, whatever the window of now would give.
    assert_eq!([0; 7].map(|_| get()), [200, 200, 200, 200, 200, 429, 429]);
}
