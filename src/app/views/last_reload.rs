//! What the last reload said, for the page: the log has all of it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::publisher::Changes;
use base::clock;
use config::Errors;

/// The last reload of this process; shared by who reloads and who is shown it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastReload(Arc<Mutex<Option<Value>>>);

impl LastReload {
    pub(crate) fn succeeded(&self, changes: &Changes) {
        self.say(true, changes.to_string());
    }

    /// What was in force stays, for this reason, which is also given as a text.
    pub(crate) fn failed(&self, error: &anyhow::Error, text: String) {
        let text = match error.downcast_ref::<Errors>() {
            // Without the lines of the file, because they may hold what is not for everybody who may see the page.
            Some(errors) => {
                let shown = |(place, what): (Option<(&Path, usize)>, &str)| match place {
                    Some((file, line)) => format!("{}:{line}: {what}", file.display()),
                    None => what.to_owned(),
                };
                let found: Vec<String> = errors.lines().take(ERRORS_SHOWN).map(shown).collect();
                format!("errors: {}; {}", errors.count(), found.join("; "))
            }
            None => text,
        };
        self.say(false, text);
    }

    /// `None`: there was none.
    pub(crate) fn shown(&self) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn say(&self, is_in_force: bool, mut text: String) {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        let said = json!({ "at": clock::unix().as_secs(), "in-force": is_in_force, "said": text });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
    }
}

const ERRORS_SHOWN: usize = 3;
/// A sentence or two, not a file.
const TEXT_BYTES_MAX: usize = 600;
