//! Who is trusted on the other side of a connection that the gateway makes: upstreams and issuers of tokens.

use std::io::{Read, Write};
use std::process::Output;

use crate::support::gateway::{binary, complete};
use crate::support::tls::{self, Authority};
use crate::support::{Directory, Gateway, Upstream, eventually, text};

/// A gateway whose route `/` goes to these servers of an upstream.
fn before(directory: Directory, servers: &str, more: &str, environment: &[(&str, &str)]) -> Gateway {
    let config = format!(
        "workers = 1\n[upstream.u]\nservers = {servers}\nretry = {{ budget = \"100%\" }}\n{more}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\n"
    );
    Gateway::start_with(directory, &config, environment)
}

#[test]
fn the_cause_of_an_unusable_upstream_is_logged_and_each_server_is_tried_once() {
    let directory = Directory::new();
    tls::certify(&directory, "stranger", &["localhost"]);
    tls::certify(&directory, "trusted", &["localhost"]);
    let (own, key) = Authority::own("localhost");
    directory.write("authority.pem", &own);
    directory.write("authority.key", key);
    let both = text(&std::fs::read(directory.join("trusted.pem")).expect("it was written")) + &own;
    directory.write("trust.pem", both);
    let pair = |name: &str| {
        let file = directory.join(name).display().to_string();
        format!("certs = [{{ cert = \"{file}.pem\", key = \"{file}.key\" }}]")
    };
    let server = Gateway::start(&format!(
        "[listener.stranger]\nbind = \"127.0.0.1:0\"\n{}\n[listener.trusted]\nbind = \"127.0.0.1:0\"\n{}\n\
         [listener.authority]\nbind = \"127.0.0.1:0\"\n{}\n\
         [listener.clear]\nbind = \"127.0.0.1:0\"\n[[route]]\nrespond = {{}}\n",
        pair("stranger"),
        pair("trusted"),
        pair("authority"),
    ));
    let port = |name: &str| server.listener(name).port();
    let trust = directory.join("trust.pem").display().to_string();
    let gone = Upstream::raw(drop);
    for (url, status, reason, cause) in [
        (format!("https://localhost:{}", port("stranger")), 502, "upstream-connect", "tls-unknown-issuer"),
        (format!("https://127.0.0.1:{}", port("trusted")), 502, "upstream-connect", "tls-certificate-name"),
        (format!("https://localhost:{}", port("clear")), 502, "upstream-connect", "not-tls"),
        (
            format!("https://localhost:{}", port("authority")),
            502,
            "upstream-connect",
            "tls-certificate-of-ca",
        ),
    ] {
        for http in ["h1", "h2"] {
            // Two servers, so that a second try has somewhere to go: it is checked, too.
            let gateway = before(
                Directory::new(),
                &format!("[\"{url}\", \"{url}\"]"),
                &format!("http = \"{http}\""),
                &[("SSL_CERT_FILE", &trust)],
            );
            let answer = gateway.get("/a");
            assert_eq!(answer.status, status, "{cause}: {answer:?}");
            assert!(!format!("{:?}{}", answer.headers, answer.text()).contains("tls-"), "{answer:?}");
            let line = gateway.logged("/a");
            assert_eq!(
                (line["reason"].as_str(), line["cause"].as_str()),
                (Some(reason), Some(cause)),
                "{line}"
            );
            assert_eq!(line["retries"], 1, "{line}");
            let counted = |name: &str, label: &str| gateway.metric(name, &[label]);
            assert_eq!(counted("sluicegate_causes_total", &format!("cause=\"{cause}\"")), 1.0);
            assert_eq!(counted("sluicegate_upstream_connect_failures_total", "upstream"), 2.0, "each once");
            let shown = gateway.admin("/v1/explain?url=/a").json();
            let failing = shown["servers-failing"].as_object().expect("servers");
            assert!(failing.values().any(|it| *it == cause), "{shown}");
            assert!(shown["text"].as_str().is_some_and(|it| it.contains("cannot be used: ")), "{shown}");
        }
    }
    // The other way round: TLS where plain HTTP is meant. And a head that is too long is no other fault of HTTP.
    let long = Upstream::raw(|mut stream| {
        let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(400_000)).as_bytes());
        // What is unread at the end would reset the connection.
        drop(stream.read_to_end(&mut Vec::new()));
    });
    let tls = format!("http://localhost:{}", port("trusted"));
    for (url, http, (reason, cause)) in [
        (tls.clone(), "h1", ("upstream-bad-response", "speaks-tls")),
        (tls, "h2", ("upstream-connect", "speaks-tls")),
        (format!("http://{}", long.addr()), "h1", ("upstream-bad-response", "response-head-too-long")),
    ] {
        let gateway = before(Directory::new(), &format!("\"{url}\""), &format!("http = \"{http}\""), &[]);
        assert_eq!(gateway.get("/a").status, 502);
        let line = gateway.logged("/a");
        assert_eq!((&line["reason"], &line["cause"]), (&reason.into(), &cause.into()), "{line}");
        let shown = gateway.admin("/v1/upstreams").text();
        assert_eq!(
            shown.contains("the server speaks TLS: write its URL with https://"),
            cause == "speaks-tls",
            "{shown}"
        );
    }
    let silent = Upstream::raw(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let url = format!("\"https://{}\"", silent.addr());
    let gateway = before(Directory::new(), &url, "timeouts = { connect = \"100ms\" }", &[]);
    assert_eq!(gateway.get("/a").status, 504);
    assert_eq!(gateway.logged("/a")["cause"], "tls-timeout");
    // Nobody listens, or nobody stays: another server may be asked.
    drop(server);
    for (url, cause) in
        [(format!("http://{}", gone.addr()), ""), ("http://127.0.0.1:1".to_owned(), "connect-refused")]
    {
        let gateway = before(Directory::new(), &format!("[\"{url}\", \"{url}\"]"), "", &[]);
        assert_eq!(gateway.get("/a").status, 502);
        let line = gateway.logged("/a");
        assert_eq!((line["cause"].as_str().unwrap_or(""), &line["retries"]), (cause, &1.into()), "{line}");
    }
}

