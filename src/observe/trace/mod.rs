//! Traces: which requests are a part of one (W3C Trace Context), which of them are sampled, and how their spans reach a
//! collector (OTLP). What a span says of a request is the data plane's; nothing here knows requests.
//!
//! A worker decides, writes one header, and hands a finished span to a bounded queue without waiting. One task on the
//! control runtime sends batches; if the collector is slow or away, spans are lost and counted.

pub mod attribute;
mod config;
mod context;
mod exporter;
mod message;
mod otlp;
mod sampler;
mod span;
mod tracer;

pub use config::{Config, Decides, Heeded, Protocol, TRACES_PATH};
pub use context::{Remote, TraceIds};
pub use exporter::{Exporter, Spans};
pub use span::Span;
pub use tracer::{Sampled, Trace, TraceFields, Tracer};
