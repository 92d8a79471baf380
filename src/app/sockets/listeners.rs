//! Opens, changes and closes the workers' listeners as a configuration says. A listener whose address stays keeps its
//! sockets, so that a reload refuses no connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use rustls::server::ProducesTickets;
use socket2::Socket;
use tokio::sync::mpsc::Sender;

use crate::lines::say;
use crate::read_files::FileReader;
use crate::sockets::bind_error::{Remedy, explained};
use crate::sockets::certificates::{self, CertificateExpiry, Expiries, Tls};
use crate::sockets::inherited_sockets::{self, InheritedSockets, ListenerSockets};
use crate::upgrade::{PassedSocket, SocketDescription};
use acme::Challenges;
use gateway::server::listener::{self, SharedListener};
use gateway::server::worker::WorkerCommand;
use gateway::service::config;
use metrics::Metrics;
use net::listening::Bind;
use net::tls;
use net::unix_socket;

pub(crate) struct Listeners {
    open: HashMap<String, Open>,
    /// Sockets of systemd's that no listener has any more, by the name of the last that had them: kept, because systemd
    /// goes on listening there, so a listener that comes back could not bind the address.
    activated: Vec<(String, Socket)>,
    /// Files of a predecessor's Unix sockets that no listener has taken. They go once that one drains.
    left_behind: Vec<unix_socket::SocketFile>,
    /// Encrypts TLS session tickets. One for all listeners and publications, so that clients can resume after a reload.
    tickets: Arc<dyn ProducesTickets>,
    /// What is shown to authorities that certificates are ordered of.
    challenges: Arc<Challenges>,
    expiries: Expiries,
}

struct Open {
    listener: Arc<SharedListener>,
    /// As written in the configuration: port 0 stays 0, so that a reload recognises the listener.
    bind: Bind,
    /// As bound: port 0 has become a real port. `None` of a Unix socket.
    addr: Option<SocketAddr>,
    expiries: Vec<CertificateExpiry>,
    /// To be handed to a successor. Workers have the same sockets under other descriptors.
    held: ListenerSockets,
}

/// A listener of a configuration with its new sockets, before any of it is in force.
pub(crate) struct PlannedListener {
    config: config::ListenerConfig,
    tls: Tls,
    /// What it listens on where it is new; `None` where it listens already.
    sockets: Option<Sockets>,
}

/// The sockets of a listener that opens.
struct Sockets {
    /// Each once.
    held: ListenerSockets,
    /// One a worker at least: where there are fewer sockets than workers, some share one.
    given: Vec<Socket>,
}

impl Listeners {
    pub(crate) fn new() -> Result<Listeners, tls::Error> {
        Ok(Listeners {
            open: HashMap::new(),
            activated: Vec::new(),
            left_behind: Vec::new(),
            tickets: tls::tickets()?,
            challenges: Arc::default(),
            expiries: Expiries::default(),
        })
    }

    /// Reads a listener's certificates and builds its TLS configuration.
    pub(crate) fn read(&self, config: &config::ListenerConfig) -> Result<Tls, tls::Error> {
        certificates::read(config, &self.tickets, &self.challenges)
    }

    pub(crate) fn challenges(&self) -> &Arc<Challenges> {
        &self.challenges
    }

