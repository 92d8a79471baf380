//! An upstream as it is now. Because its servers come and go with its names, what workers use is one immutable set of
//! servers ([`Upstream`]), replaced whole; this is the place where the newest one is found. It asks no name server.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};

use super::config::{self, Config, ServerLocation};
use super::dns_answers::DnsAnswers;
use super::health::HealthHandover;
use super::ids::{ConfiguredIndex, ServerIndex};
use super::server::{ServerAddress, ServerEndpoint, Upstream};
use base::clock;
use base::ids::IdVec;
use metrics::IpVersion;

/// One configured upstream. Kept across reloads that do not change its configuration.
#[derive(Debug)]
pub struct LiveUpstream {
    /// Distinguishes this object from every other of this process.
    pub id: u64,
    /// What it was told: one server a name.
    pub config: Config,
    current: ArcSwap<Upstream>,
    names: Mutex<IdVec<ConfiguredIndex, ResolvedName>>,
    moves: Arc<ServerChanges>,
    resolving: AtomicBool,
    watching: AtomicBool,
}

/// What is known of one configured server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedName {
    /// Where it is: the last good answers.
    pub endpoints: Vec<ServerEndpoint>,
    /// What those come from.
    pub(super) heard: Arc<DnsAnswers>,
    /// Why the last question, or a part of it, brought no answer; `None` if it did.
    pub failure: Option<NameFailure>,
    /// The failure is of a part.
    pub(super) is_in_part: bool,
    /// The version of IP whose addresses the answer has, and that leads nowhere from here.
    pub left_out: Option<IpVersion>,
}

/// A name, or a part of it, has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFailure {
    /// Why the last question brought none.
    pub why: String,
    /// Since when, nanoseconds.
    pub since_ns: u64,
}

/// One address of a name, as a process tells it to its successor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RememberedAddress {
    upstream: String,
    /// The configured name.
    of: String,
    /// What the server is called.
    host: String,
    address: SocketAddr,
    weight: u32,
}

/// How one server is, as a process tells it to its successor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RememberedServer {
    upstream: String,
    address: ServerAddress,
    known: HealthHandover,
}

impl RememberedAddress {
    fn endpoint(&self) -> ServerEndpoint {
        let place = ServerLocation::Tcp { host: self.host.clone(), port: self.address.port() };
        ServerEndpoint { place, address: ServerAddress::Tcp(self.address), weight: self.weight }
    }
}

/// Counts the changes of all upstreams' servers, so that a worker notices one by one load.
#[derive(Debug, Default)]
pub struct ServerChanges(AtomicU64);

impl ServerChanges {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl LiveUpstream {
    /// A new one. It goes on with what `before`, another configuration of the same upstream, knows: addresses of names, and
    /// how servers are.
    pub fn new(
        config: Config,
        tls: Option<Arc<rustls::ClientConfig>>,
        moves: &Arc<ServerChanges>,
        before: Option<(&LiveUpstream, u64)>,
    ) -> Arc<LiveUpstream> {
        let names: IdVec<_, ResolvedName> =
            config.servers.iter().map(|server| known(server, before)).collect();
        let tls = tls.map(|tls| Arc::new(ArcSwap::new(tls)));
        Arc::new_cyclic(|live: &Weak<LiveUpstream>| {
            let endpoints = names.iter().map(|name| name.endpoints.as_slice());
            let upstream = Upstream::with(&config, tls, endpoints, None, Weak::clone(live));
            if let Some((before, now_ns)) = before {
                upstream.inherit(&before.load(), now_ns);
            }
            LiveUpstream {
                id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
                current: ArcSwap::from_pointee(upstream),
                names: Mutex::new(names),
                moves: Arc::clone(moves),
                resolving: AtomicBool::new(false),
                watching: AtomicBool::new(false),
                config,
            }
        })
    }

    /// Its servers now.
    pub fn load(&self) -> Arc<Upstream> {
        self.current.load_full()
    }

