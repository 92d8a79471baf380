//! Certificates by ACME: ordered of Pebble over both challenges, kept, renewed, and what happens when the authority, the
//! disk or the clock do not play along.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::authority::{Authority, DAY, Fault, now};
use crate::support::gateway::{binary, binary_off_by};
use crate::support::pebble::Pebble;
use crate::support::{Directory, Gateway, eventually, text, tls};

const YEARS: u64 = 5 * 365 * 86_400;
const NAMES: &[&str] = &["api.example.com", "www.example.com"];

/// A route that answers `ok`, and listeners on these ports, of which the second one's certificate is ordered.
fn config(pebble: &Pebble, state: &Path, plain: u16, https: u16, more: &str) -> String {
    let certs = pebble.certs(NAMES, state, more);
    format!(
        "[listener.plain]\nbind = \"127.0.0.1:{plain}\"\nredirect = \"https\"\n\
         [listener.edge]\nbind = \"127.0.0.1:{https}\"\n{certs}\
         [[route]]\npath = \"/{{*rest}}\"\nrespond = {{ status = 200, body = \"ok\" }}\n"
    )
}

/// Whether the certificate for a name comes from Pebble.
fn is_issued(addr: SocketAddr, name: &str) -> bool {
    tls::presented(addr, name).windows(6).any(|part| part == b"Pebble")
}

fn issued_at(addr: SocketAddr, name: &str) -> Vec<u8> {
    eventually("the certificate of the authority is presented", || {
        is_issued(addr, name).then(|| tls::presented(addr, name))
    })
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() { found.extend(files(&entry.path())) } else { found.push(entry.path()) }
    }
    found
}

fn issued(gateway: &Gateway) -> f64 {
    gateway.metric("sluicegate_acme_orders_total", &["result=\"issued\""])
}

#[test]
fn a_certificate_is_ordered_by_http_01_and_kept_for_the_next_start() {
    let (pebble, directory, state) = (Pebble::start(YEARS), Directory::new(), Directory::new());
    let state = state.join("state");
    let text = config(&pebble, &state, pebble.http, pebble.tls, ", challenge = \"http-01\"");
    let mut gateway = Gateway::start_in(directory, &text);
    let edge = gateway.listener("edge");
    let first = issued_at(edge, "api.example.com");
    assert_eq!(first, tls::presented(edge, "www.example.com"), "one certificate for both names");
    assert!(
        gateway.logged_where("the token", |line| {
            line["path"].as_str().is_some_and(|path| path.starts_with("/.well-known/acme-challenge/"))
        })["status"]
            == 200
    );
    let kept = files(&state);
    assert_eq!(kept.len(), 2, "the account and the certificate: {kept:?}");
    for file in &kept {
        let mode = fs::metadata(file).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
    gateway.signal("TERM");
    gateway.wait();
    let again = Gateway::start(&text);
    assert_eq!(tls::presented(again.listener("edge"), "api.example.com"), first, "no second order");
    assert_eq!(issued(&again), 0.0);
    assert!(!again.stderr().iter().any(|line| line.contains("self-signed")), "{:?}", again.stderr());
}

#[test]
fn a_certificate_is_ordered_by_tls_alpn_01_without_any_plain_listener() {
    let (pebble, state) = (Pebble::start(YEARS), Directory::new());
    let certs = pebble.certs(NAMES, &state.join("state"), "");
    let port = pebble.tls;
    let gateway = Gateway::start(&format!(
        "[listener.edge]\nbind = \"127.0.0.1:{port}\"\n{certs}\
         [[route]]\npath = \"/{{*rest}}\"\nrespond = {{ status = 200, body = \"ok\" }}\n"
    ));
    let edge = gateway.listener("edge");
    issued_at(edge, "api.example.com");
    assert!(gateway.stderr().iter().any(|line| line.contains("self-signed certificate is presented")));
    // Nobody is being asked about now, so a handshake of an authority fails; other clients are served.
    assert!(tls::connect(edge, "api.example.com", &["acme-tls/1"]).is_err());
    assert!(tls::connect(edge, "api.example.com", &["h2", "http/1.1"]).is_ok());
}

/// A gateway whose certificate for [`NAMES`] is ordered of an authority that a test drives.
fn ordering(authority: &Authority, state: &Path) -> String {
    let certs = authority.certs(NAMES, state);
    format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\n[listener.edge]\nbind = \"127.0.0.1:0\"\n{certs}\
         [[route]]\npath = \"/{{*rest}}\"\nrespond = {{ status = 200, body = \"ok\" }}\n"
    )
}

