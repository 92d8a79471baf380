//! A client's HTTP/1 connection as hyper may see it: every byte has been through [`Framing`].
//!
//! It refuses nothing itself. A fault in a head stops the bytes there and is told to the gauge; the connection answers
//! it when the requests before have been answered. A fault in a body ends that body in an error.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{End, Framing};
use crate::proxy::io::{Gauge, Gauged, Stream};

/// The stream below hyper, with what is known of its messages.
#[derive(Debug)]
pub struct Gate {
    io: Gauged,
    gauge: Rc<Gauge>,
    framing: Framing,
    /// What was read and may not pass yet.
    kept: Bytes,
}

impl Gate {
    /// Lets pass what comes on `io`, which is between two messages.
    pub fn new(io: Gauged, gauge: Rc<Gauge>) -> Gate {
        Gate { io, gauge, framing: Framing::default(), kept: Bytes::new() }
    }

    /// The stream, and what of it comes next: `read` was read by hyper, what was kept follows it.
    pub fn into_parts(self, read: Bytes) -> (Stream, Bytes) {
        // No bytes can still be a whole buffer kept.
        let ahead = match (read.is_empty(), self.kept.is_empty()) {
            (true, true) => Bytes::new(),
            (true, false) => self.kept,
            (false, true) => read,
            (false, false) => Bytes::from([&read[..], &self.kept].concat()),
        };
        (self.io.stream, ahead)
    }

    /// Waits for the answer to a message that asked to switch the protocol: if it did, what follows is no HTTP.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.framing.is_held() {
            if self.gauge.exchanges_ended() < self.framing.heads() {
                self.gauge.wake_at_end(cx.waker());
                return Poll::Pending;
            }
            self.framing.release();
        }
        Poll::Ready(())
    }

    /// Scans what has just been read, and cuts `buf` off where it may not pass.
    fn scan(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        let fresh = &buf.filled()[before..];
        let scanned = self.framing.scan(fresh);
        match scanned.end {
            End::Bytes => return,
            End::Upgrade => {
                // What was kept until now lies behind what has just been taken from it.
                let mut kept = BytesMut::from(&fresh[scanned.passed..]);
                kept.extend_from_slice(&self.kept);
                self.kept = kept.freeze();
            }
            End::Head(fault) => self.gauge.refuse_head(fault),
            End::Body(fault) => self.gauge.refuse_body(fault),
        }
        buf.set_filled(before + scanned.passed);
    }
}

impl AsyncRead for Gate {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(fault) = this.gauge.body_fault() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault)));
        }
        if this.gauge.head_fault().is_some() {
            // The connection looks for it after every turn of hyper's.
            return Poll::Pending;
        }
        ready!(this.poll_held(cx));
        let before = buf.filled().len();
        if this.kept.is_empty() {
            ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        } else {
            let count = this.kept.len().min(buf.remaining());
            buf.put_slice(&this.kept[..count]);
            this.kept.advance(count);
        }
        let read = buf.filled().len();
        this.scan(buf, before);
        if read > before && buf.filled().len() == before {
            // Nothing passed, and no bytes at all would mean the end of the stream.
            return match this.gauge.body_fault() {
                Some(fault) => Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault))),
                None => Poll::Pending,
            };
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Gate {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
