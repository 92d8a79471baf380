//! An upgrade: a new binary takes this process's place without a moment in which nobody accepts.
//!
//! The old process starts the program at its own path with its own arguments and hands it the very sockets it listens
//! on, so that no connection in a queue is lost. The new one prepares everything that can fail, takes over what limiter
//! keys have spent, accepts, and says so; only then does the old one drain. Whatever goes wrong before that ends the
//! new process and leaves the old one as it was.

mod channel;
mod messages;
mod predecessor;
mod report;
mod spend_exchange;
mod target;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufWriter, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use base::clock;
use channel::Channel;
use limiter::Limiter;
use limiter::local::{self, Relative};
pub(super) use messages::{Hello, SocketDescription, WITHIN_MAX};
use messages::{VARIABLE, Word};
use observe::record::process;
pub(super) use spend_exchange::SpendExchange;

pub use predecessor::Predecessor;
pub(super) use predecessor::find;
pub(super) use report::{DRAINS, UpgradeRequester};
pub use target::{request, request_where_listening};

/// The program that takes this process's place: found when this one starts, because the file may be another later.
#[derive(Clone, Debug)]
pub(super) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// Why there is no successor. All are for the operator, and the old process serves on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot start {}: {source}", .path.display())]
    Start { path: PathBuf, source: io::Error },
    /// It ended, or was ended.
    #[error("{} {how}{}", .path.display(), last_words(.words))]
    NotServing {
        path: PathBuf,
        /// What became of it.
        how: String,
        /// What it said last on standard error.
        words: String,
    },
}

pub(super) struct PassedSocket {
    pub(super) described: SocketDescription,
    pub(super) socket: OwnedFd,
}

pub(super) struct Handover {
    pub(super) hello: Hello,
    /// The sockets that it names.
    pub(super) sockets: Vec<OwnedFd>,
    /// Whose states it takes over.
    pub(super) limiter: Arc<Limiter>,
    /// How long the successor may take until it serves.
    pub(super) within: Duration,
    /// How long requests go on here after that.
    pub(super) drain: Duration,
}

pub(super) struct Successor {
    pub(super) pid: u32,
    /// What the two tell each other from here on; `None` if their tables have not the same form.
    pub(super) beside: Option<SpendExchange>,
}

