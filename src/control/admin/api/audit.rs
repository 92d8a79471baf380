//! `/v1/audit`: who changed what.

use schemars::JsonSchema;
use serde::Deserialize;

use super::answer::{self, Answer};
use super::change::RowReader;
use super::endpoint::read;
use super::operations::Document;
use super::page::{ListPage, PageQuery};
use super::reading::query::Query;
use super::schema::Name;
use crate::admin::access::AdminRole::Read;
use crate::database::{AuditEntry, AuditFilter, Database, Time};

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
    document.list(
        "/v1/audit",
        "?who=&what=&since=: the audit log, who changed what",
        "the audit log cannot be changed",
    );
    document
        .operation(read(Read, list), "list-audit")
        .about("Lists changes, the newest first.")
        .query::<AuditQuery>()
        .answers::<ListPage<AuditEntry>>("A page of the list.");
}

async fn list(Query(listed): Query<AuditQuery>, rows: RowReader) -> Answer {
    let text = |name: Option<Name>| name.map(|name| name.0);
    let filter = AuditFilter { who: text(listed.who), what: text(listed.what), since: listed.since };
    let read = |database: Database, page| async move { database.audit(&page, &filter).await };
    Ok(answer::json(&rows.page(&listed.page, read, |row| row.id.clone()).await?))
}
