//! What an upstream is told by the configuration, parsed and resolved.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use base::secret::Secret;
use net::trust::Trust;
use policy::definition::Dimension;
use policy::retry::{Retry, Statuses};

/// One named upstream: a set of servers that answer alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Its name, or the URL where the route wrote one.
    pub name: String,
    /// At least one.
    pub servers: Vec<ConfiguredServer>,
    /// How one of them is picked.
    pub balance: Balance,
    /// The cookie that keeps a client at its server. `None`: there is none.
    pub sticky: Option<StickyConfig>,
    pub http: HttpVersion,
    /// How servers over TLS are checked, and what they are shown.
    pub tls: Trust,
    pub connections: PoolBounds,
    pub timeouts: UpstreamTimeouts,
    /// When a request is sent a second time.
    pub retry: Retry,
    /// Retries at most, as a share of the requests of the last ten seconds, percent.
    pub retry_budget_percent: u32,
    /// What becomes of requests' bodies.
    pub uploads: UploadConfig,
    /// `Host` sent upstream: the client's, or the server's own authority.
    pub host: HostHeader,
    /// How servers that do not work are noticed, left out and taken back.
    pub health: HealthConfig,
}

/// How servers that do not work are noticed, left out and taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// Servers are asked. `None`: they are not.
    pub check: Option<HealthCheckConfig>,
    /// Answers to requests are looked at. `None`: they are not.
    pub eject: Option<Eject>,
    /// A server that is back gets its share by and by over this time.
    pub slow_start: Option<Duration>,
    /// If fewer servers than this share may be used, all are, percent.
    pub panic_percent: u32,
}

impl HealthConfig {
    /// How servers are compared; `None`: they are not.
    pub fn outliers(&self) -> Option<&Outliers> {
        self.eject.as_ref().map(|eject| &eject.outliers).filter(|outliers| outliers.is_on())
    }
}

impl Default for HealthConfig {
    fn default() -> Self {
        HealthConfig { check: None, eject: None, slow_start: None, panic_percent: 25 }
    }
}

/// How a server is asked whether it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheckConfig {
    pub probe: HealthProbe,
    /// How often, ±10 %.
    pub every: Duration,
    /// How long one check may take, from the connection on.
    pub timeout: Duration,
    /// So many failed checks in a row make a server unhealthy.
    pub unhealthy_after: u32,
    /// So many good ones make it healthy again.
    pub healthy_after: u32,
    /// The port that is asked. `None`: the server's own.
    pub port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthProbe {
    Http {
        path: String,
        /// The statuses of a server that works.
        status: Statuses,
        /// What the body must hold. `None`: it is not read.
        body: Option<String>,
    },
    /// A connection, with TLS where the server speaks it.
    Tcp,
    /// `grpc.health.v1.Health/Check` for this service; the empty name is the server as a whole.
    Grpc(String),
}

impl Default for HealthCheckConfig {
    fn default() -> Self {
        HealthCheckConfig {
            probe: HealthProbe::Tcp,
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            unhealthy_after: 3,
            healthy_after: 2,
            port: None,
        }
    }
}

/// When a server is left out for what it answers requests with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eject {
    /// So many failures in a row.
    pub after: u32,
    /// For how long the first time; each ejection that follows soon is longer by as much.
    pub time: Duration,
    /// Servers that may be left out so at once, percent.
    pub most_percent: u32,
    /// When a server is left out because it answers worse than the others.
    pub outliers: Outliers,
}

/// When a server counts as worse than the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outliers {
    /// Its success rate is so many percentage points below the others'. `None`: that is not looked at.
    pub success_rate_percent: Option<u32>,
    /// Its answers take so many times as long as the others'. `None`: that is not looked at.
    pub latency_times: Option<u32>,
    /// How often servers are compared.
    pub every: Duration,
    /// The fewest requests between two looks that say something of a server.
    pub requests_min: u32,
}

