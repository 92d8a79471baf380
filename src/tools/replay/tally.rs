//! Counts of many keys in little memory: how many different ones there are, and which are met most.

use std::collections::{HashMap, HashSet};

use limit::Key;

/// How many different keys were met: exact up to [`KEYS_EXACT`], then an estimate that is off by about a hundredth.
#[derive(Debug, Default)]
pub struct Distinct {
    exact: HashSet<Key>,
    /// HyperLogLog (Flajolet and others, 2007): of the keys whose first bits are the index, the most zeros that one
    /// begins with behind them. Keys are hashes already. Empty while `exact` is kept.
    registers: Box<[u8]>,
}

impl Distinct {
    pub fn meet(&mut self, key: Key) {
        if !self.registers.is_empty() {
            return register(&mut self.registers, key);
        }
        self.exact.insert(key);
        if self.exact.len() > KEYS_EXACT {
            self.registers = vec![0; 1 << INDEX_BITS].into();
            for key in std::mem::take(&mut self.exact) {
                register(&mut self.registers, key);
            }
        }
    }

    pub fn is_exact(&self) -> bool {
        self.registers.is_empty()
    }

    pub fn count(&self) -> u64 {
        if self.is_exact() {
            return self.exact.len() as u64;
        }
        let count = self.registers.len() as f64;
        let sum: f64 = self.registers.iter().map(|zeros| 2f64.powi(-i32::from(*zeros))).sum();
        let alpha = 0.7213 / (1.0 + 1.079 / count);
        (alpha * count * count / sum).round() as u64
    }
}

fn register(registers: &mut [u8], key: Key) {
    let bits = (key.bits() >> 64) as u64;
    let zeros = (bits << INDEX_BITS).leading_zeros().min(64 - INDEX_BITS) as u8 + 1;
    let register = &mut registers[(bits >> (64 - INDEX_BITS)) as usize];
    *register = (*register).max(zeros);
}

/// Who was met most, of any number of keys (Misra and Gries, 1982): counts are never too high, and too low by
/// [`HeavyHitters::error`] at most.
#[derive(Debug)]
pub struct HeavyHitters<K> {
    counts: HashMap<K, (u64, String)>,
    error: u64,
}

impl<K> Default for HeavyHitters<K> {
    fn default() -> HeavyHitters<K> {
        HeavyHitters { counts: HashMap::new(), error: 0 }
    }
}

impl<K: Eq + std::hash::Hash> HeavyHitters<K> {
    /// A key was met; `name` is asked what to call it if it is not known.
    pub fn meet(&mut self, key: K, name: impl FnOnce() -> String) {
        if let Some((count, _)) = self.counts.get_mut(&key) {
            *count += 1;
            return;
        }
        if self.counts.len() >= 2 * KEYS_RANKED {
            self.thin();
        }
        self.counts.insert(key, (1, name()));
    }

    /// Those that were met most, the first first.
    pub fn top(&self, count: usize) -> Vec<(u64, &str)> {
        let mut all: Vec<(u64, &str)> =
            self.counts.values().map(|(count, name)| (*count, name.as_str())).collect();
        all.sort_unstable_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(other.1)));
        all.truncate(count);
        all
    }

    /// How much too low a count may be.
    pub fn error(&self) -> u64 {
        self.error
    }

    /// Forgets the half that was met least, and as much of the others.
    fn thin(&mut self) {
        let mut counts: Vec<u64> = self.counts.values().map(|(count, _)| *count).collect();
        let (_, median, _) = counts.select_nth_unstable(KEYS_RANKED);
        let median = *median;
        self.error += median;
        self.counts.retain(|_, (count, _)| {
            *count = count.saturating_sub(median);
            *count > 0
        });
    }
}

/// So many keys are counted exactly.
pub const KEYS_EXACT: usize = 1 << 16;
/// Between so many and twice as many keys are ranked.
const KEYS_RANKED: usize = 4_096;
/// Bits of a key that choose its register.
const INDEX_BITS: u32 = 14;

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use siphasher::sip128::{Hasher128, SipHasher13};

    use super::*;

    fn key(number: u64) -> Key {
        let mut state = SipHasher13::new();
        state.write_u64(number);
        Key::new(state.finish128().as_u128())
    }

    #[test]
    fn different_keys_are_counted_exactly_and_then_nearly() {
        let mut distinct = Distinct::default();
        for number in 0..KEYS_EXACT as u64 {
            distinct.meet(key(number));
            distinct.meet(key(number / 2));
        }
        assert_eq!((distinct.count(), distinct.is_exact()), (KEYS_EXACT as u64, true));
        for count in [100_000u64, 1_000_000] {
            (0..count).for_each(|number| distinct.meet(key(number)));
            assert!(!distinct.is_exact());
            let off = distinct.count().abs_diff(count) as f64 / count as f64;
            assert!(off < 0.03, "{} instead of {count}", distinct.count());
        }
    }

    #[test]
    fn who_comes_most_is_found_among_any_number() {
        let mut most = HeavyHitters::default();
        for number in 0..200_000u64 {
            most.meet(number, || format!("once {number}"));
            if number % 20 == 0 {
                most.meet(1_000_000, || "often".to_owned());
            }
            if number % 40 == 0 {
                most.meet(2_000_000, || "at times".to_owned());
            }
        }
        let top = most.top(2);
        assert_eq!(top.iter().map(|(_, name)| *name).collect::<Vec<_>>(), ["often", "at times"]);
        assert!(top[0].0 <= 10_000 && top[0].0 + most.error() >= 10_000, "{top:?} {}", most.error());
        assert!(most.counts.len() <= 2 * KEYS_RANKED);
    }
}
