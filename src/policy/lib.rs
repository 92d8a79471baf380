//! Routes, policies and keys, compiled from definitions into the tables a request is matched against. Pure:
//! no I/O, no clock, no state. It decides which route answers and what is charged, never whether there is
//! enough.

pub mod access;
pub mod braces;
pub mod compile;
pub mod cookie;
pub mod counting;
pub mod definition;
pub mod destination;
pub mod error;
pub mod json;
pub mod keys;
pub mod list_field;
pub mod matching;
pub mod nat64;
pub mod networks;
pub mod percent;
pub mod query;
pub mod request;
pub mod response;
pub mod retry;
pub mod route;
pub mod secret;
pub mod table;
pub mod template;

#[cfg(test)]
mod tests;

pub use compile::CompileOptions;
pub use counting::selection::PolicySelection;
pub use counting::{MissingDimension, Policy, Window};
pub use destination::UpstreamId;
pub use error::Error;
pub use keys::holder::Holder;
pub use keys::http_subject::HttpSubject;
pub use keys::named_subject::{NamedSubject, SubjectValues};
pub use keys::named_value::NamedValue;
pub use keys::naming::KeyNaming;
pub use keys::subject::Subject;
pub use request::{Params, RoutingFacts, TemplateValues};
pub use response::compress::Compress;
pub use route::{Action, AuthMethodId, Route, RouteAccess, RouteId, RouteMatch};
pub use table::{NotFound, RouteTable};
