//! Which sketch finds the keys that use most: the gateway's, beside Space-Saving (Metwally, Agrawal, El Abbadi 2005) and
//! HeavyKeeper (Yang et al. 2018) of as many bytes or more. Keys are drawn by Zipf's law of ten million, calm and in a flood of
//! keys that come once, and compared with a real count. Each has two minutes, of which the second is shown.

use std::collections::{BTreeSet, HashMap};
use std::hint::black_box;
use std::time::Instant;

use base::random::Random;
use metrics::hot_keys::Sketch;

trait Finder {
    fn count(&mut self, key: u64);
    /// The keys that it holds with their counts since the minute began.
    fn counts(&mut self) -> HashMap<u64, u64>;
    fn begin_minute(&mut self);
}

/// The gateway's.
struct Ours {
    sketch: Sketch,
    counts: HashMap<u64, u64>,
}

impl Finder for Ours {
    fn count(&mut self, key: u64) {
        if self.sketch.count(key, false) > 0 {
            self.sketch.name(key);
        }
    }

    fn counts(&mut self) -> HashMap<u64, u64> {
        for (key, counts) in self.sketch.take() {
            *self.counts.entry(key).or_default() += counts.requests;
        }
        self.counts.clone()
    }

    fn begin_minute(&mut self) {
        self.counts();
        self.counts.clear();
        self.sketch.age();
    }
}

/// Space-Saving: a key that is not there takes the place of the lightest of all, with its count as its error.
struct SpaceSaving {
    most: usize,
    counts: HashMap<u64, (u64, u64)>,
    order: BTreeSet<(u64, u64)>,
}

impl Finder for SpaceSaving {
    fn count(&mut self, key: u64) {
        if let Some((count, _)) = self.counts.get_mut(&key) {
            self.order.remove(&(*count, key));
            *count += 1;
            self.order.insert((*count, key));
            return;
        }
        let error = match self.counts.len() < self.most {
            true => 0,
            false => self.order.pop_first().map_or(0, |(count, lightest)| {
                self.counts.remove(&lightest);
                count
            }),
        };
        self.counts.insert(key, (error + 1, error));
        self.order.insert((error + 1, key));
    }

    fn counts(&mut self) -> HashMap<u64, u64> {
        self.counts.iter().map(|(key, (count, error))| (*key, count - error)).collect()
    }

    fn begin_minute(&mut self) {
        self.counts.clear();
        self.order.clear();
    }
}

/// HeavyKeeper: two rows of fingerprints whose counts decay when others come, and a list of the heaviest.
struct HeavyKeeper {
    rows: [Vec<(u32, u32)>; 2],
    heaviest: HashMap<u64, u32>,
    random: Random,
}

impl HeavyKeeper {
    const WIDTH: usize = 2_048;
    const LISTED: usize = 64;
}

impl Finder for HeavyKeeper {
    fn count(&mut self, key: u64) {
        let fingerprint = (key >> 32) as u32;
        let mut estimate = 0;
        for (number, row) in self.rows.iter_mut().enumerate() {
            let (known, count) = &mut row[(key >> (number * 11)) as usize % HeavyKeeper::WIDTH];
            if *known == fingerprint && *count > 0 {
                *count += 1;
            } else {
                let chance = 1.08_f64.powi(-(*count as i32).min(400));
                if (self.random.next() as f64) < chance * u64::MAX as f64 {
                    *count = count.saturating_sub(1);
                }
                if *count > 0 {
                    continue;
                }
                (*known, *count) = (fingerprint, 1);
            }
            estimate = estimate.max(*count);
        }
        if let Some(known) = self.heaviest.get_mut(&key) {
            *known = estimate.max(*known);
        } else if self.heaviest.len() < HeavyKeeper::LISTED {
            self.heaviest.insert(key, estimate);
        } else if let Some((lightest, count)) =
            self.heaviest.iter().map(|(key, count)| (*key, *count)).min_by_key(|(_, count)| *count)
            && estimate > count
        {
            self.heaviest.remove(&lightest);
            self.heaviest.insert(key, estimate);
        }
    }

    fn counts(&mut self) -> HashMap<u64, u64> {
        self.heaviest.iter().map(|(key, count)| (*key, u64::from(*count))).collect()
    }

    fn begin_minute(&mut self) {
        self.rows.iter_mut().for_each(|row| row.fill((0, 0)));
        self.heaviest.clear();
    }
}

