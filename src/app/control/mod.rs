//! The control plane as this node has it: what of the database is in force here, and how old that is.
//!
//! No request waits for any of this. `follower.rs` reads what has changed and puts it into the tables in memory that requests
//! look at; with the database gone these stay as they are. `status.rs` says how old they are, `state_file.rs` keeps the last good
//! state on disk for a start without the database.

mod change_hints;
mod control_state;
mod follower;
mod keys;
mod minutes;
mod policies;
mod state_file;
mod status;
mod tables;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::counts::Counts;
use auth::IssuedKeys;
use config::{Config, Files, RowDocument};
use control::admin::{self, Writes};
use control::database::config::Url;
use control::database::{self, Database};
use metrics::usage::UsageCollector;

use super::fleet::shared_tier::SharedTier;
use super::live::Sentence;
use control_state::ControlState;
pub(super) use control_state::Policies;
use follower::Follower;
use minutes::Usage;
use policies::Rows;
use tables::Tables;

pub(super) struct Control {
    shared: Arc<ControlState>,
    writes: Writes,
    following: JoinHandle<()>,
    usage: Option<(Arc<Usage>, JoinHandle<()>)>,
}

impl Control {
    /// Begins to follow the database that a configuration names, on the runtime this is called on. `None`: it names none.
    pub(super) fn start(
        config: &Config,
        counts: &Counts,
        shared_tier: Option<&SharedTier>,
        issued: &Arc<IssuedKeys>,
    ) -> Option<Control> {
        let database = config.database.clone()?;
        let shared = Arc::<ControlState>::default();
        let shown = Arc::clone(&shared);
        counts.metrics.register(move |families| shown.status.collect(families));
        let is_shared =
            config.redis.is_some() && matches!(database.url, Url::Sqlite(_)) && !database.single_node;
        let writes = if is_shared { Writes::OneNodeOnly } else { Writes::Allowed };
        // Not of a file, because this node alone follows that: there is nobody to tell and nobody to hear.
        let is_a_fleets = matches!(database.url, Url::Postgres(_));
        let hints = shared_tier.filter(|_| is_a_fleets).map(SharedTier::hints);
        let tables = Tables::new(counts.clone(), Arc::clone(issued));
        let follower =
            Follower::new((database, config.decisions.retention), tables, Arc::clone(&shared), hints);
        let usage = counts.usage.clone().map(|gathered| start_usage(gathered, counts, &shared));
        Some(Control { shared, writes, following: tokio::spawn(follower.follow()), usage })
    }

    pub(super) fn files(&self) -> Arc<Files> {
        self.shared.files.load_full()
    }

    /// These files are in force now, and may have changed what rows mean.
    pub(super) fn keep(&self, files: Arc<Files>) {
        self.shared.files.store(files);
        self.shared.changed.notify_one();
    }

    /// The database, once it has answered for the first time.
    pub(super) fn database(&self) -> impl Fn() -> Option<Database> + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.opened.get().cloned()
    }

    pub(super) fn sentence(&self) -> Sentence {
        let shared = Arc::clone(&self.shared);
        Arc::new(move || shared.status.sentence())
    }

    pub(super) fn for_operators(&self) -> admin::ControlPlane {
        let [changed, applied, shown, checked, stuck] = [(); 5].map(|()| Arc::clone(&self.shared));
        admin::ControlPlane {
            database: Box::new(self.database()),
            writes: self.writes,
            changed: Box::new(move || changed.changed.notify_one()),
            applied: admin::asked(applied, ControlState::applied),
            check: admin::asked(checked, |shared, proposal| {
                let (files, rows) = (shared.files.load_full(), Rows::clone(&shared.policies.borrow().rows));
                policies::check(files, rows, proposal)
            }),
            sentence: Box::new(move || shown.status.sentence()),
            stuck: Box::new(move || stuck.status.stuck()),
            minutes: self.usage.as_ref().map(|(usage, _)| admin::asked(Arc::clone(usage), Usage::read)),
        }
    }

    /// Writes what has been counted of usage and is not in the database yet, because the process ends.
    pub(super) async fn write_usage(&self) {
        if let Some((usage, writing)) = &self.usage {
            // Ended even while it writes, because what it has not finished comes again under the same id.
            writing.abort();
            usage.close(&self.shared).await;
        }
    }

    /// Follows no more, which leaves the last state on disk, and closes the connections to the database, at most
    /// [`CLOSED_WITHIN`] long each. SQLite brings what its log holds into its file then.
    pub(super) async fn close(mut self) {
        self.shared.ended.notify_one();
        let is_following = self.shared.opened.get().is_some();
        if !is_following || timeout(CLOSED_WITHIN, &mut self.following).await.is_err() {
            self.following.abort();
        }
        if let Some(database) = self.shared.opened.get() {
            database.close(CLOSED_WITHIN).await;
        }
    }

    /// Waits until the state in force is the database's, for a moment only, because a start must not wait for a
    /// database that is gone.
    pub(super) async fn ready(&self) {
        let mut read_once = self.shared.status.read_once();
        let _ = timeout(FIRST_ANSWER, read_once.wait_for(|has_read| *has_read)).await;
    }

    /// The policies of the database and its tier table as they are now, and notice when they change.
    pub(super) fn policies(&self) -> watch::Receiver<Policies> {
        let mut policies = self.shared.policies.subscribe();
        // A change that came before is news to whoever has not published it.
        let version = policies.borrow().version;
        if version != *self.shared.published.borrow() {
            policies.mark_changed();
        }
        policies
    }

    /// The publisher could not put the policies of the database into force, because of a file. Whether that is news.
    pub(super) fn refused(&self, why: String) -> bool {
        let version = self.shared.policies.borrow().version;
        self.published(version, Some(why), true)
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.shared.status.stuck().is_some()
    }

    /// The publisher has done what it could with the policies of this version.
    pub(super) fn published(&self, version: i64, refused: Option<String>, is_stuck: bool) -> bool {
        let is_news = self.shared.status.published(version, refused, is_stuck);
        self.shared.published.send_replace(version);
        is_news
    }
}

fn start_usage(
    gathered: Arc<UsageCollector>,
    counts: &Counts,
    shared: &Arc<ControlState>,
) -> (Arc<Usage>, JoinHandle<()>) {
    let usage = Arc::new(Usage::new(gathered));
    let shown = Arc::clone(&usage);
    counts.metrics.register(move |families| shown.collect(families));
    let writing = tokio::spawn(Arc::clone(&usage).follow(Arc::clone(shared)));
    (usage, writing)
}

/// The policies of a database and its tier table as they are now, to be read beside gateway.toml. It changes nothing there.
///
/// # Errors
/// If the database cannot be read, or no runtime can be built.
pub fn rows_of(config: &database::Config) -> anyhow::Result<Vec<RowDocument>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let database = Database::open_read_only(config).await?;
        Ok(Rows::of(&database.state().await?).added())
    })
}

impl Drop for Control {
    fn drop(&mut self) {
        self.following.abort();
        self.usage.iter().for_each(|(_, writing)| writing.abort());
    }
}

const CLOSED_WITHIN: Duration = Duration::from_secs(1);
/// How long a start waits for the database.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
