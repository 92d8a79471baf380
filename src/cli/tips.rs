//! Adds to what clap says of a wrong command line what to write instead, if clap does not know.

use std::ops::{Bound, RangeBounds};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::admin_client::TOKEN_VARIABLE;
use base::words::{listed, nearest};

/// Reads a whole number of a range as it is typed; clap's own words do not say what to write.
pub(super) fn whole<N: TryFrom<u64>>(
    range: impl RangeBounds<u64> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.and_then(|number| N::try_from(number).ok()).ok_or_else(|| {
            match (range.start_bound(), range.end_bound()) {
                (Bound::Included(min), Bound::Included(max)) => {
                    format!("write a whole number from {min} to {max}")
                }
                _ => "write a whole number".to_owned(),
            }
        })
    }
}

/// What to write for a word or an option that no command has.
fn instead_of(wrong: &str) -> Option<String> {
    Some(match wrong {
        // Commands about usage take the kind of the name as a word, and those about rows as an option.
        "consumer" | "user" => "write `--user NAME`".to_owned(),
        "tenant" | "ip" => format!("write `--{wrong} NAME`"),
        "--token" => format!("set the variable {TOKEN_VARIABLE} to the token"),
        "-t" => "write `sluicegate check`".to_owned(),
        "-s" => "write `systemctl reload sluicegate`".to_owned(),
        file if file.ends_with(".toml") => format!("to name the file, write '--config {file}'"),
        _ => return None,
    })
}

/// The error with a tip; `given` are the words of the command line.
pub(super) fn with_tip<'g>(
    mut error: Error,
    command: &Command,
    given: impl Iterator<Item = &'g str> + Clone,
) -> Error {
    // Without a suggestion that is only the least distant of all options.
    if let (Some(ContextValue::String(given)), Some(ContextValue::String(suggested))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::SuggestedArg))
        && nearest(given, &[suggested]).is_none()
    {
        error.remove(ContextKind::SuggestedArg);
    }
    let tip = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(wrong)))
            if let Some(tip) = instead_of(wrong) =>
        {
            Some(tip)
        }
        (ErrorKind::InvalidValue, Some(ContextValue::String(wrong))) if wrong == "<KIND>" => {
            Some("write `consumer` or `tenant`, and then the name".to_owned())
        }
        (ErrorKind::InvalidSubcommand, _) if error.get(ContextKind::SuggestedSubcommand).is_none() => {
            // All of them, because clap lists them only in its help.
            let at = given.fold(command, |at, word| at.find_subcommand(word).unwrap_or(at));
            let known = at.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name);
            Some(format!("write {}", listed(&known.collect::<Vec<_>>())))
        }
        (ErrorKind::UnknownArgument, Some(ContextValue::String(wrong)))
            if wrong.starts_with('-') && error.get(ContextKind::SuggestedArg).is_none() =>
        {
            // In place of clap's tip, which takes a misspelt option for a value.
            let at = given.fold(command, |at, word| at.find_subcommand(word).unwrap_or(at));
            let own = at.get_arguments().filter(|one| !one.is_hide_set() && !one.is_global_set());
            let options: Vec<String> =
                own.filter_map(|one| one.get_long()).map(|long| format!("--{long}")).collect();
            let options = listed(&options.iter().map(String::as_str).collect::<Vec<_>>());
            match wrong[1..].starts_with(|first: char| first.is_ascii_digit()) {
                true => Some("write a number that is not negative".to_owned()),
                false if options.is_empty() => {
                    Some("leave it out: this command has no such option".to_owned())
                }
                false => Some(format!("write {options}, or see '--help' for more")),
            }
        }
        // `--key` is the file of a TLS key, for every command of ctl.
        (ErrorKind::MissingRequiredArgument, _) if given.clone().any(|word| word == "check") => {
            let is_key = given.into_iter().any(|word| word == "--key");
            is_key.then(|| {
                "write the client's key after the policy, without '--key', a file for TLS".to_owned()
            })
        }
        _ => None,
    };
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::Arguments;

    #[test]
    fn a_wrong_command_line_is_told_what_to_write() {
        for (given, tip) in [
            (&["check", "gateway.toml"][..], "tip: to name the file, write '--config gateway.toml'"),
            (&["nonsense"], "`check`, "),
            (&["-t"], "tip: write `sluicegate check`"),
            (&["-s", "reload"], "tip: write `systemctl reload sluicegate`"),
            #[cfg(feature = "control")]
            (&["ctl", "override", "put"], "tip: write `add`, `list`, `show` or `delete`"),
            #[cfg(feature = "control")]
            (&["ctl", "--token", "a", "tier", "list"], "tip: set the variable SLUICEGATE_TOKEN"),
            #[cfg(feature = "control")]
            (
                &["ctl", "decisions", "--since", "today"],
                "tip: write `--consumer`, `--tenant`, `--policy`, `--refused` or `--limit`, or see '--help' for more",
            ),
            #[cfg(feature = "control")]
            (&["ctl", "check", "calls", "ann", "--cost", "-1"], "tip: write a number that is not negative"),
            #[cfg(feature = "control")]
            (&["ctl", "check", "calls", "--key", "ann"], "after the policy, without '--key'"),
            #[cfg(feature = "control")]
            (&["ctl", "block", "add", "--user", "a", "--reason", "b", "--status", "404"], "write 403 or 429"),
            #[cfg(feature = "control")]
            (&["ctl", "block", "add", "--user", "a", "--reason", "b", "--for", "1 hour"], "write `1h`"),
            #[cfg(feature = "control")]
            (&["ctl", "block", "add", "consumer", "ann", "--reason", "b"], "tip: write `--user NAME`"),
            #[cfg(feature = "control")]
            (&["ctl", "usage", "ann"], "tip: write `consumer` or `tenant`, and then the name"),
            #[cfg(feature = "control")]
            (
                &["ctl", "tier", "assign", "ann", "pro", "--reason", "b"],
                "tip: write `--dry-run` or `--if-version`",
            ),
            #[cfg(feature = "control")]
            (&["ctl", "hot-keys", "--minutes", "0"], "<MINUTES>': write a whole number from 1 to 60\n"),
            (&["upgrade", "--pid", "x"], "'x' for '--pid <PID>': write a whole number\n"),
            #[cfg(feature = "replay")]
            (&["suggest", "--log", "a", "--by", "foo"], "counted by `foo`: write consumer, tenant, ip"),
            (&["explain", "--request", ""], "a value is required for '--request <ID>'"),
        ] {
            let error =
                Arguments::try_parse_from([&["sluicegate"], given].concat()).expect_err("it is wrong");
            let said = with_tip(error, &Arguments::command(), given.iter().copied()).to_string();
            assert!(said.contains(tip), "{said}");
        }
    }
}
