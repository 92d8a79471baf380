//! Mistakes in definitions, collected with their places so that all of them are reported at once.

use std::collections::HashMap;

use crate::error::{DefinitionPlace, DefinitionProblem, DomainField, Error, PolicyField, RouteField};
use crate::matching::domain::definition::DomainId;
use crate::route::RouteId;
use limit::PolicyId;

#[derive(Default)]
pub(super) struct CompileErrors {
    pub found: Vec<Error>,
}

impl CompileErrors {
    pub fn route(&mut self, route: RouteId, field: RouteField, problem: impl Into<DefinitionProblem>) {
        self.found.push(Error { place: DefinitionPlace::Route { route, field }, problem: problem.into() });
    }

    pub fn policy(&mut self, policy: PolicyId, field: PolicyField, problem: impl Into<DefinitionProblem>) {
        self.found.push(Error { place: DefinitionPlace::Policy { policy, field }, problem: problem.into() });
    }

    pub fn domain(&mut self, domain: DomainId, field: DomainField, problem: impl Into<DefinitionProblem>) {
        self.found.push(Error { place: DefinitionPlace::Domain { domain, field }, problem: problem.into() });
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
