//! The centre's side of a lease, as the store's scripts do it: for simulations and as the scripts' proof. It decides
//! nothing in a gateway.
//!
//! Floating point on purpose: the scripts have nothing else, and the twin does the same operations in the same
//! order, so the two are equal to the bit.

mod bucket;

use super::central::{Grant, Renewal};

/// The centre's record of one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Centre {
    record: Option<bucket::Record>,
}

impl Centre {
    /// What the store keeps of the key.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        self.record.as_ref().map(bucket::Record::to_bytes)
    }

    /// Answers a renewal at `now_us` of the centre's clock, microseconds since 1970.
    pub fn renew(&mut self, renewal: &Renewal, now_us: u64) -> Grant {
        let asked = Asked::from(renewal.numbers());
        Grant::from_numbers(bucket::renew(&mut self.record, now_us as f64, &asked))
    }
}

/// A renewal as the scripts are given it: what each number is stands at `Renewal::numbers`.
#[derive(Clone, Copy, Debug)]
struct Asked {
    refill: f64,
    burst: f64,
    epoch_us: f64,
    phase_us: f64,
    epoch: f64,
    demand: f64,
    reported: f64,
    rate: f64,
    pending: f64,
    hint: f64,
    delta: f64,
    keep: f64,
    release: f64,
}

impl From<[f64; Renewal::NUMBERS]> for Asked {
    fn from(numbers: [f64; Renewal::NUMBERS]) -> Asked {
        let [refill, burst, epoch_us, phase_us, _period_us, numbers @ ..] = numbers;
        let [epoch, demand, reported, rate, pending, hint, delta, keep, release] = numbers;
        Asked {
            refill,
            burst,
            epoch_us,
            phase_us,
            epoch,
            demand,
            reported,
            rate,
            pending,
            hint,
            delta,
            keep,
            release,
        }
    }
}
