//! A connection lent to one exchange: sending the request, waiting for its answer, giving the connection back.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::ext::ReasonPhrase;
use tokio::sync::OwnedSemaphorePermit;

use super::deadline::ReusableDeadline;
use super::error::{Error, SendError};
use super::http1::{Http1, UpgradedStream};
use super::http2::{self, Http2Exchange};
use super::ids::ServerIndex;
use super::pool::Pool;
use super::request::RequestHead;
use super::uploads::{Bounds, Progress, Upload, UploadTimeout};
use base::clock;
use metrics::IpVersion;

/// A connection lent to one exchange. Dropped before [`Checkout::finish`], it takes an HTTP/1.1 connection down with
/// it and resets an HTTP/2 stream, so that the server learns that nobody listens.
#[derive(Debug)]
pub struct Checkout<B: Body + 'static> {
    pub(super) pool: Rc<Pool<B>>,
    pub server: ServerIndex,
    /// How long it took to come free, nanoseconds. 0: nothing was waited for.
    pub wait_ns: u64,
    /// How long it took to open, nanoseconds. 0: it was open already.
    pub connect_ns: u64,
    /// The version of IP over which a connection was not there soon enough, so that the request goes over the other one.
    pub around: Option<IpVersion>,
    pub(super) connection: Option<LentConnection<B>>,
    /// The request's body while it is on its way. Boxed, because most have none.
    pub(super) upload: Option<Box<Upload>>,
    /// Counted among the uploads that were let in and have no connection yet.
    pub(super) is_entering: bool,
}

#[derive(Debug)]
pub(super) enum LentConnection<B: Body + 'static> {
    Http1(Box<Http1<B>>),
    Http2(Box<Http2Exchange<B>>),
}

/// What a request's body does whose answer comes already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadLook {
    /// It has moved since the last look.
    Moved,
    Still,
    /// It is slower than it may be.
    Slow,
}

