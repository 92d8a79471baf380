//! Warnings about a configuration as a whole: each part is valid, but together they cannot be what was meant.
//!
//! None is an error, because another gateway in front, or a file that is included later, may make sense of it.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use auth::MethodKind;
use gateway::service::config::ListenerConfig;
use http::Method;
use ipnet::IpNet;
use net::listening::Bind;
use policy::definition::{ActionDefinition, Dimension, LimitOrigin, MatchesDefinition, RouteDefinition};
use policy::matching::domain::definition::VerdictDefinition;
use upstream::config::{ConfiguredServer, ServerLocation};

use super::load::context::Context;
use super::load::report::{DefinitionSpans, SourceSpan, quoted};
use super::settings::{Config, NO_SUCH_TIER, instead_of_tier};

pub(super) fn warn(ctx: &Context<'_>, config: &Config, places: &DefinitionSpans) {
    endless_redirects(ctx, config, places);
    redirects_to_nowhere(ctx, config, places);
    methods_of_routes(ctx, config, places);
    policies_of_routes(ctx, config, places);
    sticky_identities_without_auth(ctx, config, places);
    identities_without_auth(ctx, config, places);
    listeners_without_routes(ctx, config, places);
    upstreams_of_routes(ctx, config, places);
    domains_without_grpc(ctx, config, places);
    unknown_tiers(ctx, config, places);
    translators_in_lists(ctx, config, places);
}

/// Lists that name addresses behind a translator of `client-ip.nat64`: its clients have other ones.
fn translators_in_lists(ctx: &Context<'_>, config: &Config, places: &DefinitionSpans) {
    let warn = |networks: &[IpNet], place: Option<SourceSpan>| {
        let is_translators = networks.iter().any(|network| config.client_ip.nat64.has(network));
        let message = "no client has these addresses: `nat64` turns them into IPv4 addresses";
        ctx.warn(place.filter(|_| is_translators), message, "write the IPv4 addresses or ranges");
    };
    for (route, fields) in config.routes.iter().zip(&places.routes) {
        warn(route.access.addresses.allow.all(), fields.place("allow"));
        warn(route.access.addresses.deny.all(), fields.place("deny"));
    }
    for (policy, fields) in config.policies.iter().zip(&places.policies) {
        warn(&policy.exempt.networks, fields.place("exempt"));
    }
}

/// Authentication methods that give every client a tier that does not exist.
fn unknown_tiers(ctx: &Context<'_>, config: &Config, places: &DefinitionSpans) {
    let names = config.tier_names();
    for (method, fields) in config.auth.iter().zip(&places.auth) {
        let tier = match &method.kind {
            MethodKind::Anonymous(anybody) => anybody.tier.as_deref(),
            MethodKind::Mtls(certificates) => certificates.tier.as_deref(),
            MethodKind::ApiKey(_) | MethodKind::Basic(_) | MethodKind::Jwt(_) => None,
        };
        let hint = tier.and_then(|tier| instead_of_tier(tier, &names));
        if let Some((hint, place)) = hint.zip(fields.place("tier")) {
            ctx.warn(place, NO_SUCH_TIER, hint);
        }
    }
}

/// Domains for other proxies, if there is no listener that they could ask.
fn domains_without_grpc(ctx: &Context<'_>, config: &Config, places: &DefinitionSpans) {
    let first = places.domains.first().filter(|fields| config.grpc.is_none() && !fields.is_flawed);
    let message = "this domain has no effect: Envoy cannot ask, because there is no gRPC listener";
    let hint = "write `grpc = \"127.0.0.1:9901\"` in `[admin]`";
    ctx.warn(first.and_then(|fields| fields.whole), message, hint);
}

