//! One worker's connections to one upstream.
//!
//! HTTP/1.1: an idle connection is taken last in, first out; the permits of [`super::Server`] are a hard maximum
//! over all workers, and a request waits for one within bounds. A connection has no task of its own: the request that
//! holds it drives it, so an exchange wakes nobody but itself. HTTP/2: requests share connections, which are driven by
//! themselves, up to the stream limit, the least loaded first. Nothing is locked: a pool belongs to one thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::balance::Balancer;
use super::budget::Budget;
use super::config::Version;
use super::connect::{self, BoxedStream, ConnectError};
use super::{Deadline, Server, Upstream};
use crate::clock;
use crate::random::Random;

/// One worker's connections to one upstream; `B` is the body of its requests.
#[derive(Debug)]
pub struct Pool<B: Body + 'static> {
    /// What all workers share.
    pub upstream: Arc<Upstream>,
    /// How many retries it may still see.
    pub budget: Budget,
    servers: Vec<ServerPool<B>>,
    balancer: Balancer,
    jitter: Random,
}

#[derive(Debug)]
struct ServerPool<B: Body + 'static> {
    #[expect(clippy::vec_box, reason = "a connection is handed on as it is, without a copy")]
    idle: RefCell<Vec<Box<Http1<B>>>>,
    shared: RefCell<Vec<Rc<Http2<B>>>>,
    waiters: RefCell<VecDeque<oneshot::Sender<Box<Http1<B>>>>>,
    /// Held by the request that opens an HTTP/2 connection.
    opening: tokio::sync::Mutex<()>,
    exchanges: Cell<u32>,
    waiting: Cell<usize>,
    idle_shown: IdleShown,
}

/// An HTTP/1.1 connection, held by at most one request.
#[derive(Debug)]
pub struct Http1<B: Body + 'static> {
    sender: http1::SendRequest<B>,
    /// hyper's side of it; `None` once it has ended in an error or a close.
    driver: Option<http1::Connection<BoxedStream, B>>,
    /// What the server has sent, bytes.
    received: Rc<Cell<u64>>,
    /// Of that, what it had sent when the last request went.
    received_before: u64,
    /// It has ended, and its stream can be taken out: the protocol was switched, or the server closed.
    ended: bool,
    /// Kept with the connection, so that a deadline costs no timer each time.
    deadline: Deadline,
    retires: Instant,
    idle_since: Instant,
    _open: Open,
}

/// An HTTP/2 connection, shared by requests.
#[derive(Debug)]
struct Http2<B> {
    sender: http2::SendRequest<B>,
    streams: Cell<usize>,
    retires: Instant,
    _open: Open,
}

/// What is left of a connection whose protocol was switched: the stream, and bytes already read from it.
pub struct Upgraded {
    /// The stream.
    pub stream: Box<dyn connect::Stream>,
    /// What the server sent after its answer's head.
    pub read: bytes::Bytes,
}

impl std::fmt::Debug for Upgraded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Upgraded({} bytes read)", self.read.len())
    }
}

/// Counts one open connection against the server's maximum for as long as it lives.
#[derive(Debug)]
struct Open {
    upstream: Arc<Upstream>,
    server: usize,
    _permit: OwnedSemaphorePermit,
}

/// Why no connection could be had.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// A new one failed.
    #[error("{server}: {source}")]
    Connect {
        /// Which server.
        server: String,
        /// Its index.
        index: usize,
        /// Why.
        source: ConnectError,
    },
    /// All are in use, and none came free in time or too many wait already.
    #[error("{server}: all {max} connections are in use")]
    Full {
        /// Which server.
        server: String,
        /// The maximum.
        max: usize,
    },
}

/// Why no head of an answer came.
#[derive(Debug)]
pub enum SendError<B> {
    /// The exchange broke.
    Broken {
        /// What hyper says.
        error: hyper::Error,
        /// The request, if not a byte of it was sent.
        unsent: Option<Box<Request<B>>>,
    },
    /// The deadline passed.
    Timeout,
    /// So many bytes came and no head of an answer was whole among them, interim ones aside.
    TooLong,
}

/// A connection lent to one exchange. Dropped before [`Lease::finish`], it takes an HTTP/1.1 connection down with
/// it and resets an HTTP/2 stream: the server learns that nobody listens.
#[derive(Debug)]
pub struct Lease<B: Body + 'static> {
    pool: Rc<Pool<B>>,
    /// Index of the server.
    pub server: usize,
    /// How long it took to come free, nanoseconds. 0: nothing was waited for.
    pub wait_ns: u64,
    /// How long it took to open, nanoseconds. 0: it was open already.
    pub connect_ns: u64,
    connection: Option<Connection<B>>,
}