/// A server with a certificate of this authority for these names, and more of its listener.
fn server_of(authority: &Authority, names: &[&str], listener: &str) -> Gateway {
    let directory = Directory::new();
    let (cert, key) = authority.server(names);
    directory.write("s.pem", cert);
    directory.write("s.key", key);
    directory.write("clients.pem", &authority.pem);
    let config = format!(
        "[listener.tls]\nbind = \"127.0.0.1:0\"\ncerts = [{{ cert = \"s.pem\", key = \"s.key\" }}]\n{listener}\n\
         [[route]]\nrespond = {{ body = \"private\" }}\n"
    );
    Gateway::start_in(directory, &config)
}

/// What `before` answers, and the cause where it does not get through.
fn answer(directory: Directory, url: &str, more: &str) -> (u16, String) {
    let gateway = before(directory, &format!("[\"{url}\", \"{url}\"]"), more, &[]);
    let status = gateway.get("/a").status;
    let line = gateway.logged("/a");
    // Both servers are the same one; the second is asked if the first does not get through.
    assert_eq!(line["retries"], u8::from(status != 200), "{more}: {line}");
    (status, line["cause"].as_str().unwrap_or("").to_owned())
}

#[test]
fn an_upstream_of_a_private_authority_is_used() {
    let (authority, other) = (Authority::new("inside"), Authority::new("outside"));
    let server = server_of(&authority, &["orders.internal"], "sni = \"any\"");
    let url = format!("https://127.0.0.1:{}", server.listener("tls").port());
    let files = || {
        let directory = Directory::new();
        directory.write("ca.pem", &authority.pem);
        directory.write("other.pem", &other.pem);
        directory
    };
    for http in ["h1", "h2"] {
        for (tls, status, cause) in [
            ("{ ca = \"ca.pem\", sni = \"orders.internal\" }", 200, ""),
            ("{ ca = \"ca.pem\" }", 502, "tls-certificate-name"),
            ("{ ca = \"other.pem\", sni = \"orders.internal\" }", 502, "tls-unknown-issuer"),
            ("{ ca = \"ca.pem\", sni = \"else.internal\" }", 502, "tls-certificate-name"),
            ("{ verify = false }", 200, ""),
        ] {
            let more = format!("http = \"{http}\"\ntls = {tls}");
            assert_eq!(answer(files(), &url, &more), (status, cause.to_owned()), "{http} {tls}");
        }
    }
}

#[test]
fn an_upstream_that_asks_for_a_certificate_gets_one() {
    let authority = Authority::new("inside");
    let server = server_of(&authority, &["localhost"], "client-ca = \"clients.pem\"");
    let url = format!("https://localhost:{}", server.listener("tls").port());
    let stranger = Authority::new("outside").client("", "edge", 2, 2090);
    let own = authority.client("", "edge", 1, 2090);
    for http in ["h1", "h2"] {
        for (shown, status, cause) in [
            (Some(&own), 200, ""),
            (Some(&stranger), 502, "tls-certificate-refused"),
            (None, 502, "tls-certificate-refused"),
        ] {
            let directory = Directory::new();
            directory.write("ca.pem", &authority.pem);
            let pair = shown.map_or("", |client| {
                directory.write("edge.pem", &client.pem);
                directory.write("edge.key", &client.key);
                ", cert = \"edge.pem\", key = \"edge.key\""
            });
            let more = format!("http = \"{http}\"\ntls = {{ ca = \"ca.pem\"{pair} }}");
            assert_eq!(answer(directory, &url, &more), (status, cause.to_owned()), "{http} {pair}");
        }
    }
}

