//! One client's connection, from accept to close: which protocol is spoken on it, and when it rests.
//!
//! A connection without a request is taken out of hyper: in the clear it goes back to the worker, with nothing kept of it
//! but its socket, and under TLS it is *parked*, a task that waits for the socket.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use super::connection::Connection;
use super::http1::REST_AFTER;
use super::idle::{Awaited, FIRST_BYTES, IdleConnection};
use super::listener::Listener;
use super::prelude::http2::PREFACE;
use super::stream::Stream;
use super::worker::Worker;
use super::{http1, http2, tls};
use crate::service::{Ends, Service, config};
use crate::{clock, metrics};

/// Serves a connection that has just come, until it ends or rests.
pub async fn serve<S: Service>(
    worker: &Rc<Worker<S>>,
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
                return IdleConnection::of(tcp, ends, config, deadline, Awaited::First);
            }
        },
        Some(tls) => {
            let shaken = Box::pin(tls::handshake(worker, listener, &config, tls, (tcp, ends)));
            let (stream, is_http2) = shaken.await?;
            (stream, if is_http2 { Protocol::Http2 } else { Protocol::Http1 })
        }
    };
    let conn = Connection::new(worker, listener, config, ends, &stream, 0);
    begin(&conn, stream, protocol, ahead, accepted).await
}

/// Serves a connection on which this has come after a rest.
pub async fn resume<S: Service>(
    worker: &Rc<Worker<S>>,
    listener: &Arc<Listener>,
    rested: IdleConnection,
    said: Bytes,
) -> Option<IdleConnection> {
    let stream = Stream::Plain(TcpStream::from_std(rested.socket).ok()?);
    let protocol = in_the_clear(&rested.config);
    match rested.awaited {
        Awaited::First => {
            let accepted = rested.deadline - rested.config.timeouts.header;
            let conn = Connection::new(worker, listener, rested.config, rested.ends, &stream, 0);
            begin(&conn, stream, protocol, said.into(), accepted).await
        }
        Awaited::Next(status) => {
            let conn = Connection::new(worker, listener, rested.config, rested.ends, &stream, status);
            http1::serve(&conn, stream, said, rested.deadline).await
        }
    }
}

/// The first request, in whatever protocol it comes; `ahead` has been read of it.
async fn begin<S: Service>(
    conn: &Connection<S>,
    stream: Stream,
    protocol: Protocol,
    ahead: BytesMut,
    accepted: Instant,
) -> Option<IdleConnection> {
    let first = accepted + conn.facts.config.timeouts.header;
    if protocol == Protocol::Http1 {
        return http1::serve(conn, stream, ahead.freeze(), first).await;
    }
    match Box::pin(sniff(conn, stream, ahead, first)).await? {
        (stream, ahead, true) => http2::serve(conn, stream, ahead, accepted).await,
        (stream, ahead, false) if protocol == Protocol::Either => {
            return http1::serve(conn, stream, ahead, first).await;
        }
        (stream, _, false) => Box::pin(conn.refuse_preface(stream)).await,
    }
    None
}

/// Reads what a client begins with; `None` if it says nothing for long enough to rest.
async fn first_words<S: Service>(
    worker: &Worker<S>,
    tcp: &mut TcpStream,
    ahead: &mut BytesMut,
) -> Option<io::Result<usize>> {
    ahead.reserve(FIRST_BYTES);
    tokio::select! {
        biased;
        read = timeout(REST_AFTER, tcp.read_buf(ahead)) => read.ok(),
        () = worker.drain.begins() => Some(Ok(0)),
    }
}

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
    /// The first bytes tell.
    Either,
}

fn in_the_clear(config: &config::Listener) -> Protocol {
    match (config.http1, config.http2) {
        (true, true) => Protocol::Either,
        (false, true) => Protocol::Http2,
        (_, false) => Protocol::Http1,
    }
}

/// Reads behind `ahead` until the first bytes tell HTTP/2 by prior knowledge (RFC 9113 section 3.3) from HTTP/1.1: the
/// stream, what was read, and whether it is HTTP/2. `None` if the client goes away or takes longer than `deadline`.
async fn sniff<S: Service>(
    conn: &Connection<S>,
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
            () = conn.facts.drain.begins() => Ok(false),
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
