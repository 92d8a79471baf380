//! `exempt` of a policy, as clients and operators meet it.

use serde_json::{Value, json};

use crate::auth::keys::hashed;
use crate::support::gateway::binary;
use crate::support::rls::{Rls, descriptor};
use crate::support::{Directory, Gateway, Response, text};

const OPEN: &str = "[admin]\nbind = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"\n";
const OPERATE: &str = "tokens = [{ name = \"operate\", role = \"operate\", token = \"operate-1\" }]\n";
const SHARED: &str = "limit = \"2/h\"\npenalty = { after = 1, within = \"1h\", max = \"2h\" }";

/// Everybody may speak for a client, and a key is optional. `/a` has the policy `calls` under these exemptions, and `each`
/// beside it, which nobody is exempt from.
fn config(exempt: &str) -> String {
    format!(
        "{OPEN}[client-ip]\ntrust = [\"127.0.0.1/32\"]\n[tier.internal]\nlimit = \"9/h\"\n\
         [auth.keys]\nkind = \"api-key\"\nkeys = {{ file = \"keys.toml\" }}\n\
         [auth.anyone]\nkind = \"anonymous\"\n\
         [policy.calls]\nby = []\n{SHARED}\n{exempt}\n[policy.each]\nby = [\"ip\"]\nlimit = \"9/h\"\n\
         [rls.edge]\ndescriptors = [{{ entries = {{ remote_address = \"*\" }}, limit = \"calls\" }}]\n\
         [[route]]\npath = \"/a\"\nauth = [\"keys\", \"anyone\"]\nlimit = [\"calls\", \"each\"]\nrespond = {{}}\n\
         [[route]]\npath = \"/alone\"\nlimit = \"calls\"\nrespond = {{}}\n"
    )
}

const EXEMPT: &str = "exempt = { ip = [\"10.0.0.0/8\", \"2001:db8::/32\"], consumer = [\"monitor\"], tenant = \"own\", \
    tier = [\"internal\"], header = { x-probe = \"${file:probe.key}\" } }";

fn gateway(exempt: &str) -> Gateway {
    start(&config(exempt))
}

fn start(config: &str) -> Gateway {
    let directory = Directory::new();
    let keys = [
        hashed("monitor", &["--consumer", "monitor"]),
        hashed("own", &["--consumer", "bob", "--tenant", "own"]),
        hashed("internal", &["--consumer", "eve", "--tier", "internal"]),
        hashed("ann", &["--consumer", "ann"]),
    ];
    directory.write("keys.toml", keys.join("\n"));
    directory.write("probe.key", "hunter2\n");
    Gateway::start_in(directory, config)
}

fn ask(gateway: &Gateway, target: &str, from: &str, field: &str) -> Response {
    gateway.client().request("GET", target, &[&format!("X-Forwarded-For: {from}"), field], "")
}

fn decisions(gateway: &Gateway, outcome: &str) -> f64 {
    let labels = ["policy=\"calls\"", &format!("outcome=\"{outcome}\"")];
    gateway.metric("sluicegate_decisions_total", &labels)
}

/// Uses the limit up, and provokes a penalty.
fn use_up(gateway: &Gateway) {
    for status in [200, 200, 429, 429] {
        assert_eq!(ask(gateway, "/a", "192.0.2.1", "X-A: b").status, status);
    }
}

#[test]
fn who_is_exempt_is_neither_charged_nor_refused() {
    let gateway = gateway(EXEMPT);
    use_up(&gateway);
    let exempt = [
        ("10.1.2.3", "X-A: b", "ip 10.0.0.0/8"),
        ("::ffff:10.1.2.3", "X-A: b", "ip 10.0.0.0/8"),
        ("64:ff9b::10.1.2.3", "X-A: b", "ip 10.0.0.0/8"),
        ("2001:db8:1::1", "X-A: b", "ip 2001:db8::/32"),
        ("192.0.2.2", "X-Api-Key: monitor", "consumer monitor"),
        ("192.0.2.3", "X-Api-Key: own", "tenant own"),
        ("192.0.2.4", "X-Api-Key: internal", "tier internal"),
        ("192.0.2.5", "X-Probe: hunter2", "header:x-probe"),
    ];
    for (from, field, entry) in exempt {
        let answer = ask(&gateway, "/a", from, field);
        assert_eq!(answer.status, 200, "{entry}");
        let policy = answer.header("ratelimit-policy");
        assert_eq!(policy, Some("\"each\";q=9;w=3600"), "the fields of the other policy alone");
        let client = from.parse::<std::net::IpAddr>().expect("an address").to_canonical().to_string();
        let logged = gateway.logged_where("the exemption", |line| line["client"] == client);
        assert_eq!((&logged["decision"], &logged["policy"]), (&json!("exempt"), &json!("calls")), "{logged}");
        let header = field.replace(": ", ":");
        let explained = gateway.admin(&format!(
            "/v1/explain?url=/a&from=127.0.0.1&header=x-forwarded-for:{from}&header={header}"
        ));
        let explained = explained.json();
        assert_eq!(explained["exempt"], json!([{ "policy": "calls", "entry": entry }]), "{explained}");
        assert_eq!(explained["limits"].as_array().map(Vec::len), Some(1), "{explained}");
        let line = format!("exempt   from calls: {entry}\n");
        assert!(explained["text"].as_str().is_some_and(|text| text.contains(&line)), "{explained}");
    }
    let alone = ask(&gateway, "/alone", "10.1.2.3", "X-A: b");
    assert_eq!(
        (alone.status, alone.header("ratelimit"), alone.header("x-ratelimit-limit")),
        (200, None, None)
    );
    // Names that nobody has authenticated, and values that are nearly right.
    for (from, field) in [
        ("192.0.3.1", "X-Consumer: monitor"),
        ("192.0.3.2", "X-Api-Key: ann"),
        ("192.0.3.3", "X-Probe: hunter"),
        ("192.0.3.4", "X-Probe: Hunter2"),
        ("11.0.0.1", "X-Real-Ip: 10.1.2.3"),
    ] {
        assert_eq!(ask(&gateway, "/a", from, field).status, 429, "{field}");
    }
    assert_eq!(decisions(&gateway, "exempt"), exempt.len() as f64 + 1.0);
    assert_eq!(decisions(&gateway, "admitted"), 2.0);
    // The others count who is exempt here.
    for status in [200; 6].into_iter().chain([429]) {
        assert_eq!(ask(&gateway, "/a", "10.1.2.3", "X-A: b").status, status);
    }
    let page = gateway.admin("/config").text();
    assert!(page.contains("x-probe") && !page.contains("hunter2"), "{page}");
}

