//! The optional parts of an access log line, and the values that it never shows.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Directory, Gateway, eventually, text};

/// A gateway that logs so.
fn logging(access: &str, more: &str) -> Gateway {
    logging_in(Directory::new(), access, more)
}

fn logging_in(directory: Directory, access: &str, more: &str) -> Gateway {
    let log = directory.join("access.log").display().to_string();
    let config = format!(
        "{more}\n[log]\naccess = {{ to = {log:?}{access} }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nrespond = {{}}\n"
    );
    Gateway::start_in(directory, &config)
}

/// The line of a request with these fields.
fn line(gateway: &Gateway, target: &str, fields: &[&str]) -> Value {
    assert_eq!(gateway.client().request("GET", target, fields, "").status, 200);
    let path = target.split('?').next().expect("there is a first").to_owned();
    gateway.logged_where(&path, |line| {
        line["path"].as_str().is_some_and(|it| it.split('?').next() == Some(&path))
    })
}

#[test]
fn the_agent_and_the_page_before_are_shown_and_values_of_queries_are_not() {
    let gateway = logging("", "");
    let shown = line(
        &gateway,
        "/a?code=73577357&x=&sk_73577357",
        &["User-Agent: curl/8 \"x\"", "Referer: https://b.example/c?token=73577357", "X-Trace: 7"],
    );
    assert_eq!(shown["path"], "/a?code=*&x=&*");
    assert_eq!(shown["user_agent"], "curl/8 \"x\"");
    assert_eq!(shown["referer"], "https://b.example/c?token=*");
    assert_eq!(shown["headers"], Value::Null);
    let bare = line(&gateway, "/bare", &["User-Agent:"]);
    assert_eq!(
        (&bare["path"], &bare["user_agent"], &bare["referer"]),
        (&json!("/bare"), &Value::Null, &Value::Null)
    );
    assert!(!text(&gateway.access_log_bytes()).contains("73577357"));
}

#[test]
fn queries_are_kept_or_dropped_by_choice() {
    let fields = ["Referer: https://b.example/c?d=e"];
    for (query, path, referer) in [
        ("keep", "/a?b=c&d", "https://b.example/c?d=e"),
        ("drop", "/a", "https://b.example/c"),
        ("names", "/a?b=*&*", "https://b.example/c?d=*"),
    ] {
        let gateway = logging(&format!(", query = \"{query}\""), "");
        let shown = line(&gateway, "/a?b=c&d", &fields);
        assert_eq!(
            (shown["path"].as_str(), shown["referer"].as_str()),
            (Some(path), Some(referer)),
            "{query}"
        );
    }
}

#[test]
fn fields_are_shown_by_choice_over_http_2_too() {
    let gateway = logging(", headers = [\"X-Trace\", \"user-agent\", \"x-plan\"]", "");
    let fields =
        ["X-Trace: 1", "x-trace: 2", "User-Agent: a\u{e9}b", "Referer: https://b.example/", "X-Other: 3"];
    let shown = line(&gateway, "/a", &fields);
    assert_eq!(shown["headers"], json!({ "x-trace": "1, 2" }), "several are one");
    assert_eq!((&shown["user_agent"], &shown["referer"]), (&json!("a\u{e9}b"), &Value::Null));
    let url = format!("http://{}/h2", gateway.plain());
    let arguments =
        ["-sS", "--http2-prior-knowledge", "-A", "agent", "-H", "X-Plan: pro", "-H", "X-Trace: 9", &url];
    crate::support::stdout_of("curl", &arguments);
    let shown = gateway.logged("/h2");
    assert_eq!(shown["headers"], json!({ "x-trace": "9", "x-plan": "pro" }));
    assert_eq!(shown["user_agent"], "agent");
    // A large head, whose values are kept without it.
    let large = format!("x-large: {}", "l".repeat(9_000));
    let url = format!("http://{}/large", gateway.plain());
    crate::support::stdout_of("curl", &["-sS", "--http2-prior-knowledge", "-A", "agent", "-H", &large, &url]);
    assert_eq!(gateway.logged("/large")["user_agent"], "agent");
    // A refused one, and a long value.
    gateway.client().request("GET", "/%zz", &[&format!("User-Agent: {}", "é".repeat(900))], "");
    let shown = gateway.logged_where("a refusal", |line| line["status"] == 400);
    let agent = shown["user_agent"].as_str().expect("an agent");
    assert!(agent.ends_with('\u{2026}') && agent.len() <= 515, "{agent}");
}

#[test]
fn a_refused_head_is_shown_as_it_was_sent() {
    let directory = Directory::new();
    let format = ", format = '{status} \"{request}\" {host}'";
    let gateway = logging_in(directory, format, "");
    let lines = || text(&gateway.access_log_bytes()).lines().map(str::to_owned).collect::<Vec<_>>();
    for (number, (head, expected)) in [
        (
            "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n",
            "\"CONNECT a.example:443 HTTP/1.1\" a.example:443",
        ),
        ("TRACE /a HTTP/1.1\r\nHost: b.example\r\n", "\"TRACE /a HTTP/1.1\" b.example"),
        ("GET http://c.example/a HTTP/1.1\r\nHost: d.example\r\n", "\"GET /a HTTP/1.1\" c.example"),
        ("GET /a HTTP/1.1\r\nHost: e/f g\r\n", "\"GET /a HTTP/1.1\" e/f\\x20g"),
    ]
    .into_iter()
    .enumerate()
    {
        gateway.client().send(format!("{head}\r\n")).response();
        let line = eventually("it is logged", || lines().get(number).cloned());
        assert_eq!(line.split_once(' ').map(|(_, rest)| rest), Some(expected), "{line}");
    }
}

