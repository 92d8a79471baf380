//! A stream whose frames a [`Meter`] counts in both directions. It ends a connection that exceeds a budget, with a GOAWAY
//! if one can be sent at once. The budgets are the meter's.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::faults::PROTOCOL_ERROR;
use super::meter::{Excess, Meter};
use super::splitter::{SETTINGS, frame};

/// A stream of HTTP/2 frames that a [`Meter`] counts. It belongs to one thread.
#[derive(Debug)]
pub struct MeteredStream<S> {
    stream: S,
    meter: Rc<RefCell<Meter>>,
    now: fn() -> Instant,
    /// What is left of an interim answer that has begun to be written.
    unsent: Bytes,
}

impl<S> MeteredStream<S> {
    /// Counts on `meter` what passes; `now` reads the monotonic clock.
    pub fn new(stream: S, meter: Rc<RefCell<Meter>>, now: fn() -> Instant) -> MeteredStream<S> {
        MeteredStream { stream, meter, now, unsent: Bytes::new() }
    }
}

impl<S: AsyncWrite + Unpin> MeteredStream<S> {
    /// Sends a GOAWAY with the reason, if that is possible at once, and returns the error that ends the stream.
    fn close(&mut self, cx: &mut Context<'_>) -> io::Error {
        let (before, code) = match self.meter.borrow().excess() {
            // Behind an empty SETTINGS, because ours may not have been sent yet and must come first; it is valid for
            // both sides.
            Some(Excess::Unannounced) => (frame(SETTINGS, 0, 0, &[]), PROTOCOL_ERROR),
            Some(Excess::PseudoTrailers | Excess::PseudoAnswer) => (Vec::new(), PROTOCOL_ERROR),
            _ => (Vec::new(), ENHANCE_YOUR_CALM),
        };
        let goaway = [&before[..], GOAWAY, &[code]].concat();
        // Not within another frame of ours, and without waiting for a peer that does not read.
        if self.unsent.is_empty()
            && self.meter.borrow().may_interpose()
            && let Poll::Ready(Ok(_)) = Pin::new(&mut self.stream).poll_write(cx, &goaway)
        {
            let _ = Pin::new(&mut self.stream).poll_flush(cx);
        }
        io::Error::new(io::ErrorKind::QuotaExceeded, "too many frames")
    }

