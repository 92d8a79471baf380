//! Draws which traces are sampled, by their ids: every gateway and service with the same share draws the same ones.

use std::num::NonZeroU128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSampler {
    /// Traces whose randomness is at least this are sampled: the rejection threshold of OpenTelemetry's probability
    /// sampling, which reads the last 56 bits of an id.
    threshold: u64,
}

impl TraceSampler {
    /// A sampler of so many parts per million.
    pub fn new(sample_ppm: u32) -> TraceSampler {
        let rejected_ppm = u64::from(WHOLE_PPM - sample_ppm.min(WHOLE_PPM));
        // Rounded down, so that never fewer are sampled than asked for, and all of them at 100 %.
        TraceSampler {
            threshold: (u128::from(rejected_ppm) * u128::from(RANDOMNESS) / u128::from(WHOLE_PPM)) as u64,
        }
    }

    pub fn draws(self, trace_id: NonZeroU128) -> bool {
        let randomness = trace_id.get() as u64 & (RANDOMNESS - 1);
        randomness >= self.threshold
    }
}

const WHOLE_PPM: u32 = 1_000_000;
/// Values of 56 bits.
const RANDOMNESS: u64 = 1 << 56;

#[cfg(test)]
mod tests {
    use super::*;
    use base::random::Random;

    #[test]
    fn a_share_of_random_ids_is_drawn_and_the_same_ones_everywhere() {
        let random = Random::new(7);
        let ids: Vec<NonZeroU128> = (0..200_000)
            .filter_map(|_| NonZeroU128::new(u128::from(random.next()) << 64 | u128::from(random.next())))
            .collect();
        let drawn = |ppm| ids.iter().filter(|id| TraceSampler::new(ppm).draws(**id)).count();
        assert_eq!((drawn(0), drawn(1_000_000), drawn(u32::MAX)), (0, ids.len(), ids.len()));
        assert!((1_850..2_150).contains(&drawn(10_000)), "{}", drawn(10_000));
        // Whoever samples more samples those of who samples less.
        let (less, more) = (TraceSampler::new(10_000), TraceSampler::new(500_000));
        assert!(ids.iter().all(|id| !less.draws(*id) || more.draws(*id)));
    }
}
