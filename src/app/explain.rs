//! What would become of a request: the route and why not the others, the keys, what is left. Nothing is spent.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::{HeaderMap, Method, Uri};
use serde_json::{Value, json};
use smallvec::SmallVec;

use crate::auth::cache::Cache;
use crate::auth::{self, Checked, Method as Way, place};
use crate::clock;
use crate::identity::{Identity, NOBODY};
use crate::limit::{Answer, Charge};
use crate::limiter::Limiter;
use crate::policy::access::Access;
use crate::policy::path;
use crate::policy::table::{Aspect, Verdict};
use crate::policy::{Action, Facts, Found, Table};
use crate::proxy::headers;

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
}

/// What would become of it.
#[derive(Debug, Default)]
pub struct Explained {
    route: Option<String>,
    goes_to: Option<String>,
    /// Who is calling, where the route asks.
    caller: Option<String>,
    considered: Vec<(String, String)>,
    limits: Vec<Limit>,
    refused: Option<String>,
}

/// One window it would be charged by.
#[derive(Debug)]
struct Limit {
    policy: String,
    by: String,
    window: String,
    limit: u64,
    cost: u64,
    /// After this request. `None`: not known here.
    remaining: Option<u64>,
    answer: Option<Answer>,
    shadow: bool,
}

/// Explains a request by these tables and ways to authenticate; without a limiter, what is left is not known.
pub fn explain(
    table: &Table,
    ways: &[Arc<Way>],
    limiter: Option<&Limiter>,
    asked: &Asked<'_>,
    now_ns: u64,
) -> Explained {
    let authority = headers::authority(asked.url, asked.headers);
    let host = headers::bare_host(authority.to_str().unwrap_or_default()).to_ascii_lowercase();
    let path = match path::canonical(asked.url.path()) {
        Ok(path) => path,
        Err(error) => return Explained::refused(error.to_string()),
    };
    let facts = Facts {
        method: asked.method,
        host: &host,
        path: &path,
        query: asked.url.query(),
        headers: asked.headers,
        client_ip: asked.from.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)).to_canonical(),
        identity: &NOBODY,
        refused: false,
    };
    let considered = table
        .explain(&facts)
        .iter()
        .map(|considered| (considered.route.name.to_string(), said(&considered.verdict)))
        .collect();
    let mut explained = Explained { considered, ..Explained::default() };
    let Ok(found) = table.find(&facts) else { return explained };
    explained.route = Some(found.route.name.to_string());
    explained.goes_to = Some(goes_to(&found, &facts));
    let access = &found.route.access;
    if !access.addresses.admit(facts.client_ip) {
        explained.refused = Some("the client's address may not come in".to_owned());
        return explained;
    }
    let caller = caller(ways, access, asked);
    explained.caller = caller.said();
    explained.refused = caller.refused(access);
    let identity = caller.identity();
    let facts = Facts { identity, refused: matches!(caller, Caller::Unrecognised), ..facts };
    let mut charges: SmallVec<[Charge; 4]> = SmallVec::new();
    match table.charges(&found, &facts, &mut charges) {
        Ok(()) => explained.limits = limits(table, limiter, &charges, now_ns),
        Err(missing) => explained.refused = Some(format!("the request has no {}", missing.dimension)),
    }
    explained
}

/// Who is calling, as far as that can be said without asking anybody else.
enum Caller {
    /// Nobody asks.
    Unasked,
    Known(Arc<Identity>, String),
    Unrecognised,
    /// It takes a password's hash, or keys that are not here.
    Unsaid(String),
}

fn caller(ways: &[Arc<Way>], access: &Access, asked: &Asked<'_>) -> Caller {
    if access.auth.is_empty() {
        return Caller::Unasked;
    }
    let (headers, query) = (asked.headers, asked.url.query());
    let asked = auth::Asked { headers, query, certificate: None, now: clock::unix() };
    if place::is_ambiguous(headers) {
        return Caller::Unrecognised;
    }
    let mut refused = false;
    for way in access.auth.iter().filter_map(|index| ways.get(usize::from(*index))) {
        if refused && matches!(way.config.kind, auth::Kind::Anonymous(_)) {
            continue;
        }
        match way.check(&asked, &Cache::new(way.id)) {
            Checked::Known(identity) => return Caller::Known(identity, way.config.name.clone()),
            Checked::Absent => {}
            Checked::Refused => refused = true,
            Checked::Wait(_) | Checked::Busy => return Caller::Unsaid(way.config.name.clone()),
        }
    }
    Caller::Unrecognised
}

