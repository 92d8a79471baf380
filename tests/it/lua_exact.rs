//! The scripts of exact charges against the limiter's own table, in a real Redis: the same random histories, the same
//! admissions, the same figures. Time is an argument, not Redis's clock.
//!
//! Windows and logs agree to the microsecond. A bucket in Rust counts in binary ticks of less than a nanosecond's
//! refill and the script in exact fractions; so where the two disagree on an admission, the table must agree with the
//! script a few nanoseconds earlier or later, and both are brought together again.

use std::sync::Arc;

use base::random::Random;
use limit::lease_messages::Renewal;
use limit::{
    Algorithm, Answer, Calendar, CalendarUnit, Charge, Key, Outcome, Plan, Quota, ScriptModel, Sharing,
    State, WhenDown, Zone,
};
use limiter::local::{StateLocation, Table};
use limiter::{ClientAddress, Decision, Limiter, Refund};

use crate::support::scripts::{ALGORITHMS, Store, Told, part, quota};

#[test]
fn scripts_and_table_take_alike() {
    let mut store = Store::start();
    let mut together = Agreement::default();
    for seed in 1..=150 {
        History::new(seed).run(&mut store, &mut together);
    }
    assert!(together.admitted > 2_000 && together.refused > 1_000, "{together:?}");
    assert!(together.apart * 20 < together.admitted, "the two disagree only at boundaries: {together:?}");
}

#[test]
fn worked_examples_hold_to_the_unit() {
    let mut store = Store::start();
    let bucket = quota(Algorithm::TokenBucket, 100, 60_000_000, 20);
    let mut left = |key: &str, quota: Quota, cost: u64, now_us: u64| {
        let told = store.take(&[key], &[part(quota, cost, 0)], now_us);
        (told.admitted, told.parts[0].remaining)
    };
    let start = 1_000_000_000_000;
    assert_eq!(left("a", bucket, 15, start), (true, 5));
    assert_eq!(left("a", bucket, 0, start + 6_000_000), (true, 15));
    assert_eq!(left("a", bucket, 12, start + 6_000_000), (true, 3));
    let first_refused = (1..100).find(|turn| !left("a", bucket, 1, start + 6_000_000 + turn * 500_000).0);
    assert_eq!(first_refused, Some(19), "2/s against 1.67/s empty three units in nine seconds");
    let window = quota(Algorithm::SlidingWindow, 100, 60_000_000, 100);
    // A minute begins at multiples of 60 s.
    let minute = 60_000_000 * 20_000;
    assert_eq!(left("b", window, 80, minute - 1), (true, 20));
    assert_eq!(left("b", window, 30, minute + 24_000_000), (true, 22));
    assert_eq!(left("c", window, 100, minute - 1), (true, 0));
    // 100 before weigh 97 and take 3 with them: the 98th would be the hundred and first.
    assert_eq!(left("c", window, 3, minute + 1_800_000), (true, 0));
    assert_eq!(left("c", window, 1, minute + 1_800_000), (false, 0));
}

#[test]
fn large_numbers_stay_exact() {
    let mut store = Store::start();
    let day = 86_400_000_000;
    let millions = quota(Algorithm::SlidingWindow, 2_000_000_000, day, 1);
    let start = day * 12;
    store.take(&["w"], &[part(millions, 1_999_999_999, 0)], start - 1);
    // overlap * previous is about 1.7e20, far beyond what a double holds.
    let elapsed = 12_345_678_901;
    let told = store.take(&["w"], &[part(millions, 0, 0)], start + elapsed);
    let weighs = 1_999_999_999_u128 * u128::from(day - elapsed) / u128::from(day);
    assert_eq!(u128::from(told.parts[0].remaining), 2_000_000_000 - weighs);
    let bucket = quota(Algorithm::TokenBucket, 999_999_937, day, 4_000_000_007);
    let told = store.take(&["b"], &[part(bucket, 4_000_000_007, 0)], start);
    assert_eq!((told.admitted, told.parts[0].remaining), (true, 0));
    let (now, refilled) = (start + day / 3, 999_999_937 / 3);
    assert_eq!(store.take(&["b"], &[part(bucket, 0, 0)], now).parts[0].remaining, refilled);
}

