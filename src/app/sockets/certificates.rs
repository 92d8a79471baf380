//! Reads the certificates of listeners, at a publication and again when their files change, and shows in /metrics when
//! they, those of other parts, and lists of revoked ones expire. Building the TLS configuration is up to `tls`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::server::ProducesTickets;

use crate::fleet::orders;
use crate::read_files::FileReader;
use acme::Challenges;
use gateway::service::config::ListenerConfig;
use metrics::{Families, MetricUnit};
use net::tls::{self, AbsentPair, CertificatePair, ClientAuth, ServerCertificate};

/// When a certificate expires, or a revocation list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CertificateExpiry {
    /// The first name of the leaf; a client's certificate often has none, and a list has none.
    subject: String,
    file: PathBuf,
    /// The leaf's `notAfter`, a list's `nextUpdate`, Unix seconds.
    not_after: i64,
}

/// The expiry of every certificate in force, by the part that presents it. Clones share one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expiries(Arc<Mutex<BTreeMap<FileReader, Vec<CertificateExpiry>>>>);

impl Expiries {
    /// Replaces those of one part. A certificate that it names twice is kept once, because Prometheus rejects a whole
    /// scrape if two samples have the same labels.
    pub(crate) fn set(&self, part: FileReader, mut expiries: Vec<CertificateExpiry>) {
        expiries.sort();
        expiries.dedup_by(|one, other| (&one.subject, &one.file) == (&other.subject, &other.file));
        self.lock().insert(part, expiries);
    }

    /// Forgets the parts that are gone.
    pub(crate) fn retain(&self, is_there: impl Fn(&FileReader) -> bool) {
        self.lock().retain(|part, _| is_there(part));
    }

    /// Reads the certificate that is shown to an upstream. While its file cannot be read, the one before stays.
    pub(crate) fn follow_upstream(&self, config: &upstream::Config) {
        let part = FileReader::Upstream(config.name.clone());
        let Some(shown) = &config.tls.shown else {
            self.set(part, Vec::new());
            return;
        };
        let pair =
            CertificatePair { cert: shown.cert.clone(), key: shown.key.clone(), absent: AbsentPair::Refuse };
        if let Ok(certificate) = ServerCertificate::read(&pair) {
            self.set(part, vec![CertificateExpiry::of(&certificate)]);
        }
    }

    /// Warns of what has expired since a moment, Unix seconds.
    pub(crate) fn warn(&self, since: i64, now: i64) {
        for expiry in self.lock().values().flatten().filter(|it| (since..now).contains(&it.not_after)) {
            let (subject, file) = (&expiry.subject, expiry.file.display());
            tracing::warn!(%file, subject, "a certificate or a revocation list has just expired: replace the file");
        }
    }

    pub(crate) fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let all = self.lock().clone();
        let all: Vec<_> = all
            .iter()
            .flat_map(|(part, expiries)| expiries.iter().map(move |expiry| (part, expiry)))
            .map(|(part, expiry)| (part, expiry, expiry.file.to_string_lossy()))
            .collect();
        families.gauges(
            "certificate_expiry_timestamp",
            "When a certificate of a listener, a client certificate for an upstream, or a revocation list expires",
            Some(&MetricUnit::Seconds),
            all.iter().map(|(part, expiry, file)| {
                let (listener, upstream) = match part {
                    FileReader::Listener(name) => (name.as_str(), ""),
                    FileReader::Upstream(name) => ("", name.as_str()),
                    FileReader::Admin | FileReader::Grpc | FileReader::Auth(_) | FileReader::ErrorPages => ("", ""),
                };
                let labels = [
                    ("of", part.word()),
                    ("listener", listener),
                    ("upstream", upstream),
                    ("subject", expiry.subject.as_str()),
                    ("file", file),
                ];
                (labels, expiry.not_after)
            }),
        )
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FileReader, Vec<CertificateExpiry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CertificateExpiry {
    pub(crate) fn of(certificate: &ServerCertificate) -> CertificateExpiry {
        CertificateExpiry {
            subject: certificate.names.first().cloned().unwrap_or_default(),
            file: certificate.path.clone(),
            not_after: certificate.not_after,
        }
    }

    /// Those of what a listener presents and of what it verifies clients by.
    pub(crate) fn all(
        certificates: &[ServerCertificate],
        client_auth: Option<&ClientAuth>,
    ) -> Vec<CertificateExpiry> {
        let lists = client_auth.and_then(ClientAuth::lists_end).map(|(file, end)| CertificateExpiry {
            subject: String::new(),
            file: file.to_owned(),
            not_after: end,
        });
        certificates.iter().map(CertificateExpiry::of).chain(lists).collect()
    }
}

/// The files of what a listener presents and of what it verifies clients by.
pub(crate) fn files<'f>(certs: &'f [CertificatePair], client_auth: Option<&'f ClientAuth>) -> Vec<&'f Path> {
    let pairs = certs.iter().flat_map(|pair| [pair.cert.as_path(), pair.key.as_path()]);
    let clients = client_auth.into_iter().flat_map(|auth| [Some(auth.ca.as_path()), auth.crl.as_deref()]);
    pairs.chain(clients.flatten()).collect()
}

#[derive(Default)]
pub(crate) struct Tls {
    /// `None` if the listener has no certificates and speaks in the clear.
    pub(crate) config: Option<Arc<rustls::ServerConfig>>,
    pub(crate) expiries: Vec<CertificateExpiry>,
}

/// Reads a listener's certificates and builds its TLS configuration.
pub(crate) fn read(
    listener: &ListenerConfig,
    tickets: &Arc<dyn ProducesTickets>,
    challenges: &Arc<Challenges>,
) -> Result<Tls, tls::Error> {
    if listener.certs.is_empty() {
        return Ok(Tls::default());
    }
    let certificates = listener.certs.iter().map(ServerCertificate::read).collect::<Result<Vec<_>, _>>()?;
    let client_auth = listener.client_auth.as_ref();
    let (protocol, http) = (&listener.protocol, (listener.http1, listener.http2));
    let challenged = (!listener.acme.is_empty()).then(|| orders::challenged(challenges));
    let config =
        tls::server_config(&certificates, protocol, http, client_auth, Arc::clone(tickets), challenged)?;
    for stand_in in certificates.iter().filter(|certificate| certificate.is_stand_in) {
        let (listener, names) = (&listener.name, stand_in.names.join(", "));
        tracing::warn!(%listener, %names, "a self-signed certificate is presented until one is issued");
    }
    let expiries = CertificateExpiry::all(&certificates, client_auth);
    Ok(Tls { config: Some(Arc::new(config)), expiries })
}
