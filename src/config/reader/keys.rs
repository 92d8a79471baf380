//! Reads keys of a table into values that hold their defaults: a key that is absent or cannot be read leaves its value as it is.
//! What a value may be is in the key's row.

use std::path::PathBuf;
use std::time::Duration;

use super::{Table, Value};

impl Table<'_> {
    pub(crate) fn set<T>(&self, key: &'static str, value: &mut T, read: impl Fn(Value<'_>) -> Option<T>) {
        if let Some(read) = self.value(key).and_then(read) {
            *value = read;
        }
    }

    pub(crate) fn duration(&self, key: &'static str, value: &mut Duration) {
        self.set(key, value, |written| written.duration());
    }

    pub(crate) fn duration_if(&self, key: &'static str, value: &mut Option<Duration>) {
        self.set(key, value, |written| written.duration().map(Some));
    }

    pub(crate) fn path_if(&self, key: &'static str, value: &mut Option<PathBuf>) {
        self.set(key, value, |written| written.path().map(Some));
    }

    pub(crate) fn size<N: TryFrom<u64>>(&self, key: &'static str, value: &mut N) {
        self.set(key, value, |written| narrow(written.size()?));
    }

    pub(crate) fn number<N: TryFrom<u64>>(&self, key: &'static str, value: &mut N) {
        self.set(key, value, |written| narrow(written.integer()?));
    }

    pub(crate) fn boolean(&self, key: &'static str, value: &mut bool) {
        self.set(key, value, |written| written.boolean());
    }

    /// A share, parts per million.
    pub(crate) fn share(&self, key: &'static str, value: &mut u32) {
        self.set(key, value, |written| written.share_ppm());
    }

    /// A share in whole percent.
    pub(crate) fn percent(&self, key: &'static str, value: &mut u32) {
        self.set(key, value, |written| written.percent());
    }

    pub(crate) fn word<T: Clone>(&self, key: &'static str, words: &[(&'static str, T)], value: &mut T) {
        self.set(key, value, |written| written.choice(words));
    }

    pub(crate) fn texts(&self, key: &'static str, value: &mut Vec<String>) {
        self.set(key, value, |written| Some(written.texts().into_iter().map(|text| text.text).collect()));
    }

    pub(crate) fn text_if(&self, key: &'static str, value: &mut Option<String>) {
        self.set(key, value, |written| Some(Some(written.text()?.text)));
    }
}

/// Cannot fail, because the range in the key's row fits into the type.
fn narrow<N: TryFrom<u64>>(number: u64) -> Option<N> {
    N::try_from(number).ok()
}
