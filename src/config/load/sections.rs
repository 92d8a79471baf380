//! Finds sections over all files: keys that may occur in one file only, and named tables from all of them.

use std::collections::{BTreeMap, HashMap};

use crate::keys::process::ROOT;
use crate::keys::{Key, Kind};
use crate::load::report::{Fields, SourceSpan, quoted};
use crate::reader::{self, Table, Value};
use base::words::NAME_BYTES_MAX;

pub(crate) struct NamedTable<'c> {
    pub(crate) name: String,
    pub(crate) table: Table<'c>,
}

/// The tables of one section over all files, in the order written; a name given twice is reported.
pub(crate) fn named<'c>(documents: &[Table<'c>], section: &'static str) -> Vec<NamedTable<'c>> {
    let mut all: Vec<NamedTable<'c>> = Vec::new();
    let mut places: HashMap<String, SourceSpan> = HashMap::new();
    for value in documents.iter().filter_map(|document| document.value(section)) {
        let Some(names) = value.table() else { continue };
        for value in names.entries() {
            if !is_name(&value.key) {
                value.wrong_key(format!("{} cannot be a name", quoted(&value.key)), NAMES);
                continue;
            }
            let Some(table) = value.table() else { continue };
            if let Some(first) = places.insert(value.key.clone(), value.key_place) {
                if value.is_added() {
                    all.retain(|named| named.name != value.key);
                    all.push(NamedTable { name: value.key, table });
                    continue;
                }
                value.wrong_beside(
                    value.key_place,
                    format!("the {section} {} is given twice", quoted(&value.key)),
                    "rename or merge it",
                    first,
                );
                continue;
            }
            all.push(NamedTable { name: value.key, table });
        }
    }
    all
}

pub(crate) fn name(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    if !is_name(&text.text) {
        text.wrong(format!("{} cannot be a name", text.shown()), NAMES);
        return None;
    }
    Some(text.text)
}

pub(crate) const NAMES: &str =
    "start with a letter, then at most 200 printable ASCII characters without `\"` and `\\`";

pub(crate) fn table<'c>(documents: &[Table<'c>], key: &'static str) -> Option<Table<'c>> {
    single(documents, key)?.table()
}

/// A key that may occur in one file only. A second one is reported.
pub(crate) fn single<'c>(documents: &[Table<'c>], key: &'static str) -> Option<Value<'c>> {
    let mut values = documents.iter().filter_map(|document| document.value(key));
    let first = values.next()?;
    for again in values {
        again.wrong_beside(
            again.key_place,
            format!("`{key}` is given twice"),
            "keep one of the two",
            first.key_place,
        );
    }
    Some(first)
}

/// Where the keys of the sections are written that may occur in one file only.
pub(crate) fn places(documents: &[Table<'_>]) -> BTreeMap<&'static str, Fields> {
    let single = ROOT.keys().filter(|row| matches!(row.kind.each(), [Kind::Table(_), ..]));
    let first = |row: &Key| documents.iter().find_map(|document| document.value(row.name));
    single.filter_map(|row| Some((row.name, reader::places(&first(row)?)?))).collect()
}

/// Whether a text can name a listener, an upstream, a policy or a route. Clients see a policy's name in a quoted string
/// (RFC 9651 section 3.3.3), so it must need no escapes. It must not start with a digit, which starts a shorthand.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= NAME_BYTES_MAX
        && !text.starts_with(|first: char| first.is_ascii_digit() || first == ' ')
        && text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\')
}
