//! Reads what a request to the API brings: its path, its query, its body, its conditions.

pub mod bodies;
pub(super) mod conditions;
pub(super) mod fields;
pub(super) mod path;
pub(super) mod query;
