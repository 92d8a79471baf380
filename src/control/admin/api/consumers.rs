//! `/v1/consumers/{id}/tier`: which tier a consumer has.

use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::answer::Answer;
use super::change::{ChangeRequest, JsonBody, RowReader};
use super::endpoint::{change, read};
use super::operations::Document;
use super::reading::path::PathValues;
use super::schema::Name;
use crate::admin::access::AdminRole::{Operate, Read};
use crate::admin::refusal::AdminRefusal;
use crate::database::Assignment;

/// A tier to assign to a consumer.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("examples" = [json!({ "tier": "pro" })]))]
struct AssignmentBody {
    /// The name of a tier.
    tier: Name,
}

pub(super) fn describe(document: &mut Document) {
    document.begin("tiers", &[("id", "the consumer")]);
    document.endpoint("/v1/consumers/{id}/tier", "the tier of a consumer");
    document
        .operation(read(Read, show_tier), "show-consumer-tier")
        .about("Shows the tier of a consumer.")
        .shows::<Assignment>("The tier.");
    document
        .operation(change(Method::PUT, Operate, put_tier), "put-consumer-tier")
        .about("Assigns a tier to a consumer and replaces any previous one.")
        .writes::<AssignmentBody, Assignment>();
    document
        .operation(change(Method::DELETE, Operate, delete_tier), "delete-consumer-tier")
        .about("Removes the assigned tier of a consumer. Its credential or the default then decides.")
        .deletes();
}

async fn show_tier(PathValues([id]): PathValues<1>, rows: RowReader) -> Answer {
    rows.show::<Assignment>(&id, NOT_FOUND).await
}

async fn put_tier(change: ChangeRequest, PathValues([id]): PathValues<1>, body: JsonBody) -> Answer {
    let tier = body.read::<AssignmentBody>()?.tier.0;
    change.must_be_tier(&tier)?;
    if change.is_dry_run {
        let old: Option<Assignment> = change.database.row(&id).await?;
        return change.dry_run(old, json!({ "user-id": id, "tier": tier }));
    }
    let put = change.database.put_assignment(&change.by, &id, &tier, change.expected).await?;
    change.stored(StatusCode::OK, put.version, &put).await
}

async fn delete_tier(change: ChangeRequest, PathValues([id]): PathValues<1>) -> Answer {
    change.delete::<Assignment>(&id, NOT_FOUND).await
}

const NOT_FOUND: AdminRefusal = AdminRefusal::NotFound("no tier is assigned to this consumer");
