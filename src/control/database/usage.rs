//! `usage_minutes`: what policies decided of each consumer and tenant in each minute, added up over all nodes.
//!
//! No change of the control plane: it takes no version, and nobody follows it.

use super::connection::sql::{SqlQuery, SqlRow, number};
use super::error::Error;
use super::handle::{CALL_MAX, Database};
use super::id;
use super::time::Time;
use metrics::usage;

/// What a policy decided in one minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageMinute {
    /// The policy's name; empty for everybody for whom there was no room.
    pub policy: String,
    pub at: Time,
    pub amount: usage::Amount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageHolder<'a> {
    /// A consumer's, of all tenants or as it acts for one.
    Consumer(&'a str, Option<&'a str>),
    /// A tenant's, of all its consumers.
    Tenant(&'a str),
    /// Those of everybody for whom there was no room.
    Others,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageFilter<'a> {
    pub holder: UsageHolder<'a>,
    /// The first and the last policy, by name.
    pub policies: (&'a str, &'a str),
    pub since: Time,
}

/// An id for a batch of rows.
pub fn batch_id() -> String {
    id::new(Time::now(), 0)
}

impl Database {
    /// Adds a node's rows of one minute to what the table has. Under one id that is done once, however often it is tried.
    ///
    /// # Errors
    /// If the database cannot be written; whether it was is not known if the connection broke.
    pub async fn add_usage(&self, id: &str, at: Time, rows: &[usage::UsageRow]) -> Result<(), Error> {
        let mut session = self.connections.session(CALL_MAX).await?;
        session.begin_writing().await?;
        let batch =
            SqlQuery::new("INSERT INTO usage_batches (id, at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING");
        if session.execute(batch.with(id).with(Time::now())).await? == 0 {
            return session.finish("ROLLBACK").await;
        }
        for rows in rows.chunks(ROWS_AT_ONCE) {
            session.execute(added(at, rows)).await?;
        }
        session.finish("COMMIT").await
    }

    /// The minutes of each policy, by the policy's name and in the order of time.
    pub async fn usage(&self, filter: &UsageFilter<'_>) -> Result<Vec<UsageMinute>, Error> {
        let mut query = SqlQuery::new(SUMS);
        query = match filter.holder {
            UsageHolder::Consumer(consumer, tenant) => {
                let query = query.and("consumer =", consumer);
                tenant.into_iter().fold(query, |query, tenant| query.and("AND tenant =", tenant))
            }
            UsageHolder::Tenant(tenant) => query.and("tenant =", tenant),
            UsageHolder::Others => query.then("consumer = '' AND tenant = ''"),
        };
        let (first, last) = filter.policies;
        let query = query
            .and("AND policy >=", first)
            .and("AND policy <=", last)
            .and("AND minute >=", filter.since)
            .then("GROUP BY policy, minute ORDER BY policy, minute");
        self.read_all(query, read).await
    }
}

/// Adds rows of one minute. They come in one order from every node, so that two of them cannot wait for each other.
fn added(at: Time, rows: &[usage::UsageRow]) -> SqlQuery {
    let mut query = SqlQuery::new(
        "INSERT INTO usage_minutes (minute, policy, consumer, tenant, admitted, denied, units) VALUES",
    );
    for (place, row) in rows.iter().enumerate() {
        query = query
            .and(if place == 0 { "(" } else { ", (" }, at)
            .and(",", row.policy.as_str())
            .and(",", row.consumer.as_str())
            .and(",", row.tenant.as_str())
            .and(",", number(row.amount.admitted))
            .and(",", number(row.amount.denied))
            .and(",", number(row.amount.units))
            .then(")");
    }
    query.then(
        "ON CONFLICT (consumer, policy, minute, tenant) DO UPDATE SET \
         admitted = usage_minutes.admitted + excluded.admitted, denied = usage_minutes.denied + excluded.denied, \
         units = usage_minutes.units + excluded.units",
    )
}

fn read(row: &SqlRow) -> Result<UsageMinute, Error> {
    let number = |column| row.get::<i64>(column).map(|number| u64::try_from(number).unwrap_or(0));
    let (admitted, denied, units) = (number("admitted")?, number("denied")?, number("units")?);
    Ok(UsageMinute {
        policy: row.get("policy")?,
        at: row.get("minute")?,
        amount: usage::Amount { admitted, denied, units },
    })
}

const SUMS: &str = "SELECT policy, minute, CAST(SUM(admitted) AS bigint) AS admitted, \
    CAST(SUM(denied) AS bigint) AS denied, CAST(SUM(units) AS bigint) AS units FROM usage_minutes WHERE";
/// Rows of one statement. There are no more, because each has seven values, and a statement has 32,766 at most.
const ROWS_AT_ONCE: usize = 500;
