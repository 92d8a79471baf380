//! Mistakes in definitions, collected with their places so that all of them are reported at once.

use std::collections::HashMap;

use crate::error::{DefinitionPlace, DefinitionProblem, Error};

#[derive(Default)]
pub(super) struct CompileErrors {
    pub found: Vec<Error>,
}

pub(super) struct PlaceErrors<'e> {
    found: &'e mut Vec<Error>,
    place: DefinitionPlace,
}

impl CompileErrors {
    pub fn at(&mut self, place: DefinitionPlace) -> PlaceErrors<'_> {
        PlaceErrors { found: &mut self.found, place }
    }

    /// Reports names that are empty or taken.
    pub fn check_names<'d>(&mut self, names: impl Iterator<Item = (&'d str, DefinitionPlace)>) {
        let mut taken = HashMap::new();
        for (index, (name, place)) in names.enumerate() {
            if name.is_empty() {
                self.at(place).add("name", DefinitionProblem::EmptyName);
            } else if let Some(&other) = taken.get(name) {
                self.at(place).add("name", DefinitionProblem::DuplicateName { name: name.to_owned(), other });
            } else {
                taken.insert(name, index);
            }
        }
    }
}

impl PlaceErrors<'_> {
    pub fn add(&mut self, key: impl Into<String>, problem: impl Into<DefinitionProblem>) {
        self.found.push(Error { place: self.place, key: key.into(), problem: problem.into() });
    }
}
