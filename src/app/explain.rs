//! What would become of a request: the route and why not the others, the keys, what is left. Nothing is spent.

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

/// A request that is only asked about.
#[derive(Debug)]
pub struct Asked<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its URL, or path and query.
    pub url: &'a Uri,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// The client's address; loopback where none is given.
    pub from: Option<IpAddr>,
    /// Whether every route is to be named, not only the nearest.
    pub all: bool,
}

/// Who knows what is left.
#[derive(Clone, Copy, Debug)]
pub enum Known<'l> {
    /// Nobody.
    Nowhere,
    /// Redis alone, which this limiter can ask.
    SharedTier(&'l Limiter),
    /// A running gateway, whose limiter this is.
    Gateway(&'l Limiter),
}

/// What would become of it.
#[derive(Debug, Default)]
pub struct Explained {
    route: Option<String>,
    goes_to: Option<String>,
    /// Who is calling, where the route asks.
    caller: Option<String>,
    /// What each way to authenticate found wrong, where none recognises the client.
    causes: Vec<(String, Cause)>,
    /// Index of the upstream it goes to, for [`Explained::show_upstream`].
    upstream: Option<usize>,
    /// Servers of that upstream that could not be connected to when that was last tried, and why.
    troubles: Vec<(String, Cause)>,
    /// What became of the routes, the nearest first.
    considered: Vec<(String, String)>,
    /// How many more there are.
    hidden: usize,
    limits: Vec<Limit>,
    refused: Option<String>,
}

/// Explains a request by these tables and methods to authenticate. Redis is not asked here: [`Explained::ask_redis`].
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
        // Whoever asks the operator's side is believed.
        trusted_peer: true,
        identity: &NOBODY,
        refused: false,
    };
    let considered = table.explain(&facts);
    let shown = nearest::first(&considered, &facts, if asked.all { usize::MAX } else { ROUTES_SHOWN });
    let hidden = considered.len() - shown.len();
    let considered = shown.iter().map(|it| (it.route.name.to_string(), said(&it.verdict))).collect();
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
        Action::Respond(_) | Action::Echo | Action::RedirectHttps { .. } => None,
    };
    let access = &found.route.access;
    if !access.addresses.admit(facts.client_ip) {
        explained.refused = Some("the client's address may not come in".to_owned());
        return explained;
    }
    let caller = caller(methods, access, asked);
    explained.caller = caller.said();
    explained.refused = caller.refused(access);
    if let Caller::Unrecognised(causes) = &caller {
        explained.causes.clone_from(causes);
    }
    let identity = caller.identity();
    let facts = Facts { identity, refused: matches!(caller, Caller::Unrecognised(_)), ..facts };
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

/// Who is calling, as far as that can be said without asking anybody else.
enum Caller {
    /// Nobody asks.
    Unasked,
    Known(Arc<Identity>, String),
    /// What each way that found a credential, or the route as a whole, says is wrong.
    Unrecognised(Vec<(String, Cause)>),
    /// It takes a password's hash, or keys that are not here.
    Unsaid(String),
}

fn caller(methods: &[Arc<auth::Method>], access: &Access, asked: &Asked<'_>) -> Caller {
    if access.auth.is_empty() {
        return Caller::Unasked;
    }
    let (headers, query) = (asked.headers, asked.url.query());
    let asked = auth::Asked { headers, query, certificate: None, now: clock::unix() };
    let own = access.auth.iter().filter_map(|index| methods.get(usize::from(*index)));
    // An explanation remembers nobody.
    let fresh: Vec<_> = own.map(|method| (&**method, Cache::new(method.id))).collect();
    let methods = fresh.iter().map(|(method, cache)| (*method, cache));
    let outcome = auth::authenticate_at_once(methods, &asked);
    match (outcome.unverified, outcome.known) {
        // A request would be recognised by this one if its credential is good, whatever those after it say.
        (Some(method), _) => Caller::Unsaid(method.config.name.clone()),
        (None, Some((identity, method))) => Caller::Known(identity, method.config.name.clone()),
        (None, None) => {
            let causes = outcome.refused.iter().map(|(name, cause)| ((*name).to_owned(), *cause));
            Caller::Unrecognised(causes.collect())
        }
    }
}

impl Caller {
    fn identity(&self) -> &Identity {
        match self {
            Caller::Known(identity, _) => identity,
            Caller::Unasked | Caller::Unrecognised(_) | Caller::Unsaid(_) => &NOBODY,
        }
    }

