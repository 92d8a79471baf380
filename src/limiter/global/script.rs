//! The one script: the files of lua/, put together.
//!
//! Each algorithm, and leases, is a branch of one function, `module`, which a call runs only if it needs that
//! algorithm, because defining functions that are not used would cost each call more than an operation does. The
//! dispatcher is inside a function too, because Lua reads a local variable faster than a global one.

/// A script and the name Redis knows it by.
#[derive(Debug)]
pub(super) struct Script {
    /// What SCRIPT LOAD takes.
    pub(super) text: String,
    /// SHA-1 of the text, in hexadecimal: what `EVALSHA` takes.
    pub(super) hash: String,
}

impl Script {
    /// The script with `operations`, which is lua/take.lua or a test's replacement.
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
}

/// The operations on keys, which the dispatcher calls.
pub(super) const OPERATIONS: &str = include_str!("../../../lua/take.lua");

/// Functions that all other files use.
const GROUND: [&str; 3] = [
    include_str!("../../../lua/clock.lua"),
    include_str!("../../../lua/arithmetic.lua"),
    include_str!("../../../lua/keys.lua"),
];
/// The branches of `module`: algorithms in the order of their numbers (`limit::Algorithm::number`), then leases.
const MODULES: [&str; 7] = [
    include_str!("../../../lua/token_bucket.lua"),
    include_str!("../../../lua/fixed_window.lua"),
    include_str!("../../../lua/sliding_window.lua"),
    include_str!("../../../lua/sliding_log.lua"),
    include_str!("../../../lua/leaky_bucket.lua"),
    include_str!("../../../lua/concurrency.lua"),
    concat!(include_str!("../../../lua/window_lease.lua"), include_str!("../../../lua/lease.lua")),
];
const BATCH: &str = include_str!("../../../lua/batch.lua");

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Scripts that are called on their own: membership, penalties, and the moves of keys after a ring has changed.
    const SEPARATE: [&str; 4] = ["membership.lua", "penalties.lua", "ring.lua", "leave.lua"];

    #[test]
    fn every_file_is_in_the_script() {
        let script = Script::new(OPERATIONS);
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua");
        for entry in fs::read_dir(directory).expect("it is part of the sources") {
            let path = entry.expect("it can be listed").path();
            let text = fs::read_to_string(&path).expect("it is text");
            let is_separate = SEPARATE.iter().any(|name| path.ends_with(name));
            assert!(script.text.contains(&text) || is_separate, "{}", path.display());
        }
    }
}