/// The file of the certificate that `ordering` keeps.
fn kept(authority: &Authority, state: &Path) -> PathBuf {
    let config = acme::Config {
        directory: authority.directory(),
        names: NAMES.iter().map(|&name| name.to_owned()).collect(),
        email: None,
        trust: net::trust::Trust::default(),
        challenge: None,
        state: state.to_owned(),
        secret: None,
    };
    config.file()
}

/// Puts a certificate of the authority where the gateway keeps its own.
fn keep(authority: &Authority, state: &Path, validity: (i64, i64)) {
    let file = kept(authority, state);
    fs::create_dir_all(file.parent().expect("it has a folder")).expect("made");
    fs::write(file, authority.pem(NAMES, validity)).expect("written");
}

/// What the gateway remembers of failures: how many, and when to try again.
fn attempts(authority: &Authority, state: &Path) -> Option<(u64, u64)> {
    let text = fs::read(kept(authority, state).with_extension("attempts.json")).ok()?;
    let attempts: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    Some((attempts["failures"].as_u64()?, attempts["not-before"].as_u64()?))
}

/// Waits for a line of the log.
fn said(gateway: &Gateway, words: &str) -> String {
    eventually(words, || gateway.stderr().into_iter().find(|line| line.contains(words)))
}

#[test]
fn a_certificate_is_renewed_at_two_thirds_of_its_life_and_serves_until_then() {
    let (authority, state) = (Authority::start(), Directory::new());
    let state = state.join("");
    // Two thirds of its life are over in three seconds.
    keep(&authority, &state, (-60 * DAY + 3, 30 * DAY + 3));
    let due = now() + 2;
    let gateway = Gateway::start(&ordering(&authority, &state));
    let edge = gateway.listener("edge");
    let old = tls::presented(edge, "api.example.com");
    if authority.book().orders == 0 {
        assert!(attempts(&authority, &state).is_none());
    }
    let renewed = eventually("the renewed one is presented", || {
        let shown = tls::presented(edge, "api.example.com");
        (shown != old).then_some(shown)
    });
    assert!(now() >= due, "not before two thirds");
    assert!(renewed.windows(14).any(|part| part == b"Test Authority"));
    assert_eq!(authority.counts(), (1, 1));
    assert!(!gateway.stderr().iter().any(|line| line.contains("self-signed")), "the old one serves on");
}

#[test]
fn the_authority_says_when_to_renew_and_hears_what_is_replaced() {
    let (authority, state) = (Authority::start(), Directory::new());
    authority.book().window = Some((-7_200, -3_600));
    let _gateway = Gateway::start(&ordering(&authority, &state.join("")));
    eventually("there is a second order", || (authority.book().orders == 2).then_some(()));
    let replaces = authority.book().replaces.clone();
    assert_eq!(replaces.as_ref(), authority.book().asked.first());
    eventually("the second one is asked about, too", || {
        let asked = authority.book().asked.clone();
        asked.iter().any(|id| *id != asked[0]).then_some(())
    });
    assert_eq!(authority.counts(), (2, 1), "its window is far off");
}