    /// Binds what is new and reads every certificate; changes nothing that is in force. No socket listens before all
    /// that can fail has been done, because a connection in the queue of one that is given up would be broken. Sockets
    /// that this process has inherited are taken instead of new ones.
    pub(crate) fn prepare(
        &self,
        wanted: &[config::ListenerConfig],
        workers: usize,
        inherited: &mut InheritedSockets,
    ) -> anyhow::Result<Vec<PlannedListener>> {
        let is_new = |config: &config::ListenerConfig| {
            self.open.get(&config.name).is_none_or(|open| open.bind != config.bind)
        };
        let mut opened: HashMap<&str, ListenerSockets> = HashMap::new();
        let mut activated = self.activated()?;
        for config in wanted.iter().filter(|config| is_new(config)) {
            let had = self.had(config, wanted, [inherited, &mut activated])?;
            if had.sockets.is_empty() {
                self.check_free(config)?;
            }
            opened.insert(&config.name, had);
        }
        let mut prepared = Vec::with_capacity(wanted.len());
        for config in wanted {
            let name = &config.name;
            let tls = self.read(config).with_context(|| format!("listener {name:?}"))?;
            let sockets = opened.remove(name.as_str());
            let sockets = sockets.map(|had| Sockets::open(config, had, workers));
            let sockets = sockets.transpose().with_context(|| cannot_bind(config))?;
            prepared.push(PlannedListener { config: config.clone(), tls, sockets });
        }
        for wanted in &prepared {
            for socket in wanted.sockets.iter().flat_map(|sockets| &sockets.held.sockets) {
                let listening = listener::listen(socket).map_err(|error| match wanted.config.bind.tcp() {
                    Some(addr) => explained(error.into(), addr, Remedy::None),
                    None => error.into(),
                });
                listening.with_context(|| cannot_bind(&wanted.config))?;
            }
        }
        Ok(prepared)
    }

    /// Sockets of systemd's that listeners have had, to be taken again as in the beginning.
    fn activated(&self) -> anyhow::Result<InheritedSockets> {
        let mut activated = InheritedSockets::default();
        for (name, socket) in &self.activated {
            let socket = socket.try_clone().with_context(|| format!("the socket of listener {name:?}"))?;
            activated.push_activated(Some(name.clone()), socket);
        }
        Ok(activated)
    }

    fn had(
        &self,
        config: &config::ListenerConfig,
        wanted: &[config::ListenerConfig],
        inherited: [&mut InheritedSockets; 2],
    ) -> anyhow::Result<ListenerSockets> {
        let renamed = self.renamed(config, wanted)?;
        if !renamed.sockets.is_empty() {
            return Ok(renamed);
        }
        for inherited in inherited {
            let taken = inherited.take(&config.name, &config.bind.to_string());
            let taken = taken.with_context(|| cannot_bind(config))?;
            if !taken.sockets.is_empty() {
                return Ok(taken);
            }
        }
        Ok(ListenerSockets::default())
    }

    /// The sockets of a listener that has this address under a name that it does not keep: taken over, because a
    /// connection that waits for the old name must not be lost, and a path cannot be bound twice. Port 0 is another
    /// port for each that asks.
    fn renamed(
        &self,
        config: &config::ListenerConfig,
        wanted: &[config::ListenerConfig],
    ) -> anyhow::Result<ListenerSockets> {
        let stays = |name: &str, bind: &Bind| wanted.iter().any(|it| it.name == name && it.bind == *bind);
        let is_some_port = config.bind.tcp().is_some_and(|addr| addr.port() == 0);
        let mut open = self.open.iter().filter(|_| !is_some_port);
        let found = open.find(|(name, open)| open.bind == config.bind && !stays(name, &open.bind));
        let Some((_, open)) = found else { return Ok(ListenerSockets::default()) };
        let ListenerSockets { sockets, file, is_activated } = &open.held;
        let sockets = sockets.iter().map(Socket::try_clone).collect::<std::io::Result<_>>();
        let sockets = sockets.with_context(|| cannot_bind(config))?;
        Ok(ListenerSockets { sockets, file: file.clone(), is_activated: *is_activated })
    }

    /// Fails if another process listens on the address already, because with SO_REUSEPORT, which the workers need, the
    /// kernel would let this process bind too and take some of the other's connections.
    fn check_free(&self, config: &config::ListenerConfig) -> anyhow::Result<()> {
        // Not for a Unix socket, because whether it is taken is seen when it is bound.
        let Some(bind) = config.bind.tcp() else { return Ok(()) };
        let is_ours = self.open.values().filter_map(|open| open.addr).any(|addr| addr.port() == bind.port());
        if config.reuse_port || bind.port() == 0 || is_ours {
            return Ok(());
        }
        let remedy = if self.open.is_empty() { Remedy::ReusePortOrUpgrade } else { Remedy::ReusePort };
        let probed = listener::probe(bind).map_err(|error| explained(error.into(), bind, remedy));
        probed.with_context(|| cannot_bind(config))
    }

