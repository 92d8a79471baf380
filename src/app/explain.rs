//! Explains a request: which route answers it and why the others do not, who sent it, which limits count it under which
//! keys, and what is left of them. Nothing is spent, and no credential is verified that takes a password hash or a fetch.
//!
//! It calls the same functions as the proxy (`table.find`, `auth`, `Limiter::peek`), so that the two cannot disagree.

mod limit;
mod nearest;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::{HeaderMap, Method, Uri};
use serde_json::json;

use crate::auth::{self, cache::Cache};
use crate::cause::Cause;
use crate::clock;
use crate::identity::{Identity, NOBODY};
use crate::limit::Charge;
use crate::limit::lease_messages::{Left, Seen};
use crate::limiter::{Check, Limiter, Look};
use crate::policy::definition::PathEscapes;
use crate::policy::path;
use crate::policy::table::{Aspect, Verdict};
use crate::policy::{Access, Action, Facts, Found, HttpSubject, Table};
use crate::proxy::{headers, validate};
use crate::upstream::Upstream;
use limit::{Limit, key, limits};

/// A request to explain.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// A URL, or only path and query.
    pub url: &'a Uri,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The client's address; loopback if none is given.
    pub from: Option<IpAddr>,
    /// Whether to list every route, not only the nearest.
    pub all: bool,
}

/// Where the remaining units of limits are known.
#[derive(Clone, Copy, Debug)]
pub enum Known<'l> {
    /// Nowhere: neither a gateway nor Redis can be asked.
    Nowhere,
    /// Only in Redis, which this limiter can ask.
    SharedTier(&'l Limiter),
    /// In a running gateway, whose limiter this is.
    Gateway(&'l Limiter),
}

/// The explanation of a request.
#[derive(Debug, Default)]
pub struct Explained {
    route: Option<String>,
    goes_to: Option<String>,
    /// Who sent it, if the route authenticates.
    identity: Option<String>,
    /// Why each authentication method refused it, if none recognised it.
    causes: Vec<(String, Cause)>,
    /// Index of the upstream it goes to, for [`Explained::show_upstream`].
    upstream: Option<usize>,
    /// Servers of that upstream whose last connection attempt failed, and why.
    failing_servers: Vec<(String, Cause)>,
    /// Routes and their verdicts, the nearest first.
    considered: Vec<(String, String)>,
    /// How many routes are not in `considered`.
    hidden: usize,
    limits: Vec<Limit>,
    refused: Option<String>,
}

/// Explains a request by this table and these authentication methods. It does not ask Redis: [`Explained::ask_redis`]
/// does that afterwards, because it has to wait.
pub fn explain(
    table: &Table,
    methods: &[Arc<auth::Method>],
    known: Known<'_>,
    asked: &Asked<'_>,
    now_ns: u64,
) -> Explained {
    let (limiter, gateway) = match known {
        Known::Nowhere => (None, None),
        Known::SharedTier(limiter) => (Some(limiter), None),
        Known::Gateway(limiter) => (Some(limiter), Some(limiter)),
    };
    if matches!(*asked.method, Method::CONNECT | Method::TRACE) {
        return Explained::refused("this gateway does not serve the method".to_owned());
    }
    let authority = headers::authority(asked.url, asked.headers);
    let host = validate::host(&authority);
    let (path, doubt) = match path::canonical(asked.url.path()) {
        Ok(canonical) => (canonical.path, canonical.doubt),
        Err(error) => return Explained::refused(error.to_string()),
    };
    let facts = Facts {
        method: asked.method,
        host: &host,
        path: &path,
        query: asked.url.query(),
        headers: asked.headers,
        client_ip: asked.from.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)).to_canonical(),
        // The operator may give headers that the proxy takes only from a trusted hop.
        trusted_peer: true,
        identity: &NOBODY,
        refused: false,
    };
    let considered = table.explain(&facts);
    let shown = nearest::first(&considered, &facts, if asked.all { usize::MAX } else { ROUTES_SHOWN });
    let hidden = considered.len() - shown.len();
    let considered = shown.iter().map(|it| (it.route.name.to_string(), sentence(&it.verdict))).collect();
    let mut explained = Explained { considered, hidden, ..Explained::default() };
    let found = table.find(&facts);
    if let Some(doubt) = doubt
        && !found.as_ref().is_ok_and(|found| found.route.path_escapes == PathEscapes::Keep)
    {
        return Explained::refused(doubt.to_string());
    }
    let Ok(found) = found else { return explained };
    explained.route = Some(found.route.name.to_string());
    explained.goes_to = Some(goes_to(&found, &facts));
    explained.upstream = match &found.route.action {
        Action::Forward { upstream, .. } => Some(*upstream),
        Action::Respond(_) | Action::Echo | Action::RedirectHttps(_) | Action::Redirect { .. } => None,
    };
    let access = &found.route.access;
    if !access.addresses.admit(facts.client_ip) {
        explained.refused = Some("the client's address may not come in".to_owned());
        return explained;
    }
    let authenticated = authenticate(methods, access, asked);
    explained.identity = authenticated.sentence();
    explained.refused = authenticated.refused(access);
    if let Authenticated::Unrecognised(causes) = &authenticated {
        explained.causes.clone_from(causes);
    }
    let identity = authenticated.identity();
    let facts = Facts { identity, refused: matches!(authenticated, Authenticated::Unrecognised(_)), ..facts };
    let policies = table.chosen(found.route, facts.refused);
    let subject = HttpSubject::new(&found, &facts);
    let mut check = Check::default();
    let peeked = match limiter {
        Some(limiter) => limiter.peek(policies, &subject, now_ns, &mut check),
        None => policies.charges(&subject, &mut check.charges),
    };
    match peeked {
        Ok(()) => {
            explained.limits = limits(table, &check, gateway.is_some());
            for (limit, charge) in explained.limits.iter_mut().zip(&check.charges) {
                limit.key = key(policies.policy_of(charge), &subject);
            }
        }
        Err(missing) => explained.refused = Some(format!("the request has no {}", missing.dimension)),
    }
    explained
}

