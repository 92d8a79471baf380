//! A connection whose protocol was switched (WebSocket): copies bytes both ways until one side ends. Of WebSocket it
//! follows only where frames end, so that a drain can send a close frame between two; payloads are not read.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{sleep, timeout};

use super::stream::{ClientStream, TrackedStream};
use super::websocket::{Frames, GOING_AWAY};
use crate::service::activity::Activity;
use crate::service::conn::{Conn, SwitchedRequest, UpstreamTunnel};
use crate::service::drain::Drain;
use crate::service::reason::Reason;
use base::clock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TunnelEnd {
    /// Its client or its server has ended it.
    Sides,
    Drain,
}

/// Copies bytes until both sides have ended, one breaks, nothing moves for as long as its route allows, or the drain ends it. `read` is
/// what the client sent after its request.
pub async fn run(conn: &Conn, switched: UpstreamTunnel, client: ClientStream, read: Bytes) {
    let _stands = conn.drain.tunnel();
    let UpstreamTunnel { upstream, is_websocket, idle, request } = switched;
    let activity = Rc::new(Activity::new(clock::instant()));
    let bytes = Rc::new(ByteCounts::default());
    let mut tunnelled = TunnelledRequest { request, bytes: Rc::clone(&bytes) };
    let client = TrackedStream::new(client, read, Rc::clone(&activity));
    let frames = || is_websocket.then(Frames::default);
    let (client_reads, client_writes) = split(client);
    let _counted = upstream.open;
    let (upstream_reads, upstream_writes) = split(upstream.stream);
    let sent_going_away = Cell::new(false);
    let up = Up {
        from: client_reads,
        to: upstream_writes,
        frames: frames(),
        sent_going_away: &sent_going_away,
        bytes: &bytes.up,
    };
    let down = Down {
        from: upstream_reads,
        to: client_writes,
        frames: frames(),
        sent_going_away: &sent_going_away,
        early: upstream.read,
        bytes: &bytes.down,
    };
    tokio::select! {
        ended = copy(&conn.drain, up, down) => match ended {
            Ok(TunnelEnd::Sides) => {}
            Ok(TunnelEnd::Drain) => return tunnelled.request.fail(Reason::Drain),
            Err(error) => tracing::debug!(peer = %conn.peer.ip, %error, "tunnel failed"),
        },
        () = is_idle(&activity, idle) => tracing::debug!(peer = %conn.peer.ip, "tunnel closed: idle timeout"),
    }
    tunnelled.request.complete();
}

/// Copies both ways. A drain ends a tunnel whose server has ended its side. A WebSocket client is sent a close frame
/// and has [`CLOSE_WAIT`] to answer it. Any other tunnel goes on until the drain's deadline ends the worker, because
/// there is no way to say goodbye in an unknown protocol.
async fn copy<C, U>(drain: &Drain, up: Up<'_, C, U>, down: Down<'_, U, C>) -> io::Result<TunnelEnd>
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
        TunnelEnd::Sides => tokio::select! {
            ended = &mut up => ended.map(|()| TunnelEnd::Sides),
            () = drain.tunnels_end.wait() => Ok(TunnelEnd::Drain),
        },
        TunnelEnd::Drain => {
            // The client's close frame still goes to the server, which learns from it that the client leaves.
            let _ = timeout(CLOSE_WAIT, &mut up).await;
            Ok(TunnelEnd::Drain)
        }
    }
}

/// From the client to the server.
struct Up<'a, C, U> {
    from: tokio::io::ReadHalf<C>,
    to: tokio::io::WriteHalf<U>,
    frames: Option<Frames>,
    /// Whether the client has been sent [`GOING_AWAY`].
    sent_going_away: &'a Cell<bool>,
    /// Counts what the client has sent.
    bytes: &'a Cell<u64>,
}

impl<C: AsyncRead, U: AsyncWrite> Up<'_, C, U> {
    /// Copies until the client ends its side, or has answered our close frame.
    async fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let count = self.from.read(&mut buffer).await?;
            if count == 0 {
                return self.to.shutdown().await;
            }
            self.bytes.update(|bytes| bytes + count as u64);
            self.to.write_all(&buffer[..count]).await?;
            self.to.flush().await?;
            if let Some(frames) = &mut self.frames {
                frames.follow(&buffer[..count]);
                if frames.is_closed() && self.sent_going_away.get() {
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
    sent_going_away: &'a Cell<bool>,
    /// What the server sent right after the head of its answer.
    early: Bytes,
    /// Counts what was written to the client.
    bytes: &'a Cell<u64>,
}

impl<U: AsyncRead, C: AsyncWrite> Down<'_, U, C> {
    /// Copies until the server ends its side, or a drain has sent the client a close frame.
    async fn run(mut self, drain: &Drain) -> io::Result<TunnelEnd> {
        let early = std::mem::take(&mut self.early);
        self.pass(&early).await?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut drain = pin!(drain.tunnels_end.wait());
        let mut is_draining = false;
        loop {
            if is_draining && self.frames.as_ref().is_some_and(Frames::is_between) {
                return self.say_going_away().await;
            }
            tokio::select! {
                biased;
                () = &mut drain, if !is_draining => is_draining = true,
                count = self.from.read(&mut buffer) => {
                    let count = count?;
                    if count == 0 {
                        self.to.shutdown().await?;
                        return Ok(TunnelEnd::Sides);
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

    /// Sends a close frame, unless the server has sent one already. What the server sends from now on is dropped, because
    /// nothing may follow a close frame (RFC 6455 section 5.5.1).
    async fn say_going_away(&mut self) -> io::Result<TunnelEnd> {
        self.sent_going_away.set(true);
        if !self.frames.as_ref().is_some_and(Frames::is_closed) {
            self.write(&GOING_AWAY).await?;
        }
        Ok(TunnelEnd::Drain)
    }

    async fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(frames) = &mut self.frames {
            frames.follow(bytes);
        }
        self.write(bytes).await
    }

    /// Writes piece by piece instead of by `write_all`, so that the count is right if the client leaves, or the drain's
    /// deadline drops the tunnel, half way.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            let count = self.to.write(left).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.bytes.update(|bytes| bytes + count as u64);
            left = &left[count..];
        }
        self.to.flush().await
    }
}

#[derive(Debug, Default)]
struct ByteCounts {
    up: Cell<u64>,
    down: Cell<u64>,
}

/// The request of a tunnel. It learns the byte counts in `Drop`, so that the log has them however the tunnel ends, also
/// if the drain's deadline drops the whole task.
struct TunnelledRequest {
    request: Box<dyn SwitchedRequest>,
    bytes: Rc<ByteCounts>,
}

impl Drop for TunnelledRequest {
    fn drop(&mut self) {
        self.request.add_bytes(self.bytes.up.get(), self.bytes.down.get());
    }
}

/// Ready when no byte has moved for this time, or for a quarter more: it looks that often.
async fn is_idle(activity: &Activity, time: Duration) {
    let (mut moved, mut still) = (activity.moved.get(), 0);
    while still < LOOKS {
        sleep(time / LOOKS).await;
        let has_moved = std::mem::replace(&mut moved, activity.moved.get()) != activity.moved.get();
        still = if has_moved { 0 } else { still + 1 };
    }
}

/// Bytes that are read at once, each way.
const BUFFER_BYTES: usize = 8 * 1024;
/// How long a client may take to answer a close frame.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// Looks at a tunnel in the time in which it may carry nothing.
const LOOKS: u32 = 4;
