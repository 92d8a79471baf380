//! Adds to what clap says of a wrong command line what to write instead, if clap does not know.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::admin_client::TOKEN_VARIABLE;
use base::words::listed;

/// The error with a tip; `given` are the words of the command line.
pub(super) fn with_tip<'g>(
    mut error: Error,
    command: &Command,
    given: impl Iterator<Item = &'g str>,
) -> Error {
    let tip = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::InvalidSubcommand, _) if error.get(ContextKind::SuggestedSubcommand).is_none() => {
            // All of them, because clap lists them only in its help.
            let at = given.fold(command, |at, word| at.find_subcommand(word).unwrap_or(at));
            let known = at.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name);
            Some(format!("write {}", listed(&known.collect::<Vec<_>>())))
        }
        (ErrorKind::UnknownArgument, Some(ContextValue::String(wrong))) if wrong.ends_with(".toml") => {
            Some(format!("to name the file, write '--config {wrong}'"))
        }
        (ErrorKind::UnknownArgument, Some(ContextValue::String(wrong))) if wrong == "--token" => {
            Some(format!("set the variable {TOKEN_VARIABLE} to the token"))
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
            #[cfg(feature = "control")]
            (&["ctl", "override", "put"], "tip: write `add`, `list`, `show` or `delete`"),
            #[cfg(feature = "control")]
            (&["ctl", "--token", "a", "tier", "list"], "tip: set the variable SLUICEGATE_TOKEN"),
        ] {
            let error =
                Arguments::try_parse_from([&["sluicegate"], given].concat()).expect_err("it is wrong");
            let said = with_tip(error, &Arguments::command(), given.iter().copied()).to_string();
            assert!(said.contains(tip), "{said}");
        }
    }
}
