//! One new connection to a server: TCP, TLS where wanted, HTTP/2's handshake.
//!
//! A server whose name has addresses of both families is not waited for long: after a quarter of a second one of the other
//! family is tried as well, and the first that connects is used (Happy Eyeballs, RFC 8305 section 5). Which one that may be is
//! the pool's to say.

use std::cell::{Cell, RefCell};
use std::error::Error as _;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::Body;
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::ids::ServerIndex;
use super::open::OpenConnection;
use super::server::{ServerAddress, Upstream};
use base::cause::Cause;
use base::clock;
use net::descriptors;
use net::outbox::QueuedSocket;
use net::wire::http2::{Meter, MeteredStream, Opening, PeerSide};

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server's name has no address.
    #[error("its name does not resolve")]
    Unresolved,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The TLS handshake failed: who is there is not whom the configuration means, or refuses us.
    #[error("TLS: {source}")]
    Tls {
        /// Why, in one word.
        cause: Cause,
        source: std::io::Error,
    },
    #[error("not connected within {limit:?}: {}", cause.sentence())]
    Timeout {
        limit: Duration,
        /// What the server did not answer.
        cause: Cause,
    },
    /// The process has no descriptor for it; the server is not to blame.
    #[error("{0}")]
    Descriptors(std::io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The connection is open, and the server takes no streams on it.
    #[error("it accepts no streams (SETTINGS_MAX_CONCURRENT_STREAMS is 0)")]
    NoStreams,
}

impl ConnectError {
    /// What was wrong, in one word; `None` where its kind says it already.
    pub fn cause(&self) -> Option<Cause> {
        match self {
            ConnectError::Unresolved | ConnectError::Descriptors(_) => None,
            ConnectError::Tls { cause, .. } => Some(*cause),
            ConnectError::Io(error) => Some(Cause::of_connect(error)),
            // An error of the connection itself is wrapped; any other is what the server said.
            ConnectError::Http(error) => {
                let io = error.source().and_then(|source| source.downcast_ref());
                let cause = io.map(Cause::of_connect).filter(|cause| *cause != Cause::ConnectFailed);
                Some(cause.unwrap_or(Cause::NotHttp2))
            }
            ConnectError::NoStreams => Some(Cause::NoStreams),
            ConnectError::Timeout { cause, .. } => Some(*cause),
        }
    }
}

/// A stream to a server, in the clear or not.
pub trait ServerStream: AsyncRead + AsyncWrite + Unpin + std::fmt::Debug {}
impl<T: AsyncRead + AsyncWrite + Unpin + std::fmt::Debug> ServerStream for T {}

/// A way to a server of the same name and the other family.
pub(super) enum FamilyRace<L> {
    /// A connection that is open already.
    Open(L),
    /// A new one to this server, which has a place for it.
    New { index: ServerIndex, open: OpenConnection },
}

pub(super) enum ConnectOutcome<S, L> {
    /// A new connection; `Some` if it is not to the server that was asked for.
    New(S, Option<MovedConnection>),
    /// An open one to another server.
    Open(L, UnfinishedAttempt),
}

/// A new connection to another server than the one that was asked for.
pub(super) struct MovedConnection {
    pub index: ServerIndex,
    pub open: OpenConnection,
    pub slow: UnfinishedAttempt,
}

/// Why a server was not waited for: an error, or `None` if it has not answered yet.
pub(super) type UnfinishedAttempt = Option<ConnectError>;

/// Opens an HTTP/1.1 connection to server `index`, unless a way `beside` it is faster.
pub(super) async fn http1<L>(
    upstream: &Upstream,
    index: ServerIndex,
    beside: impl FnOnce() -> Option<FamilyRace<L>>,
) -> Result<ConnectOutcome<Box<dyn ServerStream>, L>, ConnectError> {
    let awaited = Cell::new(Cause::ConnectTimeout);
    within(upstream, &awaited, stream(upstream, index, beside, &awaited)).await
}

/// By which fault of TLS a connection that drives itself has ended; its requests are told only that it is closed.
pub(super) type TlsFault = Rc<Cell<Option<Cause>>>;

pub(super) struct NewHttp2<B> {
    pub sender: http2::SendRequest<B>,
    /// What it knows of the frames that come on it.
    pub meter: Rc<RefCell<Meter>>,
    /// The fault of TLS that has ended it.
    pub tls_fault: TlsFault,
}

