//! Every refusal explained by its request's id: in memory, in a log, in a database; and the walk of a support case.

use std::fs;

use serde_json::Value;

use crate::auth::keys::hashed;
use crate::support::gateway::binary;
use crate::support::postgres::Postgres;
use crate::support::redis::Redis;
use crate::support::{Client, Directory, Gateway, Response, eventually, text};

const CONFIG: &str = r#"
[node]
name = "edge-1"

[client-ip]
trust = ["127.0.0.1/32"]

[policy.search]
by = ["ip"]
limit = "2/h"

[policy.loose]
by = ["ip"]
limit = "100/h"

[[route]]
path = "/a"
limit = ["loose", "search"]
respond = {}
"#;

fn ask(gateway: &Gateway, client: &str, id: &str) -> Response {
    let fields = [format!("x-forwarded-for: {client}"), format!("x-request-id: {id}")];
    gateway.client().request("GET", "/a", &[&fields[0], &fields[1]], "")
}

/// What `sluicegate` prints with these arguments, and whether it succeeds.
pub fn said(gateway: &Gateway, arguments: &[&str]) -> (bool, String) {
    let admin = format!("bind = \"{}\"", gateway.listener("admin"));
    let config = fs::read_to_string(gateway.file("gateway.toml")).expect("it was written");
    let config = config.replace("[admin]\nbind = \"127.0.0.1:0\"", &format!("[admin]\n{admin}"));
    let file = gateway.write("asked.toml", config);
    let output = binary().args(arguments).arg("--config").arg(&file).output().expect("it can be started");
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

fn of(gateway: &Gateway, id: &str) -> Value {
    gateway.admin(&format!("/v1/decisions/{id}")).json()["items"][0].clone()
}

#[test]
fn a_refusal_is_explained_by_its_id() {
    let gateway = Gateway::start(CONFIG);
    for id in ["one", "two"] {
        assert_eq!(ask(&gateway, "192.0.2.1", id).status, 200);
    }
    let refused = ask(&gateway, "192.0.2.1", "three");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("x-gateway-node"), Some("edge-1"));
    assert_eq!(refused.json()["node"], "edge-1");
    let decision =
        eventually("the refusal is known", || Some(of(&gateway, "three")).filter(Value::is_object));
    assert_eq!((&decision["admitted"], &decision["node"]), (&false.into(), &"edge-1".into()), "{decision}");
    let windows = decision["windows"].as_array().expect("its windows");
    let first = &windows[0];
    assert_eq!((&first["policy"], &first["allowed"]), (&"search".into(), &false.into()), "{decision}");
    assert_eq!((&first["key"], &first["tier"]), (&"ip=192.0.2.1".into(), &"local".into()));
    assert_eq!((&first["remaining"], &first["limit"], &first["cost"]), (&0.into(), &2.into(), &1.into()));
    assert!(first["wait-ms"].as_u64().is_some_and(|ms| (1_700_000..=1_800_000).contains(&ms)), "{first}");
    assert_eq!(
        (&windows[1]["policy"], &windows[1]["allowed"]),
        (&"loose".into(), &true.into()),
        "{decision}"
    );
    let (succeeded, shown) = said(&gateway, &["explain", "--request", "three"]);
    assert!(succeeded && shown.starts_with("request   three was refused at "), "{shown}");
    assert!(
        shown.contains("\nrefused   policy search, window search, key ip=192.0.2.1: 0 of 2 left"),
        "{shown}"
    );
    assert!(shown.contains("\npasses    at "), "{shown}");
    // Admitted requests are not kept, nor are ids that nobody sent.
    for unknown in ["one", "nobody"] {
        let (succeeded, shown) = said(&gateway, &["explain", "--request", unknown]);
        assert!(
            !succeeded && shown.contains("404") && shown.contains("no decision about this request here"),
            "{shown}"
        );
    }
    let (_, listed) = said(&gateway, &["ctl", "decisions", "--consumer", "nobody"]);
    assert_eq!(listed.trim(), "no decisions");
    let (succeeded, listed) = said(&gateway, &["ctl", "decisions", "--policy", "search"]);
    assert!(succeeded && listed.lines().count() == 3 && listed.contains("three"), "{listed}");
    assert_eq!(gateway.metric("sluicegate_decision_samples_total", &["result=\"kept\""]), 1.0);
}

