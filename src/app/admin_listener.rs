//! The admin listener from its binding to its end: opened before anything else, served after the first publication, and
//! handed to a successor.

use std::sync::Arc;

use anyhow::Context;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::admin_tls::Tls;
use super::inherited::{self, Inherited, Taken};
use super::lines::say;
use super::listeners;
use super::upgrade::Given;
use crate::admin::{self, Bind, Listener, State};

/// An open listener that is not served yet.
pub(super) struct Opened {
    listener: Listener,
    tls: Option<Tls>,
    place: String,
    /// systemd opened it.
    is_activated: bool,
}

/// The listener at work.
pub(super) struct Serving {
    place: String,
    /// A hold on the socket for a successor. `None` once there is one: it alone listens there then.
    socket: Option<admin::Shared>,
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
pub(super) fn open(config: &admin::Config, inherited: &mut Inherited) -> anyhow::Result<Opened> {
    let place = place(&config.bind);
    let tls = config.tls.as_ref().map(Tls::read).transpose().context("admin listener")?;
    let Taken { mut sockets, owns_file, is_activated } =
        inherited.take(ADMIN, &place).context("admin listener")?;
    let found = sockets.last().and_then(inherited::address);
    let listener = match sockets.pop() {
        Some(socket) => Listener::adopt(socket, &config.bind, owns_file),
        None => Listener::bind(&config.bind),
    };
    let listener = listener.map_err(|error| match config.bind {
        Bind::Tcp(addr) => listeners::in_use(error.into(), addr),
        Bind::Unix(_) => error.into(),
    })?;
    match listener.tcp_address() {
        Some(addr) if tls.is_some() => say(format_args!("admin on https://{addr}")),
        Some(addr) => say(format_args!("admin on http://{addr}")),
        None => say(format_args!("admin on {}", found.as_deref().unwrap_or(&place))),
    }
    Ok(Opened { listener, tls, place, is_activated })
}

impl Opened {
    /// Begins to answer.
    ///
    /// # Errors
    /// If there is no descriptor for the second hold on the socket, which a successor would get.
    pub(super) fn serve(self, state: Arc<State>) -> anyhow::Result<Serving> {
        let socket = self.listener.share().context("admin listener")?;
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _: Result<(), _> = stopped.await;
        };
        let settings = self.tls.as_ref().map(Tls::settings);
        let task = tokio::spawn(admin::serve(self.listener, settings, state, stopped));
        let watching = self.tls.map(Tls::watch);
        let is_activated = self.is_activated;
        let place = self.place;
        Ok(Serving { place, socket: Some(socket), is_activated, task, watching, stop: Some(stop) })
    }
}

impl Serving {
    /// Its socket, for a successor; `None` if there is one already.
    pub(super) fn share(&self) -> std::io::Result<Option<Given>> {
        let Some(socket) = &self.socket else { return Ok(None) };
        Ok(Some(Given {
            name: ADMIN.to_owned(),
            bind: self.place.clone(),
            owns_file: socket.owns_file(),
            is_activated: self.is_activated,
            socket: socket.socket.try_clone()?,
        }))
    }

    /// The predecessor drains: the file of its Unix socket is this process's from here on.
    pub(super) fn own_file(&self) {
        self.socket.iter().for_each(|socket| socket.leave_file(false));
    }

    /// Leaves the address to a successor: probes ask that from here on. Answers under way are given.
    pub(super) fn step_aside(&mut self) {
        if let Some(socket) = self.socket.take() {
            socket.leave_file(true);
        }
        self.stop = None;
    }

    /// Ends it at once. When this returns, the file of its Unix socket has gone with it.
    pub(super) async fn end(self) {
        self.watching.iter().for_each(JoinHandle::abort);
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Where it is, as its configuration writes it.
fn place(bind: &Bind) -> String {
    match bind {
        Bind::Tcp(addr) => addr.to_string(),
        Bind::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// The name of its socket.
const ADMIN: &str = "admin";
