//! Usage by the minute over the admin API of real gateways: counted by workers and checks, added up over a fleet, there after a
//! restart.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::auth::keys::hashed;
use crate::support::postgres::Postgres;
use crate::support::{Client, Directory, Gateway, Response, eventually};

const CONFIG: &str = r#"
[admin]
bind = "127.0.0.1:0"
token = "secret"

[auth.keys]
kind = "api-key"
keys = { file = "keys.toml" }

[policy.calls]
limit = "5/h"
by = ["consumer"]
cost = 2

[policy.tenants]
limit = "100/h"
by = ["tenant"]

[policy.addresses]
limit = "100/h"
by = ["ip"]

[[route]]
path = "/{*rest}"
auth = "keys"
limit = ["calls", "tenants", "addresses"]
respond = {}
"#;

fn start(database: &str) -> Gateway {
    let directory = Directory::new();
    let key = |name: &str| hashed(name, &["--consumer", name, "--tenant", "acme"]);
    directory.write("keys.toml", key("ann") + &key("bob"));
    let copy = directory.join("control.json").display().to_string();
    Gateway::start_in(directory, &format!("{CONFIG}[database]\ncopy = {copy:?}\n{database}\n"))
}

/// Stops a node in order.
fn end(mut gateway: Gateway) {
    gateway.signal("TERM");
    assert!(gateway.wait().success());
}

fn get(gateway: &Gateway, consumer: &str) -> u16 {
    gateway.client().request("GET", "/", &[&format!("X-Api-Key: {consumer}")], "").status
}

fn ask(gateway: &Gateway, method: &str, path: &str, body: &str) -> Response {
    let fields = ["Authorization: Bearer secret", "Content-Type: application/json"];
    Client::connect(gateway.listener("admin")).request(method, path, &fields, body)
}

/// Each policy with what was admitted, denied and charged in all minutes that are shown.
fn sums(gateway: &Gateway, holder: &str) -> Value {
    let shown = ask(gateway, "GET", &format!("/v1/usage/{holder}?minutes=5"), "");
    assert_eq!(shown.status, 200, "{shown:?}");
    let shown = shown.json();
    let sum = |row: &Value, field: &str| -> u64 {
        let minutes = row["minutes"].as_array().expect("a list").iter();
        minutes.map(|minute| minute[field].as_u64().expect("a number")).sum()
    };
    let items = shown["items"].as_array().expect("a list").iter();
    let sums = items.map(|row| {
        let sums = ["admitted", "denied", "units"].map(|field| sum(row, field));
        (row["policy"].as_str().expect("a name").to_owned(), json!(sums))
    });
    sums.collect::<serde_json::Map<_, _>>().into()
}

/// Waits until a node shows these sums: workers hand over some times a second.
#[track_caller]
fn shows(gateway: &Gateway, holder: &str, expected: &Value) {
    let found = std::cell::RefCell::new(Value::Null);
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eventually("usage is shown", || {
            *found.borrow_mut() = sums(gateway, holder);
            (*found.borrow() == *expected).then_some(())
        });
    }));
    assert!(seen.is_ok(), "{} is not {expected}", found.borrow());
}

