//! The logs that requests are written to: the access log and that of decisions.

use std::sync::Arc;
use std::time::Duration;

use config::Config;
use metrics::Metrics;
use observe::record::{Error, LineLog, process};

#[derive(Clone, Debug)]
pub(super) struct Logs {
    pub(super) access: Arc<LineLog>,
    pub(super) decisions: Arc<LineLog>,
}

impl Logs {
    /// Opens them as a configuration says.
    ///
    /// # Errors
    /// If one cannot be opened.
    pub(super) fn open(config: &Config, metrics: &Metrics) -> Result<Logs, Error> {
        let access = LineLog::open(&config.access_log.to, &metrics.access_log)?;
        let decisions =
            LineLog::named("decision log", "decision-log", &config.decisions.to, &metrics.decision_log)?;
        Ok(Logs { access: Arc::new(access), decisions: Arc::new(decisions) })
    }

    /// Goes on where another configuration says.
    ///
    /// # Errors
    /// If one cannot be opened; both go on where they were.
    pub(super) fn switch(&self, before: &Config, after: &Config) -> Result<(), Error> {
        let access = &after.access_log.to;
        let access = (access != &before.access_log.to).then(|| self.access.open_other(access)).transpose()?;
        let decisions = &after.decisions.to;
        let decisions =
            (decisions != &before.decisions.to).then(|| self.decisions.open_other(decisions)).transpose()?;
        access.into_iter().for_each(|opened| self.access.put(opened));
        decisions.into_iter().for_each(|opened| self.decisions.put(opened));
        Ok(())
    }

    /// Opens their files again, after a rotation.
    ///
    /// # Errors
    /// If one cannot be opened: the old file stays in use.
    pub(super) fn reopen(&self) -> Result<(), Error> {
        let opened = self.decisions.reopen();
        self.access.reopen().and(opened)
    }

    /// Says if one of them, or the process log, loses lines for want of room.
    pub(super) fn look(&self) {
        self.access.look();
        self.decisions.look();
        process::look();
    }

    /// Waits, at most so long, until everything is written. Returns how many lines were lost.
    pub(super) fn close(self, wait: Duration) -> u64 {
        // Whoever has another reference to a log keeps it open.
        let close = |log| Arc::into_inner(log).map_or(0, |log: LineLog| log.close(wait));
        close(self.access) + close(self.decisions)
    }
}
