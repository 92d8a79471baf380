//! Follows the database: reads what has changed since the version in force, and puts it into the tables that requests look
//! at.
//!
//! It reads when a hint comes, when this node changes something, and at intervals. So many changes at once are one read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use base::clock;
use control::database::config::Url;
use control::database::{self, Database, DatabaseRows, HINTS_TESTED_EACH, RowChanges, Time};
use limiter::global;

use super::change_hints::{ChangeHints, tell};
use super::control_state::ControlState;
use super::policies;
use super::state_file::StateFile;
use super::tables::Tables;

pub(super) struct Follower {
    config: database::Config,
    events_kept: Duration,
    shared: Arc<ControlState>,
    state_file: Option<StateFile>,
    tables: Tables,
    policies: policies::Rows,
    /// When overrides that have ended were last removed.
    swept: Instant,
    /// When the database was last rid of what has had its time; `None`: not by this process.
    tidied: Option<Instant>,
    /// The version that is in force, and when it was made; `None` before the first read.
    version: Option<(i64, Option<Time>)>,
    /// Hints through Redis, until they are listened to.
    hints: Option<global::Hints>,
}

impl Follower {
    pub(super) fn new(
        (config, events_kept): (database::Config, Duration),
        tables: Tables,
        shared: Arc<ControlState>,
        hints: Option<global::Hints>,
    ) -> Follower {
        // No copy of a file of this machine, because that is there at a start; otherwise the copy would not be there
        // either.
        let state_file = match &config.url {
            Url::Sqlite(_) => None,
            Url::Postgres(_) => Some(StateFile::at(config.copy.clone())),
        };
        Follower {
            config,
            events_kept,
            shared,
            state_file,
            tables,
            policies: policies::Rows::default(),
            swept: clock::instant(),
            tidied: None,
            version: None,
            hints,
        }
    }

    /// Follows until the process ends, and leaves the last state on disk then.
    pub(super) async fn follow(mut self) {
        let shared = Arc::clone(&self.shared);
        let ended = &shared.ended;
        self.recall().await;
        let database = self.open().await;
        let hints = self.hints.take();
        let mut telling = JoinSet::new();
        if let Some(hints) = &hints {
            telling.spawn(tell(hints.teller(), database.committed()));
        }
        let mut ears = ChangeHints::new(database.listen(HINTS_TESTED_EACH), hints);
        loop {
            self.shared.status.hears(ears.open);
            let is_read = self.read(&database).await;
            let is_file_due = self.state_file.as_ref().is_some_and(StateFile::is_due);
            let pause = match is_read && ears.open.contains(&true) && !is_file_due {
                true => POLL_WITH_HINTS,
                false => POLL,
            };
            // A pause, so that whatever comes in this time is one read.
            sleep(GATHER).await;
            tokio::select! {
                () = self.rest(&mut ears, pause) => {}
                () = ended.notified() => break,
            }
        }
        if let Some(file) = &mut self.state_file {
            file.keep_now(&database).await;
        }
    }

    /// Puts the copy of an earlier run into force, until the database has answered.
    async fn recall(&mut self) {
        let Some(file) = &self.state_file else { return };
        if let Some(state) = file.read().await {
            self.put_all(&state);
            tracing::info!(
                version = state.version,
                made_at = state.made_at.map(|at| at.to_string()),
                "the local copy of an earlier run is in force until the database answers"
            );
            self.shared.status.recalled(state.version);
        }
    }

    async fn open(&self) -> Database {
        loop {
            match Database::open(&self.config).await {
                Ok(database) => return self.shared.opened.get_or_init(|| database).clone(),
                Err(error) => self.shared.status.failed(&error),
            }
            sleep(POLL).await;
        }
    }

    /// Reads what has changed, and puts it into force. Whether the database answered.
    async fn read(&mut self, database: &Database) -> bool {
        let asked = clock::instant();
        if self.tables.is_outdated() {
            // All is read again, because only rows tell what overrides mean now.
            self.version = None;
        }
        let read = match self.version {
            Some((version, made_at)) => database.changes_since(version, made_at).await,
            None => database.state().await.map(RowChanges::Everything),
        };
        let changes = match read {
            Ok(changes) => changes,
            Err(error) => {
                self.shared.status.failed(&error);
                return false;
            }
        };
        let before = self.version;
        let (version, made_at, is_other, has_other_policies) = match &changes {
            RowChanges::Since { changed, gone } => {
                self.tables.change(changed, gone);
                let has_other_policies = self.policies.change(changed, gone);
                if has_other_policies {
                    self.shared.policies.send_replace(self.policies.as_of(changed.version));
                }
                let is_other = before.map(|(version, _)| version) != Some(changed.version);
                (changed.version, changed.made_at, is_other, has_other_policies)
            }
            RowChanges::Everything(state) => (state.version, state.made_at, true, self.put_all(state)),
        };
        let since = Time::now();
        self.version = Some((version, made_at));
        self.shared.in_force.send_replace(version);
        self.shared.status.confirmed(asked, version);
        // Not said at a start, because what that finds is no news.
        if let Some((before, _)) = before.filter(|_| is_other)
            && let Ok(made) = database.made(before, version).await
        {
            self.shared.status.applied(&made, since, has_other_policies);
        }
        if let Some(file) = &mut self.state_file {
            file.keep(database, self.version != before).await;
        }
        if asked.saturating_duration_since(self.swept) >= SWEEP {
            self.swept = asked;
            self.tables.sweep();
        }
        self.tidy(database, asked).await;
        true
    }

    /// Rids the database of what has had its time, if that is due. Every node does, which is one delete of nothing for most.
    async fn tidy(&mut self, database: &Database, now: Instant) {
        if self.tidied.is_some_and(|tidied| now.saturating_duration_since(tidied) < TIDY) {
            return;
        }
        self.tidied = Some(now);
        if let Err(error) = database.upkeep(self.events_kept).await {
            tracing::warn!(%error, "expired rows of the database cannot be deleted; they have no effect, and the \
                gateway tries again");
        }
    }

    /// Puts a whole state into force. Whether its policies are other ones.
    fn put_all(&mut self, state: &DatabaseRows) -> bool {
        self.tables.replace(state);
        let has_other_policies = self.policies.replace(state);
        if has_other_policies {
            self.shared.policies.send_replace(self.policies.as_of(state.version));
        }
        has_other_policies
    }

    /// Waits for a reason to read.
    async fn rest(&self, ears: &mut ChangeHints, pause: Duration) {
        tokio::select! {
            () = ears.listen() => {}
            () = self.shared.changed.notified() => {}
            () = sleep(pause) => {}
        }
    }
}

/// So many changes as come within this time are one read, and one change of the tables.
const GATHER: Duration = Duration::from_millis(100);
/// How often the version is asked for where no hint can be heard.
const POLL: Duration = Duration::from_secs(1);
/// How often it is asked for all the same where one can.
const POLL_WITH_HINTS: Duration = Duration::from_secs(30);
/// How often the memory of overrides that have ended is freed.
const SWEEP: Duration = Duration::from_secs(60);
/// How often the database is rid of what has had its time.
const TIDY: Duration = Duration::from_secs(3_600);
