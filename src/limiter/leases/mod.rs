//! Leases: units of a limit that this node may spend without asking Redis, and when they are renewed.

pub(super) mod renewal_queue;
pub(super) mod renewals;
pub(super) mod sweep;
pub(super) mod sweep_queue;
