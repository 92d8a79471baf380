//! The command line: parses the arguments and runs one command. Each command is a file; the work is done in `app`.

#[cfg(not(all(feature = "control", feature = "migrate", feature = "replay", feature = "top")))]
mod absent;
mod admin_client;
mod admin_target;
mod check;
#[cfg(any(feature = "control", feature = "replay"))]
mod columns;
mod completions;
#[cfg(feature = "control")]
mod ctl;
mod explain;
mod hash_key;
mod log;
mod man;
#[cfg(feature = "migrate")]
mod migrate;
#[cfg(feature = "replay")]
mod replay;
mod run;
#[cfg(feature = "replay")]
mod suggest;
mod tips;
#[cfg(feature = "top")]
mod top;
mod upgrade;
#[cfg(feature = "control")]
mod why;

use std::env;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use anyhow::bail;
use clap::{CommandFactory, Parser, Subcommand};

#[cfg(not(feature = "migrate"))]
use absent::migrate;
#[cfg(not(feature = "top"))]
use absent::top;
#[cfg(not(feature = "control"))]
use absent::{ctl, why};
#[cfg(not(feature = "replay"))]
use absent::{replay, suggest};
use net::descriptors;
use observe::record::process;

/// A reverse-proxy API gateway with a built-in rate limiter.
#[derive(Debug, Parser)]
#[command(name = "sluicegate", version, long_version = VERSION.as_str(), arg_required_else_help = false)]
struct Arguments {
    /// The configuration file
    #[arg(short, long, global = true, default_value = "gateway.toml")]
    config: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until a signal stops it (the default)
    Run {
        /// Let checks of the admin API set their own time, to test how a limit behaves over time
        #[arg(long, hide = true)]
        test_time: bool,
    },
    /// Validate a configuration, and report its errors
    #[command(aliases = ["test", "validate", "configtest"])]
    Check(check::Arguments),
    /// Explain which route answers a request and which limits count it, without spending anything
    Explain(Box<explain::Arguments>),
    /// Show why a consumer's requests may be refused: remaining units, penalties, overrides, limits of the tenant
    Why(Box<why::Arguments>),
    /// Show a running gateway live in this terminal: refusals, hot keys, servers, Redis
    Top(top::Arguments),
    /// Change limits at run time through the admin API, and see who changed what
    Ctl(Box<ctl::Arguments>),
    /// Read an API key or a password from standard input, and print its entry for the file of keys or users
    HashKey(hash_key::Arguments),
    /// Convert another gateway's configuration, and list what is left out
    #[command(visible_alias = "import")]
    Migrate(migrate::Arguments),
    /// Replay an access log against a configuration, and report what its limits would have refused
    Replay(replay::Arguments),
    /// Print limits that fit an access log: limits that would have refused few of its clients
    Suggest(suggest::Arguments),
    /// Print the JSON schema of the configuration, for editors
    Schema,
    /// Make a running gateway hand over to the binary at its path, without losing a connection
    Upgrade(upgrade::Arguments),
    /// Say how to start a gateway, for users who expect a command for it
    #[command(hide = true, aliases = ["serve", "server"])]
    Start,
    /// Say how to see the state of a running gateway
    #[command(hide = true)]
    Status,
    /// Say how to reload a running gateway
    #[command(hide = true)]
    Reload,
    /// Say how to restart a running gateway
    #[command(hide = true)]
    Restart,
    /// Say how to stop a running gateway
    #[command(hide = true)]
    Stop,
    /// Print completions of this command line for a shell
    Completions(completions::Arguments),
    /// Print a manual page, for "man -l -"
    Man(man::Arguments),
    /// Print the version
    Version,
}

/// Runs the command the process was started with. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done except for
/// what the output lists, 78 wrong configuration.
pub fn main() -> ExitCode {
    let given: Vec<String> = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let told = |error| tips::with_tip(error, &Arguments::command(), given.iter().map(String::as_str)).exit();
    let code =
        run(Arguments::try_parse().unwrap_or_else(told)).map_or_else(|error| failed(&error), ExitCode::from);
    process::look();
    process::flush();
    code
}