#[test]
fn the_tier_is_shown_and_a_credential_in_the_page_before_is_not() {
    let directory = Directory::new();
    let entry = "[[key]]\nsha256 = \"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\"\n\
                 consumer = \"ann\"\ntier = \"pro\"\n";
    directory.write("keys.toml", entry);
    let keys = "[auth.k]\nkind = \"api-key\"\nin = [\"query:api_key\", \"header:x-own\"]\nkeys = { file = \"keys.toml\" }\n\
                [[route]]\npath = \"/guarded\"\nauth = \"k\"\nrespond = {}\n";
    let gateway = logging_in(directory, ", query = \"keep\"", keys);
    let shown =
        line(&gateway, "/guarded?api_key=secret&x=1", &["Referer: https://here/guarded?api_key=secret&x=1"]);
    assert_eq!((&shown["tier"], &shown["consumer"]), (&json!("pro"), &json!("ann")));
    assert_eq!(shown["path"], "/guarded?api_key=***&x=1");
    assert_eq!(shown["referer"], "https://here/guarded?api_key=***&x=1");
    for name in [
        "authorization",
        "Cookie",
        "Set-Cookie",
        "x-api-key",
        "X-Own",
        "x-auth-token",
        "x-key",
        "x-auth",
        "x-jwt",
        "session",
        "x-session",
        "x-sid",
        "x-signature",
        "x-credential",
        "apikey",
        "key",
    ] {
        let config = format!("{keys}[log]\naccess = {{ to = \"off\", headers = [\"{name}\"] }}\n");
        gateway.reload_refused(&config);
        let said = format!("`{}` may hold a credential, which no log shows", name.to_lowercase());
        eventually(&said, || gateway.stderr().iter().any(|line| line.contains(&said)).then_some(()));
    }
}

#[test]
fn a_full_disk_costs_lines_and_no_request_and_is_said_when_it_begins_and_ends() {
    let directory = Directory::new();
    let disk = directory.join("disk");
    fs::create_dir(&disk).expect("made");
    // A disk of its own, with nothing left on it but an empty log.
    let script = "mount -t tmpfs -o size=64k tmpfs \"$1\" && : > \"$1/access.log\" && cat /dev/zero > \"$1/fill\" 2>&-; \
                  shift; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", script, "sh"]).arg(&disk).arg(env!("CARGO_BIN_EXE_sluicegate"));
    let log = disk.join("access.log").display().to_string();
    let config =
        format!("[log]\naccess = {{ to = {log:?} }}\n[[route]]\npath = \"/{{*rest}}\"\nrespond = {{}}\n");
    let gateway = Gateway::start_by(command, directory, &config);
    let said = |part: &str| gateway.stderr().iter().filter(|line| line.contains(part)).count();
    let lost = || gateway.metric("sluicegate_access_log_lines_total", &["result=\"dropped\""]);
    for round in 1..=2 {
        assert_eq!(gateway.get("/lost").status, 200);
        eventually("lines are lost", || (lost() == f64::from(round)).then_some(()));
    }
    assert_eq!((said("No space left on device"), said("can be written again")), (1, 0));
    assert_eq!(said(&format!("access log {log} cannot be written")), 1);
    // Of its mounts nobody else sees anything.
    let inside = format!("/proc/{}/root{}", gateway.pid(), disk.display());
    fs::remove_file(format!("{inside}/fill")).expect("it is there");
    assert_eq!(gateway.get("/kept").status, 200);
    let written = eventually("the line is written", || {
        let written = fs::read_to_string(format!("{inside}/access.log")).ok()?;
        written.contains("/kept").then_some(written)
    });
    assert!(written.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{written}");
    eventually("the log says so", || (said("can be written again lines_lost=2") == 1).then_some(()));
}

#[test]
fn a_pipe_that_nobody_reads_is_said_to_lose_lines_and_when_it_does_no_longer() {
    let directory = Directory::new();
    let pipe = directory.join("access.log");
    crate::support::stdout_of("mkfifo", &[&pipe.display().to_string()]);
    let gateway = logging_in(directory, "", "");
    let (mut client, path) = (gateway.client(), format!("/{}", "a".repeat(2_000)));
    let lost = || gateway.metric("sluicegate_access_log_lines_total", &["result=\"dropped\""]);
    let said = |words: &str| gateway.stderr().iter().filter(|line| line.contains(words)).count();
    while lost() == 0.0 {
        (0..500).for_each(|_| assert_eq!(client.get(&path).status, 200));
    }
    eventually("it is said", || (said("access log is written too slowly") == 1).then_some(()));
    let mut reader = fs::OpenOptions::new().read(true).open(&pipe).expect("the gateway has it open, too");
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    let line = eventually("it is taken again", || {
        gateway.stderr().into_iter().find(|line| line.contains("access log keeps up again"))
    });
    assert!(line.contains(&format!("lines_lost={}", lost())), "{line}: {}", lost());
    assert_eq!(said("access log is written too slowly"), 1);
}
