//! The configuration of the shared tier: its servers, their topology, and how to log in.
//!
//! The values are valid already; `config` reads and checks them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use aws_lc_rs::hmac;

pub use base::secret::Secret;

/// The Redis that the nodes of a fleet share.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Its servers, and how they belong together.
    pub topology: Topology,
    /// How long a decision waits for it; `None`: as [`deadline_of`] says of each shard's round trip.
    pub deadline: Option<Duration>,
    /// The prefix of every key in Redis: printable ASCII without braces, because they would set a cluster's hash tag.
    pub prefix: String,
    /// Secret that keys are hashed with, beside the prefix. Every node of a fleet needs the same.
    pub key_secret: Option<Secret>,
    /// Connections to each server, at least 1.
    pub connections: usize,
    /// PEM file of the certificates that `rediss://` servers are trusted by; `None`: the system's.
    pub ca: Option<PathBuf>,
}

/// How the servers belong together, which decides where a key is.
#[derive(Clone, Debug, PartialEq)]
pub enum Topology {
    /// One primary. If several servers are named, the first that can be written to.
    Single(Vec<Server>),
    /// The primary that most sentinels name, found again after each failover.
    Sentinel {
        /// The name they watch it under.
        master: String,
        /// The sentinels, and how to log in to the primary.
        sentinels: Vec<Server>,
    },
    /// Redis Cluster, found through any of these.
    Cluster(Vec<Server>),
    /// Independent servers, each with its part of the keys by consistent hashing.
    Ring {
        /// Servers that share the keys in proportion to their weights.
        shards: Vec<WeightedServer>,
        /// Servers that hold only the keys of certain tenants.
        dedicated: Vec<DedicatedServer>,
    },
}

impl Topology {
    /// The servers as they are configured; of Sentinel those that are asked for the primary.
    pub fn servers(&self) -> Vec<&Server> {
        match self {
            Topology::Single(servers)
            | Topology::Cluster(servers)
            | Topology::Sentinel { sentinels: servers, .. } => servers.iter().collect(),
            Topology::Ring { shards, dedicated } => {
                let shards = shards.iter().map(|shard| &shard.server);
                shards.chain(dedicated.iter().map(|shard| &shard.server)).collect()
            }
        }
    }
}

/// One server, and how to log in there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// A name or an address, without brackets.
    pub host: String,
    /// TCP port, 6379 unless the URL says otherwise.
    pub port: u16,
    /// Whether the URL begins with `rediss://`.
    pub tls: bool,
    /// ACL user, password and database to log in with.
    pub login: Login,
}

/// How to log in to one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The ACL user; `None`: the default one.
    pub username: Option<String>,
    /// Password; `None` if the server asks for none.
    pub password: Option<Secret>,
    /// Number of the database, as of SELECT.
    pub db: u16,
}

/// A server of a ring with its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedServer {
    /// The server, with its address and login.
    pub server: Server,
    /// Its share of the keys in proportion to the others' weights, at least 1.
    pub weight: u32,
}

/// A server that only certain tenants use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedicatedServer {
    /// The server, with its address and login.
    pub server: Server,
    /// The tenants whose keys it holds.
    pub tenants: Vec<String>,
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(formatter, "[{}]:{}", self.host, self.port),
            false => write!(formatter, "{}:{}", self.host, self.port),
        }
    }
}

/// The salt that keys are hashed with: equal on all nodes of a fleet, and secret from clients if `key-secret` is set.
pub fn salt(config: &Config) -> [u8; 16] {
    let secret = config.key_secret.as_ref().map_or("", |secret| secret.0.as_str());
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("sluicegate limiter keys {}", config.prefix).as_bytes());
    let mut salt = [0; 16];
    salt.copy_from_slice(&tag.as_ref()[..16]);
    salt
}

/// How long a decision waits by default for a shard whose round trip nearly always takes so long (0: not known yet), and of
/// late at least `shortest`.
///
/// Half as much again, because a few calls take longer. A Redis in another zone or region is not an outage, so it is waited
/// for; but no request waits longer than 20 ms for a Redis that has become slow.
#[must_use]
pub fn deadline_of(round_trip: Duration, shortest: Duration) -> Duration {
    let most = (shortest * 2).clamp(DEADLINE_NEAR, DEADLINE_MAX);
    if round_trip.is_zero() { DEADLINE_NEAR } else { (round_trip * 3 / 2).clamp(DEADLINE_MIN, most) }
}

/// The least that a decision waits by default.
pub const DEADLINE_MIN: Duration = Duration::from_millis(2);
/// The most that a decision waits by default for a Redis whose shortest round trips are not half as long.
pub const DEADLINE_NEAR: Duration = Duration::from_millis(20);
/// The most that a decision waits by default.
pub const DEADLINE_MAX: Duration = Duration::from_millis(100);
/// Prefix of keys where the configuration has no `prefix`.
pub const PREFIX: &str = "sg";
/// Connections to each server where the configuration has no `connections`.
pub const CONNECTIONS: usize = 2;
/// The most connections to a server.
pub const CONNECTIONS_MAX: usize = 16;
/// The port of a server whose URL has none.
pub const PORT: u16 = 6379;
/// The port of a sentinel whose URL has none.
pub const SENTINEL_PORT: u16 = 26379;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_salt_is_the_fleets_own() {
        let config = |prefix: &str, secret: Option<&str>| Config {
            topology: Topology::Single(Vec::new()),
            deadline: None,
            prefix: prefix.to_owned(),
            key_secret: secret.map(|secret| Secret(secret.to_owned())),
            connections: CONNECTIONS,
            ca: None,
        };
        let salts = [("sg", None), ("sg2", None), ("sg", Some("a")), ("sg", Some("b"))];
        let salts = salts.map(|(prefix, secret)| salt(&config(prefix, secret)));
        assert_eq!(salts[0], salt(&config("sg", None)));
        for (index, one) in salts.iter().enumerate() {
            assert!(salts[index + 1..].iter().all(|other| one != other));
        }
    }
}
