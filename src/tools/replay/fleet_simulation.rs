//! One configuration with its nodes: plays requests through the gateway's own routing and limiter, at the times of the log.
//!
//! The checks before limits are the proxy's, as far as a line has what they look at. It authenticates nobody: who sent a
//! request is what its line says.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use smallvec::SmallVec;

use super::order::ReplayOrder;
use super::outcome_counts::{Outcome, OutcomeCounts, PolicyCounts};
use super::redis::{Redis, Wire};
use super::request::{Client, Request};
use base::clock;
use base::identity::NO_ADDRESS;
use base::identity::{Identity, NOBODY};
use config::{Config, LoadedConfig};
use gateway::proxy::facts::CLIENT_GONE_STATUS;
use gateway::proxy::pipeline;
use gateway::proxy::request::client;
use gateway::proxy::reservation::{RequestUsage, Reservation};
use limit::{Algorithm, Charge, Plan};
use limiter::local;
use limiter::{Check, Fleet, Limiter, Link};
use metrics::PolicyDecision;
use policy::definition::{Actual, Dimension};
use policy::keys::subject::Encoded;
use policy::matching::host;
use policy::matching::host::is_authority;
use policy::matching::path;
use policy::{HttpSubject, KeyNaming, Policy, RouteMatch, RouteTable, RoutingFacts, Subject};

/// A configuration that requests are played through.
pub struct Simulation {
    config: Config,
    table: RouteTable,
    nodes: Vec<Arc<Limiter>>,
    redis: Option<Arc<Redis>>,
    naming: KeyNaming,
    /// Requests that are not over and must give something back then, by when that is and their number.
    running: BTreeMap<(u64, u64), RunningRequest>,
    origin: Option<Origin>,
    swept_ns: u64,
    pub counts: OutcomeCounts,
}

/// The first time of the log, and the reading of the limiter's clock that stands for it.
#[derive(Clone, Copy)]
struct Origin {
    unix_ns: u64,
    reads_ns: u64,
}

struct RunningRequest {
    node: usize,
    spent: RequestUsage,
    /// What its client got, if that is known.
    status: Option<u16>,
    reservation: Box<Reservation>,
}

/// A request as limits see it, once its client is found and its path is in its one form.
struct ValidRequest<'r> {
    host: std::borrow::Cow<'r, str>,
    path: path::Canonical<'r>,
    query: Option<String>,
    client: client::RequestClient,
    identity: &'r Identity,
}

impl Simulation {
    /// A configuration with so many nodes.
    pub fn new(loaded: LoadedConfig, nodes: u32) -> Simulation {
        let LoadedConfig { mut config, table, .. } = loaded;
        if nodes > 1 {
            // Less for each, so that the tables of all nodes together stay within bounds.
            config.limits.memory = config.limits.memory.min(NODES_BYTES_MAX / nodes as usize);
        }
        let redis = config.redis.as_ref().map(|_| Arc::new(Redis::new(nodes)));
        let nodes =
            (0..nodes as usize).map(|node| limiter(&config, redis.as_ref(), node)).collect::<Vec<_>>();
        let salt = salt();
        let naming = config.naming(&salt);
        let mut table = table.salted(&salt);
        announce(&mut table, &nodes);
        let counts = OutcomeCounts::new(table.policies());
        let running = BTreeMap::new();
        Simulation { config, table, nodes, redis, naming, running, origin: None, swept_ns: 0, counts }
    }

    pub fn table(&self) -> &RouteTable {
        &self.table
    }

    pub fn is_fleet(&self) -> bool {
        self.redis.is_some()
    }

    /// Plays a request at one of the nodes. Times never go back.
    pub fn play(&mut self, request: &Request, turn: ReplayOrder, node: usize) -> Outcome {
        let now_ns = self.reading(turn.at_ns);
        self.end_until(now_ns);
        self.sweep(now_ns);
        // Less what it is late, so that it ends when it did.
        let ends_ns = now_ns.saturating_add(request.lasted_ns.saturating_sub(turn.late_ns));
        let outcome = self.decide(request, now_ns, ends_ns, node);
        self.counts.add(outcome, request.began_ns);
        outcome
    }

