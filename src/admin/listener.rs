//! Binds the admin listener's socket: TCP, or a Unix socket that only its owner may use.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::config::Bind;

/// An open admin listener.
#[derive(Debug)]
pub struct Listener {
    open: Open,
    /// Only held: it takes the file of a Unix socket away when the listener goes.
    file: Option<SocketFile>,
}

#[derive(Debug)]
enum Open {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A listener's socket, to be handed on.
#[derive(Debug)]
pub struct Shared {
    /// The socket.
    pub socket: OwnedFd,
    is_left: Option<Arc<AtomicBool>>,
}

impl Shared {
    /// Leaves the file of a Unix socket to a successor, which listens there now.
    pub fn leave_file(&self) {
        if let Some(is_left) = &self.is_left {
            is_left.store(true, Ordering::Relaxed);
        }
    }
}

/// A connection as it was accepted.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Why the admin listener cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("admin listener {address}: {source}")]
    Bind {
        /// Which address.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// Another process answers on the Unix socket.
    #[error("admin listener {}: another process is listening there", .0.display())]
    InUse(PathBuf),
    /// Something that is not a socket has the Unix socket's name.
    #[error("admin listener {}: the file exists and is not a socket: remove it or choose another path", .0.display())]
    NotASocket(PathBuf),
}

impl Listener {
    /// Opens the listener. Call it inside a runtime.
    ///
    /// A Unix socket gets mode 0600. A socket file that nobody listens on is replaced; any other file is an error.
    pub fn bind(bind: &Bind) -> Result<Listener, Error> {
        match bind {
            Bind::Tcp(address) => bind_tcp(*address).map_err(|source| at(address.to_string(), source)),
            Bind::Unix(path) => {
                clear_stale(path)?;
                bind_unix(path).map_err(|source| at(path.display().to_string(), source))
            }
        }
    }

    /// The same over a socket that listens already, where `bind` says.
    ///
    /// # Errors
    /// If it is no such socket.
    pub fn adopt(socket: Socket, bind: &Bind) -> Result<Listener, Error> {
        let adopted = match bind {
            Bind::Tcp(_) => TcpListener::from_std(std::net::TcpListener::from(OwnedFd::from(socket)))
                .map(|listener| Listener { open: Open::Tcp(listener), file: None }),
            Bind::Unix(path) => UnixListener::from_std(StdUnixListener::from(OwnedFd::from(socket)))
                .and_then(|listener| {
                    Ok(Listener { open: Open::Unix(listener), file: Some(SocketFile::of(path)?) })
                }),
        };
        adopted.map_err(|source| match bind {
            Bind::Tcp(address) => at(address.to_string(), source),
            Bind::Unix(path) => at(path.display().to_string(), source),
        })
    }

    /// The same socket for a successor.
    ///
    /// # Errors
    /// If there is no descriptor for it.
    pub fn share(&self) -> io::Result<Shared> {
        let socket = match &self.open {
            Open::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Open::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        };
        let is_left = self.file.as_ref().map(|file| Arc::clone(&file.is_left));
        Ok(Shared { socket: socket?, is_left })
    }

    /// Its TCP address; `None` for a Unix socket.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.open {
            Open::Tcp(listener) => listener.local_addr().ok(),
            Open::Unix(_) => None,
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match &self.open {
            Open::Tcp(listener) => Ok(Stream::Tcp(listener.accept().await?.0)),
            Open::Unix(listener) => Ok(Stream::Unix(listener.accept().await?.0)),
        }
    }
}

fn at(address: String, source: io::Error) -> Error {
    Error::Bind { address, source }
}

fn bind_tcp(address: SocketAddr) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // Without SO_REUSEADDR a restart fails while connections of the last process are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let listener = TcpListener::from_std(std::net::TcpListener::from(OwnedFd::from(socket)))?;
    Ok(Listener { open: Open::Tcp(listener), file: None })
}

fn bind_unix(path: &Path) -> io::Result<Listener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile::of(path)?;
    // The mode is set between `bind` and `listen`. Nobody can connect before `listen`, so other users never can.
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let listener = UnixListener::from_std(StdUnixListener::from(OwnedFd::from(socket)))?;
    Ok(Listener { open: Open::Unix(listener), file: Some(file) })
}

/// Removes the socket file of a process that is gone.
fn clear_stale(path: &Path) -> Result<(), Error> {
    let io_error = |source| at(path.display().to_string(), source);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => Err(Error::NotASocket(path.to_owned())),
        Ok(_) if is_answered(path).map_err(io_error)? => Err(Error::InUse(path.to_owned())),
        Ok(_) => fs::remove_file(path).map_err(io_error),
    }
}

/// Whether a process listens there. It does not wait: a full backlog (EAGAIN) means that one does.
fn is_answered(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        _ => Ok(true),
    }
}

/// The file of a Unix socket. Dropping it removes the file, unless a successor's socket has replaced it since.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
    /// Another process listens on the same socket.
    is_left: Arc<AtomicBool>,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile {
            path: path.to_owned(),
            device_and_inode: device_and_inode(path)?,
            is_left: Arc::default(),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_left.load(Ordering::Relaxed) {
            return;
        }
        if device_and_inode(&self.path).is_ok_and(|found| found == self.device_and_inode) {
            // If this fails, the next start finds the file stale and replaces it.
            fs::remove_file(&self.path).ok();
        }
    }
}

fn device_and_inode(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_unix_socket_is_its_owners_alone_and_goes_with_its_listener() {
        let path = scratch("owner");
        let listener = Listener::bind(&Bind::Unix(path.clone())).expect("bound");
        assert_eq!(fs::metadata(&path).expect("a socket file").permissions().mode() & 0o777, 0o600);
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced() {
        let path = scratch("stale");
        drop(StdUnixListener::bind(&path).expect("bound"));
        assert!(path.exists(), "the standard library leaves the file behind");
        Listener::bind(&Bind::Unix(path.clone())).expect("bound again");
    }

    #[tokio::test]
    async fn a_live_socket_is_left_alone() {
        let path = scratch("live");
        let _live = Listener::bind(&Bind::Unix(path.clone())).expect("bound");
        let error = Listener::bind(&Bind::Unix(path.clone())).expect_err("taken");
        assert!(matches!(error, Error::InUse(_)), "{error}");
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_file_is_left_alone() {
        let path = scratch("file");
        fs::write(&path, "precious").expect("written");
        let error = Listener::bind(&Bind::Unix(path.clone())).expect_err("not a socket");
        assert!(matches!(error, Error::NotASocket(_)), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
        fs::remove_file(&path).expect("removed");
    }

    #[tokio::test]
    async fn a_successors_socket_outlives_its_predecessor() {
        let path = scratch("successor");
        let old = Listener::bind(&Bind::Unix(path.clone())).expect("bound");
        // Kept under another name so that its inode is not given to the successor.
        let aside = path.with_extension("old");
        fs::rename(&path, &aside).expect("moved aside");
        let _new = Listener::bind(&Bind::Unix(path.clone())).expect("bound");
        drop(old);
        assert!(path.exists());
        fs::remove_file(&aside).expect("removed");
    }

    fn scratch(test: &str) -> PathBuf {
        std::env::temp_dir().join(format!("sluicegate-admin-{test}-{}.sock", std::process::id()))
    }
}
