//! The commands, one file each.

pub mod check;
pub mod explain;
pub mod hash_key;
pub mod run;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{app, descriptors};

/// A reverse-proxy API gateway with a built-in rate limiter.
#[derive(Debug, Parser)]
#[command(name = "sluicegate", version, arg_required_else_help = false)]
struct Arguments {
    /// The configuration file
    #[arg(short, long, global = true, default_value = "gateway.toml")]
    config: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until told to stop (the default)
    Run,
    /// Say whether a configuration is valid, or everything that is wrong with it
    Check {
        /// Print the whole configuration with every default, secrets masked
        #[arg(long)]
        effective: bool,
    },
    /// Say what would become of a request, without spending anything
    Explain(explain::Arguments),
    /// Turn an API key or a password, read from standard input, into what its file holds
    HashKey(hash_key::Arguments),
    /// Print the version
    Version,
}

/// Runs the command the process was started with. 0: done, 1: failed, 2: wrong usage, 78: wrong configuration.
pub fn main() -> ExitCode {
    let Arguments { config, command } = Arguments::parse();
    match command.unwrap_or(Command::Run) {
        Command::Run => run::run(&config),
        Command::Check { effective } => {
            let limit = descriptors::hard_limit();
            let checked = check::check(&config, effective, limit, &mut io::stdout(), &mut io::stderr());
            checked.map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Command::Explain(arguments) => explain::run(&arguments, &config),
        Command::HashKey(arguments) => {
            let hashed = hash_key::run(&arguments, &mut io::stdin(), &mut io::stdout(), &mut io::stderr());
            hashed.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
        }
        Command::Version => {
            println!("sluicegate {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
    }
}

/// Says it on standard output, as far as anybody reads it: `head` closes a pipe early.
fn say(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Says why a command failed.
fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("sluicegate: {}", app::said(error));
    ExitCode::FAILURE
}
