//! What a check asks over an open connection, and whether the answer is the expected one.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_TYPE, HOST, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use super::CheckFailure;
use policy::retry::Statuses;

pub(super) type Asked = Request<Full<Bytes>>;

/// GET of a path. `authority` is the server's own.
pub(super) fn get(path: &str, authority: &str, is_tls: bool, version: Version) -> Option<Asked> {
    let mut asked = Request::new(Full::default());
    *asked.uri_mut() = target(path, authority, is_tls, version)?;
    if version != Version::HTTP_2 {
        asked.headers_mut().insert(HOST, HeaderValue::from_str(authority).ok()?);
        asked.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    asked.headers_mut().insert(USER_AGENT, NAME);
    *asked.version_mut() = version;
    Some(asked)
}

/// A call of `grpc.health.v1.Health/Check`.
pub(super) fn call(service: &str, authority: &str, is_tls: bool) -> Option<Asked> {
    let mut asked = Request::new(Full::new(message_of(service)));
    *asked.method_mut() = Method::POST;
    *asked.uri_mut() = target("/grpc.health.v1.Health/Check", authority, is_tls, Version::HTTP_2)?;
    *asked.version_mut() = Version::HTTP_2;
    let headers = asked.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(USER_AGENT, NAME);
    Some(asked)
}

fn target(path: &str, authority: &str, is_tls: bool, version: Version) -> Option<Uri> {
    let target = match version {
        Version::HTTP_2 => {
            let scheme = if is_tls { "https" } else { "http" };
            format!("{scheme}://{authority}{path}").parse()
        }
        _ => path.parse(),
    };
    target.ok()
}

/// `HealthCheckRequest { service }` in gRPC's frame. The configuration keeps names so short that one byte holds a length.
fn message_of(service: &str) -> Bytes {
    let length = if service.is_empty() { 0 } else { service.len() + 2 };
    let mut frame = BytesMut::with_capacity(FRAME_BYTES + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(0));
    if length > 0 {
        // Field 1, a string (protobuf's wire type 2).
        frame.put_u8(0x0a);
        frame.put_u8(u8::try_from(service.len()).unwrap_or(0));
        frame.put_slice(service.as_bytes());
    }
    frame.freeze()
}

/// Whether the answer to [`get`] is one of a server that works. A body is read only if something is expected in it.
pub(super) async fn judge_http(
    answer: Response<Incoming>,
    status: &Statuses,
    body: Option<&str>,
) -> Result<(), CheckFailure> {
    if !status.contains(answer.status().as_u16()) {
        return Err(CheckFailure::Status(answer.status().as_u16()));
    }
    let Some(expected) = body else { return Ok(()) };
    let (read, _) = beginning(answer.into_body()).await?;
    match memchr::memmem::find(&read, expected.as_bytes()) {
        Some(_) => Ok(()),
        None => Err(CheckFailure::Body),
    }
}

/// Whether the answer to [`call`] says SERVING, and the call ended well.
pub(super) async fn judge_grpc(answer: Response<Incoming>) -> Result<(), CheckFailure> {
    if answer.status() != http::StatusCode::OK {
        return Err(CheckFailure::Status(answer.status().as_u16()));
    }
    // An answer without a message has its status in its head (Trailers-Only).
    let in_head = code_of(answer.headers());
    let (read, trailers) = beginning(answer.into_body()).await?;
    match trailers.as_ref().and_then(code_of).or(in_head) {
        Some(0) => {}
        Some(code) => return Err(CheckFailure::Code(code)),
        None => return Err(CheckFailure::NoCode),
    }
    // A frame that is not compressed, of a `HealthCheckResponse` whose first field, `status`, is 1.
    match *read {
        [0, _, _, _, length, 0x08, 1, ..] if length >= 2 => Ok(()),
        _ => Err(CheckFailure::NotServing),
    }
}

fn code_of(fields: &HeaderMap) -> Option<u32> {
    fields.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// The first bytes of a body, all of a short one, and its trailers. A server that never ends is not listened to for longer.
async fn beginning(mut body: Incoming) -> Result<(Vec<u8>, Option<HeaderMap>), CheckFailure> {
    let mut read = Vec::new();
    while read.len() < BODY_BYTES_MAX
        && let Some(frame) = body.frame().await
    {
        match frame?.into_data() {
            Ok(data) => read.extend_from_slice(&data[..data.len().min(BODY_BYTES_MAX - read.len())]),
            Err(frame) => return Ok((read, frame.into_trailers().ok())),
        }
    }
    Ok((read, None))
}

pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;
/// Length of what stands in front of a message of gRPC.
const FRAME_BYTES: usize = 5;
/// How servers tell checks from requests.
const NAME: HeaderValue = HeaderValue::from_static("sluicegate-health");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_in_protobuf() {
        assert_eq!(&message_of("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&message_of("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
    }

    #[test]
    fn a_path_keeps_its_query_and_names_the_server() {
        let asked = get("/healthz?deep=1", "orders:8080", false, Version::HTTP_11).expect("a request");
        assert_eq!(asked.uri(), "/healthz?deep=1");
        assert_eq!(asked.headers()[HOST], "orders:8080");
        let asked = get("/healthz", "orders:8080", true, Version::HTTP_2).expect("a request");
        assert_eq!(asked.uri(), "https://orders:8080/healthz");
        assert!(!asked.headers().contains_key(HOST));
    }
}
