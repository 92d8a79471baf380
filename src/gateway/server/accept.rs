//! Accepts connections, applies the caps on them and spreads them over workers. It reads nothing from them except a
//! header of the PROXY protocol; `serve` does the rest.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mio::Events;
use socket2::{Domain, Socket};
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream, UnixListener};

use super::idle::{AwaitedHead, EVENTS, FIRST_BYTES, IdleConnection};
use super::listener::{Admission, SharedListener};
use super::worker::{CountedConnection, ServedConnection, Worker, WorkerCommand};
use super::{proxy_protocol, serve};
use crate::service::overload::PressureStep;
use crate::service::{ClientAddresses, Service};
use base::clock;
use base::identity::NO_ADDRESS;
use net::descriptors;
use upstream::connect::keep_alive;

/// Accepts on one socket until the worker drains. Then it serves the connections that the kernel has accepted already,
/// and only then closes the socket, because closing it first would reset clients that believe they are connected.
pub async fn accept<S: Service>(worker: Rc<Worker<S>>, socket: Socket, listener: Arc<SharedListener>) {
    let socket = match Acceptor::new(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!(%error, "worker cannot accept connections on a listening socket");
            return;
        }
    };
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = poll_fn(|cx| socket.poll_accept(cx)) => accepted,
            () = worker.drain.begins.wait() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let is_last = descriptors::is_last(stream.as_raw_fd());
                place(&worker, stream, peer, &listener);
                if is_last {
                    let kept = io::Error::other("the last ones are kept for upstream connections");
                    descriptors::ran_out("accept", &kept, clock::now_ns());
                    pause(&worker).await;
                }
            }
            Err(error) if concerns_one_connection(&error) => {}
            Err(error) => {
                worker.shared.accept_errors.add(1);
                descriptors::ran_out("accept", &error, clock::now_ns());
                pause(&worker).await;
            }
        }
    }
    if worker.drain.is_handed_over() {
        // What waits there stays, because another process accepts on the same socket.
        return;
    }
    let mut noop = Context::from_waker(Waker::noop());
    while let Poll::Ready(Ok((stream, peer))) = socket.poll_accept(&mut noop) {
        start(&worker, stream, peer, listener.clone());
    }
}

/// A socket that connections come in on.
enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Acceptor {
    /// By what the socket is, not by what the configuration says: systemd may have opened another.
    fn new(socket: Socket) -> io::Result<Acceptor> {
        match socket.domain()? {
            Domain::UNIX => UnixListener::from_std(OwnedFd::from(socket).into()).map(Acceptor::Unix),
            _ => {
                // Set here, because connections take both over, whoever opened the socket, and cost no call of their
                // own for them.
                keep_alive(&socket)?;
                socket.set_tcp_nodelay(true)?;
                TcpListener::from_std(socket.into()).map(Acceptor::Tcp)
            }
        }
    }

    /// The next connection. One over a Unix socket goes on as a `TcpStream`, too, so that every other connection is
    /// spared a branch in each step: all that is done with it (reading, writing, shutting a side) works on any stream
    /// socket.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        match self {
            Acceptor::Tcp(socket) => socket.poll_accept(cx),
            Acceptor::Unix(socket) => {
                let (stream, _) = ready!(socket.poll_accept(cx))?;
                let stream = std::net::TcpStream::from(OwnedFd::from(stream.into_std()?));
                Poll::Ready(TcpStream::from_std(stream).map(|stream| (stream, (NO_ADDRESS, 0).into())))
            }
        }
    }
}

/// Waits until there is a descriptor for a client again. Meanwhile new clients wait in the kernel's backlog, because
/// accepting without a pause would spin on the same error.
async fn pause<S: Service>(worker: &Worker<S>) {
    let descriptor_is_free = async {
        loop {
            tokio::time::sleep(PAUSE).await;
            match File::open(ANY_FILE) {
                Ok(file) if !descriptors::is_last(file.as_raw_fd()) => return,
                _ => descriptors::note_again(clock::now_ns()),
            }
        }
    };
    tokio::select! {
        () = descriptor_is_free => {}
        () = worker.drain.begins.wait() => {}
    }
}

