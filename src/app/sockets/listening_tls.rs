//! The files behind TLS of a listener that a single task accepts on: read at the start, and again when they change.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::publisher::stamps::Stamps;
use crate::read_files::{FileReader, OutdatedFiles};
use crate::sockets::certificates::{self, CertificateExpiry, Expiries};
use crate::sockets::listening::Role;
use net::tls::{self, ServerCertificate, TlsPolicy};

/// The settings in force; they change when files do.
pub(crate) type Settings = Arc<ArcSwap<ServerConfig>>;

pub(crate) struct Tls {
    role: Role,
    files: Arc<tls::TlsFiles>,
    settings: Settings,
    stamps: Stamps,
    expiries: Expiries,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be used.
    pub(crate) fn read(role: Role, files: &tls::TlsFiles, expiries: &Expiries) -> Result<Tls, tls::Error> {
        // Before they are read, so that a change meanwhile is seen later.
        let stamps = stamps(role, files);
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
                let (role, files) = (self.role, Arc::clone(&self.files));
                let Ok(now) = tokio::task::spawn_blocking(move || stamps(role, &files)).await else {
                    continue;
                };
                if self.stamps.changed(now).is_empty() {
                    continue;
                }
                let (files, expiries) = (Arc::clone(&self.files), self.expiries.clone());
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

fn stamps(role: Role, files: &tls::TlsFiles) -> Stamps {
    Stamps::of([(part(role), certificates::files(&files.certs, files.client_auth.as_ref()))])
}

const EVERY: Duration = Duration::from_secs(1);
