//! The Common Log Format, and what Apache's Combined and nginx's default put behind it: the page before and the agent.
//! What stands behind those is not read.
//!
//! `address - user [20/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 512 "referer" "agent"`
//!
//! The host may stand before the address, as in Apache's `vhost_combined`.

use std::net::IpAddr;

use http::header::{REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::text::{LineCursor, number, present, request_line};
use super::time;
use crate::request::{Client, Line, NoLine, Request};
use base::identity::Identity;

/// Reads a line.
///
/// # Errors
/// If it is none of this format.
pub fn read(line: &[u8]) -> Result<Line, NoLine> {
    let mut rest = LineCursor(line);
    let (first, second) = (rest.word()?, rest.word()?);
    let (host, address) = match address(second) {
        Some(address) => {
            let _ident = rest.word()?;
            (present(first), Some(address))
        }
        None => (None, address(first)),
    };
    let user = user(&mut rest)?;
    // No line of these forms, because more words stand before the time: whose they are is not known.
    if user.starts_with(b"- ") {
        return Err(NoLine::Form);
    }
    let began_ns = time::common(rest.between(b'[', b']')?)?;
    let asked = rest.quoted()?;
    let status = u16::try_from(number(rest.word()?)?).map_err(|_| NoLine::Form)?;
    let bytes_out = number(rest.word()?)?;
    let mut headers = HeaderMap::new();
    for name in [REFERER, USER_AGENT] {
        let Ok(value) = rest.quoted() else { break };
        add(&mut headers, name, &value);
    }
    let Some(asked) = request_line(&asked) else { return Ok(Line::NoRequest) };
    let host = asked.host.or_else(|| host.map(|host| host.into_owned().into()));
    Ok(Line::Request(Box::new(Request {
        began_ns,
        lasted_ns: 0,
        has_duration: false,
        listener: Box::default(),
        client: address.map(Client::Peer),
        method: asked.method,
        host: host.unwrap_or_default(),
        target: asked.target,
        identity: Identity {
            consumer: present(user).map(|user| user.into_owned().into()),
            ..Identity::default()
        },
        is_unrecognised: status == 401,
        headers,
        status,
        bytes_in: 0,
        bytes_out,
        was_refused_before_limits: false,
        was_denied: None,
    })))
}

fn address(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The user, who may have a space in the name: up to the time.
fn user<'l>(rest: &mut LineCursor<'l>) -> Result<&'l [u8], NoLine> {
    let end = memchr::memmem::find(rest.0, b" [").ok_or(NoLine::Form)?;
    let (user, behind) = rest.0.split_at(end);
    rest.0 = &behind[1..];
    Ok(user)
}

/// Adds a field that the line has.
pub(super) fn add(headers: &mut HeaderMap, name: HeaderName, value: &[u8]) {
    if value != b"-"
        && !value.is_empty()
        && let Ok(value) = HeaderValue::from_bytes(value)
    {
        headers.append(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        match read(line.as_bytes()) {
            Ok(Line::Request(request)) => *request,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn lines_of_apache_and_nginx_are_requests() {
        let line = r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326"#;
        let plain = request(line);
        assert_eq!(plain.began_ns, 971_211_336_000_000_000);
        assert_eq!(plain.client, Some(Client::Peer([127, 0, 0, 1].into())));
        assert_eq!(plain.identity.consumer.as_deref(), Some("frank"));
        assert_eq!((&*plain.target, plain.status, plain.bytes_out), ("/apache_pb.gif", 200, 2326));
        assert!(plain.headers.is_empty() && !plain.has_duration);
        let combined = request(
            r#"2001:db8::7 - - [20/Nov/2026:10:00:00 +0000] "POST /a?b=%20 HTTP/2.0" 429 0 "-" "curl \"8\"" "-""#,
        );
        assert_eq!(combined.client, Some(Client::Peer("2001:db8::7".parse().expect("an address"))));
        assert_eq!((combined.method.as_str(), &*combined.target), ("POST", "/a?b=%20"));
        assert_eq!(combined.identity.consumer, None);
        assert_eq!(combined.headers.get(USER_AGENT).expect("it is there"), "curl \"8\"");
        assert_eq!(combined.headers.get(REFERER), None);
        let named =
            request(r#"host.example - a b [20/Nov/2026:10:00:00 +0000] "GET http://c/d HTTP/1.1" 401 -"#);
        assert_eq!((named.client, &*named.host, &*named.target), (None, "c", "/d"));
        assert_eq!(named.identity.consumer.as_deref(), Some("a b"));
        assert!(named.is_unrecognised);
    }

    #[test]
    fn a_host_before_the_address_is_the_host() {
        let behind = r#"[20/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 5"#;
        for (before, host, address, user) in [
            ("www.example.com:80 192.0.2.1 - -", "www.example.com:80", "192.0.2.1", None),
            ("api.example 2001:db8::7 - ann", "api.example", "2001:db8::7", Some("ann")),
            ("192.0.2.9 192.0.2.1 - ann b", "192.0.2.9", "192.0.2.1", Some("ann b")),
            ("- 192.0.2.1 - -", "", "192.0.2.1", None),
        ] {
            let read = request(&format!("{before} {behind}"));
            assert_eq!((&*read.host, read.identity.consumer.as_deref()), (host, user), "{before}");
            let address = Client::Peer(address.parse().expect("an address"));
            assert_eq!(read.client, Some(address), "{before}");
        }
        for before in ["api.example unix: - -", "a.example b.example - ann", "192.0.2.1 - - -"] {
            assert_eq!(read(format!("{before} {behind}").as_bytes()), Err(NoLine::Form), "{before}");
        }
    }

    #[test]
    fn bytes_that_were_no_http_are_lines_of_no_request() {
        for asked in ["-", r"\x16\x03\x01", ""] {
            let line = format!(r#"192.0.2.1 - - [20/Nov/2026:10:00:00 +0000] "{asked}" 400 157 "-" "-""#);
            assert_eq!(read(line.as_bytes()), Ok(Line::NoRequest), "{line}");
        }
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "",
            "   ",
            r#"192.0.2.1 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200"#,
            r#"192.0.2.1 - - [20/Nov/2026:10:00:00] "GET / HTTP/1.1" 200 5"#,
            r#"192.0.2.1 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1 200 5"#,
            r#"192.0.2.1 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 99999999 5"#,
            r#"192.0.2.1 - - "GET / HTTP/1.1" 200 5"#,
        ] {
            assert!(read(line.as_bytes()).is_err(), "{line}");
        }
    }
}
