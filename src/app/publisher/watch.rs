//! Reads files again that change while the configuration stays: certificates, authorities, revocation lists, keys, users,
//! error pages.
//!
//! Each has a table of its own behind one pointer, and a change replaces that table. Nothing is compiled, and the
//! snapshot in force stays the same object.

use std::path::Path;
use std::sync::Arc;

use super::prepare::{ReusedParts, client_config};
use super::stamps::Stamps;
use crate::files;
use crate::read_files::{FileReader, OutdatedFiles};
use crate::sockets::certificates::Expiries;
use crate::sockets::listeners::Listeners;
use base::clock;
use config::Config;
use gateway::proxy::config::ErrorPage;
use gateway::proxy::response::error_pages::ErrorPages;
use gateway::proxy::snapshot::Snapshot;
use gateway::service::config::ListenerConfig;
use metrics::Metrics;

/// The stamps of all files when they were last read.
#[derive(Debug, Default)]
pub(super) struct Watch {
    listeners: Stamps<String>,
    upstreams: Stamps<u64>,
    auth: Stamps<u64>,
    errors: Stamps<()>,
    /// When it was last looked what has expired, Unix seconds.
    looked: i64,
}

/// What is told how files were read.
pub(super) struct FileReports<'p> {
    pub(super) metrics: &'p Metrics,
    pub(super) stale: &'p OutdatedFiles,
}

impl FileReports<'_> {
    fn read(&self, part: FileReader) {
        self.stale.read(part, false);
    }

    fn refused(&self, part: FileReader) {
        self.metrics.reload_failed();
        self.stale.read(part, true);
    }
}

impl Watch {
    /// Starts watching the files of these parts.
    pub(super) fn new(config: &Config, kept: &ReusedParts) -> Watch {
        Watch {
            errors: of_errors(&config.error_pages),
            listeners: of_listeners(&config.listeners),
            upstreams: of_upstreams(&kept.upstreams),
            auth: of_auth(&kept.auth),
            looked: clock::unix_s(),
        }
    }

    /// Reads the files that have changed. An invalid one is logged and counted, and what was read before stays.
    pub(super) async fn read_changed(
        &mut self,
        config: &Config,
        kept: &ReusedParts,
        snapshot: &Snapshot,
        listeners: &mut Listeners,
        told: &FileReports<'_>,
    ) {
        self.read_listeners(&config.listeners, listeners, told);
        self.read_errors(&config.error_pages, snapshot, told);
        self.read_upstreams(&kept.upstreams, listeners.expiries(), told);
        self.read_auth(&kept.auth, told).await;
        let now = clock::unix_s();
        listeners.expiries().warn(std::mem::replace(&mut self.looked, now), now);
    }

    fn read_errors(&mut self, wanted: &[ErrorPage], snapshot: &Snapshot, told: &FileReports<'_>) {
        let has_changed = !self.errors.changed(of_errors(wanted)).is_empty();
        let Some(pages) = snapshot.error_pages.as_ref().filter(|_| has_changed) else { return };
        match ErrorPages::read(wanted) {
            Ok(fresh) => {
                pages.store(Arc::new(fresh));
                told.read(FileReader::ErrorPages);
                tracing::info!("error pages read again");
            }
            Err(errors) => {
                told.refused(FileReader::ErrorPages);
                for (_, error) in errors {
                    tracing::error!(%error, "changed error pages cannot be used, the old ones stay in use: correct \
                        the files");
                }
            }
        }
    }

    fn read_listeners(
        &mut self,
        wanted: &[ListenerConfig],
        listeners: &mut Listeners,
        told: &FileReports<'_>,
    ) {
        let changed = self.listeners.changed(of_listeners(wanted));
        if changed.is_empty() {
            return;
        }
        for listener in wanted.iter().filter(|listener| changed.contains(&&listener.name)) {
            let part = FileReader::Listener(listener.name.clone());
            match listeners.read(listener) {
                Ok(tls) => {
                    listeners.renew(&listener.name, tls);
                    told.read(part);
                    tracing::info!(listener = %listener.name, "certificate files read again");
                    for message in files::expired(listener) {
                        tracing::warn!(listener = %listener.name, "{message}");
                    }
                }
                Err(error) => {
                    told.refused(part);
                    tracing::error!(listener = %listener.name, %error, "changed certificates cannot be used, the old ones stay in use: correct the files");
                }
            }
        }
    }

    /// Open connections to upstreams keep the certificates they were made with.
    fn read_upstreams(
        &mut self,
        upstreams: &[Arc<upstream::LiveUpstream>],
        expiries: &Expiries,
        told: &FileReports<'_>,
    ) {
        let changed = self.upstreams.changed(of_upstreams(upstreams));
        for upstream in upstreams.iter().filter(|upstream| changed.contains(&&upstream.id)) {
            let name = &upstream.config.name;
            let part = FileReader::Upstream(name.clone());
            match client_config(&upstream.config) {
                Ok(tls) => {
                    upstream.renew_tls(tls);
                    expiries.follow_upstream(&upstream.config);
                    told.read(part);
                    tracing::info!(upstream = %name, "certificate files read again");
                }
                Err(error) => {
                    told.refused(part);
                    tracing::error!(upstream = %name, %error, "changed certificates cannot be used, the old ones stay in use: correct the files");
                }
            }
        }
    }

    async fn read_auth(&mut self, methods: &[Arc<auth::Method>], told: &FileReports<'_>) {
        let changed = self.auth.changed(of_auth(methods));
        for method in methods.iter().filter(|method| changed.contains(&&method.id)) {
            let name = &method.config.name;
            let part = FileReader::Auth(name.clone());
            let changed = Arc::clone(method);
            // On another thread, because a file may be 256 MiB: too much to parse on the control runtime.
            let reread = tokio::task::spawn_blocking(move || changed.reread().map_err(anyhow::Error::from));
            match reread.await.map_err(anyhow::Error::from).and_then(|reread| reread) {
                Ok(()) => {
                    told.read(part);
                    tracing::info!(auth = %name, "credentials read again");
                }
                Err(error) => {
                    told.refused(part);
                    tracing::error!(auth = %name, %error, "changed credentials cannot be used, the old ones stay in use: correct the files");
                }
            }
        }
    }
}

fn of_errors(pages: &[ErrorPage]) -> Stamps<()> {
    Stamps::of([((), pages.iter().map(|page| page.file.as_path()).collect())].into_iter())
}

fn of_listeners(listeners: &[ListenerConfig]) -> Stamps<String> {
    Stamps::of(listeners.iter().map(|listener| {
        let pairs = listener.certs.iter().flat_map(|pair| [&pair.cert, &pair.key]);
        let clients = listener.client_auth.iter().flat_map(|auth| [Some(&auth.ca), auth.crl.as_ref()]);
        let files = pairs.chain(clients.flatten()).map(AsRef::<Path>::as_ref).collect();
        (listener.name.clone(), files)
    }))
}

fn of_upstreams(upstreams: &[Arc<upstream::LiveUpstream>]) -> Stamps<u64> {
    Stamps::of(upstreams.iter().map(|upstream| (upstream.id, upstream.config.tls.files())))
}

fn of_auth(methods: &[Arc<auth::Method>]) -> Stamps<u64> {
    Stamps::of(methods.iter().map(|method| (method.id, method.files())))
}
