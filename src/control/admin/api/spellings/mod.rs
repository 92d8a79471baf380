//! Other forms of the same resources, for clients that were written for them.

pub(super) mod flat_policy;
pub(in crate::admin) mod snake_overrides;