/// Upstreams that no route leads to, and those whose servers are kept by a dimension of the identity, if nobody who gets
/// there has one.
fn upstreams_of_routes(ctx: &Context<'_>, config: &Config, places: &DefinitionSpans) {
    // Whether any route to the upstream authenticates, in one pass, because there may be a million.
    let mut used: HashMap<&str, bool> = HashMap::new();
    for route in &config.routes {
        let ActionDefinition::Forward { to, .. } = &route.action else { continue };
        for part in &to.parts {
            *used.entry(&part.upstream).or_default() |= !route.access.auth.is_empty();
        }
        to.mirror.iter().for_each(|mirror| _ = used.entry(&mirror.upstream).or_insert(true));
    }
    // What is misspelt leads nowhere, but that has been reported.
    let is_told = config.routes.is_empty() || ctx.has_errors();
    for (upstream, fields) in config.upstreams.iter().zip(&places.upstreams) {
        let is_unused = !is_told && !used.contains_key(&*upstream.name);
        let message = format!("no route uses the upstream {}", quoted(&upstream.name));
        let hint = "name it in `to` of a route, or delete it";
        ctx.warn(fields.whole.filter(|_| is_unused), message, hint);
        let is_own = |bind: &Bind| {
            let bind = bind.tcp().filter(|bind| bind.port() > 0);
            bind.is_some_and(|bind| upstream.servers.iter().any(|server| is_at(server, bind)))
        };
        let is_admin = config.admin.as_ref().is_some_and(|admin| is_own(&admin.bind));
        let message = "this upstream is the admin listener: clients could read the configuration";
        ctx.warn(fields.whole.filter(|_| is_admin), message, "name another server");
        let own = config.listeners.iter().find(|listener| is_own(&listener.bind));
        if let Some((listener, place)) = own.zip(fields.whole) {
            let message = format!("this upstream is the listener {} of this gateway", quoted(&listener.name));
            ctx.warn(place, message, "name another server: requests that come back may never end");
        }
        let is_blind = used.get(upstream.name.as_str()) == Some(&false)
            && upstream.balance.dimension().is_some_and(Dimension::needs_identity);
        let message = "no route to this upstream authenticates, so no client keeps its server";
        let hint = "add `auth` to the routes, or hash by another dimension";
        ctx.warn(fields.place("balance").filter(|_| is_blind), message, hint);
    }
}

/// Whether a server is at the address of a listener, as far as a file shows it.
fn is_at(server: &ConfiguredServer, bind: SocketAddr) -> bool {
    let ServerLocation::Tcp { host, port } = &server.place else { return false };
    let ip = if host == "localhost" { Some(Ipv4Addr::LOCALHOST.into()) } else { host.parse::<IpAddr>().ok() };
    let is_reached = |ip: IpAddr| ip == bind.ip() || ip.is_loopback() && bind.ip().is_unspecified();
    *port == bind.port() && ip.is_some_and(is_reached)
}

/// Routes whose clients keep their upstream by a dimension of the identity, if nobody has one there.
fn sticky_identities_without_auth(ctx: &Context<'_>, config: &Config, places: &DefinitionSpans) {
    for (route, fields) in config.routes.iter().zip(&places.routes) {
        let ActionDefinition::Forward { to, .. } = &route.action else { continue };
        let is_blind =
            route.access.auth.is_empty() && to.sticky.as_ref().is_some_and(Dimension::needs_identity);
        let place = fields.place("sticky").filter(|_| is_blind);
        let message = "the route does not authenticate, so no client keeps its upstream";
        ctx.warn(place, message, "add `auth` to the route, or use another dimension");
    }
}

/// Routes that write who the client is into headers and paths, if nobody is known there.
fn identities_without_auth(ctx: &Context<'_>, config: &Config, places: &DefinitionSpans) {
    let open = config.routes.iter().zip(&places.routes).filter(|(route, _)| route.access.auth.is_empty());
    for (route, fields) in open {
        let changes = [("headers", &route.request_headers), ("response-headers", &route.response_headers)];
        let texts = changes.into_iter().flat_map(|(key, changes)| {
            changes.set.iter().chain(&changes.add).map(move |(_, text)| (key, text))
        });
        let path = match &route.action {
            ActionDefinition::Forward { rewrite: Some(text), .. } => Some(("rewrite", text)),
            ActionDefinition::Redirect { to, .. } => Some(("redirect", to)),
            _ => None,
        };
        for (key, text) in texts.chain(path) {
            let text = text.replace("{{", "");
            let is_used = ["{consumer}", "{tenant}", "{tier}", "{claim:"].iter().any(|it| text.contains(it));
            let message =
                "the route does not authenticate, so `{consumer}`, `{tenant}`, `{tier}` and claims are empty";
            ctx.warn(fields.place(key).filter(|_| is_used), message, "add `auth` to the route");
        }
    }
}

