//! The server that a key belongs to, so that a client keeps its server: rendezvous hashing, with bounded loads (Mirrokni,
//! Thorup and Zadimoghaddam 2018).
//!
//! A worker knows its own requests alone, as every balance does, and bounds what it sends.

use std::collections::HashMap;

use super::weights::{FIRST, Weights};
use crate::ids::ServerIndex;
use base::ids::IdVec;
use base::rendezvous;

/// The server of this key. One that would have more than 1.25 times its fair share of the requests on their way is passed
/// over: the key goes where it would belong without it.
pub(super) fn pick(
    weights: &Weights,
    numbers: &IdVec<ServerIndex, u64>,
    key: u64,
    fit: impl Fn(ServerIndex) -> bool,
    load: impl Fn(ServerIndex) -> u32,
) -> ServerIndex {
    let all = || weights.each.ids().filter(|&index| fit(index));
    let requests = 1 + all().map(|index| i64::from(load(index))).sum::<i64>();
    let total: i64 = all().map(|index| weights.each[index]).sum();
    // The bound is rounded up, so that there always is a server below it.
    let has_room = |index: &ServerIndex| {
        let load = load(*index);
        load < LOAD_FREE || i64::from(load) * total * 4 < requests * weights.each[*index] * 5
    };
    let weight = |index: ServerIndex| u32::try_from(weights.each[index]).unwrap_or(u32::MAX);
    let places = all().filter(has_room).map(|index| (index, numbers[index], weight(index)));
    rendezvous::owner(key, places).unwrap_or(FIRST)
}

/// Each server as a number, which is its own wherever it stands in the list. Several addresses of one name are told apart
/// by their labels.
pub(super) fn numbers(servers: &[(&str, u32)]) -> IdVec<ServerIndex, u64> {
    // None is compared with all others, because a worker counts them at each change of a name, which may have many.
    let mut seen: HashMap<&str, u64> = HashMap::with_capacity(servers.len());
    let mut numbers = Vec::with_capacity(servers.len());
    for (label, _) in servers {
        // One that is listed twice is two.
        let earlier = seen.entry(label).or_default();
        numbers.push(rendezvous::number(&[label.as_bytes(), &earlier.to_le_bytes()]));
        *earlier += 1;
    }
    numbers.into()
}

/// So few requests overload no server: a client that sends a few at once keeps its server though nobody else is there.
const LOAD_FREE: u32 = 4;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_servers_number_is_its_own_wherever_it_stands() {
        let of =
            |labels: &[&str]| numbers(&labels.iter().map(|label| (*label, 1)).collect::<Vec<_>>()).to_vec();
        let [a, b, again] = of(&["a", "b", "a"])[..] else { panic!("three numbers") };
        assert_eq!(of(&["b", "a"])[..], [b, a]);
        assert_eq!(of(&["a", "c", "a", "b"])[2..], [again, b]);
        assert_ne!(a, again, "one that is listed twice is two");
    }

    #[test]
    fn many_servers_are_numbered_in_the_time_of_a_look_at_each() {
        let labels: Vec<String> =
            (0..200_000).map(|index| format!("orders.internal:8080 ({index})")).collect();
        let servers: Vec<_> = labels.iter().map(|label| (label.as_str(), 1)).collect();
        let began = Instant::now();
        let distinct: HashSet<u64> = numbers(&servers).iter().copied().collect();
        assert_eq!(distinct.len(), servers.len());
        // So long is enough, because only a comparison of each with all others would take minutes.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
