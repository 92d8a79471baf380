//! `/v1/api-keys`: keys of consumers, made, listed, disabled. A key is shown once, in the answer to the request that makes
//! it; after that there is only its digest.

use http::{Method, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::answer::{self, Answer};
use super::change::{ChangeRequest, JsonBody, RowReader};
use super::endpoint::{change, read};
use super::operations::Document;
use super::overrides::in_the_future;
use super::page::{ListPage, PageQuery};
use super::reading::fields::{At, BodyFields, Flaw, text_flaw};
use super::reading::path::PathValues;
use super::reading::query::Query;
use super::schema::{DurationText, ID_CHARS_MAX, NO_CONTROL_CHARACTERS, Name};
use crate::admin::access::AdminRole::{Admin, Read};
use crate::admin::refusal::AdminRefusal;
use crate::database::{
    ApiKeyFilter, ApiKeyRow, Database, Expect, NewApiKey, PageRange as Rows, TableRow, Time,
};
use auth::keys;

/// An API key to create.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend(
    "allOf" = [json!({ "not": { "required": ["duration", "expires-at"], "properties": {
        "duration": { "not": { "type": "null" } }, "expires-at": { "not": { "type": "null" } },
    } } })],
    "examples" = [json!({ "consumer": "alice", "tier": "pro", "claims": { "plan": "gold" }, "duration": "30d" })],
))]
struct ApiKeyBody {
    /// The name that the key identifies.
    consumer: Name,
    tenant: Option<Name>,
    tier: Option<Name>,
    /// Further facts about a consumer: texts, numbers, `true`, `false`, and arrays of texts, by name.
    #[schemars(schema_with = "claims")]
    #[serde(default)]
    claims: Option<Map<String, Value>>,
    /// The duration after which it ends.
    duration: Option<DurationText>,
    /// The date and time at which it expires.
    expires_at: Option<Time>,
}

/// Changes of an API key. With `null` for `expires-at` it does not expire.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("examples" = [json!({ "disabled": true })]))]
struct ApiKeyChangeBody {
    /// Whether requests with it are refused.
    disabled: Option<bool>,
    expires_at: Option<Time>,
}

/// An API key that has been created.
#[derive(Serialize, JsonSchema)]
struct ApiKeyMade {
    /// The key itself. It is shown once; the response to a repeated request omits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(flatten)]
    row: ApiKeyRow,
}

/// Which API keys to list.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::admin) struct ApiKeyQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only keys whose digest starts with this.
    #[schemars(length(min = 1, max = DIGEST_DIGITS), extend("pattern" = "^[0-9a-f]+$", "examples" = ["4f0c"]))]
    prefix: Option<String>,
    /// Only those of this consumer.
    consumer: Option<Name>,
}

pub(super) fn describe(document: &mut Document) {
    document.begin(
        "api-keys",
        &[("digest", "its digest, or a prefix of it that no other key has; `sha256:` may stand before it")],
    );
    document.list("/v1/api-keys", "API keys; the key itself is shown once, when it is created", "create a key with `POST /v1/api-keys`, change or delete one with `PATCH` or `DELETE /v1/api-keys/{digest}`");
    document
        .operation(read(Read, list), "list-api-keys")
        .about("Lists API keys, by digest.")
        .query::<ApiKeyQuery>()
        .answers::<ListPage<ApiKeyRow>>("A page of the list.");
    document
        .operation(change(Method::POST, Admin, add), "make-api-key")
        .about("Creates an API key.")
        .makes::<ApiKeyBody, ApiKeyMade>();
    document.endpoint("/v1/api-keys/{digest}", "an API key, by its digest or the beginning of it");
    document
        .operation(read(Read, show), "show-api-key")
        .about("Shows an API key.")
        .shows::<ApiKeyRow>("The API key, without its secret.");
    document
        .operation(change(Method::PATCH, Admin, patch), "change-api-key")
        .about("Disables an API key, enables it again, or changes its expiry.")
        .writes::<ApiKeyChangeBody, ApiKeyRow>();
    document
        .operation(change(Method::DELETE, Admin, delete), "delete-api-key")
        .about("Deletes an API key.")
        .deletes();
}

async fn add(change: ChangeRequest, body: JsonBody) -> Answer {
    let change = change.with_body(&body);
    let key = keys::random().ok_or(AdminRefusal::NoRandomness)?;
    let digest = keys::digest_text(key.as_bytes());
    let new = new_key(body.fields, digest.clone(), Time::now())?;
    new.tier.as_deref().map(|tier| change.must_be_tier(tier)).transpose()?;
    if change.is_dry_run {
        return Ok(answer::dry_run(Value::Null, json!(new)));
    }
    let made = change.database.add_api_key(&change.by, new).await?;
    // Left out if it is another, because what a request before this has made nobody knows any more but its client.
    let key = (made.digest == digest).then_some(key);
    change.stored(StatusCode::CREATED, made.version, &ApiKeyMade { key, row: made }).await
}

