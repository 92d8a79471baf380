//! Holds idle connections in the clear cheaply: ten thousand of them take a few MiB.
//!
//! A task of the runtime with its socket's registration and its timer takes two KiB. Here a connection is only its
//! socket, what counts it (`T`) and its deadline. An epoll instance apart from the runtime's watches the sockets (the
//! runtime watches that one descriptor), and the worker's tick checks the deadlines. Nothing is parsed here.
//! Connections under TLS stay in tasks of their own, because their TLS state is larger than all that would be saved.

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

use crate::service::{ClientAddresses, config};
use base::{clock, log_lines::RareLine};

/// A connection in the clear that waits for its client.
#[derive(Debug)]
pub struct IdleConnection {
    /// In non-blocking mode, so that a read without bytes does not wait.
    pub socket: TcpStream,
    pub ends: ClientAddresses,
    /// The listener's configuration when the connection was accepted.
    pub config: Arc<config::ListenerConfig>,
    /// When it is closed if the client stays silent.
    pub deadline: Instant,
    /// What the client may send next.
    pub awaited: AwaitedHead,
}

impl IdleConnection {
    /// Takes the socket out of the runtime; `None` if that fails, and the connection is closed.
    pub fn of(
        tcp: tokio::net::TcpStream,
        ends: ClientAddresses,
        config: Arc<config::ListenerConfig>,
        deadline: Instant,
        awaited: AwaitedHead,
    ) -> Option<IdleConnection> {
        let socket = tcp.into_std().ok()?;
        Some(IdleConnection { socket, ends, config, deadline, awaited })
    }
}

/// What an idle client may send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedHead {
    /// Its first request, over HTTP/2 or HTTP/1.1.
    First,
    /// Another request over HTTP/1.1. The number carries
    /// [`Activity::last_status`](crate::service::activity::Activity::last_status) over the idle time.
    Next(u16),
}

/// The idle connections of one worker.
pub struct IdleConnections<T> {
    registry: Registry,
    /// By deadline ([`clock::ns_of`]), so that the first entry expires first. If two have the same deadline, the second
    /// is counted a nanosecond later, because the key is the socket's epoll token, too, and must be unique.
    by_deadline: RefCell<BTreeMap<u64, Box<(T, IdleConnection)>>>,
}

impl<T> IdleConnections<T> {
    /// No connections yet, and the epoll instance that reports events of their sockets.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn open() -> io::Result<(IdleConnections<T>, Poll)> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        Ok((IdleConnections { registry, by_deadline: RefCell::default() }, poll))
    }

    /// Keeps a connection until its client sends something or its deadline has passed.
    pub fn add(&self, served: T, idle: IdleConnection) {
        let mut by_deadline = self.by_deadline.borrow_mut();
        let mut deadline_ns = clock::ns_of(idle.deadline);
        while by_deadline.contains_key(&deadline_ns) {
            deadline_ns += 1;
        }
        let registered = self.registry.register(
            &mut SourceFd(&idle.socket.as_raw_fd()),
            Token(deadline_ns as usize),
            Interest::READABLE,
        );
        match registered {
            Ok(()) => _ = by_deadline.insert(deadline_ns, Box::new((served, idle))),
            Err(error) => {
                // `served` is dropped after this, and may come back here as it wakes others.
                drop(by_deadline);
                if UNWATCHED.is_due(clock::now_ns()) {
                    tracing::warn!(%error, "idle connections are closed: epoll cannot watch them; raise the sysctl fs.epoll.max_user_watches");
                }
            }
        }
    }

    /// Takes out a connection whose deadline has passed.
    pub fn take_late(&self, now: Instant) -> Option<(T, IdleConnection)> {
        let mut by_deadline = self.by_deadline.borrow_mut();
        let first = by_deadline.first_entry()?;
        (*first.key() <= clock::ns_of(now)).then(|| *first.remove())
    }

    /// Takes out the connection that an event belongs to, with the bytes its client has sent. `None` if there are none
    /// yet, and if the client has closed: then the connection is closed, too.
    pub fn wake(&self, token: Token, buffer: &mut [u8]) -> Option<(T, IdleConnection, Bytes)> {
        let woken = self.by_deadline.borrow_mut().remove(&(token.0 as u64))?;
        let (served, mut idle) = *woken;
        match idle.socket.read(buffer) {
            Ok(count) if count > 0 => {
                let deregistered = self.registry.deregister(&mut SourceFd(&idle.socket.as_raw_fd()));
                deregistered.ok()?;
                Some((served, idle, Bytes::copy_from_slice(&buffer[..count])))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // A spurious event: it goes back and waits on.
                let _ = self.registry.deregister(&mut SourceFd(&idle.socket.as_raw_fd()));
                self.add(served, idle);
                None
            }
            // The client has closed or reset the connection. Closing the socket deregisters it.
            Ok(_) | Err(_) => None,
        }
    }

    pub fn close(&self) {
        drop(self.by_deadline.take());
    }
}

static UNWATCHED: RareLine = RareLine::new();
/// Connections that are woken in one turn.
pub const EVENTS: usize = 64;
/// Bytes that are first read from a client; most heads are shorter.
pub const FIRST_BYTES: usize = 1024;
