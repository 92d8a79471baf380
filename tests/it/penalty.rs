//! Penalties, as clients that ignore `Retry-After` meet them.

use std::time::{Duration, Instant};

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
