//! [`Quota`]: one window of a policy (limit, period, burst, algorithm), with the constants its decisions need.

use std::num::NonZeroU64;
use std::time::Duration;

use super::axis::Axis;
use super::calendar::Calendar;
use super::sliding_log;
use super::small_window::Steps;

/// How a window counts, as `algorithm` of a policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Refills continuously; stored as one theoretical arrival time (GCRA, ITU-T I.371).
    TokenBucket,
    /// Counts in windows that begin at multiples of the period.
    FixedWindow,
    /// Two counters; the last window counts by the part of it that still overlaps.
    SlidingWindow,
    /// The time of every unit; exact, and its memory grows with the limit.
    SlidingLog,
    /// Shapes: requests that come too fast wait in a queue of `burst` units, and are refused beyond it.
    LeakyBucket,
    /// Units in flight, until they are given back; time does not free them.
    Concurrency,
}

impl Algorithm {
    /// All algorithms that a policy can name.
    pub const ALL: [Algorithm; 6] = [
        Algorithm::TokenBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::LeakyBucket,
        Algorithm::Concurrency,
    ];

    /// The algorithm that [`Algorithm::number`] gives this number.
    pub fn of_number(number: u8) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.number() == number)
    }

    /// The number by which scripts and fingerprints know it, from 1.
    pub fn number(self) -> u8 {
        match self {
            Algorithm::TokenBucket => 1,
            Algorithm::FixedWindow => 2,
            Algorithm::SlidingWindow => 3,
            Algorithm::SlidingLog => 4,
            Algorithm::LeakyBucket => 5,
            Algorithm::Concurrency => 6,
        }
    }
}

/// One window of a policy: `limit` units in `period_ns`, at most `burst` of them at once. Divisions that decisions need
/// are done once, when the quota is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    algorithm: Algorithm,
    limit: NonZeroU64,
    period_ns: NonZeroU64,
    burst: NonZeroU64,
    fingerprint: u32,
    /// Of a fixed window that is one of the calendar.
    calendar: Option<&'static Calendar>,
    /// Of a sliding window of few units.
    steps: Option<Steps>,
    axis: Axis,
}

impl Quota {
    /// A fingerprint that no quota has; slots use it for other records.
    pub const NO_FINGERPRINT: u32 = 0;

    /// A quota. `burst` is the capacity of a token bucket and the length of a leaky bucket's queue; the other
    /// algorithms ignore it, and concurrency ignores the period.
    pub fn new(algorithm: Algorithm, limit: NonZeroU64, period_ns: NonZeroU64, burst: NonZeroU64) -> Quota {
        let fingerprint = fingerprint(algorithm, [limit, period_ns, burst]);
        let holds = match algorithm {
            Algorithm::LeakyBucket => queue_and_one(burst),
            _ => burst,
        };
        let axis = Axis::new(limit, period_ns, holds);
        let slides = algorithm == Algorithm::SlidingWindow;
        let steps = slides.then(|| Steps::of(limit.get(), period_ns.get())).flatten();
        Quota { algorithm, limit, period_ns, burst, fingerprint, calendar: None, steps, axis }
    }

    /// The same limit for each window of a calendar, in fixed windows.
    pub fn on_calendar(self, calendar: &'static Calendar) -> Quota {
        let period_ns = NonZeroU64::new(calendar.period_ns()).unwrap_or(NonZeroU64::MIN);
        let quota = Quota::new(Algorithm::FixedWindow, self.limit, period_ns, self.burst);
        // Another zone has other windows, so a state under it is to be rescaled; another day of the month, too.
        let name = calendar.zone().name().bytes();
        let zone = name.fold(calendar.anchor().into(), |sum: u64, byte| mixed(sum, byte.into()));
        let fingerprint = word_of(mixed(zone, quota.fingerprint.into()));
        Quota { calendar: Some(calendar), fingerprint, ..quota }
    }

    /// The same window with other units.
    fn of_units(self, limit: NonZeroU64, burst: NonZeroU64) -> Quota {
        let quota = Quota::new(self.algorithm, limit, self.period_ns, burst);
        self.calendar.map_or(quota, |calendar| quota.on_calendar(calendar))
    }