/// Periods of a year and more, up to what fits 64 bits of nanoseconds.
#[test]
fn the_longest_periods_admit_their_limit_and_are_whole_again() {
    let mut store = Store::start();
    let (day, year) = (86_400_000_000, 365 * 86_400_000_000);
    let now = 1_790_000_000_123_456;
    let longest = u64::MAX / 1_000_000_000 * 1_000_000;
    for period_us in [365 * day, 10 * year, 71 * year, 72 * year, 292 * year, 500 * year, longest] {
        for (algorithm, limit) in ALGORITHMS.into_iter().flat_map(|one| [(one, 3), (one, 90)]) {
            let name = format!("{algorithm:?} {limit}/{period_us}");
            let quotas = [limit, limit + 10].map(|limit| quota(algorithm, limit, period_us, limit));
            let mut take = |quota, cost, now_us| {
                let told = store.take(&[&name], &[part(quota, cost, 0)], now_us);
                (told.admitted, told.parts[0])
            };
            let all = 1 + u64::from(algorithm == Algorithm::LeakyBucket);
            assert!(take(quotas[0], limit, now).0, "{name}");
            assert_eq!(take(quotas[0], 1, now + 1).0, all > 1, "{name}");
            let (is_admitted, told) = take(quotas[0], 1, now + 2);
            assert!(!is_admitted && told.wait_us > 0, "{name}: {told:?}");
            let wait_us = told.wait_us as u64;
            assert!(wait_us <= 2 * period_us, "{name}: {told:?}");
            // A log has its units by its own list, whatever the limit.
            if algorithm != Algorithm::SlidingLog {
                let (is_admitted, told) = take(quotas[1], 0, now + 3);
                let left = 10 + 1 - all;
                assert!(
                    is_admitted && told.remaining.abs_diff(left) <= 1,
                    "{name}: {told:?}, {left} are left"
                );
            }
            // A record says no time beyond 2^53 microseconds, the year 2255.
            let later = [(1, now + 2 + wait_us), (limit, now + 3 * period_us)];
            for (cost, at_us) in later.into_iter().filter(|(_, at_us)| *at_us < 1 << 53) {
                let (is_admitted, told) = take(quotas[0], cost, at_us);
                assert!(is_admitted, "{name}: {told:?} of {cost} at {at_us}");
            }
        }
    }
}

/// What was leased of a window counts in it, however low the limit is by now, and in no later one.
#[test]
fn what_was_leased_of_a_window_is_owed_in_no_later_one() {
    let mut store = Store::start();
    let (day_us, now_us) = (86_400_000_000, 1_790_000_000_123_456);
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let (name, quota) = (format!("{algorithm:?}"), |limit| quota(algorithm, limit, day_us, limit));
        let mut model = ScriptModel::default();
        for (limit, pending, release) in [(6_000, 300, false), (60, 0, true)] {
            let sharing = Sharing::new(&quota(limit), 0.05, WhenDown::Local);
            let plan = Arc::new(Plan { policy: "test".into(), quota: quota(limit), sharing });
            model.renew(&Renewal { pending, release, ..Renewal::report(Key::new(7), plan, 0.0) }, now_us);
        }
        let record = model.to_bytes().expect("it was renewed");
        redis::cmd("SET").arg(&name).arg(record).exec(&mut store.connection).expect("Redis answers");
        let told = store.take(&[&name], &[part(quota(5), 1, 0)], now_us + 1);
        let (wait_us, whole_us) = (told.parts[0].wait_us as u64, told.parts[0].reset_us);
        let ends_us = day_us - (now_us + 1) % day_us;
        let most_us = if algorithm == Algorithm::FixedWindow { ends_us } else { ends_us + day_us };
        assert!(!told.admitted && (1..=most_us).contains(&wait_us), "{name}: {told:?}, {most_us}");
        assert!(whole_us <= most_us, "{name}: {told:?}, {most_us}");
        assert_eq!(store.peek(&name, &part(quota(6_000), 0, 0), now_us + 2).remaining, 5_700, "{name}");
        assert!(store.take(&[&name], &[part(quota(5), 1, 0)], now_us + 1 + wait_us).admitted, "{name}");
    }
}

