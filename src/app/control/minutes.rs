//! Usage by the minute on its way to the database, and as it is read back: what has been written by all nodes, and what this one
//! has not written yet.
//!
//! A minute is written once it is over, in one transaction. While the database is gone minutes wait here, as many as
//! [`WAITING_MAX`]; older ones are lost and counted.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::control_state::ControlState;
use base::clock;
use base::random::Random;
use control::admin::{MinutesQuery, UsageMinutes};
use control::database::{self, Database, Time, UsageFilter, UsageHolder};
use metrics::Families;
use metrics::usage::{Amount, OTHERS, UnixMinute, UsageCollector, UsageRow, UsageSubject};

pub(super) struct Usage {
    gathered: Arc<UsageCollector>,
    /// Held while something is written, and by no reader while it waits for the database.
    waiting: Mutex<VecDeque<Batch>>,
    /// How many were written so far. Changed under the lock of those that wait.
    written: AtomicU64,
    /// How many wait, for who does not.
    waits: AtomicUsize,
    /// Decisions of minutes that were given up.
    lost: AtomicU64,
    /// Whether the last write failed, so that an outage is one line of the log.
    is_failing: AtomicBool,
}

struct Batch {
    /// Under which it is written once.
    id: String,
    minute: UnixMinute,
    rows: Vec<UsageRow>,
    /// Whether it may be in the database: a commit was not answered.
    is_in_doubt: bool,
}

impl Usage {
    pub(super) fn new(gathered: Arc<UsageCollector>) -> Usage {
        Usage {
            gathered,
            waiting: Mutex::default(),
            written: AtomicU64::new(0),
            waits: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
        }
    }

    /// Writes each minute when it is over, without end.
    pub(super) async fn follow(self: Arc<Self>, shared: Arc<ControlState>) {
        // Later by chance, so that nodes write one after another as far as that has it.
        let later = LATER + Duration::from_millis(Random::seeded().next() % SPREAD_MS);
        loop {
            let unix = clock::unix();
            let next = Duration::from_secs(UnixMinute(UnixMinute::of(unix).0 + 1).unix_seconds());
            sleep(next.saturating_sub(unix) + later).await;
            if let Some(database) = shared.opened.get() {
                self.write(database, UnixMinute::of(clock::unix())).await;
            } else {
                self.queue(&mut *self.waiting.lock().await, UnixMinute::of(clock::unix()));
            }
        }
    }

    /// Writes what there is, the minute that runs too, within a moment, because the process ends.
    pub(super) async fn close(&self, shared: &ControlState) {
        let Some(database) = shared.opened.get() else { return };
        if timeout(LAST_WRITE, self.write(database, UnixMinute(u64::MAX))).await.is_err() {
            tracing::warn!(
                "the last minute of usage is lost: the database did not take it before the process stopped"
            );
        }
    }