    /// The same quota under another algorithm.
    pub fn counted_by(self, algorithm: Algorithm) -> Quota {
        match self.calendar {
            Some(_) if algorithm == self.algorithm => self,
            _ => Quota::new(algorithm, self.limit, self.period_ns, self.burst),
        }
    }

    /// The same window with its limit and burst multiplied, each to the nearest whole unit and at least one.
    pub fn multiplied(self, factor: f64) -> Quota {
        let multiplied = |whole: NonZeroU64| {
            let units = (whole.get() as f64 * factor).round();
            let most =
                if self.algorithm == Algorithm::SlidingLog { sliding_log::LIMIT_MAX } else { u64::MAX };
            // Casting saturates: what is too large becomes the largest there is, what is no number becomes 0.
            NonZeroU64::new((units as u64).min(most)).unwrap_or(NonZeroU64::MIN)
        };
        self.of_units(multiplied(self.limit), multiplied(self.burst))
    }

    /// How many of `nodes` spend the quota in fallback: all, or as many as it has units. Which they are the key says.
    #[must_use]
    pub fn spenders(&self, nodes: u32) -> u32 {
        let units = self.limit.min(self.burst).get();
        u32::try_from(units).unwrap_or(u32::MAX).min(nodes.max(1))
    }

    /// The share of one of the `spenders` in fallback: twice the even share, at most the whole; the even one where each has
    /// no more than a unit.
    pub fn share_of(self, nodes: u32) -> Quota {
        let is_a_unit = u64::from(self.spenders(nodes)) == self.limit.min(self.burst).get();
        self.part_of(nodes, if is_a_unit { 1 } else { 2 })
    }

    /// So many even shares of one of the `spenders`, at most the whole.
    pub fn part_of(self, nodes: u32, shares: u64) -> Quota {
        let spenders = u64::from(self.spenders(nodes));
        let part = |whole: NonZeroU64| {
            let part = whole.get().saturating_mul(shares) / spenders;
            NonZeroU64::new(part.min(whole.get())).unwrap_or(NonZeroU64::MIN)
        };
        self.of_units(part(self.limit), part(self.burst))
    }

    /// The limit for one address with `when-redis-down = "allow"`: ten times the window, because clients that the
    /// policy tells apart may share an address. Always a bucket, so that nobody waits in a queue and no log is kept.
    pub fn for_address(self) -> Quota {
        let tenfold = |whole: u64| NonZeroU64::new(whole.saturating_mul(10)).unwrap_or(NonZeroU64::MIN);
        let (limit, capacity) = (tenfold(self.limit.get()), tenfold(self.capacity()));
        Quota::new(Algorithm::TokenBucket, limit, self.period_ns, capacity)
    }

    /// How its window counts what is spent.
    #[inline]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units that the window admits in one period.
    #[inline]
    pub fn limit(&self) -> NonZeroU64 {
        self.limit
    }

    /// Length of the period that the limit is for, nanoseconds; of the calendar's, whose lengths differ, one that stands for all.
    #[inline]
    pub fn period_ns(&self) -> NonZeroU64 {
        self.period_ns
    }

