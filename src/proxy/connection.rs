//! One client's connection, from handshake to close: which protocol, which deadlines, when it rests.
//!
//! A connection without a request is taken out of hyper: in the clear it goes to the worker's lot, with nothing kept of
//! it but its socket, and under TLS it is *parked*, a task that waits for the socket. Requests are the pipeline's.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Version};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use super::gate::Gate;
use super::headers::Peer;
use super::idle::{Awaited, FIRST_BYTES, IdleConnection};
use super::io::{Activity, Presence, Stream, Tracked};
use super::listener::Listener;
use super::prelude::http2::PREFACE;
use super::timer::{ConnectionTimer, Expiry};
use super::worker::Worker;
use super::{config, context, headers, http2, linger, pipeline, prelude, tunnel};
use crate::auth::mtls::Certificate;
use crate::cause::Cause;
use crate::service::problem::{self, Problem};
use crate::service::reason::Reason;
use crate::service::refusal::Refusal;
use crate::wire::http1::Fault;
use crate::{clock, metrics};

/// What the requests of one connection share.
pub struct Conn {
    /// The worker that serves it.
    pub worker: Rc<Worker>,
    /// The listener it came to.
    pub listener: Arc<Listener>,
    /// The listener's configuration when it came.
    pub config: Arc<config::Listener>,
    /// Whom its other end speaks for: itself, or the client that the PROXY protocol announced.
    pub peer: Peer,
    /// The address it comes from, an IPv4-mapped one as IPv4.
    pub tcp_peer: IpAddr,
    /// Which TLS is spoken; empty in the clear.
    pub tls: &'static str,
    /// The name the client asked for in its TLS hello; empty where it named none.
    pub sni: Box<str>,
    /// The certificate the client showed; `None` where it showed none.
    pub certificate: Option<Box<Certificate>>,
    /// What it is doing.
    pub activity: Rc<Activity>,
    /// Set when a deadline takes the connection down under its requests.
    pub stalled: Cell<bool>,
    /// Requests over HTTP/2 that were reset because of what their client did, and have not ended yet.
    pub broken: Cell<u32>,
    /// Set when no more requests are wanted over HTTP/2.
    pub leaving: Cell<bool>,
    /// The other side of a switched protocol, once its answer is on the way.
    pub tunnel: RefCell<Option<tunnel::Tunnel>>,
}

impl std::fmt::Debug for Conn {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Conn").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// Where a connection comes from, and for whom.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The socket's other end.
    pub tcp_peer: IpAddr,
    /// The client that the PROXY protocol announced; the socket's other end where nothing did.
    pub announced_peer: IpAddr,
}

/// Serves a connection that has just come, until it ends or rests.
pub async fn serve(
    worker: &Rc<Worker>,
    listener: &Arc<Listener>,
    mut tcp: TcpStream,
    ends: Ends,
) -> Option<IdleConnection> {
    // The first head counts from accept: a client that connects and stays silent holds nothing for long.
    let accepted = clock::instant();
    let config = listener.config.load_full();
    if let Err(error) = tcp.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone before it was served");
        return None;
    }
    let mut ahead = BytesMut::new();
    let (stream, protocol) = match listener.tls.load_full() {
        None => match first_words(worker, &mut tcp, &mut ahead).await {
            Some(Ok(0) | Err(_)) => return None,
            Some(Ok(_)) => (Stream::Plain(tcp), in_the_clear(&config)),
            None => {
                let deadline = accepted + config.timeouts.header;
                return rest(tcp, ends, config, deadline, Awaited::First);
            }
        },
        Some(tls) => Box::pin(handshake(worker, listener, &config, tls, (tcp, ends))).await?,
    };
    let conn = Conn::new(worker, listener, config, ends, &stream, 0);
    begin(&Rc::new(conn), stream, protocol, ahead, accepted).await
}

/// Serves a connection on which this has come after a rest.
pub async fn resume(
    worker: &Rc<Worker>,
    listener: &Arc<Listener>,
    rested: IdleConnection,
    said: Bytes,
) -> Option<IdleConnection> {
    let stream = Stream::Plain(TcpStream::from_std(rested.socket).ok()?);
    let protocol = in_the_clear(&rested.config);
    match rested.awaited {
        Awaited::First => {
            let accepted = rested.deadline - rested.config.timeouts.header;
            let conn = Conn::new(worker, listener, rested.config, rested.ends, &stream, 0);
            begin(&Rc::new(conn), stream, protocol, said.into(), accepted).await
        }
        Awaited::Next(status) => {
            let conn = Conn::new(worker, listener, rested.config, rested.ends, &stream, status);
            http1(&Rc::new(conn), stream, said, rested.deadline).await
        }
    }
}