/// An upgrade that is under way, on a thread of its own. Dropped, it ends the successor.
pub(super) struct RunningUpgrade {
    /// Ends the conversation. `None`: the successor serves.
    line: Option<UnixStream>,
    is_given_up: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for RunningUpgrade {
    fn drop(&mut self) {
        let Some(line) = &self.line else { return };
        self.is_given_up.store(true, Ordering::Relaxed);
        let _ = line.shutdown(Shutdown::Both);
        // Waited for, because this process may end at once, and a successor that hangs would stay. Ending it takes no
        // time.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

impl RunningUpgrade {
    /// The successor serves: it is left alone from here on.
    pub(super) fn finish(mut self) {
        self.line = None;
    }
}

impl Program {
    /// The program of this process. A path that was typed is kept as it was, so that a link may point elsewhere by the
    /// time it is started again.
    pub(super) fn of_this_process() -> io::Result<Program> {
        let mut arguments = std::env::args_os();
        let typed = arguments.next().map(PathBuf::from).unwrap_or_default();
        let this = std::env::current_exe()?;
        let found = if typed.components().count() > 1 {
            Some(std::path::absolute(&typed)?)
        } else {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&folders)
                .map(|folder| folder.join(&typed))
                .find(|path| path.canonicalize().is_ok_and(|path| path == this))
        };
        Ok(Program { path: found.unwrap_or(this), arguments: arguments.collect() })
    }

    /// Starts the successor and brings it to serving. The second value ends with it, or says why not.
    pub(super) fn succeed(
        self,
        handover: Handover,
    ) -> Result<(RunningUpgrade, tokio::sync::oneshot::Receiver<Result<Successor, Error>>), Error> {
        let begin = |source| Error::Start { path: self.path.clone(), source };
        let (ours, theirs) = UnixStream::pair().map_err(begin)?;
        let line = ours.try_clone().map_err(begin)?;
        let (tell, told) = tokio::sync::oneshot::channel();
        let path = self.path.clone();
        let is_given_up = Arc::<AtomicBool>::default();
        let given_up = Arc::clone(&is_given_up);
        let converse = move || {
            let _ = tell.send(self.converse(ours, theirs, &handover, &given_up));
        };
        let thread = thread::Builder::new().name("upgrade".to_owned()).spawn(converse);
        let thread = Some(thread.map_err(|source| Error::Start { path, source })?);
        Ok((RunningUpgrade { line: Some(line), is_given_up, thread }, told))
    }

    fn converse(
        &self,
        ours: UnixStream,
        theirs: UnixStream,
        handover: &Handover,
        is_given_up: &AtomicBool,
    ) -> Result<Successor, Error> {
        let mut child = self.start(theirs)?;
        let tail = StderrTail::of(&mut child);
        let handed_over = hand_over(Channel::new(ours, handover.within), handover);
        if handed_over.is_err() {
            handover.limiter.table().close_journal(Relative::Successor);
        }
        match handed_over {
            Ok((mut channel, is_taken_over)) => {
                tail.pass_on();
                // It waits for this, so that its next lines stand behind its first.
                let _ = channel.send(&Word::Serving);
                let until = clock::instant() + handover.drain;
                let (line, limiter) = (channel.into_stream(), &handover.limiter);
                let begin = || SpendExchange::begin(line, Relative::Successor, limiter, Some(until));
                let beside = if is_taken_over { begin() } else { None };
                Ok(Successor { pid: child.id(), beside })
            }
            Err(_) if is_given_up.load(Ordering::Relaxed) => {
                kill(&mut child);
                let how = "was stopped, because this process received a stop signal".to_owned();
                Err(Error::NotServing { path: self.path.clone(), how, words: String::new() })
            }
            Err(error) => {
                let how = match end(&mut child, &error) {
                    Some(status) => format!("ended with {status}"),
                    None if is_late(&error) => {
                        format!("was stopped, because it was not ready within {:?}", handover.within)
                    }
                    None => format!("was stopped: {error}"),
                };
                Err(Error::NotServing { path: self.path.clone(), how, words: tail.last() })
            }
        }
    }

    fn start(&self, theirs: UnixStream) -> Result<Child, Error> {
        Command::new(&self.path)
            .args(&self.arguments)
            // A group of its own, because whatever it starts has the listening sockets, too, and can be ended with it.
            // Once it serves, a gateway comes back to this process's group, so that a terminal's signals reach it.
            .process_group(0)
            .env(VARIABLE, std::process::id().to_string())
            // Removed, because they are meant for this process alone.
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES")
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| Error::Start { path: self.path.clone(), source })
    }
}

/// Gives a successor all that it needs, and waits until it serves. The second value is whether it has taken over the table.
fn hand_over(mut channel: Channel, handover: &Handover) -> io::Result<(Channel, bool)> {
    channel.send(&handover.hello)?;
    let stderr = io::stderr();
    let mut descriptors: Vec<BorrowedFd<'_>> = vec![stderr.as_fd()];
    descriptors.extend(handover.sockets.iter().map(AsFd::as_fd));
    channel.send_descriptors(&descriptors)?;
    let word: Word = channel.receive()?;
    let takes_over = word == (Word::Prepared { states: local::FORMAT });
    if takes_over {
        // Before the table is written, so that what is spent meanwhile is told beside it: it may count twice, never not
        // at all.
        handover.limiter.table().open_journal(Relative::Successor);
        let mut out = BufWriter::with_capacity(STATES_BUFFER_BYTES, &mut channel);
        handover.limiter.table().write_states(&mut out).map_err(io::Error::other)?;
    }
    match channel.receive()? {
        Word::Serving => Ok((channel, takes_over)),
        Word::Prepared { .. } => Err(io::Error::other("it sent `prepared` twice")),
    }
}

/// Waits a moment for a successor that has ended, or ends it: `None` then.
fn end(child: &mut Child, error: &io::Error) -> Option<ExitStatus> {
    let until = clock::instant() + ENDED_WITHIN;
    while !is_late(error) && clock::instant() < until {
        if has_ended(child) {
            return kill(child);
        }
        thread::sleep(ENDED_EVERY);
    }
    kill(child);
    None
}

/// Whether it has ended. It is not waited for, so that its number stays its own.
fn has_ended(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    number(child).is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_))))
}