    /// What is known of each configured server, in their order.
    pub fn names(&self) -> Vec<ResolvedName> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).to_vec()
    }

    /// A configured server, and what is known of it.
    pub(super) fn configured(&self, server: ConfiguredIndex) -> (&config::ConfiguredServer, ResolvedName) {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.config.servers[server.index()], names[server].clone())
    }

    /// What is known of a configured server has changed. Servers that are new are used from the next request on; those
    /// that are gone get none any more. Returns the new set if there is one.
    pub(super) fn learn(
        self: &Arc<LiveUpstream>,
        server: ConfiguredIndex,
        name: ResolvedName,
        now_ns: u64,
    ) -> Option<Arc<Upstream>> {
        // Held to the end, so that one change comes after the other.
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = names[server].endpoints == name.endpoints;
        names[server] = name;
        if is_same {
            return None;
        }
        let before = self.load();
        let endpoints = names.iter().map(|name| name.endpoints.as_slice());
        let mut next =
            Upstream::with(&self.config, before.tls.clone(), endpoints, Some(&before), Arc::downgrade(self));
        next.go_on_from(&before, now_ns);
        let next = Arc::new(next);
        self.current.store(Arc::clone(&next));
        // In this order, so that a worker that sees the count sees the servers, and one that is told that a server has
        // left sees the count.
        self.moves.0.fetch_add(1, Ordering::Release);
        before.leave_for(&next);
        Some(next)
    }

    /// What another process can go on with.
    pub fn remember(&self) -> Vec<RememberedAddress> {
        let mut all = Vec::new();
        for (server, name) in self.config.servers.iter().zip(self.names()) {
            let Some(of) = server.unresolved() else { continue };
            all.extend(name.endpoints.into_iter().filter_map(|endpoint| {
                let (ServerLocation::Tcp { host, .. }, ServerAddress::Tcp(address)) =
                    (endpoint.place, endpoint.address)
                else {
                    return None;
                };
                let (upstream, of) = (self.config.name.clone(), of.to_owned());
                Some(RememberedAddress { upstream, of, host, address, weight: endpoint.weight })
            }));
        }
        all
    }

    /// Goes on with what another process knew, until a name server says something else.
    pub fn recall(self: &Arc<LiveUpstream>, remembered: &[RememberedAddress]) {
        for (index, server) in (0..).map(ConfiguredIndex::new).zip(&self.config.servers) {
            let Some(of) = server.unresolved() else { continue };
            let is_meant = |it: &&RememberedAddress| it.upstream == self.config.name && it.of == of;
            let is_same_port = |it: &&RememberedAddress| match &server.place {
                ServerLocation::Tcp { port, .. } => *port == it.address.port(),
                ServerLocation::Service(_) | ServerLocation::Unix(_) => true,
            };
            let known = remembered.iter().filter(is_meant).filter(is_same_port);
            let mut endpoints: Vec<ServerEndpoint> = known.map(RememberedAddress::endpoint).collect();
            // Two configured servers may have one name.
            endpoints.sort_by(|one, other| one.address.cmp(&other.address));
            endpoints.dedup_by(|one, other| one.address == other.address);
            if !endpoints.is_empty() {
                self.learn(index, ResolvedName { endpoints, ..ResolvedName::default() }, clock::now_ns());
            }
        }
    }

    /// How the servers are of which anything is known, for another process.
    pub fn remember_servers(&self) -> Vec<RememberedServer> {
        let upstream = self.load();
        let remembered = |(index, known): (ServerIndex, HealthHandover)| {
            let address = upstream.servers.get(index)?.address.clone()?;
            Some(RememberedServer { upstream: self.config.name.clone(), address, known })
        };
        upstream.health.remember().into_iter().filter_map(remembered).collect()
    }

    /// Goes on with what another process knew of the servers: one that is ejected or unhealthy gets no request.
    pub fn recall_servers(&self, remembered: &[RememberedServer]) {
        let upstream = self.load();
        let known = |index: ServerIndex| {
            let address = upstream.servers[index].address.as_ref();
            let is_meant =
                |it: &&RememberedServer| it.upstream == self.config.name && Some(&it.address) == address;
            remembered.iter().find(is_meant).map(|it| it.known.clone())
        };
        upstream.health.recall(known, clock::now_ns());
    }

    /// New connections are made with this from now on; those there are stay.
    pub fn renew_tls(&self, tls: rustls::ClientConfig) {
        if let Some(current) = &self.load().tls {
            current.store(Arc::new(tls));
        }
    }

    /// True once: the caller that gets it keeps the names resolved.
    pub fn begin_resolving(&self) -> bool {
        !self.resolving.swap(true, Ordering::Relaxed)
    }

    /// True once: the caller that gets it keeps watch over the servers. Never if there is nothing to watch.
    pub fn begin_watching(&self) -> bool {
        self.load().health.is_watched() && !self.watching.swap(true, Ordering::Relaxed)
    }

    /// Whether the servers are watched already.
    pub(super) fn is_watching(&self) -> bool {
        self.watching.load(Ordering::Relaxed)
    }
}

