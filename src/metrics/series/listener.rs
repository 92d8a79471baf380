//! Connections of one listener: let in, refused, and what ended them.

use std::fmt;
use std::sync::Arc;

use crate::cells::{Cells, Worker};
use crate::families::Families;

/// Connections of one listener.
#[derive(Debug)]
pub struct Listener(Cells<{ slot::SLOTS }>);

/// Why a connection was closed as soon as it was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The listener has as many as it may.
    Connections,
    /// The client's address has as many as it may.
    ConnectionsPerIp,
    /// Memory runs out.
    Overload,
}

/// Which deadline closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The TLS handshake took too long.
    Handshake,
    /// A request's head took too long.
    Header,
    /// No request came.
    Idle,
    /// A body, or the reader of an answer, stood still.
    BodyStall,
}

impl Refused {
    pub(crate) const ALL: [Refused; 3] = [Refused::Connections, Refused::ConnectionsPerIp, Refused::Overload];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Refused::Connections => "max-connections",
            Refused::ConnectionsPerIp => "max-connections-per-ip",
            Refused::Overload => "overload",
        }
    }
}

impl Deadline {
    pub(crate) const ALL: [Deadline; 4] =
        [Deadline::Handshake, Deadline::Header, Deadline::Idle, Deadline::BodyStall];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Deadline::Handshake => "handshake",
            Deadline::Header => "header",
            Deadline::Idle => "idle",
            Deadline::BodyStall => "body-stall",
        }
    }
}

impl Listener {
    pub(crate) fn new(workers: usize) -> Listener {
        Listener(Cells::new(workers))
    }

    /// A connection was accepted and is served; [`Listener::closed`] follows.
    pub fn opened(&self, worker: &Worker) {
        self.0.count(worker, slot::ACCEPTED);
        self.0.shift(worker, slot::OPEN, 1);
    }

    /// A connection that was opened is gone.
    pub fn closed(&self, worker: &Worker) {
        self.0.shift(worker, slot::OPEN, -1);
    }

    /// A connection was closed as soon as it was accepted; it never counts as opened.
    pub fn refused(&self, worker: &Worker, refused: Refused) {
        self.0.count(worker, slot::REFUSED_FIRST + refused as usize);
    }

    /// A TLS handshake failed otherwise than by its deadline.
    pub fn handshake_failed(&self, worker: &Worker) {
        self.0.count(worker, slot::HANDSHAKE_FAILURES);
    }

    /// A connection did not begin with the header of the PROXY protocol that it should have.
    pub fn announcement_failed(&self, worker: &Worker) {
        self.0.count(worker, slot::ANNOUNCEMENT_FAILURES);
    }

    /// A deadline closed a connection.
    pub fn deadline_passed(&self, worker: &Worker, deadline: Deadline) {
        self.0.count(worker, slot::DEADLINES_FIRST + deadline as usize);
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.0.total(slot::ACCEPTED)
    }

    pub(crate) fn accepted_of_worker(&self, index: usize) -> u64 {
        self.0.of_worker(index, slot::ACCEPTED)
    }

    /// Connections that are open.
    pub fn open(&self) -> u64 {
        self.0.level(slot::OPEN)
    }

    pub(crate) fn refusals(&self, refused: Refused) -> u64 {
        self.0.total(slot::REFUSED_FIRST + refused as usize)
    }

    pub(crate) fn handshake_failures(&self) -> u64 {
        self.0.total(slot::HANDSHAKE_FAILURES)
    }

    pub(crate) fn announcement_failures(&self) -> u64 {
        self.0.total(slot::ANNOUNCEMENT_FAILURES)
    }

    pub(crate) fn deadlines(&self, deadline: Deadline) -> u64 {
        self.0.total(slot::DEADLINES_FIRST + deadline as usize)
    }
}

/// The families of listeners.
pub(crate) fn families(listeners: &[(Box<str>, Arc<Listener>)], families: &mut Families<'_>) -> fmt::Result {
    families.counters(
        "connections_accepted",
        "Connections accepted and served",
        None,
        listeners.iter().map(|(name, listener)| ([("listener", &**name)], listener.accepted())),
    )?;
    families.gauges(
        "connections_open",
        "Connections open",
        None,
        listeners.iter().map(|(name, listener)| ([("listener", &**name)], listener.open())),
    )?;
    families.counters(
        "connections_refused",
        "Connections closed at once because there were too many",
        None,
        listeners.iter().flat_map(|(name, listener)| {
            Refused::ALL.map(|refused| {
                ([("listener", &**name), ("cap", refused.label())], listener.refusals(refused))
            })
        }),
    )?;
    families.counters(
        "handshake_failures",
        "TLS handshakes that failed",
        None,
        listeners.iter().map(|(name, listener)| ([("listener", &**name)], listener.handshake_failures())),
    )?;
    families.counters(
        "proxy_protocol_failures",
        "Connections that did not begin with the PROXY protocol header that they should have",
        None,
        listeners.iter().map(|(name, listener)| ([("listener", &**name)], listener.announcement_failures())),
    )?;
    families.counters(
        "connection_deadlines",
        "Connections closed by a deadline",
        None,
        listeners.iter().flat_map(|(name, listener)| {
            Deadline::ALL.map(|deadline| {
                ([("listener", &**name), ("deadline", deadline.label())], listener.deadlines(deadline))
            })
        }),
    )
}

mod slot {
    pub(super) const ACCEPTED: usize = 0;
    pub(super) const OPEN: usize = 1;
    pub(super) const HANDSHAKE_FAILURES: usize = 2;
    pub(super) const ANNOUNCEMENT_FAILURES: usize = 3;
    pub(super) const REFUSED_FIRST: usize = 4;
    pub(super) const DEADLINES_FIRST: usize = REFUSED_FIRST + super::Refused::ALL.len();
    pub(super) const SLOTS: usize = DEADLINES_FIRST + super::Deadline::ALL.len();
}
