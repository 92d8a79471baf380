//! `sluicegate check`: says whether a configuration is valid, or everything that is wrong with it.
//!
//! It opens no port and writes no file.

use std::io::{self, Write};
use std::path::Path;

use crate::config;

/// Checks the configuration in `path` and gives the exit code: 0, or [`EXIT_CONFIG`].
///
/// Errors and warnings go to `errors`. `out` gets one line saying what there is, or with `effective` the whole
/// configuration with every default, itself a valid gateway.toml.
pub fn check(path: &Path, effective: bool, out: &mut dyn Write, errors: &mut dyn Write) -> io::Result<u8> {
    let loaded = match config::load(path) {
        Ok(loaded) => loaded,
        Err(found) => {
            let noun = if found.count() == 1 { "error" } else { "errors" };
            writeln!(errors, "{found}\n\n{}: {} {noun}", path.display(), found.count())?;
            return Ok(EXIT_CONFIG);
        }
    };
    if !loaded.report.is_empty() {
        writeln!(errors, "{}\n", loaded.report)?;
    }
    let config = loaded.config;
    if effective {
        out.write_all(config.effective().as_bytes())?;
    } else {
        writeln!(
            out,
            "configuration is valid: {}, {}, {}, {}",
            counted(config.listeners.len(), "listener", "listeners"),
            counted(config.upstreams.len(), "upstream", "upstreams"),
            counted(config.policies.len(), "policy", "policies"),
            counted(config.routes.len(), "route", "routes"),
        )?;
    }
    Ok(0)
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The exit code of a configuration that is wrong: `EX_CONFIG` of sysexits.h.
pub const EXIT_CONFIG: u8 = 78;
