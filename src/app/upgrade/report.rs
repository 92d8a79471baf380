//! How `sluicegate upgrade` hears what became of it: it listens on a socket whose name holds the number of the process
//! it asks, and that process connects to it. So nothing listens for it while nobody asks.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::messages::WITHIN_MAX;
use base::clock;

/// Whoever asked for an upgrade by the command, if anybody did.
#[derive(Debug)]
pub(crate) struct Report(Option<UnixStream>);

impl Report {
    /// Connects to the command that has asked this process, if it is of the same user or of root.
    pub(crate) fn open() -> Report {
        let asker = address(std::process::id()).and_then(|address| UnixStream::connect_addr(&address));
        Report(asker.ok().filter(is_trusted))
    }

    /// Says how it ended.
    pub(crate) fn end(self, is_done: bool, text: &str) {
        if let Some(mut asker) = self.0 {
            let _ = asker.set_write_timeout(Some(TOLD_WITHIN));
            let word = if is_done { DONE } else { FAILED };
            // Whoever does not wait any more need not be told.
            let _ = asker.write_all(format!("{word}{}\n", text.replace('\n', " | ")).as_bytes());
        }
    }
}

/// Only who could send the signal may read what becomes of it.
fn is_trusted(asker: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(asker).is_ok_and(|peer| peer.uid.is_root() || peer.uid == own)
}

/// What a process that was asked to upgrade itself says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Its successor serves.
    Done(String),
    /// It drains: it has a successor, or was told to stop.
    Drains,
    /// The process of this number ended before it could be asked: so do those that have a successor.
    Gone(u32),
    /// Why it serves on.
    Failed(String),
}

impl Answer {
    /// The text to show; an error unless the upgrade is done.
    pub(super) fn into_result(self) -> anyhow::Result<String> {
        match self {
            Answer::Done(text) => Ok(text),
            Answer::Drains => bail!("{DRAINS}"),
            Answer::Gone(pid) => {
                bail!("process {pid} has just ended: another upgrade has replaced it, or it was told to stop")
            }
            Answer::Failed(why) => bail!("{why}"),
        }
    }
}

/// Asks a process that is known to be a gateway to upgrade itself, and waits for its answer.
///
/// # Errors
/// If it cannot be asked, or does not answer.
pub(super) fn ask(pid: u32) -> anyhow::Result<Answer> {
    let process =
        i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process id is a positive number")?;
    let listener = address(pid).and_then(|address| UnixListener::bind_addr(&address));
    let listener = match listener {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            bail!("another `sluicegate upgrade` asks process {pid} already")
        }
        listener => listener.context("the socket for the answer")?,
    };
    match kill_process(process, Signal::USR2) {
        Err(Errno::SRCH) => return Ok(Answer::Gone(pid)),
        signalled => signalled.with_context(|| format!("process {pid}"))?,
    }
    let answer = answer(&listener, pid)?;
    let mut line = String::new();
    answer.set_read_timeout(Some(WITHIN_MAX + TOLD_WITHIN))?;
    BufReader::new(answer).read_line(&mut line).with_context(|| format!("process {pid} says nothing"))?;
    match (line.strip_prefix(DONE), line.strip_prefix(FAILED).map(str::trim_end)) {
        (Some(done), _) => Ok(Answer::Done(done.trim_end().to_owned())),
        (None, Some(DRAINS)) => Ok(Answer::Drains),
        (None, Some(why)) => Ok(Answer::Failed(why.to_owned())),
        (None, None) => bail!("process {pid} ended before it was upgraded"),
    }
}

/// Waits until the process calls back.
fn answer(listener: &UnixListener, pid: u32) -> anyhow::Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let until = clock::instant() + CALLED_WITHIN;
    while clock::instant() < until {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::sleep(CALLED_EVERY),
            Err(error) => return Err(error.into()),
        }
    }
    bail!("process {pid} does not answer: is it a gateway that serves?")
}

/// The socket on which an upgrade of that process is waited for.
fn address(pid: u32) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("sluicegate-upgrade-{pid}"))
}

/// Why a process that drains is not upgraded. The command looks for its successor then.
pub(crate) const DRAINS: &str = "the process drains";
const DONE: &str = "done ";
const FAILED: &str = "failed ";
/// How long the process may take to call back.
const CALLED_WITHIN: Duration = Duration::from_secs(5);
const CALLED_EVERY: Duration = Duration::from_millis(10);
const TOLD_WITHIN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_has_ended_since_it_was_found_is_said_to_be_replaced() {
        let mut process = Command::new("true").spawn().expect("it is on every system");
        process.wait().expect("it is a child of ours");
        let answer = ask(process.id()).expect("there is nobody to be signalled");
        assert_eq!(answer, Answer::Gone(process.id()));
        let said = answer.into_result().expect_err("nobody was upgraded").to_string();
        let expected = format!("process {} has just ended: another upgrade has replaced it", process.id());
        assert!(said.starts_with(&expected), "{said}");
    }
}
