//! Begins or continues the trace of a request: decides whether it is sampled, and what who comes next is told. `baggage` is
//! not this gateway's and passes as it came.

use std::num::NonZeroU64;

use http::HeaderMap;

use super::config::{Config, ParentSampling, TraceparentTrust};
use super::context::{NextSpan, RemoteSpan, SAMPLED, TRACEPARENT, TRACEPARENT_BYTES, TRACESTATE, TraceIds};
use super::sampler::TraceSampler;
use base::hex::HexNumber;

/// Decides about the traces of requests. Part of the snapshot, so a reload replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracer {
    sampler: TraceSampler,
    decides: ParentSampling,
    parent: TraceparentTrust,
}

/// The trace that a request is a part of.
#[derive(Debug)]
pub struct Trace {
    pub ids: TraceIds,
    /// The span that who comes next is told of, in the place of the sender's. `None`: the sender's field goes on.
    told: Option<NextSpan>,
    /// What a span needs beside them, if the request is sampled.
    pub sampled: Option<Box<SampledSpan>>,
}

impl Trace {
    /// The value of `traceparent` in the place of the sender's.
    pub fn traceparent(&self) -> Option<[u8; TRACEPARENT_BYTES]> {
        self.told.map(|span| self.ids.traceparent(span))
    }
}

/// What the span of a sampled request says of its trace.
#[derive(Debug)]
pub struct SampledSpan {
    /// The id of the request's span.
    pub span_id: NonZeroU64,
    /// The sender's span, if its trace goes on here.
    pub parent: Option<RemoteSpan>,
    /// The sender's span, if its trace does not go on here.
    pub link: Option<RemoteSpan>,
    /// What tracing systems tell each other, if the trace goes on.
    pub state: String,
    /// The flags that who comes next is told.
    pub flags: u8,
}

/// Which fields of a trace a request has: who has looked at all of its names knows, and most requests have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceFields {
    /// `traceparent`.
    pub parent: bool,
    /// `tracestate`.
    pub state: bool,
}

impl Tracer {
    /// A tracer as the configuration says.
    pub fn new(config: &Config) -> Tracer {
        Tracer {
            sampler: TraceSampler::new(config.sample_ppm),
            decides: config.decides,
            parent: config.parent,
        }
    }

    /// Begins or continues a request's trace, and removes the fields that do not go on. `is_trusted`: the sender is a
    /// trusted hop.
    ///
    /// `traceparent` is not put into the map, because it goes out with every request, and a map takes several times
    /// what it takes to write it. What continues a trace that nobody samples keeps its field as it came.
    pub fn begin(
        &self,
        headers: &mut HeaderMap,
        fields: TraceFields,
        is_trusted: bool,
        own_id: Option<HexNumber>,
        random: impl Fn() -> u64,
    ) -> Trace {
        let is_heeded = match self.parent {
            TraceparentTrust::Trusted => is_trusted,
            TraceparentTrust::Always => true,
            TraceparentTrust::Never => false,
        };
        let sent = if fields.parent { RemoteSpan::of(headers.get_all(TRACEPARENT).iter()) } else { None };
        let mut trace = match sent {
            Some(parent) if is_heeded => self.go_on(parent, random),
            other => self.start(other, own_id, random),
        };
        if fields.parent && trace.told.is_some() {
            headers.remove(TRACEPARENT);
        }
        match &mut trace.sampled {
            _ if !fields.state => {}
            _ if sent.is_none() || !is_heeded => {
                // Removed, because it belongs to a `traceparent` that is not there or not valid, or to another trace.
                headers.remove(TRACESTATE);
            }
            Some(sampled) => sampled.state = state(headers),
            None => {}
        }
        trace
    }

    /// The trace of a request that continues one.
    fn go_on(&self, parent: RemoteSpan, random: impl Fn() -> u64) -> Trace {
        let trace_id = parent.trace_id;
        let is_sampled = match self.decides {
            ParentSampling::Parent => parent.is_sampled(),
            ParentSampling::Ratio => self.sampler.draws(trace_id),
        };
        if !is_sampled && !parent.is_sampled() {
            return Trace { ids: TraceIds::of(trace_id, None), told: None, sampled: None };
        }
        let flags = parent.flags & !SAMPLED | u8::from(is_sampled);
        let span_id = nonzero(random());
        let state = String::new();
        let sampled = is_sampled
            .then(|| Box::new(SampledSpan { span_id, parent: Some(parent), link: None, state, flags }));
        let ids = TraceIds::of(trace_id, is_sampled.then_some(span_id));
        Trace { ids, told: Some(NextSpan { span_id: Some(span_id), flags }), sampled }
    }

    /// The trace that begins with a request. It has the number of the request's id, if that is of our own.
    fn start(&self, link: Option<RemoteSpan>, own_id: Option<HexNumber>, random: impl Fn() -> u64) -> Trace {
        let id = own_id.unwrap_or_else(|| HexNumber::of_halves(random(), random()));
        let ids = TraceIds::known(id, None);
        let is_sampled = self.sampler.draws(ids.trace_id);
        // Otherwise the last digits of its trace are its id, because a span that nobody records needs none of its
        // own.
        let is_told_apart = is_sampled || ids.trace_id.get() as u64 == 0;
        let span_id = is_told_apart.then(|| nonzero(random()));
        let (own, flags) = (span_id.filter(|_| is_sampled), u8::from(is_sampled));
        let sampled = own.map(|span_id| {
            Box::new(SampledSpan { span_id, parent: None, link, state: String::new(), flags })
        });
        Trace { ids: TraceIds { span_id: own, ..ids }, told: Some(NextSpan { span_id, flags }), sampled }
    }
}

