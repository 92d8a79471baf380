//! What is done once under an idempotency key, and is no change: a check that spends units.

use serde_json::Value as Json;

use super::connection::connections::Session;
use super::connection::sql::SqlQuery;
use super::error::Error;
use super::handle::{CALL_MAX, Database};
use super::time::Time;
use super::write::{IdempotentRequest, ONCE_KEPT};

impl Database {
    /// Does `act` and keeps its answer for a day, unless the same request has come before: then that answer again. A request
    /// that comes while the first is being answered waits for it. If the answer cannot be kept, `act` was done all the same.
    ///
    /// # Errors
    /// [`Error::KeyReused`] if another request had the key; if the database cannot be written.
    pub async fn once(
        &self,
        who: &str,
        once: &IdempotentRequest,
        act: impl Future<Output = Json>,
    ) -> Result<Json, Error> {
        let mut session = self.connections.session(CALL_MAX).await?;
        session.begin_writing().await?;
        let now = Time::now();
        if !session.claim(who, once, now).await? {
            let known = session.kept(who, once).await;
            session.finish("ROLLBACK").await?;
            return known;
        }
        // Within the transaction, so that nobody else gets the key meanwhile; a connection that is lost gives it up.
        let answer = act.await;
        let keep = "UPDATE idempotency_keys SET answer = $1 WHERE who = $2 AND key = $3";
        let keep = SqlQuery::new(keep).with(answer.clone()).with(who).with(once.key.as_str());
        session.execute(keep).await?;
        session.finish("COMMIT").await?;
        Ok(answer)
    }
}

impl Session {
    /// Takes the key; `false` if a request of the last day has it.
    async fn claim(&mut self, who: &str, once: &IdempotentRequest, now: Time) -> Result<bool, Error> {
        let claim = "INSERT INTO idempotency_keys (who, key, request, answer, at) VALUES ($1, $2, $3, $4, $5) \
                     ON CONFLICT (who, key) DO UPDATE SET request = excluded.request, at = excluded.at \
                     WHERE idempotency_keys.at <= $6";
        let claim = SqlQuery::new(claim)
            .with(who)
            .with(once.key.as_str())
            .with(once.request.as_str())
            .with(Json::Null)
            .with(now)
            .with(now.before(ONCE_KEPT));
        Ok(self.execute(claim).await? > 0)
    }

    async fn kept(&mut self, who: &str, once: &IdempotentRequest) -> Result<Json, Error> {
        let query = SqlQuery::new("SELECT request, answer FROM idempotency_keys WHERE who = $1 AND key = $2");
        let Some(row) = self.one(query.with(who).with(once.key.as_str())).await? else {
            return Err(Error::KeyReused);
        };
        if row.get::<String>("request")? != once.request {
            return Err(Error::KeyReused);
        }
        row.get("answer")
    }
}
