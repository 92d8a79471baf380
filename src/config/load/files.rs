//! Configuration files as they were read: what comes beside them later does not read them again.

use std::path::Path;

use crate::load::definition::Definition;
use crate::load::expand::Variables;
use crate::load::mask::Secrets;
use crate::load::report::{Errors, Finding, Source};
use crate::load::source;
use crate::row_document::RowDocument;
use crate::{compiled, read_sources};

/// The text of gateway.toml and of the files that it includes, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Files {
    sources: Vec<Source>,
    findings: Vec<Finding>,
    /// What names included files and is shown nowhere.
    secrets: Secrets,
}

impl Files {
    /// Reads a file and those it includes. What is wrong with them is reported when they are used.
    pub fn read(path: &Path) -> Files {
        let (sources, findings, secrets) = source::gather(path, variables());
        Files { sources, findings, secrets }
    }

    /// What they define with policies and limits of tiers beside theirs; `${...}` are variables of the process.
    ///
    /// # Errors
    /// If a file could not be read or is not TOML. Every other error is in the definition.
    pub fn with(&self, added: &[RowDocument]) -> Result<Definition, Errors> {
        let sources = self.sources.iter().cloned().chain(added.iter().map(RowDocument::source)).collect();
        read_sources(sources, self.findings.clone(), self.secrets.clone(), variables())
    }

    /// As many of these rows as can be in force together with the files, and what is wrong with the others. Where nobody can
    /// say which rows are at fault, it is none or all of them.
    pub fn fitting(&self, mut added: Vec<RowDocument>) -> (Vec<RowDocument>, Vec<Errors>) {
        let mut refused = Vec::new();
        while let Err(errors) = self.with(&added).and_then(compiled) {
            let count = added.len();
            added.retain(|row| !errors.is_in(&row.source().path));
            if added.len() == count {
                // It ends with files that are wrong on their own, because whoever uses them reports that; otherwise
                // rows break what only files say.
                if added.is_empty() || self.with(&[]).and_then(compiled).is_err() {
                    break;
                }
                added.clear();
            }
            refused.push(errors);
        }
        (added, refused)
    }
}

fn variables() -> Variables<'static> {
    &|name| std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use std::slice;

    use serde_json::json;

    use super::*;

    #[test]
    fn rows_that_do_not_fit_leave_the_others_in_force() {
        let folder = std::env::temp_dir().join(format!("sluicegate-fitting-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let path = folder.join("gateway.toml");
        let file = "[policy.calls]\nlimit = \"2/m\"\nby = [\"ip\"]\n\
                    [[route]]\npath = \"/\"\nlimit = \"calls\"\nrespond = {}\n";
        std::fs::write(&path, file).expect("written");
        let files = Files::read(&path);
        let row = |name: &str, limit: &str| {
            RowDocument::policy(name, &json!({ "limit": limit, "by": ["ip"] })).expect("TOML")
        };
        let (good, wrong, other) = (row("calls", "5/m"), row("wrong", "tier"), row("other", "7/x"));
        let (fit, refused) = files.fitting(vec![good.clone(), wrong.clone(), other.clone()]);
        assert_eq!(fit, slice::from_ref(&good));
        let said: String = refused.iter().map(ToString::to_string).collect();
        assert!(said.contains("wrong") && said.contains("other"), "{said}");
        assert_eq!(files.fitting(vec![good.clone()]).0, slice::from_ref(&good));
        // The same, because it is the text that was read, whatever the file says by now.
        std::fs::write(&path, "nonsense").expect("written");
        assert!(files.with(slice::from_ref(&good)).and_then(compiled).is_ok());
        // Files that are wrong on their own are no fault of a row.
        let (fit, refused) = Files::read(&path).fitting(vec![good.clone()]);
        assert_eq!((fit, refused.len()), (vec![good], 0));
        std::fs::remove_dir_all(folder).expect("cleaned");
    }
}