fn nonzero(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)
}

/// The lines of `tracestate` as one; nothing if they are longer than a system has to keep (section 3.3.1.5).
fn state(headers: &HeaderMap) -> String {
    let lines: Vec<&str> = headers.get_all(TRACESTATE).iter().filter_map(|line| line.to_str().ok()).collect();
    let state = lines.join(",");
    if state.len() <= STATE_BYTES_MAX { state } else { String::new() }
}

const STATE_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use http::HeaderValue;

    use super::*;

    const SAMPLED_PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OTHER_PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    fn begun(tracer: Tracer, fields: &[(&'static str, &str)], is_trusted: bool) -> (Trace, HeaderMap) {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        let fields = TraceFields {
            parent: headers.contains_key(TRACEPARENT),
            state: headers.contains_key(TRACESTATE),
        };
        let next = Cell::new(0);
        let random = || {
            next.set(next.get() + 1);
            next.get()
        };
        let trace = tracer.begin(&mut headers, fields, is_trusted, None, random);
        if let Some(value) = trace.traceparent() {
            assert!(!headers.contains_key(TRACEPARENT), "it would go out twice");
            headers.insert(TRACEPARENT, HeaderValue::from_bytes(&value).expect("a value"));
        }
        (trace, headers)
    }

    fn tracer(sample_ppm: u32, decides: ParentSampling, parent: TraceparentTrust) -> Tracer {
        Tracer { sampler: TraceSampler::new(sample_ppm), decides, parent }
    }

    #[test]
    fn a_trusted_parent_decides_and_its_trace_goes_on() {
        let tracer = tracer(0, ParentSampling::Parent, TraceparentTrust::Trusted);
        let fields = [
            ("traceparent", SAMPLED_PARENT),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
            ("baggage", "x=y"),
        ];
        let (trace, headers) = begun(tracer, &fields, true);
        let sampled = trace.sampled.expect("its parent is");
        assert_eq!(headers["traceparent"], "00-0af7651916cd43dd8448eb211c80319c-0000000000000001-01");
        assert_eq!((sampled.state.as_str(), sampled.flags, sampled.link), ("a=1,b=2", 1, None));
        assert_eq!(sampled.parent.expect("there is one").span_id.get(), 0xb7ad6b7169203331);
        assert_eq!(
            (headers.get_all("tracestate").iter().count(), &headers["baggage"]),
            (2, &"x=y".parse().expect("a value"))
        );
        let (trace, headers) = begun(tracer, &[("traceparent", OTHER_PARENT), ("tracestate", "a=1")], true);
        assert!(trace.sampled.is_none() && trace.ids.span_id.is_none());
        assert_eq!(
            (headers["traceparent"].as_bytes(), headers["tracestate"].as_bytes()),
            (OTHER_PARENT.as_bytes(), &b"a=1"[..])
        );
    }

    #[test]
    fn a_stranger_cannot_have_a_request_sampled() {
        let tracer = tracer(0, ParentSampling::Parent, TraceparentTrust::Trusted);
        let (trace, headers) = begun(
            tracer,
            &[("traceparent", SAMPLED_PARENT), ("tracestate", "a=1"), ("baggage", "x=y")],
            false,
        );
        assert!(trace.sampled.is_none());
        assert_eq!(headers["traceparent"], "00-00000000000000010000000000000002-0000000000000002-00");
        assert!(!headers.contains_key("tracestate") && headers.contains_key("baggage"));
        let everybody = Tracer { sampler: TraceSampler::new(1_000_000), ..tracer };
        let (trace, _) = begun(everybody, &[("traceparent", SAMPLED_PARENT)], false);
        let sampled = trace.sampled.expect("all are");
        assert_eq!(sampled.link.expect("its own").span_id.get(), 0xb7ad6b7169203331);
        assert_eq!(sampled.parent, None);
        let always = Tracer { parent: TraceparentTrust::Always, ..tracer };
        assert!(begun(always, &[("traceparent", SAMPLED_PARENT)], false).0.sampled.is_some());
        let never = Tracer { parent: TraceparentTrust::Never, ..tracer };
        assert!(begun(never, &[("traceparent", SAMPLED_PARENT)], true).0.sampled.is_none());
    }

    #[test]
    fn the_ratio_decides_by_choice_and_says_so() {
        let ratio = |ppm| tracer(ppm, ParentSampling::Ratio, TraceparentTrust::Always);
        let (trace, headers) = begun(ratio(0), &[("traceparent", SAMPLED_PARENT)], false);
        assert!(trace.sampled.is_none());
        assert_eq!(headers["traceparent"], "00-0af7651916cd43dd8448eb211c80319c-0000000000000001-00");
        let (trace, headers) = begun(ratio(1_000_000), &[("traceparent", OTHER_PARENT)], false);
        assert!(trace.sampled.is_some());
        assert_eq!(headers["traceparent"], "00-0af7651916cd43dd8448eb211c80319c-0000000000000001-01");
    }

    #[test]
    fn what_is_invalid_begins_a_trace() {
        let tracer = tracer(1_000_000, ParentSampling::Parent, TraceparentTrust::Always);
        for fields in [&[][..], &[("tracestate", "a=1")], &[("traceparent", "00-x"), ("tracestate", "a=1")]] {
            let (trace, headers) = begun(tracer, fields, true);
            assert!(trace.sampled.is_some_and(|sampled| sampled.parent.is_none() && sampled.link.is_none()));
            assert_eq!(headers["traceparent"], "00-00000000000000010000000000000002-0000000000000003-01");
            assert!(!headers.contains_key("tracestate"), "{fields:?}");
        }
    }
}
