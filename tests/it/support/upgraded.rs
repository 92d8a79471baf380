//! A gateway that is upgraded: its binary is a file that a test replaces, and its successors are children of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Directory, Gateway, eventually, signal, stdout_of};

/// A gateway whose binary is a file of its own, and the processes that have taken its place.
pub struct Upgraded {
    pub gateway: Gateway,
    /// The process that serves.
    pub pid: u32,
    pub successors: Vec<u32>,
}

impl Upgraded {
    pub fn start(config: &str) -> Upgraded {
        Upgraded::start_in(Directory::new(), config)
    }

    /// The same with files in this directory already.
    pub fn start_in(directory: Directory, config: &str) -> Upgraded {
        Upgraded::start_with(directory, config, |_| {})
    }

    /// The same by a command that is changed first.
    pub fn start_with(directory: Directory, config: &str, change: impl FnOnce(&mut Command)) -> Upgraded {
        let binary = directory.join("gateway");
        install(Path::new(env!("CARGO_BIN_EXE_sluicegate")), &binary);
        let mut command = Command::new(&binary);
        change(&mut command);
        let gateway = Gateway::start_by(command, directory, config);
        let pid = gateway.pid();
        Upgraded { gateway, pid, successors: Vec::new() }
    }

    /// Puts another program where the binary stands, in one step.
    pub fn replace_binary(&self, content: &[u8]) {
        let (content, next) = (self.gateway.write("content", content), self.gateway.file("next"));
        install(&content, &next);
        fs::rename(next, self.binary()).expect("both are in one directory");
    }

    pub fn binary(&self) -> PathBuf {
        self.gateway.file("gateway")
    }

    /// Upgrades and waits until the successor serves.
    pub fn upgrade(&mut self) -> u32 {
        signal(self.pid, "USR2");
        let drains = format!(" serves, process {} drains", self.pid);
        let line = self.says(&drains);
        // Both processes write at this moment, and each line is whole all the same.
        let pid =
            line.strip_prefix("sluicegate: upgraded: process ").and_then(|rest| rest.strip_suffix(&drains));
        self.pid = pid.and_then(|pid| pid.parse().ok()).expect("the line names the successor and ends there");
        self.successors.push(self.pid);
        self.pid
    }

    /// The first line that holds this, once there is one.
    pub fn says(&self, what: &str) -> String {
        eventually(what, || self.gateway.stderr().into_iter().find(|line| line.contains(what)))
    }

    pub fn count(&self, what: &str) -> usize {
        self.gateway.stderr().iter().filter(|line| line.contains(what)).count()
    }
}

impl Drop for Upgraded {
    fn drop(&mut self) {
        for pid in self.successors.iter().filter(|pid| is_running(**pid)) {
            Command::new("kill").args(["-KILL", &pid.to_string()]).status().ok();
        }
    }
}

/// Whether the process runs; one that has ended and is not waited for does not.
pub fn is_running(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

/// Copies a program by a process of its own. A file that this process has written cannot be started for a moment (ETXTBSY):
/// another test may just be starting a process, which has the descriptor it was written by until it runs its own program.
fn install(from: &Path, to: &Path) {
    stdout_of("install", &["-m", "755", &from.display().to_string(), &to.display().to_string()]);
}