#[test]
fn nobody_but_a_trusted_hop_names_a_request_and_hears_of_the_node() {
    let config = CONFIG.replace("trust = [\"127.0.0.1/32\"]", "trust = [\"192.0.2.0/24\"]");
    let gateway = Gateway::start(&config);
    let [_, _, refused] = [0; 3].map(|_| ask(&gateway, "192.0.2.1", "mine"));
    assert_eq!(refused.status, 429);
    let id = refused.header("x-request-id").expect("its id").to_owned();
    assert_ne!(id, "mine");
    assert_eq!((refused.header("x-gateway-node"), refused.header("ratelimit-debug")), (None, None));
    assert_eq!(refused.json().get("node"), None);
    eventually("the refusal is known", || Some(of(&gateway, &id)).filter(Value::is_object));
    assert_eq!(gateway.admin("/v1/decisions/mine").status, 404);
}

#[test]
fn a_trusted_caller_is_told_who_decided_and_whom_it_speaks_for_is_not() {
    let gateway = Gateway::start(CONFIG);
    let own = gateway.client().request("GET", "/a", &[], "");
    let expected = "policy=\"search\";window=\"search\";decided=local;node=edge-1";
    assert_eq!(own.header("ratelimit-debug"), Some(expected));
    let spoken_for = ask(&gateway, "192.0.2.1", "one");
    assert_eq!(
        (spoken_for.header("ratelimit-debug"), spoken_for.header("x-gateway-node")),
        (None, Some("edge-1"))
    );
    for (header, to_hops) in [("always", Some("edge-1")), ("never", None)] {
        gateway.reload(
            &CONFIG.replace("name = \"edge-1\"", &format!("name = \"edge-1\"\nheader = \"{header}\"")),
        );
        assert_eq!(ask(&gateway, "192.0.2.9", "two").header("x-gateway-node"), to_hops, "{header}");
    }
}

#[test]
fn ids_of_a_hop_may_be_anything() {
    let gateway = Gateway::start(CONFIG);
    let odd = ["a/b?c=d%20&e", "\u{1b}[31mred", "same", "same"];
    for id in odd {
        (0..3).for_each(|_| drop(ask(&gateway, &format!("192.0.2.{}", id.len()), id)));
    }
    let (succeeded, shown) = said(&gateway, &["explain", "--request", "a/b?c=d%20&e"]);
    assert!(succeeded && shown.contains("request   a/b?c=d%20&e was refused"), "{shown}");
    let (_, listed) = said(&gateway, &["ctl", "decisions"]);
    assert!(!listed.contains('\u{1b}'), "{listed:?}");
    for id in ["-dash", "--x"] {
        (0..3).for_each(|_| drop(ask(&gateway, &format!("198.51.100.{}", id.len()), id)));
        let (succeeded, shown) = said(&gateway, &["explain", "--request", id]);
        assert!(succeeded && shown.contains(&format!("request   {id} was refused")), "{shown}");
    }
    // Bytes that are no text are replaced, because nobody could ask for them.
    let mut client = gateway.client();
    client
        .send(b"GET /a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.4\r\nX-Request-Id: \xff\xfe\r\n\r\n");
    let own = client.response().header("x-request-id").expect("its id").to_owned();
    assert!(own.len() == 32 && own.bytes().all(|byte| byte.is_ascii_hexdigit()), "{own:?}");
    let twice = gateway.admin("/v1/decisions/same").json();
    assert!(twice["items"].as_array().is_some_and(|items| items.len() > 1), "{twice}");
}

