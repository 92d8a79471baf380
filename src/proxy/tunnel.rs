//! A connection whose protocol was switched (WebSocket): bytes both ways until one side ends, nothing read of them.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional};
use tokio::time::sleep;

use super::connection::Conn;
use super::exchange::Exchange;
use super::io::{Gauge, Gauged, Stream};
use crate::clock;
use crate::upstream::http1::Upgraded;

/// The upstream's side of a switched protocol, waiting for the client's.
#[derive(Debug)]
pub struct Tunnel {
    upstream: Upgraded,
    exchange: Box<Exchange>,
}

impl Tunnel {
    /// Joins `upstream` to the connection the exchange came on, once its answer is out.
    pub fn new(upstream: Upgraded, exchange: Box<Exchange>) -> Tunnel {
        Tunnel { upstream, exchange }
    }

    /// Carries bytes until both sides have ended, one breaks, nothing moves for an hour, or the drain's deadline
    /// takes the worker. `read` is what the client sent beyond its request.
    pub async fn run(self, conn: &Rc<Conn>, client: Stream, read: Bytes) {
        let gauge = Rc::new(Gauge::new(clock::instant()));
        let bytes = Rc::new(Bytecount::default());
        let mut told = Told { exchange: self.exchange, bytes: Rc::clone(&bytes) };
        let mut client = Counted { stream: Gauged::new(client, read, Rc::clone(&gauge)), bytes };
        let mut upstream = self.upstream.stream;
        let early = self.upstream.read;
        let carry = async {
            client.write_all(&early).await?;
            copy_bidirectional(&mut client, &mut upstream).await
        };
        tokio::select! {
            carried = carry => if let Err(error) = carried {
                tracing::debug!(peer = %conn.peer.ip, %error, "tunnel");
            },
            () = quiet(&gauge) => tracing::debug!(peer = %conn.peer.ip, "tunnel idle"),
        }
        told.exchange.complete();
    }
}

/// Bytes of one tunnel so far.
#[derive(Debug, Default)]
struct Bytecount {
    up: Cell<u64>,
    down: Cell<u64>,
}

/// The exchange of a tunnel, told what was carried however it ends: by an error, or dropped at the drain's deadline.
struct Told {
    exchange: Box<Exchange>,
    bytes: Rc<Bytecount>,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.exchange.bytes_in += self.bytes.up.get();
        self.exchange.bytes_out += self.bytes.down.get();
    }
}

/// The client's side, counted.
struct Counted {
    stream: Gauged,
    bytes: Rc<Bytecount>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = (buf.filled().len() - before) as u64;
        self.bytes.up.set(self.bytes.up.get() + read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.bytes.down.set(self.bytes.down.get() + count as u64);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Ready when no byte has moved for [`IDLE`].
async fn quiet(gauge: &Gauge) {
    let mut moved = gauge.moved();
    loop {
        sleep(IDLE).await;
        if std::mem::replace(&mut moved, gauge.moved()) == gauge.moved() {
            return;
        }
    }
}

/// How long a tunnel may stand still.
const IDLE: Duration = Duration::from_secs(3_600);