fn listeners_without_routes(ctx: &Context<'_>, config: &Config, places: &DefinitionSpans) {
    let serving = |(listener, _): &(&ListenerConfig, _)| listener.redirect_https.is_none();
    let first = config.listeners.iter().zip(&places.listeners).find(serving);
    let is_bare = config.routes.is_empty() && !ctx.has_errors();
    let message = "there is no route: every request gets 404";
    let hint = "write `[[route]]` with `to = \"http://127.0.0.1:3000\"`";
    ctx.warn(first.and_then(|(_, fields)| fields.whole).filter(|_| is_bare), message, hint);
}

/// Warns of a route that redirects to its own path, or to https and is itself served over https, because clients would
/// follow it in a loop.
fn endless_redirects(ctx: &Context<'_>, config: &Config, places: &DefinitionSpans) {
    let is_tls = config.listeners.iter().any(|listener| !listener.certs.is_empty());
    for (route, fields) in config.routes.iter().zip(&places.routes) {
        let (message, hint) = match &route.action {
            ActionDefinition::RedirectHttps(redirect) if is_tls && redirect.host.is_none() => (
                "every listener serves this route: over https it redirects to itself",
                "write `redirect` on the plain listener instead",
            ),
            // Whatever else a route looks at may be different in the request that follows.
            ActionDefinition::Redirect { to, .. }
                if *to == route.path && route.methods.is_empty() && route.headers.is_empty() =>
            {
                ("this route redirects to itself", "name another path, or a URL with another host")
            }
            _ => continue,
        };
        ctx.warn(fields.place("redirect"), message, hint);
    }
}

/// Listeners and routes that redirect to a port of their own host where no listener speaks TLS. A route is looked at only
/// if no listener does at all, because otherwise [`endless_redirects`] warns of it.
fn redirects_to_nowhere(ctx: &Context<'_>, config: &Config, places: &DefinitionSpans) {
    let port = |listener: &ListenerConfig| listener.bind.tcp().map(|address| address.port());
    let served = config.listeners.iter().filter(|listener| !listener.certs.is_empty());
    let has_tls = served.clone().next().is_some();
    let ports: Vec<u16> = served.filter_map(port).collect();
    let of_listeners = config.listeners.iter().map(|listener| listener.redirect_https.as_ref());
    let of_routes = config.routes.iter().map(|route| match &route.action {
        ActionDefinition::RedirectHttps(redirect) => Some(redirect),
        _ => None,
    });
    let routes = of_routes.zip(&places.routes).filter(|_| !has_tls);
    for (redirect, fields) in of_listeners.zip(&places.listeners).chain(routes) {
        let redirect = redirect.filter(|redirect| redirect.host.is_none());
        let Some((redirect, place)) = redirect.zip(fields.place("redirect")) else { continue };
        // Any port may be the one that the kernel chooses.
        if fields.is_flawed || ports.iter().any(|port| *port == redirect.port || *port == 0) {
            continue;
        }
        let message = format!("no listener of this gateway serves https on port {}", redirect.port);
        let hint = match ports.first() {
            Some(port) => format!("write `redirect = \"https:{port}\"`, unless another port leads there"),
            None => {
                "add a listener with `certs`, or leave `redirect` to whatever speaks TLS in front".to_owned()
            }
        };
        ctx.warn(place, message, hint);
    }
}

/// Methods that no route names, those that come after one that takes everybody, and those that read client certificates,
/// if no listener asks clients for one.
fn methods_of_routes(ctx: &Context<'_>, config: &Config, places: &DefinitionSpans) {
    let is_asked = config.listeners.iter().any(|listener| listener.client_auth.is_some());
    let is_told = config.routes.is_empty() || ctx.has_errors();
    let used: HashSet<&str> =
        config.routes.iter().flat_map(|route| &route.access.auth).map(String::as_str).collect();
    for (method, fields) in config.auth.iter().zip(&places.auth) {
        let is_used = used.contains(method.name.as_str());
        let is_blind = matches!(method.kind, MethodKind::Mtls(_)) && is_used && !is_asked;
        let message = "no listener asks for certificates, so this method never recognises a client";
        let hint = "add `client-ca` to a listener with `certs`";
        ctx.warn(fields.whole.filter(|_| is_blind), message, hint);
        let message = format!("no route uses the method {}", quoted(&method.name));
        let hint = "name it in `auth` of a route, or delete it";
        ctx.warn(fields.whole.filter(|_| !is_used && !is_told), message, hint);
    }
    let takes_all = |method: &&auth::Config| matches!(method.kind, MethodKind::Anonymous(_));
    let open: Vec<&str> = config.auth.iter().filter(takes_all).map(|method| &*method.name).collect();
    for (route, fields) in config.routes.iter().zip(&places.routes) {
        let before_others = route.access.auth.split_last().map_or(&[][..], |(_, before)| before);
        if let Some(at) = before_others.iter().position(|name| open.contains(&name.as_str())) {
            let message = "this method accepts every client, so the methods after it are never tried";
            ctx.warn(fields.place(&format!("auth[{at}]")), message, "name it last");
        }
    }
}

