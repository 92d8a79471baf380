//! When a certificate is due, and how long to wait after an attempt that failed. Pure: `now` is an argument, all times are
//! Unix seconds.

use std::time::Duration;

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: u64,
    pub(super) not_after: u64,
}

/// When an authority wants a certificate replaced (RFC 9773 section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RenewalWindow {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Validity {
    /// Two thirds of its life, as Let's Encrypt recommends, so that a month is left of 90 days to mend what goes wrong.
    fn two_thirds(self) -> u64 {
        let life = self.not_after.saturating_sub(self.not_before);
        // Rounded down, to the earlier side.
        self.not_before.saturating_add(life - life.div_ceil(3))
    }

    /// Whether it serves on for a good while: a sixth of its life is left, half of what there was when it was due. A node
    /// that cannot ask the others waits until then.
    pub(super) fn serves_on(self, now: u64) -> bool {
        let life = self.not_after.saturating_sub(self.not_before);
        self.not_after.saturating_sub(now) > life / 6
    }

    /// When it is to be renewed. `chance` picks the moment within the window, so that an authority that replaces many
    /// certificates at once is not met by all of their owners in one second (RFC 9773 section 4.2).
    ///
    /// A window that makes no sense, or that would let the certificate expire, does not count.
    pub(super) fn due(self, window: Option<RenewalWindow>, chance: u64) -> u64 {
        let Some(RenewalWindow { start, end }) = window else { return self.two_thirds() };
        let Some(length) = end.checked_sub(start).filter(|length| *length > 0 && end <= self.not_after)
        else {
            return self.two_thirds();
        };
        start + chance % length
    }
}

/// How long to wait after the `failures`th failure in a row, at least as long as the authority asked for.
pub(super) fn pause(failures: u32, asked: Option<Duration>) -> Duration {
    let doubled =
        PAUSE_FIRST.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    doubled.min(PAUSE_MAX).max(asked.unwrap_or_default().min(ASKED_MAX))
}

/// When to try again by what an earlier attempt wrote down. A time further off than any pause was written by a clock that
/// was wrong, and does not count.
pub(super) fn not_before(written: u64, now: u64) -> u64 {
    if written > now.saturating_add(ASKED_MAX.as_secs()) { 0 } else { written }
}

/// Five failures of a name in an hour are the limit of Let's Encrypt: by doubling, the sixth attempt comes after 62 minutes.
const PAUSE_FIRST: Duration = Duration::from_secs(120);
const PAUSE_MAX: Duration = Duration::from_secs(6 * 3_600);
/// An authority that asks for more than a day is asked again after a day.
const ASKED_MAX: Duration = Duration::from_secs(24 * 3_600);

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    #[test]
    fn a_certificate_is_due_at_two_thirds_of_its_life() {
        let at = 1_800_000_000;
        for days in [1, 6, 47, 90, 398] {
            let validity = Validity { not_before: at, not_after: at + days * DAY };
            assert_eq!(validity.due(None, 7), at + days * DAY * 2 / 3, "{days} days");
        }
        let validity = Validity { not_before: at, not_after: at + 90 * DAY };
        assert!(validity.serves_on(at + 74 * DAY) && !validity.serves_on(at + 76 * DAY));
        let never = Validity { not_before: at, not_after: at - 1 };
        assert_eq!(never.due(None, 0), at, "one that was never valid is due");
    }

    #[test]
    fn a_window_of_the_authority_goes_before_two_thirds() {
        let validity = Validity { not_before: 0, not_after: 90 * DAY };
        let window = RenewalWindow { start: 10 * DAY, end: 11 * DAY };
        for chance in [0, 1, DAY - 1, DAY, u64::MAX] {
            let due = validity.due(Some(window), chance);
            assert!((window.start..window.end).contains(&due), "{chance}: {due}");
        }
        assert_ne!(validity.due(Some(window), 1), validity.due(Some(window), 2), "it is spread");
    }

    #[test]
    fn a_window_that_makes_no_sense_does_not_count() {
        let validity = Validity { not_before: 0, not_after: 90 * DAY };
        for (start, end) in [(5, 5), (6, 5), (80 * DAY, 91 * DAY), (u64::MAX - 1, u64::MAX)] {
            assert_eq!(validity.due(Some(RenewalWindow { start, end }), 3), 60 * DAY, "{start} to {end}");
        }
    }

    #[test]
    fn attempts_stay_within_five_failures_an_hour() {
        let mut at = 0;
        let mut within = 0;
        for failures in 1..100 {
            within += usize::from(at < 3_600);
            let pause = pause(failures, None).as_secs();
            assert!((120..=6 * 3_600).contains(&pause), "{failures}: {pause}");
            at += pause;
        }
        assert_eq!(within, 5);
    }

    #[test]
    fn what_the_authority_asks_for_is_waited_for_but_not_for_ever() {
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        assert_eq!(pause(1, Some(hours(3))), hours(3));
        assert_eq!(pause(1, Some(hours(1_000))), hours(24));
        assert_eq!(pause(1, Some(Duration::ZERO)), PAUSE_FIRST);
    }

    #[test]
    fn a_pause_written_by_a_wrong_clock_does_not_count() {
        let now = 1_800_000_000;
        assert_eq!(not_before(now + 3_600, now), now + 3_600);
        assert_eq!(not_before(now + 10 * 365 * DAY, now), 0);
        assert_eq!(not_before(now - 5, now), now - 5);
    }
}