/// Who sent the request, as far as it can be found without hashing a password or fetching keys.
enum Authenticated {
    /// The route does not authenticate.
    Unasked,
    /// The identity, and the method that recognised it.
    Known(Arc<Identity>, String),
    /// Why each method refused the credential it found.
    Unrecognised(Vec<(String, Cause)>),
    /// This method found a credential that only a real request can verify: a password, or a token whose keys have not
    /// been fetched.
    Unverified(String),
}

fn authenticate(methods: &[Arc<auth::Method>], access: &Access, asked: &Asked<'_>) -> Authenticated {
    if access.auth.is_empty() {
        return Authenticated::Unasked;
    }
    let (headers, query) = (asked.headers, asked.url.query());
    let asked = auth::Asked { headers, query, certificate: None, now: clock::unix() };
    let own = access.auth.iter().filter_map(|index| methods.get(usize::from(*index)));
    // Empty caches: those of the workers are theirs alone, and an explanation must not fill them.
    let uncached: Vec<_> = own.map(|method| (&**method, Cache::new(method.id))).collect();
    let methods = uncached.iter().map(|(method, cache)| (*method, cache));
    let outcome = auth::authenticate_at_once(methods, &asked);
    match (outcome.unverified, outcome.known) {
        // Methods are asked in order, so an unverified credential would decide before any method after it.
        (Some(method), _) => Authenticated::Unverified(method.config.name.clone()),
        (None, Some((identity, method))) => Authenticated::Known(identity, method.config.name.clone()),
        (None, None) => {
            let causes = outcome.refused.iter().map(|(name, cause)| ((*name).to_owned(), *cause));
            Authenticated::Unrecognised(causes.collect())
        }
    }
}

impl Authenticated {
    fn identity(&self) -> &Identity {
        match self {
            Authenticated::Known(identity, _) => identity,
            Authenticated::Unasked | Authenticated::Unrecognised(_) | Authenticated::Unverified(_) => &NOBODY,
        }
    }

    fn sentence(&self) -> Option<String> {
        let text = |text: &Option<Box<str>>| text.as_deref().unwrap_or("none").escape_debug().to_string();
        match self {
            Authenticated::Unasked => None,
            Authenticated::Known(identity, method) => Some(format!(
                "consumer {}, tenant {}, tier {}, recognised by {method}",
                text(&identity.consumer),
                text(&identity.tenant),
                text(&identity.tier),
            )),
            Authenticated::Unrecognised(causes) => {
                let named = |(method, cause): &(String, Cause)| format!("{method}: {}", cause.sentence());
                let mut why: Vec<String> = causes.iter().map(named).collect();
                if why.is_empty() {
                    why.push(Cause::CredentialMissing.sentence().to_owned());
                }
                let why = why.join("; ");
                Some(format!("not recognised ({why}); only limits that need no identity count"))
            }
            Authenticated::Unverified(method) => {
                Some(format!("unknown: {method} verifies this credential only in a real request"))
            }
        }
    }

    /// Why the request is refused, whatever its limits say.
    fn refused(&self, access: &Access) -> Option<String> {
        match self {
            Authenticated::Unrecognised(_) => Some("the route asks for valid credentials".to_owned()),
            Authenticated::Known(identity, _) => {
                let cause = access.require.as_ref()?.check(identity).err()?;
                Some(format!("the consumer may not use the route: {}", cause.sentence()))
            }
            Authenticated::Unasked | Authenticated::Unverified(_) => None,
        }
    }
}

/// The causes by the name of the method or server.
fn words(causes: &[(String, Cause)]) -> serde_json::Value {
    causes.iter().map(|(name, cause)| (name.clone(), json!(cause.word()))).collect()
}

