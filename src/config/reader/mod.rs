//! Reads a parsed TOML document key by key, and collects errors instead of stopping at the first.
//!
//! Which keys a table has, and what their values may be, its rows say (`keys`): a key that has no row is reported as soon as
//! the table is looked into. A value that cannot be read is reported here, once, and returned as `None`. The section
//! continues with a default, because a report with an error never becomes a configuration.

pub(crate) mod canonical;
pub(crate) mod canonical_text;
mod keys;
pub(crate) mod scalar;
pub(crate) mod unknown;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::process::ROOT;
use super::keys::{KeyDefault, Kind, Section};
use super::load::context::{Checkpoint, Context};
use super::load::report::{Fields, Finding, Hint, SourceSpan};

/// A table, and what its keys may be.
pub(super) struct Table<'c> {
    pub(super) ctx: &'c Context<'c>,
    /// Its name or heading.
    pub(super) place: SourceSpan,
    entries: &'c DeTable<'c>,
    /// Its rows. `None`: the operator chooses its keys.
    section: Option<&'static Section>,
    /// What values under keys without a row are.
    others: Option<&'static Kind>,
    /// Where some keys are taken from that it does not have.
    below: Option<NestedTable<'c>>,
    /// Whether it has a key that it cannot have.
    is_flawed: bool,
    /// Keys that unknown ones are near to. That one is missing needs no error of its own.
    misspelt: Vec<&'static str>,
}

/// A table below another: some of its values are those of the other too, which does not have them itself.
pub(super) struct NestedTable<'c> {
    place: SourceSpan,
    entries: &'c DeTable<'c>,
    keys: &'static [&'static str],
}

/// A value and its place in the file.
#[derive(Clone)]
pub(super) struct Value<'c> {
    ctx: &'c Context<'c>,
    /// Its key; of an array's element, the array's.
    pub(super) key: String,
    /// The key's place; of an array's element, the element's.
    pub(super) key_place: SourceSpan,
    pub(super) place: SourceSpan,
    /// What it may be. `None`: its key has no row.
    kind: Option<&'static Kind>,
    value: &'c DeValue<'c>,
}