impl<B> Checkout<B>
where
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Sends the request and waits for the head of its answer, until `until`; the body is still to come then. The fields
    /// of the answer take the place of the request's; where none comes, the head can be sent again.
    pub fn send<'a>(
        &'a mut self,
        head: &'a mut RequestHead,
        body: B,
        until: Instant,
    ) -> AwaitedAnswer<'a, B> {
        let server = self.pool.upstream.configured(self.server);
        let host = &self.pool.upstream.servers[self.server].host;
        let connection = self.connection.as_mut().expect(HELD);
        let mut is_stale = false;
        match connection {
            LentConnection::Http1(connection) => {
                // Only one that was waited for is looked at again, because others have just been.
                is_stale = self.wait_ns + self.connect_ns > 0 && !connection.is_idle();
                connection.begin(head, body);
            }
            LentConnection::Http2(exchange) => exchange.begin(http2::request(head, body, host, server.tls)),
        }
        let upload = self.upload.as_deref_mut();
        connection.deadline().set(upload.as_ref().map_or(until, |upload| upload.first_look().min(until)));
        AwaitedAnswer { connection, fields: &mut head.headers, hear: None, is_stale, upload }
    }

    /// Goes on waiting for the head of an answer whose deadline has passed, until `until`.
    pub fn wait_on<'a>(&'a mut self, head: &'a mut RequestHead, until: Instant) -> AwaitedAnswer<'a, B> {
        let connection = self.connection.as_mut().expect(HELD);
        connection.deadline().set(until);
        let upload = self.upload.as_deref_mut();
        AwaitedAnswer { connection, fields: &mut head.headers, hear: None, is_stale: false, upload }
    }

    /// Watches the request's body, which is not whole yet. `early` lets it hold a connection before its first bytes are
    /// there.
    pub fn watch(
        &mut self,
        progress: Arc<Progress>,
        bounds: Bounds,
        early: Option<OwnedSemaphorePermit>,
        now: Instant,
    ) {
        // Not over HTTP/2, because requests share its connections: none holds one, and a stream may well be quiet.
        let (uploads, bounds) = match &self.connection {
            Some(LentConnection::Http1(_)) => {
                (Some(&self.pool.upstream.servers[self.server].uploads), bounds)
            }
            _ => (None, Bounds { rate_min: 0, ..bounds }),
        };
        self.upload = Some(Box::new(Upload::new(progress, bounds, uploads, early, now)));
        self.entered();
    }

    /// Ready when the request's body, still on its way, is to yield to other requests.
    pub fn poll_yield(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.upload.as_deref_mut().map_or(Poll::Pending, |upload| upload.poll_yield(cx))
    }

    /// What the request's body does while its answer comes already; `None` once it is whole.
    pub fn look_at_upload(&mut self, now: Instant) -> Option<UploadLook> {
        let upload = self.upload.as_deref_mut().filter(|upload| !upload.is_over())?;
        Some(match (upload.look_at_rate(now), upload.has_moved(now)) {
            (Err(_), _) => UploadLook::Slow,
            (Ok(()), true) => UploadLook::Moved,
            (Ok(()), false) => UploadLook::Still,
        })
    }

    /// Asks for more of the answer's body. Over HTTP/1.1 that drives the connection it comes on.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self.connection.as_mut().expect(HELD) {
            LentConnection::Http1(connection) => connection.poll_frame(cx),
            LentConnection::Http2(exchange) => exchange.poll_frame(cx),
        }
    }

    /// All of the answer's body, where it is short and has come with the head.
    pub fn take_whole(&mut self) -> Option<Bytes> {
        match self.connection.as_mut().expect(HELD) {
            LentConnection::Http1(connection) => connection.take_whole(),
            LentConnection::Http2(_) => None,
        }
    }

    /// What the server calls the answer's status, if that is not its standard name. HTTP/2 has no phrases.
    pub fn take_phrase(&mut self) -> Option<Box<ReasonPhrase>> {
        match self.connection.as_mut().expect(HELD) {
            LentConnection::Http1(connection) => connection.take_phrase(),
            LentConnection::Http2(_) => None,
        }
    }

    pub fn is_answered(&self) -> bool {
        match self.connection.as_ref().expect(HELD) {
            LentConnection::Http1(connection) => connection.is_answered(),
            LentConnection::Http2(exchange) => exchange.is_answered(),
        }
    }

    /// How long the rest of the answer's body is.
    pub fn size_hint(&self) -> SizeHint {
        match self.connection.as_ref().expect(HELD) {
            LentConnection::Http1(connection) => connection.size_hint(),
            LentConnection::Http2(exchange) => exchange.size_hint(),
        }
    }

    /// The deadline that travels with the connection.
    pub fn deadline(&mut self) -> &mut ReusableDeadline {
        self.connection.as_mut().expect(HELD).deadline()
    }

    /// Whether it is a connection of HTTP/1.1 that has served a request before: its server may close it at any time.
    pub fn is_kept(&self) -> bool {
        self.connect_ns == 0 && matches!(self.connection, Some(LentConnection::Http1(_)))
    }

    /// What the server is called in `Host`.
    pub fn host(&self) -> &str {
        &self.pool.upstream.servers[self.server].host
    }

    /// Gives the connection back: the exchange is over to the last byte.
    pub fn finish(mut self, now: Instant) {
        let Some(mut connection) = self.take_http1().filter(|connection| connection.is_reusable(now)) else {
            return;
        };
        connection.rest(now);
        self.pool.take_back(self.server, connection);
    }

    /// Drops an answer whose head has come. The connection stays if the body has come with it, or there is none.
    pub fn discard(mut self, now: Instant) {
        if self.is_answered() || self.take_whole().is_some() {
            self.finish(now);
        }
    }

    /// The stream under an HTTP/1.1 connection whose protocol the server has switched.
    pub fn into_upgraded(mut self) -> Option<UpgradedStream> {
        self.take_http1().and_then(|connection| connection.into_upgraded())
    }

    /// Takes an HTTP/1.1 connection out of its checkout and leaves an HTTP/2 one, which the checkout's drop accounts for.
    fn take_http1(&mut self) -> Option<Box<Http1<B>>> {
        match self.connection.take() {
            Some(LentConnection::Http1(connection)) => Some(connection),
            other => {
                self.connection = other;
                None
            }
        }
    }
}

