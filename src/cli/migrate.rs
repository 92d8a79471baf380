//! `sluicegate migrate`: prints the gateway.toml that does what another gateway's configuration does.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use super::check::EXIT_LEFT_OUT;
use migrate::{self, From};

/// What to read. Clap shows these comments as the help text.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The gateway that the configuration is for
    #[arg(value_enum)]
    from: Gateway,
    /// Its main file
    file: PathBuf,
    /// For kong: the file to write the hashes of the consumers' keys to, named as gateway.toml will name it
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Gateway {
    Nginx,
    Haproxy,
    Envoy,
    Kong,
    /// Envoy's own rate limit service
    Ratelimit,
}

/// Prints the configuration on `out` and returns the exit code: 0, 1 if the result is not valid, or [`EXIT_LEFT_OUT`].
///
/// # Errors
/// If nothing can be read or written.
pub fn run(
    arguments: &Arguments,
    _: &Path,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> anyhow::Result<u8> {
    let from = match arguments.from {
        Gateway::Nginx => From::Nginx,
        Gateway::Haproxy => From::Haproxy,
        Gateway::Envoy => From::Envoy,
        Gateway::Kong => From::Kong,
        Gateway::Ratelimit => From::Ratelimit,
    };
    let migrated = migrate::migrate(from, &arguments.file, arguments.keys.as_deref())?;
    if let Some((file, keys)) = arguments.keys.as_ref().zip(migrated.keys.as_ref()) {
        write_new(file, keys).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                anyhow!("cannot write {}: it exists: name another file, or remove it", file.display())
            }
            _ => anyhow!(error).context(format!("cannot write {}", file.display())),
        })?;
    }
    if let (Some(file), None) = (&arguments.keys, &migrated.keys) {
        writeln!(errors, "sluicegate: no API keys were converted: {} is not written", file.display())?;
    }
    out.write_all(migrated.text.as_bytes())?;
    if let Some(found) = migrated.errors {
        writeln!(
            errors,
            "{found}\n\nsluicegate: the printed configuration is not valid yet: correct the errors above"
        )?;
        return Ok(1);
    }
    if migrated.is_whole {
        return Ok(0);
    }
    writeln!(errors, "sluicegate: some lines were not converted: see the comments at the top of the output")?;
    Ok(EXIT_LEFT_OUT)
}

/// Writes a file that was not there, for its owner alone, because hashes of short keys can be guessed.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
