//! Who comes when, and to which node.

use base::random::Random;

use crate::chance;

/// A kind of traffic at a limit of `rate` units a second.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    pub kind: Kind,
    pub rate: f64,
    /// A request costs from one unit to so many.
    pub cost_max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every request to any node.
    Uniform,
    /// A key's requests to three nodes.
    Sticky,
    /// A fifth of a second of many, then a pause; each to a quarter of the nodes.
    Bursty,
    /// Many keys, few of which are wanted much.
    Zipf,
    /// Three nodes, others every 0.7 s.
    Shifting,
    /// Leases are built up, the bucket is let fill, then all is spent at once.
    Hoard,
    /// One key, to any node.
    Plain,
    /// One key, to one node after the other.
    Alternating,
    /// One key, half of it to the first node, a quarter to the second, and so on.
    Uneven,
    /// One key: twelve at once to one node, every 2.5 s, then to the next node.
    Rounds,
}

impl Traffic {
    /// So many units a second, a unit each.
    pub fn at(kind: Kind, rate: f64) -> Traffic {
        Traffic { kind, rate, cost_max: 1 }
    }

    /// What a request costs.
    pub fn cost(&self, random: &Random) -> u64 {
        if self.cost_max == 1 { 1 } else { 1 + random.next() % self.cost_max }
    }

    pub fn keys(&self) -> usize {
        match self.kind {
            Kind::Zipf => 20_000,
            Kind::Hoard => 4,
            Kind::Plain | Kind::Alternating | Kind::Uneven | Kind::Rounds => 1,
            _ => LOADS.len(),
        }
    }

    /// The next arrival of a key.
    pub fn next(&self, key: usize, now_ns: u64, random: &Random) -> Option<u64> {
        if self.kind == Kind::Rounds {
            let at_ns = now_ns + ROUND_GAP_NS;
            let begins_ns = at_ns / ROUND_NS * ROUND_NS;
            let is_over = at_ns - begins_ns >= ROUND * ROUND_GAP_NS;
            return Some(if is_over { begins_ns + ROUND_NS } else { at_ns });
        }
        let highest = self.highest(key);
        let mut at_ns = now_ns;
        // Thinning: arrivals at the highest rate, of which the rate at that time decides.
        for _ in 0..100_000 {
            at_ns += (-(1.0 - chance(random)).ln() / highest * 1e9) as u64 + 1;
            if chance(random) * highest < self.rate_at(key, at_ns) {
                return Some(at_ns);
            }
        }
        None
    }

    /// Which node it comes to.
    pub fn node(&self, key: usize, now_ns: u64, nodes: usize, random: &Random) -> usize {
        let any = |of: usize| random.next() as usize % of;
        let pick = |seed: usize, index: usize| mix(seed as u64 * 64 + index as u64) as usize % nodes;
        match self.kind {
            Kind::Uniform | Kind::Zipf | Kind::Hoard | Kind::Plain => any(nodes),
            Kind::Alternating => (now_ns / 100_000_000) as usize % nodes,
            Kind::Uneven => (random.next() | 1 << 63).trailing_zeros() as usize % nodes,
            Kind::Rounds => (now_ns / ROUND_NS) as usize % nodes,
            Kind::Sticky => pick(key, any(3)),
            Kind::Shifting => pick(key + 1_000 * (now_ns / 700_000_000) as usize, any(3)),
            Kind::Bursty => pick(key + 1_000 * (now_ns / BURST_PERIOD_NS) as usize, any(nodes.div_ceil(4))),
        }
    }

    fn highest(&self, key: usize) -> f64 {
        match self.kind {
            Kind::Bursty => self.load(key) * 4.0,
            Kind::Hoard => self.rate * 20.0,
            _ => self.load(key),
        }
    }

    /// Arrivals a second, on the whole.
    fn load(&self, key: usize) -> f64 {
        match self.kind {
            // The sum of 1/n to 20,000 is 10.5.
            Kind::Zipf => ZIPF_TOTAL / 10.48 / (key + 1) as f64,
            Kind::Plain | Kind::Alternating | Kind::Uneven | Kind::Rounds => self.rate,
            _ => self.rate * LOADS[key],
        }
    }

    fn rate_at(&self, key: usize, at_ns: u64) -> f64 {
        match self.kind {
            Kind::Bursty => {
                let is_on = (at_ns + key as u64 * 77_000_000) % BURST_PERIOD_NS < BURST_PERIOD_NS / 4;
                if is_on { self.load(key) * 4.0 } else { 0.0 }
            }
            Kind::Hoard => match (at_ns + key as u64 * 613_000_000) % HOARD_PERIOD_NS / 1_000_000 {
                0..600 => self.rate * [0.9, 1.2, 2.0, 5.0][key],
                ms if ms < [900, 1_400, 1_600, 2_000][key] => 0.0,
                _ => self.rate * 20.0,
            },
            _ => self.load(key),
        }
    }
}

fn mix(seed: u64) -> u64 {
    let mut word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// How much is wanted of each key, in limits.
const LOADS: [f64; 6] = [0.3, 0.8, 1.1, 1.5, 3.0, 8.0];
const ZIPF_TOTAL: f64 = 30_000.0;
const BURST_PERIOD_NS: u64 = 800_000_000;
const HOARD_PERIOD_NS: u64 = 2_300_000_000;
/// Requests of a round, how far apart they are, and how far apart the rounds.
const ROUND: u64 = 12;
const ROUND_GAP_NS: u64 = 5_000_000;
const ROUND_NS: u64 = 2_500_000_000;
