//! Sentinels: who is the primary now.
//!
//! All of them are asked at once and the majority believed. Nothing more is needed: the connection made from their
//! answer proves by a write that it leads to a primary. Their `+switch-master` is a hint to look again.

use std::sync::Arc;

use redis::Value;
use tokio::task::JoinSet;

use super::config::{Login, Server};
use super::connection::{ConnectError, Connector};

/// The sentinels of one primary.
pub(super) struct Sentinels {
    /// The name they watch it under.
    pub(super) master: Arc<str>,
    /// Where they are, and how to log in to what they name. At least one.
    pub(super) servers: Vec<Server>,
}

impl Sentinels {
    /// The server that most sentinels name.
    pub(super) async fn primary(&self, connector: &Arc<Connector>) -> Result<Server, ConnectError> {
        let mut asked = JoinSet::new();
        for server in self.servers.iter().cloned() {
            let (connector, master) = (Arc::clone(connector), Arc::clone(&self.master));
            asked.spawn(async move { named(&connector, &server, &master).await });
        }
        let mut answers: Vec<(String, u16)> = Vec::new();
        while let Some(answer) = asked.join_next().await {
            answers.extend(answer.ok().flatten());
            let Some(last) = answers.last() else { continue };
            // A majority needs no more answers: one that hangs holds nobody up.
            if answers.iter().filter(|other| *other == last).count() * 2 > self.servers.len() {
                return Ok(self.server(last.clone()));
            }
        }
        let most = answers.iter().max_by_key(|one| answers.iter().filter(|other| other == one).count());
        most.map(|named| self.server(named.clone()))
            .ok_or_else(|| ConnectError::Unnamed(self.master.to_string()))
    }

    fn server(&self, (host, port): (String, u16)) -> Server {
        Server { host, port, ..self.servers[0].clone() }
    }
}

/// What one sentinel says.
async fn named(connector: &Connector, server: &Server, master: &str) -> Option<(String, u16)> {
    let connection = open(connector, server).await?;
    let question = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master).to_owned();
    let asked = tokio::time::timeout(connector.patience(), connection.call(&question));
    let answer: Value = asked.await.ok()?.ok()?;
    let (host, port): (String, u16) = redis::from_redis_value(answer).ok()?;
    Some((host, port))
}

/// Most sentinels ask for no password, though the primary does; those that ask take the same.
pub(super) async fn open(connector: &Connector, server: &Server) -> Option<super::connection::Connection> {
    let anonymous = Server { login: Login::default(), ..server.clone() };
    if let Ok(connection) = connector.plain(&anonymous).await {
        let ping = redis::cmd("PING");
        let answer = tokio::time::timeout(connector.patience(), connection.call(&ping));
        if answer.await.is_ok_and(|answer| answer.is_ok()) {
            return Some(connection);
        }
    }
    let login = Login { db: 0, ..server.login.clone() };
    connector.plain(&Server { login, ..server.clone() }).await.ok()
}
