//! Unix sockets that this process listens on: their files, and who may connect.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, SockAddr, Socket, Type};

/// Who may connect: the rights of the socket's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The permission bits, as chmod(1) takes them.
    pub mode: u32,
    /// A name of /etc/passwd or a number. `None`: the user of this process.
    pub owner: Option<String>,
    /// A name of /etc/group or a number. `None`: the group of this process.
    pub group: Option<String>,
}

impl Rights {
    /// Those of the file's owner alone.
    pub const PRIVATE: Rights = Rights { mode: 0o600, owner: None, group: None };

    /// Gives them to a socket's file.
    ///
    /// # Errors
    /// If there is no such user or group, or this process may not give the file to them.
    pub fn give(&self, path: &Path) -> Result<(), Error> {
        let (owner, group) = (self.owner_number()?, self.group_number()?);
        if owner.is_some() || group.is_some() {
            chown(path, owner, group)?;
        }
        fs::set_permissions(path, Permissions::from_mode(self.mode))?;
        Ok(())
    }

    /// The owner's number; `None` if nobody is written.
    ///
    /// # Errors
    /// If there is no such user.
    pub fn owner_number(&self) -> Result<Option<u32>, Error> {
        let owner = self.owner.as_deref().map(|name| number(name, "/etc/passwd")).transpose();
        owner.map_err(Error::NoUser)
    }

    /// The group's number; `None` if none is written.
    ///
    /// # Errors
    /// If there is no such group.
    pub fn group_number(&self) -> Result<Option<u32>, Error> {
        let group = self.group.as_deref().map(|name| number(name, "/etc/group")).transpose();
        group.map_err(Error::NoGroup)
    }
}

/// The number of a user or group: the third field of its line. Directories of users over the network are not asked, because
/// the C library that could ask them is not in a static binary.
fn number(name: &str, file: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let lines = fs::read_to_string(file).unwrap_or_default();
    let mut entries = lines.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = entries.find_map(|entry| (entry.first() == Some(&name)).then(|| entry.get(2)?.parse().ok()));
    found.flatten().ok_or_else(|| name.to_owned())
}

/// Why a Unix socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("another process listens on this socket: stop it or choose another path")]
    InUse,
    /// Something that is not a socket has its name.
    #[error("the file exists and is not a socket: remove it or choose another path")]
    NotASocket,
    #[error("the directory {} does not exist: create it", .0.display())]
    NoDirectory(PathBuf),
    #[error("there is no user {0:?} in /etc/passwd")]
    NoUser(String),
    #[error("there is no group {0:?} in /etc/group")]
    NoGroup(String),
}

/// Binds a socket that does not listen yet. The file of a process that is gone is replaced.
///
/// # Errors
/// If another process listens there, something else has the name, or the rights cannot be given.
pub fn bind(path: &Path, rights: &Rights) -> Result<(Socket, SocketFile), Error> {
    if let Some(directory) = path.parent().filter(|it| !it.as_os_str().is_empty() && !it.exists()) {
        return Err(Error::NoDirectory(directory.to_owned()));
    }
    clear_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile::of(path)?;
    // Before `listen`, so that nobody whom the rights exclude can ever connect.
    rights.give(path)?;
    socket.set_nonblocking(true)?;
    Ok((socket, file))
}

/// Removes the socket file of a process that is gone.
fn clear_stale(path: &Path) -> Result<(), Error> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
        Ok(metadata) if !metadata.file_type().is_socket() => Err(Error::NotASocket),
        Ok(_) if is_answered(path)? => Err(Error::InUse),
        Ok(_) => Ok(fs::remove_file(path)?),
    }
}

/// Whether a process listens there. It need not wait, because a full backlog (EAGAIN) means that one does.
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
pub struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
    /// Another process listens on the same socket, and the file is its.
    is_left: Arc<AtomicBool>,
}

impl SocketFile {
    /// The file that is there.
    ///
    /// # Errors
    /// If there is none.
    fn of(path: &Path) -> io::Result<SocketFile> {
        let device_and_inode = device_and_inode(path)?;
        Ok(SocketFile { path: path.to_owned(), device_and_inode, is_left: Arc::default() })
    }

    /// The file of a predecessor, which leaves it to this process once this one serves: until then it stays whatever
    /// happens here. `None` if it has gone.
    pub fn inherited(path: &Path) -> Option<SocketFile> {
        let file = SocketFile::of(path).ok()?;
        file.is_left.store(true, Ordering::Relaxed);
        Some(file)
    }

    /// To be set while another process listens on the same socket and the file is its: then the file stays.
    pub fn is_left(&self) -> &Arc<AtomicBool> {
        &self.is_left
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_left.load(Ordering::Relaxed) {
            return;
        }
        if device_and_inode(&self.path).is_ok_and(|found| found == self.device_and_inode) {
            // An error is ignored, because the next start finds the file stale and replaces it.
            fs::remove_file(&self.path).ok();
        }
    }
}

fn device_and_inode(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}
