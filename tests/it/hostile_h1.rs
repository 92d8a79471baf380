//! Requests that are written to be read in two ways, over HTTP/1.1 in the clear and under TLS: what the client is
//! told, what the log says, and that the upstream sees nothing of them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::time::Duration;

use crate::support::client::closes_within;
use crate::support::upstream::receive;
use crate::support::{Client, Directory, Gateway, Upstream, eventually, text, tls};

/// A gateway with a listener in the clear and one under TLS, and its recording upstream.
struct Edge {
    gateway: Gateway,
    upstream: Upstream,
}

/// What is sent, and the status it is answered with.
type Case = (String, u16);

impl Edge {
    fn start() -> Edge {
        Edge::before(Upstream::ok())
    }

    fn before(upstream: Upstream) -> Edge {
        let directory = Directory::new();
        tls::certify(&directory, "a", &["a.example", "localhost"]);
        let file = directory.join("a").display().to_string();
        let config = format!(
            "[listener.plain]\nbind = \"127.0.0.1:0\"\n\
             [listener.tls]\nbind = \"127.0.0.1:0\"\ncerts = [{{ cert = \"{file}.pem\", key = \"{file}.key\" }}]\n\
             [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{0}\"\n\
             [[route]]\npath = \"/plain/{{*rest}}\"\nto = \"http://{0}\"\nupgrade = false",
            upstream.addr()
        );
        Edge { gateway: Gateway::start_in(directory, &config), upstream }
    }

    fn secure(&self) -> Client<tls::Stream> {
        let addr = self.gateway.listener("tls");
        Client::over(tls::connect(addr, "a.example", &["http/1.1"]).expect("the handshake succeeds"))
    }

    /// Every case is answered so and its connection closed, in the clear (whole and in two pieces) and under TLS;
    /// each has its line with this reason and is counted; the upstream sees nothing of any.
    fn refuses(&self, cases: impl IntoIterator<Item = Case>, reason: &str) {
        let mut expected: BTreeMap<u16, usize> = BTreeMap::new();
        for (bytes, status) in cases {
            let (head, tail) = bytes.as_bytes().split_at(bytes.len() / 2);
            refused(self.gateway.client(), &[bytes.as_bytes()], status);
            refused(self.gateway.client(), &[head, tail], status);
            refused(self.secure(), &[bytes.as_bytes()], status);
            *expected.entry(status).or_default() += 3;
        }
        assert_eq!(self.gateway.get("/last").status, 200);
        assert_eq!(self.upstream.request().line, "GET /last HTTP/1.1", "something else reached the upstream");
        let logged = || {
            let mut found: BTreeMap<u16, usize> = BTreeMap::new();
            for line in self.gateway.access_log().iter().filter(|line| line["reason"] == reason) {
                *found.entry(line["status"].as_u64().map_or(0, |status| status as u16)).or_default() += 1;
            }
            found
        };
        eventually("a line for each", || (logged() == expected).then_some(()));
        let label = format!("reason=\"{reason}\"");
        let all: usize = expected.values().sum();
        assert_eq!(self.gateway.metric("sluicegate_refused_requests_total", &[&label]), all as f64);
    }
}

/// These bytes are answered with this status alone, and the connection is closed.
fn refused<S: Read + Write>(mut client: Client<S>, pieces: &[&[u8]], status: u16) {
    for piece in pieces {
        client.try_send(piece);
    }
    let shown = text(&pieces.concat()[..pieces.concat().len().min(300)]);
    let answer = client.response();
    assert_eq!(answer.status, status, "{shown:?}: {}", answer.text());
    assert!(client.is_closed(), "the connection stays open after {shown:?}");
}

/// A POST with these fields, and behind its head what one server reads as its end and another as the next request.
fn outer(fields: &str) -> String {
    format!(
        "POST /outer HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n\r\n\
         0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a.example\r\n\r\n"
    )
}

