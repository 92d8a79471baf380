//! An HTTP/1.1 connection. hyper drives it while there are requests; when it becomes idle it is taken out of hyper. In
//! the clear it then goes back to the worker, under TLS it waits here.

use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Version;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::timeout_at;

use super::connection::{ConnectionEnd, ConnectionTask};
use super::framing_gate::FramingGate;
use super::idle::{AwaitedHead, IdleConnection};
use super::stream::{ClientStream, TrackedStream};
use super::timer::{ConnectionTimer, Expiry};
use super::{late_body, linger, prelude, tunnel};
use crate::service::activity::Presence;
use crate::service::config::Sizes;
use crate::service::problem::RefusalProblem;
use crate::service::refusal::Refusal;
use crate::service::{ClientAddresses, Service};
use base::clock;
use net::wire::http1::Framing;

/// Serves a connection until it ends (`None`) or, in the clear, becomes idle. `ahead` has been read from it, and its next
/// head must be whole by `first`.
pub async fn serve<S: Service>(
    conn: &ConnectionTask<S>,
    mut stream: ClientStream,
    mut ahead: Bytes,
    first: Instant,
) -> Option<IdleConnection> {
    let mut deadline = (first, metrics::ConnectionDeadline::Header);
    loop {
        if ahead.is_empty() && !Box::pin(wait_readable(conn, &stream, deadline)).await {
            return None;
        }
        let Some(head) = Box::pin(prelude::http1::gather(&conn.facts, &mut stream, ahead)).await else {
            conn.late_http1(stream).await;
            return None;
        };
        if head.is_empty() {
            // The client has gone, or the worker drains.
            return None;
        }
        (stream, ahead) = match Box::pin(drive(conn, stream, head)).await? {
            ConnectionWait::Message(stream, ahead) => (stream, ahead),
            ConnectionWait::Rest(stream, framing, left) => {
                Box::pin(late_body::read(conn, stream, framing, left)).await?
            }
        };
        deadline = (clock::instant() + conn.facts.config.timeouts.idle, metrics::ConnectionDeadline::Idle);
        stream = match stream {
            ClientStream::Plain(socket) if ahead.is_empty() => match socket.into_tcp() {
                Ok(tcp) => {
                    let awaited = AwaitedHead::Next(conn.facts.activity.last_status.get());
                    let ends =
                        ClientAddresses { tcp_peer: conn.facts.tcp_peer, announced_peer: conn.facts.peer.ip };
                    return IdleConnection::of(
                        tcp,
                        ends,
                        Arc::clone(&conn.facts.config),
                        deadline.0,
                        awaited,
                    );
                }
                // Not among the idle ones, because its client has not read the last answer.
                Err(socket) => ClientStream::Plain(socket),
            },
            stream => stream,
        };
    }
}

/// Waits for the next byte with nothing held but the socket; false if the connection is over.
async fn wait_readable<S: Service>(
    conn: &ConnectionTask<S>,
    stream: &ClientStream,
    deadline: (Instant, metrics::ConnectionDeadline),
) -> bool {
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
        () = conn.facts.drain.idle_closes.wait() => false,
    }
}

/// What a connection waits for that hyper does not drive any more.
enum ConnectionWait {
    /// A message, of which so much was read.
    Message(ClientStream, Bytes),
    /// So many bytes at most of a body that nobody wants.
    Rest(ClientStream, Framing, u64),
}

/// Runs hyper over the stream until the connection ends (`None`), is idle, or is late with what nobody wants.
async fn drive<S: Service>(
    conn: &ConnectionTask<S>,
    stream: ClientStream,
    ahead: Bytes,
) -> Option<ConnectionWait> {
    let began = (!ahead.is_empty()).then(clock::instant);
    let io = TrackedStream::new(stream, ahead, Rc::clone(&conn.facts.activity));
    let io = FramingGate::new(io, Rc::clone(&conn.facts.activity), conn.facts.config.max.header_bytes);
    if let Some(now) = began {
        conn.facts.activity.begin_head(now);
    }
    let service =
        service_fn(|request| Rc::clone(&conn.worker.service).answer(Rc::clone(&conn.facts), request, None));
    let mut served = builder(&conn.facts.config.max).serve_connection(TokioIo::new(io), service);
    let mut timer = ConnectionTimer::new(&conn.facts.config.timeouts, Some(IDLE_AFTER), None);
    let (drain, cuts) = (pin!(conn.facts.drain.idle_closes.wait()), pin!(conn.facts.drain.cuts.wait()));
    let (mut drain, mut cuts, mut draining) = (Some(drain), Some(cuts), false);
    conn.facts.activity.minds_presence.set(true);
    let mut presence = Presence::There;
    let end = std::future::poll_fn(|cx| {
        loop {
            if let Poll::Ready(result) = Pin::new(&mut served).poll(cx) {
                return Poll::Ready(ConnectionEnd::Done(result));
            }
            conn.facts.rest.poll(&conn.facts.activity, cx);
            if !draining && conn.facts.drain.idle_closes.poll(&mut drain, cx) {
                draining = true;
                Pin::new(&mut served).graceful_shutdown();
                continue;
            }
            if draining && conn.facts.drain.cuts.poll(&mut cuts, cx) {
                return Poll::Ready(ConnectionEnd::Gone);
            }
            if let Some(fault) = conn.facts.activity.due_fault() {
                return Poll::Ready(ConnectionEnd::Refused(fault));
            }
            if conn.facts.activity.presence.get() != presence {
                presence = conn.facts.activity.presence.get();
                timer.wait(presence.look_after());
            }
            if presence == Presence::Gone {
                return Poll::Ready(ConnectionEnd::Gone);
            }
            match ready!(timer.poll(&conn.facts.activity, cx)) {
                // The look itself happens in `TrackedStream::poll_flush`, because hyper reads nothing while it answers
                // a request, but flushes at every poll.
                Expiry::Presence => conn.facts.activity.asks_presence.set(true),
                expiry => return Poll::Ready(ConnectionEnd::Expired(expiry)),
            }
        }
    })
    .await;
    // Before `served` is taken apart, because that drops its requests, which log whether a stall ended them.
    conn.facts.stalled.set(matches!(end, ConnectionEnd::Expired(Expiry::Stall)));
    let parts = served.into_parts();
    if matches!(end, ConnectionEnd::Expired(Expiry::Rest)) {
        let (left, (stream, framing)) = conn.facts.rest.take().zip(parts.io.into_inner().into_body())?;
        return Some(ConnectionWait::Rest(stream, framing, left));
    }
    let left = conclude(conn, end, parts.io.into_inner(), parts.read_buf, draining).await;
    left.map(|(stream, ahead)| ConnectionWait::Message(stream, ahead))
}