/// Of what was spent without Redis as much counts as there is room for, and nothing in a later window than its own.
#[test]
fn what_is_reported_counts_alike_and_owes_nothing() {
    let mut store = Store::start();
    let (period_us, random) = (10_000_000, Random::new(5));
    for (algorithm, limit) in ALGORITHMS.into_iter().flat_map(|one| [(one, 7), (one, 90)]) {
        let quota = quota(algorithm, limit, period_us, limit);
        let name = format!("{algorithm:?} {limit}");
        let (mut state, mut now_us, mut counted) = (State::default(), 1_000_000_000_000, [0, 0]);
        let left = |store: &mut Store, state: State, now_us: u64| {
            let told = store.peek(&name, &part(quota, 0, 0), now_us).remaining;
            let known = state.take(&quota, 0, now_us * 1_000).1.remaining;
            // A log is one in the script alone, and a bucket of this node counts in ticks.
            let is_log = algorithm == Algorithm::SlidingLog;
            assert!(is_log || told.abs_diff(known) <= 1, "{name}: {told} {known}");
            told
        };
        for _ in 0..300 {
            // A bucket of the script and one of this node refill alike only in whole seconds.
            now_us += random.next() % 4 * 1_000_000;
            let (cost, ago_us) = (1 + random.next() % limit, random.next() % 20 * 1_000_000);
            let before = left(&mut store, state, now_us);
            let ended = now_us / period_us - (now_us - ago_us) / period_us;
            let is_over = algorithm == Algorithm::FixedWindow && ended > 0;
            state = state.report(&quota, cost, (now_us - ago_us) * 1_000, now_us * 1_000);
            store.report(&[&name], &[part(quota, cost, 0)], now_us - ago_us, now_us);
            let spent = if is_over { 0 } else { cost.min(before) };
            assert_eq!(left(&mut store, state, now_us), before - spent, "{name}");
            counted[usize::from(cost > before)] += 1;
            let told = store.take(&[&name], &[part(quota, 1, 0)], now_us);
            assert!(told.admitted || told.parts[0].wait_us <= 2 * period_us as i64, "{name}: {told:?}");
            if told.admitted {
                state = state.take(&quota, 1, now_us * 1_000).0;
            }
        }
        assert!(counted.iter().all(|times| *times > 20), "{name}: {counted:?}");
    }
}

#[test]
fn permits_of_a_node_that_is_no_more_lapse() {
    let mut store = Store::start();
    let quota = quota(Algorithm::Concurrency, 10, 1_000_000, 10);
    let mut hold = |node: u64, held: u64, more: u64, now_us: u64| {
        let told = store.hold("k", &part(quota, more, 0), node, held, 5_000_000, now_us);
        (told.wait_us, told.remaining)
    };
    let start = 1_000_000_000_000;
    assert_eq!(hold(1, 0, 6, start), (0, 4));
    assert_eq!(hold(2, 0, 4, start + 1), (0, 0));
    assert_eq!(hold(2, 4, 1, start + 2), (1_000_000, 0));
    assert_eq!(hold(2, 0, 11, start + 2), (-1, 4), "never, and what it holds is none");
    // A reply was lost: the node says again what it holds, and asks again.
    assert_eq!(hold(2, 0, 4, start + 3), (0, 0));
    assert_eq!(hold(1, 2, 0, start + 4), (0, 4), "four of its six came back");
    assert_eq!(hold(2, 4, 0, start + 5_000_003), (0, 4), "the first still holds two");
    assert_eq!(hold(2, 4, 0, start + 5_000_004), (0, 6), "and has not said so for five seconds");
    assert_eq!(hold(2, 0, 0, start + 5_000_005), (0, 10));
    assert_eq!(store.exists("k"), 0);
}

#[test]
fn a_key_of_the_wrong_type_spends_nothing_elsewhere() {
    let mut store = Store::start();
    let (bucket, log) =
        (quota(Algorithm::TokenBucket, 5, 1_000_000, 5), quota(Algorithm::SlidingLog, 5, 1_000_000, 5));
    redis::cmd("SADD").arg("wrong").arg(1).exec(&mut store.connection).expect("Redis answers");
    for (at, quota) in [(0, bucket), (1, log)] {
        let parts = [part(bucket, 2, 0), part(quota, 1, 0)];
        let told = store.take(&["right", "wrong"], &parts, 1_000_000_000_000);
        assert!(
            !told.admitted,
            "{at}: a set is a limit that is spent, and then a string is a log that is full"
        );
        assert_eq!(store.exists("right"), 0);
    }
    // What cannot be read as this algorithm's state counts as spent.
    redis::cmd("SET").arg("text").arg("hello").exec(&mut store.connection).expect("Redis answers");
    let told = store.take(&["text"], &[part(bucket, 1, 0)], 1_000_000_000_000);
    assert_eq!((told.admitted, told.parts[0].remaining, told.parts[0].wait_us), (false, 0, 200_000));
}

