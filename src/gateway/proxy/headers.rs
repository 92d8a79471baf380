//! Every header that the gateway itself adds or removes, both ways: hop-by-hop fields, forwarding fields, request ids.
//! They are in one file so that they can be audited in one reading.
//!
//! Header changes that a route configures are in `policy`; rate-limit fields are in [`super::response::limit_fields`].

use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, Entry, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{Method, StatusCode, Uri, Version};

use super::config::ForwardedHeader;
use crate::service::conn::PeerAddress;
use base::hex::HexNumber;
use base::identity::NO_ADDRESS;
use observe::trace::TraceFields;

/// Which of the fields that this module handles a message has. Found in one pass over its names, because asking the map
/// for each of twenty names costs more than everything else done to a request's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadersPresent {
    pub connection: bool,
    hop_by_hop: bool,
    claims: bool,
    via: bool,
    pub expect: bool,
    pub upgrade: bool,
    te: bool,
    length: bool,
    coding: bool,
    pub accept: bool,
    pub cookie: bool,
    pub trace: TraceFields,
    /// A name with `_`.
    pub underscore: bool,
}

impl HeadersPresent {
    /// Looks at every name once. The names are repeated here as text instead of using the lists below, because a match
    /// over text compares the length first, and few names have the same length.
    pub fn of(headers: &HeaderMap) -> HeadersPresent {
        let mut present = HeadersPresent::default();
        for name in headers.keys() {
            match name.as_str() {
                "connection" => present.connection = true,
                "te" => (present.te, present.hop_by_hop) = (true, true),
                "upgrade" => (present.upgrade, present.hop_by_hop) = (true, true),
                "content-length" => present.length = true,
                "transfer-encoding" => (present.coding, present.hop_by_hop) = (true, true),
                "via" => present.via = true,
                "expect" => present.expect = true,
                "accept" => present.accept = true,
                "cookie" => present.cookie = true,
                "traceparent" => present.trace.parent = true,
                "tracestate" => present.trace.state = true,
                "keep-alive"
                | "proxy-connection"
                | "proxy-authenticate"
                | "proxy-authorization"
                | "trailer"
                | "http2-settings" => present.hop_by_hop = true,
                "forwarded" | "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host"
                | "x-forwarded-port" | "x-forwarded-prefix" | "x-forwarded-server" | "x-real-ip" => {
                    present.claims = true
                }
                "host" | "date" | "user-agent" | "content-type" => {}
                name => present.underscore |= name.as_bytes().contains(&b'_'),
            }
        }
        present
    }
}

/// Removes the hop-by-hop fields (RFC 9110 section 7.6.1): the known ones and those that `Connection` names. A client
/// cannot have fields removed by naming them if the gateway sets or relies on them.
pub fn strip_hop_by_hop(headers: &mut HeaderMap, present: HeadersPresent) {
    if present.connection
        && let Entry::Occupied(connection) = headers.entry(CONNECTION)
    {
        let (_, values) = connection.remove_entry_mult();
        let named: Vec<HeaderName> = values.flat_map(|value| named_by(&value)).collect();
        for name in named {
            headers.remove(name);
        }
    }
    if present.hop_by_hop {
        for name in &HOP_BY_HOP {
            headers.remove(name);
        }
    }
}

/// Checks what `Connection` names: no field that is not hop-by-hop, such as `Host` or `Authorization`, because removing it
/// would change how the gateway or a server behind it decides on the request; and no more than anybody has, because each is
/// looked at.
pub fn check_named(headers: &HeaderMap, present: HeadersPresent) -> Result<(), &'static str> {
    let is_plain = |line: &&HeaderValue| [&b"keep-alive"[..], b"close"].contains(&line.as_bytes());
    if !present.connection {
        return Ok(());
    }
    let lines = headers.get_all(CONNECTION).iter().filter(|line| !is_plain(line));
    let names = lines.flat_map(|line| line.to_str().unwrap_or_default().split(','));
    for (index, name) in names.enumerate() {
        if index >= CONNECTION_NAMES_MAX {
            return Err("`Connection` names too many headers");
        }
        if is_protected(name.trim()) {
            return Err("`Connection` names a header that is not hop-by-hop");
        }
    }
    Ok(())
}

