//! The page of the admin listener in a real Chromium, driven by the scripts of tests/page, and `sluicegate top` in a
//! pseudo-terminal.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::python::interpreter;
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, eventually, heavy, text};

/// Runs a script of tests/page to its end, which it says in a word.
fn drive(script: &str, gateway: &Gateway, more: &[&str], word: &str) {
    let url = |addr: SocketAddr| format!("http://{addr}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page");
    let output = Command::new("timeout")
        .arg("300")
        .arg(interpreter())
        .arg(folder.join(script))
        .args(more.iter().take_while(|argument| argument.ends_with("sluicegate")))
        .args([url(gateway.listener("admin")), url(gateway.plain())])
        .args(more.iter().skip_while(|argument| argument.ends_with("sluicegate")))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("timeout is part of coreutils");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success() && said.contains(word), "{script}: {said}");
}

#[test]
fn the_page_loads_follows_and_explains() {
    let _alone = heavy();
    drive("watch.py", &Gateway::start(CONFIG), &[], "watched");
}

#[test]
fn the_page_is_there_for_keyboards_and_screen_readers() {
    let _alone = heavy();
    drive("accessible.py", &Gateway::start(CONFIG), &[], "accessible");
}

#[test]
fn the_page_asks_for_a_token_until_it_ends_and_changes_what_its_role_may() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    let expires = now + Duration::from_secs(40);
    let shown = text(&time_of(expires).into_bytes());
    let gateway = Gateway::start(&format!(
        "{CONFIG}{DATABASE}[admin]\nbind = \"127.0.0.1:0\"\ntokens = [\n  {{ name = \"brief\", token = \"short-lived\", role = \"read\", expires = \"{shown}\" }},\n  {{ name = \"olga\", token = \"may-operate\", role = \"operate\" }},\n]\n"
    ));
    drive("access.py", &gateway, &[&expires.as_secs().to_string()], "accessed");
}

#[test]
fn a_refusal_is_found_by_its_id_and_a_hot_key_without_any() {
    let _alone = heavy();
    drive("asked.py", &Gateway::start(CONFIG), &[], "asked");
}

#[test]
fn hostile_names_are_text_on_the_page() {
    let _alone = heavy();
    drive("hostile.py", &Gateway::start(&format!("{CONFIG}{DATABASE}")), &[], "harmless");
}

#[test]
fn ten_thousand_routes_make_no_large_page() {
    let _alone = heavy();
    let route = |number: usize| {
        format!(
            "[[route]]\nname = \"r{number}\"\npath = \"/r{number}\"\nlimit = \"1/h by ip\"\nrespond = {{}}\n"
        )
    };
    let routes: String = (0..10_000).map(route).collect();
    drive("many.py", &Gateway::start(&routes), &[], "many");
}

#[test]
fn all_overrides_are_found_and_nothing_is_cut_at_any_width() {
    let _alone = heavy();
    let gateway = Gateway::start(&format!(
        "{CONFIG}{DATABASE}[admin]\nbind = \"127.0.0.1:0\"\ntokens = [{{ name = \"olga\", token = \"may-operate\", role = \"operate\" }}]\n\
         [log]\ndecisions = {{ denied = \"100%\" }}\n\
         [upstream.a-service-with-a-long-name]\nservers = [\"http://127.0.0.1:1\"]\n\
         [[route]]\nname = \"gone\"\npath = \"/gone\"\nto = \"a-service-with-a-long-name\"\n"
    ));
    drive("widths.py", &gateway, &[], "shown");
}

#[test]
fn top_shows_the_same_in_a_terminal() {
    let _alone = heavy();
    drive("top.py", &Gateway::start(CONFIG), &[env!("CARGO_BIN_EXE_sluicegate")], "topped");
}

/// What a node does is shown by every other: its name, and what its policies refuse.
#[test]
fn the_page_of_any_node_shows_the_fleet() {
    let _alone = heavy();
    let redis = Redis::start(&[]);
    let node = |name: &str| {
        Gateway::start(&format!(
            "{CONFIG}[redis]\nurl = \"redis://{}\"\n\n[node]\nname = \"{name}\"\n",
            redis.addr()
        ))
    };
    let (one, other) = (node("edge-1"), node("edge-2"));
    drive(
        "fleet.py",
        &one,
        &[&format!("http://{}", other.plain()), &format!("http://{}", other.listener("admin"))],
        "together",
    );
}

/// Those who watch have places of their own, and take nothing from probes, scrapers and workers.
#[test]
fn two_hundred_watch_and_nobody_else_notices() {
    let _alone = heavy();
    let gateway = Gateway::start(CONFIG);
    let admin = gateway.listener("admin");
    let watch = || {
        let mut client = Client::connect(admin);
        client.send("GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client
    };
    let mut watching: Vec<_> = (0..256).map(|_| watch()).collect();
    for client in &mut watching {
        assert_eq!(client.head().status, 200);
    }
    let refused = watch().response();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("10")));
    assert!(refused.text().contains("too many live pages are open"), "{}", refused.text());
    assert_eq!((gateway.admin("/readyz").status, gateway.admin("/metrics").status), (200, 200));
    assert_eq!(gateway.get("/a").status, 200);
    // One that goes leaves its place.
    watching.pop();
    eventually("there is a place", || (watch().head().status == 200).then_some(()));
    // All of them are told the same, once a second.
    let events: Vec<String> = watching.iter_mut().take(20).map(|client| client.line()).collect();
    assert!(events.iter().all(|event| !event.is_empty()));
    gateway.signal("TERM");
    for client in &mut watching {
        let rest = text(&client.rest());
        assert!(rest.contains("\"phase\":\"draining\"") && rest.ends_with("0\r\n\r\n"), "{rest}");
    }
}

/// As RFC 3339 has it.
fn time_of(since_1970: Duration) -> String {
    let output =
        Command::new("date").args(["-u", "-d", &format!("@{}", since_1970.as_secs()), "+%FT%TZ"]).output();
    text(&output.expect("date is part of coreutils").stdout).trim().to_owned()
}

/// A policy, and a route that it limits. Directories are the gateways' own.
const CONFIG: &str = r#"
[policy.calls]
limit = "2/h burst 1"
by = ["header:x-user"]

[tier.pro]
limit = "100/m"

[[route]]
name = "hello"
path = "/{*rest}"
limit = "calls"
respond = { body = "hello" }

"#;

const DATABASE: &str = "[database]\nurl = \"sqlite:state.db\"\n\n[policy.of-consumers]\nlimit = \"100/m\"\nby = [\"consumer\"]\n\n";
