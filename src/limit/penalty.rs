//! Penalties: a client that ignores `Retry-After` is refused for longer, and forgiven once it has been quiet.
//!
//! Denials are counted over a stretch of `within`, which begins with the first. More than `after` denials in one stretch
//! are a strike: the client is refused for `factor` times as long as it was told to wait, and at each further strike
//! for `factor` times as long as before. A client that is quiet for as long as its last penalty, and at least for
//! `within`, starts afresh.
//!
//! It knows no limits: its users say who was denied and which wait they were told.

use super::trial::{self, Trial, TrialSet};
use super::{Key, PolicyId};

/// When clients are penalised, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    after: u32,
    within_ns: u64,
    factor: u32,
    max_seconds: u32,
}

impl Penalty {
    /// The largest `after`: denials in a stretch without a strike.
    pub const AFTER_MAX: u32 = 10_000;
    /// The longest stretch in which denials are counted: an hour.
    pub const WITHIN_NS_MAX: u64 = 3_600 * SECOND_NS;
    /// The longest penalty, seconds: a day.
    pub const SECONDS_MAX: u32 = 86_400;
    /// The largest factor by which penalties grow.
    pub const FACTOR_MAX: u32 = 100;

    /// More than `after` denials within `within_ns` are a strike, and no penalty is longer than `max_seconds`. Values
    /// beyond the constants above are reduced to them, so that a [`Record`] fits two words.
    pub fn new(after: u32, within_ns: u64, factor: u32, max_seconds: u32) -> Penalty {
        Penalty {
            after: after.min(Penalty::AFTER_MAX),
            within_ns: within_ns.clamp(1, Penalty::WITHIN_NS_MAX),
            factor: factor.clamp(1, Penalty::FACTOR_MAX),
            max_seconds: max_seconds.clamp(1, Penalty::SECONDS_MAX),
        }
    }

    /// The most denials in a stretch that are no strike.
    pub fn after(&self) -> u32 {
        self.after
    }

    /// Length of a stretch in which denials are counted, nanoseconds.
    pub fn within_ns(&self) -> u64 {
        self.within_ns
    }

    /// The factor by which each penalty is longer than the one before.
    pub fn factor(&self) -> u32 {
        self.factor
    }

    /// The longest that one penalty lasts, however many strikes there were, seconds.
    pub fn max_seconds(&self) -> u32 {
        self.max_seconds
    }

    fn within_ticks(&self) -> u64 {
        self.within_ns.div_ceil(TICK_NS)
    }
}

/// The penalty of one policy, as it is checked for one request: whose it is, its rule, and the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PenaltyCheck {
    /// Under which the client's [`Record`] is kept; not the key of any window.
    pub key: Key,
    /// When a penalty begins, and how long it lasts.
    pub rule: Penalty,
    /// The policy whose rule it is.
    pub policy: PolicyId,
    /// Which of the subjects it is of, as [`Charge::part`](super::Charge::part).
    pub part: u16,
    /// Counted and reported, but never a reason to refuse (`shadow`).
    pub shadow: bool,
    /// Its policy's part in a trial.
    pub trial: Option<Trial>,
    /// How long the client is still refused, nanoseconds; 0: it is not, or that has not been read yet.
    pub wait_ns: u64,
}

impl PenaltyCheck {
    /// The worlds in which it keeps the client out.
    pub fn refuses(&self) -> TrialSet {
        trial::refused_by(self.trial, self.shadow)
    }
}

/// What Redis knows of a client for the whole fleet, as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetRecord {
    /// How long ago the last denial was, milliseconds.
    pub quiet_ms: u64,
    /// How long ago the stretch began, milliseconds.
    pub age_ms: u64,
    /// For how much longer the penalty lasts, milliseconds; 0: there is none.
    pub left_ms: u64,
    /// Length of the last penalty, seconds.
    pub length_seconds: u64,
    /// Denials in the stretch.
    pub count: u64,
    /// Length of a stretch, milliseconds.
    pub within_ms: u64,
}

/// The denials and the penalty of one key, in ticks of about a millisecond. It can be read without the rule it was
/// written under, so that a reload that changes the rule needs no conversion. All zero: no denial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When the last denial was.
    last: u64,
    /// How long before `last` the stretch began.
    age: u64,
    /// How long after `last` the penalty ends; 0: there is none.
    left: u64,
    /// Length of the last penalty, seconds.
    length_seconds: u64,
    /// Denials in the stretch.
    count: u64,
    /// Binary logarithm of the stretch, rounded up: lets `is_over` do without the rule.
    within_log2: u64,
}

impl Record {
    /// A record from the words that [`Record::into_words`] made.
    pub fn from_words([first, second]: [u64; 2]) -> Record {
        Record {
            last: first >> 22,
            age: first & low(22),
            left: second >> 37,
            length_seconds: second >> 20 & low(17),
            count: second >> 6 & low(14),
            within_log2: second & low(6),
        }
    }

