//! What all workers share of an upstream and of each of its servers: addresses, permits, counts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::Semaphore;

use super::config::{self, Config};
use super::health::Health;
use super::uploads::Uploads;
use crate::cause::Last;

/// What all workers share of one upstream. Kept across reloads that do not change its configuration.
#[derive(Debug)]
pub struct Upstream {
    /// Distinguishes this object from every other of this process.
    pub id: u64,
    /// What it was told.
    pub config: Config,
    /// One a configured server, in the same order.
    pub servers: Vec<Server>,
    /// How TLS is spoken to those servers that want it.
    pub(super) tls: Option<ArcSwap<rustls::ClientConfig>>,
    /// One a request that may take a connection before the first bytes of its body are there.
    pub early: Arc<Semaphore>,
    /// Which servers may be used.
    pub health: Health,
    resolving: AtomicBool,
    watching: AtomicBool,
}

/// What all workers share of one server.
#[derive(Debug)]
pub struct Server {
    /// Where it is; empty until its name resolves, and on a Unix socket.
    addresses: ArcSwap<Vec<SocketAddr>>,
    /// Counts the changes of that, so that a connection need not look its address up at each request.
    moves: AtomicU64,
    /// One a connection that may still be opened.
    pub permits: Arc<Semaphore>,
    /// Requests of any worker that wait for a connection.
    pub waiting: AtomicUsize,
    /// Open connections of all workers, those being opened included.
    pub open: AtomicUsize,
    /// Idle HTTP/1.1 connections of all workers, as of each one's last sweep.
    pub idle: AtomicUsize,
    /// How the last try to connect to it ended.
    pub last_connect: Last,
    /// `host:port` or `unix:/path` as the configuration has it: for logs and errors.
    pub authority: String,
    /// What the server is called in `Host`; "localhost" on a Unix socket.
    pub host: String,
    /// Requests' bodies on their way to it.
    pub(super) uploads: Uploads,
}

impl Upstream {
    /// A new one whose literal addresses are set; names wait for [`super::resolve`].
    pub fn new(config: Config, tls: Option<Arc<rustls::ClientConfig>>) -> Upstream {
        let servers: Vec<_> = config.servers.iter().map(|server| Server::new(server, &config)).collect();
        let names = servers.iter().map(|server| server.authority.clone());
        let health = Health::new(&config.name, config.health.clone(), names);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let early = config.servers.len() * (config.connections.max / EARLY_PART).max(1);
        let early = Arc::new(Semaphore::new(early.min(Semaphore::MAX_PERMITS)));
        let tls = tls.map(ArcSwap::new);
        let (resolving, watching) = (AtomicBool::new(false), AtomicBool::new(false));
        Upstream { id, config, servers, tls, early, health, resolving, watching }
    }

    /// Goes on with what is known of servers that another configuration of this upstream has too.
    pub fn inherit(&self, before: &Upstream, now_ns: u64) {
        let is_same =
            |one: &config::Server, other: &config::Server| (one.tls, &one.place) == (other.tls, &other.place);
        let index_before = |index: usize| {
            let server = &self.config.servers[index];
            before.config.servers.iter().position(|other| is_same(server, other))
        };
        self.health.inherit(&before.health, index_before, now_ns);
    }

    /// New connections are made with this from now on; those there are stay.
    pub fn renew_tls(&self, tls: rustls::ClientConfig) {
        if let Some(current) = &self.tls {
            current.store(Arc::new(tls));
        }
    }

    /// True once: the caller that gets it keeps the names resolved.
    pub fn begin_resolving(&self) -> bool {
        !self.resolving.swap(true, Ordering::Relaxed)
    }

    /// True once: the caller that gets it keeps watch over the servers. Never where there is nothing to watch.
    pub fn begin_watching(&self) -> bool {
        self.health.is_watched() && !self.watching.swap(true, Ordering::Relaxed)
    }
}

impl Server {
    fn new(server: &config::Server, upstream: &Config) -> Server {
        Server {
            addresses: ArcSwap::from_pointee(Vec::from_iter(server.literal())),
            moves: AtomicU64::new(0),
            permits: Arc::new(Semaphore::new(upstream.connections.max)),
            waiting: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            last_connect: Last::default(),
            authority: server.shown(),
            host: server.authority(),
            uploads: Uploads::default(),
        }
    }
}

impl Server {
    /// Where it is now.
    pub fn addresses(&self) -> Arc<Vec<SocketAddr>> {
        self.addresses.load_full()
    }

    /// It is elsewhere from now on: connections to where it is no more serve no new request.
    pub(super) fn move_to(&self, addresses: Vec<SocketAddr>) {
        self.addresses.store(Arc::new(addresses));
        self.moves.fetch_add(1, Ordering::Release);
    }

    pub(super) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }
}

/// Numbers upstreams.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// One in so many connections may be taken by a request whose body has only begun to come.
const EARLY_PART: usize = 8;
