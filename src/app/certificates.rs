//! Certificates of listeners: read by a publication, and again when their files change.

use std::sync::Arc;

use rustls::server::ProducesTickets;

use crate::metrics::CertificateExpiry;
use crate::service::config::Listener;
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
