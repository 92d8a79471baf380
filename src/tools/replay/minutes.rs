//! What happened in each minute of a log.

use std::collections::BTreeMap;

/// Counts by minute since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Minutes {
    counts: BTreeMap<u64, Minute>,
    /// Requests of minutes beyond [`MINUTES_MAX`], which are in no minute.
    pub beyond: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minute {
    pub requests: u64,
    pub denied: u64,
}

impl Minutes {
    /// A request began at this time, nanoseconds since 1970.
    pub fn add(&mut self, began_ns: u64, is_denied: bool) {
        let minute = began_ns / MINUTE_NS;
        if self.counts.len() >= MINUTES_MAX && !self.counts.contains_key(&minute) {
            self.beyond += 1;
            return;
        }
        let counts = self.counts.entry(minute).or_default();
        counts.requests += 1;
        counts.denied += u64::from(is_denied);
    }

    /// The minute with the most refusals, in seconds since 1970; `None` if nothing was refused.
    pub fn worst(&self) -> Option<(u64, Minute)> {
        let refusing = self.counts.iter().filter(|(_, counts)| counts.denied > 0);
        // Backwards, so that of two alike it is the first.
        refusing.rev().max_by_key(|(_, counts)| counts.denied).map(|(minute, counts)| (minute * 60, *counts))
    }

    /// All minutes with a request, in seconds since 1970.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Minute)> {
        self.counts.iter().map(|(minute, counts)| (minute * 60, *counts))
    }
}

const MINUTE_NS: u64 = 60_000_000_000;
/// Minutes that are kept: 31 days.
const MINUTES_MAX: usize = 31 * 1_440;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_minute_is_the_first_with_the_most_refusals() {
        let mut minutes = Minutes::default();
        assert_eq!(minutes.worst(), None);
        for (minute, denied) in
            [(1, false), (2, true), (2, true), (5, true), (5, true), (5, false), (6, true)]
        {
            minutes.add(minute * MINUTE_NS + 7, denied);
        }
        assert_eq!(minutes.worst(), Some((120, Minute { requests: 2, denied: 2 })));
        assert_eq!(minutes.iter().count(), 4);
    }

    #[test]
    fn a_log_over_years_keeps_a_month() {
        let mut minutes = Minutes::default();
        (0..MINUTES_MAX as u64 + 10).for_each(|minute| minutes.add(minute * MINUTE_NS, true));
        minutes.add(0, true);
        assert_eq!((minutes.iter().count(), minutes.beyond), (MINUTES_MAX, 10));
    }
}
