//! API keys: where clients send them, which consumer they identify, and that they are never shown.

use std::io::Write;
use std::process::Stdio;

use super::{Guarded, config};
use crate::support::gateway::binary;
use crate::support::{Directory, Upstream, eventually, text};

pub(crate) const KEYS: &str = "[auth.keys]\nkind = \"api-key\"\nkeys = { file = \"keys.toml\" }\n";

/// What a file of keys holds for this key: `hash-key`'s word.
pub fn hashed(key: &str, arguments: &[&str]) -> String {
    let mut child = binary()
        .arg("hash-key")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary under test can be started");
    child.stdin.take().expect("it was asked for").write_all(key.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{:?}", output.status);
    text(&output.stdout)
}

pub(super) fn entry(key: &str, rest: &str) -> String {
    format!("{}{rest}\n", hashed(key, &["--consumer", "ann"]))
}

pub(super) fn directory(keys: &str) -> Directory {
    let directory = Directory::new();
    directory.write("keys.toml", keys);
    directory
}

#[test]
fn a_key_identifies_its_client() {
    let keys = entry("secret-1", "tenant = \"acme\"\ntier = \"pro\"") + &entry("secret-2", "");
    let guarded = Guarded::start(directory(&keys), KEYS, "\"keys\"", "");
    assert_eq!(guarded.caller(&["X-Api-Key: secret-1"]), "ann acme pro");
    assert_eq!(guarded.caller(&["Authorization: Bearer secret-2"]), "ann - -");
    let line = guarded.gateway.logged_where("a tenant", |line| line["tenant"] == "acme");
    assert_eq!(line["consumer"], "ann");
}

#[test]
fn a_digest_is_written_as_that_of_a_token_and_read_without_its_scheme_too() {
    let entry = entry("new", "");
    assert!(entry.contains("digest = \"sha256:"), "{entry}");
    let before = self::entry("old", "").replace("digest = \"sha256:", "sha256 = \"");
    let guarded = Guarded::start(directory(&(entry + &before)), KEYS, "\"keys\"", "");
    for key in ["new", "old"] {
        assert_eq!(guarded.caller(&[&format!("X-Api-Key: {key}")]), "ann - -", "{key}");
    }
}

#[test]
fn an_entry_of_a_key_carries_its_whole_identity() {
    let all = [
        "--consumer",
        "ann",
        "--tenant",
        "acme \"x\"",
        "--tier",
        "pro",
        "--expires",
        "2090-01-01T00:00:00Z",
        "--claim",
        "role=dev",
        "--claim",
        "role=ops",
        "--claim",
        "org.plan=a=b",
    ];
    let keys = hashed("k", &all) + &entry("old", "expires = 2020-01-01");
    assert!(keys.contains("claims = { "), "one line a key: {keys}");
    let require = "require = { claims = { role = [\"ops\"], \"org.plan\" = [\"a=b\"] } }";
    let guarded = Guarded::start(directory(&keys), KEYS, "\"keys\"", require);
    assert_eq!(guarded.caller(&["X-Api-Key: k"]), "ann acme \"x\" pro");
    guarded.refuses(&["X-Api-Key: old"]);
    assert_eq!(
        guarded.gateway.logged_where("a refusal", |line| line["status"] == 401)["cause"],
        "api-key-expired"
    );
    for wrong in [
        ["--expires", "2090-01-01T00:00:00"],
        ["--expires", "2020-01-01"],
        ["--expires", "soon"],
        ["--claim", "role"],
        ["--claim", "=x"],
        ["--consumer", ""],
    ] {
        let output = binary().arg("hash-key").args(wrong).stdin(Stdio::null()).output().expect("it ends");
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", text(&output.stderr));
    }
    let with_colon = ["hash-key", "--new", "--basic", "--consumer", "a:b"];
    let output = binary().args(with_colon).output().expect("it ends");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{}", text(&output.stderr));
    let user = hashed("pw", &["--basic", "--consumer", "ann", "--tier", "pro"]);
    assert!(user.starts_with("[[user]]") && user.ends_with("tier = \"pro\"\n"), "{user}");
}

#[test]
fn no_key_and_a_wrong_key_get_the_same_answer() {
    let keys = entry("secret", "") + &entry("old", "expires = 2020-01-01T00:00:00Z");
    let guarded = Guarded::start(directory(&keys), KEYS, "\"keys\"", "");
    let long = format!("X-Api-Key: {}", "k".repeat(20_000));
    let mut bodies = Vec::new();
    for fields in [
        &[][..],
        &["X-Api-Key: wrong"],
        &["X-Api-Key: old"],
        &["X-Api-Key:"],
        &["X-Api-Key: secret", "X-Api-Key: secret"],
        &["X-Api-Key: secret", "Authorization: Bearer secret"],
        &["X-Api-Key: secret", "Authorization: Basic YTpi", "Authorization: Basic YTpi"],
        &["Authorization: Bearer secret", "Authorization: Bearer wrong"],
        &["Authorization: secret"],
        &["X-Api-Key: sécrét\u{80}"],
        &[&long],
    ] {
        let answer = guarded.refuses(fields);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"keys\""));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let mut problem = answer.json();
        assert_eq!(problem["reason"], "unauthenticated");
        problem["request-id"] = "".into();
        bodies.push(problem);
    }
    assert!(bodies.windows(2).all(|two| two[0] == two[1]), "{bodies:?}");
    assert_eq!(guarded.caller(&["X-Api-Key: secret"]), "ann - -");
    assert_eq!(
        guarded.gateway.logged_where("401", |line| line["status"] == 401)["reason"],
        "unauthenticated"
    );
    assert_eq!(
        guarded.gateway.metric("sluicegate_refused_requests_total", &["reason=\"unauthenticated\""]),
        11.0
    );
}

