//! A listener that a single task accepts on (the admin listener, the gRPC one) from its binding to its end: opened before
//! anything else, served after the first publication, and handed to a successor.

use anyhow::Context;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::lines::say;
use crate::read_files::OutdatedFiles;
use crate::sockets::bind_error::{Remedy, explained};
use crate::sockets::certificates::Expiries;
use crate::sockets::inherited_sockets::{self, InheritedSockets, ListenerSockets};
use crate::sockets::listening_tls::{Settings, Tls};
use crate::upgrade::{PassedSocket, SocketDescription};
use net::listening::{Bind, BoundListener, SharedSocket};
use net::tls;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Admin,
    Grpc,
}

pub(crate) struct OpenListener {
    role: Role,
    listener: BoundListener,
    tls: Option<Tls>,
    place: String,
    is_activated: bool,
}

pub(crate) struct ListenerParts {
    pub(crate) listener: BoundListener,
    pub(crate) settings: Option<Settings>,
    /// Ends when the listener is to be left.
    pub(crate) stopped: oneshot::Receiver<()>,
}

pub(crate) struct Serving {
    role: Role,
    place: String,
    /// A hold on the socket for a successor. `None` once there is one: it alone listens there then.
    socket: Option<SharedSocket>,
    is_activated: bool,
    task: JoinHandle<()>,
    /// Follows the files of its certificates.
    watching: Option<JoinHandle<()>>,
    /// Lets it end when it is dropped: answers under way are given.
    stop: Option<oneshot::Sender<()>>,
}

/// Binds the listener, or takes the socket that a predecessor or systemd has passed.
///
/// # Errors
/// If it cannot be bound. A TCP address in use names the process that has it, if that can be seen.
pub(crate) fn open(
    role: Role,
    bind: &Bind,
    files: Option<&tls::TlsFiles>,
    inherited: &mut InheritedSockets,
    expiries: &Expiries,
) -> anyhow::Result<OpenListener> {
    let place = bind.to_string();
    let what = role.listener();
    let tls = files.map(|files| Tls::read(role, files, expiries)).transpose().context(what)?;
    let ListenerSockets { mut sockets, file, is_activated } =
        inherited.take(role.name(), &place).context(what)?;
    let found = sockets.last().and_then(inherited_sockets::address);
    let listener = match sockets.pop() {
        Some(socket) => BoundListener::adopt(what, socket, bind, file),
        None => BoundListener::bind(what, bind),
    };
    let listener = listener.map_err(|error| match bind {
        Bind::Tcp(addr) => explained(error.into(), *addr, Remedy::None),
        Bind::Unix(_) => error.into(),
    })?;
    match listener.tcp_address() {
        Some(addr) => say(format_args!("{} on {}{addr}", role.name(), role.scheme(tls.is_some()))),
        None => say(format_args!("{} on {}", role.name(), found.as_deref().unwrap_or(&place))),
    }
    Ok(OpenListener { role, listener, tls, place, is_activated })
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Grpc => "grpc",
        }
    }

    /// What operators are told that it is.
    pub(crate) fn listener(self) -> &'static str {
        match self {
            Role::Admin => "admin listener",
            Role::Grpc => "gRPC listener",
        }
    }

    /// Whether it speaks HTTP/1.1, and HTTP/2.
    pub(crate) fn http(self) -> (bool, bool) {
        match self {
            Role::Admin => (true, false),
            Role::Grpc => (false, true),
        }
    }

    fn scheme(self, is_secure: bool) -> &'static str {
        match (self, is_secure) {
            (Role::Admin, false) => "http://",
            (Role::Admin, true) => "https://",
            (Role::Grpc, false) => "grpc://",
            (Role::Grpc, true) => "grpcs://",
        }
    }
}

impl OpenListener {
    /// Begins to answer: `begin` starts the task that does.
    ///
    /// # Errors
    /// If there is no descriptor for the second hold on the socket, which a successor would get, or the task does not start.
    pub(crate) fn serve(
        self,
        stale: &OutdatedFiles,
        begin: impl FnOnce(ListenerParts) -> anyhow::Result<JoinHandle<()>>,
    ) -> anyhow::Result<Serving> {
        let what = self.role.listener();
        let socket = self.listener.share().context(what)?;
        let (stop, stopped) = oneshot::channel();
        let settings = self.tls.as_ref().map(Tls::settings);
        let task = begin(ListenerParts { listener: self.listener, settings, stopped }).context(what)?;
        Ok(Serving {
            role: self.role,
            place: self.place,
            socket: Some(socket),
            is_activated: self.is_activated,
            task,
            watching: self.tls.map(|tls| tls.watch(stale.clone())),
            stop: Some(stop),
        })
    }
}

impl Serving {
    /// Its socket, for a successor; `None` if there is one already.
    pub(crate) fn share(&self) -> std::io::Result<Option<PassedSocket>> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let (name, bind) = (self.role.name().to_owned(), self.place.clone());
        let (owns_file, is_activated) = (socket.owns_file(), self.is_activated);
        let described = SocketDescription { name, bind, owns_file, is_activated };
        Ok(Some(PassedSocket { described, socket: socket.socket.try_clone()? }))
    }

    /// The predecessor drains: the file of its Unix socket is this process's from here on.
    pub(crate) fn own_file(&self) {
        self.socket.iter().for_each(|socket| socket.leave_file(false));
    }

    /// Leaves the address to a successor, which clients ask from here on. Answers under way are given.
    pub(crate) fn step_aside(&mut self) {
        if let Some(socket) = self.socket.take() {
            socket.leave_file(true);
        }
        self.stop = None;
    }

    /// Takes no more connections, and lets those there are end: answers under way are given. Returns when they have.
    pub(crate) async fn drain(mut self) {
        self.watching.iter().for_each(JoinHandle::abort);
        self.stop = None;
        let _ = self.task.await;
    }

    /// Ends it at once. When this returns, the file of its Unix socket has gone with it.
    pub(crate) async fn end(self) {
        self.watching.iter().for_each(JoinHandle::abort);
        self.task.abort();
        let _ = self.task.await;
    }
}
