//! While a process and its successor both serve: each tells the other what limiter keys have spent with it, so that clients
//! who have a connection to each do not have two limits.

use std::io::{BufReader, BufWriter};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use base::clock;
use limiter::Limiter;
use limiter::local::Relative;

/// The conversation, on two threads. It ends with either process; its journal is closed then.
#[derive(Debug)]
pub(crate) struct SpendExchange {
    end: Sender<()>,
    /// Says when it has ended.
    over: Receiver<()>,
}

impl SpendExchange {
    /// Begins it, for as long as the other process lives, or until then if that is sooner. `None` if that fails: each counts
    /// alone then, and serves.
    pub(super) fn begin(
        line: UnixStream,
        with: Relative,
        limiter: &Arc<Limiter>,
        until: Option<Instant>,
    ) -> Option<SpendExchange> {
        let begun = SpendExchange::start(line, with, limiter, until);
        if let Err(error) = &begun {
            limiter.table().close_journal(with);
            tracing::warn!(%error, ?with, "the old and the new process cannot exchange spent units: limits \
                can be exceeded until the old one ends");
        }
        begun.ok()
    }

    fn start(
        line: UnixStream,
        with: Relative,
        limiter: &Arc<Limiter>,
        until: Option<Instant>,
    ) -> std::io::Result<SpendExchange> {
        line.set_read_timeout(None)?;
        line.set_write_timeout(Some(TOLD_WITHIN))?;
        let (end, ended) = mpsc::channel();
        let (tell_over, over) = mpsc::channel();
        let (hearing, telling) = (line.try_clone()?, line);
        let (here, limiter) = (Arc::clone(limiter), Arc::clone(limiter));
        let gone = end.clone();
        thread::Builder::new().name("spend-writer".to_owned()).spawn(move || {
            let mut out = BufWriter::new(&telling);
            loop {
                let waited = ended.recv_timeout(TOLD_EVERY);
                let is_last = waited != Err(RecvTimeoutError::Timeout)
                    || until.is_some_and(|until| clock::instant() >= until);
                if limiter.table().tell_spent(with, &mut out).is_err() || is_last {
                    break;
                }
            }
            limiter.table().close_journal(with);
            let _ = telling.shutdown(Shutdown::Both);
            let _ = tell_over.send(());
        })?;
        thread::Builder::new().name("spend-reader".to_owned()).spawn(move || {
            let mut input = BufReader::new(hearing);
            while here.table().hear_spent(with, &mut input, clock::now_ns).is_ok() {}
            let _ = gone.send(());
        })?;
        Ok(SpendExchange { end, over })
    }

    /// Waits until the other process has ended it, but not for long.
    pub(crate) fn wait(&self, within: Duration) {
        let _ = self.over.recv_timeout(within);
    }

    pub(crate) fn end(self) {
        let _ = self.end.send(());
        self.wait(TOLD_WITHIN);
    }
}

/// How old what a process knows of the other may be.
const TOLD_EVERY: Duration = Duration::from_millis(5);
/// How long one that does not listen is waited for.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
