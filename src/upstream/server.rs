//! What all workers share of an upstream and of each of its servers: addresses, permits, counts.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::config::{self, Config, ServerLocation};
use super::health::{HealthState, UpstreamHealth};
use super::ids::{ConfiguredIndex, ServerIndex};
use super::live::LiveUpstream;
use super::sticky::StickyCookies;
use super::tally::{Tallies, TallyCounts};
use super::uploads::Uploads;
use base::cause::LastCause;
use base::ids::IdVec;

/// One set of servers of one upstream, which all workers share. It never changes: when a name has other addresses, another
/// set takes its place (see [`LiveUpstream`]), and a request keeps the one that it began with.
#[derive(Debug)]
pub struct Upstream {
    /// Distinguishes this set from every other of this process.
    pub id: u64,
    /// What it was told, with the servers of this set.
    pub config: Config,
    /// One an address, in the order of `config.servers`.
    pub servers: IdVec<ServerIndex, Arc<SharedServer>>,
    /// Where each server stands among them. Because a set of many is made anew at each change of a name, no server is
    /// looked for by comparing it with all others.
    positions: HashMap<ServerId, ServerIndex>,
    /// Servers of former sets that some request may still use.
    pub leaving: Vec<Weak<SharedServer>>,
    /// How TLS is spoken to those servers that want it.
    pub(super) tls: Option<Arc<ArcSwap<rustls::ClientConfig>>>,
    /// One a request that may take a connection before the first bytes of its body are there.
    pub early: Arc<Semaphore>,
    pub health: UpstreamHealth,
    /// The cookies that keep clients at their servers.
    pub sticky: Option<StickyCookies>,
    live: Weak<LiveUpstream>,
}

/// A server, distinguished from every other of this process, in whatever set it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ServerId(u64);

/// What all workers share of one server: one address.
#[derive(Debug)]
pub struct SharedServer {
    id: ServerId,
    /// Where it is; `None` if its name has no address.
    pub address: Option<ServerAddress>,
    /// Which of the configured servers it comes from.
    pub origin: ConfiguredIndex,
    has_left: AtomicBool,
    is_checked: AtomicBool,
    /// One a connection that may still be opened.
    pub permits: Arc<Semaphore>,
    /// Requests of any worker that wait for a connection.
    pub waiting: AtomicUsize,
    /// Open connections of all workers, those being opened included.
    pub open: AtomicUsize,
    /// Idle HTTP/1.1 connections of all workers, as of each one's last sweep.
    pub idle: AtomicUsize,
    /// How the last try to connect to it ended.
    pub last_connect: LastCause,
    /// Connections to it hang, so that servers of the same name and the other version of IP are used. No request fails, so
    /// nobody would see it otherwise.
    hangs: AtomicBool,
    /// `host:port` or `unix:/path` as the configuration has it, or an SRV record: for errors.
    pub authority: String,
    /// What logs call it: its authority, and its address if that says more.
    pub label: String,
    /// What the server is called in `Host`; "localhost" on a Unix socket.
    pub host: String,
    /// The name that its certificate is for, unless `tls` says otherwise.
    pub(super) tls_name: String,
    /// Requests' bodies on their way to it.
    pub(super) uploads: Uploads,
    /// What its answers are like, if servers are compared.
    pub tallies: Tallies,
}

/// Where connections to a server go.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ServerAddress {
    /// An IP address and a port.
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl ServerAddress {
    /// The IP address and port, if that is what it is.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            ServerAddress::Tcp(address) => Some(*address),
            ServerAddress::Unix(_) => None,
        }
    }
}

/// One address that a configured server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEndpoint {
    /// The configured place, or that of an SRV record.
    pub place: ServerLocation,
    pub address: ServerAddress,
    /// Its share against the upstream's others.
    pub weight: u32,
}

impl ServerEndpoint {
    /// That of a server which needs no name server.
    pub fn of_server(server: &config::ConfiguredServer) -> Option<ServerEndpoint> {
        let address = match &server.place {
            ServerLocation::Unix(path) => ServerAddress::Unix(path.clone()),
            ServerLocation::Tcp { .. } | ServerLocation::Service(_) => ServerAddress::Tcp(server.literal()?),
        };
        Some(ServerEndpoint { place: server.place.clone(), address, weight: server.weight })
    }
}

impl Upstream {
    /// A set of its own whose servers have literal addresses; names have none.
    pub fn new(config: Config, tls: Option<Arc<rustls::ClientConfig>>) -> Upstream {
        let tls = tls.map(|tls| Arc::new(ArcSwap::new(tls)));
        let of_server = |server| Vec::from_iter(ServerEndpoint::of_server(server));
        let endpoints: Vec<Vec<ServerEndpoint>> = config.servers.iter().map(of_server).collect();
        Upstream::with(&config, tls, endpoints.iter().map(Vec::as_slice), None, Weak::new())
    }

