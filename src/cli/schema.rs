//! `sluicegate schema`: prints the JSON schema of gateway.toml.

use std::io::Write;

pub fn run(out: &mut dyn Write) -> anyhow::Result<u8> {
    writeln!(out, "{:#}", config::schema())?;
    Ok(0)
}