fn is_protected(name: &str) -> bool {
    let is_claim = name.get(..X_FORWARDED.len()).is_some_and(|start| start.eq_ignore_ascii_case(X_FORWARDED));
    is_claim || PROTECTED.iter().any(|known| name.eq_ignore_ascii_case(known.as_str()))
}

/// Whether every `Expect` is `100-continue` (RFC 9110 section 10.1.1).
pub fn expects_continue_only(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(EXPECT).iter();
    lines.all(|line| line.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Removes trailers that must not pass. Those are fields about framing, routing or identity, and those that the gateway
/// sets, because a recipient may merge trailers into the header fields (RFC 9110 section 6.5.1), where they could
/// override the real ones. Fields that the next hop may not be able to carry go, too.
pub fn clean_trailers(trailers: &mut HeaderMap) {
    let goes = |(name, value)| !is_of_the_message(name) && is_portable(name, value).is_ok();
    let fields: Vec<HeaderName> =
        trailers.iter().filter(|field| !goes(*field)).map(|(name, _)| name.clone()).collect();
    for name in fields {
        trailers.remove(name);
    }
}

fn is_of_the_message(name: &HeaderName) -> bool {
    is_protected(name.as_str()) || HOP_BY_HOP.contains(name) || name == CONNECTION
}

/// The trailers that an answer announces and that may pass, as one `Trailer`; `None` if there are none, or if the
/// answer has a length, because over HTTP/1.1 trailers need chunks.
pub fn announced_trailers(headers: &HeaderMap, present: HeadersPresent) -> Option<HeaderValue> {
    if !present.hop_by_hop || present.length {
        return None;
    }
    let lines = headers.get_all(TRAILER).iter().filter_map(|line| line.to_str().ok());
    let names = lines.flat_map(|line| line.split(',')).filter_map(|name| name.trim().parse().ok());
    let names: Vec<HeaderName> = names.filter(|name| !is_of_the_message(name)).collect();
    let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
    HeaderValue::try_from(names.join(", ")).ok().filter(|names| !names.is_empty())
}

fn named_by(connection: &HeaderValue) -> Vec<HeaderName> {
    // Not parsed, because nearly every message says just this, which names no field.
    if [&b"keep-alive"[..], b"close"].contains(&connection.as_bytes()) {
        return Vec::new();
    }
    let names = connection.to_str().unwrap_or_default().split(',');
    names.map(str::trim).filter(|name| !is_protected(name)).filter_map(|name| name.parse().ok()).collect()
}

/// Whether `TE` has `trailers`, which gRPC requires. Nothing else of it is for the next hop (RFC 9110 section 10.1.4).
pub fn accepts_trailers(headers: &HeaderMap, present: HeadersPresent) -> bool {
    present.te && lists(headers, TE, "trailers")
}

/// Whether the end of an answer is unambiguous (RFC 9112 section 6.3): one numeric length, only `chunked`, or neither.
pub fn is_framed_once(headers: &HeaderMap, present: HeadersPresent) -> bool {
    let only = |name: HeaderName, is_right: fn(&[u8]) -> bool| {
        let mut lines = headers.get_all(name).iter();
        lines.next().is_some_and(|line| is_right(line.as_bytes())) && lines.next().is_none()
    };
    match (present.length, present.coding) {
        (false, false) => true,
        (true, false) => only(CONTENT_LENGTH, |value| length(value).is_some()),
        (false, true) => only(TRANSFER_ENCODING, |value| value.eq_ignore_ascii_case(b"chunked")),
        (true, true) => false,
    }
}

/// The value of a `Content-Length`: only digits, and at most 63 bits, because many servers keep it in a signed integer.
pub fn length(value: &[u8]) -> Option<u64> {
    let digits =
        std::str::from_utf8(value).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    digits?.parse().ok().filter(|length| i64::try_from(*length).is_ok())
}

/// Makes an answer's length safe for the next hop: without leading zeros, which some parsers read as octal, and removed
/// from a 204, which must not have one (RFC 9110 section 8.6). A 304 may have one, that of the answer which it is not.
/// It is removed, too, because hyper writes none over HTTP/1.1, and clients over HTTP/2 are told the same. A 205 has no
/// content, whatever the server sends with it (RFC 9110 section 15.3.6).
pub fn tidy_length(headers: &mut HeaderMap, present: HeadersPresent, status: StatusCode) {
    if status == StatusCode::RESET_CONTENT {
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        return;
    }
    if !present.length {
        return;
    }
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        headers.remove(CONTENT_LENGTH);
        return;
    }
    if let Some(value) = headers.get_mut(CONTENT_LENGTH)
        && value.len() > 1
        && value.as_bytes().starts_with(b"0")
        && let Some(length) = length(value.as_bytes())
    {
        *value = length.into();
    }
}

/// Whether HTTP/1 can carry a field that came over HTTP/2. The HTTP/2 implementation accepts names with a quote, which is
/// not a token character (RFC 9110 section 5.6.2), and blanks around a value, which HTTP/1 readers drop although RFC 9113
/// section 8.2.1 forbids them.
pub fn is_portable(name: &HeaderName, value: &HeaderValue) -> Result<(), &'static str> {
    if !name.as_str().bytes().all(|byte| TOKEN[usize::from(byte)]) {
        return Err("a header name has a character that is not allowed in names");
    }
    match value.as_bytes() {
        [b' ' | b'\t', ..] | [.., b' ' | b'\t'] => Err("a header value begins or ends with a space or a tab"),
        _ => Ok(()),
    }
}

