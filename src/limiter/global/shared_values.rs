//! Small values and locks that the nodes of a fleet share, beside their limits.
//!
//! They are asked for on the control runtime, rarely, over a connection of their own; no request waits for one. All are on
//! the first shard.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use tokio::sync::Mutex;

use super::Global;
use super::config::Server;
use super::connection::{ConnectError, Connection, ServerInfo};
use super::routes::RoutingState;
use base::clock;

/// What the nodes of one fleet share. Every question fails if Redis does not answer, or refuses.
pub struct SharedValues {
    shared: Arc<RoutingState>,
    connection: Mutex<Option<Connection>>,
    /// Until then the pipelines may not have found the server yet.
    found_by: Instant,
}

/// Why a value was neither read nor written.
#[derive(Debug, thiserror::Error)]
pub enum SharedValueError {
    /// Redis cannot be reached, or not in time.
    #[error("redis does not answer")]
    Away,
    /// It answers with an error, such as a missing right.
    #[error("redis: {0}")]
    Refused(String),
}

impl Global {
    /// The values of this fleet, which every node of it can read.
    pub fn shared_values(&self) -> SharedValues {
        let found_by = clock::instant() + FOUND_WITHIN;
        SharedValues { shared: Arc::clone(&self.shared), connection: Mutex::default(), found_by }
    }
}

impl SharedValues {
    /// Takes a lock for so long, or keeps it for longer; `false` if another holder has it.
    pub async fn take(&self, name: &str, holder: &str, lasts: Duration) -> Result<bool, SharedValueError> {
        let millis = millis(lasts);
        let mut take = redis::cmd("SET");
        take.arg(self.name(name)).arg(holder).arg("NX").arg("PX").arg(millis);
        if self.call(&take).await? == Value::Okay {
            return Ok(true);
        }
        Ok(self.call(self.eval(KEEP, &[name]).arg(holder).arg(millis)).await? == Value::Int(1))
    }

    /// Gives back a lock, if this holder has it.
    pub async fn give_back(&self, name: &str, holder: &str) -> Result<(), SharedValueError> {
        self.call(self.eval(GIVE_BACK, &[name]).arg(holder)).await.map(drop)
    }

    /// Leaves a value for so long.
    pub async fn put(&self, name: &str, value: &[u8], lasts: Duration) -> Result<(), SharedValueError> {
        let mut put = redis::cmd("SET");
        put.arg(self.name(name)).arg(value).arg("PX").arg(millis(lasts));
        self.call(&put).await.map(drop)
    }

    /// The value that is there.
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, SharedValueError> {
        match self.call(redis::cmd("GET").arg(self.name(name))).await? {
            Value::BulkString(value) => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    /// Leaves a value beside those that others leave under this name, all of them for so long from now on.
    pub async fn put_beside(
        &self,
        name: &str,
        own: &str,
        value: &[u8],
        lasts: Duration,
    ) -> Result<(), SharedValueError> {
        let mut put = self.eval(PUT_BESIDE, &[name]);
        self.call(put.arg(own).arg(value).arg(millis(lasts))).await.map(drop)
    }

    /// The values that were left under a name, each with who left it.
    pub async fn all_beside(&self, name: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>, SharedValueError> {
        let answer = self.call(self.eval(ALL_BESIDE, &[name]).arg(BESIDE_MAX)).await?;
        let Value::Array(values) = answer else { return Ok(Vec::new()) };
        let mut values = values.into_iter();
        let mut found = Vec::new();
        while let (Some(Value::BulkString(own)), Some(Value::BulkString(value))) =
            (values.next(), values.next())
        {
            found.push((own, value));
        }
        Ok(found)
    }

    /// Runs a script on the keys of these names, the first shard's.
    pub(crate) async fn run(
        &self,
        script: &str,
        names: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<Value, SharedValueError> {
        self.call(self.eval(script, names).arg(arguments)).await
    }

    /// Takes a value away.
    pub async fn remove(&self, name: &str) -> Result<(), SharedValueError> {
        self.call(redis::cmd("DEL").arg(self.name(name))).await.map(drop)
    }

    /// A call of a script on the keys of these names, without its arguments.
    fn eval(&self, script: &str, names: &[impl AsRef<str>]) -> Cmd {
        let mut eval = redis::cmd("EVAL");
        eval.arg(script).arg(names.len());
        for name in names {
            eval.arg(self.name(name.as_ref()));
        }
        eval
    }

    fn name(&self, name: &str) -> Vec<u8> {
        let tag = self.shared.shards.first().and_then(|shard| shard.tag.as_deref());
        self.shared.names.own(tag, name)
    }

    /// Where the first shard was found last.
    fn place(&self) -> Option<Arc<(Server, Arc<ServerInfo>)>> {
        let shard = self.shared.shards.first()?;
        self.shared.nodes.load().get(shard.place())?.place()
    }

    async fn call(&self, command: &Cmd) -> Result<Value, SharedValueError> {
        // Held during the call, because calls are few, and their order is the caller's.
        let mut kept = self.connection.lock().await;
        let connection = self.connected(kept.take()).await.ok_or(SharedValueError::Away)?;
        match connection.ask(command).await {
            Ok(value) => {
                *kept = Some(connection);
                Ok(value)
            }
            Err(ConnectError::Redis(error)) if !error.is_io_error() && !error.is_connection_dropped() => {
                // The next call looks for the server anew, because a primary that has become a replica refuses writes.
                Err(SharedValueError::Refused(error.to_string()))
            }
            Err(_) => Err(SharedValueError::Away),
        }
    }

    /// The connection that there is, if it still leads to the first shard's server; else a new one.
    async fn connected(&self, kept: Option<Connection>) -> Option<Connection> {
        let found = loop {
            match self.place() {
                Some(found) => break found,
                // Just after a start: a node that took this for an outage would order for itself.
                None if clock::instant() < self.found_by => tokio::time::sleep(FOUND_LOOK).await,
                None => return None,
            }
        };
        self.shared.connector.again(kept, &found.0).await
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).clamp(1, MILLIS_MAX)
}

/// Keeps a lock for as long as it is the holder's.
const KEEP: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";
const GIVE_BACK: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// Of a fleet that is too large for that each node's minute still is its own to see.
const PUT_BESIDE: &str = "if redis.call('HLEN', KEYS[1]) < 1024 then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end redis.call('PEXPIRE', KEYS[1], ARGV[3]) return 1";
const ALL_BESIDE: &str = "if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[1]) then return {} end return redis.call('HGETALL', KEYS[1])";
/// Values under one name.
const BESIDE_MAX: usize = 1_024;
/// How long the pipelines have to find the server after a start.
const FOUND_WITHIN: Duration = Duration::from_secs(2);
const FOUND_LOOK: Duration = Duration::from_millis(10);
/// At most a year, because Redis refuses times that do not fit its clock.
const MILLIS_MAX: u64 = 366 * 24 * 3_600 * 1_000;