#[test]
fn a_changed_authority_is_noticed_and_a_broken_one_is_not_taken() {
    let (old, new) = (Authority::new("inside"), Authority::new("inside"));
    let server = server_of(&new, &["localhost"], "");
    let url = format!("https://localhost:{}", server.listener("tls").port());
    let directory = Directory::new();
    directory.write("ca.pem", &old.pem);
    let gateway = before(directory, &format!("\"{url}\""), "tls = { ca = \"ca.pem\" }", &[]);
    assert_eq!(gateway.get("/a").status, 502);
    gateway.write("ca.pem", &new.pem);
    eventually("the new authority", || (gateway.get("/b").status == 200).then_some(()));
    let failed = gateway.reloads("failed");
    gateway.write("ca.pem", "nothing");
    eventually("the complaint", || (gateway.reloads("failed") > failed).then_some(()));
    assert_eq!(gateway.get("/c").status, 200);
}

#[test]
fn keys_come_from_an_issuer_of_a_private_authority() {
    let authority = Authority::new("inside");
    let directory = Directory::new();
    let (cert, key) = authority.server(&["id.internal"]);
    directory.write("s.pem", cert);
    directory.write("s.key", key);
    directory.write("clients.pem", &authority.pem);
    let signer = rcgen::KeyPair::generate().expect("a pair");
    let private = jsonwebtoken::EncodingKey::from_ec_pem(signer.serialize_pem().as_bytes()).expect("a key");
    let algorithm = jsonwebtoken::Algorithm::ES256;
    let jwk = jsonwebtoken::jwk::Jwk::from_encoding_key(&private, algorithm).expect("a public key");
    let keys = serde_json::json!({ "keys": [jwk] }).to_string();
    let issuer = Gateway::start_in(
        directory,
        &format!(
            "[listener.tls]\nbind = \"127.0.0.1:0\"\ncerts = [{{ cert = \"s.pem\", key = \"s.key\" }}]\n\
             client-ca = \"clients.pem\"\nsni = \"any\"\n[[route]]\npath = \"/keys\"\nrespond = {{ body = {keys:?} }}\n"
        ),
    );
    let claims = serde_json::json!({ "sub": "ann", "exp": jsonwebtoken::get_current_timestamp() + 300 });
    let header = jsonwebtoken::Header::new(algorithm);
    let token = jsonwebtoken::encode(&header, &claims, &private).expect("the key fits");
    let edge = authority.client("", "edge", 1, 2090);
    let start = |tls: &str| {
        let directory = Directory::new();
        directory.write("ca.pem", &authority.pem);
        directory.write("edge.pem", &edge.pem);
        directory.write("edge.key", &edge.key);
        let url = format!("https://127.0.0.1:{}/keys", issuer.listener("tls").port());
        let config = format!(
            "[auth.jwt]\nkind = \"jwt\"\njwks = \"{url}\"\naudience = []\nalgorithms = [\"ES256\"]\n{tls}\n\
             [[route]]\nauth = \"jwt\"\nrespond = {{}}\n"
        );
        Gateway::start_in(directory, &config)
    };
    let ask = |gateway: &Gateway| {
        gateway.client().request("GET", "/", &[&format!("Authorization: Bearer {token}")], "").status
    };
    let whole = "ca = \"ca.pem\", cert = \"edge.pem\", key = \"edge.key\", sni = \"id.internal\"";
    assert_eq!(ask(&start(&format!("tls = {{ {whole} }}"))), 200);
    assert_eq!(ask(&start("tls = { ca = \"ca.pem\", sni = \"id.internal\" }")), 401, "it asks who we are");
    assert_eq!(ask(&start("tls = { cert = \"edge.pem\", key = \"edge.key\", verify = false }")), 200);
}

/// What a command says of a configuration, with these authorities as the system's.
fn said(command: &str, directory: &Directory, config: &str, system: &str) -> (Option<i32>, String) {
    let file = directory.write("gateway.toml", complete(config, directory));
    let Output { status, stderr, .. } = binary()
        .args([command, "--config"])
        .arg(&file)
        .env("SSL_CERT_FILE", system)
        .env("SSL_CERT_DIR", "")
        .output()
        .expect("the binary under test can be started");
    (status.code(), text(&stderr))
}

