//! The files behind TLS of the admin listener: read at the start, and again when they change.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::publisher::stamps::Stamps;
use crate::admin;
use crate::tls::{self, Certificate, Protocol};

/// TLS of the admin listener.
pub(super) struct Tls {
    config: Arc<admin::Tls>,
    settings: admin::Settings,
    stamps: Stamps<()>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be used.
    pub(super) fn read(config: &admin::Tls) -> Result<Tls, tls::Error> {
        // Before they are read: a change meanwhile is seen later.
        let stamps = stamps(config);
        let settings = Arc::new(ArcSwap::new(settings(config)?));
        Ok(Tls { config: Arc::new(config.clone()), settings, stamps })
    }

    /// The settings in force.
    pub(super) fn settings(&self) -> admin::Settings {
        Arc::clone(&self.settings)
    }

    /// Follows the files. One that cannot be used leaves in force what there is.
    pub(super) fn watch(mut self) -> JoinHandle<()> {
        tokio::spawn(async move {
            loop {
                sleep(EVERY).await;
                let config = Arc::clone(&self.config);
                let Ok(now) = tokio::task::spawn_blocking(move || stamps(&config)).await else { continue };
                if self.stamps.changed(now).is_empty() {
                    continue;
                }
                let config = Arc::clone(&self.config);
                match tokio::task::spawn_blocking(move || settings(&config)).await {
                    Ok(Ok(settings)) => {
                        self.settings.store(settings);
                        tracing::info!("the certificates of the admin listener were read again");
                    }
                    Ok(Err(error)) => {
                        tracing::error!(%error, "certificates of the admin listener cannot be used, the old ones stay in use");
                    }
                    Err(_) => {}
                }
            }
        })
    }
}

fn settings(config: &admin::Tls) -> Result<Arc<ServerConfig>, tls::Error> {
    let certificates = config.certs.iter().map(Certificate::read).collect::<Result<Vec<_>, _>>()?;
    let auth = config.client_auth.as_ref();
    let http1_only = (true, false);
    tls::server_config(&certificates, &Protocol::default(), http1_only, auth, tls::tickets()?, None)
        .map(Arc::new)
}

fn stamps(config: &admin::Tls) -> Stamps<()> {
    let pairs = config.certs.iter().flat_map(|pair| [pair.cert.as_path(), pair.key.as_path()]);
    let clients = config.client_auth.iter().flat_map(|auth| [Some(auth.ca.as_path()), auth.crl.as_deref()]);
    let files: Vec<&Path> = pairs.chain(clients.flatten()).collect();
    Stamps::of(std::iter::once(((), files)))
}

/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(1);
