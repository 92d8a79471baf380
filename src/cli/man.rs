//! `sluicegate man`: a manual page for `man -l -`, one for the program and one for each command. Names, options and
//! what they do come from the description that parses the arguments; what that does not know (signals, exit codes,
//! files) is below.

use clap::error::ErrorKind;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// Which page.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The command whose page is shown, such as "ctl override add"; default: the page of the program
    command: Vec<String>,
}

/// The page, in roff.
///
/// # Errors
/// If there is no such command.
pub fn page(arguments: &Arguments, command: clap::Command) -> Result<Vec<u8>, clap::Error> {
    let mut program = command.disable_help_subcommand(true);
    // Built first, so that each command has its full name and the options that all share.
    program.build();
    let mut page = Vec::new();
    if !arguments.command.is_empty() {
        let mut command = &program;
        for name in &arguments.command {
            let Some(found) = command.find_subcommand(name) else {
                let names = command.get_subcommands().filter(|it| !it.is_hide_set());
                let names: Vec<&str> = names.map(clap::Command::get_name).collect();
                let known = match names.is_empty() {
                    true => format!("`{}` has no commands", command.get_name()),
                    false => format!("the commands are {}", names.join(", ")),
                };
                return Err(program
                    .clone()
                    .error(ErrorKind::InvalidValue, format!("there is no command {name:?}; {known}")));
            };
            command = found;
        }
        titled(command.clone()).render(&mut page)?;
        return Ok(page);
    }
    let man = titled(program);
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    man.render_subcommands_section(&mut page)?;
    for (heading, entries) in SECTIONS {
        section(heading, entries).to_writer(&mut page)?;
    }
    Ok(page)
}

fn titled(command: clap::Command) -> Man {
    Man::new(command).source(concat!("sluicegate ", env!("CARGO_PKG_VERSION"))).manual("Sluicegate")
}

fn section(heading: &str, entries: &[(&str, &str)]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    for (name, meaning) in entries {
        roff.control("TP", []).text([bold(*name)]).text([roman(*meaning)]);
    }
    roff
}

type Section = (&'static str, &'static [(&'static str, &'static str)]);

const SECTIONS: [Section; 4] = [
    (
        "SIGNALS",
        &[
            (
                "HUP",
                "Reloads the configuration; if it is invalid, the running one stays in force. Reopens the access log.",
            ),
            ("USR1", "Reopens the access log, and nothing else."),
            (
                "USR2",
                "Starts the binary at the gateway's own path, hands over the listening sockets to it and drains.",
            ),
            (
                "TERM, QUIT, INT",
                "Drains: requests in flight end, and no connection is accepted. A second signal stops at once.",
            ),
        ],
    ),
    (
        "EXIT STATUS",
        &[
            ("0", "Done; for run: drained and stopped."),
            ("1", "Failed."),
            ("2", "Wrong usage."),
            ("3", "For migrate, replay and suggest: done, except for what the output lists."),
            ("78", "The configuration is invalid."),
        ],
    ),
    (
        "FILES",
        &[
            ("gateway.toml", "The configuration, in the working directory unless --config names another."),
            ("/etc/sluicegate/gateway.toml", "The configuration of the service."),
            (
                "/var/lib/sluicegate",
                "Certificates ordered by ACME, unless the configuration names another directory.",
            ),
        ],
    ),
    (
        "SEE ALSO",
        &[(
            "/usr/share/doc/sluicegate/docs/reference/configuration/README.md",
            "Every key of gateway.toml with its default, if the package is installed.",
        )],
    ),
];
