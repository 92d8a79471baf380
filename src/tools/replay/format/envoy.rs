//! Envoy's default line.
//!
//! `[START_TIME] "METHOD PATH PROTOCOL" STATUS FLAGS BYTES_RECEIVED BYTES_SENT DURATION SERVICE_TIME "X-FORWARDED-FOR"
//! "USER-AGENT" "X-REQUEST-ID" "AUTHORITY" "UPSTREAM_HOST"`. The address of the client is in it only if Envoy appends it
//! to `X-Forwarded-For` (`use_remote_address`).
//!
//! A line is one only if it has exactly these fields, because Envoy escapes nothing: a text with a quotation mark in
//! it, which a client may send, would move the fields behind it. a line is one only if it has exactly these fields.

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName};

use super::common::add;
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
    let began_ns = time::rfc3339(rest.between(b'[', b']')?)?;
    let asked = quoted(&mut rest)?;
    let status = u16::try_from(number(rest.word()?)?).map_err(|_| NoLine::Form)?;
    let _flags = rest.word()?;
    let (bytes_in, bytes_out) = (number(rest.word()?)?, number(rest.word()?)?);
    let lasted_ms = number(rest.word()?)?;
    let _service_time = rest.word()?;
    let forwarded = quoted(&mut rest)?;
    let agent = quoted(&mut rest)?;
    let request_id = quoted(&mut rest)?;
    let authority = quoted(&mut rest)?;
    let _upstream = quoted(&mut rest)?;
    if !rest.0.is_empty() {
        return Err(NoLine::Form);
    }
    let Some(asked) = request_line(asked) else { return Ok(Line::NoRequest) };
    let mut headers = HeaderMap::new();
    add(&mut headers, USER_AGENT, agent);
    add(&mut headers, HeaderName::from_static("x-request-id"), request_id);
    // The last address counts, because Envoy itself has added it; what stands before it came with the request.
    let (before, peer) = split_last(forwarded);
    add(&mut headers, HeaderName::from_static("x-forwarded-for"), before);
    let peer = std::str::from_utf8(peer).ok().and_then(|text| text.trim().parse().ok());
    let host = present(authority).map(|authority| authority.into_owned().into());
    Ok(Line::Request(Box::new(Request {
        began_ns,
        lasted_ns: lasted_ms.saturating_mul(1_000_000),
        has_duration: true,
        listener: Box::default(),
        client: peer.map(Client::Peer),
        method: asked.method,
        host: asked.host.or(host).unwrap_or_default(),
        target: asked.target,
        identity: Identity::default(),
        is_unrecognised: status == 401,
        headers,
        status,
        bytes_in,
        bytes_out,
        was_refused_before_limits: false,
        was_denied: None,
    })))
}

fn quoted<'l>(rest: &mut LineCursor<'l>) -> Result<&'l [u8], NoLine> {
    rest.between(b'"', b'"')
}

/// The last element of a list, and what stands before it.
fn split_last(list: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memrchr(b',', list) {
        Some(comma) => (&list[..comma], &list[comma + 1..]),
        None => (b"", list),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_manual_is_a_request() {
        let line = br#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "198.51.100.7, 10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#;
        let Ok(Line::Request(request)) = read(line) else { panic!("it is a request") };
        assert_eq!(request.began_ns, 1_460_751_420_310_000_000);
        assert_eq!((request.lasted_ns, request.bytes_in, request.bytes_out), (226_000_000, 154, 0));
        assert_eq!((request.method.as_str(), &*request.target), ("POST", "/api/v1/locations"));
        assert_eq!((&*request.host, request.status), ("locations", 204));
        assert_eq!(request.client, Some(Client::Peer([10, 0, 35, 28].into())));
        assert_eq!(request.headers.get("x-forwarded-for").expect("it is there"), "198.51.100.7");
    }

    #[test]
    fn a_line_without_an_address_has_none() {
        let line = br#"[2026-11-20T10:00:00.000Z] "GET / HTTP/1.1" 200 - 0 5 1 - "-" "-" "-" "a:80" "-""#;
        let Ok(Line::Request(request)) = read(line) else { panic!("it is a request") };
        assert_eq!((request.client, &*request.host, request.headers.len()), (None, "a:80", 0));
        let line = br#"[2026-11-20T10:00:00.000Z] "- - HTTP/1.1" 400 DPE 0 11 0 - "-" "-" "-" "-" "-""#;
        assert_eq!(read(line), Ok(Line::NoRequest));
        let cut = br#"[2026-11-20T10:00:00.000Z] "GET / HTTP/1.1" 200 - 0 5 1 - "-" "-" "-" "a:80"#;
        assert_eq!(read(cut), Err(NoLine::Form));
    }

    #[test]
    fn a_text_with_a_quotation_mark_moves_no_field() {
        let line = |forwarded: &str, agent: &str| {
            let line = format!(
                r#"[2026-11-20T10:00:00.000Z] "GET / HTTP/1.1" 200 - 0 5 1 - "{forwarded}" "{agent}" "id" "a:80" "-""#
            );
            read(line.as_bytes())
        };
        assert!(matches!(line("192.0.2.1", r"a\"), Ok(Line::Request(_))));
        for (forwarded, agent) in [
            (r#"203.0.113.9" "x, 192.0.2.1"#, "agent"),
            ("192.0.2.1", r#"a" "b"#),
            (r#"203.0.113.9" "x, 192.0.2.1"#, r"agent\"),
            ("192.0.2.1", r#"a"b"#),
        ] {
            assert_eq!(line(forwarded, agent), Err(NoLine::Form), "{forwarded} {agent}");
        }
    }
}
