//! Conditional changes: `ETag`, `If-Match`, `If-None-Match` (RFC 9110 section 13), and `Idempotency-Key`.
//!
//! The tag of a row is its version, so that a client that has read version 7 can ask that nobody changed it since.

use http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue};

use crate::admin::api::reading::fields::{At, Flaw};
use crate::database::Expect;

/// What a client expects of the row that it changes.
pub(in crate::admin) fn expected(headers: &HeaderMap) -> Result<Expect, Flaw> {
    let tag = only(headers, &IF_MATCH, "if-match")?;
    let none = only(headers, &IF_NONE_MATCH, "if-none-match")?;
    match (tag, none) {
        (_, Some(none)) if none != b"*" => {
            Err(flaw("if-none-match", "must be `*`, which means that the row must not exist yet"))
        }
        (None, None) => Ok(Expect::Anything),
        (None, Some(_)) => Ok(Expect::Nothing),
        // Never met, because one or the other does not hold, whatever there is (RFC 9110 section 13.2.2).
        (Some(_), Some(_)) => Ok(Expect::Version(NO_VERSION)),
        (Some(b"*"), None) => Ok(Expect::Something),
        (Some(tag), None) if tag.contains(&b',') => {
            Err(flaw("if-match", "must be one tag, the value of `ETag`"))
        }
        // Never met either, because a tag that is not ours is no row's.
        (Some(tag), None) => Ok(Expect::Version(version(tag).unwrap_or(NO_VERSION))),
    }
}

pub(in crate::admin) fn etag(version: i64) -> HeaderValue {
    // Cannot fail, because digits between quotes are valid in a field value.
    HeaderValue::try_from(format!("\"{version}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// The `Idempotency-Key`, if there is one: 1 to 255 visible characters, with or without quotes around them
/// (draft-ietf-httpapi-idempotency-key-header-07 section 2.1 has them).
pub(in crate::admin) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Flaw> {
    let Some(key) = only(headers, &IDEMPOTENCY_KEY, IDEMPOTENCY_KEY_NAME)? else { return Ok(None) };
    let is_usable = (1..=KEY_BYTES_MAX).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    match std::str::from_utf8(key) {
        Ok(key) if is_usable => Ok(Some(key.to_owned())),
        _ => Err(flaw(IDEMPOTENCY_KEY_NAME, "must have 1 to 255 visible ASCII characters")),
    }
}

/// Version of a strong tag. A weak one matches no row (RFC 9110 section 13.1.1).
fn version(tag: &[u8]) -> Option<i64> {
    let digits = std::str::from_utf8(tag).ok()?.strip_prefix('"')?.strip_suffix('"')?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)?.parse().ok()
}

/// The value of a field that must not come twice.
fn only<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    shown: &'static str,
) -> Result<Option<&'h [u8]>, Flaw> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.as_bytes().trim_ascii());
    if values.next().is_some() { Err(flaw(shown, "was sent more than once")) } else { Ok(first) }
}

fn flaw(name: &'static str, detail: &str) -> Flaw {
    Flaw { at: At::Header(name), detail: format!("`{name}` {detail}") }
}

/// A version that no row has, because they count from 1.
const NO_VERSION: i64 = -1;
const IDEMPOTENCY_KEY_NAME: &str = "idempotency-key";
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static(IDEMPOTENCY_KEY_NAME);
const KEY_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let named = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        named.for_each(|(name, value)| {
            headers.append(name, value);
        });
        headers
    }

    #[test]
    fn a_condition_holds_for_the_version_that_it_names() {
        for (fields, absent, at_7) in [
            (&[][..], true, true),
            (&[("if-match", "\"7\"")][..], false, true),
            (&[("if-match", " \"7\" ")], false, true),
            (&[("if-match", "\"8\"")], false, false),
            (&[("if-match", "*")], false, true),
            (&[("if-match", "W/\"7\"")], false, false),
            (&[("if-match", "7")], false, false),
            (&[("if-match", "\"+7\"")], false, false),
            (&[("if-none-match", "*")], true, false),
            (&[("if-match", "*"), ("if-none-match", "*")], false, false),
            (&[("if-match", "\"7\""), ("if-none-match", "*")], false, false),
        ] {
            let expected = expected(&headers(fields)).expect("it can be read");
            let met = (expected.is_met(None), expected.is_met(Some(7)));
            assert_eq!(met, (absent, at_7), "{fields:?}");
        }
        assert_eq!(etag(7), "\"7\"");
        for fields in [
            &[("if-match", "\"7\", \"8\"")][..],
            &[("if-match", "\"7\""), ("if-match", "\"7\"")],
            &[("if-none-match", "\"7\"")],
            &[("if-match", "*"), ("if-none-match", "\"7\"")],
        ] {
            assert!(expected(&headers(fields)).is_err(), "{fields:?}");
        }
    }

    #[test]
    fn an_idempotency_key_is_a_short_visible_text() {
        let key = |value| idempotency_key(&headers(&[("idempotency-key", value)]));
        assert_eq!(key("8e03978e-40d5"), Ok(Some("8e03978e-40d5".to_owned())));
        assert_eq!(key("\"a\""), Ok(Some("\"a\"".to_owned())));
        assert_eq!(idempotency_key(&HeaderMap::new()), Ok(None));
        assert!(key("").is_err() && key("a b").is_err());
        assert!(idempotency_key(&headers(&[("idempotency-key", "a"), ("idempotency-key", "a")])).is_err());
    }
}