#[test]
fn samples_are_lines_of_a_log_bounded_by_the_second() {
    let directory = Directory::new();
    let log = directory.join("decisions.log");
    let config = format!(
        "{CONFIG}\n[log]\naccess = false\ndecisions = {{ to = {:?}, sample = \"100%\", max = \"20/s\" }}\n",
        log.display().to_string()
    );
    let gateway = Gateway::start_in(directory, &config);
    let mut client = gateway.client();
    for number in 0..200 {
        client.request("GET", "/a", &["x-forwarded-for: 192.0.2.1", &format!("x-request-id: r{number}")], "");
    }
    let samples = |result: &str| {
        gateway.metric("sluicegate_decision_samples_total", &[&format!("result=\"{result}\"")])
    };
    eventually("all are counted", || (samples("kept") + samples("dropped") == 200.0).then_some(()));
    assert!(
        samples("kept") >= 10.0 && samples("dropped") > 0.0,
        "{} {}",
        samples("kept"),
        samples("dropped")
    );
    let kept = samples("kept") as usize;
    let lines = eventually("the log is written", || {
        let text = fs::read_to_string(&log).ok()?;
        (text.lines().count() >= kept * 2).then_some(text)
    });
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), kept * 2, "a line for each of two windows");
    assert!(lines.iter().all(|line| line["kind"] == "decision" && line["node"] == "edge-1"));
    assert!(
        lines.iter().any(|line| line["admitted"] == true)
            && lines.iter().any(|line| line["allowed"] == false)
    );
}

#[test]
fn a_log_that_cannot_be_written_and_samples_that_are_off_change_nothing_for_clients() {
    let full = format!("{CONFIG}\n[log]\naccess = false\ndecisions = {{ to = \"/dev/full\" }}\n");
    let gateway = Gateway::start(&full);
    assert_eq!([1, 2, 3].map(|_| ask(&gateway, "192.0.2.1", "full").status), [200, 200, 429]);
    let dropped = || gateway.metric("sluicegate_decision_log_lines_total", &["result=\"dropped\""]);
    eventually("the lines are lost and counted", || (dropped() >= 2.0).then_some(()));
    assert_eq!(of(&gateway, "full")["admitted"], false, "it is remembered all the same");
    gateway.reload(&format!("{CONFIG}\n[log]\naccess = false\ndecisions = false\n"));
    assert_eq!(ask(&gateway, "192.0.2.1", "off").status, 429);
    assert_eq!(gateway.admin("/v1/decisions/off").status, 404);
    assert_eq!(gateway.admin("/v1/decisions/full").status, 404, "what was remembered is forgotten");
}

#[test]
fn addresses_in_keys_are_cut() {
    for (addresses, expected) in [("prefix", "ip=192.0.2.0/24"), ("hash", "ip=#")] {
        let gateway = Gateway::start(&format!("{CONFIG}\n[privacy]\naddresses = \"{addresses}\"\n"));
        (0..3).for_each(|_| drop(ask(&gateway, "192.0.2.77", "cut")));
        let decision =
            eventually("the refusal is known", || Some(of(&gateway, "cut")).filter(Value::is_object));
        assert!(
            decision["windows"][0]["key"].as_str().is_some_and(|key| key.starts_with(expected)),
            "{decision}"
        );
        assert!(!decision.to_string().contains("192.0.2.77"), "{decision}");
    }
}

#[test]
fn addresses_of_before_are_cut_once_privacy_is_stricter() {
    let gateway = Gateway::start(CONFIG);
    (0..30).for_each(|_| drop(ask(&gateway, "192.0.2.77", "before")));
    let known = |query: &str| gateway.admin(query).text();
    let hot = "/v1/hot-keys";
    eventually("both show it whole", || {
        ["/v1/decisions/before", hot].iter().all(|query| known(query).contains("ip=192.0.2.77")).then_some(())
    });
    for (addresses, expected) in [("prefix", "ip=192.0.2.0/24"), ("hash", "ip=#")] {
        gateway.reload(&format!("{CONFIG}\n[privacy]\naddresses = \"{addresses}\"\n"));
        // What comes now is of the same key, which keeps its place among the heavy ones.
        (0..30).for_each(|_| drop(ask(&gateway, "192.0.2.77", addresses)));
        let shown = of(&gateway, "before");
        assert!(shown["windows"][0]["key"].as_str().is_some_and(|key| key.starts_with(expected)), "{shown}");
        for query in ["/v1/decisions/before", "/v1/decisions", "/v1/hot-keys", "/v1/hot-keys?minutes=60"] {
            assert!(!known(query).contains("192.0.2.77"), "{query}: {}", known(query));
        }
        assert!(known(hot).contains(expected), "{}", known(hot));
        let (_, told) = said(&gateway, &["explain", "--request", "before"]);
        assert!(!told.contains("192.0.2.77") && told.contains(expected), "{told}");
    }
}

