//! Asks name servers, and says for how long an answer holds. hosts and resolv.conf are read again when they change. What is
//! made of an answer is [`super::resolve`]'s.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use tokio::task::JoinSet;
use tokio::time::timeout;

use metrics::IpVersion;
use net::fetch::Connect;
use net::tls;

/// Whom names are asked of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Name servers. None: those of the system, with its search domains.
    pub servers: Vec<SocketAddr>,
}

#[derive(Debug)]
pub struct Dns {
    config: Config,
    built: Mutex<Option<(Stamp, NameServers)>>,
}

/// Who is asked, and by which rules names are completed.
#[derive(Clone, Debug)]
struct NameServers {
    /// A resolver for each name server, in the order in which they are asked, because one resolver for all of them
    /// would wait for the other servers, until its time is over, before it asks for a truncated answer over TCP.
    each: Arc<[TokioResolver]>,
    /// Search domains.
    ends: Arc<[Name]>,
    /// Names of more labels are asked for as they are first.
    labels: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer<T> {
    pub found: Vec<T>,
    /// How long it holds, as its records say.
    pub ttl: Duration,
    /// Which of the names was found that the asked one may stand for, with its search domains; 0 is the first.
    pub rank: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrvTarget {
    /// Lower ones come first.
    pub priority: u16,
    /// Its share among those of its priority.
    pub weight: u16,
    pub port: u16,
    pub target: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name servers' word, or that there was none.
    #[error("{}", sentence(.0))]
    Net(#[from] NetError),
    /// The system's own resolver's word.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// The system says nowhere who its name servers are.
    #[error("/etc/resolv.conf has no name servers or cannot be read; write `servers` of [dns]")]
    NoServers,
    /// An answer without a record that fits.
    #[error("it has no address")]
    Empty,
    /// Nobody answers, with all search domains tried.
    #[error("the name servers have not answered within {0:?}")]
    Late(Duration),
    /// The system's own resolver knows the name by the other family only.
    #[error("it has no address of this family")]
    NotOfFamily,
}

impl Error {
    /// Whether a name server says that there is no such record. Anything else says nothing of the name.
    pub fn is_of_no_record(&self) -> bool {
        match self {
            Error::Net(error) => is_of_no_record(error),
            Error::NotOfFamily => true,
            Error::System(_) | Error::NoServers | Error::Empty | Error::Late(_) => false,
        }
    }
}

/// Without the whole query that the library repeats, because the name stands beside it.
fn sentence(error: &NetError) -> String {
    match error {
        error if is_of_no_record(error) => "it has no address".to_owned(),
        NetError::Timeout => "the name servers do not answer".to_owned(),
        error => format!("the name servers gave no usable answer: {error}"),
    }
}

/// When the files were last changed that a resolver was built from.
type Stamp = [Option<SystemTime>; 2];

impl Dns {
    pub fn new(config: Config) -> Dns {
        Dns { config, built: Mutex::new(None) }
    }

    /// The addresses of a name, of one family.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn addresses(&self, name: &str, version: IpVersion) -> Result<DnsAnswer<IpAddr>, Error> {
        let is_of_version = |ip: &IpAddr| ip.is_ipv4() == (version == IpVersion::V4);
        let Some(servers) = self.servers()? else {
            let found = tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip());
            let found: Vec<IpAddr> = found.filter(is_of_version).collect();
            return if found.is_empty() {
                Err(Error::NotOfFamily)
            } else {
                Ok(DnsAnswer { found, ttl: TTL_UNKNOWN, rank: 0 })
            };
        };
        let family = match version {
            IpVersion::V4 => RecordType::A,
            IpVersion::V6 => RecordType::AAAA,
        };
        let (rank, found) = servers.first_of(name, family).await?;
        let ips = found.answers().iter().filter_map(|record| record.data.ip_addr()).filter(is_of_version);
        answer(found.answers(), ips.collect(), rank)
    }

    /// How the gateway's own requests reach servers: by the names that these name servers know.
    pub fn connect(self: &Arc<Dns>) -> Connect {
        let dns = Arc::clone(self);
        tls::connect(move |name| {
            let dns = Arc::clone(&dns);
            Box::pin(async move { dns.both(&name).await.map_err(std::io::Error::other) })
        })
    }

    /// The addresses of a name, of both families. One family that has come does not wait long for the other.
    async fn both(&self, name: &str) -> Result<Vec<IpAddr>, Error> {
        let (mut one, mut other) =
            (pin!(self.addresses(name, IpVersion::V4)), pin!(self.addresses(name, IpVersion::V6)));
        let (first, rest) = tokio::select! {
            found = &mut one => (found, other),
            found = &mut other => (found, one),
        };
        let within = if first.is_ok() { OTHER_FAMILY } else { TRY_MAX };
        let second = timeout(within, rest).await.unwrap_or(Err(Error::Late(within)));
        match (first, second) {
            (Ok(first), Ok(second)) => Ok([first.found, second.found].concat()),
            (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found.found),
            (Err(error), Err(_)) => Err(error),
        }
    }

    /// The SRV records of a name.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn services(&self, name: &str) -> Result<DnsAnswer<SrvTarget>, Error> {
        let servers = self.servers()?.ok_or(Error::NoServers)?;
        let (rank, found) = servers.first_of(name, RecordType::SRV).await?;
        let service = |record: &Record| match &record.data {
            // RFC 2782: a single dot says that the service is not there.
            RData::SRV(srv) if !srv.target.is_root() => Some(SrvTarget {
                priority: srv.priority,
                weight: srv.weight,
                port: srv.port,
                target: srv.target.to_ascii().trim_end_matches('.').to_ascii_lowercase(),
            }),
            _ => None,
        };
        let is_usable = |service: &SrvTarget| service.port > 0 && is_host(&service.target);
        answer(found.answers(), found.answers().iter().filter_map(service).filter(is_usable).collect(), rank)
    }

