//! HTTP/2 from a client: over TLS by ALPN, in the clear by prior knowledge; what several workers share.

use std::collections::HashMap;
use std::sync::{Mutex, mpsc};

use crate::support::h2::{Connection, END_HEADERS, HEADERS, fields};
use crate::support::upstream::receive;
use crate::support::{Client, Directory, Gateway, Nginx, Upstream, heavy, stdout_of, text, tls};

/// A gateway with a listener `plain` and one `tls`, everything forwarded to this address.
fn before(upstream: std::net::SocketAddr, more: &str) -> Gateway {
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let config = format!(
        "{more}\n[listener.plain]\nbind = \"127.0.0.1:0\"\n[listener.tls]\nbind = \"127.0.0.1:0\"\n\
         certs = [{{ cert = \"{0}.pem\", key = \"{0}.key\" }}]\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{upstream}\"",
        directory.join("a").display()
    );
    Gateway::start_in(directory, &config)
}

#[test]
fn curl_agrees_on_http_2_over_tls() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "");
    let url = format!("https://{}/tls", gateway.listener("tls"));
    let arguments = ["-sSk", "--http2", "-w", " %{http_version} %{http_code}", &url];
    assert_eq!(stdout_of("curl", &arguments), "ok 2 200");
    assert_eq!(upstream.request().line, "GET /tls HTTP/1.1");
    assert_eq!(gateway.logged("/tls")["protocol"], "HTTP/2.0");
}

#[test]
fn curl_without_http_2_is_served_http_1_1_over_tls() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "");
    let url = format!("https://{}/tls", gateway.listener("tls"));
    let arguments = ["-sSk", "--http1.1", "-w", " %{http_version} %{http_code}", &url];
    assert_eq!(stdout_of("curl", &arguments), "ok 1.1 200");
}

#[test]
fn the_protocol_is_what_both_sides_have_first() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "");
    let agreed = |offer: &[&str]| {
        let stream = tls::connect(gateway.listener("tls"), "localhost", offer).ok()?;
        stream.conn.alpn_protocol().map(crate::support::text)
    };
    assert_eq!(agreed(&["h2", "http/1.1"]).as_deref(), Some("h2"));
    assert_eq!(agreed(&["http/1.1"]).as_deref(), Some("http/1.1"));
    assert_eq!(agreed(&[]), None);
}

#[test]
fn early_hints_go_on_before_the_answer_unless_the_route_changes_their_fields() {
    let head = "Link: </a.css>; rel=preload\r\nContent-Security-Policy: default-src 'self'\r\nLink: </b.js>\r\nX-Own: 1\r\n";
    let (tx, rx) = mpsc::channel::<()>();
    let rx = Mutex::new(rx);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            peer.send(format!("HTTP/1.1 100 Continue\r\nX: y\r\n\r\nHTTP/1.1 103 Early Hints\r\n{head}\r\n"));
            rx.lock().expect("no test panics with it").recv().expect("the test runs");
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{0}\"\n\
         [[route]]\npath = \"/own\"\nto = \"http://{0}\"\nresponse-headers = {{ remove = [\"link\"] }}",
        upstream.addr()
    ));
    let mut client = Connection::open(gateway.plain());
    for stream in [1, 3] {
        client.request(stream, "GET", "/a", true);
        // It comes while the answer is not there yet.
        let hints = client.until(HEADERS);
        assert_eq!((hints.stream, hints.flags), (stream, END_HEADERS));
        let told = text(&hints.payload);
        for field in [
            "103",
            "link",
            "</a.css>; rel=preload",
            "</b.js>",
            "content-security-policy",
            "default-src 'self'",
        ] {
            assert!(told.contains(field), "{field} is not in {told:?}");
        }
        assert!(!told.contains("x-own"), "{told:?}");
        tx.send(()).expect("the upstream runs");
        assert_eq!(client.answer(stream), b"ok");
    }
    client.request(5, "GET", "/own", true);
    tx.send(()).expect("the upstream runs");
    let head = client.until(HEADERS);
    assert!(!text(&head.payload).contains("103") && client.answer(5) == b"ok", "{head:?}");
    // Whoever speaks HTTP/1.1 gets the answer alone, unless the listener has `early-hints`.
    tx.send(()).expect("the upstream runs");
    assert_eq!(gateway.get("/a").text(), "ok");
    // A client knows them, too.
    tx.send(()).expect("the upstream runs");
    let url = format!("http://{}/a", gateway.plain());
    let said = stdout_of("curl", &["-sSi", "--http2-prior-knowledge", &url]);
    assert!(
        said.starts_with("HTTP/2 103 \r\nlink: </a.css>; rel=preload\r\n") && said.ends_with("ok"),
        "{said}"
    );
}

