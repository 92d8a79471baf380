//! TLS towards upstreams: sessions are resumed, old versions refused, and new files used without a reload.

use std::net::TcpStream;
use std::sync::{Arc, Mutex, mpsc};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{
    HandshakeKind, RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion,
};

use crate::support::tls::Authority;
use crate::support::upstream::receive;
use crate::support::{Client, Directory, Gateway, PATIENCE, Upstream, eventually};

/// A handshake as the server has seen it.
#[derive(Debug)]
struct Seen {
    kind: Option<HandshakeKind>,
    /// The certificate that it was shown.
    shown: Option<Vec<u8>>,
}

/// A server that closes after each answer, and what it has seen. It asks for a certificate of `clients`, if it is given.
fn server(
    authority: &Authority,
    versions: &[&'static SupportedProtocolVersion],
    clients: Option<&Authority>,
) -> (Upstream, mpsc::Receiver<Seen>) {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .expect("the provider speaks them");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let pem = CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("a certificate");
            roots.add(pem).expect("an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("it has an authority"))
        }
    };
    let (cert, key) = authority.server(&["localhost"]);
    let cert = CertificateDer::from_pem_slice(cert.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let config = Arc::new(builder.with_single_cert(vec![cert], key).expect("they belong together"));
    let (tx, rx) = mpsc::channel();
    let tx = Mutex::new(tx);
    let upstream = Upstream::raw(move |stream| {
        if let Some(seen) = serve(stream, &config) {
            tx.lock().expect("nobody fails").send(seen).ok();
        }
    });
    (upstream, rx)
}

fn serve(stream: TcpStream, config: &Arc<ServerConfig>) -> Option<Seen> {
    let session = ServerConnection::new(Arc::clone(config)).expect("the configuration is whole");
    let mut peer = Client::over(StreamOwned::new(session, stream));
    receive(&mut peer)?;
    peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    let mut stream = peer.into_stream();
    stream.conn.send_close_notify();
    stream.conn.complete_io(&mut stream.sock).ok();
    let shown = stream.conn.peer_certificates().map(|chain| chain[0].to_vec());
    Some(Seen { kind: stream.conn.handshake_kind(), shown })
}

/// A gateway with an upstream of this server; its directory has the authority's `ca.pem`.
fn gateway(directory: Directory, authority: &Authority, upstream: &Upstream, tls: &str) -> Gateway {
    directory.write("ca.pem", &authority.pem);
    let config = format!(
        "workers = 2\n[upstream.u]\nservers = [\"https://localhost:{}\"]\ntls = {{ ca = \"ca.pem\"{tls} }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\n",
        upstream.addr().port()
    );
    Gateway::start_in(directory, &config)
}

#[test]
fn connections_to_a_server_share_their_sessions() {
    let authority = Authority::new("inside");
    for version in [&TLS12, &TLS13] {
        let (upstream, seen) = server(&authority, &[version], None);
        let gateway = gateway(Directory::new(), &authority, &upstream, "");
        let kinds = (0..6).map(|_| {
            // Each on a connection of its own, so that both workers are asked.
            assert_eq!(gateway.get("/a").status, 200);
            seen.recv_timeout(PATIENCE).expect("a handshake").kind
        });
        let kinds: Vec<_> = kinds.collect();
        let resumed = kinds.iter().filter(|kind| **kind == Some(HandshakeKind::Resumed)).count();
        assert_eq!((kinds[0], resumed), (Some(HandshakeKind::Full), 5), "{version:?}: {kinds:?}");
    }
}

#[test]
fn a_server_that_speaks_only_an_older_version_than_it_may_is_refused() {
    let authority = Authority::new("inside");
    for (version, min_version, status) in
        [(&TLS12, "1.3", 502), (&TLS13, "1.3", 200), (&TLS12, "1.2", 200), (&TLS13, "1.2", 200)]
    {
        let (upstream, _seen) = server(&authority, &[version], None);
        let tls = format!(", min-version = \"{min_version}\"");
        let gateway = gateway(Directory::new(), &authority, &upstream, &tls);
        let answer = gateway.get("/a");
        assert_eq!(answer.status, status, "{version:?} {min_version}: {answer:?}");
        let line = gateway.logged("/a");
        assert_eq!(line["cause"].as_str(), (status == 502).then_some("tls-nothing-in-common"), "{line}");
    }
}

#[test]
fn a_server_with_a_certificate_that_is_not_trusted_is_left_for_another() {
    let (authority, other) = (Authority::new("inside"), Authority::new("outside"));
    let (good, _seen) = server(&authority, &[&TLS13], None);
    let (bad, _seen_too) = server(&other, &[&TLS13], None);
    let directory = Directory::new();
    directory.write("ca.pem", &authority.pem);
    let gateway = Gateway::start_in(
        directory,
        &format!(
            "workers = 1\n[upstream.u]\nservers = [\"https://localhost:{}\", \"https://localhost:{}\"]\n\
             tls = {{ ca = \"ca.pem\" }}\nbalance = \"round-robin\"\n\
             [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\n",
            bad.addr().port(),
            good.addr().port()
        ),
    );
    for _ in 0..6 {
        assert_eq!(gateway.client().request("POST", "/a", &[], "body").status, 200);
    }
    assert!(bad.connections() > 0, "it was asked");
}

#[test]
fn a_new_client_certificate_is_shown_without_a_reload_and_resumes_nothing_of_the_old_one() {
    let authority = Authority::new("inside");
    let (old, new) = (authority.client("", "edge", 1, 2090), authority.client("", "edge", 2, 2090));
    for version in [&TLS12, &TLS13] {
        let (upstream, seen) = server(&authority, &[version], Some(&authority));
        let directory = Directory::new();
        directory.write("edge.pem", &old.pem);
        directory.write("edge.key", &old.key);
        let tls = ", cert = \"edge.pem\", key = \"edge.key\"";
        let gateway = gateway(directory, &authority, &upstream, tls);
        let ask = || {
            assert_eq!(gateway.get("/a").status, 200);
            seen.recv_timeout(PATIENCE).expect("a handshake")
        };
        let first = ask();
        assert_eq!(ask().kind, Some(HandshakeKind::Resumed));
        gateway.write("edge.key", &new.key);
        gateway.write("edge.pem", &new.pem);
        let renewed =
            eventually("the new one is shown", || Some(ask()).filter(|seen| seen.shown != first.shown));
        assert_eq!(renewed.kind, Some(HandshakeKind::Full), "{version:?}");
        assert_eq!(ask().kind, Some(HandshakeKind::Resumed));
        assert_eq!(gateway.reloads("succeeded"), 0.0, "it was no reload");
        let expiry = "sluicegate_certificate_expiry_timestamp_seconds";
        let ends = || gateway.metric(expiry, &["of=\"upstream\"", "upstream=\"u\"", "edge.pem"]);
        let is_stale = || gateway.metric("sluicegate_files_stale", &["of=\"upstream\""]);
        let end = ends();
        assert!(end > 3.7e9 && is_stale() == 0.0, "{end}");
        gateway.write("edge.key", "no key");
        eventually("the new key is refused", || (is_stale() == 1.0).then_some(()));
        assert_eq!(ends(), end, "it is the one in use");
    }
}

#[test]
fn a_check_says_that_its_server_requires_a_certificate() {
    let authority = Authority::new("inside");
    for version in [&TLS12, &TLS13] {
        for http in ["h1", "h2"] {
            let (upstream, _seen) = server(&authority, &[version], Some(&authority));
            let keys = format!(" }}\nhttp = \"{http}\"\nhealth = {{ path = \"/\", every = \"20ms\"");
            let gateway = gateway(Directory::new(), &authority, &upstream, &keys);
            eventually(&format!("a check fails, {version:?} {http}"), || {
                let shown = gateway.admin("/v1/upstreams").json();
                let failure = shown[0]["servers"][0]["check-failure"].as_str()?;
                failure.contains("CertificateRequired").then_some(())
            });
        }
    }
}