/// A POST in chunks with this body, and a request behind it.
fn chunks(body: &str) -> String {
    format!(
        "POST /outer HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n{body}\
         GET /hidden HTTP/1.1\r\nHost: a.example\r\n\r\n"
    )
}

/// A GET with this line among its fields.
fn field(line: &str) -> String {
    format!("GET /outer HTTP/1.1\r\nHost: a.example\r\n{line}\r\nX-Last: 1\r\n\r\n")
}

#[test]
fn a_length_beside_chunks_is_refused() {
    let cases = [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: chunked\r\nX: y\r\ncontent-length:0",
        "TRANSFER-ENCODING:chunked\r\nContent-Length: 4",
        "Content-Length: 4\r\nTransfer-Encoding: gzip",
    ];
    Edge::start().refuses(cases.map(|fields| (outer(fields), 400)), "malformed");
}

#[test]
fn chunked_is_one_line_and_alone() {
    let unclear = [
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: chunked,",
        "Transfer-Encoding: , chunked",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: \u{b}chunked",
        "Transfer-Encoding: \u{c}chunked",
        "Transfer-Encoding: chunked\u{0}",
        "Transfer-Encoding: ch\tunked",
        "Transfer-Encoding:",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        "Transfer-Encoding:\r\n chunked",
        "\u{b}Transfer-Encoding: chunked",
        " Transfer-Encoding: chunked",
    ];
    let unknown = ["Transfer-Encoding: xchunked", "Transfer-Encoding: gzip", "transfer-encoding: br"];
    let cases = unclear.map(|fields| (outer(fields), 400)).into_iter();
    Edge::start().refuses(cases.chain(unknown.map(|fields| (outer(fields), 501))), "malformed");
}

#[test]
fn a_length_is_one_plain_number() {
    let cases = [
        "Content-Length: 4\r\nContent-Length: 4",
        "Content-Length: 4\r\nContent-Length: 5",
        "Content-Length: 4, 4",
        "Content-Length: 4,",
        "Content-Length: +4",
        "Content-Length: -4",
        "Content-Length: 0x4",
        "Content-Length: 4_0",
        "Content-Length: 0004",
        "Content-Length: 4 4",
        "Content-Length: 4\u{b}",
        "Content-Length: \u{662}",
        "Content-Length: 4.0",
        "Content-Length: 1e1",
        "Content-Length:",
        "Content-Length: 9223372036854775808",
        "Content-Length: 18446744073709551617",
        "Content-Length: 99999999999999999999999999",
        "Content-Length : 4",
        "Content-Length\u{0}: 4",
    ];
    Edge::start().refuses(cases.map(|fields| (outer(fields), 400)), "malformed");
}

#[test]
fn a_chunk_is_its_size_a_line_break_its_bytes_and_a_line_break() {
    let cases = [
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5\t\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5_\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        ";x\r\nhello\r\n0\r\n\r\n",
        "5 ;x\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r0\r\n\r\n",
        "5\r\nhello world\r\n0\r\n\r\n",
        "5;a\nGET /x HTTP/1.1\r\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "5;a\u{0}\r\nhello\r\n0\r\n\r\n",
        "0\r\n\n",
        "0\r\nX: y\n\r\n",
        "0\r\nX: y\r\n folded\r\n\r\n",
    ];
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(65_536));
    let cases = cases.map(str::to_owned).into_iter().chain([long]);
    let edge = Edge::start();
    for body in cases {
        refused(edge.gateway.client(), &[chunks(&body).as_bytes()], 400);
        refused(edge.secure(), &[chunks(&body).as_bytes()], 400);
    }
    assert_eq!(edge.gateway.get("/last").status, 200);
    assert_eq!(edge.upstream.request().line, "GET /last HTTP/1.1");
}

