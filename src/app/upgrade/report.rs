//! How `sluicegate upgrade` hears what became of it: it listens on a socket whose name holds the number of the process
//! it asks, and that process connects to it. So nothing listens for it while nobody asks.

use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::net::UCred;
use rustix::process::{Pid, Signal, Uid, kill_process};

use super::messages::WITHIN_MAX;
use base::clock;

/// Whoever asked for an upgrade by the command, if anybody did.
#[derive(Debug)]
pub(crate) struct UpgradeRequester(Option<UnixStream>);

impl UpgradeRequester {
    /// Connects to the command that has asked this process, if it is of the same user or of root.
    pub(crate) fn open() -> UpgradeRequester {
        let asker = address(std::process::id()).and_then(|address| UnixStream::connect_addr(&address));
        UpgradeRequester(asker.ok().filter(is_trusted))
    }

    pub(crate) fn end(self, is_done: bool, text: &str) {
        if let Some(mut asker) = self.0 {
            let _ = asker.set_write_timeout(Some(TOLD_WITHIN));
            let word = if is_done { DONE } else { FAILED };
            // Ignored, because whoever does not wait any more need not be told.
            let _ = asker.write_all(format!("{word}{text}\n").as_bytes());
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
pub(super) enum UpgradeResult {
    Done(String),
    /// It drains: it has a successor, or was told to stop.
    Drains,
    /// The process with this number ended before it could be asked, perhaps because it already had a successor.
    Gone(u32),
    /// Why it serves on.
    Failed(String),
}

impl UpgradeResult {
    /// The text to show; an error unless the upgrade is done.
    pub(super) fn into_result(self) -> anyhow::Result<String> {
        match self {
            UpgradeResult::Done(text) => Ok(text),
            UpgradeResult::Drains => bail!("{DRAINS}"),
            UpgradeResult::Gone(pid) => {
                bail!("process {pid} has just ended: another upgrade has replaced it, or it was told to stop")
            }
            UpgradeResult::Failed(why) => bail!("{why}"),
        }
    }
}

/// Asks a process that is known to be a gateway to upgrade itself, and waits for its answer.
///
/// # Errors
/// If it cannot be asked, or does not answer.
pub(super) fn ask(pid: u32) -> anyhow::Result<UpgradeResult> {
    let process =
        i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process id is a positive number")?;
    let Some(asked) = UpgradingProcess::find(process) else { return Ok(UpgradeResult::Gone(pid)) };
    let listener = address(pid).and_then(|address| UnixListener::bind_addr(&address));
    let listener = match listener {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let holder = address(pid).and_then(|address| UnixStream::connect_addr(&address))?;
            bail!(asked.held_by(rustix::net::sockopt::socket_peercred(holder)?))
        }
        listener => listener.context("cannot open the socket for the response")?,
    };
    match kill_process(process, Signal::USR2) {
        Err(Errno::SRCH) => return Ok(UpgradeResult::Gone(pid)),
        signalled => signalled.with_context(|| format!("process {pid}"))?,
    }
    let answer = asked.answer(&listener, CALLED_WITHIN)?;
    let mut text = String::new();
    answer.set_read_timeout(Some(WITHIN_MAX + TOLD_WITHIN))?;
    // To its end, because the process has no more to say.
    answer
        .take(TEXT_BYTES_MAX)
        .read_to_string(&mut text)
        .with_context(|| format!("process {pid} sent no answer"))?;
    let text = shown(text.trim_end());
    match (text.strip_prefix(DONE), text.strip_prefix(FAILED)) {
        (Some(done), _) => Ok(UpgradeResult::Done(done.to_owned())),
        (None, Some(DRAINS)) => Ok(UpgradeResult::Drains),
        (None, Some(why)) => Ok(UpgradeResult::Failed(why.to_owned())),
        (None, None) => bail!("process {pid} ended before it was upgraded"),
    }
}

/// The process that is asked. Any local user can connect to the socket for its answer, or occupy the socket's name.
#[derive(Clone, Copy, Debug)]
struct UpgradingProcess {
    pid: Pid,
    user: Uid,
}

impl UpgradingProcess {
    /// The process of this number; `None` if there is none. Its user is what /proc/PID/status says, because the folder
    /// belongs to root where the program has capabilities of its own.
    fn find(pid: Pid) -> Option<UpgradingProcess> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let effective = users.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(UpgradingProcess { pid, user: Uid::from_raw(effective) })
    }

    /// Whether a process is of root or of the gateway's user, as whoever may send the signal is.
    fn is_trusted(self, peer: UCred) -> bool {
        peer.uid.is_root() || peer.uid == self.user
    }

    /// The error if this process occupies the socket's name.
    fn held_by(self, holder: UCred) -> String {
        let pid = self.pid;
        if self.is_trusted(holder) {
            return format!("another `sluicegate upgrade` of process {pid} is under way");
        }
        format!(
            "process {} of user {} occupies the socket on which process {pid} would answer: stop that process and \
             try again. No gateway was signalled",
            holder.pid, holder.uid
        )
    }

    /// Waits until the process calls back. Whoever else connects is not listened to.
    fn answer(self, listener: &UnixListener, within: Duration) -> anyhow::Result<UnixStream> {
        listener.set_nonblocking(true)?;
        let (until, mut stranger) = (clock::instant() + within, None);
        while clock::instant() < until {
            match listener.accept() {
                Ok((stream, _)) => match rustix::net::sockopt::socket_peercred(&stream)? {
                    peer if peer.pid == self.pid && self.is_trusted(peer) => {
                        stream.set_nonblocking(false)?;
                        return Ok(stream);
                    }
                    peer => stranger = Some(peer),
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(CALLED_EVERY),
                Err(error) => return Err(error.into()),
            }
        }
        let others = stranger.map_or(String::new(), |peer| {
            format!(" (process {} of user {} connected instead and was ignored)", peer.pid, peer.uid)
        });
        bail!("process {} does not answer: check that it is a gateway and is serving{others}", self.pid)
    }
}

/// A text as a terminal may get it: what is not printed stands as an escape, but for the ends of lines.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for one in text.chars() {
        match one {
            '"' | '\'' | '\\' | '\n' => shown.push(one),
            one => shown.extend(one.escape_debug()),
        }
    }
    shown
}