#[derive(Debug)]
enum Connection<B: Body + 'static> {
    Http1(Box<Http1<B>>),
    Http2(Rc<Http2<B>>, Deadline),
}

impl<B> Pool<B>
where
    B: Body + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// An empty pool; `seed` sets the workers' random choices apart.
    pub fn new(upstream: Arc<Upstream>, seed: u64) -> Pool<B> {
        let weights = upstream.config.servers.iter().map(|server| server.weight).collect();
        Pool {
            budget: Budget::new(upstream.config.retry.budget_percent),
            servers: (0..upstream.servers.len()).map(|index| ServerPool::new(&upstream, index)).collect(),
            balancer: Balancer::new(upstream.config.balance, weights, seed),
            jitter: Random::new(seed.rotate_left(17)),
            upstream,
        }
    }

    /// A connection to the next server; `avoid` is the one a retry comes from.
    pub async fn acquire(
        self: &Rc<Self>,
        avoid: Option<usize>,
        now: Instant,
    ) -> Result<Lease<B>, AcquireError> {
        let server = self.balancer.next(|index| self.servers[index].exchanges.get(), avoid, now);
        let pool = &self.servers[server];
        // Counted from here on, so that requests still connecting weigh on the balance; the lease gives it back.
        pool.exchanges.set(pool.exchanges.get() + 1);
        let mut lease = Lease { pool: Rc::clone(self), server, wait_ns: 0, connect_ns: 0, connection: None };
        lease.connection = match self.upstream.config.http {
            Version::H1 => match pool.take_idle(now) {
                Some(idle) => Some(Connection::Http1(idle)),
                None => {
                    // Boxed, here and below: connecting is rare and its future large, and the future of every
                    // request would carry it along, copied each time a request is handed to hyper.
                    let connection = Box::pin(self.open_or_wait(server, &mut lease)).await?;
                    Some(Connection::Http1(connection))
                }
            },
            Version::H2 => {
                let connection = Box::pin(self.stream(server, now, &mut lease)).await?;
                Some(Connection::Http2(connection, Deadline::new(now + super::deadline::FAR)))
            }
        };
        Ok(lease)
    }

    /// A new connection while a permit is left, else whichever comes first: a connection that comes free here, or
    /// a permit that another worker gives back.
    async fn open_or_wait(&self, index: usize, lease: &mut Lease<B>) -> Result<Box<Http1<B>>, AcquireError> {
        let shared = &self.upstream.servers[index];
        if let Ok(permit) = Arc::clone(&shared.permits).try_acquire_owned() {
            return self.open(index, permit, lease).await;
        }
        let bounds = &self.upstream.config.connections;
        let full = || AcquireError::Full { server: shared.authority.clone(), max: bounds.max };
        let waiting = self.servers[index].wait(shared, bounds.waiting).ok_or_else(full)?;
        let (tx, mut rx) = oneshot::channel();
        {
            let mut waiters = self.servers[index].waiters.borrow_mut();
            waiters.retain(|waiter| !waiter.is_closed());
            waiters.push_back(tx);
        }
        let began = clock::instant();
        let came = tokio::select! {
            biased;
            Ok(connection) = &mut rx => Ok(connection),
            Ok(permit) = Arc::clone(&shared.permits).acquire_owned() => rx.try_recv().map_err(|_| permit),
            () = tokio::time::sleep(bounds.wait) => return Err(full()),
        };
        drop(waiting);
        lease.wait_ns = since(began);
        match came {
            // Where both came at once the open connection is the better one, and the permit goes to the next.
            Ok(connection) => Ok(connection),
            Err(permit) => {
                drop(rx);
                self.open(index, permit, lease).await
            }
        }
    }

    async fn open(
        &self,
        index: usize,
        permit: OwnedSemaphorePermit,
        lease: &mut Lease<B>,
    ) -> Result<Box<Http1<B>>, AcquireError> {
        let began = clock::instant();
        let open = Open::new(&self.upstream, index, permit);
        let (sender, driver, received) =
            connect::http1(&self.upstream, index).await.map_err(|source| self.unreachable(index, source))?;
        lease.connect_ns = since(began);
        let now = clock::instant();
        Ok(Box::new(Http1 {
            sender,
            driver: Some(driver),
            received,
            received_before: 0,
            ended: false,
            deadline: Deadline::new(now + self.upstream.config.timeouts.response),
            retires: now + self.age(),
            idle_since: now,
            _open: open,
        }))
    }

    /// A stream on the least loaded HTTP/2 connection, or a new connection where all are at their limit. One is opened
    /// at a time: a burst on a cold pool waits for the first and shares it.
    async fn stream(
        &self,
        index: usize,
        now: Instant,
        lease: &mut Lease<B>,
    ) -> Result<Rc<Http2<B>>, AcquireError> {
        let bounds = &self.upstream.config.connections;
        let pool = &self.servers[index];
        if let Some(connection) = pool.share(now, bounds.streams) {
            return Ok(connection);
        }
        let shared = &self.upstream.servers[index];
        let full = || AcquireError::Full { server: shared.authority.clone(), max: bounds.max };
        let began = clock::instant();
        let waiting = pool.wait(shared, bounds.waiting).ok_or_else(full)?;
        let turn =
            tokio::time::timeout(bounds.wait + self.upstream.config.timeouts.connect, pool.opening.lock());
        let _turn = turn.await.map_err(|_| full())?;
        if let Some(connection) = pool.share(clock::instant(), bounds.streams) {
            lease.wait_ns = since(began);
            return Ok(connection);
        }
        let permit = tokio::time::timeout(bounds.wait, Arc::clone(&shared.permits).acquire_owned());
        let permit = permit.await.map_err(|_| full())?.map_err(|_| full())?;
        drop(waiting);
        let opening = clock::instant();
        lease.wait_ns = opening.saturating_duration_since(began).as_nanos() as u64;
        let open = Open::new(&self.upstream, index, permit);
        let sender =
            connect::http2(&self.upstream, index).await.map_err(|source| self.unreachable(index, source))?;
        lease.connect_ns = since(opening);
        let retires = clock::instant() + self.age();
        let connection = Rc::new(Http2 { sender, streams: Cell::new(1), retires, _open: open });
        pool.shared.borrow_mut().push(Rc::clone(&connection));
        Ok(connection)
    }

    fn unreachable(&self, index: usize, source: ConnectError) -> AcquireError {
        self.balancer.rest(index, clock::instant() + REST);
        AcquireError::Connect { server: self.upstream.servers[index].authority.clone(), index, source }
    }

    /// The maximum age, ±10 %, so that connections opened together do not all close together.
    fn age(&self) -> Duration {
        let per_mille = 900 + (self.jitter.next() % 201) as u32;
        self.upstream.config.connections.max_age / 1_000 * per_mille
    }

    /// Closes what has been idle too long, is too old, closed by the server, or wanted by another worker. Called
    /// now and then by the worker; `workers` share the number of idle connections.
    pub fn sweep(&self, now: Instant, workers: usize) {
        let bounds = &self.upstream.config.connections;
        let keep = bounds.idle.div_ceil(workers.max(1));
        for (pool, shared) in self.servers.iter().zip(&self.upstream.servers) {
            let mut idle = pool.idle.borrow_mut();
            idle.retain_mut(|connection| {
                now < connection.retires
                    && now < connection.idle_since + bounds.idle_timeout
                    && connection.is_idle()
            });
            // The oldest lie in front: the last used is the first taken.
            let wanted = shared.waiting.load(Ordering::Relaxed);
            let surplus = idle.len().saturating_sub(keep).max(wanted.min(idle.len()));
            idle.drain(..surplus);
            pool.idle_shown.set(idle.len());
            pool.shared.borrow_mut().retain(|connection| {
                !connection.sender.is_closed() && (connection.streams.get() > 0 || now < connection.retires)
            });
        }
    }
}

