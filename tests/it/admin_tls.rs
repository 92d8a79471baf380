//! The admin listener over TLS: operators by client certificates, beside tokens, and renewed files.

use std::fs;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use serde_json::Value;

use crate::support::gateway::binary;
use crate::support::tls::{self, Authority};
use crate::support::{Client, Directory, Gateway, Response, eventually, text};

const CONFIG: &str = r#"
[database]
url = "sqlite:state.db"

[admin]
bind = "127.0.0.1:0"
certs = [{ cert = "server.pem", key = "server.key" }]
client-ca = "ca.pem"
tokens = [{ name = "bob", token = "read-1", role = "read" }]
certificates = [
  { name = "alice", shows = "san:email=alice@ops.test", role = "operate" },
  { name = "robots", shows = "subject:cn=robot", role = "read" },
]

[policy.plans]
limit = { pro = "9/h", default = "9/h" }
by = ["header:x-user"]

[policy.calls]
limit = "2/h"
by = ["header:x-user"]

[[route]]
path = "/{*rest}"
limit = "calls"
respond = {}
"#;

/// A gateway, and the authority of its operators, which its own certificate comes from, too.
fn start() -> (Gateway, Authority) {
    let (directory, authority) = (Directory::new(), Authority::new("operators"));
    let (cert, key) = authority.server(&["localhost", "127.0.0.1"]);
    directory.write("server.pem", cert);
    directory.write("server.key", key);
    directory.write("ca.pem", &authority.pem);
    (Gateway::start_in(directory, CONFIG), authority)
}

fn ask(gateway: &Gateway, session: &Arc<ClientConfig>, request: [&str; 2], fields: &[&str]) -> Response {
    let stream = tls::resume(gateway.listener("admin"), "localhost", session).expect("it is spoken");
    let body = r#"{"tier":"pro"}"#;
    let fields = [fields, &["Content-Type: application/json", "Connection: close"]].concat();
    let [method, path] = request;
    Client::over(stream).request(method, path, &fields, if method == "PUT" { body } else { "" })
}

const ASSIGN: [&str; 2] = ["PUT", "/v1/consumers/ann/tier"];
const AUDIT: [&str; 2] = ["GET", "/v1/audit"];

#[test]
fn a_certificate_that_is_listed_proves_a_name_and_a_role() {
    let (gateway, authority) = start();
    let session =
        |email, common| tls::session_as(&authority.client(email, common, 7, 2090), rustls::ALL_VERSIONS);
    let (alice, robot, other) =
        (session("alice@ops.test", "robot"), session("", "robot"), session("x@y", "z"));
    let nobody = tls::session(&[], rustls::ALL_VERSIONS);
    let status = |session, request, fields: &[&str]| ask(&gateway, session, request, fields).status;
    assert_eq!(status(&alice, ASSIGN, &[]), 200);
    // Again over the session that the first connection began.
    assert_eq!(status(&alice, AUDIT, &[]), 200);
    assert_eq!([status(&robot, AUDIT, &[]), status(&robot, ASSIGN, &[])], [200, 403]);
    for session in [&other, &nobody] {
        assert_eq!([status(session, AUDIT, &[]), status(session, ["GET", "/readyz"], &[])], [401, 200]);
        assert_eq!(status(session, AUDIT, &["Authorization: Bearer read-1"]), 200);
    }
    // A token goes before the certificate, a wrong one too.
    assert_eq!(status(&alice, ASSIGN, &["Authorization: Bearer read-1"]), 403);
    assert_eq!(status(&alice, AUDIT, &["Authorization: Bearer read-2"]), 401);
    let audit = ask(&gateway, &alice, AUDIT, &[]).json();
    assert_eq!(audit["items"][0]["who"], "alice", "{audit}");
}

