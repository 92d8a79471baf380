//! This node among others: its name, the shared tier, and certificates that one node orders for all.

pub(super) mod node_name;
pub(super) mod orders;
pub(super) mod shared_tier;
pub(super) mod values_in_redis;