    /// As two words: `last` 42 bits, `age` 22; `left` 27, `length_seconds` 17, `count` 14, `within_log2` 6. The bounds
    /// of a [`Penalty`] fit.
    pub fn into_words(self) -> [u64; 2] {
        [
            self.last << 22 | self.age.min(low(22)),
            self.left.min(low(27)) << 37
                | self.length_seconds.min(low(17)) << 20
                | self.count.min(low(14)) << 6
                | self.within_log2.min(low(6)),
        ]
    }

    /// Nanoseconds until the penalty ends; 0: there is none.
    pub fn wait_ns(&self, now_ns: u64) -> u64 {
        if self.left == 0 { 0 } else { ((self.last + self.left) * TICK_NS).saturating_sub(now_ns) }
    }

    /// Whether the client is forgiven, so that the record may be dropped. Without the rule this is known late, at most
    /// after twice the stretch.
    pub fn is_over(&self, now_ns: u64) -> bool {
        self.is_quiet(1 << self.within_log2.min(40), now_ns)
    }

    /// Counts a denial of a client that was told to wait `told_ns`.
    pub fn denied(self, rule: &Penalty, told_ns: u64, now_ns: u64) -> Record {
        let within = rule.within_ticks();
        // Another thread's clock may be slightly behind the one that wrote `last`.
        let now = (now_ns / TICK_NS).max(self.last);
        let before = if self.is_quiet(within, now_ns) { Record::default() } else { self };
        let mut began = before.last.saturating_sub(before.age);
        let mut count = before.count;
        if count == 0 || now - began > within {
            (began, count) = (now, 0);
        }
        count += 1;
        let mut length_seconds = before.length_seconds;
        let mut until = before.last + before.left;
        if count > u64::from(rule.after) {
            // At least a second, because `Retry-After` has whole seconds.
            let told = if length_seconds == 0 { told_ns.div_ceil(SECOND_NS).max(1) } else { length_seconds };
            length_seconds = told.saturating_mul(u64::from(rule.factor)).min(u64::from(rule.max_seconds));
            // Rounded up, and one tick more because `now` was rounded down: the penalty never ends before the promised
            // time.
            until = now + (length_seconds * SECOND_NS).div_ceil(TICK_NS) + 1;
            (began, count) = (now, 0);
        }
        let left = until.saturating_sub(now);
        let within_log2 = u64::from(within.next_power_of_two().trailing_zeros());
        Record { last: now, age: now - began, left, length_seconds, count, within_log2 }
    }

    /// This record once the fleet has told what it knows. A penalty of this node that ends later stays as it is: it began
    /// while Redis was away, or Redis has lost its data.
    pub fn joined(self, fleet: &FleetRecord, now_ns: u64) -> Record {
        let within = ticks(fleet.within_ms.clamp(1, Penalty::WITHIN_NS_MAX / MS_NS));
        let before = if self.is_quiet(within, now_ns) { Record::default() } else { self };
        let now = now_ns / TICK_NS;
        let last = now.saturating_sub(ticks(fleet.quiet_ms)).max(before.last);
        // Rounded up as where a penalty begins, so that no node ends it before the promised time.
        let fleet_until = if fleet.left_ms == 0 { 0 } else { now + ticks(fleet.left_ms) + 1 };
        let until = fleet_until.max(before.last + before.left);
        Record {
            last,
            age: last.saturating_sub(now.saturating_sub(ticks(fleet.age_ms))),
            left: until.saturating_sub(last),
            length_seconds: fleet.length_seconds.max(before.length_seconds),
            count: fleet.count,
            within_log2: u64::from(within.next_power_of_two().trailing_zeros()),
        }
    }

    /// Length of the last penalty, seconds; 0: there was none.
    pub fn length_seconds(&self) -> u64 {
        self.length_seconds
    }

    /// Whether the client has been quiet for its last penalty and for `within` ticks.
    fn is_quiet(&self, within: u64, now_ns: u64) -> bool {
        let penalty = (self.length_seconds * SECOND_NS).div_ceil(TICK_NS) + 1;
        let quiet = if self.length_seconds == 0 { within } else { penalty.max(within) };
        self.last == 0 || (now_ns / TICK_NS).saturating_sub(self.last) > quiet
    }
}

fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

fn ticks(ms: u64) -> u64 {
    ms.min(YEAR_MS).saturating_mul(MS_NS).div_ceil(TICK_NS)
}

