//! Hosts of routes: `api.example.com`, or `*.example.com` for one or more labels in front.
//!
//! `*.example.com` matches `a.example.com` and `a.b.example.com`, never `example.com` itself, as in Envoy, nginx and the
//! Kubernetes Gateway API. (Caddy, like a certificate, matches one label only.)

use std::borrow::Cow;
use std::num::NonZeroU32;

use crate::matching::literals::Literals;

/// One host a route answers to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
pub enum HostPattern {
    /// Exactly this name or address.
    Exact(Box<str>),
    /// One or more labels before `.` and this name.
    #[display("*.{_0}")]
    Wildcard(Box<str>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("leave `host` out to match any host")]
    Any,
    #[error("`*` matches whole labels in front only: write `*.example.com`")]
    Star,
    #[error("a host must have neither scheme nor port: the listener decides those")]
    SchemeOrPort,
    #[error("a host must not contain `{0}`: write a name such as `api.example.com`")]
    Character(char),
    #[error("a host must not contain `{0}`; write names beyond ASCII as `xn--…`")]
    BeyondAscii(char),
    #[error("a host contains a blank or comma; list several as `host = [\"a.example\", \"b.example\"]`")]
    Several,
    #[error("a label of the host is empty; for all hosts below one write `*.example.com`")]
    EmptyLabel,
}

impl HostPattern {
    /// Reads a host, ignoring case and one trailing dot.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str) -> Result<HostPattern, Error> {
        let lower = text.to_ascii_lowercase();
        let name = lower.strip_suffix('.').unwrap_or(&lower);
        if matches!(name, "" | "*") {
            return Err(Error::Any);
        }
        if let Some(address) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
            && let Ok(address) = address.parse::<std::net::Ipv6Addr>()
        {
            return Ok(HostPattern::Exact(address.to_string().into()));
        }
        let (rest, wildcard) = match name.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (name, false),
        };
        if rest.contains('*') {
            return Err(Error::Star);
        }
        if rest.contains([':', '/']) {
            return Err(Error::SchemeOrPort);
        }
        if let Some(wrong) =
            rest.chars().find(|char| !(char.is_ascii_alphanumeric() || "-_.".contains(*char)))
        {
            return Err(match wrong {
                ',' => Error::Several,
                _ if wrong.is_whitespace() => Error::Several,
                _ if wrong.is_ascii() => Error::Character(wrong),
                _ => Error::BeyondAscii(wrong),
            });
        }
        if rest.split('.').any(str::is_empty) {
            return Err(Error::EmptyLabel);
        }
        Ok(if wildcard { HostPattern::Wildcard(rest.into()) } else { HostPattern::Exact(rest.into()) })
    }

    /// Whether a request's host (lower case, without port and trailing dot) matches.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            HostPattern::Exact(name) => host == &**name,
            HostPattern::Wildcard(name) => host
                .strip_suffix(&**name)
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
        }
    }

    /// Orders hosts that match one request, the more specific last.
    pub fn specificity(&self) -> (bool, usize) {
        match self {
            HostPattern::Exact(name) => (true, name.len()),
            HostPattern::Wildcard(name) => (false, name.len()),
        }
    }
}

/// The form in which a request's authority is routed and counted: lower case, without port and trailing dot, addresses
/// normalised. Most requests have it already and are not copied.
pub fn routed(authority: &str) -> Cow<'_, str> {
    let bracketed = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    if let Some((address, _)) = bracketed {
        return match address.parse::<std::net::Ipv6Addr>() {
            Ok(address) => Cow::Owned(address.to_string()),
            Err(_) => Cow::Borrowed(authority),
        };
    }
    let host = authority.split_once(':').map_or(authority, |(host, _)| host);
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// Whether a request may name this authority: a host as routes have them, in any case and with at most one trailing
/// dot, or an IPv6 address in brackets; then an optional port. This is narrower than RFC 3986 section 3.2.2, because
/// its percent signs and delimiters occur in no real host, and which servers read in more than one way, as they do a port
/// with zeros before it. DNS has no longer name (RFC 1035 section 2.3.4).
pub fn is_authority(text: &str) -> bool {
    if let Some(rest) = text.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return address.parse::<std::net::Ipv6Addr>().is_ok()
            && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, is_port(port)),
        None => (text, true),
    };
    // It begins as if behind a dot, because a dot after a dot, or at the start, means an empty label.
    let mut before = b'.';
    let is_name = host.bytes().all(|byte| {
        let follows = byte != b'.' || before != b'.';
        before = byte;
        follows && (byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
    });
    port && is_name && (1..=NAME_BYTES_MAX).contains(&host.trim_end_matches('.').len())
}

fn is_port(text: &str) -> bool {
    let is_plain = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    is_plain && text.parse::<u16>().is_ok()
}

/// The longest name of a host, bytes without its trailing dot.
const NAME_BYTES_MAX: usize = 253;

/// Maps a request's host to the trees of paths that may answer it.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    roots: Literals,
    wildcard_bytes_max: usize,
}

impl Hosts {
    /// The root of a host, made by `make` if there is none yet.
    pub fn root(&mut self, host: &HostPattern, make: impl FnOnce() -> NonZeroU32) -> NonZeroU32 {
        let (kind, name) = match host {
            HostPattern::Exact(name) => (EXACT, name),
            HostPattern::Wildcard(name) => (WILDCARD, name),
        };
        if kind == WILDCARD {
            self.wildcard_bytes_max = self.wildcard_bytes_max.max(name.len());
        }
        self.roots.find(kind, name).unwrap_or_else(|| {
            let root = make();
            self.roots.insert(kind, name, root);
            root
        })
    }

