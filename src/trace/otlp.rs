//! Sends spans to a collector (OTLP 1.x): one request a batch, over a connection of its own, with a deadline.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, RETRY_AFTER, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;

use super::config::{Config, Protocol};
use crate::fetch::{self, Client, Connect};

/// A collector.
pub(super) struct Target {
    client: Client,
    url: String,
    protocol: Protocol,
    headers: HeaderMap,
}

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// It can be sent again.
    #[error(transparent)]
    Away(#[from] fetch::Error),
    /// It can be sent again, and perhaps the collector has said when.
    #[error("the collector answers {status}")]
    Busy {
        /// Of HTTP or of gRPC.
        status: String,
        /// When.
        again: Option<Duration>,
    },
    /// The collector will never take it.
    #[error("the collector refuses spans: {0}")]
    Refused(String),
}

impl Target {
    pub(super) fn new(config: &Config, connect: &Connect) -> Target {
        // What a span says is no secret that only TLS may carry: collectors of a cluster seldom have it.
        let client = Client::new(connect.clone(), config.trust.clone()).also_in_the_clear();
        Target {
            client: match config.protocol {
                Protocol::Http => client,
                Protocol::Grpc => client.over_http2(),
            },
            url: config.target(),
            protocol: config.protocol,
            headers: config.headers.iter().cloned().collect(),
        }
    }

    /// Sends a batch; returns how many of its spans the collector did not take.
    pub(super) async fn send(&self, batch: &ExportTraceServiceRequest) -> Result<u64, Error> {
        let (kind, body) = match self.protocol {
            Protocol::Http => ("application/x-protobuf", Bytes::from(batch.encode_to_vec())),
            Protocol::Grpc => ("application/grpc", framed(batch)),
        };
        let mut request = Request::post(&self.url)
            .header(CONTENT_TYPE, kind)
            .header(USER_AGENT, concat!("sluicegate/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body))
            .map_err(|error| Error::Refused(error.to_string()))?;
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        if self.protocol == Protocol::Grpc {
            request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
        }
        let answer = self.client.ask(request, ANSWER_WITHIN).await?;
        match self.protocol {
            Protocol::Http => taken_over_http(&answer),
            Protocol::Grpc => taken_over_grpc(&answer),
        }
    }
}

/// A message of gRPC: not compressed, its length, itself.
fn framed(batch: &ExportTraceServiceRequest) -> Bytes {
    let length = batch.encoded_len();
    let mut framed = BytesMut::with_capacity(FRAME_BYTES + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    batch.encode(&mut framed).expect("a buffer grows");
    framed.freeze()
}

fn taken_over_http(answer: &Response<Bytes>) -> Result<u64, Error> {
    match answer.status() {
        StatusCode::OK => Ok(rejected(answer.body())),
        status => Err(refused(status, answer.headers())),
    }
}

/// Why a batch was not taken, by a status of HTTP alone.
fn refused(status: StatusCode, headers: &HeaderMap) -> Error {
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            let after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            Error::Busy { status: status.as_u16().to_string(), again: after.map(Duration::from_secs) }
        }
        _ => Error::Refused(status.as_u16().to_string()),
    }
}

fn taken_over_grpc(answer: &Response<Bytes>) -> Result<u64, Error> {
    let status =
        answer.headers().get("grpc-status").and_then(|status| status.to_str().ok()?.parse::<u32>().ok());
    match status {
        Some(0) => Ok(rejected(answer.body().get(FRAME_BYTES..).unwrap_or_default())),
        // Cancelled, deadline exceeded, resource exhausted, aborted, out of range, unavailable, data loss.
        Some(code @ (1 | 4 | 8 | 10 | 11 | 14 | 15)) => {
            Err(Error::Busy { status: format!("code {code} of gRPC"), again: None })
        }
        Some(code) => Err(Error::Refused(format!("code {code} of gRPC"))),
        None if answer.status() == StatusCode::OK => {
            Err(Error::Refused("200 and no code of gRPC".to_owned()))
        }
        // Of a proxy on the way.
        None => Err(refused(answer.status(), answer.headers())),
    }
}

/// How many spans a collector that took the batch did not take.
fn rejected(answer: &[u8]) -> u64 {
    let partial = ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    partial.map_or(0, |partial| partial.rejected_spans.try_into().unwrap_or_default())
}

/// What stands before a message of gRPC.
const FRAME_BYTES: usize = 5;
/// How long a collector may take with one batch.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
