//! Sections of routes: `[[route]]`, `[errors]`, and what they are made of.

pub(super) mod access;
pub(super) mod compress;
pub(super) mod errors;
pub(super) mod headers;
pub(super) mod method;
pub(super) mod mirror;
pub(super) mod redirect;
pub(super) mod retry;
pub(super) mod route;
