//! Parameters of a query, by name. `&` separates them (WHATWG URL, application/x-www-form-urlencoded); some servers take
//! `;` for it too, as HTML 4 advised, so a parameter beside one has two readings and is told apart here.

use super::percent::{self, Plus};

/// Whether this is the parameter's name. Names are compared decoded: `%61pi_key` is `api_key`.
pub fn is_named(key: &str, name: &str) -> bool {
    percent::decode(key, Plus::Space).eq(name.bytes())
}

/// The name in a part of a query.
pub fn key_of(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(key, _)| key)
}

/// Whether a part between two `&` has the parameter, in either reading.
pub fn holds(part: &str, name: &str) -> bool {
    part.split(';').any(|pair| is_named(key_of(pair), name))
}

/// Whether servers that separate at `&` only and servers that separate at `;` too read the parameter differently.
pub fn is_ambiguous(query: &str, name: &str) -> bool {
    memchr::memchr(b';', query.as_bytes()).is_some()
        && query.split('&').any(|part| part.contains(';') && holds(part, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_beside_a_semicolon_has_two_readings() {
        for query in ["k=v;k=w", "x;k=v", "k=v;x=1", "k=v;", "a&x;%6b=v&b", "k;", ";k"] {
            assert!(is_ambiguous(query, "k"), "{query}");
        }
        for query in ["k=v", "k=v%3Bw&x", "k=v&x=1;y=2", "a;b", "kk=v;x", ""] {
            assert!(!is_ambiguous(query, "k"), "{query}");
        }
    }
}