impl<B: Body + 'static> ServerPool<B> {
    fn new(upstream: &Arc<Upstream>, server: usize) -> ServerPool<B> {
        ServerPool {
            idle: RefCell::default(),
            shared: RefCell::default(),
            waiters: RefCell::default(),
            opening: tokio::sync::Mutex::default(),
            exchanges: Cell::default(),
            waiting: Cell::default(),
            idle_shown: IdleShown { upstream: Arc::clone(upstream), server, shown: Cell::default() },
        }
    }

    /// A place among this worker's requests that wait for a connection; `None` where as many wait as may.
    fn wait<'a>(&'a self, server: &'a Server, max: usize) -> Option<Waiting<'a>> {
        (self.waiting.get() < max).then(|| Waiting::new(&self.waiting, server))
    }
}

impl<B> ServerPool<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// A stream on the least loaded HTTP/2 connection that has room for one.
    fn share(&self, now: Instant, streams_max: usize) -> Option<Rc<Http2<B>>> {
        let mut shared = self.shared.borrow_mut();
        shared.retain(|connection| !connection.sender.is_closed() && now < connection.retires);
        let least = shared.iter().min_by_key(|connection| connection.streams.get())?;
        let room = least.streams.get() < streams_max;
        room.then(|| {
            least.streams.set(least.streams.get() + 1);
            Rc::clone(least)
        })
    }

    /// The last one used that still lives.
    fn take_idle(&self, now: Instant) -> Option<Box<Http1<B>>> {
        let mut idle = self.idle.borrow_mut();
        while let Some(mut connection) = idle.pop() {
            if now < connection.retires && connection.is_idle() {
                return Some(connection);
            }
        }
        None
    }
}

