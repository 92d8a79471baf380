//! Where a redirect sends a client: a path, or a URL whose host is fixed or the request's own.
//!
//! No value that a client chooses can become the host, because such a redirect would lend this name to anybody's
//! page.

use std::fmt::Write as _;

use http::HeaderValue;
use http::uri::Authority;

use crate::matching::pattern::Pattern;
use crate::percent;
use crate::percent::Plus;
use crate::request::TemplateValues;
use crate::template::{
    Error, HEADER_NAMES, Placeholder, Template, TemplatePart, foreign, push_path, push_segment,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    template: Template,
    /// Whether the request's query follows: it does unless the template has one of its own.
    keeps_query: bool,
}

impl Location {
    /// Reads the target of a redirect of a route with this path. A `?` at the end drops the request's query.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str, pattern: &Pattern) -> Result<Location, Error> {
        let keeps_query = !text.contains('?');
        let template = Template::parse(text.strip_suffix('?').unwrap_or(text), pattern, HEADER_NAMES)?;
        let mut has_query = false;
        for part in &template.parts {
            let TemplatePart::Literal(text) = part else { continue };
            if let Some(found) = text.chars().find(|char| !char.is_ascii_graphic() || *char == '#') {
                return Err(Error::NotInLocation { found });
            }
            let path = text.split('?').next().filter(|_| !has_query);
            if let Some(error) = path.and_then(|path| foreign(path, pattern)) {
                return Err(error);
            }
            has_query |= text.contains('?');
        }
        check_host(&template)?;
        Ok(Location { template, keeps_query })
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = &str> {
        self.template.claims()
    }

    /// The value for one request. `None` if it needs a host and the request names none.
    pub fn render(&self, values: &TemplateValues<'_, '_>) -> Option<HeaderValue> {
        let mut out = String::with_capacity(values.path.len() + 64);
        for part in &self.template.parts {
            let is_query = out.contains('?');
            match part {
                TemplatePart::Literal(text) => out.push_str(text),
                TemplatePart::Value(Placeholder::Host) if values.host.is_empty() => return None,
                TemplatePart::Value(Placeholder::Host) if values.host.contains(':') => {
                    write!(out, "[{}]", values.host).expect("a string takes any text");
                }
                TemplatePart::Value(Placeholder::Host) => out.push_str(values.host),
                TemplatePart::Value(Placeholder::Query) => {
                    push_query(values.query.unwrap_or(""), is_query, &mut out)
                }
                TemplatePart::Value(Placeholder::Param(index)) => {
                    push_raw(values.params.at(*index), is_query, &mut out)
                }
                TemplatePart::Value(Placeholder::Path) => push_raw(values.path, is_query, &mut out),
                TemplatePart::Value(name) => push_segment(&name.text(values), &mut out),
                TemplatePart::Claim(name) => push_segment(&crate::template::claim(name, values), &mut out),
            }
        }
        // One slash is left, because browsers read `//host` and `/\host` as another host.
        let doubled = out.bytes().take_while(|byte| matches!(byte, b'/' | b'\\')).count();
        out.drain(..doubled.saturating_sub(1));
        if let Some(query) = values.query.filter(|_| self.keeps_query) {
            out.push('?');
            out.push_str(query);
        }
        HeaderValue::try_from(out).ok()
    }
}

/// Appends a part of the request's path: as it came, or within a query so that it stays one value.
fn push_raw(raw: &str, is_query: bool, out: &mut String) {
    if is_query {
        let decoded: Vec<u8> = percent::decode(raw, Plus::Itself).collect();
        percent::encode_segment(String::from_utf8_lossy(&decoded).as_bytes(), out);
    } else {
        push_path(raw, out);
    }
}

/// Appends the request's query: its parameters where they stand among others, else as one value.
fn push_query(query: &str, is_query: bool, out: &mut String) {
    match is_query && !out.ends_with(['?', '&']) {
        true => percent::encode_segment(query, out),
        false => out.push_str(query),
    }
}

/// Checks that it is a path, or a URL with a host that is fixed or `{host}`, and with a path of its own behind it.
fn check_host(template: &Template) -> Result<(), Error> {
    let mut parts = template.parts.iter();
    let first = match parts.next() {
        Some(TemplatePart::Value(Placeholder::Path)) => return Ok(()),
        Some(TemplatePart::Literal(first)) => first,
        _ => return Err(Error::NotLocation),
    };
    let Some(rest) = first.strip_prefix("https://").or_else(|| first.strip_prefix("http://")) else {
        let is_path = first.starts_with('/') && !first.starts_with("//") && !first.starts_with("/\\");
        return if is_path { Ok(()) } else { Err(Error::NotLocation) };
    };
    let mut host = rest.to_owned();
    while !host.contains(['/', '?']) {
        match parts.next() {
            None | Some(TemplatePart::Value(Placeholder::Path)) => break,
            Some(TemplatePart::Literal(text)) => host.push_str(text),
            // Any letter will do, because it stands for the request's host.
            Some(TemplatePart::Value(Placeholder::Host)) => host.push('h'),
            Some(TemplatePart::Value(_) | TemplatePart::Claim(_)) => return Err(Error::HostOfClient),
        }
    }
    let host = host.split(['/', '?']).next().unwrap_or_default();
    match host.parse::<Authority>() {
        Ok(authority) if !host.contains('@') && !authority.host().is_empty() => Ok(()),
        _ => Err(Error::NotLocation),
    }
}