#[test]
fn an_authority_that_fails_half_way_is_asked_again_only_after_a_pause() {
    for (fault, words) in [
        (Fault::Silent, "certificate order failed"),
        (Fault::NotProved, "nothing was found there"),
        (Fault::BreaksAtTheEnd, "certificate order failed"),
        (Fault::Nonsense, "it cannot be read"),
        (Fault::NoDirectory, "/directory answers 500 Internal Server Error: down for\\nrepairs"),
    ] {
        let (authority, directory) = (Authority::start(), Directory::new());
        let state = directory.join("");
        keep(&authority, &state, (-80 * DAY, 10 * DAY));
        authority.book().fault = Some(fault);
        let text = ordering(&authority, &state);
        let mut gateway = Gateway::start(&text);
        let edge = gateway.listener("edge");
        let old = tls::presented(edge, "api.example.com");
        said(&gateway, words);
        let (failures, again) = eventually("the failure is written down", || attempts(&authority, &state));
        assert!(failures == 1 && again > now() + 60, "{fault:?}: {failures}, {again}");
        assert_eq!(tls::presented(edge, "api.example.com"), old, "{fault:?}: the old one serves on");
        gateway.signal("TERM");
        gateway.wait();
        // A restart shortens nothing; what the operator removes is forgotten.
        let orders = authority.book().orders;
        authority.book().fault = None;
        let again = Gateway::start(&text);
        assert_eq!(tls::presented(again.listener("edge"), "api.example.com"), old);
        assert_eq!((authority.counts().0, issued(&again)), (orders, 0.0), "{fault:?}");
        drop(again);
        fs::remove_file(kept(&authority, &state).with_extension("attempts.json")).expect("it is there");
        let again = Gateway::start(&text);
        eventually("it is renewed", || (issued(&again) == 1.0).then_some(()));
        eventually("the failures are forgotten", || attempts(&authority, &state).is_none().then_some(()));
    }
}

#[test]
fn the_log_says_what_was_asked_and_answered_and_no_authority_writes_lines_of_its_own() {
    let forged = "slow\n2026-01-01T00:00:00.000000Z  INFO forged line\u{1b}[31m";
    for (fault, asked, said_of_it) in [
        (
            Fault::NoAccount(forged),
            "POST http://127.0.0.1:0/account answers 500 Internal Server Error: ",
            r"slow\n2026-",
        ),
        (Fault::Page, "GET http://127.0.0.1:0/directory answers 200 OK: ", "JSON"),
        (Fault::Silent, "GET http://127.0.0.1:0/directory: ", "127.0.0.1"),
    ] {
        let (authority, state) = (Authority::start(), Directory::new());
        authority.book().fault = Some(fault);
        let gateway = Gateway::start(&ordering(&authority, &state.join("")));
        let line = said(&gateway, "certificate order failed");
        let base = authority.directory().replace("/directory", "");
        let asked = asked.replace("http://127.0.0.1:0", &base);
        assert!(line.contains(&format!("error=\"{asked}")) && line.contains(said_of_it), "{line}");
        let lines = gateway.stderr();
        assert!(lines.iter().all(|line| !line.contains('\u{1b}')), "{lines:?}");
        assert!(lines.iter().filter(|line| line.contains("forged line")).count() < 2, "{lines:?}");
        assert!(!lines.iter().any(|line| line.starts_with("2026-01-01T")), "{lines:?}");
    }
}

#[test]
fn an_authority_that_asks_for_time_is_given_it() {
    let (authority, state) = (Authority::start(), Directory::new());
    authority.book().fault = Some(Fault::RateLimited(3 * 3_600));
    let gateway = Gateway::start(&ordering(&authority, &state.join("")));
    assert!(said(&gateway, "certificate order failed").contains("too many certificates"));
    let (failures, again) = attempts(&authority, &state.join("")).expect("it is written down");
    assert_eq!(failures, 1);
    assert!(again.abs_diff(now() + 3 * 3_600) < 60, "{again}");
    assert_eq!(gateway.metric("sluicegate_acme_orders_total", &["result=\"failed\""]), 1.0);
}

#[test]
fn certificates_that_are_due_at_once_are_not_ordered_over_and_over() {
    let (authority, state) = (Authority::start(), Directory::new());
    authority.book().validity = (-80 * DAY, 10 * DAY);
    let gateway = Gateway::start(&ordering(&authority, &state.join("")));
    said(&gateway, "check the system clock");
    let (failures, again) = attempts(&authority, &state.join("")).expect("it counts as a failure");
    assert!(failures == 1 && again > now() + 60);
    assert_eq!(authority.book().orders, 1);
}

#[test]
fn nothing_is_ordered_while_the_state_cannot_be_written() {
    let (authority, directory) = (Authority::start(), Directory::new());
    // Root may write anywhere, but not below a file.
    let state = directory.write("state", "a file");
    let gateway = Gateway::start(&ordering(&authority, &state));
    said(&gateway, "certificate is not ordered: the state file cannot be written");
    assert_eq!(authority.counts(), (0, 0));
    assert_eq!(gateway.get("/").text(), "ok");
}

