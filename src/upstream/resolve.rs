//! Names of servers into addresses, on the control runtime: asked for again when an answer has run out. No request waits for
//! it. While there is no answer the last good one stays; a name that never had one leaves its server without an address,
//! which a request learns at once.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::check::watch;
use super::config::{self, Place};
use super::dns::{Answer, Dns, Error, Service};
use super::live::{Failure, Live, Name};
use super::shared::{Address, Endpoint};
use crate::clock;
use crate::metrics::IpVersion;

/// Keeps one name of an upstream resolved, and says when it begins and ceases to have no answer.
pub struct Resolver {
    live: Weak<Live>,
    dns: Arc<Dns>,
    /// Which of the configured servers.
    index: usize,
    /// It has been said that the name has too many addresses.
    is_cut: bool,
}

impl Resolver {
    /// One for each name of an upstream; none has been asked for yet.
    pub fn all(live: &Arc<Live>, dns: &Arc<Dns>) -> Vec<Resolver> {
        let names =
            live.config.servers.iter().enumerate().filter(|(_, server)| server.unresolved().is_some());
        names
            .map(|(index, _)| Resolver {
                live: Arc::downgrade(live),
                dns: Arc::clone(dns),
                index,
                is_cut: false,
            })
            .collect()
    }

    /// Asks once. Returns when to ask again; `None` if nobody uses the upstream any more.
    pub async fn resolve(&mut self) -> Option<Instant> {
        let live = self.live.upgrade()?;
        let server = &live.config.servers[self.index];
        let asked = tokio::time::timeout(WITHIN, endpoints(&self.dns, server)).await;
        let asked = asked.map_err(|_| format!("no answer within {WITHIN:?}"));
        let known = live.names().swap_remove(self.index);
        let (name, again) = match asked.and_then(|asked| asked.map_err(|error| error.to_string())) {
            Err(failure) => {
                if known.failure.is_none() {
                    tracing::warn!(upstream = %live.config.name, server = %server.shown(), error = %failure, "name does not resolve");
                }
                let since_ns = known.failure.as_ref().map_or_else(clock::now_ns, |failure| failure.since_ns);
                let failure = Failure { why: failure, since_ns };
                (Name { failure: Some(failure), ..known }, clock::instant() + RETRY)
            }
            Ok(found) => {
                self.say(&live, &known, &found);
                (Name { endpoints: found.endpoints, failure: None, left_out: found.left_out }, found.until)
            }
        };
        let before = live.load();
        if let Some(now) = live.learn(self.index, name, clock::now_ns()) {
            watch::welcome(&live, &before, &now);
        }
        Some(again)
    }

    /// Asks again and again, until the last user of the upstream is gone. `again`: when first.
    pub async fn keep_resolving(mut self, mut again: Instant) {
        loop {
            tokio::time::sleep_until(again.into()).await;
            match self.resolve().await {
                Some(next) => again = next,
                None => return,
            }
        }
    }

    fn say(&mut self, live: &Live, known: &Name, found: &Found) {
        let Found { endpoints, is_cut, left_out, .. } = found;
        let (upstream, server) = (&live.config.name, live.config.servers[self.index].shown());
        if *is_cut && !std::mem::replace(&mut self.is_cut, true) {
            tracing::warn!(%upstream, %server, max = ADDRESSES_MAX, "name has too many addresses, the others are left out");
        }
        let addresses: Vec<_> = endpoints.iter().filter_map(|endpoint| endpoint.address.tcp()).collect();
        if known.failure.is_some() {
            tracing::info!(%upstream, %server, ?addresses, "name resolves again");
        } else if known.endpoints != *endpoints {
            tracing::info!(%upstream, %server, ?addresses, "resolved");
        }
        match (known.left_out, left_out) {
            (before, Some(version)) if before != Some(*version) => {
                let family = version.word();
                tracing::info!(%upstream, %server, family, "addresses of this family cannot be reached, and are left out");
            }
            (Some(version), None) => {
                let family = version.word();
                tracing::info!(%upstream, %server, family, "addresses of this family are not left out any more");
            }
            _ => {}
        }
    }
}

/// What a name leads to.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    endpoints: Vec<Endpoint>,
    /// How long this holds.
    until: Instant,
    /// Some were left out, because there are too many.
    is_cut: bool,
    /// Those of this version were left out, because they lead nowhere.
    left_out: Option<IpVersion>,
}

