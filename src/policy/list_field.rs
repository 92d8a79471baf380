//! Header fields that hold a list: `Allow`, `RateLimit-Policy`, the lists of CORS.

use http::HeaderValue;

/// Joins the items of a list field; `None` if there are none, so that the field is not sent empty.
pub(super) fn join_items<'t>(items: impl Iterator<Item = &'t str>) -> Option<HeaderValue> {
    let joined = items.collect::<Vec<_>>().join(", ");
    if joined.is_empty() { None } else { HeaderValue::from_str(&joined).ok() }
}