#[test]
fn a_reload_exempts_others() {
    let gateway = gateway("exempt = { ip = \"10.0.0.0/8\" }");
    use_up(&gateway);
    let statuses = || ["10.0.0.1", "172.16.0.1"].map(|from| ask(&gateway, "/alone", from, "X-A: b").status);
    assert_eq!(statuses(), [200, 429]);
    gateway.reload(&config("exempt = { ip = \"172.16.0.0/12\" }"));
    assert_eq!(statuses(), [429, 200]);
    gateway.reload_refused(&config("exempt = { tier = \"unheard-of\" }"));
    assert_eq!(statuses(), [429, 200]);
    gateway.reload(&config(""));
    assert_eq!(statuses(), [429, 429]);
}

#[test]
fn checks_of_programs_and_proxies_are_exempt_by_what_they_name() {
    let gateway = start(&config(EXEMPT).replacen(OPEN, &format!("{OPEN}{OPERATE}"), 1));
    use_up(&gateway);
    let check = |dimensions: Value| {
        let body = json!({ "policy": "calls", "dimensions": dimensions });
        gateway.ask("operate-1", "POST", "/v1/limits:check", &[], &body).json()["allowed"].clone()
    };
    for (dimensions, is_allowed) in [
        (json!({ "ip": "10.1.2.3" }), true),
        (json!({ "consumer": "monitor" }), true),
        (json!({ "tenant": "own" }), true),
        (json!({ "ip": "192.0.2.9", "consumer": "ann" }), false),
        (json!({}), false),
    ] {
        assert_eq!(check(dimensions.clone()), is_allowed, "{dimensions}");
    }
    let mut rls = Rls::connect(gateway.listener("grpc"));
    for (address, code) in
        [("10.1.2.3", rls::RateLimitCode::Ok), ("192.0.2.9", rls::RateLimitCode::OverLimit)]
    {
        let answer = rls.ask("edge", &[descriptor(&[("remote_address", address)])]);
        assert_eq!(answer.overall_code(), code, "{address}");
        assert_eq!(answer.response_headers_to_add.is_empty(), code == rls::RateLimitCode::Ok, "{address}");
    }
    let counted = gateway.ask("operate-1", "GET", "/metrics", &[], &Value::Null).text();
    let line = "sluicegate_decisions_total{policy=\"calls\",outcome=\"exempt\"} 4\n";
    assert!(counted.contains(line), "{counted}");
}

#[test]
fn a_candidate_exempts_whom_its_policy_exempts() {
    let exempt = "exempt = { ip = \"10.0.0.0/8\" }\n[policy.next]\nreplaces = \"calls\"\nlimit = \"1/h\"\nrollout = \"100%\"";
    let gateway = gateway(exempt);
    for _ in 0..5 {
        assert_eq!(ask(&gateway, "/alone", "10.0.0.1", "X-A: b").status, 200);
    }
    let statuses = [0; 2].map(|_| ask(&gateway, "/alone", "192.0.2.1", "X-A: b").status);
    assert_eq!(statuses, [200, 429]);
    let next = ["policy=\"next\"", "outcome=\"exempt\""];
    assert_eq!(
        (decisions(&gateway, "exempt"), gateway.metric("sluicegate_decisions_total", &next)),
        (5.0, 5.0)
    );
}

#[test]
fn replay_charges_nobody_who_is_exempt() {
    let directory = Directory::new();
    let line = |number: u8| {
        let network = if number.is_multiple_of(2) { "10.0.0" } else { "192.0.2" };
        format!("{network}.{number} - - [20/Nov/2026:10:00:{number:02} +0000] \"GET /a HTTP/1.1\" 200 5\n")
    };
    directory.write("access.log", (0..10).map(line).collect::<String>());
    directory.write(
        "gateway.toml",
        "[policy.calls]\nby = []\nlimit = \"3/h\"\nexempt = { ip = \"10.0.0.0/8\" }\n\
         [[route]]\npath = \"/a\"\nlimit = \"calls\"\nrespond = {}\n",
    );
    let mut command = binary();
    command.current_dir(directory.join("")).args([
        "replay",
        "--json",
        "--config",
        "gateway.toml",
        "--log",
        "access.log",
    ]);
    let output = command.output().expect("the binary under test can be started");
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let policy = &report["candidate"]["policies"][0];
    assert_eq!((&policy["admitted"], &policy["denied"]), (&json!(3), &json!(2)), "{policy}");
}