/// The socket on which an upgrade of that process is waited for.
fn address(pid: u32) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("sluicegate-upgrade-{pid}"))
}

/// Why a process that drains is not upgraded. The command looks for its successor then.
pub(crate) const DRAINS: &str = "this process is already draining";
const DONE: &str = "done ";
const FAILED: &str = "failed ";
/// How long the process may take to call back.
const CALLED_WITHIN: Duration = Duration::from_secs(5);
const CALLED_EVERY: Duration = Duration::from_millis(10);
/// Bytes of an answer that are read: the last words of a successor are fewer.
const TEXT_BYTES_MAX: u64 = 64 * 1024;
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
        assert_eq!(answer, UpgradeResult::Gone(process.id()));
        let said = answer.into_result().expect_err("nobody was upgraded").to_string();
        let expected = format!("process {} has just ended: another upgrade has replaced it", process.id());
        assert!(said.starts_with(&expected), "{said}");
    }

    #[test]
    fn only_the_process_that_was_asked_is_heard() {
        let mut process = Command::new("sleep").arg("60").spawn().expect("it is on every system");
        let asked = UpgradingProcess::find(Pid::from_child(&process)).expect("it runs");
        assert_eq!(asked.user, rustix::process::geteuid());
        let name = address(process.id()).expect("a name");
        let listener = UnixListener::bind_addr(&name).expect("nobody has the name");
        let mut forged = UnixStream::connect_addr(&name).expect("anybody may connect");
        forged.write_all(b"done upgraded to process 1\n").expect("there is room");
        let heard = asked.answer(&listener, Duration::from_millis(50)).expect_err("it is of another process");
        let said = format!("process {} of user {} connected instead", std::process::id(), asked.user);
        assert!(heard.to_string().contains(&said), "{heard}");
        // The one that was asked is heard behind it.
        let own = UpgradingProcess { pid: rustix::process::getpid(), ..asked };
        let _called = UnixStream::connect_addr(&name).expect("anybody may connect");
        assert!(own.answer(&listener, Duration::from_secs(10)).is_ok());
        process.kill().expect("it runs");
        process.wait().expect("it is a child of ours");
    }

    #[test]
    fn a_name_that_a_stranger_holds_is_told() {
        let peer =
            |uid| UCred { pid: Pid::INIT, uid: Uid::from_raw(uid), gid: rustix::process::Gid::from_raw(uid) };
        let asked = UpgradingProcess { pid: rustix::process::getpid(), user: Uid::from_raw(990) };
        for trusted in [0, 990] {
            let said = asked.held_by(peer(trusted));
            assert!(said.starts_with("another `sluicegate upgrade` of process"), "{said}");
        }
        let said = asked.held_by(peer(1000));
        assert!(said.starts_with("process 1 of user 1000 occupies the socket"), "{said}");
    }

    #[test]
    fn a_terminal_gets_no_escapes() {
        assert_eq!(shown("process 7 serves, \"v2\" à \\"), "process 7 serves, \"v2\" à \\");
        assert_eq!(shown("a\x1b[2J\r\u{202e}\n  b"), "a\\u{1b}[2J\\r\\u{202e}\n  b");
    }
}
