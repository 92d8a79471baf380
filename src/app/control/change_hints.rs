//! Where this node hears that something has changed, and how it tells the others: `NOTIFY` of PostgreSQL, which comes with the
//! commit, and Redis' pub/sub, which comes after it. Each is a hint only.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use control::database::{self, HintConnection};
use limiter::global::{self, HintSender};

/// Both kinds of hints, as far as there are any.
pub(super) struct ChangeHints {
    database: Option<database::DatabaseHints>,
    redis: Option<global::Hints>,
    /// Whether hints of the database can be heard, and those of Redis.
    pub open: [bool; 2],
}

impl ChangeHints {
    pub(super) fn new(
        database: Option<database::DatabaseHints>,
        redis: Option<global::Hints>,
    ) -> ChangeHints {
        ChangeHints { database, redis, open: [false; 2] }
    }

    /// Waits for a hint, or until hints can be heard or no longer can, because what changed while they could not is to
    /// be looked for.
    pub(super) async fn listen(&mut self) {
        let of_database = async {
            match &mut self.database {
                Some(hints) => hints.next().await.ear == HintConnection::Open,
                None => std::future::pending().await,
            }
        };
        let of_redis = async {
            match &mut self.redis {
                Some(hints) => hints.next().await,
                None => std::future::pending().await,
            }
        };
        let (index, is_open) = tokio::select! {
            is_open = of_database => (0, is_open),
            is_open = of_redis => (1, is_open),
        };
        self.open[index] = is_open;
    }
}

/// Tells the other nodes of each version that this one commits. Those that are committed while it tells are one hint.
pub(super) async fn tell(mut teller: HintSender, mut committed: watch::Receiver<i64>) {
    loop {
        match timeout(REST_AFTER, committed.changed()).await {
            Ok(Ok(())) => {
                let version = *committed.borrow_and_update();
                teller.tell(version).await;
            }
            // It ends, because the database is closed: nothing is committed any more.
            Ok(Err(_)) => return,
            Err(_) => teller.rest(),
        }
    }
}

/// After so long without a change the connections that tell are closed.
const REST_AFTER: Duration = Duration::from_secs(60);
