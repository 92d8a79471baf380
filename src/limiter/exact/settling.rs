//! Tells Redis what the units of an exact window have come to: at once, or when its shard is back (`unsent_queue.rs`).

use std::sync::Arc;

use crate::Limiter;
use crate::fallback::unsent_queue::Settling;
use crate::fleet::Fleet;
use limit::lease_messages::LinkError;

impl Limiter {
    /// Tells Redis what a window's units have come to; again when it is back, if it certainly did not get it. A remembered
    /// denial may be wrong once units are back, so this node forgets it; other nodes keep theirs until it ends.
    pub(crate) fn settle(self: &Arc<Self>, fleet: &Fleet, settling: Settling) {
        let (limiter, op) = (Arc::clone(self), settling.op());
        let done = move |answer: Result<_, LinkError>, _| {
            let Some(fleet) = &limiter.fleet else { return };
            if settling.gives_back() {
                let _ = fleet.change_known(settling.key(), |_, share| share.end_denial());
            }
            if answer.is_err_and(LinkError::is_undone) {
                fleet.unsent.add(settling);
            }
        };
        fleet.link.send(op, Box::new(done));
    }

    /// Sends what waits for shards that answer.
    pub(crate) fn send_unsent(self: &Arc<Self>, fleet: &Fleet, now_ns: u64) {
        if fleet.unsent.is_empty() {
            return;
        }
        for settling in fleet.unsent.take(|key| fleet.link.is_up(key), now_ns) {
            self.settle(fleet, settling);
        }
    }
}
