//! The commands, one file each.

pub mod check;
pub mod explain;
pub mod hash_key;
pub mod run;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::app;

/// A reverse-proxy API gateway with a built-in rate limiter.
#[derive(Debug, Parser)]
#[command(name = "sluicegate", version, arg_required_else_help = false)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until told to stop (the default)
    Run {
        #[command(flatten)]
        file: File,
    },
    /// Say whether a configuration is valid, or everything that is wrong with it
    Check {
        #[command(flatten)]
        file: File,
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

/// Which configuration.
#[derive(Clone, Debug, clap::Args)]
struct File {
    /// The configuration file
    #[arg(short, long, default_value = "gateway.toml")]
    config: PathBuf,
}

impl Default for File {
    fn default() -> File {
        File { config: PathBuf::from("gateway.toml") }
    }
}

/// Runs the command the process was started with. 0: done, 1: failed, 2: wrong usage, 78: wrong configuration.
pub fn main() -> ExitCode {
    let command = Arguments::parse().command.unwrap_or(Command::Run { file: File::default() });
    match command {
        Command::Run { file } => run::run(&file.config),
        Command::Check { file, effective } => {
            let checked = check::check(&file.config, effective, &mut io::stdout(), &mut io::stderr());
            checked.map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Command::Explain(arguments) => explain::run(&arguments),
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

/// Says why a command failed.
fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("sluicegate: {}", app::said(error));
    ExitCode::FAILURE
}
