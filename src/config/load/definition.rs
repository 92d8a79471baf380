//! A configuration as a source defines it, before it is known whether it is valid.
//!
//! The source is a file today. Nothing after this type knows that: a definition that comes from elsewhere is treated the
//! same, and its errors name the part instead of a line.

use crate::compile;
use crate::load::report::{Errors, Report, Subject, error_in};
use crate::settings::Config;
use policy::RouteTable;

/// A configuration and everything found wrong with it so far. Errors are collected and not returned one by one, so that
/// operators see those of the text, of routes and policies, and of the files it names, all at once.
#[derive(Debug)]
pub struct Definition {
    /// The configuration. If there are errors, defaults replace what could not be read.
    pub config: Config,
    pub(crate) report: Report,
}

#[derive(Debug)]
pub struct LoadedConfig {
    pub config: Config,
    /// Its routes and policies, compiled; its keys are not salted yet, see [`RouteTable::salted`].
    pub table: RouteTable,
    pub report: Report,
}

impl Definition {
    pub fn new(config: Config) -> Definition {
        Definition { config, report: Report::default() }
    }

    /// Adds an error that reading the text could not find, such as a certificate that cannot be used.
    ///
    /// `field` is a key as gateway.toml spells it (`path`, `certs[1]`, `headers.set`). If it was not written, the error points
    /// at the whole part. `hint` says what to write instead; it may be empty.
    pub fn reject(&mut self, subject: Subject, field: &str, message: &str, hint: &str) {
        let error = error_in(&self.config, &self.report.places, subject, field, message, hint);
        self.report.add(vec![error]);
    }

    /// Adds a warning about a part: it works, but should be changed. The rest is as of [`Definition::reject`].
    pub fn warn(&mut self, subject: Subject, field: &str, message: &str, hint: &str) {
        let error = error_in(&self.config, &self.report.places, subject, field, message, hint);
        self.report.add(vec![error.into_warning()]);
    }

    /// Compiles routes and policies. `None` if they have errors, which [`Definition::finish`] returns with all others.
    pub fn compile(&mut self) -> Option<RouteTable> {
        match compile::compile(&self.config, &self.report.places, self.report.has_errors()) {
            Ok(table) => Some(table),
            Err(errors) => {
                let errors = errors.into_iter().map(|error| self.report.discreet(error)).collect();
                self.report.add(errors);
                None
            }
        }
    }

    /// The configuration with its compiled table.
    ///
    /// # Errors
    /// Everything that was found wrong.
    pub fn finish(self, table: Option<RouteTable>) -> Result<LoadedConfig, Errors> {
        match table {
            Some(table) if !self.report.has_errors() => {
                Ok(LoadedConfig { config: self.config, table, report: self.report })
            }
            _ => Err(self.report.into_errors()),
        }
    }
}
