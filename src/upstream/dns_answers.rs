//! What name servers have said of a configured server's name, part by part: its SRV records, and the addresses of each host
//! and family. A part that gets no answer keeps what it had; it is gone only if a name server says that there is none.
//! Nobody is asked here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::config::{self, ServerLocation};
use super::dns::{DnsAnswer, Error, SrvTarget};
use super::server::{ServerAddress, ServerEndpoint};
use metrics::IpVersion;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DnsQuestion {
    /// The SRV records of a name.
    Services(String),
    /// The addresses of one family of a host.
    Addresses(String, IpVersion),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsAnswers {
    services: AnswerSet<SrvTarget>,
    hosts: BTreeMap<String, HostAddresses>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct AnswerSet<T> {
    good: Vec<T>,
    last: LastAnswer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LastAnswer {
    Awaited,
    Good,
    /// That there is no such record.
    Nothing(String),
    /// None that says anything of the name.
    Failed(String),
}

/// A host's addresses of both families, in the order of [`IpVersion::ALL`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HostAddresses([FamilyAddresses; 2]);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FamilyAddresses {
    part: AnswerSet<IpAddr>,
    /// Behind which of the search domains the name was found.
    rank: usize,
}

impl DnsAnswers {
    /// Knows the hosts that a place leads to, and no others. Of those that are new it has the addresses in `endpoints`.
    pub fn list(&mut self, place: &ServerLocation, endpoints: &[ServerEndpoint]) {
        let names: Vec<&String> = match place {
            ServerLocation::Tcp { host, .. } => vec![host],
            ServerLocation::Service(_) => self.services.good.iter().map(|service| &service.target).collect(),
            ServerLocation::Unix(_) => Vec::new(),
        };
        let hosts = names.into_iter().map(|name| {
            let host = self.hosts.get(name).cloned().unwrap_or_else(|| HostAddresses::known(name, endpoints));
            (name.clone(), host)
        });
        self.hosts = hosts.collect();
    }

    pub fn questions(&self, place: &ServerLocation) -> Vec<DnsQuestion> {
        let service = if let ServerLocation::Service(name) = place { Some(name) } else { None };
        let targets: BTreeSet<&String> = self.services.used().iter().map(|service| &service.target).collect();
        let is_used = |name: &&String| service.is_none() || targets.contains(name);
        let of_host =
            |name: &String| IpVersion::ALL.map(|version| DnsQuestion::Addresses(name.clone(), version));
        let hosts = self.hosts.keys().filter(is_used).flat_map(of_host);
        service.cloned().map(DnsQuestion::Services).into_iter().chain(hosts).collect()
    }

    /// The SRV records, or why there are none.
    pub fn hear_services(&mut self, answer: Result<Vec<SrvTarget>, &Error>) {
        self.services.hear(answer);
    }

    /// Addresses of a family, or why there are none. A host that is not known any more is passed over.
    pub fn hear_addresses(
        &mut self,
        host: &str,
        version: IpVersion,
        answer: Result<&DnsAnswer<IpAddr>, &Error>,
    ) {
        let Some(family) = self.hosts.get_mut(host).map(|host| &mut host.0[version as usize]) else { return };
        if let Ok(answer) = answer {
            family.rank = answer.rank;
        }
        family.part.hear(answer.map(|answer| answer.found.clone()));
    }

    /// The servers that there are, with the priorities of their records, lowest first.
    pub fn endpoints(&self, server: &config::ConfiguredServer) -> Vec<(u16, ServerEndpoint)> {
        let addresses = |host: &str| self.hosts.get(host).map(HostAddresses::used).unwrap_or_default();
        if let ServerLocation::Tcp { host, port } = &server.place {
            let endpoint = |ip| ServerEndpoint {
                place: server.place.clone(),
                address: ServerAddress::Tcp((ip, *port).into()),
                weight: server.weight,
            };
            return addresses(host).into_iter().map(|ip| (0, endpoint(ip))).collect();
        }
        let of_service = |service: &SrvTarget| {
            let of = |ip| (service.priority, endpoint_of(server, service, ip));
            addresses(&service.target).into_iter().map(of).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.services.used().iter().flat_map(of_service).collect();
        all.sort_by_key(|(priority, _)| *priority);
        all
    }

    /// Forgets what there is none of any more: the servers that are left are in force.
    pub fn settle(&mut self) {
        self.services.settle();
        self.hosts.values_mut().flat_map(|host| &mut host.0).for_each(|family| family.part.settle());
    }

    /// Whether nothing is missing that may still come: each host has addresses, or has been answered for.
    pub fn is_complete(&self) -> bool {
        self.hosts.values().all(|host| !host.used().is_empty() || host.is_answered())
    }

    /// The question together with which this one is asked again, if nobody misses an answer to it: that of the other family,
    /// or that which has led to the host.
    pub fn beside(&self, place: &ServerLocation, question: &DnsQuestion) -> Option<DnsQuestion> {
        let DnsQuestion::Addresses(name, version) = question else { return None };
        let (host, other) = (self.hosts.get(name)?, version.other());
        let is_good = |version: IpVersion| host.0[version as usize].part.last == LastAnswer::Good;
        match place {
            _ if is_good(*version) || host.missed(*version).is_some() => None,
            _ if is_good(other) => Some(DnsQuestion::Addresses(name.clone(), other)),
            ServerLocation::Service(name) if self.services.last == LastAnswer::Good => {
                Some(DnsQuestion::Services(name.clone()))
            }
            _ => None,
        }
    }

    /// Families that failed beside another one that has an answer, and that nobody misses.
    pub fn unanswered(&self) -> Vec<(&str, IpVersion)> {
        let is_unanswered = |host: &HostAddresses, version: IpVersion| {
            let part = |version: IpVersion| &host.0[version as usize].part;
            let is_beside = part(version.other()).last == LastAnswer::Good;
            is_beside && part(version).failure().is_some() && host.missed(version).is_none()
        };
        let all = self.hosts.iter().flat_map(|it| IpVersion::ALL.map(|version| (it, version)));
        all.filter(|((_, host), version)| is_unanswered(host, *version))
            .map(|((name, _), version)| (name.as_str(), version))
            .collect()
    }

    /// Hosts of which name servers say that they have no address.
    pub fn empty_hosts(&self) -> Vec<&str> {
        let is_empty =
            |host: &HostAddresses| host.0.iter().all(|it| matches!(it.part.last, LastAnswer::Nothing(_)));
        self.hosts.iter().filter(|(_, host)| is_empty(host)).map(|(name, _)| name.as_str()).collect()
    }

    /// Whether nothing of the last answers is good.
    pub fn is_all_bad(&self) -> bool {
        let mut families = self.hosts.values().flat_map(|host| &host.0);
        self.services.failure().is_some() || !families.any(|family| family.part.last == LastAnswer::Good)
    }

    /// Why parts have no answer, the first few. `None` if none is missed.
    pub fn failure(&self) -> Option<String> {
        if let Some(why) = self.services.failure() {
            return Some(why.to_owned());
        }
        let missed = self.hosts.iter().filter_map(|(name, host)| Some((name, host.missed_family()?)));
        let said: Vec<String> = missed
            .map(|(name, (version, why))| match version {
                Some(version) => format!("{} of {name}: {why}", version.word()),
                None => format!("{name}: {why}"),
            })
            .collect();
        let more = if said.len() > SAID_MAX { ", and more" } else { "" };
        let first = said.iter().take(SAID_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        (!said.is_empty()).then(|| format!("{first}{more}"))
    }

    /// Why there is no server at all; `None` while answers are awaited.
    pub fn why_none(&self) -> Option<&str> {
        let families = || self.hosts.values().flat_map(|host| &host.0);
        let failed = families().find_map(|family| family.part.failure());
        let nothing = families().find_map(|family| family.part.nothing());
        self.services.failure().or(self.services.nothing()).or(failed).or(nothing)
    }
}

impl HostAddresses {
    fn known(name: &str, endpoints: &[ServerEndpoint]) -> HostAddresses {
        let mut host = HostAddresses::default();
        for endpoint in endpoints {
            if let (ServerLocation::Tcp { host: of, .. }, Some(address)) =
                (&endpoint.place, endpoint.address.tcp())
                && of == name
            {
                let good = &mut host.0[IpVersion::of(address) as usize].part.good;
                if !good.contains(&address.ip()) {
                    good.push(address.ip());
                }
            }
        }
        host
    }

    /// Its addresses. If the families were found behind different search domains, those of the first one, because the
    /// others are of another name.
    fn used(&self) -> Vec<IpAddr> {
        let families = || self.0.iter().filter(|family| !family.part.used().is_empty());
        let rank = families().map(|family| family.rank).min().unwrap_or_default();
        families().filter(|family| family.rank == rank).flat_map(|it| it.part.used()).copied().collect()
    }

    fn is_answered(&self) -> bool {
        self.0.iter().all(|family| family.part.last != LastAnswer::Awaited)
    }

    /// Why a family failed, if it is missed.
    fn missed(&self, version: IpVersion) -> Option<&str> {
        let family = &self.0[version as usize];
        let is_missed = !family.part.good.is_empty() || self.used().is_empty();
        family.part.failure().filter(|_| is_missed)
    }

    /// Why it is missed: which family; none if both are.
    fn missed_family(&self) -> Option<(Option<IpVersion>, &str)> {
        match IpVersion::ALL.map(|version| self.missed(version)) {
            [Some(why), Some(_)] => Some((None, why)),
            [Some(why), None] => Some((Some(IpVersion::V4), why)),
            [None, Some(why)] => Some((Some(IpVersion::V6), why)),
            [None, None] => None,
        }
    }
}

impl<T> AnswerSet<T> {
    fn hear(&mut self, answer: Result<Vec<T>, &Error>) {
        self.last = match answer {
            Ok(found) => {
                self.good = found;
                LastAnswer::Good
            }
            Err(error) if error.is_of_no_record() => LastAnswer::Nothing(error.to_string()),
            Err(error) => LastAnswer::Failed(error.to_string()),
        };
    }

    /// The last good answer, unless there is nothing any more.
    fn used(&self) -> &[T] {
        if self.nothing().is_some() { &[] } else { &self.good }
    }

    fn settle(&mut self) {
        if self.nothing().is_some() {
            self.good.clear();
        }
    }

    fn nothing(&self) -> Option<&str> {
        if let LastAnswer::Nothing(why) = &self.last { Some(why) } else { None }
    }

    fn failure(&self) -> Option<&str> {
        if let LastAnswer::Failed(why) = &self.last { Some(why) } else { None }
    }
}

impl<T> Default for AnswerSet<T> {
    fn default() -> AnswerSet<T> {
        AnswerSet { good: Vec::new(), last: LastAnswer::Awaited }
    }
}

/// An address of an SRV record's target. Weights multiply: that of the record, and that of the configuration. RFC 2782: one
/// of weight 0 is to be had rarely, but is to be had.
fn endpoint_of(server: &config::ConfiguredServer, service: &SrvTarget, ip: IpAddr) -> ServerEndpoint {
    let weight = server.weight.saturating_mul(u32::from(service.weight).max(1));
    let place = ServerLocation::Tcp { host: service.target.clone(), port: service.port };
    ServerEndpoint { place, address: ServerAddress::Tcp((ip, service.port).into()), weight }
}

const SAID_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn server(place: ServerLocation) -> config::ConfiguredServer {
        config::ConfiguredServer { tls: false, place, weight: 1 }
    }

    fn named() -> config::ConfiguredServer {
        server(ServerLocation::Tcp { host: "u".to_owned(), port: 80 })
    }

    fn good(addresses: &[&str]) -> Result<DnsAnswer<IpAddr>, Error> {
        let found = addresses.iter().map(|ip| ip.parse().expect("an address")).collect();
        Ok(DnsAnswer { found, ttl: std::time::Duration::from_secs(1), rank: 0 })
    }

    fn nothing() -> Result<DnsAnswer<IpAddr>, Error> {
        Err(Error::NotOfFamily)
    }

    fn failed() -> Result<DnsAnswer<IpAddr>, Error> {
        Err(Error::Net(hickory_resolver::net::NetError::Timeout))
    }

    fn hear(heard: &mut DnsAnswers, host: &str, answers: [&Result<DnsAnswer<IpAddr>, Error>; 2]) {
        for (version, answer) in IpVersion::ALL.into_iter().zip(answers) {
            heard.hear_addresses(host, version, answer.as_ref());
        }
    }

    fn ips(heard: &DnsAnswers, server: &config::ConfiguredServer) -> Vec<String> {
        let address = |(_, endpoint): (u16, ServerEndpoint)| Some(endpoint.address.tcp()?.ip().to_string());
        heard.endpoints(server).into_iter().filter_map(address).collect()
    }

    #[test]
    fn only_the_word_that_there_is_none_takes_addresses_of_a_family_away() {
        let server = named();
        let mut heard = DnsAnswers::default();
        heard.list(&server.place, &[]);
        hear(&mut heard, "u", [&good(&["10.0.0.1"]), &good(&["::1"])]);
        assert_eq!((ips(&heard, &server).len(), heard.failure()), (2, None));
        hear(&mut heard, "u", [&failed(), &good(&["::2"])]);
        assert_eq!(ips(&heard, &server), ["10.0.0.1", "::2"]);
        assert_eq!(heard.failure().as_deref(), Some("ipv4 of u: the name servers do not answer"));
        assert!(!heard.is_all_bad());
        hear(&mut heard, "u", [&failed(), &failed()]);
        assert_eq!(ips(&heard, &server), ["10.0.0.1", "::2"]);
        assert_eq!(
            (heard.failure().as_deref(), heard.is_all_bad()),
            (Some("u: the name servers do not answer"), true)
        );
        hear(&mut heard, "u", [&nothing(), &failed()]);
        assert_eq!(ips(&heard, &server), ["::2"]);
        // With that in force it does not come back by a failure.
        heard.settle();
        hear(&mut heard, "u", [&failed(), &failed()]);
        assert_eq!(ips(&heard, &server), ["::2"]);
    }

    #[test]
    fn what_is_gone_with_all_the_rest_is_kept_for_what_follows() {
        let server = named();
        let mut heard = DnsAnswers::default();
        heard.list(&server.place, &[]);
        hear(&mut heard, "u", [&good(&["10.0.0.1"]), &nothing()]);
        hear(&mut heard, "u", [&nothing(), &nothing()]);
        assert!(ips(&heard, &server).is_empty() && heard.why_none().is_some());
        hear(&mut heard, "u", [&failed(), &nothing()]);
        assert_eq!(ips(&heard, &server), ["10.0.0.1"]);
    }

    #[test]
    fn a_family_that_never_had_an_address_is_not_missed_beside_the_other() {
        let server = named();
        let mut heard = DnsAnswers::default();
        heard.list(&server.place, &[]);
        hear(&mut heard, "u", [&good(&["10.0.0.1"]), &failed()]);
        assert_eq!((heard.failure(), heard.unanswered()), (None, vec![("u", IpVersion::V6)]));
        // Nor is there anything to say of it while the other one fails, too.
        hear(&mut heard, "u", [&failed(), &failed()]);
        assert_eq!(heard.failure().as_deref(), Some("ipv4 of u: the name servers do not answer"));
        assert!(heard.unanswered().is_empty());
        // Alone it is.
        hear(&mut heard, "u", [&nothing(), &failed()]);
        heard.settle();
        assert!(heard.failure().is_some() && heard.unanswered().is_empty());
    }

    #[test]
    fn families_behind_different_search_domains_are_not_of_one_name() {
        let server = named();
        let mut heard = DnsAnswers::default();
        heard.list(&server.place, &[]);
        let later = good(&["::1"]).map(|answer| DnsAnswer { rank: 1, ..answer });
        hear(&mut heard, "u", [&good(&["10.0.0.1"]), &later]);
        assert_eq!(ips(&heard, &server), ["10.0.0.1"]);
        hear(&mut heard, "u", [&nothing(), &later]);
        assert_eq!(ips(&heard, &server), ["::1"]);
    }

    #[test]
    fn a_target_without_an_answer_keeps_its_addresses_and_its_priority() {
        let server = server(ServerLocation::Service("_a._tcp.u".to_owned()));
        let service =
            |priority, target: &str| SrvTarget { priority, weight: 1, port: 80, target: target.to_owned() };
        let mut heard = DnsAnswers::default();
        heard.hear_services(Ok(vec![service(20, "backup"), service(10, "first")]));
        // What an earlier process knew.
        let place = ServerLocation::Tcp { host: "first".to_owned(), port: 80 };
        let address = ServerAddress::Tcp("10.0.0.1:80".parse().expect("an address"));
        heard.list(&server.place, &[ServerEndpoint { place, address, weight: 1 }]);
        hear(&mut heard, "backup", [&good(&["10.0.0.2"]), &nothing()]);
        hear(&mut heard, "first", [&failed(), &failed()]);
        assert_eq!(ips(&heard, &server), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(heard.failure().as_deref(), Some("ipv4 of first: the name servers do not answer"));
        assert_eq!(heard.questions(&server.place).len(), 5);
        hear(&mut heard, "first", [&nothing(), &nothing()]);
        assert_eq!(ips(&heard, &server), ["10.0.0.2"]);
        assert_eq!((heard.failure(), heard.empty_hosts()), (None, vec!["first"]));
        // A record that is gone takes its target with it.
        heard.hear_services(Ok(vec![service(20, "backup")]));
        heard.list(&server.place, &[]);
        assert_eq!(heard.questions(&server.place).len(), 3);
    }
}
