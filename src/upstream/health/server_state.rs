//! What is known of one server's health, and what follows from what happens to it.
//!
//! Pure: it is told what happened and when. It asks no server and reads no clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::{self, Eject, HealthCheckConfig};

/// What is known of one server.
///
/// Two things take it out of use: checks that fail, until enough of them succeed, and an ejection, until its time is
/// over. A good check does not end an ejection, because a health endpoint may say what it likes while requests fail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerState {
    is_unhealthy: bool,
    /// Checks in a row that spoke against what is believed.
    contrary: u32,
    /// When its ejection ends, nanoseconds. 0: it is not ejected.
    ejected_until_ns: u64,
    /// How many times the first ejection's length the last one was; falls while it works.
    ejections: u32,
    /// When it came back last, nanoseconds. 0: it was never away.
    back_ns: u64,
}

/// What is new about a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthChange {
    Unhealthy,
    Healthy,
    /// Requests to it have failed; it is left out for so long.
    Ejected(Duration),
    /// Its ejection is over.
    Returned,
}

impl ServerState {
    /// A server that others were there before: it gets its share by and by.
    pub fn new_among_others(now_ns: u64) -> ServerState {
        ServerState { back_ns: now_ns, ..ServerState::default() }
    }

    /// The same server under other rules: what they do not look at any more is forgotten.
    pub fn under(&self, rules: &config::HealthConfig) -> ServerState {
        let mut standing = self.clone();
        if rules.check.is_none() {
            (standing.is_unhealthy, standing.contrary) = (false, 0);
        }
        if rules.eject.is_none() {
            (standing.ejected_until_ns, standing.ejections) = (0, 0);
        }
        standing
    }

    pub fn checked(&mut self, is_good: bool, rules: &HealthCheckConfig, now_ns: u64) -> Option<HealthChange> {
        if is_good != self.is_unhealthy {
            self.contrary = 0;
            return None;
        }
        self.contrary += 1;
        let needed = if is_good { rules.healthy_after } else { rules.unhealthy_after };
        if self.contrary < needed {
            return None;
        }
        self.contrary = 0;
        self.is_unhealthy = !is_good;
        if is_good {
            self.back_ns = now_ns;
            return Some(HealthChange::Healthy);
        }
        Some(HealthChange::Unhealthy)
    }

    /// Enough requests have failed. Each ejection is longer than the one before by the first one's length, up to
    /// [`GROWTH_MAX`] of them.
    pub fn eject(&mut self, rules: &Eject, now_ns: u64) -> HealthChange {
        self.calm_down(rules, now_ns);
        self.ejections = (self.ejections + 1).min(GROWTH_MAX);
        let time = rules.time.saturating_mul(self.ejections);
        self.ejected_until_ns = now_ns.saturating_add(nanos(time)).max(1);
        HealthChange::Ejected(time)
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ns: u64) -> Option<HealthChange> {
        if self.ejected_until_ns == 0 || now_ns < self.ejected_until_ns {
            return None;
        }
        self.back_ns = self.back_ns.max(self.ejected_until_ns);
        self.ejected_until_ns = 0;
        Some(HealthChange::Returned)
    }

    /// Until when no request goes to it, nanoseconds. 0: it may be used; `u64::MAX`: until checks say otherwise.
    pub fn out_until_ns(&self) -> u64 {
        if self.is_unhealthy { u64::MAX } else { self.ejected_until_ns }
    }

    /// When it came back last, nanoseconds; 0 if it was never away.
    pub fn back_ns(&self) -> u64 {
        self.back_ns
    }

    pub fn is_unhealthy(&self) -> bool {
        self.is_unhealthy
    }

    pub fn is_ejected(&self) -> bool {
        self.ejected_until_ns > 0
    }

    /// When its ejection ends, nanoseconds; `None` if it is not ejected.
    pub fn ejected_until_ns(&self) -> Option<u64> {
        self.is_ejected().then_some(self.ejected_until_ns)
    }

    /// For each first ejection's length without another one, one of them is forgotten.
    fn calm_down(&mut self, rules: &Eject, now_ns: u64) {
        let calm_ns = now_ns.saturating_sub(self.back_ns.max(self.ejected_until_ns));
        let forgotten = calm_ns / nanos(rules.time).max(1);
        self.ejections = self.ejections.saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX));
    }
}

