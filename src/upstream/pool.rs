//! One worker's connections to one upstream.
//!
//! HTTP/1.1: an idle connection is taken last in, first out; the permits of [`super::SharedServer`] are a hard maximum
//! over all workers, and a request waits for one within bounds. HTTP/2: requests share connections. Nothing is locked:
//! a pool belongs to one thread. What a connection is, is told in [`super::http1`] and [`super::http2`]; how one is
//! lent, in [`super::checkout`].

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout_at;

use super::balance::{Balancer, ServerPreference};
use super::budget::RetryBudget;
use super::checkout::{Checkout, LentConnection};
use super::config::HttpVersion;
use super::connect::{self, ConnectError, ConnectOutcome, FamilyRace, MovedConnection, UnfinishedAttempt};
use super::deadline::{self, ReusableDeadline};
use super::http1::Http1;
use super::http2::{Http2, Http2Exchange};
use super::ids::ServerIndex;
use super::live::LiveUpstream;
use super::open::OpenConnection;
use super::server::{ServerAddress, SharedServer, Upstream};
use super::server_pool::{CountGuard, ServerPool, WaitingCount};
use super::uploads;
use base::clock;
use base::ids::IdVec;
use base::random::Random;
use metrics::IpVersion;

/// One worker's connections to one upstream; `B` is the body of its requests.
#[derive(Debug)]
pub struct Pool<B: Body + 'static> {
    /// What all workers share.
    pub upstream: Arc<Upstream>,
    pub budget: Rc<RetryBudget>,
    servers: IdVec<ServerIndex, Rc<ServerPool<B>>>,
    balancer: Balancer,
    jitter: Random,
}

/// What a connection is wanted for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// A request whose body is not whole yet.
    pub is_upload: bool,
    /// A request that an idle connection has failed: over HTTP/1.1 it gets a new one.
    pub is_new: bool,
}

enum StreamRoom<B> {
    /// On a connection that is open.
    Stream(Rc<Http2<B>>),
    Permit(OwnedSemaphorePermit),
}

/// Why no connection could be had.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    #[error("{server}: {source}")]
    Connect { server: String, index: ServerIndex, source: ConnectError },
    /// All are in use, and none came free in time or too many wait already.
    #[error("{server}: all {max} connections are in use")]
    Full {
        server: String,
        index: ServerIndex,
        max: usize,
        /// How long was waited, nanoseconds. 0: too many wait already.
        wait_ns: u64,
    },
    /// The server has left its name since the request began: the servers there are now are to be asked.
    #[error("the server's address is no longer in DNS")]
    Left {
        /// How long was waited, nanoseconds.
        wait_ns: u64,
    },
    /// The exchange's time was over before there was one.
    #[error("no connection within `total`")]
    Late,
}

impl AcquireError {
    fn is_for_descriptors(&self) -> bool {
        matches!(self, AcquireError::Connect { source: ConnectError::Descriptors(_), .. })
    }
}

