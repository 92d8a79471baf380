//! Mistakes in definitions, collected with their places so that all of them are reported at once.

use std::collections::HashMap;

use crate::error::{DefinitionPlace, DefinitionProblem, DomainField, Error, PolicyField, RouteField};

#[derive(Default)]
pub(super) struct CompileErrors {
    pub found: Vec<Error>,
}

impl CompileErrors {
    pub fn route(&mut self, index: usize, field: RouteField, problem: impl Into<DefinitionProblem>) {
        self.found.push(Error { place: DefinitionPlace::Route { index, field }, problem: problem.into() });
    }

    pub fn policy(&mut self, index: usize, field: PolicyField, problem: impl Into<DefinitionProblem>) {
        self.found.push(Error { place: DefinitionPlace::Policy { index, field }, problem: problem.into() });
    }

    pub fn domain(&mut self, index: usize, field: DomainField, problem: impl Into<DefinitionProblem>) {
        self.found.push(Error { place: DefinitionPlace::Domain { index, field }, problem: problem.into() });
    }
}

/// Reports names that are empty or taken.
pub(super) fn check_names<'d>(
    names: impl Iterator<Item = &'d str>,
    mut wrong: impl FnMut(usize, DefinitionProblem),
) {
    let mut taken = HashMap::new();
    for (index, name) in names.enumerate() {
        if name.is_empty() {
            wrong(index, DefinitionProblem::EmptyName);
        } else if let Some(&other) = taken.get(name) {
            wrong(index, DefinitionProblem::DuplicateName { name: name.to_owned(), other });
        } else {
            taken.insert(name, index);
        }
    }
}
