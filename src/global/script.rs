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
pub(super) const OPERATIONS: [&str; 9] = [
    include_str!("../../lua/arithmetic.lua"),
    include_str!("../../lua/token_bucket.lua"),
    include_str!("../../lua/leaky_bucket.lua"),
    include_str!("../../lua/fixed_window.lua"),
    include_str!("../../lua/sliding_window.lua"),
    include_str!("../../lua/sliding_log.lua"),
    include_str!("../../lua/concurrency.lua"),
    include_str!("../../lua/take.lua"),
    include_str!("../../lua/lease.lua"),
];
/// The clock; operations come after it and before the dispatcher.
pub(super) const CLOCK: &str = include_str!("../../lua/clock.lua");
/// The dispatcher.
pub(super) const BATCH: &str = include_str!("../../lua/batch.lua");
