use std::collections::HashMap;
use std::sync::Arc;

use super::named_key::NAME_BYTES_MAX;
use super::*;

/// Numbers by chance, the same in each run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// From 0 to 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Keys by Zipf's law: the one of rank r comes r^-s as often as the first.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(keys: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let add = |rank: usize| {
            sum += (rank as f64).powf(-exponent);
            sum
        };
        Zipf { sums: (1..=keys).map(add).collect() }
    }

    fn key(&self, chance: &mut Chance) -> u64 {
        let at = chance.part() * self.sums.last().copied().unwrap_or_default();
        mixed(self.sums.partition_point(|sum| *sum < at) as u64 + 1)
    }
}

/// Everything that a sketch has counted, as if each key had its name at once.
struct ExactCounts {
    sketch: Sketch,
    counts: HashMap<u64, KeyCounts>,
}

impl ExactCounts {
    fn new() -> ExactCounts {
        ExactCounts { sketch: Sketch::new(7), counts: HashMap::new() }
    }

    fn count(&mut self, key: u64, is_denied: bool) {
        if self.sketch.count(key, is_denied) > 0 {
            self.sketch.name(key);
        }
    }

    fn take(&mut self) {
        for (key, counts) in self.sketch.take() {
            self.counts.entry(key).or_default().add(counts);
        }
    }

    /// The heaviest, the first first.
    fn first(&mut self, most: usize) -> Vec<(u64, KeyCounts)> {
        self.take();
        let mut all: Vec<_> = self.counts.iter().map(|(key, counts)| (*key, *counts)).collect();
        all.sort_unstable_by_key(|(_, counts)| std::cmp::Reverse(counts.requests));
        all.truncate(most);
        all
    }
}

#[test]
fn a_worker_keeps_64_kib() {
    // A name with its policy's, and what points to both.
    let names = tally::NAMES_MAX * (size_of::<NamedKey>() + NAME_BYTES_MAX + 64);
    assert!(BYTES + names <= 64 * 1024, "{} + {names}", BYTES);
    assert_eq!(KEYS, 2_048);
}

#[test]
fn counts_of_few_keys_are_exact() {
    let mut watched = ExactCounts::new();
    for turn in 0..1_000_u64 {
        for key in 1..=100 {
            watched.count(mixed(key), turn % 4 == 0 && key % 2 == 0);
        }
        if turn % 100 == 99 {
            watched.take();
        }
    }
    watched.take();
    for key in 1..=100 {
        let denied = if key % 2 == 0 { 250 } else { 0 };
        assert_eq!(watched.counts[&mixed(key)], KeyCounts { requests: 1_000, denied }, "{key}");
    }
    assert_eq!(watched.counts.len(), 100);
}

/// The twenty heaviest of ten million keys are those of a real count, and their counts are within five percent of it.
#[test]
fn the_heaviest_of_ten_million_keys_are_those_of_a_real_count() {
    for (exponent, decisions) in [(0.8, 600_000), (1.2, 200_000)] {
        let (zipf, mut chance) = (Zipf::new(10_000_000, exponent), Chance(1));
        let (mut watched, mut real) = (ExactCounts::new(), HashMap::<u64, u64>::new());
        for turn in 0..decisions {
            let key = zipf.key(&mut chance);
            *real.entry(key).or_default() += 1;
            watched.count(key, false);
            if turn % 10_000 == 9_999 {
                watched.take();
            }
        }
        compare(&mut watched, &real, 20, 0.05);
    }
}

fn compare(watched: &mut ExactCounts, real: &HashMap<u64, u64>, most: usize, within: f64) {
    let mut heaviest: Vec<u64> = real.values().copied().collect();
    heaviest.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
    let last = heaviest[most - 1];
    let found = watched.first(most);
    assert_eq!(found.len(), most);
    for (key, counts) in found {
        let count = real.get(&key).copied().unwrap_or_default();
        assert!(
            count >= last,
            "a key that came {count} times is none of the first {most}: those came {last}"
        );
        let off = (counts.requests as f64 / count as f64 - 1.0).abs();
        assert!(off <= within, "{} instead of {count}", counts.requests);
    }
}