#[test]
fn a_key_in_the_query_is_taken_only_where_that_is_written_and_never_logged() {
    let ways = "[auth.keys]\nkind = \"api-key\"\nin = [\"query:api_key\", \"header:x-api-key\"]\nkeys = { file = \"keys.toml\" }\n";
    let guarded = Guarded::start(directory(&entry("secret", "")), ways, "\"keys\"", "");
    let mut client = guarded.gateway.client();
    assert_eq!(client.get("/a?x=1&api_key=secret").status, 200);
    assert_eq!(guarded.upstream.request().line, "GET /a?x=1&api_key=secret HTTP/1.1");
    assert_eq!(client.get("/b?api_key=wrong").status, 401);
    assert_eq!(client.request("GET", "/c?api_key=secret", &["X-Api-Key: secret"], "").status, 401);
    assert_eq!(guarded.gateway.logged("/a?x=1&api_key=***")["status"], 200);
    guarded.gateway.logged("/c?api_key=***");
    assert!(!text(&guarded.gateway.access_log_bytes()).contains("secret"));

    let guarded = Guarded::start(directory(&entry("secret", "")), KEYS, "\"keys\"", "");
    assert_eq!(guarded.gateway.get("/?api_key=secret").status, 401);
}

#[test]
fn the_upstream_sees_a_credential_unless_configured_otherwise() {
    let ways =
        |pass| format!("{KEYS}in = [\"header:x-api-key\", \"bearer\", \"query:api_key\"]\npass = {pass}\n");
    let keys = entry("secret", "");
    let guarded = Guarded::start(directory(&keys), &ways("true"), "\"keys\"", "");
    guarded.ask(&["X-Api-Key: secret"]);
    assert_eq!(guarded.upstream.request().header("x-api-key").as_deref(), Some("secret"));

    let policy = "[policy.once]\nby = [\"header:x-api-key\"]\nlimit = \"1/h\"\nmissing = \"skip\"\n";
    let guarded = Guarded::start(directory(&keys), &(ways("false") + policy), "\"keys\"", "limit = \"once\"");
    guarded.ask(&["X-Api-Key: secret", "X-Other: 1", "Authorization: Basic YTpi"]);
    let request = guarded.upstream.request();
    assert_eq!(request.line, "GET / HTTP/1.1", "no query comes where none was");
    assert_eq!((request.header("x-api-key"), request.header("x-other").as_deref()), (None, Some("1")));
    assert_eq!(request.header("authorization").as_deref(), Some("Basic YTpi"), "another scheme is not ours");
    assert_eq!(guarded.ask(&["X-Api-Key: secret"]).status, 429, "limits still see the key");
    guarded.ask(&["Authorization: Bearer secret"]);
    assert_eq!(guarded.upstream.request().header("authorization"), None);
    let mut client = guarded.gateway.client();
    client.get("/p?api_key=secret&n=1");
    assert_eq!(guarded.upstream.request().line, "GET /p?n=1 HTTP/1.1");
    client.get("/p?api_key=secret");
    assert_eq!(guarded.upstream.request().line, "GET /p HTTP/1.1");
}

