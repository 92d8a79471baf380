//! The canonical form of a request's path, which routes, limits and upstreams all get.
//!
//! Unreserved bytes are decoded, others encoded with upper-case digits, slashes merged and dot segments resolved (RFC
//! 3986 section 6.2.2). A path that servers read in more than one way is refused, because an upstream that decodes
//! once more than the gateway would serve a path that no limit has counted.

use std::borrow::Cow;

use crate::percent;
use crate::percent::{Plus, decoded, is_path_byte, is_unreserved};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub enum Error {
    /// `%` without two hex digits.
    Percent,
    /// `%00` to `%1F`, `%7F`: the end of the path to some servers, of a line to others.
    Control,
    /// A character in more bytes than it takes (RFC 3629 section 3): a slash to whoever does not look.
    Overlong,
    /// A dot segment to whoever decodes what a route may keep.
    Climbs,
    /// `%2F`, `%5C` or `\`: a slash to some servers and none to others.
    Slash,
    /// `%25` before two hex digits: another path to whoever decodes twice.
    Twice,
    /// `;` or `%3B`: the begin of a parameter to some servers (RFC 3986 section 3.3), who look for the path without it.
    Parameter,
}

/// A path in its canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canonical<'p> {
    /// The form. Borrowed where the path has it already, as most have.
    pub path: Cow<'p, str>,
    /// Why servers may read it in more than one way. It is refused then, unless the route keeps such paths.
    pub doubt: Option<Error>,
}

impl Error {
    /// The message, which repeats nothing of the request.
    pub fn text(self) -> &'static str {
        match self {
            Error::Percent => "the path has a % without two hex digits",
            Error::Control => "the path has an encoded control character",
            Error::Overlong => "the path has a character in overlong UTF-8",
            Error::Climbs => "the path has an encoded `.` or `..` segment",
            Error::Slash => "the path has an encoded slash or a backslash",
            Error::Twice => "the path is percent-encoded twice",
            Error::Parameter => "the path has a semicolon",
        }
    }
}

/// The canonical form of a path that begins with `/`.
///
/// # Errors
/// If the path is so ambiguous that no route may keep it.
pub fn canonical(path: &str) -> Result<Canonical<'_>, Error> {
    if is_canonical(path.as_bytes()) {
        let doubt = doubt(path.as_bytes())?;
        return Ok(Canonical { path: Cow::Borrowed(path), doubt });
    }
    let encoded = percent::normalise(path).map_err(|_| Error::Percent)?;
    // Checked after encoding, because decoding may have joined what was apart (`%25%41%41`).
    let doubt = doubt(encoded.as_bytes())?;
    Ok(Canonical { path: Cow::Owned(resolved(&encoded)), doubt })
}

/// The first thing in an encoded path that servers read in more than one way.
fn doubt(encoded: &[u8]) -> Result<Option<Error>, Error> {
    let mut doubt = None;
    for at in memchr::memchr2_iter(b'%', b';', encoded) {
        if encoded[at] == b';' {
            doubt = doubt.or(Some(Error::Parameter));
            continue;
        }
        match decoded(encoded, at) {
            Some(0..=0x1f | 0x7f) => return Err(Error::Control),
            Some(b'/' | b'\\') => doubt = doubt.or(Some(Error::Slash)),
            Some(b';') => doubt = doubt.or(Some(Error::Parameter)),
            Some(b'%') if is_digits(encoded, at + 3) => doubt = doubt.or(Some(Error::Twice)),
            Some(lead @ (0xc0 | 0xc1 | 0xe0 | 0xf0)) if is_overlong(lead, decoded(encoded, at + 3)) => {
                return Err(Error::Overlong);
            }
            _ => {}
        }
    }
    if doubt.is_some() && climbs(encoded) { Err(Error::Climbs) } else { Ok(doubt) }
}

/// Whether a sequence of UTF-8 that begins with these bytes is overlong.
fn is_overlong(lead: u8, next: Option<u8>) -> bool {
    let below = match lead {
        0xe0 => 0xa0,
        0xf0 => 0x90,
        _ => 0xc0,
    };
    next.is_some_and(|next| (0x80..below).contains(&next))
}

