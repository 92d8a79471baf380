//! The one form of a request's path: what routes, limits and upstreams are all shown.
//!
//! Bytes that may stand as they are do, others are encoded with upper-case digits, slashes are merged and dot
//! segments resolved (RFC 3986 section 6.2.2). What servers read in more than one way is refused instead of guessed:
//! whoever decodes once more than the gateway would see a path that no limit has counted.

use std::borrow::Cow;

use super::percent::{self, hex, is_path_byte, is_unreserved};

/// Why a path has no such form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub enum Error {
    /// `%` without two hex digits.
    Percent,
    /// `%2F`, `%5C` or `\`: a slash to some servers and none to others.
    Slash,
    /// `%00`: the end of the path to some servers.
    Nul,
    /// `%25` before two hex digits: another path to whoever decodes twice.
    Twice,
}

impl Error {
    /// In words that repeat nothing of the request.
    pub fn text(self) -> &'static str {
        match self {
            Error::Percent => "the path has a % without two hex digits",
            Error::Slash => "the path has an encoded slash or a backslash",
            Error::Nul => "the path has an encoded NUL",
            Error::Twice => "the path is encoded twice",
        }
    }
}

/// A path that begins with `/` in its one form. Borrowed where it has it already, as most have.
///
/// # Errors
/// Where servers would read it in more than one way.
pub fn canonical(path: &str) -> Result<Cow<'_, str>, Error> {
    if is_canonical(path.as_bytes()) {
        refuse_ambiguous(path.as_bytes())?;
        return Ok(Cow::Borrowed(path));
    }
    let encoded = percent::normalise(path).map_err(|_| Error::Percent)?;
    // Looked at in this form only: decoding may have put together what stood apart (`%25%41%41`).
    refuse_ambiguous(encoded.as_bytes())?;
    Ok(Cow::Owned(resolved(&encoded)))
}

fn refuse_ambiguous(encoded: &[u8]) -> Result<(), Error> {
    for (at, _) in encoded.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        match decoded(encoded, at) {
            Some(b'/' | b'\\') => return Err(Error::Slash),
            Some(0) => return Err(Error::Nul),
            Some(b'%') if is_digits(encoded, at + 3) => return Err(Error::Twice),
            _ => {}
        }
    }
    Ok(())
}

/// Whether there is nothing to change, in one pass and without a copy.
fn is_canonical(path: &[u8]) -> bool {
    let mut slash = false;
    for (at, &byte) in path.iter().enumerate() {
        let stays = match byte {
            b'%' => is_canonical_triplet(&path[at..]),
            b'/' => !slash,
            b'.' if slash => !is_dot_segment(&path[at..]),
            byte => is_path_byte(byte),
        };
        if !stays {
            return false;
        }
        slash = byte == b'/';
    }
    true
}

/// `%XY` in upper case, of a byte that must be encoded.
fn is_canonical_triplet(rest: &[u8]) -> bool {
    let upper = rest[1..].iter().take(2).all(|digit| !digit.is_ascii_lowercase());
    upper && decoded(rest, 0).is_some_and(|byte| !is_unreserved(byte))
}

/// Whether the segment that begins here is `.` or `..`.
fn is_dot_segment(rest: &[u8]) -> bool {
    let segment = rest.split(|&byte| byte == b'/').next().unwrap_or_default();
    matches!(segment, b"." | b"..")
}

/// Merges slashes and resolves dot segments (RFC 3986 section 5.2.4); nothing leads above the root. A slash at the
/// end stays, and a dot segment there leaves one.
fn resolved(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut ends_in_slash = true;
    for segment in path.split('/') {
        ends_in_slash = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => out.truncate(out.rfind('/').unwrap_or(0)),
            segment => {
                out.push('/');
                out.push_str(segment);
            }
        }
    }
    if ends_in_slash {
        out.push('/');
    }
    out
}

/// The byte that `%XY` at this offset stands for.
fn decoded(path: &[u8], at: usize) -> Option<u8> {
    let digit = |offset: usize| path.get(at + offset).copied().and_then(hex);
    Some(digit(1)? << 4 | digit(2)?)
}

fn is_digits(path: &[u8], at: usize) -> bool {
    path.get(at..at + 2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_one_path_become_one() {
        for (spelled, form) in [
            ("/", "/"),
            ("//", "/"),
            ("/a//b", "/a/b"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/../../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/a/", "/a/"),
            ("/%7euser/%c3%a9", "/~user/%C3%A9"),
            ("/caf\u{e9}|\"x\"", "/caf%C3%A9%7C%22x%22"),
            ("/limite%64", "/limited"),
            ("/a%3ab", "/a%3Ab"),
        ] {
            assert_eq!(canonical(spelled).as_deref(), Ok(form), "{spelled}");
        }
    }

    #[test]
    fn what_has_the_form_is_not_copied() {
        for path in
            ["/", "/v1/orders/7", "/a/", "/.well-known/x", "/a/..b/...", "/caf%C3%A9", "/a:b@c;d=e,f+g"]
        {
            assert!(matches!(canonical(path), Ok(Cow::Borrowed(same)) if same == path), "{path}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for (path, error) in [
            ("/a%2fb", Error::Slash),
            ("/a%2Fb", Error::Slash),
            ("/a%5cb", Error::Slash),
            ("/a\\b", Error::Slash),
            ("/a%00", Error::Nul),
            ("/%252e%252e/", Error::Twice),
            ("/%25%41%61", Error::Twice),
            ("/a%2", Error::Percent),
            ("/a%zz", Error::Percent),
        ] {
            assert_eq!(canonical(path), Err(error), "{path}");
        }
        assert_eq!(canonical("/50%25").as_deref(), Ok("/50%25"), "a percent sign may stand in a path");
    }

    proptest! {
        #[test]
        fn the_form_is_its_own_form(path in "/([a-z.\u{e9}\"]{0,3}|/|%2[eE]|%[46][1-9]|%25){0,12}") {
            if let Ok(once) = canonical(&path) {
                prop_assert!(once.starts_with('/') && !once.contains("//"));
                prop_assert!(once.split('/').all(|segment| segment != "." && segment != ".."));
                let once = once.into_owned();
                prop_assert!(matches!(canonical(&once), Ok(Cow::Borrowed(same)) if same == once), "{once}");
            }
        }
    }
}
