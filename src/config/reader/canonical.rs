//! Writes what was read as a gateway.toml in one canonical form: each key by its row, in the order of the rows, with every
//! default. Two spellings of one configuration are written alike.
//!
//! What a row cannot tell, the reader of a value has noted ([`Spelling`]): that a host is written in lower case, or what holds
//! for a key that is not written.

use toml::de::DeValue;

use super::canonical_text::{BEGIN, BETWEEN, Canonical, END};
use super::{Table, Value};
use crate::keys::process::ROOT;
use crate::keys::schema;
use crate::keys::{Key, KeyDefault, Kind, Section};
use crate::limits::candidate;
use crate::load::context::{Context, PlaceSpellings, Spelling};
use crate::load::mask;
use crate::load::mask::MASK;
use crate::load::sections;
use crate::load::sections::NamedTable;
use crate::printer::{Page, array, key, size, table, text, time};
use base::units::{self, show_share};

/// The keys of a table and their values as they are written.
type Keys = Vec<(String, String)>;

/// Everything that was read from these files.
pub(crate) fn written(ctx: &Context<'_>, documents: &[Table<'_>]) -> Canonical {
    let mut page = Page(String::new());
    for row in ROOT.keys.iter().filter(|row| row.is_of_files() && !UNWRITTEN.contains(&row.name)) {
        match &row.kind {
            Kind::Map(Kind::Table(section) | Kind::Tagged([(_, section), ..])) => {
                named_sections(documents, row, &mut page);
                for made in ctx.made.borrow().iter().filter(|made| made.section == row.name) {
                    let keys = keys_of(section, None, &made.keys);
                    page.section(&heading(row, &made.name), made.comment.clone(), keys);
                }
            }
            Kind::List(_) => {
                let lists = documents.iter().filter_map(|document| document.value(row.name)?.array());
                for table in lists.flatten().filter_map(|value| value.table()) {
                    page.section(&format!("[[{}]]", row.name), table.comment(), table.canonical());
                }
            }
            _ => match documents.iter().find_map(|document| document.value(row.name)) {
                Some(value) if value.is_table() => {
                    let keys = value.table().map(|table| table.canonical()).unwrap_or_default();
                    if !keys.is_empty() {
                        page.section(&format!("[{}]", row.name), None, keys);
                    }
                }
                Some(value) => page.at_the_top(row.name, value.canonical(false)),
                None => match (&row.unwritten, section_of(&row.kind)) {
                    (KeyDefault::Defaults, Some(section)) => {
                        page.section(&format!("[{}]", row.name), None, keys_of(section, None, &[]));
                    }
                    _ => default_of(row).into_iter().for_each(|default| page.at_the_top(row.name, default)),
                },
            },
        }
    }
    Canonical::of(page.0)
}

