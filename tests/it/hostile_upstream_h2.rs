//! Upstreams that misuse HTTP/2: the request gets 502, the connection is closed, the client's own goes on, and
//! memory stays where it was.

use std::net::TcpStream;
use std::sync::{Mutex, mpsc};

use crate::support::h2::{
    CONTINUATION, Connection, DATA, END_HEADERS, END_STREAM, End, GOAWAY, HEADERS, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, encoded, fields,
};
use crate::support::{Gateway, Upstream};

/// An upstream that takes a request and then does this.
fn after_a_request(then: impl Fn(&mut Connection<TcpStream>, u32) + Send + Sync + 'static) -> Upstream {
    Upstream::raw(move |stream| {
        let mut peer = Connection::serve(stream);
        while let Some(frame) = peer.frame() {
            if frame.kind == HEADERS {
                then(&mut peer, frame.stream);
            }
        }
    })
}

/// Sends these bytes until the gateway has closed, within reason.
fn pour(peer: &mut Connection<TcpStream>, bytes: &[u8]) {
    let bytes = bytes.repeat(20);
    for _ in 0..20_000 {
        if !peer.try_write(&bytes) {
            return;
        }
    }
}

fn before(upstream: &Upstream) -> Gateway {
    Gateway::start(&format!(
        "workers = 1\n[upstream.u]\nservers = [\"http://{}\"]\nhttp = \"h2\"\nretry = {{ times = 0 }}\n\
         timeouts = {{ response = \"2s\", stall = \"2s\" }}\n\
         [[route]]\npath = \"/good\"\nrespond = {{ status = 200, body = \"ok\" }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"",
        upstream.addr()
    ))
}

/// The head of an answer, as a frame.
fn head(stream: u32, flags: u8, status: &str, more: &[(&str, &str)]) -> Vec<u8> {
    encoded(HEADERS, flags, stream, &fields(&[&[(":status", status)][..], more].concat()))
}

/// One request through it: refused as a bad gateway, while an open connection of another client lives on.
fn is_refused(what: &str, upstream: &Upstream) {
    is_answered(502, what, upstream);
}

/// The same with another status.
fn is_answered(status: u16, what: &str, upstream: &Upstream) {
    let gateway = before(upstream);
    let mut other = gateway.client();
    assert_eq!(other.get("/good").text(), "ok");
    let memory = gateway.memory_peak_kib();
    let answer = gateway.get("/bad");
    assert_eq!(answer.status, status, "{what}");
    assert_eq!(other.get("/good").text(), "ok", "{what}");
    let grown = gateway.memory_peak_kib() - memory;
    assert!(grown < 16 * 1024, "{what}: {grown} KiB more");
    assert_eq!(gateway.metric("sluicegate_worker_panics_total", &[]), 0.0, "{what}");
}