/// A hundred million keys that come once each, beside five that are hot.
#[test]
fn hot_keys_are_found_in_a_flood_of_keys_that_come_once() {
    let floods: u64 = if cfg!(debug_assertions) { 10_000_000 } else { 100_000_000 };
    let (mut watched, mut real) = (ExactCounts::new(), HashMap::<u64, u64>::new());
    let mut named = 0;
    let mut flood = |watched: &mut ExactCounts, number: u64| {
        named += u64::from(watched.sketch.count(mixed(number + 1_000_000), true) > 0);
    };
    // The flood comes first and has all the places.
    (0..floods / 2).for_each(|number| flood(&mut watched, number));
    for number in floods / 2..floods {
        flood(&mut watched, number);
        // Of a hundred decisions one is of these five.
        if number % 100 == 0 {
            let key = mixed(number / 100 % 5 + 1);
            *real.entry(key).or_default() += 1;
            watched.count(key, false);
        }
        if number % 100_000 == 0 {
            watched.take();
        }
    }
    compare(&mut watched, &real, 5, 0.05);
    assert_eq!(named, 0, "no key that comes once is worth a name");
}

#[test]
fn what_was_heavy_makes_room_for_what_is() {
    let mut watched = ExactCounts::new();
    // Every place is taken by a key that comes a hundred times.
    for _ in 0..100 {
        (1..=20_000_u64).for_each(|key| watched.count(mixed(key), false));
    }
    watched.take();
    (0..8).for_each(|_| watched.sketch.age());
    watched.counts.clear();
    (0..50).for_each(|_| watched.count(mixed(99_999), true));
    assert_eq!(watched.first(1)[0].0, mixed(99_999));
}

fn named(key: u64, policy: &str) -> NamedKey {
    NamedKey::new(key, policy, format!("consumer={key}"), Some(ShardNumber(0)))
}

const NOON: u64 = 1_800_000_000;

fn asked(minutes: u64) -> HotKeyFilter {
    HotKeyFilter { policy: None, minutes, each: 5 }
}

/// A node with two workers, second by second.
struct SampleNode {
    gathered: KeyCollector,
    workers: [KeyTally; 2],
    second: u64,
    decided: u64,
    changes: Vec<HotKeyChange>,
}

impl SampleNode {
    fn new() -> SampleNode {
        let gathered = KeyCollector::default();
        let workers = [gathered.tally(1), gathered.tally(2)];
        workers.iter().for_each(|worker| worker.hand_over(NOON));
        SampleNode { gathered, workers, second: NOON, decided: 0, changes: Vec::new() }
    }

    /// Lets each of these keys come so often in each of so many seconds.
    fn run(&mut self, seconds: u64, keys: &[(u64, u64)]) {
        for _ in 0..seconds {
            for (key, times) in keys {
                for turn in 0..*times {
                    let worker = &self.workers[(turn % 2) as usize];
                    worker.count(*key, turn % 4 == 0, || named(*key, "calls"));
                    worker.count_shard(ShardNumber::default);
                    self.decided += 1;
                }
            }
            self.second += 1;
            self.workers.iter().for_each(|worker| worker.hand_over(self.second));
            let facts = PolicyFacts { decided: self.decided, above: 0.05 };
            self.changes.extend(self.gathered.turn(self.second, |_| facts));
        }
    }

    fn shown(&self, minutes: u64) -> Vec<(u64, f64)> {
        let shown = self.gathered.book().shown(&asked(minutes));
        shown.iter().map(|shown| (shown.key.key, shown.requests_per_second.round())).collect()
    }
}

#[test]
fn the_five_keys_that_use_most_are_shown_with_their_rates() {
    let mut node = SampleNode::new();
    let keys: Vec<(u64, u64)> = (1..=100).map(|key| (key, 10)).collect();
    node.run(60, &keys);
    node.run(60, &[&keys[..], &[(901, 100), (902, 90), (903, 80), (904, 70), (905, 60)]].concat());
    let five = [(901, 100.0), (902, 90.0), (903, 80.0), (904, 70.0), (905, 60.0)];
    assert_eq!(node.shown(1), five);
    let shown = node.gathered.book().shown(&asked(1));
    assert_eq!(shown[0].denied_per_second.round(), 25.0);
    let KeyStanding { of_policy, of_shard, .. } = shown[0].standing.expect("it was seen in the last minute");
    assert!((of_policy - 100.0 / 1_400.0).abs() < 0.004, "{of_policy}");
    assert!(of_shard.is_some_and(|share| (share - 100.0 / 1_400.0).abs() < 0.004), "{of_shard:?}");
    // Of two minutes they are half as much.
    let half = five.map(|(key, rate)| (key, rate / 2.0));
    assert_eq!(node.shown(3), half);
    let minutes = &node.gathered.book().shown(&asked(3))[0].minutes;
    assert!(minutes.is_empty(), "the second minute may still grow: {minutes:?}");
    node.run(3, &keys);
    let minutes = node.gathered.book().shown(&asked(3))[0].minutes.clone();
    assert_eq!(minutes, [(NOON / 60 + 1, KeyCounts { requests: 6_000, denied: 1_500 })]);
}

