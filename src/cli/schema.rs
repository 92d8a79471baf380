//! `sluicegate schema`: prints the JSON schema of gateway.toml.

use std::io::Write;

/// Prints the schema on `out`.
///
/// # Errors
/// If nothing can be written.
pub fn run(out: &mut dyn Write) -> anyhow::Result<u8> {
    writeln!(out, "{:#}", config::schema())?;
    Ok(0)
}
