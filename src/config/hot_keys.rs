//! Reads and writes `hot-keys` of a policy.

use limit::{Algorithm, Quota};
use policy::definition::HotKeys;
use policy::shorthand;

use super::limit_text;
use super::printer::{table as show_table, text as show_text};
use super::reader::Table;
use super::text::Text;
use base::units::show_share;

/// `{ above = "5%", then = "report" }`, both with a default.
pub(super) fn read(table: Table<'_>) -> HotKeys {
    let mut hot_keys = HotKeys::default();
    if let Some(above) = table.value("above").and_then(|value| value.share_ppm()) {
        hot_keys.above_ppm = above;
    }
    if let Some(then) = table.value("then").and_then(|value| value.text()) {
        hot_keys.local_only = local_only(&then);
    }
    table.finish(&[]);
    hot_keys
}

fn local_only(then: &Text<'_>) -> Option<Quota> {
    if then.text == REPORT {
        return None;
    }
    let limit = then.text.strip_prefix(LOCAL_ONLY).and_then(|limit| shorthand::parse(limit.trim()).ok());
    let is_plain = |limit: &shorthand::Shorthand| {
        limit.by.is_empty() && limit.window.algorithm() != Algorithm::Concurrency
    };
    let limit = limit.filter(is_plain);
    if limit.is_none() {
        let hint = "write `\"report\"`, or a limit for each node as in `\"local-only:1000/m\"`";
        then.wrong(format!("{} is nothing that can be done about a hot key", then.shown()), hint);
    }
    limit.map(|limit| limit.window)
}

/// Writes the value of `hot-keys`.
pub(super) fn show(hot_keys: &HotKeys) -> String {
    let then = match &hot_keys.local_only {
        None => REPORT.to_owned(),
        Some(quota) => format!("{LOCAL_ONLY}{}", limit_text::show_window(quota)),
    };
    show_table([("above", show_text(&show_share(hot_keys.above_ppm))), ("then", show_text(&then))])
}

const REPORT: &str = "report";
const LOCAL_ONLY: &str = "local-only:";
