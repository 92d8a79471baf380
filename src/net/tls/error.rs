//! Why certificates cannot be used, in messages for operators, and which file each error is about.

use std::path::{Path, PathBuf};

/// Why the configured TLS cannot be used. All variants are for the operator to resolve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {reason}", path.display())]
    File {
        part: TlsFile,
        path: PathBuf,
        /// Why, and what the operator is to do.
        reason: String,
    },
    /// No certificate authority is known to check servers by.
    #[error("no certificate authority of the system can be read{}", listed(.0))]
    NoRoots(Vec<String>),
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
}

/// What a file is for, so that an error can be reported at the key that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    Certificate,
    Key,
    Authorities,
    Revocations,
}

impl Error {
    pub(super) fn file(part: TlsFile, path: &Path, reason: impl Into<String>) -> Error {
        Error::File { part, path: path.to_owned(), reason: reason.into() }
    }

    /// What the file is for; `None` if the error is about no file.
    pub fn part(&self) -> Option<TlsFile> {
        match self {
            Error::File { part, .. } => Some(*part),
            Error::NoRoots(_) | Error::Rustls(_) => None,
        }
    }

    /// What to write instead, if the message does not say it.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::NoRoots(_) => {
                "install the system's (the package `ca-certificates`), or name your own: `tls = { ca = \"ca.pem\" }`"
            }
            Error::File { .. } | Error::Rustls(_) => "",
        }
    }
}

fn listed(reasons: &[String]) -> String {
    if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) }
}