fn sentence(verdict: &Verdict<'_>) -> String {
    match verdict {
        Verdict::Wins => "answers".to_owned(),
        Verdict::Host => "is for other hosts".to_owned(),
        Verdict::Path => "has another path".to_owned(),
        Verdict::Method => "is for other methods".to_owned(),
        Verdict::Header(name) => format!("asks for another header {name}"),
        Verdict::LessSpecific { than, by } => {
            let aspect = match by {
                Aspect::Host => "host",
                Aspect::Path => "path",
                Aspect::Method => "method",
                Aspect::Headers => "headers",
            };
            format!("matches, but the {aspect} of {} is more specific", than.name)
        }
    }
}

fn goes_to(found: &Found<'_, '_>, facts: &Facts<'_, '_>) -> String {
    match &found.route.action {
        Action::Forward { .. } => {
            let values = found.values(facts, "");
            format!("upstream, as {}", found.route.rewritten_path(&values))
        }
        Action::Respond(fixed) => format!("a fixed answer, {}", fixed.status),
        Action::Echo => "the built-in echo".to_owned(),
        Action::RedirectHttps(redirect) => format!("a redirect to https, port {}", redirect.port),
        Action::Redirect { to, .. } => {
            let location = to.render(&found.values(facts, ""));
            format!(
                "a redirect to {}",
                String::from_utf8_lossy(location.as_ref().map_or(b"", |it| it.as_bytes()))
            )
        }
    }
}

impl Explained {
    /// A request that is refused before a route is looked for.
    fn refused(why: String) -> Explained {
        Explained { refused: Some(why), ..Explained::default() }
    }

    /// Asks Redis what is left of shared limits, without spending any.
    pub async fn ask_redis(&mut self, limiter: &Limiter) {
        let charges: Vec<Charge> = self.limits.iter().map(|limit| limit.charge).collect();
        for (limit, look) in self.limits.iter_mut().zip(limiter.look_in_redis(&charges).await) {
            match look {
                Some(Look::Seen(Seen { left: Left::Exact(outcome), .. })) => limit.correct(outcome),
                Some(Look::Seen(Seen { left: Left::Lent(lent), .. })) => limit.bound(&lent, limiter),
                _ => {}
            }
            limit.redis = look;
        }
    }

    /// Adds the servers of the request's upstream whose last connection attempt failed.
    pub fn show_upstream(&mut self, upstreams: &[Arc<Upstream>]) {
        let Some(upstream) = self.upstream.and_then(|index| upstreams.get(index)) else { return };
        let servers = upstream.servers.iter();
        self.failing_servers = servers
            .filter_map(|server| Some((server.authority.clone(), server.last_connect.cause()?)))
            .collect();
    }

    /// The explanation as operators read it, a fact on each line.
    pub fn to_text(&self) -> String {
        let mut lines = Vec::new();
        match (&self.route, &self.goes_to) {
            (Some(route), Some(goes_to)) => lines.push(format!("route    {route}: goes to {goes_to}")),
            _ => lines.push("route    none answers".to_owned()),
        }
        for (route, why) in self.considered.iter().filter(|(route, _)| Some(route) != self.route.as_ref()) {
            lines.push(format!("not      {route}: {why}"));
        }
        if self.hidden > 0 {
            let routes = if self.hidden == 1 { "route" } else { "routes" };
            lines.push(format!("not      {} more {routes}; --all shows them", self.hidden));
        }
        for (server, cause) in &self.failing_servers {
            lines.push(format!("server   {server} cannot be used: {}", cause.sentence()));
        }
        lines.extend(self.identity.iter().map(|identity| format!("identity {identity}")));
        for limit in &self.limits {
            let shadow = if limit.shadow { " (shadow)" } else { "" };
            let by = limit.counted();
            lines.push(format!(
                "limit    {}{shadow} by {by}: {}, costs {}; {}",
                limit.policy,
                limit.window,
                limit.cost,
                limit.sentence(),
            ));
        }
        if let Some(refused) = &self.refused {
            lines.push(format!("refused  {refused}"));
        }
        lines.join("\n") + "\n"
    }

    /// The explanation for programs; `text` is [`Explained::to_text`], which `sluicegate explain` prints.
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "route": self.route,
            "goes-to": self.goes_to,
            "identity": self.identity,
            "causes": words(&self.causes),
            "servers-failing": words(&self.failing_servers),
            "considered": self.considered.iter().map(|(route, why)| json!({ "route": route, "verdict": why })).collect::<serde_json::Value>(),
            "hidden": self.hidden,
            "limits": self.limits.iter().map(Limit::to_json).collect::<serde_json::Value>(),
            "refused": self.refused,
            "text": self.to_text(),
        })
    }
}

/// Routes listed beside the one that answers, unless `all` is asked for.
const ROUTES_SHOWN: usize = 10;