    /// The name of the route that answers a request, if any.
    pub fn route_of(&self, request: &Request) -> Option<&str> {
        let seen = self.see(request)?;
        let found = find(&self.table, request, &seen)?;
        Some(&found.route.name)
    }

    /// Hands out what a request would be charged, with the name of its route.
    pub fn charges(&self, request: &Request, each: impl FnOnce(&str, &[Charge])) {
        let Some(seen) = self.see(request) else { return };
        let Ok((found, known)) = limited(&self.config, &self.table, request, &seen) else { return };
        let facts = facts(request, &seen, known);
        let (policies, mut charges) = (self.table.chosen(found.route, facts.refused), SmallVec::new());
        // Ignored, because its policies skip what lacks a dimension.
        let _ = policies.charges(&HttpSubject::new(&found, &facts), &mut charges);
        each(&found.route.name, &charges);
    }

    /// How keys and callers are named.
    pub fn naming(&self) -> &KeyNaming {
        &self.naming
    }

    /// Decisions on a bucket that keys share, because the table of a node was full.
    pub fn overflow_decisions(&self) -> u64 {
        self.nodes.iter().map(|node| node.table().stats().overflow_decisions).sum()
    }

    /// The reading of the limiter's clock at this time, nanoseconds since 1970.
    pub fn reading(&mut self, at_ns: u64) -> u64 {
        let origin = match &self.origin {
            Some(origin) => *origin,
            None => self.begin(at_ns),
        };
        origin.reads_ns.saturating_add(at_ns.saturating_sub(origin.unix_ns))
    }

    /// Starts the limiter's clock at the first request, and lets windows of the calendar follow it, because the configuration was
    /// read by the clock of today.
    fn begin(&mut self, at_ns: u64) -> Origin {
        let origin = Origin { unix_ns: at_ns, reads_ns: clock::aligned_ns(Duration::from_nanos(at_ns)) };
        let [unix_s, reads_s] = [origin.unix_ns, origin.reads_ns].map(|ns| ns / 1_000_000_000);
        if self.table.follow_clock(clock::origin_of(unix_s, reads_s)) {
            announce(&mut self.table, &self.nodes);
        }
        if let Some(redis) = &self.redis {
            redis.set_clock(origin.unix_ns - origin.reads_ns);
        }
        self.origin = Some(origin);
        origin
    }

    fn decide(&mut self, request: &Request, now_ns: u64, ends_ns: u64, node: usize) -> Outcome {
        self.counts.no_address += u64::from(request.client.is_none());
        let Some(seen) = self.see(request) else { return Outcome::BeforeLimits };
        let (found, known) = match limited(&self.config, &self.table, request, &seen) {
            Ok(limited) => limited,
            Err(outcome) => return outcome,
        };
        let facts = facts(request, &seen, known);
        let policies = self.table.chosen(found.route, facts.refused);
        let subject = HttpSubject::new(&found, &facts);
        let limiter = &self.nodes[node];
        let mut check = Check::default();
        let mut pending = limiter.check(policies, &subject, now_ns, &mut check);
        if let Some(redis) = &self.redis {
            redis.answer(now_ns);
            // Again and again, because an answer may lead to another question.
            while let Some(asked) = pending {
                pending = limiter.proceed(asked, &subject, now_ns, &mut check);
                redis.answer(now_ns);
            }
        }
        count(&self.table, &self.naming, &mut self.counts, &found, &subject, request, &check);
        if !check.is_admitted() {
            return Outcome::Denied;
        }
        if found.route.holds {
            let held = Reservation::of(&self.table, None, &check.charges, &check.decision, now_ns);
            let spent = RequestUsage {
                bytes_in: request.bytes_in,
                bytes_out: request.bytes_out,
                nanos: request.lasted_ns,
                now_ns: ends_ns,
            };
            let status = status_of(request);
            let running = held.map(|reservation| RunningRequest { node, spent, status, reservation });
            self.running.extend(running.map(|running| ((ends_ns, self.counts.requests), running)));
            if self.running.len() > RUNNING_MAX {
                self.end_first();
            }
        }
        Outcome::Admitted
    }

