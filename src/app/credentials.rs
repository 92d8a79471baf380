//! Files of keys, users and authorities: noticed when they change, as certificates are.

use std::path::Path;
use std::sync::Arc;

use super::certificates::{Stamp, stamp};
use crate::auth::Method;
use crate::upstream::Upstream;

/// What the files of each way to authenticate, or of each upstream, looked like.
#[derive(Debug, Default)]
pub(super) struct Watch {
    stamps: Vec<(u64, Vec<Stamp>)>,
}

impl Watch {
    /// Watches the files of these ways as they are now.
    pub(super) fn of_methods(methods: &[Arc<Method>]) -> Watch {
        Watch::of(methods.iter().map(|method| (method.id, method.files())))
    }

    /// Watches what these upstreams are checked by, and shown, as it is now.
    pub(super) fn of_upstreams<'u>(upstreams: impl Iterator<Item = &'u Arc<Upstream>>) -> Watch {
        Watch::of(upstreams.map(|upstream| (upstream.id, upstream.config.tls.files())))
    }

    fn of<'f>(files: impl Iterator<Item = (u64, Vec<&'f Path>)>) -> Watch {
        let stamps = |(id, files): (u64, Vec<&Path>)| (id, files.into_iter().map(stamp).collect());
        Watch { stamps: files.map(stamps).collect() }
    }

    /// Numbers of those whose files look different from the last time; `now` is what they look like now.
    pub(super) fn changed(&mut self, now: Watch) -> Vec<u64> {
        let changed = now.stamps.iter().filter(|stamps| !self.stamps.contains(stamps));
        let changed = changed.map(|(id, _)| *id).collect();
        self.stamps = now.stamps;
        changed
    }
}
