//! The rest of a request's body that nobody wants, once it is late: its answer is out, and the client sends on or nothing.
//!
//! At first hyper reads it away ([`service::rest`](crate::service::body_rest)), because most of it comes at once. A client that
//! takes its time would make hyper's buffers, and what stands around them, its own for nothing; so the connection is taken
//! out of hyper, and only its socket, its framing and a bound in bytes and time are kept. Drips do not renew the time. When
//! memory is short these connections are the first to go.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::timeout;

use super::connection::ConnectionTask;
use super::stream::ClientStream;
use crate::service::Service;
use crate::service::overload::PressureStep;
use base::clock;
use net::wire::http1::Framing;

/// Reads `left` more bytes at most, as long as a body may stall, and returns the stream at the end of the message with what
/// came behind it; `None` if the connection is to end.
pub async fn read<S: Service>(
    conn: &ConnectionTask<S>,
    mut stream: ClientStream,
    mut framing: Framing,
    mut left: u64,
) -> Option<(ClientStream, Bytes)> {
    let rest = async {
        loop {
            if !stream.holds_bytes() {
                stream.tcp().readable().await.ok()?;
            }
            let (read, ahead) = poll_fn(|cx| poll_some(&mut stream, &mut framing, cx)).await?;
            if let Some(ahead) = ahead {
                return Some(ahead);
            }
            left = left.checked_sub(read)?;
        }
    };
    if conn.worker.shared.overload.step() > PressureStep::Normal {
        return None;
    }
    let ended = tokio::select! {
        () = conn.worker.memory_is_short.notified() => None,
        () = conn.facts.drain.idle_closes.wait() => None,
        ended = timeout(conn.facts.config.timeouts.body_stall, rest) => match ended {
            Ok(ahead) => ahead,
            Err(_) => {
                conn.deadline_passed(metrics::ConnectionDeadline::BodyStall);
                None
            }
        },
    };
    let ahead = ended?;
    conn.facts.activity.end_rest(clock::instant());
    Some((stream, ahead))
}

/// Reads once, into memory that is kept for no longer than this: how many bytes that were, and what came behind the message
/// if its end is among them. `None`: the client is gone, or its framing is faulty.
fn poll_some(
    stream: &mut ClientStream,
    framing: &mut Framing,
    cx: &mut std::task::Context<'_>,
) -> std::task::Poll<Option<(u64, Option<Bytes>)>> {
    let mut memory = [0; READ_BYTES];
    let mut buffer = ReadBuf::new(&mut memory);
    Pin::new(stream).poll_read(cx, &mut buffer).map(|read| {
        let bytes = buffer.filled();
        if read.is_err() || bytes.is_empty() {
            return None;
        }
        let of_body = framing.pass_body(bytes).ok()?;
        let ahead = (!framing.is_in_body()).then(|| Bytes::copy_from_slice(&bytes[of_body..]));
        Some((of_body as u64, ahead))
    })
}

/// How long a rest stays in hyper. It does at first, because most of it comes with the request, or right behind it.
pub const LATE_AFTER: Duration = Duration::from_millis(100);
const READ_BYTES: usize = 8 * 1024;