/// Whether dot segments come out where the path is decoded once or twice more, backslashes are slashes and parameters
/// are dropped: what a server may do with what a route keeps.
fn climbs(encoded: &[u8]) -> bool {
    let mut path = encoded.to_vec();
    for _ in 0..DECODINGS_MAX {
        let mut segments = path.split(|byte| matches!(byte, b'/' | b'\\'));
        let name = |segment: &[u8]| segment.iter().position(|&byte| byte == b';').unwrap_or(segment.len());
        if segments.any(|segment| matches!(&segment[..name(segment)], b"." | b"..")) {
            return true;
        }
        let Ok(text) = std::str::from_utf8(&path) else { return false };
        let next: Vec<u8> = percent::decode(text, Plus::Itself).collect();
        if next == path {
            return false;
        }
        path = next;
    }
    true
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

fn is_digits(path: &[u8], at: usize) -> bool {
    path.get(at..at + 2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// How often a path is decoded to look for what it hides. One that is not plain by then is refused.
const DECODINGS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The form, where nothing about it is in doubt.
    fn form(path: &str) -> Result<String, Error> {
        let canonical = canonical(path)?;
        canonical.doubt.map_or(Ok(canonical.path.into_owned()), Err)
    }

    #[test]
    fn spellings_of_one_path_become_one() {
        for (spelled, form_of) in [
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
            ("/%c0%20%e9t%e9", "/%C0%20%E9t%E9"),
            ("/voil%e0/90", "/voil%E0/90"),
            ("/%c0//%41%41", "/%C0/AA"),
        ] {
            assert_eq!(form(spelled).as_deref(), Ok(form_of), "{spelled}");
        }
    }

    #[test]
    fn what_has_the_form_is_not_copied() {
        for path in ["/", "/v1/orders/7", "/a/", "/.well-known/x", "/a/..b/...", "/caf%C3%A9", "/a:b@c=e,f+g"]
        {
            assert!(
                matches!(canonical(path), Ok(Canonical { path: Cow::Borrowed(same), doubt: None }) if same == path),
                "{path}"
            );
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for (path, error) in [
            ("/a%2fb", Error::Slash),
            ("/a%2Fb", Error::Slash),
            ("/a%5cb", Error::Slash),
            ("/a\\b", Error::Slash),
            ("/a%00", Error::Control),
            ("/a%0d%0ab", Error::Control),
            ("/a%1b%7f", Error::Control),
            ("/%2561/", Error::Twice),
            ("/%25%41%61", Error::Twice),
            ("/a%2", Error::Percent),
            ("/a%zz", Error::Percent),
            ("/a;b=c/d", Error::Parameter),
            ("/a;", Error::Parameter),
            ("/a%3bb", Error::Parameter),
            ("/a%3B", Error::Parameter),
            ("/%c0%af", Error::Overlong),
            ("/%c1%9c", Error::Overlong),
            ("/%c0%ae%c0%ae/", Error::Overlong),
            ("/%e0%80%af", Error::Overlong),
            ("/%f0%80%80%af", Error::Overlong),
        ] {
            assert_eq!(form(path), Err(error), "{path}");
        }
        assert_eq!(form("/50%25").as_deref(), Ok("/50%25"), "a percent sign may stand in a path");
    }

    #[test]
    fn what_a_route_may_keep_hides_no_way_up() {
        for path in
            ["/a%2Fb", "/a%5Cb", "/a%252Fb", "/a;b=c", "/a%2F..b", "/a%2F%2Fb", "/..a%2Fb", "/%252561"]
        {
            let kept = canonical(path).expect("a route may keep it");
            assert!(kept.path == path && kept.doubt.is_some(), "{path}: {kept:?}");
        }
        for path in [
            "/a%2F..%2Fb",
            "/a/..%2Fb",
            "/a%2F..",
            "/..%5Cb",
            "/a/..;/b",
            "/a/.;x/b",
            "/a/..;x=%2F/b",
            "/a/..%3b/b",
            "/a/..%3Bx/b",
            "/a/.%3b/b",
            "/a/%252e.%253b/b",
            "/a/%252e%252e/b",
            "/a/%25252e%25252e/b",
            "/a%252F..%252Fb",
            "/a%255C..",
            "/%2525252525252561",
        ] {
            assert_eq!(canonical(path), Err(Error::Climbs), "{path}");
        }
    }

    proptest! {
        #[test]
        fn the_form_is_its_own_form(
            path in "/([a-z.\u{e9}\"]{0,3}|/|;|%2[eEfF]|%5c|%[46][1-9]|%25|%c0|%[89a]0){0,12}",
        ) {
            if let Ok(Canonical { path: once, doubt }) = canonical(&path) {
                prop_assert!(once.starts_with('/') && !once.contains("//"));
                prop_assert!(once.split('/').all(|segment| segment != "." && segment != ".."));
                let once = once.into_owned();
                let again = canonical(&once);
                // A segment that was in doubt may have been resolved away with the one above it.
                prop_assert!(
                    matches!(&again, Ok(Canonical { path: Cow::Borrowed(same), .. }) if *same == once),
                    "{once}: {again:?}"
                );
                prop_assert!(doubt.is_some() || again.is_ok_and(|again| again.doubt.is_none()));
            }
        }

        #[test]
        fn what_is_not_in_doubt_means_one_path_however_often_it_is_decoded(path in "/[a-c./%;25fFeE\\\\]{0,16}") {
            if let Ok(once) = form(&path) {
                let again: Vec<u8> = percent::decode(&once, Plus::Itself).collect();
                let segments = |path: &[u8]| path.iter().filter(|&&byte| byte == b'/').count();
                prop_assert_eq!(segments(&again), segments(once.as_bytes()), "{} and {:?}", once, again);
                let mut split = again.split(|byte| matches!(byte, b'/' | b'\\'));
                prop_assert!(split.all(|segment| segment != b"." && segment != b".."));
            }
        }
    }
}
