//! The target of a request in a line: its path, and as much of its query as is shown.

use super::escape::Escape;
use crate::record::field::FIELD_BYTES_MAX;
use crate::record::{Entry, Query};

/// Appends the path and the part of the query that is shown: at most [`PATH_BYTES_MAX`] bytes before escaping.
pub(super) fn push(out: &mut Vec<u8>, entry: &Entry<'_>, escape: Escape) {
    escape.push(out, entry.path, PATH_BYTES_MAX);
    if let Some(query) = entry.query
        && let Some(left) = PATH_BYTES_MAX.checked_sub(entry.path.len())
    {
        push_query(out, query, entry.shown_query, left, escape);
    }
}

/// Appends the part of a query that is shown, with its `?`: at most `left` bytes before escaping.
pub(super) fn push_query(out: &mut Vec<u8>, query: &[u8], shown: Query, left: usize, escape: Escape) {
    if shown == Query::Drop {
        return;
    }
    let Some(left) = left.checked_sub(1) else { return out.extend_from_slice(escape.cut()) };
    out.push(b'?');
    push_parameters(out, query, shown, left, escape);
}

/// The same without the `?`.
pub(super) fn push_parameters(
    out: &mut Vec<u8>,
    query: &[u8],
    shown: Query,
    mut left: usize,
    escape: Escape,
) {
    if shown == Query::Keep {
        return escape.push(out, query, left);
    }
    for (index, pair) in query.split(|byte| *byte == b'&').enumerate() {
        // A parameter without `=` may be a bare value, so it is masked.
        let equals = pair.iter().position(|byte| *byte == b'=');
        let (name, is_hidden) = match equals {
            Some(equals) => (&pair[..=equals], equals + 1 < pair.len()),
            None => (&pair[..0], !pair.is_empty()),
        };
        let bytes = usize::from(index > 0) + name.len() + usize::from(is_hidden);
        let Some(rest) = left.checked_sub(bytes) else { return out.extend_from_slice(escape.cut()) };
        left = rest;
        if index > 0 {
            out.push(b'&');
        }
        escape.push(out, name, name.len());
        if is_hidden {
            out.push(b'*');
        }
    }
}

/// The part of a query that lines show, as a text of its own.
pub fn shown_query(query: &[u8], shown: Query) -> String {
    let mut out = Vec::new();
    if shown != Query::Drop {
        push_parameters(&mut out, query, shown, PATH_BYTES_MAX, Escape::Raw);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends the value of a header field; of one that is a URL as much of its query as is shown.
pub(super) fn push_field(out: &mut Vec<u8>, value: &[u8], is_url: bool, shown: Query, escape: Escape) {
    let query = value.iter().position(|byte| *byte == b'?').filter(|_| is_url);
    match query {
        Some(at) if at < FIELD_BYTES_MAX => {
            escape.push(out, &value[..at], FIELD_BYTES_MAX);
            push_query(out, &value[at + 1..], shown, FIELD_BYTES_MAX - at, escape);
        }
        _ => escape.push(out, value, FIELD_BYTES_MAX),
    }
}

/// Bytes kept of path and query.
pub const PATH_BYTES_MAX: usize = 2048;
