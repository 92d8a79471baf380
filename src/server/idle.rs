//! Where connections in the clear wait that have nothing to say: ten thousand of them are a few MiB.
//!
//! A task of the runtime with its socket's registration and its timer is two KiB. Here a connection is its socket, what
//! it is counted by (`T`) and its deadline: one epoll of its own watches the sockets, which is all that the runtime knows
//! of, and the worker's tick looks at the deadlines. Nothing is parsed here. Connections under TLS do not come here:
//! their state is larger than all that would be saved.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use mio::unix::SourceFd;
use mio::{Interest, Poll, Registry, Token};

use crate::clock;
use crate::service::{Ends, config};

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

impl IdleConnection {
    /// A connection that waits for what its client says next; `None` if its socket is of no use.
    pub fn of(
        tcp: tokio::net::TcpStream,
        ends: Ends,
        config: Arc<config::Listener>,
        deadline: Instant,
        awaited: Awaited,
    ) -> Option<IdleConnection> {
        let socket = tcp.into_std().ok()?;
        Some(IdleConnection { socket, ends, config, deadline, awaited })
    }
}

/// What a client may begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Its first request: HTTP/2 or HTTP/1.1.
    First,
    /// One more request over HTTP/1.1; the status that hyper answered with on its own last, 0 for none.
    Next(u16),
}

/// The connections of one worker that rest.
pub struct IdleConnections<T> {
    registry: Registry,
    /// By deadline, [`clock::ns_of`], a little later if another has the same. The number is the socket's token.
    resting: RefCell<BTreeMap<u64, Box<(T, IdleConnection)>>>,
}

impl<T> IdleConnections<T> {
    /// An empty one, and what tells of its sockets.
    ///
    /// # Errors
    /// If there are no descriptors for it.
    pub fn open() -> io::Result<(IdleConnections<T>, Poll)> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        Ok((IdleConnections { registry, resting: RefCell::default() }, poll))
    }

    /// Keeps a connection until its client speaks or its deadline has passed.
    pub fn add(&self, served: T, rest: IdleConnection) {
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

    /// Takes out one that has waited too long.
    pub fn take_late(&self, now: Instant) -> Option<(T, IdleConnection)> {
        let mut resting = self.resting.borrow_mut();
        let first = resting.first_entry()?;
        (*first.key() <= clock::ns_of(now)).then(|| *first.remove())
    }

    /// Takes out the connection that an event is of, if its client has said something: with what it has said.
    pub fn wake(&self, token: Token, said: &mut [u8]) -> Option<(T, IdleConnection, Bytes)> {
        let woken = self.resting.borrow_mut().remove(&(token.0 as u64))?;
        let (served, mut rest) = *woken;
        match rest.socket.read(said) {
            Ok(count) if count > 0 => {
                let watched = self.registry.deregister(&mut SourceFd(&rest.socket.as_raw_fd()));
                watched.ok()?;
                Some((served, rest, Bytes::copy_from_slice(&said[..count])))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Nothing after all: as before.
                let _ = self.registry.deregister(&mut SourceFd(&rest.socket.as_raw_fd()));
                self.add(served, rest);
                None
            }
            // It has gone.
            Ok(_) | Err(_) => None,
        }
    }

    /// Closes all of them.
    pub fn close(&self) {
        drop(self.resting.take());
    }
}

/// Connections that are woken in one turn.
pub const EVENTS: usize = 64;
/// What is read of a client at first: a head as most are.
pub const FIRST_BYTES: usize = 1024;