#[test]
fn a_key_becomes_hot_once_and_is_no_longer_once() {
    let mut node = SampleNode::new();
    let keys: Vec<(u64, u64)> = (1..=100).map(|key| (key, 10)).collect();
    node.run(70, &keys);
    assert_eq!(node.changes, [], "none of a hundred alike is hot");
    node.run(60, &[&keys[..], &[(901, 300), (902, 50)]].concat());
    let told: Vec<_> = node.changes.drain(..).map(|change| (change.key.key, change.is_hot)).collect();
    assert_eq!(told, [(901, true)]);
    assert_eq!(node.gathered.book().hot(), 1);
    node.run(60, &keys);
    let told: Vec<_> = node.changes.drain(..).map(|change| (change.key.key, change.is_hot)).collect();
    assert_eq!(told, [(901, false)]);
    assert_eq!(node.gathered.book().hot(), 0);
}

/// A flood that begins long after the process: every second from the fifth on the share and the rate are within five percent,
/// also in the one in which keys are named anew.
#[test]
fn shares_and_rates_of_a_flood_that_has_just_begun_are_right() {
    let mut node = SampleNode::new();
    node.run(137, &[]);
    let others: Vec<(u64, u64)> = (1..=70).map(|key| (key, 10)).collect();
    let keys = [&others[..], &[(901, 100)]].concat();
    // It begins in the middle of a second.
    node.run(1, &keys.iter().map(|(key, times)| (*key, times / 2)).collect::<Vec<_>>());
    for second in 1..=130 {
        node.run(1, &keys);
        if second < 6 {
            continue;
        }
        let shown = node.gathered.book().shown(&asked(1));
        assert_eq!(shown[0].key.key, 901, "{second}");
        let KeyStanding { requests_per_second, of_policy, .. } = shown[0].standing.expect("it is there");
        assert!((of_policy / 0.125 - 1.0).abs() < 0.05, "{second}: {of_policy}");
        assert!((requests_per_second / 100.0 - 1.0).abs() < 0.05, "{second}: {requests_per_second}");
        assert!((shown[0].requests_per_second - requests_per_second).abs() < 0.01, "{second}");
        assert!((shown[0].denied_per_second / 25.0 - 1.0).abs() < 0.05, "{second}");
    }
}

#[test]
fn what_is_handed_over_late_is_in_no_share() {
    let gathered = KeyCollector::default();
    let workers = [gathered.tally(1), gathered.tally(2)];
    let each = |second: u64, keys: &[u64]| {
        for worker in &workers {
            for key in keys {
                for _ in 0..50 {
                    worker.count(*key, false, || named(*key, "calls"));
                }
            }
        }
        workers[0].hand_over(second);
    };
    let decided = |decided| move |_: &str| PolicyFacts { decided, above: 0.05 };
    each(NOON, &[]);
    workers[1].hand_over(NOON);
    each(NOON + 1, &[1]);
    gathered.turn(NOON + 1, decided(100));
    workers[1].hand_over(NOON + 1);
    each(NOON + 2, &[1, 2]);
    workers[1].hand_over(NOON + 2);
    gathered.turn(NOON + 2, decided(300));
    let shares: Vec<f64> =
        gathered.book().shown(&asked(1)).iter().filter_map(|it| Some(it.standing?.of_policy)).collect();
    assert_eq!(shares, [0.5, 0.5]);
}

#[test]
fn few_decisions_make_no_key_hot() {
    let mut node = SampleNode::new();
    node.run(120, &[(1, 60), (2, 10)]);
    assert_eq!(node.changes, []);
    assert_eq!(node.shown(1), [(1, 60.0), (2, 10.0)], "it is shown all the same");
}

#[test]
fn an_hour_is_kept_and_memory_is_bounded() {
    let mut node = SampleNode::new();
    for minute in 0..62_u64 {
        let keys: Vec<(u64, u64)> = (1..=400).map(|key| (mixed(key + 1_000 * minute), 3)).collect();
        node.run(5, &keys);
        node.run(55, &[]);
    }
    let book = node.gathered.book();
    let all = book.shown(&HotKeyFilter { policy: None, minutes: 60, each: usize::MAX });
    assert!(all.len() <= ROWS_MAX, "{}", all.len());
    let first = all.iter().flat_map(|shown| &shown.minutes).map(|(minute, _)| *minute).min();
    assert_eq!(first, Some(NOON / 60 + 3), "the minute that runs is one of the sixty");
    let other = HotKeyFilter { policy: Some("others".to_owned()), ..asked(60) };
    assert_eq!(book.shown(&other), []);
}

