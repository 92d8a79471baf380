//! Files of keys and users: noticed when they change, as certificates are.

use std::sync::Arc;

use super::certificates::{Stamp, stamp};
use crate::auth::Method;

/// What the files of each way to authenticate looked like.
#[derive(Debug, Default)]
pub(super) struct Watch {
    stamps: Vec<(u64, Vec<Stamp>)>,
}

impl Watch {
    /// Watches the files of these ways as they are now.
    pub(super) fn new(methods: &[Arc<Method>]) -> Watch {
        let stamps = |method: &Arc<Method>| method.files().into_iter().map(stamp).collect();
        Watch { stamps: methods.iter().map(|method| (method.id, stamps(method))).collect() }
    }

    /// Ways whose files look different from the last time.
    pub(super) fn changed(&mut self, methods: &[Arc<Method>]) -> Vec<Arc<Method>> {
        let now = Watch::new(methods);
        let changed = methods.iter().zip(&now.stamps).filter(|(_, stamps)| !self.stamps.contains(stamps));
        let changed = changed.map(|(method, _)| Arc::clone(method)).collect();
        self.stamps = now.stamps;
        changed
    }
}