    async fn write(&self, database: &Database, before: UnixMinute) {
        let mut waiting = self.waiting.lock().await;
        self.queue(&mut waiting, before);
        while let Some(batch) = waiting.front_mut() {
            let at = time_of(batch.minute);
            // In doubt until it is known, because this future may be dropped.
            batch.is_in_doubt = true;
            let written = database.add_usage(&batch.id, at, &batch.rows).await;
            if let Err(error @ (database::Error::Invalid(_) | database::Error::Failed { .. })) = &written {
                // Given up, because it would fail again and hold up those behind it.
                tracing::error!(%error, minute = %at, "a minute of usage is lost, because the database refuses it");
                self.give_up(waiting.pop_front());
                continue;
            }
            if let Err(error) = written {
                batch.is_in_doubt = error.is_outage();
                if !self.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "usage cannot be written to the database: the gateway tries again, \
                        and keeps the last {WAITING_MAX} minutes");
                }
                break;
            }
            waiting.pop_front();
            self.written.fetch_add(1, Ordering::Relaxed);
            if self.is_failing.swap(false, Ordering::Relaxed) {
                tracing::info!("usage is written to the database again");
            }
        }
        self.waits.store(waiting.len(), Ordering::Relaxed);
    }

    /// Puts finished minutes behind those that wait, and gives the oldest up if they are too many.
    fn queue(&self, waiting: &mut VecDeque<Batch>, before: UnixMinute) {
        let batch = |(minute, rows)| Batch { id: database::batch_id(), minute, rows, is_in_doubt: false };
        waiting.extend(self.gathered.finished(before).into_iter().map(batch));
        while waiting.len() > WAITING_MAX {
            self.give_up(waiting.pop_front());
        }
        self.waits.store(waiting.len(), Ordering::Relaxed);
    }

    fn give_up(&self, batch: Option<Batch>) {
        let rows = batch.into_iter().flat_map(|batch| batch.rows);
        let decisions = rows.map(|row| row.amount.admitted.saturating_add(row.amount.denied));
        self.lost.fetch_add(decisions.sum(), Ordering::Relaxed);
    }

    /// The minutes that were asked for: of the database, and of this node what it has not written yet.
    pub(super) async fn read(
        self: Arc<Usage>,
        (database, asked): (Database, MinutesQuery),
    ) -> Result<UsageMinutes, database::Error> {
        let now = UnixMinute::of(clock::unix());
        let first = UnixMinute(now.0.saturating_sub(asked.minutes.saturating_sub(1)));
        let filter = |holder, policies| UsageFilter { holder, policies, since: time_of(first) };
        let policies = (asked.policies.0.as_str(), asked.policies.1.as_str());
        let own = filter(asked.holder(), policies);
        let others = filter(UsageHolder::Others, ("", ""));
        // All is read again then, because a minute that is written meanwhile would be found in neither place, or in
        // both. That happens once a minute at most.
        let (waiting, of_holder, of_others) = loop {
            let written = self.written.load(Ordering::Relaxed);
            let found = (database.usage(&own).await?, database.usage(&others).await?);
            let waiting = self.waiting.lock().await;
            if self.written.load(Ordering::Relaxed) == written {
                break (waiting, found.0, found.1);
            }
        };
        let mut minutes = UsageMinutes::default();
        for row in of_holder {
            minutes.policies.entry(row.policy).or_default().insert(row.at, row.amount);
        }
        for row in of_others {
            minutes.others.insert(row.at, row.amount);
        }
        let mut add = |minute: UnixMinute, who: UsageSubject<'_>, amount: Amount| {
            if minute < first {
                return;
            }
            let of = match who {
                who if who == OTHERS => &mut minutes.others,
                who if is_of(&own, who) => minutes.policies.entry(who.policy.to_owned()).or_default(),
                _ => return,
            };
            of.entry(time_of(minute)).or_default().add(amount);
        };
        // Not one in doubt, because it may be in the database already: it is shown once that is known.
        for batch in waiting.iter().filter(|batch| !batch.is_in_doubt) {
            for row in &batch.rows {
                let who = UsageSubject { policy: &row.policy, consumer: &row.consumer, tenant: &row.tenant };
                add(batch.minute, who, row.amount);
            }
        }
        self.gathered.read(add);
        Ok(minutes)
    }

    pub(super) fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let help = "Minutes of usage that are not yet written to the control plane's database";
        families.gauge("usage_writes_waiting", help, self.waits.load(Ordering::Relaxed) as u64)?;
        let help = "Decisions whose minute of usage was dropped, because the control plane's database was down for \
            too long";
        families.counter("usage_decisions_lost", help, self.lost.load(Ordering::Relaxed))?;
        let help =
            "Decisions that usage by the minute counts without a name, because there were too many names";
        families.counter("usage_decisions_unnamed", help, self.gathered.others())
    }
}

/// Whether a row is among those that are asked for.
fn is_of(filter: &UsageFilter<'_>, who: UsageSubject<'_>) -> bool {
    let is_holders = match filter.holder {
        UsageHolder::Consumer(consumer, tenant) => {
            who.consumer == consumer && tenant.is_none_or(|tenant| who.tenant == tenant)
        }
        UsageHolder::Tenant(tenant) => who.tenant == tenant,
        UsageHolder::Others => false,
    };
    is_holders && filter.policies.0 <= who.policy && who.policy <= filter.policies.1
}

fn time_of(minute: UnixMinute) -> Time {
    Time(i64::try_from(minute.unix_seconds()).unwrap_or(i64::MAX).saturating_mul(1_000_000))
}

