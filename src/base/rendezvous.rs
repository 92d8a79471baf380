//! Rendezvous hashing with weights (Thaler and Ravishankar 1998; weights after Schindelhauer and Schomaker 2005): which of
//! several places a key belongs to.
//!
//! Every place bids for the key, and the best bid wins. So a place that leaves moves its own keys only, each place gets the
//! share that its weight asks for, and a weight that grows takes keys from others and gives none away. A ring does the same,
//! but its shares are uneven, and the keys of a place that leaves all fall on its neighbours. It costs a look at every place,
//! of which there are few here. Nothing is secret and nothing random: every process finds the same place.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// A number for a place or a value; the same in every process. Parts are told apart, so `a`, `b` is not `ab`.
pub fn number(parts: &[&[u8]]) -> u64 {
    let mut state = SipHasher13::new();
    for part in parts {
        state.write(&(part.len() as u64).to_le_bytes());
        state.write(part);
    }
    state.finish()
}

/// Where the key belongs, among places with their numbers and weights; `None` if no place has a weight.
pub fn owner<T>(key: u64, places: impl Iterator<Item = (T, u64, u32)>) -> Option<T> {
    let bids = places.filter(|(.., weight)| *weight > 0);
    let bids = bids.map(|(place, number, weight)| (place, bid(mixed(key, number), weight)));
    bids.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(place, _)| place)
}

/// A number that looks random, and is the same for the same two (the finalizer of splitmix64, Steele and others 2014).
pub fn mixed(key: u64, number: u64) -> u64 {
    let mut bits = key ^ number;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// An exponentially distributed time at the rate of the weight: the least of several is each one's with the probability
/// that its weight asks for.
fn bid(random: u64, weight: u32) -> f64 {
    // 53 bits, because an f64 holds no more; the half is added so that the logarithm stays finite.
    let uniform = ((random >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -uniform.ln() / f64::from(weight)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner_of(key: u64, weights: &[u32]) -> Option<usize> {
        let places = weights.iter().enumerate();
        owner(key, places.map(|(place, weight)| (place, number(&[b"place", &[place as u8]]), *weight)))
    }

    fn key(index: u64) -> u64 {
        number(&[&index.to_le_bytes()])
    }

    #[test]
    fn each_place_has_the_keys_that_its_weight_asks_for() {
        const KEYS: u64 = 100_000;
        for weights in [&[95, 5][..], &[1, 1, 1], &[1, 2, 3, 0], &[1; 20]] {
            let mut owned = vec![0_u32; weights.len()];
            (0..KEYS).for_each(|index| owned[owner_of(key(index), weights).expect("a place")] += 1);
            let total: u32 = weights.iter().sum();
            for (owned, weight) in owned.iter().zip(weights) {
                let (share, asked) = (f64::from(*owned) / KEYS as f64, f64::from(*weight) / f64::from(total));
                assert!((share - asked).abs() < 0.005, "{weights:?}: {share}");
            }
        }
        assert_eq!(owner_of(1, &[0, 0]), None);
    }

    #[test]
    fn the_place_of_a_key_is_the_same_in_every_process() {
        assert_eq!(number(&[b"a", b"b"]), 7_074_006_890_511_672_491);
        let places: Vec<_> = (0..8).map(|index| owner_of(key(index), &[1, 2, 3]).expect("a place")).collect();
        assert_eq!(places, [2, 2, 1, 2, 0, 2, 2, 0]);
    }

    proptest! {
        #[test]
        fn a_place_that_leaves_moves_its_own_keys_only(
            keys in prop::collection::vec(any::<u64>(), 200),
            weights in prop::collection::vec(1_u32..=1_000, 2..12),
            leaving in any::<prop::sample::Index>(),
        ) {
            let leaving = leaving.index(weights.len());
            let mut after = weights.clone();
            after[leaving] = 0;
            for key in keys {
                let (was, is) = (owner_of(key, &weights), owner_of(key, &after));
                prop_assert!(was == is || was == Some(leaving));
            }
        }

        #[test]
        fn a_weight_that_grows_only_takes_keys(
            keys in prop::collection::vec(any::<u64>(), 200),
            weights in prop::collection::vec(0_u32..=1_000, 2..12),
            growing in any::<prop::sample::Index>(),
            by in 1_u32..=1_000,
        ) {
            let growing = growing.index(weights.len());
            let mut after = weights.clone();
            after[growing] += by;
            for key in keys {
                let (was, is) = (owner_of(key, &weights), owner_of(key, &after));
                prop_assert!(was == is || is == Some(growing));
            }
        }
    }
}
