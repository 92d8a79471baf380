//! A request's head as it goes to a server. The sender keeps it, so that it can be sent again without a copy.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method};

/// What a server is asked, without the body.
#[derive(Debug)]
pub struct Head {
    /// How.
    pub method: Method,
    /// For what.
    pub target: PathAndQuery,
    /// The fields, `Host` among them and none of the hop's.
    pub headers: HeaderMap,
}