#[test]
fn long_names_are_cut_between_letters() {
    let name = NamedKey::new(1, "calls", "ü".repeat(150), None).name;
    assert!(name.len() <= NAME_BYTES_MAX && name.ends_with("ü…"), "{name}");
    assert_eq!(&*NamedKey::new(1, "calls", "consumer=ann".to_owned(), None).name, "consumer=ann");
}

#[test]
fn a_worker_that_nobody_reads_keeps_counting_and_no_more() {
    let gathered = KeyCollector::default();
    let worker = gathered.tally(1);
    for second in 1..=100 {
        (0..10).for_each(|_| worker.count(7, false, || named(7, "calls")));
        worker.hand_over(NOON + second);
    }
    gathered.turn(NOON + 101, |_| PolicyFacts { decided: 0, above: 1.0 });
    let shown = gathered.book().shown(&asked(60));
    assert_eq!(shown.len(), 1);
    assert!(shown[0].minutes.is_empty() && shown[0].requests_per_second > 0.0);
}

#[test]
fn a_key_has_the_name_that_it_was_given_last() {
    let gathered = KeyCollector::default();
    let worker = gathered.tally(1);
    for second in 0..130 {
        let name = if second < 50 { "ip=192.0.2.1" } else { "ip=#7" };
        (0..10).for_each(|_| worker.count(7, false, || NamedKey::new(7, "calls", name.to_owned(), None)));
        worker.hand_over(NOON + second + 1);
        gathered.turn(NOON + second + 1, |_| PolicyFacts { decided: 0, above: 1.0 });
    }
    assert_eq!(&*gathered.book().shown(&asked(1))[0].key.name, "ip=#7");
}

fn told(key: u64, requests: u64) -> FleetRow {
    FleetRow {
        key,
        policy: "calls".to_owned(),
        name: format!("consumer={key}"),
        requests,
        denied: requests / 2,
    }
}

#[test]
fn what_nodes_tell_is_read_back_and_summed() {
    let stat = |key: u64, requests: u64| HotKeyStat {
        key: Arc::new(named(key, "calls")),
        counts: KeyCounts { requests, denied: requests / 2 },
        minute: 1,
    };
    let one: Vec<HotKeyStat> = (1..=300).map(|key| stat(key, key)).collect();
    let one = decode(&encode(&one, str::to_owned));
    assert_eq!((one.len(), &one[0]), (256, &told(300, 300)), "the heaviest are told");
    let two = decode(&encode(&[stat(299, 10), stat(7, 1_000)], str::to_owned));
    let all = sum([one, two].concat(), &asked(1));
    let rows: Vec<_> = all.iter().map(|row| (row.key, row.requests, row.denied)).collect();
    assert_eq!(rows, [(7, 1_000, 500), (299, 309, 154), (300, 300, 150), (298, 298, 149), (297, 297, 148)]);
    let others = HotKeyFilter { policy: Some("others".to_owned()), ..asked(1) };
    assert_eq!(sum(vec![told(1, 1)], &others), []);
    for wrong in [&b""[..], b"{}", b"[{\"key\":-1}]", b"\xff"] {
        assert_eq!(decode(wrong), [], "{wrong:?}");
    }
    let long = FleetRow { name: "x".repeat(1_000), ..told(1, 1) };
    assert_eq!(decode(&serde_json::to_vec(&[long]).expect("texts and numbers")), []);
}

#[test]
fn many_light_keys_take_no_names_from_heavy_ones_that_come_in_the_same_second() {
    let gathered = KeyCollector::default();
    let worker = gathered.tally(1);
    worker.hand_over(NOON);
    for _ in 0..3 {
        (1..=500).for_each(|key| worker.count(mixed(key), false, || named(mixed(key), "calls")));
    }
    (0..40).for_each(|_| worker.count(7, false, || named(7, "calls")));
    worker.hand_over(NOON + 1);
    gathered.turn(NOON + 1, |_| PolicyFacts { decided: 1_540, above: 1.0 });
    let shown = gathered.book().shown(&asked(1));
    assert_eq!((shown[0].key.key, shown[0].requests_per_second), (7, 40.0));
}
