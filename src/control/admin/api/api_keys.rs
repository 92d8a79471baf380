//! `/v1/api-keys`: keys of consumers, made, listed, disabled. A key is shown once, in the answer to the request that makes
//! it; after that there is only its digest.

use std::sync::Arc;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::{Response, StatusCode, Uri};
use serde_json::{Map, Value, json};

use super::answer::{self, DryRun};
use super::change::{Body, Change, readable};
use super::described::{self, CLAIM_VALUES_MAX, CLAIMS_MAX, Name};
use super::fields::{Fields, text_flaw};
use super::overrides::in_the_future;
use super::page::{Page, Wanted};
use super::path::{ID_CHARS_MAX, Values};
use super::query::Query;
use crate::admin::refusal::Refusal;
use crate::admin::state::State;
use crate::database::{ApiKeyFilter, ApiKeyRow, Database, Expect, NewApiKey, Page as Rows, Time};
use auth::keys;

type Answer = Result<Response<Sent>, Refusal>;

/// Makes an API key.
#[utoipa::path(post, path = "/v1/api-keys", tag = "api-keys", operation_id = "make-api-key",
    params(answer::DryRunParameter, answer::IdempotencyKey),
    request_body = described::ApiKeyBody,
    responses(
        (status = 201, description = "It is made and in force.", body = described::ApiKeyMade,
            headers(("etag" = String))),
        (status = 200, description = "What would be done.", body = DryRun),
    ))]
pub(in crate::admin) async fn add(change: Change, body: Body) -> Answer {
    let change = change.with_body(&body);
    let key = keys::random().ok_or(Refusal::NoRandomness)?;
    let digest = keys::digest_text(key.as_bytes());
    let new = new_key(body.fields, digest.clone(), Time::now())?;
    new.tier.as_deref().map(|tier| change.must_be_tier(tier)).transpose()?;
    if change.is_dry_run {
        let shown = json!({
            "consumer": new.consumer, "tenant": new.tenant, "tier": new.tier, "claims": new.claims,
            "expires-at": new.expires_at,
        });
        return Ok(answer::dry_run(Value::Null, shown));
    }
    let made = change.database.add_api_key(&change.by, new).await?;
    change.in_force(made.version).await;
    let mut shown = json!(made);
    // A request that came before has made another key, which nobody knows any more but its client.
    if made.digest == digest {
        shown["key"] = key.into();
    }
    Ok(answer::row(StatusCode::CREATED, made.version, &shown))
}

/// Lists API keys, by digest.
#[utoipa::path(get, path = "/v1/api-keys", tag = "api-keys", operation_id = "list-api-keys",
    params(Wanted,
        ("prefix" = Option<String>, Query, min_length = 1, max_length = 64, pattern = "^[0-9a-f]+$",
            description = "those whose digest begins so"),
        ("consumer" = Option<Name>, Query, description = "those of this consumer")),
    responses((status = 200, description = "A page.", body = Page<described::ApiKey>)))]
pub(in crate::admin) async fn list(Of(state): Of<Arc<State>>, uri: Uri) -> Answer {
    let mut query = Query::parse(uri.query().unwrap_or_default());
    let wanted = Wanted::read(&mut query);
    let filter = ApiKeyFilter {
        digest_prefix: query.parsed("prefix", |text| match is_prefix(text) {
            true => Ok(text.to_owned()),
            false => Err("must be 1 to 64 hex digits in lower case".to_owned()),
        }),
        consumer: query.text("consumer", ID_CHARS_MAX),
    };
    query.finish().map_err(Refusal::Invalid)?;
    let Some(database) = readable(&state)? else { return Ok(answer::json(&Page::<ApiKeyRow>::default())) };
    let rows = database.api_keys(&wanted.rows(), &filter).await?;
    Ok(answer::json(&wanted.page(rows, |row| row.digest.clone())))
}

/// Shows an API key.
#[utoipa::path(get, path = "/v1/api-keys/{digest}", tag = "api-keys", operation_id = "show-api-key",
    params(("digest" = Name, Path, description = "its digest, or as much of the beginning as no other has")),
    responses((status = 200, description = "The key's row.", body = described::ApiKey, headers(("etag" = String)))))]
pub(in crate::admin) async fn show(Of(state): Of<Arc<State>>, Values([digest]): Values<1>) -> Answer {
    let Some(database) = readable(&state)? else { return Err(NOT_FOUND) };
    let found = find(&database, &digest).await?;
    Ok(answer::row(StatusCode::OK, found.version, &found))
}

/// Disables an API key, enables it again, or changes when it ends.
#[utoipa::path(patch, path = "/v1/api-keys/{digest}", tag = "api-keys", operation_id = "change-api-key",
    params(("digest" = Name, Path, description = "its digest, or as much of the beginning as no other has"),
        answer::DryRunParameter, answer::IfMatch),
    request_body = described::ApiKeyChangeBody,
    responses((status = 200, description = "It is in force, or what would be done.", body = described::ApiKeyPatched,
        headers(("etag" = String)))))]
