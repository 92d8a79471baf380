//! A connection whose protocol was switched (WebSocket): bytes both ways until one side ends. Of WebSocket it is known
//! where frames end, so that a drain can say that the gateway goes; nothing else is read.

use std::cell::Cell;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, split};
use tokio::time::{sleep, timeout};

use super::stream::{Stream, Tracked};
use super::websocket::{Frames, GOING_AWAY};
use crate::clock;
use crate::service::activity::Activity;
use crate::service::conn::{Conn, Switched, SwitchedRequest};
use crate::service::drain::Drain;
use crate::service::reason::Reason;

/// How a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Both sides, or one of them for good.
    Sides,
    /// The drain ended it.
    Drain,
}

/// Carries bytes until both sides have ended, one breaks, nothing moves for an hour, or the drain ends it. `read` is
/// what the client sent beyond its request.
pub async fn run(conn: &Conn, switched: Switched, client: Stream, read: Bytes) {
    let Switched { upstream, is_websocket, request } = switched;
    let activity = Rc::new(Activity::new(clock::instant()));
    let bytes = Rc::new(Bytecount::default());
    let mut told = Told { request, bytes: Rc::clone(&bytes) };
    let client = Counted { stream: Tracked::new(client, read, Rc::clone(&activity)), bytes };
    let frames = || is_websocket.then(Frames::default);
    let (client_reads, client_writes) = split(client);
    let (upstream_reads, upstream_writes) = split(upstream.stream);
    let is_told = Cell::new(false);
    let up = Up { from: client_reads, to: upstream_writes, frames: frames(), is_told: &is_told };
    let down = Down {
        from: upstream_reads,
        to: client_writes,
        frames: frames(),
        is_told: &is_told,
        early: upstream.read,
    };
    tokio::select! {
        ended = carry(&conn.drain, up, down) => match ended {
            Ok(End::Sides) => {}
            Ok(End::Drain) => return told.request.fail(Reason::Drain),
            Err(error) => tracing::debug!(peer = %conn.peer.ip, %error, "tunnel"),
        },
        () = quiet(&activity) => tracing::debug!(peer = %conn.peer.ip, "tunnel idle"),
    }
    told.request.complete();
}

/// Carries both ways. A drain ends a tunnel whose server has nothing more to say; a client of WebSocket is told, and has
/// a moment to answer; any other tunnel goes on until the drain's deadline takes the worker.
async fn carry<C, U>(drain: &Drain, up: Up<'_, C, U>, down: Down<'_, U, C>) -> io::Result<End>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let (mut up, mut down) = (pin!(up.run()), pin!(down.run(drain)));
    let mut is_up_over = false;
    let end = loop {
        tokio::select! {
            ended = &mut up, if !is_up_over => {
                ended?;
                is_up_over = true;
            }
            ended = &mut down => break ended?,
        }
    };
    if is_up_over {
        return Ok(end);
    }
    match end {
        End::Sides => tokio::select! {
            ended = &mut up => ended.map(|()| End::Sides),
            () = drain.begins() => Ok(End::Drain),
        },
        End::Drain => {
            // Its answer goes on to the server, which learns from it that the client leaves.
            let _ = timeout(CLOSE_WAIT, &mut up).await;
            Ok(End::Drain)
        }
    }
}

/// From the client to the server.
struct Up<'a, C, U> {
    from: tokio::io::ReadHalf<C>,
    to: tokio::io::WriteHalf<U>,
    frames: Option<Frames>,
    /// Whether the client has been told that the gateway goes.
    is_told: &'a Cell<bool>,
}

impl<C: AsyncRead, U: AsyncWrite> Up<'_, C, U> {
    /// Carries until the client ends, or has answered that it closes.
    async fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let count = self.from.read(&mut buffer).await?;
            if count == 0 {
                return self.to.shutdown().await;
            }
            self.to.write_all(&buffer[..count]).await?;
            self.to.flush().await?;
            if let Some(frames) = &mut self.frames {
                frames.follow(&buffer[..count]);
                if frames.is_closed() && self.is_told.get() {
                    return Ok(());
                }
            }
        }
    }
}

/// From the server to the client.
struct Down<'a, U, C> {
    from: tokio::io::ReadHalf<U>,
    to: tokio::io::WriteHalf<C>,
    frames: Option<Frames>,
    is_told: &'a Cell<bool>,
    /// What the server sent behind its answer's head.
    early: Bytes,
}

impl<U: AsyncRead, C: AsyncWrite> Down<'_, U, C> {
    /// Carries until the server ends, or until the client is told that the gateway goes.
    async fn run(mut self, drain: &Drain) -> io::Result<End> {
        let early = std::mem::take(&mut self.early);
        self.pass(&early).await?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut drain = pin!(drain.begins());
        let mut is_draining = false;
        loop {
            if is_draining && self.frames.as_ref().is_some_and(Frames::is_between) {
                return self.tell().await;
            }
            tokio::select! {
                biased;
                () = &mut drain, if !is_draining => is_draining = true,
                count = self.from.read(&mut buffer) => {
                    let count = count?;
                    if count == 0 {
                        self.to.shutdown().await?;
                        return Ok(End::Sides);
                    }
                    let passes = match &mut self.frames {
                        Some(frames) if is_draining => frames.pass_end(&buffer[..count]),
                        Some(frames) => {
                            frames.follow(&buffer[..count]);
                            count
                        }
                        None => count,
                    };
                    self.write(&buffer[..passes]).await?;
                }
            }
        }
    }

    /// Says that the gateway goes, unless the server has said so itself. What the server says from now on is for nobody.
    async fn tell(&mut self) -> io::Result<End> {
        self.is_told.set(true);
        if !self.frames.as_ref().is_some_and(Frames::is_closed) {
            self.write(&GOING_AWAY).await?;
        }
        Ok(End::Drain)
    }

    async fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(frames) = &mut self.frames {
            frames.follow(bytes);
        }
        self.write(bytes).await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes).await?;
        self.to.flush().await
    }
}

/// Bytes of one tunnel so far.
#[derive(Debug, Default)]
struct Bytecount {
    up: Cell<u64>,
    down: Cell<u64>,
}

/// The request of a tunnel, told what was carried however it ends: by an error, or dropped at the drain's deadline.
struct Told {
    request: Box<dyn SwitchedRequest>,
    bytes: Rc<Bytecount>,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.request.add_bytes(self.bytes.up.get(), self.bytes.down.get());
    }
}

/// The client's side, counted.
struct Counted {
    stream: Tracked,
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
async fn quiet(activity: &Activity) {
    let mut moved = activity.moved();
    loop {
        sleep(IDLE).await;
        if std::mem::replace(&mut moved, activity.moved()) == activity.moved() {
            return;
        }
    }
}

/// What is read at once, each way.
const BUFFER_BYTES: usize = 8 * 1024;
/// How long a client may take to answer that it closes.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// How long a tunnel may stand still.
const IDLE: Duration = Duration::from_secs(3_600);
