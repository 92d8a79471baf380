//! What every table, value and text of one load shares: the files, the variables, and what was found wrong.

use std::cell::RefCell;

use super::expand::Variables;
use super::report::{Finding, Place, Source};

/// What every table and value of one load needs.
pub(super) struct Context<'c> {
    pub(super) sources: &'c [Source],
    pub(super) variables: Variables<'c>,
    pub(super) findings: RefCell<Vec<Finding>>,
}

impl<'c> Context<'c> {
    pub(super) fn report(&self, finding: Finding) {
        self.findings.borrow_mut().push(finding);
    }

    /// From now on.
    pub(super) fn since_now(&self) -> Since<'_> {
        Since { ctx: self, findings: self.findings.borrow().len() }
    }

    /// Reports an error at a place, with what to write instead.
    pub(super) fn wrong(&self, place: Place, message: impl Into<String>, hint: impl Into<String>) {
        self.report(Finding::error(message).at(place, hint));
    }

    /// Reports what works at a place but should not stay so.
    pub(super) fn warn(&self, place: Place, message: impl Into<String>, hint: impl Into<String>) {
        self.report(Finding::warning(message).at(place, hint));
    }
}

/// Whether something was found wrong since a moment of the reading.
#[derive(Clone, Copy)]
pub(super) struct Since<'c> {
    ctx: &'c Context<'c>,
    findings: usize,
}

impl Since<'_> {
    pub(super) fn is_flawed(self) -> bool {
        self.ctx.findings.borrow()[self.findings..].iter().any(Finding::is_error)
    }
}