    /// The roots of the hosts that match, the most specific first. At most one lookup for each dot within the
    /// longest wildcard's length of the host's end, however long the host is.
    pub fn roots(&self, host: &str) -> impl Iterator<Item = NonZeroU32> {
        let first = match self.wildcard_bytes_max {
            0 => host.len(),
            longest => host.len().saturating_sub(longest + 1).max(1),
        };
        let dots = host.bytes().enumerate().skip(first).filter(|(_, byte)| *byte == b'.');
        let wildcards = dots.filter_map(|(dot, _)| self.roots.find(WILDCARD, &host[dot + 1..]));
        self.roots.find(EXACT, host).into_iter().chain(wildcards)
    }
}

/// The parents that hosts have in their table.
const EXACT: u32 = 0;
const WILDCARD: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_wildcards_and_addresses() {
        assert_eq!(HostPattern::parse("API.Example.com."), Ok(HostPattern::Exact("api.example.com".into())));
        assert_eq!(HostPattern::parse("*.example.com"), Ok(HostPattern::Wildcard("example.com".into())));
        assert_eq!(HostPattern::parse("[0:0::1]"), Ok(HostPattern::Exact("::1".into())));
        assert_eq!(HostPattern::parse("10.0.0.1"), Ok(HostPattern::Exact("10.0.0.1".into())));
        assert_eq!(HostPattern::parse("*"), Err(Error::Any));
        assert_eq!(HostPattern::parse("a.*.com"), Err(Error::Star));
        assert_eq!(HostPattern::parse("*a.com"), Err(Error::Star));
        assert_eq!(HostPattern::parse("a.com:80"), Err(Error::SchemeOrPort));
        assert_eq!(HostPattern::parse("http://a.com"), Err(Error::SchemeOrPort));
        assert_eq!(HostPattern::parse("b\u{fc}ro.de"), Err(Error::BeyondAscii('\u{fc}')));
        assert_eq!(HostPattern::parse("a.com b.com"), Err(Error::Several));
        assert_eq!(HostPattern::parse("a.com\tb.com"), Err(Error::Several));
        assert_eq!(HostPattern::parse("a_b%.com"), Err(Error::Character('%')));
        assert_eq!(HostPattern::parse("a..com"), Err(Error::EmptyLabel));
        assert_eq!(HostPattern::parse("*..com"), Err(Error::EmptyLabel));
    }

    #[test]
    fn a_request_names_a_host_and_perhaps_a_port() {
        for good in ["a", "A.example.", "a_b.example:8080", "10.0.0.1", "[::1]", "[::1]:443", "a:0"] {
            assert!(is_authority(good), "{good}");
        }
        let name = |bytes| ["a"].repeat(bytes).join("");
        assert!(is_authority(&format!("{}.:80", name(253))) && !is_authority(&name(254)));
        for bad in [
            "",
            ".",
            "a..b",
            ".a",
            "a:",
            "a:b",
            "a:99999",
            "a:080",
            "a:00",
            "[::1]:080",
            "a:+1",
            "a:1:2",
            ":80",
            "u@a",
            "a/b",
            "a b",
            "a,b",
            "%61",
            "::1",
            "[::1",
            "[]",
            "[a]",
            "[::1]x",
            "[::1]:",
            "caf\u{e9}",
            "*.a",
            "a\\b",
            "a\u{0}",
        ] {
            assert!(!is_authority(bad), "{bad}");
        }
    }

    #[test]
    fn a_host_is_one_whatever_its_spelling() {
        for text in ["api.example.com", "API.example.COM", "api.example.com.", "Api.example.com.:8443"] {
            assert_eq!(routed(text), "api.example.com");
        }
        for text in ["[::1]", "[0:0::1]", "[::1]:80", "[0000::0001]:443"] {
            assert_eq!(routed(text), "::1");
        }
        assert_eq!(routed(""), "");
    }

    #[test]
    fn roots_come_from_specific_to_general() {
        let mut hosts = Hosts::default();
        for (text, number) in ["example.com", "*.example.com", "*.com", "*.a.example.com"].iter().zip(1..) {
            let host = HostPattern::parse(text).expect("a valid host");
            hosts.root(&host, || NonZeroU32::new(number).expect("counted from 1"));
        }
        let roots = |host: &str| hosts.roots(host).map(NonZeroU32::get).collect::<Vec<_>>();
        assert_eq!(roots("example.com"), [1, 3]);
        assert_eq!(roots("x.example.com"), [2, 3]);
        assert_eq!(roots("x.a.example.com"), [4, 2, 3]);
        assert_eq!(roots("y.x.a.example.com"), [4, 2, 3]);
        assert_eq!(roots("xexample.com"), [3]);
        assert!(roots(".com").is_empty() && roots("com").is_empty() && roots("").is_empty());
    }

    #[test]
    fn a_wildcard_needs_a_label_in_front() {
        let wildcard = HostPattern::Wildcard("example.com".into());
        assert!(wildcard.matches("a.example.com") && wildcard.matches("a.b.example.com"));
        assert!(!wildcard.matches("example.com") && !wildcard.matches(".example.com"));
        assert!(!wildcard.matches("aexample.com"));
    }
}
