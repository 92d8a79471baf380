//! What a route says of responses: fixed bodies, header changes, redirects, CORS, compression.

pub mod body;
pub mod changes;
pub mod compress;
pub mod cors;
pub mod location;
pub mod weight;
