//! Settings of traces.

use http::{HeaderName, HeaderValue, Uri};

use crate::trust::Trust;

/// Which requests are traced, and where their spans go.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The collector: an absolute URL without a query. The path of the call is appended.
    pub otlp: Uri,
    /// How the collector is spoken to.
    pub protocol: Protocol,
    /// How the collector is verified, if its URL is of https.
    pub trust: Trust,
    /// Fields that the collector asks for; marked as sensitive, so that `Debug` does not show them.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Parts per million of traces that are sampled.
    pub sample_ppm: u32,
    /// What decides whether a request is sampled that is a part of a trace already.
    pub decides: Decides,
    /// Whose traces are continued.
    pub parent: Heeded,
    /// The name of the service, as traces show it.
    pub service: String,
}

/// A form of OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Protobuf in POST requests.
    #[default]
    Http,
    /// gRPC.
    Grpc,
}

/// What decides about a request that is a part of a trace already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decides {
    /// Who began the trace has decided: the flag in `traceparent`.
    #[default]
    Parent,
    /// The trace's id, as for a trace that begins here.
    Ratio,
}

/// Whose `traceparent` is heeded. That of others is replaced: the request begins a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Heeded {
    /// That of trusted hops.
    #[default]
    Trusted,
    /// Everybody's.
    Always,
    /// Nobody's.
    Never,
}

impl Config {
    /// The URL of the call that takes spans.
    pub fn target(&self) -> String {
        let base = self.otlp.to_string();
        let call = match self.protocol {
            Protocol::Http => "/v1/traces",
            Protocol::Grpc => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        };
        format!("{}{call}", base.trim_end_matches('/'))
    }
}
