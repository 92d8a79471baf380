//! Wraps the stream of an admin connection: refuses framing that servers read in two ways, as every listener does, reports
//! reads and flushes to its [`AdminActivity`], and lingers on close so that the last answer arrives.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::AdminActivity;
use super::limits::LINGER_BYTES_MAX;
use net::wire::http1::{Framing, ScanEnd, ScanProgress};

/// What hyper refuses, because no head has a NUL, and no size of a chunk. The ends of lines let hyper look at a head
/// that it has seen a part of.
const REFUSED: &[u8] = b"\0\n\n";

pub(super) struct WatchedStream<S> {
    stream: S,
    activity: Arc<AdminActivity>,
    framing: Framing,
    /// What is left to pass on in place of bytes that are refused; all that comes after them goes nowhere.
    refusal: Option<&'static [u8]>,
    is_shut: bool,
    discarded: usize,
}

impl<S> WatchedStream<S> {
    pub(super) fn new(stream: S, activity: Arc<AdminActivity>) -> WatchedStream<S> {
        WatchedStream {
            stream,
            activity,
            framing: Framing::default(),
            refusal: None,
            is_shut: false,
            discarded: 0,
        }
    }

    /// Passes on as much of the refusal as there is room for.
    fn refuse(&mut self, buffer: &mut ReadBuf<'_>) {
        if let Some(refusal) = &mut self.refusal {
            let (now, later) = refusal.split_at(refusal.len().min(buffer.remaining()));
            buffer.put_slice(now);
            *refusal = later;
        }
    }

    /// Follows what has been read from `before` on. hyper must not see where a message is unclear: in place of those bytes
    /// it gets what neither a head nor a chunk may have, which it answers with 400.
    fn check(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        let mut at = before;
        while at < buffer.filled().len() {
            let ScanProgress { passed, end, .. } = self.framing.scan(&buffer.filled()[at..]);
            at += passed;
            match end {
                ScanEnd::Bytes => {}
                // Passed on, because nothing here switches the protocol.
                ScanEnd::Upgrade => self.framing.release(),
                ScanEnd::Head(_) | ScanEnd::Body(_) => {
                    buffer.set_filled(at);
                    self.refusal = Some(REFUSED);
                    return self.refuse(buffer);
                }
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.refusal.is_some() {
            self.refuse(buffer);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.activity.received();
            self.check(buffer, before);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Told here, because hyper flushes after its last write of an answer: a completed flush means that the answer is
    /// out.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.activity.flushed();
        Poll::Ready(Ok(()))
    }

    /// A lingering close, because closing a socket that holds unread bytes makes the kernel send a reset, and a
    /// client that gets the reset before it has read the answer loses the answer.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.is_shut = true;
            self.activity.closing();
        }
        let mut bytes = [0; 4096];
        while self.discarded < LINGER_BYTES_MAX {
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            self.discarded += buffer.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}
