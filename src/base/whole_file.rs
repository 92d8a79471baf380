//! Files that are read whole, and files that are replaced whole or stay as they were, whatever happens meanwhile.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Reads a file of at most so many bytes.
///
/// # Errors
/// If it cannot be read, is longer, or is not a regular file. A pipe is none, because who opens it waits for its
/// writer, and so would everything else that is read after it.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    // One byte more than allowed, so that a file that is too long is noticed and not read whole.
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {bytes_max} bytes"))),
        false => Ok(bytes),
    }
}

/// Forgets a file; that it is not there is as good.
///
/// # Errors
/// If it is there and cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Replaces a file, or leaves it as it is: a reader sees the old content or the new, never half of it. Makes the folder
/// (0700); the file is 0600, for its owner only. In a thread of its own, because a disk may take long to say that it has it.
///
/// # Errors
/// If it cannot be written whole, as on a full disk.
pub async fn write(path: &Path, content: Vec<u8>) -> io::Result<()> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || replace(&path, &content)).await.map_err(io::Error::other)?
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = Path::new(&fresh);
    // Removed first, because an old one would keep its mode.
    remove(fresh)?;
    let written = write_new(fresh, content).and_then(|()| fs::rename(fresh, path));
    if written.is_err() {
        // Its error is ignored, because the caller is told why the write failed.
        let _ = remove(fresh);
    }
    written?;
    // The folder, too, because otherwise a power cut may undo the rename.
    File::open(folder)?.sync_all()
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    // Before the rename, so that it never shows a file whose content is not on the disk yet.
    file.sync_all()
}
