//! Header fields that hold a list: `Allow`, `RateLimit-Policy`, the lists of CORS.

use std::borrow::Borrow;

use http::HeaderValue;

/// Joins the items of a list field; `None` if there are none, so that the field is not sent empty.
pub(super) fn join_items(items: impl Iterator<Item = impl Borrow<str>>) -> Option<HeaderValue> {
    let joined = items.collect::<Vec<_>>().join(", ");
    if joined.is_empty() { None } else { HeaderValue::from_str(&joined).ok() }
}
