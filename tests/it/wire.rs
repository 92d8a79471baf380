//! HTTP's semantics on the wire, where the two sides of the gateway differ in what they can say: bodies without a
//! length, names and values that one version of HTTP takes and another does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::h2::{Connection, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, fields};
use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Upstream, eventually, stdout_of, text};

/// A gateway that forwards everything to one upstream.
fn before(upstream: &Upstream) -> Gateway {
    Gateway::start(&format!("[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"", upstream.addr()))
}

#[test]
fn a_body_without_a_length_goes_on_whatever_the_method_is() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    for method in ["GET", "HEAD", "OPTIONS", "DELETE", "POST"] {
        let mut client = gateway.client();
        client.send(format!("{method} /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"));
        client.send("5\r\nhello\r\n0\r\n\r\n");
        assert_eq!(client.response_to_head().status, 200, "{method}");
        let request = upstream.request();
        assert_eq!(
            (request.line, text(&request.body)),
            (format!("{method} /1 HTTP/1.1"), "hello".to_owned())
        );
        let mut h2 = Connection::open(gateway.plain());
        h2.request(1, method, "/2", false);
        h2.data(1, b"hel", false);
        h2.data(1, b"lo", true);
        h2.answer(1);
        let request = upstream.request();
        assert_eq!(
            (request.line, text(&request.body)),
            (format!("{method} /2 HTTP/1.1"), "hello".to_owned())
        );
    }
}

#[test]
fn broken_chunks_of_any_method_are_a_bad_request() {
    for method in ["GET", "HEAD", "POST"] {
        let upstream = Upstream::ok();
        let gateway = before(&upstream);
        let mut client = gateway.client();
        client.send(format!("{method} /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"));
        // The head has gone on when the fault comes.
        eventually("the upstream is asked", || (upstream.connections() == 1).then_some(()));
        client.send("5\r\nhelloX\r\n0\r\n\r\n");
        assert_eq!(client.response_to_head().status, 400, "{method}");
        assert_eq!(gateway.logged("/1")["reason"], "malformed", "{method}");
        assert!(upstream.is_quiet(), "{method}: it looks whole");
    }
}

/// `:status: 400` is one byte (RFC 7541 appendix A, 12).
const BAD_REQUEST: u8 = 0x8c;

#[test]
fn fields_that_http_1_cannot_carry_come_from_no_client() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let base = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    for field in [
        ("content-length", ""),
        ("content-length", "9223372036854775808"),
        ("content-length", "01"),
        ("x\"y", "b"),
        ("\"", "b"),
        ("x", "b\t"),
        ("x", " b"),
    ] {
        let mut h2 = Connection::open(gateway.plain());
        h2.send(HEADERS, END_HEADERS, 1, &fields(&[&base[..], &[field]].concat()));
        h2.data(1, b"", true);
        let frame = loop {
            let frame = h2.frame().unwrap_or_else(|| panic!("closed without a word after {field:?}"));
            if [HEADERS, RST_STREAM].contains(&frame.kind) {
                break frame;
            }
        };
        assert!(frame.kind == RST_STREAM || frame.payload[0] == BAD_REQUEST, "{field:?}: {frame:?}");
    }
    for separator in "(),/:;<=>?@[\\]{}\" \u{7f}".chars() {
        let mut h2 = Connection::open(gateway.plain());
        let name = format!("x{separator}y");
        h2.send(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&[&base[..], &[(&name, "b")]].concat()));
        h2.request(3, "GET", "/next", true);
        let refused = loop {
            match h2.frame() {
                Some(frame) if frame.kind == HEADERS && frame.stream == 1 => {
                    break frame.payload[0] == BAD_REQUEST;
                }
                Some(frame) if frame.kind == RST_STREAM => break true,
                Some(_) => {}
                None => break true,
            }
        };
        assert!(refused, "{separator:?}");
    }
    assert_eq!(gateway.get("/last").status, 200);
    let lines: Vec<String> = std::iter::from_fn(|| Some(upstream.request().line))
        .take_while(|line| line != "GET /last HTTP/1.1")
        .collect();
    assert!(lines.iter().all(|line| line == "GET /next HTTP/1.1"), "{lines:?}");
}

/// A gateway before an HTTP/2 server that answers each request with what the closure sends on its stream.
fn before_h2(
    answer: impl Fn(&mut Connection<std::net::TcpStream>, u32) + Send + Sync + 'static,
) -> (Gateway, Upstream) {
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Connection::serve(stream);
        while let Some(frame) = peer.frame() {
            if frame.kind == HEADERS {
                answer(&mut peer, frame.stream);
            }
        }
    });
    let gateway = Gateway::start(&format!(
        "workers = 1\n[upstream.u]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n\
         timeouts = {{ response = \"2s\", stall = \"2s\" }}\n[[route]]\nto = \"u\"",
        upstream.addr()
    ));
    (gateway, upstream)
}

