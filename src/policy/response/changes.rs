//! The header changes of a route or a listener, compiled, and applied in this order: remove, set, add.

use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::definition;
use crate::matching::host::is_authority;
use crate::request::TemplateValues;
use crate::template::{Error, HeaderTemplate, UnfitHeaderValue};

/// What a route does to the headers of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderChanges {
    pub(crate) remove: Box<[HeaderName]>,
    pub(crate) set: Box<[(HeaderName, HeaderTemplate)]>,
    pub(crate) add: Box<[(HeaderName, HeaderTemplate)]>,
    /// Whether refusals of the gateway's own are changed, too.
    pub always: bool,
}

/// What a listener does to the headers of every answer. The values are the same in all of them, because a request may
/// be refused before anything of it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FixedChanges {
    pub written: definition::HeaderChangesDefinition,
    changes: HeaderChanges,
}

impl FixedChanges {
    /// Compiles them.
    ///
    /// # Errors
    /// The first value that no field can have, or that depends on the request.
    pub fn new(written: definition::HeaderChangesDefinition) -> Result<FixedChanges, Error> {
        let fixed = |(name, text): &(HeaderName, String)| Ok((name.clone(), HeaderTemplate::fixed(text)?));
        let compiled = |fields: &[_]| fields.iter().map(fixed).collect::<Result<_, Error>>();
        let (set, add) = (compiled(&written.set)?, compiled(&written.add)?);
        let changes = HeaderChanges { remove: written.remove.clone().into(), set, add, always: true };
        Ok(FixedChanges { written, changes })
    }

    pub fn apply(&self, headers: &mut HeaderMap) {
        self.changes.apply_with(headers, |template| match template {
            HeaderTemplate::Fixed(value) => Some(value.clone()),
            HeaderTemplate::Made(_) => None,
        });
    }
}

impl HeaderChanges {
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// Whether it takes a field away, or gives it another value.
    pub fn replaces(&self, name: &HeaderName) -> bool {
        self.remove.contains(name) || self.set.iter().any(|(set, _)| set == name)
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = &str> {
        self.set.iter().chain(&self.add).flat_map(|(_, template)| template.claims())
    }

    pub(crate) fn fit(&self, values: &TemplateValues<'_, '_>) -> Result<(), UnfitHeaderValue> {
        self.set.iter().chain(&self.add).try_for_each(|(_, template)| template.fits(values))
    }

    /// Changes the headers. A value that renders empty, or that does not fit (`Host` anything but a host), is not sent. `set` then removes the
    /// header, so that a value of the client never passes for the gateway's.
    pub fn apply(&self, headers: &mut HeaderMap, values: &TemplateValues<'_, '_>) {
        self.apply_with(headers, |template| template.render(values));
    }

    fn apply_with(&self, headers: &mut HeaderMap, render: impl Fn(&HeaderTemplate) -> Option<HeaderValue>) {
        for name in &self.remove {
            headers.remove(name);
        }
        let mut before = None;
        for (name, template) in &self.set {
            // Several values of one field are adjacent, so that the first replaces what the client sent, and the
            // others are appended.
            let joins = before.replace(name) == Some(name);
            // Only a host, because what a client chose must not stand where the next hop reads another host out of
            // it.
            let is_sendable = |value: &HeaderValue| *name != HOST || names_host(value);
            match render(template).filter(is_sendable) {
                Some(value) if joins => drop(headers.append(name.clone(), value)),
                Some(value) => drop(headers.insert(name.clone(), value)),
                None if joins => {}
                // It keeps its own, because a request needs a `Host`.
                None if *name == HOST => {}
                None => drop(headers.remove(name)),
            }
        }
        for (name, template) in &self.add {
            if let Some(value) = render(template) {
                headers.append(name.clone(), value);
            }
        }
    }
}

pub(crate) fn names_host(value: &HeaderValue) -> bool {
    value.to_str().is_ok_and(is_authority)
}

/// Whether a header frames messages or belongs to one connection. No route may change it in either direction, because
/// the next hop would find other message boundaries than the gateway wrote (request smuggling).
pub fn is_framing(name: &HeaderName) -> bool {
    FRAMING.contains(&name.as_str())
}

const FRAMING: &[&str] = &[
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
