//! The life of a process: its signals, its descriptors, another one beside it.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::support::redis::free_port;
use crate::support::{Client, Directory, Gateway, Upstream, eventually, run, stdout_of, text};

const OK: &str = "[[route]]\npath = \"/{*rest}\"\nrespond = { status = 200, body = \"ok\" }";

/// Whether a line of what it said holds this.
fn says(gateway: &Gateway, what: &str) -> bool {
    gateway.stderr().iter().any(|line| line.contains(what))
}

#[test]
fn usr1_opens_the_logs_again_while_it_serves_and_while_it_drains() {
    let mut gateway = Gateway::start(&format!("[shutdown]\nready-delay = \"20s\"\n{OK}"));
    let (log, rotated) = (gateway.file("access.log"), gateway.file("access.log.1"));
    let rotate = |gateway: &Gateway, path: &str| {
        fs::rename(&log, &rotated).expect("both are in one directory");
        gateway.signal("USR1");
        eventually("a new file is there", || log.exists().then_some(()));
        assert_eq!(gateway.get(path).status, 200);
        gateway.logged(path);
        let before = fs::read_to_string(&rotated).expect("it was a log");
        assert!(!before.contains(path), "nothing more is written to the old file: {before}");
    };
    assert_eq!(gateway.get("/before").status, 200);
    gateway.logged("/before");
    rotate(&gateway, "/serving");
    assert!(says(&gateway, "logs reopened"));
    gateway.signal("TERM");
    eventually("it drains", || says(&gateway, "draining").then_some(()));
    rotate(&gateway, "/draining");
    assert!(gateway.is_running());
}

#[test]
fn who_reads_its_own_log_no_more_ends_nothing() {
    let mut command = Command::new("bash");
    let until_ready = r#"exec "$0" "$@" 2> >(sed -u '/sluicegate: ready/q' >&2)"#;
    command.args(["-c", until_ready, env!("CARGO_BIN_EXE_sluicegate")]);
    let mut gateway = Gateway::start_by(command, Directory::new(), OK);
    gateway.signal("HUP");
    eventually("it is reloaded", || (gateway.reloads("succeeded") == 1.0).then_some(()));
    assert!(gateway.is_running());
    assert_eq!(gateway.get("/").status, 200);
}

/// A gateway whose log is read until it is ready, and then no more until somebody has written to the pipe `gate`.
fn unread(config: &str) -> Gateway {
    let directory = Directory::new();
    let gate = directory.join("gate").display().to_string();
    stdout_of("mkfifo", &[&gate]);
    let mut command = Command::new("bash");
    let until_ready =
        r#"exec "$0" "$@" 2> >(sed -u '/sluicegate: try/q' >&2; timeout 300 cat "$GATE"; cat >&2)"#;
    command.args(["-c", until_ready, env!("CARGO_BIN_EXE_sluicegate")]).env("GATE", gate);
    let gateway = Gateway::start_by(command, directory, config);
    eventually("its last line is read", || says(&gateway, "sluicegate: try").then_some(()));
    gateway
}

/// A configuration that is refused with a report of 100 KB, which is more than a pipe holds.
fn refused() -> String {
    (0..130).map(|number| format!("{}{number} = 1\n", "a".repeat(200))).collect::<String>() + OK
}

#[test]
fn a_log_that_nobody_reads_stops_no_request_and_no_reload() {
    let config = |more: &str| {
        let to = free_port();
        format!(
            "[log]\nlevel = \"debug\"\naccess = false\n{OK}\n[[route]]\npath = \"/dead\"\nto = \"http://127.0.0.1:{to}\"\n{more}"
        )
    };
    let mut gateway = unread(&config(""));
    let lost =
        |gateway: &Gateway| gateway.metric("sluicegate_process_log_lines_total", &["result=\"dropped\""]);
    while lost(&gateway) == 0.0 {
        gateway.reload_refused(&refused());
    }
    for _ in 0..20 {
        assert_eq!(gateway.get("/dead").status, 502);
    }
    gateway.reload(&config("[[route]]\npath = \"/new\"\nrespond = { status = 204 }"));
    assert_eq!(gateway.get("/new").status, 204);
    fs::write(gateway.file("gate"), "").expect("it is read");
    let line = eventually("it is read again", || {
        gateway.stderr().into_iter().find(|line| line.contains("process log keeps up again"))
    });
    assert!(line.ends_with(&format!("lines_lost={}", lost(&gateway))), "{line}: {}", lost(&gateway));
    assert!(says(&gateway, "not reloaded"), "what was said before is kept");
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    eventually("its last line is there", || says(&gateway, "sluicegate: stopped").then_some(()));
}

