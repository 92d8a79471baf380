//! What files looked like, so that a change is noticed.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What a file looked like: a change of any of it is a change of the file.
///
/// Looking is enough, without a word from the kernel: it also sees renames and symbolic links, as certificate tools and
/// mounted secrets leave them.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    modified: Option<SystemTime>,
    inode: u64,
    bytes: u64,
}

/// The files of each part, by what names the part.
#[derive(Debug)]
pub(super) struct Stamps<K>(Vec<(K, Vec<Stamp>)>);

impl<K> Default for Stamps<K> {
    fn default() -> Stamps<K> {
        Stamps(Vec::new())
    }
}

impl<K: PartialEq> Stamps<K> {
    /// What the files of these parts look like now.
    pub(super) fn of<'f>(parts: impl Iterator<Item = (K, Vec<&'f Path>)>) -> Stamps<K> {
        let stamps = |(part, files): (K, Vec<&Path>)| (part, files.into_iter().map(stamp).collect());
        Stamps(parts.map(stamps).collect())
    }

    /// The parts whose files look different in `now`, which is compared with the next time.
    pub(super) fn changed(&mut self, now: Stamps<K>) -> Vec<&K> {
        let before = std::mem::replace(&mut self.0, now.0);
        let changed = self.0.iter().filter(|stamps| !before.contains(stamps));
        changed.map(|(part, _)| part).collect()
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
