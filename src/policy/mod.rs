//! Routes, policies and keys, compiled from definitions into the tables a request is matched against. Pure.

pub mod definition;