#[test]
fn addresses_of_a_databases_rows_are_cut_too() {
    let kept = Directory::new();
    let config = |privacy: &str| {
        let url = format!("sqlite:{}", kept.join("state.db").display());
        let log = "[log]\naccess = false\ndecisions = { to = \"off\" }\n";
        format!("{CONFIG}\n{privacy}\n[database]\nurl = {url:?}\n{log}")
    };
    let mut first = Gateway::start(&config(""));
    (0..3).for_each(|_| drop(ask(&first, "192.0.2.77", "row")));
    let written = || first.metric("sluicegate_decision_events_total", &["result=\"written\""]);
    eventually("the refusal is a row", || (written() >= 1.0).then_some(()));
    first.signal("TERM");
    assert!(first.wait().success());
    let second = Gateway::start(&config("[privacy]\naddresses = \"prefix\"\n"));
    let row = eventually("the database is asked", || Some(of(&second, "row")).filter(Value::is_object));
    assert!(row.to_string().contains("ip=192.0.2.0/24") && !row.to_string().contains("192.0.2.77"), "{row}");
}

const CASE: &str = r#"
[admin]
bind = "127.0.0.1:0"
token = "secret"

[node]
name = "edge-1"

[client-ip]
trust = ["127.0.0.1/32"]

[database]
url = "sqlite:state.db"

[log]
access = false
decisions = { to = "off" }

[auth.keys]
kind = "api-key"
keys = { file = "keys.toml" }

[policy.calls]
limit = "100/h"
algorithm = "fixed-window"
by = ["consumer"]

[policy.tenants]
limit = "60/h"
by = ["tenant"]

[[route]]
path = "/a"
auth = "keys"
limit = ["calls", "tenants"]
respond = {}
"#;

fn case(config: &str) -> Gateway {
    let directory = Directory::new();
    let key = |name: &str| hashed(name, &["--consumer", name, "--tenant", "acme"]);
    directory.write("keys.toml", key("ann") + &key("bob"));
    Gateway::start_in(directory, config)
}

fn call(gateway: &Gateway, consumer: &str, id: &str) -> u16 {
    let fields = [format!("X-Api-Key: {consumer}"), format!("x-request-id: {id}")];
    gateway.client().request("GET", "/a", &[&fields[0], &fields[1]], "").status
}

/// "I am limited although I have made only 40 of 100 requests."
#[test]
fn the_walk_of_a_support_case() {
    let gateway = case(CASE);
    let mut client = gateway.client();
    let mut send = |consumer: &str, times: usize| {
        let field = format!("X-Api-Key: {consumer}");
        (0..times)
            .map(|_| client.request("GET", "/a", &[&field], "").status)
            .filter(|status| *status == 200)
            .count()
    };
    assert_eq!((send("bob", 20), send("ann", 40)), (20, 40));
    assert_eq!(call(&gateway, "ann", "case-1"), 429);
    eventually("the refusal is known", || {
        let answer = gateway.ask("secret", "GET", "/v1/decisions/case-1", &[], &Value::Null);
        (answer.status == 200).then_some(())
    });
    let why = |arguments: &[&str]| {
        let (succeeded, said) = said(&gateway, &[&["why", "ann"], arguments].concat());
        assert!(succeeded, "{said}");
        said
    };
    let shown = why(&[]);
    let line = |about: &str, said: &str| {
        let found = shown.lines().any(|line| line.starts_with(about) && line.contains(said));
        assert!(found, "no {about} with {said:?} in\n{shown}");
    };
    line("nodes", "this node counts on its own");
    line("limit", "policy calls, window calls: 40 of 100 used, 60 left");
    line("override", "none");
    line("tenant", "acme, total of all its consumers: policy tenants, window tenants: 60 of 60 used, 0 left");
    line("window", "calls: a fixed window: the current one began at ");
    line(
        "refused",
        "by node edge-1, by its local count: policy tenants, window tenants, key tenant=acme, 0 of 60 left; request case-1",
    );
    // Of one policy alone.
    assert!(!why(&["--policy", "calls"]).contains("request case-1"));
    let override_ = serde_json::json!({
        "user-id": "ann", "policy": "calls", "override-type": "absolute", "value": 50, "reason": "abuse"
    });
    let made = gateway.ask("secret", "POST", "/v1/overrides", &[], &override_);
    assert_eq!(made.status, 201, "{}", made.text());
    let shown = why(&[]);
    let expected = "override  policy calls, window calls: 50 instead of 100 by override ";
    assert!(shown.lines().any(|line| line.starts_with(expected) && line.ends_with(": abuse")), "{shown}");
}