/// hyper as a listener's limits say.
fn builder(max: &Sizes) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // Only if it differs, because told a number, even its own, hyper fills two arrays of that many fields before it
    // reads a head: a twentieth of all instructions of a small request.
    if max.headers != HYPER_HEADERS_MAX {
        builder.max_headers(max.headers);
    }
    builder
        .half_close(true)
        .auto_date_header(false)
        .header_read_timeout(None)
        .max_header_size(max.header_bytes)
        .max_buf_size(max.header_bytes.max(MIN_BUFFER_BYTES));
    builder
}

/// Finishes a connection that hyper does not drive any more: answers what is left to answer and closes it, or returns it
/// if it is only idle. `read` is what hyper had read of the next message.
async fn conclude<S: Service>(
    conn: &ConnectionTask<S>,
    end: ConnectionEnd,
    gate: FramingGate,
    read: Bytes,
    draining: bool,
) -> Option<(ClientStream, Bytes)> {
    let (is_in_message, own_answer) = (gate.is_in_message(), gate.own_answer());
    let (mut stream, ahead) = gate.into_parts(read);
    match end {
        ConnectionEnd::Done(Err(error))
            if error.is_parse()
                && let Some((_, refusal)) = &own_answer =>
        {
            refuse(conn, stream, refusal, true).await;
        }
        ConnectionEnd::Done(Ok(())) if let Some((answer, _)) = own_answer => {
            linger::say(&mut stream, answer.as_bytes()).await;
        }
        ConnectionEnd::Done(Ok(())) => match conn.facts.switched.take() {
            Some(switched) => tunnel::run(&conn.facts, switched, stream, ahead).await,
            None if is_in_message => linger::linger(&stream).await,
            None => {}
        },
        ConnectionEnd::Done(Err(error)) => {
            tracing::debug!(peer = %conn.facts.peer.ip, %error, "client connection failed");
        }
        ConnectionEnd::Expired(Expiry::IdleConnection) if !draining && !is_in_message => {
            return Some((stream, ahead));
        }
        ConnectionEnd::Expired(
            Expiry::IdleConnection | Expiry::Idle | Expiry::GivenUp | Expiry::Presence | Expiry::Rest,
        )
        | ConnectionEnd::Gone => {}
        ConnectionEnd::Expired(Expiry::Head) => conn.late_http1(stream).await,
        ConnectionEnd::Refused(fault) => {
            refuse(conn, stream, &Refusal::Framing(fault), !conn.may_be_preface(fault)).await;
        }
        ConnectionEnd::Expired(Expiry::Stall) => conn.deadline_passed(metrics::ConnectionDeadline::BodyStall),
    }
    None
}

/// Refuses a head that is no request, with an answer or without.
async fn refuse<S: Service>(
    conn: &ConnectionTask<S>,
    mut stream: ClientStream,
    refusal: &Refusal,
    is_told: bool,
) {
    let problem = RefusalProblem::of(refusal);
    let request_id = conn.refuse_unread(Version::HTTP_11, problem.reason, problem.status.as_u16());
    let answer = problem.unread(&request_id, &conn.facts.config);
    linger::say(&mut stream, if is_told { &answer } else { &[] }).await;
    linger::linger(&stream).await;
}

/// A connection without a request for this long is idle and taken out of hyper. Over shorter pauses hyper stays, so that
/// a busy connection does not build it anew for each request.
pub const IDLE_AFTER: Duration = Duration::from_millis(100);
/// How many header fields hyper takes where it is told nothing.
const HYPER_HEADERS_MAX: usize = 100;
/// Bytes that hyper may buffer of a connection even if heads must be shorter; it panics below 8 KiB.
const MIN_BUFFER_BYTES: usize = 64 * 1024;