#[test]
fn a_certificate_of_another_authority_gets_no_connection() {
    let (gateway, _) = start();
    let stranger = Authority::new("operators").client("alice@ops.test", "alice", 7, 2090);
    let session = tls::session_as(&stranger, &[&rustls::version::TLS12]);
    assert!(tls::resume(gateway.listener("admin"), "localhost", &session).is_err());
    // Nor does who does not speak TLS.
    let mut plain = Client::connect(gateway.listener("admin"));
    plain.send("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(!text(&plain.rest()).contains("200 OK"));
}

#[test]
fn renewed_files_are_taken_and_broken_ones_are_not() {
    let (gateway, authority) = start();
    let admin = gateway.listener("admin");
    let before = tls::presented(admin, "localhost");
    let anyone = tls::session(&[], rustls::ALL_VERSIONS);
    let series = |start: &str| {
        let metrics = ask(&gateway, &anyone, ["GET", "/metrics"], &["Authorization: Bearer read-1"]).text();
        let line = metrics.lines().find(|line| line.starts_with(start)).expect("the series is there");
        line.rsplit_once(' ').expect("a value").1.parse::<f64>().expect("a number")
    };
    assert!(series("sluicegate_certificate_expiry_timestamp_seconds{of=\"admin\"") > 1.7e9);
    assert_eq!(series("sluicegate_files_stale{of=\"admin\"}"), 0.0);
    let pair = authority.server(&["localhost"]);
    // The key comes later than its certificate: until then nothing changes.
    gateway.write("server.pem", &pair.0);
    eventually("the files do not fit", || {
        gateway.stderr().iter().any(|line| line.contains("the old ones stay in use")).then_some(())
    });
    assert_eq!(tls::presented(admin, "localhost"), before);
    assert_eq!(series("sluicegate_files_stale{of=\"admin\"}"), 1.0);
    gateway.write("server.key", &pair.1);
    eventually("the new certificate is shown", || {
        (tls::presented(admin, "localhost") != before).then_some(())
    });
    eventually("nothing is stale", || (series("sluicegate_files_stale{of=\"admin\"}") == 0.0).then_some(()));
    // So are the authorities of clients.
    let new = Authority::new("operators");
    let alice = tls::session_as(&new.client("alice@ops.test", "a", 7, 2090), rustls::ALL_VERSIONS);
    gateway.write("ca.pem", &new.pem);
    eventually("the new authority is trusted", || {
        let mut stream = tls::resume(admin, "localhost", &alice).ok()?;
        use std::io::Write;
        stream.write_all(b"GET /v1/audit HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        Client::over(stream).try_head()?.contains(" 200 ").then_some(())
    });
}

#[test]
fn ctl_shows_a_certificate_and_verifies_the_listener() {
    let (gateway, authority) = start();
    let directory = Directory::new();
    let alice = authority.client("alice@ops.test", "alice", 7, 2090);
    let path = |name: &str, content: &str| directory.write(name, content).display().to_string();
    let (cert, key) = (path("alice.pem", &alice.pem), path("alice.key", &alice.key));
    let ca = path("ca.pem", &authority.pem);
    let stranger = path("other.pem", &Authority::new("other").pem);
    let url = format!("https://localhost:{}", gateway.listener("admin").port());
    let clear = url.replace("https", "http");
    let (cert_of_ca, key_of_ca) = Authority::own("localhost");
    let own = path("own.pem", &cert_of_ca);
    directory.write("own.key", key_of_ca);
    let key_file = directory.join("own.key").display().to_string();
    let server = Gateway::start(&format!(
        "[listener.own]\nbind = \"127.0.0.1:0\"\ncerts = [{{ cert = \"{own}\", key = \"{key_file}\" }}]\n\
         [[route]]\nrespond = {{}}\n"
    ));
    let self_signed = format!("https://localhost:{}", server.listener("own").port());
    let run = |arguments: &[&str]| -> Output {
        let mut command = binary();
        command.env_remove("SLUICEGATE_TOKEN").arg("ctl").args(arguments);
        command.output().expect("it can be started")
    };
    let assign = ["tier", "assign", "ann", "pro"];
    let shown = ["--url", &url, "--cert", &cert, "--key", &key];
    let done = run(&[&shown[..], &["--ca", &ca], &assign].concat());
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let audit = run(&[&shown[..], &["--ca", &ca, "audit", "--json"]].concat());
    let audit: Value = serde_json::from_slice(&audit.stdout).expect("it is JSON");
    assert_eq!(audit["items"][0]["who"], "alice", "{audit}");
    for (arguments, said) in [
        (
            vec!["--url", &url, "--cert", &cert, "--key", &key, "--ca", &stranger, "audit"],
            "UnknownIssuer): name the authority that issued it with --ca",
        ),
        (vec!["--url", &url, "--ca", &ca, "audit"], "answers 401"),
        (vec!["--url", "http://127.0.0.1:1", "--ca", &ca, "audit"], "need a listener with TLS"),
        (vec!["--url", &url, "--cert", &cert, "audit"], "--key"),
        (vec!["--url", &clear, "audit"], "): if it speaks TLS, write https://"),
        (vec!["--url", &url, "--ca", &key, "audit"], "sluicegate: --ca: "),
        (vec!["--url", &self_signed, "--ca", &own, "audit"], "its certificate is a CA's"),
    ] {
        let output = run(&arguments);
        assert!(!output.status.success() && text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
    // From gateway.toml it is found without `--ca`: it is this machine's own.
    let config = fs::read_to_string(gateway.file("gateway.toml")).expect("it is there");
    let port = gateway.listener("admin").port();
    let file = gateway
        .write("ctl.toml", config.replace("127.0.0.1:0\"\ncerts", &format!("127.0.0.1:{port}\"\ncerts")));
    let mut command = binary();
    command.env_remove("SLUICEGATE_TOKEN").arg("--config").arg(&file).args(["ctl", "audit"]);
    let output = command.args(["--cert", &cert, "--key", &key]).output().expect("it can be started");
    assert!(text(&output.stdout).contains("alice"), "{}", text(&output.stderr));
    // Whoever else listens there, with another certificate of whatever authority, is told no token.
    let (cert, key) = authority.server(&["localhost", "127.0.0.1"]);
    gateway.write("renewed.pem", cert);
    gateway.write("renewed.key", key);
    let text_of_file = fs::read_to_string(&file).expect("it is there");
    let file = gateway.write("impostor.toml", text_of_file.replace("server.", "renewed."));
    let mut command = binary();
    let command = command.env("SLUICEGATE_TOKEN", "read-1").arg("--config").arg(&file);
    let output = command.args(["ctl", "audit"]).output().expect("it can be started");
    assert!(
        !output.status.success() && text(&output.stderr).contains("is not one of gateway.toml's"),
        "{output:?}"
    );
    let output =
        binary().arg("--config").arg(&file).args(["explain", "GET", "/"]).output().expect("it starts");
    assert!(
        text(&output.stdout)
            .contains("no gateway answers on the admin address (the listener's certificate is not one of"),
        "{output:?}"
    );
}

#[test]
fn a_handshake_that_never_ends_keeps_nobody_out() {
    let (gateway, _) = start();
    let silent: Vec<Client> = (0..300).map(|_| Client::connect(gateway.listener("admin"))).collect();
    let nobody = tls::session(&[], rustls::ALL_VERSIONS);
    assert_eq!(ask(&gateway, &nobody, ["GET", "/readyz"], &[]).status, 200);
    let first = silent.into_iter().next().expect("there are some");
    assert!(crate::support::client::closes_within(first.socket(), Duration::from_secs(5)));
}
