//! Small writes of a worker's sockets: they are queued, and sent one after the other when the tasks that were ready have
//! had their turn.
//!
//! A write to a peer that sleeps wakes it, which costs more than the rest of the write. Sent as each request comes to it,
//! writes are so far apart that the peer has done its part and sleeps again before the next; sent in a row, they find it
//! awake. HAProxy's queues of tasks have the same effect.
//!
//! Nothing here waits: a queued write counts as written, and what the kernel does not take of it, or says of it, is the
//! socket's next caller's. A socket has one write in the queue at most, so that a client that does not read pins no more
//! than that. A thread that does not run [`deliver`] queues nothing.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use rustix::net::{SendFlags, send};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;

/// A TCP connection whose small writes are queued.
#[derive(Debug)]
pub struct QueuedSocket(Rc<QueuedTcp>);

/// What a socket and its queued writes share. A socket that is dropped is closed after its last queued write.
#[derive(Debug)]
struct QueuedTcp {
    tcp: RefCell<TcpStream>,
    /// Whether a write of it is queued.
    is_queued: Cell<bool>,
    /// Whether nothing was sent yet: then the kernel has room, which the runtime does not know.
    is_new: Cell<bool>,
    /// What the kernel had no room for, in front of everything that is written later.
    unsent: RefCell<Vec<u8>>,
    /// Why a queued write failed, for the socket's next caller.
    error: Cell<Option<ErrorKind>>,
}

/// The queued writes of one thread.
#[derive(Debug, Default)]
struct Outbox {
    /// Of all writes, one behind the other.
    bytes: Vec<u8>,
    writes: Vec<QueuedWrite>,
    /// Wakes the task that runs [`deliver`]; `None` on a thread that runs none.
    deliverer: Option<Waker>,
}

#[derive(Debug)]
struct QueuedWrite {
    to: Rc<QueuedTcp>,
    /// Where its bytes end in [`Outbox::bytes`].
    end: usize,
    /// Of the task that wrote; woken if the kernel does not take all of it.
    writer: Waker,
}

thread_local! {
    static OUTBOX: RefCell<Outbox> = RefCell::default();
}

/// Sends what the sockets of this thread queue, until it is dropped. Its turn comes after all tasks that were ready,
/// because the first write that is queued wakes it, and tasks are polled in the order in which they were woken.
pub async fn deliver() {
    let _end = DeliveryEnd;
    // Without a task's budget, because a write beyond it would be copied, and its writer woken.
    unconstrained(poll_fn(|cx| {
        OUTBOX.with_borrow_mut(|outbox| {
            outbox.deliverer.get_or_insert_with(|| cx.waker().clone());
        });
        send_all();
        Poll::Pending
    }))
    .await
}

/// The end of [`deliver`]: writes are queued no more.
struct DeliveryEnd;

impl Drop for DeliveryEnd {
    fn drop(&mut self) {
        OUTBOX.with_borrow_mut(|outbox| outbox.deliverer = None);
        send_all();
    }
}

/// Sends what is queued on this thread.
fn send_all() {
    let (mut bytes, mut writes) = OUTBOX
        .with_borrow_mut(|outbox| (std::mem::take(&mut outbox.bytes), std::mem::take(&mut outbox.writes)));
    let mut begin = 0;
    for write in writes.drain(..) {
        write.to.send(&bytes[begin..write.end], &write.writer);
        begin = write.end;
    }
    bytes.clear();
    OUTBOX.with_borrow_mut(|outbox| {
        if outbox.writes.is_empty() {
            (outbox.bytes, outbox.writes) = (bytes, writes);
        }
    });
}

impl Outbox {
    /// Queues a write of `parts`; false if it is too large, the second of its socket, or nobody would send it.
    fn push(&mut self, to: &Rc<QueuedTcp>, parts: &[IoSlice<'_>], count: usize, writer: &Waker) -> bool {
        let Some(deliverer) = &self.deliverer else { return false };
        if count > WRITE_BYTES_MAX || to.is_queued.replace(true) {
            return false;
        }
        if self.writes.is_empty() {
            deliverer.wake_by_ref();
        }
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.writes.push(QueuedWrite { to: Rc::clone(to), end: self.bytes.len(), writer: writer.clone() });
        true
    }

    /// Whether as much waits as may.
    fn is_full(&self) -> bool {
        self.writes.len() >= WRITES_MAX
    }
}

impl QueuedSocket {
    /// A socket that queues its small writes from now on.
    pub fn new(tcp: TcpStream) -> QueuedSocket {
        QueuedSocket(Rc::new(QueuedTcp {
            tcp: RefCell::new(tcp),
            is_queued: Cell::new(false),
            is_new: Cell::new(true),
            unsent: RefCell::default(),
            error: Cell::default(),
        }))
    }

