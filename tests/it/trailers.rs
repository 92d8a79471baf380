//! Trailers of an answer: what becomes of them, of the connection they came on, and of the line in the log.

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