impl<B: Body + 'static> Checkout<B> {
    /// It is no longer about to enter: it holds a connection, or goes to another server.
    pub(super) fn entered(&mut self) {
        if std::mem::take(&mut self.is_entering) {
            self.pool.upstream.servers[self.server].uploads.entered();
        }
    }
}

impl<B: Body + 'static> LentConnection<B> {
    fn deadline(&mut self) -> &mut ReusableDeadline {
        match self {
            LentConnection::Http1(connection) => &mut connection.deadline,
            LentConnection::Http2(exchange) => &mut exchange.deadline,
        }
    }
}

/// The head of an answer to come, or the deadline.
#[derive(derive_more::Debug)]
#[debug("AwaitedAnswer({is_stale})")]
pub struct AwaitedAnswer<'a, B: Body + 'static> {
    connection: &'a mut LentConnection<B>,
    fields: &'a mut HeaderMap,
    /// What is told of early hints.
    hear: Option<&'a dyn Fn(&HeaderMap)>,
    /// The request's body while it is on its way.
    upload: Option<&'a mut Upload>,
    /// Nothing can be sent: the server has closed, or said something unasked.
    is_stale: bool,
}

impl<'a, B: Body + 'static> AwaitedAnswer<'a, B> {
    /// Tells of early hints that come before the answer (RFC 8297), over HTTP/1.1: HTTP/2's implementation drops them.
    pub fn hearing(self, hear: Option<&'a dyn Fn(&HeaderMap)>) -> AwaitedAnswer<'a, B> {
        AwaitedAnswer { hear, ..self }
    }
}

impl<B> Future for AwaitedAnswer<'_, B>
where
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Output = Result<StatusCode, SendError<B>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let AwaitedAnswer { connection, fields, hear, upload, is_stale } = self.get_mut();
        let polled = match connection {
            LentConnection::Http1(connection) if *is_stale => {
                let ended = connection.ended();
                Poll::Ready(Err(connection.broken(ended)))
            }
            LentConnection::Http1(connection) => {
                connection.poll_head(fields, *hear, cx).map_err(|error| connection.broken(error))
            }
            LentConnection::Http2(exchange) => exchange.poll_head(fields, cx),
        };
        if polled.is_ready() {
            return polled;
        }
        let Some(upload) = upload else {
            return connection.deadline().poll(cx).map(|()| Err(SendError::Timeout));
        };
        if upload.poll_yield(cx).is_ready() {
            return Poll::Ready(Err(SendError::Slow));
        }
        loop {
            ready!(connection.deadline().poll(cx));
            match upload.look(clock::instant()) {
                Ok(next) => connection.deadline().set(next),
                Err(UploadTimeout::Client) => return Poll::Ready(Err(SendError::Slow)),
                Err(UploadTimeout::Server) => return Poll::Ready(Err(SendError::Timeout)),
            }
        }
    }
}

impl<B: Body + 'static> Drop for Checkout<B> {
    fn drop(&mut self) {
        if let Some(LentConnection::Http2(exchange)) = &self.connection {
            exchange.leave();
            self.pool.stream_over(self.server);
            if self.pool.upstream.servers[self.server].has_left() {
                self.pool.close_left(self.server);
            }
        }
        self.entered();
        self.pool.exchange_over(self.server);
    }
}

const HELD: &str = "a checkout holds its connection until it is finished";