#[test]
fn a_changed_file_takes_effect_and_a_broken_one_does_not() {
    let guarded = Guarded::start(directory(&entry("old", "")), KEYS, "\"keys\"", "");
    let gateway = &guarded.gateway;
    gateway.write("keys.toml", entry("new", ""));
    eventually("the new key", || (guarded.ask(&["X-Api-Key: new"]).status == 200).then_some(()));
    assert_eq!(guarded.ask(&["X-Api-Key: old"]).status, 401);

    gateway.write("keys.toml", "[[key]]\nkey = \"new\"\nconsumer = \"ann\"\n");
    let complaint = "keys.toml:2: write the key's `digest`";
    eventually("the complaint", || {
        gateway.stderr().iter().any(|line| line.contains(complaint)).then_some(())
    });
    assert_eq!(guarded.ask(&["X-Api-Key: new"]).status, 200);
    gateway.reload_refused(&config(&guarded.upstream, KEYS, "\"keys\"", ""));
    assert_eq!(guarded.ask(&["X-Api-Key: new"]).status, 200);

    gateway.write("keys.toml", entry("newest", ""));
    gateway.reload(&config(&guarded.upstream, KEYS, "\"keys\"", ""));
    assert_eq!(guarded.ask(&["X-Api-Key: newest"]).status, 200);

    gateway.write("keys.toml", "");
    let warned =
        |line: &String| line.contains("WARN") && line.contains("keys.toml is empty: every client is refused");
    eventually("a warning that it is empty", || gateway.stderr().iter().any(warned).then_some(()));
    assert_eq!(guarded.ask(&["X-Api-Key: newest"]).status, 401);
    for read in ["entries=1", "entries=0"] {
        let is_it = |line: &String| line.contains("credentials read again") && line.contains(read);
        assert!(gateway.stderr().iter().any(is_it), "{read}");
    }
    assert!(!gateway.stderr().iter().any(|line| line.contains("newest") || line.contains("\"new\"")));
}

