//! This test program once more, in a process of its own, for one test that is ignored otherwise.

use std::path::PathBuf;
use std::process::Command;

/// Runs a test; it is told a place.
pub fn run(test: &str, place: &str) -> Command {
    told_of(Command::new(program()), test, place)
}

/// The same, by a command that runs what stands behind its arguments.
pub fn run_by(mut command: Command, test: &str, place: &str) -> Command {
    command.arg(program());
    told_of(command, test, place)
}

fn told_of(mut command: Command, test: &str, place: &str) -> Command {
    command.args(["--exact", test, "--ignored", "--nocapture"]).env(PLACE, place);
    command
}

fn program() -> PathBuf {
    std::env::current_exe().expect("a process has a program")
}

/// What the other side has told.
pub fn told() -> String {
    std::env::var(PLACE).expect("another test tells it")
}

/// The same, as a directory.
pub fn place() -> PathBuf {
    told().into()
}

const PLACE: &str = "SLUICEGATE_TEST_PLACE";
