//! `sluicegate schema`: prints the JSON schema of gateway.toml.

use std::io::{self, Write};

/// Prints the schema on `out`.
///
/// # Errors
/// If nothing can be written.
pub fn run(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{:#}", config::schema())
}
