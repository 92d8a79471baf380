//! Parses header fields, and names the error that any part of a message may have. It does no I/O, and knows neither
//! requests nor answers.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Why a message is refused: it is malformed, or can be read in more than one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedMessage(pub &'static str);

/// Adds the fields of `text` that `goes_on` lets pass to a map. All of the text is copied once, and the values share
/// that copy.
pub(super) fn copy(
    text: &[u8],
    lines: &[httparse::Header<'_>],
    fields: &mut HeaderMap,
    mut goes_on: impl FnMut(&HeaderName, &[u8]) -> bool,
) -> Result<(), MalformedMessage> {
    let shared = Bytes::copy_from_slice(text);
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes());
        let name = name.map_err(|_| MalformedMessage("the name of a header is invalid"))?;
        if !goes_on(&name, line.value) {
            continue;
        }
        let value = HeaderValue::from_maybe_shared(piece(&shared, text, line.value));
        fields.append(name, value.map_err(|_| MalformedMessage("the value of a header is invalid"))?);
    }
    Ok(())
}

/// The part of `shared`, a copy of `text`, that corresponds to `part` of `text`.
fn piece(shared: &Bytes, text: &[u8], part: &[u8]) -> Bytes {
    let start = (part.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    // An empty slice may point outside `text`.
    if part.is_empty() { Bytes::new() } else { shared.slice(start..start + part.len()) }
}

/// The value of a `Content-Length`: one number, which may be repeated (RFC 9110 section 8.6).
pub(super) fn length(value: &[u8]) -> Option<u64> {
    let mut length = None;
    for part in value.split(|byte| *byte == b',') {
        let digits = part.trim_ascii();
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
        if *length.get_or_insert(number) != number {
            return None;
        }
    }
    length
}

/// The most fields in the head of an answer.
pub(super) const FIELDS_MAX: usize = 200;
