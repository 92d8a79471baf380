//! Traces: which requests are a part of one (W3C Trace Context), which of them are sampled, and how their spans reach a
//! collector (OTLP). What a span says of a request is the data plane's; nothing here knows requests.
//!
//! A worker decides, writes one header, and hands a finished span to a bounded queue without waiting. One task on the
//! control runtime sends batches; if the collector is slow or away, spans are lost and counted.

#[cfg(not(feature = "otlp"))]
mod absent;
#[cfg(feature = "otlp")]
mod attribute;
mod config;
mod context;
#[cfg(feature = "otlp")]
mod exporter;
#[cfg(feature = "otlp")]
mod message;
#[cfg(feature = "otlp")]
mod otlp;
mod sampler;
#[cfg(feature = "otlp")]
mod span;
mod tracer;

#[cfg(not(feature = "otlp"))]
pub use absent::{Attributes, Exporter, FinishedSpan, SpanQueue};
#[cfg(feature = "otlp")]
pub use attribute::Attributes;
pub use config::{Config, OtlpProtocol, ParentSampling, TRACES_PATH, TraceparentTrust};
pub use context::{RemoteSpan, TraceIds};
#[cfg(feature = "otlp")]
pub use exporter::{Exporter, SpanQueue};
#[cfg(feature = "otlp")]
pub use span::FinishedSpan;
pub use tracer::{SampledSpan, Trace, TraceFields, Tracer};
