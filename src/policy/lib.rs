//! Routes, policies and keys, compiled from definitions into the tables a request is matched against. Pure:
//! no I/O, no clock, no state. It decides which route answers and what is charged, never whether there is
//! enough.

pub mod access;
pub mod body;
pub mod braces;
pub mod candidate;
pub mod changes;
pub mod chosen;
pub mod compile;
pub mod compress;
pub mod cookie;
pub mod cors;
pub mod counting;
mod credential;
pub mod definition;
pub mod destination;
pub mod domain;
pub mod error;
pub mod host;
pub mod http_subject;
pub mod json;
pub mod key;
pub mod list_field;
pub mod literals;
pub mod location;
pub mod method;
pub mod named_subject;
pub mod naming;
mod outgoing;
pub mod path;
pub mod pattern;
pub mod percent;
pub mod query;
pub mod request;
pub mod retry;
pub mod route;
pub mod rules;
pub mod secret;
pub mod shorthand;
pub mod subject;
pub mod table;
pub mod template;
pub mod tree;
pub mod weight;

#[cfg(test)]
mod tests;

pub use chosen::Chosen;
pub use compile::Options;
pub use compress::Compress;
pub use counting::{MissingDimension, Policy, Window};
pub use error::Error;
pub use http_subject::HttpSubject;
pub use named_subject::{Named, NamedSubject};
pub use naming::Naming;
pub use request::{Facts, Params, Values};
pub use route::{Access, Action, Found, Route, RouteId};
pub use subject::Subject;
pub use table::{NotFound, Table};