    /// The request as limits see it; `None` if it is refused before them.
    fn see<'r>(&self, request: &'r Request) -> Option<ValidRequest<'r>> {
        if request.was_refused_before_limits {
            return None;
        }
        if matches!(request.method, Method::CONNECT | Method::TRACE) {
            return None;
        }
        if !request.host.is_empty() && !is_authority(&request.host) {
            return None;
        }
        let (path, query) = match request.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*request.target, None),
        };
        if !path.starts_with('/') {
            return None;
        }
        let client = match request.client {
            Some(Client::Found { ip, by_hop }) => client::RequestClient { ip, trusted_peer: by_hop },
            Some(Client::Peer(peer)) => client::find(&self.config.client_ip, peer, &request.headers),
            None => client::RequestClient { ip: NO_ADDRESS, trusted_peer: false },
        };
        Some(ValidRequest {
            host: host::routed(&request.host),
            path: path::canonical(path).ok()?,
            query: query.map(unmasked),
            client,
            identity: &request.identity,
        })
    }

    /// Ends the requests that are over by now.
    fn end_until(&mut self, now_ns: u64) {
        while self.running.first_key_value().is_some_and(|((ends_ns, _), _)| *ends_ns <= now_ns) {
            self.end_first();
        }
    }

    fn end_first(&mut self) {
        let Some((_, RunningRequest { node, spent, status, mut reservation })) = self.running.pop_first()
        else {
            return;
        };
        let limiter = &self.nodes[node];
        reservation.turn_came();
        if let Some(status) = status {
            // A log does not say how a call ended: what charges by that stays charged.
            reservation.settle_status(&self.table, limiter, (status, None, true), |_, _| {});
        }
        reservation.reconcile(&self.table, limiter, &spent, |_, _| {});
        reservation.end(limiter);
        if let Some(redis) = &self.redis {
            redis.answer(spent.now_ns);
        }
    }

    /// Gives leases back that nobody uses, as each node does all the time.
    fn sweep(&mut self, now_ns: u64) {
        let Some(redis) = &self.redis else { return };
        if now_ns < self.swept_ns.saturating_add(SWEEP_NS) {
            return;
        }
        self.swept_ns = now_ns;
        for node in &self.nodes {
            node.sweep(now_ns);
            redis.answer(now_ns);
        }
    }
}

/// The route whose limits count a request, and what is known of who sent it.
///
/// # Errors
/// What becomes of it if none do.
fn limited<'t, 'r>(
    config: &Config,
    table: &'t RouteTable,
    request: &'r Request,
    seen: &'r ValidRequest<'r>,
) -> Result<(RouteMatch<'t, 'r>, AuthResult), Outcome> {
    if !listens_to(config, request, seen.client.ip) {
        return Err(Outcome::BeforeLimits);
    }
    let found = find(table, request, seen).ok_or(Outcome::NoRoute)?;
    let access = &found.route.access;
    // Before limits, because the gateway answers a preflight itself, and lets none of them count.
    let is_preflight =
        access.cors.is_some() && request.method == Method::OPTIONS && request.was_denied.is_none();
    if !access.addresses.admit(seen.client.ip) || is_preflight {
        return Err(Outcome::BeforeLimits);
    }
    if found.route.policies.is_empty() {
        return Err(Outcome::Unlimited);
    }
    let known = match (access.auth.is_empty(), request.is_unrecognised) {
        (true, _) => AuthResult::NotAsked,
        (false, true) => AuthResult::Refused,
        (false, false) => AuthResult::AsLogged,
    };
    Ok((found, known))
}

