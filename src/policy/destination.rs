//! Where the requests of a route go: to one upstream, or to one of several by weight.
//!
//! Pure, as all of `policy`: whose turn it is and which upstreams are usable come in as arguments.

use std::sync::Arc;

use super::definition::{Dimension, Missing};
use super::keys::key::KeyMaker;
use super::keys::subject::Subject;
use base::ids::IdVec;
use base::rendezvous;

base::id! {
    /// An upstream: its position among the names that a table was compiled with. It holds in what is made for that table: the
    /// upstreams of its snapshot, their pools and their metrics.
    UpstreamId
}

#[derive(Clone, Debug)]
pub struct Destination {
    /// The upstream; of several the first.
    pub upstream: UpstreamId,
    /// What each request is chosen by; `None`: all go to `upstream`. Boxed, because most routes have none.
    pub choice: Option<Box<UpstreamChoice>>,
    pub mirror: Option<Box<Mirror>>,
}

#[derive(Clone, Debug)]
pub struct Mirror {
    pub upstream: UpstreamId,
    pub name: Box<str>,
    /// How many of the requests are copied, parts per million.
    pub share_ppm: u32,
    /// Requests with a larger body are not copied, bytes.
    pub body_bytes_max: usize,
    pub id: ChoiceId,
}

/// A choice that is made for each request.
#[derive(Clone, Debug)]
pub struct UpstreamChoice {
    pub parts: Box<[UpstreamShare]>,
    /// What a client keeps its upstream by.
    pub(super) sticky: Option<Affinity>,
    pub(super) id: ChoiceId,
}

base::id! {
    /// A choice: its position among those of its table, and in every list that follows their order.
    ChoiceId
}

#[derive(Clone, Debug)]
pub struct UpstreamShare {
    pub upstream: UpstreamId,
    pub weight: u32,
    /// Its name as a number, by which clients keep it whatever stands beside it.
    pub(super) number: u64,
    /// What its servers are kept by.
    pub(super) hash: Option<Arc<Affinity>>,
}

/// What is chosen for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PickedUpstream {
    pub upstream: UpstreamId,
    /// What its server is kept by, as a number. `None`: nothing.
    pub key: Option<u64>,
}

impl Destination {
    /// Each upstream's servers are kept by this, if by anything.
    pub(super) fn hash(&mut self, by: &IdVec<UpstreamId, Option<Arc<Affinity>>>) {
        let of = |upstream: UpstreamId| by.get(upstream).cloned().flatten();
        if self.choice.is_none() && of(self.upstream).is_some() {
            let only = UpstreamShare { upstream: self.upstream, weight: 1, number: 0, hash: None };
            let choice = UpstreamChoice { parts: Box::new([only]), sticky: None, id: ChoiceId::new(0) };
            self.choice = Some(Box::new(choice));
        }
        for part in self.choice.iter_mut().flat_map(|choice| &mut choice.parts) {
            part.hash = of(part.upstream);
        }
    }

    pub fn parts(&self) -> &[UpstreamShare] {
        self.choice.as_ref().map_or(&[], |choice| &choice.parts)
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = &str> {
        let sticky = self.choice.iter().filter_map(|choice| choice.sticky.as_ref());
        let hashed = self.parts().iter().filter_map(|part| part.hash.as_deref());
        sticky.chain(hashed).filter_map(Affinity::claim)
    }
}

impl Mirror {
    /// Whether the request that takes this turn is copied. Turns are the numbers of [`base::random::EvenNumbers`].
    pub fn is_chosen(&self, turn: u64) -> bool {
        // Rounded down, so that it is below a million.
        ((u128::from(turn) * 1_000_000) >> 64) < u128::from(self.share_ppm)
    }
}

impl UpstreamChoice {
    /// The upstream of this subject, and what its server is kept by there.
    pub fn choose(
        &self,
        subject: &impl Subject,
        turn: impl FnOnce(ChoiceId) -> u64,
        is_usable: impl Fn(UpstreamId) -> bool,
    ) -> PickedUpstream {
        let part = match &*self.parts {
            [only] => only,
            _ => self.part(subject, turn, is_usable),
        };
        PickedUpstream { upstream: part.upstream, key: part.hash.as_ref().and_then(|by| by.key(subject)) }
    }

