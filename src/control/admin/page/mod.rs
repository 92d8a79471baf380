//! The page for browsers: its files, which hold no data and are the same for everybody. What it shows it asks of `/v1/live`
//! and of the other endpoints, with the token that its user types in.
//!
//! The files are as they were written, there is no build step, and they name no other host.

use std::sync::OnceLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Body;
use axum::extract::Path;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::refusal::AdminRefusal;

struct PageFile {
    name: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const INDEX: PageFile = PageFile { name: "index.html", content_type: HTML, text: include_str!("index.html") };

macro_rules! script {
    ($name:literal) => {
        PageFile { name: $name, content_type: JAVASCRIPT, text: include_str!($name) }
    };
}

/// All others, by the last part of their path.
const PARTS: &[PageFile] = &[
    PageFile { name: "page.css", content_type: CSS, text: include_str!("page.css") },
    PageFile { name: "uplot.css", content_type: CSS, text: include_str!("uplot.css") },
    PageFile { name: "uplot.LICENSE", content_type: TEXT, text: include_str!("uplot.LICENSE") },
    PageFile { name: "icon.svg", content_type: SVG, text: include_str!("icon.svg") },
    script!("uplot.js"),
    script!("page.js"),
    script!("api.js"),
    script!("dom.js"),
    script!("numbers.js"),
    script!("stream.js"),
    script!("history.js"),
    script!("charts.js"),
    script!("panels.js"),
    script!("ask.js"),
    script!("change.js"),
];

pub(super) fn index(headers: &HeaderMap) -> Response<Body> {
    shown(&INDEX, headers)
}

pub(super) async fn part(
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response<Body>, AdminRefusal> {
    let part = PARTS.iter().find(|part| part.name == name).ok_or(AdminRefusal::NoSuchPage)?;
    Ok(shown(part, &headers))
}

fn shown(file: &PageFile, headers: &HeaderMap) -> Response<Body> {
    let tag = tag();
    let known = headers.get(IF_NONE_MATCH).and_then(|field| field.to_str().ok());
    let is_known = known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag));
    let mut response = Response::new(if is_known { Body::empty() } else { Body::from(file.text) });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let fields = response.headers_mut();
    let fixed: [(HeaderName, &'static str); 7] = [
        (CONTENT_TYPE, file.content_type),
        // Asked for again each time, because after an upgrade all files must be of one version.
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (OPENER_POLICY, "same-origin"),
    ];
    fields.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    // Cannot fail, because hex digits in quotes are valid in a field value.
    fields.extend(HeaderValue::from_str(tag).ok().map(|tag| (ETAG, tag)));
    response
}

/// One tag for all files, because they change together: with the program.
fn tag() -> &'static str {
    static TAG: OnceLock<String> = OnceLock::new();
    TAG.get_or_init(|| {
        let texts = [&INDEX].into_iter().chain(PARTS).map(|file| file.text);
        let hash = digest(&SHA256, texts.collect::<String>().as_bytes());
        let hex: String = hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("\"{hex}\"")
    })
}

/// Nothing but the page's own files, no script and no style in a text, nowhere to send anything else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;

    /// The page may not need anything that its policy forbids, or that lies elsewhere.
    #[test]
    fn no_file_has_inline_code_or_another_host() {
        for file in [&INDEX].into_iter().chain(PARTS) {
            let name = file.name;
            if name.starts_with("uplot.") {
                continue;
            }
            for forbidden in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=\""]
            {
                assert!(!file.text.contains(forbidden), "{name} has {forbidden}");
            }
            let links = file.text.match_indices("://").filter(|(at, _)| {
                let (before, after) = (&file.text[..*at], &file.text[at + 3..]);
                let is_namespace = before.ends_with("http") && after.starts_with("www.w3.org/2000/svg");
                // A line of gateway.toml that is shown.
                let is_example = before.ends_with("redis") && after.starts_with("127.0.0.1\"'");
                !is_namespace && !is_example
            });
            assert_eq!(links.count(), 0, "{name} names another host");
        }
        for on in [" onclick", " onload", " onerror", "<script>", "<style"] {
            assert!(!INDEX.text.contains(on), "{on}");
        }
    }

    #[test]
    fn the_page_and_its_scripts_name_only_files_that_are_there() {
        for file in [&INDEX].into_iter().chain(PARTS).filter(|file| !file.name.starts_with("uplot.")) {
            let from_page =
                file.text.match_indices("\"/page/").map(|(at, found)| &file.text[at + found.len()..]);
            let from_script =
                file.text.match_indices("from \"./").map(|(at, found)| &file.text[at + found.len()..]);
            for rest in from_page.chain(from_script) {
                let named = rest.split('"').next().unwrap_or_default();
                assert!(PARTS.iter().any(|part| part.name == named), "{}: {named}", file.name);
            }
        }
    }
}
