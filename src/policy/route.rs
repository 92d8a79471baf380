//! A route, compiled: which requests it answers and what it does with them. Choosing among routes is `table.rs`.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::HOST;
use http::{HeaderName, HeaderValue, StatusCode};

use super::access::{AddressRules, Require};
use super::definition::{HttpsRedirect, PathEscapes, RouteTimeouts};
use super::destination::{Affinity, ChoiceId, Destination, Mirror, UpstreamId};
use super::matching::host::HostPattern;
use super::matching::method::Methods;
use super::matching::pattern::Pattern;
use super::request::{Params, RoutingFacts, TemplateValues};
use super::response::body::CompiledBody;
use super::response::changes::HeaderChanges;
use super::response::compress::Compress;
use super::response::cors::Cors;
use super::response::location::Location;
use super::retry::Retry;
use super::template::{HeaderTemplate, Rewrite, UnfitHeaderValue};
use crate::json::JsonPath;
use base::ids::IdVec;
use limit::PolicyId;

/// A route: its position in the table that it was compiled into. A type of its own, so that no other index passes for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(u32);

impl RouteId {
    pub const fn new(index: u32) -> RouteId {
        RouteId(index)
    }

    /// Its position in its table, and in every list that follows the table's order.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug)]
pub struct Route {
    /// Its position in the table, in the order of the definitions.
    pub id: RouteId,
    pub name: Box<str>,
    pub action: Action,
    /// Indices of its policies, in the order written.
    pub policies: Box<[PolicyId]>,
    pub request_headers: HeaderChanges,
    pub response_headers: HeaderChanges,
    /// Longest request body, bytes. `None`: no limit.
    pub body_bytes_max: Option<u64>,
    pub upgrade: bool,
    /// Whether one of its policies must be told when an admitted request ends, to give back a permit or reconcile a cost.
    pub holds: bool,
    /// The numbers of answers that its policies take for costs. `None`: answers are not read.
    pub answer_paths: Option<Arc<[JsonPath]>>,
    /// The fields of requests' bodies that its policies read. `None`: bodies are not read ahead for them.
    pub body_paths: Option<Arc<[JsonPath]>>,
    pub path_escapes: PathEscapes,
    pub remembers: bool,
    pub penalises: bool,
    /// Whether one of its policies has a candidate.
    pub tries: bool,
    pub timeouts: RouteTimeouts,
    pub retry: Option<Retry>,
    pub compress: Option<Arc<Compress>>,
    pub access: RouteAccess,
    /// Those of its policies that need no identity. They charge clients that authentication refuses, so that guessing is limited.
    pub strangers: Box<[PolicyId]>,
    pub(super) hosts: Box<[HostPattern]>,
    pub pattern: Pattern,
    pub(super) methods: Methods,
    pub(super) headers: Box<[HeaderMatch]>,
    /// `RateLimit-Policy` where every policy applies, and how many windows that is.
    pub(super) limits_shown: Option<HeaderValue>,
    pub(super) windows: usize,
}

base::id! {
    /// A method to authenticate: its position among the names that a table was compiled with. It holds in what is made for
    /// that table: the methods of its snapshot and their caches.
    AuthMethodId
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteAccess {
    pub auth: Box<[AuthMethodId]>,
    pub require: Option<Box<Require>>,
    pub addresses: AddressRules,
    pub cors: Option<Box<Cors>>,
}

/// The route that answers a request.
#[derive(Clone, Copy, Debug)]
pub struct RouteMatch<'t, 'r> {
    pub route: &'t Route,
    pub params: Params<'t, 'r>,
}

#[derive(Clone, Debug)]
pub enum Action {
    Forward { to: Destination, rewrite: Option<Rewrite> },
    Respond(Respond),
    Echo,
    RedirectHttps(HttpsRedirect),
    Redirect { to: Location, status: StatusCode },
}

#[derive(Clone, Debug)]
pub struct Respond {
    pub status: StatusCode,
    pub headers: Box<[(HeaderName, HeaderTemplate)]>,
    pub body: CompiledBody,
}

/// One header a route asks for. A header of several lines is their values joined by `, `; `HostPattern` is the host in the
/// form it is routed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeaderMatch {
    pub name: HeaderName,
    pub value: Option<Box<[u8]>>,
}

impl Route {
    /// Gives its choice among upstreams and its mirror, as far as it has them, the next places of the table.
    pub(super) fn number_choices(&mut self, choices: &mut usize) {
        let Action::Forward { to: Destination { choice, mirror, .. }, .. } = &mut self.action else { return };
        let choice = choice.as_deref_mut().map(|choice| &mut choice.id);
        let mirror = mirror.as_deref_mut().map(|mirror| &mut mirror.id);
        for id in choice.into_iter().chain(mirror) {
            *id = ChoiceId::new(*choices);
            *choices += 1;
        }
    }

