//! An HTTP request as a subject of policies: reads its dimensions, its cost and its idempotency key.
//!
//! This is where a header or a query parameter becomes a part of a limiter key; `key.rs` hashes the parts.

use std::net::IpAddr;
use std::slice;

use base::identity::{Claim, Identity};
use http::header::COOKIE;
use http::{HeaderMap, HeaderName};

use crate::cookie;
use crate::counting::rules::PolicyRules;
use crate::definition::Dimension;
use crate::keys::subject::{Encoded, Subject, push_value};
use crate::percent;
use crate::percent::Plus;
use crate::query;
use crate::request::{Params, RoutingFacts};
use crate::route::RouteMatch;

#[derive(Clone, Copy, Debug)]
pub struct HttpSubject<'a> {
    pub route: &'a str,
    pub params: Params<'a, 'a>,
    pub facts: &'a RoutingFacts<'a, 'a>,
}

impl<'a> HttpSubject<'a> {
    pub fn new(found: &'a RouteMatch<'a, 'a>, facts: &'a RoutingFacts<'a, 'a>) -> HttpSubject<'a> {
        HttpSubject { route: &found.route.name, params: found.params, facts }
    }
}

impl Subject for HttpSubject<'_> {
    fn write(&self, dimension: &Dimension, out: &mut Encoded) -> bool {
        let facts = self.facts;
        let mut text = |value: &str| out.extend_from_slice(value.as_bytes());
        match dimension {
            Dimension::Consumer => text(facts.identity.consumer.as_deref().unwrap_or("")),
            Dimension::Tenant => text(facts.identity.tenant.as_deref().unwrap_or("")),
            Dimension::Route => text(self.route),
            Dimension::Method => text(facts.method.as_str()),
            Dimension::Host => text(facts.host),
            Dimension::Path => text(facts.path),
            Dimension::Header(name) => return write_header(name, facts.headers, out),
            Dimension::Cookie(name) => return write_cookie(name, facts.headers, out),
            Dimension::Query(name) => return write_query(name, facts.query.unwrap_or(""), out),
            Dimension::Param(name) => {
                out.extend(percent::decode(self.params.raw(name).unwrap_or(""), Plus::Itself));
            }
            Dimension::Claim(name) => match facts.identity.claims.find(name) {
                Some(Claim::One(one)) => text(one),
                Some(Claim::Many(several)) => write_several(several, out),
                None => {}
            },
            Dimension::Body(path) => {
                // Two values count as none, because the upstream reads one of them, and a client could vary the
                // other.
                let Some(field) = facts.body.and_then(|body| body.get(path)) else { return true };
                text(&field.text);
                return !field.differs;
            }
            // Policies read `address` instead, because they cut it to their IPv6 prefix.
            Dimension::Ip => {}
            // Nothing to write, because a table with such a policy on a route does not compile.
            Dimension::Entry(_) => {}
        }
        true
    }

    fn any(&self, dimension: &Dimension, is_it: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let mut is_value = |write: &mut dyn FnMut(&mut Encoded)| {
            let mut value = Encoded::new();
            write(&mut value);
            !value.is_empty() && is_it(&value)
        };
        match dimension {
            Dimension::Header(name) if name != COOKIE => {
                let mut lines = self.facts.headers.get_all(name).iter();
                lines.any(|line| is_value(&mut |value| push_value(name, line.as_bytes(), value)))
            }
            Dimension::Claim(name) => {
                let texts = match self.facts.identity.claims.find(name) {
                    Some(Claim::Many(several)) => several,
                    Some(Claim::One(one)) => slice::from_ref(one),
                    None => &[],
                };
                // And the list as limits count it, which hot keys and decisions show.
                texts.iter().any(|text| is_value(&mut |value| value.extend_from_slice(text.as_bytes())))
                    || texts.len() > 1 && is_value(&mut |value| write_several(texts, value))
            }
            Dimension::Cookie(name) => cookie::values(self.facts.headers, name).any(|found| {
                is_value(&mut |value| value.extend_from_slice(found))
                    || is_escaped(found) && is_value(&mut |value| unescape(found, value))
            }),
            Dimension::Query(name) => {
                // In both readings: of a `;` that separates, and of one that does not.
                let query = self.facts.query.unwrap_or("");
                query.split('&').chain(query.split(['&', ';'])).any(|pair| {
                    let (key, found) = pair.split_once('=').unwrap_or((pair, ""));
                    query::is_named(key, name)
                        && is_value(&mut |value| value.extend(percent::decode(found, Plus::Space)))
                })
            }
            _ => is_value(&mut |value| {
                self.write(dimension, value);
            }),
        }
    }

    fn address(&self) -> IpAddr {
        self.facts.client_ip
    }

    fn identity(&self) -> Option<&Identity> {
        Some(self.facts.identity)
    }

    fn cost(&self, rules: &PolicyRules) -> u64 {
        rules.cost_of(self.facts)
    }

    fn write_idempotency_key(&self, rules: &PolicyRules, out: &mut Encoded) -> bool {
        rules.write_idempotency_key(self.facts, out)
    }
}

