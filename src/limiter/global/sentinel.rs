//! Sentinels: finds the present primary.
//!
//! All sentinels are asked at once, and the majority of those that answer is believed; the connection that is then opened
//! proves by a write that it leads to a primary. A promoted replica accepts writes up to a second before sentinels name
//! it, so if the named server refuses writes, the replicas they know are asked for their role.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{PushInfo, Value};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::config::{Login, Server};
use super::connection::{ConnectError, Connection, Connector};

pub(super) struct Sentinels {
    /// The name of the primary in the sentinels' configuration.
    pub(super) master: Arc<str>,
    /// The sentinels' addresses, and the login for the servers they name. At least one.
    pub(super) servers: Vec<Server>,
}

impl Sentinels {
    /// The server that most sentinels name; if several are named equally often, each `attempt` takes another.
    pub(super) async fn primary(
        &self,
        connector: &Arc<Connector>,
        attempt: usize,
    ) -> Result<Server, ConnectError> {
        let Votes { named, refusal } = self.vote(connector).await;
        let most = named.iter().map(|(_, votes)| *votes).max().unwrap_or(0);
        let best: Vec<_> = named.into_iter().filter(|(_, votes)| *votes == most).collect();
        match best.get(attempt % best.len().max(1)) {
            Some((address, _)) => Ok(self.server(address.clone())),
            None => {
                let why = refusal.map_or("no sentinel answers".to_owned(), |why| why.to_string());
                Err(ConnectError::Unnamed(self.master.to_string(), why))
            }
        }
    }

    /// The server that more than half of the sentinels that answer name.
    pub(super) async fn agreed(&self, connector: &Arc<Connector>) -> Option<Server> {
        let Votes { named, .. } = self.vote(connector).await;
        let all: usize = named.iter().map(|(_, votes)| votes).sum();
        named.into_iter().find(|(_, votes)| votes * 2 > all).map(|(address, _)| self.server(address))
    }

    /// Asks all sentinels at once. Ends as soon as more than half of them name one server.
    async fn vote(&self, connector: &Arc<Connector>) -> Votes {
        let mut asked = JoinSet::new();
        for server in &self.servers {
            let (connector, server) = (Arc::clone(connector), server.clone());
            let master = Arc::clone(&self.master);
            asked.spawn(async move { named(&connector, &server, &master).await });
        }
        let (mut votes, mut patience) = (Votes::default(), Duration::MAX);
        // Bounded, because a sentinel that hangs must not delay a failover.
        while let Ok(Some(answer)) = timeout(patience, asked.join_next()).await {
            match answer {
                Ok(Ok(address)) => {
                    if votes.add(address) * 2 > self.servers.len() {
                        break;
                    }
                    patience = LATER_THAN_OTHERS;
                }
                Ok(Err(refusal)) => votes.refusal = Some(refusal),
                Err(_) => {}
            }
        }
        votes
    }

    /// A server that the sentinels list as a replica and that says it is the primary: a failover has promoted it, and
    /// the sentinels will name it within a second.
    pub(super) async fn promoted(&self, connector: &Arc<Connector>) -> Result<Server, ConnectError> {
        let mut asked = JoinSet::new();
        for sentinel in self.servers.iter().cloned() {
            let (connector, master) = (Arc::clone(connector), Arc::clone(&self.master));
            let login = sentinel.login.clone();
            asked.spawn(async move {
                for (host, port) in replicas(&connector, &sentinel, &master).await.unwrap_or_default() {
                    let server = Server { host, port, login: login.clone(), ..sentinel };
                    if is_primary(&connector, &server).await == Some(true) {
                        return Some(server);
                    }
                }
                None
            });
        }
        let mut patience = Duration::MAX;
        while let Ok(Some(answer)) = timeout(patience, asked.join_next()).await {
            if let Ok(Some(server)) = answer {
                return Ok(server);
            }
            patience = LATER_THAN_OTHERS;
        }
        Err(ConnectError::Unnamed(self.master.to_string(), "no replica was promoted to primary".to_owned()))
    }

    fn server(&self, (host, port): (String, u16)) -> Server {
        Server { host, port, ..self.servers[0].clone() }
    }
}

#[derive(Default)]
struct Votes {
    /// Addresses, each with the number of sentinels that name it.
    named: Vec<(Address, usize)>,
    /// Why one sentinel named none.
    refusal: Option<ConnectError>,
}

type Address = (String, u16);

impl Votes {
    /// Counts a vote and returns how many this address has.
    fn add(&mut self, address: Address) -> usize {
        match self.named.iter_mut().find(|(other, _)| *other == address) {
            Some((_, votes)) => {
                *votes += 1;
                *votes
            }
            None => {
                self.named.push((address, 1));
                1
            }
        }
    }
}

/// Asks one sentinel for the primary.
async fn named(connector: &Connector, server: &Server, master: &str) -> Result<Address, ConnectError> {
    let connection = open(connector, server, None).await?;
    let question = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master).to_owned();
    redis::from_redis_value(connection.ask(&question).await?).map_err(|_| {
        ConnectError::Io(io::Error::new(io::ErrorKind::NotFound, "a sentinel does not know this name"))
    })
}

async fn replicas(connector: &Connector, server: &Server, master: &str) -> Option<Vec<Address>> {
    let connection = open(connector, server, None).await.ok()?;
    let question = redis::cmd("SENTINEL").arg("REPLICAS").arg(master).to_owned();
    let answer = connection.ask(&question).await.ok()?;
    let answer: Vec<HashMap<String, String>> = redis::from_redis_value(answer).ok()?;
    let address = |replica: &HashMap<String, String>| {
        Some((replica.get("ip")?.clone(), replica.get("port")?.parse().ok()?))
    };
    Some(answer.iter().filter_map(address).collect())
}

/// Whether a server says that it is the primary; `None` if it answers, and not that. Our user may lack the right to ask.
pub(super) async fn is_primary(connector: &Connector, server: &Server) -> Option<bool> {
    let Ok(connection) = connector.plain(server).await else { return Some(false) };
    match connection.ask(&redis::cmd("ROLE")).await {
        Ok(Value::Array(role)) => {
            Some(matches!(role.first(), Some(Value::BulkString(word)) if word == b"master"))
        }
        Err(ConnectError::Timeout(_)) => Some(false),
        Ok(_) | Err(_) => None,
    }
}

/// Connects to a sentinel. Because most have no password although the primary has one, the login is tried without one
/// as well.
pub(super) async fn open(
    connector: &Connector,
    server: &Server,
    pushes: Option<mpsc::UnboundedSender<PushInfo>>,
) -> Result<Connection, ConnectError> {
    let anonymous = Server { login: Login::default(), ..server.clone() };
    if let Ok(connection) = connector.connect(&anonymous, 0, pushes.clone()).await
        && connection.ask(&redis::cmd("PING")).await.is_ok()
    {
        return Ok(connection);
    }
    let login = Login { db: 0, ..server.login.clone() };
    connector.connect(&Server { login, ..server.clone() }, 0, pushes).await
}

/// How long after one answer the other sentinels are waited for.
const LATER_THAN_OTHERS: Duration = Duration::from_millis(50);
