//! What parts of the process write at a scrape: whole families of samples, whatever the format they are shown in.

use std::fmt;
use std::sync::Arc;

use super::histogram::{Distribution, Histogram};

/// Takes families one after the other and shows each at once. One without a sample is left out.
pub struct Families<'e> {
    show: &'e mut dyn FnMut(&SampleFamily<'_>) -> fmt::Result,
}

/// Labels of one sample: names and values.
pub type Labels<'l, const N: usize> = [(&'static str, &'l str); N];

/// A series, and the name that its label has.
pub(super) type LabelledSeries<S> = (Box<str>, Arc<S>);

/// A unit; the names of its metrics end with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    Bytes,
    /// A part of a whole, 0 to 1.
    Ratio,
    Seconds,
}

/// The value of a counter or a gauge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricNumber {
    /// A count, or a time.
    Whole(i128),
    /// Anything else.
    Fraction(f64),
}

/// Samples of one name, of one kind.
pub(super) struct SampleFamily<'f> {
    /// Without the `_total` of counters.
    pub(super) name: String,
    pub(super) help: &'f str,
    pub(super) unit: Option<MetricUnit>,
    pub(super) kind: MetricKind,
    pub(super) samples: Vec<MetricSample<'f>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

pub(super) struct MetricSample<'f> {
    pub(super) labels: Vec<(&'static str, &'f str)>,
    pub(super) value: MetricValue,
}

pub(super) enum MetricValue {
    Number(MetricNumber),
    Histogram(Distribution),
}

impl<'e> Families<'e> {
    pub(super) fn new(show: &'e mut dyn FnMut(&SampleFamily<'_>) -> fmt::Result) -> Families<'e> {
        Families { show }
    }

    /// Counters; their names get `_total`.
    pub fn counters<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&MetricUnit>,
        samples: impl IntoIterator<Item = (Labels<'l, N>, u64)>,
    ) -> fmt::Result {
        let samples = samples.into_iter().map(|(labels, count)| (labels, MetricValue::Number(count.into())));
        self.family(MetricKind::Counter, name, help, unit, samples)
    }

    /// A counter of each series, which `label` tells apart by their names.
    pub(super) fn counter_of_each<'s, S: 's>(
        &mut self,
        (name, help): (&str, &str),
        label: &'static str,
        series: impl IntoIterator<Item = &'s LabelledSeries<S>>,
        count: impl Fn(&S) -> u64,
    ) -> fmt::Result {
        let samples = series.into_iter().map(|(name, series)| ([(label, &**name)], count(series)));
        self.counters(name, help, None, samples)
    }

    /// Counters of each series, which a second label tells apart by a word for each.
    pub(super) fn counters_of_each<'s, S: 's, const N: usize>(
        &mut self,
        (name, help): (&str, &str),
        [label, second]: [&'static str; 2],
        series: impl IntoIterator<Item = &'s LabelledSeries<S>>,
        counts: impl Fn(&S) -> [(&'static str, u64); N],
    ) -> fmt::Result {
        let samples = series.into_iter().flat_map(|(name, series)| {
            counts(series).map(|(word, count)| ([(label, &**name), (second, word)], count))
        });
        self.counters(name, help, None, samples)
    }

    pub fn gauges<'l, const N: usize, V: Into<MetricNumber>>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&MetricUnit>,
        samples: impl IntoIterator<Item = (Labels<'l, N>, V)>,
    ) -> fmt::Result {
        let samples = samples.into_iter().map(|(labels, level)| (labels, MetricValue::Number(level.into())));
        self.family(MetricKind::Gauge, name, help, unit, samples)
    }

    /// A counter without labels and unit.
    pub fn counter(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        self.counters(name, help, None, [([], count)])
    }

    /// A gauge without labels and unit.
    pub fn gauge(&mut self, name: &str, help: &str, level: impl Into<MetricNumber>) -> fmt::Result {
        self.gauges(name, help, None, [([], level)])
    }

    /// A histogram of durations, without labels.
    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) -> fmt::Result {
        self.distributions(name, help, [([], histogram.distribution())])
    }

    pub fn histograms<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'l, N>, Histogram)>,
    ) -> fmt::Result {
        let samples = samples.into_iter().map(|(labels, histogram)| (labels, histogram.distribution()));
        self.distributions(name, help, samples)
    }

    /// Histograms of durations, as they are shown.
    pub(super) fn distributions<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'l, N>, Distribution)>,
    ) -> fmt::Result {
        let samples = samples.into_iter().map(|(labels, value)| (labels, MetricValue::Histogram(value)));
        self.family(MetricKind::Histogram, name, help, Some(&MetricUnit::Seconds), samples)
    }

    fn family<'l, const N: usize>(
        &mut self,
        kind: MetricKind,
        name: &str,
        help: &str,
        unit: Option<&MetricUnit>,
        samples: impl Iterator<Item = (Labels<'l, N>, MetricValue)>,
    ) -> fmt::Result {
        let samples = samples.map(|(labels, value)| MetricSample { labels: labels.to_vec(), value });
        let samples: Vec<_> = samples.collect();
        if samples.is_empty() {
            return Ok(());
        }
        let unit = unit.copied();
        let ending = unit.map_or_else(String::new, |unit| format!("_{}", unit.word()));
        (self.show)(&SampleFamily { name: format!("{PREFIX}{name}{ending}"), help, unit, kind, samples })
    }
}

impl MetricUnit {
    /// As names end.
    pub(super) fn word(self) -> &'static str {
        match self {
            MetricUnit::Bytes => "bytes",
            MetricUnit::Ratio => "ratio",
            MetricUnit::Seconds => "seconds",
        }
    }
}

impl MetricNumber {
    pub(super) fn as_f64(self) -> f64 {
        match self {
            MetricNumber::Whole(number) => number as f64,
            MetricNumber::Fraction(number) => number,
        }
    }
}

impl From<u64> for MetricNumber {
    fn from(number: u64) -> MetricNumber {
        MetricNumber::Whole(number.into())
    }
}

impl From<u32> for MetricNumber {
    fn from(number: u32) -> MetricNumber {
        MetricNumber::Whole(number.into())
    }
}

impl From<i64> for MetricNumber {
    fn from(number: i64) -> MetricNumber {
        MetricNumber::Whole(number.into())
    }
}

impl From<f64> for MetricNumber {
    fn from(number: f64) -> MetricNumber {
        MetricNumber::Fraction(number)
    }
}

/// All names begin with it.
const PREFIX: &str = "sluicegate_";
