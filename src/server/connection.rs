//! One client's connection as the server has it: its facts, who serves it, and what is told when it ends otherwise than
//! by its requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderValue, Version};

use super::linger;
use super::listener::Listener;
use super::stream::Stream;
use super::timer::Expiry;
use super::tls;
use super::worker::Worker;
use crate::service::activity::Activity;
use crate::service::conn::{Conn, Peer};
use crate::service::problem;
use crate::service::reason::Reason;
use crate::service::{Ends, Service, config};
use crate::wire::http1::Fault;
use crate::{clock, metrics};

/// A connection that is served.
pub struct Connection<S: Service> {
    /// The worker that serves it.
    pub worker: Rc<Worker<S>>,
    /// The listener it came to.
    pub listener: Arc<Listener>,
    /// What its requests see of it.
    pub facts: Rc<Conn>,
}

/// How hyper's part of a connection ended.
pub enum End {
    /// hyper is done.
    Done(hyper::Result<()>),
    /// The next thing to answer is not a head.
    Refused(Fault),
    /// A deadline has passed.
    Expired(Expiry),
    /// The client has closed while it waited for an answer.
    Gone,
}

impl<S: Service> Connection<S> {
    /// A connection on which hyper has answered on its own with this status last; 0 for none.
    pub fn new(
        worker: &Rc<Worker<S>>,
        listener: &Arc<Listener>,
        config: Arc<config::Listener>,
        ends: Ends,
        stream: &Stream,
        last_status: u16,
    ) -> Connection<S> {
        let facts = Conn {
            peer: Peer::new(ends.announced_peer),
            tcp_peer: ends.tcp_peer.to_canonical(),
            tls: tls::version(stream),
            sni: tls::server_name(stream).into(),
            certificate: tls::certificate(stream),
            activity: Rc::new(Activity::after_rest(clock::instant(), last_status)),
            drain: Rc::clone(&worker.drain),
            stalled: Cell::new(false),
            broken: Cell::new(0),
            leaving: Cell::new(false),
            switched: RefCell::new(None),
            config,
        };
        Connection { worker: Rc::clone(worker), listener: Arc::clone(listener), facts: Rc::new(facts) }
    }

    /// A head over HTTP/1 takes too long. There is no request to answer through hyper: the answer goes straight to the
    /// socket.
    pub async fn late_http1(&self, mut stream: Stream) {
        self.deadline_passed(metrics::Deadline::Header);
        let request_id =
            self.refuse_unread(Version::HTTP_11, Reason::HeaderTimeout, problem::HEADER_TIMEOUT_STATUS);
        linger::say(&mut stream, &problem::header_timeout(&request_id)).await;
    }

    pub fn deadline_passed(&self, deadline: metrics::Deadline) {
        self.listener.metrics.deadline_passed(self.worker.service.cells(), deadline);
    }

    /// hyper gave the connection up: a head it cannot parse is a refused request, the rest is the client's going.
    ///
    /// Whether the client was told.
    pub fn broken(&self, error: &hyper::Error) -> bool {
        let status = self.facts.activity.last_status();
        let is_told = error.is_parse() && status != 0;
        if is_told {
            self.refuse_unread(Version::HTTP_11, problem::reason_of_parse_status(status), status);
        } else {
            tracing::debug!(peer = %self.facts.peer.ip, %error, "connection");
        }
        is_told
    }

    /// Counts and logs what never became a request, under the id it gives back.
    pub fn refuse_unread(&self, version: Version, reason: Reason, status: u16) -> HeaderValue {
        self.worker.service.refuse_unread(&self.facts, version, reason, status)
    }
}
