//! `/v1/policies`: policies that go before those of gateway.toml, in its words.

use std::future;
use std::sync::Arc;

use axum::extract::State as Of;
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::{self, Answer, RowStatus};
use super::change::{ChangeRequest, JsonBody, RowReader};
use super::endpoint::{change, read};
use super::operations::Document;
use super::page::{ListPage, PageQuery};
use super::reading::path::PathValues;
use super::reading::query::Query;
use super::spellings::flat_policy::{self, FlatPolicy};
use crate::admin::access::AdminRole::{Admin, Read};
use crate::admin::control::Proposal;
use crate::admin::refusal::AdminRefusal;
use crate::admin::state::AdminState;
use crate::database::PolicyRow;
use base::words;
use policy::counting::shorthand;

/// A policy to write: in the form of gateway.toml, or in the flat form.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(
    dead_code,
    reason = "gateway.toml reads the one, and `FlatPolicy` is read alone, to say what is wrong with it"
)]
enum PolicyBody {
    File(PolicyKeys),
    Flat(FlatPolicy),
}

/// The keys of `[policy.*]` of gateway.toml, as in its schema (`sluicegate schema`).
#[derive(JsonSchema)]
#[schemars(extend("examples" = [json!({ "limit": "100/m burst 20", "by": ["consumer"] })]))]
struct PolicyKeys {}

/// A policy that has been written.
#[derive(Serialize, JsonSchema)]
struct WrittenPolicy {
    #[serde(flatten)]
    row: PolicyRow,
    /// What decimal rates count as, in whole units.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(flatten)]
    status: RowStatus,
}

/// A policy of the database, or of gateway.toml.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum ShownPolicy {
    Database(PolicyRow),
    File {
        id: String,
        /// Its keys, each with the value in force.
        #[schemars(with = "PolicyKeys")]
        document: Value,
    },
}

pub(super) fn describe(document: &mut Document) {
    document.begin("policies", &[("id", "its name")]);
    document.list(
        "/v1/policies",
        "policies of the database, which replace those of gateway.toml",
        "create or replace a policy with `PUT /v1/policies/{name}`",
    );
    document
        .operation(read(Read, list), "list-policies")
        .about("Lists policies of the database, by name. Those of gateway.toml are at `/config`.")
        .query::<PageQuery>()
        .answers::<ListPage<PolicyRow>>("A page of the list.");
    document.endpoint("/v1/policies/{id}", "a policy of the database or of gateway.toml");
    document
        .operation(read(Read, show), "show-policy")
        .about("Shows a policy of the database, or the policy of gateway.toml in force.")
        .shows::<ShownPolicy>("The policy; one of gateway.toml has no version.");
    document
        .operation(change(Method::PUT, Admin, put), "put-policy")
        .about(
            "Writes a policy, in the form of `[policy.*]` of gateway.toml or in the flat form, which is kept as \
             written. It takes precedence over the policy of the same name in gateway.toml. What gateway.toml would \
             refuse is refused with the same errors. If a file that gateway.toml names cannot be used, the policy is \
             stored and waits for it: `in-force` is false, and `in-force-error` says why.",
        )
        .writes::<PolicyBody, WrittenPolicy>();
    document
        .operation(change(Method::DELETE, Admin, delete), "delete-policy")
        .about("Deletes a policy of the database; the policy of the same name in gateway.toml applies again. Refused \
                 if routes name it and gateway.toml has none.")
        .unpublishes();
}

async fn list(Query(wanted): Query<PageQuery>, rows: RowReader) -> Answer {
    rows.list::<PolicyRow>(&wanted).await
}

async fn show(Of(state): Of<Arc<AdminState>>, PathValues([id]): PathValues<1>, rows: RowReader) -> Answer {
    if let Some(database) = rows.0
        && let Some(found) = database.row::<PolicyRow>(&id).await?
    {
        let version = found.version;
        return Ok(answer::row(StatusCode::OK, version, &ShownPolicy::Database(found)));
    }
    match (state.policy)(&id) {
        Some(document) => Ok(answer::json(&ShownPolicy::File { id, document })),
        None => {
            Err(AdminRefusal::UnknownName(words::unknown("policy", &id, &(state.counts.names)().policies)))
        }
    }
}

async fn put(change: ChangeRequest, PathValues([id]): PathValues<1>, body: JsonBody) -> Answer {
    let is_flat = flat_policy::is_flat(&body.fields);
    let (document, note) = match is_flat {
        true => flat_policy::policy(&id, body.fields).map_err(AdminRefusal::Invalid)?,
        false => {
            let note = body.fields.get("limit").and_then(counted_as);
            (body.fields.whole(), note)
        }
    };
    let checked = change.check(Proposal::Policy { name: id.clone(), document: Some(document.clone()) }).await;
    checked.map_err(|refusal| if is_flat { refusal.of_whole() } else { refusal })?;
    if change.is_dry_run {
        let old: Option<PolicyRow> = change.database.row(&id).await?;
        let mut shown = json!({ "id": id, "document": document });
        note.into_iter().for_each(|note| shown["note"] = note.into());
        return change.dry_run(old, shown);
    }
    let put = change.database.put_policy(&change.by, &id, document, change.expected).await?;
    change.published(put.version, &WrittenPolicy { row: put, note, status: RowStatus::default() }).await
}

/// What each limit with a decimal rate counts as.
pub(super) fn counted_as(limit: &Value) -> Option<String> {
    let notes: Vec<String> = match limit {
        Value::String(text) => {
            let counted = shorthand::parse(text).ok().and_then(|read| read.counted_as);
            counted.map(|counted| format!("{text} is counted as {counted}")).into_iter().collect()
        }
        Value::Array(limits) => limits.iter().filter_map(counted_as).collect(),
        // Of tiers.
        Value::Object(limits) => limits.values().filter_map(counted_as).collect(),
        _ => return None,
    };
    (!notes.is_empty()).then(|| notes.join("; "))
}

async fn delete(change: ChangeRequest, PathValues([id]): PathValues<1>) -> Answer {
    change.database.row::<PolicyRow>(&id).await?.ok_or(NOT_FOUND)?;
    change.check(Proposal::Policy { name: id.clone(), document: None }).await?;
    change.unpublish::<PolicyRow>(&id, NOT_FOUND, future::ready(None)).await
}

const NOT_FOUND: AdminRefusal = AdminRefusal::NotFound(
    "the database has no policy of this name; policies of gateway.toml are changed there",
);
