//! The listeners in force: opened, changed and closed as a configuration says, without a moment of deafness.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use rustls::server::ProducesTickets;
use socket2::Socket;
use tokio::sync::mpsc::Sender;

use super::certificates::{self, CertificateExpiry, Expiries, Tls};
use super::neighbour;
use crate::metrics::Metrics;
use crate::server::listener::{self, Listener};
use crate::server::worker::Order;
use crate::service::config;
use crate::tls;

/// The listeners in force by name.
pub(super) struct Listeners {
    open: HashMap<String, Open>,
    /// Makes tickets of TLS sessions. One for all listeners and publications, so that clients can resume after a reload.
    tickets: Arc<dyn ProducesTickets>,
    expiries: Expiries,
}

struct Open {
    listener: Arc<Listener>,
    /// As the configuration has it: port 0 stays 0, so that a reload recognises it.
    bind: SocketAddr,
    /// Where it listens; port 0 has become a port.
    addr: SocketAddr,
    /// When the certificates it presents end.
    expiries: Vec<CertificateExpiry>,
}

/// What one configuration wants opened, before any of it is in force.
pub(super) struct Prepared {
    wanted: Vec<Wanted>,
}

/// One listener as it is to be.
struct Wanted {
    config: config::Listener,
    tls: Tls,
    /// One a worker where it is new; `None` where it listens already.
    sockets: Option<Vec<Socket>>,
}

impl Listeners {
    /// None yet.
    pub(super) fn new() -> Result<Listeners, tls::Error> {
        Ok(Listeners { open: HashMap::new(), tickets: tls::tickets()?, expiries: Expiries::default() })
    }

    /// Makes tickets of TLS sessions.
    pub(super) fn tickets(&self) -> &Arc<dyn ProducesTickets> {
        &self.tickets
    }

    /// Binds what is new and reads every certificate; changes nothing that is in force. No socket listens before all
    /// that can fail has been done: a connection in the queue of one that is given up would be broken.
    pub(super) fn prepare(&self, wanted: &[config::Listener], workers: usize) -> anyhow::Result<Prepared> {
        let is_new = |config: &config::Listener| {
            self.open.get(&config.name).is_none_or(|open| open.bind != config.bind)
        };
        for config in wanted.iter().filter(|config| is_new(config)) {
            self.check_free(config)?;
        }
        let mut prepared = Vec::with_capacity(wanted.len());
        for config in wanted {
            let name = &config.name;
            let tls =
                certificates::read(config, &self.tickets).with_context(|| format!("listener {name:?}"))?;
            let sockets = match is_new(config) {
                false => None,
                true => Some(bind_all(config.bind, workers).with_context(|| cannot_bind(config))?),
            };
            prepared.push(Wanted { config: config.clone(), tls, sockets });
        }
        for wanted in &prepared {
            for socket in wanted.sockets.iter().flatten() {
                listener::listen(socket).with_context(|| cannot_bind(&wanted.config))?;
            }
        }
        Ok(Prepared { wanted: prepared })
    }

    /// Fails where another process listens on the address already: the kernel would let this one share it.
    fn check_free(&self, config: &config::Listener) -> anyhow::Result<()> {
        let is_ours = self.open.values().any(|open| open.addr.port() == config.bind.port());
        if config.reuse_port || config.bind.port() == 0 || is_ours {
            return Ok(());
        }
        let probed = listener::probe(config.bind).map_err(|error| in_use(error.into(), config.bind));
        probed.with_context(|| {
            format!("{}; to share the address, write `reuse-port = true`", cannot_bind(config))
        })
    }

    /// Puts into force what was prepared: new sockets to the workers, new settings to those that stay, and away with
    /// the rest.
    pub(super) async fn apply(&mut self, prepared: Prepared, metrics: &Metrics, orders: &[Sender<Order>]) {
        let names: Vec<String> = prepared.wanted.iter().map(|wanted| wanted.config.name.clone()).collect();
        let gone: Vec<String> = self.open.keys().filter(|name| !names.contains(name)).cloned().collect();
        for name in gone {
            self.close(&name, orders).await;
        }
        for Wanted { config, tls, sockets } in prepared.wanted {
            match sockets {
                None => {
                    if let Some(open) = self.open.get_mut(&config.name) {
                        open.listener.config.store(Arc::new(config));
                        open.present(tls);
                    }
                }
                Some(sockets) => {
                    self.close(&config.name, orders).await;
                    self.open(config, tls, sockets, metrics, orders).await;
                }
            }
        }
        self.note_expiries();
    }

    async fn open(
        &mut self,
        config: config::Listener,
        tls: Tls,
        sockets: Vec<Socket>,
        metrics: &Metrics,
        orders: &[Sender<Order>],
    ) {
        let scheme = if tls.config.is_some() { "https" } else { "http" };
        let (name, bind) = (config.name.clone(), config.bind);
        let bound = sockets.first().and_then(|socket| socket.local_addr().ok()?.as_socket());
        let addr = bound.unwrap_or(bind);
        eprintln!("sluicegate: listener {name:?} on {scheme}://{addr}");
        let listener = Arc::new(Listener::new(config, tls.config, metrics.listener(&name)));
        for (socket, orders) in sockets.into_iter().zip(orders) {
            let _ = orders.send(Order::Listen(socket.into(), Arc::clone(&listener))).await;
        }
        self.open.insert(name, Open { listener, bind, addr, expiries: tls.expiries });
    }

    async fn close(&mut self, name: &str, orders: &[Sender<Order>]) {
        if self.open.remove(name).is_some() {
            for orders in orders {
                let _ = orders.send(Order::Close(name.to_owned())).await;
            }
        }
    }

    /// Where the listener of this name listens.
    pub(super) fn address(&self, name: &str) -> Option<SocketAddr> {
        self.open.get(name).map(|open| open.addr)
    }

    /// Renews the TLS side of one listener.
    pub(super) fn renew(&mut self, name: &str, tls: Tls) {
        if let Some(open) = self.open.get_mut(name) {
            open.present(tls);
        }
        self.note_expiries();
    }

    /// When every certificate that is served ends, now and after every change.
    pub(super) fn expiries(&self) -> &Expiries {
        &self.expiries
    }

    fn note_expiries(&self) {
        self.expiries.set(self.open.values().flat_map(|open| open.expiries.iter().cloned()).collect());
    }
}

impl Open {
    fn present(&mut self, tls: Tls) {
        self.listener.tls.store(tls.config);
        self.expiries = tls.expiries;
    }
}

fn cannot_bind(config: &config::Listener) -> String {
    format!("listener {:?}: cannot bind {}", config.name, config.bind)
}

/// The error with the name of whoever has the address already, where that is what it says.
pub(super) fn in_use(error: anyhow::Error, addr: SocketAddr) -> anyhow::Error {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    match io.map(std::io::Error::kind) {
        Some(std::io::ErrorKind::AddrInUse) => match neighbour::on(addr) {
            Some(other) => anyhow::anyhow!("{error}: {other} listens there"),
            None => error,
        },
        _ => error,
    }
}

/// One socket a worker on one address. Port 0 becomes the port the first socket is given.
fn bind_all(addr: SocketAddr, workers: usize) -> std::io::Result<Vec<Socket>> {
    let first = listener::bind(addr)?;
    let addr = first.local_addr()?.as_socket().unwrap_or(addr);
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(listener::bind(addr)?);
    }
    Ok(sockets)
}
