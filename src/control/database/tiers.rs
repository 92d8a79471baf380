//! `rate_limit_configs`: the limits of a tier, by resource.

use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds;
use super::error::Error;
use super::handle::Database;
use super::rows::{TableRow, columns};
use super::time::Time;
use super::write::{Actor, Expect, RowKind};

/// What a tier allows of one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TierLimit {
    /// The tier.
    pub tier: String,
    /// The resource.
    pub resource: String,
    /// Units in a window.
    pub limit_value: NonZeroU64,
    /// The length of the window, seconds.
    pub window_seconds: NonZeroU64,
    /// The burst as a multiple of the limit.
    pub burst_multiplier: f64,
    /// The algorithm's word, or `calendar-month` and the like for a window of the calendar; `null`: the policy's own.
    pub algorithm: Option<String>,
    /// When it was made.
    pub created_at: Time,
    /// When it was changed last.
    pub updated_at: Time,
    /// The version of the last change.
    pub version: i64,
}

/// A tier's limit that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTierLimit {
    pub tier: String,
    pub resource: String,
    pub limit_value: NonZeroU64,
    pub window_seconds: NonZeroU64,
    /// As [`TierLimit::burst_multiplier`]; `None`: the default, [`BURST_MULTIPLIER`].
    pub burst_multiplier: Option<f64>,
    pub algorithm: Option<String>,
}

/// The key of a tier's limit as one text, which is how `changes`, the audit log and pages have it: JSON of both names, so
/// that no character of a name is special.
pub fn key(tier: &str, resource: &str) -> String {
    serde_json::json!([tier, resource]).to_string()
}

/// The names in a [`key`]; `None` if it is none.
fn names(key: &str) -> Option<(String, String)> {
    serde_json::from_str(key).ok()
}

impl TableRow for TierLimit {
    const KIND: RowKind = RowKind::Tier;
    const TABLE: &'static str = "rate_limit_configs";
    const KEY: &'static [&'static str] = &["tier", "resource"];
    columns!(
        tier,
        resource,
        limit_value,
        window_seconds,
        burst_multiplier,
        algorithm,
        created_at,
        updated_at,
        version
    );

    fn key(&self) -> String {
        key(&self.tier, &self.resource)
    }

    fn key_values(key: &str) -> Result<Vec<String>, Error> {
        let names = names(key).map(|(tier, resource)| vec![tier, resource]);
        names.ok_or_else(|| Error::Invalid("`after` must be the `next` of the page before".to_owned()))
    }
}

impl Database {
    /// Makes or replaces the limit of a tier for a resource.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the present one is not what `expect` says; [`Error::Invalid`].
    pub async fn put_tier(&self, by: &Actor, new: NewTierLimit, expect: Expect) -> Result<TierLimit, Error> {
        check(&new)?;
        self.put(by, &key(&new.tier, &new.resource), expect, |write, old| TierLimit {
            tier: new.tier,
            resource: new.resource,
            limit_value: new.limit_value,
            window_seconds: new.window_seconds,
            burst_multiplier: new.burst_multiplier.unwrap_or(BURST_MULTIPLIER),
            algorithm: new.algorithm,
            created_at: old.map_or(write.at, |old: &TierLimit| old.created_at),
            updated_at: write.at,
            version: write.version,
        })
        .await
    }
}

/// Beyond what the columns' types say.
fn check(new: &NewTierLimit) -> Result<(), Error> {
    bounds::name("tier", &new.tier)?;
    bounds::name("resource", &new.resource)?;
    if let Some(algorithm) = &new.algorithm {
        bounds::name("algorithm", algorithm)?;
    }
    if new.burst_multiplier.is_some_and(|factor| !(factor.is_finite() && factor > 0.0)) {
        return Err(Error::Invalid("the burst multiplier must be a number above 0".to_owned()));
    }
    for (what, number) in [("limit", new.limit_value), ("window", new.window_seconds)] {
        i64::try_from(number.get()).map_err(|_| Error::Invalid(format!("the {what} is too large")))?;
    }
    Ok(())
}

/// The default of [`TierLimit::burst_multiplier`], as the column has it.
pub const BURST_MULTIPLIER: f64 = 1.2;
