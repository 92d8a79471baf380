//! What has had its time: old changes, idempotency keys, overrides that have ended, minutes of usage, events. And the months
//! ahead that events go to in PostgreSQL.

use std::time::Duration;

use super::connection::connections::{DatabaseOptions, Session};
use super::connection::sql::SqlQuery;
use super::error::Error;
use super::handle::{CALL_MAX, Database};
use super::time::Time;
use super::write::ONCE_KEPT;

impl Database {
    /// Deletes what is over, and events older than this. For one node or for several at a time, about once an hour. What is
    /// not done within [`CALL_MAX`] is left for the next time.
    pub async fn upkeep(&self, events_kept: Duration) -> Result<(), Error> {
        let mut session = self.connections.session(CALL_MAX).await?;
        let now = Time::now();
        session.forget(&CHANGES, now.before(CHANGES_KEPT)).await?;
        session.forget(&KEYS, now.before(ONCE_KEPT)).await?;
        session.forget(&OVERRIDES, now.before(ENDED_LISTED)).await?;
        match self.connections.options {
            DatabaseOptions::Sqlite(_) => session.forget(&EVENTS, now.before(events_kept)).await?,
            DatabaseOptions::Postgres(_) => session.turn_months(now, now.before(events_kept)).await?,
        }
        // Last, and with time of their own, because they are the most rows by far.
        session.extend(CALL_MAX);
        session.forget(&BATCHES, now.before(BATCHES_KEPT)).await?;
        session.forget(&MINUTES, now.before(MINUTES_KEPT)).await?;
        session.release();
        Ok(())
    }
}

struct AgedRows {
    table: &'static str,
    /// Columns that tell its rows apart.
    key: &'static str,
    time: &'static str,
    /// Rows that may go, whatever their age.
    only: &'static str,
}

impl Session {
    /// Deletes rows that are older, some at a time, so that other writers come in between.
    async fn forget(&mut self, rows: &AgedRows, older: Time) -> Result<(), Error> {
        let AgedRows { table, key, time, only } = rows;
        let delete = format!(
            "DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {time} < $1 AND {only} LIMIT {ROWS_AT_ONCE})"
        );
        while self.execute(SqlQuery::new(delete.as_str()).with(older)).await? == ROWS_AT_ONCE {}
        Ok(())
    }

    /// Makes the tables of this month's events and the next's, and drops those of months that ended before `over`.
    async fn turn_months(&mut self, now: Time, over: Time) -> Result<(), Error> {
        self.begin_writing().await?;
        // Under a lock until the commit, so that one node at a time does it.
        self.all(SqlQuery::new("SELECT pg_advisory_xact_lock($1)").with(MONTHS_LOCK)).await?;
        let tables = "SELECT relname::text AS name FROM pg_inherits JOIN pg_class ON oid = inhrelid \
                      WHERE inhparent = 'rate_limit_events'::regclass";
        let tables = self.all(SqlQuery::new(tables)).await?;
        let tables: Vec<String> = tables.iter().map(|row| row.get("name")).collect::<Result<_, _>>()?;
        let (this, next) = now.month();
        for month in [this, next] {
            let name = events_of(month);
            if !tables.contains(&name) {
                let end = month.month().1;
                // No quotes are escaped, because there are numbers and nothing else.
                let make = format!(
                    "CREATE TABLE {name} PARTITION OF rate_limit_events \
                     FOR VALUES FROM ('{month}') TO ('{end}')"
                );
                self.execute(SqlQuery::new(make)).await?;
            }
        }
        // Compared as texts, because names have the order of their months. Tables that somebody named otherwise are
        // left alone.
        let kept = events_of(over);
        let is_over =
            |name: &&String| name.starts_with(EVENTS_PREFIX) && name.len() == kept.len() && **name < kept;
        for name in tables.iter().filter(is_over).filter(|name| is_month(name)) {
            self.execute(SqlQuery::new(format!("DROP TABLE {name}"))).await?;
        }
        self.execute(SqlQuery::new("COMMIT")).await.map(drop)
    }
}

/// The table of a month's events: `rate_limit_events_2027_01`.
fn events_of(month: Time) -> String {
    let date = month.date_time().date();
    format!("{EVENTS_PREFIX}{:04}_{:02}", date.year(), u8::from(date.month()))
}

/// Whether it is a name that [`events_of`] may have given.
fn is_month(name: &str) -> bool {
    let rest = name.strip_prefix(EVENTS_PREFIX).unwrap_or_default();
    rest.bytes().enumerate().all(|(at, byte)| if at == 4 { byte == b'_' } else { byte.is_ascii_digit() })
}

const CHANGES: AgedRows = AgedRows {
    table: "changes",
    key: "version, kind, id",
    time: "at",
    // Not the last one, because it tells nodes which history this is.
    only: "version < (SELECT version FROM control_version)",
};
const KEYS: AgedRows = AgedRows { table: "idempotency_keys", key: "who, key", time: "at", only: "1 = 1" };
const OVERRIDES: AgedRows =
    AgedRows { table: "rate_limit_overrides", key: "id", time: "expires_at", only: "1 = 1" };
const EVENTS: AgedRows =
    AgedRows { table: "rate_limit_events", key: "id", time: "recorded_at", only: "1 = 1" };
const MINUTES: AgedRows = AgedRows {
    table: "usage_minutes",
    key: "consumer, policy, minute, tenant",
    time: "minute",
    only: "1 = 1",
};
const BATCHES: AgedRows = AgedRows { table: "usage_batches", key: "id", time: "at", only: "1 = 1" };
const EVENTS_PREFIX: &str = "rate_limit_events_";

/// How long changes are told one by one. A node that was away for longer reads everything.
const CHANGES_KEPT: Duration = Duration::from_secs(24 * 3_600);
const ENDED_LISTED: Duration = Duration::from_secs(24 * 3_600);
/// How long usage by the minute is kept: a day is shown, and the minute in which it began.
const MINUTES_KEPT: Duration = Duration::from_secs(24 * 3_600 + 60);
/// For longer than any node keeps a batch that it could not write, so that none is added twice.
const BATCHES_KEPT: Duration = Duration::from_secs(24 * 3_600);
const ROWS_AT_ONCE: u64 = 5_000;
/// The number of the lock under which months are turned: "sluicega" as bytes.
const MONTHS_LOCK: i64 = i64::from_be_bytes(*b"sluicega");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tables_of_months_are_dropped() {
        let time: Time = "2027-01-31T23:59:59Z".parse().expect("it is a time");
        assert_eq!(events_of(time), "rate_limit_events_2027_01");
        assert!(is_month("rate_limit_events_2027_01"));
        for name in ["rate_limit_events_2027x01", "rate_limit_events_20270_1", "rate_limit_events_mine_01"] {
            assert!(!is_month(name), "{name}");
        }
    }
}