/// Whether the listener of the line, if the configuration has one of that name, brings the request to a route.
fn listens_to(config: &Config, request: &Request, client: IpAddr) -> bool {
    let listener = config.listeners.iter().find(|listener| listener.name == *request.listener);
    listener.is_none_or(|it| it.redirect_https.is_none() && it.addresses.admit(client))
}

fn find<'t, 'r>(
    table: &'t RouteTable,
    request: &'r Request,
    seen: &'r ValidRequest<'r>,
) -> Option<RouteMatch<'t, 'r>> {
    pipeline::route(table, &facts(request, seen, AuthResult::NotAsked), seen.path.doubt).ok()
}

/// What authentication would have found out about a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AuthResult {
    NotAsked,
    AsLogged,
    /// It did not recognise the client.
    Refused,
}

fn facts<'r>(request: &'r Request, seen: &'r ValidRequest<'r>, known: AuthResult) -> RoutingFacts<'r, 'r> {
    RoutingFacts {
        method: &request.method,
        host: &seen.host,
        path: &seen.path.path,
        query: seen.query.as_deref(),
        headers: &request.headers,
        client_ip: seen.client.ip,
        trusted_peer: seen.client.trusted_peer,
        identity: if known == AuthResult::AsLogged { seen.identity } else { &NOBODY },
        refused: known == AuthResult::Refused,
        body: None,
    }
}

/// A query without the parameters whose values the log masks, because `*` is nobody's value.
fn unmasked(query: &str) -> String {
    let kept = query.split('&').filter(|pair| {
        let value = pair.split_once('=').map_or(*pair, |(_, value)| value);
        value.is_empty() || !value.bytes().all(|byte| byte == b'*')
    });
    kept.collect::<Vec<_>>().join("&")
}

fn count(
    table: &RouteTable,
    naming: &KeyNaming,
    counts: &mut OutcomeCounts,
    found: &RouteMatch<'_, '_>,
    subject: &HttpSubject<'_>,
    request: &Request,
    check: &Check<'_>,
) {
    for count in &check.event.counts {
        let (index, began_ns) = (count.policy.index(), request.began_ns);
        let policy = &mut counts.policies[index];
        let number = match count.decision {
            PolicyDecision::Admitted => &mut policy.admitted,
            PolicyDecision::Denied | PolicyDecision::ShadowDenied => &mut policy.denied,
            PolicyDecision::Penalised | PolicyDecision::ShadowPenalised => &mut policy.penalised,
            PolicyDecision::MissingRejected => &mut policy.missing,
            PolicyDecision::Exempt => continue,
        };
        *number += 1;
        let is_denied = count.decision != PolicyDecision::Admitted;
        policy.minutes.add(began_ns, is_denied);
        let Some(charge) = check.charges.iter().find(|charge| charge.policy == count.policy) else {
            continue;
        };
        policy.keys.meet(charge.key);
        if is_denied {
            policy.keys_denied.meet(charge.key);
            policy.worst.meet(charge.key, || name(naming, &table.policies()[index], subject, request));
        }
        let mut windows = check.charges.iter().filter(|charge| charge.policy == count.policy);
        let counts_in_flight = windows.any(|it| it.quota.algorithm() == Algorithm::Concurrency);
        policy.no_duration += u64::from(counts_in_flight && !request.has_duration);
        let actual = table.policies()[index].actual_cost();
        let is_unknown = match actual {
            Some(Actual::ResponseHeader(_) | Actual::ResponseJson(_)) => true,
            Some(Actual::Status(statuses)) => {
                statuses.are_of_calls()
                    || status_of(request).is_none() && !UNANSWERED.contains(&request.status)
            }
            Some(Actual::Measured(_)) | None => false,
        };
        policy.unknown_costs += u64::from(is_unknown);
    }
    for id in &found.route.policies {
        lacks(&mut counts.policies[id.index()], subject, request);
    }
}