impl<B> Pool<B>
where
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// An empty pool; `seed` sets the workers' random choices apart.
    pub fn new(upstream: Arc<Upstream>, seed: u64) -> Pool<B> {
        let labels = upstream.servers.iter().map(|server| server.label.as_str());
        let weights = upstream.config.servers.iter().map(|server| server.weight);
        let balanced: Vec<_> = labels.zip(weights).collect();
        let is_compared = upstream.config.health.outliers().is_some();
        let pool = |server| Rc::new(ServerPool::new(server, is_compared));
        Pool {
            balancer: Balancer::new(upstream.config.balance.clone(), &balanced, seed),
            budget: Rc::new(RetryBudget::new(upstream.config.retry_budget_percent)),
            servers: upstream.servers.iter().map(pool).collect(),
            jitter: Random::new(seed.rotate_left(17)),
            upstream,
        }
    }

    /// Whether its servers are, or were, those of this upstream.
    pub fn is_of(&self, live: &Arc<LiveUpstream>) -> bool {
        self.upstream.is_of(live)
    }

    /// The pool of the set of servers that has taken the place of this one's. Connections to servers that both have stay,
    /// idle ones to the others are closed.
    pub fn renewed(&self, upstream: Arc<Upstream>, seed: u64) -> Pool<B> {
        let index_before = |server: &Arc<SharedServer>| self.upstream.index_of(server);
        let before: IdVec<ServerIndex, Option<ServerIndex>> =
            upstream.servers.iter().map(index_before).collect();
        let is_compared = upstream.config.health.outliers().is_some();
        let pool = |(server, before): (&Arc<SharedServer>, &Option<ServerIndex>)| match before {
            Some(before) => Rc::clone(&self.servers[*before]),
            None => Rc::new(ServerPool::new(server, is_compared)),
        };
        let servers = upstream.servers.iter().zip(&before).map(pool).collect();
        let gone = self.servers.iter().zip(&self.upstream.servers);
        let gone = gone.filter(|(_, server)| upstream.index_of(server).is_none());
        gone.for_each(|(pool, _)| pool.close_idle());
        let next = Pool::new(upstream, seed);
        next.balancer.go_on_from(&self.balancer, &before);
        Pool { servers, budget: Rc::clone(&self.budget), ..next }
    }

    /// Whether it has a server that may be used, as far as this worker knows.
    pub fn has_usable_server(&self, now: Instant) -> bool {
        self.balancer.has_usable(&self.upstream.health, now)
    }

    /// Whether a server may be used, as far as this worker knows.
    pub fn is_usable(&self, server: ServerIndex, now: Instant) -> bool {
        self.balancer.is_usable(server, &self.upstream.health, now)
    }

    /// Whether another server than this one may be used.
    pub fn has_usable_server_beside(&self, server: ServerIndex, now: Instant) -> bool {
        self.servers.ids().any(|other| other != server && self.is_usable(other, now))
    }

    pub fn choose(&self, wish: ServerPreference, now: Instant) -> ServerIndex {
        let load = |index: ServerIndex| self.servers[index].exchanges.get();
        self.balancer.next(wish, load, &self.upstream.health, now)
    }

    /// A connection to the next server. At `ends` the attempt is given up.
    pub async fn acquire(
        self: &Rc<Self>,
        wish: ServerPreference,
        terms: Terms,
        now: Instant,
        ends: Option<Instant>,
    ) -> Result<Checkout<B>, AcquireError> {
        self.acquire_at(self.choose(wish, now), terms, now, ends).await
    }

    /// A connection to this server, which has just been chosen.
    pub async fn acquire_at(
        self: &Rc<Self>,
        server: ServerIndex,
        terms: Terms,
        now: Instant,
        ends: Option<Instant>,
    ) -> Result<Checkout<B>, AcquireError> {
        let pool = &self.servers[server];
        // Counted from here on, so that requests still connecting weigh on the balance; the checkout gives it back.
        pool.exchanges.set(pool.exchanges.get() + 1);
        let mut checkout = Checkout {
            pool: Rc::clone(self),
            server,
            wait_ns: 0,
            connect_ns: 0,
            around: None,
            connection: None,
            upload: None,
            is_entering: false,
        };
        if terms.is_upload && self.upstream.config.http == HttpVersion::H1 {
            Box::pin(within(ends, self.wait_as_upload(server, &mut checkout))).await?;
        }
        checkout.connection = match self.upstream.config.http {
            HttpVersion::H1 => match if terms.is_new { None } else { pool.take_idle(now) } {
                Some(idle) => Some(LentConnection::Http1(idle)),
                None => {
                    // Boxed, here and below, because connecting is rare and its future large, and the future of every
                    // request would carry it along, copied each time a request is handed to hyper.
                    let connection = Box::pin(within(ends, self.open_or_wait(server, &mut checkout))).await?;
                    Some(LentConnection::Http1(connection))
                }
            },
            HttpVersion::H2 => {
                let connection = Box::pin(within(ends, self.stream(server, now, &mut checkout))).await?;
                let deadline = ReusableDeadline::new(now + deadline::FAR);
                Some(LentConnection::Http2(Box::new(Http2Exchange::new(connection, deadline))))
            }
        };
        Ok(checkout)
    }

    /// A new connection while a permit is left, else whichever comes first: a connection that comes free here, or
    /// a permit that another worker gives back. The body on its way that moves least yields: at once if it is slow,
    /// after half of the wait in any case.
    async fn open_or_wait(
        &self,
        index: ServerIndex,
        checkout: &mut Checkout<B>,
    ) -> Result<Box<Http1<B>>, AcquireError> {
        let shared = &self.upstream.servers[index];
        if let Ok(permit) = Arc::clone(&shared.permits).try_acquire_owned() {
            return match self.open(index, permit, checkout).await {
                Err(error) if error.is_for_descriptors() => {
                    self.wait_for_descriptor(index, checkout, error).await
                }
                opened => opened,
            };
        }
        let bounds = &self.upstream.config.connections;
        let full = |wait_ns| self.full(index, wait_ns);
        let waiting = self.servers[index].wait(shared, bounds.waiting).ok_or_else(|| full(0))?;
        let (tx, mut rx) = oneshot::channel();
        {
            let mut waiters = self.servers[index].waiters.borrow_mut();
            waiters.retain(|waiter| !waiter.is_closed());
            waiters.push_back(tx);
        }
        let began = clock::instant();
        shared.uploads.press(bounds.max);
        let half = async {
            tokio::time::sleep(bounds.wait / 2).await;
            shared.uploads.ask_slowest_to_yield(None);
            tokio::time::sleep(bounds.wait / 2).await;
        };
        let came = tokio::select! {
            biased;
            Ok(connection) = &mut rx => Ok(connection),
            permit = Arc::clone(&shared.permits).acquire_owned() => match (rx.try_recv(), permit) {
                (Ok(connection), _) => Ok(connection),
                (Err(_), Ok(permit)) => Err(permit),
                // There are none any more.
                (Err(_), Err(_)) => return Err(AcquireError::Left { wait_ns: since(began) }),
            },
            () = half => return Err(full(since(began))),
        };
        drop(waiting);
        checkout.wait_ns += since(began);
        match came {
            // Where both came at once the open connection is the better one, and the permit goes to the next.
            Ok(connection) => Ok(connection),
            Err(permit) => {
                drop(rx);
                self.open(index, permit, checkout).await
            }
        }
    }

    /// If all connections are in use, or requests have lately waited for one, requests whose bodies are on their way wait
    /// for each other in a line of their own, so that none of them stands in front of a request that is whole. One that
    /// has waited for half of its time takes the place of another that is slow.
    async fn wait_as_upload(
        &self,
        index: ServerIndex,
        checkout: &mut Checkout<B>,
    ) -> Result<(), AcquireError> {
        let (shared, pool) = (&self.upstream.servers[index], &self.servers[index]);
        let bounds = &self.upstream.config.connections;
        let has_room = || !pool.idle.borrow().is_empty() || shared.permits.available_permits() > 0;
        if has_room() && shared.uploads.admit(bounds.max) {
            checkout.is_entering = true;
            return Ok(());
        }
        if pool.uploads_waiting.get() >= bounds.waiting {
            return Err(self.full(index, 0));
        }
        let _waiting = CountGuard::new(&pool.uploads_waiting);
        let began = clock::instant();
        let turn = tokio::time::timeout(bounds.wait, pool.uploads_turn.lock());
        let _turn = turn.await.map_err(|_| self.full(index, since(began)))?;
        while !(has_room() && shared.uploads.admit(bounds.max)) {
            let waited = clock::instant().saturating_duration_since(began);
            self.must_be_there(index, since(began))?;
            if waited >= bounds.wait {
                return Err(self.full(index, since(began)));
            }
            if waited >= bounds.wait / 2 {
                shared.uploads.ask_slowest_to_yield(Some(uploads::SLOW));
            }
            // Counted, so that other workers, which may hold all connections and use none, give up those that are idle.
            let _wanted = (!has_room()).then(|| WaitingCount::new(&pool.waiting, shared));
            tokio::time::sleep(UPLOAD_LOOK).await;
        }
        (checkout.wait_ns, checkout.is_entering) = (since(began), true);
        Ok(())
    }

    fn full(&self, index: ServerIndex, wait_ns: u64) -> AcquireError {
        let server = self.upstream.servers[index].authority.clone();
        AcquireError::Full { server, index, max: self.upstream.config.connections.max, wait_ns }
    }

    /// The process has no descriptor for a new connection: one that comes free here will do, and the other workers, which
    /// see that somebody waits, close their idle ones.
    async fn wait_for_descriptor(
        &self,
        index: ServerIndex,
        checkout: &mut Checkout<B>,
        mut error: AcquireError,
    ) -> Result<Box<Http1<B>>, AcquireError> {
        let (shared, bounds) = (&self.upstream.servers[index], &self.upstream.config.connections);
        let Some(_waiting) = self.servers[index].wait(shared, bounds.waiting) else { return Err(error) };
        let (tx, mut rx) = oneshot::channel();
        self.servers[index].waiters.borrow_mut().push_back(tx);
        let began = clock::instant();
        while clock::instant().saturating_duration_since(began) < bounds.wait {
            checkout.wait_ns = since(began);
            if let Ok(Ok(connection)) = tokio::time::timeout(DESCRIPTOR_LOOK, &mut rx).await {
                return Ok(connection);
            }
            self.must_be_there(index, checkout.wait_ns)?;
            if let Ok(permit) = Arc::clone(&shared.permits).try_acquire_owned() {
                match self.open(index, permit, checkout).await {
                    Err(again) if again.is_for_descriptors() => error = again,
                    opened => return opened,
                }
            }
        }
        Err(error)
    }

    async fn open(
        &self,
        index: ServerIndex,
        permit: OwnedSemaphorePermit,
        checkout: &mut Checkout<B>,
    ) -> Result<Box<Http1<B>>, AcquireError> {
        let began = clock::instant();
        self.must_be_there(index, checkout.wait_ns)?;
        let open = OpenConnection::new(&self.upstream.servers[index], permit);
        let idle = |other: ServerIndex| self.servers[other].take_idle(clock::instant());
        let connected = connect::http1(&self.upstream, index, || self.beside(index, idle)).await;
        let connected = match connected {
            Ok(ConnectOutcome::Open((other, connection), slow)) => {
                self.move_to(other, slow, checkout);
                checkout.wait_ns += since(began);
                return Ok(connection);
            }
            Ok(ConnectOutcome::New(stream, moved)) => Ok((stream, moved)),
            Err(source) => Err(source),
        };
        self.must_be_there(index, checkout.wait_ns + since(began))?;
        let (connected, moved) = connected.map_err(|source| self.unreachable(index, source))?;
        let open = self.moved(moved, checkout).unwrap_or(open);
        let now = clock::instant();
        self.works(checkout.server);
        checkout.connect_ns = since(began);
        let deadline = ReusableDeadline::new(now + self.upstream.config.timeouts.response);
        Ok(Box::new(Http1::new(connected, deadline, now + self.age(), now, open)))
    }

    /// A stream on an HTTP/2 connection. A server that takes none now is left for another one; if there is none, it is waited
    /// for as long as for a connection that comes free, because it should not mean that for long (RFC 9113 section 6.5.2).
    async fn stream(
        &self,
        index: ServerIndex,
        now: Instant,
        checkout: &mut Checkout<B>,
    ) -> Result<Rc<Http2<B>>, AcquireError> {
        let bounds = &self.upstream.config.connections;
        if let Some(connection) = self.servers[index].shared.share(now, bounds.streams) {
            return Ok(connection);
        }
        let began = clock::instant();
        loop {
            if let Some(connection) = self.stream_or_none(checkout.server, began, checkout).await? {
                return Ok(connection);
            }
            // It may have become another one on the way.
            let index = checkout.server;
            let (pool, shared) = (&self.servers[index], &self.upstream.servers[index]);
            if self.has_usable_server_beside(index, clock::instant()) {
                return Err(self.takes_none(index));
            }
            let full = || self.full(index, since(began));
            let waiting = pool.wait(shared, bounds.waiting).ok_or_else(full)?;
            tokio::time::sleep(STREAMS_LOOK).await;
            drop(waiting);
            let now = clock::instant();
            if now.saturating_duration_since(began) >= bounds.wait {
                let lent = pool.shared.share(now, bounds.streams);
                checkout.wait_ns = since(began).saturating_sub(checkout.connect_ns);
                return lent.ok_or_else(|| self.takes_none(index));
            }
        }
    }

    /// A stream on the least loaded HTTP/2 connection, or a new connection where all are at their limit. One is opened
    /// at a time: a burst on a cold pool waits for the first and shares it. `None` if the server takes no streams now.
    async fn stream_or_none(
        &self,
        index: ServerIndex,
        began: Instant,
        checkout: &mut Checkout<B>,
    ) -> Result<Option<Rc<Http2<B>>>, AcquireError> {
        let bounds = &self.upstream.config.connections;
        let pool = &self.servers[index];
        let shared = &self.upstream.servers[index];
        let full = |wait_ns| self.full(index, wait_ns);
        let waiting = pool.wait(shared, bounds.waiting).ok_or_else(|| full(0))?;
        let turn = tokio::time::timeout(
            bounds.wait + self.upstream.config.timeouts.connect,
            pool.shared.opening.lock(),
        );
        let _turn = turn.await.map_err(|_| full(since(began)))?;
        let lent = pool.shared.share(clock::instant(), bounds.streams);
        if let Some(connection) = lent.or_else(|| self.share_beside(index, checkout)) {
            checkout.wait_ns = since(began).saturating_sub(checkout.connect_ns);
            return Ok(Some(connection));
        }
        if pool.shared.takes_none() {
            return Ok(None);
        }
        // Who had the turn before may have waited for room, too: of this request's own wait that is a part.
        let left = bounds.wait.saturating_sub(clock::instant().saturating_duration_since(began));
        let room = tokio::time::timeout(left, self.room(index)).await;
        let permit = match room.map_err(|_| full(since(began)))? {
            Some(StreamRoom::Stream(connection)) => {
                checkout.wait_ns = since(began);
                return Ok(Some(connection));
            }
            Some(StreamRoom::Permit(permit)) => permit,
            None => return Err(AcquireError::Left { wait_ns: since(began) }),
        };
        drop(waiting);
        let opening = clock::instant();
        checkout.wait_ns = opening.saturating_duration_since(began).as_nanos() as u64;
        self.must_be_there(index, checkout.wait_ns)?;
        let open = OpenConnection::new(&self.upstream.servers[index], permit);
        let share = |other: ServerIndex| self.servers[other].shared.share(clock::instant(), bounds.streams);
        let opened = connect::http2(&self.upstream, index, || self.beside(index, share)).await;
        let opened = match opened {
            // Nothing may come between, because its stream is reserved.
            Ok(ConnectOutcome::Open((other, connection), slow)) => {
                self.move_to(other, slow, checkout);
                checkout.wait_ns += since(opening);
                return Ok(Some(connection));
            }
            Ok(ConnectOutcome::New(opened, moved)) => Ok((opened, moved)),
            Err(source) => Err(source),
        };
        self.must_be_there(index, checkout.wait_ns + since(opening))?;
        let (opened, moved) = opened.map_err(|source| self.unreachable(index, source))?;
        let open = self.moved(moved, checkout).unwrap_or(open);
        checkout.connect_ns = since(opening);
        let now = clock::instant();
        let added = self.servers[checkout.server].shared.add(opened, now, self.age(), open);
        if added.is_some() {
            self.works(checkout.server);
        }
        Ok(added)
    }

    /// The server is left because it takes no streams; connections that have shown that for a while make room for one that may
    /// show something else.
    fn takes_none(&self, index: ServerIndex) -> AcquireError {
        self.servers[index].shared.close_those_that_take_none(clock::instant(), REST);
        self.unreachable(index, ConnectError::NoStreams)
    }

    /// A permit for another HTTP/2 connection or a stream that comes free on an open one, whichever is first; `None` if there
    /// are no permits any more.
    async fn room(&self, index: ServerIndex) -> Option<StreamRoom<B>> {
        let shared = &self.servers[index].shared;
        let mut permit = pin!(Arc::clone(&self.upstream.servers[index].permits).acquire_owned());
        loop {
            tokio::select! {
                biased;
                permit = &mut permit => return permit.ok().map(StreamRoom::Permit),
                () = shared.freed.notified() => {
                    let streams_max = self.upstream.config.connections.streams;
                    if let Some(connection) = shared.share(clock::instant(), streams_max) {
                        return Some(StreamRoom::Stream(connection));
                    }
                }
            }
        }
    }

    /// The way that is taken if connecting to this server takes long: to one of the same name, of the other family, that may be
    /// used and has an open connection or room for another.
    fn beside<L>(
        &self,
        index: ServerIndex,
        lend: impl FnOnce(ServerIndex) -> Option<L>,
    ) -> Option<FamilyRace<(ServerIndex, L)>> {
        let other = self.server_beside(index)?;
        if let Some(lent) = lend(other) {
            return Some(FamilyRace::Open((other, lent)));
        }
        let server = &self.upstream.servers[other];
        let permit = Arc::clone(&server.permits).try_acquire_owned().ok()?;
        Some(FamilyRace::New { index: other, open: OpenConnection::new(server, permit) })
    }

    fn server_beside(&self, index: ServerIndex) -> Option<ServerIndex> {
        let now = clock::instant();
        let fits = |other: &ServerIndex| {
            self.upstream.are_of_both_families(index, *other) && self.is_usable(*other, now)
        };
        self.servers.ids().filter(fits).min_by_key(|&other| self.servers[other].exchanges.get())
    }

    fn moved(&self, moved: Option<MovedConnection>, checkout: &mut Checkout<B>) -> Option<OpenConnection> {
        let MovedConnection { index, open, slow } = moved?;
        self.move_to(index, slow, checkout);
        Some(open)
    }

    /// A request goes to another server than the one chosen. That one rests, because other requests would wait for it, too.
    fn move_to(&self, server: ServerIndex, slow: UnfinishedAttempt, checkout: &mut Checkout<B>) {
        match slow {
            Some(source) => _ = self.unreachable(checkout.server, source),
            None => self.hangs(checkout.server),
        }
        self.go_around(server, checkout);
    }

    /// A connection to this server is not there in time, and not awaited.
    fn hangs(&self, index: ServerIndex) {
        self.balancer.rest(index, clock::instant() + REST);
        let server = &self.upstream.servers[index];
        if server.hung() {
            let (upstream, server) = (&self.upstream.config.name, &server.label);
            tracing::warn!(%upstream, %server, "connections to the server time out: the other address family is used");
        }
    }

    fn works(&self, index: ServerIndex) {
        let server = &self.upstream.servers[index];
        if server.connected() {
            let (upstream, server) = (&self.upstream.config.name, &server.label);
            tracing::info!(%upstream, %server, "connections to the server no longer time out");
        }
    }

    fn go_around(&self, server: ServerIndex, checkout: &mut Checkout<B>) {
        let address = self.upstream.servers[checkout.server].address.as_ref();
        checkout.around = address.and_then(ServerAddress::tcp).map(IpVersion::of);
        checkout.entered();
        self.exchange_over(checkout.server);
        let exchanges = &self.servers[server].exchanges;
        exchanges.set(exchanges.get() + 1);
        checkout.server = server;
    }

    /// A stream on a connection to a server of the other family, where this one has turned out not to answer: requests that have
    /// waited for a connection to it would otherwise find that out one after the other.
    fn share_beside(&self, index: ServerIndex, checkout: &mut Checkout<B>) -> Option<Rc<Http2<B>>> {
        let now = clock::instant();
        if self.is_usable(index, now) {
            return None;
        }
        let other = self.server_beside(index)?;
        let connection = self.servers[other].shared.share(now, self.upstream.config.connections.streams)?;
        self.go_around(other, checkout);
        Some(connection)
    }

    /// Keeps requests that wait for a server from reaching it after it has left its name.
    fn must_be_there(&self, index: ServerIndex, wait_ns: u64) -> Result<(), AcquireError> {
        match self.upstream.servers[index].has_left() {
            true => Err(AcquireError::Left { wait_ns }),
            false => Ok(()),
        }
    }

    /// Gives a connection that has come free to who waits for one, or keeps it.
    pub(super) fn take_back(&self, server: ServerIndex, connection: Box<Http1<B>>) {
        let mut connection = connection;
        let pool = &self.servers[server];
        let mut waiters = pool.waiters.borrow_mut();
        while let Some(waiter) = waiters.pop_front() {
            match waiter.send(connection) {
                Ok(()) => return,
                Err(back) => connection = back,
            }
        }
        // Closed, because somebody on another worker waits for its permit.
        if self.upstream.servers[server].waiting.load(Ordering::Relaxed) > 0 {
            return;
        }
        pool.idle.borrow_mut().push(connection);
    }

    fn unreachable(&self, index: ServerIndex, source: ConnectError) -> AcquireError {
        if !matches!(source, ConnectError::Descriptors(_)) {
            let now = clock::instant();
            self.balancer.rest(index, now + REST);
            self.failed(index, clock::ns_of(now));
        }
        if let Some(cause) = source.cause() {
            self.upstream.servers[index].last_connect.failed(cause);
        }
        AcquireError::Connect { server: self.upstream.servers[index].authority.clone(), index, source }
    }

    /// The maximum age, ±10 %, so that connections opened together do not all close together.
    fn age(&self) -> Duration {
        let per_mille = 900 + (self.jitter.next() % 201) as u32;
        self.upstream.config.connections.max_age / 1_000 * per_mille
    }

    /// Closes what has been idle too long, is too old, closed by the server, or is wanted by another worker. The worker calls it now and then; `workers` share the number of idle connections.
    pub fn sweep(&self, now: Instant, workers: usize) {
        let bounds = &self.upstream.config.connections;
        let keep = bounds.idle.div_ceil(workers.max(1));
        for (pool, shared) in self.servers.iter().zip(&self.upstream.servers) {
            let mut idle = pool.idle.borrow_mut();
            idle.retain_mut(|connection| {
                connection.is_usable(now)
                    && connection.is_still_kept(now)
                    && now < connection.idle_since + bounds.idle_timeout
                    && connection.is_idle()
            });
            // The oldest lie in front: the last used is the first taken.
            let wanted = shared.waiting.load(Ordering::Relaxed);
            let surplus = idle.len().saturating_sub(keep).max(wanted.min(idle.len()));
            idle.drain(..surplus);
            pool.idle_shown.set(idle.len());
            pool.shared.sweep(now, bounds.idle_timeout);
            if wanted > pool.waiting.get() {
                pool.shared.yield_one();
            }
        }
    }
}

