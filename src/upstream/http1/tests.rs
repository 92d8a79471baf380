//! Answers are read alike however their bytes are split.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Empty;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};

use super::*;
use crate::{Config, Upstream, config};
use base::clock;
use policy::retry::Retry;

/// What an exchange has returned so far.
#[derive(Debug, Default)]
struct ExchangeRecord {
    status: Option<StatusCode>,
    fields: HeaderMap,
    body: Vec<u8>,
    trailers: HeaderMap,
    is_over: bool,
    error: Option<String>,
}

impl ExchangeRecord {
    /// Takes every frame that is ready.
    fn take(&mut self, connection: &mut Http1<Empty<Bytes>>) {
        let mut cx = Context::from_waker(Waker::noop());
        while !self.is_over {
            if self.status.is_none() {
                match connection.poll_head(&mut self.fields, None, &mut cx) {
                    Poll::Ready(Ok(status)) => self.status = Some(status),
                    Poll::Ready(Err(error)) => return self.fail(&error),
                    Poll::Pending => return,
                }
                continue;
            }
            match connection.poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.body.extend_from_slice(&data),
                    Err(frame) => self.trailers = frame.into_trailers().expect("one of the two"),
                },
                Poll::Ready(Some(Err(error))) => return self.fail(&error),
                Poll::Ready(None) => self.is_over = true,
                Poll::Pending => return,
            }
        }
    }

    fn fail(&mut self, error: &Error) {
        (self.is_over, self.error) = (true, Some(error.to_string()));
    }
}

fn connection() -> (Http1<Empty<Bytes>>, DuplexStream) {
    let (near, far) = duplex(1 << 20);
    (over(near), far)
}

fn over(stream: impl ServerStream + 'static) -> Http1<Empty<Bytes>> {
    let server = config::ConfiguredServer {
        tls: false,
        place: config::ServerLocation::Tcp { host: "127.0.0.1".to_owned(), port: 80 },
        weight: 1,
    };
    let config = Config {
        name: "u".to_owned(),
        servers: vec![server],
        balance: config::Balance::RoundRobin,
        sticky: None,
        tls: Default::default(),
        http: config::HttpVersion::H1,
        connections: config::PoolBounds::default(),
        timeouts: config::UpstreamTimeouts::default(),
        retry: Retry::default(),
        retry_budget_percent: config::RETRY_BUDGET_PERCENT,
        host: config::HostHeader::Client,
        uploads: Default::default(),
        health: Default::default(),
    };
    let upstream = Arc::new(Upstream::new(config, None));
    let permit = Arc::clone(&upstream.servers[crate::ServerIndex::new(0)].permits)
        .try_acquire_owned()
        .expect("nobody has one");
    let now = clock::instant();
    let open = OpenConnection::new(&upstream.servers[crate::ServerIndex::new(0)], permit);
    let hour = now + Duration::from_secs(3_600);
    Http1::new(Box::new(stream), ReusableDeadline::new(hour), hour, now, open)
}

/// A socket whose peer has answered and closed without reading all: the kernel refuses what is written, and tells only in
/// the next turn of the runtime that there is something to read.
#[derive(Debug)]
struct ResetSocket {
    answer: &'static [u8],
    has_turned: bool,
}

