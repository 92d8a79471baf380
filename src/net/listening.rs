//! One listening socket that a single task accepts on: TCP, or a Unix socket that only its owner may use. It is bound or taken
//! over from a predecessor, and handed on to a successor. Sockets that workers share are `app`'s.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::unix_socket::{self, Rights};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Bind {
    /// The address; `None` of a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Bind::Tcp(address) => Some(*address),
            Bind::Unix(_) => None,
        }
    }
}

impl fmt::Display for Bind {
    /// As the configuration writes it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bind::Tcp(address) => write!(formatter, "{address}"),
            Bind::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

#[derive(Debug)]
pub struct BoundListener {
    open: ListeningSocket,
    /// Only held, so that the file of a Unix socket goes with the listener.
    file: Option<Arc<unix_socket::SocketFile>>,
}

#[derive(Debug)]
enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A listener's socket, to be handed on.
#[derive(Debug)]
pub struct SharedSocket {
    pub socket: OwnedFd,
    is_left: Option<Arc<AtomicBool>>,
}

impl SharedSocket {
    /// Whether the file of its Unix socket goes with this process, or with its successor.
    pub fn owns_file(&self) -> bool {
        self.is_left.is_some()
    }

    /// Leaves the file of a Unix socket to another process that listens there (`true`), or takes it over from one.
    pub fn leave_file(&self, is_left: bool) {
        if let Some(file) = &self.is_left {
            file.store(is_left, Ordering::Relaxed);
        }
    }
}

/// A connection as it was accepted.
pub enum AcceptedStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AcceptedStream {
    /// The client's address, if it has one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            AcceptedStream::Tcp(stream) => stream.peer_addr().ok().map(|address| address.ip().to_canonical()),
            AcceptedStream::Unix(_) => None,
        }
    }
}

/// Why a listener cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("{what}: cannot listen on {address}")]
    Bind { what: &'static str, address: String, source: io::Error },
    /// The Unix socket cannot be listened on.
    #[error("{what}: cannot listen on unix:{}", path.display())]
    Unix { what: &'static str, path: PathBuf, source: unix_socket::Error },
}

impl BoundListener {
    /// Opens it. Call it inside a runtime.
    ///
    /// A Unix socket gets mode 0600. A socket file that nobody listens on is replaced; any other file is an error.
    ///
    /// # Errors
    /// If it cannot be opened; they begin with `what`, which listener it is.
    pub fn bind(what: &'static str, bind: &Bind) -> Result<BoundListener, Error> {
        match bind {
            Bind::Tcp(address) => bind_tcp(*address).map_err(|source| at(what, address.to_string(), source)),
            Bind::Unix(path) => {
                bind_unix(path).map_err(|source| Error::Unix { what, path: path.clone(), source })
            }
        }
    }

    /// The same over a socket that listens already, where `bind` says. The file of a Unix socket that systemd has made is
    /// systemd's, which goes on listening there; the file of a predecessor is this process's once it serves.
    ///
    /// # Errors
    /// If it is no such socket.
    pub fn adopt(
        what: &'static str,
        socket: Socket,
        bind: &Bind,
        file: Option<Arc<unix_socket::SocketFile>>,
    ) -> Result<BoundListener, Error> {
        let socket = OwnedFd::from(socket);
        let open = match bind {
            Bind::Tcp(_) => TcpListener::from_std(socket.into()).map(ListeningSocket::Tcp),
            Bind::Unix(_) => UnixListener::from_std(socket.into()).map(ListeningSocket::Unix),
        };
        open.map(|open| BoundListener { open, file }).map_err(|source| match bind {
            Bind::Tcp(address) => at(what, address.to_string(), source),
            Bind::Unix(path) => at(what, path.display().to_string(), source),
        })
    }

    /// The same socket for a successor.
    ///
    /// # Errors
    /// If there is no descriptor for it.
    pub fn share(&self) -> io::Result<SharedSocket> {
        let socket = match &self.open {
            ListeningSocket::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            ListeningSocket::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        };
        let is_left = self.file.as_ref().map(|file| Arc::clone(file.is_left()));
        Ok(SharedSocket { socket: socket?, is_left })
    }

    /// Its TCP address; `None` for a Unix socket.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.open {
            ListeningSocket::Tcp(listener) => listener.local_addr().ok(),
            ListeningSocket::Unix(_) => None,
        }
    }

    /// The next connection.
    ///
    /// # Errors
    /// If the process has no descriptor for it, say.
    pub async fn accept(&self) -> io::Result<AcceptedStream> {
        match &self.open {
            ListeningSocket::Tcp(listener) => Ok(AcceptedStream::Tcp(listener.accept().await?.0)),
            ListeningSocket::Unix(listener) => Ok(AcceptedStream::Unix(listener.accept().await?.0)),
        }
    }
}

