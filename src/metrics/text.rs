//! Writes metrics as OpenMetrics 1.0 text, and converts that to the older Prometheus text format 0.0.4.

use std::fmt::{self, Write};

use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
pub use prometheus_client::registry::Unit;

use super::histogram::{Histogram, Reading};

/// A text format of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Prometheus,
}

impl Format {
    /// Its `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Labels of one sample: names and values.
pub type Labels<'l, const N: usize> = [(&'static str, &'l str); N];

/// Writes whole families. One without a sample is left out.
pub struct Families<'e>(DescriptorEncoder<'e>);

impl<'e> Families<'e> {
    pub(super) fn new(encoder: DescriptorEncoder<'e>) -> Families<'e> {
        Families(encoder)
    }

    /// Counters; their names get `_total`.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn counters<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        samples: impl IntoIterator<Item = (Labels<'l, N>, u64)>,
    ) -> fmt::Result {
        self.family(name, help, unit, MetricType::Counter, samples, |encoder, value| {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    /// Gauges.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn gauges<'l, const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        samples: impl IntoIterator<Item = (Labels<'l, N>, V)>,
    ) -> fmt::Result {
        self.family(name, help, unit, MetricType::Gauge, samples, |encoder, value| {
            encoder.encode_gauge(&value)
        })
    }

    /// A histogram of durations, without labels.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) -> fmt::Result {
        self.histograms(name, help, [([], histogram.reading())])
    }

    pub(super) fn histograms<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'l, N>, Reading)>,
    ) -> fmt::Result {
        let samples = samples
            .into_iter()
            .map(|(labels, reading)| (labels, reading.sum_seconds(), reading.count(), reading.by_bound()));
        self.bucketed(name, help, samples)
    }

    /// Histograms with bounds of their own, in seconds: labels, the sum, the count, and the upper bound of each bucket with
    /// its count alone.
    pub(super) fn bucketed<'l, const N: usize, B: AsRef<[(f64, u64)]>>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'l, N>, f64, u64, B)>,
    ) -> fmt::Result {
        let samples =
            samples.into_iter().map(|(labels, sum, count, buckets)| (labels, (sum, count, buckets)));
        let seconds = Some(&Unit::Seconds);
        self.family(name, help, seconds, MetricType::Histogram, samples, |encoder, (sum, count, buckets)| {
            encoder.encode_histogram::<NoLabelSet>(sum, count, buckets.as_ref(), None)
        })
    }

    fn family<'l, const N: usize, V>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        kind: MetricType,
        samples: impl IntoIterator<Item = (Labels<'l, N>, V)>,
        write: impl Fn(&mut MetricEncoder<'_>, V) -> fmt::Result,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut encoder = self.0.encode_descriptor(name, help, unit, kind)?;
        for (labels, value) in samples {
            if N == 0 {
                write(&mut encoder, value)?;
            } else {
                write(&mut encoder.encode_family(&labels)?, value)?;
            }
        }
        Ok(())
    }
}

/// The older format names a counter's family with its `_total`, and knows no units and no end mark.
pub(super) fn as_prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, words)) = help.take() {
                push_line(&mut text, format_args!("# HELP {name}{suffix} {words}"));
            }
            push_line(&mut text, format_args!("# TYPE {name}{suffix} {kind}"));
        } else if !line.starts_with('#') {
            push_line(&mut text, format_args!("{line}"));
        }
    }
    text
}

fn push_line(text: &mut String, line: fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a String takes any text");
}