#[test]
fn a_chunk_that_goes_wrong_later_ends_its_request_unfinished() {
    // The head has gone to the upstream by then; the body never ends there, and nothing follows it.
    let (tx, seen) = std::sync::mpsc::channel();
    let tx = std::sync::Mutex::new(tx);
    let edge = Edge::before(Upstream::raw(move |stream| {
        let bytes = Client::over(stream).rest();
        tx.lock().expect("nobody panics with it").send(text(&bytes)).ok();
    }));
    for wrong in ["5 \r\nhello\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "x\r\n"] {
        let mut client = edge.gateway.client();
        client.send(
            "POST /outer HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        );
        eventually("the upstream is asked", || {
            let asked = edge.gateway.metric("sluicegate_upstream_connects_total", &[]);
            (asked > 0.0).then_some(())
        });
        client.send(format!("{wrong}GET /hidden HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        assert_eq!(client.response().status, 400);
        assert!(client.is_closed());
        let got = seen.recv_timeout(crate::support::PATIENCE).expect("the upstream's connection ends");
        assert!(got.starts_with("POST /outer") && !got.contains("hidden"), "{got}");
        assert!(!got.contains("hello") && !got.contains("\r\n0\r\n"), "the body looks whole: {got}");
    }
    eventually("their lines", || {
        let lines = edge.gateway.access_log();
        (lines.iter().filter(|line| line["reason"] == "malformed").count() == 3).then_some(())
    });
}

#[test]
fn a_line_ends_in_cr_lf_and_holds_a_field() {
    let cases = [
        "X: a\nY: b",
        "X: a\n\r\nGET /hidden HTTP/1.1\r\nHost: a.example",
        "X: a\rY: b",
        "X: a\r\rY: b",
        "X: a\u{0}b",
        "X: a\u{1}b",
        "X: a\u{7f}b",
        "X: a\r\n b",
        "X: a\r\n\tb",
        "X : a",
        "X\t: a",
        ": a",
        "no colon",
        "X(y): a",
        "X y: a",
        "X\u{e9}: a",
        "X\u{0}: a",
        "\u{0}",
    ];
    let lines = [
        "GET /outer HTTP/1.1\nHost: a.example\r\n\r\n",
        "\nGET /outer HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET /outer HTTP/1.1\r\nHost: a.example\n\n",
        "GET /outer HTTP/1.1\r\nHost: a.example\r\n\n",
        "GET /outer HTTP/1.1\r\n Host: a.example\r\n\r\n",
        "GET\t/outer HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET  /outer HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET /outer  HTTP/1.1\r\nHost: a.example\r\n\r\n",
        " GET /outer HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET /outer HTTP/1.1 \r\nHost: a.example\r\n\r\n",
        "GET /outer\u{0} HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GE(T /outer HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET /outer http/1.1\r\nHost: a.example\r\n\r\n",
        "GET /outer HTTP/1.1\u{b}\r\nHost: a.example\r\n\r\n",
        "GET /outer#fragment HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET /outer\r\n\r\n",
        "GET outer HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ];
    let cases = cases.map(field).into_iter().chain(lines.map(str::to_owned)).map(|bytes| (bytes, 400));
    Edge::start().refuses(cases, "malformed");
}

#[test]
fn other_versions_are_not_served() {
    let cases = [
        ("GET /outer HTTP/1.2\r\nHost: a.example\r\n\r\n", 505),
        ("GET /outer HTTP/2.0\r\nHost: a.example\r\n\r\n", 505),
        ("GET /outer HTTP/0.9\r\n\r\n", 505),
        ("GET /outer HTTP/9.9\r\nHost: a.example\r\n\r\n", 505),
        ("GET /outer HTTP/1.10\r\nHost: a.example\r\n\r\n", 400),
        ("GET /outer HTTP/11\r\nHost: a.example\r\n\r\n", 400),
        ("POST /outer HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (
            "POST /outer HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            400,
        ),
    ];
    Edge::start().refuses(cases.map(|(bytes, status)| (bytes.to_owned(), status)), "malformed");
    // Where HTTP/2 is spoken the preface is no request; where it is not, it is one of no version we serve.
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\nhttp = [\"http/1.1\"]\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"",
        upstream.addr()
    ));
    refused(gateway.client(), &[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], 505);
}

#[test]
fn a_request_of_http_1_0_has_no_body_but_what_it_announces() {
    let edge = Edge::start();
    let mut client = edge.gateway.client();
    client
        .send("POST /old HTTP/1.0\r\nHost: a.example\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert!(client.is_closed());
    assert_eq!(edge.upstream.request().line, "POST /old HTTP/1.1");
    assert_eq!(edge.gateway.get("/last").status, 200);
    assert_eq!(edge.upstream.request().line, "GET /last HTTP/1.1");
}

#[test]
fn a_body_of_any_method_is_passed_on_to_its_last_byte() {
    let edge = Edge::start();
    let hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
    for (method, framing, body) in [
        ("GET", format!("Content-Length: {}", hidden.len()), hidden.to_owned()),
        ("OPTIONS", format!("Content-Length: {}", hidden.len()), hidden.to_owned()),
        (
            "DELETE",
            "Transfer-Encoding: chunked".to_owned(),
            format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len()),
        ),
        ("HEAD", format!("Content-Length: {}", hidden.len()), hidden.to_owned()),
    ] {
        let mut client = edge.gateway.client();
        client.send(format!("{method} /outer HTTP/1.1\r\nHost: a.example\r\n{framing}\r\n\r\n{body}"));
        let answer = if method == "HEAD" { client.response_to_head() } else { client.response() };
        assert_eq!(answer.status, 200);
        let request = edge.upstream.request();
        assert_eq!(request.line, format!("{method} /outer HTTP/1.1"));
        assert_eq!(text(&request.body), hidden, "{method}");
    }
}

#[test]
fn requests_before_a_fault_are_answered_and_those_behind_it_are_not_read() {
    let edge = Edge::start();
    for bad in [
        outer("Content-Length: 4\r\nTransfer-Encoding: chunked"),
        chunks("5 \r\nhello\r\n0\r\n\r\n"),
        field("X: a\nY: b"),
    ] {
        let good = "GET /good HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let mut client = edge.gateway.client();
        client.send(format!("{good}{good}{bad}{good}"));
        assert_eq!((client.response().status, client.response().status), (200, 200), "{bad:?}");
        assert_eq!(client.response().status, 400, "{bad:?}");
        assert!(closes_within(client.socket(), Duration::from_secs(5)), "{bad:?}");
        assert_eq!(edge.upstream.request().line, "GET /good HTTP/1.1");
        assert_eq!(edge.upstream.request().line, "GET /good HTTP/1.1");
    }
    assert!(edge.upstream.is_quiet());
}

#[test]
fn a_refusal_is_heard_by_a_client_that_goes_on_sending() {
    let edge = Edge::start();
    let mut client = edge.gateway.client();
    client.send(field("X: a\nY: b"));
    for _ in 0..20 {
        client.try_send("x".repeat(1000));
    }
    assert_eq!(client.response().status, 400);
    let answer = edge.gateway.client().send(outer("Content-Length: x")).response();
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.json()["reason"], "malformed");
    assert_eq!(answer.json()["detail"], "Content-Length is not one number");
    let id = answer.header("x-request-id").expect("every refusal has an id");
    edge.gateway.logged_where("the id", |line| line["request_id"] == id);
}

#[test]
fn an_early_answer_leaves_no_body_to_be_read_as_a_request() {
    // The upstream answers at once and never reads; so does the gateway itself (404, 413).
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while peer.try_head().is_some() {
            peer.try_send(answer);
        }
    });
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/up/{{*rest}}\"\nto = \"http://{0}\"\n\
         [[route]]\npath = \"/small\"\nto = \"http://{0}\"\nmax-body = 5\n\
         [[route]]\npath = \"/hidden\"\nrespond = {{ status = 200, body = \"hidden\" }}",
        upstream.addr()
    ));
    let hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    for (path, expect) in
        [("/up/1", ""), ("/none", ""), ("/small", ""), ("/none", "Expect: 100-continue\r\n")]
    {
        for late in [false, true] {
            let mut client = gateway.client();
            let length = hidden.len();
            client
                .send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{expect}Content-Length: {length}\r\n\r\n"));
            if !late {
                client.try_send(hidden);
            }
            client.response();
            if late {
                client.try_send(hidden);
            }
            let rest = text(&{
                client.shutdown();
                client.rest()
            });
            assert!(!rest.contains("hidden"), "{path} {expect:?} late {late}: {rest}");
        }
    }
    assert!(gateway.access_log().iter().all(|line| line["path"] != "/hidden"));
}

