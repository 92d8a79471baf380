//! HTTP/2 connections to upstreams, which requests share up to the stream limit; a request takes the least loaded. Each
//! is driven by a task of hyper. The pool opens them, one at a time for each server.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, Request, Response, StatusCode, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http2};

use super::connect::{NewHttp2, TlsFault};
use super::deadline::ReusableDeadline;
use super::error::{Error, SendError, UnsentRequest};
use super::open::OpenConnection;
use super::request::{RequestHead, put_traceparent};
use base::clock;
use net::wire::http2::{Excess, Meter};

/// An HTTP/2 connection, shared by requests.
#[derive(Debug)]
pub(super) struct Http2<B> {
    sender: http2::SendRequest<B>,
    meter: Rc<RefCell<Meter>>,
    tls_fault: TlsFault,
    streams: Cell<usize>,
    retires: Instant,
    /// Since when it has been without a stream, as of the last sweep; `None`: it has had one since.
    idle_since: Cell<Option<Instant>>,
    /// What had been heard when the first of the requests that are or were without an answer since began, and when that was.
    asked: Cell<(u64, Instant)>,
    /// It gets no more streams: its server has been silent for too long, or another worker needs a connection.
    is_retired: Cell<bool>,
    open: OpenConnection,
}

/// One worker's HTTP/2 connections to one server.
#[derive(Debug)]
pub(super) struct Http2Connections<B> {
    connections: RefCell<Vec<Rc<Http2<B>>>>,
    /// Held by the request that opens a connection, so that others wait for it instead of opening more.
    pub(super) opening: tokio::sync::Mutex<()>,
    /// Tells the request that may open the next one that a stream has come free.
    pub(super) freed: tokio::sync::Notify,
}

impl<B> Default for Http2Connections<B> {
    fn default() -> Self {
        Http2Connections {
            connections: RefCell::default(),
            opening: tokio::sync::Mutex::default(),
            freed: tokio::sync::Notify::new(),
        }
    }
}

impl<B> Http2Connections<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// A stream on the least loaded connection that has room for one.
    pub(super) fn share(&self, now: Instant, streams_max: usize) -> Option<Rc<Http2<B>>> {
        let mut shared = self.connections.borrow_mut();
        // Dropping the pool's handle does not cut streams, because a connection ends with its last one.
        shared.retain(|connection| !connection.sender.is_closed() && connection.is_usable(now));
        let with_room = shared.iter().filter(|connection| connection.has_room(streams_max));
        let least = with_room.min_by_key(|connection| connection.streams.get())?;
        least.streams.set(least.streams.get() + 1);
        least.asks(now);
        Some(Rc::clone(least))
    }

    /// Adds a connection that has just been opened and reserves one stream on it, for the request that opened it; `None` if
    /// the server takes no streams now.
    pub(super) fn add(
        &self,
        opened: NewHttp2<B>,
        now: Instant,
        age: Duration,
        open: OpenConnection,
    ) -> Option<Rc<Http2<B>>> {
        let NewHttp2 { sender, meter, tls_fault } = opened;
        let asked = Cell::new((meter.borrow().heard(), now));
        let takes_streams = meter.borrow().streams_taken() > 0;
        let streams = Cell::new(usize::from(takes_streams));
        let (idle_since, is_retired) = (Cell::default(), Cell::default());
        let retires = now + age;
        let connection =
            Http2 { sender, meter, tls_fault, streams, retires, idle_since, asked, is_retired, open };
        let connection = Rc::new(connection);
        self.connections.borrow_mut().push(Rc::clone(&connection));
        takes_streams.then_some(connection)
    }
}

impl<B> Http2Connections<B> {
    /// Lets go of what is closed, and of connections without a stream that are too old, or have been so for too long.
    pub(super) fn sweep(&self, now: Instant, idle_timeout: Duration) {
        self.connections.borrow_mut().retain(|connection| {
            let is_kept = || connection.is_usable(now) && connection.idle(now) < idle_timeout;
            !connection.sender.is_closed() && (connection.streams.get() > 0 || is_kept())
        });
    }

    /// Another worker waits for a connection: lets go of those without a stream. Where there are none, one of several gets no
    /// more streams, so that it ends with the last of them.
    pub(super) fn yield_one(&self) {
        let before = self.connections.borrow().len();
        self.close_idle();
        let connections = self.connections.borrow();
        if connections.len() == before && before > 1 && !connections.iter().any(|it| it.is_retired.get()) {
            let least = connections.iter().min_by_key(|connection| connection.streams.get());
            least.into_iter().for_each(|connection| connection.is_retired.set(true));
        }
    }

