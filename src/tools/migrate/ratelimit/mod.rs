//! A file of Envoy's ratelimit service: one domain, and the tree of its descriptors.
//!
//! Its rules are found there as here, so each path of the tree is a rule. What that service never reaches is left out, so
//! that it is not reached here either.

mod descriptors;
mod limits;
#[cfg(test)]
mod tests;
mod unread_keys;

use std::collections::BTreeSet;
use std::path::Path;

use super::draft::{Domain, Draft, legal};
use super::file::Error;
use super::notes::SourceLine;
use super::yaml::Node;
use super::yaml_file;

/// What differs in every configuration.
pub(super) const EVERYWHERE: &[&str] = &[
    "A refused request spends nothing of its descriptors' limits; in the service each one counts it.",
    "An entry is identified by its key and its value, not by both joined: `a_b` with `c` is not `a` with `b_c`.",
    "A week begins on Thursday, as in the service. A month and a year follow the calendar in UTC; in the service they have 30 and 365 days.",
    "Redis decides every request (`overshoot = 0`), as in the service; while Redis is down, nodes decide without it and may admit up \
     to 5 % more.",
    "While Redis is down, each node enforces its share of a limit. The service then admits everything; `when-redis-down = \"allow\"` admits up to ten times the limit for each client address.",
];

/// Everything that the parts of the reader share.
struct Reading<'d> {
    draft: &'d mut Draft,
    file: String,
    domain: Domain,
    /// Names of policies so far.
    names: BTreeSet<String>,
    /// The first line for which that service refuses the file and that would be no limit here, with why.
    refused: Option<(usize, String)>,
}

/// Reads a text into the draft.
pub(super) fn read(path: &Path, text: &str, draft: &mut Draft) -> Result<(), Error> {
    let file = path.display().to_string();
    let root = yaml_file::tree(path, text)?;
    let Some(domain) = root.word("domain").filter(|domain| !domain.is_empty()) else {
        let message = "there is no `domain`: is it a file of Envoy's ratelimit service?".to_owned();
        return Err(Error::Syntax { file, line: root.line, message });
    };
    let own = Domain { name: legal(domain, "domain"), rules: Vec::new() };
    let mut reading = Reading { draft, file, domain: own, names: BTreeSet::new(), refused: None };
    if reading.domain.name != domain {
        let why = format!(
            "a domain cannot have this name here: set `domain` in Envoy's filter to `{}`",
            reading.domain.name
        );
        let place = SourceLine {
            file: reading.file.clone(),
            line: root.get("domain").map_or(root.line, |node| node.line),
        };
        reading.draft.notes.left_out(&place, &format!("domain: {domain}"), why);
    }
    reading.level(&root, &[]);
    if let Some((line, message)) = reading.refused {
        return Err(Error::Syntax { file: reading.file, line, message });
    }
    reading.settle_names();
    unread_keys::UNREAD.list(&root, &reading.file, &mut reading.draft.notes);
    let Reading { draft, domain, .. } = reading;
    draft.domains.push(domain);
    Ok(())
}

impl Reading<'_> {
    fn place(&self, node: &Node) -> SourceLine {
        SourceLine { file: self.file.clone(), line: node.line }
    }

    /// Lists a value as left out, and everything in it as read.
    fn left_out(&mut self, node: &Node, what: &str, why: &str) {
        node.dismiss();
        let place = self.place(node);
        self.draft.notes.left_out(&place, what, why);
    }

    /// Refuses the file, because that service does, and what is meant may be a limit.
    fn refuse(&mut self, line: usize, message: String) {
        self.refused.get_or_insert((line, format!("{message}: the service refuses the file")));
    }

    fn differs(&mut self, node: &Node, what: &str, why: &str) {
        let place = self.place(node);
        self.draft.notes.differs(&place, what, why);
    }

    /// Takes names out of `instead-of` that no rule has: they have no effect there, and are errors here.
    fn settle_names(&mut self) {
        let names: BTreeSet<String> = self.domain.rules.iter().filter_map(|rule| rule.name.clone()).collect();
        for rule in &mut self.domain.rules {
            for name in rule.instead_of.extract_if(.., |name| !names.contains(name)) {
                self.draft.notes.needless(&rule.place, &format!("replaces: {name}"));
            }
            for name in rule.instead_of.extract_if(.., |name| rule.name.as_ref() == Some(name)) {
                let why = "it is the descriptor's own name, so the service refuses the file";
                self.draft.notes.left_out(&rule.place, &format!("replaces: {name}"), why);
            }
        }
    }
}