#[test]
fn trailers_do_not_become_fields() {
    let edge = Edge::start();
    let mut client = edge.gateway.client();
    client.send(chunks("2\r\nab\r\n0\r\nHost: evil\r\nAuthorization: x\r\nContent-Length: 9\r\nX-Forwarded-For: 1.1.1.1\r\n\r\n"));
    assert_eq!(client.response().status, 200);
    let request = edge.upstream.request();
    assert_eq!((request.body.as_slice(), request.header("host").as_deref()), (&b"ab"[..], Some("a.example")));
    for name in ["authorization", "content-length"] {
        assert_eq!(request.header(name), None, "{request:?}");
    }
    assert_eq!(request.header("x-forwarded-for").as_deref(), Some("127.0.0.1"));
    assert_eq!(edge.upstream.request().line, "GET /hidden HTTP/1.1", "the next request is one");
}

#[test]
fn a_chunk_s_extension_is_dropped() {
    let (tx, seen) = std::sync::mpsc::channel();
    let tx = std::sync::Mutex::new(tx);
    let edge = Edge::before(Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if let Some(head) = peer.try_head() {
            let first = peer.line();
            tx.lock().expect("nobody panics with it").send((head, first)).ok();
            peer.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        }
    }));
    edge.gateway.client().send(chunks("5;a=\"b;c\"\r\nhello\r\n0;d\r\n\r\n")).head();
    let (_, first) = seen.recv_timeout(crate::support::PATIENCE).expect("the upstream is asked");
    assert_eq!(first, "5");
}

