//! Requests to switch the protocol (RFC 9110 section 7.8), above all to WebSocket: which of them are passed on, and
//! whether the upstream's 101 is to what was asked for. `server::tunnel` carries the bytes after it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use crate::proxy::headers::{HeadersPresent, lists};
use crate::service::refusal::Refusal;

/// The protocol that a client asks to switch to, if the upstream is to be asked for it.
///
/// # Errors
/// If the request can be passed on neither with the switch nor without: it has a body, which some servers read before
/// and others after the switch, or its WebSocket handshake is invalid.
pub fn asked_for(
    (version, method): (Version, &Method),
    headers: &HeaderMap,
    present: HeadersPresent,
    has_body: bool,
) -> Result<Option<HeaderValue>, Refusal> {
    let Some(protocol) = wanted(version, headers, present) else { return Ok(None) };
    if has_body {
        return Err(Refusal::Malformed("a request with `Upgrade` must not have a body"));
    }
    let is_websocket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
    if is_websocket && only(headers, &SEC_WEBSOCKET_VERSION).is_some_and(|version| version != "13") {
        return Err(Refusal::WebSocketVersion);
    }
    if is_websocket && !is_websocket_handshake(method, headers) {
        return Err(Refusal::Malformed(
            "the WebSocket handshake must be a GET with one `Sec-WebSocket-Key` and \
            `Sec-WebSocket-Version: 13`",
        ));
    }
    Ok(Some(protocol))
}

/// The protocol that a client asks to switch to: `Connection: upgrade` and one protocol in `Upgrade` over HTTP/1.1.
/// Never h2c, which would carry requests past the gateway's limits, and not a choice of several, because the gateway
/// must know which protocol it carries.
fn wanted(version: Version, headers: &HeaderMap, present: HeadersPresent) -> Option<HeaderValue> {
    if version != Version::HTTP_11 || !present.upgrade || !present.connection {
        return None;
    }
    let protocol = only(headers, &UPGRADE)?;
    let is_one = !protocol.is_empty() && !protocol.as_bytes().contains(&b',');
    let is_h2c = protocol.as_bytes().to_ascii_lowercase().starts_with(b"h2");
    (lists(headers, CONNECTION, "upgrade") && is_one && !is_h2c).then(|| protocol.clone())
}

/// Whether a WebSocket handshake is valid (RFC 6455 section 4.2.1): GET, version 13 and a key of 16 bytes, each once.
fn is_websocket_handshake(method: &Method, headers: &HeaderMap) -> bool {
    let is_key = |key: &HeaderValue| BASE64.decode(key.as_bytes()).is_ok_and(|key| key.len() == 16);
    *method == Method::GET
        && only(headers, &SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13")
        && only(headers, &SEC_WEBSOCKET_KEY).is_some_and(is_key)
}

/// The value of a field that comes once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h HeaderValue> {
    let mut lines = headers.get_all(name).iter();
    lines.next().filter(|_| lines.next().is_none())
}

/// Whether a server switches to the protocol that it was asked for, in the form of RFC 9110 section 7.8.
pub fn is_switched_to(wanted: &HeaderValue, headers: &HeaderMap) -> bool {
    let is_wanted = only(headers, &UPGRADE)
        .is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(wanted.as_bytes()));
    is_wanted && lists(headers, CONNECTION, "upgrade")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        lines.iter().map(line).fold(HeaderMap::new(), |mut map, (name, value)| {
            map.append(name, value);
            map
        })
    }

    #[test]
    fn only_a_true_upgrade_is_one() {
        let asks = |lines: &[(&'static str, &'static str)]| {
            let headers = map(lines);
            wanted(Version::HTTP_11, &headers, HeadersPresent::of(&headers)).is_some()
        };
        assert!(asks(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]));
        assert!(asks(&[("connection", "upgrade"), ("upgrade", "other/1.0")]));
        for lines in [
            [("connection", "keep-alive"), ("upgrade", "websocket")],
            [("connection", "upgrade"), ("upgrade", "h2c")],
            [("connection", "upgrade"), ("upgrade", "H2C")],
            [("connection", "upgrade"), ("upgrade", "websocket, h2c")],
            [("connection", "upgrade"), ("upgrade", "")],
        ] {
            assert!(!asks(&lines), "{lines:?}");
        }
        assert!(!asks(&[("connection", "upgrade"), ("upgrade", "websocket"), ("upgrade", "h2c")]));
        let headers = map(&[("connection", "upgrade"), ("upgrade", "websocket")]);
        assert!(wanted(Version::HTTP_2, &headers, HeadersPresent::of(&headers)).is_none());
    }

    #[test]
    fn a_switch_is_to_what_was_asked_for() {
        let asked = HeaderValue::from_static("websocket");
        let is = |lines: &[(&'static str, &'static str)]| is_switched_to(&asked, &map(lines));
        assert!(is(&[("connection", "Upgrade"), ("upgrade", "WebSocket")]));
        assert!(!is(&[("upgrade", "websocket")]));
        assert!(!is(&[("connection", "upgrade"), ("upgrade", "h2c")]));
        assert!(!is(&[("connection", "upgrade"), ("upgrade", "websocket"), ("upgrade", "websocket")]));
    }
}
