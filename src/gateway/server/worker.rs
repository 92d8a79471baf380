//! A worker as its connections see it: one thread's counts, its idle connections, its drain, and the service that
//! answers its requests. [`super::run`] starts and ends it.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use socket2::Socket;
use tokio::sync::{Notify, Semaphore, mpsc};

use super::idle::IdleConnections;
use super::listener::{Admission, SharedListener};
use crate::service::Service;
use crate::service::drain::Drain;
use crate::service::overload::Overload;
use base::ids::IdVec;

/// A command of the control runtime to a worker.
#[derive(Debug)]
pub enum WorkerCommand {
    Listen(Socket, Arc<SharedListener>),
    /// Stop accepting on the listener of this name; its connections go on until they are done.
    Close(String),
    /// Serve this connection, which another worker accepted.
    Adopt(std::net::TcpStream, SocketAddr, Arc<SharedListener>),
    /// Go on, and tell clients with each answer to connect anew.
    Leave,
    /// Accept no more, finish what runs, end when the drain says so at the latest.
    Drain(Deadlines),
}

/// When the moments of a drain come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Connections without a request are closed.
    pub idle: Instant,
    /// Tunnels are told to end.
    pub tunnels: Instant,
    /// Requests are broken off.
    pub requests: Instant,
}

impl Deadlines {
    /// All moments at once, for a process that goes down without a word.
    pub fn at(now: Instant) -> Deadlines {
        Deadlines { idle: now, tunnels: now, requests: now }
    }

    /// When the worker ends. Tunnels have their farewell whichever moment comes first, because one that ended with the
    /// requests would break off without a close frame.
    pub fn end(&self, has_tunnels: bool) -> Instant {
        if has_tunnels { self.requests.max(self.tunnels + TUNNEL_FAREWELL) } else { self.requests }
    }
}

base::id! {
    /// A worker: its position among those of this process.
    WorkerIndex
}

#[derive(Debug)]
pub struct WorkerResources {
    /// How far memory pressure has gone, which decides whether connections are accepted.
    pub overload: Arc<Overload>,
    pub panics: metrics::SharedCounter,
    /// Failures of accept(2) that concern the listening socket.
    pub accept_errors: metrics::SharedCounter,
    /// Connections of each worker: a worker with clearly more hands new ones to the one with fewest.
    pub loads: IdVec<WorkerIndex, AtomicUsize>,
    /// How often each worker has looked after its connections: it stands still if this does.
    pub turns: IdVec<WorkerIndex, AtomicU64>,
    /// Time that each worker has worked, nanoseconds, as of its last turn.
    pub busy_ns: IdVec<WorkerIndex, AtomicU64>,
    /// Where each worker receives.
    pub commands: IdVec<WorkerIndex, mpsc::Sender<WorkerCommand>>,
}

/// The state of one worker; it never leaves its thread.
pub struct Worker<S: Service> {
    pub index: WorkerIndex,
    pub shared: Arc<WorkerResources>,
    /// Answers the requests of its connections.
    pub service: Rc<S>,
    /// A permit for each TLS handshake under way.
    pub handshakes: Semaphore,
    /// Its connections without a request, as far as they are in the clear.
    pub idle: IdleConnections<ServedConnection<S>>,
    pub drain: Rc<Drain>,
    /// Notified when its last connection has ended: the drain waits for that.
    pub emptied: Notify,
    /// Notified again and again while memory is short: connections that hold it for nothing wait for that.
    pub memory_is_short: Notify,
}

impl<S: Service> Worker<S> {
    pub fn new(
        index: WorkerIndex,
        shared: Arc<WorkerResources>,
        service: Rc<S>,
        drain: Rc<Drain>,
        idle: IdleConnections<ServedConnection<S>>,
    ) -> Worker<S> {
        let handshakes = Semaphore::new(HANDSHAKES_MAX);
        let (emptied, memory_is_short) = (Notify::new(), Notify::new());
        Worker { index, shared, service, handshakes, idle, drain, emptied, memory_is_short }
    }

    pub fn connections(&self) -> usize {
        self.shared.loads[self.index].load(Ordering::Relaxed)
    }

    /// How long a TLS handshake that begins now may take. Once half of the permits are taken it is a quarter of the usual
    /// time, so that clients that open a handshake and stop do not make honest ones wait.
    pub fn handshake_deadline(&self, usual: Duration) -> Duration {
        if self.handshakes.available_permits() >= HANDSHAKES_MAX / 2 { usual } else { usual / 4 }
    }

    fn connection_opened(&self) {
        self.shared.loads[self.index].fetch_add(1, Ordering::Relaxed);
    }

