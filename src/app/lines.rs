//! Lines for operators on standard error: what the process does, where it listens. Everything else goes to the log.

use std::fmt::Display;
use std::io::Write;

/// Writes one line by one call to the system, because during an upgrade two processes share standard error, and lines
/// in pieces, as `eprintln!` writes them, would mix.
pub(super) fn say(line: impl Display) {
    let line = format!("sluicegate: {line}\n");
    // Ignored, because a gateway whose standard error is closed goes on.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
