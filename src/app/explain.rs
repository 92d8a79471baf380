//! Explains a request: which route answers it and why the others do not, who sent it, which limits count it under which
//! keys, and what is left of them. Nothing is spent, and no credential is verified that takes a password hash or a fetch.
//!
//! It calls the same functions as the proxy, in the same order (`listener.rs` and `arrival.rs` up to the route, `identity.rs` for who sent it,
//! `limit.rs` for what it is charged), so that the two do not disagree.

mod arrival;
mod dry_check;
mod identity;
mod limit;
mod listener;
mod nearest;

use std::cell::Cell;
use std::sync::Arc;

use serde_json::json;

use super::views::override_view::OverrideView;
use ::limit::lease_messages::{WindowBalance, WindowRecord};
use ::limit::{Charge, PenaltyCheck, PolicyId};
use arrival::{Arrival, RoutedRequest};
use base::cause::Cause;
use base::clock;
use base::identity::NOBODY;
use base::ids::IdVec;
use config::{counted_as, show_share, show_size};
use control::admin::ExplainRequest;
pub(crate) use dry_check::{blocked, lacking, later, look_ahead, seconds};
use gateway::proxy::config::ClientIp;
use gateway::proxy::pipeline;
use gateway::service::config::ListenerConfig;
use gateway::service::problem::RefusalProblem;
use gateway::service::refusal::Refusal;
use identity::AuthReport;
use limit::{Limit, limits};
use limiter::{Check, Limiter, PeekResult, RedisView};
use policy::destination::{Destination, Mirror};
use policy::response::cors::{self, Cors};
use policy::table::{Aspect, ConsideredRoute, MatchVerdict};
use policy::template::{UNFIT_PARAM, UnfitHeaderValue};
use policy::{
    Action, AuthMethodId, HttpSubject, KeyNaming, PolicySelection, RouteMatch, RouteTable, RoutingFacts,
    Subject, UpstreamId,
};
use upstream::health::HealthState;
use upstream::live::NameFailure;
use upstream::{LiveUpstream, SharedServer};

/// Where the remaining units of limits are known.
#[derive(Clone, Copy, Debug)]
pub enum LimitSource<'l> {
    /// Nowhere: neither a gateway nor Redis can be asked.
    Nowhere,
    /// Only in Redis, which this limiter can ask.
    SharedTier(&'l Limiter),
    /// In a running gateway, whose limiter this is.
    Gateway(&'l Limiter),
}

#[derive(Debug, Default)]
pub struct RequestExplanation {
    /// The listener that takes it, and why this one if the URL does not tell.
    listener: Option<String>,
    route: Option<String>,
    goes_to: Option<String>,
    /// How many such requests are copied, and to which upstream.
    mirror: Option<String>,
    /// Who sent it, if the route authenticates.
    identity: Option<String>,
    /// Why each authentication method refused it, if none recognised it.
    causes: Vec<(String, Cause)>,
    /// The upstreams it may go to, for [`RequestExplanation::show_upstream`].
    upstreams: Vec<UpstreamId>,
    /// Servers of those whose last connection attempt failed, and why.
    failing_servers: Vec<(String, Cause)>,
    /// Each server of those that does not take requests now, with its upstream and why.
    servers: Vec<String>,
    /// Routes and their verdicts, the nearest first.
    considered: Vec<(String, String)>,
    hidden: usize,
    limits: Vec<Limit>,
    /// The policies that exempt it, and the entry that each has for it.
    exempt: Vec<(String, String)>,
    /// What would remember the request's idempotency key in Redis, until that is asked.
    memories: Vec<Charge>,
    /// The penalties of the policies of `limits`.
    penalties: Vec<PenaltyCheck>,
    /// The override that refuses it before its limits do.
    blocked: Option<OverrideView>,
    /// Why it is refused, with the status. Until its limits are decided: unless one of them refuses it first.
    refused: Option<String>,
}

/// What is in force: what explains a request.
#[derive(Clone, Copy, Debug)]
pub struct InForce<'s> {
    pub table: &'s RouteTable,
    pub auth: &'s IdVec<AuthMethodId, Arc<auth::Method>>,
    pub naming: &'s KeyNaming,
    /// How a client's address is found.
    pub client_ip: &'s ClientIp,
    /// The listeners, in the order of the configuration.
    pub listeners: &'s [ListenerConfig],
    pub upstreams: &'s IdVec<UpstreamId, &'s str>,
}