/// Serves a connection here, or hands it to the worker with the fewest connections if it has clearly fewer. That is
/// needed because the kernel spreads connections by a hash, which can leave a core idle if there are few and long-lived
/// ones (HTTP/2).
fn place<S: Service>(
    worker: &Rc<Worker<S>>,
    stream: TcpStream,
    peer: SocketAddr,
    listener: &Arc<SharedListener>,
) {
    let loads = &worker.shared.loads;
    let mine = worker.connections();
    let least =
        loads.with_ids().map(|(id, load)| (id, load.load(Ordering::Relaxed))).min_by_key(|&(_, load)| load);
    let Some((other, load)) = least.filter(|&(_, load)| mine > load + 1 + load / 4) else {
        return start(worker, stream, peer, Arc::clone(listener));
    };
    tracing::trace!(mine, load, other = other.index(), "handing a connection over");
    let handed = stream.into_std().map(|stream| WorkerCommand::Adopt(stream, peer, Arc::clone(listener)));
    if let Ok(command) = handed
        && let Err(refused) = worker.shared.commands[other].try_send(command)
        && let WorkerCommand::Adopt(stream, peer, listener) = refused.into_inner()
    {
        // Served here after all, so that a worker that takes no commands costs no connection.
        adopt(worker, stream, peer, listener);
    }
}

/// Serves a connection that another worker accepted.
pub fn adopt<S: Service>(
    worker: &Rc<Worker<S>>,
    stream: std::net::TcpStream,
    peer: SocketAddr,
    listener: Arc<SharedListener>,
) {
    match TcpStream::from_std(stream) {
        Ok(stream) => start(worker, stream, peer, listener),
        Err(error) => tracing::debug!(%error, "client disconnected before its connection was served"),
    }
}

fn start<S: Service>(
    worker: &Rc<Worker<S>>,
    mut stream: TcpStream,
    peer: SocketAddr,
    listener: Arc<SharedListener>,
) {
    if worker.shared.overload.step() == PressureStep::NoConnections {
        return listener.metrics.refused(worker.service.cells(), metrics::RefusedConnection::Overload);
    }
    let admission = match listener.admit() {
        Ok(admission) => admission,
        Err(refused) => return listener.metrics.refused(worker.service.cells(), refused),
    };
    if !listener.config.load().announces(peer.ip()) {
        let ends = ClientAddresses { tcp_peer: peer.ip(), announced_peer: peer.ip() };
        return serve(worker, stream, ends, listener, admission);
    }
    let counted = CountedConnection::new(worker);
    tokio::task::spawn_local(async move {
        let worker = &counted.worker;
        if let Some(client) = proxy_protocol::client(worker, &listener, &mut stream, peer).await {
            let ends = ClientAddresses { tcp_peer: peer.ip(), announced_peer: client.ip() };
            serve(worker, stream, ends, listener, admission);
        }
    });
}

fn serve<S: Service>(
    worker: &Rc<Worker<S>>,
    stream: TcpStream,
    ends: ClientAddresses,
    listener: Arc<SharedListener>,
    admission: Admission,
) {
    match admission.of(ends.announced_peer) {
        Ok(admission) => {
            let served = ServedConnection::new(worker, listener, admission);
            tokio::task::spawn_local(async move {
                let idle = serve::serve(&served.worker, &served.listener, stream, ends).await;
                keep_idle(served, idle);
            });
        }
        Err(refused) => listener.metrics.refused(worker.service.cells(), refused),
    }
}

/// Serves an idle connection again, now that its client has sent `first_bytes`.
fn resume<S: Service>(served: ServedConnection<S>, idle: IdleConnection, first_bytes: Bytes) {
    tokio::task::spawn_local(async move {
        let idle = serve::resume(&served.worker, &served.listener, idle, first_bytes).await;
        keep_idle(served, idle);
    });
}

/// Puts a connection among the worker's idle ones; closes it if it is over (`None`) or a drain closes idle ones.
fn keep_idle<S: Service>(served: ServedConnection<S>, idle: Option<IdleConnection>) {
    let Some(idle) = idle.filter(|_| !served.worker.drain.closes_idle()) else { return };
    let worker = Rc::clone(&served.worker);
    worker.idle.add(served, idle);
}

