//! The optional parts of a log line: chosen header fields, and how much of the query.
//!
//! Unless the operator asks for more, only the names of a query's parameters are logged, because a value may be a
//! secret (a password reset, a login code, a signed link).

use http::header::{REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::field::{FIELD_BYTES_MAX, LoggedField, QueryDetail};
use super::{AccessConfig, LogFormat, Sink};

/// The optional parts that lines show. Part of the snapshot, so a reload replaces it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedParts {
    /// How much of a query is shown.
    pub query: QueryDetail,
    /// The header fields that are shown, those with a key of their own first.
    pub fields: Box<[LoggedField]>,
}

/// Values of the shown fields, in the same order. Most lines have two, which need no allocation.
pub type Values = SmallVec<[Option<HeaderValue>; 2]>;

impl LoggedParts {
    /// The parts that a configuration names; none if the log is off.
    pub fn new(config: &AccessConfig) -> LoggedParts {
        let fields = if config.to == Sink::Off { &[][..] } else { &config.headers };
        // Sorted, because the line's writer expects fields with a key of their own first.
        let mut fields: Vec<LoggedField> = fields.iter().map(|name| field(name, &config.format)).collect();
        fields.sort_by_key(|field| !field.is_own);
        LoggedParts { query: config.query, fields: fields.into() }
    }

    /// Reads the shown fields from a head. A field that came several times is joined with commas (RFC 9110 section
    /// 5.3).
    pub fn values(&self, headers: &HeaderMap) -> Values {
        self.fields.iter().map(|field| value(headers, &field.name)).collect()
    }

    /// The `User-Agent` among values, if it is shown.
    pub fn user_agent<'v>(&self, values: &'v Values) -> Option<&'v [u8]> {
        let index = self.fields.iter().position(|field| field.name == USER_AGENT)?;
        let value = values.get(index)?.as_ref()?.as_bytes();
        Some(value.get(..FIELD_BYTES_MAX).unwrap_or(value))
    }

    /// Replaces the query in values that are URLs, if `masked` returns a replacement.
    pub fn mask_queries(&self, values: &mut Values, masked: impl Fn(&str) -> Option<String>) {
        for (_, value) in self.fields.iter().zip(values.iter_mut()).filter(|(field, _)| field.is_url) {
            let Some((before, query)) = value.as_ref().and_then(|value| value.to_str().ok()?.split_once('?'))
            else {
                continue;
            };
            if let Some(masked) = masked(query) {
                *value = HeaderValue::from_str(&format!("{before}?{masked}")).ok();
            }
        }
    }
}

fn field(name: &HeaderName, format: &LogFormat) -> LoggedField {
    let is_ecs = *format == LogFormat::Ecs;
    let own = match *name {
        USER_AGENT if is_ecs => Some("user_agent.original"),
        USER_AGENT => Some("user_agent"),
        REFERER if is_ecs => Some("http.request.referrer"),
        REFERER => Some("referer"),
        _ => None,
    };
    let key = match own {
        Some(own) => format!(",\"{own}\":\""),
        None => format!("\"{name}\":\""),
    };
    LoggedField {
        name: name.clone(),
        key: key.into_bytes().into(),
        is_own: own.is_some(),
        is_url: *name == REFERER,
    }
}

fn value(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?;
    if lines.next().is_none() {
        return Some(first.clone());
    }
    let all: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    HeaderValue::from_bytes(&all.join(&b", "[..])).ok()
}

/// Copies values into memory of their own, clipped to what a line shows, because a value shares the buffer its head
/// was read from, and would keep all of it alive for as long as the request lasts.
pub fn detach(values: &mut Values) {
    for value in values.iter_mut().flatten() {
        let bytes = value.as_bytes();
        // One byte more than is shown, so that the line marks the cut.
        let shown = bytes.get(..=FIELD_BYTES_MAX).unwrap_or(bytes);
        if let Ok(detached) = HeaderValue::from_bytes(shown) {
            *value = detached;
        }
    }
}