/// Which bytes a token may have (RFC 9110 section 5.6.2).
const TOKEN: [bool; 256] = {
    let (mut table, marks) = ([false; 256], b"!#$%&'*+-.^_`|~");
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut mark = 0;
    while mark < marks.len() {
        table[marks[mark] as usize] = true;
        mark += 1;
    }
    table
};

/// Whether a list field has the token, in any of its lines and in any case.
pub(super) fn lists(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let mut lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.any(|line| line.split(',').any(|part| part.trim().eq_ignore_ascii_case(token)))
}

/// The facts that the forwarding fields pass on to the upstream.
#[derive(Debug)]
pub struct Hop<'a> {
    /// The peer of the client's connection.
    pub peer: &'a PeerAddress,
    /// Whether the forwarding fields that the peer sent are kept.
    pub trusted_peer: bool,
    /// Whether the client's connection uses TLS.
    pub tls: bool,
    pub authority: &'a HeaderValue,
    /// The HTTP version of the request.
    pub version: Version,
}

/// Sets the forwarding fields for the upstream. Those of an untrusted peer are removed in both spellings, whichever one
/// is configured, because a server may read the other.
pub fn forward_client(
    headers: &mut HeaderMap,
    present: HeadersPresent,
    header: ForwardedHeader,
    hop: &Hop<'_>,
) {
    // Reserved, so that the fields added here and to the answer, which reuses the map, cost one allocation.
    headers.reserve(FIELDS_ADDED);
    let kept = present.claims && hop.trusted_peer;
    if present.claims && !hop.trusted_peer {
        for name in &CLAIMS {
            headers.remove(name);
        }
    }
    match header {
        ForwardedHeader::XForwarded => {
            // Not over a Unix socket, because who came over one has no address, and no word that every reader of this
            // field knows.
            if hop.peer.ip != NO_ADDRESS {
                append(headers, X_FORWARDED_FOR, hop.peer.text.clone(), kept);
            }
            if !(kept && headers.contains_key(&X_FORWARDED_PROTO)) {
                headers.insert(X_FORWARDED_PROTO, if hop.tls { HTTPS } else { HTTP });
            }
            let named = kept && headers.contains_key(&X_FORWARDED_HOST);
            if !named && !hop.authority.is_empty() {
                headers.insert(X_FORWARDED_HOST, hop.authority.clone());
            }
        }
        ForwardedHeader::Forwarded => {
            let element = HeaderValue::from_str(&forwarded_element(hop)).unwrap_or(NOTHING);
            append(headers, FORWARDED, element, kept);
        }
    }
    let via = match hop.version {
        Version::HTTP_2 => VIA_2,
        Version::HTTP_10 => VIA_10,
        _ => VIA_11,
    };
    append(headers, VIA, via, present.via);
}

