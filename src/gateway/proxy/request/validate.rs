//! Validates the head of a request before routing, and normalises its target. Framing has been checked before, in
//! `wire::http1`.

use std::borrow::Cow;

use http::header::{CONTENT_LENGTH, HOST};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Uri, Version, request};

use crate::proxy::headers;
use crate::proxy::headers::HeadersPresent;
use crate::service::config::{Sizes, Underscores};
use crate::service::refusal::Refusal;
use policy::definition::{HTTPS_PORT, HttpsRedirect};
use policy::matching::host::is_authority;
use policy::matching::path;
use policy::matching::path::Canonical;

/// Refuses heads that hyper accepts but a gateway must not pass on.
pub fn head(
    head: &request::Parts,
    present: HeadersPresent,
    max: &Sizes,
    underscores: Underscores,
) -> Result<(), Refusal> {
    if matches!(head.method, Method::CONNECT | Method::TRACE) {
        // Refused, because CONNECT is for forward proxies, and TRACE would show a client the fields that the gateway
        // adds (RFC 9110 section 9.3.8).
        return Err(Refusal::MethodNotServed);
    }
    if length(&head.uri) > max.uri_bytes {
        return Err(Refusal::UriTooLong);
    }
    if head.version == Version::HTTP_2 {
        of_http2(&head.headers, max)?;
    }
    if head.uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS) {
        return Err(Refusal::Malformed("the scheme of the request target must be http or https"));
    }
    one_authority(head)?;
    headers::check_named(&head.headers, present).map_err(Refusal::Malformed)?;
    if present.underscore && underscores == Underscores::Refuse {
        // Refused, because CGI and its successors read `x_real_ip` as `X-Real-IP` (RFC 3875 section 4.1.18).
        return Err(Refusal::Malformed("a header name has an underscore: write `-` instead"));
    }
    if present.expect && !headers::expects_continue_only(&head.headers) {
        return Err(Refusal::ExpectationFailed);
    }
    if !head.uri.path().starts_with('/') && !asks_server(head) {
        return Err(Refusal::Malformed("the request target is not a path"));
    }
    Ok(())
}

/// Whether a request asks what the server as a whole can do (RFC 9110 section 9.3.7): `OPTIONS *`.
pub fn asks_server(head: &request::Parts) -> bool {
    head.method == Method::OPTIONS && head.uri.path() == "*"
}

/// Refuses a request for another host than the TLS connection was made to (RFC 9110 section 15.5.20), because what the
/// handshake established, above all a client certificate, holds only for that name. A connection or request that names
/// no host is for the default host.
pub fn sni(sni: &str, host: &str) -> Result<(), Refusal> {
    let name = sni.strip_suffix('.').unwrap_or(sni);
    let is_for_it = name.is_empty() || host.is_empty() || name.eq_ignore_ascii_case(host);
    if is_for_it { Ok(()) } else { Err(Refusal::Misdirected) }
}

/// Normalises the target's path before anything reads it, so that routing, limits and the upstream see the same path. The
/// query stays as it is. A path that is normal already is not copied.
///
/// Returns what servers could read in different ways, if anything: the caller refuses the request unless its route keeps
/// such paths.
pub fn normalise(uri: &mut Uri) -> Result<Option<path::Error>, Refusal> {
    let Canonical { path, doubt } =
        path::canonical(uri.path()).map_err(|error| Refusal::Malformed(error.text()))?;
    let Cow::Owned(path) = path else { return Ok(doubt) };
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let mut parts = std::mem::take(uri).into_parts();
    // This may fail, because encoding can make a path longer than a `Uri` may be.
    parts.path_and_query = Some(PathAndQuery::from_maybe_shared(target).map_err(|_| Refusal::UriTooLong)?);
    *uri = Uri::from_parts(parts).map_err(|_| Refusal::Malformed("the request target is not a path"))?;
    Ok(doubt)
}