    /// Closes listeners that are gone, hands new sockets to the workers, and gives listeners that stay their new settings.
    pub(crate) async fn apply(
        &mut self,
        prepared: Vec<PlannedListener>,
        metrics: &Metrics,
        commands: &[Sender<WorkerCommand>],
    ) {
        let names: Vec<String> = prepared.iter().map(|wanted| wanted.config.name.clone()).collect();
        let gone: Vec<String> = self.open.keys().filter(|name| !names.contains(name)).cloned().collect();
        for name in gone {
            self.close(&name, commands).await;
        }
        for PlannedListener { config, tls, sockets } in prepared {
            match sockets {
                None => {
                    if let Some(open) = self.open.get_mut(&config.name) {
                        open.follow(&config);
                        open.listener.config.store(Arc::new(config));
                        open.present(tls);
                    }
                }
                Some(sockets) => {
                    self.close(&config.name, commands).await;
                    self.open(config, tls, sockets, metrics, commands).await;
                }
            }
        }
        self.note_expiries();
    }

    async fn open(
        &mut self,
        config: config::ListenerConfig,
        tls: Tls,
        Sockets { held, given }: Sockets,
        metrics: &Metrics,
        commands: &[Sender<WorkerCommand>],
    ) {
        let scheme = if tls.config.is_some() { "https" } else { "http" };
        let (name, bind) = (config.name.clone(), config.bind.clone());
        let bound = held.sockets.first().and_then(|socket| socket.local_addr().ok()?.as_socket());
        let addr = bound.or(bind.tcp());
        match addr {
            Some(addr) => say(format_args!("listener {name:?} on {scheme}://{addr}")),
            None => {
                let found = held.sockets.first().and_then(inherited_sockets::address);
                say(format_args!("listener {name:?} on {}", found.unwrap_or(bind.to_string())));
            }
        }
        let listener = Arc::new(SharedListener::new(config, tls.config, metrics.listener(&name)));
        for (socket, worker) in given.into_iter().zip(commands.iter().cycle()) {
            let _ = worker.send(WorkerCommand::Listen(socket, Arc::clone(&listener))).await;
        }
        let places: Vec<_> = held.sockets.iter().map(inherited_sockets::address).collect();
        self.activated.retain(|(_, socket)| !places.contains(&inherited_sockets::address(socket)));
        let expiries = tls.expiries;
        self.open.insert(name, Open { listener, bind, addr, expiries, held });
    }

    async fn close(&mut self, name: &str, commands: &[Sender<WorkerCommand>]) {
        if let Some(open) = self.open.remove(name) {
            if open.held.is_activated {
                self.activated.extend(open.held.sockets.into_iter().map(|socket| (name.to_owned(), socket)));
            }
            for worker in commands {
                let _ = worker.send(WorkerCommand::Close(name.to_owned())).await;
            }
        }
    }

    /// Every socket, for a successor.
    ///
    /// # Errors
    /// If there are no descriptors for them.
    pub(crate) fn share(&self) -> std::io::Result<Vec<PassedSocket>> {
        let sockets = self
            .open
            .iter()
            .flat_map(|(name, open)| open.held.sockets.iter().map(move |socket| (name, open, socket)));
        let given = |(name, open, socket): (&String, &Open, &Socket)| {
            let (owns_file, is_activated) = (open.held.file.is_some(), open.held.is_activated);
            let (name, bind) = (name.clone(), open.bind.to_string());
            let described = SocketDescription { name, bind, owns_file, is_activated };
            Ok(PassedSocket { described, socket: socket.try_clone()?.into() })
        };
        sockets.map(given).collect()
    }