/// Opens an HTTP/2 connection to server `index`, unless a way `beside` it is faster, and drives it until it ends. It is open
/// once the server has sent its SETTINGS, as for gRPC's clients, because requests sent before could be more than it
/// takes at once, and a server that refuses our certificate over TLS 1.3 says so in their place.
pub(super) async fn http2<B, L>(
    upstream: &Upstream,
    index: ServerIndex,
    beside: impl FnOnce() -> Option<FamilyRace<L>>,
) -> Result<ConnectOutcome<NewHttp2<B>, L>, ConnectError>
where
    B: Body + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let awaited = Cell::new(Cause::ConnectTimeout);
    within(upstream, &awaited, async {
        let (stream, moved) = match stream(upstream, index, beside, &awaited).await? {
            ConnectOutcome::New(stream, moved) => (stream, moved),
            ConnectOutcome::Open(lent, slow) => return Ok(ConnectOutcome::Open(lent, slow)),
        };
        let tls_fault = TlsFault::default();
        let stream: Box<dyn ServerStream> = match upstream.configured(index).tls {
            true => Box::new(FaultRecorder { stream, fault: Rc::clone(&tls_fault), failed: None }),
            false => stream,
        };
        let streams = u32::try_from(upstream.config.connections.streams).unwrap_or(u32::MAX);
        let meter = Rc::new(RefCell::new(Meter::new(PeerSide::Server, streams, clock::instant())));
        let stream = TokioIo::new(MeteredStream::new(stream, Rc::clone(&meter), clock::instant));
        let mut builder = http2::Builder::new(LocalExecutor);
        builder
            .initial_stream_window_size(WINDOW_BYTES)
            // Of all streams together: otherwise answers that some clients do not read hold up those of all others.
            .initial_connection_window_size(WINDOW_BYTES.saturating_mul(streams).min(WINDOW_BYTES_MAX))
            .max_header_list_size(HEAD_BYTES);
        let (sender, connection) = builder.handshake(stream).await.map_err(broken)?;
        let mut connection = Box::pin(connection);
        poll_fn(|cx| match connection.as_mut().poll(cx) {
            Poll::Ready(ended) => {
                let alert = Some(Cause::SpeaksTls).filter(|_| meter.borrow().opening() == Opening::TlsAlert);
                Poll::Ready(Err(ended_early(ended.err(), alert.or(tls_fault.get()))))
            }
            Poll::Pending => meter.borrow_mut().poll_streams(cx).map(|_| Ok(())),
        })
        .await?;
        let (upstream, server) = (upstream.config.name.clone(), upstream.servers[index].label.clone());
        let opened = NewHttp2 { sender, meter: Rc::clone(&meter), tls_fault };
        tokio::task::spawn_local(async move {
            let Err(error) = connection.await else { return };
            match meter.borrow().excess() {
                Some(excess) => {
                    tracing::warn!(%upstream, %server, excess = excess.name(), "upstream connection closed: too many or forbidden frames");
                }
                None => tracing::debug!(%upstream, %server, %error, "upstream connection ended"),
            }
        });
        Ok(ConnectOutcome::New(opened, moved))
    })
    .await
}

/// Bounds an attempt to connect. A timeout is that of what the attempt says that it awaits.
async fn within<T>(
    upstream: &Upstream,
    awaited: &Cell<Cause>,
    attempt: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let limit = upstream.config.timeouts.connect;
    tokio::time::timeout(limit, attempt)
        .await
        .unwrap_or_else(|_| Err(ConnectError::Timeout { limit, cause: awaited.get() }))
}

async fn stream<L>(
    upstream: &Upstream,
    index: ServerIndex,
    beside: impl FnOnce() -> Option<FamilyRace<L>>,
    awaited: &Cell<Cause>,
) -> Result<ConnectOutcome<Box<dyn ServerStream>, L>, ConnectError> {
    let server = &upstream.servers[index];
    if let Some(ServerAddress::Unix(path)) = &server.address {
        return Ok(ConnectOutcome::New(Box::new(unix(path).await.map_err(not_connected)?), None));
    }
    let (tcp, moved) = match race(upstream, index, beside).await? {
        ConnectOutcome::New(tcp, moved) => (tcp, moved),
        ConnectOutcome::Open(lent, slow) => return Ok(ConnectOutcome::Open(lent, slow)),
    };
    tcp.set_nodelay(true)?;
    // One beside it has the same name.
    match upstream.tls.as_ref().filter(|_| upstream.configured(index).tls) {
        Some(tls) => {
            let name = upstream.config.tls.name(&server.tls_name);
            awaited.set(Cause::TlsTimeout);
            let stream = secure(tls.load_full(), name, tcp).await?;
            awaited.set(Cause::ConnectTimeout);
            Ok(ConnectOutcome::New(Box::new(stream), moved))
        }
        None => Ok(ConnectOutcome::New(Box::new(QueuedSocket::new(tcp)), moved)),
    }
}

