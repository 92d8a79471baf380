//! Consumers and tenants: their tiers, overrides and resets, and what their windows hold.

pub(super) mod account;
pub(super) mod assignments;
pub(super) mod by_holder;
pub(super) mod overrides;
pub(super) mod resets;