/// The tables of a section by their names.
fn named_sections(documents: &[Table<'_>], row: &'static Key, page: &mut Page) {
    let named = sections::named(documents, row.name);
    let named = if row.name == "policy" { candidate::on_top(named) } else { named };
    for NamedTable { name, table } in &named {
        page.section(&heading(row, name), table.comment(), table.canonical());
    }
}

fn heading(row: &Key, name: &str) -> String {
    format!("[{}.{}]", row.name, key(name))
}

impl Page {
    fn section(&mut self, heading: &str, comment: Option<String>, keys: Keys) {
        self.heading(heading);
        comment.iter().for_each(|comment| self.comment(comment));
        keys.into_iter().for_each(|(key, value)| self.key(&key, value));
    }
}

/// The keys of a section: as they are noted or written, otherwise their defaults.
fn keys_of(section: &'static Section, table: Option<&Table<'_>>, noted: &[(&str, String)]) -> Keys {
    let is_written = |key: &'static str| table.is_some_and(|table| table.value(key).is_some());
    // One look for all keys, because a route has 50 of them and writes four.
    let spellings = table.map(|table| table.ctx.spellings.borrow());
    let notes = spellings.as_ref().and_then(|spellings| spellings.get(&table?.place));
    let mut keys = Vec::new();
    for row in section.keys().filter(|row| row.is_of_files()) {
        let noted = noted.iter().find(|(name, _)| *name == row.name).map(|(_, toml)| toml.clone());
        let written = noted.or_else(|| table.and_then(|table| table.canonical_of(row, notes)));
        let written = written.or_else(|| match &row.unwritten {
            KeyDefault::ValueBeside(others, default) => {
                let is_meant = others.iter().any(|other| is_written(other));
                is_meant.then(|| default_toml(&row.kind, &schema::value(default)))
            }
            _ => default_of(row),
        });
        keys.extend(written.filter(|toml| !toml.is_empty()).map(|toml| (row.name.to_owned(), toml)));
    }
    keys
}

/// What holds if a key is not written.
fn default_of(row: &'static Key) -> Option<String> {
    match (&row.unwritten, section_of(&row.kind)) {
        (KeyDefault::Value(default), _) => Some(default_toml(&row.kind, &schema::value(default))),
        (KeyDefault::Defaults, Some(section)) => Some(table(keys_of(section, None, &[]))),
        _ => None,
    }
}

fn default_toml(kind: &'static Kind, default: &serde_json::Value) -> String {
    match default {
        serde_json::Value::String(text) => of_one(kind, |kind| string(Some(kind), text, false)),
        serde_json::Value::Array(values) => array(values.iter().map(text_of)),
        serde_json::Value::Object(values) => match section_of(kind) {
            None => "{}".to_owned(),
            Some(section) => {
                let toml =
                    |row: &'static Key| Some((row.name, default_toml(&row.kind, values.get(row.name)?)));
                table(keys_of(section, None, &section.keys().filter_map(toml).collect::<Vec<_>>()))
            }
        },
        number => of_one(kind, |_| number.to_string()),
    }
}

fn text_of(value: &serde_json::Value) -> String {
    text(value.as_str().unwrap_or_default())
}

/// The rows of a table that a value may be.
fn section_of(kind: &'static Kind) -> Option<&'static Section> {
    kind.each().iter().find_map(|kind| match kind {
        Kind::Table(section) | Kind::Open(section, _) => Some(*section),
        _ => None,
    })
}

/// A text or a number where a list or a table may be written, too: a list of it, or a table with it under the first key.
fn of_one(kind: &'static Kind, written: impl Fn(&'static Kind) -> String) -> String {
    let list = kind.each().iter().find_map(|kind| if let Kind::List(of) = kind { Some(*of) } else { None });
    if let Some(of) = list {
        return format!("[{}]", of_one(of, written));
    }
    let toml = written(kind);
    match kind.each() {
        [Kind::Text | Kind::Number(..), Kind::Table(section) | Kind::Open(section, _)] => {
            let first = section.keys.first().map_or("", |row| row.name);
            table(keys_of(section, None, &[(first, toml)]))
        }
        [.., Kind::Texts] | [Kind::Texts, ..] | [Kind::Field(Kind::Texts)] => format!("[{toml}]"),
        _ => toml,
    }
}

/// A text as its kind has it: a duration in its largest unit, and the like.
fn string(kind: Option<&Kind>, written: &str, is_secret: bool) -> String {
    let kinds = || kind.into_iter().flat_map(Kind::each);
    let in_units = kinds().find_map(|kind| match kind {
        Kind::Time(_) | Kind::TimeWithin(..) | Kind::TimeOrOff(_) => units::duration(written).ok().map(time),
        Kind::Size(..) => units::size(written).ok().map(size),
        Kind::Share => units::share_ppm(written).ok().map(|ppm| text(&show_share(ppm))),
        Kind::Number(..) => written.trim().parse::<u64>().ok().map(|number| number.to_string()),
        _ => None,
    });
    let toml = in_units.unwrap_or_else(|| text(written));
    let masked = match is_secret {
        true => MASK.to_owned(),
        false if kinds().any(|kind| matches!(kind, Kind::Url)) => mask::value(written),
        false => return toml,
    };
    format!("{BEGIN}{}{BETWEEN}{toml}{END}", text(&masked))
}

impl Table<'_> {
    /// Its keys as they are written.
    fn canonical(&self) -> Keys {
        let mut keys = self.section.map(|section| keys_of(section, Some(self), &[])).unwrap_or_default();
        let is_row = |key: &str| self.section.is_some_and(|section| section.key(key).is_some());
        let others = if self.others.is_some() { self.entries() } else { Vec::new() };
        for entry in others.iter().filter(|entry| !is_row(&entry.key)) {
            // Lower case, because names of fields have none; a name that is written in two has two keys all the same.
            let lower = key(&entry.key.to_ascii_lowercase());
            let is_free = !keys.iter().any(|(known, _)| *known == lower);
            let is_field = entry.kinds().any(|kind| matches!(kind, Kind::Field(_)));
            let name = if is_field && is_free { lower } else { key(&entry.key) };
            keys.push((name, entry.canonical(false)));
        }
        keys
    }

    fn comment(&self) -> Option<String> {
        Some(self.ctx.spellings.borrow().get(&self.place)?.of(COMMENT)?.toml())
    }

    /// A key's value; nothing for an empty list or table that is what holds without it.
    fn canonical_of(&self, row: &'static Key, notes: Option<&PlaceSpellings>) -> Option<String> {
        if let Some(noted) = notes.and_then(|notes| notes.of(row.name)) {
            return Some(noted.toml());
        }
        let toml = self.value(row.name)?.canonical(false);
        let is_nothing = matches!(row.unwritten, KeyDefault::Nothing | KeyDefault::Means(_));
        (!is_nothing || !matches!(toml.as_str(), "[]" | "{}")).then_some(toml)
    }

    /// Notes how a key is written, be it written in the file or not; an empty text: not at all.
    pub(crate) fn spell(&self, key: &'static str, toml: impl Into<String>) {
        self.ctx.spell(self.place, key, Spelling::Toml(toml.into()));
    }

    /// Notes a line of comment for the head of the table.
    pub(crate) fn spell_comment(&self, comment: &str) {
        let before = self.comment().map(|before| format!("{before}\n# ")).unwrap_or_default();
        self.spell(COMMENT, before + comment);
    }
}

