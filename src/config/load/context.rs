//! What every table, value and text of one load shares: the files, the environment variables, and the findings so far.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::load::expand::Variables;
use crate::load::mask::Secrets;
use crate::load::report::{Finding, Hint, Source, SourceKind, SourceSpan};

pub(crate) struct Context<'c> {
    pub(crate) sources: &'c [Source],
    pub(crate) variables: Variables<'c>,
    pub(crate) findings: RefCell<Vec<Finding>>,
    /// What came from outside the files so far and is shown nowhere.
    pub(crate) secrets: RefCell<Secrets>,
    /// Where secrets are written in the files themselves.
    pub(crate) secret_places: RefCell<Vec<SourceSpan>>,
    /// How values are written that their rows alone cannot tell, by their place; keys by that of their table.
    pub(crate) spellings: RefCell<HashMap<SourceSpan, PlaceSpellings>>,
    /// Names under misspelt sections, which need no error of their own where others use them: the section that is meant,
    /// and the name.
    pub(crate) misspelt: RefCell<Vec<(&'static str, String)>>,
    /// Named sections that stand in no file: what other sections write in place.
    pub(crate) made: RefCell<Vec<ImpliedSection>>,
}

/// The canonical form of a value: of its text, or of the whole of it in TOML.
#[derive(Clone)]
pub(crate) enum Spelling {
    Text(String),
    Toml(String),
}

impl Spelling {
    pub(crate) fn toml(&self) -> String {
        let (Spelling::Text(toml) | Spelling::Toml(toml)) = self;
        toml.clone()
    }
}

/// What is noted of one place: of keys of the table there, and under the empty key of the value itself.
#[derive(Default)]
pub(crate) struct PlaceSpellings(Vec<(&'static str, Spelling)>);

impl PlaceSpellings {
    pub(crate) fn of(&self, key: &str) -> Option<&Spelling> {
        self.0.iter().find(|(noted, _)| *noted == key).map(|(_, spelling)| spelling)
    }
}

/// A section that stands in no file, with the keys that are not as by default.
pub(crate) struct ImpliedSection {
    pub(crate) section: &'static str,
    pub(crate) name: String,
    pub(crate) comment: Option<String>,
    pub(crate) keys: Vec<(&'static str, String)>,
}

impl<'c> Context<'c> {
    pub(crate) fn new(
        sources: &'c [Source],
        variables: Variables<'c>,
        findings: Vec<Finding>,
    ) -> Context<'c> {
        Context {
            sources,
            variables,
            findings: RefCell::new(findings),
            secrets: RefCell::default(),
            secret_places: RefCell::default(),
            spellings: RefCell::default(),
            misspelt: RefCell::default(),
            made: RefCell::default(),
        }
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &'c Source> {
        self.sources.iter().filter(|source| source.kind == SourceKind::File)
    }

    pub(crate) fn is_added(&self, place: SourceSpan) -> bool {
        self.sources[place.file].kind != SourceKind::File
    }

    /// Adds a finding. A mistake is told once, because what a candidate takes from its policy is read for both.
    pub(crate) fn report(&self, finding: Finding) {
        let mut findings = self.findings.borrow_mut();
        let is_repeated = findings.iter().rev().take(LOOKED_BACK_MAX).any(|earlier| *earlier == finding);
        if !is_repeated {
            findings.push(finding);
        }
    }

    /// Notes how a key or, under the empty key, the value at a place is written.
    pub(crate) fn spell(&self, place: SourceSpan, key: &'static str, spelling: Spelling) {
        let mut spellings = self.spellings.borrow_mut();
        let PlaceSpellings(notes) = spellings.entry(place).or_default();
        match notes.iter_mut().find(|(noted, _)| *noted == key) {
            Some((_, before)) => *before = spelling,
            None => notes.push((key, spelling)),
        }
    }

    /// Whether a section of this name is there, and how it is called is misspelt.
    pub(crate) fn is_misspelt(&self, section: &str, name: &str) -> bool {
        self.misspelt.borrow().iter().any(|(meant, found)| *meant == section && found == name)
    }

    pub(crate) fn make(&self, made: ImpliedSection) {
        self.made.borrow_mut().push(made);
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.findings.borrow().iter().any(Finding::is_error)
    }

    /// Marks this moment, to ask later whether an error was found since, or before it, if it `is_flawed`.
    pub(crate) fn checkpoint(&self, is_flawed: bool) -> Checkpoint<'_> {
        Checkpoint { ctx: self, findings: self.findings.borrow().len(), is_flawed }
    }

    pub(crate) fn wrong(&self, place: SourceSpan, message: impl Into<String>, hint: impl Into<Hint>) {
        self.report(Finding::error(message).at(place, hint));
    }

    /// Reports a warning at a place, if there is one: the configuration works, but should be changed.
    pub(crate) fn warn(
        &self,
        place: impl Into<Option<SourceSpan>>,
        message: impl Into<String>,
        hint: impl Into<Hint>,
    ) {
        if let Some(place) = place.into() {
            self.report(Finding::warning(message).at(place, hint));
        }
    }
}

/// A moment of the reading, to ask whether an error was found since.
#[derive(Clone, Copy)]
pub(crate) struct Checkpoint<'c> {
    ctx: &'c Context<'c>,
    findings: usize,
    is_flawed: bool,
}

impl Checkpoint<'_> {
    pub(crate) fn is_flawed(self) -> bool {
        self.is_flawed || self.ctx.findings.borrow()[self.findings..].iter().any(Finding::is_error)
    }
}

/// Among how many findings a repeated one is looked for, so that thousands of mistakes take no longer to tell.
const LOOKED_BACK_MAX: usize = 1_000;
