//! Trailers of an answer: which of them reach the client, and that their connection and log line are as usual.

use crate::support::h2::{Connection, END_HEADERS, END_STREAM, HEADERS, fields};
use crate::support::{Gateway, Upstream};

const WITH_TRAILERS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                             5\r\nhello\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\n\r\n";

#[test]
fn an_answer_that_ends_in_trailers_is_whole() {
    let upstream = Upstream::answering(WITH_TRAILERS);
    let gateway = Gateway::start(&format!("[[route]]\nto = \"http://{}\"", upstream.addr()));
    let mut client = gateway.client();
    for path in ["/first", "/second", "/third"] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
        assert_eq!((answer.header("x-sum"), answer.header("content-length")), (None, None));
        let line = gateway.logged(path);
        assert_eq!((&line["status"], line.get("reason")), (&200.into(), None), "{line}");
    }
    assert_eq!(upstream.connections(), 1, "the connection is used again");
}

#[test]
fn a_client_that_accepts_trailers_over_http_1_1_gets_the_announced_ones() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Content-Length\r\nTrailer: X-More\r\n\r\n\
         5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\nX-Unsaid: 3\r\nContent-Length: 9\r\n\r\n",
    );
    let gateway = Gateway::start(&format!("[[route]]\nto = \"http://{}\"", upstream.addr()));
    let mut client = gateway.client();
    for te in ["trailers", "gzip, Trailers"] {
        let answer = client.request("GET", "/taken", &[&format!("TE: {te}")], "");
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
        assert_eq!(answer.header("trailer"), Some("x-sum, x-more"));
        assert_eq!((answer.header("x-sum"), answer.header("x-more")), (Some("1"), Some("2")));
        assert_eq!((answer.header("x-unsaid"), answer.header("content-length")), (None, None));
    }
    // A client that has not asked for trailers gets none, and no `Trailer` field.
    let answer = client.request("GET", "/left", &["TE: gzip"], "");
    assert_eq!(
        (answer.text().as_str(), answer.header("trailer"), answer.header("x-sum")),
        ("hello", None, None)
    );
    let request = upstream.request();
    assert_eq!((request.header("te"), request.header("connection")), (None, None), "TE is of one hop");
    assert_eq!(upstream.connections(), 1, "the connection is used again");
    let mut client = gateway.client();
    client.send("GET / HTTP/1.0\r\nHost: a\r\nTE: trailers\r\n\r\n");
    let answer = client.response();
    assert_eq!((answer.text().as_str(), answer.header("trailer")), ("hello", None));
}

#[test]
fn trailers_of_an_http_2_server_reach_an_http_1_1_client_that_takes_them() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Connection::serve(stream);
        while let Some(frame) = peer.frame() {
            if frame.kind == HEADERS {
                let head = [(":status", "200"), ("trailer", "x-sum")];
                peer.send(HEADERS, END_HEADERS, frame.stream, &fields(&head));
                peer.data(frame.stream, b"hello", false);
                let trailers = [("x-sum", "1"), ("x\"y", "2")];
                peer.send(HEADERS, END_HEADERS | END_STREAM, frame.stream, &fields(&trailers));
            }
        }
    });
    let gateway = Gateway::start(&format!(
        "[upstream.u]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n[[route]]\nto = \"u\"",
        upstream.addr()
    ));
    let mut client = gateway.client();
    for _ in 0..2 {
        let answer = client.request("GET", "/", &["TE: trailers"], "");
        assert_eq!((answer.text().as_str(), answer.header("x-sum")), ("hello", Some("1")));
        assert_eq!(answer.headers.iter().filter(|(name, _)| name.contains('"')).count(), 0);
    }
    // Over HTTP/2 a field that HTTP/1 could not carry does not go on, either.
    let mut h2 = Connection::open(gateway.plain());
    h2.request(1, "GET", "/", true);
    h2.until(HEADERS);
    let trailers = h2.until(HEADERS);
    assert!(!trailers.payload.windows(3).any(|three| three == b"x\"y"), "{trailers:?}");
}