impl<B> Http1<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Lets the connection read and write what it can. Ended, it keeps its stream if it may have been switched.
    fn drive(&mut self, cx: &mut Context<'_>) {
        let Some(driver) = self.driver.as_mut().filter(|_| !self.ended) else { return };
        match Pin::new(driver).poll(cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.ended = true,
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "upstream connection ended");
                self.driver = None;
            }
        }
    }

    /// Whether the last exchange is over to its end and the server has not closed. Nobody has looked since.
    fn is_idle(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && !self.ended && self.sender.is_ready()
    }

    /// Asks `poll`, driving the connection that what is asked depends on. What comes from the connection comes within
    /// this call, so nobody need be woken for it: a waker there would only wake the task that is running.
    fn poll_driven<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let mut here = Context::from_waker(Waker::noop());
        if let Poll::Ready(known) = poll(&mut here) {
            return Poll::Ready(known);
        }
        self.drive(cx);
        let mut polled = poll(&mut here);
        if polled.is_pending() && self.ended {
            // Nothing more will come: without its other end, what is asked says so.
            self.driver = None;
            polled = poll(&mut here);
        }
        if polled.is_pending() && !tokio::task::coop::has_budget_remaining() {
            // The runtime made it wait, not the connection, and would have woken nobody.
            cx.waker().wake_by_ref();
        }
        polled
    }
}

impl<B> Lease<B>
where
    B: Body + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Sends the request and waits for the head of its answer, until `until`; the body is still to come then.
    pub fn send(&mut self, request: Request<B>, until: Instant) -> Sending<'_, B> {
        // Boxed: hyper's future holds the request for as long as it might give it back, and would make every future
        // around this one as much larger.
        let connection = self.connection.as_mut().expect("a lease holds its connection until it is finished");
        let answer: Pin<Box<Answer<B>>> = match connection {
            Connection::Http1(connection) => {
                connection.received_before = connection.received.get();
                Box::pin(connection.sender.try_send_request(request))
            }
            Connection::Http2(connection, _) => Box::pin(connection.sender.clone().try_send_request(request)),
        };
        connection.deadline().set(until);
        Sending { answer, connection }
    }

    /// Asks for more of the answer's body. Over HTTP/1.1 that drives the connection it comes on.
    pub fn poll_answer<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        match self.connection.as_mut() {
            Some(Connection::Http1(connection)) => connection.poll_driven(cx, poll),
            _ => poll(cx),
        }
    }

    /// The deadline that travels with the connection.
    pub fn deadline(&mut self) -> &mut Deadline {
        self.connection.as_mut().expect("a lease holds its connection until it is finished").deadline()
    }

    /// `host:port` of the server.
    pub fn authority(&self) -> &str {
        &self.pool.upstream.servers[self.server].authority
    }

    /// Gives the connection back: the exchange is over to the last byte.
    pub fn finish(mut self, now: Instant) {
        let Some(Connection::Http1(mut connection)) = self.connection.take_http1() else { return };
        // An answer that came before its request was whole leaves a connection that cannot be used again.
        if now >= connection.retires || connection.driver.is_none() || !connection.sender.is_ready() {
            return;
        }
        connection.idle_since = now;
        let pool = &self.pool.servers[self.server];
        let mut waiters = pool.waiters.borrow_mut();
        while let Some(waiter) = waiters.pop_front() {
            match waiter.send(connection) {
                Ok(()) => return,
                Err(back) => connection = back,
            }
        }
        // Somebody on another worker waits for a permit: closing this one gives it.
        if self.pool.upstream.servers[self.server].waiting.load(Ordering::Relaxed) > 0 {
            return;
        }
        pool.idle.borrow_mut().push(connection);
    }

    /// The stream under an HTTP/1.1 connection whose protocol the server has switched.
    pub fn into_upgraded(mut self) -> Option<Upgraded> {
        match self.connection.take_http1() {
            Some(Connection::Http1(connection)) if connection.ended => {
                let parts = connection.driver?.into_parts();
                Some(Upgraded { stream: parts.io.into_inner(), read: parts.read_buf })
            }
            _ => None,
        }
    }
}

