//! Authentication: the methods by which a request can prove who sent it, tried in the order a route names them.
//!
//! [`authenticate()`] is the one loop over a route's methods, for requests and for explanations. A method answers for
//! itself alone: the request carries no credential of its kind, or the method recognises the client, or the credential is
//! invalid. Nothing here knows routes, statuses or limits; what a refusal looks like is decided by the proxy.

mod attempt;
pub mod authenticate;
pub mod basic;
pub mod cache;
pub mod certificate;
pub mod config;
pub mod credential_source;
pub mod entries;
pub mod issued_keys;
pub mod jwt;
pub mod keys;
pub mod method;
pub mod mtls;
pub mod request;
pub mod strict_json;

pub use authenticate::{AuthOutcome, authenticate, authenticate_at_once};
pub use config::{AnonymousIdentity, Config, MethodKind};
pub use issued_keys::{IssuedKey, IssuedKeys};
pub use method::{Error, Method, keep_fetching};
pub use request::{AuthRequest, MethodAnswer, PendingCheck};