#[test]
fn prior_knowledge_works_in_the_clear() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "");
    let url = format!("http://{}/clear", gateway.plain());
    let arguments = ["-sS", "--http2-prior-knowledge", "-w", " %{http_version} %{http_code}", &url];
    assert_eq!(stdout_of("curl", &arguments), "ok 2 200");
    let listing = stdout_of("nghttp", &["-nv", &url]);
    assert!(listing.contains(":status: 200"), "{listing}");
}

#[test]
fn a_listener_speaks_only_the_configured_protocols() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\nhttp = [\"http/1.1\"]\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"",
        upstream.addr()
    ));
    assert_eq!(gateway.get("/").status, 200);
    let url = format!("http://{}/", gateway.plain());
    let output = crate::support::run("curl", &["-sS", "--http2-prior-knowledge", &url]);
    assert!(!output.status.success());
}

#[test]
fn a_listener_of_http_2_alone_speaks_nothing_else_over_tls() {
    for (http, offer, over_2, over_1) in [
        (r#"["h2"]"#, &[][..], true, None),
        (r#"["h2"]"#, &["h2"], true, None),
        (r#"["h2", "http/1.1"]"#, &[], false, Some(200)),
        (r#"["h2", "http/1.1"]"#, &["http/1.1"], false, Some(200)),
        (r#"["http/1.1"]"#, &[], false, Some(200)),
    ] {
        let directory = Directory::new();
        tls::certify(&directory, "edge", &["localhost"]);
        let gateway = Gateway::start_in(
            directory,
            &format!(
                "[listener.tls]\nbind = \"127.0.0.1:0\"\nhttp = {http}\n\
                 certs = [{{ cert = \"edge.pem\", key = \"edge.key\" }}]\n\
                 [[route]]\npath = \"/\"\nrespond = {{}}"
            ),
        );
        let connect = || tls::connect(gateway.listener("tls"), "localhost", offer).expect("they agree");
        let mut http1 = Client::over(connect());
        http1.send("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let said = http1.try_head().and_then(|head| head.split(' ').nth(1)?.parse().ok());
        assert_eq!(said, over_1, "{http} {offer:?} HTTP/1.1");
        let mut http2 = Connection::over(connect());
        http2.request(1, "GET", "/", true);
        let is_answered = std::iter::from_fn(|| http2.frame()).any(|frame| frame.kind == HEADERS);
        assert_eq!(is_answered, over_2, "{http} {offer:?} HTTP/2");
    }
}

/// Begins a request on a stream whose client waits for `100 Continue`.
fn expects(h2: &mut Connection, stream: u32, method: &str, length: &str) {
    let head = [
        (":method", method),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", "/"),
        ("expect", "100-continue"),
        ("content-length", length),
    ];
    h2.send(HEADERS, END_HEADERS, stream, &fields(&head));
}

/// `:status: 100` as HPACK writes it without a table.
const STATUS_100: &[u8] = b"\x08\x03100";

#[test]
fn a_client_over_http_2_that_expects_100_gets_100() {
    let upstream = Upstream::replying(|request| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}", text(&request.body)).into_bytes()
    });
    let gateway = before(upstream.addr(), "");
    let mut h2 = Connection::open(gateway.plain());
    for stream in [1, 5] {
        // Two at once, of which the second is answered first.
        expects(&mut h2, stream, "POST", "5");
        expects(&mut h2, stream + 2, "POST", "5");
        let mut told: Vec<u32> = [(), ()]
            .map(|()| h2.until(HEADERS))
            .map(|frame| {
                assert_eq!((frame.flags, &*frame.payload), (END_HEADERS, STATUS_100));
                frame.stream
            })
            .to_vec();
        told.sort_unstable();
        assert_eq!(told, [stream, stream + 2]);
        for (stream, body) in [(stream + 2, b"later"), (stream, b"first")] {
            h2.data(stream, body, true);
            assert_eq!(h2.answer(stream), body);
        }
    }
    let directory = Directory::new();
    let body = directory.write("body", "hello");
    let url = format!("http://{}/", gateway.plain());
    let said = stdout_of("nghttp", &["-v", "--expect-continue", "-d", &body.display().to_string(), &url]);
    assert!(
        said.contains(":status: 100") && said.contains(":status: 200") && said.contains("hello"),
        "{said}"
    );
}

#[test]
fn a_refused_request_over_http_2_never_gets_100() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"\nmax-body = 10\nlimit = \"1/h by ip\"\nmethods = [\"POST\"]",
        upstream.addr()
    ));
    let refused = |method: &str, length: &str| {
        let mut h2 = Connection::open(gateway.plain());
        expects(&mut h2, 1, method, length);
        assert_ne!(h2.until(HEADERS).payload, STATUS_100, "{method} {length}");
    };
    refused("POST", "11");
    refused("PUT", "5");
    assert_eq!(gateway.client().request("POST", "/", &[], "x").status, 200);
    refused("POST", "5");
    assert!(upstream.request().line.starts_with("POST") && upstream.is_quiet());
}

#[test]
fn bodies_pass_both_ways_over_http_2() {
    let upstream = Upstream::replying(|request| {
        let mut answer =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()).into_bytes();
        answer.extend(&request.body);
        answer
    });
    let gateway = before(upstream.addr(), "");
    let mut client = Connection::open(gateway.plain());
    client.request(1, "POST", "/a", false);
    client.data(1, b"hello ", false);
    client.data(1, b"world", true);
    assert_eq!(client.answer(1), b"hello world");
    client.request(3, "POST", "/b", false);
    client.data(3, &[b'x'; 10_000], true);
    assert_eq!(client.answer(3), [b'x'; 10_000]);
}