impl<'c> Table<'c> {
    pub(super) fn of_document(
        ctx: &'c Context<'c>,
        file: usize,
        document: &'c Spanned<DeTable<'c>>,
    ) -> Table<'c> {
        let place = SourceSpan { file, start: 0, end: 0 };
        Table::new(ctx, place, document.get_ref(), None).known(Some(&ROOT), "")
    }

    /// Marks this moment, to ask later whether an error was found since.
    pub(super) fn checkpoint(&self) -> Checkpoint<'c> {
        self.ctx.checkpoint(self.is_flawed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether it comes from elsewhere than a file.
    pub(super) fn is_added(&self) -> bool {
        self.ctx.is_added(self.place)
    }

    fn new(
        ctx: &'c Context<'c>,
        place: SourceSpan,
        entries: &'c DeTable<'c>,
        others: Option<&'static Kind>,
    ) -> Table<'c> {
        Table {
            ctx,
            place,
            entries,
            section: None,
            others,
            below: None,
            is_flawed: false,
            misspelt: Vec::new(),
        }
    }

    /// The same as a table with these rows, called `name`. Reports every key that it cannot have.
    fn known(mut self, section: Option<&'static Section>, name: &str) -> Table<'c> {
        self.section = section;
        let Some(section) = section.filter(|_| self.others.is_none()) else { return self };
        let is_added = self.is_added();
        let is_known = |kind: &Kind| match kind {
            Kind::Elsewhere(..) => false,
            Kind::Added(_) => is_added,
            _ => true,
        };
        for entry in self.entries() {
            match entry.kind {
                Some(Kind::Elsewhere(message, hint)) => entry.wrong_key(*message, *hint),
                Some(kind) if is_known(kind) => continue,
                _ => {
                    let known = section.keys().filter(|key| is_known(&key.kind));
                    let known: Vec<_> = known.map(|key| key.name).collect();
                    let heading = section.heading.replace("<name>", name).replace("<key>", name);
                    self.misspelt.extend(unknown::report(&entry, section, &known, &heading));
                }
            }
            self.is_flawed = true;
        }
        for key in section.keys() {
            if let KeyDefault::Needs(message, hint) = key.unwritten
                && !self.has(key.name)
            {
                self.lacks(&[key.name], message, hint);
                self.is_flawed = true;
            }
        }
        self
    }

    /// Its values of these keys, for another table.
    pub(super) fn to_below(&self, keys: &'static [&'static str]) -> NestedTable<'c> {
        NestedTable { place: self.place, entries: self.entries, keys }
    }

    /// The same with another below it.
    pub(super) fn above(self, below: Option<NestedTable<'c>>) -> Table<'c> {
        Table { below, ..self }
    }

    /// Whether a key was written in the table itself.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// The value of a key, if it was written.
    pub(super) fn value(&self, key: &'static str) -> Option<Value<'c>> {
        let below = self.below.as_ref().filter(|below| below.keys.contains(&key) && !self.has(key));
        let (place, entries) = match below {
            Some(below) => (below.place, below.entries),
            None => (self.place, self.entries),
        };
        let (key, value) = entries.get_key_value(key)?;
        Some(self.entry(place, key, value))
    }

    pub(super) fn table(&self, key: &'static str) -> Option<Table<'c>> {
        self.value(key)?.table()
    }

    /// All entries, for a table whose keys the operator chooses.
    pub(super) fn entries(&self) -> Vec<Value<'c>> {
        let mut entries: Vec<_> =
            self.entries.iter().map(|(key, value)| self.entry(self.place, key, value)).collect();
        // Sorted, because the map is in the order of its keys, and errors and indices should follow the order of the
        // file.
        entries.sort_by_key(|entry| entry.key_place);
        entries
    }

    /// Where the table's keys were written, for findings that come up later.
    pub(super) fn places(&self) -> Fields {
        let mut fields = Vec::new();
        for entry in self.entries() {
            entry.place_into(&entry.key, &mut fields);
        }
        Fields { whole: Some(self.place), is_flawed: false, fields }
    }

    /// Reports an error about the table as a whole.
    pub(super) fn wrong(&self, message: impl Into<String>, hint: impl Into<Hint>) {
        self.ctx.wrong(self.place, message, hint);
    }

    /// Reports that the table needs one of these keys, unless one of them is there with a typing error.
    pub(super) fn lacks(&self, keys: &[&str], message: impl Into<String>, hint: impl Into<Hint>) {
        if !keys.iter().any(|key| self.misspelt.contains(key)) {
            self.wrong(message, hint);
        }
    }

    /// Reports what works but should not stay so.
    pub(super) fn warn(&self, message: impl Into<String>, hint: impl Into<Hint>) {
        self.ctx.report(Finding::warning(message).at(self.place, hint));
    }

    fn entry(
        &self,
        table: SourceSpan,
        key: &Spanned<std::borrow::Cow<'c, str>>,
        value: &'c Spanned<DeValue<'c>>,
    ) -> Value<'c> {
        let row = self.section.and_then(|section| section.key(key.get_ref()));
        Value {
            ctx: self.ctx,
            key: key.get_ref().clone().into_owned(),
            key_place: place_in(table.file, key.span()),
            place: place_in(table.file, value.span()),
            kind: row.map(|row| &row.kind).or(self.others),
            value: value.get_ref(),
        }
    }
}

impl<'c> Value<'c> {
    /// Reports an error at the value, with what to write instead.
    pub(super) fn wrong(&self, message: impl Into<String>, hint: impl Into<Hint>) {
        self.ctx.wrong(self.place, message, hint);
    }

    /// Its place under `path`, and the places of what is in it.
    fn place_into(&self, path: &str, fields: &mut Vec<(String, SourceSpan)>) {
        fields.push((path.to_owned(), self.place));
        match self.value {
            DeValue::Array(_) => {
                for (index, element) in self.array().unwrap_or_default().iter().enumerate() {
                    element.place_into(&format!("{path}[{index}]"), fields);
                }
            }
            DeValue::Table(entries) => {
                for entry in Table::new(self.ctx, self.place, entries, None).entries() {
                    entry.place_into(&format!("{path}.{}", entry.key), fields);
                }
            }
            _ => {}
        }
    }

    /// Reports what works but should not stay so.
    pub(super) fn warn(&self, message: impl Into<String>, hint: impl Into<Hint>) {
        self.ctx.warn(self.place, message, hint);
    }

