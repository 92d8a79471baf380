//! Draws which requests get a line: a share of each status. It draws from a counter, so that the same traffic gives
//! the same log.

use base::rendezvous;

use super::{AccessConfig, Sink, StatusMatch};

/// The share of each status, looked up once a request. Part of the snapshot, so a reload replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSampler {
    /// Parts per million kept, by status.
    kept_ppm: Box<[u32]>,
}

impl StatusSampler {
    /// The shares of a configuration; all zero if the log is off.
    pub fn new(config: &AccessConfig) -> StatusSampler {
        let share = |status: u16| {
            let rule = |wanted| config.sample.iter().find(|(rule, _)| *rule == wanted).map(|(_, ppm)| *ppm);
            rule(StatusMatch::Exact(status))
                .or_else(|| rule(StatusMatch::Class(status / 100)))
                .unwrap_or(WHOLE_PPM)
        };
        match config.to {
            Sink::Off => StatusSampler { kept_ppm: vec![0; usize::from(STATUSES)].into() },
            Sink::Stdout | Sink::Stderr | Sink::File(_) | Sink::Syslog(_) => {
                StatusSampler { kept_ppm: (0..STATUSES).map(share).collect() }
            }
        }
    }

    /// Whether no request of this status is logged, so that its entry need not be built.
    pub fn is_off(&self, status: u16) -> bool {
        self.share_ppm(status) == 0
    }

    /// Draws whether this request gets a line. `drawn` counts the draws.
    pub(super) fn keeps(&self, status: u16, drawn: &mut u64) -> bool {
        match self.share_ppm(status) {
            0 => false,
            ppm => is_drawn(ppm, drawn),
        }
    }

    fn share_ppm(&self, status: u16) -> u32 {
        let last = usize::from(STATUSES) - 1;
        self.kept_ppm[usize::from(status).min(last)]
    }
}

/// Draws one of a share. `drawn` counts the draws.
pub(super) fn is_drawn(ppm: u32, drawn: &mut u64) -> bool {
    if ppm >= WHOLE_PPM {
        return true;
    }
    *drawn = drawn.wrapping_add(1);
    // As SplitMix64 does, because taking every nth request would fall into step with periodic traffic.
    let random = rendezvous::mixed(drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0);
    // The high word of the product is uniform below a million, without a division and with a bias below 2^-44.
    (u128::from(random) * u128::from(WHOLE_PPM)) >> 64 < u128::from(ppm)
}

pub(super) const WHOLE_PPM: u32 = 1_000_000;
/// Statuses with an entry in the table. Higher ones use the last entry, which no rule can name.
const STATUSES: u16 = 1_001;

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(sampler: &StatusSampler, status: u16, requests: u32) -> u32 {
        let mut drawn = 0;
        (0..requests).map(|_| u32::from(sampler.keeps(status, &mut drawn))).sum()
    }

    #[test]
    fn a_status_goes_before_its_class_and_the_rest_is_whole() {
        let sample = vec![(StatusMatch::Class(2), 100_000), (StatusMatch::Exact(204), 0)];
        let sampler = StatusSampler::new(&AccessConfig {
            to: Sink::Stdout,
            sample,
            headers: Vec::new(),
            ..AccessConfig::default()
        });
        assert!((9_700..10_300).contains(&kept(&sampler, 200, 100_000)));
        assert_eq!(kept(&sampler, 204, 1_000), 0);
        assert!(sampler.is_off(204) && !sampler.is_off(200));
        for whole in [0, 429, 500, 999, u16::MAX] {
            assert_eq!(kept(&sampler, whole, 1_000), 1_000);
        }
    }

    #[test]
    fn off_keeps_nothing() {
        let sampler = StatusSampler::new(&AccessConfig {
            to: Sink::Off,
            headers: Vec::new(),
            ..AccessConfig::default()
        });
        assert_eq!([0, 200, 503, u16::MAX].map(|status| kept(&sampler, status, 100)), [0; 4]);
    }

    #[test]
    fn periodic_traffic_is_sampled_fairly() {
        let sample = vec![(StatusMatch::Exact(200), 500_000)];
        let sampler = StatusSampler::new(&AccessConfig {
            to: Sink::Stdout,
            sample,
            headers: Vec::new(),
            ..AccessConfig::default()
        });
        let mut drawn = 0;
        let even: u32 = (0..10_000)
            .map(|_| {
                let even = u32::from(sampler.keeps(200, &mut drawn));
                sampler.keeps(200, &mut drawn);
                even
            })
            .sum();
        assert!((4_700..5_300).contains(&even), "{even} of every second request");
    }
}
