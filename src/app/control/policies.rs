//! Rows of policies into what is read beside gateway.toml.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::shared::Policies;
use crate::config::{self, Added};
use crate::database::{Gone, State};

/// The policies of the database, by name.
#[derive(Debug, Default)]
pub(super) struct Rows(BTreeMap<String, Added>);

impl Rows {
    /// Puts these in the place of all there are. Whether anything differs.
    pub(super) fn replace(&mut self, state: &State) -> bool {
        let rows: BTreeMap<_, _> =
            state.policies.iter().filter_map(|row| Some((row.id.clone(), of_row(row)?))).collect();
        let differs = rows != self.0;
        self.0 = rows;
        differs
    }

    /// Puts these in, and takes those out that are gone. Whether anything differs.
    pub(super) fn change(&mut self, changed: &State, gone: &[Gone]) -> bool {
        let mut differs = false;
        for row in &changed.policies {
            if let Some(added) = of_row(row) {
                differs |= self.0.get(&row.id) != Some(&added);
                self.0.insert(row.id.clone(), added);
            }
        }
        for gone in gone {
            if let Gone::Policy(name) = gone {
                differs |= self.0.remove(name).is_some();
            }
        }
        differs
    }

    /// All of them, as of a version.
    pub(super) fn as_of(&self, version: i64) -> Policies {
        Policies { version, added: self.0.values().cloned().collect() }
    }
}

/// Whether the configuration would be valid if a policy had these keys, or were not there; what is wrong with it, as
/// `check` says it. Reads the files as they are now.
pub(super) async fn check(
    path: PathBuf,
    present: Arc<[Added]>,
    name: String,
    document: Option<Value>,
) -> Result<(), String> {
    let proposed = document.map(|document| Added::policy(&name, &document)).transpose()?;
    let checking = tokio::task::spawn_blocking(move || {
        let others = present.iter().filter(|added| added.name() != name).cloned();
        let added: Vec<Added> = others.chain(proposed).collect();
        let read = config::read_with(&path, &added).and_then(config::compiled);
        read.map(drop).map_err(|errors| errors.to_string())
    });
    checking.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// `None` if it cannot be written as TOML, which no writer lets into the table.
fn of_row(row: &crate::database::PolicyRow) -> Option<Added> {
    match Added::policy(&row.id, &row.document) {
        Ok(added) => Some(added),
        Err(error) => {
            tracing::error!(policy = row.id, %error, "a policy of the database cannot be read");
            None
        }
    }
}
