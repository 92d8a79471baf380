//! Mistakes in definitions, collected with their places: all of them are reported at once.

use std::collections::HashMap;

use crate::error::{DomainField, Error, Place, PolicyField, Problem, RouteField};

/// Mistakes so far.
#[derive(Default)]
pub(super) struct Errors {
    pub found: Vec<Error>,
}

impl Errors {
    pub fn route(&mut self, index: usize, field: RouteField, problem: impl Into<Problem>) {
        self.found.push(Error { place: Place::Route { index, field }, problem: problem.into() });
    }

    pub fn policy(&mut self, index: usize, field: PolicyField, problem: impl Into<Problem>) {
        self.found.push(Error { place: Place::Policy { index, field }, problem: problem.into() });
    }

    pub fn domain(&mut self, index: usize, field: DomainField, problem: impl Into<Problem>) {
        self.found.push(Error { place: Place::Domain { index, field }, problem: problem.into() });
    }
}

/// Reports names that are empty or taken.
pub(super) fn check_names<'d>(names: impl Iterator<Item = &'d str>, mut wrong: impl FnMut(usize, Problem)) {
    let mut taken = HashMap::new();
    for (index, name) in names.enumerate() {
        if name.is_empty() {
            wrong(index, Problem::EmptyName);
        } else if let Some(&other) = taken.get(name) {
            wrong(index, Problem::DuplicateName { name: name.to_owned(), other });
        } else {
            taken.insert(name, index);
        }
    }
}