/// How long after its end a minute is written at the earliest, because workers hand over five times a second.
const LATER: Duration = Duration::from_secs(1);
/// Within so long of each other nodes write.
const SPREAD_MS: u64 = 4_000;
const WAITING_MAX: usize = 60;
const LAST_WRITE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use control::database::config::Url;
    use policy::Holder;

    const ONE: Amount = Amount { admitted: 1, denied: 0, units: 2 };
    const ANN: UsageSubject<'static> = UsageSubject { policy: "calls", consumer: "ann", tenant: "" };

    async fn database(name: &str) -> Database {
        let directory = std::env::temp_dir().join(format!("sluicegate-usage-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("made");
        let url = Url::Sqlite(directory.join("state.db"));
        Database::open(&database::Config::new(url)).await.expect("opened")
    }

    fn of_ann() -> MinutesQuery {
        MinutesQuery {
            holder: Holder::Consumer("ann".into()),
            tenant: None,
            policies: ("calls".to_owned(), "calls".to_owned()),
            minutes: 10,
        }
    }

    /// What was admitted of Ann in each minute that is shown, the last one at the end.
    async fn shown(usage: &Arc<Usage>, database: &Database) -> Vec<u64> {
        let minutes = Arc::clone(usage).read((database.clone(), of_ann())).await.expect("read");
        let of_calls = minutes.policies.get("calls").cloned().unwrap_or_default();
        of_calls.into_values().map(|amount| amount.admitted).collect()
    }

    #[tokio::test]
    async fn a_minute_is_shown_once_before_and_after_it_is_written() {
        let (gathered, database) = (Arc::new(UsageCollector::new(10)), database("shown").await);
        let usage = Arc::new(Usage::new(Arc::clone(&gathered)));
        let now = UnixMinute::of(clock::unix());
        for (back, times) in [(20, 1), (2, 2), (1, 3), (0, 4)] {
            (0..times).for_each(|_| gathered.count(UnixMinute(now.0 - back), ANN, ONE));
        }
        // Should a minute begin just here, it is one with nothing in it.
        assert_eq!(shown(&usage, &database).await, [2, 3, 4]);
        usage.write(&database, UnixMinute(now.0)).await;
        assert_eq!(gathered.read(|minute, _, _| minute), [now], "the running one stays");
        assert_eq!(shown(&usage, &database).await, [2, 3, 4]);
        usage.write(&database, UnixMinute(u64::MAX)).await;
        assert_eq!(shown(&usage, &database).await, [2, 3, 4]);
        assert_eq!(gathered.read(|minute, _, _| minute), []);
    }

    #[tokio::test]
    async fn no_write_waits_for_a_reader_that_the_database_keeps_waiting() {
        let (gathered, database) = (Arc::new(UsageCollector::new(10)), database("reader").await);
        let usage = Arc::new(Usage::new(Arc::clone(&gathered)));
        let now = UnixMinute::of(clock::unix());
        for (back, times) in [(2, 2), (1, 3)] {
            (0..times).for_each(|_| gathered.count(UnixMinute(now.0 - back), ANN, ONE));
        }
        let mut reading = std::pin::pin!(shown(&usage, &database));
        let begun = std::future::poll_fn(|cx| std::task::Poll::Ready(reading.as_mut().poll(cx).is_pending()));
        assert!(begun.await, "it waits for the database");
        let written = timeout(Duration::from_secs(20), usage.write(&database, UnixMinute(u64::MAX))).await;
        assert!(written.is_ok(), "the writer waits for the reader");
        assert_eq!(reading.await, [2, 3]);
    }

    #[tokio::test]
    async fn minutes_wait_for_a_database_that_is_gone_and_too_many_are_counted_as_lost() {
        let (gathered, database) = (Arc::new(UsageCollector::new(10)), database("gone").await);
        let usage = Arc::new(Usage::new(Arc::clone(&gathered)));
        let now = UnixMinute::of(clock::unix());
        for back in (1..=(WAITING_MAX as u64 + 3)).rev() {
            gathered.count(UnixMinute(now.0 - back), ANN, ONE);
            usage.queue(&mut *usage.waiting.lock().await, now);
        }
        assert_eq!(usage.lost.load(Ordering::Relaxed), 3);
        assert_eq!(usage.waits.load(Ordering::Relaxed), WAITING_MAX);
        assert_eq!(shown(&usage, &database).await.len(), 9, "what waits is shown");
        // One that no database takes holds up none behind it.
        let row = UsageRow {
            policy: "a\0b".to_owned(),
            consumer: "ann".to_owned(),
            tenant: String::new(),
            amount: Amount { admitted: 4, denied: 5, units: 4 },
        };
        let (id, minute) = (database::batch_id(), UnixMinute(now.0 - 70));
        usage.waiting.lock().await.push_front(Batch { id, minute, rows: vec![row], is_in_doubt: false });
        usage.write(&database, now).await;
        assert_eq!(usage.lost.load(Ordering::Relaxed), 3 + 9);
        assert_eq!(usage.waits.load(Ordering::Relaxed), 0);
        assert_eq!(shown(&usage, &database).await, [1; 9]);
    }
}
