//! Traces: which requests are a part of one (W3C Trace Context), which of them are sampled, and how their spans reach a
//! collector (OTLP). What a span says of a request is the data plane's; nothing here knows requests.
//!
//! A worker decides, writes one header, and hands a finished span to a bounded queue without waiting. One task on the
//! control runtime sends batches; if the collector is slow or away, spans are lost and counted.

mod attribute;
mod config;
mod context;
mod exporter;
mod message;
#[cfg_attr(not(feature = "otlp"), path = "no_otlp.rs")]
mod otlp;
mod reply;
mod sampler;
mod span;
mod tracer;

pub use attribute::Attributes;
pub use config::{Config, OtlpProtocol, ParentSampling, TRACES_PATH, TraceparentTrust};
pub use context::{RemoteSpan, TraceIds};
pub use exporter::{Exporter, SpanQueue};
pub use span::FinishedSpan;
pub use tracer::{SampledSpan, Trace, TraceFields, Tracer};