    /// The upstream of this subject among several. One that has no usable server gives its share to the others, as their
    /// weights ask; if none has, all are asked, as if all had. `turn` is the next number of this choice's
    /// [`base::random::EvenNumbers`], and is not taken if the subject keeps its upstream.
    fn part(
        &self,
        subject: &impl Subject,
        turn: impl FnOnce(ChoiceId) -> u64,
        is_usable: impl Fn(UpstreamId) -> bool,
    ) -> &UpstreamShare {
        let is_any = self.parts.iter().any(|part| part.weight > 0 && is_usable(part.upstream));
        let usable = || self.parts.iter().filter(|part| !is_any || is_usable(part.upstream));
        let key = self.sticky.as_ref().and_then(|sticky| sticky.key(subject));
        let part = match key {
            Some(key) => rendezvous::owner(key, usable().map(|part| (part, part.number, part.weight))),
            None => drawn(turn(self.id), usable),
        };
        part.unwrap_or(&self.parts[0])
    }
}

/// The part in which a point lies that says how far along all weights it is.
fn drawn<'p, I: Iterator<Item = &'p UpstreamShare>>(
    point: u64,
    parts: impl Fn() -> I,
) -> Option<&'p UpstreamShare> {
    let total: u64 = parts().map(|part| u64::from(part.weight)).sum();
    // Rounded down, so that it is below the total.
    let mut left = ((u128::from(point) * u128::from(total)) >> 64) as u64;
    parts().find(|part| match left.checked_sub(u64::from(part.weight)) {
        None => true,
        Some(behind) => {
            left = behind;
            false
        }
    })
}

/// A dimension that a choice stays for. Unlike keys of limits it is the same in every process, so that all nodes of a fleet
/// choose alike.
#[derive(Clone, Debug)]
pub struct Affinity {
    by: Dimension,
    keys: KeyMaker,
}

impl Affinity {
    /// Callers are told apart by this dimension; an IPv6 address counts with so many bits.
    pub fn new(by: Dimension, ipv6_prefix: u8) -> Affinity {
        // Without the process's salt, so that every process finds the same numbers.
        let keys = KeyMaker::new(&[0; 16], "", 1, std::slice::from_ref(&by), Missing::Skip, ipv6_prefix);
        Affinity { by, keys }
    }

    /// The number of a subject's value; `None` if it has none, or several that differ.
    pub fn key(&self, subject: &impl Subject) -> Option<u64> {
        let values = self.keys.encode(subject).ok()?;
        Some(self.keys.key(0, &values).high())
    }

    fn claim(&self) -> Option<&str> {
        match &self.by {
            Dimension::Claim(name) => Some(name),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::random::EvenNumbers;

    fn parts(weights: &[u32]) -> Vec<UpstreamShare> {
        let part = |(upstream, &weight)| UpstreamShare {
            upstream: UpstreamId::new(upstream),
            weight,
            number: upstream as u64,
            hash: None,
        };
        weights.iter().enumerate().map(part).collect()
    }

    #[test]
    fn a_mirror_has_exactly_its_share() {
        for (share_ppm, copied) in [(0, 0), (1_000, 10), (5_000, 50), (100_000, 1_000), (1_000_000, 10_000)] {
            let mirror = Mirror {
                upstream: UpstreamId::new(0),
                name: "m".into(),
                share_ppm,
                body_bytes_max: 0,
                id: ChoiceId::new(0),
            };
            for seed in [0, 7, u64::MAX / 3] {
                let turns = EvenNumbers::new(seed);
                let count = (0..10_000).filter(|_| mirror.is_chosen(turns.next())).count();
                assert!(count.abs_diff(copied) <= 3, "{share_ppm}: {count}");
            }
        }
    }

    #[test]
    fn turns_are_shared_as_the_weights_ask_whoever_takes_them() {
        for weights in [&[95, 5][..], &[1, 1], &[999, 1], &[50, 30, 20], &[1, 0, 2]] {
            let parts = parts(weights);
            let total: u32 = weights.iter().sum();
            // Clients that take every first, second … seventh turn, from anywhere on.
            for (step, seed) in (1..=7).flat_map(|step| [0, 12_345, u64::MAX / 3].map(|seed| (step, seed))) {
                let turns = EvenNumbers::new(seed);
                let mut taken = vec![0_u32; weights.len()];
                for turn in 0..2_000 * step {
                    let point = turns.next();
                    if turn % step == 0 {
                        taken[drawn(point, || parts.iter()).expect("one has a weight").upstream.index()] += 1;
                    }
                }
                for (taken, weight) in taken.iter().zip(weights) {
                    let asked = 2_000.0 * f64::from(*weight) / f64::from(total);
                    let off = f64::from(*taken) - asked;
                    assert!(off.abs() <= 10.0, "{weights:?} by {step}: {taken} of 2000");
                }
            }
        }
    }
}