#[test]
fn answers_over_http_2_that_http_1_cannot_carry_are_bad_ones() {
    let heads: [&[(&str, &str)]; 14] = [
        &[(":status", "200"), ("x\"y", "b")],
        &[(":status", "200"), ("\"", "b")],
        &[(":status", "200"), ("x", " b")],
        &[(":status", "200"), ("x", "b\t")],
        &[(":status", "200"), ("content-length", "")],
        &[(":status", "200"), ("content-length", "+0")],
        &[(":status", "200"), ("content-length", "0"), ("content-length", "0")],
        &[(":status", "600")],
        &[(":status", "999")],
        &[(":status", "99")],
        &[(":status", "200"), (":path", "/")],
        &[(":path", "/"), (":status", "200")],
        &[(":status", "200"), (":authority", "a")],
        &[(":status", "200"), ("transfer-encoding", "chunked")],
    ];
    for head in heads {
        let (gateway, _upstream) = before_h2(move |peer, stream| {
            peer.try_write(&crate::support::h2::encoded(
                HEADERS,
                END_HEADERS | END_STREAM,
                stream,
                &fields(head),
            ));
        });
        let answer = gateway.get("/x");
        assert_eq!((answer.status, answer.json()["status"].as_u64()), (502, Some(502)), "{head:?}");
        let mut h2 = Connection::open(gateway.plain());
        h2.request(1, "GET", "/x", true);
        assert!(text(&h2.answer(1)).contains("\"status\":502"), "{head:?}");
    }
}

#[test]
fn a_status_that_http_does_not_have_is_a_bad_answer() {
    for status in [600, 700, 999] {
        let upstream = Upstream::answering(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n"));
        let gateway = before(&upstream);
        assert_eq!(gateway.get("/x").status, 502);
        assert_eq!(gateway.logged("/x")["reason"], "upstream-bad-response");
    }
}

#[test]
fn an_answer_without_a_body_has_none_over_http_2() {
    for status in ["204", "304"] {
        let (gateway, upstream) = before_h2(move |peer, stream| {
            peer.send(HEADERS, END_HEADERS, stream, &fields(&[(":status", status)]));
            peer.data(stream, b"evil", true);
        });
        let mut h2 = Connection::open(gateway.plain());
        for stream in [1, 3] {
            h2.request(stream, "GET", "/x", true);
            let head = h2.until(HEADERS);
            assert_eq!(head.flags & END_STREAM, END_STREAM, "{status}");
        }
        h2.request(5, "GET", "/x", true);
        while let Some(frame) = h2.frame() {
            assert_ne!(frame.kind, DATA, "{status}");
            if frame.kind == HEADERS {
                break;
            }
        }
        let mut client = gateway.client();
        for _ in 0..2 {
            assert_eq!(client.get("/x").status.to_string(), status);
        }
        assert_eq!(upstream.connections(), 1, "the connection goes on");
    }
}

#[test]
fn a_length_is_said_plainly_or_not_at_all() {
    for (answer, length) in [
        ("200 OK\r\nContent-Length: 005\r\n\r\nhello", Some("5")),
        ("200 OK\r\nContent-Length: 00\r\n\r\n", Some("0")),
        ("204 No Content\r\nContent-Length: 0\r\n\r\n", None),
    ] {
        let upstream = Upstream::answering(format!("HTTP/1.1 {answer}"));
        let gateway = before(&upstream);
        let said = gateway.get("/x");
        assert_eq!(said.header("content-length"), length, "{answer:?}: {said:?}");
        let url = format!("http://{}/x", gateway.plain());
        let said = stdout_of("curl", &["-sSi", "--http2-prior-knowledge", &url]).to_ascii_lowercase();
        let over_http_2 = said.lines().find_map(|line| line.strip_prefix("content-length: "));
        assert_eq!(over_http_2, length, "{answer:?}: {said}");
    }
    for method in ["GET", "HEAD"] {
        let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n");
        let gateway = before(&upstream);
        let mut client = gateway.client();
        client.send(format!("{method} /x HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.head().status, 502, "{method}");
    }
}

#[test]
fn a_request_that_names_no_host_goes_to_the_server_s() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/set\"\nto = \"http://{0}\"\nheaders = {{ set = {{ host = \"b.example\" }} }}\n\
         [[route]]\nto = \"http://{0}\"",
        upstream.addr()
    ));
    let own = upstream.addr().to_string();
    for (target, host) in [("/", own.as_str()), ("/set", "b.example")] {
        let mut client = gateway.client();
        client.send(format!("GET {target} HTTP/1.0\r\n\r\n"));
        assert_eq!(client.response().status, 200);
        assert_eq!(upstream.request().all("host"), [host], "{target}");
    }
}

