//! Where connections in the clear wait that have nothing to say: ten thousand of them are a few MiB.
//!
//! A task of the runtime with its socket's registration and its timer is two KiB. Here a connection is its socket, what
//! it is counted by and its deadline: the worker's sockets of the lot are watched by an epoll of their own, which is
//! all that the runtime knows of, and deadlines are looked at by the worker's tick. Nothing is parsed here. Connections
//! under TLS do not come here: their state is larger than all that would be saved.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use tokio::io::unix::AsyncFd;

use super::config;
use super::connection::Ends;
use super::listener::{self, Served};
use super::worker::Worker;
use crate::{clock, metrics};

/// A connection in the clear that waits for its client.
#[derive(Debug)]
pub struct IdleConnection {
    /// Its socket, which does not block.
    pub socket: TcpStream,
    /// Where it comes from, and for whom.
    pub ends: Ends,
    /// The listener's configuration when it came.
    pub config: Arc<config::Listener>,
    /// When it is closed.
    pub deadline: Instant,
    /// What it waits for.
    pub awaited: Awaited,
}

/// What a client may begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Its first request: HTTP/2 or HTTP/1.1.
    First,
    /// One more request over HTTP/1.1; the status that hyper answered with by itself last, 0 for none.
    Next(u16),
}

/// The connections of one worker that rest.
pub struct IdleConnections {
    registry: Registry,
    /// By deadline, [`clock::ns_of`], a little later where another has the same. The number is the socket's token.
    resting: RefCell<BTreeMap<u64, Box<(Served, IdleConnection)>>>,
}

impl IdleConnections {
    /// An empty one, and what tells of its sockets.
    ///
    /// # Errors
    /// Where there are no descriptors for it.
    pub fn open() -> io::Result<(IdleConnections, Poll)> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        Ok((IdleConnections { registry, resting: RefCell::default() }, poll))
    }

    /// Keeps a connection until its client speaks or its deadline has passed.
    pub fn add(&self, served: Served, rest: IdleConnection) {
        if served.worker.is_draining() {
            return;
        }
        let mut resting = self.resting.borrow_mut();
        let mut number = clock::ns_of(rest.deadline);
        while resting.contains_key(&number) {
            number += 1;
        }
        let watched = self.registry.register(
            &mut SourceFd(&rest.socket.as_raw_fd()),
            Token(number as usize),
            Interest::READABLE,
        );
        match watched {
            Ok(()) => _ = resting.insert(number, Box::new((served, rest))),
            Err(error) => {
                drop(resting);
                tracing::warn!(%error, "an idle connection cannot be watched");
            }
        }
    }

    /// Closes what has waited too long.
    pub fn expire(&self, now: Instant) {
        while let Some(late) = self.take_late(clock::ns_of(now)) {
            let (served, rest) = *late;
            let deadline = match rest.awaited {
                Awaited::First => metrics::Deadline::Header,
                Awaited::Next(_) => metrics::Deadline::Idle,
            };
            served.listener.metrics.deadline_passed(&served.worker.metrics, deadline);
        }
    }

    fn take_late(&self, now_ns: u64) -> Option<Box<(Served, IdleConnection)>> {
        let mut resting = self.resting.borrow_mut();
        let first = resting.first_entry()?;
        (*first.key() <= now_ns).then(|| first.remove())
    }

    /// Takes out the connection that an event is of, and serves it where its client has said something.
    fn wake(&self, token: Token, said: &mut [u8]) {
        let Some(woken) = self.resting.borrow_mut().remove(&(token.0 as u64)) else { return };
        let (served, mut rest) = *woken;
        match rest.socket.read(said) {
            Ok(count) if count > 0 => {
                let watched = self.registry.deregister(&mut SourceFd(&rest.socket.as_raw_fd()));
                if watched.is_ok() {
                    listener::resume(served, rest, Bytes::copy_from_slice(&said[..count]));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Nothing after all: as before.
                let _ = self.registry.deregister(&mut SourceFd(&rest.socket.as_raw_fd()));
                self.add(served, rest);
            }
            // It has gone.
            Ok(_) | Err(_) => {}
        }
    }

    fn close(&self) {
        drop(self.resting.take());
    }
}

/// Serves what wakes up in the worker's lot, until the drain closes all that rests.
pub async fn watch(worker: Rc<Worker>, poll: Poll) {
    #[expect(
        deprecated,
        reason = "what comes in its place is unsafe, for types that do not own their descriptor"
    )]
    let watched = AsyncFd::new(poll);
    let mut watched = match watched {
        Ok(watched) => watched,
        Err(error) => return tracing::error!(%error, "idle connections cannot be watched"),
    };
    let mut events = Events::with_capacity(EVENTS);
    let mut said = vec![0; FIRST_BYTES];
    loop {
        let ready = tokio::select! {
            biased;
            () = worker.drain_begins() => break,
            ready = watched.readable_mut() => ready,
        };
        let Ok(mut ready) = ready else { break };
        let polled = ready.get_inner_mut().poll(&mut events, Some(Duration::ZERO));
        // Fewer than there is room for are all there were.
        if polled.is_err() || events.iter().count() < EVENTS {
            ready.clear_ready();
        }
        for event in &events {
            worker.lot.wake(event.token(), &mut said);
        }
        // Those who come back in a crowd do not keep the others from their turn.
        tokio::task::yield_now().await;
    }
    worker.lot.close();
}

/// Connections that are woken in one turn.
const EVENTS: usize = 64;
/// What is read of a client at first: a head as most are.
pub const FIRST_BYTES: usize = 1024;
