//! Names and passwords: who is let in, what it costs, how long it is remembered.

use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Guarded;
use super::keys::hashed;
use crate::support::gateway::binary;
use crate::support::{Client, Directory, eventually, heavy, text};

const WAYS: &str = "[auth.staff]\nkind = \"basic\"\nusers = { file = \"users.toml\" }\n";

pub(super) fn entry(name: &str, password: &str, rest: &str) -> String {
    format!("{}{rest}\n", hashed(password, &["--basic", "--consumer", name]))
}

pub(super) fn field(name: &str, password: &str) -> String {
    format!("Authorization: Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

fn guarded(users: &str, extra: &str) -> Guarded {
    let directory = Directory::new();
    directory.write("users.toml", users);
    Guarded::start(directory, WAYS, "\"staff\"", extra)
}

#[test]
fn a_name_and_its_password_identify_a_client() {
    let users = entry("ann", "open: sesame", "tenant = \"acme\"\ntier = \"pro\"")
        + &entry("bob", "pässword", "consumer = \"robert\"");
    let guarded = guarded(&users, "");
    assert_eq!(guarded.caller(&[&field("ann", "open: sesame")]), "ann acme pro");
    assert_eq!(guarded.caller(&[&field("ann", "open: sesame")]), "ann acme pro", "from memory");
    assert_eq!(guarded.caller(&[&field("bob", "pässword")]), "robert - -");
    for wrong in [
        field("ann", "open: sesam"),
        field("ann", "pässword"),
        field("nobody", "open: sesame"),
        field("", ""),
        field("ann", &"x".repeat(5_000)),
        "Authorization: Basic".to_owned(),
        "Authorization: Basic !".to_owned(),
        "Authorization: Basic YW5u".to_owned(),
        "Authorization: Basic /////w==".to_owned(),
    ] {
        let answer = guarded.refuses(&[&wrong]);
        assert_eq!(answer.header("www-authenticate"), Some("Basic realm=\"staff\", charset=\"UTF-8\""));
    }
    guarded.refuses(&[&field("ann", "open: sesame"), &field("ann", "open: sesame")]);
    guarded.refuses(&[]);
    assert!(!text(&guarded.gateway.access_log_bytes()).contains("sesam"));
}

#[test]
fn a_changed_password_is_forgotten_at_once() {
    let guarded = guarded(&entry("ann", "old", ""), "");
    assert_eq!(guarded.ask(&[&field("ann", "old")]).status, 200);
    guarded.gateway.write("users.toml", entry("ann", "new", ""));
    eventually("the new password", || (guarded.ask(&[&field("ann", "new")]).status == 200).then_some(()));
    assert_eq!(guarded.ask(&[&field("ann", "old")]).status, 401);
}

#[test]
fn guessing_keeps_no_worker_from_its_work() {
    let _alone = heavy();
    let upstream_free = "[[route]]\npath = \"/free\"\nrespond = { status = 200, body = \"ok\" }\n";
    let guarded = guarded(&entry("ann", "secret", ""), upstream_free);
    let addr = guarded.gateway.plain();
    let guessers: Vec<_> = (0..8)
        .map(|number| {
            thread::spawn(move || {
                let wrong = field("ann", &format!("guess-{number}"));
                Client::connect(addr).request("GET", "/", &[&wrong], "").status
            })
        })
        .collect();
    // Answered while the hashes are worked out, one after the other, elsewhere.
    assert_eq!(guarded.gateway.get("/free").text(), "ok");
    for guesser in guessers {
        // On a machine this busy some wait for their turn in vain.
        let status = guesser.join().expect("it ends");
        assert!(matches!(status, 401 | 503), "{status}");
    }
    assert_eq!(guarded.ask(&[&field("ann", "secret")]).status, 200);
}

#[test]
fn guessing_passwords_runs_into_a_limit_by_address() {
    let guarded = guarded(&entry("ann", "secret", ""), "limit = \"2/h by ip\"");
    assert_eq!(guarded.ask(&[&field("ann", "secret")]).status, 200);
    assert_eq!(guarded.ask(&[&field("ann", "guess")]).status, 401);
    assert_eq!(guarded.ask(&[&field("ann", "guess")]).status, 429);
    assert_eq!(guarded.ask(&[&field("ann", "secret")]).status, 429, "who it is makes no difference");
}

#[test]
fn no_idempotency_key_makes_guesses_free() {
    let limit = "limit = \"tries\"\n[policy.tries]\nby = [\"ip\"]\nlimit = \"2/h\"\n\
                 idempotency-key = { key = \"header:idempotency-key\", by-address = true }\n";
    let guarded = guarded(&entry("ann", "secret", ""), limit);
    let guess = || guarded.ask(&[&field("ann", "guess"), "idempotency-key: same"]).status;
    assert_eq!((guess(), guess(), guess()), (401, 401, 429));
}

#[test]
fn hashes_that_are_none_or_cost_too_much_are_refused() {
    let salt = "c2FsdHNhbHRzYWx0";
    let out = "aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g";
    let cases = [
        ("hunter2".to_owned(), "`hash` must be an argon2id hash"),
        (format!("$argon2i$v=19$m=4096,t=3,p=1${salt}${out}"), "`hash` must be an argon2id hash"),
        (format!("$argon2id$v=19$m=4096,t=3,p=1${salt}"), "`hash` must be an argon2id hash"),
        (format!("$argon2id$v=19$m=1048576,t=3,p=1${salt}${out}"), "this hash is too expensive"),
    ];
    for (hash, complaint) in cases {
        let directory = Directory::new();
        directory.write("users.toml", format!("[[user]]\nname = \"ann\"\nhash = \"{hash}\"\n"));
        let upstream = crate::support::Upstream::ok();
        let file = directory.write("gateway.toml", super::config(&upstream, WAYS, "\"staff\"", ""));
        let output = binary().args(["run", "--config"]).arg(file).output().expect("it ends");
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(&format!("users.toml:3: {complaint}")), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}