#[test]
fn an_answer_that_ends_with_its_connection_promises_no_more() {
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let upstream = Upstream::answering(chunks);
    let gateway = before(&upstream);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
    let answer = client.response();
    assert_eq!((answer.text().as_str(), answer.header("connection")), ("hello", Some("close")));
    assert!(client.is_closed());
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let mut client = gateway.client();
    let bad =
        gateway.client().send("GET /% HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n").response();
    assert_eq!((bad.status, bad.header("connection")), (400, Some("close")));
    for _ in 0..2 {
        client.send("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
        let answer = client.response();
        assert_eq!((answer.text().as_str(), answer.header("connection")), ("ok", Some("keep-alive")));
    }
    // A refusal, with the body still to come and with all of it there.
    let gateway = Gateway::start("[[route]]\npath = \"/known\"\nto = \"echo\"");
    for (body, connection) in [("", "close"), ("12345", "close"), ("1234567890", "keep-alive")] {
        let mut client = gateway.client();
        let head =
            "POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 10\r\n\r\n".to_owned();
        let answer = client.send(head + body).response();
        assert_eq!((answer.status, answer.header("connection")), (404, Some(connection)), "{body:?}");
    }
}

#[test]
fn a_request_is_not_sent_again_once_its_answer_has_begun() {
    for begin in [
        "H",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
    ] {
        for method in ["GET", "DELETE", "PUT"] {
            let upstream = breaking_off(begin);
            let gateway = before(&upstream.0);
            assert_eq!(gateway.client().request(method, "/x", &[], "").status, 502, "{method} {begin:?}");
            assert_eq!(upstream.1.load(Ordering::SeqCst), 1, "{method} {begin:?}");
        }
    }
    let upstream = breaking_off("");
    let gateway = before(&upstream.0);
    assert_eq!(gateway.client().request("GET", "/x", &[], "").status, 502);
    assert_eq!(upstream.1.load(Ordering::SeqCst), 2, "where nothing was said it is asked again");
}

/// An upstream that begins an answer so and breaks off, and how many requests it has had.
fn breaking_off(begin: &'static str) -> (Upstream, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            count.fetch_add(1, Ordering::SeqCst);
            peer.send(begin);
        }
    });
    (upstream, asked)
}

#[test]
fn a_request_is_not_sent_again_once_its_answer_has_begun_over_http_2() {
    for (status, times) in [(Some("103"), 1), (Some("100"), 1), (None, 2)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let (gateway, _upstream) = before_h2(move |peer, stream| {
            count.fetch_add(1, Ordering::SeqCst);
            if let Some(status) = status {
                peer.send(HEADERS, END_HEADERS, stream, &fields(&[(":status", status)]));
            }
            // INTERNAL_ERROR.
            peer.send(RST_STREAM, 0, stream, &[0, 0, 0, 2]);
        });
        assert_eq!(gateway.get("/x").status, 502, "{status:?}");
        assert_eq!(asked.load(Ordering::SeqCst), times, "{status:?}");
    }
}

#[test]
fn a_request_is_not_sent_again_after_an_invalid_answer_over_http_2() {
    for (name, value) in [("x y", "1"), ("X-Up", "1"), ("connection", "close"), ("content-length", "2x")] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let (gateway, _upstream) = before_h2(move |peer, stream| {
            count.fetch_add(1, Ordering::SeqCst);
            peer.send(HEADERS, END_HEADERS, stream, &fields(&[(":status", "200"), (name, value)]));
        });
        let path = "/x";
        assert_eq!(gateway.get(path).status, 502, "{name}");
        assert_eq!(asked.load(Ordering::SeqCst), 1, "{name}");
        assert_eq!(gateway.logged(path)["reason"], "upstream-bad-response", "{name}");
    }
}

#[test]
fn the_server_as_a_whole_says_what_it_can_do() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\n\
         [listener.moved]\nbind = \"127.0.0.1:0\"\nredirect = \"https\"\n\
         [listener.closed]\nbind = \"127.0.0.1:0\"\ndeny = \"127.0.0.0/8\"\n\
         [[route]]\nto = \"http://{}\"",
        upstream.addr()
    ));
    let allowed = Some("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    for listener in ["plain", "moved"] {
        let mut client = Client::connect(gateway.listener(listener));
        for _ in 0..2 {
            let answer = client.request("OPTIONS", "*", &[], "");
            assert_eq!((answer.status, answer.header("allow")), (200, allowed), "{listener}");
            assert_eq!(answer.header("content-length"), Some("0"));
        }
        let url = format!("http://{}", gateway.listener(listener));
        let arguments = ["-sSi", "--http2-prior-knowledge", "-X", "OPTIONS", "--request-target", "*", &url];
        let said = stdout_of("curl", &arguments).to_ascii_lowercase();
        assert!(said.starts_with("http/2 200") && said.contains("allow: get, head"), "{said}");
    }
    // Before others are refused: lines of different workers come in any order.
    let line = gateway.logged("*");
    assert_eq!((line["status"].as_u64(), line.get("reason")), (Some(200), None), "{line}");
    let closed = Client::connect(gateway.listener("closed")).request("OPTIONS", "*", &[], "");
    assert_eq!((closed.status, closed.json()["reason"].as_str()), (403, Some("address-denied")));
    for method in ["GET", "POST", "OPTIONSX"] {
        assert_eq!(gateway.client().request(method, "*", &[], "").status, 400, "{method}");
    }
    assert!(upstream.is_quiet());
}
