//! What a table and those of the processes beside it tell each other of what was spent, in the time of an upgrade. Numbers are
//! little-endian.

use std::io::{self, Read, Write};

use super::handover::{self, HandoverError, get, put};
use super::journal::{KeySpend, Relative};
use super::{StateLocation, Table};
use limit::{Algorithm, Charge, Quota, State};

impl Table {
    /// Notes from now on what is spent, for [`Table::tell_spent`].
    pub fn open_journal(&self, whom: Relative) {
        self.journal.open(whom);
    }

    /// Notes no more for this relative, and forgets what it was not told.
    pub fn close_journal(&self, whom: Relative) {
        self.journal.close(whom);
    }

    /// Tells a relative what was spent since the last time, for its [`Table::hear_spent`]. Writes nothing if that is
    /// nothing.
    ///
    /// # Errors
    /// If `out` takes no more.
    pub fn tell_spent(&self, whom: Relative, out: &mut impl Write) -> io::Result<()> {
        for spent in self.journal.take(whom).filter(|spent| !spent.is_empty()) {
            put(out, spent.len() as u64)?;
            for ((key, _), KeySpend { quota, cost }) in spent {
                handover::write_quota(out, &quota)?;
                handover::put_key(out, key)?;
                put(out, cost as u64)?;
            }
        }
        out.flush()
    }

    /// Counts here what a relative tells next. Waits for it.
    ///
    /// # Errors
    /// If it tells no more, or nonsense.
    pub fn hear_spent(
        &self,
        from: Relative,
        input: &mut impl Read,
        now_ns: impl Fn() -> u64,
    ) -> Result<(), HandoverError> {
        for _ in 0..get(input)? {
            let quota = handover::read_quota(input)?;
            let key = handover::get_key(input)?;
            let cost = get(input)? as i64;
            let charge = Charge { cost: cost.unsigned_abs(), ..Charge::one(key, quota) };
            self.count_elsewhere(&charge, cost > 0, now_ns());
            self.journal.pass_on(from, &charge, cost > 0);
        }
        Ok(())
    }

