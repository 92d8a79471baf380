//! What the follower and those who change something share.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use super::policies::Rows;
use super::status::Status;
use config::Files;
use control::database::Database;

/// Policies of the database and its tier table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policies {
    /// The version of the last change of one.
    pub(crate) version: i64,
    pub(crate) rows: Arc<Rows>,
}

#[derive(Default)]
pub(crate) struct ControlState {
    /// The database, once it has answered for the first time.
    pub(super) opened: OnceLock<Database>,
    /// Wakes the follower: something has changed.
    pub(super) changed: Notify,
    /// Tells the follower that the process ends.
    pub(super) ended: Notify,
    /// The version that the tables in memory have.
    pub(super) in_force: watch::Sender<i64>,
    /// The policies of the database and its tier table, for the publisher.
    pub(super) policies: watch::Sender<Policies>,
    /// The version of the policies that the publisher has put into force, or could not.
    pub(super) published: watch::Sender<i64>,
    pub(super) files: ArcSwap<Files>,
    pub(super) status: Status,
}

impl ControlState {
    /// Waits until this node has a version in force; `false` if nobody follows any more.
    pub(super) async fn applied(self: Arc<ControlState>, version: i64) -> bool {
        if self.in_force.subscribe().wait_for(|now| *now >= version).await.is_err() {
            return false;
        }
        let policies = self.policies.borrow().version;
        self.published.subscribe().wait_for(|now| *now >= policies).await.is_ok()
    }
}
