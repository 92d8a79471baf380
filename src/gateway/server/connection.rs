//! One client's connection: its facts, the worker that serves it, and what is logged and counted if it ends for another
//! reason than its requests. It reads nothing; `http1` and `http2` drive it.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderValue, Version};

use super::linger;
use super::listener::SharedListener;
use super::stream::ClientStream;
use super::timer::Expiry;
use super::tls;
use super::worker::Worker;
use crate::service::activity::Activity;
use crate::service::body_rest::BodyRest;
use crate::service::conn::{Conn, PeerAddress};
use crate::service::problem;
use crate::service::reason::Reason;
use crate::service::{ClientAddresses, Service, config};
use base::clock;
use net::wire::http1::FramingFault;

pub struct ConnectionTask<S: Service> {
    pub worker: Rc<Worker<S>>,
    pub listener: Arc<SharedListener>,
    /// What its requests see of it.
    pub facts: Rc<Conn>,
}

/// Why hyper does not drive a connection any more.
pub enum ConnectionEnd {
    Done(hyper::Result<()>),
    /// All requests are answered and what follows them is not a valid head.
    Refused(FramingFault),
    Expired(Expiry),
    /// The client closed the connection while it waited for an answer.
    Gone,
}

impl<S: Service> ConnectionTask<S> {
    /// `last_status` is what [`Activity::last_status`] was before the connection was idle; 0 if it is new.
    pub fn new(
        worker: &Rc<Worker<S>>,
        listener: &Arc<SharedListener>,
        config: Arc<config::ListenerConfig>,
        ends: ClientAddresses,
        stream: &ClientStream,
        last_status: u16,
    ) -> ConnectionTask<S> {
        let facts = Conn {
            peer: PeerAddress::new(ends.announced_peer),
            tcp_peer: ends.tcp_peer.to_canonical(),
            tls: tls::version(stream),
            sni: tls::server_name(stream).into(),
            certificate: tls::certificate(stream),
            activity: Rc::new(Activity::after_idle(clock::instant(), last_status)),
            drain: Rc::clone(&worker.drain),
            stalled: Cell::new(false),
            broken: Cell::new(0),
            leaving: Cell::new(false),
            rest: BodyRest::default(),
            frames: OnceCell::new(),
            switched: RefCell::new(None),
            config,
        };
        ConnectionTask { worker: Rc::clone(worker), listener: Arc::clone(listener), facts: Rc::new(facts) }
    }

    /// Refuses a head over HTTP/1 that takes too long. The answer is written straight to the socket, because there is
    /// no request to answer through hyper.
    pub async fn late_http1(&self, mut stream: ClientStream) {
        self.deadline_passed(metrics::ConnectionDeadline::Header);
        let request_id =
            self.refuse_unread(Version::HTTP_11, Reason::HeaderTimeout, problem::HEADER_TIMEOUT_STATUS);
        linger::say(&mut stream, &problem::header_timeout(&request_id, &self.facts.config)).await;
    }

    pub fn deadline_passed(&self, deadline: metrics::ConnectionDeadline) {
        self.listener.metrics.deadline_passed(self.worker.service.cells(), deadline);
    }

    /// Counts and logs what never became a request; returns the request id under which it is logged.
    pub fn refuse_unread(&self, version: Version, reason: Reason, status: u16) -> HeaderValue {
        self.worker.service.refuse_unread(&self.facts, version, reason, status)
    }
}
