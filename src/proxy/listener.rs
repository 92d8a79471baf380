//! Accepting connections: the caps, the share of each worker, and nothing of what is spoken on them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use super::connection::Ends;
use super::idle::IdleConnection;
use super::overload::Step;
use super::worker::{Order, Worker};
use super::{config, connection, proxy_protocol};
use crate::{clock, descriptors, metrics};

/// What all workers share of one listener. Kept across reloads, so that caps hold over them.
#[derive(Debug)]
pub struct Listener {
    /// What it was told; replaced by a reload.
    pub config: ArcSwap<config::Listener>,
    /// How TLS is spoken; `None` in the clear. Replaced by a reload and by a changed certificate.
    pub tls: ArcSwapOption<rustls::ServerConfig>,
    /// Its figures.
    pub metrics: Arc<metrics::Listener>,
    open: AtomicUsize,
    per_ip: Mutex<HashMap<IpAddr, usize>>,
}

impl Listener {
    /// A listener with nothing open.
    pub fn new(
        config: config::Listener,
        tls: Option<Arc<rustls::ServerConfig>>,
        metrics: Arc<metrics::Listener>,
    ) -> Listener {
        Listener {
            config: ArcSwap::from_pointee(config),
            tls: ArcSwapOption::new(tls),
            metrics,
            open: AtomicUsize::new(0),
            per_ip: Mutex::default(),
        }
    }

    /// Counts a connection in, unless there are as many as there may be.
    fn admit(self: &Arc<Self>) -> Result<Admission, metrics::Refused> {
        let admission = Admission { listener: Arc::clone(self), caller: None };
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.config.load().connections_max {
            return Err(metrics::Refused::Connections);
        }
        Ok(admission)
    }
}

/// A connection counted in; counted out when dropped.
#[derive(Debug)]
pub struct Admission {
    listener: Arc<Listener>,
    /// Whose it is, once that is known and counted.
    caller: Option<IpAddr>,
}

impl Admission {
    /// Counts it as this client's, unless that has as many as it may.
    fn of(mut self, client: IpAddr) -> Result<Admission, metrics::Refused> {
        let caller = caller(client);
        let mut per_ip = self.listener.per_ip.lock().unwrap_or_else(PoisonError::into_inner);
        let count = per_ip.entry(caller).or_insert(0);
        if *count >= self.listener.config.load().connections_per_ip_max {
            drop(per_ip);
            return Err(metrics::Refused::ConnectionsPerIp);
        }
        *count += 1;
        drop(per_ip);
        self.caller = Some(caller);
        Ok(self)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.listener.open.fetch_sub(1, Ordering::Relaxed);
        let Some(caller) = self.caller else { return };
        let mut per_ip = self.listener.per_ip.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = per_ip.get_mut(&caller) {
            *count -= 1;
            if *count == 0 {
                per_ip.remove(&caller);
            }
        }
    }
}

/// What one caller is: an IPv4 address, or an IPv6 network of 64 bits.
fn caller(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) & !u128::from(u64::MAX)).into()),
        ip => ip,
    }
}

