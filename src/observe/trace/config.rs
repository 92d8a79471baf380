//! Settings of traces.

use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Uri};

use net::trust::Trust;

/// Which requests are traced, and where their spans go.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The collector: an absolute URL without a query. The path of the call is appended, unless it is there already.
    pub otlp: Uri,
    /// How the collector is spoken to.
    pub protocol: OtlpProtocol,
    /// How the collector is verified, if its URL is of https.
    pub trust: Trust,
    /// Fields that the collector asks for; marked as sensitive, so that `Debug` does not show them.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Parts per million of traces that are sampled.
    pub sample_ppm: u32,
    /// What decides whether a request is sampled that is a part of a trace already.
    pub decides: ParentSampling,
    pub parent: TraceparentTrust,
    /// The name of the service, as traces show it.
    pub service: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// Protobuf in POST requests.
    #[default]
    Http,
    Grpc,
}

/// What decides about a request that is a part of a trace already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParentSampling {
    /// Who began the trace has decided: the flag in `traceparent`.
    #[default]
    Parent,
    /// The trace's id, as for a trace that begins here.
    Ratio,
}

/// Whose `traceparent` is heeded. That of others is replaced: the request begins a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceparentTrust {
    #[default]
    Trusted,
    Always,
    Never,
}

impl Config {
    /// The URL of the call that takes spans. Over HTTP a URL that ends in the call's path is used as it is, as
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is; to any other the path is appended, as to `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn target(&self) -> String {
        let base = self.otlp.to_string();
        let base = base.trim_end_matches('/');
        match self.protocol {
            OtlpProtocol::Http if base.ends_with(TRACES_PATH) => base.to_owned(),
            OtlpProtocol::Http => format!("{base}{TRACES_PATH}"),
            OtlpProtocol::Grpc => {
                format!("{base}/opentelemetry.proto.collector.trace.v1.TraceService/Export")
            }
        }
    }

    /// Whether the collector is asked over TLS.
    pub fn is_tls(&self) -> bool {
        self.otlp.scheme() == Some(&Scheme::HTTPS)
    }
}

/// Where collectors take spans over HTTP (OTLP specification, "OTLP/HTTP Request").
pub const TRACES_PATH: &str = "/v1/traces";
