//! The files behind TLS of a listener that a single task accepts on: read at the start, and again when they change.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::publisher::stamps::Stamps;
use crate::read_files::{FileReader, OutdatedFiles};
use crate::sockets::certificates::{CertificateExpiry, Expiries};
use crate::sockets::listening::Role;
use net::tls::{self, ServerCertificate, TlsPolicy};

/// The settings in force; they change when files do.
pub(crate) type Settings = Arc<ArcSwap<ServerConfig>>;

pub(crate) struct Tls {
    role: Role,
    files: Arc<tls::TlsFiles>,
    settings: Settings,
    stamps: Stamps<()>,
    expiries: Expiries,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be used.
    pub(crate) fn read(role: Role, files: &tls::TlsFiles, expiries: &Expiries) -> Result<Tls, tls::Error> {
        // Before they are read, so that a change meanwhile is seen later.
        let stamps = stamps(files);
        let settings = Arc::new(ArcSwap::new(settings(role, files, expiries)?));
        Ok(Tls { role, files: Arc::new(files.clone()), settings, stamps, expiries: expiries.clone() })
    }

    pub(crate) fn settings(&self) -> Settings {
        Arc::clone(&self.settings)
    }

    /// Follows the files. One that cannot be used leaves in force what there is.
    pub(crate) fn watch(mut self, stale: OutdatedFiles) -> JoinHandle<()> {
        tokio::spawn(async move {
            loop {
                sleep(EVERY).await;
                let files = Arc::clone(&self.files);
                let Ok(now) = tokio::task::spawn_blocking(move || stamps(&files)).await else { continue };
                if self.stamps.changed(now).is_empty() {
                    continue;
                }
                let (role, files, expiries) = (self.role, Arc::clone(&self.files), self.expiries.clone());
                match tokio::task::spawn_blocking(move || settings(role, &files, &expiries)).await {
                    Ok(Ok(settings)) => {
                        self.settings.store(settings);
                        stale.read(part(role), false);
                        tracing::info!("the certificates of the {} were read again", role.listener());
                    }
                    Ok(Err(error)) => {
                        stale.read(part(role), true);
                        tracing::error!(
                            %error,
                            "changed certificates of the {} cannot be used, the old ones stay in use: correct the \
                             files",
                            role.listener()
                        );
                    }
                    Err(_) => {}
                }
            }
        })
    }
}

fn settings(role: Role, files: &tls::TlsFiles, expiries: &Expiries) -> Result<Arc<ServerConfig>, tls::Error> {
    let certificates = files.certs.iter().map(ServerCertificate::read).collect::<Result<Vec<_>, _>>()?;
    let auth = files.client_auth.as_ref();
    let (protocol, tickets) = (TlsPolicy::default(), tls::tickets()?);
    let settings = tls::server_config(&certificates, &protocol, role.http(), auth, tickets, None)?;
    expiries.set(part(role), CertificateExpiry::all(&certificates, auth));
    Ok(Arc::new(settings))
}

fn part(role: Role) -> FileReader {
    match role {
        Role::Admin => FileReader::Admin,
        Role::Grpc => FileReader::Grpc,
    }
}

fn stamps(files: &tls::TlsFiles) -> Stamps<()> {
    let pairs = files.certs.iter().flat_map(|pair| [pair.cert.as_path(), pair.key.as_path()]);
    let clients = files.client_auth.iter().flat_map(|auth| [Some(auth.ca.as_path()), auth.crl.as_deref()]);
    let files: Vec<&Path> = pairs.chain(clients.flatten()).collect();
    Stamps::of(std::iter::once(((), files)))
}

/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(1);
