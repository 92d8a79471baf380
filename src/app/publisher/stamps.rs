//! Notices changes of files by polling their metadata.
//!
//! Polling sees renames and replaced symbolic links, by which certificate tools and mounted secrets change files;
//! inotify would need a watch on every directory along the link.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::read_files::FileReader;

/// Metadata of a file. If any of it changes, the file has changed.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    modified: Option<SystemTime>,
    inode: u64,
    bytes: u64,
}

/// The stamps of each part's files.
#[derive(Debug, Default)]
pub(crate) struct Stamps(BTreeMap<FileReader, Vec<Stamp>>);

impl Stamps {
    pub(crate) fn of<'f>(parts: impl IntoIterator<Item = (FileReader, Vec<&'f Path>)>) -> Stamps {
        let parts = parts.into_iter();
        Stamps(parts.map(|(part, files)| (part, files.into_iter().map(stamp).collect())).collect())
    }

    /// The parts whose stamps differ in `now`. Keeps `now` for the next comparison, so that a broken file is reported
    /// once.
    pub(crate) fn changed(&mut self, now: Stamps) -> Vec<FileReader> {
        let before = std::mem::replace(&mut self.0, now.0);
        let changed = self.0.iter().filter(|(part, stamps)| before.get(part) != Some(stamps));
        changed.map(|(part, _)| part.clone()).collect()
    }
}

fn stamp(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok();
    Stamp {
        path: path.to_owned(),
        modified: metadata.as_ref().and_then(|metadata| metadata.modified().ok()),
        inode: metadata.as_ref().map_or(0, MetadataExt::ino),
        bytes: metadata.as_ref().map_or(0, std::fs::Metadata::len),
    }
}
