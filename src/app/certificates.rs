//! Certificates of listeners: read by a publication, and again when their files change.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::server::ProducesTickets;

use crate::metrics::{Families, Unit};
use crate::service::config::Listener;
use crate::tls::{self, Certificate};

/// When a certificate that is served ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateExpiry {
    pub(super) listener: String,
    /// The leaf's subject.
    pub(super) subject: String,
    pub(super) file: PathBuf,
    /// The leaf's `notAfter`, Unix seconds.
    pub(super) not_after: i64,
}

/// When every certificate that is served ends, for whoever writes and whoever shows them.
#[derive(Clone, Debug, Default)]
pub(super) struct Expiries(Arc<ArcSwap<Vec<CertificateExpiry>>>);

impl Expiries {
    /// Replaces them. One that is named twice shows once: a scraper refuses everything if two samples have the same
    /// labels.
    pub(super) fn set(&self, mut expiries: Vec<CertificateExpiry>) {
        expiries.sort_by(|one, other| one.labels().cmp(&other.labels()));
        expiries.dedup_by(|one, other| one.labels() == other.labels());
        self.0.store(Arc::new(expiries));
    }

    /// Writes their family.
    pub(super) fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let certificates = self.0.load();
        let files: Vec<_> =
            certificates.iter().map(|certificate| certificate.file.to_string_lossy()).collect();
        families.gauges(
            "certificate_expiry_timestamp",
            "When a certificate that is served ends",
            Some(&Unit::Seconds),
            certificates.iter().zip(&files).map(|(certificate, file)| {
                let labels = [
                    ("listener", certificate.listener.as_str()),
                    ("subject", certificate.subject.as_str()),
                    ("file", file),
                ];
                (labels, certificate.not_after)
            }),
        )
    }
}

impl CertificateExpiry {
    fn labels(&self) -> (&str, &str, &Path) {
        (&self.listener, &self.subject, &self.file)
    }
}

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
