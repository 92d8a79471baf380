//! One open connection, counted against its server's maximum and against the server's moves.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::OwnedSemaphorePermit;

use super::shared::Upstream;

/// Counts one open connection against the server's maximum for as long as it lives.
#[derive(Debug)]
pub(super) struct Open {
    upstream: Arc<Upstream>,
    server: usize,
    /// Where it leads, once it is made.
    pub(super) address: Option<SocketAddr>,
    /// How often the server had moved when its address was last known to be one of the server's.
    moves: Cell<u64>,
    _permit: OwnedSemaphorePermit,
}

impl Open {
    /// Holds a permit for a connection to server `server`.
    pub(super) fn new(upstream: &Arc<Upstream>, server: usize, permit: OwnedSemaphorePermit) -> Open {
        upstream.servers[server].open.fetch_add(1, Ordering::Relaxed);
        // Before its addresses are read: a move in between is seen later.
        let moves = Cell::new(upstream.servers[server].moves());
        Open { upstream: Arc::clone(upstream), server, address: None, moves, _permit: permit }
    }

    /// Whether the server is still where this leads.
    pub(super) fn is_current(&self) -> bool {
        let server = &self.upstream.servers[self.server];
        let moves = server.moves();
        if moves == self.moves.get() {
            return true;
        }
        let is_current = self.address.is_none_or(|address| server.addresses().contains(&address));
        if is_current {
            self.moves.set(moves);
        }
        is_current
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.upstream.servers[self.server].open.fetch_sub(1, Ordering::Relaxed);
    }
}