#[test]
fn what_follows_a_request_to_switch_waits_for_the_answer() {
    // Bytes behind it are HTTP where the upstream does not switch, and the new protocol's where it does.
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let (tx, seen) = std::sync::mpsc::channel();
    let tx = std::sync::Mutex::new(tx);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while let Some(request) = receive(&mut peer) {
            let seen = tx.lock().expect("nobody panics with it");
            seen.send(request.line.clone()).ok();
            if request.line.contains("/switch") {
                peer.send(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
                );
                seen.send(text(&peer.bytes(10))).ok();
                return;
            }
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let edge = Edge::before(upstream);
    let next = "GET /next HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let mut client = edge.gateway.client();
    client.send(format!("GET /stay HTTP/1.1\r\nHost: a.example\r\n{upgrade}\r\n\r\n{next}"));
    assert_eq!((client.response().status, client.response().status), (200, 200));
    let said = |count: usize| -> Vec<String> {
        (0..count)
            .map(|_| seen.recv_timeout(crate::support::PATIENCE).expect("the upstream is asked"))
            .collect()
    };
    assert_eq!(said(2), ["GET /stay HTTP/1.1", "GET /next HTTP/1.1"]);
    let mut client = edge.gateway.client();
    client.send(format!("GET /switch HTTP/1.1\r\nHost: a.example\r\n{upgrade}\r\n\r\n\u{1}\nraw\r\n"));
    assert_eq!(client.head().status, 101);
    client.send("more");
    assert_eq!(said(2), ["GET /switch HTTP/1.1", "\u{1}\nraw\r\nmor"]);
    let mut client = edge.gateway.client();
    client.send(format!("GET /stay HTTP/1.1\r\nHost: a.example\r\n{upgrade}\r\n\r\n\u{1}\nraw\r\n"));
    assert_eq!((client.response().status, client.response().status), (200, 400));
}

#[test]
fn connection_names_no_field_that_others_judge_by() {
    let names = [
        "Host",
        "keep-alive, host",
        "Authorization",
        "Cookie",
        "Forwarded",
        "Via",
        "X-Forwarded-For",
        "x-forwarded-anything",
        "X-Real-IP",
        "X-Request-Id",
        "traceparent",
        "tracestate",
        "Content-Length",
        "Content-Type",
        "Transfer-Encoding",
        "close,,Host",
    ];
    let cases = names.map(|names| (field(&format!("Connection: {names}")), 400));
    Edge::start().refuses(cases, "malformed");
}

#[test]
fn what_is_expected_is_to_be_told_to_continue_or_417() {
    let edge = Edge::start();
    for value in ["200-ok", "100-continue, 200-ok", "x=y", ""] {
        for mut client in [edge.gateway.client(), edge.gateway.client()] {
            client.send(format!(
                "POST /x HTTP/1.1\r\nHost: a.example\r\nExpect: {value}\r\nContent-Length: 3\r\n\r\n"
            ));
            assert_eq!(client.response().status, 417, "{value:?}");
            // The body was never asked for; what comes in its place is no request.
            client.try_send("GET /hidden HTTP/1.1\r\nHost: a.example\r\n\r\n").shutdown();
            assert!(!text(&client.rest()).contains("HTTP/1.1 200"));
        }
    }
    edge.gateway.logged_where("the reason", |line| line["reason"] == "expectation-failed");
    assert_eq!(edge.gateway.get("/last").status, 200);
    assert_eq!(edge.upstream.request().line, "GET /last HTTP/1.1");
}

#[test]
fn a_connection_is_for_the_host_in_its_hello() {
    let edge = Edge::start();
    for host in ["a.example", "A.EXAMPLE", "a.example.", "a.example:443"] {
        assert_eq!(edge.secure().request("GET", "/", &[&format!("Host: {host}")], "").status, 200, "{host}");
        edge.upstream.request();
    }
    for host in ["b.example", "x.a.example", "127.0.0.1", "[::1]", "localhost"] {
        let mut client = edge.secure();
        assert_eq!(client.request("GET", "/", &[&format!("Host: {host}")], "").status, 421, "{host}");
        assert_eq!(client.request("GET", "/ok", &["Host: a.example"], "").status, 200, "no reason to close");
        assert_eq!(edge.upstream.request().line, "GET /ok HTTP/1.1");
        let mut client = edge.secure();
        client.send(format!("GET https://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().status, 421, "{host}");
    }
    edge.gateway.logged_where("the reason", |line| line["reason"] == "misdirected");
    // An address as the host makes a hello without a name: any host may be asked for then.
    let addr = edge.gateway.listener("tls");
    let nameless = tls::connect(addr, "127.0.0.1", &[]).expect("the handshake succeeds");
    assert_eq!(Client::over(nameless).request("GET", "/", &["Host: b.example"], "").status, 200);
}

#[test]
fn a_stream_is_for_the_host_in_the_connection_s_hello() {
    let edge = Edge::start();
    let url = |host: &str| format!("https://{host}:{}/", edge.gateway.listener("tls").port());
    let ask = |host: &str, field: &str| {
        let to = format!("{host}:{}:127.0.0.1", edge.gateway.listener("tls").port());
        let arguments = [
            "-sSk",
            "--http2",
            "--resolve",
            &to,
            "-H",
            field,
            "-o",
            "/dev/null",
            "-w",
            "%{http_code} %{http_version}",
        ];
        crate::support::stdout_of("curl", &[&arguments[..], &[&url(host)]].concat())
    };
    assert_eq!(ask("a.example", "X: y"), "200 2");
    assert_eq!(ask("a.example", "Host: b.example"), "421 2");
}

#[test]
fn a_request_to_switch_is_one_and_without_a_body() {
    let handshake = |lines: &str| {
        format!(
            "GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{lines}\r\n"
        )
    };
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let version = "Sec-WebSocket-Version: 13\r\n";
    let cases = [
        handshake(&format!("{key}{version}Content-Length: 34\r\n"))
            + "\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n",
        handshake(&format!("{key}{version}Transfer-Encoding: chunked\r\n")) + "\r\n0\r\n\r\n",
        handshake(key),
        handshake(version),
        handshake(&format!("{key}Sec-WebSocket-Version: 12\r\n")),
        handshake(&format!("{key}{version}{version}")),
        handshake(&format!("{key}{key}{version}")),
        handshake(&format!("{version}Sec-WebSocket-Key: short\r\n")),
        handshake(&format!("{version}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\r\n")),
        handshake(&format!("{key}{version}")).replace("GET", "POST"),
    ];
    // Behind the head of each but the first two there is nothing to be told from a body.
    let cases = cases
        .into_iter()
        .map(|bytes| (if bytes.ends_with("\r\n\r\n") { bytes } else { bytes + "\r\n" }, 400));
    Edge::start().refuses(cases, "malformed");
}

#[test]
fn what_is_not_switched_to_is_asked_for_plainly() {
    let edge = Edge::start();
    for (path, fields) in [
        (
            "/a",
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
        ),
        ("/b", "Connection: Upgrade\r\nUpgrade: H2C"),
        ("/c", "Connection: Upgrade\r\nUpgrade: websocket, h2c"),
        ("/d", "Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket"),
        ("/e", "Upgrade: websocket"),
        ("/f", "Connection: Upgrade"),
        ("/plain/g", "Connection: Upgrade\r\nUpgrade: websocket"),
        ("/h", "Connection: Upgrade\r\nUpgrade: h2"),
    ] {
        let mut client = edge.gateway.client();
        let body = if path == "/a" { "Content-Length: 2\r\n\r\nhi" } else { "\r\n" };
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n{body}"));
        assert_eq!(client.response().status, 200, "{fields}");
        assert_eq!(client.get("/next").status, 200, "the connection goes on");
        let request = edge.upstream.request();
        assert_eq!(request.line, format!("POST {path} HTTP/1.1"));
        for name in ["upgrade", "connection", "http2-settings"] {
            assert_eq!(request.header(name), None, "{fields}: {request:?}");
        }
        assert_eq!(edge.upstream.request().line, "GET /next HTTP/1.1");
    }
}

#[test]
fn a_request_names_one_host_in_one_way() {
    let head = |target: &str, lines: &str| format!("GET {target} HTTP/1.1\r\n{lines}\r\n");
    let cases = [
        head("/", ""),
        head("/", "Host: a.example\r\nHost: a.example\r\n"),
        head("/", "Host: a.example\r\nHost: b.example\r\n"),
        head("/", "Host: a.example, b.example\r\n"),
        head("/", "Host: user@a.example\r\n"),
        head("/", "Host: a.example/path\r\n"),
        head("/", "Host: a.example\\b\r\n"),
        head("/", "Host: a.example#b\r\n"),
        head("/", "Host: a.example?b\r\n"),
        head("/", "Host: a b\r\n"),
        head("/", "Host: a.example:80:80\r\n"),
        head("/", "Host: a.example:port\r\n"),
        head("/", "Host: a.example:99999\r\n"),
        head("/", "Host: [::1\r\n"),
        head("/", "Host: [zz]\r\n"),
        head("/", "Host: ::1\r\n"),
        head("/", "Host: a..example\r\n"),
        head("/", "Host: %61.example\r\n"),
        head("/", "Host: caf\u{e9}.example\r\n"),
        head("/", "Host:\r\n"),
        head("http://b.example/", "Host: a.example\r\n"),
        head("http://a.example:80/", "Host: a.example:81\r\n"),
        head("http://user@a.example/", "Host: a.example\r\n"),
        head("http:///", "Host: a.example\r\n"),
        head("a.example:80", "Host: a.example:80\r\n"),
    ];
    Edge::start().refuses(cases.map(|bytes| (bytes, 400)), "malformed");
}
