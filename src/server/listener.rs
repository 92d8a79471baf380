//! A listener: its sockets, its caps on connections, and its counts. Kept across reloads.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use socket2::{Domain, Protocol, Socket, Type};

use crate::metrics;
use crate::service::config;

/// What all workers share of one listener. Kept across reloads, so that caps hold over them.
#[derive(Debug)]
pub struct Listener {
    /// What it was told; replaced by a reload.
    pub config: ArcSwap<config::Listener>,
    /// How TLS is spoken; `None` in the clear. Replaced by a reload and by a changed certificate.
    pub tls: ArcSwapOption<rustls::ServerConfig>,
    /// Where it is counted.
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
    pub fn admit(self: &Arc<Self>) -> Result<Admission, metrics::Refused> {
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
    pub fn of(mut self, client: IpAddr) -> Result<Admission, metrics::Refused> {
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

/// What counts as one client: an IPv4 address, or an IPv6 network of 64 bits.
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

/// Fails if any socket listens on the address already, those that would share it included.
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

/// Connections the kernel holds for us before they are accepted.
const BACKLOG: i32 = 4096;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn listener(metrics: Arc<metrics::Listener>) -> Arc<Listener> {
        let config = config::Listener {
            bind: ([127, 0, 0, 1], 0).into(),
            connections_max: 1,
            connections_per_ip_max: 1,
            ..config::Listener::named("plain".to_owned())
        };
        Arc::new(Listener::new(config, None, metrics))
    }

    #[test]
    fn a_caller_is_an_address_or_a_64() {
        let of = |text: &str| caller(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
