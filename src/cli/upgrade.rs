//! `sluicegate upgrade`: asks a running gateway to hand over to the binary that stands at its path now, and says what
//! came of it.

use std::io::Write;
use std::path::Path;

use super::check::EXIT_CONFIG;
use super::tips::whole;

/// What is asked of `sluicegate upgrade`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The process to upgrade; default: the one that listens where the configuration says
    #[arg(long, value_parser = whole::<u32>(..))]
    pid: Option<u32>,
}

/// Asks the process and writes how it ended. Returns the exit code.
///
/// # Errors
/// If no gateway is found, or it serves on because its successor did not start.
pub fn run(
    arguments: &Arguments,
    path: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let done = match arguments.pid {
        Some(pid) => app::request_upgrade(pid)?,
        None => match config::read(path) {
            Ok(definition) => app::request_upgrade_where_listening(&definition.config)?,
            Err(errors) => {
                writeln!(err, "{errors}")?;
                return Ok(EXIT_CONFIG);
            }
        },
    };
    writeln!(out, "{done}")?;
    Ok(0)
}
