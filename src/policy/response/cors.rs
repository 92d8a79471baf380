//! CORS (the Fetch standard, section 3.2): the fields that tell a browser which other origins' scripts may use a route.
//!
//! It protects browsers' users only. Other clients ignore it, so it does not replace authentication.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::definition;
use crate::list_field::join_items;
use crate::matching::method::Methods;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    origins: Box<[AllowedOrigin]>,
    credentials: bool,
    methods: HeaderValue,
    /// `None`: the headers that the browser asks for.
    headers: Option<HeaderValue>,
    expose: Option<HeaderValue>,
    max_age: HeaderValue,
}

/// One allowed origin, or a pattern of them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AllowedOrigin {
    Any,
    Exact(Box<str>),
    /// Any single label between a prefix and a suffix: `https://` and `.example.com`.
    Wildcard(Box<str>, Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write an origin as scheme, host and, if it is not the default, port: `https://app.example.com`")]
pub struct NotAnOrigin;

impl AllowedOrigin {
    fn parse(text: &str) -> Result<AllowedOrigin, NotAnOrigin> {
        if text == "*" {
            return Ok(AllowedOrigin::Any);
        }
        let text = text.to_ascii_lowercase();
        let (scheme, authority) = text.split_once("://").ok_or(NotAnOrigin)?;
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        let (label, host) = match authority.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, authority),
        };
        let is_scheme = !scheme.is_empty()
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        if !is_scheme || host.is_empty() || !host.bytes().all(is_host) {
            return Err(NotAnOrigin);
        }
        Ok(match label {
            true => AllowedOrigin::Wildcard(format!("{scheme}://").into(), format!(".{host}").into()),
            false => AllowedOrigin::Exact(text.into()),
        })
    }

    fn is(&self, origin: &[u8]) -> bool {
        match self {
            AllowedOrigin::Any => true,
            AllowedOrigin::Exact(own) => own.as_bytes() == origin,
            AllowedOrigin::Wildcard(before, after) => {
                let label = origin.strip_prefix(before.as_bytes());
                let label = label.and_then(|rest| rest.strip_suffix(after.as_bytes()));
                label.is_some_and(|label| {
                    !label.is_empty()
                        && label.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
                })
            }
        }
    }
}

/// Whether a text names an origin, many (`https://*.example.com`), or any (`*`).
///
/// # Errors
/// If it does not.
pub fn check_origin(text: &str) -> Result<(), NotAnOrigin> {
    AllowedOrigin::parse(text).map(|_| ())
}

impl Cors {
    /// Compiles the rules of a route that serves these methods. Invalid origins are left out, because `check_origin`
    /// has reported them.
    pub(crate) fn new(written: &definition::CorsDefinition, methods: &Methods) -> Cors {
        let names: Vec<&str> = match written.methods.is_empty() {
            false => written.methods.iter().map(Method::as_str).collect(),
            true if methods.is_any() => METHODS.to_vec(),
            true => methods.listed().map(Method::as_str).collect(),
        };
        let headers = written.headers.iter().map(String::as_str);
        Cors {
            origins: written.origins.iter().filter_map(|text| AllowedOrigin::parse(text).ok()).collect(),
            credentials: written.credentials,
            methods: join_items(names.into_iter()).unwrap_or(NOTHING),
            headers: written
                .headers
                .iter()
                .all(|name| name != "*")
                .then(|| join_items(headers).unwrap_or(NOTHING)),
            expose: join_items(written.expose.iter().map(String::as_str)),
            max_age: written.max_age.as_secs().into(),
        }
    }

    /// `Access-Control-Allow-Origin` for a request. `None`: it names no origin, or one that is not allowed.
    pub fn grant(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut lines = headers.get_all(ORIGIN).iter();
        let origin = lines.next().filter(|_| lines.next().is_none())?;
        if !self.origins.iter().any(|own| own.is(origin.as_bytes())) {
            return None;
        }
        Some(if self.is_any() { STAR } else { origin.clone() })
    }

    fn is_any(&self) -> bool {
        self.origins.contains(&AllowedOrigin::Any)
    }

