//! Certificates of listeners: read at start and reload, and again when their files change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::server::ProducesTickets;

use crate::metrics::CertificateExpiry;
use crate::proxy::config::Listener;
use crate::tls::{self, Certificate};

/// The TLS side of a listener.
#[derive(Default)]
pub(super) struct Tls {
    /// What it speaks TLS by; `None` where it speaks in the clear.
    pub(super) config: Option<Arc<rustls::ServerConfig>>,
    /// When each of its certificates ends.
    pub(super) expiries: Vec<CertificateExpiry>,
}

/// Reads a listener's certificates.
pub(super) fn read(listener: &Listener, tickets: &Arc<dyn ProducesTickets>) -> Result<Tls, tls::Error> {
    if listener.certs.is_empty() {
        return Ok(Tls::default());
    }
    let certificates = listener.certs.iter().map(Certificate::read).collect::<Result<Vec<_>, _>>()?;
    let client_auth = listener.client_auth.as_ref();
    let (http1, http2) = (listener.http1, listener.http2);
    let config = tls::server_config(&certificates, http1, http2, client_auth, Arc::clone(tickets))?;
    let expiry = |certificate: &Certificate| CertificateExpiry {
        listener: listener.name.clone(),
        file: certificate.path.clone(),
        subject: certificate.names.first().cloned().unwrap_or_default(),
        not_after: certificate.not_after,
    };
    Ok(Tls { config: Some(Arc::new(config)), expiries: certificates.iter().map(expiry).collect() })
}

/// What a file looked like: a change of any of it is a change of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    path: PathBuf,
    modified: Option<SystemTime>,
    inode: u64,
    bytes: u64,
}

/// Notices changed files by looking at them: renames and symbolic links, as certificate tools leave them, are seen
/// without a word from the kernel.
#[derive(Debug, Default)]
pub(super) struct Watch {
    stamps: Vec<(String, Vec<Stamp>)>,
}

impl Watch {
    /// Watches the files of these listeners as they are now.
    pub(super) fn new(listeners: &[Listener]) -> Watch {
        Watch { stamps: listeners.iter().map(|listener| (listener.name.clone(), stamps(listener))).collect() }
    }

    /// Listeners whose files look different from the last time.
    pub(super) fn changed<'a>(&mut self, listeners: &'a [Listener]) -> Vec<&'a Listener> {
        let now = Watch::new(listeners);
        let changed = listeners.iter().zip(&now.stamps).filter(|(_, stamps)| !self.stamps.contains(stamps));
        let changed = changed.map(|(listener, _)| listener).collect();
        self.stamps = now.stamps;
        changed
    }
}

fn stamps(listener: &Listener) -> Vec<Stamp> {
    let pairs = listener.certs.iter().flat_map(|pair| [&pair.cert, &pair.key]);
    let clients = listener.client_auth.iter().flat_map(|auth| [Some(&auth.ca), auth.crl.as_ref()]);
    pairs.chain(clients.flatten()).map(|path| stamp(path)).collect()
}

/// What a file looks like now.
pub(super) fn stamp(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok();
    Stamp {
        path: path.to_owned(),
        modified: metadata.as_ref().and_then(|metadata| metadata.modified().ok()),
        inode: metadata.as_ref().map_or(0, MetadataExt::ino),
        bytes: metadata.as_ref().map_or(0, std::fs::Metadata::len),
    }
}