fn finders() -> [(&'static str, Box<dyn Finder>); 3] {
    let rows = [vec![(0, 0); HeavyKeeper::WIDTH], vec![(0, 0); HeavyKeeper::WIDTH]];
    [
        ("ours", Box::new(Ours { sketch: Sketch::new(1), counts: HashMap::new() })),
        (
            "space-saving",
            Box::new(SpaceSaving { most: 1_024, counts: HashMap::new(), order: BTreeSet::new() }),
        ),
        ("heavykeeper", Box::new(HeavyKeeper { rows, heaviest: HashMap::new(), random: Random::new(1) })),
    ]
}

fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn sums(exponent: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let add = |rank: usize| {
        sum += (rank as f64).powf(-exponent);
        sum
    };
    (1..=KEYS).map(add).collect()
}

fn compare(exponent: f64, flood: u64) {
    let (sums, random) = (sums(exponent), Random::new(12_345));
    let mut finders = finders();
    let mut once = 1_u64 << 40;
    for minute in 0..2 {
        finders.iter_mut().for_each(|(_, finder)| finder.begin_minute());
        let mut real: HashMap<u64, u64> = HashMap::new();
        for _ in 0..if flood == 0 { DECISIONS } else { DECISIONS / 3 } {
            let at = random.next() as f64 / u64::MAX as f64 * sums[KEYS - 1];
            let key = mixed(sums.partition_point(|sum| *sum < at) as u64 + 1);
            *real.entry(key).or_default() += 1;
            finders.iter_mut().for_each(|(_, finder)| finder.count(key));
            for _ in 0..flood {
                once += 1;
                finders.iter_mut().for_each(|(_, finder)| finder.count(mixed(once)));
            }
        }
        if minute == 1 {
            finders.iter_mut().for_each(|(name, finder)| show(exponent, flood, name, finder.counts(), &real));
        }
    }
}

fn show(exponent: f64, flood: u64, name: &str, counts: HashMap<u64, u64>, real: &HashMap<u64, u64>) {
    let sorted = |counts: &HashMap<u64, u64>| {
        let mut sorted: Vec<(u64, u64)> = counts.iter().map(|(key, count)| (*count, *key)).collect();
        sorted.sort_unstable_by(|one, two| two.cmp(one));
        sorted
    };
    let first = sorted(real);
    let last = first[TOP - 1].0;
    let listed = sorted(&counts);
    let is_right = |key: &u64| real.get(key).is_some_and(|count| *count >= last);
    let right = listed.iter().take(TOP).filter(|(_, key)| is_right(key)).count();
    let off = |(count, key): &(u64, u64)| {
        (counts.get(key).copied().unwrap_or_default() as f64 / *count as f64 - 1.0).abs()
    };
    let worst = first.iter().take(TOP).map(off).fold(0.0, f64::max);
    println!(
        "s = {exponent}, flood {flood:>2}: {name:>12} {right:>2} of {TOP}, worst count {:.1} % off",
        worst * 100.0
    );
}

/// The time of an update: of keys by Zipf's law, and of keys that come once.
fn time() {
    let (sums, random) = (sums(1.0), Random::new(1));
    let zipf: Vec<u64> = (0..UPDATES)
        .map(|_| {
            let at = random.next() as f64 / u64::MAX as f64 * sums[KEYS - 1];
            mixed(sums.partition_point(|sum| *sum < at) as u64 + 1)
        })
        .collect();
    let once: Vec<u64> = (0..UPDATES as u64).map(|number| mixed(number + (1 << 40))).collect();
    for (what, keys) in [("by Zipf's law", &zipf), ("that come once", &once)] {
        for (name, mut finder) in finders() {
            let begun = Instant::now();
            keys.iter().for_each(|key| finder.count(black_box(*key)));
            let each = begun.elapsed().as_nanos() as f64 / UPDATES as f64;
            println!("an update, keys {what}: {name:>12} {each:.0} ns");
        }
    }
}

fn main() {
    for exponent in [0.8, 0.9, 1.0, 1.1, 1.2] {
        compare(exponent, 0);
    }
    for exponent in [0.8, 1.0, 1.2] {
        compare(exponent, 60);
    }
    time();
}

const KEYS: usize = 10_000_000;
/// Of a minute: 10,000 a second, beside a flood a third of them.
const DECISIONS: u64 = 600_000;
const UPDATES: usize = 1_000_000;
/// Keys that are to be found.
const TOP: usize = 20;
