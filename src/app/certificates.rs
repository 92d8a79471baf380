//! Reads the certificates of listeners, at a publication and again when their files change, and shows in /metrics when
//! they expire. Building the TLS configuration is up to `tls`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::server::ProducesTickets;

use super::orders;
use crate::acme::Challenges;
use crate::metrics::{Families, Unit};
use crate::service::config::Listener;
use crate::tls::{self, Certificate};

/// When a certificate of a listener expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateExpiry {
    pub(super) listener: String,
    /// The first name of the leaf.
    pub(super) subject: String,
    pub(super) file: PathBuf,
    /// The leaf's `notAfter`, Unix seconds.
    pub(super) not_after: i64,
}

/// The expiry of every certificate in force. Clones share one list, which a publication replaces and a scrape reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Expiries(Arc<ArcSwap<Vec<CertificateExpiry>>>);

impl Expiries {
    /// Replaces the list. A certificate that a listener names twice is kept once, because Prometheus rejects a whole
    /// scrape if two samples have the same labels.
    pub(super) fn set(&self, mut expiries: Vec<CertificateExpiry>) {
        expiries.sort_by(|one, other| one.labels().cmp(&other.labels()));
        expiries.dedup_by(|one, other| one.labels() == other.labels());
        self.0.store(Arc::new(expiries));
    }

    pub(super) fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let certificates = self.0.load();
        let files: Vec<_> =
            certificates.iter().map(|certificate| certificate.file.to_string_lossy()).collect();
        families.gauges(
            "certificate_expiry_timestamp",
            "When a certificate of a listener expires",
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
    /// `None` if the listener has no certificates and speaks in the clear.
    pub(super) config: Option<Arc<rustls::ServerConfig>>,
    pub(super) expiries: Vec<CertificateExpiry>,
}

/// Reads a listener's certificates and builds its TLS configuration.
pub(super) fn read(
    listener: &Listener,
    tickets: &Arc<dyn ProducesTickets>,
    challenges: &Arc<Challenges>,
) -> Result<Tls, tls::Error> {
    if listener.certs.is_empty() {
        return Ok(Tls::default());
    }
    let certificates = listener.certs.iter().map(Certificate::read).collect::<Result<Vec<_>, _>>()?;
    let client_auth = listener.client_auth.as_ref();
    let (protocol, http) = (&listener.protocol, (listener.http1, listener.http2));
    let challenged = (!listener.acme.is_empty()).then(|| orders::challenged(challenges));
    let config =
        tls::server_config(&certificates, protocol, http, client_auth, Arc::clone(tickets), challenged)?;
    for stand_in in certificates.iter().filter(|certificate| certificate.is_stand_in) {
        let (listener, names) = (&listener.name, stand_in.names.join(", "));
        tracing::warn!(%listener, %names, "a self-signed certificate is presented until one is issued");
    }
    let expiry = |certificate: &Certificate| CertificateExpiry {
        listener: listener.name.clone(),
        file: certificate.path.clone(),
        subject: certificate.names.first().cloned().unwrap_or_default(),
        not_after: certificate.not_after,
    };
    Ok(Tls { config: Some(Arc::new(config)), expiries: certificates.iter().map(expiry).collect() })
}
