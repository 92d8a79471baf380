//! Picks the format of `/metrics`: protobuf or OpenMetrics if the scraper asks for it by name and likes it best, else the
//! plain text of Prometheus.

use http::HeaderMap;
use http::header::ACCEPT;

use metrics::ScrapeFormat;

/// `*/*` gets the plain text, because older scrapers that send it read nothing else.
pub(super) fn accepted(headers: &HeaderMap) -> ScrapeFormat {
    let accept: Vec<_> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let weight = |kind: &str, parameters: &[&str]| {
        let ranges = accept.iter().flat_map(|value| value.split(','));
        ranges.filter_map(|range| weight_of(range, kind, parameters)).fold(0.0, f32::max)
    };
    let text = weight("text/plain", &[]);
    let open_metrics = weight("application/openmetrics-text", &[]);
    // With both parameters, because messages of another kind, or without lengths, are other formats.
    let protobuf = weight("application/vnd.google.protobuf", &[PROTO, "encoding=delimited"]);
    if protobuf > open_metrics.max(text) {
        ScrapeFormat::Protobuf
    } else if open_metrics > 0.0 && open_metrics >= text {
        ScrapeFormat::OpenMetrics
    } else {
        ScrapeFormat::Prometheus
    }
}

/// The weight (`q`, RFC 9110 section 12.4.2) of one media range if it is of this kind and has these parameters.
fn weight_of(range: &str, kind: &str, parameters: &[&str]) -> Option<f32> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(kind) {
        return None;
    }
    let has = |parameter: &&str| parts.clone().any(|part| part.eq_ignore_ascii_case(parameter));
    if !parameters.iter().all(has) {
        return None;
    }
    match parts.find_map(|part| part.strip_prefix("q=")) {
        Some(weight) => weight.parse().ok(),
        None => Some(1.0),
    }
}

const PROTO: &str = "proto=io.prometheus.client.MetricFamily";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn formats_other_than_plain_text_are_asked_for_by_name() {
        for (accept, expected) in [
            ("", ScrapeFormat::Prometheus),
            ("*/*", ScrapeFormat::Prometheus),
            ("text/plain;version=0.0.4", ScrapeFormat::Prometheus),
            ("application/openmetrics-text", ScrapeFormat::OpenMetrics),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
                ScrapeFormat::OpenMetrics,
            ),
            ("application/openmetrics-text; q=0.2, text/plain; q=0.3", ScrapeFormat::Prometheus),
            ("application/openmetrics-text;q=0", ScrapeFormat::Prometheus),
            ("application/openmetrics-text;q=much", ScrapeFormat::Prometheus),
            ("application/vnd.google.protobuf", ScrapeFormat::Prometheus),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily",
                ScrapeFormat::Prometheus,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
                ScrapeFormat::Prometheus,
            ),
            // Prometheus 2.42 that reads native histograms.
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                 application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ScrapeFormat::Protobuf,
            ),
            // Prometheus 3, which reads them and which does not.
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                 application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                 application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
                 text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                ScrapeFormat::Protobuf,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.3",
                ScrapeFormat::OpenMetrics,
            ),
            (
                "text/plain,application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
                ScrapeFormat::Prometheus,
            ),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(accepted(&headers), expected, "{accept}");
        }
    }
}
