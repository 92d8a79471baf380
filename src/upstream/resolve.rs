//! Names of servers into addresses, on the control runtime: each question is asked again when its answer has run out, and
//! what has come is in force without what is late. No request waits for it. While there is no answer the last good one
//! stays ([`super::dns_answers`]); a name that never had one leaves its server without an address, which a request learns at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

use super::check::watch;
use super::config::{self, ServerLocation};
use super::dns::{Dns, DnsAnswer, Error, SrvTarget};
use super::dns_answers::{DnsAnswers, DnsQuestion};
use super::ids::ConfiguredIndex;
use super::live::{LiveUpstream, NameFailure, ResolvedName};
use super::server::ServerEndpoint;
use base::clock;
use metrics::IpVersion;

/// Keeps one name of an upstream resolved, and says when it begins and ceases to have no answer.
pub struct Resolver {
    live: Weak<LiveUpstream>,
    dns: Arc<Dns>,
    /// Which of the configured servers.
    index: ConfiguredIndex,
    /// Questions under way. Not all of them are waited for.
    asked: JoinSet<DnsReply>,
    under_way: BTreeSet<DnsQuestion>,
    again: BTreeMap<DnsQuestion, Instant>,
    /// There are more SRV records than are used.
    is_cut: bool,
    said: ResolverLog,
}

/// What the log has been told and is not told twice.
#[derive(Debug, Default)]
struct ResolverLog {
    /// The name has too many addresses.
    is_cut: bool,
    /// Targets of SRV records that have no address.
    empty_hosts: BTreeSet<String>,
    /// Families that get no answer and are not missed.
    unanswered: BTreeSet<(String, IpVersion)>,
}

enum DnsReply {
    Services(String, Result<DnsAnswer<SrvTarget>, Error>),
    Addresses(String, IpVersion, Result<DnsAnswer<IpAddr>, Error>),
}

impl Resolver {
    /// One for each name of an upstream; none has been asked for yet.
    pub fn all(live: &Arc<LiveUpstream>, dns: &Arc<Dns>) -> Vec<Resolver> {
        let servers = (0..).map(ConfiguredIndex::new).zip(&live.config.servers);
        servers
            .filter(|(_, server)| server.unresolved().is_some())
            .map(|(index, _)| Resolver {
                live: Arc::downgrade(live),
                dns: Arc::clone(dns),
                index,
                asked: JoinSet::new(),
                under_way: BTreeSet::new(),
                again: BTreeMap::new(),
                is_cut: false,
                said: ResolverLog::default(),
            })
            .collect()
    }

    /// Asks what is to be asked, and waits until there is enough to go on with. Returns when to ask again; `None` if nobody
    /// uses the upstream any more.
    pub async fn resolve(&mut self) -> Option<Instant> {
        self.go_on(None).await
    }

    /// Asks again and again, until the last user of the upstream is gone. `again`: when first.
    pub async fn keep_resolving(mut self, mut again: Instant) {
        loop {
            // What was late is in force when it comes.
            let late = tokio::select! {
                () = tokio::time::sleep_until(again.into()) => None,
                Some(late) = self.asked.join_next() => late.ok(),
            };
            match self.go_on(late).await {
                Some(next) => again = next,
                None => return,
            }
        }
    }

    async fn go_on(&mut self, late: Option<DnsReply>) -> Option<Instant> {
        let live = self.live.upgrade()?;
        let (server, known) = live.configured(self.index);
        let mut heard = DnsAnswers::clone(&known.heard);
        heard.list(&server.place, &known.endpoints);
        if let Some(told) = late {
            self.hear(told, &mut heard, &server.place, &known.endpoints);
        }
        self.listen(&mut heard, &server.place, &known.endpoints).await;
        let found = found(server, &heard, self.is_cut).await;
        if found.is_some() {
            heard.settle();
            self.put_off(&heard, &server.place);
        }
        if found.is_some() || self.under_way.is_empty() {
            self.learn(&live, known, heard, found);
        } else {
            // What is late may still bring a server.
            let heard = Arc::new(heard);
            live.learn(self.index, ResolvedName { heard, ..known }, clock::now_ns());
        }
        let next = self.next_due();
        // What is under way is heard of as it comes.
        Some(next.unwrap_or_else(|| clock::instant() + WITHIN))
    }

