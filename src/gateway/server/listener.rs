//! A listener: how its sockets are opened, its caps on connections, and its counts. It accepts nothing itself: every
//! worker does, on a socket of its own ([`super::accept`]).

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use socket2::{Domain, Protocol, Socket, Type};

use crate::service::config;
use base::{identity::NO_ADDRESS, log_lines::RareLine};
use policy::request::counted_address;

/// What all workers share of one listener. A reload keeps it, so that its caps count connections from before, too.
#[derive(Debug)]
pub struct SharedListener {
    /// Replaced by a reload. A connection keeps the one that it came under.
    pub config: ArcSwap<config::ListenerConfig>,
    /// `None` in the clear. Replaced by a reload and by a changed certificate.
    pub tls: ArcSwapOption<rustls::ServerConfig>,
    pub metrics: Arc<metrics::ListenerSeries>,
    /// The line about headers of the PROXY protocol that are missing or invalid.
    pub(super) unannounced: RareLine,
    open: AtomicUsize,
    per_ip: Mutex<HashMap<IpAddr, usize>>,
}

impl SharedListener {
    pub fn new(
        config: config::ListenerConfig,
        tls: Option<Arc<rustls::ServerConfig>>,
        metrics: Arc<metrics::ListenerSeries>,
    ) -> SharedListener {
        SharedListener {
            config: ArcSwap::from_pointee(config),
            tls: ArcSwapOption::new(tls),
            metrics,
            unannounced: RareLine::new(),
            open: AtomicUsize::new(0),
            per_ip: Mutex::default(),
        }
    }

    /// Counts a connection in, unless the listener has as many as it may.
    pub fn admit(self: &Arc<Self>) -> Result<Admission, metrics::RefusedConnection> {
        // Made first, so that dropping it takes the count back if the connection is refused.
        let admission = Admission { listener: Arc::clone(self), client: None };
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.config.load().connections_max {
            return Err(metrics::RefusedConnection::Connections);
        }
        Ok(admission)
    }
}

/// A connection counted in; counted out when dropped.
#[derive(Debug)]
pub struct Admission {
    listener: Arc<SharedListener>,
    /// The address or network that it is counted under; `None` until a PROXY protocol header has named the client.
    client: Option<IpAddr>,
}

impl Admission {
    /// Counts it under its client, unless that client has as many as it may.
    pub fn of(mut self, client: IpAddr) -> Result<Admission, metrics::RefusedConnection> {
        // Not over a Unix socket, because all clients would be one there.
        if client == NO_ADDRESS {
            return Ok(self);
        }
        let config = self.listener.config.load();
        // An IPv6 /64 counts as one client, which is what a single host is usually given.
        let client = counted_address(config.nat64.carried(client), 64);
        let mut per_ip = self.listener.per_ip.lock().unwrap_or_else(PoisonError::into_inner);
        let count = per_ip.entry(client).or_insert(0);
        if *count >= config.connections_per_ip_max {
            drop(per_ip);
            return Err(metrics::RefusedConnection::ConnectionsPerIp);
        }
        *count += 1;
        drop(per_ip);
        self.client = Some(client);
        Ok(self)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.listener.open.fetch_sub(1, Ordering::Relaxed);
        let Some(client) = self.client else { return };
        let mut per_ip = self.listener.per_ip.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = per_ip.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                per_ip.remove(&client);
            }
        }
    }
}

/// Binds a socket of one worker. SO_REUSEPORT lets all workers bind the same address; the kernel spreads connections
/// over those that listen.
pub fn bind(addr: SocketAddr) -> io::Result<Socket> {
    let socket = unbound(addr)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    // Connections take it over. It is set because without it the kernel takes megabytes of an answer at once and
    // nothing more until it has sent a third, which makes a client that reads slowly look like one that does not read.
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

/// Apart from [`bind`]: a socket listens only when nothing of a new configuration can fail any more, because a client
/// in the queue of a socket that is given up would be reset.
pub fn listen(socket: &Socket) -> io::Result<()> {
    socket.listen(BACKLOG)
}

/// Fails if anything listens on the address already, because without SO_REUSEPORT the kernel refuses to share it. With
/// it, a second gateway on the address would silently get half of the connections.
pub fn probe(addr: SocketAddr) -> io::Result<()> {
    unbound(addr)?.bind(&addr.into())
}

fn unbound(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if addr.is_ipv6() {
        // Off, because "[::]:80" means every address, IPv4 too, whatever the system's default is.
        socket.set_only_v6(false)?;
    }
    // Otherwise a restart fails for as long as connections of the last run are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// What the kernel takes of an answer beyond what is on its way already.
const UNSENT_BYTES: u32 = 128 * 1024;
/// Connections the kernel holds for us before they are accepted.
const BACKLOG: i32 = 4096;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn listener(metrics: Arc<metrics::ListenerSeries>) -> Arc<SharedListener> {
        let config = config::ListenerConfig {
            bind: net::listening::Bind::Tcp(([127, 0, 0, 1], 0).into()),
            connections_max: 1,
            connections_per_ip_max: 1,
            ..config::ListenerConfig::named("plain".to_owned())
        };
        Arc::new(SharedListener::new(config, None, metrics))
    }

    #[test]
    fn a_client_is_counted_by_address_or_by_its_64() {
        let of = |text: &str| counted_address(text.parse().expect("an address"), 64);
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