impl<B: Body + 'static> Pool<B> {
    /// A request to this server failed.
    pub fn failed(&self, server: ServerIndex, now_ns: u64) {
        if let Some(tally) = &self.servers[server].tally {
            tally.failed();
        }
        self.upstream.failed(server, now_ns);
    }

    /// A request to this server was answered well: the answer's head came after so long, and the first of its body.
    pub fn succeeded(&self, server: ServerIndex, first_byte_ns: u64) {
        if let Some(tally) = &self.servers[server].tally {
            tally.answered(first_byte_ns);
        }
        self.upstream.health.succeeded(server, clock::now_ns);
    }

    pub(super) fn exchange_over(&self, server: ServerIndex) {
        let exchanges = &self.servers[server].exchanges;
        exchanges.set(exchanges.get().saturating_sub(1));
    }

    /// A stream has ended on a connection over HTTP/2: who waits for one may have it.
    pub(super) fn stream_over(&self, server: ServerIndex) {
        let pool = &self.servers[server];
        if pool.waiting.get() > 0 {
            pool.shared.freed.notify_one();
        } else if self.upstream.servers[server].waiting.load(Ordering::Relaxed) > 0 {
            // On another worker, for a permit.
            pool.shared.close_idle();
        }
    }

    /// A stream has ended on a connection over HTTP/2 to a server that has left: the last one closes it.
    pub(super) fn close_left(&self, server: ServerIndex) {
        self.servers[server].shared.sweep(clock::instant(), self.upstream.config.connections.idle_timeout);
    }
}

/// What `getting` comes to before `ends`.
async fn within<T>(
    ends: Option<Instant>,
    getting: impl Future<Output = Result<T, AcquireError>>,
) -> Result<T, AcquireError> {
    // Pinned, because a future that is passed on by value takes its space twice.
    let getting = pin!(getting);
    match ends {
        None => getting.await,
        Some(ends) => timeout_at(ends.into(), getting).await.unwrap_or(Err(AcquireError::Late)),
    }
}

/// Nanoseconds since then, at least one: 0 says that nothing was waited for.
fn since(began: Instant) -> u64 {
    (clock::instant().saturating_duration_since(began).as_nanos() as u64).max(1)
}

/// How often a new connection is tried where there was no descriptor for one.
const DESCRIPTOR_LOOK: Duration = Duration::from_millis(25);
/// How often the first in the line of uploads looks whether it may go on.
const UPLOAD_LOOK: Duration = Duration::from_millis(25);
/// How often a request that waits for a server which takes no streams looks whether it takes some.
const STREAMS_LOOK: Duration = Duration::from_millis(25);
/// How long a server that could not be reached is asked last.
const REST: Duration = Duration::from_secs(1);
