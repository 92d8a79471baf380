//! `/v1/audit`: who changed what.

use std::sync::Arc;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::{Response, Uri};

use super::answer;
use super::change::readable;
use super::described::{self, Instant, Name};
use super::page::{Page, Wanted};
use super::path::ID_CHARS_MAX;
use super::query::Query;
use crate::admin::refusal::Refusal;
use crate::admin::state::State;
use crate::database::{AuditEntry, AuditFilter, Time};

/// Lists changes, the newest first.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", operation_id = "list-audit",
    params(Wanted,
        ("who" = Option<Name>, Query, description = "those by this token"),
        ("what" = Option<Name>, Query, description = "those of a row, as in `override/01H…`, or of a kind, as in `override`"),
        ("since" = Option<Instant>, Query, description = "those from then on")),
    responses((status = 200, description = "A page.", body = Page<described::AuditEntry>)))]
pub(in crate::admin) async fn list(Of(state): Of<Arc<State>>, uri: Uri) -> Result<Response<Sent>, Refusal> {
    let mut query = Query::parse(uri.query().unwrap_or_default());
    let wanted = Wanted::read(&mut query);
    let filter = AuditFilter {
        who: query.text("who", ID_CHARS_MAX),
        what: query.text("what", ID_CHARS_MAX),
        since: query.parsed("since", |text| text.parse::<Time>().map_err(|error| format!("is {error}"))),
    };
    query.finish().map_err(Refusal::Invalid)?;
    let Some(database) = readable(&state)? else { return Ok(answer::json(&Page::<AuditEntry>::default())) };
    let rows = database.audit(&wanted.rows(), &filter).await?;
    Ok(answer::json(&wanted.page(rows, |row| row.id.clone())))
}
