//! A table's keys described once: read and written from the same description.
//!
//! A section says its keys in a function over [`Keys`]; a [`Table`] reads what is written into the values, [`Written`]
//! writes the values as they are.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::printer::{size, table, time};
use super::reader::Table;

/// What happens to the keys of a table. What is not written, or cannot be read, stays as it is.
pub(super) trait Keys {
    /// A duration of at least `min`.
    fn duration(&mut self, key: &'static str, min: Duration, value: &mut Duration);
    /// A size in bytes.
    fn size<N: Number>(&mut self, key: &'static str, range: RangeInclusive<u64>, value: &mut N);
    /// A whole number.
    fn number<N: Number>(&mut self, key: &'static str, range: RangeInclusive<u64>, value: &mut N);
}

/// A number of whichever width the module that uses it wants.
pub(super) trait Number: Copy + TryFrom<u64> + TryInto<u64> {}
impl<N: Copy + TryFrom<u64> + TryInto<u64>> Number for N {}

impl Keys for Table<'_> {
    fn duration(&mut self, key: &'static str, min: Duration, value: &mut Duration) {
        if let Some(read) = self.value(key).and_then(|written| written.duration(min)) {
            *value = read;
        }
    }

    fn size<N: Number>(&mut self, key: &'static str, range: RangeInclusive<u64>, value: &mut N) {
        let read = self.value(key).and_then(|written| written.size(range));
        // The range is within what the number holds.
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
    /// The keys that a description gives these values.
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

    fn size<N: Number>(&mut self, key: &'static str, _: RangeInclusive<u64>, value: &mut N) {
        self.0.push((key, size((*value).try_into().unwrap_or(u64::MAX))));
    }

    fn number<N: Number>(&mut self, key: &'static str, _: RangeInclusive<u64>, value: &mut N) {
        self.0.push((key, (*value).try_into().unwrap_or(u64::MAX).to_string()));
    }
}