impl Found {
    /// Without the addresses that lead nowhere.
    async fn with_a_way(self) -> Found {
        let (endpoints, left_out) = of_families_with_a_way(self.endpoints).await;
        Found { endpoints, left_out, ..self }
    }
}

async fn endpoints(dns: &Arc<Dns>, server: &config::Server) -> Result<Found, Error> {
    match &server.place {
        Place::Unix(_) => Err(Error::Empty),
        Place::Service(name) => of_services(dns, server, name).await,
        Place::Tcp { host, port } => {
            let Answer { found, ttl } = dns.addresses(host).await?;
            let until = until(ttl);
            let found = found.into_iter().map(|ip| Endpoint {
                place: server.place.clone(),
                address: Address::Tcp((ip, *port).into()),
                weight: server.weight,
            });
            let (endpoints, is_cut) = tidy(found.collect());
            if endpoints.is_empty() {
                return Err(Error::Empty);
            }
            Ok(Found { endpoints, until, is_cut, left_out: None }.with_a_way().await)
        }
    }
}

/// The servers of the first priority of which one can be reached. If none can, those of the first.
async fn of_services(dns: &Arc<Dns>, server: &config::Server, name: &str) -> Result<Found, Error> {
    let Answer { found: mut services, mut ttl } = dns.services(name).await?;
    services.sort_by(|one, other| (one.priority, &one.target).cmp(&(other.priority, &other.target)));
    let is_cut = services.len() > ADDRESSES_MAX;
    services.truncate(ADDRESSES_MAX);
    let mut targets = JoinSet::new();
    for service in services {
        let dns = Arc::clone(dns);
        // It is a whole name: no search domain belongs behind it.
        targets.spawn(async move { (dns.addresses(&format!("{}.", service.target)).await, service) });
    }
    let mut all: Vec<(u16, Endpoint)> = Vec::new();
    let mut failure = Error::Empty;
    while let Some(Ok((answer, service))) = targets.join_next().await {
        match answer {
            Ok(answer) => {
                ttl = ttl.min(answer.ttl);
                let endpoints = answer.found.into_iter().map(|ip| of_service(server, &service, ip));
                all.extend(endpoints.map(|endpoint| (service.priority, endpoint)));
            }
            Err(error) => failure = error,
        }
    }
    let until = until(ttl);
    all.sort_by_key(|(priority, _)| *priority);
    let mut first = None;
    for group in all.chunk_by(|(one, _), (other, _)| one == other) {
        let is_only = group.len() == all.len();
        let (group, is_group_cut) = tidy(group.iter().map(|(_, endpoint)| endpoint.clone()).collect());
        if group.is_empty() {
            continue;
        }
        let found = Found { endpoints: group, until, is_cut: is_cut || is_group_cut, left_out: None };
        if is_only || is_reachable(&found.endpoints).await {
            return Ok(found.with_a_way().await);
        }
        first = first.or(Some(found));
    }
    first.ok_or(failure)
}

/// An address of an SRV record's target. Weights multiply: that of the record, and that of the configuration. RFC 2782: one
/// of weight 0 is to be had rarely, but is to be had.
fn of_service(server: &config::Server, service: &Service, ip: IpAddr) -> Endpoint {
    let weight = server.weight.saturating_mul(u32::from(service.weight).max(1));
    let place = Place::Tcp { host: service.target.clone(), port: service.port };
    Endpoint { place, address: Address::Tcp((ip, service.port).into()), weight }
}

/// Each address once, without those no server can have, in an order that does not depend on the answer's: name servers
/// turn their records to spread connections. Says whether there were too many.
fn tidy(mut endpoints: Vec<Endpoint>) -> (Vec<Endpoint>, bool) {
    endpoints.retain(|endpoint| {
        let ip = endpoint.address.tcp().map(|address| address.ip());
        ip.is_some_and(|ip| !ip.is_unspecified() && !ip.is_multicast() && ip != IpAddr::from([255; 4]))
    });
    endpoints.sort_by(|one, other| (&one.address, &one.place).cmp(&(&other.address, &other.place)));
    endpoints.dedup_by(|one, other| one.address == other.address);
    let is_cut = endpoints.len() > ADDRESSES_MAX;
    endpoints.truncate(ADDRESSES_MAX);
    (endpoints, is_cut)
}

