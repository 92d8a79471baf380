//! The state of one key under one quota: two words that any storage can keep.
//!
//! This file only dispatches on the algorithm; each algorithm has a file of its own. All zero is a key never seen, with
//! everything left. A sliding log does not fit two words: it is a [`Log`](super::Log), and a `State` in its place counts
//! as a sliding window.

use super::fixed_window::Counter;
use super::quota::units_of;
use super::sliding_window::Pair;
use super::small_window::{SmallWindow, Steps};
use super::{Algorithm, Answer, Outcome, Quota, concurrency, leaky_bucket, token_bucket};

/// Two words, interpreted by the quota's algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State(pub [u64; 2]);

impl State {
    /// Takes `cost` if it fits; a denied cost changes nothing.
    #[inline(always)]
    pub fn take(self, quota: &Quota, cost: u64, now_ns: u64) -> (State, Outcome) {
        match quota.algorithm() {
            Algorithm::TokenBucket => {
                let (word, outcome) = token_bucket::take(self.0[0], quota, cost, now_ns);
                (State([word, 0]), outcome)
            }
            Algorithm::FixedWindow => {
                let (counter, outcome) = self.counter().take(quota, cost, now_ns);
                (State::from_counter(counter), outcome)
            }
            Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                if let Some((few, steps)) = self.few(quota) {
                    let (few, outcome) = few.take(quota, steps, cost, now_ns);
                    return (State(few.into_words(steps)), outcome);
                }
                let (pair, outcome) = Pair::from_words(self.0).take(quota, cost, now_ns);
                (State(pair.into_words()), outcome)
            }
            Algorithm::LeakyBucket => {
                let (word, outcome) = leaky_bucket::take(self.0[0], quota, cost, now_ns);
                (State([word, 0]), outcome)
            }
            Algorithm::Concurrency => {
                let (out, outcome) = concurrency::take(self.0[0], quota, cost);
                (State([out, 0]), outcome)
            }
        }
    }

    /// Counts a denied cost (`count-denied`) until nothing is left, but not into debt. Concurrency counts none, because a
    /// denied request is not in flight.
    pub fn count_denied(self, quota: &Quota, cost: u64, now_ns: u64) -> State {
        if let Some((few, steps)) = self.few(quota) {
            return State(few.count_denied(quota, steps, cost, now_ns).into_words(steps));
        }
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                State([token_bucket::count_denied(self.0[0], quota, cost, now_ns), 0])
            }
            Algorithm::FixedWindow => State::from_counter(self.counter().count_denied(quota, cost, now_ns)),
            Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                State(Pair::from_words(self.0).count_denied(quota, cost, now_ns).into_words())
            }
            Algorithm::Concurrency => self,
        }
    }

    /// Spends a cost that is known only afterwards, whether it fits or not. The debt is held until as much has been refilled,
    /// however many buckets or windows that is; later requests find it missing. Permits are not affected.
    pub fn debit(self, quota: &Quota, cost: u64, now_ns: u64) -> State {
        if let Some((few, steps)) = self.few(quota) {
            return State(few.debit(quota, steps, cost, now_ns).into_words(steps));
        }
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                State([token_bucket::debit(self.0[0], quota, cost, now_ns), 0])
            }
            Algorithm::FixedWindow => State::from_counter(self.counter().debit(quota, cost, now_ns)),
            Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                State(Pair::from_words(self.0).debit(quota, cost, now_ns).into_words())
            }
            Algorithm::Concurrency => self,
        }
    }

    /// Counts what was admitted before a refusal came: as `debit`, but no more than one whole limit is owed after it, if not more was
    /// before.
    pub fn repay(self, quota: &Quota, cost: u64, now_ns: u64) -> State {
        let (used, whole) = self.used(quota, now_ns);
        let room = whole.saturating_mul(2).saturating_sub(used);
        self.debit(quota, cost.min(units_of((room, whole), quota.capacity())), now_ns)
    }

    /// Counts what was admitted elsewhere at `spent_ns`, as much of it as is left, so that nothing is owed after it. Units of a
    /// fixed window that is over are forgotten.
    pub fn report(self, quota: &Quota, cost: u64, spent_ns: u64, now_ns: u64) -> State {
        let is_over = quota.algorithm() == Algorithm::FixedWindow
            && quota.window_at(spent_ns) != self.counter().at(quota, now_ns).window(quota);
        let left = if is_over { 0 } else { self.take(quota, 0, now_ns).1.remaining };
        self.take(quota, cost.min(left), now_ns).0
    }

    /// Undoes a `take` of `cost` made at `taken_ns`. Exact, unless a bucket was full in between: then up to `cost` more is
    /// left than without the `take`, so refund without delay.
    pub fn give_back(self, quota: &Quota, cost: u64, taken_ns: u64) -> State {
        if let Some((few, steps)) = self.few(quota) {
            return State(few.give_back(quota, steps, cost, taken_ns).into_words(steps));
        }
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                State([token_bucket::give_back(self.0[0], quota, cost), 0])
            }
            Algorithm::FixedWindow => State::from_counter(self.counter().give_back(quota, cost, taken_ns)),
            Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                State(Pair::from_words(self.0).give_back(quota, cost, taken_ns).into_words())
            }
            Algorithm::Concurrency => State([self.0[0].saturating_sub(cost), 0]),
        }
    }

    /// Whether the key can be dropped without loss: nothing is spent.
    pub fn is_full(self, quota: &Quota, now_ns: u64) -> bool {
        if let Some((few, steps)) = self.few(quota) {
            return few.is_full(quota, steps, now_ns);
        }
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                token_bucket::is_full(self.0[0], quota, now_ns)
            }
            Algorithm::FixedWindow => self.counter().is_full(quota, now_ns),
            Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                Pair::from_words(self.0).is_full(quota, now_ns)
            }
            Algorithm::Concurrency => self.0[0] == 0,
        }
    }

    /// The state under a changed quota: what was spent stays spent, unit for unit, so what is left is the new limit less that.
    /// What a lower limit of another period does not hold is forgiven; a debt is not. If the windows of the two quotas do not
    /// line up, the count goes into the new quota's current window. Permits keep their number, because each comes back on its
    /// own; nothing else becomes a permit. Of a state that does not fit, `outgrown` says so first.
    pub fn rescale(self, old: &Quota, new: &Quota, now_ns: u64) -> State {
        let old = &aligned(old, new);
        if old == new || new.algorithm() == Algorithm::Concurrency {
            return if old.algorithm() == new.algorithm() { self } else { State::default() };
        }
        if self.is_full(old, now_ns) {
            return State::default();
        }
        let (used, whole) = self.used(old, now_ns);
        let slides = |quota: &Quota| quota.algorithm() == Algorithm::SlidingWindow;
        if slides(old) && slides(new) && old.period_ns() == new.period_ns() {
            match (self.few(old), new.steps()) {
                (None, None) => return State(Pair::from_words(self.0).at(old, now_ns).into_words()),
                (Some((few, steps)), Some(new)) if used <= whole => {
                    return State(few.restepped(old, [steps, new], now_ns).into_words(new));
                }
                _ => {}
            }
        }
        let spent = units(used, old);
        let (_, new_whole) = State::default().used(new, now_ns);
        let debt = units(used.saturating_sub(whole), old);
        let kept = spent.min(units(new_whole, new).saturating_add(debt));
        let kept = kept.div_ceil(1 << (GRAIN_BITS - shift_of(new)));
        State::with_used(new, (u64::try_from(kept).unwrap_or(u64::MAX), new_whole), now_ns)
    }

    /// What a charge is told of a state that holds more than its lower limit of the same period: nothing is left until enough of
    /// it has expired as it would have under the old limit. Until then it is kept as it is, so that a limit that goes down and
    /// up again, or two tiers in turn, give no burst. So is a bucket until the cost fits, too, because a refusal does not change
    /// the wait that was told before. `None`: it fits.
    pub fn outgrown(self, old: &Quota, new: &Quota, cost: u64, now_ns: u64) -> Option<Outcome> {
        let old = &aligned(old, new);
        let less = old.capacity().checked_sub(new.capacity())?;
        let is_alike = old.algorithm() == new.algorithm() && old.has_periods_of(new);
        if less == 0 || !is_alike || new.algorithm() == Algorithm::Concurrency {
            return None;
        }
        let fits = |cost: u64| self.take(old, less.saturating_add(cost), now_ns).1;
        let whole = fits(0);
        if whole.is_admitted() {
            let is_bucket = old.algorithm() == Algorithm::TokenBucket && cost <= new.capacity();
            let refused = is_bucket.then(|| fits(cost)).filter(|outcome| !outcome.is_admitted())?;
            let reset_ns = self.rescale(old, new, now_ns).take(new, 0, now_ns).1.reset_ns;
            return Some(Outcome::new(refused.answer(), whole.remaining, reset_ns));
        }
        let answer = if cost > new.capacity() { Answer::Never } else { fits(cost).answer() };
        let reset_ns = match (old.algorithm(), whole.answer()) {
            // It refills as before until it fits, and as slowly as under the new limit from then on.
            (Algorithm::TokenBucket | Algorithm::LeakyBucket, Answer::Later { retry_after_ns }) => {
                let empty = State::spent(new, now_ns).take(new, 0, now_ns).1;
                retry_after_ns.saturating_add(empty.reset_ns)
            }
            _ => whole.reset_ns,
        };
        Some(Outcome::new(answer, 0, reset_ns))
    }

    /// What is missing, as a fraction (missing, whole); more than the whole if it is in debt.
    pub fn used(self, quota: &Quota, now_ns: u64) -> (u64, u64) {
        if let Some((few, steps)) = self.few(quota) {
            return (few.used(quota, steps, now_ns), quota.capacity());
        }
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => token_bucket::used(self.0[0], quota, now_ns),
            Algorithm::FixedWindow => self.counter().used(quota, now_ns),
            Algorithm::SlidingWindow | Algorithm::SlidingLog => Pair::from_words(self.0).used(quota, now_ns),
            Algorithm::Concurrency => (self.0[0].min(quota.capacity()), quota.capacity()),
        }
    }

    /// A state with nothing left, for a key whose old state cannot be read. Concurrency starts with nothing taken
    /// instead, because nobody would ever give back made-up permits.
    pub fn spent(quota: &Quota, now_ns: u64) -> State {
        State::with_used(quota, (1, 1), now_ns)
    }

    /// A state of which `used.0 / used.1` is missing, a debt if that is more than the whole; permits are never missing for a
    /// share's sake.
    pub fn with_used(quota: &Quota, used: (u64, u64), now_ns: u64) -> State {
        if quota.is_few() {
            return State::default().debit(quota, units_of(used, quota.capacity()), now_ns);
        }
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                State([token_bucket::with_used(quota, used, now_ns), 0])
            }
            Algorithm::FixedWindow => State::from_counter(Counter::with_used(quota, used, now_ns)),
            Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                State(Pair::with_used(quota, used, now_ns).into_words())
            }
            Algorithm::Concurrency => State::default(),
        }
    }

    #[inline]
    pub(super) fn few(self, quota: &Quota) -> Option<(SmallWindow, Steps)> {
        quota.steps().map(|steps| (SmallWindow::from_words(self.0, steps), steps))
    }

    fn counter(self) -> Counter {
        Counter { place: self.0[0], count: self.0[1] }
    }

    fn from_counter(counter: Counter) -> State {
        State([counter.place, counter.count])
    }
}

