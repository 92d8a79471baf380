//! The optional parts of a log line: chosen header fields, and how much of the query.
//!
//! A value in a query may be a secret (a password reset, a login code, a signed link), so unless the operator asks for
//! more, only the names of parameters are logged.

use http::header::{REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::{AccessConfig, Sink};

/// How much of a query is shown, that of a `Referer` too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Query {
    /// All of it.
    Keep,
    /// Nothing.
    Drop,
    /// Names of parameters, each value a star.
    #[default]
    Names,
}

/// What lines show. Part of a snapshot: a reload brings a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// How much of a query.
    pub query: Query,
    /// Which fields of a head.
    pub fields: Box<[Field]>,
}

/// A field of a head that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    name: HeaderName,
    /// As it stands in a line, with what stands before its value.
    pub(super) key: Box<[u8]>,
    /// Whether it has a key of its own in the line; the others stand together under `headers`.
    pub(super) is_own: bool,
    /// Whether its value has a query.
    pub(super) is_url: bool,
}

/// Values of the fields that are shown, in their order. Two are what most lines have; more are kept elsewhere.
pub type Values = SmallVec<[Option<HeaderValue>; 2]>;

impl Shown {
    /// What a configuration names; nothing where no line is written.
    pub fn new(config: &AccessConfig) -> Shown {
        let fields = if config.to == Sink::Off { &[][..] } else { &config.headers };
        // Those that have keys of their own come first.
        let mut fields: Vec<Field> = fields.iter().map(Field::new).collect();
        fields.sort_by_key(|field| !field.is_own);
        Shown { query: config.query, fields: fields.into() }
    }

    /// What a head says in the fields that are shown. A field that came several times is one, joined by commas (RFC
    /// 9110 section 5.3).
    pub fn values(&self, headers: &HeaderMap) -> Values {
        self.fields.iter().map(|field| value(headers, &field.name)).collect()
    }

    /// Replaces queries in those values that have one, where `masked` has something else for it.
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

impl Field {
    fn new(name: &HeaderName) -> Field {
        let own = match *name {
            USER_AGENT => Some("user_agent"),
            REFERER => Some("referer"),
            _ => None,
        };
        let key = match own {
            Some(own) => format!(",\"{own}\":\""),
            None => format!("\"{name}\":\""),
        };
        Field {
            name: name.clone(),
            key: key.into_bytes().into(),
            is_own: own.is_some(),
            is_url: *name == REFERER,
        }
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

/// The same values in memory of their own: a value is a piece of the buffer that its head was read from.
pub fn keep_alone(values: &mut Values) {
    for value in values.iter_mut().flatten() {
        let bytes = value.as_bytes();
        let shown = bytes.get(..=FIELD_BYTES_MAX).unwrap_or(bytes);
        if let Ok(alone) = HeaderValue::from_bytes(shown) {
            *value = alone;
        }
    }
}

/// Fields that a line may show.
pub const FIELDS_MAX: usize = 8;
/// The longest name of one.
pub const FIELD_NAME_BYTES_MAX: usize = 64;
/// Bytes kept of a value.
pub(super) const FIELD_BYTES_MAX: usize = 512;