const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;
/// No time of a record is longer.
const YEAR_MS: u64 = 366 * 24 * 3_600 * 1_000;
/// About a millisecond.
const TICK_NS: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = 3_600 * SECOND_NS;

    fn rule() -> Penalty {
        Penalty::new(3, 10 * SECOND_NS, 2, 60)
    }

    /// Denied so many times at once.
    fn denied(mut record: Record, times: u32, now_ns: u64) -> Record {
        for _ in 0..times {
            record = Record::from_words(record.denied(&rule(), 4 * SECOND_NS, now_ns).into_words());
        }
        record
    }

    fn seconds(record: Record, now_ns: u64) -> u64 {
        record.wait_ns(now_ns) / SECOND_NS
    }

    #[test]
    fn each_strike_doubles_the_wait_up_to_the_most() {
        let mut record = denied(Record::default(), 3, NOW);
        assert_eq!(record.wait_ns(NOW), 0);
        for expected in [8, 16, 32, 60, 60] {
            record = denied(record, if expected == 8 { 1 } else { 4 }, NOW);
            assert_eq!(seconds(record, NOW), expected);
        }
    }

    #[test]
    fn few_denials_in_a_stretch_are_no_strike() {
        let mut record = Record::default();
        for step in 0..100 {
            record = denied(record, 1, NOW + step * 4 * SECOND_NS);
            assert_eq!(record.wait_ns(NOW + step * 4 * SECOND_NS), 0);
        }
    }

    #[test]
    fn a_client_that_is_quiet_for_its_penalty_is_forgiven() {
        let penalised = denied(denied(Record::default(), 4, NOW), 4, NOW);
        assert_eq!(seconds(penalised, NOW), 16);
        let again = denied(penalised, 4, NOW + 17 * SECOND_NS);
        assert_eq!(seconds(again, NOW + 17 * SECOND_NS), 8);
        let early = denied(penalised, 4, NOW + 15 * SECOND_NS);
        assert_eq!(seconds(early, NOW + 15 * SECOND_NS), 32);
    }

    proptest! {
        /// Whatever the history: what is said fits the words, no penalty is longer than the most, none ends earlier
        /// than it was said, and while one lasts the record is not given up.
        #[test]
        fn penalties_end_when_they_say(
            after in 0u32..20, within_ns in 1u64..2 * Penalty::WITHIN_NS_MAX, factor in 0u32..200,
            max_seconds in 0u32..100_000,
            steps in prop::collection::vec((0u64..100 * SECOND_NS, 0u64..1000 * SECOND_NS), 1..80),
        ) {
            let rule = Penalty::new(after, within_ns, factor, max_seconds);
            let (mut record, mut now, mut promised) = (Record::default(), NOW, 0);
            for (pause, told) in steps {
                now += pause;
                let next = record.denied(&rule, told, now);
                prop_assert_eq!(Record::from_words(next.into_words()), next);
                let until = now + next.wait_ns(now);
                // To a tick: of two that are denied in one, the second rounds as the first did.
                prop_assert!(until >= promised || promised <= now);
                let most = u64::from(rule.max_seconds()) * SECOND_NS + 3 * TICK_NS;
                prop_assert!(next.wait_ns(now) <= most);
                prop_assert!(!next.is_over(now) && !next.is_over(until.saturating_sub(1)));
                prop_assert!(next.is_over(now + most.max(2 * rule.within_ns()) + 3 * TICK_NS));
                (record, promised) = (next, until);
            }
        }

        /// Whatever a node and the fleet know: the longer of both penalties holds afterwards, and the fleet's count.
        #[test]
        fn a_record_that_joins_the_fleets_ends_neither_penalty(
            denials in 0u32..20, pause in 0u64..100 * SECOND_NS, quiet_ms in 0u64..4_000_000,
            left_ms in 0u64..86_400_000, count in 0u64..10_000, length_seconds in 0u64..86_400,
        ) {
            let now = NOW + pause;
            let own = denied(Record::default(), denials, NOW);
            let left_ms = left_ms * u64::from(length_seconds > 0);
            let fleet = FleetRecord { quiet_ms, age_ms: quiet_ms, left_ms, length_seconds, count, within_ms: 10_000 };
            let joined = own.joined(&fleet, now);
            prop_assert_eq!(Record::from_words(joined.into_words()), joined);
            prop_assert_eq!(joined.count, count);
            let longer = own.wait_ns(now).max(left_ms * MS_NS);
            prop_assert!((longer..=longer + 3 * TICK_NS).contains(&joined.wait_ns(now)));
        }

        /// Beside a count kept by hand: no strike without more than `after` denials since the stretch began.
        #[test]
        fn patient_clients_are_never_penalised(
            after in 1u32..20, pauses in prop::collection::vec(0u64..3 * SECOND_NS, 1..100),
        ) {
            let rule = Penalty::new(after, SECOND_NS, 2, 60);
            let (mut record, mut now, mut times) = (Record::default(), NOW, Vec::new());
            for pause in pauses {
                now += pause;
                times.push(now);
                record = record.denied(&rule, SECOND_NS, now);
                let stretch = SECOND_NS + 2 * TICK_NS;
                let lately = times.iter().filter(|time| now - **time <= stretch).count();
                if record.count == 0 {
                    prop_assert!(lately > after as usize, "a strike after {} denials", lately);
                    times.clear();
                }
            }
        }
    }
}
