//! The tier table of the database: one window for a tier under one policy, or under all that are by tier. Each row is a
//! document beside the files (see `row_document.rs`).
//!
//! A row that nothing can be done with is an error while it is being written, and a warning later, because files that
//! change must not fail because of a row that somebody wrote for what they had before.

use std::collections::HashMap;
use std::num::NonZeroU64;

use base::words;
use limit::{Algorithm, Quota};

use crate::keys::policy::ALGORITHMS;
use crate::limits::windows;
use crate::limits::windows::Counting;
use crate::load::sections;
use crate::load::text::Text;
use crate::reader::{Table, Value};

/// The rows, by resource and in the order given.
pub(crate) struct TierTable<'c>(HashMap<String, Vec<Row<'c>>>);

pub(crate) struct Row<'c> {
    pub(crate) tier: String,
    pub(crate) algorithm: Option<Algorithm>,
    resource: Text<'c>,
    limit: Text<'c>,
    /// As a token bucket with the limit as its burst.
    window: Quota,
    burst: NonZeroU64,
}

impl<'c> TierTable<'c> {
    /// Reads the rows of all documents; files have none.
    pub(crate) fn read(documents: &[Table<'c>]) -> TierTable<'c> {
        let mut rows: HashMap<String, Vec<Row<'c>>> = HashMap::new();
        for table in documents.iter().filter(|document| document.is_added()) {
            let row = table.table(SECTION).and_then(|table| read(&table));
            if let Some(row) = row {
                rows.entry(row.resource.text.clone()).or_default().push(row);
            }
        }
        TierTable(rows)
    }

    /// The rows for a policy, or for [`EVERY_POLICY`] with `limit = "tier"`.
    pub(crate) fn of(&self, policy: &str) -> &[Row<'c>] {
        self.0.get(policy).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn check(&self, policies: &[&str]) {
        for (resource, rows) in &self.0 {
            if resource == EVERY_POLICY || policies.contains(&resource.as_str()) {
                continue;
            }
            let hint = words::did_you_mean(resource, policies).unwrap_or_else(|| {
                format!("write the name of a policy, or `{EVERY_POLICY}` for all with `limit = \"tier\"`")
            });
            for row in rows {
                row.resource.fault(format!("there is no policy {}", row.resource.shown()), hint.clone());
            }
        }
    }
}

impl Row<'_> {
    /// The window, as it counts; `None` if it cannot, which is reported.
    pub(crate) fn window(&self, counting: Counting) -> Option<Quota> {
        let window = match counting.algorithm {
            _ if self.window.calendar().is_some() => self.window,
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                Quota::new(Algorithm::TokenBucket, self.window.limit(), self.window.period_ns(), self.burst)
            }
            // As it is, because the others have no burst.
            _ => self.window,
        };
        windows::counted(&self.limit, window, counting)
    }
}

fn read<'c>(table: &Table<'c>) -> Option<Row<'c>> {
    let text = |key| table.value(key).and_then(|value| value.text());
    let (tier, resource, limit) = (text("tier")?, text("resource")?, text("limit")?);
    if !sections::is_name(&tier.text) {
        tier.fault(format!("{} cannot be the name of a tier", tier.shown()), sections::NAMES);
        return None;
    }
    let algorithm = match table.value("algorithm") {
        Some(value) => Some(algorithm(&value)?),
        None => None,
    };
    let (window, _) = windows::window(&limit, Counting::default(), windows::hint_without_by)?;
    let burst = table.value("burst").and_then(|value| value.integer()).and_then(NonZeroU64::new)?;
    Some(Row { tier: tier.text, algorithm, resource, limit, window, burst })
}

fn algorithm(value: &Value<'_>) -> Option<Algorithm> {
    let text = value.text()?;
    let found = ALGORITHMS.iter().find(|(word, _)| *word == text.text);
    if found.is_none() {
        let words = ALGORITHMS.map(|(word, _)| word);
        let hint = words::did_you_mean(&text.text, &words);
        let hint = hint.unwrap_or_else(|| format!("write {}", words::listed(&words)));
        text.fault(format!("{} is not an algorithm", text.shown()), hint);
    }
    found.map(|(_, algorithm)| *algorithm)
}

pub(crate) const SECTION: &str = "tier-table";
/// The resource of rows for every policy with `limit = "tier"`.
pub(crate) const EVERY_POLICY: &str = "*";
