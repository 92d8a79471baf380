//! The last good state on disk, for a start while the database is gone.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::clock;
use base::whole_file;
use control::database::{Database, DatabaseRows};

#[derive(Clone, Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// When it was last written; `None`: not by this process.
    written: Option<Instant>,
    is_due: bool,
    /// Whether the last write failed, so that an outage of the disk is one line of the log.
    is_failing: bool,
}

impl StateFile {
    pub(super) fn at(path: PathBuf) -> StateFile {
        StateFile { path, written: None, is_due: true, is_failing: false }
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Writes the state, if it has changed and the last time is long enough ago, because a million rows take seconds.
    pub(super) async fn keep(&mut self, database: &Database, has_changed: bool) {
        self.is_due |= has_changed;
        let now = clock::instant();
        if self.written.is_none_or(|written| now.saturating_duration_since(written) >= EVERY) {
            self.keep_now(database).await;
        }
    }

    /// Writes the state if it has changed, however soon, because the process ends.
    pub(super) async fn keep_now(&mut self, database: &Database) {
        if self.is_due {
            self.written = Some(clock::instant());
            self.write(database).await;
        }
    }

    async fn write(&mut self, database: &Database) {
        // Not logged, because one that cannot be read is said elsewhere.
        let Ok(state) = database.state().await else { return };
        let content = tokio::task::spawn_blocking(move || serde_json::to_vec(&state));
        let content =
            content.await.map_err(io::Error::other).and_then(|content| content.map_err(io::Error::other));
        let kept = match content {
            Ok(content) => whole_file::write(&self.path, content).await,
            Err(error) => Err(error),
        };
        self.is_due = kept.is_err();
        let (path, was_failing) = (self.path.display(), std::mem::replace(&mut self.is_failing, self.is_due));
        match kept {
            Err(error) if !was_failing => {
                tracing::warn!(%path, %error, "the local copy of the database cannot be written: a start without the database would lack its newest rows");
            }
            Ok(()) if was_failing => tracing::info!(%path, "the local copy of the database is written again"),
            _ => {}
        }
    }

    /// The state as it was kept; `None` if there is none, or it cannot be read, which is logged.
    pub(super) async fn read(&self) -> Option<DatabaseRows> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read(&path))
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        match read {
            Ok(state) => Some(state),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the local copy of the database cannot be read: \
                    until the database answers, only the files are in force");
                None
            }
        }
    }
}

fn read(path: &Path) -> io::Result<DatabaseRows> {
    serde_json::from_slice(&std::fs::read(path)?).map_err(io::Error::other)
}

/// How often it is written at most.
const EVERY: Duration = Duration::from_secs(5);
