//! Writes a refusal in gRPC's form (gRPC over HTTP/2, "Responses", Trailers-Only): HTTP status 200, no body, and the gRPC
//! status in header fields. Of any other answer, a gRPC client shows the application only the HTTP status.
//!
//! [`problem`](crate::service::problem) chooses the code.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, request};

use crate::service::problem::GrpcCode;

/// Whether a request is a gRPC call: POST over HTTP/2 (checked first, because it excludes most requests) with the
/// `Content-Type` `application/grpc`, with or without a suffix such as `+proto`. `application/grpc-web` is not gRPC.
pub fn is_call(head: &request::Parts) -> bool {
    head.version == Version::HTTP_2 && head.method == Method::POST && has_calls_type(&head.headers)
}

fn has_calls_type(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return false };
    let (start, rest) = value.as_bytes().split_at(value.len().min(CALL.len()));
    start.eq_ignore_ascii_case(CALL.as_bytes()) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}

/// How long the client waits for the call (gRPC over HTTP/2, "Requests", Timeout): up to eight digits and a unit. `None`
/// if it says nothing, or nothing that can be read: then the server judges it.
pub fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let (unit, digits) = headers.get(GRPC_TIMEOUT)?.as_bytes().split_last()?;
    if digits.is_empty() || digits.len() > TIMEOUT_DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let amount = digits.iter().fold(0, |sum: u64, digit| sum * 10 + u64::from(digit - b'0'));
    match unit {
        b'H' => Some(Duration::from_secs(amount * 3600)),
        b'M' => Some(Duration::from_secs(amount * 60)),
        b'S' => Some(Duration::from_secs(amount)),
        b'm' => Some(Duration::from_millis(amount)),
        b'u' => Some(Duration::from_micros(amount)),
        b'n' => Some(Duration::from_nanos(amount)),
        _ => None,
    }
    .map(|asked| asked.min(TIMEOUT_MAX))
}

/// Whether the head of an answer ends a call, without a body (Trailers-Only), by a fault of the server's: the statuses
/// that stand for a 5xx, as Envoy maps them. Not UNIMPLEMENTED, because it is the client that has called a method that
/// is not there.
pub fn is_servers_fault(fields: &HeaderMap) -> bool {
    let Some(status) = fields.get(GRPC_STATUS) else { return false };
    SERVERS_FAULTS.iter().any(|code| status.as_bytes() == code.as_bytes())
}

/// Whether an answer with these header fields is that to a call.
pub fn is_answer(fields: &HeaderMap) -> bool {
    has_calls_type(fields) || fields.contains_key(GRPC_STATUS)
}

/// The status that ends a call, in the head of an answer without a body or in trailers.
pub fn ended(fields: &HeaderMap) -> Option<u32> {
    fields.get(GRPC_STATUS)?.to_str().ok()?.parse().ok()
}

/// Writes a call's status into the head of an answer. `retry_after_seconds` becomes `google.rpc.RetryInfo`, which gRPC
/// clients read instead of `Retry-After`.
pub fn tell(headers: &mut HeaderMap, code: GrpcCode, message: &str, retry_after_seconds: Option<u64>) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(CALL));
    headers.insert(GRPC_STATUS, u16::from(code as u8).into());
    if let Ok(message) = HeaderValue::try_from(encoded(message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    if let Some(seconds) = retry_after_seconds {
        let details = BASE64.encode(status(code, message, seconds));
        if let Ok(details) = HeaderValue::try_from(details) {
            headers.insert(GRPC_STATUS_DETAILS, details);
        }
    }
}

/// Percent-encodes what `grpc-message` cannot carry: bytes that are not printable ASCII, and the percent sign.
fn encoded(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b'%' | 0..b' ' | 0x7f.. => out.push_str(&format!("%{byte:02X}")),
            byte => out.push(char::from(byte)),
        }
    }
    out
}

/// Encodes `google.rpc.Status` with one detail, `google.rpc.RetryInfo`. By hand, because three small messages do not
/// justify a protobuf library.
fn status(code: GrpcCode, message: &str, seconds: u64) -> Vec<u8> {
    let duration = number(1, seconds);
    let retry_info = bytes(1, &duration);
    let any = [bytes(1, RETRY_INFO.as_bytes()), bytes(2, &retry_info)].concat();
    [number(1, u64::from(code as u8)), bytes(2, message.as_bytes()), bytes(3, &any)].concat()
}

/// A varint field in the encoding of protocol buffers.
fn number(field: u8, value: u64) -> Vec<u8> {
    let mut out = vec![field << 3];
    push_varint(value, &mut out);
    out
}

/// A length-delimited field in the same encoding.
fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![field << 3 | 2];
    push_varint(value.len() as u64, &mut out);
    out.extend_from_slice(value);
    out
}

/// A varint: seven bits a byte, the lowest first; the highest bit says that more follow.
fn push_varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, DATA_LOSS.
const SERVERS_FAULTS: [&str; 5] = ["2", "4", "13", "14", "15"];
const CALL: &str = "application/grpc";
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const TIMEOUT_DIGITS_MAX: usize = 8;
/// Bounded, because a clock takes no time in eleven thousand years, which eight digits of hours would be.
const TIMEOUT_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_recognised_by_method_version_and_type() {
        let is = |method: Method, version: Version, kind: &str| {
            let request = http::Request::builder().method(method).version(version).header(CONTENT_TYPE, kind);
            is_call(&request.body(()).expect("a request").into_parts().0)
        };
        for kind in
            ["application/grpc", "application/grpc+proto", "Application/GRPC; x=y", "application/grpc+json"]
        {
            assert!(is(Method::POST, Version::HTTP_2, kind), "{kind}");
        }
        for kind in
            ["application/grpc-web", "application/grpc-web+proto", "application/grp", "text/plain", ""]
        {
            assert!(!is(Method::POST, Version::HTTP_2, kind), "{kind}");
        }
        assert!(!is(Method::GET, Version::HTTP_2, CALL) && !is(Method::POST, Version::HTTP_11, CALL));
    }

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        let timeout = |text: &str| {
            let headers = [(GRPC_TIMEOUT, HeaderValue::from_str(text).expect("a value"))];
            timeout(&headers.into_iter().collect())
        };
        for (text, millis) in [("1S", 1_000), ("250m", 250), ("2M", 120_000), ("1H", 3_600_000)] {
            assert_eq!(timeout(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!((timeout("7u"), timeout("0n")), (Some(Duration::from_micros(7)), Some(Duration::ZERO)));
        assert_eq!(timeout("99999999H"), Some(TIMEOUT_MAX));
        for text in ["", "S", "1", "1s", "-1S", "+1S", " 1S", "1 S", "123456789S", "1.5S"] {
            assert_eq!(timeout(text), None, "{text:?}");
        }
        assert_eq!(super::timeout(&HeaderMap::new()), None);
    }

    #[test]
    fn a_message_is_printable_whatever_it_says() {
        assert_eq!(encoded("50% of \u{e9}\r\n~"), "50%25 of %C3%A9%0D%0A~");
    }

    #[test]
    fn details_are_as_google_s_own_library_writes_them() {
        // google.rpc.Status(code=8, message="no", details=[RetryInfo(retry_delay=Duration(seconds=300))]).
        let expected = b"\x08\x08\x12\x02no\x1a\x31\x0a\x28type.googleapis.com/google.rpc.RetryInfo\
                         \x12\x05\x0a\x03\x08\xac\x02";
        assert_eq!(status(GrpcCode::ResourceExhausted, "no", 300), expected);
    }
}
