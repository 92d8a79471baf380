//! What all endpoints share that change something: who asks, under which conditions, the database, and the wait until the
//! change is in force.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time;

use super::answer::{self, Answer, Deletion};
use super::page::{ListPage, PageQuery};
use super::reading::conditions::{expected, idempotency_key};
use super::reading::fields::BodyFields;
use super::reading::query::Query;
use crate::admin::control::{ControlPlane, Proposal, Writes};
use crate::admin::gate::RequestAuthor;
use crate::admin::refusal::AdminRefusal;
use crate::admin::state::AdminState;
use crate::database::{self, Actor, Database, Expect, IdempotentRequest, PageRange, TableRow};
use auth::keys::digest_text;
use base::words;

/// A change that a client asks for. Taking it from a request refuses what no endpoint could change.
pub(in crate::admin) struct ChangeRequest {
    pub by: Actor,
    pub database: Database,
    /// Which version of the row it is meant for.
    pub expected: Expect,
    /// Whether to answer what would be done, and do nothing.
    pub is_dry_run: bool,
    state: Arc<AdminState>,
}

impl ChangeRequest {
    /// Takes the body for what tells this request from others under the same `Idempotency-Key`.
    pub(in crate::admin) fn with_body(mut self, body: &JsonBody) -> ChangeRequest {
        if let Some(once) = &mut self.by.once {
            once.request = format!("{} {}", once.request, body.digest);
        }
        self
    }

    /// Refuses a change that is meant for another version of the row than the present one. The database checks again in
    /// its transaction; this is for those who only want to know what would be done.
    pub(in crate::admin) fn check_version(&self, present: Option<i64>) -> Result<(), AdminRefusal> {
        if self.expected.is_met(present) { Ok(()) } else { Err(AdminRefusal::Changed(present)) }
    }

    /// Whether the configuration would be valid if a row were as proposed.
    ///
    /// # Errors
    /// Everything that would be wrong with it, in the words of `check`.
    pub(in crate::admin) async fn check(&self, proposal: Proposal) -> Result<(), AdminRefusal> {
        let Some(control) = &self.state.control else { return Err(AdminRefusal::NoDatabase) };
        (control.check)(proposal).await.map_err(AdminRefusal::Invalid)
    }

    /// Refuses a tier that no policy, no tier table and no route in force names, because whoever has misspelt the
    /// name would not notice.
    pub(in crate::admin) fn must_be_tier(&self, tier: &str) -> Result<(), AdminRefusal> {
        let tiers = (self.state.counts.names)().tiers;
        if tiers.iter().any(|known| known == tier) {
            return Ok(());
        }
        Err(AdminRefusal::in_field("tier", words::unknown("tier", tier, &tiers)))
    }

    /// What may be a mistake in the name of a tier, if none of this name is in force, and which are.
    pub(in crate::admin) fn of_new_tier(&self, tier: &str) -> Option<String> {
        let tiers = (self.state.counts.names)().tiers;
        let known: Vec<&str> = tiers.iter().map(String::as_str).collect();
        if known.contains(&tier) {
            return None;
        }
        let near = words::did_you_mean(tier, &known).map(|near| format!("; {near}")).unwrap_or_default();
        let others = match known.as_slice() {
            [] => String::new(),
            known => {
                format!("; write {} to change another", words::listed(&known[..known.len().min(TIERS_SHOWN)]))
            }
        };
        Some(format!("this tier is new, and no client has it until it is assigned{near}{others}"))
    }

    pub(in crate::admin) fn dry_run<R: TableRow>(&self, old: Option<R>, new: Value) -> Answer {
        self.check_version(old.as_ref().map(R::version))?;
        Ok(answer::dry_run(json!(old), new))
    }

    /// Answers a row that is written, once it is in force.
    pub(in crate::admin) async fn stored(
        &self,
        status: StatusCode,
        version: i64,
        shown: &impl Serialize,
    ) -> Answer {
        self.in_force(version).await;
        Ok(answer::row(status, version, shown))
    }

    /// Answers a row that the files are put in force with again, and says if they cannot be.
    pub(in crate::admin) async fn published(&self, version: i64, shown: &impl Serialize) -> Answer {
        self.in_force(version).await;
        let Some(why) = self.stuck() else { return Ok(answer::row(StatusCode::OK, version, shown)) };
        let mut shown = json!(shown);
        shown["in-force"] = false.into();
        shown["in-force-error"] = why.into();
        Ok(answer::row(StatusCode::OK, version, &shown))
    }

