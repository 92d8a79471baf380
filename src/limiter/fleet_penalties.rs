//! Penalties over a fleet: nodes count a client's denials together, and a penalty that begins on one node holds on all.
//!
//! No request waits for it. Each node decides by the records in its own table and gathers what it has denied; a few times a
//! second [`PenaltyExchange::turn`] tells Redis (`lua/penalties.lua`) and hears what the fleet knows of these clients, and
//! of penalties that began elsewhere. While Redis is away each node has its own count. Denials whose report failed are not
//! told again, because it may have arrived; a penalty is, for as long as it lasts.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::Value;

use crate::Limiter;
use crate::global::{SharedValueError, SharedValues};
use crate::local::Table;
use base::clock;
use limit::{FleetRecord, Key, Penalty, PenaltyCheck};

/// What this node has denied and not reported yet.
#[derive(Debug, Default)]
pub(crate) struct FleetPenalties(Mutex<ReportQueue>);

/// Clients that were denied, the longest unreported first.
#[derive(Debug, Default)]
struct ReportQueue {
    denials: HashMap<Key, Denials>,
    order: VecDeque<Key>,
}

/// The denials of one client since the last report.
#[derive(Clone, Copy, Debug)]
struct Denials {
    rule: Penalty,
    count: u32,
    told_ns: u64,
}

/// What one client's report says: its denials, and of the node's own record what is left of the penalty, milliseconds, and its
/// length, seconds.
type Report = (Key, Denials, [u64; 2]);

impl FleetPenalties {
    /// Adds a denial of a client that was told to wait `told_ns`.
    pub(crate) fn add(&self, penalty: &PenaltyCheck, told_ns: u64) {
        self.queue().add(penalty.key, Denials { rule: penalty.rule, count: 1, told_ns });
    }

    fn queue(&self) -> MutexGuard<'_, ReportQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out so many clients at most, without those that there is nothing to tell of.
    fn take(&self, table: &Table, now_ns: u64) -> Vec<Report> {
        let mut queue = self.queue();
        let count = queue.order.len().min(REPORTS_MAX);
        let keys: Vec<Key> = queue.order.drain(..count).collect();
        let taken = keys.into_iter().filter_map(|key| Some((key, queue.denials.remove(&key)?)));
        let reports = taken.map(|(key, denials)| {
            let record = table.penalty_record(key).unwrap_or_default();
            (key, denials, [record.wait_ns(now_ns) / MS_NS, record.length_seconds()])
        });
        reports.filter(|(_, denials, [left_ms, _])| denials.count > 0 || *left_ms > 0).collect()
    }

    /// Puts back penalties that could not be told.
    fn put_back(&self, reports: &[Report]) {
        let mut queue = self.queue();
        for (key, denials, _) in reports.iter().filter(|(_, _, [left_ms, _])| *left_ms > 0) {
            queue.add(*key, Denials { count: 0, ..*denials });
        }
    }
}

impl ReportQueue {
    fn add(&mut self, key: Key, denials: Denials) {
        if let Some(known) = self.denials.get_mut(&key) {
            let count = known.count.saturating_add(denials.count);
            // The first wait is that of the limit; later ones may be those of the penalty that it began.
            *known = Denials { count, told_ns: known.told_ns, ..denials };
        } else if self.order.len() < UNREPORTED_MAX {
            self.denials.insert(key, denials);
            self.order.push_back(key);
        }
    }
}

/// Exchanges penalties with the fleet.
pub struct PenaltyExchange {
    limiter: Arc<Limiter>,
    values: SharedValues,
    /// The last penalty that was heard of, as Redis numbers them.
    heard: i64,
}

impl PenaltyExchange {
    /// Of this limiter, with the values of its fleet.
    pub fn new(limiter: &Arc<Limiter>, values: SharedValues) -> PenaltyExchange {
        PenaltyExchange { limiter: Arc::clone(limiter), values, heard: 0 }
    }

    /// Tells the fleet whom this node has denied, and takes over the penalties that it has. Call it a few times a second.
    ///
    /// # Errors
    /// If Redis does not answer, or refuses. Then this node's own count stays.
    pub async fn turn(&mut self) -> Result<(), SharedValueError> {
        let Limiter { table, shared: Some(shared), .. } = &*self.limiter else { return Ok(()) };
        if !shared.fleet.has_penalties.load(Ordering::Relaxed) {
            return Ok(());
        }
        for _ in 0..CALLS_MAX {
            let reports = shared.penalties.take(table, clock::now_ns());
            let names = reports.iter().map(|(key, ..)| format!("penalty:{:032x}", key.bits()));
            let names: Vec<String> = std::iter::once("penalties".to_owned()).chain(names).collect();
            let numbers = [self.heard, TOLD_MAX, KEPT_MAX].map(|number| number.to_string().into_bytes());
            let arguments: Vec<Vec<u8>> = numbers.into_iter().chain(reports.iter().map(report)).collect();
            let answer = self.values.run(SCRIPT, &names, &arguments).await;
            let answer = answer.inspect_err(|_| shared.penalties.put_back(&reports))?;
            let now_ns = clock::now_ns();
            if let Value::Array(answer) = answer
                && let [Value::Int(heard), Value::BulkString(clients)] = &answer[..]
            {
                self.heard = *heard;
                for client in clients.as_chunks().0 {
                    let known = record_of(client);
                    table.change_penalty(key_of(client), now_ns, |record| record.joined(&known, now_ns));
                }
            }
            if reports.len() < REPORTS_MAX {
                break;
            }
        }
        Ok(())
    }
}

