//! How this node stands to its database: since when it has not answered, which version is in force, how old that is. For
//! metrics, `/readyz?verbose` and the log, which says when an outage begins and when it ends.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use base::{clock, log_lines::Outage};
use control::database::{ChangeTime, Error, Time};
use metrics::{Families, Histogram, MetricUnit};

#[derive(Debug)]
pub(super) struct Status {
    /// When this process began to ask.
    began: Instant,
    health: Mutex<DatabaseHealth>,
    read_once: watch::Sender<bool>,
}

impl Default for Status {
    fn default() -> Status {
        Status { began: clock::instant(), health: Mutex::default(), read_once: watch::Sender::default() }
    }
}

#[derive(Clone, Debug, Default)]
struct DatabaseHealth {
    /// When the state in force was last known to be the database's.
    confirmed: Option<Instant>,
    version: i64,
    outage: Outage,
    /// Whether what is in force comes from the copy on disk.
    is_recalled: bool,
    /// Why the policies of the database are not in force. `None`: they are.
    refused: Option<String>,
    /// Whether a file is to blame for it, and not a row.
    is_stuck: bool,
    reads: u64,
    failures: u64,
    /// How long changes took until they were in force here.
    lag: Histogram,
    /// The version of the policies that the publisher has put into force, and when.
    published: Option<(i64, Time)>,
    /// Changes of policies that the publisher has not put into force yet.
    unpublished: Vec<ChangeTime>,
    /// Whether hints of changes can be heard, from the database and from Redis.
    hints: [bool; 2],
}

impl Status {
    /// The database has answered: this version is in force, and was its last one at `asked`.
    pub(super) fn confirmed(&self, asked: Instant, version: i64) {
        let mut health = self.health();
        let (before, was_away) = (health.version, health.outage.end());
        if version < before {
            let message =
                "the control plane's database is older than what was in force: later changes are undone";
            tracing::warn!(version, before, "{message}");
        } else if was_away {
            tracing::info!(version, "the control plane's database answers again");
        }
        (health.confirmed, health.version, health.is_recalled) = (Some(asked), version, false);
        health.reads += 1;
        drop(health);
        self.read_once.send_replace(true);
    }

    pub(super) fn failed(&self, error: &Error) {
        let mut health = self.health();
        health.failures += 1;
        if health.outage.is_news(&error.to_string()) {
            let meanwhile = match health.confirmed.is_some() || health.is_recalled {
                true => "the data read last stays in force",
                false => "until it can, its policies, overrides, blocks and API keys are not in force",
            };
            tracing::error!(%error, "the control plane's database cannot be read: {meanwhile}");
        }
    }

    /// These changes were put into force at `since`, except that of policies, if there are other ones now, the publisher has
    /// still to hear.
    pub(super) fn applied(&self, made: &[ChangeTime], since: Time, has_other_policies: bool) {
        let mut health = self.health();
        let published = health.published;
        for made in made {
            let in_force = match published {
                _ if !made.is_policy || !has_other_policies => Some(since),
                Some((version, at)) if made.version <= version => Some(at),
                _ => None,
            };
            match in_force {
                Some(at) => health.lag.record(made.at.until(at)),
                None if health.unpublished.len() < UNPUBLISHED_MAX => health.unpublished.push(*made),
                None => {}
            }
        }
    }

    /// The publisher has put the policies of the database into force as of a version, or has refused them; a file is to blame
    /// for that if `is_stuck`. Returns whether `why` is news.
    pub(super) fn published(&self, version: i64, refused: Option<String>, is_stuck: bool) -> bool {
        let at = Time::now();
        let mut health = self.health();
        let done: Vec<_> = health.unpublished.extract_if(.., |made| made.version <= version).collect();
        if refused.is_none() {
            done.iter().for_each(|made| health.lag.record(made.at.until(at)));
            health.published = Some((version, at));
        }
        let is_news = health.refused != refused;
        (health.refused, health.is_stuck) = (refused, is_stuck);
        is_news
    }

    /// Why a file keeps the policies of the database out of force; `None`: none does.
    pub(super) fn stuck(&self) -> Option<String> {
        let health = self.health();
        health.refused.clone().filter(|_| health.is_stuck)
    }

    pub(super) fn hears(&self, hints: [bool; 2]) {
        self.health().hints = hints;
    }

    /// The copy of an earlier run is in force, of this version.
    pub(super) fn recalled(&self, version: i64) {
        let mut health = self.health();
        (health.is_recalled, health.version) = (true, version);
    }

    /// Becomes true with the first answer.
    pub(super) fn read_once(&self) -> watch::Receiver<bool> {
        self.read_once.subscribe()
    }