/// One element of `Forwarded` (RFC 7239 section 4).
fn forwarded_element(hop: &Hop<'_>) -> String {
    let node = match hop.peer.ip {
        NO_ADDRESS => "unknown".to_owned(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("\"[{ip}]\""),
    };
    let proto = if hop.tls { "https" } else { "http" };
    // Quoted because of a port's colon. An invalid host has been refused before.
    let host = hop.authority.to_str().unwrap_or_default().replace(['"', '\\'], "");
    format!("for={node};host=\"{host}\";proto={proto}")
}

/// Adds one element to a list field. If `is_present`, it goes after the existing ones, all in one line; if not, the field
/// is set.
fn append(headers: &mut HeaderMap, name: HeaderName, element: HeaderValue, is_present: bool) {
    if !is_present {
        headers.insert(name, element);
        return;
    }
    let mut line: Vec<u8> = Vec::with_capacity(64);
    for before in headers.get_all(&name) {
        line.extend_from_slice(before.as_bytes());
        line.extend_from_slice(b", ");
    }
    line.extend_from_slice(element.as_bytes());
    headers.insert(name, HeaderValue::from_maybe_shared(bytes::Bytes::from(line)).unwrap_or(element));
}

/// Joins the `Cookie` fields that HTTP/2 may split (RFC 9113 section 8.2.3), because an HTTP/1.1 server reads only one.
pub fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(crumbs.join(&b"; "[..]))) {
        headers.insert(COOKIE, value);
    }
}

/// The authority a request names: the target's own, else `Host`; empty where there is none.
pub fn authority(uri: &Uri, headers: &HeaderMap) -> HeaderValue {
    match uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).unwrap_or(NOTHING),
        None => headers.get(HOST).cloned().unwrap_or(NOTHING),
    }
}

/// A request's id: what a trusted hop gave it, else 32 hex digits of its own, then with the number that they are. Bytes
/// that are no text are no id, because nobody could ask for it.
pub fn request_id(
    headers: &HeaderMap,
    trusted_peer: bool,
    random: impl Fn() -> u64,
) -> (HeaderValue, Option<HexNumber>) {
    if trusted_peer
        && let Some(id) = headers.get(&X_REQUEST_ID)
        && (1..=REQUEST_ID_BYTES_MAX).contains(&id.len())
        && std::str::from_utf8(id.as_bytes()).is_ok()
    {
        return (id.clone(), None);
    }
    let id = HexNumber::of_halves(random(), random());
    (HeaderValue::from_bytes(&id.digits).unwrap_or(NOTHING), Some(id))
}

/// Whether a request may be sent a second time (RFC 9110 section 9.2.2).
pub fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE | Method::TRACE
    )
}

pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const X_FORWARDED: &str = "x-forwarded-";
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

static HOP_BY_HOP: [HeaderName; 9] = [
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HTTP2_SETTINGS,
];

