//! A reload reads the configuration files again and publishes them, with the policies of the database and its tier
//! table beside them. An
//! invalid configuration is logged and counted, and the old one stays in force.

use std::path::Path;

use super::control::{Control, Policies};
use super::publisher::prepare::Prepared;
use super::publisher::{Changes, Publisher};
use super::service_manager;
use crate::config;
use crate::metrics::Metrics;
use crate::record;

/// Reads the file again and publishes it.
pub(super) async fn reload(
    path: &Path,
    publisher: &mut Publisher,
    control: Option<&Control>,
    log: &record::Log,
    metrics: &Metrics,
) {
    // Log rotation often sends SIGHUP too, as it does to most servers.
    if let Err(error) = log.reopen() {
        tracing::error!(%error, "the access log cannot be reopened");
    }
    service_manager::reloading();
    let published = publish(path, publisher, control).await;
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

/// Publishes the policies of the database and its tier table, which have changed.
pub(super) async fn follow(
    path: &Path,
    publisher: &mut Publisher,
    control: Option<&Control>,
    metrics: &Metrics,
) {
    match publish(path, publisher, control).await {
        Ok(changes) => {
            publisher.warn_of(&changes);
            metrics.reload_succeeded();
            tracing::info!(generation = publisher.generation(), %changes, "the policies and tiers of the database are in force");
        }
        Err(error) => {
            metrics.reload_failed();
            let why = super::error_chain(&error);
            tracing::error!("the policies and tiers of the database stay as they were: {why}");
        }
    }
}

/// The first configuration of a process as it is with the rows that the database has already. If these cannot be put into
/// force, it stays as the files alone have it, and the log says why.
pub(super) async fn with_rows(
    path: &Path,
    prepared: Prepared,
    control: &Control,
) -> anyhow::Result<(Prepared, Rowed)> {
    let Policies { version, rows } = control.policies().borrow().clone();
    let added = rows.added();
    if added.is_empty() {
        return Ok((prepared, Rowed { version, refused: None }));
    }
    let path = path.to_owned();
    let again = tokio::task::spawn_blocking(move || {
        let again = config::read_with(&path, &added).and_then(|definition| prepared.replaced(definition));
        (prepared, again)
    });
    let (alone, again) = again.await?;
    match again {
        Ok(again) => {
            if !again.loaded.report.is_empty() {
                tracing::warn!("{}", again.loaded.report);
            }
            Ok((again, Rowed { version, refused: None }))
        }
        Err(errors) => {
            tracing::error!("the policies and tiers of the database are not in force: {errors}");
            Ok((alone, Rowed { version, refused: Some(errors.to_string()) }))
        }
    }
}

/// Rows of the database that a configuration has, or does not have and why.
pub(super) struct Rowed {
    version: i64,
    refused: Option<String>,
}

impl Rowed {
    /// The configuration is in force.
    pub(super) fn published(self, control: &Control) {
        control.published(self.version, self.refused);
    }
}

async fn publish(
    path: &Path,
    publisher: &mut Publisher,
    control: Option<&Control>,
) -> anyhow::Result<Changes> {
    let path = path.to_owned();
    let Policies { version, rows } =
        control.map(|control| control.policies().borrow().clone()).unwrap_or_default();
    // Reading files may block. The one thread of the control runtime must go on serving signals and the admin listener.
    let definition = tokio::task::spawn_blocking(move || config::read_with(&path, &rows.added())).await?;
    let published = match definition {
        Ok(definition) => publisher.publish(definition).await,
        Err(errors) => Err(anyhow::anyhow!("{errors}")),
    };
    if let Some(control) = control {
        control.published(version, published.as_ref().err().map(super::error_chain));
    }
    published
}
