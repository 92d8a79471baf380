//! The life of a process: its signals, its descriptors, another one beside it.

use std::fs;
use std::net::TcpStream;

use crate::support::{Gateway, eventually};

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
    assert!(says(&gateway, "logs are opened again"));
    gateway.signal("TERM");
    eventually("it drains", || says(&gateway, "draining").then_some(()));
    rotate(&gateway, "/draining");
    assert!(gateway.is_running());
}

#[test]
fn usr2_is_ignored_with_a_line_while_it_serves_and_while_it_drains() {
    let mut gateway = Gateway::start(&format!("[shutdown]\nready-delay = \"20s\"\n{OK}"));
    let ignored = |gateway: &Gateway| {
        gateway.stderr().iter().filter(|line| line.contains("SIGUSR2 is ignored")).count()
    };
    gateway.signal("USR2");
    eventually("a line says so", || (ignored(&gateway) == 1).then_some(()));
    assert_eq!(gateway.get("/").status, 200);
    gateway.signal("TERM");
    eventually("it drains", || says(&gateway, "draining").then_some(()));
    gateway.signal("USR2");
    eventually("a line says so", || (ignored(&gateway) == 2).then_some(()));
    gateway.signal("HUP");
    eventually("a line says so", || says(&gateway, "SIGHUP is ignored").then_some(()));
    assert!(gateway.is_running() && TcpStream::connect(gateway.plain()).is_ok());
}
