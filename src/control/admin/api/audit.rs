//! `/v1/audit`: who changed what.

use std::sync::Arc;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::Response;
use schemars::JsonSchema;
use serde::Deserialize;

use super::answer;
use super::change::readable;
use super::operations::Document;
use super::page::{ListPage, PageQuery};
use super::reading::query::Query;
use super::schema::Name;
use crate::admin::refusal::AdminRefusal;
use crate::admin::state::AdminState;
use crate::database::{AuditEntry, AuditFilter, Time};

/// Which changes to list.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::admin) struct AuditQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only changes by this token.
    who: Option<Name>,
    /// Only changes of a row, such as `override/01H…`, or of a kind, such as `override`.
    what: Option<Name>,
    /// Only changes since this time.
    since: Option<Time>,
}

pub(super) fn describe(document: &mut Document) {
    document.begin("audit", &[]);
    document
        .operation("GET /v1/audit", "list-audit")
        .about("Lists changes, the newest first.")
        .query::<AuditQuery>()
        .answers::<ListPage<AuditEntry>>("A page.");
}

pub(in crate::admin) async fn list(
    Of(state): Of<Arc<AdminState>>,
    Query(listed): Query<AuditQuery>,
) -> Result<Response<Sent>, AdminRefusal> {
    let text = |name: Option<Name>| name.map(|name| name.0);
    let filter = AuditFilter { who: text(listed.who), what: text(listed.what), since: listed.since };
    let Some(database) = readable(&state)? else {
        return Ok(answer::json(&ListPage::<AuditEntry>::default()));
    };
    let rows = database.audit(&listed.page.rows(), &filter).await?;
    Ok(answer::json(&listed.page.page(rows, |row| row.id.clone())))
}
