//! What all workers have counted, until it is written to the database.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::rows::MinuteRows;
use super::{Amount, UnixMinute, UsageRow, UsageSubject};

/// What all workers have counted. Workers come here some times a second, never within a request.
#[derive(Debug)]
pub struct UsageCollector {
    /// Rows of a minute, beside that of the others.
    pub(super) most: usize,
    minutes: Mutex<BTreeMap<UnixMinute, MinuteRows>>,
    /// Decisions that were counted among the others.
    others: AtomicU64,
}

impl UsageCollector {
    /// An empty one, of so many rows a minute.
    pub fn new(most: usize) -> UsageCollector {
        UsageCollector { most, minutes: Mutex::default(), others: AtomicU64::new(0) }
    }

    /// Counts what no worker has decided.
    pub fn count(&self, minute: UnixMinute, who: UsageSubject<'_>, amount: Amount) {
        self.count_in(&mut self.minutes(), minute, who, amount);
    }

    pub(super) fn take_in(&self, counted: &mut Vec<(UnixMinute, MinuteRows)>) {
        let mut minutes = self.minutes();
        for (minute, rows) in counted.drain(..) {
            for (who, amount) in rows.iter() {
                self.count_in(&mut minutes, minute, who, amount);
            }
        }
    }

    fn count_in(
        &self,
        minutes: &mut BTreeMap<UnixMinute, MinuteRows>,
        minute: UnixMinute,
        who: UsageSubject<'_>,
        amount: Amount,
    ) {
        // Bounded, because a clock that jumps about must not make a minute of every request.
        let minute = match minutes.keys().next_back() {
            Some(last) if minutes.len() >= MINUTES_MAX && !minutes.contains_key(&minute) => *last,
            _ => minute,
        };
        let is_other = minutes.entry(minute).or_default().count(who, amount, self.most);
        if is_other {
            self.others.fetch_add(amount.admitted.saturating_add(amount.denied), Ordering::Relaxed);
        }
    }

    /// Takes the minutes before this one away, the oldest first.
    pub fn finished(&self, before: UnixMinute) -> Vec<(UnixMinute, Vec<UsageRow>)> {
        let mut minutes = self.minutes();
        let rest = minutes.split_off(&before);
        let finished = std::mem::replace(&mut *minutes, rest);
        drop(minutes);
        finished.into_iter().map(|(minute, rows)| (minute, rows.sorted())).collect()
    }

    /// What `read` makes of each row, minute by minute.
    pub fn read<T>(&self, mut read: impl FnMut(UnixMinute, UsageSubject<'_>, Amount) -> T) -> Vec<T> {
        let minutes = self.minutes();
        let mut all = Vec::new();
        for (minute, rows) in &*minutes {
            all.extend(rows.iter().map(|(who, amount)| read(*minute, who, amount)));
        }
        all
    }

    /// Decisions that were counted among the others since the start.
    pub fn others(&self) -> u64 {
        self.others.load(Ordering::Relaxed)
    }

    fn minutes(&self) -> MutexGuard<'_, BTreeMap<UnixMinute, MinuteRows>> {
        self.minutes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Minutes that wait here: two, unless a clock jumps.
const MINUTES_MAX: usize = 8;