/// What is known of a configured server from the start: a literal address, or what another configuration knew of the name.
fn known(server: &config::ConfiguredServer, before: Option<(&LiveUpstream, u64)>) -> ResolvedName {
    if server.unresolved().is_none() {
        return ResolvedName {
            endpoints: Vec::from_iter(ServerEndpoint::of_server(server)),
            ..ResolvedName::default()
        };
    }
    let is_same = |other: &config::ConfiguredServer| (other.tls, &other.place) == (server.tls, &server.place);
    before
        .and_then(|(before, _)| {
            let index = before.config.servers.iter().position(is_same)?;
            before.names().get(index).cloned()
        })
        .unwrap_or_default()
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    use http_body_util::Empty;

    use super::*;
    use crate::Pool;
    use net::trust::Trust;
    use policy::retry::Retry;

    /// The name has the addresses from `first` on.
    fn name(first: u32, count: u32) -> ResolvedName {
        let endpoint = |bits: u32| ServerEndpoint {
            place: ServerLocation::Tcp { host: "u.test".to_owned(), port: 80 },
            address: ServerAddress::Tcp((Ipv4Addr::from_bits(bits), 80).into()),
            weight: 1,
        };
        ResolvedName { endpoints: (first..first + count).map(endpoint).collect(), ..ResolvedName::default() }
    }

    #[test]
    fn a_change_of_many_servers_takes_the_time_of_a_look_at_each() {
        const COUNT: u32 = 100_000;
        let place = ServerLocation::Tcp { host: "u.test".to_owned(), port: 80 };
        let config = Config {
            name: "u".to_owned(),
            servers: vec![config::ConfiguredServer { tls: false, place, weight: 1 }],
            balance: config::Balance::RoundRobin,
            sticky: None,
            http: config::HttpVersion::default(),
            tls: Trust::default(),
            connections: config::PoolBounds::default(),
            timeouts: config::UpstreamTimeouts::default(),
            retry: Retry::default(),
            retry_budget_percent: config::RETRY_BUDGET_PERCENT,
            uploads: config::UploadConfig::default(),
            host: config::HostHeader::default(),
            health: config::HealthConfig::default(),
        };
        let live = LiveUpstream::new(config, None, &Arc::default(), None);
        let began = Instant::now();
        let before = live.learn(ConfiguredIndex::new(0), name(0, COUNT), 0).expect("the servers are others");
        let pool: Rc<Pool<Empty<bytes::Bytes>>> = Rc::new(Pool::new(Arc::clone(&before), 7));
        let after =
            live.learn(ConfiguredIndex::new(0), name(COUNT / 2, COUNT), 0).expect("the servers are others");
        drop(pool.renewed(Arc::clone(&after), 7));
        let half = COUNT as usize / 2;
        // What stays is the same object at another place; what is gone is told so.
        for (index, server) in before.servers.iter().enumerate() {
            assert_eq!(after.index_of(server).map(ServerIndex::index), index.checked_sub(half));
            assert_eq!(server.has_left(), index < half);
        }
        assert_eq!(after.leaving.len(), half);
        // So long is enough, because only a comparison of each with all others would take minutes.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
