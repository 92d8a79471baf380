//! What is refused before a route is looked for, and what a target means: one place for the shape of a request.

use std::borrow::Cow;

use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Uri, Version, request};

use super::config::Sizes;
use super::headers;
use super::reply::Refusal;
use crate::policy::path;

/// Refuses what hyper lets through and a gateway must not pass on.
pub fn head(head: &request::Parts, max: &Sizes) -> Result<(), Refusal> {
    if matches!(head.method, Method::CONNECT | Method::TRACE) {
        // A tunnel is no gateway's, and TRACE would show a client what the gateway adds (RFC 9110 section 9.3.8).
        return Err(Refusal::MethodNotServed);
    }
    if length(&head.uri) > max.uri_bytes {
        return Err(Refusal::UriTooLong);
    }
    // hyper counts HTTP/1's fields and bytes itself; of HTTP/2 it bounds only the bytes, and answers without us.
    if head.version == Version::HTTP_2 && over(&head.headers, max) {
        return Err(Refusal::HeadersTooLarge);
    }
    one_authority(head)?;
    if !head.uri.path().starts_with('/') {
        return Err(Refusal::Malformed("the request target is not a path"));
    }
    Ok(())
}

/// Brings the target's path into its one form, before anybody reads it: what is routed and counted is what is
/// forwarded. The query stays as it is. Costs no copy where there is nothing to change.
pub fn normalise(uri: &mut Uri) -> Result<(), Refusal> {
    let path = match path::canonical(uri.path()) {
        Ok(Cow::Borrowed(_)) => return Ok(()),
        Ok(Cow::Owned(path)) => path,
        Err(error) => return Err(Refusal::Malformed(error.text())),
    };
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let mut parts = std::mem::take(uri).into_parts();
    // Encoding makes a path longer, and there is a length that no target can have.
    parts.path_and_query = Some(PathAndQuery::from_maybe_shared(target).map_err(|_| Refusal::UriTooLong)?);
    *uri = Uri::from_parts(parts).map_err(|_| Refusal::Malformed("the request target is not a path"))?;
    Ok(())
}

fn length(uri: &Uri) -> usize {
    uri.path_and_query().map_or(0, |target| target.as_str().len())
        + uri.authority().map_or(0, |authority| authority.as_str().len())
}

/// More fields, or more bytes of them, than the listener takes; a field counts as RFC 9113 section 6.5.2 counts it.
fn over(headers: &HeaderMap, max: &Sizes) -> bool {
    let bytes: usize =
        headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD).sum();
    headers.len() > max.headers || bytes > max.header_bytes
}

/// A request names exactly one authority (RFC 9112 section 3.2); only HTTP/1.0 may name none.
fn one_authority(head: &request::Parts) -> Result<(), Refusal> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::Malformed("more than one Host"));
    }
    match (head.uri.authority(), host) {
        (None, None) if head.version == Version::HTTP_10 => Ok(()),
        (None, None) => Err(Refusal::Malformed("no Host")),
        (Some(authority), _) if authority.as_str().contains('@') => {
            Err(Refusal::Malformed("user information in the request target"))
        }
        (Some(authority), Some(host))
            if !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) =>
        {
            Err(Refusal::Malformed("Host and request target name different authorities"))
        }
        (Some(authority), _) if !is_authority(authority.as_str().as_bytes()) => {
            Err(Refusal::Malformed("the request target names no host"))
        }
        (None, Some(host)) if !is_authority(host.as_bytes()) => Err(Refusal::Malformed("Host is not a host")),
        _ => Ok(()),
    }
}

/// `host [":" port]` (RFC 3986 section 3.2) without user information: nothing in which readers find different hosts.
fn is_authority(text: &[u8]) -> bool {
    let split = |at: usize| text.split_at_checked(at).unwrap_or((text, b""));
    let end_of = |end: u8| text.iter().position(|&byte| byte == end).unwrap_or(text.len());
    let (is_host, port) = if text.starts_with(b"[") {
        let (address, port) = split(end_of(b']') + 1);
        (is_ipv6(address), port)
    } else {
        let (host, port) = split(end_of(b':'));
        (host.iter().all(|&byte| is_host_byte(byte)), port)
    };
    is_host && matches!(port, [] | [b':', ..]) && port.iter().skip(1).all(u8::is_ascii_digit)
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte)
}

