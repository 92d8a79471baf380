//! Requests of which more is kept, as exemplars of the histograms that count them.

use std::time::Duration;

use http::HeaderValue;

use metrics::Exemplar;
use observe::record::decisions::printable;
use observe::trace::Trace;

/// What is kept of a request: a sample of its decision, its trace, or both.
pub struct ExemplarLabels {
    trace_id: Option<u128>,
}

/// `None` if nothing is kept, so that its id would lead nowhere.
#[inline]
pub fn kept(is_sampled: bool, trace: Option<&Trace>) -> Option<ExemplarLabels> {
    let trace = trace.filter(|trace| trace.sampled.is_some());
    (is_sampled || trace.is_some())
        .then(|| ExemplarLabels { trace_id: trace.map(|trace| trace.ids.trace_id.get()) })
}

impl ExemplarLabels {
    /// The exemplar of a duration; `None` if the ids of the request are too long.
    #[cold]
    pub fn exemplar(&self, request_id: &HeaderValue, duration_ns: u64, time: Duration) -> Option<Exemplar> {
        // As samples have it, so that who looks for it finds it.
        Exemplar::new(&printable(request_id.as_bytes()), self.trace_id, duration_ns, time)
    }
}