    /// Deletes such a row. `hint` says what may be a mistake once it is deleted.
    pub(in crate::admin) async fn unpublish<R: TableRow>(
        &self,
        key: &str,
        not_found: AdminRefusal,
        hint: impl Future<Output = Option<String>> + Send,
    ) -> Answer {
        let deleted = self.delete::<R>(key, not_found).await?;
        if self.is_dry_run {
            return Ok(deleted);
        }
        Ok(match (self.stuck(), hint.await) {
            (None, None) => deleted,
            (why, hint) => answer::json(&Deletion { in_force: why.is_none(), in_force_error: why, hint }),
        })
    }

    /// Why a change that is stored is not in force, because a file cannot be used; `None`: it is.
    fn stuck(&self) -> Option<String> {
        self.state.control.as_ref().filter(|_| !self.is_dry_run).and_then(|it| (it.stuck)())
    }

    /// Deletes the row of a key, or answers that it would.
    pub(in crate::admin) async fn delete<R: TableRow>(&self, key: &str, not_found: AdminRefusal) -> Answer {
        if self.is_dry_run {
            let old: R = self.database.row(key).await?.ok_or(not_found)?;
            return self.dry_run(Some(old), Value::Null);
        }
        self.deleted(self.database.delete::<R>(&self.by, key, self.expected).await, not_found).await
    }

    /// Answers that a row is deleted, once that is in force.
    pub(in crate::admin) async fn deleted<R>(
        &self,
        deleted: Result<R, database::Error>,
        not_found: AdminRefusal,
    ) -> Answer {
        deleted.map_err(|error| AdminRefusal::of_row(error, not_found))?;
        self.deletion_in_force().await;
        Ok(answer::nothing())
    }

    /// Waits until this node has a change in force, so that the client's next request already meets it. A node that
    /// is slow to follow holds up the answer for [`IN_FORCE_WITHIN`] at most, because the change is committed either
    /// way.
    pub(in crate::admin) async fn in_force(&self, version: i64) {
        let Some(control) = &self.state.control else { return };
        (control.changed)();
        if !matches!(time::timeout(IN_FORCE_WITHIN, (control.applied)(version)).await, Ok(true)) {
            tracing::warn!(
                version,
                "change is stored, and in force on this node once it has read the database"
            );
        }
    }

