//! Penalty records of clients that were denied, in slots of the table.
//!
//! A slot with a record has a fingerprint that no quota has. It is evicted only after its client is forgiven, so that a
//! penalised client cannot get away by filling the table. If there is no room for a new record, the client is limited but
//! not penalised.
//!
//! Most clients have no penalty, and finding that out reads no slot: an array indexed by a hash of the key holds until
//! when any key of that place is penalised.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Table;
use limit::penalty::Record;
use limit::{Key, Quota};

/// For each place, until when any of its keys is penalised, nanoseconds. Keys share places, so the time may be another
/// key's; a time that is over proves that no key of the place is penalised.
#[derive(Debug)]
pub(super) struct PenaltyFilter(Box<[AtomicU64]>);

impl Default for PenaltyFilter {
    fn default() -> PenaltyFilter {
        PenaltyFilter((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl PenaltyFilter {
    /// Notes what a successor's table is told of a key by its lowest bits.
    pub(super) fn note(&self, low_bits: u64, until_ns: u64) {
        self.0[low_bits as usize % PLACES].fetch_max(until_ns, Ordering::Relaxed);
    }

    #[inline]
    fn of(&self, key: Key) -> &AtomicU64 {
        &self.0[key.low() as usize % PLACES]
    }
}

impl Table {
    /// Nanoseconds until this key's penalty ends; 0: it has none.
    #[inline]
    pub fn penalty_ns(&self, key: Key, now_ns: u64) -> u64 {
        if self.penalised.of(key).load(Ordering::Relaxed) <= now_ns {
            return 0;
        }
        self.penalty_record(key).map_or(0, |record| record.wait_ns(now_ns))
    }

    /// What this node knows of a client's denials.
    pub(crate) fn penalty_record(&self, key: Key) -> Option<Record> {
        let slot = self.slots.find(key).filter(|slot| slot.fingerprint() == Quota::NO_FINGERPRINT)?;
        Some(Record::from_words(slot.state()))
    }

    /// Changes what this node knows of a client's denials. Returns for how long it is penalised, nanoseconds; 0: not at all.
    pub(crate) fn change_penalty(&self, key: Key, now_ns: u64, change: impl FnOnce(Record) -> Record) -> u64 {
        let claim = || self.slots.find_or_claim(key, Quota::NO_FINGERPRINT, self.is_whole(None, now_ns));
        let Some(mut slot) = self.slots.find(key).or_else(claim) else { return 0 };
        let record = change(Record::from_words(slot.state()));
        slot.set_state(record.into_words(), Quota::NO_FINGERPRINT);
        let wait_ns = record.wait_ns(now_ns);
        if wait_ns > 0 {
            self.penalised.of(key).fetch_max(now_ns.saturating_add(wait_ns), Ordering::Relaxed);
        }
        wait_ns
    }
}

/// 32 KiB. With a hundred clients penalised at a time, one other client in forty shares a place with one and has its
/// slot read in vain.
const PLACES: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;
    use limit::{Algorithm, Charge, Penalty};
    use std::num::NonZeroU64;

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 3_600 * SECOND;

    fn key(number: u64) -> Key {
        let word = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Key::new(
            u128::from(word) << 64 | u128::from(word.rotate_left(23).wrapping_mul(0x94d0_49bb_1331_11eb)),
        )
    }

    fn charge(number: u64) -> Charge {
        let whole = |number| NonZeroU64::new(number).expect("tests give no zero");
        let quota = Quota::new(Algorithm::TokenBucket, whole(1), whole(3_600 * SECOND), whole(1));
        Charge::one(key(number), quota)
    }

    fn penalise(table: &Table, key: Key) -> u64 {
        let rule = Penalty::new(2, SECOND, 2, 60);
        (0..3)
            .map(|_| table.change_penalty(key, NOW, |record| record.denied(&rule, 10 * SECOND, NOW)))
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn a_penalty_is_its_keys_own_and_ends() {
        let table = Table::with_memory(1 << 16);
        let wait_ns = penalise(&table, key(1));
        assert_eq!(wait_ns / SECOND, 20);
        assert_eq!(table.penalty_ns(key(1), NOW), wait_ns);
        assert_eq!((table.penalty_ns(key(2), NOW), table.penalty_ns(key(1), NOW + wait_ns)), (0, 0));
    }

    #[test]
    fn a_full_table_ends_no_penalty() {
        let table = Table::with_memory(1 << 14);
        table.declare([charge(0).quota]);
        for number in 0..20 {
            assert!(penalise(&table, key(number)) > 0);
        }
        for number in 1_000..20_000 {
            table.take(&charge(number), NOW);
        }
        assert!(table.stats().overflow_decisions > 0, "the table is full");
        assert!((0..20).all(|number| table.penalty_ns(key(number), NOW) > 0));
        assert_eq!(penalise(&table, key(30)), 0, "no room, no record");
        // Once their penalties are over, their slots can be evicted.
        let (later, before) = (NOW + 200 * SECOND, table.stats().evictions);
        for number in 20_000..40_000 {
            table.take(&charge(number), later);
        }
        assert_eq!(table.stats().evictions - before, 20);
    }
}
