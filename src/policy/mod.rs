//! Routes, policies and keys, compiled from definitions into the tables a request is matched against. Pure: no
//! I/O, no clock, no state. It decides which route answers and what is charged, never whether there is enough.

pub mod definition;
pub mod host;
pub mod method;
pub mod pattern;
pub mod percent;
pub mod shorthand;
