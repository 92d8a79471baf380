//! `rate_limit_events`: decisions on limits that nodes have drawn as samples, for who asks why a request was refused.
//!
//! No change of the control plane: it takes no version, and nobody follows it. What is lost on the way is lost.

use serde_json::Value as Json;

use super::connection::sql::{SqlQuery, SqlRow, number};
use super::error::Error;
use super::handle::{CALL_MAX, Database};
use super::time::Time;

#[derive(Clone, Debug, PartialEq)]
pub struct DecisionEvent {
    pub request_id: String,
    pub at: Time,
    pub node: String,
    /// The consumer, if one is known.
    pub consumer: Option<String>,
    /// The tenant, if there is one.
    pub tenant: Option<String>,
    pub is_admitted: bool,
    /// The policy of the window that decided.
    pub policy: String,
    /// Where that window was decided.
    pub tier: String,
    /// Units that were counted in that window.
    pub counted: u64,
    pub limit: u64,
    /// All that is known of it.
    pub sample: Json,
}

impl Database {
    /// Adds decisions in one transaction. Whether they are there is not known if the connection broke: added again they are
    /// there twice.
    pub async fn add_events(&self, events: &[DecisionEvent]) -> Result<(), Error> {
        let mut session = self.connections.session(CALL_MAX).await?;
        session.begin_writing().await?;
        for events in events.chunks(ROWS_AT_ONCE) {
            session.execute(added(events)).await?;
        }
        session.finish("COMMIT").await
    }

    /// What is known of the decisions about this request, the oldest first, each once.
    pub async fn events_of(&self, request_id: &str) -> Result<Vec<Json>, Error> {
        let query =
            SqlQuery::new("SELECT sample FROM rate_limit_events WHERE").and("request_id =", request_id);
        let query =
            query.then("AND sample IS NOT NULL ORDER BY recorded_at, id").and("LIMIT", OF_REQUEST_MAX);
        let mut samples = self.read_all(query, sample).await?;
        samples.dedup();
        Ok(samples)
    }

    /// The last refusals of a consumer's requests, the newest first.
    pub async fn refusals_of(&self, consumer: &str, most: u32) -> Result<Vec<Json>, Error> {
        let query = SqlQuery::new("SELECT sample FROM rate_limit_events WHERE").and("user_id =", consumer);
        let query =
            query.then("AND decision = 'deny' AND sample IS NOT NULL ORDER BY recorded_at DESC, id DESC");
        let mut samples = self.read_all(query.and("LIMIT", i64::from(most)), sample).await?;
        samples.dedup();
        Ok(samples)
    }
}

fn sample(row: &SqlRow) -> Result<Json, Error> {
    row.get("sample")
}

fn added(events: &[DecisionEvent]) -> SqlQuery {
    let mut query = SqlQuery::new(
        "INSERT INTO rate_limit_events (user_id, tenant_id, node_id, decision, count_at_decision, limit_applied, \
         recorded_at, policy, tier, request_id, sample) VALUES",
    );
    for (place, event) in events.iter().enumerate() {
        query = query
            .and(if place == 0 { "(" } else { ", (" }, event.consumer.clone())
            .and(",", event.tenant.clone())
            .and(",", event.node.as_str())
            .and(",", if event.is_admitted { "allow" } else { "deny" })
            .and(",", number(event.counted))
            .and(",", number(event.limit))
            .and(",", event.at)
            .and(",", event.policy.as_str())
            .and(",", event.tier.as_str())
            .and(",", event.request_id.as_str())
            .and(",", event.sample.clone())
            .then(")");
    }
    query
}

/// Rows of one statement. There are no more, because each has eleven values, and a statement has 32,766 at most.
const ROWS_AT_ONCE: usize = 500;
/// Decisions of one request that are shown. There is a bound, because a hop that is trusted may send one id again and
/// again.
const OF_REQUEST_MAX: i64 = 100;
