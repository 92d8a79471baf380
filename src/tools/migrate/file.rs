//! Reads the files of a migration, within bounds.

use std::io::Read;
use std::path::{Path, PathBuf};

/// Why a file cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file or one that it includes.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file that was to be read.
        path: PathBuf,
        /// Why the system did not read it.
        source: std::io::Error,
    },
    /// Text that its own gateway would refuse too.
    #[error("{file}:{line}: {message}")]
    Syntax {
        /// The file as it was named.
        file: String,
        /// The line, from 1.
        line: usize,
        message: String,
    },
    /// A file for another gateway than the one it is read for.
    #[error(
        "{file} looks like a file for `{other}`, not for `{asked}`: run `sluicegate migrate {other} {file}`"
    )]
    OtherGateway { file: String, asked: &'static str, other: &'static str },
}

pub(super) fn read(path: &Path) -> Result<String, Error> {
    let error = |source| Error::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(error)?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(error)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(error(std::io::Error::other("it has more than 8 MiB")));
    }
    String::from_utf8(bytes).map_err(|_| error(std::io::Error::other("it is not UTF-8")))
}

/// A path that another configuration names, from the directory that its relative paths start from.
pub(super) fn absolute(directory: &Path, path: &str) -> String {
    let joined = directory.join(path);
    std::path::absolute(&joined).unwrap_or(joined).to_string_lossy().into_owned()
}

const BYTES_MAX: u64 = 8 << 20;
