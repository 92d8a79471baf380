//! Gathers the head of a request over HTTP/1 from its first byte to its last. It does not parse it.

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::time::timeout_at;

use crate::server::idle::FIRST_BYTES;
use crate::server::stream::ClientStream;
use crate::service::conn::Conn;
use base::clock;
use net::wire::http1::{Framing, ScanEnd};

/// Reads until a head is whole, has a fault or is too long, and returns `ahead` with what was read. If the stream ends or
/// the worker drains, it returns what has come so far. `None` if the deadline of a head has passed.
pub async fn gather(conn: &Conn, stream: &mut ClientStream, ahead: Bytes) -> Option<Bytes> {
    let max = conn.config.max.header_bytes;
    let mut framing = Framing::default();
    let deadline = clock::instant() + conn.config.timeouts.header;
    let mut head = ahead.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    let mut seen = 0;
    loop {
        if is_done(&mut framing, &head[seen..]) || head.len() > max {
            return Some(head.freeze());
        }
        seen = head.len();
        if head.capacity() == seen {
            head.reserve(seen.max(FIRST_BYTES));
        }
        let read = tokio::select! {
            biased;
            read = timeout_at(deadline.into(), stream.read_buf(&mut head)) => read.ok()?,
            () = conn.drain.idle_closes.wait() => Ok(0),
        };
        // What has come goes on, because hyper reads the end of the stream, or the error, again.
        if !read.is_ok_and(|count| count > 0) {
            return Some(head.freeze());
        }
    }
}

/// Whether these bytes end a head or have a fault.
fn is_done(framing: &mut Framing, bytes: &[u8]) -> bool {
    framing.scan(bytes).end != ScanEnd::Bytes || framing.heads() > 0
}