    /// `None`: only the system itself can be asked.
    fn servers(&self) -> Result<Option<NameServers>, Error> {
        let stamp = FILES.map(|file| std::fs::metadata(file).and_then(|file| file.modified()).ok());
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, servers)) = built.as_ref()
            && *of == stamp
        {
            return Ok(Some(servers.clone()));
        }
        let (config, options) = match self.config.servers.as_slice() {
            [] => match read_system_conf() {
                Ok(read) => read,
                Err(_) => return Ok(None),
            },
            servers => {
                let servers = servers.iter().copied().map(name_server).collect();
                (ResolverConfig::from_name_servers(servers), ResolverOpts::default())
            }
        };
        let options = ours(&options);
        let each = config.name_servers().iter().map(|server| {
            let alone = ResolverConfig::from_parts(None, Vec::new(), vec![server.clone()]);
            let mut builder = TokioResolver::builder_with_config(alone, TokioRuntimeProvider::default());
            *builder.options_mut() = options.clone();
            builder.build()
        });
        let servers = NameServers {
            each: each.collect::<Result<Vec<_>, _>>()?.into(),
            ends: config.domain().into_iter().chain(config.search()).cloned().collect(),
            labels: options.ndots,
        };
        *built = Some((stamp, servers.clone()));
        Ok(Some(servers))
    }
}

/// What is asked for, by which rules.
fn ours(options: &ResolverOpts) -> ResolverOpts {
    let mut ours = options.clone();
    ours.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    // An answer is asked for when the one before has run out, and never sooner.
    ours.cache_size = 0;
    ours.timeout = options.timeout.clamp(TRY_MIN, TRY_MAX);
    // The library counts those after the first one.
    ours.attempts = options.attempts.clamp(1, TRIES_MAX) - 1;
    ours
}

impl NameServers {
    /// The first answer with records. The next server is asked when those before have failed or have been silent for
    /// [`NEXT_AFTER`]; they are listened to all the same.
    ///
    /// # Errors
    /// That there is no such record, if a server says so; else why the first one that failed did.
    async fn first_of(&self, name: &str, kind: RecordType) -> Result<(usize, Lookup), NetError> {
        let names = self.names(name)?;
        let mut unasked = self.each.iter();
        let mut asked = JoinSet::new();
        let mut failure = NetError::NoConnections;
        loop {
            if let Some(server) = unasked.next() {
                asked.spawn(first_name(server.clone(), names.clone(), kind));
            }
            let answered = match unasked.len() {
                0 => asked.join_next().await,
                _ => match timeout(NEXT_AFTER, asked.join_next()).await {
                    Ok(answered) => answered,
                    Err(_) => continue,
                },
            };
            match answered {
                None => return Err(failure),
                Some(Ok(Ok(found))) => return Ok(found),
                Some(Ok(Err(error))) => {
                    // That there is none the others need not be asked. Those that are may know better, as one of an inner
                    // network that is slow.
                    if is_of_no_record(&error) {
                        unasked = [].iter();
                    }
                    if is_of_no_record(&error) || matches!(failure, NetError::NoConnections) {
                        failure = error;
                    }
                }
                Some(Err(_)) => {}
            }
        }
    }

    /// The names that one may stand for, in the order of resolv.conf(5).
    fn names(&self, name: &str) -> Result<Vec<Name>, NetError> {
        let name = Name::from_utf8(name)?;
        if name.is_fqdn() {
            return Ok(vec![name]);
        }
        let mut names: Vec<Name> =
            self.ends.iter().filter_map(|end| name.clone().append_domain(end).ok()).collect();
        let is_first = usize::from(name.num_labels()) > self.labels || name.is_localhost();
        let mut whole = name;
        whole.set_fqdn(true);
        names.insert(if is_first { 0 } else { names.len() }, whole);
        Ok(names)
    }
}