/// Explains a request by what is in force, without its limits' decision: [`RequestExplanation::decide`] adds that
/// afterwards, because it may have to wait for Redis.
pub fn explain(
    in_force: &InForce<'_>,
    known: LimitSource<'_>,
    asked: &ExplainRequest,
    now_ns: u64,
) -> RequestExplanation {
    let taken = listener::take(in_force.listeners, &asked.url, asked.from);
    let mut explained = RequestExplanation {
        listener: taken.shown(),
        refused: taken.unanswered.clone(),
        ..RequestExplanation::default()
    };
    if explained.refused.is_some() {
        return explained;
    }
    let arrived = match arrival::arrive(in_force, &taken, asked) {
        Ok(Arrival::Routed(arrived)) => arrived,
        Ok(Arrival::Server) => {
            explained.goes_to =
                Some("the gateway answers OPTIONS * itself, and no limit counts it".to_owned());
            return explained;
        }
        Ok(Arrival::Redirected { listener, port }) => {
            explained.goes_to = Some(format!("listener {listener} redirects to https, port {port}"));
            return explained;
        }
        Err(refusal) => return explained.refused(&refusal),
    };
    let facts = RoutingFacts {
        method: &arrived.method,
        host: &arrived.host,
        path: arrived.uri.path(),
        query: arrived.uri.query(),
        headers: &arrived.headers,
        client_ip: arrived.client.ip,
        trusted_peer: arrived.client.trusted_peer,
        identity: &NOBODY,
        refused: false,
        body: None,
    };
    explained.consider(in_force.table, &facts, asked.all);
    if let Some(method) = cors::preflight(facts.method, facts.headers)
        && let Ok(found) =
            pipeline::route(in_force.table, &RoutingFacts { method: &method, ..facts }, arrived.doubt)
        && let Some(cors) = &found.route.access.cors
    {
        return explained.preflight(&found, cors, &facts);
    }
    match pipeline::route(in_force.table, &facts, arrived.doubt) {
        Ok(found) => explained.pass(in_force, known, &found, &arrived, facts, now_ns),
        Err(refusal) => explained.refused(&refusal),
    }
}

/// A refusal as its client is answered: `404: no route matches host and path`.
fn status_and_detail(refusal: &Refusal) -> String {
    let problem = RefusalProblem::of(refusal);
    format!("{}: {}", problem.status.as_u16(), problem.detail)
}

/// The causes by the name of the method or server.
fn words(causes: &[(String, Cause)]) -> serde_json::Value {
    causes.iter().map(|(name, cause)| (name.clone(), json!(cause.word()))).collect()
}