/// What lua/penalties.lua takes for one client.
fn report((key, denials, [left_ms, length_seconds]): &Report) -> Vec<u8> {
    let Denials { rule, count, told_ns } = denials;
    // At least a second, and whole ones, as a node reckons by itself.
    let told_seconds = told_ns.div_ceil(1_000 * MS_NS).max(1);
    let rule = [
        rule.after().into(),
        rule.within_ns().div_ceil(MS_NS),
        rule.factor().into(),
        rule.max_seconds().into(),
    ];
    let numbers = [u64::from(*count), told_seconds, *left_ms, *length_seconds].into_iter().chain(rule);
    let numbers = numbers.flat_map(|number| (number as f64).to_le_bytes());
    key.bits().to_be_bytes().into_iter().chain(numbers).collect()
}

fn key_of(client: &[u8; CLIENT_BYTES]) -> Key {
    let (key, _) = client.split_first_chunk().expect("a client has 64 bytes");
    Key::new(u128::from_be_bytes(*key))
}

fn record_of(client: &[u8; CLIENT_BYTES]) -> FleetRecord {
    let (numbers, _) = client[16..].as_chunks();
    // A number below 0 becomes 0.
    let number = |index: usize| numbers.get(index).map_or(0, |bytes| f64::from_le_bytes(*bytes) as u64);
    FleetRecord {
        quiet_ms: number(0),
        age_ms: number(1),
        left_ms: number(2),
        length_seconds: number(3),
        count: number(4),
        within_ms: number(5),
    }
}

const SCRIPT: &str = include_str!("../../lua/penalties.lua");
/// Clients that one call reports, and calls that follow each other if there are more.
const REPORTS_MAX: usize = 256;
const CALLS_MAX: usize = 4;
/// Clients that wait to be reported. The denials of others count on this node only.
const UNREPORTED_MAX: usize = 16_384;
/// Penalties of other nodes that one answer tells.
const TOLD_MAX: i64 = 512;
/// Penalties that Redis keeps for nodes that start.
const KEPT_MAX: i64 = 4_096;
/// What the answer says of one client.
const CLIENT_BYTES: usize = 64;
const MS_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 3_600_000_000_000;

    #[test]
    fn clients_without_end_wait_in_a_bounded_queue_the_oldest_first() {
        let (penalties, table) = (FleetPenalties::default(), Table::with_memory(1 << 16));
        let rule = Penalty::new(2, 1_000 * MS_NS, 2, 60);
        let denial = Denials { rule, count: 1, told_ns: 1 };
        let add = |number: usize| penalties.queue().add(Key::new(number as u128), denial);
        (0..2 * UNREPORTED_MAX).for_each(add);
        add(0);
        let waiting = |queue: &ReportQueue| [queue.order.len(), queue.denials.len()];
        assert_eq!(waiting(&penalties.queue()), [UNREPORTED_MAX; 2]);
        let reports = penalties.take(&table, NOW);
        let counts: Vec<_> = reports.iter().map(|(key, denials, _)| (key.bits(), denials.count)).collect();
        assert_eq!((counts.len(), counts[0], counts[1]), (REPORTS_MAX, (0, 2), (1, 1)));
        assert_eq!(penalties.take(&table, NOW)[0].0, Key::new(REPORTS_MAX as u128));
    }

    #[test]
    fn a_report_that_fails_is_told_again_as_far_as_it_is_a_penalty() {
        let (penalties, table) = (FleetPenalties::default(), Table::with_memory(1 << 16));
        let rule = Penalty::new(0, 1_000 * MS_NS, 2, 60);
        table.change_penalty(Key::new(1), NOW, |record| record.denied(&rule, 5_000 * MS_NS, NOW));
        for key in [1, 2] {
            penalties.queue().add(Key::new(key), Denials { rule, count: 9, told_ns: 1 });
        }
        let reports = penalties.take(&table, NOW);
        penalties.put_back(&reports);
        let again = penalties.take(&table, NOW);
        assert_eq!((reports.len(), again.len()), (2, 1));
        assert_eq!((again[0].0, again[0].1.count, again[0].2[1]), (Key::new(1), 0, 10));
        penalties.put_back(&again);
        assert!(penalties.take(&table, NOW + 20_000 * MS_NS).is_empty(), "it is over by then");
    }
}
