//! What is right in each of its parts and still cannot be meant: warnings about a configuration as a whole.
//!
//! Nothing here is an error: another gateway, or a file that comes later, may give it its sense.

use std::collections::HashMap;

use crate::auth::Kind;
use crate::policy::definition::{Action, Dimension};

use super::context::Context;
use super::report::Places;
use super::settings::Config;

/// Reports all of it.
pub(super) fn warn(ctx: &Context<'_>, config: &Config, places: &Places) {
    endless_redirects(ctx, config, places);
    certificates_nobody_shows(ctx, config, places);
    callers_nobody_knows(ctx, config, places);
}

/// A route that redirects to https and is served over https redirects to itself, for ever.
fn endless_redirects(ctx: &Context<'_>, config: &Config, places: &Places) {
    let is_tls = config.listeners.iter().any(|listener| !listener.certs.is_empty());
    let redirects = |action: &Action| matches!(action, Action::RedirectHttps { .. });
    for (route, fields) in config.routes.iter().zip(&places.routes) {
        if let Some(place) = fields.place("redirect").filter(|_| is_tls && redirects(&route.action)) {
            let message = "every listener serves this route: over https it redirects to itself";
            ctx.warn(place, message, "write `redirect` on the plain listener instead");
        }
    }
}

/// Certificates are shown where a listener asks for them.
fn certificates_nobody_shows(ctx: &Context<'_>, config: &Config, places: &Places) {
    let is_asked = config.listeners.iter().any(|listener| listener.client_auth.is_some());
    for (way, fields) in config.auth.iter().zip(&places.auth) {
        let is_used = config.routes.iter().any(|route| route.access.auth.contains(&way.name));
        let is_mtls = matches!(way.kind, Kind::Mtls(_));
        if let Some(place) = fields.whole.filter(|_| is_mtls && is_used && !is_asked) {
            let message = "no listener asks for certificates, so nobody is ever recognised by one";
            ctx.warn(place, message, "give a listener with `certs` a `client-ca`");
        }
    }
}

/// A policy that counts by who is calling, on routes where nobody is asked who that is.
fn callers_nobody_knows(ctx: &Context<'_>, config: &Config, places: &Places) {
    // Whether any route with the limit authenticates; each route is looked at once, however many policies there are.
    let mut used: HashMap<&str, bool> = HashMap::new();
    for route in &config.routes {
        for name in &route.limits {
            *used.entry(name).or_default() |= !route.access.auth.is_empty();
        }
    }
    for (policy, fields) in config.policies.iter().zip(&places.policies) {
        let is_blind = used.get(policy.name.as_str()) == Some(&false);
        if let Some(place) = fields.place("by").filter(|_| is_blind)
            && policy.by.iter().any(Dimension::needs_identity)
        {
            let message = "no route with this limit authenticates, so nobody ever has what it counts by";
            ctx.warn(place, message, "give the routes an `auth`, or count by something else");
        }
    }
}
