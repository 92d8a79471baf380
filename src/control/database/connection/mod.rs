//! Connections to the database: opening it, its servers, its statements, and its hints of changes.

pub(super) mod connections;
mod errors;
pub(super) mod hints;
pub(super) mod migrate;
pub(super) mod open;
pub(super) mod servers;
pub(super) mod sql;
mod times;