fn sentence(considered: &ConsideredRoute<'_>, facts: &RoutingFacts<'_, '_>) -> String {
    match &considered.verdict {
        MatchVerdict::Wins => ANSWERS.to_owned(),
        MatchVerdict::Host => "is for other hosts".to_owned(),
        MatchVerdict::Path if nearest::differs_in_case(considered, facts) => "differs in case".to_owned(),
        MatchVerdict::Path => "has another path".to_owned(),
        MatchVerdict::Method if facts.method.as_str().bytes().any(|sign| sign.is_ascii_lowercase()) => {
            "is for other methods, which are case-sensitive".to_owned()
        }
        MatchVerdict::Method => "is for other methods".to_owned(),
        MatchVerdict::Header(name) => format!("requires another value of the header {name}"),
        MatchVerdict::LessSpecific { than, by } => {
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

/// The upstream of a request: the only one, the one that keeps its client, or any by weight.
fn upstream(to: &Destination, subject: &HttpSubject<'_>, names: &IdVec<UpstreamId, &str>) -> String {
    let name = |upstream: UpstreamId| names.get(upstream).copied().unwrap_or_default();
    let Some(choice) = to.choice.as_ref().filter(|choice| choice.parts.len() > 1) else {
        return format!("upstream {}", name(to.upstream));
    };
    let is_drawn = Cell::new(false);
    let picked = choice.choose(
        subject,
        |_| {
            is_drawn.set(true);
            0
        },
        |_| true,
    );
    if !is_drawn.get() {
        return format!(
            "upstream {}, which keeps this client while it has a usable server",
            name(picked.upstream)
        );
    }
    let shares = choice.parts.iter().map(|part| format!("{} {}", name(part.upstream), part.weight));
    let shares = shares.collect::<Vec<_>>().join(", ");
    format!("one of {} upstreams by weight ({shares})", choice.parts.len())
}

fn goes_to(
    found: &RouteMatch<'_, '_>,
    facts: &RoutingFacts<'_, '_>,
    names: &IdVec<UpstreamId, &str>,
) -> String {
    match &found.route.action {
        Action::Forward { to, .. } => {
            let values = found.values(facts, "");
            let which = upstream(to, &HttpSubject::new(found, facts), names);
            format!("{which}, as {}", found.route.rewritten_path(&values))
        }
        Action::Respond(fixed) => format!("a fixed response, {}", fixed.status),
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

/// `10% of the route's requests are copied to orders-next, none with a body over 64KiB`
fn mirrored(mirror: &Mirror) -> String {
    let (share, size) = (show_share(mirror.share_ppm), show_size(mirror.body_bytes_max as u64));
    format!("{share} of the route's requests are copied to {}, none with a body over {size}", mirror.name)
}

impl RequestExplanation {
    fn refused(mut self, refusal: &Refusal) -> RequestExplanation {
        self.refused = Some(status_and_detail(refusal));
        self
    }

    fn consider(&mut self, table: &RouteTable, facts: &RoutingFacts<'_, '_>, all: bool) {
        let considered = table.explain(facts);
        let shown = nearest::first(&considered, facts, if all { usize::MAX } else { ROUTES_SHOWN });
        self.hidden = considered.len() - shown.len();
        self.considered = shown.iter().map(|it| (it.route.name.to_string(), sentence(it, facts))).collect();
    }

    /// The gateway answers a CORS preflight on its own.
    fn preflight(
        mut self,
        found: &RouteMatch<'_, '_>,
        cors: &Cors,
        facts: &RoutingFacts<'_, '_>,
    ) -> RequestExplanation {
        self.route = Some(found.route.name.to_string());
        self.goes_to = Some("the gateway's response to a CORS preflight, which no limit counts".to_owned());
        match (found.route.access.addresses.admit(facts.client_ip), cors.grant(facts.headers)) {
            (false, _) => self.refused(&Refusal::AddressDenied),
            (true, None) => self.refused(&Refusal::OriginDenied),
            (true, Some(_)) => self,
        }
    }

    /// Authenticates a request that a route answers, and decides its limits.
    fn pass(
        mut self,
        in_force: &InForce<'_>,
        known: LimitSource<'_>,
        found: &RouteMatch<'_, '_>,
        arrived: &RoutedRequest,
        facts: RoutingFacts<'_, '_>,
        now_ns: u64,
    ) -> RequestExplanation {
        let route = found.route;
        self.route = Some(route.name.to_string());
        self.goes_to = Some(goes_to(found, &facts, in_force.upstreams));
        self.mirror = route.mirror().map(mirrored);
        self.upstreams = match &route.action {
            Action::Forward { to, .. } if to.parts().is_empty() => vec![to.upstream],
            Action::Forward { to, .. } => to.parts().iter().map(|part| part.upstream).collect(),
            Action::Respond(_) | Action::Echo | Action::RedirectHttps(_) | Action::Redirect { .. } => {
                Vec::new()
            }
        };
        if !route.access.addresses.admit(facts.client_ip) {
            return self.refused(&Refusal::AddressDenied);
        }
        let RoutingFacts { headers, query, .. } = facts;
        let authenticated =
            identity::authenticate(in_force.auth, &route.access, headers, query, arrived.asks_certificate);
        let authenticated = match known {
            LimitSource::Gateway(limiter) => authenticated.assigned(limiter.assignments()),
            LimitSource::Nowhere | LimitSource::SharedTier(_) => authenticated,
        };
        self.identity = authenticated.sentence();
        self.refused = authenticated.refused(&route.access);
        let body_bytes_max = route.body_bytes_max.unwrap_or(arrived.body_bytes_max);
        if self.refused.is_none() && arrived.body_bytes > body_bytes_max {
            return self.refused(&Refusal::BodyTooLarge);
        }
        if let AuthReport::Unrecognised(causes) = &authenticated {
            self.causes.clone_from(causes);
        }
        let refused = matches!(authenticated, AuthReport::Unrecognised(_));
        let facts = RoutingFacts { identity: authenticated.identity(), refused, ..facts };
        if let (None, Err(unfit)) = (&self.refused, route.fits(&found.values(&facts, ""))) {
            self.refused = Some(match unfit {
                UnfitHeaderValue::Identity => format!("401: {}", Cause::IdentityUnfit.sentence()),
                UnfitHeaderValue::Param => format!("400: {UNFIT_PARAM}"),
            });
        }
        // Again, because a client may keep its upstream by its identity.
        self.goes_to = Some(goes_to(found, &facts, in_force.upstreams));
        let policies = in_force.table.chosen(route, facts.refused);
        self.limit(in_force, policies, known, &HttpSubject::new(found, &facts), now_ns);
        self
    }

    /// Shows the limits that a subject meets, and spends nothing of them.
    fn limit(
        &mut self,
        in_force: &InForce<'_>,
        policies: PolicySelection<'_>,
        known: LimitSource<'_>,
        subject: &HttpSubject<'_>,
        now_ns: u64,
    ) {
        let (limiter, is_gateway) = match known {
            LimitSource::Nowhere => (None, false),
            LimitSource::SharedTier(limiter) => (Some(limiter), false),
            LimitSource::Gateway(limiter) => (Some(limiter), true),
        };
        let exempt = policies.exemptions(subject);
        self.exempt = exempt.map(|(policy, entry)| (policy.name.to_string(), entry.to_string())).collect();
        if let Some(by) = limiter.and_then(|limiter| limiter.overrides().unlimited.of(subject, now_ns)) {
            let said = OverrideView::alone(&by, now_ns).sentence();
            self.exempt =
                policies.counting(subject).map(|policy| (policy.name.to_string(), said.clone())).collect();
        }
        let mut check = Check::default();
        let peeked = match limiter {
            Some(limiter) => limiter.peek(policies, subject, now_ns, &mut check),
            None => policies.charges(subject, &mut check.charges).map(|_| PeekResult::default()),
        };
        match peeked {
            Ok(peeked) => {
                self.limits = limits(in_force.table, &check, if is_gateway { &peeked.foretold } else { &[] });
                for (limit, charge) in self.limits.iter_mut().zip(&check.charges) {
                    let policy = policies.policy_of(charge);
                    limit.key = counted_as(policy, subject, in_force.naming);
                    limit.overridden = limiter.filter(|_| charge.is_overridden).and_then(|limiter| {
                        let overrides = limiter.overrides();
                        let found = overrides.of(policy, subject.consumer(), subject.tenant(), now_ns)?;
                        Some(OverrideView::of(&found, policy, charge, now_ns))
                    });
                    let names = (subject.consumer(), subject.tenant());
                    limit.tenant_limit = limiter
                        .and_then(|it| it.inspect().limit_beneath(policy, names, charge.window, now_ns));
                    limit.hot_instead_of = limiter.and_then(|it| it.inspect().hot_instead_of(policy, charge));
                }
                if is_gateway {
                    self.penalties = check.penalties.to_vec();
                }
                peeked.paid.iter().for_each(|policy| self.pay(*policy));
                self.memories = peeked.unknown;
                if let Some(by) = &check.blocked {
                    self.blocked = Some(OverrideView::alone(by, now_ns));
                    self.refused = Some(status_and_detail(&gateway::proxy::limits::blocked(by, now_ns)));
                } else if self.limits.iter().any(|limit| limit.foretold.is_none())
                    && let Some(refused) = &mut self.refused
                {
                    refused.push_str(LIMITS_UNKNOWN);
                }
            }
            Err(missing) => {
                self.refused = Some(status_and_detail(&Refusal::MissingKey(missing.dimension.to_string())));
            }
        }
    }

    /// The request is a retry under an idempotency key for which this policy has been charged.
    fn pay(&mut self, policy: PolicyId) {
        self.limits.iter_mut().filter(|limit| limit.charge.policy == policy).for_each(Limit::pay);
    }

    /// Decides the limits as the gateway would. Asks Redis what is left of shared ones, and spends nothing.
    pub async fn decide(&mut self, limiter: &Limiter) {
        let charges = self.limits.iter().map(|limit| limit.charge);
        let asked: Vec<Charge> = charges.chain(self.memories.iter().copied()).collect();
        let mut looks = limiter.inspect().look_in_redis(&asked).await;
        let remembered = looks.split_off(self.limits.len());
        for (limit, look) in self.limits.iter_mut().zip(looks) {
            limit.hear(look);
        }
        for (memory, look) in std::mem::take(&mut self.memories).into_iter().zip(remembered) {
            // The key is known if it is spent, because what remembers an idempotency key has one unit.
            if let Some(RedisView::Seen(WindowRecord { left: WindowBalance::Exact(outcome), .. })) = look
                && !outcome.is_admitted()
            {
                self.pay(memory.policy);
            }
        }
        let now_ns = clock::now_ns();
        limit::penalise(&mut self.limits, &self.penalties, limiter, now_ns);
        if let (None, Some(refusal)) = (&self.blocked, limit::refusal(&self.limits)) {
            limit::without_request(&mut self.limits);
            self.refused = Some(status_and_detail(&refusal));
        }
    }

    /// Whether Redis has said what is left of a limit.
    pub fn is_from_redis(&self) -> bool {
        self.limits.iter().any(|limit| matches!(limit.redis, Some(RedisView::Seen(_))))
    }

    /// Adds the servers of the request's upstreams that take no requests: names without an answer, servers that checks or
    /// failures keep out, and those whose last connection attempt failed.
    pub fn show_upstream(&mut self, upstreams: &IdVec<UpstreamId, Arc<LiveUpstream>>, now_ns: u64) {
        for live in self.upstreams.iter().filter_map(|upstream| upstreams.get(*upstream)) {
            let (name, upstream) = (&live.config.name, live.load());
            for (server, known) in live.config.servers.iter().zip(live.names()) {
                if let (Some(server), Some(failure)) = (server.unresolved(), known.failure) {
                    let NameFailure { why, since_ns } = failure;
                    let seconds = now_ns.saturating_sub(since_ns) / 1_000_000_000;
                    self.servers.push(format!("{server} of {name} has not resolved for {seconds} s: {why}"));
                }
                if let (Some(server), Some(version)) = (server.unresolved(), known.left_out) {
                    let version = version.word();
                    self.servers.push(format!("{version} addresses of {server} of {name} cannot be reached"));
                }
            }
            for (server, state) in upstream.servers.iter().zip(upstream.states(now_ns)) {
                let label = &server.label;
                match state {
                    HealthState::Unhealthy => {
                        self.servers.push(format!("{label} of {name} fails its health checks"))
                    }
                    HealthState::Ejected { left_ns } => self.servers.push(format!(
                        "{label} of {name} is ejected by outlier detection for {:.1} s more",
                        left_ns as f64 / 1e9
                    )),
                    HealthState::Healthy | HealthState::WarmingUp { .. } | HealthState::Unresolved => {}
                }
                if server.hangs() {
                    self.servers.push(format!("connections to {label} of {name} hang"));
                }
                let why = server.last_connect.cause().map(|cause| cause.sentence());
                self.servers.extend(why.map(|why| format!("{label} of {name} cannot be used: {why}")));
            }
            let failing =
                |server: &Arc<SharedServer>| Some((server.label.clone(), server.last_connect.cause()?));
            self.failing_servers.extend(upstream.servers.iter().filter_map(failing));
        }
    }

    /// The explanation as operators read it, a fact on each line.
    pub fn to_text(&self) -> String {
        let mut lines: Vec<String> =
            self.listener.iter().map(|listener| format!("listener {listener}")).collect();
        let would_answer = self.considered.iter().find(|(_, why)| why == ANSWERS).map(|(route, _)| route);
        match (&self.route, &self.goes_to) {
            (Some(route), Some(goes_to)) => lines.push(format!("route    {route}: goes to {goes_to}")),
            (None, Some(goes_to)) => lines.push(format!("route    none: {goes_to}")),
            _ => lines.push(match would_answer {
                Some(route) => format!("route    {route}, but the request is refused before"),
                None => "route    none matches".to_owned(),
            }),
        }
        lines.extend(self.mirror.iter().map(|mirror| format!("mirror   {mirror}")));
        lines.extend(self.servers.iter().map(|server| format!("server   {server}")));
        lines.extend(self.identity.iter().map(|identity| format!("identity {identity}")));
        lines.extend(self.exempt.iter().map(|(policy, entry)| format!("exempt   from {policy}: {entry}")));
        for limit in &self.limits {
            let shadow = match &limit.trial {
                _ if !limit.charge.shadow => "",
                None => " (shadow)",
                Some(_) => " (compared)",
            };
            let by = limit.counted();
            lines.push(format!(
                "limit    {}{shadow} by {by}: {}, costs {}; {}",
                limit.policy,
                limit.window,
                limit.cost,
                limit.sentence(),
            ));
            let worst = limit.charge.quota.worst_period();
            let anchor = limit.anchor().filter(|day| *day != 1);
            lines.extend(anchor.map(|day| format!("         months begin on day {day}")));
            lines.extend(worst.map(|(units, why)| format!("         at most {units} in one period: {why}")));
            let charged =
                |statuses: &String| format!("         charges only responses with status {statuses}");
            lines.extend(limit.counted_statuses.iter().map(charged));
            lines.extend(limit.trial.iter().map(|tried| format!("         {}", tried.sentence())));
            lines.extend(limit.origin.sentence().map(|from| format!("         {from}")));
            let hot = |own: &u64| {
                format!(
                    "         the key is hot: this node counts it locally, against this limit instead of {own}"
                )
            };
            lines.extend(limit.hot_instead_of.iter().map(hot));
            lines.extend(limit.overridden.iter().map(|shown| format!("         {}", shown.sentence())));
            let beneath =
                |limit: &u64| format!("         the consumer's override replaces the tenant's: {limit}");
            lines.extend(limit.tenant_limit.iter().map(beneath));
        }
        lines.extend(self.blocked.iter().map(|by| format!("blocked  by {}", by.sentence())));
        if let Some(refused) = &self.refused {
            lines.push(format!("refused  {refused}"));
        }
        let answering = self.route.as_ref().or(would_answer);
        for (route, why) in self.considered.iter().filter(|(route, _)| Some(route) != answering) {
            lines.push(format!("not      {route}: {why}"));
        }
        if self.hidden > 0 {
            let routes = if self.hidden == 1 { "route" } else { "routes" };
            lines.push(format!("not      {} more {routes}; --all shows them", self.hidden));
        }
        config::hidden(&(lines.join("\n") + "\n"))
    }

    /// The explanation for programs; `text` is [`RequestExplanation::to_text`], which `sluicegate explain` prints.
    pub fn to_json(&self) -> serde_json::Value {
        without_secrets(json!({
            "listener": self.listener,
            "route": self.route,
            "goes-to": self.goes_to,
            "mirror": self.mirror,
            "identity": self.identity,
            "causes": words(&self.causes),
            "servers-failing": words(&self.failing_servers),
            "considered": self.considered.iter().map(|(route, why)| json!({ "route": route, "verdict": why })).collect::<serde_json::Value>(),
            "hidden": self.hidden,
            "exempt": self.exempt.iter().map(|(policy, entry)| json!({ "policy": policy, "entry": entry })).collect::<serde_json::Value>(),
            "limits": self.limits.iter().map(Limit::to_json).collect::<serde_json::Value>(),
            "blocked": self.blocked.as_ref().map(OverrideView::to_json),
            "refused": self.refused,
            "text": self.to_text(),
        }))
    }
}

/// The same with a mask in its texts for each secret of the configuration, which a redirect or a rewritten path may hold.
fn without_secrets(shown: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match shown {
        Value::String(text) => config::hidden(&text).into(),
        Value::Array(values) => values.into_iter().map(without_secrets).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, without_secrets(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => shown,
    }
}

const ANSWERS: &str = "answers";
/// Follows what authentication says where nobody can be asked about the limits, which come first.
const LIMITS_UNKNOWN: &str = "; 429 if a limit is used up, which only a running gateway knows";
/// Routes listed beside the one that answers, unless `all` is asked for.
const ROUTES_SHOWN: usize = 10;
