//! What the gateways of a fleet tell each other of counts that they divide: how much is wanted of each. Neither clocks nor
//! names are in it; whoever says nothing new for a while has gone.

use std::collections::HashMap;

use super::fleet_part::{HEARD_NS, Others, Refill};

/// What one gateway tells of one count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The count.
    pub count: u128,
    /// Units a second that are wanted, times 1,024.
    pub demand: u64,
    /// Streams that report buckets of it.
    pub streams: u64,
    /// Units that were left when this was last looked for.
    pub left: u64,
    /// How fast it comes back.
    pub refill: Refill,
}

/// What the other gateways have told. While nothing can be heard nobody grows older, for ten seconds: they still want what
/// they wanted.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    nodes: HashMap<Box<[u8]>, Node>,
    /// When it was last listened.
    listened_ns: u64,
    /// For how long nothing could be heard since something could.
    deaf_ns: u64,
    /// By how much who has told something has not grown older.
    behind_ns: u64,
}

#[derive(Clone, Debug)]
struct Node {
    /// How often it had told something by then.
    number: u64,
    heard_ns: u64,
    told: Vec<Told>,
}

/// What a gateway tells for the `number`th time: of the counts of which most is wanted, if there are too many.
pub fn encode(number: u64, mut told: Vec<Told>) -> Vec<u8> {
    if told.len() > COUNTS_MAX {
        told.sort_unstable_by_key(|told| std::cmp::Reverse(told.demand));
        told.truncate(COUNTS_MAX);
    }
    let mut bytes = number.to_le_bytes().to_vec();
    for Told { count, demand, streams, left, refill } in told {
        bytes.extend_from_slice(&count.to_le_bytes());
        for field in [demand, streams, left, refill.units, refill.period_ns] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
    }
    bytes
}

/// Reads it; `None` if it is something else.
fn decode(bytes: &[u8]) -> Option<(u64, Vec<Told>)> {
    let (number, rows) = bytes.split_first_chunk()?;
    let (rows, rest) = rows.as_chunks::<ROW_BYTES>();
    let told = rows.iter().take(COUNTS_MAX).map(|row| {
        let (count, fields) = row.split_first_chunk()?;
        let (fields, _) = fields.as_chunks::<8>();
        let field = |index: usize| fields.get(index).map(|bytes| u64::from_le_bytes(*bytes));
        Some(Told {
            count: u128::from_le_bytes(*count),
            demand: field(0)?,
            streams: field(1)?,
            left: field(2)?,
            refill: Refill { units: field(3)?, period_ns: field(4)? },
        })
    });
    rest.is_empty().then_some((u64::from_le_bytes(*number), told.collect::<Option<Vec<Told>>>()?))
}

impl Heard {
    /// It was listened, and something could be heard or not, however little there was.
    pub fn listen(&mut self, could_hear: bool, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(std::mem::replace(&mut self.listened_ns, now_ns));
        if could_hear {
            self.deaf_ns = 0;
        } else if self.deaf_ns < DEAF_NS {
            self.deaf_ns += since_ns;
            self.behind_ns += since_ns;
        }
    }

    /// Takes what a gateway tells. What cannot be read is nothing new.
    pub fn hear(&mut self, node: &[u8], bytes: &[u8], now_ns: u64) {
        let Some((number, told)) = decode(bytes) else { return };
        if self.nodes.get(node).is_none_or(|known| known.number != number) {
            let heard_ns = now_ns.saturating_sub(self.behind_ns);
            self.nodes.insert(node.into(), Node { number, heard_ns, told });
        }
    }

    /// What all of them want of each count, and how fast it comes back. Forgets who has told nothing new for a while.
    pub fn others(&mut self, now_ns: u64) -> HashMap<u128, (Others, Refill)> {
        let now_ns = now_ns.saturating_sub(self.behind_ns);
        // What is forgotten stays known as old until Redis forgets it, or it would be new again.
        for node in self.nodes.values_mut().filter(|node| now_ns.saturating_sub(node.heard_ns) >= HEARD_NS) {
            node.told.clear();
        }
        self.nodes.retain(|_, node| now_ns.saturating_sub(node.heard_ns) < KNOWN_NS);
        let mut all: HashMap<u128, (Others, Refill)> = HashMap::new();
        for told in self.nodes.values().flat_map(|node| &node.told) {
            let (others, _) = all.entry(told.count).or_insert_with(|| (Others::default(), told.refill));
            others.demand = others.demand.saturating_add(told.demand);
            others.streams = others.streams.saturating_add(told.streams);
            others.left = others.left.max(told.left);
            others.nodes += 1;
        }
        if all.len() > HEARD_MAX {
            let mut demands: Vec<u64> = all.values().map(|(others, _)| others.demand).collect();
            demands.sort_unstable_by_key(|demand| std::cmp::Reverse(*demand));
            let least = demands[HEARD_MAX];
            all.retain(|_, (others, _)| others.demand > least);
        }
        all
    }
}