    /// What was found is in force from now on.
    fn learn(
        &mut self,
        live: &Arc<LiveUpstream>,
        known: ResolvedName,
        heard: DnsAnswers,
        found: Option<ResolvedEndpoints>,
    ) {
        let is_in_part = found.is_some() && !heard.is_all_bad();
        let why = match &found {
            None => Some(heard.why_none().map_or_else(|| Error::Empty.to_string(), str::to_owned)),
            Some(_) if is_in_part => heard.failure().map(|why| format!("in part: {why}")),
            Some(_) => heard.failure().map(|why| heard.why_none().map_or(why, str::to_owned)),
        };
        self.say(live, &known, &heard, found.as_ref(), why.as_deref().map(|why| (why, is_in_part)));
        let since_ns = || known.failure.as_ref().map_or_else(clock::now_ns, |failure| failure.since_ns);
        let failure = why.map(|why| NameFailure { why, since_ns: since_ns() });
        let is_in_part = failure.is_some() && is_in_part;
        let heard = Arc::new(heard);
        let name = match found {
            None => ResolvedName { failure, is_in_part, heard, ..known },
            Some(ResolvedEndpoints { endpoints, left_out, .. }) => {
                ResolvedName { endpoints, heard, failure, is_in_part, left_out }
            }
        };
        let before = live.load();
        if let Some(now) = live.learn(self.index, name, clock::now_ns()) {
            watch::welcome(live, &before, &now);
        }
    }

    /// Asks the questions that are due and not under way.
    fn ask(&mut self, heard: &DnsAnswers, place: &ServerLocation) -> Vec<DnsQuestion> {
        let now = clock::instant();
        let questions = heard.questions(place);
        self.again.retain(|question, _| questions.contains(question));
        let is_due = |question: &DnsQuestion| self.again.get(question).is_none_or(|again| *again <= now);
        let due = questions.into_iter().filter(|it| is_due(it) && !self.under_way.contains(it));
        let due: Vec<DnsQuestion> = due.collect();
        let is_whole = matches!(place, ServerLocation::Service(_));
        for question in &due {
            self.under_way.insert(question.clone());
            self.asked.spawn(ask(Arc::clone(&self.dns), question.clone(), is_whole));
        }
        due
    }

    /// Asks and listens, until what is asked here is answered, there are addresses and the rest is late, or a question that
    /// was asked before is due again.
    async fn listen(&mut self, heard: &mut DnsAnswers, place: &ServerLocation, known: &[ServerEndpoint]) {
        let mut awaited: BTreeSet<DnsQuestion> = self.ask(heard, place).into_iter().collect();
        let mut until = self.next_due();
        while !awaited.is_empty() {
            let told = match until {
                None => self.asked.join_next().await,
                Some(until) => match timeout_at(until.into(), self.asked.join_next()).await {
                    Ok(told) => told,
                    Err(_) => break,
                },
            };
            let told = match told {
                Some(Ok(told)) => told,
                Some(Err(_)) => continue,
                None => break,
            };
            awaited.remove(&told.question());
            let has_addresses = matches!(told, DnsReply::Addresses(.., Ok(_)));
            self.hear(told, heard, place, known);
            awaited.extend(self.ask(heard, place));
            if has_addresses {
                let late = if heard.is_complete() { OTHER_FAMILY_WITHIN } else { OTHER_TARGETS_WITHIN };
                let late = clock::instant() + late;
                until = Some(until.map_or(late, |until| until.min(late)));
            }
        }
        while let Some(told) = self.asked.try_join_next() {
            if let Ok(told) = told {
                self.hear(told, heard, place, known);
            }
        }
        if self.asked.is_empty() {
            // One that panicked has taken its question along.
            self.under_way.clear();
        }
    }

    fn hear(
        &mut self,
        told: DnsReply,
        heard: &mut DnsAnswers,
        place: &ServerLocation,
        known: &[ServerEndpoint],
    ) {
        let (question, ttl) = (told.question(), told.ttl());
        match told {
            DnsReply::Services(_, Ok(DnsAnswer { found: mut services, .. })) => {
                services
                    .sort_by(|one, other| (one.priority, &one.target).cmp(&(other.priority, &other.target)));
                self.is_cut = services.len() > ADDRESSES_MAX;
                services.truncate(ADDRESSES_MAX);
                heard.hear_services(Ok(services));
                heard.list(place, known);
            }
            DnsReply::Services(_, Err(error)) => heard.hear_services(Err(&error)),
            DnsReply::Addresses(host, version, answer) => {
                heard.hear_addresses(&host, version, answer.as_ref())
            }
        }
        self.under_way.remove(&question);
        let holds = ttl.map_or(RETRY, |ttl| ttl.clamp(TTL_MIN, TTL_MAX));
        self.again.insert(question, clock::instant() + holds);
    }