    /// The same for a row that is gone, whose version was that of an earlier change. The database's own will do,
    /// because it is at the deletion's or at a later one. If it cannot say, the answer does not wait.
    pub(in crate::admin) async fn deletion_in_force(&self) {
        match self.database.version().await {
            Ok(version) => self.in_force(version).await,
            Err(error) => {
                tracing::warn!(%error, "deletion is stored, and in force on this node once it has read the database")
            }
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct ChangeParameters {
    #[serde(default)]
    dry_run: bool,
}

impl FromRequestParts<Arc<AdminState>> for ChangeRequest {
    type Rejection = AdminRefusal;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<AdminState>,
    ) -> Result<ChangeRequest, AdminRefusal> {
        let Query(ChangeParameters { dry_run }) = Query::from_request_parts(parts, state).await?;
        let invalid = |flaw| AdminRefusal::Invalid(vec![flaw]);
        let expected = expected(&parts.headers).map_err(invalid)?;
        let key = idempotency_key(&parts.headers).map_err(invalid)?;
        let control = state.control.as_ref().ok_or(AdminRefusal::NoDatabase)?;
        if control.writes == Writes::OneNodeOnly {
            return Err(AdminRefusal::OneNodeOnly);
        }
        let client = parts.extensions.get::<RequestAuthor>().ok_or(AdminRefusal::NoSuchPage)?;
        let RequestAuthor { who, from, request_id, .. } = client.clone();
        // Of a POST alone, because PUT and DELETE are idempotent as they are (RFC 9110 section 9.2.2).
        let key = key.filter(|_| parts.method == Method::POST);
        let once = key.map(|key| IdempotentRequest { key, request: parts.uri.path().to_owned() });
        let by = Actor { who, from, request_id, once };
        Ok(ChangeRequest {
            by,
            database: reached(control)?,
            expected,
            is_dry_run: dry_run,
            state: Arc::clone(state),
        })
    }
}

/// The database, if there is one. A gateway without one has no rows to read, and its lists are empty and say so.
pub(in crate::admin) struct RowReader(pub Option<Database>);

impl RowReader {
    pub(in crate::admin) async fn row<R: TableRow>(
        &self,
        key: &str,
        not_found: AdminRefusal,
    ) -> Result<R, AdminRefusal> {
        let Some(database) = &self.0 else { return Err(not_found) };
        database.row(key).await?.ok_or(not_found)
    }

    pub(in crate::admin) async fn show<R: TableRow>(&self, key: &str, not_found: AdminRefusal) -> Answer {
        let found: R = self.row(key, not_found).await?;
        Ok(answer::row(StatusCode::OK, found.version(), &found))
    }

    pub(in crate::admin) async fn list<R: TableRow>(self, page: &PageQuery) -> Answer {
        let read = |database: Database, page| async move { database.rows(&page).await };
        Ok(answer::json(&self.page(page, read, R::key).await?))
    }

    /// A page of the rows that `read` finds, each with its cursor `key`.
    pub(in crate::admin) async fn page<R, F>(
        self,
        page: &PageQuery,
        read: impl FnOnce(Database, PageRange) -> F,
        key: impl Fn(&R) -> String,
    ) -> Result<ListPage<R>, AdminRefusal>
    where
        F: Future<Output = Result<Vec<R>, database::Error>>,
    {
        Ok(match self.0 {
            Some(database) => page.page(read(database, page.rows()).await?, key),
            None => ListPage::without_database(),
        })
    }
}

impl FromRequestParts<Arc<AdminState>> for RowReader {
    type Rejection = AdminRefusal;

    async fn from_request_parts(_: &mut Parts, state: &Arc<AdminState>) -> Result<RowReader, AdminRefusal> {
        state.control.as_ref().map(reached).transpose().map(RowReader)
    }
}

pub(super) fn reached(control: &ControlPlane) -> Result<Database, AdminRefusal> {
    (control.database)().ok_or(AdminRefusal::NotReached)
}

pub(in crate::admin) struct JsonBody {
    pub fields: BodyFields,
    /// The SHA-256 of what it says, in hex.
    pub digest: String,
}

impl JsonBody {
    pub(in crate::admin) fn read<T: DeserializeOwned + JsonSchema + 'static>(
        self,
    ) -> Result<T, AdminRefusal> {
        self.fields.read().map_err(AdminRefusal::Invalid)
    }
}

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = AdminRefusal;

    async fn from_request(request: Request, state: &S) -> Result<JsonBody, AdminRefusal> {
        // Asked for, because a web page can send other types blindly to any host, but this one only if the host
        // allows it.
        if !is_json(request.headers()) {
            return Err(AdminRefusal::ContentType);
        }
        // Nothing can go wrong here, because the gate has read it.
        let body = Bytes::from_request(request, state).await.map_err(|_| AdminRefusal::BodyBroken)?;
        let fields = BodyFields::parse(&body).map_err(AdminRefusal::Invalid)?;
        // Of what it says and not of its bytes, because who sends it again may write spaces and names in another
        // order.
        let digest = digest_text(fields.clone().whole().to_string().as_bytes());
        Ok(JsonBody { fields, digest })
    }
}

/// Whether the body is said to be JSON; a `charset` is allowed, because JSON is always UTF-8 (RFC 8259 section 8.1).
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(first), None) = (types.next(), types.next()) else { return false };
    let bytes = first.as_bytes();
    let essence = bytes.split(|byte| *byte == b';').next().unwrap_or(bytes).trim_ascii();
    essence.eq_ignore_ascii_case(b"application/json")
}

/// Tiers that are named beside a new one.
const TIERS_SHOWN: usize = 20;

/// How long an answer waits for this node to have the change in force.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(2);

pub(in crate::admin) const BODY_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_json_is_json() {
        let said = |value: &'static str| {
            is_json(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]))
        };
        for json in ["application/json", "Application/JSON; charset=utf-8", "application/json ;x=y"] {
            assert!(said(json), "{json}");
        }
        for other in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
            assert!(!said(other), "{other}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