#[test]
fn floods_of_an_upstream_end_its_connection() {
    let long = "x".repeat(4_000);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("PING", encoded(PING, 0, 0, &[0; 8])),
        ("SETTINGS", encoded(SETTINGS, 0, 0, &[])),
        ("WINDOW_UPDATE", encoded(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("PRIORITY", encoded(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        ("unknown frames", encoded(0xbe, 0, 1, b"whatever")),
        ("GOAWAY", encoded(GOAWAY, 0, 0, &[0x7f, 255, 255, 255, 0, 0, 0, 0])),
        ("RST_STREAM of streams that were never", encoded(RST_STREAM, 0, 99, &[0, 0, 0, 2])),
        ("informational answers", head(1, END_HEADERS, "103", &[("link", "</a>")])),
        ("frames of streams that were never", encoded(DATA, 0, 99, b"x")),
        ("PUSH_PROMISE", encoded(5, END_HEADERS, 1, &[0, 0, 0, 2, 0x82])),
        ("answers that nobody asked for", head(2, END_HEADERS, "200", &[])),
        ("long informational answers", head(1, END_HEADERS, "103", &[("a", &long)])),
    ];
    for (what, bytes) in cases {
        let upstream = after_a_request(move |peer, _| pour(peer, &bytes));
        is_refused(what, &upstream);
    }
}

#[test]
fn heads_of_an_upstream_have_an_end() {
    let long = fields(&[("a", &"x".repeat(8_000))]);
    let upstream = after_a_request(move |peer, stream| {
        peer.try_write(&head(stream, 0, "200", &[]));
        pour(peer, &encoded(CONTINUATION, 0, stream, &long));
    });
    is_refused("a head without end", &upstream);
    let upstream = after_a_request(|peer, stream| {
        peer.try_write(&head(stream, 0, "200", &[]));
        pour(peer, &encoded(CONTINUATION, 0, stream, &[]));
    });
    is_refused("CONTINUATION without fields", &upstream);
    let upstream = after_a_request(|peer, stream| {
        // One field, then references of a byte to it.
        let block = [fields(&[(":status", "200")]), b"\x40\x01a\x01b".to_vec(), vec![0xbe; 16_000]].concat();
        peer.try_write(&encoded(HEADERS, END_HEADERS, stream, &block));
    });
    is_refused("a header bomb", &upstream);
    let upstream = after_a_request(|peer, stream| {
        peer.try_write(&head(stream, 0, "200", &[]));
    });
    is_answered(504, "a head that stops", &upstream);
}

/// What a client gets of an answer whose body is spoiled: less than was promised, and the end.
fn breaks_off(what: &str, spoil: impl Fn(&mut Connection<TcpStream>, u32) + Send + Sync + 'static) {
    let upstream = after_a_request(move |peer, stream| {
        peer.try_write(&head(stream, END_HEADERS, "200", &[("content-length", "1000")]));
        spoil(peer, stream);
    });
    let gateway = before(&upstream);
    let mut client = gateway.client();
    client.send("GET /bad HTTP/1.1\r\nHost: a\r\n\r\n");
    // Whether the head has gone on before the rest came is a race.
    match client.head().status {
        200 => assert!(client.rest().len() < 1_000, "{what}"),
        status => assert_eq!(status, 502, "{what}"),
    }
    assert_eq!(gateway.get("/good").text(), "ok", "{what}");
    let line = gateway.logged("/bad");
    let reasons = ["upstream-reset", "upstream-timeout", "upstream-bad-response"];
    assert!(reasons.iter().any(|reason| line["reason"] == *reason), "{what}: {line}");
}

#[test]
fn bodies_of_an_upstream_that_break_the_rules_break_off() {
    breaks_off("empty DATA", |peer, stream| pour(peer, &encoded(DATA, 0, stream, b"")));
    breaks_off("DATA beyond the windows", |peer, stream| {
        pour(peer, &encoded(DATA, 0, stream, &[b'x'; 16_384]));
    });
    breaks_off("less DATA than promised", |peer, stream| {
        peer.try_write(&encoded(DATA, END_STREAM, stream, b"short"));
    });
    breaks_off("GOAWAY with the body under way", |peer, _| {
        peer.try_write(&encoded(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2]));
    });
    breaks_off("a window too large", |peer, _| {
        pour(peer, &encoded(WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255]));
    });
    breaks_off("DATA that stops", |peer, stream| {
        peer.try_write(&encoded(DATA, 0, stream, b"some"));
    });
}

#[test]
fn a_server_that_says_nothing_of_http_2_is_a_bad_gateway() {
    for said in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01"] {
        let upstream = Upstream::raw(move |mut stream| {
            let _ = std::io::Write::write_all(&mut stream, said);
            let _ = std::io::Read::read(&mut stream, &mut [0; 1024]);
        });
        is_refused("no HTTP/2", &upstream);
    }
}