/// The first request, in whatever protocol it comes; `ahead` has been read of it.
async fn begin(
    conn: &Rc<Conn>,
    stream: Stream,
    protocol: Protocol,
    ahead: BytesMut,
    accepted: Instant,
) -> Option<IdleConnection> {
    let first = accepted + conn.config.timeouts.header;
    if protocol == Protocol::Http1 {
        return http1(conn, stream, ahead.freeze(), first).await;
    }
    match Box::pin(sniff(conn, stream, ahead, first)).await? {
        (stream, ahead, true) => http2::serve(conn, stream, ahead, accepted).await,
        (stream, ahead, false) if protocol == Protocol::Either => {
            return http1(conn, stream, ahead, first).await;
        }
        (stream, _, false) => Box::pin(conn.refuse_preface(stream)).await,
    }
    None
}

/// Reads what a client begins with; `None` where it says nothing for long enough to rest.
async fn first_words(
    worker: &Worker,
    tcp: &mut TcpStream,
    ahead: &mut BytesMut,
) -> Option<io::Result<usize>> {
    ahead.reserve(FIRST_BYTES);
    tokio::select! {
        biased;
        read = timeout(REST_AFTER, tcp.read_buf(ahead)) => read.ok(),
        () = worker.drain_begins() => Some(Ok(0)),
    }
}

/// A connection that waits for what its client says next; `None` where its socket is of no use.
fn rest(
    tcp: TcpStream,
    ends: Ends,
    config: Arc<config::Listener>,
    deadline: Instant,
    awaited: Awaited,
) -> Option<IdleConnection> {
    let socket = tcp.into_std().ok()?;
    Some(IdleConnection { socket, ends, config, deadline, awaited })
}

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
    /// The first bytes tell.
    Either,
}

fn tls_version(stream: &Stream) -> &'static str {
    match stream {
        Stream::Plain(_) => "",
        Stream::Tls(tls) => match tls.get_ref().1.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        },
    }
}

fn server_name(stream: &Stream) -> &str {
    match stream {
        Stream::Plain(_) => "",
        Stream::Tls(tls) => tls.get_ref().1.server_name().unwrap_or(""),
    }
}

/// What the client showed; of a session that is resumed, when that began.
fn certificate(stream: &Stream) -> Option<Box<Certificate>> {
    let Stream::Tls(tls) = stream else { return None };
    let leaf = tls.get_ref().1.peer_certificates()?.first()?;
    Certificate::read(leaf).map(Box::new)
}

fn in_the_clear(config: &config::Listener) -> Protocol {
    match (config.http1, config.http2) {
        (true, true) => Protocol::Either,
        (false, true) => Protocol::Http2,
        (_, false) => Protocol::Http1,
    }
}

/// The TLS handshake within its deadline, and the protocol agreed on by ALPN (RFC 7301).
async fn handshake(
    worker: &Worker,
    listener: &Listener,
    config: &config::Listener,
    tls: Arc<rustls::ServerConfig>,
    (tcp, ends): (TcpStream, Ends),
) -> Option<(Stream, Protocol)> {
    let accept = async {
        // What a handshake costs before the client has proved anything is bounded: more of them wait for their turn.
        let _turn = worker.handshakes.acquire().await;
        tokio_rustls::TlsAcceptor::from(tls).accept(tcp).await
    };
    match timeout(worker.handshake_deadline(config.timeouts.handshake), accept).await {
        Ok(Ok(stream)) => {
            let protocol = match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Protocol::Http2,
                // No ALPN at all: HTTP/1.1 (RFC 9113 section 3.2 asks HTTP/2 over TLS to use it).
                _ => Protocol::Http1,
            };
            Some((Stream::Tls(Box::new(stream)), protocol))
        }
        Ok(Err(error)) => {
            tracing::debug!(listener = %config.name, %error, "TLS handshake");
            listener.metrics.handshake_failed(&worker.metrics);
            if let Some(cause) = Cause::of_tls_behind(&error) {
                context::tell_handshake(worker, config, ends, cause);
            }
            None
        }
        Err(_) => {
            listener.metrics.deadline_passed(&worker.metrics, metrics::Deadline::Handshake);
            None
        }
    }
}