#[test]
fn a_log_that_nobody_reads_does_not_hold_up_the_end() {
    for (signals, delay) in [(1, "0s"), (2, "1h")] {
        let mut gateway = unread(&format!("[shutdown]\nready-delay = \"{delay}\"\ndrain = \"1s\"\n{OK}"));
        gateway.reload_refused(&refused());
        gateway.signal("TERM");
        if signals == 2 {
            eventually("it drains", || (gateway.admin("/readyz").status == 503).then_some(()));
            gateway.signal("TERM");
        }
        assert_eq!(gateway.wait().code(), Some(signals - 1));
        fs::write(gateway.file("gate"), "").expect("its reader waits there");
    }
}

#[test]
fn hup_is_ignored_with_a_line_while_it_drains() {
    let mut gateway = Gateway::start(&format!("[shutdown]\nready-delay = \"20s\"\n{OK}"));
    gateway.signal("TERM");
    eventually("it drains", || says(&gateway, "draining").then_some(()));
    gateway.signal("HUP");
    eventually("a line says so", || says(&gateway, "SIGHUP is ignored").then_some(()));
    assert!(gateway.is_running() && TcpStream::connect(gateway.plain()).is_ok());
}

/// Runs a gateway with this configuration that must end on its own.
fn start_in_vain(config: &str) -> Output {
    let directory = Directory::new();
    let file = directory.write("gateway.toml", config);
    run(env!("CARGO_BIN_EXE_sluicegate"), &["run", "--config", file.to_str().expect("the path is text")])
}

fn listening(plain: SocketAddr, admin: &str, more: &str) -> String {
    format!(
        "admin = {admin}\n[listener.first]\nbind = \"127.0.0.1:0\"\n[listener.plain]\nbind = \"{plain}\"\n{more}\n\
         [log]\naccess = false\n{OK}"
    )
}

