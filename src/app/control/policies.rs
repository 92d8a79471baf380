//! Rows of policies and of the tier table into what is read beside gateway.toml.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::control_state::Policies;
use config::{self, Files, RowDocument, TierRow};
use control::admin::Proposal;
use control::admin::bodies::{At, Flaw};
use control::database::tiers::BURST_MULTIPLIER;
use control::database::{
    DatabaseRows, NewTierLimit, PolicyRow, RowKind, RowName, TableRow, TierLimit, tiers,
};

#[derive(Clone, Debug, Default)]
pub(crate) struct Rows(BTreeMap<RowName, RowDocument>);

impl Rows {
    pub(crate) fn of(state: &DatabaseRows) -> Rows {
        let policies = state.policies.iter().filter_map(of_policy);
        Rows(policies.chain(state.tiers.iter().filter_map(of_tier)).collect())
    }

    /// Puts these in the place of all there are. Whether anything differs.
    pub(super) fn replace(&mut self, state: &DatabaseRows) -> bool {
        let rows = Rows::of(state).0;
        let differs = rows != self.0;
        self.0 = rows;
        differs
    }

    /// Puts these in, and takes those out that are gone. Whether anything differs.
    pub(super) fn change(&mut self, changed: &DatabaseRows, gone: &[RowName]) -> bool {
        let mut differs = false;
        for (key, added) in Rows::of(changed).0 {
            differs |= self.0.get(&key) != Some(&added);
            self.0.insert(key, added);
        }
        for gone in gone {
            differs |= self.0.remove(gone).is_some();
        }
        differs
    }

    pub(super) fn as_of(&self, version: i64) -> Policies {
        Policies { version, rows: Arc::new(self.clone()) }
    }

    /// As they are read beside gateway.toml.
    pub(crate) fn added(&self) -> Vec<RowDocument> {
        self.0.values().cloned().collect()
    }
}

/// Whether the configuration would be valid if a row were as proposed; what is wrong with it, in the words of `check`. Rows that do
/// not fit as it is are not its fault.
pub(super) async fn check(files: Arc<Files>, mut rows: Rows, proposal: Proposal) -> Result<(), Vec<Flaw>> {
    let (key, added) = match proposal {
        Proposal::Policy { name, document } => {
            let added = document
                .map(|document| RowDocument::policy(&name, &document))
                .transpose()
                .map_err(of_whole)?;
            ((RowKind::Policy, name), added)
        }
        Proposal::Tier { tier, resource, limit } => {
            let added =
                limit.map(|limit| RowDocument::tier(&of_new(&limit))).transpose().map_err(of_whole)?;
            ((RowKind::Tier, tiers::key(&tier, &resource)), added)
        }
    };
    // A row of the tier table is written in other words than its body.
    let is_policy = key.0 == RowKind::Policy;
    let checking = tokio::task::spawn_blocking(move || {
        let all = rows.added();
        rows.0.remove(&key);
        let mut others = rows.added();
        let proposed = added.map(RowDocument::proposed);
        let check = |others: &[RowDocument]| {
            let rows: Vec<RowDocument> = others.iter().chain(&proposed).cloned().collect();
            files.with(&rows).and_then(config::compiled).map(drop)
        };
        let checked = check(&others).or_else(|_| {
            // Without the row that is to be replaced others may not fit any more, which the proposal must not hide.
            let before = files.fitting(all).0;
            others.retain(|row| before.contains(row));
            check(&others)
        });
        checked.map_err(|errors| {
            let flaw = |(pointer, detail)| Flaw {
                at: At::Body(if is_policy { pointer } else { String::new() }),
                detail,
            };
            errors.of_proposal().into_iter().map(flaw).collect()
        })
    });
    checking.await.unwrap_or_else(|error| Err(of_whole(error.to_string())))
}

fn of_whole(detail: String) -> Vec<Flaw> {
    vec![Flaw::of_body(detail)]
}

/// `None` if it cannot be written as TOML, which no writer lets into the table.
fn of_policy(row: &PolicyRow) -> Option<(RowName, RowDocument)> {
    match RowDocument::policy(&row.id, &row.document) {
        Ok(added) => Some(((RowKind::Policy, row.key()), added)),
        Err(error) => {
            tracing::error!(policy = row.id, %error, "a policy of the database is ignored, because it cannot be read");
            None
        }
    }
}

/// The same of a row of the tier table.
fn of_tier(row: &TierLimit) -> Option<(RowName, RowDocument)> {
    let said = TierRow {
        tier: &row.tier,
        resource: &row.resource,
        limit: row.limit_value,
        window_seconds: row.window_seconds,
        burst_multiplier: row.burst_multiplier,
        algorithm: row.algorithm.as_deref(),
    };
    match RowDocument::tier(&said) {
        Ok(added) => Some(((RowKind::Tier, row.key()), added)),
        Err(error) => {
            tracing::error!(tier = row.tier, resource = row.resource, %error, "a row of the tier table is ignored, \
                because it cannot be read");
            None
        }
    }
}

fn of_new(new: &NewTierLimit) -> TierRow<'_> {
    TierRow {
        tier: &new.tier,
        resource: &new.resource,
        limit: new.limit_value,
        window_seconds: new.window_seconds,
        burst_multiplier: new.burst_multiplier.unwrap_or(BURST_MULTIPLIER),
        algorithm: new.algorithm.as_deref(),
    }
}