    /// In a line, for `/readyz?verbose`. Without the reason, because that names the server, and whoever may ask may see
    /// this.
    pub(super) fn sentence(&self) -> String {
        let health = self.health().clone();
        let answers = if health.outage.goes_on() { "cannot be read" } else { "answers" };
        if health.confirmed.is_none() && !health.is_recalled {
            let answers = if health.outage.goes_on() { answers } else { "has not answered yet" };
            return format!(
                "database: {answers}; its policies, overrides, blocks and API keys are not in force"
            );
        }
        let copy = if health.is_recalled { ", from the copy on disk" } else { "" };
        let age = match health.confirmed {
            Some(_) => format!("confirmed {:.0} s ago", self.age(&health).as_secs_f64()),
            None => "never confirmed".to_owned(),
        };
        format!("database: {answers}; version {} is in force{copy}, {age}", health.version)
    }

    pub(super) fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let health = self.health().clone();
        let is_up = !health.outage.goes_on() && health.confirmed.is_some();
        let age = self.age(&health);
        let is_stale = age > STALE_AFTER;
        let help = "Whether the control plane's database answered the last query";
        families.gauge("control_up", help, u64::from(is_up))?;
        let help = "Whether the control plane's data in force has not been confirmed for 60 s";
        families.gauge("control_stale", help, u64::from(is_stale))?;
        let help = "Whether the policies of the control plane's database could not be put into force";
        families.gauge("control_policies_refused", help, u64::from(health.refused.is_some()))?;
        let help = "Time since the control plane's database last confirmed the data in force";
        families.gauges(
            "control_unconfirmed",
            help,
            Some(&MetricUnit::Seconds),
            [([], age.as_secs_f64())],
        )?;
        let help = "Version of the control plane's data in force";
        families.gauge("control_version", help, health.version as u64)?;
        let help = "Queries that the control plane's database answered";
        families.counter("control_reads", help, health.reads)?;
        let help = "Queries of the control plane's database that failed";
        families.counter("control_failures", help, health.failures)?;
        let help = "Whether change notifications of the control plane can be received";
        let hints = ["database", "redis"].into_iter().zip(health.hints);
        let hints = hints.map(|(from, is_heard)| ([("from", from)], u64::from(is_heard)));
        families.gauges("control_hints", help, None, hints)?;
        let help = "Time from a change of the control plane, on any node, until it was in force on this node";
        families.histogram("control_lag", help, &health.lag)
    }

    /// For how long what is in force has not been confirmed; if never, since the start.
    fn age(&self, health: &DatabaseHealth) -> Duration {
        clock::instant().saturating_duration_since(health.confirmed.unwrap_or(self.began))
    }

    fn health(&self) -> MutexGuard<'_, DatabaseHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Policies that changed and are not published: more than that count for no lag.
const UNPUBLISHED_MAX: usize = 10_000;
/// After so long without an answer what is in force counts as stale.
const STALE_AFTER: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use metrics::{Metrics, ScrapeFormat};

    /// The samples of a status, as a scrape has them.
    fn samples(status: &Arc<Status>) -> String {
        let (metrics, _) = Metrics::new(1);
        let shown = Arc::clone(status);
        metrics.register(move |families| shown.collect(families));
        String::from_utf8(metrics.encode(ScrapeFormat::Prometheus)).expect("text")
    }

    #[test]
    fn what_is_not_confirmed_for_a_minute_is_stale() {
        let status = Arc::new(Status::default());
        assert!(samples(&status).contains("sluicegate_control_stale 0"), "it has only begun to ask");
        for (seconds, is_stale) in [(0, 0), (58, 0), (62, 1)] {
            let asked =
                clock::instant().checked_sub(Duration::from_secs(seconds)).expect("the machine is up");
            status.confirmed(asked, 7);
            let page = samples(&status);
            assert!(page.contains(&format!("sluicegate_control_stale {is_stale}")), "{seconds} s: {page}");
        }
    }

    #[test]
    fn a_change_counts_once_it_is_in_force_and_never_if_it_is_refused() {
        let status = Arc::new(Status::default());
        let now = Time::now();
        let made = |version, is_policy, before_ms| ChangeTime {
            version,
            is_policy,
            at: now.before(Duration::from_millis(before_ms)),
        };
        let count = || {
            let page = samples(&status);
            let line =
                page.lines().find_map(|line| line.strip_prefix("sluicegate_control_lag_seconds_count "));
            line.and_then(|count| count.parse::<u64>().ok()).expect("it is always there")
        };
        assert_eq!(count(), 0);
        // An override, one by a clock that is ahead, and a policy that says what the one before did.
        status.applied(&[made(1, false, 300), made(2, false, 0)], now, false);
        status.applied(&[made(3, true, 300)], now, false);
        assert_eq!(count(), 3);
        assert!(samples(&status).contains("sluicegate_control_lag_seconds_bucket{le=\"0.25\"} 1"));
        // Policies wait for the publisher, which may be done before.
        status.applied(&[made(4, true, 300), made(5, true, 300)], now, true);
        assert_eq!(count(), 3);
        status.published(4, None, false);
        assert_eq!(count(), 4);
        status.published(6, None, false);
        status.applied(&[made(6, true, 300)], now, true);
        assert_eq!(count(), 6);
        status.applied(&[made(7, true, 300)], now, true);
        status.published(7, Some("two routes ask for it by another name".to_owned()), false);
        assert_eq!(count(), 6);
    }
}