#[test]
fn requests_and_checks_are_counted_by_the_minute_and_are_there_after_a_restart() {
    let directory = Directory::new();
    let database = format!("url = {:?}", format!("sqlite:{}", directory.join("state.db").display()));
    let gateway = start(&database);
    assert_eq!([get(&gateway, "ann"), get(&gateway, "ann"), get(&gateway, "ann")], [200, 200, 429]);
    assert_eq!(get(&gateway, "bob"), 200);
    let check = ask(&gateway, "POST", "/v1/limits:check", r#"{"policy":"calls","key":"bob","cost":3}"#);
    assert_eq!(check.json()["allowed"], true, "{check:?}");
    // One that spends nothing is not counted.
    ask(&gateway, "POST", "/v1/limits:check", r#"{"policy":"calls","key":"bob","dry":true}"#);
    // Nor one that was taken back because of another.
    let together = r#"{"checks":[{"policy":"calls","key":"cleo","cost":1},{"policy":"calls","key":"cleo","cost":40}],
        "all_or_nothing":true}"#;
    assert_eq!(ask(&gateway, "POST", "/v1/limits:check", together).json()["allowed"], false);
    shows(&gateway, "consumer/cleo", &json!({ "calls": [1, 1, 0] }));
    let of_ann = json!({ "calls": [2, 1, 4] });
    let of_bob = json!({ "calls": [2, 0, 5] });
    // Ann's third request was admitted by the tenant's policy and charged by none.
    let of_acme = json!({ "tenants": [4, 0, 3] });
    for (holder, sums) in [("consumer/ann", &of_ann), ("consumer/bob", &of_bob), ("tenant/acme", &of_acme)] {
        shows(&gateway, holder, sums);
    }
    assert_eq!(ask(&gateway, "GET", "/v1/usage/consumer/ann", "").json()["items"][0]["minutes"], Value::Null);
    end(gateway);
    let again = start(&database);
    for (holder, sums) in [("consumer/ann", &of_ann), ("consumer/bob", &of_bob), ("tenant/acme", &of_acme)] {
        shows(&again, holder, sums);
    }
    assert_eq!(get(&again, "ann"), 200);
    shows(&again, "consumer/ann", &json!({ "calls": [3, 1, 6] }));
}

#[test]
fn a_fleets_usage_is_that_of_all_its_nodes() {
    let server = Postgres::shared();
    let database = format!("url = {:?}", server.url(&server.database()));
    let nodes = [start(&database), start(&database)];
    for node in &nodes {
        assert_eq!([get(node, "ann"), get(node, "ann")], [200, 200]);
    }
    let [first, second] = nodes;
    shows(&second, "consumer/ann", &json!({ "calls": [2, 0, 4] }));
    // What a node that ends has not written yet it writes then.
    end(first);
    shows(&second, "consumer/ann", &json!({ "calls": [4, 0, 8] }));
}

#[test]
fn a_minute_is_written_when_it_is_over() {
    let directory = Directory::new();
    let file = directory.join("state.db");
    let gateway = start(&format!("url = {:?}", format!("sqlite:{}", file.display())));
    assert_eq!(get(&gateway, "ann"), 200);
    let began = Instant::now();
    let rows = "SELECT policy || ' ' || admitted || ' ' || units FROM usage_minutes ORDER BY policy";
    // It ends within a minute; nodes write within five seconds of that.
    while crate::database::lab::sqlite(&file, rows) != "calls 1 2\ntenants 1 1" {
        assert!(began.elapsed() < Duration::from_secs(75), "{}", crate::database::lab::sqlite(&file, rows));
        std::thread::sleep(Duration::from_millis(500));
    }
    shows(&gateway, "consumer/ann", &json!({ "calls": [1, 0, 2] }));
}

#[test]
fn who_finds_no_row_is_among_the_others_and_without_rows_nobody_is_counted() {
    let directory = Directory::new();
    let url = |name: &str| format!("url = {:?}", format!("sqlite:{}", directory.join(name).display()));
    let gateway = start(&format!("{}\nusage-rows = 1", url("one.db")));
    // The first row that a worker counts is that of `calls`.
    assert_eq!(get(&gateway, "ann"), 200);
    shows(&gateway, "consumer/ann", &json!({ "calls": [1, 0, 2] }));
    let shown = ask(&gateway, "GET", "/v1/usage/consumer/ann?minutes=5", "").json();
    assert_eq!(shown["others"][0]["admitted"], 1, "{shown}");
    let metrics = ask(&gateway, "GET", "/metrics", "").text();
    assert!(metrics.contains("sluicegate_usage_decisions_unnamed_total 1\n"), "{metrics}");
    let none = start(&format!("{}\nusage-rows = 0", url("none.db")));
    assert_eq!(get(&none, "ann"), 200);
    let refused = ask(&none, "GET", "/v1/usage/consumer/ann?minutes=5", "");
    assert!(refused.status == 501 && refused.text().contains("usage-rows"), "{refused:?}");
    assert_eq!(ask(&none, "GET", "/v1/usage/consumer/ann", "").status, 200);
}