/// A socket of one worker; several may share an address, and the kernel spreads connections over them once they listen.
pub fn bind(addr: SocketAddr) -> io::Result<Socket> {
    let socket = unbound(addr)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

/// Lets the kernel take connections for it.
pub fn listen(socket: &Socket) -> io::Result<()> {
    socket.listen(BACKLOG)
}

/// Fails where any socket listens on the address already, those that would share it included.
pub fn probe(addr: SocketAddr) -> io::Result<()> {
    unbound(addr)?.bind(&addr.into())
}

fn unbound(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if addr.is_ipv6() {
        // "[::]:80" means every address, IPv4 too, whatever the system's default is.
        socket.set_only_v6(false)?;
    }
    // A restart need not wait for the last run's connections to be forgotten.
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// Accepts on one socket until the worker drains, then takes what the kernel has accepted already and closes it.
pub async fn accept(worker: Rc<Worker>, socket: std::net::TcpListener, listener: Arc<Listener>) {
    let socket = match TcpListener::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!(%error, "a listening socket cannot be used");
            return;
        }
    };
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = socket.accept() => accepted,
            () = worker.drain_begins() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let is_last = descriptors::is_last(stream.as_raw_fd());
                place(&worker, stream, peer, &listener);
                if is_last {
                    descriptors::ran_out("accept", &"what is left is for upstreams", clock::now_ns());
                    rest(&worker).await;
                }
            }
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                worker.shared.accept_errors.add(1);
                descriptors::ran_out("accept", &error, clock::now_ns());
                rest(&worker).await;
            }
        }
    }
    let mut noop = std::task::Context::from_waker(std::task::Waker::noop());
    while let std::task::Poll::Ready(Ok((stream, peer))) = socket.poll_accept(&mut noop) {
        start(&worker, stream, peer, listener.clone());
    }
}

/// Accepts nothing while there is no descriptor for clients: they wait in the kernel until others have gone.
async fn rest(worker: &Worker) {
    let there_is_one = async {
        loop {
            tokio::time::sleep(ACCEPT_REST).await;
            match File::open(ANY_FILE) {
                Ok(file) if !descriptors::is_last(file.as_raw_fd()) => return,
                _ => descriptors::note_again(clock::now_ns()),
            }
        }
    };
    tokio::select! {
        () = there_is_one => {}
        () = worker.drain_begins() => {}
    }
}

/// Serves a connection here, or hands it to the worker that has clearly fewer: the kernel spreads connections by a
/// hash, which over a few long-lived ones (HTTP/2) can leave a core without any.
fn place(worker: &Rc<Worker>, stream: TcpStream, peer: SocketAddr, listener: &Arc<Listener>) {
    let loads = &worker.shared.loads;
    let mine = worker.connections();
    let least =
        loads.iter().map(|load| load.load(Ordering::Relaxed)).enumerate().min_by_key(|&(_, load)| load);
    let Some((other, load)) = least.filter(|&(_, load)| mine > load + 1 + load / 4) else {
        return start(worker, stream, peer, Arc::clone(listener));
    };
    tracing::trace!(mine, load, other, "handing a connection over");
    let handed = stream.into_std().map(|stream| Order::Adopt(stream, Arc::clone(listener)));
    if let Ok(order) = handed
        && let Err(refused) = worker.shared.orders[other].try_send(order)
        && let Order::Adopt(stream, listener) = refused.into_inner()
    {
        adopt(worker, stream, listener);
    }
}

/// Serves a connection that another worker accepted.
pub fn adopt(worker: &Rc<Worker>, stream: std::net::TcpStream, listener: Arc<Listener>) {
    let adopted = stream.peer_addr().and_then(|peer| Ok((TcpStream::from_std(stream)?, peer)));
    match adopted {
        Ok((stream, peer)) => start(worker, stream, peer, listener),
        Err(error) => tracing::debug!(%error, "a connection was gone before it was served"),
    }
}

fn start(worker: &Rc<Worker>, mut stream: TcpStream, peer: SocketAddr, listener: Arc<Listener>) {
    if worker.shared.overload.step() == Step::NoConnections {
        return listener.metrics.refused(&worker.metrics, metrics::Refused::Overload);
    }
    let admission = match listener.admit() {
        Ok(admission) => admission,
        Err(refused) => return listener.metrics.refused(&worker.metrics, refused),
    };
    if !listener.config.load().announces(peer.ip()) {
        let ends = Ends { tcp_peer: peer.ip(), announced_peer: peer.ip() };
        return serve(worker, stream, ends, listener, admission);
    }
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(async move {
        if let Some(client) = proxy_protocol::client(&worker, &listener, &mut stream, peer).await {
            let ends = Ends { tcp_peer: peer.ip(), announced_peer: client.ip() };
            serve(&worker, stream, ends, listener, admission);
        }
    });
}

