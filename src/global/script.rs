//! The one script: the files of lua/, put together.
//!
//! A file of an algorithm or of leases is defined where a call has use for it, for to define what is not used costs each
//! call more than an operation: all of them are the branches of one function, `module`, by their numbers. What uses it
//! is a function, too: Lua finds what stands outside a function dearly, and once.

/// A script and the name Redis knows it by.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
}

impl Script {
    /// The script whose dispatcher acts on keys as `operations` says: the text of lua/take.lua, or of a test.
    pub(super) fn new(operations: &str) -> Script {
        let mut text = GROUND.concat();
        text += "local function module(number)\n";
        for (number, file) in (1..).zip(MODULES) {
            text += &format!("if number == {number} then\n{file}\nend\n");
        }
        text += "end\n";
        text += &format!("local function dispatch()\n{operations}\n{BATCH}\nend\nreturn dispatch()\n");
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

/// What acts on keys.
pub(super) const OPERATIONS: &str = include_str!("../../lua/take.lua");

/// What everything stands on.
const GROUND: [&str; 3] = [
    include_str!("../../lua/clock.lua"),
    include_str!("../../lua/arithmetic.lua"),
    include_str!("../../lua/keys.lua"),
];
/// What is defined where it is used: algorithms by their numbers (`limit::Algorithm::number`), then leases.
const MODULES: [&str; 7] = [
    include_str!("../../lua/token_bucket.lua"),
    include_str!("../../lua/fixed_window.lua"),
    include_str!("../../lua/sliding_window.lua"),
    include_str!("../../lua/sliding_log.lua"),
    include_str!("../../lua/leaky_bucket.lua"),
    include_str!("../../lua/concurrency.lua"),
    concat!(include_str!("../../lua/window_lease.lua"), include_str!("../../lua/lease.lua")),
];
const BATCH: &str = include_str!("../../lua/batch.lua");

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Scripts of their own: who is there, and what a ring that changes needs.
    const ALONE: [&str; 3] = ["membership.lua", "ring.lua", "leave.lua"];

    #[test]
    fn every_file_is_in_the_script() {
        let script = Script::new(OPERATIONS);
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/lua");
        for entry in fs::read_dir(directory).expect("it is part of the sources") {
            let path = entry.expect("it can be listed").path();
            let text = fs::read_to_string(&path).expect("it is text");
            let is_fallback = ALONE.iter().any(|name| path.ends_with(name));
            assert!(script.text().contains(&text) || is_fallback, "{}", path.display());
        }
    }
}
