//! Keeps the log short: an outage is one line for each of its reasons, and what clients can repeat is a line a minute.

use std::sync::atomic::{AtomicU64, Ordering};

/// The reasons of an outage that have been logged; none while there is no outage.
#[derive(Clone, Debug, Default)]
pub struct Outage(Vec<String>);

impl Outage {
    /// Notes a failure, and returns whether to log it. Of reasons that take turns, each is logged once.
    pub fn is_news(&mut self, reason: &str) -> bool {
        let is_news = self.0.len() < REASONS_MAX && !self.0.iter().any(|logged| logged == reason);
        self.0.extend(is_news.then(|| reason.to_owned()));
        is_news
    }

    pub fn goes_on(&self) -> bool {
        !self.0.is_empty()
    }

    /// Ends the outage, and returns whether there was one.
    pub fn end(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }
}

/// When a line was last logged.
#[derive(Debug, Default)]
pub struct RareLine(AtomicU64);

impl RareLine {
    pub const fn new() -> RareLine {
        RareLine(AtomicU64::new(0))
    }

    /// Whether a minute has passed. Of several threads that ask at once, one is told so.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let last_ns = self.0.load(Ordering::Relaxed);
        let is_due = last_ns == 0 || now_ns.saturating_sub(last_ns) >= MINUTE_NS;
        is_due && self.0.compare_exchange(last_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Of an outage with more reasons, such as one that names a changing number, the first ones are logged.
const REASONS_MAX: usize = 8;
const MINUTE_NS: u64 = 60_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_an_outage_is_said_once() {
        let mut outage = Outage::default();
        assert!(!outage.end() && !outage.goes_on());
        let mut said = |reason: &str| outage.is_news(reason);
        assert_eq!(["refused", "timeout", "refused", "timeout"].map(&mut said), [true, true, false, false]);
        assert_eq!((0..100).filter(|number| said(&number.to_string())).count(), REASONS_MAX - 2);
        assert!(outage.goes_on() && outage.end() && !outage.end());
        assert!(outage.is_news("refused"), "another outage is another line");
    }

    #[test]
    fn a_line_that_clients_cause_is_due_once_a_minute() {
        let line = RareLine::new();
        let due = [1, 2, MINUTE_NS, MINUTE_NS + 1, MINUTE_NS + 2].map(|now_ns| line.is_due(now_ns));
        assert_eq!(due, [true, false, false, true, false]);
    }
}