fn run(Arguments { config, command }: Arguments) -> anyhow::Result<u8> {
    let (out, errors): (&mut dyn Write, &mut dyn Write) = (&mut io::stdout(), &mut io::stderr());
    match command.unwrap_or(Command::Run { test_time: false }) {
        Command::Run { test_time } => run::run(&config, test_time),
        Command::Check(arguments) => check::check(&config, arguments, descriptors::hard_limit(), out, errors),
        Command::Explain(arguments) => explain::run(&arguments, &config, out, errors),
        Command::Why(arguments) => why::run(&arguments, &config, out, errors),
        Command::Top(arguments) => top::run(&arguments, &config, out, errors),
        Command::Ctl(arguments) => ctl::run(&arguments, &config, out, errors),
        Command::HashKey(arguments) => hash_key::run(&arguments, &mut io::stdin(), out, errors),
        Command::Migrate(arguments) => migrate::run(&arguments, &config, out, errors),
        Command::Replay(arguments) => replay::run(&arguments, &config, out, errors),
        Command::Suggest(arguments) => suggest::run(&arguments, &config, out, errors),
        Command::Schema => print(format!("{:#}\n", config::schema())),
        Command::Upgrade(arguments) => upgrade::run(&arguments, &config, out, errors),
        Command::Start => bail!("to start, write `sluicegate run`, or `systemctl start sluicegate`"),
        Command::Status => bail!("to see its state, write `systemctl status sluicegate` or `sluicegate top`"),
        Command::Reload => bail!("to reload, write `systemctl reload sluicegate`, or `kill -HUP PID`"),
        Command::Restart => bail!(
            "to restart, write `sluicegate upgrade`, which loses no connection, or `systemctl restart sluicegate`"
        ),
        Command::Stop => bail!("to stop, write `systemctl stop sluicegate`, or `kill PID`"),
        Command::Completions(arguments) => print(completions::script(&arguments, Arguments::command())),
        Command::Man(arguments) => {
            print(man::page(&arguments, Arguments::command()).unwrap_or_else(|error| error.exit()))
        }
        Command::Version => print(format!("sluicegate {}\n", *VERSION)),
    }
}

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let features = [
        ("acme", cfg!(feature = "acme")),
        ("control", cfg!(feature = "control")),
        ("migrate", cfg!(feature = "migrate")),
        ("otlp", cfg!(feature = "otlp")),
        ("replay", cfg!(feature = "replay")),
        ("rls", cfg!(feature = "rls")),
        ("top", cfg!(feature = "top")),
    ];
    let with: Vec<&str> = features.iter().filter(|(_, is_in)| *is_in).map(|(name, _)| *name).collect();
    let with = if with.is_empty() { "none".to_owned() } else { with.join(", ") };
    format!("{}\nfeatures: {with}", env!("CARGO_PKG_VERSION"))
});

/// Writes to standard output and ignores errors, because `print!` panics if `head` has closed the pipe.
fn print(text: impl AsRef<[u8]>) -> anyhow::Result<u8> {
    let _ = io::stdout().write_all(text.as_ref());
    Ok(0)
}

/// The same to standard error, because `eprintln!` panics if nobody reads it any more.
fn complain(text: impl Display) {
    process::write(format!("{}\n", base::words::plain_lines(&text.to_string())).as_bytes());
}

fn failed(error: &anyhow::Error) -> ExitCode {
    // Nothing is printed, because who reads only the beginning closes the pipe.
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::FAILURE;
    }
    let Some(found) = error.downcast_ref::<config::Errors>() else {
        complain(format_args!("sluicegate: {}", app::error_chain(error)));
        return ExitCode::FAILURE;
    };
    // As `check` shows them, and below what helps without a valid file.
    let helps = if error.chain().len() > 1 { format!("\n\n{error}") } else { String::new() };
    complain(format_args!("{found}{helps}"));
    ExitCode::from(check::EXIT_CONFIG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_others_have_names_the_way_to_do_it() {
        for (name, way) in [
            ("start", "`sluicegate run`"),
            ("reload", "`systemctl reload sluicegate`"),
            ("restart", "`sluicegate upgrade`"),
            ("stop", "`systemctl stop sluicegate`"),
            ("server", "`sluicegate run`"),
            ("status", "`sluicegate top`"),
        ] {
            let arguments = Arguments::try_parse_from(["sluicegate", name]).expect("the command is known");
            let said = run(arguments).expect_err("it does nothing").to_string();
            assert!(said.starts_with("to ") && said.contains(way), "{said}");
        }
    }

    #[test]
    fn a_configuration_is_validated_by_the_words_of_others() {
        for name in ["test", "validate", "configtest"] {
            let arguments = Arguments::try_parse_from(["sluicegate", name]).expect("the command is known");
            assert!(matches!(arguments.command, Some(Command::Check(_))), "{name}");
        }
    }

    #[test]
    fn a_command_whose_features_are_missing_names_one() {
        for (arguments, feature, is_in) in [
            (&["migrate", "nginx", "nginx.conf"][..], "migrate", cfg!(feature = "migrate")),
            (&["replay", "--log", "-"], "replay", cfg!(feature = "replay")),
            (&["suggest", "--log", "-"], "replay", cfg!(feature = "replay")),
            (&["ctl", "usage", "consumer", "anna"], "control", cfg!(feature = "control")),
            (&["why", "anna"], "control", cfg!(feature = "control")),
            (&["top"], "top", cfg!(feature = "top")),
        ] {
            let arguments = Arguments::try_parse_from([&["sluicegate"], arguments].concat());
            let arguments = arguments.expect("the command is known");
            if !is_in {
                let said = run(arguments).expect_err("it cannot be done").to_string();
                assert!(said.contains(&format!("needs the feature `{feature}`")), "{said}");
            }
        }
    }
}