/// The first of these names that a server knows, and which one that is.
///
/// # Errors
/// Why one failed, if one did, because the library would say only what there is of the last one, which may be no name
/// at all.
async fn first_name(
    server: TokioResolver,
    names: Vec<Name>,
    kind: RecordType,
) -> Result<(usize, Lookup), NetError> {
    let mut failure = NetError::NoConnections;
    for (rank, name) in names.into_iter().enumerate() {
        match server.lookup(name, kind).await {
            Ok(found) => return Ok((rank, found)),
            Err(error) if rank == 0 || is_of_no_record(&failure) => failure = error,
            Err(_) => {}
        }
    }
    Err(failure)
}

/// Whether a server says that there is no such record: not if it only says who else may know (RFC 2308 section 2.2).
fn is_of_no_record(error: &NetError) -> bool {
    let NetError::Dns(DnsError::NoRecordsFound(none)) = error else { return false };
    let is_referral = none.ns.is_some() && none.soa.is_none();
    matches!(none.response_code, ResponseCode::NoError | ResponseCode::NXDomain) && !is_referral
}

/// Whether a name can stand in `Host`: that of a record may hold any byte.
fn is_host(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.bytes().all(is_plain)
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    let with_port = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    server.connections = server.connections.into_iter().map(with_port).collect();
    server
}

/// The answer holds as long as the record of it that holds least, aliases included.
fn answer<T>(records: &[Record], found: Vec<T>, rank: usize) -> Result<DnsAnswer<T>, Error> {
    if found.is_empty() {
        return Err(Error::Empty);
    }
    let ttl = records.iter().map(|record| record.ttl).min().unwrap_or(0);
    // The longest one is that of the hosts file, which says none.
    let ttl = if ttl >= TTL_OF_FILES { HOSTS_FOR } else { Duration::from_secs(ttl.into()) };
    Ok(DnsAnswer { found, ttl, rank })
}

const FILES: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];
/// How long an answer holds that does not say it.
const TTL_UNKNOWN: Duration = Duration::from_secs(30);
/// How long what the hosts file says holds: it costs no question.
const HOSTS_FOR: Duration = Duration::from_secs(5);
/// The longest time to live, seconds: it stands for none.
const TTL_OF_FILES: u32 = hickory_resolver::MAX_TTL;
/// How long the addresses of one family wait for those of the other, for a request of the gateway's own.
const OTHER_FAMILY: Duration = Duration::from_millis(50);
/// How long the name servers that have been asked are waited for before the next one is asked, too.
const NEXT_AFTER: Duration = Duration::from_millis(300);
/// What `timeout` and `attempts` can be, as in resolv.conf(5): how long a server is waited for, and how often. What is
/// lost by UDP is sent again within that time.
const TRY_MIN: Duration = Duration::from_secs(1);
const TRY_MAX: Duration = Duration::from_secs(30);
const TRIES_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use hickory_resolver::system_conf::parse_resolv_conf;

    use super::*;

    #[test]
    fn names_are_completed_as_resolv_conf_says() {
        let name = |text: &str| Name::from_utf8(text).expect("a name");
        let servers = |labels| NameServers {
            each: Arc::new([]),
            ends: [name("a.test."), name("b.test.")].into(),
            labels,
        };
        let names = |asked: &str, labels: usize| {
            let names = servers(labels).names(asked).expect("a name");
            names.iter().map(Name::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names("u", 1), ["u.a.test.", "u.b.test.", "u."]);
        assert_eq!(names("u.c", 1), ["u.c.", "u.c.a.test.", "u.c.b.test."]);
        assert_eq!(names("u.c", 5), ["u.c.a.test.", "u.c.b.test.", "u.c."]);
        assert_eq!(names("u.", 5), ["u."]);
    }

    #[test]
    fn servers_are_waited_for_as_resolv_conf_says() {
        for (options, waits) in [
            ("", (5, 2)),
            ("options timeout:5 attempts:3", (5, 3)),
            ("options timeout:0 attempts:0", (1, 1)),
            ("options timeout:90 attempts:9", (30, 5)),
        ] {
            let text = format!("nameserver 127.0.0.1\n{options}\n");
            let (_, options) = parse_resolv_conf(text).expect("it is well written");
            let ours = ours(&options);
            assert_eq!((ours.timeout.as_secs(), ours.attempts + 1), waits);
        }
        let unwritten = ours(&ResolverOpts::default());
        assert_eq!((unwritten.timeout.as_secs(), unwritten.attempts + 1), (5, 2));
    }
}
