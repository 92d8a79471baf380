//! `sluicegate migrate`: prints the gateway.toml that does what another gateway's configuration does.

use std::io::{self, Write};
use std::path::PathBuf;

use crate::app::error_chain;
use crate::migrate::{self, From};

/// What to read. Clap shows these comments as the help text.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Whose configuration it is
    #[arg(value_enum)]
    from: Gateway,
    /// Its main file
    file: PathBuf,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Gateway {
    Nginx,
    Haproxy,
}

/// Prints the configuration on `out` and returns the exit code: 0, 1 if nothing can be read, or [`EXIT_LEFT_OUT`].
///
/// # Errors
/// If nothing can be written.
pub fn run(arguments: &Arguments, out: &mut dyn Write, errors: &mut dyn Write) -> io::Result<u8> {
    let from = match arguments.from {
        Gateway::Nginx => From::Nginx,
        Gateway::Haproxy => From::Haproxy,
    };
    let migrated = match migrate::migrate(from, &arguments.file) {
        Ok(migrated) => migrated,
        Err(error) => {
            writeln!(errors, "sluicegate: {}", error_chain(&error.into()))?;
            return Ok(1);
        }
    };
    out.write_all(migrated.text.as_bytes())?;
    if let Some(found) = migrated.errors {
        writeln!(
            errors,
            "{found}\n\nsluicegate: what was printed is not valid yet: correct what stands above"
        )?;
        return Ok(1);
    }
    if migrated.is_whole {
        return Ok(0);
    }
    writeln!(errors, "sluicegate: not everything was taken over: the first lines of the output say what")?;
    Ok(EXIT_LEFT_OUT)
}

/// The exit code if something was left out or differs.
pub const EXIT_LEFT_OUT: u8 = 3;