impl AsyncRead for ResetSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.has_turned, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match std::mem::take(&mut self.answer) {
            b"" => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            answer => {
                buf.put_slice(answer);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for ResetSocket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn an_answer_is_read_that_came_before_the_server_closed() {
    let refused = b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno";
    for (answer, expected) in [(&refused[..], Some(413)), (b"", None)] {
        let mut connection = over(ResetSocket { answer, has_turned: false });
        let head = RequestHead {
            method: http::Method::POST,
            target: "/".parse().expect("a target"),
            headers: HeaderMap::new(),
            traceparent: None,
        };
        connection.begin(&head, Empty::new());
        let mut seen = ExchangeRecord::default();
        for _ in 0..3 {
            seen.take(&mut connection);
        }
        assert_eq!(seen.status.map(|status| status.as_u16()), expected);
        assert_eq!((seen.is_over, seen.error.is_some()), (true, expected.is_none()));
    }
}

/// Sends an answer `step` bytes at a time and returns what the exchange made of it, and whether the connection can be
/// used again. Outside tokio's budget, which would return `Pending` although bytes have come.
async fn answered(method: &str, answer: &[u8], step: usize, closes: bool) -> (ExchangeRecord, bool) {
    tokio::task::unconstrained(exchange(method, answer, step, closes)).await
}

async fn exchange(method: &str, answer: &[u8], step: usize, closes: bool) -> (ExchangeRecord, bool) {
    let (mut connection, mut far) = connection();
    let head = RequestHead {
        method: method.parse().expect("a method"),
        target: "/".parse().expect("a target"),
        headers: HeaderMap::new(),
        traceparent: None,
    };
    connection.begin(&head, Empty::new());
    let mut seen = ExchangeRecord::default();
    seen.take(&mut connection);
    let mut request = vec![0; method.len() + 15];
    far.read_exact(&mut request).await.expect("it was sent");
    assert_eq!(request, format!("{method} / HTTP/1.1\r\n\r\n").as_bytes());
    for piece in answer.chunks(step) {
        far.write_all(piece).await.expect("there is room");
        seen.take(&mut connection);
    }
    if closes {
        drop(far);
        seen.take(&mut connection);
    }
    let may_follow = connection.is_reusable(clock::instant());
    (seen, may_follow)
}

/// The same with pieces of every length.
async fn always(method: &str, answer: &str, closes: bool, is_right: impl Fn(&ExchangeRecord, bool) -> bool) {
    for step in (1..=answer.len()).rev() {
        let (seen, may_follow) = answered(method, answer.as_bytes(), step, closes).await;
        assert!(is_right(&seen, may_follow), "{answer:?} by {step}: {seen:?}, {may_follow}");
    }
}

#[tokio::test]
async fn an_answer_is_the_same_however_its_bytes_come() {
    let whole = |seen: &ExchangeRecord, body: &str| {
        seen.is_over && seen.error.is_none() && seen.body == body.as_bytes()
    };
    let interim = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
    let plain = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    always("GET", &format!("{interim}{plain}"), false, |seen, may_follow| {
        whole(seen, "hello") && may_follow && !seen.fields.contains_key("link")
    })
    .await;
    let chunked =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nx-sum: 1\r\n\r\n";
    always("GET", chunked, false, |seen, may_follow| {
        whole(seen, "hello") && may_follow && seen.trailers.contains_key("x-sum")
    })
    .await;
    let closed = "HTTP/1.1 200 OK\r\n\r\nhello";
    always("GET", closed, true, |seen, may_follow| whole(seen, "hello") && !may_follow).await;
    let last = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx";
    always("GET", last, false, |seen, may_follow| whole(seen, "x") && !may_follow).await;
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
    always("HEAD", head, false, |seen, may_follow| whole(seen, "") && may_follow).await;
}

#[tokio::test]
async fn an_answer_that_is_not_whole_is_never_taken_for_one() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nx-sum: 1\r\n\r\n",
    ] {
        for length in 0..answer.len() {
            let (seen, may_follow) = answered("GET", &answer.as_bytes()[..length], length.max(1), true).await;
            let is_told = seen.error.as_deref()
                == Some("the server closed the connection before its response was complete");
            assert!(is_told && !may_follow, "{length} bytes of {answer:?}: {seen:?}");
        }
    }
}

#[tokio::test]
async fn what_follows_an_answer_keeps_the_connection_from_being_used() {
    for behind in ["x", "\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\ny{behind}");
        let (seen, may_follow) = answered("GET", answer.as_bytes(), answer.len(), false).await;
        assert!(seen.is_over && seen.body == b"y" && !may_follow, "{behind:?}");
    }
}