/// The addresses without those of a family that leads nowhere from here, if the other one does: many machines have IPv6
/// addresses and no way to the world. Both are tried at once, each with the time that RFC 8305 (Happy Eyeballs) gives the
/// first one alone, but here and not by requests. With the version of IP that is left out.
async fn of_families_with_a_way(endpoints: Vec<Endpoint>) -> (Vec<Endpoint>, Option<IpVersion>) {
    let is_v4 = |endpoint: &Endpoint| endpoint.address.tcp().is_some_and(|address| address.is_ipv4());
    let (v4, v6): (Vec<_>, Vec<_>) = endpoints.into_iter().partition(is_v4);
    if v4.is_empty() || v6.is_empty() {
        return ([v4, v6].concat(), None);
    }
    match tokio::join!(is_reachable(&v4), is_reachable(&v6)) {
        (true, false) => (v4, Some(IpVersion::V6)),
        (false, true) => (v6, Some(IpVersion::V4)),
        _ => ([v4, v6].concat(), None),
    }
}

/// Whether one of the first few accepts a connection.
async fn is_reachable(endpoints: &[Endpoint]) -> bool {
    let mut tries = JoinSet::new();
    for address in endpoints.iter().take(TRIES_MAX).filter_map(|endpoint| endpoint.address.tcp()) {
        tries.spawn(async move { TcpStream::connect(address).await.is_ok() });
    }
    let any = async {
        while let Some(tried) = tries.join_next().await {
            if let Ok(true) = tried {
                return true;
            }
        }
        false
    };
    tokio::time::timeout(TRY_WITHIN, any).await.unwrap_or(false)
}

fn until(ttl: Duration) -> Instant {
    clock::instant() + ttl.clamp(TTL_MIN, TTL_MAX)
}

/// An answer that holds for less is used for so long: a TTL of 0 must not make a loop.
const TTL_MIN: Duration = Duration::from_secs(1);
/// One that holds for longer is asked for again after so long: whoever wrote a day has forgotten it.
const TTL_MAX: Duration = Duration::from_secs(300);
/// How soon a name is asked for again that had no answer.
const RETRY: Duration = Duration::from_secs(2);
/// How long all questions for one name may take, with search domains and the names that SRV records lead to.
const WITHIN: Duration = Duration::from_secs(30);
/// Servers that one name stands for at most.
pub const ADDRESSES_MAX: usize = 256;
/// Addresses of a family, or of a priority, that are tried.
const TRIES_MAX: usize = 3;
/// How long they may take.
const TRY_WITHIN: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn endpoint(address: &str) -> Endpoint {
        let address: SocketAddr = address.parse().expect("an address");
        let place = Place::Tcp { host: "u".to_owned(), port: address.port() };
        Endpoint { place, address: Address::Tcp(address), weight: 1 }
    }

    #[test]
    fn an_answer_in_any_order_is_the_same_answer() {
        let answer = |addresses: &[&str]| tidy(addresses.iter().map(|address| endpoint(address)).collect());
        let turned = answer(&["10.0.0.2:80", "10.0.0.1:80", "10.0.0.2:80", "[::]:80", "224.0.0.1:80"]);
        assert_eq!(turned, answer(&["10.0.0.1:80", "10.0.0.2:80"]));
        assert_eq!(turned.0.len(), 2);
    }

    #[test]
    fn a_name_stands_for_so_many_servers_at_most() {
        let all = (0..1_000).map(|n: u16| endpoint(&format!("10.0.{}.{}:80", n >> 8, n & 255))).collect();
        let (kept, is_cut) = tidy(all);
        assert_eq!((kept.len(), is_cut), (ADDRESSES_MAX, true));
    }

    #[tokio::test]
    async fn a_family_that_leads_nowhere_is_left_out() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let here = endpoint(&format!("127.0.0.1:{port}"));
        // The discard prefix of RFC 6666: no connection is ever made to it.
        let nowhere = endpoint(&format!("[100::1]:{port}"));
        let used = of_families_with_a_way(vec![nowhere.clone(), here.clone()]).await;
        assert_eq!(used, (vec![here], Some(IpVersion::V6)));
        drop(listener);
    }
}
