//! `sluicegate run`: reads the configuration, shows what is wrong with it, or serves.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use super::check::EXIT_CONFIG;
use crate::app::prepare;
use crate::{app, config};

/// Serves until told to stop.
pub fn run(path: &Path) -> ExitCode {
    let prepared = match config::read(path).and_then(prepare) {
        Ok(prepared) => prepared,
        Err(errors) => {
            eprintln!("{errors}");
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    if !prepared.loaded.report.is_empty() {
        eprintln!("{}", prepared.loaded.report);
    }
    start_log(&prepared.loaded.config.log_level);
    match app::run(path, prepared) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::failed(&error),
    }
}

/// The process's own log goes to standard error; the access log has its own way.
fn start_log(level: &str) {
    // The HTTP/2 library warns of what clients do, as often as they like. The access log has that in its own words;
    // who wants theirs names `h2` in the level.
    let level = format!("h2=error,{level}");
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).init();
}