#[test]
fn a_system_without_authorities_is_said_before_anything_is_asked() {
    let directory = Directory::new();
    let nowhere = directory.join("nowhere.pem").display().to_string();
    let url = "https://orders.internal";
    let jwt = "[auth.jwt]\nkind = \"jwt\"\naudience = \"api\"\nalgorithms = [\"ES256\"]\n";
    for (config, at) in [
        (format!("[upstream.u]\nservers = [\"{url}\"]\n[[route]]\nto = \"u\"\n"), ":2:11"),
        (format!("[[route]]\nto = \"{url}\"\n"), ":2:6"),
        (format!("{jwt}jwks = \"{url}/keys\"\n[[route]]\nauth = \"jwt\"\nto = \"echo\"\n"), ":5:8"),
    ] {
        for command in ["check", "run"] {
            let (code, said) = said(command, &directory, &config, &nowhere);
            assert_eq!(code, Some(78), "{said}");
            assert!(said.contains("no certificate authority of the system can be read"), "{said}");
            assert!(said.contains("`ca-certificates`") && said.contains("tls = { ca = "), "{said}");
            assert!(said.contains(at), "{said}");
        }
    }
    // Where each names its own, nobody asks for the system's.
    directory.write("ca.pem", &Authority::new("inside").pem);
    let own =
        format!("[upstream.u]\nservers = [\"{url}\"]\ntls = {{ ca = \"ca.pem\" }}\n[[route]]\nto = \"u\"\n");
    let (code, said) = said("check", &directory, &own, &nowhere);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn what_is_wrong_with_a_certificate_is_said_at_the_key_that_names_it() {
    let directory = Directory::new();
    for name in ["a", "b"] {
        tls::certify(&directory, name, &["localhost"]);
    }
    let listener =
        |rest: &str| format!("[listener.l]\nbind = \"127.0.0.1:0\"\n{rest}\n[[route]]\nto = \"echo\"\n");
    let upstream =
        |tls: &str| format!("[upstream.u]\nservers = [\"https://a\"]\ntls = {tls}\n[[route]]\nto = \"u\"\n");
    let collector =
        |tls: &str| format!("[trace]\notlp = \"https://a\"\ntls = {tls}\n[[route]]\nto = \"echo\"\n");
    let good = "certs = [{ cert = \"a.pem\", key = \"a.key\" }]\n";
    for (config, at, words) in [
        (
            listener("certs = [{ cert = \"a.pem\", key = \"b.key\" }]"),
            ":3:34",
            "not the private key of the certificate",
        ),
        (listener("certs = [{ cert = \"none\", key = \"b.key\" }]"), ":3:19", "cannot be read"),
        (
            listener(
                "certs = [{ cert = \"a.pem\", key = \"a.key\" }, { cert = \"a.pem\", key = \"a.pem\" }]",
            ),
            ":3:69",
            "no private key in it, but a certificate",
        ),
        (
            listener(&format!("{good}client-ca = \"a.key\"")),
            ":4:13",
            "no certificate in it, but a private key",
        ),
        (
            listener(&format!("{good}client-ca = \"a.pem\"\nclient-crl = \"a.pem\"")),
            ":5:14",
            "no revocation list in it",
        ),
        (upstream("{ ca = \"none.pem\" }"), ":3:14", "cannot be read"),
        (collector("{ ca = \"none.pem\" }"), ":3:14", "cannot be read"),
        (collector("{ ca = \"a.key\" }"), ":3:14", "no certificate in it, but a private key"),
        (
            collector("{ ca = \"a.pem\", cert = \"a.pem\", key = \"b.key\" }"),
            ":3:45",
            "not the private key of the certificate",
        ),
        (
            upstream("{ verify = false, cert = \"a.pem\", key = \"b.key\" }"),
            ":3:47",
            "not the private key of the certificate",
        ),
    ] {
        for command in ["check", "run"] {
            let (code, said) = said(command, &directory, &config, "");
            assert_eq!(code, Some(78), "{said}");
            assert!(said.contains(at) && said.contains(words), "{at} {words}: {said}");
        }
    }
    // All of them at once, and beside what is wrong with other files.
    let all = "[listener.l]\nbind = \"127.0.0.1:0\"\ncerts = [{ cert = \"none\", key = \"a.key\" }]\n\
         [auth.k]\nkind = \"api-key\"\nkeys = { file = \"none.toml\" }\n\
         [upstream.u]\nservers = \"https://a\"\ntls = { ca = \"none\" }\n[[route]]\nto = \"u\"\nauth = \"k\"\n";
    let (_, said) = said("check", &directory, all, "");
    assert!(said.contains(": 3 errors"), "{said}");
}
