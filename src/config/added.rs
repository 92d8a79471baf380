//! Policies that come from a database and not from a file: each is a document of its own beside the files, in the words of
//! gateway.toml, so that it is read, checked and reported like them.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::report::Source;

/// A policy beside those of the files. It goes before the one of its name that a file may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    name: String,
    /// What messages call it in the place of a file's path.
    shown: String,
    text: String,
}

impl Added {
    /// A policy by its name and its keys, as JSON.
    ///
    /// # Errors
    /// If it holds what TOML has no word for (`null`).
    pub fn policy(name: &str, keys: &Value) -> Result<Added, String> {
        let whole = json!({ "policy": { name: keys } });
        let text = toml::to_string(&whole).map_err(|error| error.to_string())?;
        Ok(Added { name: name.to_owned(), shown: format!("database: policy {name}"), text })
    }

    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn source(&self) -> Source {
        Source {
            path: PathBuf::from(&self.shown),
            // It names no files: references to any are refused.
            directory: PathBuf::new(),
            text: Arc::from(self.text.as_str()),
            is_added: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Loaded};
    use crate::limit::Algorithm;

    const FILE: &str = "[policy.calls]\nlimit = \"2/m\"\nby = [\"ip\"]\n[[route]]\npath = \"/\"\nlimit = \"calls\"\nrespond = {}\n";

    fn load(added: &[(&str, Value)]) -> Result<Loaded, String> {
        let folder = std::env::temp_dir().join(format!("sluicegate-added-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let file = folder.join("gateway.toml");
        std::fs::write(&file, FILE).expect("written");
        let added: Vec<Added> =
            added.iter().map(|(name, keys)| Added::policy(name, keys).expect("TOML")).collect();
        config::read_with(&file, &added).and_then(config::compiled).map_err(|errors| errors.to_string())
    }

    #[test]
    fn an_added_policy_goes_before_that_of_the_file() {
        let keys = json!({ "limit": ["100/m", "1000/h"], "by": ["consumer"], "algorithm": "sliding-window", "match": { "path": "/a" } });
        let loaded =
            load(&[("calls", keys), ("more", json!({ "limit": "5/s", "by": ["ip"] }))]).expect("valid");
        let policies = &loaded.config.policies;
        assert_eq!(policies.iter().map(|policy| policy.name.as_str()).collect::<Vec<_>>(), ["calls", "more"]);
        let limits: Vec<u64> = policies[0].windows.iter().map(|window| window.limit().get()).collect();
        assert_eq!(limits, [100, 1_000]);
        assert_eq!(policies[0].windows[0].algorithm(), Algorithm::SlidingWindow);
        assert_eq!(policies[0].matches.path.as_deref(), Some("/a"));
        assert_eq!(loaded.config.files.len(), 1);
    }

    #[test]
    fn its_mistakes_are_told_in_the_words_of_a_file() {
        for (keys, message) in [
            (json!({ "limit": "5/s", "by": ["ip"], "algoritm": "x" }), "algorithm"),
            (json!({ "limit": "5/s" }), "a policy needs `by`"),
            (json!({ "limit": "five", "by": ["ip"] }), "a number of requests belongs here"),
            (
                json!({ "limit": "5/s", "by": ["ip"], "match": { "path": "${file:/etc/passwd}" } }),
                "refers to a variable",
            ),
        ] {
            let errors = load(&[("calls", keys)]).expect_err("a mistake");
            assert!(errors.contains(message) && errors.contains("database: policy calls"), "{errors}");
        }
        assert!(Added::policy("calls", &json!({ "limit": null })).is_err());
    }
}
