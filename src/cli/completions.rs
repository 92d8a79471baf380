//! `sluicegate completions`: what a shell needs to complete the command line. It is made from the same description that
//! parses the arguments, so that it never offers what the program does not know.

use clap_complete::Shell;

/// For which shell.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The shell to complete for
    shell: Shell,
}

pub fn script(arguments: &Arguments, mut command: clap::Command) -> Vec<u8> {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    script
}
