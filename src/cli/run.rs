//! `sluicegate run`: reads the configuration, prints its errors or warnings, and serves.

use std::path::Path;

use super::check::EXIT_CONFIG;
use super::log;
use app::prepare;

/// Serves until told to stop. With `test_time` checks of the admin API may say when they are asked.
///
/// # Errors
/// If the gateway cannot start.
pub fn run(path: &Path, test_time: bool) -> anyhow::Result<u8> {
    // First of all, because what a predecessor has counted by its clock is to mean the same here.
    let inheritance = app::inherit()?;
    let prepared = match config::read(path).and_then(prepare) {
        Ok(prepared) => prepared,
        Err(errors) => {
            super::complain(errors);
            return Ok(EXIT_CONFIG);
        }
    };
    log::start(&prepared.loaded.config.log_level)?;
    if !prepared.loaded.report.is_empty() {
        super::complain(&prepared.loaded.report);
    }
    app::run(path, prepared, inheritance, test_time)?;
    Ok(0)
}