#[test]
fn a_burst_on_a_cold_http_2_upstream_opens_one_connection() {
    let upstream = Gateway::start("[[route]]\npath = \"/{*rest}\"\nto = \"echo\"");
    let gateway = Gateway::start(&format!(
        "workers = 1\n[upstream.next]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"next\"",
        upstream.plain()
    ));
    let url = format!("http://{}/", gateway.plain());
    let load = stdout_of("h2load", &["-n", "80", "-c", "1", "-m", "80", &url]);
    assert!(load.contains("80 succeeded, 0 failed"), "{load}");
    assert_eq!(gateway.metric("sluicegate_upstream_connects_total", &["next"]), 1.0);
}

#[test]
fn h2load_has_no_failure() {
    let _alone = heavy();
    let nginx = Nginx::start("location / { return 200 \"hello from nginx\"; }");
    let gateway = before(nginx.addr(), "");
    for url in [format!("https://{}/", gateway.listener("tls")), format!("http://{}/", gateway.plain())] {
        let report = stdout_of("h2load", &["-n", "5000", "-c", "8", "-m", "16", &url]);
        assert!(report.contains("5000 succeeded, 0 failed, 0 errored, 0 timeout"), "{report}");
        assert!(report.contains("status codes: 5000 2xx"), "{report}");
    }
}

#[test]
fn both_workers_serve_eight_connections() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "workers = 2");
    // The kernel spreads connections by a hash: that all eight meet one worker has odds of 1 to 127.
    // Three times in a row it has odds of 1 to two million.
    for _ in 0..3 {
        let mut connections: Vec<_> = (0..8).map(|_| Connection::open(gateway.plain())).collect();
        for connection in &mut connections {
            for stream in [1, 3, 5] {
                connection.request(stream, "GET", "/", true);
                assert_eq!(connection.answer(stream), b"ok");
            }
        }
        let served = requests_by_worker(&gateway);
        assert_eq!(served.len(), 2, "{served:?}");
        if served.values().all(|count| *count > 0) {
            return;
        }
    }
    panic!("one worker served everything: {:?}", requests_by_worker(&gateway));
}

fn requests_by_worker(gateway: &Gateway) -> HashMap<&'static str, u64> {
    let count = |label: &str| gateway.metric("sluicegate_worker_requests_total", &[label]) as u64;
    HashMap::from([("0", count("worker=\"0\"")), ("1", count("worker=\"1\""))])
}