    /// Reports an error at the key, with what to write instead.
    pub(super) fn wrong_key(&self, message: impl Into<String>, hint: impl Into<Hint>) {
        self.ctx.wrong(self.key_place, message, hint);
    }

    /// Reports an error at a place of the caller's choice, and points at another that matters.
    pub(super) fn wrong_beside(
        &self,
        place: SourceSpan,
        message: impl Into<String>,
        hint: impl Into<Hint>,
        beside: SourceSpan,
    ) {
        self.ctx.report(Finding::error(message).at(place, hint).beside(beside, "first written here"));
    }

    /// Whether it comes from elsewhere than a file.
    pub(super) fn is_added(&self) -> bool {
        self.ctx.is_added(self.place)
    }

    pub(super) fn is_string(&self) -> bool {
        self.value.is_str()
    }

    pub(super) fn is_integer(&self) -> bool {
        self.value.is_integer()
    }

    /// Whether it is the number 0.
    pub(super) fn is_zero(&self) -> bool {
        self.value.as_integer().is_some_and(|number| number.as_str() == "0")
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    pub(super) fn is_empty_array(&self) -> bool {
        self.value.as_array().is_some_and(|array| array.is_empty())
    }

    pub(super) fn is_array(&self) -> bool {
        self.value.is_array()
    }

    /// `true` or `false`; reports nothing if it is something else.
    pub(super) fn as_boolean(&self) -> Option<bool> {
        self.value.as_bool()
    }

    fn kinds(&self) -> impl Iterator<Item = &'static Kind> {
        self.kind.into_iter().flat_map(Kind::each)
    }

    pub(super) fn array(&self) -> Option<Vec<Value<'c>>> {
        let DeValue::Array(array) = self.value else {
            self.wrong_type("an array");
            return None;
        };
        let kind = self.kinds().find_map(|kind| if let Kind::List(of) = kind { Some(*of) } else { None });
        let element = |element: &'c Spanned<DeValue<'c>>| {
            let place = place_in(self.place.file, element.span());
            let (key, value) = (self.key.clone(), element.get_ref());
            Value { ctx: self.ctx, key, key_place: place, place, kind, value }
        };
        Some(array.iter().map(element).collect())
    }

    /// A table. Of several that it may be it is the first whose first key it has, otherwise the last.
    pub(super) fn table(&self) -> Option<Table<'c>> {
        let DeValue::Table(entries) = self.value else {
            self.wrong_type("a table");
            return None;
        };
        let (mut section, mut others) = (None, None);
        for kind in self.kinds() {
            match kind {
                Kind::Table(one) | Kind::Added(one) => section = Some(*one),
                Kind::Open(one, other) => (section, others) = (Some(*one), Some(*other)),
                Kind::Map(other) => others = Some(*other),
                Kind::Tagged(several) => section = self.by_kind(entries, several),
                _ => continue,
            }
            if section.is_some_and(|it| it.keys.first().is_some_and(|key| entries.contains_key(key.name))) {
                break;
            }
        }
        let name = self.key.rsplit('.').next().unwrap_or_default();
        Some(Table::new(self.ctx, self.key_place, entries, others).known(section, name))
    }

    /// The rows of the word under `kind`. If there is no such word, those that fit most of
    /// the keys, so that the others are told too.
    fn by_kind(
        &self,
        entries: &'c DeTable<'c>,
        several: &[(&str, &'static Section)],
    ) -> Option<&'static Section> {
        let kind = Table::new(self.ctx, self.key_place, entries, None).value("kind");
        let word = kind.filter(Value::is_string).and_then(|kind| Some(kind.text()?.text));
        let named = several.iter().find(|(known, _)| word.as_ref().is_some_and(|word| known == word));
        let keys: Vec<&str> = entries.keys().map(|key| &**key.get_ref()).collect();
        let fitting = |(_, one): &&(&str, &'static Section)| one.count_of(&keys);
        let nearest = || several.iter().rev().max_by_key(fitting);
        named.or_else(nearest).map(|(_, section)| *section)
    }
}

/// Of a table, where its keys were written.
pub(super) fn places(value: &Value<'_>) -> Option<Fields> {
    Some(Table::new(value.ctx, value.key_place, value.value.as_table()?, None).places())
}

fn place_in(file: usize, span: std::ops::Range<usize>) -> SourceSpan {
    SourceSpan { file, start: span.start, end: span.end }
}