    /// Whether the server has shown that it takes no streams now: it takes none on a connection that has none.
    pub(super) fn takes_none(&self) -> bool {
        self.connections.borrow().iter().any(|connection| connection.takes_none())
    }

    /// Lets go of connections on which the server takes no streams, if the last request was so long ago.
    pub(super) fn close_those_that_take_none(&self, now: Instant, after: Duration) {
        let is_new = |connection: &Http2<B>| {
            let (_, asked) = connection.asked.get();
            now.saturating_duration_since(asked) < after
        };
        self.connections.borrow_mut().retain(|connection| !connection.takes_none() || is_new(connection));
    }

    pub(super) fn close_idle(&self) {
        self.connections.borrow_mut().retain(|connection| connection.streams.get() > 0);
    }
}

impl<B> Http2<B> {
    /// Whether it is not too old, its server still has the same address, has not announced its end and is not silent.
    fn is_usable(&self, now: Instant) -> bool {
        let is_young = now < self.retires && !self.is_retired.get();
        is_young && self.open.is_current() && self.meter.borrow().goaway().is_none()
    }

    fn asks(&self, now: Instant) {
        self.idle_since.set(None);
        let heard = self.meter.borrow().heard();
        if self.asked.get().0 != heard {
            self.asked.set((heard, now));
        }
    }

    /// A request ends without an answer. If nothing at all has come meanwhile, the connection may well be dead, and nobody
    /// else would say so: the next request goes over another one. A server that is merely slow costs that no more than a
    /// connection.
    fn gives_up(&self, now: Instant) {
        let (heard, since) = self.asked.get();
        if heard == self.meter.borrow().heard() && now.saturating_duration_since(since) >= SILENCE {
            self.is_retired.set(true);
        }
    }

    /// How long it has been without a stream, as far as sweeps have seen.
    fn idle(&self, now: Instant) -> Duration {
        let since = self.idle_since.get().unwrap_or(now);
        self.idle_since.set(Some(since));
        now.saturating_duration_since(since)
    }

    /// Whether neither side's bound on its streams is reached. Of a server that takes none now none is asked for,
    /// because hyper would keep the request until its deadline.
    fn has_room(&self, streams_max: usize) -> bool {
        let taken = self.meter.borrow().streams_taken() as usize;
        self.streams.get() < streams_max.min(taken)
    }

    /// Whether the server takes no streams on it, and has none.
    fn takes_none(&self) -> bool {
        self.streams.get() == 0 && self.meter.borrow().streams_taken() == 0
    }

    pub(super) fn leave(&self) {
        self.streams.set(self.streams.get().saturating_sub(1));
    }
}

/// One request and its answer, on a connection that other requests share.
#[derive(derive_more::Debug)]
#[debug("Http2Exchange({body:?})")]
pub(super) struct Http2Exchange<B> {
    connection: Rc<Http2<B>>,
    pub(super) deadline: ReusableDeadline,
    answer: Option<Pin<Box<Sent<B>>>>,
    body: Option<Incoming>,
}

/// hyper's future keeps the request as long as it may still return it unsent, so it is large; boxed, so that the types
/// around it stay small.
type Sent<B> = dyn Future<Output = Result<Response<Incoming>, TrySendError<Request<B>>>>;

impl<B> Http2Exchange<B> {
    /// An exchange on a reserved stream, with nothing sent yet.
    pub(super) fn new(connection: Rc<Http2<B>>, deadline: ReusableDeadline) -> Http2Exchange<B> {
        Http2Exchange { connection, deadline, answer: None, body: None }
    }

    /// Ends the exchange and counts its stream out.
    pub(super) fn leave(&self) {
        if self.answer.is_some() {
            self.connection.gives_up(clock::instant());
        }
        self.connection.leave();
    }

    /// The next frame of the answer's body. It is whole only with END_STREAM (RFC 9113 section 8.1). Of a stream that is reset
    /// with NO_ERROR, and of one that lies beyond such a GOAWAY, hyper says that it has ended, whole or not.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            None if !body.is_end_stream() => Poll::Ready(Some(Err(Error::Closed))),
            frame => Poll::Ready(frame.map(|frame| frame.map_err(Error::from))),
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B> Http2Exchange<B>
where
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    pub(super) fn begin(&mut self, request: Request<B>) {
        self.answer = Some(Box::pin(self.connection.sender.clone().try_send_request(request)));
    }

