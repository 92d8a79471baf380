//! Reads `hot-keys` of a policy.

use limit::{Algorithm, Quota};
use policy::counting::shorthand;
use policy::definition::HotKeyRules;

use crate::limits::limit_text;
use crate::reader::{Table, Value};

/// `{ above = "5%", then = "report" }`, both with a default.
pub(crate) fn read(table: Table<'_>) -> HotKeyRules {
    let mut hot_keys = HotKeyRules::default();
    table.share("above", &mut hot_keys.above_ppm);
    table.set("then", &mut hot_keys.local_only, local_only);
    hot_keys
}

fn local_only(value: Value<'_>) -> Option<Option<Quota>> {
    let then = value.text()?;
    if then.text == REPORT {
        return Some(None);
    }
    let limit = then.text.strip_prefix(LOCAL_ONLY).and_then(|limit| shorthand::parse(limit.trim()).ok());
    let is_plain = |limit: &shorthand::Shorthand| {
        // By the calendar neither, because a key is hot for a short while.
        let window = &limit.window;
        limit.by.is_empty() && window.algorithm() != Algorithm::Concurrency && window.calendar().is_none()
    };
    let limit = limit.filter(is_plain);
    if limit.is_none() {
        let hint = "write `\"report\"`, or a limit for each node, for example `\"local-only:1000/m\"`";
        then.wrong(format!("{} is not a valid action for hot keys", then.shown()), hint);
    }
    let window = limit?.window;
    then.spell(format!("{LOCAL_ONLY}{}", limit_text::show_window(&window)));
    Some(Some(window))
}

const REPORT: &str = "report";
const LOCAL_ONLY: &str = "local-only:";
