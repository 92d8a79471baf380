//! Cookies of a request, by name (RFC 6265 section 4.2).

use http::HeaderMap;
use http::header::COOKIE;

/// The values of the cookies of this name, in the order they came. They may come in several fields (RFC 9113 section 8.2.3),
/// and several of one name come from different paths or hosts.
pub fn values<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h [u8]> {
    let pairs =
        headers.get_all(COOKIE).into_iter().flat_map(|field| field.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let (key, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=')?);
        // Blanks on both sides of both, as servers read it (RFC 6265 section 5.2).
        (key.trim_ascii() == name.as_bytes()).then(|| unquoted(value[1..].trim_ascii()))
    })
}

/// Some clients put quotes around a value (RFC 6265 section 4.1.1).
fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn values_are_found_by_the_whole_name_wherever_they_stand() {
        let fields = ["a=1; ab=2;b=3", "A=4; a=\"5\" ; xa=6; a", "a=; a=7=8;a = 9;\ta=\t\"10\""];
        let fields = fields.map(|field| (COOKIE, HeaderValue::from_static(field))).into_iter().collect();
        let values: Vec<&[u8]> = values(&fields, "a").collect();
        assert_eq!(values, [&b"1"[..], b"5", b"", b"7=8", b"9", b"10"]);
    }
}
