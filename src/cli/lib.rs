//! The command line: parses the arguments and runs one command. Each command is a file; the work is done in `app`.

mod admin_client;
pub mod check;
pub mod completions;
pub mod ctl;
pub mod explain;
pub mod hash_key;
mod log;
pub mod man;
pub mod migrate;
pub mod replay;
pub mod run;
pub mod schema;
pub mod suggest;
pub mod top;
pub mod upgrade;
mod whom;
pub mod why;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use net::descriptors;

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
    Run {
        /// Let checks of the admin API say when they are asked, for tests of what time does to a limit
        #[arg(long, hide = true)]
        test_time: bool,
    },
    /// Report that a configuration is valid, or everything that is wrong with it
    Check(check::Arguments),
    /// Explain which route answers a request and which limits it meets, without spending any
    Explain(explain::Arguments),
    /// Say what may keep a consumer out: counts, overrides, its tenant, windows, the last refusals
    Why(why::Arguments),
    /// Show a running gateway live in this terminal: who is refused, which keys are hot, servers, Redis
    Top(top::Arguments),
    /// Change limits while traffic runs, and see who did: what the admin API does, by command
    Ctl(Box<ctl::Arguments>),
    /// Turn an API key or a password, read from standard input, into an entry of its file
    HashKey(hash_key::Arguments),
    /// Print the configuration that does what another gateway's does, and list what it leaves out
    #[command(visible_alias = "import")]
    Migrate(migrate::Arguments),
    /// Play an access log through a configuration, and say what its limits would have refused
    Replay(replay::Arguments),
    /// Print limits that fit an access log: those that would have refused few of its callers
    Suggest(suggest::Arguments),
    /// Print the JSON schema of the configuration, for editors
    Schema,
    /// Let a running gateway hand over to the binary at its path, without losing a connection
    Upgrade(upgrade::Arguments),
    /// Print what a shell needs to complete this command line
    Completions(completions::Arguments),
    /// Print a manual page, for "man -l -"
    Man(man::Arguments),
    /// Print the version
    Version,
}

/// Runs the command the process was started with. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but for
/// what the output lists, 78 wrong configuration.
pub fn main() -> ExitCode {
    let Arguments { config, command } = Arguments::parse();
    match command.unwrap_or(Command::Run { test_time: false }) {
        Command::Run { test_time } => run::run(&config, test_time),
        Command::Check(arguments) => {
            let limit = descriptors::hard_limit();
            let checked = check::check(&config, arguments, limit, &mut io::stdout(), &mut io::stderr());
            checked.map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Command::Explain(arguments) => explain::run(&arguments, &config),
        Command::Why(arguments) => {
            let said = why::run(&arguments, &config, &mut io::stdout());
            said.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
        }
        Command::Top(arguments) => top::run(&arguments, &config).unwrap_or_else(|error| failed(&error)),
        Command::Ctl(arguments) => {
            let done = ctl::run(&arguments, &config, &mut io::stdout());
            done.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
        }
        Command::HashKey(arguments) => {
            let hashed = hash_key::run(&arguments, &mut io::stdin(), &mut io::stdout(), &mut io::stderr());
            hashed.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
        }
        Command::Migrate(arguments) => {
            let migrated = migrate::run(&arguments, &mut io::stdout(), &mut io::stderr());
            migrated.map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Command::Replay(arguments) => {
            let played = replay::run(&arguments, &config, &mut io::stdout().lock(), &mut io::stderr());
            played.map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Command::Suggest(arguments) => {
            let suggested = suggest::run(&arguments, &config, &mut io::stdout().lock(), &mut io::stderr());
            suggested.map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Command::Schema => match schema::run(&mut io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Command::Upgrade(arguments) => {
            let upgraded = upgrade::run(&arguments, &config, &mut io::stdout(), &mut io::stderr());
            upgraded.map_or_else(|error| failed(&error), ExitCode::from)
        }
        Command::Completions(arguments) => {
            say(completions::script(&arguments, Arguments::command()));
            ExitCode::SUCCESS
        }
        Command::Man(arguments) => {
            say(man::page(&arguments, Arguments::command()).unwrap_or_else(|error| error.exit()));
            ExitCode::SUCCESS
        }
        Command::Version => {
            println!("sluicegate {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
    }
}

/// Writes to standard output and ignores errors, unlike `print!`, which panics if `head` has closed the pipe.
fn say(text: impl AsRef<[u8]>) {
    let _ = io::stdout().write_all(text.as_ref());
}

/// The same to standard error: `eprintln!` panics if nobody reads it any more.
fn complain(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", base::words::plain_lines(&text.to_string()));
}

fn failed(error: &anyhow::Error) -> ExitCode {
    complain(format_args!("sluicegate: {}", app::error_chain(error)));
    ExitCode::FAILURE
}