fn length(uri: &Uri) -> usize {
    uri.path_and_query().map_or(0, |target| target.as_str().len())
        + uri.authority().map_or(0, |authority| authority.as_str().len())
}

/// Refuses HTTP/2 fields that hyper accepts (over HTTP/1 the same is refused before this): more of them, or more bytes,
/// than the listener allows, where each counts as in RFC 9113 section 6.5.2; a field that HTTP/1 cannot carry; a length
/// that is given twice or not as a plain number.
fn of_http2(fields: &HeaderMap, max: &Sizes) -> Result<(), Refusal> {
    let (mut bytes, mut lengths) = (0, 0);
    for (name, value) in fields {
        bytes += name.as_str().len() + value.len() + FIELD_OVERHEAD;
        headers::is_portable(name, value).map_err(Refusal::Malformed)?;
        if name == CONTENT_LENGTH {
            lengths += 1;
            let has_zeros = value.len() > 1 && value.as_bytes().starts_with(b"0");
            if lengths > 1 || has_zeros || headers::length(value.as_bytes()).is_none() {
                return Err(Refusal::Malformed("`Content-Length` must be sent once and be a plain number"));
            }
        }
    }
    if fields.len() > max.headers || bytes > max.header_bytes {
        return Err(Refusal::HeadersTooLarge);
    }
    Ok(())
}

/// About how many bytes of memory the fields of a head take: even the shortest takes `FIELD_MEMORY`.
pub fn weight(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_MEMORY).sum()
}

/// A request names exactly one authority (RFC 9112 section 3.2); only HTTP/1.0 may name none.
fn one_authority(head: &request::Parts) -> Result<(), Refusal> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::Malformed("`Host` was sent more than once"));
    }
    match (head.uri.authority(), host) {
        (None, None) if head.version == Version::HTTP_10 => Ok(()),
        (None, None) => Err(Refusal::Malformed("`Host` is missing")),
        (Some(authority), _) if !is_authority(authority.as_str()) => {
            Err(Refusal::Malformed("the host in the request target is invalid"))
        }
        (Some(authority), Some(host))
            if !is_same_authority(head.uri.scheme(), host.as_bytes(), authority.as_str().as_bytes()) =>
        {
            Err(Refusal::Malformed("`Host` and the request target name different hosts"))
        }
        (None, Some(host)) if !host.to_str().is_ok_and(is_authority) => {
            Err(Refusal::Malformed("`Host` must be a host name or address, with a port or without"))
        }
        _ => Ok(()),
    }
}

/// Whether both name one authority under this scheme: neither the scheme's own port nor the dot of the root tells two apart
/// (RFC 9110 section 4.2.3, RFC 1034 section 3.1).
fn is_same_authority(scheme: Option<&Scheme>, one: &[u8], other: &[u8]) -> bool {
    let port: &[u8] = if scheme == Some(&Scheme::HTTPS) { b":443" } else { b":80" };
    one.eq_ignore_ascii_case(other) || name_of(one, port).eq_ignore_ascii_case(name_of(other, port))
}

fn name_of<'a>(authority: &'a [u8], port: &[u8]) -> &'a [u8] {
    let name = authority.strip_suffix(port).unwrap_or(authority);
    name.strip_suffix(b".").unwrap_or(name)
}

pub fn host(authority: &HeaderValue) -> Cow<'_, str> {
    policy::matching::host::routed(authority.to_str().unwrap_or_default())
}

/// The same URL over https on this port, which is left out if it is the default.
pub fn https_location(host: &str, redirect: &HttpsRedirect, uri: &Uri) -> Option<HeaderValue> {
    let host = redirect.host.as_deref().unwrap_or(host);
    if host.is_empty() {
        return None;
    }
    let host = if host.contains(':') { Cow::Owned(format!("[{host}]")) } else { Cow::Borrowed(host) };
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let location = match redirect.port {
        HTTPS_PORT => format!("https://{host}{target}"),
        port => format!("https://{host}:{port}{target}"),
    };
    HeaderValue::from_str(&location).ok()
}