impl Value<'_> {
    /// Notes how the whole value is written.
    pub(crate) fn spell(&self, toml: impl Into<String>) {
        self.ctx.spell(self.place, "", Spelling::Toml(toml.into()));
    }

    fn canonical(&self, is_in_secret: bool) -> String {
        let is_secret = is_in_secret
            || self.kinds().any(|kind| match kind {
                Kind::Secret => true,
                Kind::Field(inner) | Kind::Entry(inner) => {
                    mask::is_secret_name(&self.key) || matches!(inner, Kind::Secret)
                }
                _ => false,
            });
        let noted = self.ctx.spellings.borrow().get(&self.place).and_then(|notes| notes.of("").cloned());
        let written = match (noted, self.value) {
            (Some(Spelling::Toml(toml)), _) => return toml,
            (_, DeValue::Array(_)) => {
                let values = self.array().unwrap_or_default();
                let is_long = self.key == DESCRIPTORS;
                let values = values.iter().map(|value| value.canonical(is_secret));
                return match is_long {
                    true => {
                        format!("[\n{}]", values.map(|value| format!("  {value},\n")).collect::<String>())
                    }
                    false => array(values),
                };
            }
            (_, DeValue::Table(_)) => {
                let toml = table(self.table().map(|table| table.canonical()).unwrap_or_default());
                let mut kinds = self.kinds();
                let is_listed = kinds.any(|kind| matches!(kind, Kind::List(_)));
                let is_map = self.kinds().any(|kind| matches!(kind, Kind::Map(_)));
                return if is_listed && !is_map { format!("[{toml}]") } else { toml };
            }
            (_, DeValue::Boolean(value)) => return value.to_string(),
            (Some(Spelling::Text(text)), _) => text,
            (None, DeValue::Integer(_)) => match self.integer() {
                Some(number) => number.to_string(),
                None => String::new(),
            },
            (None, _) => self.text().map(|text| text.text).unwrap_or_default(),
        };
        let number = self.is_integer().then(|| {
            let mut kinds = self.kinds();
            match kinds.find(|kind| matches!(kind, Kind::Size(..) | Kind::Share)) {
                Some(Kind::Size(..)) => written.parse().map(size).unwrap_or_default(),
                Some(_) => text("0%"),
                None => written.clone(),
            }
        });
        let toml = |kind: Option<&Kind>| number.clone().unwrap_or_else(|| string(kind, &written, is_secret));
        match self.kind {
            Some(kind) => of_one(kind, |kind| toml(Some(kind))),
            None => toml(None),
        }
    }
}

/// The key that the comment of a table is noted under.
const COMMENT: &str = "#";
/// The list that has a line for each element, because it may have thousands.
const DESCRIPTORS: &str = "descriptors";
/// Files are written as one. `[compress]` is written at each route that it holds for.
const UNWRITTEN: [&str; 2] = ["include", "compress"];