    /// The calendar whose windows it has, if it is not one of a fixed length.
    #[inline]
    pub fn calendar(&self) -> Option<&'static Calendar> {
        self.calendar
    }

    /// Whether its windows are those of the other: of the same length and in the same places.
    pub fn has_periods_of(&self, other: &Quota) -> bool {
        self.period_ns == other.period_ns && self.calendar == other.calendar
    }

    /// The number of the fixed window in which the clock reads `now_ns`.
    #[inline]
    pub fn window_at(&self, now_ns: u64) -> u64 {
        match self.calendar {
            None => now_ns / self.period_ns,
            Some(calendar) => calendar.window_at(now_ns),
        }
    }

    /// When the fixed window of this number begins, on the same clock.
    #[inline]
    pub fn window_start_ns(&self, window: u64) -> u64 {
        match self.calendar {
            None => window.saturating_mul(self.period_ns.get()),
            Some(calendar) => calendar.start_ns(window),
        }
    }

    /// Whether another window of the calendar has begun since `since_ns`, so that nothing of what was spent then counts.
    pub fn is_anew(&self, since_ns: u64, now_ns: u64) -> bool {
        self.calendar.is_some_and(|calendar| calendar.window_at(since_ns) < calendar.window_at(now_ns))
    }

    /// When the fixed window of this wall-clock time began, and when it ends, nanoseconds since 1970.
    pub fn window_around_ns(&self, unix: Duration) -> (u64, u64) {
        let unix_ns = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
        let period_ns = self.period_ns.get();
        let began_ns = unix_ns - unix_ns % period_ns;
        let around = self.calendar.map(|calendar| calendar.around_s(unix));
        around.map_or((began_ns, began_ns.saturating_add(period_ns)), |(begins_s, ends_s)| {
            (begins_s.saturating_mul(1_000_000_000), ends_s.saturating_mul(1_000_000_000))
        })
    }

    /// Length of the period of this wall-clock time, nanoseconds: what clients are told.
    pub fn period_at_ns(&self, unix: Duration) -> u64 {
        let (begins_ns, ends_ns) = self.window_around_ns(unix);
        self.calendar.map_or(self.period_ns.get(), |_| ends_ns - begins_ns)
    }

    /// Nanoseconds from this wall-clock time until the fixed window ends.
    pub fn window_left_ns(&self, unix: Duration) -> u64 {
        let (_, ends_ns) = self.window_around_ns(unix);
        ends_ns.saturating_sub(u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The configured burst: a bucket's capacity or a queue's length, units; `limit` by default.
    #[inline]
    pub fn burst(&self) -> NonZeroU64 {
        self.burst
    }

    /// The most units it admits at once.
    pub fn capacity(&self) -> u64 {
        match self.algorithm {
            Algorithm::TokenBucket => self.burst.get(),
            Algorithm::FixedWindow => self.limit.get(),
            Algorithm::SlidingWindow => self.limit.get().min(PAIR_COUNT_MAX),
            Algorithm::LeakyBucket => queue_and_one(self.burst).get(),
            Algorithm::SlidingLog | Algorithm::Concurrency => self.limit.get(),
        }
    }

    /// The most units that one key may spend in a span of one period, and why; `None` if it has no period.
    pub fn worst_period(&self) -> Option<(u64, &'static str)> {
        let (once, twice) = (self.limit.get(), self.limit.get().saturating_mul(2));
        Some(match self.algorithm {
            Algorithm::TokenBucket => {
                (once.saturating_add(self.burst.get()), "a full bucket, and the units that refill")
            }
            Algorithm::LeakyBucket => {
                (once.saturating_add(self.capacity()), "a full queue, and the requests that leave it")
            }
            Algorithm::FixedWindow if self.calendar.is_some() => (
                once,
                "from one reset of the calendar to the next, and twice that in a period that includes a reset",
            ),
            Algorithm::FixedWindow => (twice, "all units just before a reset, and all just after it"),
            Algorithm::SlidingWindow if self.steps.is_some_and(|steps| steps.count >= FINE_STEPS) => {
                (once, "each unit counts for at least 99.5% of a period")
            }
            Algorithm::SlidingWindow if self.is_few() => {
                (twice, "all units, and all again after at least 98% of a period")
            }
            Algorithm::SlidingWindow => {
                (twice, "all units at the end of one window, and all spread evenly over the next")
            }
            Algorithm::SlidingLog => (once, "each unit counts for exactly one period"),
            Algorithm::Concurrency => return None,
        })
    }

    /// Whether it is a bucket that holds all units of a long period, so that twice its limit may pass in the first.
    pub fn is_bare_bucket(&self) -> bool {
        self.algorithm == Algorithm::TokenBucket
            && self.burst == self.limit
            && self.period_ns.get() >= HOUR_NS
    }

    /// What it admits at once, if that is another number than its limit.
    pub fn at_once(&self) -> Option<u64> {
        Some(self.capacity()).filter(|units| *units != self.limit.get())
    }

    /// Nanoseconds in which what it admits at once comes back: the time in which a bucket fills, the period of another
    /// window.
    pub fn whole_ns(&self) -> u64 {
        let period_ns = self.period_ns.get();
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let unit_parts = u128::from(self.capacity()) * u128::from(period_ns);
                u64::try_from(unit_parts.div_ceil(u128::from(self.limit.get()))).unwrap_or(u64::MAX)
            }
            _ => period_ns,
        }
    }

    /// A 32-bit hash of the quota, by which a key's state says which quota it was written under. A collision (one pair in
    /// four thousand million) matters only if a reload changes one quota of the pair into the other on the same key: then
    /// the state is not rescaled.
    #[inline]
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    /// Whether it is a sliding window of so few units that each of them is logged, and none is lent.
    #[inline]
    pub fn is_few(&self) -> bool {
        self.steps.is_some()
    }

    #[inline]
    pub(super) fn steps(&self) -> Option<Steps> {
        self.steps
    }

    #[inline]
    pub(super) fn axis(&self) -> &Axis {
        &self.axis
    }
}

