//! SIGHUP: a new configuration takes over between two requests, and a broken one never does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Nginx, Upstream, eventually, heavy, stdout_of};

fn answering(body: &str) -> String {
    format!("[[route]]\npath = \"/\"\nrespond = {{ status = 200, body = \"{body}\" }}\n")
}

fn limited(limit: &str) -> String {
    format!(
        "[policy.p]\nby = [\"ip\"]\nlimit = \"{limit}\"\n[[route]]\npath = \"/\"\nlimit = \"p\"\nrespond = {{ status = 200, body = \"ok\" }}\n"
    )
}

#[test]
fn a_reload_is_seen_on_open_connections() {
    let gateway = Gateway::start(&answering("old"));
    let mut client = gateway.client();
    assert_eq!(client.get("/").text(), "old");
    gateway.reload(&answering("new"));
    assert_eq!(client.get("/").text(), "new");
    assert_eq!(gateway.get("/").text(), "new");
}

#[test]
fn a_broken_configuration_leaves_the_old_one_serving() {
    let gateway = Gateway::start(&answering("old"));
    let warned =
        "[admin]\nbind = \"127.0.0.1:0\"\ntoken = \"plain\"\n[[route]]\npath = \"/\"\nto = \"nowhere\"";
    for broken in [
        warned,
        "[[route]",
        "[[route]]\npath = \"/\"\nlimt = \"1/s\"",
        "[[route]]\npath = \"/\"\nto = \"nowhere\"",
    ] {
        gateway.reload_refused(broken);
        assert_eq!(gateway.get("/").text(), "old");
    }
    let said = gateway.stderr().join("\n");
    assert!(said.contains("gateway.toml") && !said.contains("written in plain text"), "{said}");
    gateway.reload(&answering("new"));
    assert_eq!(gateway.get("/").text(), "new");
}

#[test]
fn a_file_that_was_emptied_closes_nothing() {
    let gateway = Gateway::start(&answering("old"));
    for (count, nothing) in ["", "\n# [[route]]\n"].into_iter().enumerate() {
        gateway.write("gateway.toml", nothing);
        gateway.signal("HUP");
        eventually("the reload has failed", || (gateway.reloads("failed") > count as f64).then_some(()));
        assert_eq!(gateway.get("/").text(), "old");
    }
    let said = gateway.stderr().join("\n");
    assert!(said.contains("the file has no keys"), "{said}");
}

#[test]
fn what_waits_for_a_restart_is_compared_with_what_runs() {
    let warned = |gateway: &Gateway| {
        gateway.stderr().iter().filter(|line| line.contains("take effect only after a restart")).count()
    };
    let gateway = Gateway::start(&answering("old"));
    gateway.reload(&format!("workers = 7\n{}", answering("new")));
    assert_eq!(warned(&gateway), 1, "{:?}", gateway.stderr());
    let line = gateway.stderr().into_iter().find(|line| line.contains("reloaded")).expect("it was reloaded");
    assert!(line.contains("route: 1 changed (/)") && !line.contains("workers"), "{line}");
    gateway.reload(&answering("old"));
    assert_eq!(warned(&gateway), 1, "back to what runs: {:?}", gateway.stderr());
    let said = gateway.stderr().join("\n");
    assert!(said.contains("no settings are waiting for a restart"), "{said}");
    assert!(!said.contains("; workers\"") && !said.contains("changes=workers"), "{said}");
    let decisions = "[log]\naccess = false\ndecisions = { to = \"off\", retention = \"1d\" }\n";
    gateway.reload(&format!("{decisions}{}", answering("new")));
    assert_eq!(warned(&gateway), 1, "there is no database for them: {:?}", gateway.stderr());
}

#[test]
fn a_reload_says_in_one_line_what_changed() {
    let gateway = Gateway::start(&answering("old"));
    let more = "[policy.p]\nby = [\"ip\"]\nlimit = \"1/s\"\n[shutdown]\ndrain = \"7s\"\n";
    gateway.reload(&format!("{}{more}", answering("new")));
    let line = eventually("the reload is logged", || {
        gateway.stderr().into_iter().find(|line| line.contains("reloaded"))
    });
    assert!(line.contains("policy: 1 added (p); route: 1 changed (/); shutdown"), "{line}");
    assert!(line.contains("generation=2"), "{line}");
    assert_eq!(gateway.metric("sluicegate_config_generation", &[]), 2.0, "as the page and `explain` have it");
}

#[test]
fn a_request_ends_on_the_configuration_it_began_with() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            released.lock().expect("nobody panics with it").recv().ok();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold");
        }
    });
    let route = |name: &str| {
        format!(
            "[[route]]\nname = \"{name}\"\npath = \"/\"\nto = \"http://{}\"\nresponse-headers = {{ set = {{ x-route = \"{name}\" }} }}",
            upstream.addr()
        )
    };
    let gateway = Gateway::start(&route("old"));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request is at the upstream", || (upstream.connections() == 1).then_some(()));
    gateway.reload(&answering("new"));
    release.send(()).expect("the upstream waits for it");
    let answer = client.response();
    assert_eq!((answer.text().as_str(), answer.header("x-route")), ("old", Some("old")));
    assert_eq!(client.get("/").text(), "new");
}