#[test]
fn a_file_that_cannot_be_used_stops_the_start() {
    let twice = entry("a", "") + &entry("a", "");
    let cases = [
        (twice.as_str(), "keys.toml:6: another entry has this key"),
        ("[[key]]\nconsumer = \"ann\"\n", "key 1: `digest` is missing"),
        (
            "[[key]]\ndigest = \"hunter2\"\nconsumer = \"ann\"\n",
            "keys.toml:2: `digest` must be `sha256:` and 64",
        ),
        (
            "[[key]]\nsha256 = \"hunter2\"\nconsumer = \"ann\"\n",
            "keys.toml:2: `digest` must be `sha256:` and 64",
        ),
        ("[[key]]\ndigest = \"a\"\nsha256 = \"a\"\n", "keys.toml:2: `digest` and `sha256` say the same"),
        ("[[key]]\nsha256 = 1\n", "keys.toml:2:"),
        ("[[key]]\nconsumer = [\"hunter2\"]\n", "keys.toml:2:"),
    ];
    for (keys, complaint) in cases {
        let directory = directory(keys);
        let upstream = Upstream::ok();
        let file = directory.write("gateway.toml", config(&upstream, KEYS, "\"keys\"", ""));
        let output = binary().args(["run", "--config"]).arg(file).output().expect("it ends");
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(complaint), "{complaint}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_new_key_is_shown_once_and_works() {
    let output = binary().args(["hash-key", "--new", "--consumer", "bob"]).output().expect("it ends");
    let said = text(&output.stderr);
    let key = said.trim().rsplit(' ').next().expect("a key");
    assert!(key.starts_with("sg_") && key.len() > 40, "{said}");
    let guarded = Guarded::start(directory(&text(&output.stdout)), KEYS, "\"keys\"", "");
    assert_eq!(guarded.caller(&[&format!("X-Api-Key: {key}")]), "bob - -");
}

#[test]
fn anonymous_is_for_clients_without_credentials() {
    let ways = format!("{KEYS}[auth.open]\nkind = \"anonymous\"\nconsumer = \"guest\"\ntier = \"free\"\n");
    let guarded = Guarded::start(directory(&entry("secret", "")), &ways, "[\"keys\", \"open\"]", "");
    assert_eq!(guarded.caller(&[]), "guest - free");
    assert_eq!(guarded.caller(&["X-Api-Key: secret"]), "ann - -");
    guarded.refuses(&["X-Api-Key: wrong"]);
}

#[test]
fn claims_of_a_key_count_and_travel() {
    let keys = entry("one", "claims = { plan = \"a\", roles = [\"x\", \"y\"], n = 7, deep = { er = true } }")
        + &entry("two", "claims = { plan = \"b\" }");
    let extra = "limit = \"2/h by claim:plan\"\nresponse-headers = { set = { x-said = \"{claim:plan} {claim:roles} {claim:n} {claim:deep.er}\" } }";
    let guarded = Guarded::start(directory(&keys), KEYS, "\"keys\"", extra);
    assert_eq!(guarded.ask(&["X-Api-Key: one"]).header("x-said"), Some("a x,y 7 true"));
    assert_eq!(guarded.ask(&["X-Api-Key: one"]).status, 200);
    assert_eq!(guarded.ask(&["X-Api-Key: one"]).status, 429);
    assert_eq!(guarded.ask(&["X-Api-Key: two"]).status, 200);
}

#[test]
fn refused_clients_are_counted_by_address_and_never_by_name() {
    let extra = "limit = [\"2/h by ip\", \"100/h by consumer\"]";
    let guarded = Guarded::start(directory(&entry("secret", "")), KEYS, "\"keys\"", extra);
    let answer = guarded.refuses(&["X-Api-Key: wrong"]);
    assert_eq!(answer.number("x-ratelimit-remaining"), 1);
    guarded.refuses(&["X-Api-Key: wrong"]);
    assert_eq!(guarded.ask(&["X-Api-Key: wrong"]).status, 429, "guessing ends");
    assert_eq!(guarded.ask(&["X-Api-Key: secret"]).status, 429, "from this address");
}

#[test]
fn explain_names_the_consumer_and_shows_no_key() {
    let keys = entry("secret", "tenant = \"acme\"");
    let extra = "require = { tenants = [\"acme\"] }\nlimit = [\"5/h by consumer\", \"9/h by ip\"]";
    let guarded = Guarded::start(directory(&keys), KEYS, "\"keys\"", extra);
    let explain = |key: &str| {
        let config = guarded.gateway.file("gateway.toml");
        let header = format!("X-Api-Key: {key}");
        let output = binary().args(["explain", "GET", "/", "-H", &header, "--config"]).arg(config).output();
        text(&output.expect("it ends").stdout)
    };
    let said = explain("secret");
    assert!(
        said.contains("identity consumer ann, tenant acme, tier none, authenticated by [auth.keys]"),
        "{said}"
    );
    assert!(said.contains("by consumer") && said.contains("by ip") && !said.contains("secret"), "{said}");
    let said = explain("wrong");
    assert!(said.contains("refused  401: the route asks for valid credentials"), "{said}");
    assert!(!said.contains("by consumer") && said.contains("by ip"), "{said}");
}