    /// Sets the fields of an answer. They replace those of the upstream, because two values would make a browser refuse both.
    pub fn tell(&self, granted: Option<HeaderValue>, headers: &mut HeaderMap) {
        for name in [
            ACCESS_CONTROL_ALLOW_ORIGIN,
            ACCESS_CONTROL_ALLOW_CREDENTIALS,
            ACCESS_CONTROL_EXPOSE_HEADERS,
            ACCESS_CONTROL_ALLOW_METHODS,
            ACCESS_CONTROL_ALLOW_HEADERS,
            ACCESS_CONTROL_MAX_AGE,
        ] {
            headers.remove(name);
        }
        self.tell_origin(granted, headers);
        if let Some(expose) =
            self.expose.as_ref().filter(|_| headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN))
        {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, expose.clone());
        }
    }

    /// Sets the fields of the answer to a preflight.
    pub fn tell_preflight(&self, granted: HeaderValue, asked: &HeaderMap, headers: &mut HeaderMap) {
        self.tell_origin(Some(granted), headers);
        headers.append(VARY, VARY_PREFLIGHT);
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, self.methods.clone());
        let wanted = || asked.get(ACCESS_CONTROL_REQUEST_HEADERS).filter(|wanted| are_names(wanted));
        if let Some(names) = self.headers.as_ref().or_else(wanted).filter(|names| !names.is_empty()) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        headers.insert(ACCESS_CONTROL_MAX_AGE, self.max_age.clone());
    }

    fn tell_origin(&self, granted: Option<HeaderValue>, headers: &mut HeaderMap) {
        if !self.is_any() {
            // Told to caches, so that they do not serve this answer to another origin.
            headers.append(VARY, VARY_ORIGIN);
        }
        let Some(granted) = granted else { return };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, granted);
        if self.credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        }
    }
}

/// The method that a preflight asks about. `None`: the request is not a preflight.
pub fn preflight(method: &Method, headers: &HeaderMap) -> Option<Method> {
    if method != Method::OPTIONS || !headers.contains_key(ORIGIN) {
        return None;
    }
    Method::from_bytes(headers.get(ACCESS_CONTROL_REQUEST_METHOD)?.as_bytes()).ok()
}

/// Whether a list of requested headers is one that may be echoed back: not too long, and nothing but names.
fn are_names(wanted: &HeaderValue) -> bool {
    let mut names = wanted.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    wanted.len() <= WANTED_BYTES_MAX && names.all(|name| HeaderName::from_bytes(name).is_ok())
}

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
const NOTHING: HeaderValue = HeaderValue::from_static("");
const STAR: HeaderValue = HeaderValue::from_static("*");
const TRUE: HeaderValue = HeaderValue::from_static("true");
const VARY_ORIGIN: HeaderValue = HeaderValue::from_static("Origin");
const VARY_PREFLIGHT: HeaderValue =
    HeaderValue::from_static("Access-Control-Request-Method, Access-Control-Request-Headers");

/// A longer list of requested headers is not echoed back.
const WANTED_BYTES_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_headers_are_echoed() {
        let is_echoed = |text: &str| are_names(&HeaderValue::from_bytes(text.as_bytes()).expect("a value"));
        assert!(["x-a", "Content-Type, x-b,x-c"].iter().all(|names| is_echoed(names)));
        let long = "x".repeat(WANTED_BYTES_MAX + 1);
        for wrong in ["<b>", "x-a, \"q\"", "a b", "a;b", "x:y", "x-\u{e4}", "x-a,,x-b", "", &long] {
            assert!(!is_echoed(wrong), "{wrong}");
        }
    }

    #[test]
    fn an_origin_is_exact_or_has_one_label_more() {
        let is =
            |own: &str, origin: &str| AllowedOrigin::parse(own).expect("an origin").is(origin.as_bytes());
        assert!(is("https://App.example.com", "https://app.example.com"));
        assert!(is("https://*.example.com", "https://a.example.com"));
        assert!(is("http://localhost:3000", "http://localhost:3000"));
        assert!(is("*", "null"));
        for (own, origin) in [
            ("https://app.example.com", "http://app.example.com"),
            ("https://app.example.com", "https://app.example.com:8443"),
            ("https://app.example.com", "https://app.example.com.evil.example"),
            ("https://*.example.com", "https://example.com"),
            ("https://*.example.com", "https://.example.com"),
            ("https://*.example.com", "https://a.b.example.com"),
            ("https://*.example.com", "https://evil.example/.example.com"),
            ("https://*.example.com", "https://evil.example?.example.com"),
            ("https://*.example.com", "http://a.example.com"),
        ] {
            assert!(!is(own, origin), "{own} {origin}");
        }
        for wrong in
            ["", "example.com", "https://", "https://a/", "https://a*.example.com", "null", "https://*."]
        {
            assert_eq!(check_origin(wrong), Err(NotAnOrigin), "{wrong}");
        }
    }
}