    /// Lets go of every socket, so that each closes when its workers have closed theirs. The files of Unix sockets go at
    /// once, or are left to a successor.
    pub(crate) fn let_go(&mut self, has_successor: bool) {
        self.activated.clear();
        for open in self.open.values_mut() {
            let held = std::mem::take(&mut open.held);
            if let (Some(file), true) = (held.file, has_successor) {
                file.is_left().store(true, Ordering::Relaxed);
            }
        }
    }

    /// Keeps the file of a predecessor's socket that no listener has taken until that process drains, because it may
    /// have to serve on.
    pub(crate) fn leave_behind(&mut self, file: Option<unix_socket::SocketFile>) {
        self.left_behind.extend(file);
    }

    /// The predecessor drains: the files of its Unix sockets are this process's from here on. Those of listeners that are
    /// gone are removed.
    pub(crate) fn own_files(&mut self) {
        let taken = self.open.values().filter_map(|open| open.held.file.as_deref());
        for file in taken.chain(&self.left_behind) {
            file.is_left().store(false, Ordering::Relaxed);
        }
        self.left_behind.clear();
    }

    pub(crate) fn address(&self, name: &str) -> Option<SocketAddr> {
        self.open.get(name).and_then(|open| open.addr)
    }

    /// Replaces the certificates of one listener. Open connections keep theirs.
    pub(crate) fn renew(&mut self, name: &str, tls: Tls) {
        if let Some(open) = self.open.get_mut(name) {
            open.present(tls);
        }
        self.note_expiries();
    }

    /// The expiry of every certificate; follows every change.
    pub(crate) fn expiries(&self) -> &Expiries {
        &self.expiries
    }

    fn note_expiries(&self) {
        self.expiries.retain(|part| match part {
            FileReader::Listener(name) => self.open.contains_key(name),
            _ => true,
        });
        for (name, open) in &self.open {
            self.expiries.set(FileReader::Listener(name.clone()), open.expiries.clone());
        }
    }
}

impl Open {
    /// Gives the file of a Unix socket the rights that a new configuration wants.
    fn follow(&self, config: &config::ListenerConfig) {
        let is_same = self.listener.config.load().rights == config.rights;
        if let (Bind::Unix(path), false) = (&self.bind, is_same)
            && let Err(error) = config.rights.give(path)
        {
            tracing::error!(listener = config.name, %error, "mode, owner and group of the Unix socket cannot be changed; they stay as they were");
        }
    }

    fn present(&mut self, tls: Tls) {
        self.listener.tls.store(tls.config);
        self.expiries = tls.expiries;
    }
}

fn cannot_bind(config: &config::ListenerConfig) -> String {
    format!("listener {:?}: cannot bind {}", config.name, config.bind)
}

impl Sockets {
    /// Those that were inherited, or new ones.
    fn open(
        config: &config::ListenerConfig,
        had: ListenerSockets,
        workers: usize,
    ) -> anyhow::Result<Sockets> {
        let held = match &config.bind {
            _ if !had.sockets.is_empty() => had,
            Bind::Tcp(addr) => {
                let bound = bind_all(*addr, workers);
                let sockets = bound.map_err(|error| explained(error.into(), *addr, Remedy::None))?;
                ListenerSockets { sockets, ..ListenerSockets::default() }
            }
            Bind::Unix(path) => {
                let (socket, file) = unix_socket::bind(path, &config.rights)?;
                ListenerSockets { sockets: vec![socket], file: Some(Arc::new(file)), is_activated: false }
            }
        };
        let count = held.sockets.len().max(workers);
        let given =
            held.sockets.iter().cycle().take(count).map(Socket::try_clone).collect::<std::io::Result<_>>()?;
        Ok(Sockets { held, given })
    }
}

/// One socket for each worker on one address. If the port is 0, all take the port that the first socket is given.
fn bind_all(addr: SocketAddr, workers: usize) -> std::io::Result<Vec<Socket>> {
    let first = listener::bind(addr)?;
    let addr = first.local_addr()?.as_socket().unwrap_or(addr);
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(listener::bind(addr)?);
    }
    Ok(sockets)
}