/// The part of its share that a server gets, per mille: nothing while it is out, then all of it, or more and more over
/// `slow_start`. An ejection ends with its time, whether or not [`ServerState::tick`] has been told.
pub fn share_per_mille(out_until_ns: u64, back_ns: u64, slow_start: Option<Duration>, now_ns: u64) -> u32 {
    if now_ns < out_until_ns {
        return 0;
    }
    let since_ns = out_until_ns.max(back_ns);
    let Some(slow_start_ns) = slow_start.map(nanos).filter(|_| since_ns > 0) else { return WHOLE };
    let warm_ns = now_ns.saturating_sub(since_ns);
    if warm_ns >= slow_start_ns {
        return WHOLE;
    }
    // Less than a thousand, because it is a part of the whole. In 128 bits no length of time overflows.
    let part = u128::from(warm_ns) * u128::from(WHOLE) / u128::from(slow_start_ns);
    u32::try_from(part).unwrap_or(WHOLE).max(LEAST)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The share of a server that may be used as any other.
pub const WHOLE: u32 = 1_000;
/// A server that has just come back gets a tenth of its share, because with less it would never be tried where little
/// comes.
const LEAST: u32 = 100;
/// Ejections become no longer than this many times the first.
const GROWTH_MAX: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn check() -> HealthCheckConfig {
        HealthCheckConfig { unhealthy_after: 3, healthy_after: 2, ..HealthCheckConfig::default() }
    }

    #[test]
    fn checks_take_a_server_out_and_back_by_their_thresholds() {
        let mut standing = ServerState::default();
        let mut said = |checks: &str, now: u64| {
            let changes =
                checks.bytes().map(|check_said| standing.checked(check_said == b'+', &check(), now));
            let changes: Vec<_> = changes.collect();
            (changes, standing.out_until_ns())
        };
        assert_eq!(said("--+--", SECOND), (vec![None; 5], 0));
        assert_eq!(said("-", SECOND), (vec![Some(HealthChange::Unhealthy)], u64::MAX));
        assert_eq!(said("-+-+", SECOND), (vec![None; 4], u64::MAX));
        assert_eq!(said("+", 2 * SECOND), (vec![Some(HealthChange::Healthy)], 0));
        assert_eq!(standing.back_ns(), 2 * SECOND);
    }

    #[test]
    fn ejections_that_follow_each_other_grow_and_are_forgotten() {
        let rules = Eject { time: Duration::from_secs(10), ..Eject::default() };
        let mut standing = ServerState::default();
        let mut now = 100 * SECOND;
        for times in [1, 2, 3, 4] {
            let time = Duration::from_secs(10 * times);
            assert_eq!(standing.eject(&rules, now), HealthChange::Ejected(time));
            assert_eq!(standing.tick(now + nanos(time) - 1), None);
            now += nanos(time);
            assert_eq!(standing.tick(now), Some(HealthChange::Returned));
            assert_eq!(standing.tick(now), None);
        }
        now += 35 * SECOND;
        assert_eq!(standing.eject(&rules, now), HealthChange::Ejected(Duration::from_secs(20)));
        for _ in 0..100 {
            now = standing.out_until_ns();
            standing.tick(now);
            standing.eject(&rules, now);
        }
        assert_eq!(standing.out_until_ns() - now, 100 * SECOND);
    }

    #[test]
    fn a_good_check_does_not_end_an_ejection() {
        let mut standing = ServerState::default();
        standing.eject(&Eject::default(), SECOND);
        for _ in 0..9 {
            standing.checked(true, &check(), SECOND);
        }
        assert_eq!(standing.out_until_ns(), 31 * SECOND);
    }

    #[test]
    fn a_server_that_is_back_gets_its_share_by_and_by() {
        let slow = Some(Duration::from_secs(10));
        let share = |now| share_per_mille(0, 100 * SECOND, slow, now);
        assert_eq!(share(100 * SECOND), LEAST);
        assert_eq!(share(105 * SECOND), 500);
        assert_eq!(share(110 * SECOND), WHOLE);
        assert_eq!(share_per_mille(0, 0, slow, SECOND), WHOLE);
        assert_eq!(share_per_mille(0, 100 * SECOND, None, 100 * SECOND), WHOLE);
        assert_eq!(share_per_mille(50 * SECOND, 0, slow, 55 * SECOND), 500);
        assert_eq!(share_per_mille(u64::MAX, 0, slow, 55 * SECOND), 0);
    }

    proptest! {
        /// Whatever happens: a share is never more than the whole, grows with time alone, and a server that is left alone
        /// for long enough is whole again unless checks say otherwise.
        #[test]
        fn left_alone_a_server_recovers(
            events in prop::collection::vec((0_u8..4, 0_u64..100 * SECOND), 0..50),
        ) {
            let (rules, slow) = (Eject::default(), Some(Duration::from_secs(10)));
            let (mut standing, mut now) = (ServerState::default(), SECOND);
            for (event, later) in events {
                now += later;
                match event {
                    0 => { standing.checked(true, &check(), now); }
                    1 => { standing.checked(false, &check(), now); }
                    2 => { standing.eject(&rules, now); }
                    _ => { standing.tick(now); }
                }
            }
            let share = |now| share_per_mille(standing.out_until_ns(), standing.back_ns(), slow, now);
            let shares: Vec<u32> = (0..400).map(|second| share(now + second * SECOND)).collect();
            prop_assert!(shares.is_sorted() && shares.iter().all(|share| *share <= WHOLE));
            let last = shares.last().copied();
            prop_assert_eq!(last, Some(if standing.is_unhealthy() { 0 } else { WHOLE }));
        }
    }
}
