//! The one script: the files of lua/ in their order, the dispatcher last.

/// A script and the name Redis knows it by.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
}

impl Script {
    /// The script of these parts.
    pub(super) fn new(parts: &[&str]) -> Script {
        let text = parts.concat();
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Script { text, hash }
    }

    /// What is loaded.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// SHA-1 of the text, in hexadecimal: what `EVALSHA` takes.
    pub(super) fn hash(&self) -> &str {
        &self.hash
    }
}

/// What acts on keys, in the order of their definitions.
pub(super) const OPERATIONS: [&str; 10] = [
    include_str!("../../lua/arithmetic.lua"),
    include_str!("../../lua/token_bucket.lua"),
    include_str!("../../lua/leaky_bucket.lua"),
    include_str!("../../lua/fixed_window.lua"),
    include_str!("../../lua/sliding_window.lua"),
    include_str!("../../lua/sliding_log.lua"),
    include_str!("../../lua/concurrency.lua"),
    include_str!("../../lua/take.lua"),
    include_str!("../../lua/window_lease.lua"),
    include_str!("../../lua/lease.lua"),
];
/// The clock; operations come after it and before the dispatcher.
pub(super) const CLOCK: &str = include_str!("../../lua/clock.lua");
/// The dispatcher.
pub(super) const BATCH: &str = include_str!("../../lua/batch.lua");

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_file_of_operations_is_in_the_script() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/lua");
        let mut left = OPERATIONS.len() + 2;
        for entry in fs::read_dir(directory).expect("it is part of the sources") {
            let path = entry.expect("it can be listed").path();
            let text = fs::read_to_string(&path).expect("it is text");
            let is_in = OPERATIONS.contains(&&*text) || [CLOCK, BATCH].contains(&&*text);
            // The census is a script of its own.
            assert!(is_in || path.ends_with("census.lua"), "{}", path.display());
            left -= usize::from(is_in);
        }
        assert_eq!(left, 0);
    }
}
