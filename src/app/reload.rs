//! A reload reads the configuration files again and publishes them. An invalid configuration is logged and counted, and
//! the old one stays in force.

use std::path::Path;

use super::publisher::{Changes, Publisher};
use super::service_manager;
use crate::config;
use crate::metrics::Metrics;
use crate::record;

/// Reads the file again and publishes it.
pub(super) async fn reload(path: &Path, publisher: &mut Publisher, log: &record::Log, metrics: &Metrics) {
    // Log rotation often sends SIGHUP too, as it does to most servers.
    if let Err(error) = log.reopen() {
        tracing::error!(%error, "the access log cannot be reopened");
    }
    service_manager::reloading();
    let published = publish(path, publisher).await;
    service_manager::ready();
    match published {
        Ok(changes) => {
            publisher.warn_of(&changes);
            metrics.reload_succeeded();
            tracing::info!(generation = publisher.generation(), %changes, "reloaded");
        }
        Err(error) => {
            metrics.reload_failed();
            tracing::error!("not reloaded, the old configuration stays: {}", super::error_chain(&error));
        }
    }
}

async fn publish(path: &Path, publisher: &mut Publisher) -> anyhow::Result<Changes> {
    let path = path.to_owned();
    // Reading files may block. The one thread of the control runtime must go on serving signals and the admin listener.
    let definition = tokio::task::spawn_blocking(move || config::read(&path)).await?;
    publisher.publish(definition.map_err(|errors| anyhow::anyhow!("{errors}"))?).await
}
