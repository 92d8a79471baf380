//! Reads a parsed TOML document key by key, and collects errors instead of stopping at the first.
//!
//! Which keys a table has, and what their values may be, its rows say (`keys`): a key that has no row is reported as soon as
//! the table is looked into. A value that cannot be read is reported here, once, and returned as `None`. The section
//! continues with a default, because a report with an error never becomes a configuration.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::context::{Context, Since};
use super::expand;
use super::keys::process::ROOT;
use super::keys::{Kind, Section, Unwritten};
use super::mask::{self, MASKED, WRITE_SECRET};
use super::printer::OFF;
use super::report::{Fields, Finding, Place, Source, SourceKind, quoted};
use super::text::{self, Text};
use base::units;
use base::words::{did_you_mean, listed};
use upstream::deadline::FAR;

/// A table, and what its keys may be.
pub(super) struct Table<'c> {
    ctx: &'c Context<'c>,
    /// Its name or heading.
    pub(super) place: Place,
    entries: &'c DeTable<'c>,
    /// Its rows. `None`: the operator chooses its keys.
    section: Option<&'static Section>,
    /// What values under keys without a row are.
    others: Option<&'static Kind>,
    /// Where some keys are taken from that it does not have.
    below: Option<Below<'c>>,
    /// Whether it has a key that it cannot have.
    is_flawed: bool,
}

/// A table below another: some of its values are those of the other too, which does not have them itself.
pub(super) struct Below<'c> {
    place: Place,
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
    pub(super) key_place: Place,
    pub(super) place: Place,
    /// What it may be. `None`: its key has no row.
    kind: Option<&'static Kind>,
    value: &'c DeValue<'c>,
}