#[test]
fn a_body_to_head_goes_no_further() {
    for body in [&b"hello"[..], b""] {
        let upstream = after_a_request(move |peer, stream| {
            let answer = head(stream, END_HEADERS, "200", &[("content-length", "5")]);
            peer.try_write(&[answer, encoded(DATA, END_STREAM, stream, body)].concat());
        });
        let gateway = before(&upstream);
        let mut client = Connection::open(gateway.plain());
        for stream in [1, 3] {
            client.request(stream, "HEAD", "/bad", true);
            let head = client.until(HEADERS);
            assert_eq!((head.stream, head.flags & END_STREAM), (stream, END_STREAM), "{body:?}");
        }
        let mut old = gateway.client();
        let answer = old.request("HEAD", "/bad", &[], "");
        assert_eq!((answer.status, answer.number("content-length")), (200, 5));
        assert_eq!(old.get("/good").text(), "ok");
        assert_eq!(gateway.logged("/bad").get("reason"), None);
    }
}

/// What ends the stream of this number.
type Cut = fn(u32) -> Vec<u8>;

#[test]
fn an_answer_without_its_end_is_broken_off_whatever_the_code_says() {
    let no_error = |stream| encoded(RST_STREAM, 0, stream, &[0; 4]);
    let goaway = |_| encoded(GOAWAY, 0, 0, &[0; 8]);
    let cuts: [(&str, Cut); 2] = [("RST_STREAM", no_error), ("GOAWAY", goaway)];
    for ((what, cut), encoding) in cuts.into_iter().flat_map(|cut| ["identity", "zstd"].map(|it| (cut, it))) {
        let (proceed, proceeds) = mpsc::channel();
        let proceeds = Mutex::new(proceeds);
        let upstream = after_a_request(move |peer, stream| {
            let text = [("content-type", "text/plain")];
            let data = encoded(DATA, 0, stream, &[b'a'; 5_000]);
            peer.try_write(&[head(stream, END_HEADERS, "200", &text), data].concat());
            proceeds.lock().expect("one waits at a time").recv().expect("the client has seen the head");
            peer.try_write(&cut(stream));
        });
        let gateway = Gateway::start(&format!(
            "workers = 1\n[upstream.u]\nservers = \"http://{}\"\nhttp = \"h2\"\n\
             [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\ncompress = true",
            upstream.addr()
        ));
        let mut client = gateway.client();
        client.send(format!("GET /old HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {encoding}\r\n\r\n"));
        assert_eq!(client.head().status, 200);
        proceed.send(()).expect("the upstream waits");
        let rest = client.rest();
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{what} {encoding}");
        assert_eq!(gateway.logged("/old")["reason"], "upstream-reset", "{what} {encoding}");

        let mut client = Connection::open(gateway.plain());
        let fields = fields(&[
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", "/new"),
            ("accept-encoding", encoding),
        ]);
        client.send(HEADERS, END_HEADERS | END_STREAM, 1, &fields);
        assert_eq!(client.until(HEADERS).flags & END_STREAM, 0);
        proceed.send(()).expect("the upstream waits");
        assert!(matches!(client.end(), End::Reset(code) if code != 0), "{what} {encoding}");
        assert_eq!(gateway.logged("/new")["reason"], "upstream-reset", "{what} {encoding}");
    }
}

#[test]
fn a_whole_answer_stays_whole_if_its_server_wants_no_more_of_the_request() {
    for has_trailers in [false, true] {
        let upstream = after_a_request(move |peer, stream| {
            let ends = if has_trailers { 0 } else { END_STREAM };
            let mut answer = head(stream, END_HEADERS, "200", &[("content-type", "text/plain")]);
            answer.extend(encoded(DATA, ends, stream, b"enough"));
            if has_trailers {
                answer.extend(encoded(HEADERS, END_HEADERS | END_STREAM, stream, &fields(&[("x-sum", "1")])));
            }
            answer.extend(encoded(RST_STREAM, 0, stream, &[0; 4]));
            peer.try_write(&answer);
        });
        let gateway = before(&upstream);
        let mut client = Connection::open(gateway.plain());
        client.request(1, "POST", "/bad", false);
        client.data(1, b"a part of the body", false);
        assert_eq!(client.answer(1), b"enough", "{has_trailers}");
        let mut old = gateway.client();
        old.send("POST /old HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        assert_eq!(old.response().text(), "enough", "{has_trailers}");
        for path in ["/bad", "/old"] {
            assert_eq!(gateway.logged(path).get("reason"), None, "{path} {has_trailers}");
        }
    }
}
