//! What policies decided of each consumer and tenant, minute by minute: every worker counts for itself, and the control plane
//! gathers that for the database.
//!
//! Nothing is decided by it. A request takes no lock for it and, for somebody whom the worker has counted in the same fifth of a
//! second, allocates nothing.

mod collector;
mod rows;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

pub use collector::UsageCollector;
use rows::MinuteRows;

/// A minute: so many since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMinute(pub u64);

impl UnixMinute {
    /// The minute of a time since the Unix epoch.
    pub fn of(unix: Duration) -> UnixMinute {
        UnixMinute(unix.as_secs() / SECONDS)
    }

    /// When it begins, seconds since the Unix epoch.
    pub fn unix_seconds(self) -> u64 {
        self.0.saturating_mul(SECONDS)
    }
}

/// Who is counted under which policy. The consumer or the tenant may be empty. All three are in [`OTHERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageSubject<'a> {
    pub policy: &'a str,
    pub consumer: &'a str,
    pub tenant: &'a str,
}

/// Everybody for whom there was no room.
pub const OTHERS: UsageSubject<'static> = UsageSubject { policy: "", consumer: "", tenant: "" };

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Requests and checks that it admitted.
    pub admitted: u64,
    /// Those that it denied, or would have if it were no shadow.
    pub denied: u64,
    /// Units that were charged for those that passed.
    pub units: u64,
}

impl Amount {
    pub fn add(&mut self, other: Amount) {
        self.admitted = self.admitted.saturating_add(other.admitted);
        self.denied = self.denied.saturating_add(other.denied);
        self.units = self.units.saturating_add(other.units);
    }
}

/// What was decided of somebody in a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    pub policy: String,
    /// The consumer's; may be empty.
    pub consumer: String,
    /// The tenant's; may be empty.
    pub tenant: String,
    pub amount: Amount,
}

/// One worker's part. It never leaves its thread.
#[derive(Debug)]
pub struct UsageTally {
    gathered: Arc<UsageCollector>,
    rows: RefCell<Vec<(UnixMinute, MinuteRows)>>,
}

impl UsageTally {
    pub fn new(gathered: Arc<UsageCollector>) -> UsageTally {
        UsageTally { gathered, rows: RefCell::default() }
    }

    pub fn count(&self, minute: UnixMinute, who: UsageSubject<'_>, amount: Amount) {
        let mut minutes = self.rows.borrow_mut();
        // Searched one by one, because there are one or two: they are handed over several times a second.
        let rows = match minutes.iter_mut().position(|(known, _)| *known == minute) {
            Some(index) => &mut minutes[index].1,
            None => {
                minutes.push((minute, MinuteRows::default()));
                let last = minutes.len() - 1;
                &mut minutes[last].1
            }
        };
        rows.count(who, amount, self.gathered.most);
    }

    pub fn hand_over(&self) {
        let mut minutes = self.rows.borrow_mut();
        if !minutes.is_empty() {
            self.gathered.take_in(&mut minutes);
        }
    }
}

const SECONDS: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn who(consumer: &str) -> UsageSubject<'_> {
        UsageSubject { policy: "calls", consumer, tenant: "acme" }
    }

    const ONE: Amount = Amount { admitted: 1, denied: 0, units: 3 };

    #[test]
    fn what_workers_count_is_one_row_for_each_minute() {
        let gathered = Arc::new(UsageCollector::new(10));
        let workers = [UsageTally::new(Arc::clone(&gathered)), UsageTally::new(Arc::clone(&gathered))];
        for worker in &workers {
            worker.count(UnixMinute(7), who("ann"), ONE);
            worker.count(UnixMinute(7), who("ann"), Amount { denied: 1, ..Amount::default() });
            worker.count(UnixMinute(8), who("ann"), ONE);
            worker.hand_over();
        }
        assert_eq!(gathered.finished(UnixMinute(7)), []);
        let rows = gathered.finished(UnixMinute(8));
        let row = UsageRow {
            policy: "calls".to_owned(),
            consumer: "ann".to_owned(),
            tenant: "acme".to_owned(),
            amount: Amount { admitted: 2, denied: 2, units: 6 },
        };
        assert_eq!(rows, [(UnixMinute(7), vec![row.clone()])]);
        assert_eq!(gathered.finished(UnixMinute(8)), [], "it is taken once");
        // A worker that is late is told by itself.
        workers[0].count(UnixMinute(7), who("ann"), ONE);
        workers[0].hand_over();
        let shown = gathered.read(|minute, _, amount| (minute, amount.admitted));
        assert_eq!(shown, [(UnixMinute(7), 1), (UnixMinute(8), 2)]);
        assert_eq!(gathered.finished(UnixMinute(9)).len(), 2);
    }

    #[test]
    fn who_finds_no_room_is_counted_with_the_others() {
        let gathered = Arc::new(UsageCollector::new(2));
        let (one, two) = (UsageTally::new(Arc::clone(&gathered)), UsageTally::new(Arc::clone(&gathered)));
        for name in ["a", "b", "c", "a"] {
            one.count(UnixMinute(1), who(name), ONE);
        }
        for name in ["d", "b"] {
            two.count(UnixMinute(1), who(name), ONE);
        }
        one.hand_over();
        two.hand_over();
        let mut rows = gathered.read(|_, who, amount| (who.consumer.to_owned(), amount.admitted));
        rows.sort();
        assert_eq!(rows, [(String::new(), 2), ("a".to_owned(), 2), ("b".to_owned(), 2)]);
        assert_eq!(gathered.others(), 2);
    }

    #[test]
    fn names_that_no_database_keeps_are_counted_with_the_others() {
        let gathered = Arc::new(UsageCollector::new(10));
        let tally = UsageTally::new(Arc::clone(&gathered));
        let long = "x".repeat(1_994);
        for (name, is_kept) in [("a\0b", false), (&*long, false), (&long[1..], true)] {
            tally.count(UnixMinute(1), UsageSubject { policy: "calls", consumer: name, tenant: "" }, ONE);
            tally.hand_over();
            let kept = gathered.read(|_, who, _| who.consumer == name).contains(&true);
            assert_eq!(kept, is_kept, "{} bytes", name.len());
        }
        assert_eq!(gathered.others(), 2);
    }

    #[test]
    fn names_are_kept_apart_whatever_they_are() {
        let gathered = Arc::new(UsageCollector::new(10));
        let tally = UsageTally::new(Arc::clone(&gathered));
        let names = [("a", "", "b"), ("a", "b", ""), ("ab", "", ""), ("", "a", "b"), ("a\n", "ü", "b")];
        for (policy, consumer, tenant) in names {
            tally.count(UnixMinute(1), UsageSubject { policy, consumer, tenant }, ONE);
        }
        tally.hand_over();
        let mut rows = gathered.read(|_, who, amount| {
            assert_eq!(amount, ONE);
            (who.policy.to_owned(), who.consumer.to_owned(), who.tenant.to_owned())
        });
        rows.sort();
        let mut sent = names
            .map(|(policy, consumer, tenant)| (policy.to_owned(), consumer.to_owned(), tenant.to_owned()));
        sent.sort();
        assert_eq!(rows, sent);
    }
}
