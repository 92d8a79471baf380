//! What the global tier is told: which servers there are, how they belong together, how to log in.
//!
//! Everything in here is right already; reading it from a file is the configuration's work.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use aws_lc_rs::hmac;

/// The Redis that the nodes of a fleet share.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How its servers belong together.
    pub topology: Topology,
    /// How long a decision waits for it.
    pub deadline: Duration,
    /// What every key begins with: printable ASCII without braces.
    pub prefix: String,
    /// What limiter keys are hashed with, beside the prefix. All gateways of a fleet say the same.
    pub key_secret: Option<Secret>,
    /// Connections to each server, at least 1.
    pub connections: usize,
    /// Certificates, PEM, by which `rediss://` servers are trusted; `None`: the system's.
    pub ca: Option<PathBuf>,
}

/// How servers belong together.
#[derive(Clone, Debug, PartialEq)]
pub enum Topology {
    /// One primary. Of several servers, the first that can be written to.
    Single(Vec<Server>),
    /// The primary that sentinels name.
    Sentinel {
        /// The name they watch it under.
        master: String,
        /// The sentinels, and how to log in to the primary.
        sentinels: Vec<Server>,
    },
    /// Redis Cluster, found through any of these.
    Cluster(Vec<Server>),
    /// Independent servers, each with its part of the keys.
    Ring {
        /// Those that share the keys by their weights.
        shards: Vec<Weighted>,
        /// Those that hold nothing but the keys of some tenants.
        dedicated: Vec<Dedicated>,
    },
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Who we are there: an ACL user and a password.
    pub login: Login,
}

/// How to log in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The ACL user; `None`: the default one.
    pub username: Option<String>,
    /// Its password; `None`: none is asked for.
    pub password: Option<Secret>,
    /// The number of the database.
    pub db: u16,
}

/// A server and its share of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weighted {
    /// Where.
    pub server: Server,
    /// Its share against the others, at least 1.
    pub weight: u32,
}

/// A server for some tenants alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dedicated {
    /// Where.
    pub server: Server,
    /// Whose keys.
    pub tenants: Vec<String>,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl Config {
    /// Every secret of it, to be masked before it is shown.
    pub fn secrets(&mut self) -> Vec<&mut Secret> {
        let servers: Vec<&mut Server> = match &mut self.topology {
            Topology::Single(servers) | Topology::Cluster(servers) => servers.iter_mut().collect(),
            Topology::Sentinel { sentinels, .. } => sentinels.iter_mut().collect(),
            Topology::Ring { shards, dedicated } => {
                let shards = shards.iter_mut().map(|shard| &mut shard.server);
                shards.chain(dedicated.iter_mut().map(|shard| &mut shard.server)).collect()
            }
        };
        let passwords = servers.into_iter().filter_map(|server| server.login.password.as_mut());
        passwords.chain(self.key_secret.as_mut()).collect()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(formatter, "[{}]:{}", self.host, self.port),
            false => write!(formatter, "{}:{}", self.host, self.port),
        }
    }
}

/// What limiter keys are hashed with where gateways share them: the same on all of a fleet, and where `key-secret`
/// is set, unknown to clients.
pub fn salt(config: &Config) -> [u8; 16] {
    let secret = config.key_secret.as_ref().map_or("", |secret| secret.0.as_str());
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("sluicegate limiter keys {}", config.prefix).as_bytes());
    let mut salt = [0; 16];
    salt.copy_from_slice(&tag.as_ref()[..16]);
    salt
}

/// How long a decision waits where nothing is said.
pub const DEADLINE: Duration = Duration::from_millis(2);
/// What keys begin with where nothing is said.
pub const PREFIX: &str = "sg";
/// Connections to a server where nothing is said.
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
            deadline: DEADLINE,
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
