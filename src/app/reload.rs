//! A reload reads the configuration files again and publishes them, with the policies of the database and its tier
//! table beside them. An invalid configuration is logged and counted, and the old one stays in force. A row that does not
//! fit the files is left out, and the log says so.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::control::{Control, Policies};
use super::publisher::prepare::PreparedConfig;
use super::publisher::{Changes, Publisher};
use super::service_manager;
use super::views::last_reload::LastReload;
use config::{self, Errors, Files, Report, RowDocument};

pub(super) async fn reload(
    path: &Path,
    publisher: &mut Publisher,
    control: Option<&Control>,
    last: &LastReload,
) {
    // Logs are reopened, too, because log rotation often sends SIGHUP, as it does to most servers.
    if let Err(error) = publisher.process.logs.reopen() {
        tracing::error!(%error, "a log cannot be reopened, the old file stays in use");
    }
    service_manager::reloading();
    let path = path.to_owned();
    // So that this load reports again what was reported.
    publisher.told = Report::default();
    let published = match read(path, control.is_some()).await {
        Ok(files) => publish(Arc::new(files), publisher, control).await,
        Err(error) => Err(error),
    };
    service_manager::ready();
    publisher.process.metrics.file_read(published.is_ok());
    match published {
        Ok(changes) => succeeded(publisher, changes, last, "reloaded"),
        Err(error) => {
            publisher.process.metrics.reload_failed();
            let error = without_warnings(error);
            let why = super::error_chain(&error);
            tracing::error!("not reloaded, the old configuration stays: {why}");
            last.failed(&error, why);
        }
    }
}

/// The errors of files alone, because warnings before them would seem to be the cause.
fn without_warnings(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Errors>() {
        Ok(errors) => errors.without_warnings().into(),
        Err(other) => other,
    }
}

/// Counts and logs what is in force now, and logs apart from it what waits for a restart.
fn succeeded(publisher: &Publisher, changes: Changes, last: &LastReload, what: &str) {
    publisher.process.metrics.reload_succeeded();
    last.succeeded(&changes);
    let (waiting, all) = (publisher.waiting(), changes.settings.len());
    let (generation, changes) = (publisher.published, changes.applied());
    tracing::info!(generation, %changes, "{what}");
    if !waiting.is_empty() {
        let settings = waiting.join(", ");
        tracing::warn!(settings, "changed settings are not in force: they take effect only after a restart");
    } else if changes.settings.len() < all {
        tracing::info!("no settings are waiting for a restart");
    }
}

/// Reads the files. With a database they must also be valid without its rows, because a start may have them alone, and a
/// row can hide a fault of the policy that it replaces.
async fn read(path: PathBuf, has_rows: bool) -> anyhow::Result<Files> {
    // On another thread, because reading files may block, and compiling takes its time.
    let reading = tokio::task::spawn_blocking(move || {
        let files = Files::read(&path);
        if has_rows {
            files.with(&[]).and_then(config::compiled)?;
        }
        Ok(files)
    });
    reading.await?
}

/// Publishes the policies of the database and its tier table, which have changed, beside the files as they are in
/// force, because an edit waits for its SIGHUP.
pub(super) async fn follow(publisher: &mut Publisher, control: &Control, last: &LastReload) {
    match publish(control.files(), publisher, Some(control)).await {
        Ok(changes) => {
            succeeded(publisher, changes, last, "the policies and tiers of the database are in force");
        }
        Err(error) => {
            let error = without_warnings(error);
            let why = super::error_chain(&error);
            // Once, however often it is tried again.
            if control.refused(why.clone()) {
                publisher.process.metrics.reload_failed();
                last.failed(&error, why.clone());
                tracing::error!(
                    "changed policies or tiers of the database are stored and not in force, because a file that \
                     gateway.toml names cannot be used: correct it, the gateway tries again: {why}"
                );
            }
        }
    }
}

/// The first configuration of a process as it is with the rows that the database has already, as far as they fit; of which
/// version those are, and why some do not.
pub(super) async fn with_rows(
    path: &Path,
    prepared: PreparedConfig,
    control: &Control,
) -> anyhow::Result<(PreparedConfig, i64, Option<String>)> {
    let Policies { version, rows } = control.policies().borrow().clone();
    let path = path.to_owned();
    let again = tokio::task::spawn_blocking(move || {
        let files = Files::read(&path);
        let with = |added: &[RowDocument]| match added {
            [] => Ok(None),
            added => files.with(added).and_then(|definition| prepared.replaced(definition)).map(Some),
        };
        let rows = rows.added();
        let (again, refused) = match with(&rows) {
            Err(_) => {
                let (fit, refused) = files.fitting(rows);
                (with(&fit), refused)
            }
            again => (again, Vec::new()),
        };
        (files, prepared, again, refused)
    });
    let (files, alone, again, mut refused) = again.await?;
    control.keep(Arc::new(files));
    let prepared = match again {
        Ok(None) => alone,
        Ok(Some(again)) => {
            // Only what is new, because what the files say was told when they were read.
            let news = again.loaded.report.news_since(&alone.loaded.report);
            news.lines().iter().for_each(|line| tracing::warn!("{line}"));
            again
        }
        Err(errors) => {
            refused.push(errors);
            alone
        }
    };
    Ok((prepared, version, why(refused)))
}

/// Publishes these files with the rows of the database, as far as they fit. The files are in force then.
async fn publish(
    files: Arc<Files>,
    publisher: &mut Publisher,
    control: Option<&Control>,
) -> anyhow::Result<Changes> {
    let Policies { version, rows } =
        control.map(|control| control.policies().borrow().clone()).unwrap_or_default();
    let rows = rows.added();
    let (published, refused) = match publish_with(&files, rows.clone(), publisher).await {
        Err(error) if error.is::<Errors>() && !rows.is_empty() => {
            let used = Arc::clone(&files);
            let (fit, refused) = tokio::task::spawn_blocking(move || used.fitting(rows)).await?;
            match refused.is_empty() {
                true => (Err(error), refused),
                false => (publish_with(&files, fit, publisher).await, refused),
            }
        }
        published => (published, Vec::new()),
    };
    let changes = published?;
    if let Some(control) = control {
        control.keep(files);
        control.published(version, why(refused), false);
    }
    Ok(changes)
}

async fn publish_with(
    files: &Arc<Files>,
    rows: Vec<RowDocument>,
    publisher: &mut Publisher,
) -> anyhow::Result<Changes> {
    let files = Arc::clone(files);
    // On another thread, because the one of the control runtime must go on serving signals and the admin listener.
    let definition = tokio::task::spawn_blocking(move || files.with(&rows)).await??;
    publisher.publish(definition).await
}

fn why(refused: Vec<Errors>) -> Option<String> {
    let refused: Vec<String> =
        refused.into_iter().map(|errors| errors.without_warnings().to_string()).collect();
    let why = (!refused.is_empty()).then(|| refused.join("\n\n"))?;
    tracing::error!("rows of the database are not in force, because they are invalid: {why}");
    Some(why)
}
