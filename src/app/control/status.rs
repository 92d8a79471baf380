//! How this node stands to its database: since when it has not answered, which version is in force, how old that is. For
//! metrics, `/readyz?verbose` and the log, which says when an outage begins and when it ends.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::clock;
use crate::database::Error;
use crate::metrics::{Families, Unit};

/// What is known of the database.
#[derive(Debug, Default)]
pub(super) struct Status {
    now: Mutex<Now>,
    read_once: watch::Sender<bool>,
}

#[derive(Clone, Debug, Default)]
struct Now {
    /// When the state in force was last known to be the database's.
    confirmed: Option<Instant>,
    version: i64,
    /// Why the last call failed, in a sentence. `None`: it did not.
    failure: Option<String>,
    /// Whether what is in force comes from the copy on disk.
    is_recalled: bool,
    /// Why the policies of the database are not in force. `None`: they are.
    refused: Option<String>,
    reads: u64,
    failures: u64,
}

impl Status {
    /// The database has answered: this version is in force, and was its last one at `asked`.
    pub(super) fn confirmed(&self, asked: Instant, version: i64) {
        let mut now = self.now();
        if now.failure.take().is_some() {
            tracing::info!(version, "the control plane's database answers");
        }
        (now.confirmed, now.version, now.is_recalled) = (Some(asked), version, false);
        now.reads += 1;
        drop(now);
        self.read_once.send_replace(true);
    }

    /// The database has not answered.
    pub(super) fn failed(&self, error: &Error) {
        let sentence = error.to_string();
        let mut now = self.now();
        now.failures += 1;
        // One line for an outage, and one more where its reason changes.
        if now.failure.as_ref() != Some(&sentence) {
            tracing::error!("the control plane's database: {sentence}; what is in force stays");
        }
        now.failure = Some(sentence);
    }

    /// The publisher has put the policies of the database into force, or has refused them.
    pub(super) fn published(&self, refused: Option<String>) {
        self.now().refused = refused;
    }

    /// The copy of an earlier run is in force.
    pub(super) fn recalled(&self) {
        self.now().is_recalled = true;
    }

    /// Becomes true with the first answer.
    pub(super) fn read_once(&self) -> watch::Receiver<bool> {
        self.read_once.subscribe()
    }

    /// In a line, for `/readyz?verbose`. Without the reason, which names the server: whoever may ask may see this.
    pub(super) fn sentence(&self) -> String {
        let now = self.now().clone();
        let answers = if now.failure.is_none() { "answers" } else { "does not answer" };
        let copy = if now.is_recalled { ", from the copy on disk" } else { "" };
        let age = match now.age() {
            Some(age) => format!("confirmed {:.0} s ago", age.as_secs_f64()),
            None => "never confirmed".to_owned(),
        };
        format!("database: {answers}; version {} is in force{copy}, {age}", now.version)
    }

    /// Writes the families of the control plane.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(super) fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let now = self.now().clone();
        let is_up = now.failure.is_none() && now.confirmed.is_some();
        let is_stale = now.age().is_none_or(|age| age > STALE_AFTER);
        let help = "Whether the database of the control plane answered the last time";
        families.gauges("control_up", help, None, [([], u64::from(is_up))])?;
        let help = "Whether what is in force of the control plane has not been confirmed for 60 s";
        families.gauges("control_stale", help, None, [([], u64::from(is_stale))])?;
        let help = "Whether the policies of the control plane's database could not be put into force";
        families.gauges("control_policies_refused", help, None, [([], u64::from(now.refused.is_some()))])?;
        let help = "Since when the control plane has not been confirmed";
        let age = now.age().unwrap_or_default().as_secs_f64();
        families.gauges("control_unconfirmed", help, Some(&Unit::Seconds), [([], age)])?;
        families.gauges(
            "control_version",
            "Version of the control plane in force",
            None,
            [([], now.version as u64)],
        )?;
        families.counters(
            "control_reads",
            "Answers of the control plane's database",
            None,
            [([], now.reads)],
        )?;
        let help = "Calls that the control plane's database did not answer";
        families.counters("control_failures", help, None, [([], now.failures)])
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Now {
    fn age(&self) -> Option<Duration> {
        self.confirmed.map(|confirmed| clock::instant().saturating_duration_since(confirmed))
    }
}

/// After so long without an answer what is in force counts as stale.
const STALE_AFTER: Duration = Duration::from_secs(60);
