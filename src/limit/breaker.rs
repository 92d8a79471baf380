//! When calls to a shard of Redis are worth making: closed, open, half-open.
//!
//! Pure: it is told what happened and when. It makes no calls, reads no clock and draws no random numbers.

use std::ops::Range;

/// A circuit breaker over the calls of the last ten seconds.
///
/// It opens when more than half of at least [`SAMPLES_MIN`] calls failed, or at once when the shard refused a
/// connection. Open, it lets one call in [`TRIED_EVERY`] through; [`OPEN_NS`] later, give or take a fifth, one in
/// [`HALF_OPEN_EVERY`] until one of them has an end. It closes when calls succeed: the first one where a
/// connection was refused, [`SUCCESSES_MIN`] in a row where calls failed.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    state: State,
    /// Calls of the last seconds, by second modulo their number.
    seconds: [CallCounts; SECONDS],
    /// When it closed last, nanoseconds; 0: it never was open for long.
    closed_ns: u64,
}

/// Which calls to the shard may pass at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Every call may pass.
    Closed,
    /// One call in [`TRIED_EVERY`] may pass, until the breaker has been open for [`OPEN_NS`].
    Open,
    /// One call in [`HALF_OPEN_EVERY`] may pass, until one of them has an end.
    HalfOpen,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Closed,
    Open {
        since_ns: u64,
        until_ns: u64,
        missing: u8,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct CallCounts {
    number: u64,
    calls: u32,
    failures: u32,
}

impl Breaker {
    /// Which calls may pass now: an open breaker becomes half-open by time alone.
    pub fn phase(&self, now_ns: u64) -> Phase {
        match self.state {
            State::Closed => Phase::Closed,
            State::Open { until_ns, .. } if now_ns < until_ns => Phase::Open,
            State::Open { .. } => Phase::HalfOpen,
        }
    }

    /// A call succeeded. An open breaker closes once enough of them have, which depends on why it opened.
    pub fn succeeded(&mut self, now_ns: u64) {
        match &mut self.state {
            State::Closed => self.count(now_ns, 0),
            State::Open { missing, .. } if *missing > 1 => *missing -= 1,
            State::Open { since_ns, .. } => {
                // There is no ramp after a short outage, because few keys have to come back.
                let was_long = now_ns.saturating_sub(*since_ns) >= SECOND_NS;
                self.closed_ns = if was_long { now_ns } else { 0 };
                self.state = State::Closed;
                self.seconds = [CallCounts::default(); SECONDS];
            }
        }
    }

    /// A call failed, or had no answer in time. `jitter` is any number, so that the ends of open breakers spread.
    pub fn failed(&mut self, now_ns: u64, jitter: u64) {
        match &mut self.state {
            State::Closed => {
                self.count(now_ns, 1);
                let (calls, failures) = self.last_seconds(now_ns);
                if calls >= SAMPLES_MIN && failures * 2 > calls {
                    self.open(now_ns, jitter, SUCCESSES_MIN);
                }
            }
            State::Open { until_ns, missing, .. } => {
                *missing = SUCCESSES_MIN.max(*missing);
                if now_ns >= *until_ns {
                    self.open(now_ns, jitter, SUCCESSES_MIN);
                }
            }
        }
    }

    /// The shard refused a connection or cannot be reached. It opens without more samples, because that is certain.
    pub fn refused(&mut self, now_ns: u64, jitter: u64) {
        match &mut self.state {
            State::Open { until_ns, missing, .. } if now_ns < *until_ns => *missing = 1,
            _ => self.open(now_ns, jitter, 1),
        }
    }

    /// The share of the fleet's renewals that should go through, percent: it rises from 10 to 100 within
    /// [`RAMP_NS`] of its closing after a second or more, so that a shard that has just come back does not meet everything at once.
    pub fn ramp_percent(&self, now_ns: u64) -> u32 {
        if self.closed_ns == 0 {
            return 100;
        }
        let since_ns = now_ns.saturating_sub(self.closed_ns).min(RAMP_NS);
        // At most 100: the product is of a number up to RAMP_NS and 90.
        10 + u32::try_from(since_ns * 90 / RAMP_NS).unwrap_or(90)
    }

    fn open(&mut self, now_ns: u64, jitter: u64, missing: u8) {
        let life_ns = OPEN_NS.start + jitter % (OPEN_NS.end - OPEN_NS.start);
        let since_ns = match self.state {
            State::Closed => now_ns,
            State::Open { since_ns, .. } => since_ns,
        };
        self.state = State::Open { since_ns, until_ns: now_ns.saturating_add(life_ns), missing };
    }

    fn count(&mut self, now_ns: u64, failures: u32) {
        let number = now_ns / SECOND_NS;
        let second = &mut self.seconds[(number % SECONDS as u64) as usize];
        if second.number != number {
            *second = CallCounts { number, calls: 0, failures: 0 };
        }
        second.calls = second.calls.saturating_add(1);
        second.failures = second.failures.saturating_add(failures);
    }

    fn last_seconds(&self, now_ns: u64) -> (u64, u64) {
        let oldest = (now_ns / SECOND_NS).saturating_sub(SECONDS as u64 - 1);
        let recent = self.seconds.iter().filter(|second| second.number >= oldest);
        recent.fold((0, 0), |(calls, failures), second| {
            (calls + u64::from(second.calls), failures + u64::from(second.failures))
        })
    }
}

/// The fewest calls from which failure is concluded.
pub const SAMPLES_MIN: u64 = 20;
/// Successes in a row that close it again where calls failed.
pub const SUCCESSES_MIN: u8 = 3;
/// Open: one call in so many is made.
pub const TRIED_EVERY: u32 = 100;
/// Half-open: one call in so many is made.
pub const HALF_OPEN_EVERY: u32 = 10;
/// How long it stays open at least and at most: 30 s ± 20 %, nanoseconds.
pub const OPEN_NS: Range<u64> = 24 * SECOND_NS..36 * SECOND_NS;
/// How long renewals take to come back in full, nanoseconds.
pub const RAMP_NS: u64 = SECOND_NS / 2;
const SECONDS: usize = 10;
const SECOND_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
    use proptest::strategy::{Just, Strategy};

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Succeeded,
        Failed,
        Refused,
    }

    fn apply(breaker: &mut Breaker, event: Event, now_ns: u64, jitter: u64) {
        match event {
            Event::Succeeded => breaker.succeeded(now_ns),
            Event::Failed => breaker.failed(now_ns, jitter),
            Event::Refused => breaker.refused(now_ns, jitter),
        }
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![4 => Just(Event::Succeeded), 5 => Just(Event::Failed), 1 => Just(Event::Refused)]
    }

    proptest! {
        /// Against a model that keeps every call since the breaker last closed.
        #[test]
        fn opens_exactly_when_it_should(
            events in prop::collection::vec((event(), 0_u64..2_000_000_000, any::<u64>()), 1..300)
        ) {
            let (mut breaker, mut calls, mut now_ns) = (Breaker::default(), Vec::new(), 3_600 * SECOND_NS);
            for (event, pause_ns, jitter) in events {
                now_ns += pause_ns;
                let before = breaker.phase(now_ns);
                apply(&mut breaker, event, now_ns, jitter);
                let after = breaker.phase(now_ns);
                if before == Phase::Closed {
                    calls.push((now_ns / SECOND_NS, matches!(event, Event::Failed)));
                    let oldest = now_ns / SECOND_NS - 9;
                    let recent: Vec<bool> =
                        calls.iter().filter(|(second, _)| *second >= oldest).map(|(_, failed)| *failed).collect();
                    let failures = recent.iter().filter(|failed| **failed).count();
                    let opens = match event {
                        Event::Succeeded => false,
                        Event::Failed => recent.len() >= 20 && failures * 2 > recent.len(),
                        Event::Refused => true,
                    };
                    prop_assert_eq!(after != Phase::Closed, opens);
                } else if after == Phase::Closed {
                    prop_assert!(matches!(event, Event::Succeeded));
                    calls.clear();
                }
            }
        }

        #[test]
        fn three_successes_in_a_row_always_close_it(
            events in prop::collection::vec((event(), any::<u64>()), 0..100)
        ) {
            let (mut breaker, mut now_ns) = (Breaker::default(), 3_600 * SECOND_NS);
            for (event, jitter) in events {
                now_ns += SECOND_NS / 10;
                apply(&mut breaker, event, now_ns, jitter);
            }
            for _ in 0..SUCCESSES_MIN {
                breaker.succeeded(now_ns);
            }
            prop_assert_eq!(breaker.phase(now_ns), Phase::Closed);
        }
    }

    #[test]
    fn a_refused_connection_opens_at_once_and_one_success_closes() {
        let mut breaker = Breaker::default();
        breaker.refused(SECOND_NS, 0);
        assert_eq!(breaker.phase(SECOND_NS), Phase::Open);
        breaker.refused(2 * SECOND_NS, 0);
        breaker.succeeded(3 * SECOND_NS);
        assert_eq!(breaker.phase(3 * SECOND_NS), Phase::Closed);
        assert_eq!(breaker.ramp_percent(3 * SECOND_NS), 10);
        assert_eq!(breaker.ramp_percent(3 * SECOND_NS + RAMP_NS / 2), 55);
        assert_eq!(breaker.ramp_percent(3 * SECOND_NS + RAMP_NS), 100);
    }

    #[test]
    fn is_open_for_thirty_seconds_give_or_take_a_fifth() {
        for jitter in [0, 1, 17, u64::MAX] {
            let mut breaker = Breaker::default();
            breaker.refused(0, jitter);
            assert_eq!(breaker.phase(24 * SECOND_NS - 1), Phase::Open);
            assert_eq!(breaker.phase(36 * SECOND_NS), Phase::HalfOpen);
            breaker.failed(36 * SECOND_NS, jitter);
            assert_eq!(breaker.phase(36 * SECOND_NS), Phase::Open);
        }
    }

    #[test]
    fn failures_of_long_ago_do_not_count() {
        let mut breaker = Breaker::default();
        for _ in 0..19 {
            breaker.failed(SECOND_NS, 0);
        }
        breaker.failed(12 * SECOND_NS, 0);
        assert_eq!(breaker.phase(12 * SECOND_NS), Phase::Closed);
    }
}