    /// Where copies of its requests go.
    pub fn mirror(&self) -> Option<&Mirror> {
        match &self.action {
            Action::Forward { to, .. } => to.mirror.as_deref(),
            Action::Respond(_) | Action::Echo | Action::RedirectHttps(_) | Action::Redirect { .. } => None,
        }
    }

    /// Tells its upstreams what their servers are kept by, if they are.
    pub(super) fn hash(&mut self, by: &IdVec<UpstreamId, Option<Arc<Affinity>>>) {
        if let Action::Forward { to, .. } = &mut self.action {
            to.hash(by);
        }
    }

    /// Whether the values of fields that it sends, either way, can be sent for this request.
    ///
    /// # Errors
    /// What cannot.
    pub fn fits(&self, values: &TemplateValues<'_, '_>) -> Result<(), UnfitHeaderValue> {
        self.request_headers.fit(values)?;
        self.response_headers.fit(values)?;
        match &self.action {
            Action::Respond(fixed) => fixed.headers.iter().try_for_each(|(_, value)| value.fits(values)),
            _ => Ok(()),
        }
    }

    /// Claims of identities that it uses.
    pub(super) fn claims(&self) -> impl Iterator<Item = &str> {
        let required = self.access.require.iter().flat_map(|require| &require.claims);
        let required = required.map(|(name, _)| name.as_str());
        let headers = self.request_headers.claims().chain(self.response_headers.claims());
        let action: Vec<&str> = match &self.action {
            Action::Forward { to, rewrite } => {
                to.claims().chain(rewrite.iter().flat_map(Rewrite::claims)).collect()
            }
            Action::Respond(fixed) => {
                let headers = fixed.headers.iter().flat_map(|(_, template)| template.claims());
                headers.chain(fixed.body.claims()).collect()
            }
            Action::Redirect { to, .. } => to.claims().collect(),
            Action::Echo | Action::RedirectHttps(_) => Vec::new(),
        };
        required.chain(headers).chain(action)
    }

    /// The path to send upstream, without the query: that stays as it came.
    pub fn rewritten_path<'r>(&self, values: &TemplateValues<'_, 'r>) -> Cow<'r, str> {
        match &self.action {
            Action::Forward { rewrite: Some(rewrite), .. } => Cow::Owned(rewrite.render(values)),
            Action::Forward { rewrite: None, .. }
            | Action::Respond(_)
            | Action::Echo
            | Action::RedirectHttps(_)
            | Action::Redirect { .. } => Cow::Borrowed(values.path),
        }
    }
}

impl<'t, 'r> RouteMatch<'t, 'r> {
    /// The values for this route's templates.
    pub fn values(&self, facts: &RoutingFacts<'r, '_>, request_id: &'r str) -> TemplateValues<'t, 'r> {
        TemplateValues {
            route: &self.route.name,
            params: self.params,
            method: facts.method,
            host: facts.host,
            path: facts.path,
            query: facts.query,
            client_ip: facts.client_ip,
            identity: facts.identity,
            request_id,
        }
    }
}

impl HeaderMatch {
    pub(super) fn holds(&self, facts: &RoutingFacts<'_, '_>) -> bool {
        if self.name == HOST {
            // The normalised host is compared, because the field has many spellings, and over HTTP/2 it may be
            // absent.
            let host = facts.host.as_bytes();
            return self.value.as_deref().map_or(!host.is_empty(), |value| value == host);
        }
        let mut lines = facts.headers.get_all(&self.name).iter();
        let Some(first) = lines.next() else { return false };
        let Some(value) = &self.value else { return true };
        let Some(mut left) = value.strip_prefix(first.as_bytes()) else { return false };
        for line in lines {
            match left.strip_prefix(b", ").and_then(|left| left.strip_prefix(line.as_bytes())) {
                Some(behind) => left = behind,
                None => return false,
            }
        }
        left.is_empty()
    }

    /// Whether one request can satisfy both.
    pub(super) fn agrees_with(&self, other: &HeaderMatch) -> bool {
        self.name != other.name || self.value.is_none() || other.value.is_none() || self.value == other.value
    }

    /// Whether every request that satisfies `other` satisfies this.
    pub(super) fn follows_from(&self, other: &HeaderMatch) -> bool {
        self.name == other.name && (self.value.is_none() || self.value == other.value)
    }
}
