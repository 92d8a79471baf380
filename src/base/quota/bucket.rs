//! The name of a bucket: what a proxy's matchers made of its requests, a map of strings.

/// A bucket by its entries, in the order of their keys: a map has none of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId(Box<[(Box<str>, Box<str>)]>);

impl BucketId {
    /// The bucket of these entries; of several with one key the last counts.
    pub fn new<K: Into<Box<str>>, V: Into<Box<str>>>(entries: impl IntoIterator<Item = (K, V)>) -> BucketId {
        let sorted: std::collections::BTreeMap<Box<str>, Box<str>> =
            entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        BucketId(sorted.into_iter().collect())
    }

    /// Its entries, sorted by key.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}
