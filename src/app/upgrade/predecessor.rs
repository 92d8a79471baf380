//! The new process's side of an upgrade: what it is given by the process whose place it takes, and what it says to it.

use std::fs::File;
use std::io::BufReader;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::Context;
use rustix::process::{Pid, getpgid, setpgid};

use super::channel::Channel;
use super::messages::{Hello, VARIABLE, WITHIN_MAX, Word};
use super::spend_exchange::SpendExchange;
use crate::sockets::inherited_sockets::InheritedSockets;
use base::clock;
use limiter::Limiter;
use limiter::local::{self, Relative};
use observe::record::process;

/// The process whose place this one takes.
#[derive(Debug)]
pub struct Predecessor {
    channel: Channel,
    /// Where this process's messages go once it serves; until then the predecessor reads them.
    stderr: OwnedFd,
    /// The group of its process.
    group: Option<Pid>,
    /// Without its sockets, which are the listeners'.
    pub(crate) hello: Hello,
}

/// The predecessor and its sockets, if this process was started to take one's place. Has to be called before anything
/// reads the clock, because what the predecessor has counted by its clock has to mean the same here.
///
/// # Errors
/// If there is one and it does not say what it has to.
pub(crate) fn find() -> anyhow::Result<Option<(Predecessor, InheritedSockets)>> {
    let parent = rustix::process::getppid();
    let number = parent.map_or(0, |parent| parent.as_raw_nonzero().get());
    if !std::env::var(VARIABLE).is_ok_and(|from| from == number.to_string()) {
        return Ok(None);
    }
    let group = parent.and_then(|parent| getpgid(Some(parent)).ok());
    let line = std::io::stdin().as_fd().try_clone_to_owned().context("cannot take over standard input")?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?).context("cannot take over standard input")?;
    let mut channel = Channel::new(UnixStream::from(line), WITHIN_MAX);
    let mut hello: Hello = channel.receive().context("cannot read the predecessor's first message")?;
    clock::resume(hello.clock_ahead_ns);
    let mut descriptors = channel.receive_descriptors(hello.sockets.len() + 1)?.into_iter();
    let stderr = descriptors.next().context("the predecessor did not pass its standard error")?;
    let mut inherited = InheritedSockets::default();
    let described = std::mem::take(&mut hello.sockets).into_iter();
    described.zip(descriptors).for_each(|(described, socket)| inherited.push(described, socket));
    Ok(Some((Predecessor { channel, stderr, group, hello }, inherited)))
}

impl Predecessor {
    /// Says that everything is prepared, and takes over what keys have spent. Reads for a while; waits for its own
    /// thread.
    ///
    /// # Errors
    /// If the predecessor is gone: it has been stopped meanwhile, and so must this process.
    pub(crate) async fn take_over(self, limiter: &Arc<Limiter>) -> anyhow::Result<Predecessor> {
        let limiter = Arc::clone(limiter);
        tokio::task::spawn_blocking(move || self.read_states(&limiter)).await?
    }

    fn read_states(mut self, limiter: &Limiter) -> anyhow::Result<Predecessor> {
        self.channel.send(&Word::Prepared { states: local::FORMAT }).context("the predecessor has ended")?;
        if self.hello.states != local::FORMAT {
            tracing::warn!("this version cannot read the counts of the old process: all limits start full");
            return Ok(self);
        }
        let keys = limiter.table().read_states(&mut BufReader::new(&mut self.channel))?;
        limiter.table().open_journal(Relative::Predecessor);
        tracing::info!(keys, "received the counts of the previous process");
        Ok(self)
    }

    /// Says that this process serves. From here on it writes where its predecessor wrote, and a terminal's signals are for
    /// it as well. Until the predecessor has ended, the two tell each other what keys spend.
    ///
    /// # Errors
    /// If the predecessor is gone.
    pub(crate) fn serving(mut self, limiter: &Arc<Limiter>) -> anyhow::Result<Option<SpendExchange>> {
        self.channel.send(&Word::Serving).context("the predecessor has ended")?;
        // What was said until now goes where the predecessor reads.
        process::flush();
        rustix::stdio::dup2_stderr(&self.stderr).context("standard error")?;
        // What was said until now it says for this process; if it is gone, nobody needs to be waited for.
        let _ = self.channel.receive::<Word>();
        // Ignored, because one that is gone leaves no group to go to.
        let _ = self.group.map(|group| setpgid(None, Some(group)));
        if self.hello.states != local::FORMAT {
            return Ok(None);
        }
        Ok(SpendExchange::begin(self.channel.into_stream(), Relative::Predecessor, limiter, None))
    }
}