    fn said(&self) -> Option<String> {
        let text = |text: &Option<Box<str>>| text.as_deref().unwrap_or("none").escape_debug().to_string();
        match self {
            Caller::Unasked => None,
            Caller::Known(identity, way) => Some(format!(
                "consumer {}, tenant {}, tier {}, recognised by {way}",
                text(&identity.consumer),
                text(&identity.tenant),
                text(&identity.tier),
            )),
            Caller::Unrecognised(causes) => {
                let named = |(way, cause): &(String, Cause)| format!("{way}: {}", cause.sentence());
                let mut why: Vec<String> = causes.iter().map(named).collect();
                if why.is_empty() {
                    why.push(Cause::CredentialMissing.sentence().to_owned());
                }
                let why = why.join("; ");
                Some(format!("not recognised ({why}); only limits that need no identity count"))
            }
            Caller::Unsaid(way) => Some(format!("what {way} says is known only by sending the request")),
        }
    }

    /// Why the request is refused, whatever its limits say.
    fn refused(&self, access: &Access) -> Option<String> {
        match self {
            Caller::Unrecognised(_) => Some("the route asks for valid credentials".to_owned()),
            Caller::Known(identity, _) => {
                let cause = access.require.as_ref()?.check(identity).err()?;
                Some(format!("the caller may not use the route: {}", cause.sentence()))
            }
            Caller::Unasked | Caller::Unsaid(_) => None,
        }
    }
}

/// Who has which cause, for programs.
fn words(causes: &[(String, Cause)]) -> serde_json::Value {
    causes.iter().map(|(name, cause)| (name.clone(), json!(cause.word()))).collect()
}

fn said(verdict: &Verdict<'_>) -> String {
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
        Action::RedirectHttps { port } => format!("a redirect to https, port {port}"),
    }
}

impl Explained {
    /// A request that no route is looked for.
    fn refused(why: String) -> Explained {
        Explained { refused: Some(why), ..Explained::default() }
    }

    /// Asks Redis for what it holds of the limits that the fleet shares, without spending any of it.
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

    /// Says of the upstream it goes to which servers could not be connected to when that was last tried.
    pub fn show_upstream(&mut self, upstreams: &[Arc<Upstream>]) {
        let Some(upstream) = self.upstream.and_then(|index| upstreams.get(index)) else { return };
        let servers = upstream.servers.iter();
        self.troubles = servers
            .filter_map(|server| Some((server.authority.clone(), server.last_connect.cause()?)))
            .collect();
    }

    /// For operators.
    pub fn to_text(&self) -> String {
        let mut lines = Vec::new();
        match (&self.route, &self.goes_to) {
            (Some(route), Some(goes_to)) => lines.push(format!("route    {route}: goes to {goes_to}")),
            _ => lines.push("route    none answers".to_owned()),
        }
        for (route, said) in self.considered.iter().filter(|(route, _)| Some(route) != self.route.as_ref()) {
            lines.push(format!("not      {route}: {said}"));
        }
        if self.hidden > 0 {
            let routes = if self.hidden == 1 { "route" } else { "routes" };
            lines.push(format!("not      {} more {routes}; --all shows them", self.hidden));
        }
        for (server, cause) in &self.troubles {
            lines.push(format!("server   {server} cannot be used: {}", cause.sentence()));
        }
        lines.extend(self.caller.iter().map(|caller| format!("caller   {caller}")));
        for limit in &self.limits {
            let shadow = if limit.shadow { " (shadow)" } else { "" };
            let by = limit.counted();
            lines.push(format!(
                "limit    {}{shadow} by {by}: {}, costs {}; {}",
                limit.policy,
                limit.window,
                limit.cost,
                limit.said(),
            ));
        }
        if let Some(refused) = &self.refused {
            lines.push(format!("refused  {refused}"));
        }
        lines.join("\n") + "\n"
    }

    /// For programs.
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "route": self.route,
            "goes-to": self.goes_to,
            "caller": self.caller,
            "causes": words(&self.causes),
            "servers-failing": words(&self.troubles),
            "considered": self.considered.iter().map(|(route, said)| json!({ "route": route, "verdict": said })).collect::<serde_json::Value>(),
            "hidden": self.hidden,
            "limits": self.limits.iter().map(Limit::to_json).collect::<serde_json::Value>(),
            "refused": self.refused,
            "text": self.to_text(),
        })
    }
}

/// Routes that are told beside the one that answers, unless all are asked for.
const ROUTES_SHOWN: usize = 10;