    /// Counts what was spent, or given back, in the other process.
    fn count_elsewhere(&self, charge: &Charge, is_spent: bool, now_ns: u64) {
        if !is_spent {
            // Not to a log, because that finds what is given back by its time, which is not told.
            if charge.quota.algorithm() != Algorithm::SlidingLog {
                let give_back = |state: State, quota: &Quota| state.give_back(quota, charge.cost, now_ns);
                self.change(charge, StateLocation::Slot, now_ns, give_back);
            }
            return;
        }
        let taken = self.take_silently(charge, now_ns);
        if !taken.outcome.is_admitted() {
            // It is owed, because it was admitted.
            self.debit_silently(charge, taken.place, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::super::journal::RELATIVES;
    use super::*;
    use limit::{Key, Quota};

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 7_200 * SECOND;
    const MEMORY: usize = 1 << 20;

    fn charge(algorithm: Algorithm, cost: u64) -> Charge {
        let whole = |number| NonZeroU64::new(number).expect("tests give no zero");
        let quota = Quota::new(algorithm, whole(100), whole(3_600 * SECOND), whole(100));
        Charge { cost, ..Charge::one(Key::new(0x9e37_79b9_7f4a_7c15 << 64 | 77), quota) }
    }

    fn told(by: &Table, whom: Relative) -> Vec<u8> {
        let mut told = Vec::new();
        by.tell_spent(whom, &mut told).expect("memory takes it");
        told
    }

    fn hear(table: &Table, from: Relative, mut told: &[u8]) {
        while !told.is_empty() {
            table.hear_spent(from, &mut told, || NOW).expect("it was told whole");
        }
    }

    /// Both of a pair tell what they have spent.
    fn talk(old: &Table, new: &Table) {
        let (of_old, of_new) = (told(old, Relative::Successor), told(new, Relative::Predecessor));
        hear(new, Relative::Predecessor, &of_old);
        hear(old, Relative::Successor, &of_new);
    }

    fn pair() -> [Table; 2] {
        let [old, new] = [Table::with_memory(MEMORY), Table::with_memory(MEMORY)];
        old.open_journal(Relative::Successor);
        new.open_journal(Relative::Predecessor);
        [old, new]
    }

    fn admits(table: &Table, algorithm: Algorithm, most: usize) -> usize {
        (0..most).filter(|_| table.take(&charge(algorithm, 1), NOW).outcome.is_admitted()).count()
    }

    #[test]
    fn two_processes_admit_one_limit_between_them() {
        for algorithm in Algorithm::ALL.into_iter().filter(|one| *one != Algorithm::Concurrency) {
            let [old, new] = pair();
            let mut admitted = 0;
            for _ in 0..50 {
                admitted += admits(&old, algorithm, 3);
                talk(&old, &new);
                admitted += admits(&new, algorithm, 2);
                talk(&old, &new);
            }
            let alone = admits(&Table::with_memory(MEMORY), algorithm, 200);
            assert_eq!(admitted, alone, "{algorithm:?}");
        }
    }

    #[test]
    fn what_both_admitted_at_once_is_owed() {
        for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let [old, new] = pair();
            assert_eq!(admits(&old, algorithm, 80) + admits(&new, algorithm, 80), 160);
            talk(&old, &new);
            assert_eq!(admits(&old, algorithm, 1) + admits(&new, algorithm, 1), 0, "{algorithm:?}");
        }
    }

    #[test]
    fn a_row_of_processes_admits_one_limit_between_them() {
        let [first, second] = pair();
        let third = Table::with_memory(MEMORY);
        second.open_journal(Relative::Successor);
        third.open_journal(Relative::Predecessor);
        let mut admitted = 0;
        for _ in 0..50 {
            for table in [&first, &second, &third] {
                admitted += admits(table, Algorithm::TokenBucket, 1);
                talk(&first, &second);
                talk(&second, &third);
                talk(&first, &second);
            }
        }
        assert_eq!(admitted, 100);
    }

    #[test]
    fn what_is_given_back_or_owed_later_is_told_too() {
        let [old, new] = pair();
        let ten = charge(Algorithm::TokenBucket, 10);
        let place = old.take(&ten, NOW).place;
        talk(&old, &new);
        old.give_back(&ten, place, NOW);
        old.debit(&charge(Algorithm::TokenBucket, 3), place, NOW);
        talk(&old, &new);
        assert_eq!(admits(&new, Algorithm::TokenBucket, 200), 97);
    }

    #[test]
    fn what_one_remembers_the_other_does_too() {
        let whole = |number| NonZeroU64::new(number).expect("tests give no zero");
        let quota = Quota::new(Algorithm::TokenBucket, whole(1), whole(3_600 * SECOND), whole(1));
        let retry = Charge::one(Key::new(0x51ed_270b << 90 | 9), quota);
        let [old, new] = pair();
        for [one, other] in [[&old, &new], [&new, &old]] {
            let retry =
                Charge { key: Key::new(retry.key.bits() + u128::from(std::ptr::eq(one, &old))), ..retry };
            one.remember(&retry, NOW);
            talk(&old, &new);
            assert!(other.is_remembered(&retry, NOW + SECOND));
            assert!(!other.is_remembered(&retry, NOW + 3_601 * SECOND));
        }
    }

    #[test]
    fn what_was_heard_is_not_told_back() {
        let [old, new] = pair();
        admits(&old, Algorithm::TokenBucket, 5);
        talk(&old, &new);
        assert!(told(&new, Relative::Predecessor).is_empty());
    }

    #[test]
    fn a_closed_journal_keeps_nothing() {
        let table = Table::with_memory(MEMORY);
        admits(&table, Algorithm::TokenBucket, 5);
        table.open_journal(Relative::Successor);
        admits(&table, Algorithm::TokenBucket, 5);
        table.close_journal(Relative::Successor);
        admits(&table, Algorithm::TokenBucket, 5);
        assert!(RELATIVES.iter().all(|whom| told(&table, *whom).is_empty()));
    }

    #[test]
    fn permits_stay_where_they_are() {
        let [old, new] = pair();
        admits(&old, Algorithm::Concurrency, 100);
        talk(&old, &new);
        assert_eq!(admits(&new, Algorithm::Concurrency, 1), 1);
    }
}
