//! `policies`: documents that define a policy. Their content is checked by who writes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::bounds;
use super::error::Error;
use super::handle::Database;
use super::rows::{TableRow, columns};
use super::time::Time;
use super::write::{Actor, Expect, RowKind};

/// A policy as it was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Policy")]
pub struct PolicyRow {
    /// The policy's name.
    pub id: String,
    /// The policy's definition, in the form in which it was written.
    #[schemars(extend("type" = "object", "examples" = [{ "limit": "100/m burst 20", "by": ["consumer"] }]))]
    pub document: Json,
    /// The version of the last change.
    pub version: i64,
    /// When it was last changed.
    pub updated_at: Time,
    /// The name of the token or certificate that made it.
    pub updated_by: String,
}

impl TableRow for PolicyRow {
    const KIND: RowKind = RowKind::Policy;
    const TABLE: &'static str = "policies";
    const KEY: &'static [&'static str] = &["id"];
    columns!(id, document, version, updated_at, updated_by);

    fn key(&self) -> String {
        self.id.clone()
    }
}

impl Database {
    /// Makes or replaces a policy.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the present one is not what `expect` says; [`Error::Invalid`].
    pub async fn put_policy(
        &self,
        by: &Actor,
        id: &str,
        document: Json,
        expect: Expect,
    ) -> Result<PolicyRow, Error> {
        bounds::name("policy", id)?;
        self.put(by, id, expect, |write, _| PolicyRow {
            id: id.to_owned(),
            document,
            version: write.version,
            updated_at: write.at,
            updated_by: by.who.clone(),
        })
        .await
    }
}
