//! Client certificates: who they stand for, over resumed sessions too, and when they stop.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{ClientConfig, HandshakeKind};

use super::config;
use crate::support::tls::{self, Authority};
use crate::support::{Client, Directory, Gateway, Response, Upstream, eventually};

/// A gateway with a listener `tls` whose clients' certificates come from `ca.pem`, and one without that.
pub(super) fn start(directory: Directory, listener: &str, ways: &str) -> (Gateway, Upstream, String) {
    tls::certify(&directory, "server", &["localhost"]);
    let upstream = Upstream::ok();
    let certs = "certs = [{ cert = \"server.pem\", key = \"server.key\" }]";
    let all = format!(
        "[listener.tls]\nbind = \"127.0.0.1:0\"\n{certs}\nclient-ca = \"ca.pem\"\n{listener}\n\
         [listener.bare]\nbind = \"127.0.0.1:0\"\n{certs}\n{}",
        config(&upstream, ways, "\"staff\"", "")
    );
    (Gateway::start_in(directory, &all), upstream, all)
}

/// One request over this client's session; `None` where there is no connection.
fn ask(addr: SocketAddr, session: &Arc<ClientConfig>) -> Option<Response> {
    let mut stream = tls::resume(addr, "localhost", session).ok()?;
    // Over TLS 1.3 a server refuses a client after the client's side of the handshake is done.
    use std::io::Write;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut client = Client::over(stream);
    let head = client.try_head()?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Some(Response { status, headers: Vec::new(), body: client.rest() })
}

pub(super) fn status(addr: SocketAddr, session: &Arc<ClientConfig>) -> Option<u16> {
    ask(addr, session).map(|answer| answer.status)
}

pub(super) const BY_EMAIL: &str =
    "[auth.staff]\nkind = \"mtls\"\nconsumer = \"san:email\"\ntenant = \"subject:o\"\ntier = \"internal\"\n";

fn told(upstream: &Upstream) -> String {
    let request = upstream.request();
    let told = |name| request.header(name).unwrap_or_else(|| "-".to_owned());
    format!("{} {} {}", told("x-consumer"), told("x-tenant"), told("x-tier"))
}

#[test]
fn a_certificate_identifies_its_client_over_resumed_sessions_too() {
    let directory = Directory::new();
    let authority = Authority::new("clients");
    directory.write("ca.pem", &authority.pem);
    let (gateway, upstream, _) = start(directory, "client-cert = \"require\"", BY_EMAIL);
    let addr = gateway.listener("tls");
    for (version, name) in
        [(&rustls::version::TLS12, "ann@example.com"), (&rustls::version::TLS13, "bob@example.com")]
    {
        let session = tls::session_as(&authority.client(name, "x", 7, 2090), &[version]);
        let mut kinds = Vec::new();
        for _ in 0..4 {
            let mut stream = tls::resume(addr, "localhost", &session).expect("it is spoken");
            kinds.push(stream.conn.handshake_kind());
            assert_eq!(Client::over(&mut stream).get("/").text(), "ok");
            assert_eq!(told(&upstream), format!("{name} acme internal"));
        }
        assert_eq!(kinds[0], Some(HandshakeKind::Full));
        assert!(kinds[1..].iter().all(|kind| *kind == Some(HandshakeKind::Resumed)), "{kinds:?}");
        assert_eq!(status(gateway.listener("bare"), &session), Some(401), "no certificate was checked there");
    }
}

#[test]
fn clients_without_a_valid_certificate_are_refused() {
    let directory = Directory::new();
    let (authority, other) = (Authority::new("clients"), Authority::new("clients"));
    directory.write("ca.pem", &authority.pem);
    let (gateway, upstream, all) = start(directory, "client-cert = \"require\"", BY_EMAIL);
    let session = |client: &tls::Client| tls::session_as(client, rustls::ALL_VERSIONS);
    let nobody = tls::session(&[], rustls::ALL_VERSIONS);
    let stranger = session(&other.client("ann@example.com", "ann", 1, 2090));
    let expired = session(&authority.client("ann@example.com", "ann", 2, 2020));
    let nameless = session(&authority.client("", "ann", 3, 2090));
    let good = session(&authority.client("ann@example.com", "ann", 4, 2090));
    let addr = gateway.listener("tls");
    let statuses = [&nobody, &stranger, &expired, &nameless, &good].map(|session| status(addr, session));
    assert_eq!(statuses, [None, None, None, Some(401), Some(200)]);

    gateway.reload(&all.replace("client-cert = \"require\"", "client-cert = \"ask\""));
    let statuses = [&nobody, &stranger, &expired, &nameless, &good].map(|session| status(addr, session));
    assert_eq!(statuses, [Some(401), None, None, Some(401), Some(200)], "one that is shown must be good");
    assert_eq!(told(&upstream), "ann@example.com acme internal");
    gateway.reload(&all.replace("san:email", "subject:cn"));
    assert_eq!(status(addr, &nameless), Some(200));
}

#[test]
fn a_revoked_certificate_and_a_changed_authority_end_sessions() {
    let directory = Directory::new();
    let (authority, other) = (Authority::new("clients"), Authority::new("others"));
    directory.write("ca.pem", &authority.pem);
    directory.write("crl.pem", authority.revoking(&[1]));
    let (gateway, _upstream, all) = start(directory, "client-crl = \"crl.pem\"", BY_EMAIL);
    let addr = gateway.listener("tls");
    let session = |serial| {
        tls::session_as(&authority.client("ann@example.com", "ann", serial, 2090), rustls::ALL_VERSIONS)
    };
    let (revoked, good) = (session(1), session(2));
    assert_eq!(status(addr, &revoked), None);
    assert_eq!([status(addr, &good), status(addr, &good)], [Some(200), Some(200)]);

    gateway.write("crl.pem", authority.revoking(&[1, 2]));
    eventually("the new list", || status(addr, &good).is_none().then_some(()));

    // What holds no list would revoke nothing: it is refused, and the list before goes on.
    for unusable in ["-----BEGIN X509 CRL-----\nhalf", "", "\x30\x03DER", &authority.pem] {
        gateway.write("crl.pem", unusable);
        gateway.reload_refused(&all);
        assert_eq!(status(addr, &good), None, "{unusable:?}");
    }
    gateway.write("crl.pem", authority.revoking(&[]));
    gateway.reload(&all);
    assert_eq!(status(addr, &good), Some(200));
    gateway.write("ca.pem", &other.pem);
    eventually("the new authority", || status(addr, &good).is_none().then_some(()));
}