impl Outliers {
    pub const OFF: Outliers = Outliers {
        success_rate_percent: None,
        latency_times: None,
        every: Duration::from_secs(10),
        requests_min: 100,
    };

    pub fn is_on(&self) -> bool {
        self.success_rate_percent.is_some() || self.latency_times.is_some()
    }
}

impl Eject {
    /// How many of so many servers may be left out at once.
    pub fn most(&self, servers: usize) -> usize {
        servers * self.most_percent as usize / 100
    }
}

impl Default for Eject {
    fn default() -> Self {
        Eject { after: 5, time: Duration::from_secs(30), most_percent: 50, outliers: Outliers::OFF }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConfiguredServer {
    pub tls: bool,
    pub place: ServerLocation,
    /// Its share against the others.
    pub weight: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServerLocation {
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// The port; the scheme's own where the URL has none.
        port: u16,
    },
    /// Where the SRV records of a name say: they have names, ports, weights and priorities of servers.
    Service(String),
    Unix(PathBuf),
}

impl ConfiguredServer {
    /// The name that its certificate is for. Of a service it is the service's domain and not the target of a record,
    /// because whoever forges an answer chooses that (RFC 6125 section 6.2.1). A Unix socket has none and is called as
    /// nginx calls it.
    pub fn name(&self) -> &str {
        match &self.place {
            ServerLocation::Tcp { host, .. } => host,
            // `_service._proto.` in front of it.
            ServerLocation::Service(name) => name.splitn(3, '.').nth(2).unwrap_or(name),
            ServerLocation::Unix(_) => LOCALHOST,
        }
    }

    /// The address that needs no resolving, if it has one.
    pub fn literal(&self) -> Option<SocketAddr> {
        match &self.place {
            ServerLocation::Tcp { host, port } => Some(SocketAddr::new(host.parse().ok()?, *port)),
            ServerLocation::Service(_) | ServerLocation::Unix(_) => None,
        }
    }

    /// The name that name servers are asked for, if there is one.
    pub fn unresolved(&self) -> Option<&str> {
        match &self.place {
            ServerLocation::Tcp { host, .. } if self.literal().is_none() => Some(host),
            ServerLocation::Service(name) => Some(name),
            ServerLocation::Tcp { .. } | ServerLocation::Unix(_) => None,
        }
    }

    /// What `Host` calls it: its host, and the port unless it is the scheme's own.
    pub fn authority(&self) -> String {
        let (host, port) = match &self.place {
            ServerLocation::Tcp { host, port } => (host, port),
            ServerLocation::Service(name) => return name.clone(),
            ServerLocation::Unix(_) => return LOCALHOST.to_owned(),
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        match (port, self.tls) {
            (80, false) | (443, true) => host,
            _ => format!("{host}:{port}"),
        }
    }

    /// What logs, metrics and errors call it.
    pub fn shown(&self) -> String {
        match &self.place {
            ServerLocation::Tcp { .. } | ServerLocation::Service(_) => self.authority(),
            ServerLocation::Unix(path) => format!("unix:{}", path.display()),
        }
    }
}

/// What a server on a Unix socket is called where a host is needed.
const LOCALHOST: &str = "localhost";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Each in turn, by weight, unless another one, drawn at random, is less loaded.
    #[default]
    P2c,
    /// Each in turn, by weight.
    RoundRobin,
    /// The one with the fewest requests on their way, for its weight.
    LeastRequests,
    /// The one that the value of this dimension belongs to; as [`Balance::P2c`] where a request has none.
    Hash(Dimension),
}

impl Balance {
    /// The dimension that a server is kept by.
    pub fn dimension(&self) -> Option<&Dimension> {
        match self {
            Balance::Hash(by) => Some(by),
            Balance::P2c | Balance::RoundRobin | Balance::LeastRequests => None,
        }
    }
}

/// The cookie that keeps a client at its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyConfig {
    pub cookie: String,
    pub secret: Secret,
    /// How long clients keep it. `None`: for a session of their own.
    pub max_age: Option<Duration>,
    /// The paths that clients send it to.
    pub path: String,
    /// Whether clients send it with requests that come from other sites.
    pub same_site: SameSite,
    /// Whether it is `Secure` even if the connection is not, because TLS may end before this gateway.
    pub is_secure: bool,
}

impl StickyConfig {
    /// A cookie of this name, without a secret yet.
    pub fn new(cookie: String) -> StickyConfig {
        StickyConfig {
            cookie,
            secret: Secret(String::new()),
            max_age: None,
            path: "/".to_owned(),
            same_site: SameSite::default(),
            is_secure: false,
        }
    }
}

/// `SameSite` of a cookie (RFC 6265bis section 5.6.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SameSite {
    /// Sent from other sites only when a user follows a link.
    #[default]
    Lax,
    /// Never sent from other sites.
    Strict,
    /// Always sent.
    None,
}

