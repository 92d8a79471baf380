//! Percent-encoding (RFC 3986 section 2.1) of single values and literals: for keys, rewrites and queries.
//!
//! It does not normalise whole paths of requests: [`super::matching::path`] does.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plus {
    Itself,
    /// A space: in a query, as forms write it.
    Space,
}

/// Whether every `%` is followed by two hex digits.
pub fn is_well_formed(raw: &str) -> bool {
    let after_percents = raw.split('%').skip(1);
    after_percents
        .map(str::as_bytes)
        .all(|after| matches!(after, [high, low, ..] if hex(*high).and(hex(*low)).is_some()))
}

/// The decoded bytes. A `%` without two hex digits stands for itself, because requests with one must get a key too; who
/// needs to refuse it asks [`is_well_formed`] first.
pub fn decode(raw: &str, plus: Plus) -> impl Iterator<Item = u8> {
    let mut rest = raw.as_bytes();
    std::iter::from_fn(move || {
        if let Some(byte) = decoded(rest, 0) {
            rest = &rest[3..];
            return Some(byte);
        }
        let (&byte, tail) = rest.split_first()?;
        rest = tail;
        Some(if byte == b'+' && plus == Plus::Space { b' ' } else { byte })
    })
}

/// Appends `value` as a single path segment: encodes all bytes but unreserved ones, so that no `/` of a client's value
/// starts a new segment.
pub fn encode_segment(value: impl AsRef<[u8]>, out: &mut String) {
    for &byte in value.as_ref() {
        if is_unreserved(byte) { out.push(char::from(byte)) } else { push_encoded(byte, out) }
    }
}

/// Brings a literal of a configured path into the form that requests are compared in: unreserved bytes decoded, bytes that
/// a path must not contain encoded, hex digits in upper case, `/` as it is. `Err` is the offset of a `%` without two hex
/// digits.
pub fn normalise(text: &str) -> Result<String, usize> {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let (byte, stays, length) = match byte {
            b'%' => {
                let byte = decoded(bytes, at).ok_or(at)?;
                (byte, is_unreserved(byte), 3)
            }
            byte => (byte, is_path_byte(byte), 1),
        };
        if stays {
            out.push(char::from(byte))
        } else {
            push_encoded(byte, &mut out)
        }
        at += length;
    }
    Ok(out)
}

fn push_encoded(byte: u8, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// The byte that `%XY` at this offset stands for, where there is one.
pub(super) fn decoded(bytes: &[u8], at: usize) -> Option<u8> {
    match bytes.get(at..)? {
        [b'%', high, low, ..] => Some(hex(*high)? << 4 | hex(*low)?),
        _ => None,
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

pub(super) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// RFC 3986 `pchar` without the percent sign, and the slash between segments.
pub(super) fn is_path_byte(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@/".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(raw: &str, plus: Plus) -> Vec<u8> {
        decode(raw, plus).collect()
    }

    #[test]
    fn complete_escapes_are_decoded_and_broken_ones_left() {
        for (raw, is_good) in
            [("a%20b", true), ("", true), ("%zz", false), ("a%4", false), ("%", false), ("%%41", false)]
        {
            assert_eq!(is_well_formed(raw), is_good, "{raw}");
        }
        assert_eq!(decoded("a%20b%2Fc", Plus::Itself), b"a b/c");
        assert_eq!(decoded("100%", Plus::Itself), b"100%");
        assert_eq!(decoded("%4", Plus::Itself), b"%4");
        assert_eq!(decoded("%zz%+1", Plus::Itself), b"%zz%+1");
        assert_eq!(decoded("a+b", Plus::Itself), b"a+b");
        assert_eq!(decoded("a+b%2B", Plus::Space), b"a b+");
    }

    #[test]
    fn a_literal_takes_the_form_requests_have() {
        assert_eq!(normalise("/%7euser/%C3%a9").as_deref(), Ok("/~user/%C3%A9"));
        assert_eq!(normalise("/caf\u{e9} au|lait").as_deref(), Ok("/caf%C3%A9%20au%7Clait"));
        assert_eq!(normalise("/a%2fb").as_deref(), Ok("/a%2Fb"));
        assert_eq!(normalise("/50%"), Err(3));
        assert_eq!(normalise("/%g0"), Err(1));
    }

    proptest! {
        #[test]
        fn an_encoded_segment_is_one_segment_and_decodes_back(value in any::<String>()) {
            let mut encoded = String::new();
            encode_segment(&value, &mut encoded);
            prop_assert!(encoded.bytes().all(|byte| is_unreserved(byte) || byte == b'%'));
            prop_assert_eq!(decoded(&encoded, Plus::Space), value.as_bytes());
        }

        #[test]
        fn normalising_twice_changes_nothing(text in "[ -~\u{e9}]{0,20}") {
            if let Ok(once) = normalise(&text) {
                prop_assert_eq!(normalise(&once), Ok(once.clone()));
            }
        }
    }
}