/// Never taken away because `Connection` names them: what frames a message, what the gateway says of a client, and
/// what upstreams judge by. All of `X-Forwarded-*` is, too.
static PROTECTED: [HeaderName; 15] = [
    HOST,
    FORWARDED,
    VIA,
    X_REQUEST_ID,
    X_REAL_IP,
    EXPECT,
    http::header::AUTHORIZATION,
    COOKIE,
    http::header::SET_COOKIE,
    CONTENT_LENGTH,
    http::header::CONTENT_ENCODING,
    http::header::CONTENT_TYPE,
    TRANSFER_ENCODING,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

/// Claims about a client that only a trusted hop may make.
static CLAIMS: [HeaderName; 8] = [
    FORWARDED,
    X_FORWARDED_FOR,
    X_FORWARDED_PROTO,
    X_FORWARDED_HOST,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-server"),
    X_REAL_IP,
];

/// Names that the `Connection` of a request may have, empty ones included.
const CONNECTION_NAMES_MAX: usize = 100;
/// So many fields the gateway adds to a message, about.
const FIELDS_ADDED: usize = 8;
const NOTHING: HeaderValue = HeaderValue::from_static("");
const REQUEST_ID_BYTES_MAX: usize = 128;
const HTTP: HeaderValue = HeaderValue::from_static("http");
const HTTPS: HeaderValue = HeaderValue::from_static("https");
const VIA_10: HeaderValue = HeaderValue::from_static("1.0 sluicegate");
const VIA_11: HeaderValue = HeaderValue::from_static("1.1 sluicegate");
const VIA_2: HeaderValue = HeaderValue::from_static("2 sluicegate");

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().expect("a header name");
            map.append(name, HeaderValue::from_str(value).expect("a header value"));
        }
        map
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn every_field_that_is_minded_is_seen() {
        for name in &HOP_BY_HOP {
            assert!(HeadersPresent::of(&map(&[(name.as_str(), "x")])).hop_by_hop, "{name}");
        }
        for name in &CLAIMS {
            assert!(HeadersPresent::of(&map(&[(name.as_str(), "x")])).claims, "{name}");
        }
        assert!(HeadersPresent::of(&map(&[("a_b", "x")])).underscore);
        assert_eq!(HeadersPresent::of(&map(&[("host", "a"), ("x-own", "b")])), HeadersPresent::default());
    }

    #[test]
    fn trailers_are_no_fields() {
        let mut trailers = map(&[
            ("host", "a"),
            ("content-length", "1"),
            ("transfer-encoding", "chunked"),
            ("authorization", "x"),
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-any", "y"),
            ("connection", "close"),
            ("te", "trailers"),
            ("cookie", "a=b"),
            ("grpc-status", "0"),
            ("x-checksum", "9"),
        ]);
        clean_trailers(&mut trailers);
        assert_eq!(trailers, map(&[("grpc-status", "0"), ("x-checksum", "9")]));
    }

    #[test]
    fn hop_by_hop_fields_go_and_named_ones_with_them() {
        let mut headers = map(&[
            ("connection", "close, X-Drop"),
            ("connection", "x-drop-too, authorization, content-length"),
            ("x-drop", "1"),
            ("x-drop-too", "1"),
            ("authorization", "kept"),
            ("content-length", "3"),
            ("keep-alive", "5"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("http2-settings", "x"),
            ("proxy-connection", "x"),
            ("x-keep", "1"),
        ]);
        let present = HeadersPresent::of(&headers);
        strip_hop_by_hop(&mut headers, present);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["authorization", "content-length", "x-keep"]);
    }

    #[test]
    fn an_untrusted_peer_cannot_speak_for_others() {
        let (peer, authority) = (PeerAddress::new(ip("192.0.2.1")), HeaderValue::from_static("a.example"));
        let hop = Hop {
            peer: &peer,
            trusted_peer: false,
            tls: true,
            authority: &authority,
            version: Version::HTTP_11,
        };
        let mut headers = map(&[
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-proto", "http"),
            ("forwarded", "for=6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
            ("via", "1.0 other"),
        ]);
        let present = HeadersPresent::of(&headers);
        forward_client(&mut headers, present, ForwardedHeader::XForwarded, &hop);
        assert_eq!(headers["x-forwarded-for"], "192.0.2.1");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "a.example");
        assert_eq!(headers["via"], "1.0 other, 1.1 sluicegate");
        assert!(!headers.contains_key("forwarded") && !headers.contains_key("x-real-ip"));
    }

    #[test]
    fn a_trusted_peer_is_appended_to() {
        let (peer, authority) = (PeerAddress::new(ip("10.0.0.1")), HeaderValue::from_static("a.example"));
        let hop = Hop {
            peer: &peer,
            trusted_peer: true,
            tls: false,
            authority: &authority,
            version: Version::HTTP_2,
        };
        let mut headers = map(&[("x-forwarded-for", "203.0.113.9"), ("x-forwarded-proto", "https")]);
        let present = HeadersPresent::of(&headers);
        forward_client(&mut headers, present, ForwardedHeader::XForwarded, &hop);
        assert_eq!(headers["x-forwarded-for"], "203.0.113.9, 10.0.0.1");
        assert_eq!(headers["x-forwarded-proto"], "https");
        let peer = PeerAddress::new(ip("fd00::1"));
        let hop = Hop { peer: &peer, ..hop };
        let mut headers = map(&[("forwarded", "for=203.0.113.9")]);
        let present = HeadersPresent::of(&headers);
        forward_client(&mut headers, present, ForwardedHeader::Forwarded, &hop);
        assert_eq!(headers["forwarded"], "for=203.0.113.9, for=\"[fd00::1]\";host=\"a.example\";proto=http");
    }

    #[test]
    fn a_host_is_bared_of_port_and_dot() {}
}
