//! Random numbers that need to be different, not secret: request ids, choices between servers, jitter. Not for keys,
//! salts or anything a client must not guess.

use std::cell::Cell;

/// One thread's source: xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016).
#[derive(Debug)]
pub struct Random(Cell<u64>);

impl Random {
    /// A source with this seed. Sources with equal seeds give equal numbers.
    pub fn new(seed: u64) -> Random {
        // At least 1, because xorshift never leaves the state 0.
        Random(Cell::new(seed.max(1)))
    }

    /// A source with a random seed, taken from the standard library's `RandomState`.
    pub fn seeded() -> Random {
        use std::hash::{BuildHasher, Hasher, RandomState};
        Random::new(RandomState::new().build_hasher().finish())
    }

    /// The next number, from 1 to `u64::MAX`.
    pub fn next(&self) -> u64 {
        let mut state = self.0.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.0.set(state);
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A name that no other process has: sixteen hexadecimal digits.
    pub fn name(&self) -> String {
        format!("{:016x}", self.next())
    }
}

/// Numbers that lie evenly over all 64 bits, and so do those that any one client takes of them (the multiples of the golden
/// ratio, Weyl 1916). Who divides by them has exact shares without the period of a fixed order, which a page of twenty
/// requests would fall into step with.
#[derive(Debug)]
pub struct EvenNumbers(Cell<u64>);

impl EvenNumbers {
    /// They begin here; workers begin apart.
    pub fn new(seed: u64) -> EvenNumbers {
        EvenNumbers(Cell::new(seed))
    }

    pub fn next(&self) -> u64 {
        let next = self.0.get().wrapping_add(GOLDEN);
        self.0.set(next);
        next
    }
}

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_does_not_repeat_soon_and_differs_by_seed() {
        let (one, two) = (Random::new(0), Random::new(7));
        let seen: std::collections::HashSet<u64> =
            (0..1_000).flat_map(|_| [one.next(), two.next()]).collect();
        assert_eq!(seen.len(), 2_000);
    }
}