impl Caller {
    fn identity(&self) -> &Identity {
        match self {
            Caller::Known(identity, _) => identity,
            Caller::Unasked | Caller::Unrecognised | Caller::Unsaid(_) => &NOBODY,
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
            Caller::Unrecognised => {
                Some("not recognised; only limits that need no identity count".to_owned())
            }
            Caller::Unsaid(way) => Some(format!("what {way} says is known only by sending the request")),
        }
    }

    /// Why the request is refused, whatever its limits say.
    fn refused(&self, access: &Access) -> Option<String> {
        match self {
            Caller::Unrecognised => Some("the route asks for valid credentials".to_owned()),
            Caller::Known(identity, _) if access.require.as_ref().is_some_and(|it| !it.holds(identity)) => {
                Some("the caller may not use the route".to_owned())
            }
            Caller::Known(..) | Caller::Unasked | Caller::Unsaid(_) => None,
        }
    }
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
        Action::RedirectHttps => "a redirect to https".to_owned(),
    }
}

fn limits(table: &Table, limiter: Option<&Limiter>, charges: &[Charge], now_ns: u64) -> Vec<Limit> {
    let decision = limiter.map(|limiter| limiter.peek(charges, now_ns));
    let outcome = |index: usize| decision.as_ref().map(|decision| decision.outcomes[index]);
    charges
        .iter()
        .enumerate()
        .map(|(index, charge)| {
            let policy = &table.policies()[usize::from(charge.policy)];
            Limit {
                policy: policy.name.to_string(),
                by: policy.by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                window: policy.windows[usize::from(charge.window)].item.to_string(),
                limit: charge.quota.limit().get(),
                cost: charge.cost,
                remaining: outcome(index).map(|outcome| outcome.remaining),
                answer: outcome(index).map(|outcome| outcome.answer()),
                shadow: charge.shadow,
            }
        })
        .collect()
}

impl Limit {
    fn said(&self) -> String {
        match self.answer {
            None => "what is left is known only to a running gateway".to_owned(),
            Some(Answer::Admitted) => format!("admitted, {} left after it", self.remaining.unwrap_or(0)),
            Some(Answer::Later { retry_after_ns }) => {
                format!("over, admitted again in {:.1} s", retry_after_ns as f64 / 1e9)
            }
            Some(Answer::Never) => "over, it costs more than the limit ever holds".to_owned(),
        }
    }
}

impl Explained {
    /// A request that no route is looked for.
    fn refused(why: String) -> Explained {
        Explained { refused: Some(why), ..Explained::default() }
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut lines = Vec::new();
        match (&self.route, &self.goes_to) {
            (Some(route), Some(goes_to)) => lines.push(format!("route    {route}: goes to {goes_to}")),
            _ => lines.push("route    none answers".to_owned()),
        }
        for (route, said) in self.considered.iter().filter(|(route, _)| Some(route) != self.route.as_ref()) {
            lines.push(format!("not      {route}: {said}"));
        }
        lines.extend(self.caller.iter().map(|caller| format!("caller   {caller}")));
        for limit in &self.limits {
            let shadow = if limit.shadow { " (shadow)" } else { "" };
            let by = if limit.by.is_empty() { "everybody together" } else { &limit.by };
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
    pub fn to_json(&self) -> Value {
        json!({
            "route": self.route,
            "goes-to": self.goes_to,
            "caller": self.caller,
            "considered": self.considered.iter().map(|(route, said)| json!({ "route": route, "verdict": said })).collect::<Value>(),
            "limits": self.limits.iter().map(|limit| json!({
                "policy": limit.policy,
                "by": limit.by,
                "window": limit.window,
                "limit": limit.limit,
                "cost": limit.cost,
                "remaining": limit.remaining,
                "admitted": limit.answer.map(|answer| answer == Answer::Admitted),
                "shadow": limit.shadow,
                "said": limit.said(),
            })).collect::<Value>(),
            "refused": self.refused,
            "text": self.to_text(),
        })
    }
}