/// Bytes of memory that a field takes in a map beside its own.
const FIELD_MEMORY: usize = 100;
/// Bytes that a field counts beside its own (RFC 9113 section 6.5.2).
const FIELD_OVERHEAD: usize = 32;

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::service::problem::RefusalProblem;

    fn parts(target: &str, version: Version, lines: &[(&str, &str)]) -> request::Parts {
        let mut builder = http::Request::builder().uri(target).version(version);
        for &(name, value) in lines {
            builder = builder.header(name, value);
        }
        builder.body(()).expect("a request").into_parts().0
    }

    fn refused(target: &str, version: Version, lines: &[(&str, &str)]) -> Option<u16> {
        let parts = parts(target, version, lines);
        let refusal =
            head(&parts, HeadersPresent::of(&parts.headers), &Sizes::default(), Underscores::Refuse).err()?;
        Some(RefusalProblem::of(&refusal).status.as_u16())
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
        for not_one in ["[.", "[::1", "[a]", "[::1]x", "a:b", "a:80:90", "a]b", "a[::1]", "a:"] {
            assert_eq!(h1("/", &[("host", not_one)]), Some(400), "{not_one}");
        }
        for one in ["a.example.:8443", "[::1]:80", "[2001:db8::7]", "127.0.0.1:80"] {
            assert_eq!(h1("/", &[("host", one)]), None, "{one}");
        }
        assert_eq!(h1("http://a.example/", &[("host", "A.example")]), None);
        assert_eq!(h1("http://a.example/", &[("host", "b.example")]), Some(400));
        assert_eq!(h1("http://u@a.example/", &[]), Some(400));
    }

    #[test]
    fn authorities_that_differ_by_the_scheme_s_port_or_the_root_s_dot_are_one() {
        let (same, other) = (None, Some(400));
        for (scheme, authority, host, expected) in [
            ("http", "a.example", "a.example:80", same),
            ("http", "a.example:80", "A.example", same),
            ("http", "a.example.", "a.example", same),
            ("http", "a.example", "a.example.:80", same),
            ("http", "a.example:8080", "a.example.:8080", other),
            ("http", "a.example", "a.example:443", other),
            ("http", "a.example", "a.example:8080", other),
            ("http", "a.example:80", "a.example:443", other),
            ("http", "a.example", "a.example..", other),
            ("http", "a.example", "b.example:80", other),
            ("http", "[::1]", "[::1]:80", same),
            ("http", "[::80]", "[::80]:80", same),
            ("https", "a.example", "a.example:443", same),
            ("https", "a.example.:443", "a.example", same),
            ("https", "a.example", "a.example:80", other),
        ] {
            for version in [Version::HTTP_11, Version::HTTP_2] {
                let target = format!("{scheme}://{authority}/");
                let said = refused(&target, version, &[("host", host)]);
                assert_eq!(said, expected, "{version:?} {scheme} {authority} {host}");
            }
        }
    }

    #[test]
    fn connection_names_only_what_is_the_connection_s() {
        let named = |names: &str| refused("/", Version::HTTP_11, &[("host", "a"), ("connection", names)]);
        for names in ["close", "keep-alive", "Upgrade", "keep-alive, X-Own", "TE, close", ""] {
            assert_eq!(named(names), None, "{names:?}");
        }
        for names in [
            "Host",
            "close, AUTHORIZATION",
            "x-forwarded-for",
            "X-Forwarded-Anything",
            "Forwarded",
            "traceparent",
            "content-length",
            "Transfer-Encoding",
            "cookie",
            "a,,x-real-ip",
        ] {
            assert_eq!(named(names), Some(400), "{names:?}");
        }
        for (names, lines, expected) in
            [("x,", 49, None), ("x,", 50, Some(400)), (",", 15_000, Some(400)), ("x, ", 10_000, Some(400))]
        {
            let all = names.repeat(lines);
            assert_eq!(
                refused("/", Version::HTTP_11, &[("host", "a"), ("connection", &all), ("connection", &all)]),
                expected
            );
        }
    }

    #[test]
    fn a_name_with_an_underscore_is_refused_unless_kept() {
        let parts = parts("/", Version::HTTP_11, &[("host", "a"), ("x_real_ip", "1.1.1.1")]);
        let judged =
            |underscores| head(&parts, HeadersPresent::of(&parts.headers), &Sizes::default(), underscores);
        assert!(judged(Underscores::Refuse).is_err() && judged(Underscores::Keep).is_ok());
    }

    #[test]
    fn only_100_continue_can_be_expected() {
        let expects = |value: &str| refused("/", Version::HTTP_11, &[("host", "a"), ("expect", value)]);
        assert_eq!((expects("100-continue"), expects("100-Continue")), (None, None));
        for value in ["100-continue, x", "200-ok", "", "100-continue;q=1"] {
            assert_eq!(expects(value), Some(417), "{value:?}");
        }
    }

    #[test]
    fn a_connection_is_for_the_name_in_its_hello() {
        for (name, host, is_for_it) in [
            ("a.example", "a.example", true),
            ("A.Example.", "a.example", true),
            ("a.example", "b.example", false),
            ("a.example", "x.a.example", false),
            ("", "b.example", true),
            ("a.example", "", true),
        ] {
            assert_eq!(sni(name, host).is_ok(), is_for_it, "{name} {host}");
        }
    }

    #[test]
    fn sizes_have_their_own_answers() {
        let long = "/".to_owned() + &"a".repeat(9_000);
        assert_eq!(refused(&long, Version::HTTP_11, &[("host", "a")]), Some(414));
        let many: Vec<(&str, &str)> = vec![("x", "1"); 101];
        assert_eq!(refused("https://a/", Version::HTTP_2, &many), Some(431));
    }

    #[test]
    fn spellings_of_one_host_become_one() {
        for (spelled, form) in [
            ("a.example", "a.example"),
            ("A.Example.:80", "a.example"),
            ("[::1]:80", "::1"),
            ("[0:0::0:1]", "::1"),
            ("[2001:DB8::1]", "2001:db8::1"),
            ("10.0.0.1:1", "10.0.0.1"),
        ] {
            assert_eq!(host(&HeaderValue::from_static(spelled)), form, "{spelled}");
        }
    }

    #[test]
    fn a_target_has_one_path_and_keeps_its_query() {
        let normalised = |target: &'static str| {
            let mut uri = Uri::from_static(target);
            normalise(&mut uri)
                .map(|doubt| (uri.to_string(), doubt))
                .map_err(|refusal| RefusalProblem::of(&refusal).status.as_u16())
        };
        let plain = |form: &str| Ok((form.to_owned(), None));
        assert_eq!(normalised("/a/../%62?x=%2e%2e//"), plain("/b?x=%2e%2e//"));
        assert_eq!(normalised("https://h:8443//a/."), plain("https://h:8443/a/"));
        assert_eq!(normalised("http://h"), plain("http://h/"));
        assert_eq!(normalised("/a%2fb"), Ok(("/a%2Fb".to_owned(), Some(path::Error::Slash))));
        assert_eq!(normalised("/a%00b"), Err(400));
    }

    #[test]
    fn https_keeps_path_and_query() {
        let to = |host: &str, port| {
            let redirect = HttpsRedirect { host: None, port, status: StatusCode::PERMANENT_REDIRECT };
            https_location(host, &redirect, &Uri::from_static("/a?b=c"))
        };
        let location = |host: &str| to(host, HTTPS_PORT);
        assert_eq!(location("a.example").expect("a location"), "https://a.example/a?b=c");
        assert_eq!(location("::1").expect("a location"), "https://[::1]/a?b=c");
        assert_eq!(to("a.example", 8443).expect("a location"), "https://a.example:8443/a?b=c");
        assert_eq!(to("::1", 1).expect("a location"), "https://[::1]:1/a?b=c");
        assert_eq!(location(""), None);
    }
}