#[test]
fn a_reload_hands_out_no_fresh_burst() {
    let gateway = Gateway::start(&limited("4/h"));
    assert_eq!([gateway.get("/").status, gateway.get("/").status], [200, 200]);
    gateway.reload(&limited("4/h"));
    let statuses: Vec<u16> = (0..3).map(|_| gateway.get("/").status).collect();
    assert_eq!(statuses, [200, 200, 429]);
}

#[test]
fn what_was_spent_stays_spent_over_a_reload() {
    let gateway = Gateway::start(&limited("10/h"));
    for _ in 0..5 {
        assert_eq!(gateway.get("/").status, 200);
    }
    gateway.reload(&limited("100/h"));
    let left = gateway.get("/").number("x-ratelimit-remaining");
    assert!((93..=95).contains(&left), "a hundred less the five and this one, not {left}");
    gateway.reload(&limited("10/h"));
    let left = gateway.get("/").number("x-ratelimit-remaining");
    assert!((3..=4).contains(&left), "{left}");
}

#[test]
fn listeners_come_and_go() {
    let text = |names: &[&str]| {
        let listeners: String =
            names.iter().map(|name| format!("[listener.{name}]\nbind = \"127.0.0.1:0\"\n")).collect();
        format!("{listeners}{}", answering("ok"))
    };
    let gateway = Gateway::start(&text(&["plain", "other"]));
    let other = gateway.listener("other");
    assert_eq!(crate::support::get(other, "/").text(), "ok");
    gateway.reload(&text(&["plain", "other", "third"]));
    assert_eq!(crate::support::get(gateway.listener("third"), "/").text(), "ok");
    gateway.reload(&text(&["plain"]));
    eventually("the listener is gone", || std::net::TcpStream::connect(other).is_err().then_some(()));
    assert_eq!(gateway.get("/").text(), "ok");
}

#[test]
fn a_rotated_access_log_is_written_anew() {
    let gateway = Gateway::start(&answering("ok"));
    gateway.get("/");
    gateway.logged("/");
    std::fs::rename(gateway.file("access.log"), gateway.file("access.log.1")).expect("it is there");
    gateway.reload(&answering("ok"));
    gateway.get("/");
    gateway.logged("/");
}

/// Reloads while the load runs.
const RELOADS: usize = 1000;

#[test]
fn a_thousand_reloads_under_load_lose_nothing() {
    let _alone = heavy();
    let nginx = Nginx::start("location / { return 200 \"hello from nginx\"; }");
    let text = |number: usize| {
        if number % 3 == 2 {
            return "[[route]]\npath = \"/{*rest}\"\nto = \"nowhere".to_owned();
        }
        format!(
            "[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"\nlimit = \"1_000_000/s by ip\"\n\
             response-headers = {{ set = {{ x-number = \"{number}\" }} }}\n\
             [policy.slow]\nby = [\"ip\"]\nlimit = \"1000/d\"\n\
             [[route]]\npath = \"/slow\"\nlimit = \"slow\"\nrespond = {{ status = 200, body = \"ok\" }}\n",
            nginx.addr()
        )
    };
    let gateway = Gateway::start(&text(0));
    for _ in 0..600 {
        assert_eq!(gateway.get("/slow").status, 200);
    }
    let over = Arc::new(AtomicBool::new(false));
    let url = format!("http://{}/", gateway.plain());
    let loads = [
        load(&over, &url, |url| {
            let report = stdout_of("h2load", &["-D", "4", "-c", "4", "-m", "4", url]);
            assert!(report.contains(" 0 failed, 0 errored, 0 timeout"), "{report}");
            assert!(report.contains(" 0 3xx, 0 4xx, 0 5xx"), "{report}");
        }),
        load(&over, &url, |url| {
            let report = stdout_of("wrk", &["-t", "1", "-c", "8", "-d", "4s", url]);
            assert!(!report.contains("Non-2xx") && !report.contains("Socket errors"), "{report}");
        }),
    ];
    for number in 1..=RELOADS {
        if number % 3 == 2 {
            gateway.reload_refused(&text(number));
        } else {
            gateway.reload(&text(number));
        }
    }
    over.store(true, Ordering::SeqCst);
    for load in loads {
        load.join().expect("no request fails");
    }
    assert_eq!(gateway.get("/").header("x-number"), Some("1000"));
    let left = gateway.get("/slow").number("x-ratelimit-remaining");
    assert!(left < 410, "600 of 1000 a day were spent, {left} are left");
    assert_eq!(gateway.reloads("succeeded") + gateway.reloads("failed"), RELOADS as f64);
}

/// Runs a load again and again until the reloads are over.
fn load(over: &Arc<AtomicBool>, url: &str, run: fn(&str)) -> thread::JoinHandle<()> {
    let (over, url) = (Arc::clone(over), url.to_owned());
    thread::spawn(move || {
        while !over.load(Ordering::SeqCst) {
            run(&url);
        }
    })
}