    /// Takes the connection out.
    ///
    /// # Errors
    /// The socket again, if the kernel has no room yet for what was written.
    pub fn into_tcp(self) -> Result<TcpStream, QueuedSocket> {
        self.send_queued();
        if !self.0.unsent.borrow().is_empty() {
            return Err(self);
        }
        Rc::try_unwrap(self.0).map(|shared| shared.tcp.into_inner()).map_err(QueuedSocket)
    }

    /// Sends what is queued without waiting for the deliverer.
    pub fn send_queued(&self) {
        if self.0.is_queued.get() {
            send_all();
        }
    }

    /// Waits until there is something to read, and meanwhile sends what the kernel had no room for.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| {
            let sent = self.0.poll_unsent(cx);
            self.0.or_failed(self.poll_read_ready(cx), sent)
        })
        .await
    }

    /// Whether there is something to read.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.tcp.borrow().poll_read_ready(cx)
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// `WouldBlock` if that is nothing.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.tcp.borrow().try_read(buf)
    }

    /// The socket's pending error (SO_ERROR), which is none afterwards.
    ///
    /// # Errors
    /// If the socket cannot be asked.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.tcp.borrow().take_error()
    }

    /// What the runtime knows of the socket, without a system call.
    pub fn readiness(&self) -> Ready {
        let tcp = self.0.tcp.borrow();
        match pin!(tcp.ready(Interest::READABLE | Interest::WRITABLE))
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(ready) => ready.unwrap_or(Ready::WRITE_CLOSED),
            Poll::Pending => Ready::EMPTY,
        }
    }

    /// Queues a write of `parts`, or sends it with `write` where it cannot be queued.
    fn poll_write_parts(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.0.poll_unsent(cx))?;
        let count = parts.iter().map(|part| part.len()).sum();
        let (is_queued, is_full) = OUTBOX.with_borrow_mut(|outbox| {
            let is_queued = outbox.push(&self.0, parts, count, cx.waker());
            (is_queued, outbox.is_full())
        });
        if is_full {
            send_all();
        }
        if is_queued {
            return Poll::Ready(Ok(count));
        }
        self.send_queued();
        ready!(self.0.poll_unsent(cx))?;
        write(Pin::new(&mut *self.0.tcp.borrow_mut()), cx)
    }
}

impl QueuedTcp {
    /// Sends a queued write. `writer` is woken if it has to see to the rest of it.
    fn send(&self, bytes: &[u8], writer: &Waker) {
        self.is_queued.set(false);
        let sent = self.poll_write(bytes, &mut Context::from_waker(writer));
        if sent < bytes.len() {
            // A write is queued only if everything before it was sent.
            *self.unsent.borrow_mut() = bytes[sent..].to_vec();
            writer.wake_by_ref();
        }
    }

    /// Sends what the kernel had no room for, before anything else is written.
    fn poll_unsent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut unsent = self.unsent.borrow_mut();
        if !unsent.is_empty() {
            let sent = self.poll_write(&unsent, cx);
            unsent.drain(..sent);
            if unsent.is_empty() {
                // A new one, so that the memory of the old one is given back.
                *unsent = Vec::new();
            }
        }
        match self.error.get() {
            Some(kind) => Poll::Ready(Err(kind.into())),
            None if unsent.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }

    /// How many of `bytes` the kernel takes.
    fn poll_write(&self, bytes: &[u8], cx: &mut Context<'_>) -> usize {
        let mut tcp = self.tcp.borrow_mut();
        let mut sent = if self.is_new.replace(false) { send_unasked(&tcp, bytes) } else { 0 };
        while sent < bytes.len() && self.error.get().is_none() {
            match Pin::new(&mut *tcp).poll_write(cx, &bytes[sent..]) {
                Poll::Ready(Ok(count)) => sent += count,
                Poll::Ready(Err(error)) => self.error.set(Some(error.kind())),
                Poll::Pending => break,
            }
        }
        sent
    }