fn at(what: &'static str, address: String, source: io::Error) -> Error {
    Error::Bind { what, address, source }
}

fn bind_tcp(address: SocketAddr) -> io::Result<BoundListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // Otherwise a restart fails while connections of the last process are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let listener = TcpListener::from_std(std::net::TcpListener::from(OwnedFd::from(socket)))?;
    Ok(BoundListener { open: ListeningSocket::Tcp(listener), file: None })
}

fn bind_unix(path: &Path) -> Result<BoundListener, unix_socket::Error> {
    let (socket, file) = unix_socket::bind(path, &Rights::PRIVATE)?;
    socket.listen(BACKLOG)?;
    let listener = UnixListener::from_std(StdUnixListener::from(OwnedFd::from(socket)))?;
    Ok(BoundListener { open: ListeningSocket::Unix(listener), file: Some(Arc::new(file)) })
}

/// Connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 1_024;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_unix_socket_is_its_owners_alone_and_goes_with_its_listener() {
        let path = scratch("owner");
        let listener = BoundListener::bind("it", &Bind::Unix(path.clone())).expect("bound");
        assert_eq!(fs::metadata(&path).expect("a socket file").permissions().mode() & 0o777, 0o600);
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced() {
        let path = scratch("stale");
        drop(StdUnixListener::bind(&path).expect("bound"));
        assert!(path.exists(), "the standard library leaves the file behind");
        BoundListener::bind("it", &Bind::Unix(path.clone())).expect("bound again");
    }

    #[tokio::test]
    async fn a_live_socket_is_left_alone() {
        let path = scratch("live");
        let _live = BoundListener::bind("it", &Bind::Unix(path.clone())).expect("bound");
        let error = BoundListener::bind("it", &Bind::Unix(path.clone())).expect_err("taken");
        assert!(matches!(error, Error::Unix { source: unix_socket::Error::InUse, .. }), "{error}");
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_file_is_left_alone() {
        let path = scratch("file");
        fs::write(&path, "precious").expect("written");
        let error = BoundListener::bind("it", &Bind::Unix(path.clone())).expect_err("not a socket");
        assert!(matches!(error, Error::Unix { source: unix_socket::Error::NotASocket, .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
        fs::remove_file(&path).expect("removed");
    }

    #[tokio::test]
    async fn a_successors_socket_outlives_its_predecessor() {
        let path = scratch("successor");
        let old = BoundListener::bind("it", &Bind::Unix(path.clone())).expect("bound");
        // Kept under another name so that its inode is not given to the successor.
        let aside = path.with_extension("old");
        fs::rename(&path, &aside).expect("moved aside");
        let _new = BoundListener::bind("it", &Bind::Unix(path.clone())).expect("bound");
        drop(old);
        assert!(path.exists());
        fs::remove_file(&aside).expect("removed");
    }

    fn scratch(test: &str) -> PathBuf {
        std::env::temp_dir().join(format!("sluicegate-listening-{test}-{}.sock", std::process::id()))
    }
}