#[test]
fn what_is_whole_again_leaves_no_key() {
    let mut store = Store::forgetful();
    let start = 1_000_000_000_000;
    for algorithm in ALGORITHMS {
        let quota = quota(algorithm, 10, 2_000_000, 10);
        store.take(&["k"], &[part(quota, 3, 0)], start);
        let ttl_ms: i64 = redis::cmd("PTTL").arg("k").query(&mut store.connection).expect("Redis answers");
        // Until it is whole, and a few seconds more, so that the next charge need not say it again.
        assert!((1..=10_000).contains(&ttl_ms), "{algorithm:?}: {ttl_ms}");
        store.give_back(&["k"], &[part(quota, 3, 0)], start, start + 1);
        assert_eq!(store.exists("k"), 0, "{algorithm:?}");
    }
}

/// How often the two agreed.
#[derive(Debug, Default)]
struct Agreement {
    admitted: u64,
    refused: u64,
    apart: u64,
}

/// What happens to a few windows, taken together.
struct History {
    seed: u64,
    random: Random,
    limiter: Arc<Limiter>,
    charges: Vec<Charge>,
    /// How far apart the two may be in each, nanoseconds: a few ticks, and what a changed limit made of them.
    slack_ns: Vec<f64>,
    keys: Vec<String>,
    now_us: u64,
}

impl History {
    fn new(seed: u64) -> History {
        let random = Random::new(seed);
        let mut history = History {
            seed,
            limiter: Arc::new(Limiter::new(Table::with_memory(1 << 20))),
            charges: Vec::new(),
            slack_ns: Vec::new(),
            keys: Vec::new(),
            now_us: 1_000_000_000_000 + random.next() % 1_000_000_000_000,
            random,
        };
        for window in 0..1 + history.below(3) {
            let algorithm = ALGORITHMS[history.below(5) as usize];
            let quota = history.quota(algorithm);
            let key = Key::new(u128::from(history.random.next()) << 64 | u128::from(history.random.next()));
            history.keys.push(format!("{seed}:{window}"));
            let charge = Charge {
                window: window as u16,
                shadow: history.below(6) == 0,
                count_denied: history.below(6) == 0,
                ..Charge::one(key, quota)
            };
            history.charges.push(charge);
            history.slack_ns.push(TICKS_NS);
        }
        history
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.next() % bound
    }

