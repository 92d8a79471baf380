//! Penalties over a fleet: nodes count a client's denials together, and a penalty that begins on one node holds on all.
//!
//! No request waits for it. Each node decides by the records in its own table and gathers what it has denied; a few times a
//! second [`Limiter::exchange_penalties`] tells Redis (`lua/penalties.lua`) and hears what the fleet knows of these clients, and
//! of penalties that began elsewhere. While Redis is away each node has its own count. Denials whose report failed are not
//! told again, because it may have arrived; a penalty is, for as long as it lasts.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::Value;

use crate::Limiter;
use crate::global::{SharedValueError, SharedValues};
use crate::local::Table;
use base::clock;
use limit::{FleetRecord, Key, Penalty, PenaltyCheck};

/// What this node has to tell the fleet, and what it has heard.
#[derive(Debug, Default)]
pub(crate) struct FleetPenalties {
    unreported: Mutex<Unreported>,
    /// The last penalty that was heard of, as Redis numbers them.
    heard: AtomicU64,
    is_used: AtomicBool,
}

/// Clients that were denied, the longest unreported first.
#[derive(Debug, Default)]
struct Unreported {
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

impl FleetPenalties {
    fn unreported(&self) -> MutexGuard<'_, Unreported> {
        self.unreported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out so many clients at most, without those that there is nothing to tell of.
    fn take(&self, table: &Table, now_ns: u64) -> Vec<(Key, Denials, [u64; 2])> {
        let mut unreported = self.unreported();
        let count = unreported.order.len().min(REPORTS_MAX);
        let keys: Vec<Key> = unreported.order.drain(..count).collect();
        let taken = keys.into_iter().filter_map(|key| Some((key, unreported.denials.remove(&key)?)));
        let known = taken.map(|(key, denials)| {
            let record = table.penalty_record(key).unwrap_or_default();
            (key, denials, [record.wait_ns(now_ns) / MS_NS, record.length_seconds()])
        });
        known.filter(|(_, denials, [left_ms, _])| denials.count > 0 || *left_ms > 0).collect()
    }
}

impl Unreported {
    fn add(&mut self, key: Key, denials: Denials) {
        if let Some(known) = self.denials.get_mut(&key) {
            let count = known.count.saturating_add(denials.count);
            *known = Denials { count, ..denials };
        } else if self.order.len() < UNREPORTED_MAX {
            self.denials.insert(key, denials);
            self.order.push_back(key);
        }
    }
}

impl Limiter {
    /// Counts a denial of a client that was told to wait `told_ns`, on this node and for the fleet. Returns for how long it is
    /// penalised, nanoseconds; 0: not at all.
    pub(crate) fn note_denial(&self, penalty: &PenaltyCheck, told_ns: u64, now_ns: u64) -> u64 {
        let PenaltyCheck { key, rule, .. } = *penalty;
        if let Some(shared) = &self.shared {
            shared.penalties.unreported().add(key, Denials { rule, count: 1, told_ns });
        }
        self.table.note_denial(key, &rule, told_ns, now_ns)
    }

    /// Says whether any policy has penalties that the fleet shares.
    pub fn share_penalties(&self, is_used: bool) {
        if let Some(shared) = &self.shared {
            shared.penalties.is_used.store(is_used, Ordering::Relaxed);
        }
    }

    /// Tells the fleet whom this node has denied, and takes over the penalties that it has.
    ///
    /// # Errors
    /// If Redis does not answer, or refuses. Then this node's own count stays.
    pub async fn exchange_penalties(&self, values: &SharedValues) -> Result<(), SharedValueError> {
        let Some(penalties) = self.shared.as_ref().map(|shared| &shared.penalties) else { return Ok(()) };
        if !penalties.is_used.load(Ordering::Relaxed) {
            return Ok(());
        }
        for _ in 0..CALLS_MAX {
            let reports = penalties.take(&self.table, clock::now_ns());
            let heard = penalties.heard.load(Ordering::Relaxed);
            let names = reports.iter().map(|(key, ..)| format!("penalty:{:032x}", key.bits()));
            let names: Vec<String> = std::iter::once("penalties".to_owned()).chain(names).collect();
            let numbers = [heard, TOLD_MAX, KEPT_MAX].map(|number| number.to_string().into_bytes());
            let arguments: Vec<Vec<u8>> = numbers.into_iter().chain(reports.iter().map(report)).collect();
            let answer = match values.run(SCRIPT, &names, &arguments).await {
                Ok(answer) => answer,
                Err(error) => {
                    let mut unreported = penalties.unreported();
                    let lasting = reports.iter().filter(|(_, _, [left_ms, _])| *left_ms > 0);
                    lasting
                        .for_each(|(key, denials, _)| unreported.add(*key, Denials { count: 0, ..*denials }));
                    return Err(error);
                }
            };
            let now_ns = clock::now_ns();
            if let Value::Array(answer) = answer
                && let [Value::Int(heard), Value::BulkString(clients)] = &answer[..]
            {
                penalties.heard.store(heard.cast_unsigned(), Ordering::Relaxed);
                clients
                    .as_chunks()
                    .0
                    .iter()
                    .for_each(|client| self.table.join_penalty(key_of(client), &record_of(client), now_ns));
            }
            if reports.len() < REPORTS_MAX {
                break;
            }
        }
        Ok(())
    }
}

/// What lua/penalties.lua takes for one client.
fn report((key, denials, [left_ms, length_seconds]): &(Key, Denials, [u64; 2])) -> Vec<u8> {
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
const TOLD_MAX: u64 = 512;
/// Penalties that Redis keeps for nodes that start.
const KEPT_MAX: u64 = 4_096;
/// What the answer says of one client.
const CLIENT_BYTES: usize = 64;
const MS_NS: u64 = 1_000_000;