pub(in crate::admin) async fn patch(change: Change, Values([digest]): Values<1>, body: Body) -> Answer {
    let mut fields = body.fields;
    let never = fields.is_null("expires-at");
    let (disabled, expires_at) = (fields.boolean("disabled"), fields.instant("expires-at"));
    fields.finish().map_err(Refusal::Invalid)?;
    let old = find(&change.database, &digest).await?;
    change.check_version(Some(old.version))?;
    let disabled = disabled.unwrap_or(old.disabled);
    let expires_at = if never { None } else { expires_at.or(old.expires_at) };
    if change.is_dry_run {
        let new = ApiKeyRow { disabled, expires_at, ..old.clone() };
        return Ok(answer::dry_run(json!(old), json!(new)));
    }
    // What was read here is kept where the client says nothing, so nobody may have changed it since.
    let read = Expect::Version(old.version);
    let new = change.database.change_api_key(&change.by, &old.digest, disabled, expires_at, read).await?;
    change.in_force(new.version).await;
    Ok(answer::row(StatusCode::OK, new.version, &new))
}

/// Deletes an API key.
#[utoipa::path(delete, path = "/v1/api-keys/{digest}", tag = "api-keys", operation_id = "delete-api-key",
    params(("digest" = Name, Path, description = "its digest, or as much of the beginning as no other has"),
        answer::DryRunParameter, answer::IfMatch),
    responses(
        (status = 204, description = "It is deleted."),
        (status = 200, description = "What would be done.", body = DryRun),
    ))]
pub(in crate::admin) async fn delete(change: Change, Values([digest]): Values<1>) -> Answer {
    let old = find(&change.database, &digest).await?;
    change.check_version(Some(old.version))?;
    if change.is_dry_run {
        return Ok(answer::dry_run(json!(old), Value::Null));
    }
    let deleted = change.database.delete_api_key(&change.by, &old.digest, change.expected).await;
    deleted.map_err(|error| Refusal::of_row(error, NOT_FOUND))?;
    change.deletion_in_force().await;
    Ok(answer::nothing())
}

/// The only key whose digest begins so.
async fn find(database: &Database, prefix: &str) -> Result<ApiKeyRow, Refusal> {
    if !is_prefix(prefix) {
        return Err(NOT_FOUND);
    }
    let filter = ApiKeyFilter { digest_prefix: Some(prefix.to_owned()), consumer: None };
    let mut found = database.api_keys(&Rows::first(2), &filter).await?;
    match (found.pop(), found.pop()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(NOT_FOUND),
        (Some(_), Some(_)) => Err(Refusal::Ambiguous),
    }
}

fn is_prefix(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (1..=DIGEST_DIGITS).contains(&text.len()) && text.bytes().all(is_digit)
}

pub(super) fn new_key(mut fields: Fields, digest: String, now: Time) -> Result<NewApiKey, Refusal> {
    fields.require("consumer", "write the name that the key identifies");
    let consumer = fields.text("consumer", ID_CHARS_MAX);
    let (tenant, tier) = (fields.text("tenant", ID_CHARS_MAX), fields.text("tier", ID_CHARS_MAX));
    let claims = claims(&mut fields);
    if fields.has("duration") && fields.has("expires-at") {
        fields.wrong_together("`duration` and `expires-at` exclude each other");
    }
    let after = fields.duration("duration").map(|duration| now.after(duration));
    let expires_at = after.or(fields.instant("expires-at"));
    fields.finish().map_err(Refusal::Invalid)?;
    in_the_future(expires_at, now)?;
    let consumer = consumer.unwrap_or_default();
    Ok(NewApiKey { digest, consumer, tenant, tier, claims, expires_at })
}

fn claims(fields: &mut Fields) -> Map<String, Value> {
    let claims = match fields.value("claims") {
        None => return Map::new(),
        Some(Value::Object(claims)) => claims,
        Some(_) => {
            fields.wrong("claims", "`claims` must be an object");
            return Map::new();
        }
    };
    if claims.len() > CLAIMS_MAX {
        fields.wrong("claims", format!("`claims` has more than {CLAIMS_MAX} names"));
    } else if !claims.iter().all(|(name, value)| is_text(name) && is_claim(value)) {
        fields.wrong(
            "claims",
            format!(
                "`claims` must have texts of 1 to {ID_CHARS_MAX} characters, numbers, true, false, or up to \
                 {CLAIM_VALUES_MAX} such texts in an array"
            ),
        );
    }
    claims
}

fn is_claim(value: &Value) -> bool {
    match value {
        Value::String(text) => is_text(text),
        Value::Number(_) | Value::Bool(_) => true,
        Value::Array(texts) => {
            texts.len() <= CLAIM_VALUES_MAX && texts.iter().all(|text| text.as_str().is_some_and(is_text))
        }
        Value::Null | Value::Object(_) => false,
    }
}

fn is_text(text: &str) -> bool {
    text_flaw(text, ID_CHARS_MAX).is_none()
}

const NOT_FOUND: Refusal = Refusal::NotFound("there is no API key with this digest");
/// Hex digits of a SHA-256.
const DIGEST_DIGITS: usize = 64;