    fn quota(&self, algorithm: Algorithm) -> Quota {
        let pick = |numbers: &[u64]| numbers[self.below(numbers.len() as u64) as usize];
        let mut limit = pick(&[1, 3, 7, 10, 100, 997, 50_000]);
        if algorithm == Algorithm::SlidingLog {
            limit = limit.min(100);
        }
        let period_us = pick(&[1_000_000, 7_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]);
        let burst = match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                (limit * pick(&[1, 2, 10])).div_ceil(pick(&[1, 3]))
            }
            _ => limit,
        };
        let quota = quota(algorithm, limit, period_us, burst);
        let is_day = algorithm == Algorithm::FixedWindow && period_us == 86_400_000_000;
        match is_day && self.seed.is_multiple_of(2) {
            true => quota.on_calendar(Calendar::new(CalendarUnit::Day, Zone::utc(), 0)),
            false => quota,
        }
    }

    fn run(mut self, store: &mut Store, together: &mut Agreement) {
        self.limiter.table().declare(self.charges.iter().map(|charge| charge.quota));
        let mut admitted_at = None;
        for _ in 0..60 {
            self.pass();
            match self.below(10) {
                0 => self.change(store),
                1 => self.debit(store),
                2 => self.give_back(store, admitted_at),
                3 => self.peek(store),
                _ => {}
            }
            let most = self.charges.iter().map(|charge| charge.quota.capacity()).min().unwrap_or(1);
            let cost = 1 + self.below(most.min([1, 3, most + 2][self.below(3) as usize]));
            self.charges.iter_mut().for_each(|charge| charge.cost = cost);
            match self.take(store, together) {
                Some(admitted) => admitted_at = admitted.then_some(self.now_us),
                // They were apart where counted denials cannot be undone: nothing more can be compared.
                None => return,
            }
        }
    }

    /// Time passes: a little, a share of a period, to where something is promised, or long.
    fn pass(&mut self) {
        let period_us = self.charges[0].quota.period_ns().get() / 1_000;
        self.now_us += match self.below(8) {
            0 => 0,
            1 => self.below(10),
            2 => period_us * 3,
            3 => period_us,
            4 => {
                let decision = self.limiter.peek_charges(&self.charges, self.now_us * 1_000);
                decision.retry_after_ns().map_or(1, |wait_ns| wait_ns.div_ceil(1_000).min(period_us * 4))
            }
            _ => self.below(period_us / 10 + 1),
        };
    }

    /// A reload changes a limit; a log keeps units and not shares at Redis, so it is left as it is.
    fn change(&mut self, store: &mut Store) {
        let index = self.below(self.charges.len() as u64) as usize;
        let algorithm = self.charges[index].quota.algorithm();
        if algorithm == Algorithm::SlidingLog {
            return;
        }
        // Whether plans of one rate and another unit are a change, the two see apart, and round what is owed apart.
        let free = Charge { cost: 0, ..self.charges[index] };
        if !self.limiter.table().peek(&free, self.now_us * 1_000).is_admitted() {
            return;
        }
        let (old, new) = (self.charges[index].quota, self.quota(algorithm));
        // A tick of a fast bucket is the same part of a unit of a slow one, and many of its ticks.
        let unit_ns = |quota: Quota| quota.period_ns().get() as f64 / quota.limit().get() as f64;
        self.slack_ns[index] = TICKS_NS + self.slack_ns[index] * (unit_ns(new) / unit_ns(old)).max(1.0);
        self.charges[index].quota = new;
        self.limiter.table().declare([new]);
        // Both meet it now: when a window is only looked at, neither says when it is carried over.
        self.limiter.table().take(&Charge { cost: 0, ..self.charges[index] }, self.now_us * 1_000);
        store.take(&[&self.keys[index]], &[part(new, 0, 0)], self.now_us);
    }

    fn keys(&self) -> Vec<&str> {
        self.keys.iter().map(String::as_str).collect()
    }

    fn parts(&self) -> Vec<[f64; 6]> {
        let flags = |charge: &Charge| u8::from(charge.shadow) + 2 * u8::from(charge.count_denied);
        self.charges.iter().map(|charge| part(charge.quota, charge.cost, flags(charge))).collect()
    }

    fn debit(&mut self, store: &mut Store) {
        for index in 0..self.charges.len() {
            let capacity = self.charges[index].quota.capacity();
            // One unit, or debts of several buckets and windows.
            let cost = 1 + if self.below(2) == 0 { 0 } else { self.below(capacity * 4) };
            self.charges[index].cost = cost;
        }
        // Only what is there can be in debt: a key never seen has no charge that settles.
        let known: Vec<usize> = (0..self.charges.len()).filter(|index| self.is_used(*index)).collect();
        for index in known {
            self.limiter.table().debit(&self.charges[index], StateLocation::Slot, self.now_us * 1_000);
            store.debit(&[&self.keys[index]], &[self.parts()[index]], self.now_us);
        }
    }

    /// Whether something of a key is missing.
    fn is_used(&self, index: usize) -> bool {
        let charge = Charge { cost: 0, ..self.charges[index] };
        self.limiter.table().peek(&charge, self.now_us * 1_000).reset_ns > 0
    }

    fn give_back(&mut self, store: &mut Store, admitted_at: Option<u64>) {
        let Some(taken_us) = admitted_at else { return };
        for index in 0..self.charges.len() {
            // A bucket that has been whole in between would be given too much, by both.
            if !self.charges[index].shadow && self.is_used(index) {
                self.limiter.refund(
                    &self.charges[index],
                    Refund::Table(StateLocation::Slot),
                    taken_us * 1_000,
                );
                store.give_back(&[&self.keys[index]], &[self.parts()[index]], taken_us, self.now_us);
            }
        }
    }

    fn peek(&mut self, store: &mut Store) {
        let parts = self.parts();
        for (index, charge) in self.charges.iter().enumerate() {
            let told = store.peek(&self.keys[index], &parts[index], self.now_us);
            let outcome = self.limiter.table().peek(charge, self.now_us * 1_000);
            if outcome.is_admitted() != is_refused(&told) {
                self.compare(index, &outcome, &told);
            } else {
                self.assert_boundary(index, &self.around(index, charge.cost), &told);
            }
        }
    }

    /// Takes on both sides. Whether it was admitted; `None` where they cannot be brought together again.
    fn take(&mut self, store: &mut Store, together: &mut Agreement) -> Option<bool> {
        let now_ns = self.now_us * 1_000;
        let near: Vec<[Outcome; 2]> =
            (0..self.charges.len()).map(|index| self.around(index, self.charges[index].cost)).collect();
        let mut decision = Decision::default();
        let waiting = self.limiter.decide(&self.charges, ClientAddress::default(), now_ns, &mut decision);
        assert!(waiting.is_none(), "one node waits for nobody");
        let taken = store.take(&self.keys(), &self.parts(), self.now_us);
        let alike = decision.outcomes.iter().zip(&taken.parts);
        let alike = alike.into_iter().all(|(outcome, told)| outcome.is_admitted() != is_refused(told));
        if alike {
            assert_eq!(decision.is_admitted(), taken.admitted, "seed {}: {decision:?} {taken:?}", self.seed);
            for (index, (outcome, told)) in decision.outcomes.iter().zip(&taken.parts).enumerate() {
                self.compare(index, outcome, told);
            }
            *(if taken.admitted { &mut together.admitted } else { &mut together.refused }) += 1;
            return Some(taken.admitted);
        }
        together.apart += 1;
        // Each part on which they disagree has its boundary here.
        for (index, told) in taken.parts.iter().enumerate() {
            self.assert_boundary(index, &near[index], told);
        }
        None
    }

    /// Where the two disagree, the table says what the script says a few ticks earlier or later.
    fn assert_boundary(&self, index: usize, near: &[Outcome; 2], told: &Told) {
        let is_near = near.iter().any(|near| near.is_admitted() != is_refused(told));
        assert!(is_near, "seed {}: {:?} {near:?} {told:?}", self.seed, self.charges[index]);
    }

    /// What the table says of a cost as much earlier and later as the two may be apart.
    fn around(&self, index: usize, cost: u64) -> [Outcome; 2] {
        let (charge, slack_ns) = (Charge { cost, ..self.charges[index] }, self.slack_ns[index].ceil() as i64);
        let at = |ns| self.limiter.table().peek(&charge, (self.now_us * 1_000).saturating_add_signed(ns));
        [at(-slack_ns), at(slack_ns)]
    }

    fn compare(&self, index: usize, outcome: &Outcome, told: &Told) {
        let charge = &self.charges[index];
        let said = || format!("seed {}: {charge:?} at {}: {outcome:?} {told:?}", self.seed, self.now_us);
        let is_bucket = matches!(charge.quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        let apart_us = if is_bucket { (self.slack_ns[index] / 1_000.0).ceil() as u64 } else { 0 };
        let near = |ns: u64, us: u64| ns.div_ceil(1_000).abs_diff(us) <= apart_us;
        let [earlier, later] = self.around(index, 0).map(|outcome| outcome.remaining);
        let is_left = is_bucket && earlier != later && (earlier..=later).contains(&told.remaining);
        assert!(is_left || outcome.remaining == told.remaining, "{}", said());
        match outcome.answer() {
            Answer::Never => assert_eq!(told.wait_us, -1, "{}", said()),
            Answer::Later { retry_after_ns } => {
                assert!(near(retry_after_ns, told.wait_us.unsigned_abs()), "{}", said());
            }
            Answer::Admitted => {
                let delay_us = if told.wait_us == 0 { 0 } else { (-1 - told.wait_us).unsigned_abs() };
                assert!(near(outcome.delay_ns(), delay_us), "{}", said());
            }
        }
        assert!(near(outcome.reset_ns, told.reset_us), "{}", said());
    }
}

fn is_refused(told: &Told) -> bool {
    told.wait_us > 0 || told.wait_us == -1
}

/// How far from the exact instant two or three ticks may be.
const TICKS_NS: f64 = 4.0;
