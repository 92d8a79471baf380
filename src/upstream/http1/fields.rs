//! Header fields as they stand in a message, and the fault that any part of a message may have. It does no I/O, and knows
//! neither requests nor answers.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// What is wrong with a message that is malformed, or that can be read in more ways than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Adds fields of `text` to a map, those that `goes_on` lets pass: one copy of all the text, which the values share.
pub(super) fn copy(
    text: &[u8],
    lines: &[httparse::Header<'_>],
    fields: &mut HeaderMap,
    mut goes_on: impl FnMut(&HeaderName, &[u8]) -> bool,
) -> Result<(), Malformed> {
    let shared = Bytes::copy_from_slice(text);
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes());
        let name = name.map_err(|_| Malformed("the name of a field is none"))?;
        if !goes_on(&name, line.value) {
            continue;
        }
        let value = HeaderValue::from_maybe_shared(piece(&shared, text, line.value));
        fields.append(name, value.map_err(|_| Malformed("the value of a field is none"))?);
    }
    Ok(())
}

/// What lies in `shared` as `part` does in `text`, of which it is a copy.
fn piece(shared: &Bytes, text: &[u8], part: &[u8]) -> Bytes {
    let start = (part.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    // A value without bytes may lie anywhere.
    if part.is_empty() { Bytes::new() } else { shared.slice(start..start + part.len()) }
}

/// The length that `Content-Length` says: one number, which may be said twice.
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

/// Fields in the head of an answer.
pub(super) const FIELDS_MAX: usize = 200;
