//! Connections of one listener: let in, refused, and what ended them.

use std::fmt;

use crate::cells::{Cells, WorkerToken};
use crate::families::{Families, LabelledSeries};

#[derive(Debug)]
pub struct ListenerSeries(Cells<{ slot::SLOTS }>);

words! {
    /// Why a connection was closed as soon as it was accepted.
    pub enum RefusedConnection {
        /// The listener has as many as it may.
        Connections: "max-connections",
        /// The client's address has as many as it may.
        ConnectionsPerIp: "max-connections-per-ip",
        /// Memory runs out.
        Overload: "overload",
    }
}

words! {
    pub enum ConnectionDeadline {
        /// The TLS handshake took too long.
        Handshake: "handshake",
        /// A request's head took too long.
        Header: "header",
        /// No request came.
        Idle: "idle",
        /// A body, or the reader of an answer, stood still.
        BodyStall: "body-stall",
    }
}

impl ListenerSeries {
    pub(crate) fn new(workers: usize) -> ListenerSeries {
        ListenerSeries(Cells::new(workers))
    }

    /// A connection was accepted and is served; [`ListenerSeries::closed`] follows.
    pub fn opened(&self, worker: &WorkerToken) {
        self.0.count(worker, slot::ACCEPTED);
        self.0.shift(worker, slot::OPEN, 1);
    }

    /// A connection that was opened is gone.
    pub fn closed(&self, worker: &WorkerToken) {
        self.0.shift(worker, slot::OPEN, -1);
    }

    /// A connection was closed as soon as it was accepted; it never counts as opened.
    pub fn refused(&self, worker: &WorkerToken, refused: RefusedConnection) {
        self.0.count(worker, slot::REFUSED_FIRST + refused as usize);
    }

    /// A TLS handshake failed otherwise than by its deadline.
    pub fn handshake_failed(&self, worker: &WorkerToken) {
        self.0.count(worker, slot::HANDSHAKE_FAILURES);
    }

    /// A connection did not begin with the header of the PROXY protocol that it should have.
    pub fn announcement_failed(&self, worker: &WorkerToken) {
        self.0.count(worker, slot::ANNOUNCEMENT_FAILURES);
    }

    pub fn deadline_passed(&self, worker: &WorkerToken, deadline: ConnectionDeadline) {
        self.0.count(worker, slot::DEADLINES_FIRST + deadline as usize);
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.0.total(slot::ACCEPTED)
    }

    pub(crate) fn accepted_of_worker(&self, index: usize) -> u64 {
        self.0.of_worker(index, slot::ACCEPTED)
    }

    pub fn open(&self) -> u64 {
        self.0.level(slot::OPEN)
    }

    pub(crate) fn refusals(&self, refused: RefusedConnection) -> u64 {
        self.0.total(slot::REFUSED_FIRST + refused as usize)
    }
}

pub(crate) fn families(
    listeners: &[LabelledSeries<ListenerSeries>],
    families: &mut Families<'_>,
) -> fmt::Result {
    let accepted = ("connections_accepted", "Connections accepted and served");
    families.counter_of_each(accepted, "listener", listeners, ListenerSeries::accepted)?;
    families.gauges(
        "connections_open",
        "Connections open",
        None,
        listeners.iter().map(|(name, listener)| ([("listener", &**name)], listener.open())),
    )?;
    families.counters_of_each(
        (
            "connections_refused",
            "Connections closed at once because of a limit on connections or of overload",
        ),
        ["listener", "cap"],
        listeners,
        |it| RefusedConnection::ALL.map(|refused| (refused.word(), it.refusals(refused))),
    )?;
    let handshakes = ("handshake_failures", "TLS handshakes that failed");
    families.counter_of_each(handshakes, "listener", listeners, |it| it.0.total(slot::HANDSHAKE_FAILURES))?;
    let unannounced = (
        "proxy_protocol_failures",
        "Connections closed because their PROXY protocol header was missing or invalid",
    );
    families
        .counter_of_each(unannounced, "listener", listeners, |it| it.0.total(slot::ANNOUNCEMENT_FAILURES))?;
    families.counters_of_each(
        ("connection_deadlines", "Connections closed by a deadline"),
        ["listener", "deadline"],
        listeners,
        |it| {
            ConnectionDeadline::ALL.map(|one| (one.word(), it.0.total(slot::DEADLINES_FIRST + one as usize)))
        },
    )
}

mod slot {
    pub(super) const ACCEPTED: usize = 0;
    pub(super) const OPEN: usize = 1;
    pub(super) const HANDSHAKE_FAILURES: usize = 2;
    pub(super) const ANNOUNCEMENT_FAILURES: usize = 3;
    pub(super) const REFUSED_FIRST: usize = 4;
    pub(super) const DEADLINES_FIRST: usize = REFUSED_FIRST + super::RefusedConnection::ALL.len();
    pub(super) const SLOTS: usize = DEADLINES_FIRST + super::ConnectionDeadline::ALL.len();
}