/// Ends it and all that it has started, unless that has left its group. Returns how it ended.
fn kill(child: &mut Child) -> Option<ExitStatus> {
    if let Some(group) = number(child) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    // By its number, too, because it may have left its group already, as one that serves does.
    let _ = child.kill();
    child.wait().ok()
}

fn number(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

/// Whether the successor's time is over; a socket says so in two ways.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// What a successor says on standard error before it serves.
struct StderrTail {
    said: Arc<Mutex<VecDeque<u8>>>,
    over: mpsc::Receiver<()>,
}

impl StderrTail {
    fn of(child: &mut Child) -> StderrTail {
        let said: Arc<Mutex<VecDeque<u8>>> = Arc::default();
        let (tell, over) = mpsc::channel();
        if let Some(mut pipe) = child.stderr.take() {
            let said = Arc::clone(&said);
            thread::spawn(move || {
                let mut some = [0; 1024];
                while let Ok(count @ 1..) = pipe.read(&mut some) {
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    said.extend(&some[..count]);
                    let excess = said.len().saturating_sub(STDERR_TAIL_BYTES_MAX);
                    said.drain(..excess);
                }
                let _ = tell.send(());
            });
        }
        StderrTail { said, over }
    }

    /// Says it here, where the successor goes on.
    fn pass_on(&self) {
        let _ = self.over.recv_timeout(ENDED_WITHIN);
        let said = std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner));
        process::write(&Vec::from(said));
        process::flush();
    }

    /// Its last lines as they were, because a place in a file is shown by a mark under it.
    fn last(&self) -> String {
        let _ = self.over.recv_timeout(ENDED_WITHIN);
        let said = Vec::from(std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner)));
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(WORDS_LINES_MAX)..].join("\n")
    }
}

fn last_words(words: &str) -> String {
    match words.contains('\n') {
        _ if words.is_empty() => " without a message".to_owned(),
        true => words.lines().fold(":".to_owned(), |said, line| said + "\n    " + line),
        false => format!(": {words}"),
    }
}

/// Such a text as the log has it: in one line.
pub(super) fn in_one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" | ").replace(": | ", ": ")
}

const ENDED_WITHIN: Duration = Duration::from_secs(2);
const ENDED_EVERY: Duration = Duration::from_millis(10);
/// What is kept of what a successor says.
const STDERR_TAIL_BYTES_MAX: usize = 64 * 1024;
const WORDS_LINES_MAX: usize = 20;
const STATES_BUFFER_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_a_successor_keeps_its_marks_and_the_log_has_one_line() {
        let words = "gateway.toml:1:9\n  1 | limit = x\n    |         ^ write a rate";
        let path = PathBuf::from("/a");
        let error = Error::NotServing { path, how: "ended".to_owned(), words: words.to_owned() }.to_string();
        let indented =
            "/a ended:\n    gateway.toml:1:9\n      1 | limit = x\n        |         ^ write a rate";
        assert_eq!(error, indented);
        assert_eq!(
            in_one_line(&error),
            "/a ended: gateway.toml:1:9 | 1 | limit = x | |         ^ write a rate"
        );
        assert_eq!((last_words(""), last_words("no")), (" without a message".to_owned(), ": no".to_owned()));
    }
}
