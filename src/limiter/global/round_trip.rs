//! Estimates how long nearly all calls to a shard take. Pure: it is given how long each call took, and when.
//!
//! The mean and four mean deviations of the last second or so, as TCP reckons its retransmission timeout (RFC 6298,
//! section 2), but by time instead of by sample: a shard that is called ten thousand times a second is not forgotten
//! within a millisecond.

/// The running estimate for one shard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    mean_ns: f64,
    deviation_ns: f64,
    shortest_ns: f64,
    /// When the last call ended; 0 before the first.
    at_ns: u64,
}

impl RoundTrip {
    /// Adds a call. Returns how long nearly all calls take now, nanoseconds; at least 1, because 0 means unknown.
    pub(super) fn took(&mut self, took_ns: u64, now_ns: u64) -> u64 {
        // A call that an outage has held up counts as the longest plausible one, because it says nothing of the way.
        let took_ns = took_ns.min(LONGEST_NS) as f64;
        if self.at_ns == 0 {
            (self.mean_ns, self.deviation_ns, self.shortest_ns) = (took_ns, took_ns / 2.0, took_ns);
        } else {
            let gone_ns = now_ns.saturating_sub(self.at_ns) as f64;
            let weight = (gone_ns / MEMORY_NS).clamp(WEIGHT_MIN, WEIGHT_MAX);
            let error_ns = took_ns - self.mean_ns;
            self.deviation_ns += (error_ns.abs() - self.deviation_ns) * (2.0 * weight);
            self.mean_ns += error_ns * weight;
            self.shortest_ns = (self.shortest_ns * (1.0 + gone_ns / SHORTEST_MEMORY_NS)).min(took_ns);
        }
        self.at_ns = now_ns.max(1);
        (self.mean_ns + 4.0 * self.deviation_ns).max(1.0) as u64
    }

    /// How long the quickest call took, nanoseconds. It is forgotten slowly, because a Redis that is ill for minutes has not
    /// moved away.
    pub(super) fn shortest_ns(&self) -> u64 {
        self.shortest_ns as u64
    }
}

/// Calls older than this hardly count.
const MEMORY_NS: f64 = 1e9;
/// In this time the shortest call grows to about three times its length.
const SHORTEST_MEMORY_NS: f64 = 600e9;
/// The least weight of one call, so that the mean still moves if calls come without a pause.
const WEIGHT_MIN: f64 = 1.0 / 4_096.0;
const WEIGHT_MAX: f64 = 1.0 / 8.0;
const LONGEST_NS: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::config::deadline_of;
    use super::*;
    use base::random::Random;

    const MS: u64 = 1_000_000;

    /// Calls one after another, each a `mean` give or take half of it, so far apart: what is said at the end, and what
    /// share of the calls took no longer than was said just before.
    fn calls(trip: &mut RoundTrip, mean_ns: u64, apart_ns: u64, count: u64, now_ns: &mut u64) -> (u64, f64) {
        let random = Random::new(7);
        let (mut said, mut within) = (u64::MAX, 0);
        for _ in 0..count {
            *now_ns += apart_ns;
            let took_ns = mean_ns / 2 + random.next() % mean_ns;
            within += u64::from(took_ns <= said);
            said = trip.took(took_ns, *now_ns);
        }
        (said, within as f64 / count as f64)
    }

    #[test]
    fn nearly_all_calls_take_no_longer_however_many_there_are() {
        for apart_ns in [MS / 20, MS, 100 * MS] {
            let (mut trip, mut now_ns) = (RoundTrip::default(), 1);
            let (said, within) = calls(&mut trip, 4 * MS, apart_ns, 20_000, &mut now_ns);
            assert!(within > 0.99, "{within} every {apart_ns} ns");
            assert!((6 * MS..12 * MS).contains(&said), "{said} every {apart_ns} ns");
        }
    }

    #[test]
    fn another_way_is_known_within_seconds_and_an_outage_is_none() {
        for apart_ns in [MS / 20, MS, 100 * MS] {
            let (mut trip, mut now_ns) = (RoundTrip::default(), 1);
            calls(&mut trip, MS, apart_ns, 2_000, &mut now_ns);
            let (far, _) = calls(&mut trip, 20 * MS, apart_ns, 3_000 * MS / apart_ns, &mut now_ns);
            assert!((20 * MS..70 * MS).contains(&far), "{far} every {apart_ns} ns");
            trip.took(60_000 * MS, now_ns + 60_000 * MS);
            now_ns += 60_000 * MS;
            let (near, _) = calls(&mut trip, MS, apart_ns, 10_000 * MS / apart_ns, &mut now_ns);
            assert!(near < 3 * MS, "{near} every {apart_ns} ns");
        }
    }

    #[test]
    fn a_redis_far_away_is_waited_for_and_one_that_has_become_slow_is_not() {
        let deadline = |trip: &RoundTrip, said| {
            deadline_of(Duration::from_nanos(said), Duration::from_nanos(trip.shortest_ns()))
        };
        let (mut trip, mut now_ns) = (RoundTrip::default(), 1);
        let (said, _) = calls(&mut trip, 40 * MS, 10 * MS, 1_000, &mut now_ns);
        let waits = deadline(&trip, said);
        assert!((Duration::from_millis(36)..=Duration::from_millis(100)).contains(&waits), "{waits:?}");
        // Nearer by now.
        calls(&mut trip, MS, 10 * MS, 1_000, &mut now_ns);
        let (said, _) = calls(&mut trip, 40 * MS, 10 * MS, 6_000, &mut now_ns);
        assert_eq!(deadline(&trip, said), Duration::from_millis(20), "slow for a minute");
        let (said, _) = calls(&mut trip, 40 * MS, 1_000 * MS, 7_200, &mut now_ns);
        assert!(deadline(&trip, said) > Duration::from_millis(36), "for two hours");
    }
}