#[test]
fn a_database_explains_what_a_process_before_has_decided() {
    let kept = Directory::new();
    let url = format!("sqlite:{}", kept.join("state.db").display());
    let start = || case(&CASE.replace("sqlite:state.db", &url).replace("60/h", "1/h"));
    let mut gateway = start();
    // The database is there before anything is drawn, and again when it ends.
    eventually("the database is there", || {
        (gateway.ask("secret", "GET", "/v1/overrides", &[], &Value::Null).status == 200).then_some(())
    });
    assert_eq!([call(&gateway, "ann", "first"), call(&gateway, "ann", "kept")], [200, 429]);
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    let other = start();
    let answer = eventually("it is in the database", || {
        let answer = other.ask("secret", "GET", "/v1/decisions/kept", &[], &Value::Null);
        (answer.status == 200).then(|| answer.json())
    });
    assert_eq!(answer["items"].as_array().map(Vec::len), Some(1), "{answer}");
    assert_eq!(answer["items"][0]["windows"][0]["policy"], "tenants");
    assert!(answer["text"].as_str().is_some_and(|text| text.starts_with("request   kept was refused at ")));
    let (succeeded, shown) = said(&other, &["why", "ann"]);
    assert!(succeeded && shown.contains("request kept"), "{shown}");
}

#[test]
fn a_fleet_explains_what_any_of_its_nodes_has_decided() {
    let (server, mut redis) = (Postgres::shared(), Redis::start(&[]));
    let (url, copies) = (server.url(&server.database()), Directory::new());
    let nodes = ["edge-1", "edge-2"].map(|name| {
        let config = CASE.replace("name = \"edge-1\"", &format!("name = \"{name}\""));
        let config = config.replace(
            "url = \"sqlite:state.db\"",
            &format!("url = {url:?}\ncopy = {:?}", copies.join(name).display().to_string()),
        );
        let exact = config.replace("algorithm = \"fixed-window\"", "overshoot = 0").replace("100/h", "3/h");
        case(&format!("{exact}\n[redis]\nurl = \"redis://{}\"\ndeadline = \"500ms\"\n", redis.addr()))
    });
    for node in &nodes {
        let up = || node.ask("secret", "GET", "/metrics", &[], &Value::Null).text();
        eventually("Redis answers", || up().contains("condition=\"up\"} 1").then_some(()));
        eventually("the database is there", || {
            (node.ask("secret", "GET", "/v1/overrides", &[], &Value::Null).status == 200).then_some(())
        });
    }
    let [one, two] = &nodes;
    let window = |node: &Gateway, id: &str| {
        eventually("the refusal is known", || {
            let answer = node.ask("secret", "GET", &format!("/v1/decisions/{id}"), &[], &Value::Null);
            (answer.status == 200).then(|| answer.json()["items"][0].clone())
        })
    };
    assert_eq!([call(one, "ann", "a"), call(two, "ann", "b"), call(one, "ann", "c")], [200; 3]);
    // Asked again at once: for half a second a window that is known to be empty is not looked at in Redis.
    assert_eq!([call(one, "ann", "asked"), call(one, "ann", "known")], [429; 2]);
    let asked = window(two, "asked");
    assert_eq!(
        (&asked["node"], &asked["windows"][0]["tier"]),
        (&"edge-1".into(), &"redis".into()),
        "{asked}"
    );
    assert!(asked["windows"][0]["age-ms"].is_u64(), "{asked}");
    assert_eq!(window(two, "known")["windows"][0]["tier"], "remembered");
    let (succeeded, shown) = said(two, &["why", "ann", "--policy", "calls"]);
    assert!(succeeded, "{shown}");
    assert!(shown.contains("nodes     2 nodes count through Redis; "), "{shown}");
    assert!(shown.contains("limit     policy calls, window calls: 3 of 3 used, 0 left"), "{shown}");
    assert!(shown.contains("by node edge-1, by Redis: policy calls"), "{shown}");
    // A key that nobody has asked Redis about is decided without it.
    redis.kill();
    eventually("a node decides without Redis", || {
        let id = "alone";
        let refused = (0..5).any(|_| call(one, "bob", id) == 429);
        let shown = refused.then(|| window(one, id))?;
        (shown["windows"][0]["tier"] == "fallback").then_some(())
    });
}