fn fingerprint(algorithm: Algorithm, numbers: [NonZeroU64; 3]) -> u32 {
    let kind = u64::from(algorithm.number());
    let [limit, period_ns, burst] = numbers.map(NonZeroU64::get);
    word_of([kind, limit, period_ns, burst].into_iter().fold(0, mixed))
}

/// Mixes a number into those before it: a finaliser of good avalanche (splitmix64, Steele 2014).
fn mixed(sum: u64, number: u64) -> u64 {
    let mut word = (sum ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn word_of(mixed: u64) -> u32 {
    ((mixed >> 32) as u32).max(Quota::NO_FINGERPRINT + 1)
}

/// Units that wait in a leaky bucket's queue, and the one that goes on.
fn queue_and_one(queue: NonZeroU64) -> NonZeroU64 {
    queue.saturating_add(1)
}

/// `used / whole` of a limit, rounded up to a unit.
pub(super) fn units_of((used, whole): (u64, u64), limit: u64) -> u64 {
    let units = (u128::from(used) * u128::from(limit)).div_ceil(u128::from(whole.max(1)));
    u64::try_from(units).unwrap_or(u64::MAX)
}

const HOUR_NS: u64 = 3_600 * 1_000_000_000;
/// Steps of a period from which on a unit that is back a step early is back as good as in time.
const FINE_STEPS: u16 = 200;
/// The most that each of a sliding window's two counters tells apart; both share a word with their index.
pub(super) const PAIR_COUNT_MAX: u64 = (1 << 44) - 1;

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A quota of plain numbers, none of them zero.
    pub fn quota(algorithm: Algorithm, limit: u64, period_ns: u64, burst: u64) -> Quota {
        let positive = |number| NonZeroU64::new(number).expect("a positive number");
        Quota::new(algorithm, positive(limit), positive(period_ns), positive(burst))
    }

    #[test]
    fn the_worst_period_is_as_much_as_can_be_spent_in_one() {
        let hour = 3_600 * 1_000_000_000;
        for (algorithm, limit, burst, worst, is_bare) in [
            (Algorithm::TokenBucket, 100, 100, Some(200), true),
            (Algorithm::TokenBucket, 100, 10, Some(110), false),
            (Algorithm::LeakyBucket, 100, 10, Some(111), false),
            (Algorithm::FixedWindow, 100, 100, Some(200), false),
            (Algorithm::SlidingWindow, 100, 100, Some(200), false),
            (Algorithm::SlidingWindow, 14, 14, Some(14), false),
            (Algorithm::SlidingWindow, 15, 15, Some(30), false),
            (Algorithm::SlidingWindow, 32, 32, Some(64), false),
            (Algorithm::SlidingLog, 100, 100, Some(100), false),
            (Algorithm::Concurrency, 100, 100, None, false),
        ] {
            let window = quota(algorithm, limit, hour, burst);
            assert_eq!(window.worst_period().map(|(units, _)| units), worst, "{algorithm:?} {limit}");
            assert_eq!(window.is_bare_bucket(), is_bare, "{algorithm:?} {limit}");
        }
        assert!(!quota(Algorithm::TokenBucket, 100, hour - 1, 100).is_bare_bucket());
    }

    #[test]
    fn usual_quotas_have_different_fingerprints() {
        let mut fingerprints = HashSet::new();
        let mut quotas = 0;
        for algorithm in Algorithm::ALL {
            for limit in (1..100).chain([1_000, 10_000, 1_000_000]) {
                for seconds in [1, 60, 3_600, 86_400] {
                    for burst in [limit, 2 * limit, 10 * limit + 1] {
                        quotas += 1;
                        fingerprints
                            .insert(quota(algorithm, limit, seconds * 1_000_000_000, burst).fingerprint());
                    }
                }
            }
        }
        assert_eq!(fingerprints.len(), quotas);
    }
}
