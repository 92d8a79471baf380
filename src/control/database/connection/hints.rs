//! Hints of PostgreSQL that something has changed. A hint can only cause a read: what it says is not trusted, and one that is
//! lost is made up for by the reader's own looks at the version.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::database::connection::connections::{ConnectionPool, DatabaseOptions};
use crate::database::connection::sql::SqlQuery;
use crate::database::error::Error;
use crate::database::handle::Database;
use crate::database::hint::{CHANNEL, HintConnection, LatestHint};
use crate::database::id;
use crate::database::time::Time;

/// The hints of one database. Its task ends when this is dropped.
pub struct DatabaseHints {
    heard: watch::Receiver<LatestHint>,
    _task: JoinSet<()>,
}

impl Database {
    /// Listens for hints on the runtime this is called on; `None` if the database gives none, as SQLite. Each time this has
    /// passed it is tested whether they come.
    pub fn listen(&self, tested_each: Duration) -> Option<DatabaseHints> {
        let DatabaseOptions::Postgres(_) = &self.connections.options else { return None };
        let (tell, heard) = watch::channel(LatestHint { version: None, ear: HintConnection::Opening });
        let own = format!("{CHANNEL}_{}", id::new(Time::now(), 0));
        let listener = HintListener { connections: Arc::clone(&self.connections), tell, own, tested_each };
        let mut task = JoinSet::new();
        task.spawn(listener.keep());
        Some(DatabaseHints { heard, _task: task })
    }
}

impl DatabaseHints {
    /// Waits for the next hint, or until the connection is made or lost. Nothing is lost if the wait is given up.
    pub async fn next(&mut self) -> LatestHint {
        if self.heard.changed().await.is_err() {
            // For ever, because the task ends only with this: if it has panicked there is nothing to wait for.
            std::future::pending::<()>().await;
        }
        self.heard.borrow_and_update().clone()
    }
}

struct HintListener {
    connections: Arc<ConnectionPool>,
    tell: watch::Sender<LatestHint>,
    /// A channel that only this one listens to.
    own: String,
    tested_each: Duration,
}

impl HintListener {
    async fn keep(self) {
        let mut pause = PAUSE_MIN;
        loop {
            let reason = match self.connect().await {
                Ok(mut listener) => self.hear(&mut listener).await,
                Err(error) => error,
            };
            if self.tell.borrow().ear == HintConnection::Open {
                pause = PAUSE_MIN;
            }
            self.tell.send_modify(|heard| heard.ear = HintConnection::Lost(reason));
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Listens at the first server that lets it, because a standby does not.
    async fn connect(&self) -> Result<PgListener, Error> {
        let mut failed = self.lost("no server accepts a connection for LISTEN");
        if let DatabaseOptions::Postgres(servers) = &self.connections.options {
            for (_, options) in servers.ordered() {
                match self.connect_to(options).await {
                    Ok(listener) => return Ok(listener),
                    Err(error) => failed = error,
                }
            }
        }
        Err(failed)
    }

    async fn connect_to(&self, options: &PgConnectOptions) -> Result<PgListener, Error> {
        let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = pool.acquire_timeout(CONNECT_MAX).connect_lazy_with(options.clone());
        let listening = timeout(CONNECT_MAX, async {
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.eager_reconnect(false);
            listener.listen_all([CHANNEL, &self.own]).await?;
            Ok(listener)
        });
        match listening.await {
            Ok(Ok(listener)) => Ok(listener),
            Ok(Err(error)) => Err(Error::of(&self.connections.place, &error)),
            Err(_) => Err(self.lost("no connection within the deadline")),
        }
    }

    /// Tells hints until they come no more; returns why. Only what comes shows that any do, because a pooler of
    /// transactions takes `LISTEN` and drops what is notified, and a connection that is cut without a word looks like
    /// one on which nothing happens.
    async fn hear(&self, listener: &mut PgListener) -> Error {
        loop {
            if let Err(error) = self.notify().await {
                return error;
            }
            match self.until_own(listener, CONNECT_MAX).await {
                Ok(true) => self.tell.send_if_modified(|heard| {
                    std::mem::replace(&mut heard.ear, HintConnection::Open) != HintConnection::Open
                }),
                Ok(false) => {
                    return self.lost("its own NOTIFY does not arrive: if a connection pooler is in between, connect without it");
                }
                Err(error) => return error,
            };
            if let Err(error) = self.until_own(listener, self.tested_each).await {
                return error;
            }
        }
    }

    /// Tells this node something over another connection, as other nodes would.
    async fn notify(&self) -> Result<(), Error> {
        let mut session = self.connections.session(CONNECT_MAX).await?;
        session.all(SqlQuery::new("SELECT pg_notify($1, '')").with(self.own.as_str())).await?;
        session.release();
        Ok(())
    }

    /// Tells hints until this node's own comes, or for so long. Whether it has come.
    async fn until_own(&self, listener: &mut PgListener, within: Duration) -> Result<bool, Error> {
        let deadline = Instant::now() + within;
        loop {
            match timeout_at(deadline, listener.try_recv()).await {
                Ok(Ok(Some(hint))) if hint.channel() == self.own => return Ok(true),
                Ok(Ok(Some(hint))) => {
                    let version = hint.payload().parse().ok();
                    self.tell.send_modify(|heard| heard.version = version);
                }
                Ok(Ok(None)) => return Err(self.lost("the connection is lost")),
                Ok(Err(error)) => return Err(Error::of(&self.connections.place, &error)),
                Err(_) => return Ok(false),
            }
        }
    }

    fn lost(&self, reason: &str) -> Error {
        self.connections.unreachable(reason)
    }
}

const CONNECT_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