    /// A question that nobody misses an answer to is asked again with the one beside it.
    fn put_off(&mut self, heard: &DnsAnswers, place: &ServerLocation) {
        let now = clock::instant();
        for question in heard.questions(place) {
            let beside = heard.beside(place, &question).and_then(|beside| self.again.get(&beside));
            if let Some(again) = beside.copied().filter(|again| *again > now)
                && !self.under_way.contains(&question)
            {
                self.again.insert(question, again);
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let waiting = self.again.iter().filter(|(question, _)| !self.under_way.contains(question));
        waiting.map(|(_, again)| *again).min()
    }

    /// `failure`: why there is no answer, and whether that is so in part.
    fn say(
        &mut self,
        live: &LiveUpstream,
        known: &ResolvedName,
        heard: &DnsAnswers,
        found: Option<&ResolvedEndpoints>,
        failure: Option<(&str, bool)>,
    ) {
        let (upstream, server) = (&live.config.name, live.config.servers[self.index.index()].shown());
        match failure {
            Some((error, false)) if known.failure.is_none() || known.is_in_part => {
                let meanwhile = match known.endpoints.is_empty() {
                    true => "it gets no requests; check the name in `servers`, and its record in DNS",
                    false => "its last good addresses stay in use",
                };
                tracing::warn!(%upstream, %server, %error, "the name of the server does not resolve: {meanwhile}");
            }
            Some((error, true)) if known.failure.is_none() => {
                tracing::warn!(%upstream, %server, %error, "DNS answer is incomplete: the previous addresses stay in use");
            }
            _ => {}
        }
        let Some(ResolvedEndpoints { endpoints, is_cut, left_out }) = found else { return };
        if *is_cut && !std::mem::replace(&mut self.said.is_cut, true) {
            tracing::warn!(%upstream, %server, max = ADDRESSES_MAX, "server name has too many addresses: the rest are not used");
        }
        let addresses: Vec<_> = endpoints.iter().filter_map(|endpoint| endpoint.address.tcp()).collect();
        if known.failure.is_some() && failure.is_none() {
            tracing::info!(%upstream, %server, ?addresses, "name of the server resolves again");
        } else if known.endpoints != *endpoints {
            tracing::info!(%upstream, %server, ?addresses, "name of the server resolves to new addresses");
        }
        self.said.parts(upstream, &server, heard);
        match (known.left_out, left_out) {
            (before, Some(version)) if before != Some(*version) => {
                let family = version.word();
                tracing::info!(%upstream, %server, family, "addresses of this family are unreachable and not used");
            }
            (Some(version), None) => {
                let family = version.word();
                tracing::info!(%upstream, %server, family, "addresses of this family are used again");
            }
            _ => {}
        }
    }
}

impl ResolverLog {
    /// Parts that have no addresses, which is no failure of the name.
    fn parts(&mut self, upstream: &str, server: &str, heard: &DnsAnswers) {
        let empty_hosts: BTreeSet<String> = heard.empty_hosts().into_iter().map(str::to_owned).collect();
        for host in empty_hosts.difference(&self.empty_hosts) {
            tracing::warn!(%upstream, %server, %host, "SRV target has no address: it is not used as a server");
        }
        let unanswered = heard.unanswered().into_iter().map(|(host, version)| (host.to_owned(), version));
        let unanswered: BTreeSet<_> = unanswered.collect();
        for (host, version) in unanswered.difference(&self.unanswered) {
            let family = version.word();
            tracing::info!(%upstream, %server, %host, family, "no DNS answer for this address family: the other one is used");
        }
        (self.empty_hosts, self.unanswered) = (empty_hosts, unanswered);
    }
}

impl DnsReply {
    fn question(&self) -> DnsQuestion {
        match self {
            DnsReply::Services(name, _) => DnsQuestion::Services(name.clone()),
            DnsReply::Addresses(host, version, _) => DnsQuestion::Addresses(host.clone(), *version),
        }
    }

    fn ttl(&self) -> Option<Duration> {
        match self {
            DnsReply::Services(_, answer) => answer.as_ref().ok().map(|answer| answer.ttl),
            DnsReply::Addresses(.., answer) => answer.as_ref().ok().map(|answer| answer.ttl),
        }
    }
}

/// `is_whole`: no search domain belongs behind a host's name.
async fn ask(dns: Arc<Dns>, question: DnsQuestion, is_whole: bool) -> DnsReply {
    match question {
        DnsQuestion::Services(name) => {
            let answer = within(dns.services(&name)).await;
            DnsReply::Services(name, answer)
        }
        DnsQuestion::Addresses(host, version) => {
            let answer = match is_whole {
                true => within(dns.addresses(&format!("{host}."), version)).await,
                false => within(dns.addresses(&host, version)).await,
            };
            DnsReply::Addresses(host, version, answer)
        }
    }
}

async fn within<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(WITHIN, asked).await.unwrap_or(Err(Error::Late(WITHIN)))
}

/// What a name leads to.
#[derive(Debug, PartialEq, Eq)]
struct ResolvedEndpoints {
    endpoints: Vec<ServerEndpoint>,
    /// Some were left out, because there are too many.
    is_cut: bool,
    /// Those of this version were left out, because they lead nowhere.
    left_out: Option<IpVersion>,
}

/// The servers of the first priority of which one can be reached. If none can, those of the first.
async fn found(
    server: &config::ConfiguredServer,
    heard: &DnsAnswers,
    is_cut: bool,
) -> Option<ResolvedEndpoints> {
    let all = heard.endpoints(server);
    let mut first = None;
    for group in all.chunk_by(|(one, _), (other, _)| one == other) {
        let is_only = group.len() == all.len();
        let (endpoints, is_group_cut) = tidy(group.iter().map(|(_, endpoint)| endpoint.clone()).collect());
        if endpoints.is_empty() {
            continue;
        }
        let is_cut = is_cut || is_group_cut;
        if is_only || is_reachable(&endpoints).await {
            let (endpoints, left_out) = of_families_with_a_way(endpoints).await;
            return Some(ResolvedEndpoints { endpoints, is_cut, left_out });
        }
        first = first.or(Some(ResolvedEndpoints { endpoints, is_cut, left_out: None }));
    }
    first
}

/// Each address once, without those no server can have, in an order that does not depend on the answer's, because name
/// servers turn their records to spread connections. Says whether there were too many.
fn tidy(mut endpoints: Vec<ServerEndpoint>) -> (Vec<ServerEndpoint>, bool) {
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

/// The addresses without those of a family that leads nowhere from here, if the other one does, because many machines
/// have IPv6 addresses and no way to the world. Both are tried at once, each with the time that RFC 8305 (Happy
/// Eyeballs) gives the first one alone, but here and not by requests. With the version of IP that is left out.
async fn of_families_with_a_way(endpoints: Vec<ServerEndpoint>) -> (Vec<ServerEndpoint>, Option<IpVersion>) {
    let is_v4 = |endpoint: &ServerEndpoint| endpoint.address.tcp().is_some_and(|address| address.is_ipv4());
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
async fn is_reachable(endpoints: &[ServerEndpoint]) -> bool {
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

/// An answer that holds for less is used for so long, because a TTL of 0 must not make a loop.
const TTL_MIN: Duration = Duration::from_secs(1);
/// One that holds for longer is asked for again after so long, because whoever wrote a day has forgotten it.
const TTL_MAX: Duration = Duration::from_secs(300);
/// How soon a name is asked for again that had no answer.
const RETRY: Duration = Duration::from_secs(2);
/// How long a question may take, with search domains.
const WITHIN: Duration = Duration::from_secs(30);
/// How long the other family is waited for once one has addresses (RFC 8305 section 3, "Resolution Delay").
const OTHER_FAMILY_WITHIN: Duration = Duration::from_millis(50);
/// How long other targets of SRV records are waited for that have no address yet. A start waits half a second in all.
const OTHER_TARGETS_WITHIN: Duration = Duration::from_millis(250);
/// Servers that one name stands for at most.
pub const ADDRESSES_MAX: usize = 256;
/// Addresses of a family, or of a priority, that are tried.
const TRIES_MAX: usize = 3;
/// How long they may take.
const TRY_WITHIN: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerAddress;
    use std::net::SocketAddr;

    fn endpoint(address: &str) -> ServerEndpoint {
        let address: SocketAddr = address.parse().expect("an address");
        let place = ServerLocation::Tcp { host: "u".to_owned(), port: address.port() };
        ServerEndpoint { place, address: ServerAddress::Tcp(address), weight: 1 }
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