/// A list's texts in order, so that their order in a token makes no other key.
fn write_several(texts: &[Box<str>], out: &mut Encoded) {
    let mut sorted: Vec<&str> = texts.iter().map(|text| &**text).collect();
    sorted.sort_unstable();
    sorted.dedup();
    out.extend_from_slice(sorted.join(",").as_bytes());
}

/// Appends a field's value, of a credential its one form. The same line twice is one value. Lines that differ count
/// as absent, because the upstream reads one of them, and a client could vary the other to get a new key each time.
/// Cookies may come in pieces (RFC 9113 section 8.2.3).
fn write_header(name: &HeaderName, headers: &HeaderMap, out: &mut Encoded) -> bool {
    let mut lines = headers.get_all(name).iter();
    let Some(first) = lines.next() else { return true };
    push_value(name, first.as_bytes(), out);
    if name == COOKIE {
        for piece in lines {
            out.extend_from_slice(b"; ");
            out.extend_from_slice(piece.as_bytes());
        }
        return true;
    }
    lines.all(|line| line == first)
}

/// Appends a cookie's value. Values that differ count as absent, as in a field. So does one with a backslash, which is no
/// character of a cookie (RFC 6265 section 4.1.1), and which some servers take for the beginning of another.
fn write_cookie(name: &str, headers: &HeaderMap, out: &mut Encoded) -> bool {
    let mut values = cookie::values(headers, name);
    let Some(first) = values.next() else { return true };
    out.extend_from_slice(first);
    !is_escaped(first) && values.all(|value| value == first)
}

fn is_escaped(value: &[u8]) -> bool {
    memchr::memchr(b'\\', value).is_some()
}

/// Appends a cookie's value as servers read it that know escapes: `\ooo` is a byte in octal, `\c` is `c`.
fn unescape(mut value: &[u8], out: &mut Encoded) {
    while let Some((first, rest)) = value.split_first() {
        let octal = rest.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        let octal = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        let (byte, after) = match (first, octal, rest.split_first()) {
            (b'\\', Some(byte), _) => (byte, &rest[3..]),
            (b'\\', None, Some((byte, rest))) => (*byte, rest),
            _ => (*first, rest),
        };
        out.push(byte);
        value = after;
    }
}

/// Appends the decoded value of a query parameter. Names are compared decoded: `%61=1` is `a=1`. Values that differ
/// count as absent, as in a field, because some servers take the first, some the last. So does a value beside a `;`,
/// which some servers take for a `&`.
fn write_query(name: &str, text: &str, out: &mut Encoded) -> bool {
    if query::is_ambiguous(text, name) {
        return false;
    }
    let pairs = text.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut values = pairs
        .filter(|(key, _)| query::is_named(key, name))
        .map(|(_, value)| percent::decode(value, Plus::Space));
    let Some(first) = values.next() else { return true };
    let start = out.len();
    out.extend(first);
    values.all(|value| value.eq(out[start..].iter().copied()))
}
