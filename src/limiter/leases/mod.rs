//! [`Leases`]: units of a limit that this node may spend without asking Redis, and when they are renewed.

pub(super) mod lease_table;
pub(super) mod renewal_queue;
pub(super) mod renewals;
pub(super) mod second_looks;
pub(super) mod sweep;
pub(super) mod sweep_queue;

use std::sync::Arc;

use crate::fleet::Fleet;
use crate::leases::lease_table::LeaseTable;
use crate::leases::renewal_queue::Renewals;
use crate::leases::sweep_queue::SweepQueue;

/// This node's leases, what Redis is asked about them, and when the sweep looks at which.
pub(crate) struct Leases {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) table: LeaseTable,
    pub(crate) renewals: Renewals,
    sweep_queue: SweepQueue,
}

impl Leases {
    pub(crate) fn new(fleet: &Arc<Fleet>) -> Leases {
        Leases {
            fleet: Arc::clone(fleet),
            table: LeaseTable::new(fleet),
            renewals: Renewals::default(),
            sweep_queue: SweepQueue::default(),
        }
    }
}