    /// The set of these endpoints, given by configured server. Servers that `before` has too are the same objects, and so
    /// keep their connections. If nothing has an address, configured servers stand there without one.
    pub(super) fn with<'a>(
        config: &Config,
        tls: Option<Arc<ArcSwap<rustls::ClientConfig>>>,
        endpoints: impl Iterator<Item = &'a [ServerEndpoint]>,
        before: Option<&Upstream>,
        live: Weak<LiveUpstream>,
    ) -> Upstream {
        let known = before.map(Upstream::known).unwrap_or_default();
        let origins = (0..).map(ConfiguredIndex::new);
        let mut list = Vec::new();
        let mut servers: Vec<Arc<SharedServer>> = Vec::new();
        for ((origin, configured), endpoints) in origins.clone().zip(&config.servers).zip(endpoints) {
            for endpoint in endpoints {
                let (place, weight) = (endpoint.place.clone(), endpoint.weight);
                let server = config::ConfiguredServer { tls: configured.tls, place, weight };
                let same = known.get(&(origin, &endpoint.address, &endpoint.place));
                let address = || Some(endpoint.address.clone());
                let fresh = || Arc::new(SharedServer::new(origin, address(), &server, config));
                servers.push(same.map_or_else(fresh, |same| Arc::clone(same)));
                list.push(server);
            }
        }
        if servers.is_empty() {
            let without = origins.zip(&config.servers);
            servers.extend(
                without.map(|(origin, server)| Arc::new(SharedServer::new(origin, None, server, config))),
            );
            list.clone_from(&config.servers);
        }
        let config = Config { servers: list, ..config.clone() };
        let health = UpstreamHealth::new(
            &config.name,
            config.health.clone(),
            servers.iter().map(|it| it.label.clone()),
        );
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let early = config.servers.len() * (config.connections.max / EARLY_PART).max(1);
        let early = Arc::new(Semaphore::new(early.min(Semaphore::MAX_PERMITS)));
        let leaving = before.map(|before| before.leaving_after(&servers)).unwrap_or_default();
        let labelled: Vec<_> =
            servers.iter().zip(&config.servers).map(|(it, of)| (&*it.label, of.tls)).collect();
        let sticky = config.sticky.as_ref().map(|sticky| StickyCookies::new(sticky, &labelled));
        let positions = servers.iter().map(|server| server.id).zip((0..).map(ServerIndex::new)).collect();
        let servers = servers.into();
        Upstream { id, config, servers, positions, leaving, tls, early, health, sticky, live }
    }

    /// Whether it is, or was, the set of servers of this upstream.
    pub(super) fn is_of(&self, live: &Arc<LiveUpstream>) -> bool {
        std::ptr::eq(self.live.as_ptr(), Arc::as_ptr(live))
    }

    /// Whether none of its servers has an address.
    pub fn is_unresolved(&self) -> bool {
        self.servers.iter().all(|server| server.address.is_none())
    }

    /// Goes on with what is known of servers that another configuration of this upstream has too.
    pub(super) fn inherit(&self, before: &Upstream, now_ns: u64) {
        let key = |(config, server): (&config::ConfiguredServer, &Arc<SharedServer>)| {
            (config.tls, config.place.clone(), server.address.clone())
        };
        let keys = |upstream: &Upstream| {
            upstream.config.servers.iter().zip(&upstream.servers).map(key).collect::<Vec<_>>()
        };
        let mut known: HashMap<_, ServerIndex> = HashMap::new();
        for (index, key) in before.servers.ids().zip(keys(before)) {
            known.entry(key).or_insert(index);
        }
        let wanted: IdVec<ServerIndex, _> = keys(self).into();
        self.health.inherit(&before.health, |index| known.get(&wanted[index]).copied(), now_ns);
    }

    /// Goes on with what is known of the servers that the set before has too.
    pub(super) fn go_on_from(&mut self, before: &Upstream, now_ns: u64) {
        let is_first = before.is_unresolved();
        let servers = &self.servers;
        self.health.go_on_from(&before.health, |index| before.index_of(&servers[index]), is_first, now_ns);
    }

    /// Another set has taken the place of this one: servers that it does not have get no new request, not even those
    /// that hold this set.
    pub(super) fn leave_for(&self, next: &Upstream) {
        for (index, server) in self.servers.with_ids() {
            if next.index_of(server).is_none() {
                server.has_left.store(true, Ordering::Release);
                // Who waits for a connection to it is told at once, and goes to one of the others.
                server.permits.close();
                self.health.leave(index);
            }
        }
    }

    /// The state of each server, in order.
    pub fn states(&self, now_ns: u64) -> Vec<HealthState> {
        let known = self.servers.iter().zip(self.health.states(now_ns));
        let state = |(server, state): (&Arc<SharedServer>, HealthState)| match server.address {
            Some(_) => state,
            None => HealthState::Unresolved,
        };
        known.map(state).collect()
    }

    /// The index of this server, if it is one of them.
    pub fn index_of(&self, server: &Arc<SharedServer>) -> Option<ServerIndex> {
        self.positions.get(&server.id).copied()
    }

    /// What it is configured to be, with the place of this server.
    pub fn configured(&self, server: ServerIndex) -> &config::ConfiguredServer {
        &self.config.servers[server.index()]
    }

    /// Whether these are two addresses of one name, of different families.
    pub(super) fn are_of_both_families(&self, one: ServerIndex, other: ServerIndex) -> bool {
        let place = |index: ServerIndex| (self.servers[index].origin, &self.configured(index).place);
        let is_v4 = |index: ServerIndex| Some(self.servers[index].address.as_ref()?.tcp()?.is_ipv4());
        place(one) == place(other)
            && matches!((is_v4(one), is_v4(other)), (Some(true), Some(false)) | (Some(false), Some(true)))
    }

    /// A request to this server failed. The set in force is told, which may be a newer one than the request's.
    pub fn failed(&self, server: ServerIndex, now_ns: u64) {
        match self.live.upgrade().map(|live| live.load()).filter(|newest| newest.id != self.id) {
            None => self.health.failed(server, now_ns),
            Some(newest) => {
                if let Some(index) = newest.index_of(&self.servers[server]) {
                    newest.health.failed(index, now_ns);
                }
            }
        }
    }

    /// Compares what the servers' answers were like since the last time, and leaves out those that are clearly worse.
    pub(super) fn compare(&self, now_ns: u64) {
        let seen: IdVec<ServerIndex, TallyCounts> =
            self.servers.iter().map(|server| server.tallies.end_interval()).collect();
        self.health.compare(&seen, now_ns);
    }

    /// Its servers by what makes them the same in another set: the configured server, the address, the place.
    fn known(&self) -> HashMap<(ConfiguredIndex, &ServerAddress, &ServerLocation), &Arc<SharedServer>> {
        let servers = self.servers.iter().zip(&self.config.servers);
        servers
            .filter_map(|(server, config)| {
                Some(((server.origin, server.address.as_ref()?, &config.place), server))
            })
            .collect()
    }

    /// The servers that some request may still use once these are in force.
    fn leaving_after(&self, servers: &[Arc<SharedServer>]) -> Vec<Weak<SharedServer>> {
        let there: HashSet<ServerId> = servers.iter().map(|server| server.id).collect();
        let gone = self.servers.iter().filter(|server| !there.contains(&server.id)).map(Arc::downgrade);
        let before = self.leaving.iter().filter(|server| server.strong_count() > 0).cloned();
        before.chain(gone).collect()
    }
}

