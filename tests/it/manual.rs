//! What the program says of its own command line: completions for shells, and manual pages.

use std::process::Output;

use crate::support::gateway::binary;
use crate::support::{stdout_of, text};

fn sluicegate(arguments: &[&str]) -> Output {
    binary().args(arguments).output().expect("the binary under test can be started")
}

/// What a command prints that does not fail.
fn printed(arguments: &[&str]) -> String {
    let output = sluicegate(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The commands that `--help` shows.
fn commands() -> Vec<String> {
    let help = printed(&["--help"]);
    let (_, rest) = help.split_once("Commands:\n").expect("there are commands");
    let (commands, _) = rest.split_once("\n\n").expect("options follow");
    let names = commands.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_their_options() {
    let complete = |words: &str| {
        let program = binary().get_program().to_string_lossy().into_owned();
        let line = format!(
            "source <(\"{program}\" completions bash); COMP_WORDS=(sluicegate {words}); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _sluicegate sluicegate \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             echo \"${{COMPREPLY[@]}}\""
        );
        stdout_of("bash", &["-c", &line]).trim().to_owned()
    };
    assert_eq!(complete("up"), "upgrade");
    assert_eq!(complete("check --eff"), "--effective");
}

#[test]
fn every_shell_gets_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]);
        for command in commands() {
            assert!(script.contains(&command), "{command} is not in the script of {shell}");
        }
    }
    assert_eq!(sluicegate(&["completions", "csh"]).status.code(), Some(2));
}

#[test]
fn every_command_has_a_page_that_names_its_options() {
    let whole = printed(&["man"]).replace('\\', "");
    assert!(whole.contains(".TH sluicegate 1"), "{whole}");
    for part in ["SYNOPSIS", "OPTIONS", "SIGNALS", "EXIT STATUS", "/etc/sluicegate/gateway.toml"] {
        assert!(whole.contains(part), "{part} is not in\n{whole}");
    }
    let commands = commands();
    assert!(commands.len() > 5, "{commands:?}");
    for command in commands {
        assert!(whole.contains(&format!("sluicegate-{command}(1)")), "{command} is not in\n{whole}");
        let page = printed(&["man", &command]).replace('\\', "");
        assert!(page.contains(&format!(".TH sluicegate-{command} 1")), "{page}");
        let help = printed(&[&command, "--help"]);
        let options = help.split_whitespace().filter(|word| word.starts_with("--"));
        for option in options {
            let option = option.trim_end_matches([',', ':', ';', '.', ')']);
            assert!(page.contains(option), "{option} is not in\n{page}");
        }
    }
}

#[test]
fn a_page_of_no_command_is_wrong_usage_that_names_the_commands() {
    // A command within a command has a page, too.
    let page = printed(&["man", "ctl", "override"]).replace('\\', "");
    assert!(page.contains("sluicegate-ctl-override") && page.contains("End an override now"), "{page}");
    assert!(printed(&["man", "ctl", "override", "add"]).replace('\\', "").contains("default: without end"));
    for (wrong, said) in
        [(&["ctl", "star"][..], "the commands are override"), (&["check", "star"], "`check` has no commands")]
    {
        let output = sluicegate(&[&["man"], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
    let output = sluicegate(&["man", "star"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("there is no command \"star\"") && said.contains("explain"), "{said}");
}
