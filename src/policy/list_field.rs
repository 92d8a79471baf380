//! Lists in texts: header fields such as `Allow`, `RateLimit-Policy` and those of CORS, and what has quoted strings in it.

use std::borrow::Borrow;

use http::HeaderValue;

/// Joins the items of a list field; `None` if there are none, so that the field is not sent empty.
pub(super) fn join_items(items: impl Iterator<Item = impl Borrow<str>>) -> Option<HeaderValue> {
    let joined = items.collect::<Vec<_>>().join(", ");
    if joined.is_empty() { None } else { HeaderValue::from_str(&joined).ok() }
}

/// The parts of a text between separators. One within a quoted string (RFC 9110 section 5.6.4) separates nothing.
pub fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |character| {
        let ends = character == separator && !quoted;
        quoted ^= character == '"' && !escaped;
        escaped = quoted && character == '\\' && !escaped;
        ends
    })
}
