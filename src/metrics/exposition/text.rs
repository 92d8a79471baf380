//! The text formats: OpenMetrics 1.0, and the older one of Prometheus, 0.0.4, which has neither units nor exemplars.

use std::fmt::{self, Write};

use super::ScrapeFormat;
use crate::exemplars::Exemplar;
use crate::families::{MetricKind, MetricNumber, MetricSample, MetricValue, SampleFamily};
use crate::histogram::{Distribution, seconds};

/// Writes a family in one of the text formats.
pub(super) fn write(text: &mut String, format: ScrapeFormat, family: &SampleFamily<'_>) -> fmt::Result {
    let is_open = format == ScrapeFormat::OpenMetrics;
    let SampleFamily { name, help, kind, .. } = family;
    // OpenMetrics names a counter's family without what its samples end with.
    let total = if *kind == MetricKind::Counter { "_total" } else { "" };
    let ending = if is_open { "" } else { total };
    writeln!(text, "# HELP {name}{ending} {}", EscapedLabel(help))?;
    writeln!(text, "# TYPE {name}{ending} {}", word(*kind))?;
    if let Some(unit) = family.unit.filter(|_| is_open) {
        writeln!(text, "# UNIT {name} {}", unit.word())?;
    }
    for MetricSample { labels, value } in &family.samples {
        match value {
            MetricValue::Number(number) => {
                push_name(text, name, total, labels)?;
                push_number(text, *number)?;
                text.push('\n');
            }
            MetricValue::Histogram(shown) => push_histogram(text, is_open, name, labels, shown)?,
        }
    }
    Ok(())
}

fn word(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    }
}

fn push_histogram(
    text: &mut String,
    with_exemplars: bool,
    name: &str,
    labels: &[(&'static str, &str)],
    shown: &Distribution,
) -> fmt::Result {
    let mut cumulative = 0;
    for (index, (bound, count)) in shown.buckets.iter().enumerate() {
        cumulative += count;
        let bound = float(*bound);
        let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
        push_name(text, name, "_bucket", &labels)?;
        write!(text, "{cumulative}")?;
        if let Some(exemplar) = shown.exemplars.get(&index).filter(|_| with_exemplars) {
            push_exemplar(text, exemplar)?;
        }
        text.push('\n');
    }
    push_name(text, name, "_sum", labels)?;
    writeln!(text, "{}", float(shown.sum_seconds))?;
    push_name(text, name, "_count", labels)?;
    writeln!(text, "{cumulative}")
}

fn push_exemplar(text: &mut String, exemplar: &Exemplar) -> fmt::Result {
    text.push_str(" # ");
    push_labels(text, exemplar.labels.iter().map(|(name, value)| (*name, &**value)))?;
    let (duration, time) = (float(seconds(exemplar.duration_ns)), exemplar.time);
    write!(text, " {duration} {}.{:03}", time.as_secs(), time.subsec_millis())
}

/// The name of a sample, its labels, and the space before its value.
fn push_name(text: &mut String, name: &str, ending: &str, labels: &[(&'static str, &str)]) -> fmt::Result {
    text.push_str(name);
    text.push_str(ending);
    if !labels.is_empty() {
        push_labels(text, labels.iter().copied())?;
    }
    text.push(' ');
    Ok(())
}

fn push_labels<'l>(text: &mut String, labels: impl Iterator<Item = (&'static str, &'l str)>) -> fmt::Result {
    text.push('{');
    for (index, (name, value)) in labels.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}{name}=\"{}\"", EscapedLabel(value))?;
    }
    text.push('}');
    Ok(())
}

fn push_number(text: &mut String, number: MetricNumber) -> fmt::Result {
    match number {
        MetricNumber::Whole(number) => write!(text, "{number}"),
        MetricNumber::Fraction(number) => write!(text, "{}", float(number)),
    }
}

/// A number in the canonical form of OpenMetrics 1.0, which is that of `%g` in C and Go. `le` has to have it, because
/// Prometheus writes the bounds of a histogram that it reads as protobuf so, and a series by another name would be
/// another series.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').expect("this form has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
    }
    let decimal = number.to_string();
    if decimal.contains('.') { decimal } else { decimal + ".0" }
}

/// A text with the three escapes that values of labels have.
struct EscapedLabel<'t>(&'t str);

impl fmt::Display for EscapedLabel<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => formatter.write_str("\\\\")?,
                '"' => formatter.write_str("\\\"")?,
                '\n' => formatter.write_str("\\n")?,
                other => formatter.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_canonical() {
        for (number, shown) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (60.0, "60.0"),
            (0.000_1, "0.0001"),
            (0.000_01, "1e-05"),
            (1.19e-7, "1.19e-07"),
            (123_456.0, "123456.0"),
            (1_234_567.5, "1.2345675e+06"),
            (1e100, "1e+100"),
            (-2.5, "-2.5"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(float(number), shown);
        }
    }
}