impl<'c> Table<'c> {
    /// The whole of one file.
    pub(super) fn of_document(
        ctx: &'c Context<'c>,
        file: usize,
        document: &'c Spanned<DeTable<'c>>,
    ) -> Table<'c> {
        let place = Place { file, start: 0, end: 0 };
        Table::new(ctx, place, document.get_ref(), None).known(Some(&ROOT), "")
    }

    /// Marks this moment, to ask later whether an error was found since.
    pub(super) fn since_now(&self) -> Since<'c> {
        self.ctx.since_now(self.is_flawed)
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
        place: Place,
        entries: &'c DeTable<'c>,
        others: Option<&'static Kind>,
    ) -> Table<'c> {
        Table { ctx, place, entries, section: None, others, below: None, is_flawed: false }
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
                    let key = entry.key.as_str();
                    let hint =
                        did_you_mean(key, &known).unwrap_or_else(|| format!("it takes {}", listed(&known)));
                    let heading = section.heading.replace("<name>", name).replace("<key>", name);
                    entry.wrong_key(format!("unknown key {} in {heading}", quoted(key)), hint);
                }
            }
            self.is_flawed = true;
        }
        for key in section.keys() {
            if let Unwritten::Needs(message, hint) = key.unwritten
                && !self.has(key.name)
            {
                self.wrong(message, hint);
                self.is_flawed = true;
            }
        }
        self
    }

    /// Its values of these keys, for another table.
    pub(super) fn to_below(&self, keys: &'static [&'static str]) -> Below<'c> {
        Below { place: self.place, entries: self.entries, keys }
    }

    /// The same with another below it.
    pub(super) fn above(self, below: Option<Below<'c>>) -> Table<'c> {
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

    /// A table under a key.
    pub(super) fn table(&self, key: &'static str) -> Option<Table<'c>> {
        self.value(key)?.table()
    }

    /// All entries, for a table whose keys the operator chooses.
    pub(super) fn entries(&self) -> Vec<Value<'c>> {
        let mut entries: Vec<_> =
            self.entries.iter().map(|(key, value)| self.entry(self.place, key, value)).collect();
        // The map is sorted by key. Errors and indices should follow the order of the file.
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
    pub(super) fn wrong(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.ctx.wrong(self.place, message, hint);
    }

    /// Reports what works but should not stay so.
    pub(super) fn warn(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.ctx.report(Finding::warning(message).at(self.place, hint));
    }

    fn entry(
        &self,
        table: Place,
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
    pub(super) fn wrong(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.ctx.wrong(self.place, message, hint);
    }

    /// Its place under `path`, and the places of what is in it.
    fn place_into(&self, path: &str, fields: &mut Vec<(String, Place)>) {
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
    pub(super) fn warn(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.ctx.warn(self.place, message, hint);
    }

    /// Reports an error at the key, with what to write instead.
    pub(super) fn wrong_key(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.ctx.wrong(self.key_place, message, hint);
    }

    /// Reports an error at a place of the caller's choice, and points at another that matters.
    pub(super) fn wrong_beside(
        &self,
        place: Place,
        message: impl Into<String>,
        hint: impl Into<String>,
        beside: Place,
    ) {
        self.ctx.report(Finding::error(message).at(place, hint).beside(beside, "here it is first"));
    }

    fn wrong_type(&self, expected: &str) {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        let hint = self.of_type(expected);
        self.wrong(format!("{} must be {expected}, not {found}", quoted(&self.key)), hint);
    }

    /// How a value of the expected type is written instead of this one.
    fn of_type(&self, expected: &str) -> String {
        let key = self.key.rsplit('.').next().unwrap_or_default();
        match (expected, self.value) {
            ("a table", DeValue::Array(_)) => {
                "write it once, as `{ … }` or under `[…]`, not `[[…]]`".to_owned()
            }
            ("a table", _) => {
                format!("write `{key} = {{ … }}` with the keys that are to be other than by default")
            }
            ("an array", _) => format!("write `{key} = [ … ]`"),
            ("true or false", DeValue::String(_)) | ("a whole number", DeValue::String(_)) => {
                "write it without quotes".to_owned()
            }
            ("true or false", _) => "write `true` or `false`".to_owned(),
            ("a whole number", DeValue::Float(_)) => "write it without a fraction".to_owned(),
            (_, DeValue::Integer(number)) if key == "limit" => {
                format!("write its period, as in `limit = \"{}/m\"`", number.as_str())
            }
            (_, DeValue::Integer(number)) => format!("write `{key} = \"{}\"`", number.as_str()),
            (_, DeValue::Float(number)) => format!("write `{key} = \"{}\"`", number.as_str()),
            _ => String::new(),
        }
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

    pub(super) fn is_empty_table(&self) -> bool {
        self.value.as_table().is_some_and(|table| table.is_empty())
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

    /// A string with its references replaced.
    pub(super) fn text(&self) -> Option<Text<'c>> {
        match self.value {
            DeValue::String(text) => self.expanded(text),
            _ => {
                self.wrong_type("a string");
                None
            }
        }
    }

    fn expanded(&self, text: &str) -> Option<Text<'c>> {
        let Source { directory, kind, .. } = &self.ctx.sources[self.place.file];
        // Whoever may write policies may not read this machine's files and variables by them.
        if *kind != SourceKind::File && text.contains("${") {
            self.wrong(
                format!("{} refers to a variable or a file", quoted(&self.key)),
                "write the value itself",
            );
            return None;
        }
        let expanded = expand::expand(text, directory, self.ctx.variables);
        if let Ok(expanded) = &expanded {
            self.ctx.secrets.borrow_mut().add(&expanded.secrets);
        }
        match expanded {
            // Everybody knows the mask, so a secret of it would protect nothing.
            Ok(expanded) if mask::is_secret_key(&self.key) && mask::is_mask(&expanded.text) => {
                self.wrong(format!("{} {MASKED}", quoted(&self.key)), WRITE_SECRET);
                None
            }
            Ok(expanded) => Some(Text {
                ctx: self.ctx,
                text: expanded.text,
                place: self.place,
                has_reference: expanded.has_reference,
                key: self.key.clone(),
            }),
            Err(unresolved) => {
                self.wrong(unresolved.message, unresolved.hint);
                None
            }
        }
    }

    /// The path of a file.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.text().map(|text| text::path(&text))
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        let boolean = self.as_boolean();
        if boolean.is_none() {
            self.wrong_type("true or false");
        }
        boolean
    }

    /// A whole number in a range. A string is accepted if it came out of a `${...}`, which can only stand in a string.
    pub(super) fn integer(&self) -> Option<u64> {
        let range = self.range();
        let number = match self.value {
            DeValue::Integer(integer) => i128::from_str_radix(integer.as_str(), integer.radix()).ok(),
            DeValue::String(text) if text.contains("${") => {
                let number = self.expanded(text)?.text.trim().parse::<i128>();
                if number.is_err() {
                    self.wrong(format!("the value of {} is not a whole number", quoted(&self.key)), "");
                    return None;
                }
                number.ok()
            }
            _ => {
                self.wrong_type("a whole number");
                return None;
            }
        };
        let within = number.and_then(|number| u64::try_from(number).ok()).filter(|it| range.contains(it));
        if within.is_none() {
            let hint = match *range.end() {
                u64::MAX => format!("write {} or more", range.start()),
                end => format!("write a whole number from {} to {end}", range.start()),
            };
            self.wrong(format!("{} is out of range", quoted(&self.key)), hint);
        }
        within
    }

    /// From where to where its row lets a number or a size go.
    fn range(&self) -> RangeInclusive<u64> {
        let bounds = |kind: &Kind| match kind {
            Kind::Number(min, max) | Kind::Size(min, max) => Some(*min..=*max),
            _ => None,
        };
        self.kinds().find_map(bounds).unwrap_or(0..=u64::MAX)
    }

    /// What it may be.
    fn kinds(&self) -> impl Iterator<Item = &'static Kind> {
        self.kind.into_iter().flat_map(Kind::each)
    }

    /// The elements of an array.
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

    /// One string or an array of strings. Anything else is reported and left out.
    pub(super) fn texts(&self) -> Vec<Text<'c>> {
        if self.is_array() {
            self.array().unwrap_or_default().iter().filter_map(Value::text).collect()
        } else if self.is_string() {
            self.text().into_iter().collect()
        } else {
            self.wrong_type("a string or an array of strings");
            Vec::new()
        }
    }

    /// The same, but for an empty array, which is reported with what to write instead.
    pub(super) fn some_texts(&self, hint: &str) -> Vec<Text<'c>> {
        if self.is_empty_array() {
            self.wrong(format!("`{}` is empty", self.key), hint);
        }
        self.texts()
    }

    /// A table. Of several that it may be it is the first whose first key it has, or else the last.
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
                Kind::ByKind(several) => section = self.by_kind(entries, several),
                _ => continue,
            }
            if section.is_some_and(|it| it.keys.first().is_some_and(|key| entries.contains_key(key.name))) {
                break;
            }
        }
        let name = self.key.rsplit('.').next().unwrap_or_default();
        Some(Table::new(self.ctx, self.key_place, entries, others).known(section, name))
    }

    /// The rows of the word under `kind`.
    fn by_kind(
        &self,
        entries: &'c DeTable<'c>,
        several: &[(&str, &'static Section)],
    ) -> Option<&'static Section> {
        let kind = Table::new(self.ctx, self.key_place, entries, None).value("kind");
        let word = kind.filter(Value::is_string)?.text()?.text;
        several.iter().find(|(known, _)| *known == word).map(|(_, section)| *section)
    }

    /// A duration as its row bounds it; `"off"` is one that never ends.
    pub(super) fn duration(&self) -> Option<Duration> {
        let bound = |kind: &Kind| match kind {
            Kind::Time(min) => Some((*min, false)),
            Kind::TimeOrOff(min) => Some((*min, true)),
            _ => None,
        };
        let (min, can_be_off) = self.kinds().find_map(bound).unwrap_or_default();
        if let DeValue::Integer(number) = self.value {
            let message = format!("{} needs a unit", quoted(&self.key));
            self.wrong(message, format!("write `\"{}s\"` or `\"{}ms\"`", number.as_str(), number.as_str()));
            return None;
        }
        let text = self.text()?;
        if can_be_off && text.text == OFF {
            return Some(FAR);
        }
        match units::duration(&text.text) {
            Ok(duration) if duration >= min => Some(duration),
            Ok(_) => {
                let hint = format!("write `\"{}\"` or more", units::show_duration(min));
                text.wrong(format!("{} is too short", quoted(&self.key)), hint);
                None
            }
            Err(hint) => {
                text.wrong(format!("{} is not a duration", text.shown()), format!("write {hint}"));
                None
            }
        }
    }

    /// A size in bytes, in a range: a string with a unit or a whole number.
    pub(super) fn size(&self) -> Option<u64> {
        if !self.is_string() {
            return self.integer();
        }
        let range = self.range();
        let text = self.text()?;
        match units::size(&text.text) {
            Ok(bytes) if range.contains(&bytes) => Some(bytes),
            Ok(_) => {
                let (min, max) = (units::show_size(*range.start()), units::show_size(*range.end()));
                let message = format!("{} is out of range", quoted(&self.key));
                text.wrong(message, format!("write a size from `\"{min}\"` to `\"{max}\"`"));
                None
            }
            Err(hint) => {
                text.wrong(format!("{} is not a size", text.shown()), format!("write {hint}"));
                None
            }
        }
    }

    /// A share, parts per million.
    pub(super) fn share_ppm(&self) -> Option<u32> {
        let text = self.text()?;
        units::share_ppm(&text.text)
            .map_err(|hint| text.wrong(format!("{} is not a share", text.shown()), format!("write {hint}")))
            .ok()
    }

    /// A share in whole percent.
    pub(super) fn percent(&self) -> Option<u32> {
        let ppm = self.share_ppm()?;
        if ppm % PPM_PER_PERCENT != 0 {
            let message = format!("{} must be a whole number of percent", quoted(&self.key));
            self.wrong(message, "write it as in `20%`");
        }
        Some(ppm / PPM_PER_PERCENT)
    }

    /// One of a few words.
    pub(super) fn choice<T: Clone>(&self, choices: &[(&str, T)]) -> Option<T> {
        self.text()?.choice(choices)
    }
}

const PPM_PER_PERCENT: u32 = 10_000;

fn place_in(file: usize, span: std::ops::Range<usize>) -> Place {
    Place { file, start: span.start, end: span.end }
}
