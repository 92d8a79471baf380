//! How the files behind the configuration in force are, for /metrics: whose newest content was refused. Reading them is
//! up to the parts that they belong to.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::Families;

/// A part of the process that reads files of its own, and reads them again when they change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileReader {
    /// A listener of clients, by its name.
    Listener(String),
    Admin,
    Grpc,
    /// An upstream, by its name.
    Upstream(String),
    /// An authentication method, by its name.
    Auth(String),
    ErrorPages,
}

/// The parts that go on with older content than their files have. Clones share one set.
#[derive(Clone, Debug, Default)]
pub(super) struct OutdatedFiles(Arc<Mutex<BTreeSet<FileReader>>>);

impl FileReader {
    pub(super) fn word(&self) -> &'static str {
        match self {
            FileReader::Listener(_) => "listener",
            FileReader::Admin => "admin",
            FileReader::Grpc => "grpc",
            FileReader::Upstream(_) => "upstream",
            FileReader::Auth(_) => "auth",
            FileReader::ErrorPages => "errors",
        }
    }
}

impl OutdatedFiles {
    /// The files of a part were read again: they are in use, or refused.
    pub(super) fn read(&self, part: FileReader, is_refused: bool) {
        let mut stale = self.lock();
        match is_refused {
            true => stale.insert(part),
            false => stale.remove(&part),
        };
    }

    /// A configuration has come into force, with the files that it names, but for those that are fixed at start.
    pub(super) fn published(&self) {
        self.lock().retain(|part| matches!(part, FileReader::Admin | FileReader::Grpc));
    }

    pub(super) fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let stale = self.lock().clone();
        let count = |kind: &str| stale.iter().filter(|part| part.word() == kind).count() as u64;
        families.gauges(
            "files_stale",
            "Configuration sections that still use an older version of their files, because the newest is invalid",
            None,
            KINDS.iter().map(|kind| ([("of", *kind)], count(kind))),
        )
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<FileReader>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const KINDS: [&str; 6] = ["listener", "admin", "grpc", "upstream", "auth", "errors"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_kind() {
        let name = String::new;
        let parts = [
            FileReader::Listener(name()),
            FileReader::Admin,
            FileReader::Grpc,
            FileReader::Upstream(name()),
            FileReader::Auth(name()),
            FileReader::ErrorPages,
        ];
        assert_eq!(parts.map(|part| part.word()), KINDS);
    }
}
