//! Requests that are written to be framed in two ways, over HTTP/1.1 in the clear and under TLS: what the client is
//! told, what the log says, and that the upstream sees nothing of them.

use std::time::Duration;

use crate::support::client::closes_within;
use crate::support::edge::{Edge, field, refused};
use crate::support::{Client, Gateway, Upstream, eventually, text};

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
fn chunked_is_the_only_coding_on_its_only_line() {
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
    for (before, wrong) in ["5 \r\nhello\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "x\r\n"].iter().enumerate() {
        let mut client = edge.gateway.client();
        client.send(
            "POST /outer HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        );
        eventually("the upstream is asked", || {
            let asked = edge.gateway.metric("sluicegate_upstream_connects_total", &[]);
            (asked > before as f64).then_some(())
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
        "OPTIONS ** HTTP/1.1\r\nHost: a.example\r\n\r\n",
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
    assert_eq!(answer.json()["detail"], "`Content-Length` must be sent once and be a plain number");
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
fn an_early_refusal_arrives_behind_an_unread_body() {
    let edge = Edge::start();
    let body = "x".repeat(4 << 20);
    for round in 0..10 {
        for length in [format!("Content-Length: {}", 100 << 20), format!("Content-Length: {}", body.len())] {
            let request = format!("POST /outer%00 HTTP/1.1\r\nHost: a.example\r\n{length}\r\n\r\n{body}");
            let large = format!("POST /x HTTP/1.1\r\nHost: a.example\r\n{length}0\r\n\r\n{body}");
            for (request, status) in [(request, 400), (large, 413)] {
                assert_eq!(
                    edge.gateway.client().try_send(&request).response().status,
                    status,
                    "round {round}"
                );
                assert_eq!(edge.secure().try_send(&request).response().status, status, "round {round}");
            }
        }
    }
    assert!(edge.upstream.is_quiet());
}
