//! Listening sockets that were open before this process began: systemd's (socket activation), and those of the process
//! whose place this one takes.
//!
//! A listener takes those that carry its name, else those on its address. Sockets that nobody wants are closed.

use std::os::fd::OwnedFd;

use anyhow::Context;
use socket2::{Socket, Type};

/// Sockets that listen already, until listeners take them.
#[derive(Debug, Default)]
pub struct Inherited(Vec<Open>);

#[derive(Debug)]
struct Open {
    /// Whose it is.
    name: Option<String>,
    /// Where its listener was told to listen; `None` for systemd's, which listen where systemd was told to.
    bind: Option<String>,
    /// See [`Taken::owns_file`].
    owns_file: bool,
    socket: Socket,
}

/// The sockets for one listener.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// None if nothing was there for it.
    pub(super) sockets: Vec<Socket>,
    /// A predecessor has made the file of the Unix socket, and leaves it to this process. systemd keeps its own.
    pub(super) owns_file: bool,
}

impl Inherited {
    /// What systemd has opened for this process (`LISTEN_FDS`, `LISTEN_FDNAMES`).
    ///
    /// # Errors
    /// If the variables are malformed, or one of the descriptors is no listening socket.
    pub(super) fn from_systemd() -> anyhow::Result<Inherited> {
        let passed = sd_listen_fds::get().context("LISTEN_FDS")?;
        let mut inherited = Inherited::default();
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
            inherited.0.push(Open { name, bind: None, owns_file: false, socket });
        }
        Ok(inherited)
    }

    /// One more, of a predecessor's listener of this name, which was told to listen there.
    pub(super) fn push(&mut self, name: String, bind: String, owns_file: bool, descriptor: OwnedFd) {
        let socket = Socket::from(descriptor);
        self.0.push(Open { name: Some(name), bind: Some(bind), owns_file, socket });
    }

    /// Takes out the sockets for a listener of this name and address, as its configuration writes that; none if there
    /// are none.
    pub(super) fn take(&mut self, name: &str, bind: &str) -> Taken {
        let is_named = |open: &Open| open.name.as_deref() == Some(name);
        let same = self.extract(|open| is_named(open) && open.bind.as_deref() == Some(bind));
        if !same.sockets.is_empty() {
            return same;
        }
        let named = self.extract(|open| is_named(open) && open.bind.is_none());
        if !named.sockets.is_empty() {
            return named;
        }
        self.extract(|open| address(&open.socket).is_some_and(|address| address == bind))
    }

    /// The names of what nobody has taken; they are closed.
    pub(super) fn close(&mut self) -> Vec<String> {
        let shown = |open: Open| {
            let address = address(&open.socket).unwrap_or_default();
            open.name.map_or(address.clone(), |name| format!("{name} ({address})"))
        };
        self.0.drain(..).map(shown).collect()
    }

    fn extract(&mut self, is_wanted: impl Fn(&Open) -> bool) -> Taken {
        let (wanted, others) = self.0.drain(..).partition(is_wanted);
        self.0 = others;
        let wanted: Vec<Open> = wanted;
        let owns_file = wanted.iter().any(|open| open.owns_file);
        Taken { sockets: wanted.into_iter().map(|open| open.socket).collect(), owns_file }
    }
}

/// Where a socket listens, as a configuration writes it.
fn address(socket: &Socket) -> Option<String> {
    let address = socket.local_addr().ok()?;
    if let Some(address) = address.as_socket() {
        return Some(address.to_string());
    }
    address.as_pathname().map(|path| format!("unix:{}", path.display()))
}

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
        let mut inherited = Inherited(vec![
            Open { name: Some("plain".to_owned()), bind: None, owns_file: false, socket: one },
            Open { name: Some("else".to_owned()), bind: None, owns_file: false, socket: other },
        ]);
        let taken = inherited.take("plain", &address_other).sockets;
        assert_eq!(taken.iter().filter_map(address).collect::<Vec<_>>(), [address_one]);
        assert_eq!(inherited.take("more", &address_other).sockets.len(), 1);
        assert!(inherited.take("more", &address_other).sockets.is_empty() && inherited.close().is_empty());
    }

    #[test]
    fn a_listener_that_moved_does_not_stay_where_it_was() {
        let mut inherited = Inherited::default();
        let (old, _) = socket();
        inherited.push("plain".to_owned(), "127.0.0.1:0".to_owned(), false, old.into());
        assert!(inherited.take("plain", "127.0.0.1:8081").sockets.is_empty());
        assert_eq!(inherited.take("plain", "127.0.0.1:0").sockets.len(), 1);
    }
}
