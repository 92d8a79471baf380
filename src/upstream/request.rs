//! A request's head as it goes to a server. The sender keeps it, so that it can be sent again without a copy.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// What a server is asked, without the body.
#[derive(Clone, Debug)]
pub struct RequestHead {
    pub method: Method,
    pub target: PathAndQuery,
    /// The fields, `Host` among them and none of the hop's.
    pub headers: HeaderMap,
    /// The value of `traceparent`, if it is not among the fields. Nearly every request has one of its own; to validate it,
    /// allocate it and put it into the map took four times what it takes to write it.
    pub traceparent: Option<Traceparent>,
}

/// The value of `traceparent`: digits and dashes.
pub type Traceparent = [u8; 55];

/// Puts it among the fields, for who needs all of them in one map.
pub fn put_traceparent(headers: &mut HeaderMap, traceparent: &Traceparent) {
    let value = HeaderValue::from_bytes(traceparent).expect("digits and dashes are a value");
    headers.insert(TRACEPARENT, value);
}

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