/// Closes the idle connections whose deadline has passed.
pub fn expire<S: Service>(worker: &Worker<S>, now: Instant) {
    while let Some((served, idle)) = worker.idle.take_late(now) {
        let deadline = match idle.awaited {
            AwaitedHead::First => metrics::ConnectionDeadline::Header,
            AwaitedHead::Next(_) => metrics::ConnectionDeadline::Idle,
        };
        served.listener.metrics.deadline_passed(worker.service.cells(), deadline);
    }
}

/// Serves idle connections as soon as their clients send something. At the drain it closes all that are idle.
pub async fn watch_idle<S: Service>(worker: Rc<Worker<S>>, poll: mio::Poll) {
    #[expect(
        deprecated,
        reason = "the replacement is unsafe: it is for types that may not own their descriptor"
    )]
    let watched = AsyncFd::new(poll);
    let mut watched = match watched {
        Ok(watched) => watched,
        Err(error) => {
            return tracing::error!(%error, "idle connections get no responses from this worker: restart the gateway");
        }
    };
    let mut events = Events::with_capacity(EVENTS);
    let mut buffer = vec![0; FIRST_BYTES];
    loop {
        let ready = tokio::select! {
            biased;
            () = worker.drain.idle_closes.wait() => break,
            ready = watched.readable_mut() => ready,
        };
        let Ok(mut ready) = ready else { break };
        let polled = ready.get_inner_mut().poll(&mut events, Some(Duration::ZERO));
        // It is only cleared once a poll has returned everything, which is when it returns fewer events than it has
        // room for, because the registration is edge-triggered.
        if polled.is_err() || events.iter().count() < EVENTS {
            ready.clear_ready();
        }
        for event in &events {
            if let Some((served, idle, first_bytes)) = worker.idle.wake(event.token(), &mut buffer) {
                resume(served, idle, first_bytes);
            }
        }
        // The worker's other tasks get their turn in between, because thousands of clients may wake at once.
        tokio::task::yield_now().await;
    }
    worker.idle.close();
}

/// Whether accept(2) reports the failure of the connection it would have returned, and not of the listening socket.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// A file that exists everywhere. Opening it gives the lowest free descriptor, which shows how many are in use.
const ANY_FILE: &str = "/dev/null";
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::server::listener::tests::listener;
    use crate::server::worker::tests::worker;

    fn admit(listener: &Arc<SharedListener>, peer: IpAddr) -> Result<Admission, metrics::RefusedConnection> {
        listener.admit()?.of(peer)
    }

    #[tokio::test]
    async fn a_connection_has_its_socket_s_options_without_a_call_of_its_own() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        socket.set_nonblocking(true).expect("a socket");
        let address = socket.local_addr().expect("it is bound");
        let acceptor = Acceptor::new(socket.into()).expect("a socket of TCP");
        let _client = tokio::net::TcpStream::connect(address).await.expect("somebody listens");
        let (stream, _) =
            std::future::poll_fn(|cx| acceptor.poll_accept(cx)).await.expect("a client is there");
        assert!(stream.nodelay().expect("a socket"));
        assert!(socket2::SockRef::from(&stream).keepalive().expect("a socket"));
    }

    #[test]
    fn a_panic_takes_its_connection_is_counted_and_leaves_no_count_behind() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build_local(tokio::runtime::LocalOptions::default())
            .expect("a runtime");
        let (worker, metrics) = worker();
        let listener = listener(metrics.listener("plain"));
        let peer = IpAddr::from([192, 0, 2, 1]);
        runtime.block_on(async {
            let admission = admit(&listener, peer).expect("there is room for one");
            let served = ServedConnection::new(&worker, Arc::clone(&listener), admission);
            assert_eq!(worker.connections(), 1);
            assert!(admit(&listener, peer).is_err(), "there is room for one only");
            let body = std::future::poll_fn(|_| -> std::task::Poll<()> { panic!("in a body") });
            let ended = tokio::task::spawn_local(async move {
                let _served = served;
                body.await;
            });
            assert!(ended.await.is_err_and(|error| error.is_panic()));
        });
        assert_eq!(worker.connections(), 0);
        assert!(admit(&listener, peer).is_ok(), "its place is free again");
        assert_eq!(metrics.panics.value(), 1);
        let page = String::from_utf8(metrics.encode(metrics::ScrapeFormat::Prometheus)).expect("text");
        assert!(page.contains("sluicegate_connections_open{listener=\"plain\"} 0\n"), "{page}");
    }
}
