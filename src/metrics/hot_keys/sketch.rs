//! [`Sketch`]: which keys are heavy, of any number of them, in memory that never grows.
//!
//! Keys lie in buckets of eight, as in a cache. A key that is there is counted. One that is not takes the place of the lightest
//! in its bucket, of weight `w`, with a chance of one in `w + 1`: the randomised admission of Ben Basat, Einziger, Friedman and
//! Kassner (INFOCOM 2017). A flood of keys that come once lifts the weights by its square root only, while under Space-Saving
//! (Metwally, Agrawal, El Abbadi 2005) each of them would take a place; a heavy key is in after a few requests, and from then on
//! its counts are exact. `benches/README.md` compares them, and HeavyKeeper (Yang et al. 2018).
//!
//! It reads no clock and knows no names. Keys are as good as random, and nobody outside can choose their bits.

/// What was counted of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    /// Requests and checks that were decided.
    pub requests: u64,
    /// Those of them that were denied.
    pub denied: u64,
}

impl KeyCounts {
    pub fn add(&mut self, other: KeyCounts) {
        self.requests = self.requests.saturating_add(other.requests);
        self.denied = self.denied.saturating_add(other.denied);
    }
}

/// The heavy ones among keys.
#[derive(Debug)]
pub struct Sketch {
    buckets: Box<[SketchBucket; BUCKETS]>,
    /// From this weight on a key is worth a name.
    named_from: u32,
    random: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct SketchBucket {
    keys: [u64; WAYS],
    /// How much a key has in hand against others. 0: the place is free.
    weights: [u32; WAYS],
    /// Since they were last taken away.
    requests: [u32; WAYS],
    denied: [u32; WAYS],
    /// A bit for each key that has a name.
    named: u8,
}

impl Sketch {
    /// An empty one. Equal seeds choose alike.
    pub fn new(seed: u64) -> Sketch {
        Sketch { buckets: Box::new([SketchBucket::default(); BUCKETS]), named_from: 1, random: seed.max(1) }
    }

    /// Counts a decision about a key. Returns by how much it is heavier than half of the keys here; 0 if it is not, has a name
    /// already, or has come only once.
    #[inline]
    pub fn count(&mut self, key: u64, is_denied: bool) -> u32 {
        let bucket = &mut self.buckets[key as usize % BUCKETS];
        let known = (0..WAYS).find(|way| bucket.keys[*way] == key && bucket.weights[*way] > 0);
        let Some(way) = known else {
            self.admit(key, is_denied);
            return 0;
        };
        let weight = bucket.weights[way].saturating_add(1);
        bucket.weights[way] = weight;
        bucket.requests[way] = bucket.requests[way].saturating_add(1);
        bucket.denied[way] = bucket.denied[way].saturating_add(u32::from(is_denied));
        if bucket.named & 1 << way == 0 { weight.saturating_sub(self.named_from) } else { 0 }
    }

    /// Lets a key in, if chance has it.
    fn admit(&mut self, key: u64, is_denied: bool) {
        let chance = self.chance();
        let bucket = &mut self.buckets[key as usize % BUCKETS];
        let mut lightest = 0;
        for way in 1..WAYS {
            if bucket.weights[way] < bucket.weights[lightest] {
                lightest = way;
            }
        }
        let weight = u64::from(bucket.weights[lightest]);
        if (chance * (weight + 1)) >> 32 == 0 {
            bucket.keys[lightest] = key;
            bucket.weights[lightest] = bucket.weights[lightest].saturating_add(1);
            bucket.requests[lightest] = 1;
            bucket.denied[lightest] = u32::from(is_denied);
            bucket.named &= !(1 << lightest);
        }
    }

    /// 32 bits by chance: xorshift64* (Vigna 2016).
    fn chance(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    /// Says that a key has its name.
    pub fn name(&mut self, key: u64) {
        let bucket = &mut self.buckets[key as usize % BUCKETS];
        let known = (0..WAYS).find(|way| bucket.keys[*way] == key && bucket.weights[*way] > 0);
        if let Some(way) = known {
            bucket.named |= 1 << way;
        }
    }

    /// Takes away what was counted of the keys that have names. What the others have stays until they have one.
    pub fn take(&mut self) -> Vec<(u64, KeyCounts)> {
        let mut taken = Vec::new();
        for bucket in self.buckets.iter_mut() {
            for way in 0..WAYS {
                if bucket.named & 1 << way != 0 && bucket.requests[way] > 0 {
                    let requests = u64::from(std::mem::take(&mut bucket.requests[way]));
                    let denied = u64::from(std::mem::take(&mut bucket.denied[way]));
                    taken.push((bucket.keys[way], KeyCounts { requests, denied }));
                }
            }
        }
        self.named_from = self.median();
        taken
    }

    /// What the sketch holds in the middle, by weight; 0 while half of it is free.
    fn median(&self) -> u32 {
        let mut weights: Vec<u32> = self.buckets.iter().flat_map(|bucket| bucket.weights).collect();
        let middle = weights.len() / 2;
        *weights.select_nth_unstable(middle).1
    }

    /// Halves the weights, so that keys of before make room for those of now, and forgets the names, with what nobody has
    /// asked about by then. Call it each minute, after [`Sketch::take`].
    pub fn age(&mut self) {
        for bucket in self.buckets.iter_mut() {
            bucket.named = 0;
            bucket.requests = [0; WAYS];
            bucket.denied = [0; WAYS];
            bucket.weights.iter_mut().for_each(|weight| *weight /= 2);
        }
        self.named_from /= 2;
    }
}

const WAYS: usize = 8;
const BUCKETS: usize = 256;
pub const KEYS: usize = WAYS * BUCKETS;
/// Bytes of a sketch.
pub const BYTES: usize = size_of::<SketchBucket>() * BUCKETS;
