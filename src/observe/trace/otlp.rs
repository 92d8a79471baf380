//! Sends spans to a collector (OTLP 1.x): one request a batch, over a connection of its own, with a deadline.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, DATE, RETRY_AFTER, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use prost::Message;

use super::config::{Config, OtlpProtocol};
use super::reply::{CollectorReply, Error};
use net::fetch::{Connect, FetchClient};
use policy::percent::{self, Plus};

pub(super) struct OtlpCollector {
    client: FetchClient,
    url: String,
    protocol: OtlpProtocol,
    headers: HeaderMap,
}

impl OtlpCollector {
    pub(super) fn new(config: &Config, connect: &Connect) -> Option<OtlpCollector> {
        // Also in the clear, because collectors of a cluster seldom have TLS, and what a span says is no secret that
        // only TLS may carry.
        let client = FetchClient::new(connect.clone(), config.trust.clone()).also_in_the_clear();
        Some(OtlpCollector {
            client: match config.protocol {
                OtlpProtocol::Http => client,
                OtlpProtocol::Grpc => client.over_http2(),
            },
            url: config.target(),
            protocol: config.protocol,
            headers: config.headers.iter().cloned().collect(),
        })
    }

    pub(super) async fn send(&self, batch: &Bytes) -> Result<CollectorReply, Error> {
        let (kind, body) = match self.protocol {
            OtlpProtocol::Http => ("application/x-protobuf", batch.clone()),
            OtlpProtocol::Grpc => ("application/grpc", framed(batch)),
        };
        let mut request = Request::post(&self.url)
            .header(CONTENT_TYPE, kind)
            .header(USER_AGENT, concat!("sluicegate/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body))
            .map_err(|error| Error::refused(error.to_string()))?;
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        if self.protocol == OtlpProtocol::Grpc {
            request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        }
        let answer = self.client.ask(request, ANSWER_WITHIN).await?;
        match self.protocol {
            OtlpProtocol::Http => taken_over_http(&answer),
            OtlpProtocol::Grpc => taken_over_grpc(&answer),
        }
    }
}

/// A message of gRPC: not compressed, its length, itself.
fn framed(batch: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(FRAME_BYTES + batch.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(batch.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(batch);
    framed.freeze()
}

fn taken_over_http(answer: &Response<Bytes>) -> Result<CollectorReply, Error> {
    match answer.status() {
        StatusCode::OK => Ok(taken(answer.body())),
        status => Err(refused(status, answer.headers())),
    }
}

/// Why a batch was not taken, by a status of HTTP alone.
fn refused(status: StatusCode, headers: &HeaderMap) -> Error {
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Error::Busy {
            status: status.as_u16().to_string(),
            words: String::new(),
            again: retry_after(headers),
        },
        _ => Error::refused(status.as_u16().to_string()),
    }
}

/// When a collector may be asked again (RFC 9110 section 10.2.3): seconds, or a date, which is compared with the answer's
/// own if it has one, because the collector's clock may differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let after = text(RETRY_AFTER)?;
    if let Ok(seconds) = after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(after).ok()?;
    let now = text(DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    Some(at.duration_since(now.unwrap_or_else(SystemTime::now)).unwrap_or_default())
}

fn taken_over_grpc(answer: &Response<Bytes>) -> Result<CollectorReply, Error> {
    let status =
        answer.headers().get("grpc-status").and_then(|status| status.to_str().ok()?.parse::<u32>().ok());
    let words = || answer.headers().get("grpc-message").map(message).unwrap_or_default();
    match status {
        Some(0) => Ok(taken(answer.body().get(FRAME_BYTES..).unwrap_or_default())),
        Some(code) if let Some(again) = again_over_grpc(code, answer.headers()) => {
            Err(Error::Busy { status: format!("gRPC status {code}"), words: words(), again })
        }
        Some(code) => Err(Error::Refused { status: format!("gRPC status {code}"), words: words() }),
        None if answer.status() == StatusCode::OK => Err(Error::refused("200 without a gRPC status")),
        // By the status of HTTP, because a proxy on the way has answered.
        None => Err(refused(answer.status(), answer.headers())),
    }
}

/// Whether, and when if it is said, a batch is sent again after this code (OTLP specification, "Failures" of gRPC). `None`:
/// never.
fn again_over_grpc(code: u32, headers: &HeaderMap) -> Option<Option<Duration>> {
    let asked = headers.get("grpc-status-details-bin").and_then(|details| retry_info(details.as_bytes()));
    match code {
        // Resource exhausted: only if the collector says that it will recover.
        8 => asked.map(Some),
        // Cancelled, deadline exceeded, aborted, out of range, unavailable, data loss.
        1 | 4 | 10 | 11 | 14 | 15 => Some(asked),
        _ => None,
    }
}

/// The wait of the `google.rpc.RetryInfo` among the details of a status.
fn retry_info(details: &[u8]) -> Option<Duration> {
    let details = GRPC_BINARY.decode(details).ok()?;
    let status = RpcStatus::decode(&*details).ok()?;
    let info = status.details.iter().find(|detail| detail.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.delay.unwrap_or_default();
    Some(delay.try_into().unwrap_or_default())
}

/// What a collector that took the batch says of it.
fn taken(answer: &[u8]) -> CollectorReply {
    let partial =
        ExportTraceResponse::decode(answer).ok().and_then(|answer| answer.partial).unwrap_or_default();
    CollectorReply {
        rejected: partial.rejected.try_into().unwrap_or_default(),
        words: shown(partial.words.as_bytes()),
    }
}

/// `ExportTraceServiceResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct ExportTraceResponse {
    #[prost(message, optional, tag = "1")]
    partial: Option<PartialSuccess>,
}

/// `ExportTracePartialSuccess`.
#[derive(Clone, PartialEq, prost::Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    words: String,
}

/// `google.rpc.Status`, of which only the details are read.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    delay: Option<prost_types::Duration>,
}

/// The message of gRPC's, whose bytes that are not printable are percent-encoded.
fn message(value: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(value.as_bytes());
    shown(&percent::decode(&text, Plus::Itself).collect::<Vec<_>>())
}

/// A collector's words as the log may show them: cut, and escaped so that nothing in them ends a line.
fn shown(words: &[u8]) -> String {
    let words = words.get(..WORDS_BYTES_MAX).unwrap_or(words);
    String::from_utf8_lossy(words).trim().escape_debug().to_string()
}

/// How gRPC's metadata carry bytes: with padding or without.
const GRPC_BINARY: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// What stands before a message of gRPC.
const FRAME_BYTES: usize = 5;
const WORDS_BYTES_MAX: usize = 256;
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn a_collector_says_when_it_may_be_asked_again() {
        let fields = |fields: &[(&'static str, &'static str)]| -> HeaderMap {
            fields
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect()
        };
        let after = |given: &[_]| retry_after(&fields(given)).map(|wait| wait.as_secs());
        assert_eq!(after(&[("retry-after", "7")]), Some(7));
        let date = ("date", "Fri, 31 Dec 1999 23:59:50 GMT");
        assert_eq!(after(&[date, ("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")]), Some(9));
        assert_eq!(after(&[date, ("retry-after", "Fri, 31 Dec 1999 23:59:49 GMT")]), Some(0));
        assert_eq!(after(&[("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")]), Some(0), "long ago");
        assert_eq!(after(&[("retry-after", "soon")]), None);

        let delay = prost_types::Duration { seconds: 3, nanos: 500_000_000 };
        let info = RetryInfo { delay: Some(delay) }.encode_to_vec();
        let any = |url: &str| prost_types::Any { type_url: url.to_owned(), value: info.clone() };
        let details = |url| {
            let status = RpcStatus { details: vec![any("type.googleapis.com/google.rpc.Help"), any(url)] };
            let mut headers = HeaderMap::new();
            let text = base64::prelude::BASE64_STANDARD_NO_PAD.encode(status.encode_to_vec());
            headers.insert("grpc-status-details-bin", text.parse().expect("ASCII"));
            headers
        };
        let told = details("type.googleapis.com/google.rpc.RetryInfo");
        let wait = Duration::from_millis(3_500);
        assert_eq!(again_over_grpc(8, &told), Some(Some(wait)));
        assert_eq!(again_over_grpc(14, &told), Some(Some(wait)));
        assert_eq!(again_over_grpc(3, &told), None, "an invalid argument stays invalid");
        let untold = details("type.googleapis.com/google.rpc.ErrorInfo");
        assert_eq!(again_over_grpc(8, &untold), None);
        assert_eq!(again_over_grpc(14, &HeaderMap::new()), Some(None));
    }

    #[test]
    fn a_collectors_words_are_decoded_and_harmless() {
        let message = |text: &str| message(&HeaderValue::from_str(text).expect("a value"));
        assert_eq!(message("no%20room: 100%25 %"), "no room: 100% %");
        assert_eq!(message("a%0Ab%1b[0m"), "a\\nb\\u{1b}[0m");
        assert_eq!(message("%zz%é"), "%zz%é");
        assert_eq!(message(&"x".repeat(5_000)).len(), WORDS_BYTES_MAX);
        let busy = Error::Busy { status: "503".to_owned(), words: "no".to_owned(), again: None };
        assert_eq!(busy.to_string(), "the collector cannot take spans now: 503: no");
        assert_eq!(Error::refused("400").to_string(), "the collector refuses spans: 400");
    }
}
