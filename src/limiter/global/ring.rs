//! Consistent hashing over independent servers (Karger et al. 1997): every server has points on a ring in proportion to
//! its weight, and a key belongs to the next point. A new server takes its part evenly from all others, and no key moves
//! between those.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use limit::Key;

base::id! {
    /// A server of a ring: its position among those that this ring was made of.
    RingServer
}

#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// Points in rising order, each with the index of its server.
    points: Box<[(u64, u16)]>,
}

impl Ring {
    /// A ring of servers by name and weight. A server's points depend on its name alone, so that it keeps them when
    /// others come or go.
    pub(super) fn new<'n>(servers: impl IntoIterator<Item = (&'n str, u32)>) -> Ring {
        let mut points = Vec::new();
        for (index, (name, weight)) in servers.into_iter().enumerate() {
            let index = u16::try_from(index).unwrap_or(u16::MAX);
            for point in 0..u64::from(weight) * POINTS {
                let mut hasher = SipHasher13::new();
                hasher.write(name.as_bytes());
                hasher.write_u64(point);
                points.push((hasher.finish(), index));
            }
        }
        points.sort_unstable();
        Ring { points: points.into() }
    }

    /// The server of a key. A key is its own place on the ring, because it is a hash already. The ring has at least one
    /// point.
    #[inline]
    pub(super) fn server(&self, key: Key) -> RingServer {
        let at = key.high();
        let next = self.points.partition_point(|(point, _)| *point < at);
        let (_, server) = self.points.get(next).unwrap_or(&self.points[0]);
        RingServer::new(usize::from(*server))
    }
}

/// Points of a server of weight 1: enough that the parts of two such servers differ by a few percent only.
const POINTS: u64 = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, prop_assert, proptest};

    use super::*;

    const KEYS: usize = 4_000;

    fn keys() -> impl Iterator<Item = Key> {
        (0..KEYS as u64).map(|number| {
            let mut hasher = SipHasher13::new_with_keys(1, 2);
            hasher.write_u64(number);
            Key::new(u128::from(hasher.finish()) << 64)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn one_server_more_takes_its_part_and_moves_nothing_else(servers in 1_usize..20, seed in 0_u32..1_000) {
            let names: Vec<String> = (0..=servers).map(|server| format!("redis-{seed}-{server}:6379")).collect();
            let ring = |count: usize| Ring::new(names[..count].iter().map(|name| (name.as_str(), 1)));
            let (before, after) = (ring(servers), ring(servers + 1));
            let moved = keys().filter(|key| before.server(*key) != after.server(*key));
            let mut count = 0;
            for key in moved {
                prop_assert!(after.server(key).index() == servers, "a key moved between servers that stayed");
                count += 1;
            }
            let part = count as f64 / KEYS as f64 * (servers + 1) as f64;
            prop_assert!((0.6..1.5).contains(&part), "{part} of an even part moved");
        }
    }

    #[test]
    fn keys_are_shared_by_weight() {
        let ring = Ring::new([("a:6379", 1), ("b:6379", 2), ("c:6379", 1)]);
        let mut counts = [0.0; 3];
        keys().for_each(|key| counts[ring.server(key).index()] += 1.0 / KEYS as f64);
        for (share, expected) in counts.iter().zip([0.25, 0.5, 0.25]) {
            assert!((share - expected).abs() < 0.08, "{counts:?}");
        }
    }
}
