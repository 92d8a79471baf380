//! One client's connection, from accept to close: which protocol is spoken on it, and when it becomes idle. What is said
//! over it is left to `http1` and `http2`.
//!
//! A connection without a request is taken out of hyper, whose buffers are tens of KiB. In the clear it goes back to the
//! worker, which keeps only its socket; under TLS it stays a task that waits for the socket.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use super::connection::ConnectionTask;
use super::http1::IDLE_AFTER;
use super::idle::{AwaitedHead, FIRST_BYTES, IdleConnection};
use super::listener::SharedListener;
use super::prelude::http2::PREFACE;
use super::stream::ClientStream;
use super::worker::Worker;
use super::{http1, http2, tls};
use crate::service::{ClientAddresses, Service, config};
use base::clock;
use net::outbox::QueuedSocket;

/// Serves a connection that has just been accepted, until it ends (`None`) or becomes idle.
pub async fn serve<S: Service>(
    worker: &Rc<Worker<S>>,
    listener: &Arc<SharedListener>,
    mut tcp: TcpStream,
    ends: ClientAddresses,
) -> Option<IdleConnection> {
    // The first head counts from accept, so that a client that connects and stays silent holds nothing for long.
    let accepted = clock::instant();
    let config = listener.config.load_full();
    let mut ahead = BytesMut::new();
    let (stream, protocol) = match listener.tls.load_full() {
        None => match first_bytes(worker, &mut tcp, &mut ahead).await {
            Some(Ok(0) | Err(_)) => return None,
            Some(Ok(_)) => (ClientStream::Plain(QueuedSocket::new(tcp)), in_the_clear(&config)),
            None => {
                let deadline = accepted + config.timeouts.header;
                return IdleConnection::of(tcp, ends, config, deadline, AwaitedHead::First);
            }
        },
        Some(tls) => {
            // Boxed, like every long step here, because an async function is as large as the largest future that it
            // awaits, and this one exists once per connection.
            let handshake = Box::pin(tls::handshake(worker, listener, &config, tls, (tcp, ends)));
            let (stream, is_http2) = handshake.await?;
            (stream, if is_http2 { ServedProtocol::Http2 } else { ServedProtocol::Http1 })
        }
    };
    let conn = ConnectionTask::new(worker, listener, config, ends, &stream, 0);
    begin(&conn, stream, protocol, ahead, accepted).await
}

/// Serves a connection that was idle and whose client has now sent `first_bytes`.
pub async fn resume<S: Service>(
    worker: &Rc<Worker<S>>,
    listener: &Arc<SharedListener>,
    idle: IdleConnection,
    first_bytes: Bytes,
) -> Option<IdleConnection> {
    let stream = ClientStream::Plain(QueuedSocket::new(TcpStream::from_std(idle.socket).ok()?));
    let protocol = in_the_clear(&idle.config);
    match idle.awaited {
        AwaitedHead::First => {
            let accepted = idle.deadline - idle.config.timeouts.header;
            let conn = ConnectionTask::new(worker, listener, idle.config, idle.ends, &stream, 0);
            begin(&conn, stream, protocol, first_bytes.into(), accepted).await
        }
        AwaitedHead::Next(status) => {
            let conn = ConnectionTask::new(worker, listener, idle.config, idle.ends, &stream, status);
            http1::serve(&conn, stream, first_bytes, idle.deadline).await
        }
    }
}

/// Serves the first request, in whichever protocol it comes; `ahead` is what was read of it already.
async fn begin<S: Service>(
    conn: &ConnectionTask<S>,
    stream: ClientStream,
    protocol: ServedProtocol,
    ahead: BytesMut,
    accepted: Instant,
) -> Option<IdleConnection> {
    let first = accepted + conn.facts.config.timeouts.header;
    if protocol == ServedProtocol::Http1 {
        return http1::serve(conn, stream, ahead.freeze(), first).await;
    }
    match Box::pin(sniff(conn, stream, ahead, first)).await? {
        (stream, ahead, true) => http2::serve(conn, stream, ahead, accepted).await,
        (stream, ahead, false) if protocol == ServedProtocol::Either => {
            return http1::serve(conn, stream, ahead, first).await;
        }
        (stream, _, false) => Box::pin(conn.refuse_preface(stream)).await,
    }
    None
}

/// Reads what a client sends first; `None` if it sends nothing for so long that the connection is idle.
async fn first_bytes<S: Service>(
    worker: &Worker<S>,
    tcp: &mut TcpStream,
    ahead: &mut BytesMut,
) -> Option<io::Result<usize>> {
    ahead.reserve(FIRST_BYTES);
    tokio::select! {
        biased;
        read = timeout(IDLE_AFTER, tcp.read_buf(ahead)) => read.ok(),
        () = worker.drain.idle_closes.wait() => Some(Ok(0)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServedProtocol {
    Http1,
    Http2,
    /// The first bytes decide which of them it is ([`sniff`]).
    Either,
}

fn in_the_clear(config: &config::ListenerConfig) -> ServedProtocol {
    match (config.http1, config.http2) {
        (true, true) => ServedProtocol::Either,
        (false, true) => ServedProtocol::Http2,
        (_, false) => ServedProtocol::Http1,
    }
}

/// Reads on after `ahead` until the first bytes distinguish HTTP/2 with prior knowledge (RFC 9113 section 3.3) from
/// HTTP/1.1. Returns the stream, what was read, and whether it is HTTP/2; `None` if the client goes away or takes longer
/// than `deadline`.
async fn sniff<S: Service>(
    conn: &ConnectionTask<S>,
    mut stream: ClientStream,
    mut ahead: BytesMut,
    deadline: Instant,
) -> Option<(ClientStream, Bytes, bool)> {
    ahead.reserve(PREFACE.len().saturating_sub(ahead.len()));
    let read = async {
        loop {
            let begin = ahead.len().min(PREFACE.len());
            if begin == PREFACE.len() || ahead[..] != PREFACE[..begin] {
                return true;
            }
            // Not past the preface, because hyper reads what follows it.
            let room = PREFACE.len() - begin;
            if (&mut stream).take(room as u64).read_buf(&mut ahead).await.unwrap_or(0) == 0 {
                // The end of the stream, or an error. Half a head goes on to hyper, which answers it.
                return !ahead.is_empty();
            }
        }
    };
    let read = async {
        tokio::select! {
            read = timeout_at(deadline.into(), read) => read,
            () = conn.facts.drain.idle_closes.wait() => Ok(false),
        }
    };
    match read.await {
        Ok(true) => {
            let is_http2 = ahead.starts_with(PREFACE);
            Some((stream, ahead.freeze(), is_http2))
        }
        Ok(false) => None,
        Err(_) => {
            conn.deadline_passed(metrics::ConnectionDeadline::Header);
            None
        }
    }
}
