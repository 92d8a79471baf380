//! Certificates and the TLS side of a listener.

use std::path::PathBuf;

/// One certificate and its key, as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// PEM chain, the leaf first.
    pub cert: PathBuf,
    /// PEM private key.
    pub key: PathBuf,
    /// Made, self-signed for localhost, where neither file is there.
    pub self_signed: bool,
}
