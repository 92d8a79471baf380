//! The protobuf format of Prometheus (`io.prometheus.client`), the only one in which it reads native histograms. Each family
//! is a message with its length before it. Histograms have native buckets and classic ones beside them.

use std::fmt;
use std::time::Duration;

use prost::Message;
use prost_types::Timestamp;

use crate::exemplars::Exemplar;
use crate::families::{MetricKind, MetricSample, MetricUnit, MetricValue, SampleFamily};
use crate::grid::Native;
use crate::histogram::{Distribution, seconds};

pub(super) fn write(page: &mut Vec<u8>, family: &SampleFamily<'_>) -> fmt::Result {
    message(family).encode_length_delimited(page).map_err(|_| fmt::Error)
}

fn message(family: &SampleFamily<'_>) -> MetricFamily {
    // As in the older text format, a counter's family is called as its samples are.
    let total = if family.kind == MetricKind::Counter { "_total" } else { "" };
    MetricFamily {
        name: format!("{}{total}", family.name),
        help: family.help.to_owned(),
        kind: match family.kind {
            MetricKind::Counter => COUNTER,
            MetricKind::Gauge => GAUGE,
            MetricKind::Histogram => HISTOGRAM,
        },
        metric: family.samples.iter().map(|sample| metric(family.kind, sample)).collect(),
        unit: family.unit.map_or("", MetricUnit::word).to_owned(),
    }
}

fn metric(kind: MetricKind, sample: &MetricSample<'_>) -> Metric {
    let mut metric = Metric { label: pairs(sample.labels.iter().copied()), ..Metric::default() };
    match &sample.value {
        MetricValue::Histogram(shown) => metric.histogram = Some(histogram(shown)),
        MetricValue::Number(number) => {
            let number = Some(NumberMessage { value: number.as_f64() });
            let place = if kind == MetricKind::Counter { &mut metric.counter } else { &mut metric.gauge };
            *place = number;
        }
    }
    metric
}

fn pairs<'l>(labels: impl Iterator<Item = (&'static str, &'l str)>) -> Vec<LabelPair> {
    labels.map(|(name, value)| LabelPair { name: name.to_owned(), value: value.to_owned() }).collect()
}

fn histogram(shown: &Distribution) -> HistogramMessage {
    let mut cumulative_count = 0;
    let buckets = shown.buckets.iter().enumerate().map(|(index, (upper_bound, count))| {
        cumulative_count += count;
        let exemplar = shown.exemplars.get(&index).map(exemplar);
        BucketMessage { cumulative_count, upper_bound: *upper_bound, exemplar }
    });
    let bucket = buckets.collect();
    let native = &shown.native;
    HistogramMessage {
        sample_count: cumulative_count,
        sample_sum: shown.sum_seconds,
        bucket,
        schema: Some(native.schema),
        zero_threshold: Some(native.zero_threshold),
        zero_count: native.zero_count,
        positive_span: spans(native),
        positive_delta: deltas(native),
    }
}

/// Runs of buckets: how far each begins behind the one before, the first behind bucket 0, and how many there are.
fn spans(native: &Native) -> Vec<BucketSpan> {
    let mut spans: Vec<BucketSpan> = Vec::new();
    let mut next = 0;
    for (index, _) in &native.buckets {
        match spans.last_mut() {
            Some(span) if *index == next => span.length += 1,
            _ => spans.push(BucketSpan { offset: index - next, length: 1 }),
        }
        next = index + 1;
    }
    spans
}

/// How much each bucket has more than the one before.
fn deltas(native: &Native) -> Vec<i64> {
    let counts = native.buckets.iter().map(|(_, count)| *count as i64);
    let before = [0].into_iter().chain(counts.clone());
    counts.zip(before).map(|(count, before)| count - before).collect()
}

fn exemplar(exemplar: &Exemplar) -> ExemplarMessage {
    ExemplarMessage {
        label: pairs(exemplar.labels.iter().map(|(name, value)| (*name, &**value))),
        value: seconds(exemplar.duration_ns),
        timestamp: Some(timestamp(exemplar.time)),
    }
}

fn timestamp(time: Duration) -> Timestamp {
    Timestamp { seconds: time.as_secs() as i64, nanos: time.subsec_nanos() as i32 }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct MetricFamily {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(int32, tag = "3")]
    pub(super) kind: i32,
    #[prost(message, repeated, tag = "4")]
    pub(super) metric: Vec<Metric>,
    #[prost(string, tag = "5")]
    unit: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub(super) label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    pub(super) gauge: Option<NumberMessage>,
    #[prost(message, optional, tag = "3")]
    pub(super) counter: Option<NumberMessage>,
    #[prost(message, optional, tag = "7")]
    pub(super) histogram: Option<HistogramMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LabelPair {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// `Gauge`, or `Counter`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NumberMessage {
    #[prost(double, tag = "1")]
    pub(super) value: f64,
}

/// `HistogramMessage`. Whoever reads it takes one that says its threshold for a native one.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HistogramMessage {
    #[prost(uint64, tag = "1")]
    pub(super) sample_count: u64,
    #[prost(double, tag = "2")]
    pub(super) sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    pub(super) bucket: Vec<BucketMessage>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, tag = "7")]
    pub(super) zero_count: u64,
    #[prost(message, repeated, tag = "12")]
    pub(super) positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "13")]
    pub(super) positive_delta: Vec<i64>,
}

/// `BucketMessage`, a classic one.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct BucketMessage {
    #[prost(uint64, tag = "1")]
    pub(super) cumulative_count: u64,
    #[prost(double, tag = "2")]
    pub(super) upper_bound: f64,
    #[prost(message, optional, tag = "3")]
    pub(super) exemplar: Option<ExemplarMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct BucketSpan {
    #[prost(sint32, tag = "1")]
    pub(super) offset: i32,
    #[prost(uint32, tag = "2")]
    pub(super) length: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExemplarMessage {
    #[prost(message, repeated, tag = "1")]
    pub(super) label: Vec<LabelPair>,
    #[prost(double, tag = "2")]
    pub(super) value: f64,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Timestamp>,
}

/// Numbers of `MetricType`.
const COUNTER: i32 = 0;
const GAUGE: i32 = 1;
pub(super) const HISTOGRAM: i32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_buckets_are_told_by_their_distance() {
        let buckets = vec![(-10, 3), (-9, 5), (-7, 1), (4, 2)];
        let native = Native { schema: 3, zero_threshold: 1.0, zero_count: 0, buckets };
        let told: Vec<_> = spans(&native).iter().map(|span| (span.offset, span.length)).collect();
        assert_eq!(told, [(-10, 2), (1, 1), (10, 1)]);
        assert_eq!(deltas(&native), [3, 2, -4, 1]);
    }
}
