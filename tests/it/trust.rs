//! Who is trusted on the other side of a connection that the gateway makes: upstreams and issuers of tokens.

use crate::support::{Directory, Gateway, Upstream, tls};

/// A gateway whose route `/` goes to these servers of an upstream.
fn before(directory: Directory, servers: &str, more: &str, environment: &[(&str, &str)]) -> Gateway {
    let config = format!(
        "workers = 1\n[upstream.u]\nservers = {servers}\nretry = {{ budget = \"100%\" }}\n{more}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\n"
    );
    Gateway::start_with(directory, &config, environment)
}

#[test]
fn why_an_upstream_cannot_be_used_is_told_to_the_operator_and_tried_once() {
    let directory = Directory::new();
    tls::certify(&directory, "stranger", &["localhost"]);
    tls::certify(&directory, "trusted", &["localhost"]);
    let pair = |name: &str| {
        let file = directory.join(name).display().to_string();
        format!("certs = [{{ cert = \"{file}.pem\", key = \"{file}.key\" }}]")
    };
    let server = Gateway::start(&format!(
        "[listener.stranger]\nbind = \"127.0.0.1:0\"\n{}\n[listener.trusted]\nbind = \"127.0.0.1:0\"\n{}\n\
         [listener.clear]\nbind = \"127.0.0.1:0\"\n[[route]]\nrespond = {{}}\n",
        pair("stranger"),
        pair("trusted"),
    ));
    let port = |name: &str| server.listener(name).port();
    let trust = directory.join("trusted.pem").display().to_string();
    let gone = Upstream::raw(drop);
    for (url, status, reason, cause) in [
        (format!("https://localhost:{}", port("stranger")), 502, "upstream-connect", "tls-unknown-issuer"),
        (format!("https://127.0.0.1:{}", port("trusted")), 502, "upstream-connect", "tls-certificate-name"),
        (format!("https://localhost:{}", port("clear")), 502, "upstream-connect", "tls-protocol"),
    ] {
        for http in ["h1", "h2"] {
            // Two servers, so that a second try would have somewhere to go.
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
            assert_eq!(line["retries"], 0, "{line}");
            let counted = |name: &str, label: &str| gateway.metric(name, &[label]);
            assert_eq!(counted("sluicegate_causes_total", &format!("cause=\"{cause}\"")), 1.0);
            assert_eq!(counted("sluicegate_upstream_connect_failures_total", "upstream"), 1.0, "tried once");
            let shown = gateway.admin("/v1/explain?url=/a").json();
            let failing = shown["servers-failing"].as_object().expect("servers");
            assert!(failing.values().any(|it| *it == cause), "{shown}");
            assert!(shown["text"].as_str().is_some_and(|it| it.contains("cannot be used: ")), "{shown}");
        }
    }
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
