//! HTTP's semantics on the wire, where the two sides of the gateway differ in what they can say: bodies without a
//! length, names and values that one version of HTTP takes and another does not.

use crate::support::h2::Connection;
use crate::support::{Gateway, Upstream, eventually, text};

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
