//! Hints of PostgreSQL that something has changed. A hint can only cause a read: what it says is not trusted, and one that is
//! lost is made up for by the reader's own looks at the version.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::connections::{Connections, Options};
use super::error::Error;
use super::open::Database;

/// What was heard last. Many hints at once are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The version that the last hint named; `None`: no hint yet, or one that named none.
    pub version: Option<i64>,
    /// Whether hints can be heard now. After a time without, anything may have changed.
    pub ear: Ear,
}

/// The connection that hints come by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ear {
    /// It is being made for the first time.
    Opening,
    /// It is there.
    Open,
    /// It is lost, or could not be made. It is tried again for as long as there are [`Hints`].
    Lost(Error),
}

/// The hints of one database. Its task ends when this is dropped.
pub struct Hints {
    heard: watch::Receiver<Heard>,
    task: JoinHandle<()>,
}

impl Database {
    /// Listens for hints on the runtime this is called on; `None` if the database gives none, as SQLite.
    pub fn listen(&self) -> Option<Hints> {
        let Options::Postgres(_) = &self.connections.options else { return None };
        let (tell, heard) = watch::channel(Heard { version: None, ear: Ear::Opening });
        let listener = Listener { connections: Arc::clone(&self.connections), tell };
        Some(Hints { heard, task: tokio::spawn(listener.keep()) })
    }
}

impl Hints {
    /// Waits for the next hint, or until the connection is made or lost. Nothing is lost if the wait is given up.
    pub async fn next(&mut self) -> Heard {
        if self.heard.changed().await.is_err() {
            // The task ends only with this; if it has panicked there is nothing to wait for.
            std::future::pending::<()>().await;
        }
        self.heard.borrow_and_update().clone()
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Listener {
    connections: Arc<Connections>,
    tell: watch::Sender<Heard>,
}

impl Listener {
    async fn keep(self) {
        let mut pause = PAUSE_MIN;
        loop {
            let reason = match self.connect().await {
                Ok(listener) => {
                    pause = PAUSE_MIN;
                    self.tell.send_modify(|heard| heard.ear = Ear::Open);
                    self.hear(listener).await
                }
                Err(error) => error,
            };
            self.tell.send_modify(|heard| heard.ear = Ear::Lost(reason));
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Listens at the first server that lets it: a standby does not.
    async fn connect(&self) -> Result<PgListener, Error> {
        let mut failed = self.lost("there is no server to listen at");
        if let Options::Postgres(servers) = &self.connections.options {
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
            listener.listen(CHANNEL).await?;
            Ok(listener)
        });
        match listening.await {
            Ok(Ok(listener)) => Ok(listener),
            Ok(Err(error)) => Err(Error::of(&self.connections.place, &error)),
            Err(_) => Err(self.lost("no connection within the deadline")),
        }
    }

    /// Tells hints until the connection is lost; returns why.
    async fn hear(&self, mut listener: PgListener) -> Error {
        loop {
            match timeout(QUIET_MAX, listener.try_recv()).await {
                Ok(Ok(Some(hint))) => {
                    let version = hint.payload().parse().ok();
                    self.tell.send_modify(|heard| heard.version = version);
                }
                Ok(Ok(None)) => return self.lost("the connection is lost"),
                Ok(Err(error)) => return Error::of(&self.connections.place, &error),
                // A connection that is cut without a word looks like one on which nothing happens.
                Err(_) => match timeout(CONNECT_MAX, listener.execute("SELECT 1")).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return Error::of(&self.connections.place, &error),
                    Err(_) => return self.lost("the connection is silent"),
                },
            }
        }
    }

    fn lost(&self, reason: &str) -> Error {
        self.connections.unreachable(reason)
    }
}

/// The channel of `NOTIFY`.
pub const CHANNEL: &str = "sluicegate";
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// After so long without a hint the connection is tested.
const QUIET_MAX: Duration = Duration::from_secs(30);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
