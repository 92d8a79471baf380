//! The cause of a refused credential is shown to operators, in the log, the metrics and `explain`, and to no client.

use std::collections::BTreeSet;

use jsonwebtoken::get_current_timestamp;
use serde_json::{Value, json};

use super::jwt::{Key, claims, set, ways};
use super::mtls::{self, BY_EMAIL};
use super::{Guarded, basic, keys};
use crate::support::tls::{self, Authority};
use crate::support::{Directory, eventually, text};

/// Every case is refused by the same answer, and its cause stands in its line, is counted, and is what `explain` says.
fn told(guarded: &Guarded, way: &str, cases: &[(&str, Vec<String>)]) {
    let mut answers = BTreeSet::new();
    for (number, (cause, fields)) in cases.iter().enumerate() {
        let path = format!("/{way}/{cause}/{number}");
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let counted = || guarded.gateway.metric("sluicegate_causes_total", &[&format!("cause=\"{cause}\"")]);
        let before = counted();
        let answer = guarded.gateway.client().request("GET", &path, &fields, "");
        assert_eq!(answer.status, 401, "{cause}: {answer:?}");
        let line = guarded.gateway.logged(&path);
        assert_eq!(
            (line["reason"].as_str(), line["cause"].as_str()),
            (Some("unauthenticated"), Some(*cause))
        );
        assert_eq!(counted(), before + 1.0, "{cause}");
        let id = answer.header("x-request-id").expect("an id").to_owned();
        let fields: Vec<_> =
            answer.headers.iter().filter(|(name, _)| name != "date" && name != "x-request-id").collect();
        answers.insert(format!("{fields:?} {}", answer.text().replace(&id, "")));
        explained(guarded, way, cause, &cases[number].1);
    }
    assert_eq!(answers.len(), 1, "clients are told apart: {answers:?}");
    assert!(guarded.upstream.is_quiet());
}

/// `explain` on the admin listener names the cause.
fn explained(guarded: &Guarded, way: &str, cause: &str, fields: &[String]) {
    // Passwords are worked out for requests only; two fields are one way to say nothing.
    if cause.starts_with("password") || cause.starts_with("user") || cause == "credential-twice" {
        return;
    }
    let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let headers: String = fields.iter().map(|field| format!("&header={}", encoded(field))).collect();
    let shown = guarded.gateway.admin(&format!("/v1/explain?url=/{headers}")).json();
    if cause == "credential-missing" {
        assert_eq!(shown["causes"], json!({}), "{shown}");
    } else {
        assert_eq!(shown["causes"][way], *cause, "{shown}");
    }
    assert!(shown["text"].as_str().is_some_and(|text| text.contains("not authenticated (")), "{shown}");
}

fn bearer(token: &str) -> Vec<String> {
    vec![format!("Authorization: Bearer {token}")]
}

#[test]
fn the_fault_of_a_token_is_shown_only_to_operators() {
    let (key, forger, stranger) = (Key::new("one"), Key::new("one"), Key::new("two"));
    let directory = Directory::new();
    directory.write("jwks.json", set(&[&key]));
    let way = ways("keys = { file = \"jwks.json\" }\ntyp = \"JWT\"");
    let guarded = Guarded::start(directory, &way, "\"jwt\"", "");
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        bearer(&key.sign(&claims))
    };
    let now = get_current_timestamp();
    let without = |name: &str| {
        let mut claims = claims();
        claims.as_object_mut().expect("an object").remove(name);
        bearer(&key.sign(&claims))
    };
    let good = key.field();
    told(
        &guarded,
        "jwt",
        &[
            ("credential-missing", vec![]),
            ("credential-twice", vec![good.clone(), good]),
            ("token-malformed", bearer("x")),
            ("token-malformed", bearer("x.y.z")),
            ("token-algorithm", bearer("eyJhbGciOiJub25lIn0.e30.")),
            ("token-algorithm", bearer("eyJhbGciOiJIUzI1NiJ9.e30.AAAA")),
            ("token-key-unknown", vec![stranger.field()]),
            ("token-signature", vec![forger.field()]),
            ("token-expired", with("exp", json!(now - 60))),
            ("token-not-yet-valid", with("nbf", json!(now + 600))),
            ("token-issuer", with("iss", json!("you"))),
            ("token-audience", with("aud", json!("web"))),
            ("token-claims", without("exp")),
            ("token-claims", with("exp", json!("soon"))),
            ("token-without-consumer", without("sub")),
        ],
    );
}

#[test]
fn of_several_methods_the_one_that_got_farthest_gives_the_cause() {
    let key = Key::new("one");
    let directory = Directory::new();
    directory.write("jwks.json", set(&[&key]));
    directory.write("keys.toml", keys::entry("old", "expires = 2020-01-01T00:00:00Z"));
    let all = ways("keys = { file = \"jwks.json\" }") + keys::KEYS;
    let guarded = Guarded::start(directory, &all, "[\"keys\", \"jwt\"]", "");
    let mut expired = claims();
    expired["exp"] = (get_current_timestamp() - 60).into();
    // The token is an unknown API key as well, and the key no token.
    told(&guarded, "jwt", &[("token-expired", bearer(&key.sign(&expired)))]);
    told(
        &guarded,
        "keys",
        &[("api-key-unknown", bearer("new")), ("api-key-expired", vec!["X-Api-Key: old".to_owned()])],
    );
}

