//! The server that a key belongs to, so that a client keeps its server: rendezvous hashing, with bounded loads (Mirrokni,
//! Thorup and Zadimoghaddam 2018).
//!
//! A worker knows its own requests alone, as every balance does, and bounds what it sends.

use super::weights::Weights;
use crate::rendezvous;

/// The server of this key. One that would have more than 1.25 times its fair share of the requests on their way is passed
/// over: the key goes where it would belong without it.
pub(super) fn pick(
    weights: &Weights,
    numbers: &[u64],
    key: u64,
    fit: impl Fn(usize) -> bool,
    load: impl Fn(usize) -> u32,
) -> usize {
    let all = || (0..weights.each.len()).filter(|&index| fit(index));
    let requests = 1 + all().map(|index| i64::from(load(index))).sum::<i64>();
    let total: i64 = all().map(|index| weights.each[index]).sum();
    // The bound is rounded up, so that there always is a server below it.
    let has_room = |index: &usize| {
        let load = load(*index);
        load < LOAD_FREE || i64::from(load) * total * 4 < requests * weights.each[*index] * 5
    };
    let weight = |index: usize| u32::try_from(weights.each[index]).unwrap_or(u32::MAX);
    let places = all().filter(has_room).map(|index| (index, numbers[index], weight(index)));
    rendezvous::owner(key, places).unwrap_or(0)
}

/// Each server as a number, which is its own wherever it stands in the list. Several addresses of one name are told apart
/// by their labels.
pub(super) fn numbers(servers: &[(&str, u32)]) -> Box<[u64]> {
    let number = |(index, (label, _)): (usize, &(&str, u32))| {
        // One that is listed twice is two.
        let earlier = servers[..index].iter().filter(|(other, _)| other == label).count() as u64;
        rendezvous::number(&[label.as_bytes(), &earlier.to_le_bytes()])
    };
    servers.iter().enumerate().map(number).collect()
}

/// So few requests overload no server: a client that sends a few at once keeps its server though nobody else is there.
const LOAD_FREE: u32 = 4;
