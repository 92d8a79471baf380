//! Names the keys of a table once, for reading and for writing, so that `check --effective` cannot miss one.
//!
//! A section names its keys in a function over [`Keys`]. A [`Table`] then reads the file into the values; [`Written`] writes
//! the values out. What the values may be is in the keys' rows (`keys`).

use std::path::PathBuf;
use std::time::Duration;

use super::printer::{array, size, table, text, time, word};
use super::reader::{Table, Value};
use base::units::show_share;

/// Handles each key of a table. A value whose key is absent or cannot be read keeps its default.
pub(super) trait Keys {
    /// Takes the value of a key: `read` out of the file, or `shown` as the language writes it. What is not shown is not
    /// written.
    fn handle<T>(
        &mut self,
        key: &'static str,
        value: &mut T,
        read: impl Fn(Value<'_>) -> Option<T>,
        shown: impl Fn(&T) -> Option<String>,
    );

    /// A duration.
    fn duration(&mut self, key: &'static str, value: &mut Duration) {
        self.handle(key, value, |written| written.duration(), |value| Some(time(*value)));
    }

    /// A duration that may be left out.
    fn duration_if(&mut self, key: &'static str, value: &mut Option<Duration>) {
        self.handle(key, value, |written| written.duration().map(Some), |value| value.map(time));
    }

    /// A path that may be left out.
    fn path_if(&mut self, key: &'static str, value: &mut Option<PathBuf>) {
        let shown = |value: &Option<PathBuf>| value.as_ref().map(|path| text(&path.to_string_lossy()));
        self.handle(key, value, |written| written.path().map(Some), shown);
    }

    /// A size in bytes.
    fn size<N: Number>(&mut self, key: &'static str, value: &mut N) {
        self.handle(key, value, |written| narrow(written.size()?), |value| Some(size(wide(*value))));
    }

    /// A whole number.
    fn number<N: Number>(&mut self, key: &'static str, value: &mut N) {
        self.handle(key, value, |written| narrow(written.integer()?), |value| Some(wide(*value).to_string()));
    }

    /// A whole number that may be left out.
    fn number_if<N: Number>(&mut self, key: &'static str, value: &mut Option<N>) {
        let shown = |value: &Option<N>| value.map(|number| wide(number).to_string());
        self.handle(key, value, |written| Some(narrow(written.integer()?)), shown);
    }

    /// `true` or `false`.
    fn boolean(&mut self, key: &'static str, value: &mut bool) {
        self.handle(key, value, |written| written.boolean(), |value| Some(value.to_string()));
    }

    /// A share, parts per million.
    fn share(&mut self, key: &'static str, value: &mut u32) {
        self.handle(key, value, |written| written.share_ppm(), |value| Some(text(&show_share(*value))));
    }

    /// A share in whole percent.
    fn percent(&mut self, key: &'static str, value: &mut u32) {
        let shown = |value: &u32| Some(text(&show_share(*value * 10_000)));
        self.handle(key, value, |written| written.percent(), shown);
    }

    /// One of a few words.
    fn word<T: Clone + PartialEq>(&mut self, key: &'static str, words: &[(&'static str, T)], value: &mut T) {
        self.handle(key, value, |written| written.choice(words), |value| Some(text(word(words, value))));
    }

    /// Texts.
    fn texts(&mut self, key: &'static str, value: &mut Vec<String>) {
        let read = |written: Value<'_>| Some(written.texts().into_iter().map(|text| text.text).collect());
        self.handle(key, value, read, |value| Some(array(value.iter().map(|one| text(one)))));
    }

    /// A text that may be left out.
    fn text_if(&mut self, key: &'static str, value: &mut Option<String>) {
        let shown = |value: &Option<String>| value.as_deref().map(text);
        self.handle(key, value, |written| Some(Some(written.text()?.text)), shown);
    }
}

/// Any unsigned integer, so that each module's configuration keeps its own width.
pub(super) trait Number: Copy + TryFrom<u64> + TryInto<u64> {}
impl<N: Copy + TryFrom<u64> + TryInto<u64>> Number for N {}

/// Cannot fail: the range in the key's row fits into the type.
fn narrow<N: Number>(number: u64) -> Option<N> {
    N::try_from(number).ok()
}

fn wide<N: Number>(number: N) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}

impl Keys for Table<'_> {
    fn handle<T>(
        &mut self,
        key: &'static str,
        value: &mut T,
        read: impl Fn(Value<'_>) -> Option<T>,
        _: impl Fn(&T) -> Option<String>,
    ) {
        if let Some(read) = Table::value(self, key).and_then(read) {
            *value = read;
        }
    }
}

/// Keys and their values as the language writes them.
pub(super) struct Written(Vec<(&'static str, String)>);

impl Written {
    /// The keys and values that `describe` names.
    pub(super) fn of<T: Clone>(
        values: &T,
        describe: fn(&mut Written, &mut T),
    ) -> Vec<(&'static str, String)> {
        let mut written = Written(Vec::new());
        describe(&mut written, &mut values.clone());
        written.0
    }

    /// The same as one inline table.
    pub(super) fn table<T: Clone>(values: &T, describe: fn(&mut Written, &mut T)) -> String {
        table(Written::of(values, describe))
    }
}

impl Keys for Written {
    fn handle<T>(
        &mut self,
        key: &'static str,
        value: &mut T,
        _: impl Fn(Value<'_>) -> Option<T>,
        shown: impl Fn(&T) -> Option<String>,
    ) {
        self.0.extend(shown(value).map(|shown| (key, shown)));
    }
}