    fn connection_closed(&self) {
        if self.shared.loads[self.index].fetch_sub(1, Ordering::Relaxed) == 1 {
            self.emptied.notify_waiters();
        }
    }
}

/// A connection among its worker's, which a drain waits for: counted in, and counted out when it is dropped, which a
/// panic does too.
pub struct CountedConnection<S: Service> {
    pub worker: Rc<Worker<S>>,
}

impl<S: Service> CountedConnection<S> {
    pub fn new(worker: &Rc<Worker<S>>) -> CountedConnection<S> {
        worker.connection_opened();
        CountedConnection { worker: Rc::clone(worker) }
    }
}

impl<S: Service> Drop for CountedConnection<S> {
    fn drop(&mut self) {
        self.worker.connection_closed();
    }
}

/// A connection that is served: counted in, and counted out when it is dropped, which a panic does too.
pub struct ServedConnection<S: Service> {
    pub worker: Rc<Worker<S>>,
    pub listener: Arc<SharedListener>,
    _admission: Admission,
}

impl<S: Service> ServedConnection<S> {
    pub fn new(
        worker: &Rc<Worker<S>>,
        listener: Arc<SharedListener>,
        admission: Admission,
    ) -> ServedConnection<S> {
        worker.connection_opened();
        listener.metrics.opened(worker.service.cells());
        ServedConnection { worker: Rc::clone(worker), listener, _admission: admission }
    }
}

impl<S: Service> Drop for ServedConnection<S> {
    fn drop(&mut self) {
        self.listener.metrics.closed(self.worker.service.cells());
        self.worker.connection_closed();
    }
}

/// How long tunnels have to end once they are told.
const TUNNEL_FAREWELL: Duration = Duration::from_secs(3);
/// TLS handshakes of one worker at once. Each holds some 12 KiB, so that is 48 MiB.
const HANDSHAKES_MAX: usize = 4096;

#[cfg(test)]
pub(super) mod tests {
    use http::{HeaderValue, Request, Response, Version};
    use hyper::body::Incoming;

    use super::*;
    use crate::server::panics;
    use crate::service::ClientAddresses;
    use crate::service::conn::Conn;
    use crate::service::reason::Reason;
    use base::cause::Cause;
    use net::wire::http2::StreamId;

    /// A service that is never asked.
    pub struct NoService(metrics::WorkerToken);

    impl Service for NoService {
        type Body = http_body_util::Empty<bytes::Bytes>;

        async fn answer(
            self: Rc<Self>,
            _: Rc<Conn>,
            _: Request<Incoming>,
            _: Option<StreamId>,
        ) -> Result<Response<Self::Body>, std::convert::Infallible> {
            Ok(Response::default())
        }

        fn refuse_unread(&self, _: &Conn, _: Version, _: Reason, _: u16) -> HeaderValue {
            HeaderValue::from_static("")
        }

        fn refuse_handshake(&self, _: &str, _: ClientAddresses, _: Cause) {}

        fn cells(&self) -> &metrics::WorkerToken {
            &self.0
        }

        fn upkeep(&self, _: Instant) {}

        fn close(&self) {}
    }

    /// A worker without a proxy, and what it counts.
    pub fn worker() -> (Rc<Worker<NoService>>, Arc<metrics::Metrics>) {
        let (metrics, mut cells) = metrics::Metrics::new(1);
        let shared = WorkerResources {
            overload: Arc::new(Overload::new(Default::default())),
            panics: metrics.panics.clone(),
            accept_errors: metrics.accept_errors.clone(),
            turns: vec![AtomicU64::new(0)].into(),
            busy_ns: vec![AtomicU64::new(0)].into(),
            loads: vec![AtomicUsize::new(0)].into(),
            commands: Vec::new().into(),
        };
        panics::count(shared.panics.clone());
        let (idle, _) = IdleConnections::open().expect("there are descriptors");
        let service = Rc::new(NoService(cells.remove(0)));
        (Rc::new(Worker::new(WorkerIndex::new(0), Arc::new(shared), service, Rc::default(), idle)), metrics)
    }

    #[test]
    fn half_open_handshakes_have_less_time_the_more_there_are() {
        let (worker, _) = worker();
        let usual = Duration::from_secs(4);
        assert_eq!(worker.handshake_deadline(usual), usual);
        let half = worker.handshakes.try_acquire_many(HANDSHAKES_MAX as u32 / 2 + 1).expect("there is room");
        assert_eq!(worker.handshake_deadline(usual), usual / 4);
        drop(half);
        assert_eq!(worker.handshake_deadline(usual), usual);
    }
}