    /// The answer's head. Its fields replace the request's in the given map.
    pub(super) fn poll_head(
        &mut self,
        fields: &mut HeaderMap,
        cx: &mut Context<'_>,
    ) -> Poll<Result<StatusCode, SendError<B>>> {
        let Some(answer) = &mut self.answer else { return Poll::Pending };
        let sent = ready!(answer.as_mut().poll(cx));
        self.answer = None;
        Poll::Ready(match sent {
            Ok(answer) => {
                let (head, body) = answer.into_parts();
                self.body = Some(body);
                *fields = head.headers;
                Ok(head.status)
            }
            Err(mut failed) => {
                let is_malformed = is_found_here(failed.error());
                let meter = self.connection.meter.borrow();
                let unsent = match (failed.take_message(), is_unprocessed(failed.error(), &meter)) {
                    (Some(request), _) => UnsentRequest::Request(Some(request.into_body())),
                    (None, Some(is_graceful)) => UnsentRequest::Unprocessed { is_graceful },
                    // Because the meter does not know on which stream an interim answer came, after any of them no
                    // request counts as unanswered; they are rare. Of a malformed answer it is not known how much had
                    // come.
                    (None, None) if meter.has_interim() || is_malformed => UnsentRequest::Answered,
                    (None, None) => UnsentRequest::Nothing,
                };
                let error = match (meter.excess(), self.connection.tls_fault.get()) {
                    (Some(Excess::PseudoAnswer), _) => {
                        Error::Malformed("it has a pseudo-header that only requests have")
                    }
                    (_, Some(cause)) => Error::Tls(cause),
                    _ if is_malformed => Error::Malformed("it breaks the rules of HTTP/2"),
                    _ => failed.into_error().into(),
                };
                Err(SendError::Broken { error, unsent })
            }
        })
    }
}

/// Whether the server says that it has not processed the request, and then whether nothing is wrong: its stream lies
/// beyond the last one of a GOAWAY, or was to be opened after it, or is reset with REFUSED_STREAM (RFC 9113 section 8.7).
fn is_unprocessed(error: &hyper::Error, meter: &Meter) -> Option<bool> {
    // hyper's dispatcher has ended while the request waited for its stream. That is woken as soon as the stream is opened,
    // before anything more is read, so a GOAWAY that ends it has found no stream.
    if error.is_user() {
        return meter.goaway().map(|code| code == NO_ERROR);
    }
    let said = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    let said = said.filter(|said| said.is_remote())?;
    // h2 ends streams with the server's GOAWAY only if they lie beyond its last one.
    if said.is_go_away() {
        return Some(said.reason() == Some(h2::Reason::NO_ERROR));
    }
    (said.is_reset() && said.reason() == Some(h2::Reason::REFUSED_STREAM)).then_some(true)
}

/// Whether this side found the error, in what the server sent (RFC 9113 section 5.4).
fn is_found_here(error: &hyper::Error) -> bool {
    let fault = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    fault.is_some_and(|fault| fault.is_library() && !fault.is_io())
}

/// How long a server may say nothing on a connection with a request before a request that is given up speaks against it.
const SILENCE: Duration = Duration::from_secs(1);
/// RFC 9113 section 7.
const NO_ERROR: u32 = 0;

/// A request as hyper expects it: the authority is in the target (RFC 9113 section 8.3.1) and `Host` is removed.
/// `server` is the authority if the head names none.
pub(super) fn request<B>(head: &RequestHead, body: B, server: &str, tls: bool) -> Request<B> {
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.headers_mut() = head.headers.clone();
    *request.version_mut() = Version::HTTP_2;
    // Requests of many clients share the connection and its table of fields (HPACK). What a server makes of such a field it may
    // keep beside the table's entry: gRPC's C core answers every later `grpc-timeout` as it did one that it could not read.
    // Sensitive values are in no table (RFC 7541 section 7.1.3).
    for (name, value) in request.headers_mut() {
        if name.as_str().starts_with("grpc-") || name.as_str().ends_with("-bin") {
            value.set_sensitive(true);
        }
    }
    if let Some(traceparent) = &head.traceparent {
        put_traceparent(request.headers_mut(), traceparent);
    }
    let host = request.headers_mut().remove(HOST);
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(head.target.clone());
    parts.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = host
        .and_then(|host| Authority::from_maybe_shared(Bytes::copy_from_slice(host.as_bytes())).ok())
        .or_else(|| server.parse().ok());
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_else(|_| Uri::from(head.target.clone()));
    request
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_traceparent_comes_among_the_fields_and_the_host_into_the_target() {
        let headers = [(HOST, HeaderValue::from_static("a.example"))].into_iter().collect();
        let target = "/b?c".parse().expect("a target");
        let head = RequestHead { method: http::Method::GET, target, headers, traceparent: Some([b'0'; 55]) };
        let request = request(&head, (), "server:1", true);
        assert_eq!(request.uri(), "https://a.example/b?c");
        assert_eq!(request.headers().len(), 1);
        assert_eq!(request.headers()["traceparent"], "0".repeat(55));
    }
}
