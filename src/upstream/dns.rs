//! Asks name servers, and says for how long an answer holds. hosts and resolv.conf are read again when they change. What is
//! made of an answer is [`super::resolve`]'s.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::{Either, select};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Whom names are asked of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Name servers. None: those of the system, with its search domains.
    pub servers: Vec<SocketAddr>,
}

/// Asks name servers.
#[derive(Debug)]
pub struct Dns {
    config: Config,
    built: Mutex<Option<(Stamp, Servers)>>,
}

/// A resolver for each name server, in the order in which they are asked. One resolver for all of them would wait for the
/// other servers, until its time is over, before it asks for a truncated answer over TCP.
type Servers = Arc<[TokioResolver]>;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<T> {
    /// What was asked for.
    pub found: Vec<T>,
    /// How long it holds, as its records say.
    pub ttl: Duration,
}

/// What an SRV record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Lower ones come first.
    pub priority: u16,
    /// Its share among those of its priority.
    pub weight: u16,
    /// The port.
    pub port: u16,
    /// The name of the server.
    pub target: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name servers' word, or that there was none.
    #[error("{0}")]
    Net(#[from] NetError),
    /// The system's own resolver's word.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// The system says nowhere who its name servers are.
    #[error("/etc/resolv.conf cannot be read; write `servers` of [dns]")]
    NoServers,
    /// An answer without a record that fits.
    #[error("it has no address")]
    Empty,
}

/// When the files were last changed that a resolver was built from.
type Stamp = [Option<SystemTime>; 2];

impl Dns {
    /// Asks these.
    pub fn new(config: Config) -> Dns {
        Dns { config, built: Mutex::new(None) }
    }

    /// The addresses of a name, of both families.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn addresses(&self, name: &str) -> Result<Answer<IpAddr>, Error> {
        let Some(servers) = self.servers()? else {
            let found = tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect();
            return Ok(Answer { found, ttl: TTL_UNKNOWN });
        };
        let records = first_of(&servers, |server| both_families(server, name.to_owned())).await?;
        answer(&records, records.iter().filter_map(|record| record.data.ip_addr()).collect())
    }

    /// The SRV records of a name.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn services(&self, name: &str) -> Result<Answer<Service>, Error> {
        let servers = self.servers()?.ok_or(Error::NoServers)?;
        let records = first_of(&servers, |server| {
            let name = name.to_owned();
            async move { Ok(server.lookup(name, RecordType::SRV).await?.answers().to_vec()) }
        });
        let records = records.await?;
        let service = |record: &Record| match &record.data {
            // RFC 2782: a single dot says that the service is not there.
            RData::SRV(srv) if !srv.target.is_root() => Some(Service {
                priority: srv.priority,
                weight: srv.weight,
                port: srv.port,
                target: srv.target.to_ascii().trim_end_matches('.').to_ascii_lowercase(),
            }),
            _ => None,
        };
        let is_usable = |service: &Service| service.port > 0 && is_host(&service.target);
        answer(&records, records.iter().filter_map(service).filter(is_usable).collect())
    }

    /// `None`: only the system itself can be asked.
    fn servers(&self) -> Result<Option<Servers>, Error> {
        let stamp = FILES.map(|file| std::fs::metadata(file).and_then(|file| file.modified()).ok());
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, servers)) = built.as_ref()
            && *of == stamp
        {
            return Ok(Some(Arc::clone(servers)));
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
            let (domain, search) = (config.domain().cloned(), config.search().to_vec());
            let alone = ResolverConfig::from_parts(domain, search, vec![server.clone()]);
            let mut builder = TokioResolver::builder_with_config(alone, TokioRuntimeProvider::default());
            *builder.options_mut() = options.clone();
            builder.build()
        });
        let servers: Servers = each.collect::<Result<Vec<_>, _>>()?.into();
        *built = Some((stamp, Arc::clone(&servers)));
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

/// The first answer with records. The next server is asked when those before have failed or have been silent for
/// [`NEXT_AFTER`]; they are listened to all the same.
///
/// # Errors
/// That there is no such record, if a server says so; else why the first one that failed did.
async fn first_of<F>(
    servers: &[TokioResolver],
    ask: impl Fn(TokioResolver) -> F,
) -> Result<Vec<Record>, NetError>
where
    F: Future<Output = Result<Vec<Record>, NetError>> + Send + 'static,
{
    let mut unasked = servers.iter();
    let mut asked = JoinSet::new();
    let mut failure = NetError::NoConnections;
    loop {
        if let Some(server) = unasked.next() {
            asked.spawn(ask(server.clone()));
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
            Some(Ok(Ok(records))) => return Ok(records),
            Some(Ok(Err(error))) => {
                // That there is none the others need not be asked. Those that are may know better, as one of an inner
                // network that is slow.
                if error.is_no_records_found() {
                    unasked = [].iter();
                }
                if error.is_no_records_found() || matches!(failure, NetError::NoConnections) {
                    failure = error;
                }
            }
            Some(Err(_)) => {}
        }
    }
}

/// The addresses of both families that one server knows. Some servers never answer for the family that they have none of:
/// once there are addresses, the others are waited for only [`OTHER_FAMILY_WITHIN`].
async fn both_families(server: TokioResolver, name: String) -> Result<Vec<Record>, NetError> {
    let [v4, v6] =
        [RecordType::A, RecordType::AAAA].map(|family| Box::pin(server.lookup(name.as_str(), family)));
    let (Either::Left((first, other)) | Either::Right((first, other))) = select(v4, v6).await;
    let second = match &first {
        Ok(_) => timeout(OTHER_FAMILY_WITHIN, other).await.unwrap_or(Err(NetError::Timeout)),
        Err(_) => other.await,
    };
    match (first, second) {
        (Ok(one), Ok(other)) if one.query().name() == other.query().name() => {
            Ok([one.answers(), other.answers()].concat())
        }
        // The families were found behind different search domains, of which the library knows the order.
        (Ok(_), Ok(_)) => Ok(server.lookup_ip(name).await?.as_lookup().answers().to_vec()),
        (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found.answers().to_vec()),
        (Err(one), Err(other)) => Err(if one.is_no_records_found() { other } else { one }),
    }
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
fn answer<T>(records: &[Record], found: Vec<T>) -> Result<Answer<T>, Error> {
    if found.is_empty() {
        return Err(Error::Empty);
    }
    let ttl = records.iter().map(|record| record.ttl).min().unwrap_or(0);
    // The longest one is that of the hosts file, which says none.
    let ttl = if ttl >= TTL_OF_FILES { HOSTS_FOR } else { Duration::from_secs(ttl.into()) };
    Ok(Answer { found, ttl })
}

/// The files that names depend on.
const FILES: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];
/// How long an answer holds that does not say it.
const TTL_UNKNOWN: Duration = Duration::from_secs(30);
/// How long what the hosts file says holds: it costs no question.
const HOSTS_FOR: Duration = Duration::from_secs(5);
/// The longest time to live, seconds: it stands for none.
const TTL_OF_FILES: u32 = hickory_resolver::MAX_TTL;
/// How long the name servers that have been asked are waited for before the next one is asked, too.
const NEXT_AFTER: Duration = Duration::from_millis(300);
/// How long the addresses of the other family are waited for.
const OTHER_FAMILY_WITHIN: Duration = Duration::from_secs(2);
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