/// Reads behind `ahead` until the first bytes tell HTTP/2 by prior knowledge (RFC 9113 section 3.3) from HTTP/1.1: the
/// stream, what was read, and whether it is HTTP/2. `None` where the client goes away or takes longer than `deadline`.
async fn sniff(
    conn: &Conn,
    mut stream: Stream,
    mut ahead: BytesMut,
    deadline: Instant,
) -> Option<(Stream, Bytes, bool)> {
    ahead.reserve(PREFACE.len().saturating_sub(ahead.len()));
    let read = async {
        loop {
            let begin = ahead.len().min(PREFACE.len());
            if begin == PREFACE.len() || ahead[..] != PREFACE[..begin] {
                return true;
            }
            // No more than the preface: what follows is hyper's.
            let room = PREFACE.len() - begin;
            if (&mut stream).take(room as u64).read_buf(&mut ahead).await.unwrap_or(0) == 0 {
                // End of stream, or broken: hyper tells a half-sent head from silence.
                return !ahead.is_empty();
            }
        }
    };
    let read = async {
        tokio::select! {
            read = timeout_at(deadline.into(), read) => read,
            () = conn.worker.drain_begins() => Ok(false),
        }
    };
    match read.await {
        Ok(true) => {
            let is_http2 = ahead.starts_with(PREFACE);
            Some((stream, ahead.freeze(), is_http2))
        }
        Ok(false) => None,
        Err(_) => {
            conn.deadline_passed(metrics::Deadline::Header);
            None
        }
    }
}

/// HTTP/1.1: served while there are requests; while there are none it rests, under TLS here.
async fn http1(
    conn: &Rc<Conn>,
    mut stream: Stream,
    mut ahead: Bytes,
    first: Instant,
) -> Option<IdleConnection> {
    let mut deadline = (first, metrics::Deadline::Header);
    loop {
        if ahead.is_empty() && !Box::pin(park(conn, &stream, deadline)).await {
            return None;
        }
        let Some(head) = Box::pin(prelude::http1::gather(conn, &mut stream, ahead)).await else {
            conn.late_http1(stream).await;
            return None;
        };
        if head.is_empty() {
            // It has gone, or must.
            return None;
        }
        (stream, ahead) = Box::pin(drive_http1(conn, stream, head)).await?;
        deadline = (clock::instant() + conn.config.timeouts.idle, metrics::Deadline::Idle);
        stream = match stream {
            Stream::Plain(tcp) if ahead.is_empty() => {
                let awaited = Awaited::Next(conn.activity.last_status());
                let ends = Ends { tcp_peer: conn.tcp_peer, announced_peer: conn.peer.ip };
                return rest(tcp, ends, Arc::clone(&conn.config), deadline.0, awaited);
            }
            stream => stream,
        };
    }
}

/// Waits for the next byte with nothing kept but the socket; false where the connection is over.
async fn park(conn: &Conn, stream: &Stream, deadline: (Instant, metrics::Deadline)) -> bool {
    if stream.holds_bytes() {
        return true;
    }
    tokio::select! {
        biased;
        readable = timeout_at(deadline.0.into(), stream.tcp().readable()) => match readable {
            Ok(readable) => readable.is_ok(),
            Err(_) => {
                conn.deadline_passed(deadline.1);
                false
            }
        },
        () = conn.worker.drain_begins() => false,
    }
}

/// Runs hyper over the stream until the connection ends, or rests: then the stream comes back.
async fn drive_http1(conn: &Rc<Conn>, stream: Stream, ahead: Bytes) -> Option<(Stream, Bytes)> {
    let mut builder = http1::Builder::new();
    builder
        .half_close(true)
        .header_read_timeout(None)
        .max_headers(conn.config.max.headers)
        .max_header_size(conn.config.max.header_bytes)
        .max_buf_size(conn.config.max.header_bytes.max(MIN_BUFFER_BYTES));
    let began = (!ahead.is_empty()).then(clock::instant);
    let io = Tracked::new(stream, ahead, Rc::clone(&conn.activity));
    let io = Gate::new(io, Rc::clone(&conn.activity), conn.config.max.header_bytes);
    if let Some(now) = began {
        conn.activity.begin_head(now);
    }
    let service = service_fn(|request| pipeline::handle(Rc::clone(conn), request));
    let mut served = builder.serve_connection(TokioIo::new(io), service);
    let mut watch = ConnectionTimer::new(&conn.config.timeouts, Some(REST_AFTER), None);
    let drain = pin!(conn.worker.drain_begins());
    let (mut drain, mut draining) = (Some(drain), false);
    conn.activity.mind_presence();
    let mut presence = Presence::There;
    let end = std::future::poll_fn(|cx| {
        loop {
            if let Poll::Ready(result) = Pin::new(&mut served).poll(cx) {
                return Poll::Ready(End::Done(result));
            }
            if !draining && conn.worker.drain_has_begun(&mut drain, cx) {
                draining = true;
                Pin::new(&mut served).graceful_shutdown();
                continue;
            }
            if let Some(fault) = conn.activity.due_fault() {
                return Poll::Ready(End::Refused(fault));
            }
            if conn.activity.presence() != presence {
                presence = conn.activity.presence();
                watch.give(presence.look_after());
            }
            if presence == Presence::Gone {
                return Poll::Ready(End::Gone);
            }
            match ready!(watch.poll(&conn.activity, cx)) {
                // hyper reads nothing while a request is answered, and flushes at every turn: that is the moment.
                Expiry::Presence => conn.activity.ask_presence(),
                expiry => return Poll::Ready(End::Expired(expiry)),
            }
        }
    })
    .await;
    // Before its requests go down with hyper's side, so that they know by what.
    conn.stalled.set(matches!(end, End::Expired(Expiry::Stall)));
    let parts = served.into_parts();
    conclude(conn, end, parts.io.into_inner(), parts.read_buf, draining).await
}

