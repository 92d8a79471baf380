//! Listening sockets that were open before this process began: systemd's (socket activation), and those of the process
//! whose place this one takes.
//!
//! A listener takes those that carry its name, else those on its address. Sockets that nobody wants are closed.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use socket2::{Socket, Type};

use crate::upgrade::SocketDescription;
use net::unix_socket;

/// Sockets that listen already, until listeners take them.
#[derive(Debug, Default)]
pub struct InheritedSockets(Vec<Open>);

#[derive(Debug)]
struct Open {
    name: Option<String>,
    /// Where its listener was told to listen; `None` for systemd's, which listen where systemd was told to.
    bind: Option<String>,
    owns_file: bool,
    is_activated: bool,
    socket: Socket,
}

#[derive(Debug, Default)]
pub(crate) struct ListenerSockets {
    /// None if nothing was there for it.
    pub(crate) sockets: Vec<Socket>,
    /// The file of a Unix socket that this process has made, or a predecessor that leaves it to this one. systemd keeps
    /// its own.
    pub(crate) file: Option<Arc<unix_socket::SocketFile>>,
    /// systemd opened it for this process or one before it, and listens there for as long as the service is wanted: nobody
    /// can bind the address anew.
    pub(crate) is_activated: bool,
}

#[derive(Debug)]
pub(crate) struct UnusedSocket {
    pub(crate) shown: String,
    /// The file that a predecessor has made and leaves to this process, which has no use for it.
    pub(crate) file: Option<unix_socket::SocketFile>,
}

/// What was passed does not fit the listener that it is meant for.
#[derive(Debug, thiserror::Error)]
#[error(
    "the socket named {name:?} of LISTEN_FDS listens on {found}, but `bind` is {bind}: write the address of the \
     socket unit, or change its FileDescriptorName="
)]
pub(crate) struct UnusableSocket {
    name: String,
    found: String,
    bind: String,
}

impl InheritedSockets {
    /// What systemd has opened for this process (`LISTEN_FDS`, `LISTEN_FDNAMES`).
    ///
    /// # Errors
    /// If the variables are malformed, or one of the descriptors is no listening socket.
    pub(crate) fn from_systemd() -> anyhow::Result<InheritedSockets> {
        check_open(missing_descriptor(std::env::var))?;
        let passed = sd_listen_fds::get().context("LISTEN_FDS")?;
        let mut inherited = InheritedSockets::default();
        for (number, (name, descriptor)) in passed.into_iter().enumerate() {
            let socket = Socket::from(descriptor.into_std());
            let shown = name.as_deref().unwrap_or("without a name");
            let is_listening = socket.r#type().is_ok_and(|kind| kind == Type::STREAM)
                && socket.is_listener().unwrap_or_default();
            anyhow::ensure!(
                is_listening,
                "socket {number} of LISTEN_FDS ({shown}) does not accept connections: write `ListenStream=` and \
                 `Accept=no` in the socket unit"
            );
            socket.set_cloexec(true).context("LISTEN_FDS")?;
            socket.set_nonblocking(true).context("LISTEN_FDS")?;
            inherited.push_activated(name, socket);
        }
        Ok(inherited)
    }

    /// One more, of a predecessor's listener of this name, which was told to listen there.
    pub(crate) fn push(&mut self, described: SocketDescription, socket: impl Into<Socket>) {
        let SocketDescription { name, bind, owns_file, is_activated } = described;
        let (name, bind, socket) = (Some(name), Some(bind), socket.into());
        self.0.push(Open { name, bind, owns_file, is_activated, socket });
    }

    pub(crate) fn push_activated(&mut self, name: Option<String>, socket: Socket) {
        self.0.push(Open { name, bind: None, owns_file: false, is_activated: true, socket });
    }

    /// Takes out the sockets for a listener of this name and address, as its configuration writes that; none if there
    /// are none.
    ///
    /// # Errors
    /// If a socket of systemd's has the listener's name and is of another kind: a listener on TCP knows addresses of
    /// clients, one on a Unix socket does not.
    pub(crate) fn take(&mut self, name: &str, bind: &str) -> Result<ListenerSockets, UnusableSocket> {
        let is_named = |open: &Open| open.name.as_deref() == Some(name);
        let same = self.extract(bind, |open| is_named(open) && open.bind.as_deref() == Some(bind));
        if !same.sockets.is_empty() {
            return Ok(same);
        }
        let named = self.extract(bind, |open| is_named(open) && open.bind.is_none());
        let is_unix = bind.starts_with("unix:");
        let found = named.sockets.iter().map(|socket| address(socket).unwrap_or_default());
        if let Some(found) = found.into_iter().find(|found| found.starts_with("unix:") != is_unix) {
            return Err(UnusableSocket { name: name.to_owned(), found, bind: bind.to_owned() });
        }
        if !named.sockets.is_empty() {
            return Ok(named);
        }
        Ok(self.extract(bind, |open| address(&open.socket).is_some_and(|address| address == bind)))
    }