/// With [`HEARD_NS`] the ten seconds for which a lease keeps its rate without Redis.
const DEAF_NS: u64 = 10_000_000_000 - HEARD_NS;
/// Counts that one gateway tells of.
const COUNTS_MAX: usize = 128;
/// Counts of all others that are heeded: each is counted here from then on.
const HEARD_MAX: usize = 16_384;
const ROW_BYTES: usize = 16 + 5 * 8;
/// How long one that has gone is known: longer than Redis keeps what it told.
const KNOWN_NS: u64 = 300_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn told(count: u128, demand: u64) -> Told {
        Told { count, demand, streams: 1, left: 7, refill: Refill { units: 100, period_ns: SECOND_NS } }
    }

    #[test]
    fn who_tells_nothing_new_has_gone() {
        let mut heard = Heard::default();
        heard.hear(b"one", &encode(1, vec![told(7, 300)]), 0);
        heard.hear(b"two", &encode(1, vec![told(7, 100), told(8, 5)]), SECOND_NS);
        let demand =
            |heard: &mut Heard, count, now_ns| heard.others(now_ns).get(&count).map(|it| it.0.demand);
        assert_eq!(
            (demand(&mut heard, 7, SECOND_NS), demand(&mut heard, 8, SECOND_NS)),
            (Some(400), Some(5))
        );
        heard.hear(b"one", &encode(1, vec![told(7, 300)]), 2 * SECOND_NS);
        assert_eq!(demand(&mut heard, 7, 2 * SECOND_NS), Some(100));
        heard.hear(b"one", &encode(2, vec![told(7, 200)]), 2 * SECOND_NS);
        assert_eq!(demand(&mut heard, 7, 2 * SECOND_NS), Some(300));
        heard.hear(b"two", b"nonsense and more of it", 2 * SECOND_NS);
        assert_eq!(demand(&mut heard, 8, 4 * SECOND_NS), None);
    }

    #[test]
    fn while_nothing_can_be_heard_all_want_what_they_wanted() {
        let mut heard = Heard::default();
        let wants = |heard: &mut Heard, tenths| {
            let others = heard.others(tenths * SECOND_NS / 10);
            others.get(&7).map_or(0, |(others, _)| others.demand)
        };
        // Two outages: of eight seconds each of them has its own.
        for first in [1_000, 1_200] {
            heard.listen(true, first * SECOND_NS / 10);
            heard.hear(b"one", &encode(first, vec![told(7, 300)]), first * SECOND_NS / 10);
            for tenths in first..first + 130 {
                heard.listen(false, tenths * SECOND_NS / 10);
                let is_held = tenths < first + 100;
                assert_eq!(wants(&mut heard, tenths) > 0, is_held, "{} tenths of a second", tenths - first);
            }
        }
        // Of one that is over before nothing is left: who has gone meanwhile goes as late as ever.
        heard.listen(true, 200 * SECOND_NS);
        heard.hear(b"one", &encode(1, vec![told(7, 300)]), 200 * SECOND_NS);
        heard.listen(false, 205 * SECOND_NS);
        heard.listen(true, 206 * SECOND_NS);
        assert_eq!([2_060, 2_069, 2_070].map(|tenths| wants(&mut heard, tenths)), [300, 300, 0]);
    }

    #[test]
    fn so_many_counts_are_told_of() {
        let rows = (0..1_000).map(|count| told(count, count as u64)).collect();
        let (_, kept) = decode(&encode(1, rows)).expect("it can be read");
        assert_eq!((kept.len(), kept[0].count), (COUNTS_MAX, 999));
    }

    #[test]
    fn so_many_counts_are_heeded() {
        let mut heard = Heard::default();
        for node in 0_u64..200 {
            let rows =
                (0..COUNTS_MAX as u64).map(|row| told(u128::from(node * 1_000 + row), node * 1_000 + row));
            heard.hear(&node.to_le_bytes(), &encode(1, rows.collect()), 0);
        }
        let all = heard.others(0);
        assert!(all.len() == HEARD_MAX && all.contains_key(&199_127) && !all.contains_key(&127));
    }

    proptest! {
        #[test]
        fn what_is_told_is_read(number: u64, rows in prop::collection::vec((any::<u128>(), any::<[u64; 5]>()), 0..COUNTS_MAX)) {
            let row = |(count, [demand, streams, left, units, period_ns]): (u128, [u64; 5])| {
                Told { count, demand, streams, left, refill: Refill { units, period_ns } }
            };
            let rows: Vec<Told> = rows.into_iter().map(row).collect();
            prop_assert_eq!(decode(&encode(number, rows.clone())), Some((number, rows)));
        }

        #[test]
        fn anything_can_be_read_or_not(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut heard = Heard::default();
            heard.hear(b"one", &bytes, 0);
            heard.others(0);
        }
    }
}
