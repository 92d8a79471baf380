//! Sections of limits: `[policy.*]`, `[tier.*]`, `[rls.*]`, and what they are made of.

pub(super) mod candidate;
pub(super) mod cost;
pub(super) mod count;
pub(super) mod counted_key;
pub(super) mod decisions;
pub(super) mod exempt;
pub mod limit_text;
pub(super) mod policy;
pub(super) mod policy_names;
pub(super) mod rls;
pub(super) mod tier_table;
pub(super) mod tiers;
mod time_zone;
pub(super) mod windows;
