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
    /// Keys whose value is read if it is a number, and if it is `true` or `false`.
    pub(super) numbers: &'static str,
    pub(super) flags: &'static str,
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
            let is_wrong = |keys, is_right: fn(&str) -> bool| {
                is_among(key, keys) && unread.text.as_deref().is_some_and(|text| !is_right(text))
            };
            let known = self.why.iter().find(|(known, _)| *known == key);
            let why = match known {
                _ if is_wrong(self.numbers, |text| yaml::number(text).is_some()) => {
                    "this is not a number: the default is assumed"
                }
                _ if is_wrong(self.flags, |text| yaml::flag(text).is_some()) => {
                    "this is neither true nor false: the default is assumed"
                }
                Some((_, why)) => why,
                None => "it has no counterpart, or `migrate` does not know it",
            };
            notes.left_out(&place, &unread.shown, why);
        }
    }
}