/// What is spoken to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1.
    #[default]
    H1,
    /// HTTP/2, by prior knowledge or ALPN.
    H2,
}

/// `Host` (or `:authority`) sent upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    #[default]
    Client,
    /// The server's own name and port.
    Server,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolBounds {
    /// Open at once, over all workers, per server.
    pub max: usize,
    /// Kept open without work, over all workers, per server.
    pub idle: usize,
    /// An idle one is closed after this.
    pub idle_timeout: Duration,
    /// Any is closed after about this: the age is drawn from ±10 %.
    pub max_age: Duration,
    /// How long a request waits for a free one when `max` are open.
    pub wait: Duration,
    /// How many requests may wait, per worker.
    pub waiting: usize,
    /// Requests at once on one HTTP/2 connection.
    pub streams: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// TCP and TLS handshake.
    pub connect: Duration,
    /// From the end of the request to the answer's head; and how long the server may take nothing of a body.
    pub response: Duration,
    /// The same for a try that may be followed by another one. `None`: the same as `response`.
    pub per_try: Option<Duration>,
    /// Between two pieces of the answer's body; [`FAR`](super::deadline::FAR) where there is no such bound.
    pub stall: Duration,
    /// The whole exchange. `None`: none (streams).
    pub total: Option<Duration>,
}

/// What becomes of requests' bodies that are not there at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadConfig {
    /// So many bytes are gathered before a connection is taken; 0: none.
    pub gather_bytes: usize,
    /// Bytes a second a body has at least while it holds a connection; 0: no such bound.
    pub rate_min: u64,
}

impl Default for UploadConfig {
    fn default() -> Self {
        UploadConfig { gather_bytes: 16 * 1024, rate_min: 1024 }
    }
}

impl Default for PoolBounds {
    fn default() -> Self {
        PoolBounds {
            max: 1024,
            idle: 256,
            idle_timeout: Duration::from_secs(4),
            max_age: Duration::from_secs(600),
            wait: Duration::from_secs(1),
            waiting: 1024,
            streams: 100,
        }
    }
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        UpstreamTimeouts {
            connect: Duration::from_secs(1),
            response: Duration::from_secs(15),
            per_try: None,
            stall: Duration::from_secs(60),
            total: None,
        }
    }
}

/// Retries at most, percent of the requests, unless the configuration says otherwise.
pub const RETRY_BUDGET_PERCENT: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_for_the_service_and_not_for_its_target() {
        let name = "_https._tcp.orders.internal".to_owned();
        let host = ServerLocation::Tcp { host: name.clone(), port: 443 };
        let service = ConfiguredServer { tls: true, place: ServerLocation::Service(name), weight: 1 };
        assert_eq!(service.name(), "orders.internal");
        assert_eq!(ConfiguredServer { place: host, ..service }.name(), "_https._tcp.orders.internal");
    }
}
