//! Stands between a client's HTTP/1 connection and hyper: every byte passes through [`Framing`] before hyper reads it,
//! so that hyper and the upstream cannot disagree about where a message ends.
//!
//! It answers nothing itself. Heads pass whole. After a fault in a head no more bytes pass, and the connection answers it
//! when the requests before it have been answered. A fault in a body ends that body in an error. hyper's own answer to a
//! head that it cannot parse is kept back, because the connection has a better one.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::{ClientStream, TrackedStream};
use crate::service::activity::Activity;
use crate::service::refusal::Refusal;
use net::wire::http1::{Framing, ScanEnd, ScanProgress};

/// The stream that hyper reads from and writes to.
#[derive(Debug)]
pub struct FramingGate {
    io: TrackedStream,
    activity: Rc<Activity>,
    framing: Framing,
    /// Requests on the connection that had ended before this gate was built.
    ended_before: u64,
    head_bytes_max: usize,
    /// Bytes that may pass and found no room in hyper's buffer yet.
    ready: Bytes,
    /// The part of a head that has come. Heads pass whole, so that the answer to a faulty one does not depend on how its
    /// bytes were split.
    head: BytesMut,
    /// Bytes read after a request to switch the protocol, not scanned: whether they are HTTP is known once the request
    /// is answered.
    kept: Bytes,
    /// What hyper has written last and has not been sent, because it reads like an answer of hyper's own. If hyper goes on,
    /// it was the end of an upstream's.
    own_answer: &'static str,
}

impl FramingGate {
    /// `io` must be between two messages. A head that is longer than `head_bytes_max` is a fault.
    pub fn new(io: TrackedStream, activity: Rc<Activity>, head_bytes_max: usize) -> FramingGate {
        FramingGate {
            io,
            ended_before: activity.exchanges_ended.get(),
            activity,
            framing: Framing::default(),
            head_bytes_max,
            ready: Bytes::new(),
            head: BytesMut::new(),
            kept: Bytes::new(),
            own_answer: "",
        }
    }

    /// Whether the client still has to send a part of a message.
    pub fn is_in_message(&self) -> bool {
        self.framing.is_in_message()
    }

    /// The answer that was kept back, with the refusal that it stands for.
    pub fn own_answer(&self) -> Option<(&'static str, Refusal)> {
        let refusal = match self.own_answer.get(STATUS)? {
            "414" => Refusal::UriTooLong,
            "431" => Refusal::HeadersTooLarge,
            _ => Refusal::Malformed("the request line or a header has invalid characters"),
        };
        Some((self.own_answer, refusal))
    }

    fn poll_own_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.own_answer.is_empty() {
            let count = ready!(Pin::new(&mut self.io).poll_write(cx, self.own_answer.as_bytes()))?;
            self.own_answer = &self.own_answer[count..];
        }
        Poll::Ready(Ok(()))
    }

    /// The stream and its framing, if all that was read is of a body that has not ended.
    pub fn into_body(self) -> Option<(ClientStream, Framing)> {
        self.framing.is_in_body().then_some((self.io.stream, self.framing))
    }

    /// The stream, and the bytes that were read from it and not used: `read` is what hyper holds, and what the gate holds
    /// follows it.
    pub fn into_parts(self, read: Bytes) -> (ClientStream, Bytes) {
        let parts = [&read[..], &self.ready, &self.head, &self.kept];
        let ahead = match parts.iter().map(|part| part.len()).sum::<usize>() {
            // A new one, because an empty `Bytes` may keep its whole buffer alive.
            0 => Bytes::new(),
            all if all == read.len() => read,
            _ => Bytes::from(parts.concat()),
        };
        (self.io.stream, ahead)
    }

    /// Waits for the answer to a request to switch the protocol: what follows is HTTP only if the answer refuses it.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.framing.is_held() {
            if self.activity.exchanges_ended.get() - self.ended_before < self.framing.heads() {
                self.activity.wake_at_end(cx.waker());
                return Poll::Pending;
            }
            self.framing.release();
        }
        Poll::Ready(())
    }

    /// Scans what has just been read into `buf` (from `before` on) and leaves there what may pass now.
    fn scan(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        let fresh = &buf.filled()[before..];
        let ScanProgress { passed, whole, end } = self.framing.scan(fresh);
        self.activity.in_message.set(self.framing.is_in_message());
        match end {
            ScanEnd::Bytes => {}
            ScanEnd::Upgrade => {
                // What is left in `kept` comes after the bytes that were just taken from it.
                let mut kept = BytesMut::from(&fresh[passed..]);
                kept.extend_from_slice(&self.kept);
                self.kept = kept.freeze();
            }
            ScanEnd::Head(fault) => self.activity.head_fault.set(Some(fault)),
            ScanEnd::Body(fault) => self.activity.body_fault.set(Some(fault)),
        }
        if whole > 0 && !self.head.is_empty() {
            // The head that had begun is whole now.
            self.head.extend_from_slice(&fresh[..whole]);
            self.ready = self.head.split().freeze();
        }
        self.head.extend_from_slice(&fresh[whole..passed]);
        if self.head.len() > self.head_bytes_max && self.activity.head_fault.get().is_none() {
            self.activity.head_fault.set(Some(self.framing.too_long()));
        }
        buf.set_filled(if self.ready.is_empty() { before + whole } else { before });
        self.fill(buf);
    }

    /// Copies bytes that may pass into `buf`.
    fn fill(&mut self, buf: &mut ReadBuf<'_>) {
        let count = self.ready.len().min(buf.remaining());
        buf.put_slice(&self.ready[..count]);
        self.ready.advance(count);
    }
}