async fn list(Query(listed): Query<ApiKeyQuery>, rows: RowReader) -> Answer {
    if listed.prefix.as_deref().is_some_and(|prefix| !is_prefix(prefix)) {
        let detail = "`prefix` must be 1 to 64 hex digits in lower case".to_owned();
        return Err(AdminRefusal::Invalid(vec![Flaw { at: At::Parameter("prefix".to_owned()), detail }]));
    }
    let consumer = listed.consumer.map(|name| name.0);
    let filter = ApiKeyFilter { digest_prefix: listed.prefix, consumer };
    let read = |database: Database, page| async move { database.api_keys(&page, &filter).await };
    Ok(answer::json(&rows.page(&listed.page, read, ApiKeyRow::key).await?))
}

async fn show(PathValues([digest]): PathValues<1>, rows: RowReader) -> Answer {
    let Some(database) = rows.0 else { return Err(NOT_FOUND) };
    let found = find(&database, &digest).await?;
    Ok(answer::row(StatusCode::OK, found.version, &found))
}

async fn patch(change: ChangeRequest, PathValues([digest]): PathValues<1>, body: JsonBody) -> Answer {
    let never = body.fields.is_null("expires-at");
    let ApiKeyChangeBody { disabled, expires_at } = body.read()?;
    let old = find(&change.database, &digest).await?;
    change.check_version(Some(old.version))?;
    let disabled = disabled.unwrap_or(old.disabled);
    let expires_at = if never { None } else { expires_at.or(old.expires_at) };
    if change.is_dry_run {
        let new = ApiKeyRow { disabled, expires_at, ..old.clone() };
        return Ok(answer::dry_run(json!(old), json!(new)));
    }
    // Nobody may have changed the row since, because what was read here is kept where the client says nothing.
    let read = Expect::Version(old.version);
    let new = change.database.change_api_key(&change.by, &old.digest, disabled, expires_at, read).await?;
    change.stored(StatusCode::OK, new.version, &new).await
}

async fn delete(change: ChangeRequest, PathValues([digest]): PathValues<1>) -> Answer {
    let old = find(&change.database, &digest).await?;
    change.delete::<ApiKeyRow>(&old.digest, NOT_FOUND).await
}

/// The only key whose digest begins so. The scheme that files write before a digest may stand before it.
async fn find(database: &Database, digest: &str) -> Result<ApiKeyRow, AdminRefusal> {
    let prefix = digest.strip_prefix(keys::SCHEME).unwrap_or(digest);
    if !is_prefix(prefix) {
        return Err(NOT_FOUND);
    }
    let filter = ApiKeyFilter { digest_prefix: Some(prefix.to_owned()), consumer: None };
    let mut found = database.api_keys(&Rows::first(2), &filter).await?;
    match (found.pop(), found.pop()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(NOT_FOUND),
        (Some(_), Some(_)) => Err(AdminRefusal::Ambiguous),
    }
}

fn is_prefix(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (1..=DIGEST_DIGITS).contains(&text.len()) && text.bytes().all(is_digit)
}

pub(super) fn new_key(mut fields: BodyFields, digest: String, now: Time) -> Result<NewApiKey, AdminRefusal> {
    fields.exclude_each_other(&["duration", "expires-at"]);
    let claims = fields.get("claims").and_then(Value::as_object);
    if claims.is_some_and(|claims| !claims.iter().all(|(name, value)| is_text(name) && is_claim(value))) {
        let detail = format!(
            "`claims` must have texts of 1 to {ID_CHARS_MAX} characters, numbers, true, false, or up to {CLAIM_VALUES_MAX} \
             such texts in an array"
        );
        fields.wrong("claims", detail);
    }
    let body: ApiKeyBody = fields.read().map_err(AdminRefusal::Invalid)?;
    let expires_at = body.duration.map(|duration| now.after(duration.0)).or(body.expires_at);
    in_the_future(expires_at, now)?;
    let text = |name: Option<Name>| name.map(|name| name.0);
    let (consumer, tenant, tier) = (body.consumer.0, text(body.tenant), text(body.tier));
    Ok(NewApiKey { digest, consumer, tenant, tier, claims: body.claims.unwrap_or_default(), expires_at })
}

fn claims(generator: &mut SchemaGenerator) -> Schema {
    let name = generator.subschema_for::<Name>();
    json_schema!({
        "type": ["object", "null"], "maxProperties": CLAIMS_MAX,
        "propertyNames": { "minLength": 1, "maxLength": ID_CHARS_MAX, "pattern": NO_CONTROL_CHARACTERS },
        "additionalProperties": { "anyOf": [
            name, { "type": ["number", "boolean"] }, { "type": "array", "items": name, "maxItems": CLAIM_VALUES_MAX },
        ] },
    })
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

const NOT_FOUND: AdminRefusal =
    AdminRefusal::NotFound("the database has no API key with this digest; a key of a file is changed there");
/// Hex digits that a SHA-256 has.
const DIGEST_DIGITS: usize = 64;
const CLAIMS_MAX: usize = 64;
const CLAIM_VALUES_MAX: usize = 64;