#[test]
fn refusals_are_found_among_what_was_admitted_and_among_those_of_other_policies() {
    let sampled = CASE.replace("to = \"off\"", "to = \"off\", sample = \"100%\"");
    let config = sampled.replace("60/h", "2/h");
    let gateway = case(&config.replace("limit = \"100/h\"", "limit = \"1/h\""));
    assert_eq!(["a", "b", "c"].map(|id| call(&gateway, "ann", id)), [200, 429, 429]);
    assert_eq!([call(&gateway, "bob", "d"), call(&gateway, "bob", "e")], [200, 429]);
    let asked = |query: &str| {
        let answer =
            gateway.ask("secret", "GET", &format!("/v1/decisions?{query}"), &[], &Value::Null).json();
        let items = answer["items"].as_array().expect("a list").clone();
        items.iter().map(|item| item["request-id"].as_str().unwrap_or("-").to_owned()).collect::<Vec<_>>()
    };
    eventually("all are known", || (asked("limit=9").len() == 5).then_some(()));
    assert_eq!(asked("refused=true"), ["e", "c", "b"]);
    assert_eq!(asked("refused=true&consumer=ann&limit=1"), ["c"]);
    let (_, shown) = said(&gateway, &["why", "ann", "--policy", "tenants"]);
    assert!(shown.contains("no refusal of this consumer is recorded"), "{shown}");
    let (_, shown) = said(&gateway, &["why", "bob", "--policy", "tenants"]);
    assert!(shown.contains("policy tenants, window tenants") && shown.contains("request e"), "{shown}");
}

#[test]
fn a_reload_that_is_refused_leaves_every_log_where_it_was() {
    let logs = Directory::new();
    let config = |access: &str, decisions: &str| {
        let [access, decisions] = [access, decisions].map(|file| logs.join(file).display().to_string());
        format!("[log]\naccess = {{ to = {access:?} }}\ndecisions = {{ to = {decisions:?} }}\n{CONFIG}")
    };
    let before = config("access", "decisions");
    let gateway = Gateway::start(&before);
    gateway.reload_refused(&config("other", "absent/decisions"));
    gateway.reload(&before);
    assert_eq!(ask(&gateway, "192.0.2.1", "kept").status, 200);
    let read = |file: &str| fs::read_to_string(logs.join(file)).unwrap_or_default();
    eventually("its line is written", || read("access").contains("kept").then_some(()));
    assert_eq!(read("other"), "");
}

#[test]
fn an_inner_gateways_name_is_told_to_nobody_else() {
    let inner = Gateway::start(
        "[node]\nname = \"inner\"\nheader = \"always\"\n[[route]]\npath = \"/a\"\nrespond = {}\n",
    );
    let outer = format!(
        "[node]\nname = \"outer\"\n[upstream.inner]\nservers = [\"http://{}\"]\n[[route]]\npath = \"/a\"\nto = \"inner\"\n",
        inner.plain()
    );
    let outer = Gateway::start(&outer);
    assert_eq!(inner.get("/a").header("x-gateway-node"), Some("inner"));
    assert_eq!(outer.get("/a").header("x-gateway-node"), None);
}

#[test]
fn who_may_not_read_learns_nothing() {
    let gateway = case(CASE);
    for page in ["/v1/decisions", "/v1/decisions/x", "/v1/why/ann"] {
        assert_eq!(
            Client::connect(gateway.listener("admin")).request("GET", page, &[], "").status,
            401,
            "{page}"
        );
    }
}