/// What becomes of a connection that hyper is done with, or was taken from: it comes back where it only rests. `read`
/// is what hyper had read of the next message.
async fn conclude(
    conn: &Rc<Conn>,
    end: End,
    gate: Gate,
    read: Bytes,
    draining: bool,
) -> Option<(Stream, Bytes)> {
    let is_owed = gate.is_owed();
    let (mut stream, ahead) = gate.into_parts(read);
    match end {
        End::Done(Ok(())) => match conn.tunnel.take() {
            Some(tunnel) => tunnel.run(conn, stream, ahead).await,
            None if is_owed => linger::linger(&stream).await,
            None => {}
        },
        End::Done(Err(error)) => {
            if conn.broken(&error) {
                linger::linger(&stream).await;
            }
        }
        End::Expired(Expiry::IdleConnection) if !draining => return Some((stream, ahead)),
        End::Expired(Expiry::IdleConnection | Expiry::Idle | Expiry::Presence) | End::Gone => {}
        End::Expired(Expiry::Head) => conn.late_http1(stream).await,
        End::Refused(fault) => {
            let refusal = Refusal::Framing(fault);
            let problem = Problem::of(&refusal);
            let request_id = conn.refuse_unread(Version::HTTP_11, problem.reason, problem.status.as_u16());
            let answer = problem.unread(&request_id);
            linger::say(&mut stream, if conn.may_be_preface(fault) { &[] } else { &answer }).await;
            linger::linger(&stream).await;
        }
        End::Expired(Expiry::Stall) => conn.deadline_passed(metrics::Deadline::BodyStall),
    }
    None
}

/// How hyper's part of a connection ended.
pub(super) enum End {
    Done(hyper::Result<()>),
    /// A head that is none is the next to answer.
    Refused(Fault),
    Expired(Expiry),
    /// The client has closed while it waited for an answer.
    Gone,
}

impl Conn {
    /// A connection on which hyper has answered by itself with this status last; 0 for none.
    fn new(
        worker: &Rc<Worker>,
        listener: &Arc<Listener>,
        config: Arc<config::Listener>,
        ends: Ends,
        stream: &Stream,
        last_status: u16,
    ) -> Conn {
        Conn {
            worker: Rc::clone(worker),
            listener: Arc::clone(listener),
            peer: Peer::new(ends.announced_peer),
            tcp_peer: ends.tcp_peer.to_canonical(),
            tls: tls_version(stream),
            sni: server_name(stream).into(),
            certificate: certificate(stream),
            activity: Rc::new(Activity::after_rest(clock::instant(), last_status)),
            stalled: Cell::new(false),
            broken: Cell::new(0),
            leaving: Cell::new(false),
            tunnel: RefCell::new(None),
            config,
        }
    }

    /// A head over HTTP/1 takes too long. There is no request to answer through hyper: the answer goes straight to the
    /// socket.
    async fn late_http1(&self, mut stream: Stream) {
        self.deadline_passed(metrics::Deadline::Header);
        let request_id =
            self.refuse_unread(Version::HTTP_11, Reason::HeaderTimeout, problem::HEADER_TIMEOUT_STATUS);
        linger::say(&mut stream, &problem::header_timeout(&request_id)).await;
    }

    pub(super) fn deadline_passed(&self, deadline: metrics::Deadline) {
        self.listener.metrics.deadline_passed(&self.worker.metrics, deadline);
    }

    /// hyper gave the connection up: a head it cannot parse is a refused request, the rest is the client's going.
    ///
    /// Whether the client was told.
    fn broken(&self, error: &hyper::Error) -> bool {
        let status = self.activity.last_status();
        let is_told = error.is_parse() && status != 0;
        if is_told {
            self.refuse_unread(Version::HTTP_11, problem::reason_of_parse_status(status), status);
        } else {
            tracing::debug!(peer = %self.peer.ip, %error, "connection");
        }
        is_told
    }

    /// Counts and logs what never became a request, under the id it gives back.
    pub(super) fn refuse_unread(&self, version: Version, reason: Reason, status: u16) -> HeaderValue {
        let request_id = headers::request_id(&HeaderMap::new(), false, || self.worker.random());
        context::tell_unread(self, version, &request_id, reason, status);
        request_id
    }
}

/// A connection rests after this long without a request.
const REST_AFTER: Duration = Duration::from_millis(100);
/// hyper's own least size of a connection's buffer.
const MIN_BUFFER_BYTES: usize = 64 * 1024;
