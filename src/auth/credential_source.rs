//! Where a request carries a credential: a header, `Authorization: Bearer`, a query parameter.
//!
//! It only finds the bytes. It refuses a credential that occurs twice, because the upstream may read the other one.

use std::borrow::Cow;
use std::fmt;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::request::MethodAnswer;
use base::cause::Cause;
use policy::percent::{self, Plus};
use policy::query;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// The whole value of a header.
    Header(HeaderName),
    /// What follows `Bearer` in `Authorization` (RFC 6750 section 2.1).
    Bearer,
    /// A query parameter, decoded. The least safe place, because URLs end up in logs and histories.
    Query(String),
}

impl fmt::Display for CredentialSource {
    /// As the configuration writes it: `header:x-api-key`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialSource::Header(name) => write!(formatter, "header:{name}"),
            CredentialSource::Bearer => formatter.write_str("bearer"),
            CredentialSource::Query(name) => write!(formatter, "query:{name}"),
        }
    }
}

/// What a request carries of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarriedCredential<'r> {
    /// No credential; an empty one is none.
    Nothing,
    One(Cow<'r, [u8]>),
    /// More than one: none of them counts.
    Several,
}

impl<'r> CarriedCredential<'r> {
    /// The one credential; else what is said of a request without it.
    pub(super) fn only(self) -> Result<Cow<'r, [u8]>, MethodAnswer> {
        match self {
            CarriedCredential::Nothing => Err(MethodAnswer::Absent),
            CarriedCredential::Several => Err(MethodAnswer::Refused(Cause::CredentialTwice)),
            CarriedCredential::One(credential) => Ok(credential),
        }
    }
}

/// The credential in these places, all looked at.
pub fn carried<'r>(
    places: &[CredentialSource],
    headers: &'r HeaderMap,
    query: Option<&'r str>,
) -> CarriedCredential<'r> {
    let mut found = CarriedCredential::Nothing;
    for place in places {
        let here = match place {
            CredentialSource::Header(name) => {
                only(headers, name).map_or(CarriedCredential::Several, credential)
            }
            CredentialSource::Bearer => authorization(headers, "bearer"),
            CredentialSource::Query(name) => in_query(query.unwrap_or(""), name),
        };
        found = match (found, here) {
            (CarriedCredential::Nothing, here) => here,
            (found, CarriedCredential::Nothing) => found,
            (
                CarriedCredential::One(_) | CarriedCredential::Several,
                CarriedCredential::One(_) | CarriedCredential::Several,
            ) => CarriedCredential::Several,
        };
    }
    found
}

/// The credential after a scheme in `Authorization` (RFC 9110 section 11.6.2); nothing if the scheme is another.
pub fn authorization<'r>(headers: &'r HeaderMap, scheme: &str) -> CarriedCredential<'r> {
    let Ok(value) = only(headers, &AUTHORIZATION) else { return CarriedCredential::Several };
    let Some(value) = value else { return CarriedCredential::Nothing };
    let bytes = value.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b' ').unwrap_or(bytes.len());
    if !bytes[..at].eq_ignore_ascii_case(scheme.as_bytes()) {
        return CarriedCredential::Nothing;
    }
    match bytes[at..].trim_ascii() {
        [] => CarriedCredential::Nothing,
        credential => CarriedCredential::One(Cow::Borrowed(credential)),
    }
}

/// Whether `Authorization` stands more than once.
pub fn is_ambiguous(headers: &HeaderMap) -> bool {
    only(headers, &AUTHORIZATION).is_err()
}

/// The value of a field that may stand once.
fn only<'r>(headers: &'r HeaderMap, name: &HeaderName) -> Result<Option<&'r HeaderValue>, RepeatedField> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next();
    if lines.next().is_some() { Err(RepeatedField) } else { Ok(first) }
}

/// A field stands more than once.
struct RepeatedField;

fn credential(value: Option<&HeaderValue>) -> CarriedCredential<'_> {
    match value.map(HeaderValue::as_bytes) {
        None | Some([]) => CarriedCredential::Nothing,
        Some(bytes) => CarriedCredential::One(Cow::Borrowed(bytes)),
    }
}