/// The status that a client got if limits admitted it; `None` if it got none, or limits refused it when it was logged.
fn status_of(request: &Request) -> Option<u16> {
    let was_denied = request.was_denied.unwrap_or(request.status == StatusCode::TOO_MANY_REQUESTS);
    Some(request.status).filter(|status| !was_denied && !UNANSWERED.contains(status))
}

/// Logged for requests that got no answer, because the gateway broke them off or the client did.
const UNANSWERED: [u16; 2] = [0, CLIENT_GONE_STATUS];

/// Notes the dimensions of a policy that a request has no value for.
fn lacks(policy: &mut PolicyCounts, subject: &HttpSubject<'_>, request: &Request) {
    for (by, count) in &mut policy.lacking {
        let is_lacking = match by {
            Dimension::Ip => request.client.is_none(),
            by => {
                let mut value = Encoded::new();
                !subject.write(by, &mut value) || value.is_empty()
            }
        };
        *count += u64::from(is_lacking);
    }
}

/// Who is counted, as operators see it.
fn name(naming: &KeyNaming, policy: &Policy, subject: &HttpSubject<'_>, request: &Request) -> String {
    if policy.by.is_empty() || request.client.is_some() {
        return naming.name(policy, subject);
    }
    let values = policy.counted_as(subject);
    let parts = policy.by.iter().zip(&values).map(|(by, value)| match by {
        Dimension::Ip => "ip=none".to_owned(),
        by if value.substituted => format!("{by}=absent (ip=none)"),
        by => naming.name_of(slice::from_ref(by), slice::from_ref(value)),
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// The limiter of a node, with the memory that the configuration gives it.
fn limiter(config: &Config, redis: Option<&Arc<Redis>>, node: usize) -> Arc<Limiter> {
    let Some(redis) = redis.filter(|_| config.redis.is_some()) else {
        return Arc::new(Limiter::new(local::Table::with_memory(config.limits.memory)));
    };
    let own_bytes = config.limits.memory / OWN_PART;
    let wire = Arc::new(Wire { redis: Arc::clone(redis), node }) as Arc<dyn Link>;
    let fleet = Fleet::new(wire, config.limits.memory - own_bytes).salted(&salt());
    Arc::new(Limiter::in_fleet(local::Table::with_memory(own_bytes), fleet))
}

/// Makes the windows of a table known to the nodes.
fn announce(table: &mut RouteTable, nodes: &[Arc<Limiter>]) {
    share(table, nodes);
    for node in nodes {
        let windows = table.policies().iter().flat_map(|policy| policy.windows.iter());
        node.table().declare(windows.map(|window| window.quota));
    }
}

/// Tells each window of a table by which plan the nodes share it. All nodes number plans alike.
fn share(table: &mut RouteTable, nodes: &[Arc<Limiter>]) {
    let fleets: Vec<&Fleet> = nodes.iter().filter_map(|node| node.fleet()).collect();
    let Some((first, others)) = fleets.split_first() else { return };
    table.share(|policy, quota, sharing| {
        let plan = Plan { policy: policy.name.as_ref().into(), quota: *quota, sharing };
        others.iter().for_each(|fleet| _ = fleet.plans().id(plan.clone()));
        first.plans().id(plan)
    });
    nodes.iter().zip(&fleets).for_each(|(node, fleet)| node.table().declare_more(fleet.plans().fallbacks()));
}

/// Random, so that nobody who writes into a log can prepare keys that collide.
fn salt() -> [u8; 16] {
    let half = |number: u8| RandomState::new().hash_one(number).to_le_bytes();
    let (one, two) = (half(0), half(1));
    std::array::from_fn(|place| if place < 8 { one[place] } else { two[place - 8] })
}

/// Requests that are not over; beyond them the first to end gives back what it holds at once.
const RUNNING_MAX: usize = 1 << 18;
/// Memory of the tables of several nodes together.
const NODES_BYTES_MAX: usize = 4 << 30;
/// How often nodes give leases back.
const SWEEP_NS: u64 = 50_000_000;
/// In a fleet the table of what is not shared has this part of the memory, as in a gateway.
const OWN_PART: usize = 8;