#[test]
fn a_certificate_that_cannot_be_written_is_kept_until_it_can() {
    let (authority, directory) = (Authority::start(), Directory::new());
    let state = directory.join("");
    let file = kept(&authority, &state);
    // A folder in the place of the file cannot be replaced by it.
    fs::create_dir_all(file.join("in-the-way")).expect("made");
    let gateway = Gateway::start(&ordering(&authority, &state));
    said(&gateway, "issued certificate cannot be written");
    fs::remove_dir_all(&file).expect("removed");
    eventually("it is written", || (issued(&gateway) == 1.0).then_some(()));
    assert_eq!(authority.book().orders, 1, "it was not ordered again");
    let edge = gateway.listener("edge");
    eventually("it is presented", || {
        tls::presented(edge, "api.example.com")
            .windows(14)
            .any(|part| part == b"Test Authority")
            .then_some(())
    });
}

/// A gateway whose clock is so far off.
fn with_clock(offset: &str, config: &str) -> Gateway {
    Gateway::start_by(binary_off_by(offset), Directory::new(), config)
}

#[test]
fn a_clock_that_is_wrong_orders_once_and_leaves_nothing_behind() {
    let (authority, directory) = (Authority::start(), Directory::new());
    let state = directory.join("");
    let text = ordering(&authority, &state);
    // A year ahead the good certificate has long expired, and so has what the authority issues.
    keep(&authority, &state, (-10 * DAY, 80 * DAY));
    let ahead = with_clock("+400d", &text);
    said(&ahead, "check the system clock");
    let (failures, again) = attempts(&authority, &state).expect("it counts as a failure");
    assert!(failures == 1 && again > now() + 300 * 86_400, "{again}");
    assert_eq!(authority.counts().0, 1);
    drop(ahead);
    // With a right clock what was written down then is none that could be waited for.
    fs::remove_file(kept(&authority, &state)).expect("it is there");
    let right = Gateway::start(&text);
    eventually("it is ordered", || (issued(&right) == 1.0).then_some(()));
    drop(right);
    // A year behind it is not valid yet: ordering another one would change nothing.
    let count = authority.counts().0;
    let behind = with_clock("-400d", &text);
    let edge = behind.listener("edge");
    assert!(tls::presented(edge, "api.example.com").windows(14).any(|part| part == b"Test Authority"));
    assert_eq!((authority.counts().0, issued(&behind)), (count, 0.0));
}

#[test]
fn nothing_is_ordered_while_the_disk_is_full() {
    let (authority, directory) = (Authority::start(), Directory::new());
    let state = directory.join("state");
    fs::create_dir(&state).expect("made");
    // A disk of its own, with nothing left on it.
    let script =
        "mount -t tmpfs -o size=64k tmpfs \"$1\" && cat /dev/zero > \"$1/fill\" 2>&-; shift; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", script, "sh"]).arg(&state).arg(env!("CARGO_BIN_EXE_sluicegate"));
    let gateway = Gateway::start_by(command, directory, &ordering(&authority, &state));
    let line = said(&gateway, "certificate is not ordered: the state file cannot be written");
    assert!(line.contains("No space left on device"), "{line}");
    assert_eq!(authority.counts(), (0, 0));
    assert_eq!(gateway.get("/").text(), "ok");
}

#[test]
fn an_unknown_token_goes_to_the_routes() {
    let (authority, state) = (Authority::start(), Directory::new());
    authority.book().fault = Some(Fault::Silent);
    let gateway = Gateway::start(&ordering(&authority, &state.join("")));
    assert_eq!(gateway.get("/.well-known/acme-challenge/unknown").text(), "ok");
}

#[test]
fn check_asks_no_authority_and_writes_nothing() {
    let (authority, directory) = (Authority::start(), Directory::new());
    authority.book().fault = Some(Fault::Silent);
    let state = directory.join("state");
    let file = directory.write("gateway.toml", ordering(&authority, &state));
    let output = binary().args(["check", "--config"]).arg(file).output().expect("it can be started");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!state.exists());
}