#[test]
fn a_second_start_fails_before_it_takes_a_connection_and_names_the_first() {
    let gateway = Gateway::start(OK);
    let (plain, admin) = (gateway.plain(), gateway.listener("admin"));
    let (is_over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // A connection in the queue of a socket that is given up would break.
                    let answer = Client::connect(plain).get("/");
                    assert_eq!(answer.status, 200);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for admin in
            ["false".to_owned(), "{ bind = \"127.0.0.1:0\" }".to_owned(), format!("{{ bind = \"{admin}\" }}")]
        {
            for _ in 0..3 {
                let output = start_in_vain(&listening(plain, &admin, ""));
                let said = text(&output.stderr);
                assert_eq!(output.status.code(), Some(1), "{said}");
                assert!(said.contains(&format!("process {} (sluicegate)", gateway.pid())), "{said}");
                assert!(!said.contains("listener \"first\" on"), "nothing listens before: {said}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(served.load(Ordering::Relaxed) > 9, "there was traffic meanwhile");
}

#[test]
fn another_program_on_the_address_is_named_too() {
    let other = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let plain = other.local_addr().expect("it is bound");
    let said = text(&start_in_vain(&listening(plain, "false", "")).stderr);
    assert!(said.contains(&format!("process {} (", std::process::id())), "{said}");
    // Every address of the port is that one, too.
    let every = SocketAddr::from(([0, 0, 0, 0], plain.port()));
    let said = text(&start_in_vain(&listening(every, "false", "")).stderr);
    assert!(said.contains(&format!("process {} (", std::process::id())), "{said}");
}

#[test]
fn processes_share_an_address_where_that_is_asked_for() {
    let first = Gateway::start(OK);
    let second =
        Gateway::start(&format!("[listener.plain]\nbind = \"{}\"\nreuse-port = true\n{OK}", first.plain()));
    eventually("both serve", || {
        assert_eq!(first.get("/").status, 200);
        let both = [&first, &second].map(|gateway| gateway.metric("sluicegate_requests_total", &[]));
        both.iter().all(|count| *count > 0.0).then_some(())
    });
}

#[test]
fn a_reload_takes_no_address_that_another_process_has() {
    let other = Gateway::start(OK);
    let gateway = Gateway::start(OK);
    let taken = format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\n[listener.more]\nbind = \"{}\"\n{OK}",
        other.plain()
    );
    gateway.reload_refused(&taken);
    let named = format!("process {} (sluicegate)", other.pid());
    eventually("the log names it", || says(&gateway, &named).then_some(()));
    // Its own address under another name is its own.
    let plain = gateway.plain();
    gateway.reload(&format!("[listener.renamed]\nbind = \"{plain}\"\n{OK}"));
    assert_eq!(crate::support::get(plain, "/").status, 200);
}

/// The binary under test with so many descriptors, soft and hard.
fn with_descriptors(soft: u32, hard: u32) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={soft}:{hard}")).arg(env!("CARGO_BIN_EXE_sluicegate"));
    command
}

#[test]
fn check_and_start_warn_where_descriptors_are_fewer_than_the_configuration_may_need() {
    let directory = Directory::new();
    let checked = |config: &str| {
        let file = directory.write("gateway.toml", config);
        let output = with_descriptors(64, 1024).args(["check", "--config"]).arg(file).output();
        let output = output.expect("prlimit is part of util-linux");
        assert_eq!(output.status.code(), Some(0));
        text(&output.stderr)
    };
    let upstreams = "[upstream.u]\nservers = [\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"]\n\
                     connections = { max = 200 }\n[[route]]\nto = \"u\"\n";
    let said = checked(upstreams);
    for figure in ["1024 file descriptors", "can need 50656", "50000 for clients", "400 for upstreams"] {
        assert!(said.contains(figure), "{figure}: {said}");
    }
    let small = "[listener.plain]\nbind = \"127.0.0.1:0\"\nmax-connections = 300\n";
    assert_eq!(checked(&format!("{upstreams}{small}")), "", "they suffice");
    let gateway = Gateway::start_by(with_descriptors(64, 1024), Directory::new(), OK);
    assert!(says(&gateway, "1024 file descriptors"), "{:?}", gateway.stderr());
    let limits = fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).expect("it runs");
    let open_files = limits.lines().find(|line| line.starts_with("Max open files")).expect("Linux says so");
    assert_eq!(open_files.split_whitespace().nth(3), Some("1024"), "the soft limit is raised: {open_files}");
}

#[test]
fn without_descriptors_clients_wait_requests_go_on_and_readyz_says_so() {
    let upstream = Upstream::ok();
    let config =
        format!("workers = 2\n[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"", upstream.addr());
    let gateway = Gateway::start_by(with_descriptors(256, 256), Directory::new(), &config);
    assert_eq!(gateway.admin("/readyz").status, 200);
    let mut clients: Vec<Client> = (0..400).map(|_| gateway.client()).collect();
    eventually("/readyz says so", || (gateway.admin("/readyz").status == 503).then_some(()));
    // Each of them is served in its turn; those that are accepted find connections to the upstream.
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
                assert_eq!(client.response().status, 200);
            });
        }
    });
    drop(clients);
    let lines = gateway.stderr().iter().filter(|line| line.contains("out of file descriptors")).count();
    assert_eq!(lines, 1, "{:?}", gateway.stderr());
    eventually("it is over", || (gateway.admin("/readyz").status == 200).then_some(()));
    assert_eq!(gateway.get("/").status, 200);
}