/// Nanoseconds since then, at least one: 0 says that nothing was waited for.
fn since(began: Instant) -> u64 {
    (clock::instant().saturating_duration_since(began).as_nanos() as u64).max(1)
}

impl<B: Body + 'static> Connection<B> {
    fn deadline(&mut self) -> &mut Deadline {
        match self {
            Connection::Http1(connection) => &mut connection.deadline,
            Connection::Http2(_, deadline) => deadline,
        }
    }
}

/// The head of an answer to come, or the deadline.
pub struct Sending<'a, B: Body + 'static> {
    answer: Pin<Box<Answer<B>>>,
    connection: &'a mut Connection<B>,
}

type Answer<B> =
    dyn Future<Output = Result<Response<Incoming>, hyper::client::conn::TrySendError<Request<B>>>>;

impl<B> Future for Sending<'_, B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Output = Result<Response<Incoming>, SendError<B>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Sending { answer, connection } = self.get_mut();
        let polled = match connection {
            Connection::Http1(connection) => connection.poll_driven(cx, |cx| answer.as_mut().poll(cx)),
            Connection::Http2(..) => answer.as_mut().poll(cx),
        };
        if let Poll::Ready(sent) = polled {
            return Poll::Ready(sent.map_err(|mut failed| {
                let unsent = failed.take_message().map(Box::new);
                SendError::Broken { error: failed.into_error(), unsent }
            }));
        }
        if let Connection::Http1(connection) = connection
            && connection.received.get() - connection.received_before > HEAD_BYTES_MAX
        {
            return Poll::Ready(Err(SendError::TooLong));
        }
        connection.deadline().poll(cx).map(|()| Err(SendError::Timeout))
    }
}

/// Takes an HTTP/1.1 connection out of its lease and leaves an HTTP/2 one, which the lease's drop accounts for.
trait TakeHttp1<B: Body + 'static> {
    fn take_http1(&mut self) -> Option<Connection<B>>;
}

impl<B: Body + 'static> TakeHttp1<B> for Option<Connection<B>> {
    fn take_http1(&mut self) -> Option<Connection<B>> {
        if matches!(self, Some(Connection::Http1(_))) { self.take() } else { None }
    }
}

impl<B: Body + 'static> Drop for Lease<B> {
    fn drop(&mut self) {
        if let Some(Connection::Http2(connection, _)) = &self.connection {
            connection.streams.set(connection.streams.get().saturating_sub(1));
        }
        let exchanges = &self.pool.servers[self.server].exchanges;
        exchanges.set(exchanges.get().saturating_sub(1));
    }
}

impl Open {
    fn new(upstream: &Arc<Upstream>, server: usize, permit: OwnedSemaphorePermit) -> Open {
        upstream.servers[server].open.fetch_add(1, Ordering::Relaxed);
        Open { upstream: Arc::clone(upstream), server, _permit: permit }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.upstream.servers[self.server].open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// This worker's part of the idle connections shown for a server: told at every sweep, so that requests pay nothing.
#[derive(Debug)]
struct IdleShown {
    upstream: Arc<Upstream>,
    server: usize,
    shown: Cell<usize>,
}

impl IdleShown {
    fn set(&self, idle: usize) {
        let before = self.shown.replace(idle);
        if before != idle {
            // Wraps where the number falls, and so does the sum.
            let rise = idle.wrapping_sub(before);
            self.upstream.servers[self.server].idle.fetch_add(rise, Ordering::Relaxed);
        }
    }
}

impl Drop for IdleShown {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Counts a request that waits, and shows the other workers that somebody does, for as long as it does.
struct Waiting<'a> {
    here: &'a Cell<usize>,
    server: &'a Server,
}

impl<'a> Waiting<'a> {
    fn new(here: &'a Cell<usize>, server: &'a Server) -> Waiting<'a> {
        here.set(here.get() + 1);
        server.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting { here, server }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.here.set(self.here.get() - 1);
        self.server.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a server may send before the head of its answer is whole: one head is bounded by the buffer, and this bounds
/// interim ones before it.
const HEAD_BYTES_MAX: u64 = 2 * connect::BUFFER_BYTES as u64;
/// How long a server that could not be reached is asked last.
const REST: Duration = Duration::from_secs(1);