/// The quota of before, with the windows of now if those are of another zone or begin on another day: its units count in the
/// window in which the last of them was spent.
fn aligned(old: &Quota, new: &Quota) -> Quota {
    match (old.calendar(), new.calendar()) {
        (Some(before), Some(now)) if before.unit() == now.unit() && before != now => old.on_calendar(now),
        _ => *old,
    }
}

/// Units to a fraction of 2^-64, of what an algorithm calls used.
fn units(used: u64, quota: &Quota) -> u128 {
    u128::from(used) << (GRAIN_BITS - shift_of(quota))
}

/// How many binary digits of a unit an algorithm counts.
fn shift_of(quota: &Quota) -> u32 {
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => u32::from(quota.axis().shift),
        _ => 0,
    }
}

/// Binary digits of a unit that are kept when a quota changes.
const GRAIN_BITS: u32 = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::axis::{NOW_MAX_NS, TICKS_MAX};
    use super::super::quota::tests;
    use super::*;

    /// Those that time refills, and that two words hold.
    const TIMED: [Algorithm; 4] =
        [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::LeakyBucket];

    fn any_quota() -> impl Strategy<Value = Quota> {
        (prop::sample::select(TIMED.to_vec()), 1u64..1 << 40, 1u64 << 20..1 << 50, 1u64..1 << 40)
            .prop_map(|(algorithm, limit, period_ns, burst)| tests::quota(algorithm, limit, period_ns, burst))
    }

    /// Quotas of which many wholes fit counts and axes.
    fn usual_quota() -> impl Strategy<Value = Quota> {
        (prop::sample::select(TIMED.to_vec()), 1u64..1 << 30, 1u64 << 20..1 << 45)
            .prop_map(|(algorithm, limit, period_ns)| tests::quota(algorithm, limit, period_ns, limit))
    }

    fn left(state: State, quota: &Quota, now_ns: u64) -> u64 {
        state.take(quota, 0, now_ns).1.remaining
    }

    #[test]
    fn reset_is_right_to_the_nanosecond() {
        // Ticks of these are under a nanosecond's refill.
        for algorithm in TIMED {
            for (limit, period_ns) in
                [(100, 60_000_000_000), (1_000_000, 1_000_000_000), (7, 3_600_000_000_000)]
            {
                let quota = tests::quota(algorithm, limit, period_ns, limit);
                for cost in 1..=7 {
                    let now_ns = 3_600_000_000_000 + 12_345 * cost;
                    let (state, outcome) = State::default().take(&quota, cost, now_ns);
                    assert!(state.is_full(&quota, now_ns + outcome.reset_ns + 1));
                    assert!(!state.is_full(&quota, now_ns + outcome.reset_ns - 2));
                }
            }
        }
    }

    #[test]
    fn a_spent_minute_resets_in_a_minute() {
        let quota = tests::quota(Algorithm::TokenBucket, 100, 60_000_000_000, 100);
        for now_ns in (3_600_000_000_000..).step_by(123_457).take(1_000) {
            let (_, outcome) = State::default().take(&quota, 100, now_ns);
            assert_eq!(outcome.reset_ns, 60_000_000_000);
        }
    }

    proptest! {
        #[test]
        fn what_was_spent_stays_spent(
            old in any_quota(), new in any_quota(), share in 0.0f64..=1.0, now in 1u64 << 52..1 << 55,
        ) {
            let spent = ((old.capacity() as f64 * share) as u64).min(old.capacity());
            let state = State::default().take(&old, spent, now).0;
            let after = left(state.rescale(&old, &new, now), &new, now);
            prop_assert!(after <= new.capacity().saturating_sub(spent), "more is left than before");
            prop_assert!(after + 1 >= new.capacity().saturating_sub(spent), "less is left");
        }

        #[test]
        fn a_limit_that_goes_down_and_up_gives_nothing(
            algorithm in prop::sample::select(TIMED.to_vec()), limit in 2u64..20_000, part in 1u64..20_000,
            cost in 1u64..30_000, later in 0u64..1 << 36, now in 1u64 << 52..1 << 55,
        ) {
            let of = |limit| tests::quota(algorithm, limit, 3_600_000_000_000, limit);
            let (high, low) = (of(limit), of((part % limit).max(1)));
            let state = State::default().take(&high, high.capacity(), now).0;
            let Some(outcome) = state.outgrown(&high, &low, cost, now) else { panic!("it holds more") };
            prop_assert_eq!(outcome.remaining, 0);
            let at = now + later;
            // Whole as the lower limit says, once it fits: the reset that is told then is no later one.
            let room = state.take(&high, high.capacity() - low.capacity(), now).1.answer();
            if let (Answer::Later { retry_after_ns }, false) = (room, algorithm == Algorithm::SlidingWindow) {
                let fits = now + retry_after_ns + 2;
                let then = state.rescale(&high, &low, fits).take(&low, 0, fits).1;
                let apart = (fits + then.reset_ns).abs_diff(now + outcome.reset_ns);
                prop_assert!(apart <= 1_000_000, "{:?} {:?}", outcome, then);
            }
            // Who is refused again when only a part of the cost fits is told the same time.
            if let (Answer::Later { retry_after_ns }, Algorithm::TokenBucket) = (outcome.answer(), algorithm) {
                let sooner = (later % (cost * 3_600_000_000_000 / limit)).clamp(1, retry_after_ns);
                let again = state.outgrown(&high, &low, cost, now + retry_after_ns - sooner);
                let wait_ns = again.and_then(|again| again.retry_after_ns()).unwrap_or(0);
                prop_assert!(wait_ns.abs_diff(sooner) <= 2, "{} {}", wait_ns, sooner);
            }
            match outcome.answer() {
                Answer::Admitted => prop_assert!(false, "nothing is left"),
                Answer::Never => prop_assert!(cost > low.capacity()),
                Answer::Later { retry_after_ns } => {
                    let fits = |at| state.outgrown(&high, &low, cost, at).is_none()
                        && state.rescale(&high, &low, at).take(&low, cost, at).1.is_admitted();
                    prop_assert!(!fits(now + retry_after_ns - 2) && fits(now + retry_after_ns + 2));
                }
            }
            prop_assert!(left(state, &high, at) <= limit);
        }

        #[test]
        fn spent_has_nothing_left_and_nothing_is_whole(quota in any_quota(), now in 1u64..1 << 55) {
            prop_assert_eq!(left(State::spent(&quota, now), &quota, now), 0);
            prop_assert!(!State::spent(&quota, now).is_full(&quota, now));
            prop_assert!(State::default().is_full(&quota, now));
        }

        #[test]
        fn what_reset_promises_is_kept(quota in any_quota(), cost in 1u64..1 << 30, now in 1u64..1 << 55) {
            let (state, outcome) = State::default().take(&quota, cost, now);
            prop_assume!(outcome.is_admitted());
            prop_assert!(!state.is_full(&quota, now));
            let whole_ns = now + outcome.reset_ns + 1;
            // Past its end the axis of a bucket stands still, and nothing refills.
            prop_assume!(quota.axis().position(whole_ns) < TICKS_MAX);
            prop_assert!(state.is_full(&quota, whole_ns));
        }

        #[test]
        fn a_debit_is_owed_once_and_whole(
            quota in any_quota(), costs in prop::collection::vec(1u64..1 << 41, 1..5), now in 1u64 << 52..1 << 54,
        ) {
            let mut state = State::default();
            for cost in costs {
                let before = left(state, &quota, now);
                state = state.debit(&quota, cost, now);
                prop_assert_eq!(left(state, &quota, now), before.saturating_sub(cost));
            }
            let outcome = state.take(&quota, 1, now).1;
            if let Answer::Later { retry_after_ns } = outcome.answer() {
                // Beyond 34 years of any clock there is nothing to promise.
                prop_assume!(retry_after_ns < 1 << 59);
                prop_assume!(quota.axis().position(now + retry_after_ns) < TICKS_MAX);
                prop_assert!(!state.take(&quota, 1, now + retry_after_ns - 1).1.is_admitted());
                prop_assert!(state.take(&quota, 1, now + retry_after_ns).1.is_admitted());
                prop_assert!(outcome.reset_ns + 1 >= retry_after_ns);
                // Past the end of the clock its axis stands still.
                prop_assume!(now.saturating_add(outcome.reset_ns) < NOW_MAX_NS);
                prop_assert!(state.is_full(&quota, now + outcome.reset_ns + 1));
            }
        }

        /// However low estimates are and however many requests run at once: over a long time no more is charged than the
        /// limit allows, and what one volley costs beyond its estimates.
        #[test]
        fn low_estimates_of_parallel_requests_gain_one_volley_and_no_more(
            algorithm in prop::sample::select(TIMED.to_vec()), limit in 1u64..200, period_ns in 1u64 << 30..1 << 40,
            costs in prop::collection::vec(1u64..10_000, 1..40), waits in prop::collection::vec(0u64..1 << 42, 6),
        ) {
            let quota = tests::quota(algorithm, limit, period_ns, limit);
            let start = 1u64 << 52;
            let (mut state, mut now, mut charged, mut volley_max) = (State::default(), start, 0, 0);
            for wait_ns in waits {
                // All of them are on their way when the first is settled.
                let mut admitted = Vec::new();
                for cost in &costs {
                    let (next, outcome) = state.take(&quota, 1, now);
                    if outcome.is_admitted() {
                        state = next;
                        admitted.push(*cost);
                    }
                }
                for cost in &admitted {
                    state = state.debit(&quota, cost - 1, now);
                }
                let volley: u64 = admitted.iter().sum();
                charged += volley;
                volley_max = volley_max.max(volley);
                let windows = (now - start) / period_ns + 2;
                prop_assert!(charged <= quota.capacity() + limit * windows + volley_max, "{} of {}", charged, limit);
                let retry_ns = state.take(&quota, 1, now).1.retry_after_ns().unwrap_or(0);
                now += if wait_ns % 2 == 0 { retry_ns } else { wait_ns };
            }
        }

        #[test]
        fn a_debt_is_owed_under_a_changed_limit(
            old in usual_quota(), new in usual_quota(), wholes in 2u64..50, now in 1u64 << 52..1 << 54,
        ) {
            let state = State::default().debit(&old, old.capacity().saturating_mul(wholes), now);
            let owed = |state: State, quota: &Quota| {
                let (missing, whole) = state.used(quota, now);
                (missing as f64 - whole as f64) / whole as f64 * quota.capacity() as f64
            };
            let before = owed(state, &old);
            let after = owed(state.rescale(&old, &new, now), &new);
            // What a raised limit has more is paid first.
            let paid = new.capacity().saturating_sub(old.capacity()) as f64;
            // As far as an axis goes.
            let kept = (before - paid).min(new.capacity() as f64);
            prop_assert!(kept <= 0.0 || after >= kept * 0.999 - 1.0, "{} were owed and are {}", before, after);
        }

        #[test]
        fn clients_counted_when_denied_stay_out_while_they_keep_asking(
            quota in any_quota(), now in 1u64 << 52..1 << 55,
        ) {
            let mut state = State::default().take(&quota, quota.capacity(), now).0;
            for _ in 0..3 {
                state = state.count_denied(&quota, 5, now);
            }
            prop_assert_eq!(state, State::default().take(&quota, quota.capacity(), now).0);
        }
    }
}