#[test]
fn the_fault_of_a_password_is_shown_only_to_operators() {
    let directory = Directory::new();
    let users = basic::entry("ann", "sesame", "") + &basic::entry("old", "sesame", "expires = 2020-01-01");
    directory.write("users.toml", users);
    let way = "[auth.staff]\nkind = \"basic\"\nusers = { file = \"users.toml\" }\n";
    let guarded = Guarded::start(directory, way, "\"staff\"", "");
    told(
        &guarded,
        "staff",
        &[
            ("credential-malformed", vec!["Authorization: Basic !".to_owned()]),
            ("user-unknown", vec![basic::field("bob", "sesame")]),
            ("password-wrong", vec![basic::field("ann", "sesam")]),
            ("user-expired", vec![basic::field("old", "sesame")]),
        ],
    );
    assert!(!text(&guarded.gateway.access_log_bytes()).contains("sesam"));
}

#[test]
fn what_a_client_lacks_is_shown_only_to_operators() {
    for (require, cause) in [
        ("{ consumers = [\"bob\"] }", "consumer-not-allowed"),
        ("{ tenants = [\"other\"] }", "tenant-not-allowed"),
        ("{ tenants = [\"acme\"], tiers = [\"pro\"] }", "tier-not-allowed"),
        ("{ claims = { role = [\"admin\"] } }", "claim-not-allowed"),
    ] {
        let directory = Directory::new();
        directory.write("keys.toml", keys::entry("k", "tenant = \"acme\"\ntier = \"free\""));
        let guarded = Guarded::start(directory, keys::KEYS, "\"keys\"", &format!("require = {require}"));
        let answer = guarded.ask(&["X-Api-Key: k"]);
        assert_eq!((answer.status, answer.text().contains(cause)), (403, false), "{answer:?}");
        assert_eq!(guarded.gateway.logged("/")["cause"], cause);
        let shown = guarded.gateway.admin("/v1/explain?url=/&header=x-api-key:k").json();
        assert!(shown["refused"].as_str().is_some_and(|it| it.contains("route")), "{shown}");
    }
}

#[test]
fn why_a_certificate_was_refused_is_logged_and_counted() {
    let directory = Directory::new();
    let (authority, other) = (Authority::new("clients"), Authority::new("clients"));
    directory.write("ca.pem", &authority.pem);
    directory.write("crl.pem", authority.revoking(&[1]));
    let (gateway, _upstream, _) = mtls::start(directory, "client-crl = \"crl.pem\"", BY_EMAIL);
    let addr = gateway.listener("tls");
    let session = |client: &tls::Client| tls::session_as(client, rustls::ALL_VERSIONS);
    let named = |authority: &Authority, serial, until| authority.client("a@example.com", "a", serial, until);
    for (cause, session, answered) in [
        ("tls-certificate-revoked", session(&named(&authority, 1, 2090)), None),
        ("tls-certificate-expired", session(&named(&authority, 2, 2020)), None),
        ("tls-unknown-issuer", session(&named(&other, 3, 2090)), None),
        ("tls-certificate-missing", tls::session(&[], rustls::ALL_VERSIONS), None),
        ("certificate-without-consumer", session(&authority.client("", "a", 4, 2090)), Some(401)),
    ] {
        assert_eq!(mtls::status(addr, &session), answered, "{cause}");
        let line = gateway.logged_where(cause, |line| line["cause"] == cause);
        let reason = if answered.is_some() { "unauthenticated" } else { "tls-handshake" };
        assert_eq!((line["reason"].as_str(), line["client"].as_str()), (Some(reason), Some("127.0.0.1")));
        assert_eq!(gateway.metric("sluicegate_causes_total", &[&format!("cause=\"{cause}\"")]), 1.0);
    }
    // A list that is over says nothing of anybody.
    gateway.write("crl.pem", authority.revoking_until(&[1], 2025));
    let good = session(&named(&authority, 5, 2090));
    eventually("the newer list", || mtls::status(addr, &good).is_none().then_some(()));
    assert_eq!(
        gateway.logged_where("no list", |line| line["cause"] == "tls-revocation-unknown")["status"],
        0
    );
    eventually("a line", || {
        gateway
            .stderr()
            .iter()
            .any(|line| line.contains("has expired: clients of its authority"))
            .then_some(())
    });
    let end = gateway
        .metric("sluicegate_certificate_expiry_timestamp_seconds", &["listener=\"tls\"", "subject=\"\""]);
    assert_eq!(end, 1_735_689_600.0);
    // Who only looks for open ports is counted, and fills no log.
    let mut scanner = crate::support::Client::connect(addr);
    scanner.send("GET / HTTP/1.1\r\n\r\n");
    scanner.rest();
    let protocol = &["cause=\"tls-protocol\""];
    eventually("the count", || (gateway.metric("sluicegate_causes_total", protocol) == 1.0).then_some(()));
    assert!(gateway.access_log().iter().all(|line| line["cause"] != "tls-protocol"));
}
