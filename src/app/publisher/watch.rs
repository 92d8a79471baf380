//! Reads files again that change while the configuration stays: certificates, authorities, revocation lists, keys, users,
//! error pages.
//!
//! Each has a table of its own behind one pointer, and a change replaces that table. Nothing is compiled, and the
//! snapshot in force stays the same object.

use std::sync::Arc;

use tracing::field::display;

use super::prepare::{ReusedParts, client_config};
use super::stamps::Stamps;
use crate::files;
use crate::read_files::{FileReader, OutdatedFiles};
use crate::sockets::certificates;
use crate::sockets::listeners::Listeners;
use base::clock;
use config::Config;
use gateway::proxy::response::error_pages::ErrorPages;
use gateway::proxy::snapshot::Snapshot;
use metrics::Metrics;

/// The stamps of all files when they were last read.
#[derive(Debug, Default)]
pub(super) struct Watch {
    stamps: Stamps,
    /// When it was last looked what has expired, Unix seconds.
    looked: i64,
}

/// What is told how files were read.
pub(super) struct FileReports<'p> {
    pub(super) metrics: &'p Metrics,
    pub(super) stale: &'p OutdatedFiles,
}

impl Watch {
    pub(super) fn new(config: &Config, kept: &ReusedParts) -> Watch {
        Watch { stamps: stamps(config, kept), looked: clock::unix_s() }
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
        for part in self.stamps.changed(stamps(config, kept)) {
            let (listener, upstream, auth) = match &part {
                FileReader::Listener(name) => (Some(display(name)), None, None),
                FileReader::Upstream(name) => (None, Some(display(name)), None),
                FileReader::Auth(name) => (None, None, Some(display(name))),
                FileReader::Admin | FileReader::Grpc | FileReader::ErrorPages => (None, None, None),
            };
            let (files, content) = match &part {
                FileReader::Auth(_) => ("credentials", "credentials"),
                FileReader::ErrorPages => ("error pages", "error pages"),
                _ => ("certificate files", "certificates"),
            };
            let read = read(&part, config, kept, snapshot, listeners).await;
            told.stale.read(part.clone(), read.is_err());
            match read {
                Ok((entries, warnings)) => {
                    tracing::info!(listener, upstream, auth, entries, "{files} read again");
                    warnings.iter().for_each(|it| tracing::warn!(listener, upstream, auth, "{it}"));
                }
                Err(errors) => {
                    told.metrics.reload_failed();
                    for error in errors {
                        tracing::error!(
                            listener, upstream, auth, %error,
                            "changed {content} cannot be used, the old ones stay in use: correct the files"
                        );
                    }
                }
            }
        }
        let now = clock::unix_s();
        listeners.expiries().warn(std::mem::replace(&mut self.looked, now), now);
    }
}

/// Reads the files of a part again. Returns how many keys or users they hold, and what to warn of.
///
/// # Errors
/// What is wrong with them; what was read before stays.
async fn read(
    part: &FileReader,
    config: &Config,
    kept: &ReusedParts,
    snapshot: &Snapshot,
    listeners: &mut Listeners,
) -> Result<(Option<usize>, Vec<String>), Vec<String>> {
    match part {
        FileReader::Listener(name) => {
            let listener = config.listeners.iter().find(|listener| listener.name == *name);
            let Some(listener) = listener else { return Ok(Default::default()) };
            let tls = listeners.read(listener).map_err(|error| vec![error.to_string()])?;
            listeners.renew(name, tls);
            return Ok((None, files::expired(listener)));
        }
        FileReader::Upstream(name) => {
            // Open connections to upstreams keep the certificates they were made with.
            for upstream in kept.upstreams.iter().filter(|upstream| upstream.config.name == *name) {
                upstream.renew_tls(client_config(&upstream.config).map_err(|error| vec![error.to_string()])?);
                listeners.expiries().follow_upstream(&upstream.config);
            }
        }
        FileReader::Auth(name) => {
            let found = kept.auth.iter().enumerate().find(|(_, method)| method.config.name == *name);
            let Some((index, method)) = found else { return Ok(Default::default()) };
            let own = Arc::clone(method);
            // On another thread, because a file may be 256 MiB: too much to parse on the control runtime.
            let reread = tokio::task::spawn_blocking(move || own.reread()).await;
            let reread = reread.map_err(|error| vec![error.to_string()])?;
            let fresh = reread.map_err(|error| vec![error.to_string()])?;
            let doubtful = files::doubtful_credentials(index, &fresh, &config.tier_names());
            let entries = fresh.summary().map(|held| held.entries);
            method.adopt(fresh);
            return Ok((entries, doubtful.into_iter().map(|doubt| doubt.message).collect()));
        }
        FileReader::ErrorPages => {
            let fresh = match ErrorPages::read(&config.error_pages) {
                Ok(fresh) => Arc::new(fresh),
                Err(errors) => return Err(errors.iter().map(|(_, error)| error.to_string()).collect()),
            };
            snapshot.error_pages.iter().for_each(|pages| pages.store(Arc::clone(&fresh)));
        }
        // They are followed where they are accepted on.
        FileReader::Admin | FileReader::Grpc => {}
    }
    Ok(Default::default())
}

fn stamps(config: &Config, kept: &ReusedParts) -> Stamps {
    let listeners = config.listeners.iter().map(|listener| {
        let files = certificates::files(&listener.certs, listener.client_auth.as_ref());
        (FileReader::Listener(listener.name.clone()), files)
    });
    let errors = config.error_pages.iter().map(|page| page.file.as_path()).collect();
    let upstreams = kept
        .upstreams
        .iter()
        .map(|upstream| (FileReader::Upstream(upstream.config.name.clone()), upstream.config.tls.files()));
    let auth = kept.auth.iter().map(|method| (FileReader::Auth(method.config.name.clone()), method.files()));
    Stamps::of(listeners.chain([(FileReader::ErrorPages, errors)]).chain(upstreams).chain(auth))
}
