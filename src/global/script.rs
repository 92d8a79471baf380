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

/// Every file of the script but the operations, which stand between the two.
pub(super) const CLOCK: &str = include_str!("../../lua/clock.lua");
/// The dispatcher.
pub(super) const BATCH: &str = include_str!("../../lua/batch.lua");