    pub(crate) fn close(&mut self) -> Vec<UnusedSocket> {
        let closed = |open: Open| {
            let address = address(&open.socket).unwrap_or_default();
            let path = address.strip_prefix("unix:").filter(|_| open.owns_file);
            UnusedSocket {
                file: path.and_then(|path| unix_socket::SocketFile::inherited(Path::new(path))),
                shown: open.name.map_or(address.clone(), |name| format!("{name} ({address})")),
            }
        };
        self.0.drain(..).map(closed).collect()
    }

    fn extract(&mut self, bind: &str, is_wanted: impl Fn(&Open) -> bool) -> ListenerSockets {
        let wanted: Vec<Open> = self.0.extract_if(.., |open| is_wanted(open)).collect();
        let path = bind.strip_prefix("unix:").filter(|_| wanted.iter().any(|open| open.owns_file));
        let file = path.and_then(|path| unix_socket::SocketFile::inherited(Path::new(path))).map(Arc::new);
        let is_activated = wanted.iter().any(|open| open.is_activated);
        ListenerSockets { sockets: wanted.into_iter().map(|open| open.socket).collect(), file, is_activated }
    }
}

/// The first descriptor that the environment promises this process and that is not open: nothing may be done with it.
fn missing_descriptor(variable: impl Fn(&'static str) -> Result<String, std::env::VarError>) -> Option<u32> {
    let number = |name| variable(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return None;
    }
    let end = FIRST_DESCRIPTOR.saturating_add(number("LISTEN_FDS")?);
    let open = Path::new("/proc/self/fd");
    // None counts as missing without /proc, because nothing is known of descriptors then.
    let is_missing = |descriptor: &u32| open.join(descriptor.to_string()).symlink_metadata().is_err();
    (FIRST_DESCRIPTOR..end).find(is_missing).filter(|_| open.exists())
}

fn check_open(missing: Option<u32>) -> anyhow::Result<()> {
    match missing {
        None => Ok(()),
        Some(descriptor) => anyhow::bail!(
            "LISTEN_FDS names descriptor {descriptor}, which is not open: the program that starts the gateway must \
             pass it, or unset LISTEN_FDS"
        ),
    }
}

/// Where a socket listens, as a configuration writes it.
pub(crate) fn address(socket: &Socket) -> Option<String> {
    let address = socket.local_addr().ok()?;
    if let Some(address) = address.as_socket() {
        return Some(address.to_string());
    }
    address.as_pathname().map(|path| format!("unix:{}", path.display()))
}

const FIRST_DESCRIPTOR: u32 = 3;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn socket() -> (Socket, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        (listener.into(), address)
    }

    #[test]
    fn a_name_counts_more_than_an_address_and_both_less_than_what_a_listener_had() {
        let (one, address_one) = socket();
        let (other, address_other) = socket();
        let mut inherited = InheritedSockets::default();
        inherited.push_activated(Some("plain".to_owned()), one);
        inherited.push_activated(Some("else".to_owned()), other);
        let taken = inherited.take("plain", &address_other).expect("both are of TCP").sockets;
        assert_eq!(taken.iter().filter_map(address).collect::<Vec<_>>(), [address_one]);
        assert_eq!(inherited.take("more", &address_other).expect("both are of TCP").sockets.len(), 1);
        assert!(inherited.take("more", &address_other).expect("there is none").sockets.is_empty());
        assert!(inherited.close().is_empty());
    }

    #[test]
    fn a_listener_that_moved_does_not_stay_where_it_was() {
        let mut inherited = InheritedSockets::default();
        let (old, _) = socket();
        let (name, bind) = ("plain".to_owned(), "127.0.0.1:0".to_owned());
        inherited.push(SocketDescription { name, bind, owns_file: false, is_activated: false }, old);
        assert!(inherited.take("plain", "127.0.0.1:8081").expect("there is none").sockets.is_empty());
        assert_eq!(inherited.take("plain", "127.0.0.1:0").expect("it is the same").sockets.len(), 1);
    }
}
