//! What the readers of YAML configurations share: the file as a tree, and what of it nobody has read.

use std::path::Path;

use super::file::Error;
use super::notes::{Notes, SourceLine};
use super::values::is_among;
use super::yaml::{self, Node};

/// The text of a file as a tree.
pub(super) fn tree(path: &Path, text: &str) -> Result<Node, Error> {
    let file = || path.display().to_string();
    yaml::read(text).map_err(|fault| Error::Syntax { file: file(), line: fault.line, message: fault.message })
}

/// Words about keys that may stay unread.
pub(super) struct UnreadKeys {
    /// Keys that change no answer.
    pub(super) needless: &'static str,
    /// Why others have no counterpart.
    pub(super) why: &'static [(&'static str, &'static str)],
}

impl UnreadKeys {
    /// Lists every value that was not read, with the reason where one is known.
    pub(super) fn list(&self, root: &Node, file: &str, notes: &mut Notes) {
        for unread in root.unread() {
            let place = SourceLine { file: file.to_owned(), line: unread.line };
            // Without what is in brackets, because `clusters[a]` is a part of `clusters`.
            let key = unread.key.split('[').next().unwrap_or_default();
            if is_among(key, self.needless) {
                notes.needless(&place, key);
                continue;
            }
            let why = self.why.iter().find(|(known, _)| *known == key);
            let why = why.map_or("it has no counterpart, or `migrate` does not know it", |(_, why)| why);
            notes.left_out(&place, &unread.shown, why);
        }
    }
}