#[tokio::test]
async fn heads_without_end_are_refused() {
    for (piece, why) in [("x: y\r\n", "malformed"), ("HTTP/1.1 102 Processing\r\n\r\n", "too long")] {
        let begin = if piece.starts_with('x') { "HTTP/1.1 200 OK\r\n" } else { "" };
        let answer = format!("{begin}{}", piece.repeat((INTERIM_BYTES_MAX + READ_BYTES_MAX) / piece.len()));
        let (seen, _) = answered("GET", answer.as_bytes(), 16 * 1024, false).await;
        assert!(seen.error.is_some_and(|error| error.contains(why)), "{piece:?}");
    }
}

/// Pieces of answers, valid and broken, that the property below combines.
const PARTS: [&[u8]; 24] = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 103 Early Hints\r\n",
    b"HTTP/1.1 204 No Content\r\n",
    b"content-length: 5\r\n",
    b"content-length: 7\r\n",
    b"transfer-encoding: chunked\r\n",
    b"transfer-encoding: gzip\r\n",
    b"connection: close\r\n",
    b"x: y\r\n",
    b" folded\r\n",
    b"no colon\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b"\xff",
    b"hello",
    b"5\r\nhello\r\n",
    b"5;a=b\r\nhello\r\n",
    b"fffffffffffffffff\r\n",
    b"0\r\n",
    b"0\r\n\r\n",
    b"0\r\nx: y\r\n\r\n",
];

proptest::proptest! {
    /// No answer makes a connection panic or wait for ever, and how its bytes are split changes nothing.
    #[test]
    fn whatever_a_server_says_comes_to_the_same_end(
        parts in proptest::collection::vec(proptest::sample::select(&PARTS[..]), 0..16),
        is_answer in proptest::bool::weighted(0.8),
        step in 1_usize..32,
    ) {
        let begin: &[u8] = if is_answer { PARTS[0] } else { b"" };
        let answer = [begin, &parts.concat()].concat();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let end = |step| {
            let (seen, _) = runtime.block_on(answered("GET", &answer, step, true));
            assert!(seen.is_over, "{} by {step}: {seen:?}", answer.escape_ascii());
            (seen.status, seen.fields, seen.body, seen.trailers, seen.error.is_some())
        };
        proptest::prop_assert_eq!(end(step), end(answer.len().max(1)));
    }
}

#[tokio::test]
async fn a_connection_rests_no_longer_than_its_server_keeps_it() {
    let (mut connection, mut far) = connection();
    let began = clock::instant();
    let after = |millis| began + Duration::from_millis(millis);
    let head = RequestHead {
        method: http::Method::GET,
        target: "/".parse().expect("a target"),
        headers: HeaderMap::new(),
        traceparent: None,
    };
    // What was said last counts, and what was said before where nothing is.
    for (fields, kept_ms) in [
        ("", None),
        ("keep-alive: timeout=3\r\n", Some(2_000)),
        ("", Some(2_000)),
        ("keep-alive: timeout=1\r\n", Some(500)),
    ] {
        connection.begin(&head, Empty::new());
        far.write_all(format!("HTTP/1.1 200 OK\r\n{fields}content-length: 0\r\n\r\n").as_bytes())
            .await
            .expect("there is room");
        let mut seen = ExchangeRecord::default();
        seen.take(&mut connection);
        assert!(seen.is_over && seen.error.is_none(), "{seen:?}");
        connection.rest(began);
        let Some(kept_ms) = kept_ms else {
            assert!(connection.is_still_kept(after(3_000_000)));
            continue;
        };
        assert!(
            connection.is_still_kept(after(kept_ms - 1)) && !connection.is_still_kept(after(kept_ms)),
            "{fields}"
        );
        // A long exchange is no rest.
        assert!(connection.is_reusable(after(kept_ms)));
    }
}
