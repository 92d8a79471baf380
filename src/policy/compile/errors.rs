//! Mistakes in definitions, collected with their places so that all of them are reported at once.

use std::collections::HashMap;

use crate::error::{DefinitionPlace, DefinitionProblem, Error};
use crate::matching::domain::definition::DomainId;
use crate::route::RouteId;
use limit::PolicyId;

#[derive(Default)]
pub(super) struct CompileErrors {
    pub found: Vec<Error>,
}

impl CompileErrors {
    pub fn route(&mut self, id: RouteId, key: impl Into<String>, problem: impl Into<DefinitionProblem>) {
        self.add(DefinitionPlace::Route(id), key.into(), problem.into());
    }

    pub fn policy(&mut self, id: PolicyId, key: impl Into<String>, problem: impl Into<DefinitionProblem>) {
        self.add(DefinitionPlace::Policy(id), key.into(), problem.into());
    }

    pub fn domain(&mut self, id: DomainId, key: impl Into<String>, problem: impl Into<DefinitionProblem>) {
        self.add(DefinitionPlace::Domain(id), key.into(), problem.into());
    }

    fn add(&mut self, place: DefinitionPlace, key: String, problem: DefinitionProblem) {
        self.found.push(Error { place, key, problem });
    }
}

/// Reports names that are empty or taken.
pub(super) fn check_names<'d, I: Copy>(
    names: impl Iterator<Item = (&'d str, I)>,
    mut wrong: impl FnMut(I, DefinitionProblem),
) {
    let mut taken = HashMap::new();
    for (index, (name, id)) in names.enumerate() {
        if name.is_empty() {
            wrong(id, DefinitionProblem::EmptyName);
        } else if let Some(&other) = taken.get(name) {
            wrong(id, DefinitionProblem::DuplicateName { name: name.to_owned(), other });
        } else {
            taken.insert(name, index);
        }
    }
}