impl SharedServer {
    fn new(
        origin: ConfiguredIndex,
        address: Option<ServerAddress>,
        server: &config::ConfiguredServer,
        upstream: &Config,
    ) -> SharedServer {
        let authority = server.shown();
        SharedServer {
            id: ServerId(NEXT_ID.fetch_add(1, Ordering::Relaxed)),
            label: label(&authority, address.as_ref()),
            address,
            origin,
            has_left: AtomicBool::new(false),
            is_checked: AtomicBool::new(false),
            permits: Arc::new(Semaphore::new(upstream.connections.max)),
            waiting: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            last_connect: LastCause::default(),
            hangs: AtomicBool::new(false),
            authority,
            host: server.authority(),
            tls_name: upstream.servers[origin.index()].name().to_owned(),
            uploads: Uploads::default(),
            tallies: Tallies::default(),
        }
    }

    /// Whether its name does not lead to it any more: connections to it serve no new request.
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// Whether connections to it hang, as far as anybody has tried.
    pub fn hangs(&self) -> bool {
        self.hangs.load(Ordering::Relaxed)
    }

    /// A connection was not there in time. Returns whether that is new.
    pub(super) fn hung(&self) -> bool {
        !self.hangs.swap(true, Ordering::Relaxed)
    }

    /// A connection has come to be. Returns whether that ends a time in which they hung.
    pub(super) fn connected(&self) -> bool {
        self.last_connect.works();
        self.hangs() && self.hangs.swap(false, Ordering::Relaxed)
    }

    /// True once: the caller that gets it checks the server.
    pub(super) fn begin_checking(&self) -> bool {
        !self.is_checked.swap(true, Ordering::Relaxed)
    }
}

fn label(authority: &str, address: Option<&ServerAddress>) -> String {
    match address.and_then(ServerAddress::tcp) {
        Some(address) if !authority.contains(&address.ip().to_string()) => {
            format!("{authority} ({})", address.ip())
        }
        _ => authority.to_owned(),
    }
}

/// Numbers sets of servers, and servers.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// One in so many connections may be taken by a request whose body has only begun to come.
const EARLY_PART: usize = 8;