    /// What a read has come to, or why a write failed if there is nothing to read. A connection that the peer has closed
    /// says so to its reader as well, behind what the peer sent before.
    fn or_failed<T>(&self, read: Poll<io::Result<T>>, sent: Poll<io::Result<()>>) -> Poll<io::Result<T>> {
        match (read, sent) {
            (Poll::Pending, Poll::Ready(Err(error)))
                if !matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) =>
            {
                Poll::Ready(Err(error))
            }
            (read, _) => read,
        }
    }
}

/// How many of `bytes` the kernel takes of a socket's first write. It has room for that, which the runtime learns only
/// when it asks for events again. An error is ignored, because the second try says whatever else there is to learn.
fn send_unasked(tcp: &TcpStream, bytes: &[u8]) -> usize {
    send(tcp, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).unwrap_or(0)
}

impl AsyncRead for QueuedSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let sent = self.0.poll_unsent(cx);
        self.0.or_failed(Pin::new(&mut *self.0.tcp.borrow_mut()).poll_read(cx, buf), sent)
    }
}

impl AsyncWrite for QueuedSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_parts(cx, &[IoSlice::new(buf)], |tcp, cx| tcp.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_unsent(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send_queued();
        ready!(self.0.poll_unsent(cx))?;
        Pin::new(&mut *self.0.tcp.borrow_mut()).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_parts(cx, bufs, |tcp, cx| tcp.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

/// Larger writes are not queued, because they pay for waking a peer, and copying them would cost as much.
const WRITE_BYTES_MAX: usize = 8 * 1024;
/// How many writes wait at most, so that the first does not come much later than it was made.
const WRITES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use rustix::net::{RecvFlags, recv};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;

    /// Runs a test as a worker runs its tasks.
    async fn on_a_worker(test: impl Future<Output = ()>) {
        LocalSet::new()
            .run_until(async {
                let deliverer = spawn_local(deliver());
                yield_now().await;
                test.await;
                deliverer.abort();
            })
            .await;
    }

    async fn pair() -> (QueuedSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback is there");
        let address = listener.local_addr().expect("it is bound");
        let peer = TcpStream::connect(address).await.expect("somebody listens there");
        let (accepted, _) = listener.accept().await.expect("it has connected");
        (QueuedSocket::new(accepted), peer)
    }

    /// Whether `bytes` come, and nothing else is there, while no other task of this thread has its turn.
    fn has_come(peer: &TcpStream, bytes: &[u8]) -> bool {
        let mut got = vec![0; bytes.len() + 1];
        let mut count = 0;
        while count < bytes.len() {
            let readable = &mut [PollFd::new(peer, PollFlags::IN)];
            assert_ne!(poll(readable, Some(&COMES_WITHIN)), Ok(0), "{count} of {} bytes", bytes.len());
            count += recv(peer, &mut got[count..], RecvFlags::DONTWAIT).expect("it is readable").1;
        }
        let more = recv(peer, &mut got[count..], RecvFlags::DONTWAIT);
        got[..count] == *bytes && more == Err(Errno::AGAIN)
    }

    #[tokio::test]
    async fn writes_wait_for_the_tasks_that_are_ready() {
        on_a_worker(async {
            let (mut one, one_peer) = pair().await;
            let (mut two, two_peer) = pair().await;
            let other = spawn_local(async move {
                two.write_all(b"from the other task").await.expect("it is queued");
                // What came before it was not sent either.
                assert!(has_come(&two_peer, b""));
                (two, two_peer)
            });
            one.write_all(b"a").await.expect("it is queued");
            one.flush().await.expect("that waits for nothing");
            assert!(has_come(&one_peer, b""));
            let (_two, two_peer) = other.await.expect("it does not panic");
            yield_now().await;
            assert!(has_come(&one_peer, b"a"));
            assert!(has_come(&two_peer, b"from the other task"));
        })
        .await;
    }

    #[tokio::test]
    async fn the_first_write_does_not_wait_for_the_runtime_to_learn_of_the_socket() {
        on_a_worker(async {
            let (socket, peer) = pair().await;
            // As an idle connection comes back.
            let idle = socket.into_tcp().expect("nothing is queued").into_std().expect("it was registered");
            let mut socket = QueuedSocket::new(TcpStream::from_std(idle).expect("descriptors can be had"));
            assert_eq!(socket.readiness(), Ready::EMPTY);
            socket.write_all(b"at once").await.expect("it is queued");
            socket.send_queued();
            assert!(has_come(&peer, b"at once"));
        })
        .await;
    }

    #[tokio::test]
    async fn a_thread_without_a_deliverer_queues_nothing() {
        let (mut socket, peer) = pair().await;
        socket.write_all(b"at once").await.expect("it is sent");
        assert!(has_come(&peer, b"at once"));
        // Nor does one whose deliverer has ended, which sends what was queued.
        on_a_worker(async { socket.write_all(b"last").await.expect("it is queued") }).await;
        assert!(has_come(&peer, b"last"));
        socket.write_all(b"at once").await.expect("it is sent");
        assert!(has_come(&peer, b"at once"));
    }

    #[tokio::test]
    async fn large_writes_go_at_once_behind_what_is_queued() {
        on_a_worker(async {
            let (mut socket, peer) = pair().await;
            socket.write_all(b"head ").await.expect("it is queued");
            let body = vec![b'x'; WRITE_BYTES_MAX + 1];
            let written = socket.write(&body).await.expect("the kernel has room");
            assert!(has_come(&peer, &[b"head ", &body[..written]].concat()));
        })
        .await;
    }

    #[tokio::test]
    async fn a_second_write_of_a_socket_waits_for_nobody() {
        on_a_worker(async {
            let (mut socket, peer) = pair().await;
            socket.write_all(b"first ").await.expect("it is queued");
            assert!(has_come(&peer, b""));
            socket.write_all(b"second").await.expect("it is sent");
            assert!(has_come(&peer, b"first second"));
        })
        .await;
    }

    #[tokio::test]
    async fn not_more_than_so_many_writes_wait() {
        on_a_worker(async {
            let mut pairs = Vec::new();
            for _ in 0..WRITES_MAX {
                pairs.push(pair().await);
            }
            for (nth, (socket, peer)) in pairs.iter_mut().enumerate() {
                socket.write_all(b"x").await.expect("it is queued");
                assert!(nth + 1 == WRITES_MAX || has_come(peer, b""));
            }
            assert!(pairs.iter().all(|(_, peer)| has_come(peer, b"x")));
        })
        .await;
    }

    #[tokio::test]
    async fn a_peer_that_reads_late_gets_all_of_it_in_order() {
        on_a_worker(async {
            let (mut socket, mut peer) = pair().await;
            let sent: Vec<u8> = (0..8_000_000u32).map(|n| (n >> 8) as u8).collect();
            let mut left = sent.chunks(WRITE_BYTES_MAX / 2).peekable();
            // Until nothing more is taken.
            while let Some(piece) = left.peek() {
                let mut writing = pin!(socket.write(piece));
                let polled = poll_fn(|cx| Poll::Ready(writing.as_mut().poll(cx))).await;
                match polled {
                    Poll::Ready(written) => assert_eq!(written.expect("the peer is there"), piece.len()),
                    Poll::Pending => break,
                }
                left.next();
                yield_now().await;
            }
            assert!(left.peek().is_some(), "more than both buffers hold");
            assert!(!socket.0.unsent.borrow().is_empty());
            let Err(mut socket) = socket.into_tcp() else { panic!("it has something to send") };
            let rest = left.flatten().copied().collect::<Vec<u8>>();
            let writer = spawn_local(async move {
                socket.write_all(&rest).await.expect("it is read");
                socket.shutdown().await.expect("it is read");
            });
            let mut got = Vec::new();
            peer.read_to_end(&mut got).await.expect("it is closed");
            assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
            writer.await.expect("it does not panic");
        })
        .await;
    }

    #[tokio::test]
    async fn a_dropped_socket_is_closed_after_its_last_write() {
        on_a_worker(async {
            let (mut socket, mut peer) = pair().await;
            socket.write_all(b"last words").await.expect("it is queued");
            drop(socket);
            let mut got = String::new();
            peer.read_to_string(&mut got).await.expect("it is closed, not reset");
            assert_eq!(got, "last words");
        })
        .await;
    }

    #[tokio::test]
    async fn a_failed_write_is_told_to_the_next_and_a_reader_learns_how_the_connection_ended() {
        on_a_worker(async {
            let (mut socket, peer) = pair().await;
            rustix::net::sockopt::set_socket_linger(&peer, Some(std::time::Duration::ZERO))
                .expect("it is a socket");
            // Closed with a linger of nothing, it is reset.
            drop(peer);
            socket.write_all(b"to nobody").await.expect("it is queued");
            yield_now().await;
            let error = socket.write_all(b"again").await.expect_err("it has been reset");
            assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
            let read = socket.read(&mut [0; 8]).await;
            assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        })
        .await;
    }

    const COMES_WITHIN: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
}
