//! One open connection, counted against its server's maximum.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::OwnedSemaphorePermit;

use super::server::SharedServer;

/// Counts one open connection against the server's maximum for as long as it lives.
#[derive(Debug)]
pub struct OpenConnection {
    server: Arc<SharedServer>,
    _permit: OwnedSemaphorePermit,
}

impl OpenConnection {
    /// Holds a permit for a connection to this server.
    pub(super) fn new(server: &Arc<SharedServer>, permit: OwnedSemaphorePermit) -> OpenConnection {
        server.open.fetch_add(1, Ordering::Relaxed);
        OpenConnection { server: Arc::clone(server), _permit: permit }
    }

    /// Whether the server's name still leads to it.
    pub(super) fn is_current(&self) -> bool {
        !self.server.has_left()
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.server.open.fetch_sub(1, Ordering::Relaxed);
    }
}
