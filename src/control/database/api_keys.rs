//! `api_keys`: digests of API keys and whose they are. A key itself is never here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::bounds;
use super::connection::sql::SqlQuery;
use super::error::Error;
use super::handle::Database;
use super::page::PageRange;
use super::rows::{self, TableRow, columns};
use super::time::Time;
use super::write::{Actor, ChangeEntry, Expect, RowKind, WriteStart, WriteTransaction};

/// An API key, by its digest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ApiKey")]
pub struct ApiKeyRow {
    /// SHA-256 of the key, 64 digits of hex in lower case.
    pub digest: String,
    /// The consumer that the key identifies.
    pub consumer: String,
    /// The consumer's tenant.
    pub tenant: Option<String>,
    /// The consumer's tier.
    pub tier: Option<String>,
    /// Further facts about the consumer, as a token's claims are.
    pub claims: Map<String, Json>,
    /// When it expires; `null`: never.
    pub expires_at: Option<Time>,
    /// Whether it is disabled, so that requests with it are refused.
    pub disabled: bool,
    /// When it was made.
    pub created_at: Time,
    /// The name of the token or certificate that made it.
    pub created_by: String,
    /// The version of the last change.
    pub version: i64,
}

/// An API key that is to be written.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct NewApiKey {
    #[serde(skip)]
    pub digest: String,
    pub consumer: String,
    pub tenant: Option<String>,
    pub tier: Option<String>,
    pub claims: Map<String, Json>,
    pub expires_at: Option<Time>,
}

/// Which keys to list. A field that is `None` leaves none out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiKeyFilter {
    /// Those whose digest begins with these hex digits.
    pub digest_prefix: Option<String>,
    pub consumer: Option<String>,
}

impl TableRow for ApiKeyRow {
    const KIND: RowKind = RowKind::ApiKey;
    const TABLE: &'static str = "api_keys";
    const KEY: &'static [&'static str] = &["digest"];
    columns!(digest, consumer, tenant, tier, claims, expires_at, disabled, created_at, created_by, version);

    fn key(&self) -> String {
        self.digest.clone()
    }

    /// The audit log has the first digits of a digest, because they are enough to find a key, and too few to look for it
    /// elsewhere.
    fn entry(old: Option<&ApiKeyRow>, new: Option<&ApiKeyRow>) -> ChangeEntry {
        let digest = old.or(new).map_or("", |row| &row.digest);
        let shown: String = digest.chars().take(DIGITS_SHOWN).collect();
        let cut = |row: Option<&ApiKeyRow>| row.map(|row| ApiKeyRow { digest: shown.clone(), ..row.clone() });
        let entry = ChangeEntry::of(RowKind::ApiKey, digest, cut(old).as_ref(), cut(new).as_ref());
        ChangeEntry { shown, ..entry }
    }
}

impl Database {
    /// Adds a key.
    ///
    /// # Errors
    /// [`Error::Conflict`] if its digest is there; [`Error::Invalid`]; [`Error::KeyReused`].
    pub async fn add_api_key(&self, by: &Actor, new: NewApiKey) -> Result<ApiKeyRow, Error> {
        check(&new)?;
        let mut write = match WriteTransaction::begin_once(self, by).await? {
            WriteStart::New(write) => write,
            WriteStart::Repeated(made) => return Ok(made),
        };
        let old: Option<ApiKeyRow> = write.row(&new.digest).await?;
        if let Err(error) = Expect::Nothing.check(old.map(|old| old.version)) {
            return Err(write.refuse(error).await);
        }
        let made = ApiKeyRow {
            digest: new.digest,
            consumer: new.consumer,
            tenant: new.tenant,
            tier: new.tier,
            claims: new.claims,
            expires_at: new.expires_at,
            disabled: false,
            created_at: write.at,
            created_by: by.who.clone(),
            version: write.version,
        };
        write.session.execute(rows::insert(&made)).await?;
        write.commit(ApiKeyRow::entry(None, Some(&made)), made).await
    }

    /// Changes whether a key is refused, and when it ends.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] if it is not what `expect` says.
    pub async fn change_api_key(
        &self,
        by: &Actor,
        digest: &str,
        disabled: bool,
        expires_at: Option<Time>,
        expect: Expect,
    ) -> Result<ApiKeyRow, Error> {
        let mut write = WriteTransaction::begin(self, by).await?;
        let Some(old) = write.row::<ApiKeyRow>(digest).await? else {
            return Err(write.refuse(Error::NotFound).await);
        };
        if let Err(error) = expect.check(Some(old.version)) {
            return Err(write.refuse(error).await);
        }
        let new = ApiKeyRow { disabled, expires_at, version: write.version, ..old.clone() };
        let update = "UPDATE api_keys SET disabled = $2, expires_at = $3, version = $4 WHERE digest = $1";
        let update = SqlQuery::new(update).with(digest).with(disabled).with(expires_at).with(new.version);
        write.session.execute(update).await?;
        write.commit(ApiKeyRow::entry(Some(&old), Some(&new)), new).await
    }

    pub async fn api_keys(&self, page: &PageRange, filter: &ApiKeyFilter) -> Result<Vec<ApiKeyRow>, Error> {
        let filter = |mut query: SqlQuery| {
            if let Some(prefix) = &filter.digest_prefix {
                // Up to `g`, because digits of hex end at `f`.
                query = query.and("AND digest >=", prefix.as_str()).and("AND digest <", format!("{prefix}g"));
            }
            filter
                .consumer
                .iter()
                .fold(query, |query, consumer| query.and("AND consumer =", consumer.as_str()))
        };
        self.rows_where((page, false), filter).await
    }
}

fn check(new: &NewApiKey) -> Result<(), Error> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if new.digest.len() != DIGEST_DIGITS || !new.digest.bytes().all(is_digit) {
        return Err(Error::Invalid("the digest must be 64 hex digits in lower case".to_owned()));
    }
    bounds::name("consumer", &new.consumer)?;
    for (what, name) in [("tenant", &new.tenant), ("tier", &new.tier)] {
        name.as_ref().map_or(Ok(()), |name| bounds::name(what, name))?;
    }
    Ok(())
}

const DIGEST_DIGITS: usize = 64;
const DIGITS_SHOWN: usize = 12;