/// Connects to server `index`. If that fails or takes long, the way `beside` it is taken, or raced with it.
async fn race<L>(
    upstream: &Upstream,
    index: ServerIndex,
    beside: impl FnOnce() -> Option<FamilyRace<L>>,
) -> Result<ConnectOutcome<TcpStream, L>, ConnectError> {
    let mut first = pin!(tcp(upstream, index));
    let slow = match timeout(BESIDE_AFTER, &mut first).await {
        Ok(Ok(tcp)) => return Ok(ConnectOutcome::New(tcp, None)),
        Ok(Err(error)) => Some(error),
        Err(_) => None,
    };
    let (other, open) = match (beside(), slow) {
        (Some(FamilyRace::Open(lent)), slow) => return Ok(ConnectOutcome::Open(lent, slow)),
        (Some(FamilyRace::New { index, open }), None) => (index, open),
        (Some(FamilyRace::New { index, open }), Some(error)) => {
            return instead(tcp(upstream, index), index, open, error).await;
        }
        (None, Some(error)) => return Err(error),
        (None, None) => return first.await.map(|tcp| ConnectOutcome::New(tcp, None)),
    };
    let mut second = pin!(tcp(upstream, other));
    tokio::select! {
        biased;
        connected = &mut first => match connected {
            Ok(tcp) => Ok(ConnectOutcome::New(tcp, None)),
            Err(error) => instead(second, other, open, error).await,
        },
        connected = &mut second => match connected {
            Ok(tcp) => Ok(ConnectOutcome::New(tcp, Some(MovedConnection { index: other, open, slow: None }))),
            Err(_) => first.await.map(|tcp| ConnectOutcome::New(tcp, None)),
        },
    }
}

/// The connection to another server, after that to the first has failed with this error; the error if neither can be made.
async fn instead<L>(
    connecting: impl Future<Output = Result<TcpStream, ConnectError>>,
    index: ServerIndex,
    open: OpenConnection,
    error: ConnectError,
) -> Result<ConnectOutcome<TcpStream, L>, ConnectError> {
    match connecting.await {
        Ok(tcp) => Ok(ConnectOutcome::New(tcp, Some(MovedConnection { index, open, slow: Some(error) }))),
        Err(_) => Err(error),
    }
}

async fn tcp(upstream: &Upstream, index: ServerIndex) -> Result<TcpStream, ConnectError> {
    let address = upstream.servers[index].address.as_ref().and_then(ServerAddress::tcp);
    let tcp = TcpStream::connect(address.ok_or(ConnectError::Unresolved)?).await.map_err(not_connected)?;
    keep_alive(&tcp).map_err(not_connected)?;
    Ok(tcp)
}

/// Has the kernel ask whether the other end of a connection on which nothing moves is still there: a tunnel or a stream may be
/// silent for hours, and a host that has gone says nothing.
///
/// # Errors
/// If the socket is not one of TCP.
pub fn keep_alive(socket: &impl AsFd) -> io::Result<()> {
    let asked = TcpKeepalive::new()
        .with_time(KEEP_ALIVE_AFTER)
        .with_interval(KEEP_ALIVE_EVERY)
        .with_retries(KEEP_ALIVE_RETRIES);
    SockRef::from(socket).set_tcp_keepalive(&asked)
}

fn not_connected(error: io::Error) -> ConnectError {
    if descriptors::is_shortage(&error) {
        descriptors::ran_out("a connection to an upstream", &error, clock::now_ns());
        return ConnectError::Descriptors(error);
    }
    error.into()
}

/// Connects to a Unix socket. The caller bounds how long that takes.
///
/// A server whose queue is full answers EAGAIN at once (connect(2)), where TCP sends its SYN again; it is tried again,
/// because a short burst must not become an error only because the server is on the same machine.
pub(super) async fn unix(path: &Path) -> io::Result<UnixStream> {
    let mut pause = QUEUE_FULL_PAUSE_MIN;
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(QUEUE_FULL_PAUSE_MAX);
            }
            connected => return connected,
        }
    }
}

