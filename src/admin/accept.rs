//! Picks the format of `/metrics`: OpenMetrics if the scraper asks for it by name, else the plain text of Prometheus.

use http::HeaderMap;
use http::header::ACCEPT;

use crate::metrics::Format;

/// `*/*` gets the plain text, since older scrapers that send it do not read OpenMetrics.
pub(super) fn format(headers: &HeaderMap) -> Format {
    let accept: Vec<_> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let weight = |kind: &str| {
        let ranges = accept.iter().flat_map(|value| value.split(','));
        ranges.filter_map(|range| weight_of(range, kind)).fold(0.0, f32::max)
    };
    let open_metrics = weight("application/openmetrics-text");
    if open_metrics > 0.0 && open_metrics >= weight("text/plain") {
        Format::OpenMetrics
    } else {
        Format::Prometheus
    }
}

/// The weight (`q`, RFC 9110 section 12.4.2) of one media range if it is of this kind.
fn weight_of(range: &str, kind: &str) -> Option<f32> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(kind) {
        return None;
    }
    match parts.find_map(|part| part.strip_prefix("q=")) {
        Some(weight) => weight.parse().ok(),
        None => Some(1.0),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn open_metrics_is_asked_for_by_name() {
        for (accept, expected) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/plain;version=0.0.4", Format::Prometheus),
            ("application/openmetrics-text", Format::OpenMetrics),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
                Format::OpenMetrics,
            ),
            ("application/openmetrics-text; q=0.2, text/plain; q=0.3", Format::Prometheus),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("application/openmetrics-text;q=much", Format::Prometheus),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(format(&headers), expected, "{accept}");
        }
    }
}
