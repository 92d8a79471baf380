//! Every answer of the admin listener: which paths there are, who may see them, what they say.

use bytes::Bytes;
use http::header::{
    ACCEPT, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

use super::{ExplainRequest, Phase, State, host};
use crate::metrics::Format;
use crate::policy::percent::{self, Plus};
use crate::{clock, descriptors};

/// Answers a request of this head. `take_place` takes a place among the pages that are being shown, where there is one.
pub(super) async fn answer(
    request: &Parts,
    state: &State,
    take_place: impl FnOnce() -> bool,
) -> Response<Full<Bytes>> {
    let path = request.uri.path();
    let is_probe = PAGES.iter().any(|page| page.path == path && page.is_probe());
    if !state.access.hosts.as_ref().is_none_or(|own| host::is_served(request, own, is_probe)) {
        return problem(StatusCode::MISDIRECTED_REQUEST, WRONG_HOST);
    }
    // The one that is not judged here may be the one that a hop before us has judged.
    if request.headers.get_all(AUTHORIZATION).iter().count() > 1 {
        return problem(StatusCode::BAD_REQUEST, "`Authorization` stands more than once");
    }
    let is_asked = |page: &&Page| match page.path.split_once('{') {
        Some((before, _)) => path.starts_with(before),
        None => page.path == path,
    };
    let Some(page) = PAGES.iter().find(is_asked) else {
        return problem(StatusCode::NOT_FOUND, "no such page; / lists them");
    };
    if !may_see(page, &request.headers, state.access.token.as_deref()) {
        let mut response =
            problem(StatusCode::UNAUTHORIZED, "the admin token is asked for as a bearer token");
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return response;
    }
    if request.method != Method::GET && request.method != Method::HEAD {
        let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "this page can only be read");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    if !page.is_probe() && !take_place() {
        let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, "too many pages are being shown");
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return response;
    }
    match page.shows {
        Shows::Pages => text(StatusCode::OK, list()),
        Shows::Health => text(StatusCode::OK, "ok\n".to_owned()),
        Shows::Readiness if descriptors::is_short(clock::now_ns()) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "no file descriptors\n".to_owned())
        }
        Shows::Readiness => readiness(state.readiness.phase()),
        Shows::Metrics => {
            let format = format(&request.headers);
            with_type(StatusCode::OK, format.content_type(), state.metrics.encode(format))
        }
        Shows::Config => text(StatusCode::OK, (state.config)()),
        Shows::Explain => explain(request.uri.query().unwrap_or_default(), state).await,
        Shows::Key => key(path, state).await,
    }
}

struct Page {
    path: &'static str,
    shows: Shows,
    about: &'static str,
}

impl Page {
    /// Whether it says one word of the process, which whoever looks after it must be able to ask for at any time.
    fn is_probe(&self) -> bool {
        matches!(self.shows, Shows::Health | Shows::Readiness)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    Pages,
    Health,
    Readiness,
    Metrics,
    Config,
    Explain,
    Key,
}

const PAGES: [Page; 7] = [
    Page { path: "/", shows: Shows::Pages, about: "this list" },
    Page { path: "/healthz", shows: Shows::Health, about: "200 while the process lives" },
    Page { path: "/readyz", shows: Shows::Readiness, about: "200 while it wants requests, else 503" },
    Page { path: "/metrics", shows: Shows::Metrics, about: "figures for Prometheus" },
    Page { path: "/config", shows: Shows::Config, about: "the configuration in force, secrets masked" },
    Page {
        path: "/v1/explain",
        shows: Shows::Explain,
        about: "?method=GET&url=/path&from=IP&header=name:value&all=true: what would become of a request",
    },
    Page {
        path: "/v1/keys/{policy}/{value}",
        shows: Shows::Key,
        about: "what is left of a policy's windows for one caller; a value for each dimension",
    },
];

fn may_see(page: &Page, headers: &HeaderMap, token: Option<&str>) -> bool {
    let Some(token) = token else {
        return true;
    };
    page.is_probe() || bearer(headers).is_some_and(|given| is_same(given, token.as_bytes()))
}

/// The token of `Authorization: Bearer …` (RFC 6750); the scheme's case does not matter.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then_some(token)
}

/// Compares in a time that depends on the lengths only, so that a token cannot be guessed byte by byte.
fn is_same(given: &[u8], wanted: &[u8]) -> bool {
    let differing = given.iter().zip(wanted).fold(0, |differing, (one, other)| {
        // The black box keeps the compiler from leaving the loop at the first difference.
        std::hint::black_box(differing | (one ^ other))
    });
    given.len() == wanted.len() && differing == 0
}

fn list() -> String {
    PAGES.iter().map(|page| format!("{:<12} {}\n", page.path, page.about)).collect()
}

fn readiness(phase: Phase) -> Response<Full<Bytes>> {
    match phase {
        Phase::Starting => text(StatusCode::SERVICE_UNAVAILABLE, "starting\n".to_owned()),
        Phase::Ready => text(StatusCode::OK, "ready\n".to_owned()),
        Phase::Draining => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned()),
    }
}

async fn explain(query: &str, state: &State) -> Response<Full<Bytes>> {
    match ExplainRequest::parse(query) {
        Ok(request) => with_type(StatusCode::OK, "application/json", (state.explain)(&request).await),
        Err(error) => problem(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

/// `/v1/keys/{policy}/{value}…`, each percent-encoded.
async fn key(path: &str, state: &State) -> Response<Full<Bytes>> {
    let parts: Option<Vec<String>> = path.split('/').skip(3).map(decoded).collect();
    let Some((policy, values)) = parts.as_deref().and_then(|parts| parts.split_first()) else {
        return problem(StatusCode::BAD_REQUEST, "a value is not percent-encoded UTF-8");
    };
    match (state.key)(policy, values) {
        Some(shown) => with_type(StatusCode::OK, "application/json", shown.await),
        None => problem(StatusCode::NOT_FOUND, "no such policy, or not a value for each of its dimensions"),
    }
}

fn decoded(part: &str) -> Option<String> {
    String::from_utf8(percent::decode(part, Plus::Itself).collect()).ok()
}

/// The format a scraper likes best: OpenMetrics only where it is asked for by name.
fn format(headers: &HeaderMap) -> Format {
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

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    with_type(status, "text/plain; charset=utf-8", body)
}

/// RFC 9457.
fn problem(status: StatusCode, detail: &str) -> Response<Full<Bytes>> {
    let title = status.canonical_reason().unwrap_or_default();
    let body = json!({ "title": title, "status": status.as_u16(), "detail": detail });
    with_type(status, "application/problem+json", body.to_string())
}

fn with_type(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

const BEARER: &[u8] = b"Bearer ";
/// Not repeated: the name itself is the client's.
const WRONG_HOST: &str = "without a token this listener answers to loopback names and addresses: add the host to `hosts` of [admin]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_same_or_not() {
        for (given, same) in
            [("secret", true), ("secreT", false), ("secre", false), ("secrets", false), ("", false)]
        {
            assert_eq!(is_same(given.as_bytes(), b"secret"), same, "{given}");
        }
    }

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