fn in_query<'r>(text: &'r str, name: &str) -> CarriedCredential<'r> {
    if query::is_ambiguous(text, name) {
        return CarriedCredential::Several;
    }
    let mut values = pairs(text).filter(|(key, _)| query::is_named(key, name)).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (None | Some(""), None) => CarriedCredential::Nothing,
        (Some(value), None) => {
            CarriedCredential::One(Cow::Owned(percent::decode(value, Plus::Space).collect()))
        }
        (_, Some(_)) => CarriedCredential::Several,
    }
}

/// A query without the parameters of this name, whichever separator a server uses; `None` if nothing is left.
pub fn without(text: &str, name: &str) -> Option<String> {
    let left: Vec<&str> = text.split('&').filter(|part| !query::holds(part, name)).collect();
    (!left.is_empty()).then(|| left.join("&"))
}

/// A query with the values of these parameters masked; `None` if it has none of them.
pub fn masked(text: &str, names: &[Box<str>]) -> Option<String> {
    let is_secret = |part: &str| names.iter().any(|name| query::holds(part, name));
    if !text.split('&').any(is_secret) {
        return None;
    }
    let shown = text.split('&').map(|pair| match is_secret(pair) {
        true => format!("{}=***", query::key_of(pair)),
        false => pair.to_owned(),
    });
    Some(shown.collect::<Vec<_>>().join("&"))
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn one(bytes: &str) -> CarriedCredential<'_> {
        CarriedCredential::One(Cow::Borrowed(bytes.as_bytes()))
    }

    #[test]
    fn a_bearer_is_read_in_any_case_and_only_once() {
        let read = |lines: &[(&'static str, &'static str)]| match carried(
            &[CredentialSource::Bearer],
            &headers(lines),
            None,
        ) {
            CarriedCredential::One(bytes) => String::from_utf8(bytes.into_owned()).expect("text"),
            other => format!("{other:?}"),
        };
        assert_eq!(read(&[("authorization", "Bearer abc")]), "abc");
        assert_eq!(read(&[("authorization", "bEARER   abc ")]), "abc");
        for nothing in ["Bearer", "Bearer ", "Basic abc", "Bearerabc", ""] {
            assert_eq!(read(&[("authorization", nothing)]), "Nothing", "{nothing:?}");
        }
        assert_eq!(read(&[("authorization", "Bearer a"), ("authorization", "Bearer a")]), "Several");
    }

    #[test]
    fn a_credential_in_two_places_is_none() {
        let places = [
            CredentialSource::Header(HeaderName::from_static("x-api-key")),
            CredentialSource::Query("api_key".to_owned()),
        ];
        let both = headers(&[("x-api-key", "a")]);
        assert_eq!(carried(&places, &both, Some("x=1")), one("a"));
        assert_eq!(carried(&places, &both, Some("api_key=a")), CarriedCredential::Several);
        assert_eq!(carried(&places, &HeaderMap::new(), Some("%61pi_key=%61+b&x")), one("a b"));
        assert_eq!(
            carried(&places, &HeaderMap::new(), Some("api_key=a&api_key=")),
            CarriedCredential::Several
        );
        assert_eq!(carried(&places, &HeaderMap::new(), Some("x;api_key=a")), CarriedCredential::Several);
        assert_eq!(
            carried(&places, &headers(&[("x-api-key", "a"), ("x-api-key", "a")]), None),
            CarriedCredential::Several
        );
        assert_eq!(
            carried(&places, &headers(&[("x-api-key", "")]), Some("api_key=")),
            CarriedCredential::Nothing
        );
    }

    #[test]
    fn a_key_is_taken_out_of_a_query_and_starred_in_a_log() {
        assert_eq!(without("a=1&api_key=x&b", "api_key").as_deref(), Some("a=1&b"));
        assert_eq!(without("%61pi_key=x", "api_key"), None);
        let names: [Box<str>; 1] = ["api_key".into()];
        assert_eq!(masked("a=1&%61pi_key=x&b", &names).as_deref(), Some("a=1&%61pi_key=***&b"));
        assert_eq!(masked("a=1", &names), None);
        assert_eq!(without("a=1;api_key=x&b", "api_key").as_deref(), Some("b"));
        assert_eq!(masked("a;api_key=x&b;c", &names).as_deref(), Some("a;api_key=***&b;c"));
    }
}