async fn secure(
    tls: Arc<rustls::ClientConfig>,
    name: &str,
    tcp: TcpStream,
) -> Result<TlsStream<QueuedSocket>, ConnectError> {
    let name = ServerName::try_from(name.to_owned()).map_err(std::io::Error::other)?;
    let connected = tokio_rustls::TlsConnector::from(tls).connect(name, QueuedSocket::new(tcp)).await;
    connected.map_err(|source| match Cause::of_tls_behind(&source) {
        // What came back is no record of TLS.
        Some(Cause::TlsProtocol) if is_unreadable(&source) => {
            ConnectError::Tls { cause: Cause::NotTls, source }
        }
        Some(cause) => ConnectError::Tls { cause, source },
        // Closed or reset in the middle of it.
        None => ConnectError::Io(source),
    })
}

fn is_unreadable(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(rustls::Error::InvalidMessage(_)))
}

/// A server that refuses our certificate over TLS 1.3 does so within HTTP's handshake.
fn broken(error: hyper::Error) -> ConnectError {
    match Cause::of_tls_behind(&error) {
        Some(cause) => ConnectError::Tls { cause, source: std::io::Error::other(error) },
        None => ConnectError::Http(error),
    }
}

/// A connection over HTTP/2 that has ended before the server's SETTINGS came, by this fault of TLS if it is one.
fn ended_early(error: Option<hyper::Error>, tls_fault: Option<Cause>) -> ConnectError {
    let eof = || io::ErrorKind::UnexpectedEof.into();
    match (tls_fault, error) {
        (Some(cause), error) => ConnectError::Tls { cause, source: error.map_or_else(eof, io::Error::other) },
        (None, Some(error)) => broken(error),
        (None, None) => ConnectError::Io(eof()),
    }
}

/// A stream that keeps the fault of TLS that ends it, because hyper drops what its connection fails with, and tells
/// requests that it is closed.
#[derive(Debug)]
struct FaultRecorder {
    stream: Box<dyn ServerStream>,
    fault: TlsFault,
    /// A write has failed: nothing is written any more, and the server's last word is waited for.
    failed: Option<io::Error>,
}

impl FaultRecorder {
    /// What cannot be written may have been refused: the server's word for it came before it closed, and is read to
    /// its end first. That is at hand, but the runtime may not have heard of it yet.
    fn send<T>(
        &mut self,
        cx: &mut Context<'_>,
        send: impl FnOnce(Pin<&mut dyn ServerStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.failed.is_none() {
            match send(Pin::new(&mut *self.stream), cx) {
                Poll::Ready(Err(error)) => self.failed = Some(error),
                sent => return sent,
            }
        }
        let mut last = [0; LAST_BYTES];
        loop {
            let mut last = ReadBuf::new(&mut last);
            if ready!(Pin::new(&mut *self).poll_read(cx, &mut last)).is_err() || last.filled().is_empty() {
                return Poll::Ready(Err(self.failed.take().unwrap_or(io::ErrorKind::BrokenPipe.into())));
            }
        }
    }
}

impl AsyncRead for FaultRecorder {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Poll::Ready(Err(error)) = &read {
            self.fault.set(self.fault.get().or(Cause::of_tls_behind(error)));
        }
        read
    }
}

impl AsyncWrite for FaultRecorder {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.send(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.send(cx, |stream, cx| stream.poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Runs hyper's own tasks on the worker that owns the connection.
#[derive(Clone, Copy, Debug)]
pub struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}

/// A connection is asked after when nothing has moved for so long: below what NATs and balancers keep (RFC 5382 has two hours,
/// many have minutes).
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(60);
/// And then so often, until it has not answered for [`KEEP_ALIVE_RETRIES`] times.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
const KEEP_ALIVE_RETRIES: u32 = 4;
/// How long a connection to a server may take before one of the other family is tried (RFC 8305 section 8).
const BESIDE_AFTER: Duration = Duration::from_millis(250);
/// Read at once of a connection that takes no more: an alert is no byte of it, and everything else is lost.
const LAST_BYTES: usize = 1_024;
/// How soon a Unix socket whose queue is full is tried again, because a server that works empties its queue within
/// microseconds.
const QUEUE_FULL_PAUSE_MIN: Duration = Duration::from_millis(1);
/// How soon at the latest, if the queue stays full.
const QUEUE_FULL_PAUSE_MAX: Duration = Duration::from_millis(50);
/// The longest head of an answer over HTTP/2, as RFC 9113 section 6.5.2 counts it.
const HEAD_BYTES: u32 = 32 * 1024;
/// What may come of an answer that its client does not read: 250 MB/s over a millisecond's round trip.
const WINDOW_BYTES: u32 = 256 * 1024;
/// The largest window there is (RFC 9113 section 6.9.1).
const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;