impl AsyncRead for FramingGate {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_own_answer(cx))?;
        let before = buf.filled().len();
        this.fill(buf);
        while buf.filled().len() == before {
            if let Some(fault) = this.activity.body_fault.get() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault)));
            }
            if this.activity.head_fault.get().is_some() {
                // Pending without a waker, because the connection checks for a fault after every poll of hyper.
                return Poll::Pending;
            }
            ready!(this.poll_held(cx));
            if this.kept.is_empty() {
                ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
                if buf.filled().len() == before {
                    // The end of the stream.
                    break;
                }
            } else {
                let count = this.kept.len().min(buf.remaining());
                buf.put_slice(&this.kept[..count]);
                this.kept.advance(count);
            }
            // If nothing may pass yet, the loop reads on, because returning no bytes would mean the end of the stream.
            this.scan(buf, before);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FramingGate {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_own_answer(cx))?;
        if let Some(own) = OWN_ANSWERS.iter().find(|own| own.as_bytes() == buf) {
            this.own_answer = own;
            return Poll::Ready(Ok(buf.len()));
        }
        Pin::new(&mut this.io).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.own_answer.is_empty() {
            return Poll::Ready(Ok(()));
        }
        // Only flushed, because the socket is closed next, which says as much. Where a client still sends, its close
        // lingers.
        if matches!(this.io.stream, ClientStream::Plain(_)) && !this.framing.is_in_message() {
            return Pin::new(&mut this.io).poll_flush(cx);
        }
        Pin::new(&mut this.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [one] = bufs {
            return self.poll_write(cx, one);
        }
        ready!(self.poll_own_answer(cx))?;
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// hyper's answers to a head that it cannot parse, as it writes them.
const OWN_ANSWERS: [&str; 3] = [
    "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 414 URI Too Long\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
];
/// Where their status is.
const STATUS: std::ops::Range<usize> = 9..12;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use base::clock;
    use net::outbox::QueuedSocket;

    #[tokio::test]
    async fn bytes_after_an_upgrade_request_wait_for_its_answer_on_a_connection_that_was_idle_too() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback is there");
        let address = listener.local_addr().expect("it is bound");
        let mut client = TcpStream::connect(address).await.expect("somebody listens there");
        let (accepted, _) = listener.accept().await.expect("a client is there");
        let activity = Rc::new(Activity::new(clock::instant()));
        // One request before the connection was idle.
        activity.begin_exchange();
        activity.end_exchange(clock::instant());
        let io = TrackedStream::new(
            ClientStream::Plain(QueuedSocket::new(accepted)),
            Bytes::new(),
            Rc::clone(&activity),
        );
        let mut gate = FramingGate::new(io, Rc::clone(&activity), 1024);
        let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
        let next = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
        client.write_all(format!("{head}{next}").as_bytes()).await.expect("it is read");
        let mut read = vec![0; 1024];
        assert_eq!(gate.read(&mut read).await.expect("a head"), head.len());
        activity.begin_exchange();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut room = ReadBuf::new(&mut read);
        assert!(Pin::new(&mut gate).poll_read(&mut context, &mut room).is_pending());
        activity.end_exchange(clock::instant());
        assert_eq!(gate.read(&mut read).await.expect("the next head"), next.len());
    }
}