fn serve(worker: &Rc<Worker>, stream: TcpStream, ends: Ends, listener: Arc<Listener>, admission: Admission) {
    match admission.of(ends.announced_peer) {
        Ok(admission) => {
            let served = Served::new(worker, listener, admission);
            tokio::task::spawn_local(async move {
                let rest = connection::serve(&served.worker, &served.listener, stream, ends).await;
                served.rest(rest);
            });
        }
        Err(refused) => listener.metrics.refused(&worker.metrics, refused),
    }
}

/// Serves a connection that has rested, and whose client has said this now.
pub(super) fn resume(served: Served, rest: IdleConnection, said: Bytes) {
    tokio::task::spawn_local(async move {
        let rest = connection::resume(&served.worker, &served.listener, rest, said).await;
        served.rest(rest);
    });
}

/// A connection that is served: counted in, and counted out when dropped, be it by a panic.
pub struct Served {
    /// Who serves it.
    pub worker: Rc<Worker>,
    /// Where it came to.
    pub listener: Arc<Listener>,
    _admission: Admission,
}

impl Served {
    fn new(worker: &Rc<Worker>, listener: Arc<Listener>, admission: Admission) -> Served {
        worker.connection_opened();
        listener.metrics.opened(&worker.metrics);
        Served { worker: Rc::clone(worker), listener, _admission: admission }
    }

    /// Leaves the connection in the lot, if it only rests.
    fn rest(self, rest: Option<IdleConnection>) {
        if let Some(rest) = rest {
            let worker = Rc::clone(&self.worker);
            worker.lot.add(self, rest);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.listener.metrics.closed(&self.worker.metrics);
        self.worker.connection_closed();
    }
}

/// Errors that say something of one connection, not of the socket (accept(2)).
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// Connections the kernel holds for us before they are accepted.
const BACKLOG: i32 = 4096;
/// A file that is always there: its descriptor tells how many are in use.
const ANY_FILE: &str = "/dev/null";
const ACCEPT_REST: Duration = Duration::from_millis(100);

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::proxy::worker::tests::worker;

    pub(crate) fn listener(metrics: Arc<metrics::Listener>) -> Arc<Listener> {
        let config = config::Listener {
            name: "plain".to_owned(),
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            http1: true,
            http2: true,
            certs: Vec::new(),
            sni_strict: true,
            underscores: config::Underscores::Refuse,
            client_auth: None,
            addresses: crate::policy::access::Addresses::default(),
            proxies: Vec::new(),
            redirect_https: None,
            reuse_port: false,
            connections_max: 1,
            connections_per_ip_max: 1,
            timeouts: config::Timeouts::default(),
            max: config::Sizes::default(),
        };
        Arc::new(Listener::new(config, None, metrics))
    }

    fn admit(listener: &Arc<Listener>, peer: IpAddr) -> Result<Admission, metrics::Refused> {
        listener.admit()?.of(peer)
    }

    #[test]
    fn a_panic_takes_its_connection_is_counted_and_leaves_no_count_behind() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build_local(tokio::runtime::LocalOptions::default())
            .expect("a runtime");
        let (worker, figures) = worker();
        let listener = listener(figures.listener("plain"));
        let peer = IpAddr::from([192, 0, 2, 1]);
        runtime.block_on(async {
            let admission = admit(&listener, peer).expect("there is room for one");
            let served = Served::new(&worker, Arc::clone(&listener), admission);
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
        assert_eq!(figures.panics.value(), 1);
        let page = figures.encode(metrics::Format::Prometheus);
        assert!(page.contains("sluicegate_connections_open{listener=\"plain\"} 0\n"), "{page}");
    }

    #[test]
    fn a_caller_is_an_address_or_a_64() {
        let of = |text: &str| caller(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
