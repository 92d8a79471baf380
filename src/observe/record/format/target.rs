//! The target of a request in a line: its path, and as much of its query as is shown.

use super::escape::Escape;
use crate::record::field::FIELD_BYTES_MAX;
use crate::record::{AccessEntry, QueryDetail};

/// Appends the path and the part of the query that is shown: at most [`PATH_BYTES_MAX`] bytes before escaping.
pub(super) fn push(out: &mut Vec<u8>, entry: &AccessEntry<'_>, escape: Escape) {
    escape.push(out, entry.path, PATH_BYTES_MAX);
    if let Some(query) = entry.query
        && let Some(left) = PATH_BYTES_MAX.checked_sub(entry.path.len())
    {
        push_query(out, query, entry.shown_query, left, escape);
    }
}

/// Appends the part of a query that is shown, with its `?`: at most `left` bytes before escaping.
pub(super) fn push_query(out: &mut Vec<u8>, query: &[u8], shown: QueryDetail, left: usize, escape: Escape) {
    if shown == QueryDetail::Drop {
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
    shown: QueryDetail,
    mut left: usize,
    escape: Escape,
) {
    if shown == QueryDetail::Keep {
        return escape.push(out, query, left);
    }
    for (index, pair) in query.split(|byte| *byte == b'&').enumerate() {
        // A parameter without `=` is masked, because it may be a bare value.
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
pub fn shown_query(query: &[u8], shown: QueryDetail) -> String {
    let mut out = Vec::new();
    if shown != QueryDetail::Drop {
        push_parameters(&mut out, query, shown, PATH_BYTES_MAX, Escape::Raw);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends the value of a header field. Of one that is a URL it shows as much of the query as is wanted, and neither what
/// stands before the host as in `user:password@` nor the fragment.
pub(super) fn push_field(out: &mut Vec<u8>, value: &[u8], is_url: bool, shown: QueryDetail, escape: Escape) {
    if !is_url {
        return escape.push(out, value, FIELD_BYTES_MAX);
    }
    let (scheme, rest) = public(value);
    escape.push(out, scheme, FIELD_BYTES_MAX);
    let left = FIELD_BYTES_MAX.saturating_sub(scheme.len());
    match rest.iter().position(|byte| *byte == b'?') {
        Some(at) if at < left => {
            escape.push(out, &rest[..at], left);
            push_query(out, &rest[at + 1..], shown, left - at, escape);
        }
        _ => escape.push(out, rest, left),
    }
}

/// The scheme of a URL up to `//`, and what follows the user's name and password; without the fragment.
fn public(url: &[u8]) -> (&[u8], &[u8]) {
    let url = url.split(|byte| *byte == b'#').next().unwrap_or_default();
    let Some(slash) = url.iter().position(|byte| matches!(byte, b'/' | b'?')) else { return (&[], url) };
    if !url[slash..].starts_with(b"//") {
        return (&[], url);
    }
    let (scheme, rest) = url.split_at(slash + 2);
    let authority = rest.iter().position(|byte| matches!(byte, b'/' | b'?'));
    // Nothing of an authority without an end is shown, because the value was clipped and nobody knows what it was.
    let Some(authority) = authority.or((url.len() <= FIELD_BYTES_MAX).then_some(rest.len())) else {
        return (scheme, &[]);
    };
    let host = rest[..authority].iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
    (scheme, &rest[host..])
}

/// Bytes kept of path and query.
pub const PATH_BYTES_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_shows_no_credentials_and_no_fragment() {
        let shown = |url: &str, query| {
            let mut out = Vec::new();
            push_field(&mut out, url.as_bytes(), true, query, Escape::Raw);
            String::from_utf8(out).expect("text")
        };
        for (url, dropped, names) in [
            ("https://ann:PASS@a.example/b#f", "https://a.example/b", "https://a.example/b"),
            ("https://ann:P@SS@a.example", "https://a.example", "https://a.example"),
            ("https://ann:PASS@a.example?c=d#e=f", "https://a.example", "https://a.example?c=*"),
            ("//ann@a.example/b@c", "//a.example/b@c", "//a.example/b@c"),
            ("https://a.example/b?to=//x:y@z", "https://a.example/b", "https://a.example/b?to=*"),
            ("https://a.example/#token=1?x", "https://a.example/", "https://a.example/"),
            ("/b//c:d@e", "/b//c:d@e", "/b//c:d@e"),
            ("about:blank", "about:blank", "about:blank"),
            ("", "", ""),
        ] {
            assert_eq!(shown(url, QueryDetail::Drop), dropped);
            assert_eq!(shown(url, QueryDetail::Names), names);
        }
        for (url, kept) in [
            ("https://ann:PASS@a.example?c=d#e=f", "https://a.example?c=d"),
            ("https://a.example/b?to=//x:y@z", "https://a.example/b?to=//x:y@z"),
        ] {
            assert_eq!(shown(url, QueryDetail::Keep), kept);
        }
        let clipped = format!("https://ann:{}", "P".repeat(FIELD_BYTES_MAX));
        assert_eq!(shown(&clipped, QueryDetail::Names), "https://");
    }
}
