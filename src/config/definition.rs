//! What a source defines, before it is known whether it may be in force.
//!
//! A source is a file today. Nothing behind this type knows that: a definition that no file holds goes the same way, and
//! what is wrong with it names the part instead of a line.

use super::compile;
use super::report::{Errors, Report, Subject, error_in};
use super::settings::Config;
use crate::policy::Table;

/// A configuration and everything found wrong with it so far. Errors are collected and not returned one by one, so that
/// operators see those of the text, of routes and policies, and of the files it names, all at once.
#[derive(Debug)]
pub struct Definition {
    /// The configuration. Where there are errors, defaults stand in for what could not be read.
    pub config: Config,
    report: Report,
}

/// A configuration without an error.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Its routes and policies, compiled; its keys are under no salt yet, see [`Table::salted`].
    pub table: Table,
    /// Warnings.
    pub report: Report,
}

impl Definition {
    /// A definition that no file holds.
    pub fn new(config: Config) -> Definition {
        Definition { config, report: Report::default() }
    }

    pub(super) fn of_files(config: Config, report: Report) -> Definition {
        Definition { config, report }
    }

    /// Adds an error that reading could not find: a certificate that cannot be used, say.
    ///
    /// `field` is a key as the language spells it (`path`, `certs[1]`, `headers.set`); one that was not written points
    /// at the whole part. `hint` stands beside the value: what to write instead; it may be empty.
    pub fn reject(&mut self, subject: Subject, field: &str, message: &str, hint: &str) {
        let error = error_in(&self.config, self.report.places(), subject, field, message, hint);
        self.report.add(vec![error]);
    }

    /// Compiles routes and policies. `None`: something is wrong with them, which [`Definition::finish`] says.
    pub fn compile(&mut self) -> Option<Table> {
        match compile::compile(&self.config, self.report.places(), self.report.has_errors()) {
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
    pub fn finish(self, table: Option<Table>) -> Result<Loaded, Errors> {
        match table {
            Some(table) if !self.report.has_errors() => {
                Ok(Loaded { config: self.config, table, report: self.report })
            }
            _ => Err(self.report.into_errors()),
        }
    }
}
