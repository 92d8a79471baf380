//! One open connection, counted against its server's maximum.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::OwnedSemaphorePermit;

use super::shared::Server;

/// Counts one open connection against the server's maximum for as long as it lives.
#[derive(Debug)]
pub struct Open {
    server: Arc<Server>,
    _permit: OwnedSemaphorePermit,
}

impl Open {
    /// Holds a permit for a connection to this server.
    pub(super) fn new(server: &Arc<Server>, permit: OwnedSemaphorePermit) -> Open {
        server.open.fetch_add(1, Ordering::Relaxed);
        Open { server: Arc::clone(server), _permit: permit }
    }

    /// Whether the server's name still leads to it.
    pub(super) fn is_current(&self) -> bool {
        !self.server.has_left()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.server.open.fetch_sub(1, Ordering::Relaxed);
    }
}
