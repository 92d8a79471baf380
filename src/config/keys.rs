//! Describes the keys of a table once, for reading and for writing, so that `check --effective` cannot miss one.
//!
//! A section names its keys in a function over [`Keys`]. A [`Table`] then reads the file into the values; [`Written`] writes
//! the values out.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::printer::{size, table, time};
use super::reader::Table;

/// Handles each key of a table. A value whose key is absent or cannot be read keeps its default.
pub(super) trait Keys {
    /// A duration of at least `min`.
    fn duration(&mut self, key: &'static str, min: Duration, value: &mut Duration);
    /// The same, or `"off"`.
    fn duration_or_off(&mut self, key: &'static str, min: Duration, value: &mut Duration);
    /// A size in bytes.
    fn size<N: Number>(&mut self, key: &'static str, range: RangeInclusive<u64>, value: &mut N);
    /// A whole number.
    fn number<N: Number>(&mut self, key: &'static str, range: RangeInclusive<u64>, value: &mut N);
}

/// Any unsigned integer, so that each module's configuration keeps its own width.
pub(super) trait Number: Copy + TryFrom<u64> + TryInto<u64> {}
impl<N: Copy + TryFrom<u64> + TryInto<u64>> Number for N {}

impl Keys for Table<'_> {
    fn duration(&mut self, key: &'static str, min: Duration, value: &mut Duration) {
        if let Some(read) = self.value(key).and_then(|written| written.duration(min)) {
            *value = read;
        }
    }

    fn duration_or_off(&mut self, key: &'static str, min: Duration, value: &mut Duration) {
        if let Some(read) = self.value(key).and_then(|written| written.duration_or_off(min)) {
            *value = read;
        }
    }

    fn size<N: Number>(&mut self, key: &'static str, range: RangeInclusive<u64>, value: &mut N) {
        let read = self.value(key).and_then(|written| written.size(range));
        // Cannot fail: the caller's range fits into the type.
        *value = read.and_then(|read| N::try_from(read).ok()).unwrap_or(*value);
    }

    fn number<N: Number>(&mut self, key: &'static str, range: RangeInclusive<u64>, value: &mut N) {
        let read = self.value(key).and_then(|written| written.integer(range));
        *value = read.and_then(|read| N::try_from(read).ok()).unwrap_or(*value);
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
    fn duration(&mut self, key: &'static str, _: Duration, value: &mut Duration) {
        self.0.push((key, time(*value)));
    }

    fn duration_or_off(&mut self, key: &'static str, min: Duration, value: &mut Duration) {
        self.duration(key, min, value);
    }

    fn size<N: Number>(&mut self, key: &'static str, _: RangeInclusive<u64>, value: &mut N) {
        self.0.push((key, size((*value).try_into().unwrap_or(u64::MAX))));
    }

    fn number<N: Number>(&mut self, key: &'static str, _: RangeInclusive<u64>, value: &mut N) {
        self.0.push((key, (*value).try_into().unwrap_or(u64::MAX).to_string()));
    }
}