    /// Writes the interim answers that are due. They are not counted, because the meter would take them for answers.
    fn poll_interims(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while !self.unsent.is_empty() {
                let count = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.unsent))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.unsent.advance(count);
            }
            match self.meter.borrow_mut().next_interim() {
                Some(frame) => self.unsent = frame.into(),
                None => return Poll::Ready(Ok(())),
            }
        }
    }

    /// The bytes to write instead of `bytes`, if these end in hyper's GOAWAY with PROTOCOL_ERROR and the fault is known
    /// more exactly. Only the code differs, so that a write that is cut within the frame stays in step.
    fn reworded(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (rest, goaway) = bytes.split_last_chunk::<GOAWAY_BYTES>()?;
        let (code, before) = goaway.split_last()?;
        let is_vague =
            *code == PROTOCOL_ERROR && before.starts_with(&GOAWAY[..9]) && before.ends_with(&[0; 3]);
        let meter = self.meter.borrow();
        (is_vague && meter.fault() != PROTOCOL_ERROR && meter.ends_between_frames(rest))
            .then(|| [rest, before, &[meter.fault()]].concat())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        let counted = this.meter.borrow_mut().read(&buf.filled()[before..], this.now);
        Poll::Ready(counted.map_err(|_| this.close(cx)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_interims(cx))?;
        let reworded = this.reworded(buf);
        let buf = reworded.as_deref().unwrap_or(buf);
        let count = ready!(Pin::new(&mut this.stream).poll_write(cx, buf))?;
        this.meter.borrow_mut().wrote(&buf[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.meter.borrow_mut().written_by(cx);
        ready!(this.poll_interims(cx))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = bufs {
            return self.poll_write(cx, only);
        }
        let this = self.get_mut();
        ready!(this.poll_interims(cx))?;
        let count = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, bufs))?;
        let mut meter = this.meter.borrow_mut();
        let mut left = count;
        for buf in bufs {
            let passed = left.min(buf.len());
            meter.wrote(&buf[..passed]);
            left -= passed;
            if left == 0 {
                break;
            }
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// GOAWAY without the last byte of its code (RFC 9113 section 6.8). The last stream is the highest possible, because it is
/// not known here which streams hyper has processed.
const GOAWAY: &[u8; 16] = b"\0\0\x08\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0";
const GOAWAY_BYTES: usize = GOAWAY.len() + 1;
/// RFC 9113 section 7.
const ENHANCE_YOUR_CALM: u8 = 11;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::wire::http2::PeerSide;

    const VAGUE: &[u8; 17] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\x05\0\0\0\x01";
    const FRAME_SIZE: &[u8; 17] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\x05\0\0\0\x06";
    const PING_TOO_SHORT: &[u8; 15] = b"\0\0\x06\x06\0\0\0\0\0\0\0\0\0\0\0";

    /// What comes out when this goes in, in writes of these pieces, behind what the client has sent.
    async fn sent(received: &[u8], writes: &[&[u8]]) -> Vec<u8> {
        let (ours, mut theirs) = duplex(4096);
        let meter = Rc::new(RefCell::new(Meter::new(PeerSide::Client, 100, Instant::now())));
        let mut metered = MeteredStream::new(ours, meter, Instant::now);
        let received = [&[0; 24], &frame(SETTINGS, 0, 0, &[])[..], received].concat();
        theirs.write_all(&received).await.expect("there is room");
        metered.read_exact(&mut vec![0; received.len()]).await.expect("it is all there");
        for bytes in writes {
            metered.write_all(bytes).await.expect("there is room");
        }
        drop(metered);
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).await.expect("it ends");
        sent
    }

    #[tokio::test]
    async fn a_goaway_says_what_was_wrong() {
        let ping: &[u8] = b"\0\0\x08\x06\x01\0\0\0\0answered";
        assert_eq!(sent(PING_TOO_SHORT, &[VAGUE]).await, FRAME_SIZE);
        assert_eq!(sent(PING_TOO_SHORT, &[&[ping, VAGUE].concat()]).await, [ping, FRAME_SIZE].concat());
        assert_eq!(
            sent(PING_TOO_SHORT, &[&ping[..10], &[&ping[10..], VAGUE].concat()]).await,
            [ping, FRAME_SIZE].concat()
        );
    }

    #[tokio::test]
    async fn a_peer_that_does_not_begin_with_settings_gets_a_goaway() {
        for first in [&b"\0\0\x08\x06\0\0\0\0\0question"[..], b"\0\0\0\x04\x01\0\0\0\0"] {
            let (ours, mut theirs) = duplex(4096);
            let meter = Rc::new(RefCell::new(Meter::new(PeerSide::Client, 100, Instant::now())));
            let mut metered = MeteredStream::new(ours, Rc::clone(&meter), Instant::now);
            theirs.write_all(&[&[0; 24], first].concat()).await.expect("there is room");
            assert!(metered.read(&mut [0; 100]).await.is_err());
            assert_eq!(meter.borrow().excess(), Some(Excess::Unannounced));
            drop(metered);
            let mut said = Vec::new();
            theirs.read_to_end(&mut said).await.expect("it ends");
            assert_eq!(said, [&frame(SETTINGS, 0, 0, &[])[..], GOAWAY, &[PROTOCOL_ERROR]].concat());
        }
    }

    #[tokio::test]
    async fn bytes_that_only_look_like_a_goaway_are_not_changed() {
        let data = [b"\0\0\x13\0\0\0\0\0\x01ab", &VAGUE[..]].concat();
        assert_eq!(sent(PING_TOO_SHORT, &[&data]).await, data);
        assert_eq!(sent(PING_TOO_SHORT, &[&data[..11], &data[11..]]).await, data);
        assert_eq!(sent(PING_TOO_SHORT, &[&VAGUE[..9], &VAGUE[9..]]).await, VAGUE, "cut");
        let calm = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\x05\0\0\0\x0b";
        assert_eq!(sent(PING_TOO_SHORT, &[calm]).await, calm);
        assert_eq!(sent(b"", &[VAGUE]).await, VAGUE);
    }
}
