//! Lines for operators on standard error: what the process does, where it listens. Everything else goes to the log.

use std::fmt::Display;

use observe::record::process;

/// Writes one line, which waits for no reader. Secrets of the configuration are masked.
pub(super) fn say(line: impl Display) {
    process::write(config::hidden(&format!("sluicegate: {line}\n")).as_bytes());
}