/// `[…]` around an IPv6 address.
fn is_ipv6(literal: &[u8]) -> bool {
    let inner = literal.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    let text = inner.and_then(|inner| std::str::from_utf8(inner).ok());
    text.is_some_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

/// The host to route by: lower case, without port and trailing dot. Most come that way and are not copied.
pub fn host(authority: &HeaderValue) -> Cow<'_, str> {
    let host = headers::bare_host(authority.to_str().unwrap_or_default());
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// The same URL over https, on its usual port.
pub fn https_location(host: &str, uri: &Uri) -> Option<HeaderValue> {
    if host.is_empty() {
        return None;
    }
    let host = if host.contains(':') { Cow::Owned(format!("[{host}]")) } else { Cow::Borrowed(host) };
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    HeaderValue::from_str(&format!("https://{host}{target}")).ok()
}

/// What a field costs beside its bytes (RFC 9113 section 6.5.2).
const FIELD_OVERHEAD: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(target: &str, version: Version, lines: &[(&str, &str)]) -> request::Parts {
        let mut builder = http::Request::builder().uri(target).version(version);
        for &(name, value) in lines {
            builder = builder.header(name, value);
        }
        builder.body(()).expect("a request").into_parts().0
    }

    fn refused(target: &str, version: Version, lines: &[(&str, &str)]) -> Option<u16> {
        let refusal = head(&parts(target, version, lines), &Sizes::default()).err()?;
        Some(refusal.status().as_u16())
    }

    #[test]
    fn exactly_one_authority() {
        let h1 = |target: &str, lines: &[(&str, &str)]| refused(target, Version::HTTP_11, lines);
        assert_eq!(h1("/", &[("host", "a.example")]), None);
        assert_eq!(h1("/", &[]), Some(400));
        assert_eq!(refused("/", Version::HTTP_10, &[]), None);
        assert_eq!(h1("/", &[("host", "a"), ("host", "a")]), Some(400));
        assert_eq!(h1("/", &[("host", "a/b")]), Some(400));
        assert_eq!(h1("/", &[("host", "u@a")]), Some(400));
        for not_one in ["[.", "[::1", "[a]", "[::1]x", "a:b", "a:80:90", "a]b", "a[::1]"] {
            assert_eq!(h1("/", &[("host", not_one)]), Some(400), "{not_one}");
        }
        for one in ["a:", "a.example.:8443", "[::1]:80", "[2001:db8::7]", "127.0.0.1:80"] {
            assert_eq!(h1("/", &[("host", one)]), None, "{one}");
        }
        assert_eq!(h1("http://a.example/", &[("host", "A.example")]), None);
        assert_eq!(h1("http://a.example/", &[("host", "b.example")]), Some(400));
        assert_eq!(h1("http://u@a.example/", &[]), Some(400));
    }

    #[test]
    fn sizes_have_their_own_answers() {
        let long = "/".to_owned() + &"a".repeat(9_000);
        assert_eq!(refused(&long, Version::HTTP_11, &[("host", "a")]), Some(414));
        let many: Vec<(&str, &str)> = vec![("x", "1"); 101];
        assert_eq!(refused("https://a/", Version::HTTP_2, &many), Some(431));
    }

    #[test]
    fn a_target_has_one_path_and_keeps_its_query() {
        let normalised = |target: &'static str| {
            let mut uri = Uri::from_static(target);
            normalise(&mut uri).map(|()| uri.to_string()).map_err(|refusal| refusal.status().as_u16())
        };
        assert_eq!(normalised("/a/../%62?x=%2e%2e//").as_deref(), Ok("/b?x=%2e%2e//"));
        assert_eq!(normalised("https://h:8443//a/.").as_deref(), Ok("https://h:8443/a/"));
        assert_eq!(normalised("http://h").as_deref(), Ok("http://h/"));
        assert_eq!(normalised("/a%2fb"), Err(400));
    }

    #[test]
    fn https_keeps_path_and_query() {
        let location = |host: &str| https_location(host, &Uri::from_static("/a?b=c"));
        assert_eq!(location("a.example").expect("a location"), "https://a.example/a?b=c");
        assert_eq!(location("::1").expect("a location"), "https://[::1]/a?b=c");
        assert_eq!(location(""), None);
    }
}
