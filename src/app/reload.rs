//! A reload: what the files say now is published. A bad configuration leaves the old one serving, is logged and counted.

use std::path::Path;

use super::publisher::{Changes, Publisher};
use crate::config;
use crate::metrics::Metrics;
use crate::record;

/// Reads the file again and publishes it.
pub(super) async fn reload(path: &Path, publisher: &mut Publisher, log: &record::Log, metrics: &Metrics) {
    // A signal to reload is what log rotation sends too.
    if let Err(error) = log.reopen() {
        tracing::error!(%error, "the access log cannot be reopened");
    }
    match publish(path, publisher).await {
        Ok(changes) => {
            publisher.warn_of(&changes);
            metrics.reload_succeeded();
            tracing::info!(generation = publisher.generation(), %changes, "reloaded");
        }
        Err(error) => {
            metrics.reload_failed();
            tracing::error!("not reloaded, the old configuration goes on: {}", super::said(&error));
        }
    }
}

async fn publish(path: &Path, publisher: &mut Publisher) -> anyhow::Result<Changes> {
    let path = path.to_owned();
    // Reading files may block; the signals and the admin listener go on meanwhile.
    let definition = tokio::task::spawn_blocking(move || config::read(&path)).await?;
    publisher.publish(definition.map_err(|errors| anyhow::anyhow!("{errors}"))?).await
}
