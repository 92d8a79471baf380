//! `sluicegate run`: reads the configuration, prints its errors or warnings, and serves.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use super::check::EXIT_CONFIG;
use crate::app::prepare;
use crate::{app, config};

/// Serves until told to stop. With `test_time` checks of the admin API may say when they are asked.
pub fn run(path: &Path, test_time: bool) -> ExitCode {
    // First of all: what a predecessor has counted by its clock is to mean the same here.
    let inheritance = match app::inherit() {
        Ok(inheritance) => inheritance,
        Err(error) => return super::failed(&error),
    };
    let prepared = match config::read(path).and_then(prepare) {
        Ok(prepared) => prepared,
        Err(errors) => {
            super::complain(errors);
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    if !prepared.loaded.report.is_empty() {
        super::complain(&prepared.loaded.report);
    }
    start_log(&prepared.loaded.config.log_level);
    match app::run(path, prepared, inheritance, test_time) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::failed(&error),
    }
}

/// Sends the process's own log to standard error. The access log goes through `record`.
fn start_log(level: &str) {
    // The h2 crate warns about every misbehaving client, and hickory_net about every answer of DNS that is forged, so
    // strangers could flood the log. The access log, and the lines about names that do not resolve, have those events in
    // bounded form; an operator who wants the warnings names the crate in `log.level`, which overrides this.
    let level = format!("h2=error,hickory_net=error,{level}");
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::io::stderr().is_terminal();
    // A line that cannot be written would be reported by a macro that panics then.
    let log = tracing_subscriber::fmt().log_internal_errors(false);
    log.with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).init();
}