/// Policies that no route has, and those that count by a dimension of the identity, if none of their routes authenticates.
fn policies_of_routes(ctx: &Context<'_>, config: &Config, places: &DefinitionSpans) {
    // Whether any route with the policy authenticates, and by a method that can give claims. Collected in one pass over the
    // routes, because there may be a million.
    let mut used: HashMap<&str, (bool, bool)> = HashMap::new();
    let open = config.auth.iter().filter(|method| matches!(method.kind, MethodKind::Anonymous(_)));
    let open: HashSet<&str> = open.map(|method| &*method.name).collect();
    let matching = config.policies.iter().filter(|policy| policy.matches != MatchesDefinition::default());
    let mut unmet: HashMap<&str, &MatchesDefinition> =
        matching.map(|policy| (&*policy.name, &policy.matches)).collect();
    for route in &config.routes {
        let has_claims = route.access.auth.iter().any(|method| !open.contains(method.as_str()));
        for name in &route.limits {
            let used = used.entry(name).or_default();
            (used.0, used.1) = (used.0 | !route.access.auth.is_empty(), used.1 | has_claims);
            if unmet.get(name.as_str()).is_some_and(|matches| may_match(matches, route)) {
                unmet.remove(name.as_str());
            }
        }
    }
    for rule in config.domains.iter().flat_map(|domain| &domain.rules) {
        let VerdictDefinition::Limited(limits) = &rule.verdict else { continue };
        limits.iter().for_each(|name| _ = used.entry(name).or_insert((true, true)));
    }
    let is_open = config.routes.iter().any(|route| route.limits.is_empty()) && !ctx.has_errors();
    for (policy, fields) in config.policies.iter().zip(&places.policies) {
        let is_of_file = policy.origin == LimitOrigin::File && policy.replaces.is_none();
        let is_unused = is_open && is_of_file && !used.contains_key(&*policy.name);
        let message = format!("no route uses the policy {}", quoted(&policy.name));
        let hint = "until a route names it, only checks through the admin API can use it";
        ctx.warn(fields.whole.filter(|_| is_unused), message, hint);
        let is_unmet = used.contains_key(&*policy.name) && unmet.contains_key(&*policy.name);
        let place = fields.place("match").filter(|_| is_unmet && !ctx.has_errors());
        let message = "no route with this policy has such requests, so it never counts one";
        ctx.warn(place, message, "name a method and a path that one of its routes has");
        let has_no_claims = used.get(policy.name.as_str()).is_some_and(|(_, has_claims)| !has_claims);
        let place = fields.place("anchor-claim").filter(|_| has_no_claims && policy.anchor_claim.is_some());
        let message = "no route with this limit has clients with claims, so `anchor` applies to all of them";
        ctx.warn(place, message, "add `auth` to the routes, or leave `anchor-claim` out");
        let is_blind = used.get(policy.name.as_str()).is_some_and(|(has_auth, _)| !has_auth);
        if let Some(place) = fields.place("by").filter(|_| is_blind)
            && policy.by.iter().any(Dimension::needs_identity)
        {
            let message =
                "no route with this limit has `auth`, so no client has the dimension that it counts by";
            ctx.warn(place, message, "add `auth` to the routes, or count by another dimension");
        }
    }
}

/// Whether a route may have requests that a policy counts, as far as methods and the literal begin of the path show.
fn may_match(matches: &MatchesDefinition, route: &RouteDefinition) -> bool {
    let MatchesDefinition { methods, path } = matches;
    let literal = |path: &str| path.split('{').next().unwrap_or_default().to_owned();
    let (counted, routed) = (literal(path.as_deref().unwrap_or("/")), literal(&route.path));
    // A route with GET answers HEAD, too.
    let has = |method: &Method| {
        route.methods.contains(method) || *method == Method::HEAD && route.methods.contains(&Method::GET)
    };
    (route.methods.is_empty() || methods.is_empty() || methods.iter().any(has))
        && (counted.starts_with(&routed) || routed.starts_with(&counted))
}
