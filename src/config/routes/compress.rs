//! Reads `compress`, of the whole file and of a route.

use std::sync::Arc;

use policy::response::compress::{Coding, Compress, MediaRange};

use crate::printer::{array, size, table as show_table, text};
use crate::reader::scalar::ON_OFF_OR_TABLE;
use crate::reader::{Table, Value};

/// The rules of a route: `true`, `false`, or a table. What the table leaves out is as in `[compress]`.
pub(crate) fn of_route(value: &Value<'_>, default: Option<&Arc<Compress>>) -> Option<Arc<Compress>> {
    match value.as_boolean() {
        Some(true) => return Some(default.cloned().unwrap_or_default()),
        Some(false) => return None,
        None => {}
    }
    if !value.is_table() {
        value.wrong_type(ON_OFF_OR_TABLE);
        return None;
    }
    let table = value.table()?;
    let mut rules = default.map(|rules| Compress::clone(rules)).unwrap_or_default();
    if let Some(value) = table.value("types") {
        rules.types = types(&value);
    }
    table.size("min", &mut rules.min_bytes);
    if let Some(value) = table.value("encodings") {
        rules.codings = codings(&value, &rules.codings);
    }
    if let Some(levels) = table.table("level") {
        read_levels(levels, &mut rules.codings);
    }
    table.boolean("set-cookie", &mut rules.set_cookie);
    Some(Arc::new(rules))
}

fn types(value: &Value<'_>) -> Vec<MediaRange> {
    let texts = value.some_texts("write `compress = false`, or leave it out for the default types");
    let mut ranges = Vec::new();
    for text in texts.iter().take(TYPES_MAX + 1) {
        match MediaRange::parse(&text.text) {
            Some(range) => ranges.push(range),
            None => {
                let hint = "write `text/html`, `text/*` or `application/*+json`";
                text.wrong(format!("{} is not a media type", text.shown()), hint);
            }
        }
    }
    if ranges.len() > TYPES_MAX {
        value.wrong(
            format!("`types` names more than {TYPES_MAX} media types"),
            "merge some, for example `text/*`: each response is compared with all of them",
        );
    }
    ranges
}

/// Codings in the order written; `before` knows levels of some.
fn codings(value: &Value<'_>, before: &[(Coding, u32)]) -> Vec<(Coding, u32)> {
    let texts = value.some_texts("write `compress = false`, or leave it out for all encodings");
    let choices = Coding::ALL.map(|coding| (coding.name(), coding));
    let mut codings: Vec<(Coding, u32)> = Vec::new();
    for text in &texts {
        let Some(coding) = text.choice(&choices) else { continue };
        if codings.iter().any(|(known, _)| *known == coding) {
            text.wrong(format!("{} is named twice", text.shown()), "name it once");
        }
        let level =
            before.iter().find(|(known, _)| *known == coding).map_or(coding.level(), |(_, level)| *level);
        codings.push((coding, level));
    }
    codings
}

fn read_levels(table: Table<'_>, codings: &mut [(Coding, u32)]) {
    for coding in Coding::ALL {
        let Some(value) = table.value(coding.name()) else { continue };
        let Some(level) = value.integer() else { continue };
        match codings.iter_mut().find(|(known, _)| *known == coding) {
            Some(entry) => entry.1 = u32::try_from(level).unwrap_or(entry.1),
            None => value.wrong_key(
                format!("`{}` is not listed in `encodings`", coding.name()),
                "leave it out, or add it there",
            ),
        }
    }
}

/// Writes the rules of a route.
pub(crate) fn show(rules: &Compress) -> String {
    let level = rules.codings.iter().map(|(coding, level)| (coding.name(), level.to_string()));
    show_table([
        ("types", array(rules.types.iter().map(|range| text(range.as_str())))),
        ("min", size(rules.min_bytes)),
        ("encodings", array(rules.codings.iter().map(|(coding, _)| text(coding.name())))),
        ("level", show_table(level)),
        ("set-cookie", rules.set_cookie.to_string()),
    ])
}

const TYPES_MAX: usize = 100;
