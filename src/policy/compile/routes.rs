//! Routes on their own: what they match, what they name, what they do, and every mistake in them.

use std::collections::HashMap;

use http::HeaderValue;
use http::header::{CONTENT_TYPE, HOST};

use super::errors::{CompileErrors, PlaceErrors};
use super::options::CompileOptions;
use crate::definition::{self, Dimension};
use crate::destination::{
    Affinity, ChoiceId, Destination, Mirror, UpstreamChoice, UpstreamId, UpstreamShare,
};
use crate::error::{DefinitionPlace, DefinitionProblem};
use crate::matching::host::HostPattern;
use crate::matching::method::Methods;
use crate::matching::pattern::Pattern;
use crate::response::body::CompiledBody;
use crate::response::changes;
use crate::response::changes::HeaderChanges;
use crate::response::cors::Cors;
use crate::response::location::Location;
use crate::route::{Action, AuthMethodId, HeaderMatch, Respond, Route, RouteAccess, RouteId};
use crate::template::{self, HeaderTemplate, Rewrite};
use base::rendezvous;
use limit::PolicyId;

pub(super) fn compile(
    routes: &[definition::RouteDefinition],
    policies: &[definition::PolicyDefinition],
    options: &CompileOptions<'_>,
    errors: &mut CompileErrors,
) -> Vec<Option<Route>> {
    let places = (0..).map(|id| DefinitionPlace::Route(RouteId::new(id)));
    errors.check_names(routes.iter().map(|route| &*route.name).zip(places));
    let names = RouteNames {
        policies: policies.iter().map(|policy| &*policy.name).zip((0..).map(PolicyId::new)).collect(),
        upstreams: options.upstreams.iter().map(String::as_str).zip((0..).map(UpstreamId::new)).collect(),
        auth: options.auth.iter().map(String::as_str).zip((0..).map(AuthMethodId::new)).collect(),
        ipv6_prefix: options.ipv6_prefix,
    };
    routes
        .iter()
        .zip((0..).map(RouteId::new))
        .map(|(route, id)| route_of(route, id, &names, errors))
        .collect()
}

struct RouteNames<'d> {
    policies: HashMap<&'d str, PolicyId>,
    upstreams: HashMap<&'d str, UpstreamId>,
    auth: HashMap<&'d str, AuthMethodId>,
    ipv6_prefix: u8,
}

/// `None` where its host or path is no such thing, so that nothing more can be said of it.
fn route_of(
    route: &definition::RouteDefinition,
    id: RouteId,
    names: &RouteNames<'_>,
    errors: &mut CompileErrors,
) -> Option<Route> {
    let errors = &mut errors.at(DefinitionPlace::Route(id));
    let hosts = hosts_of(route, errors);
    let pattern = Pattern::parse(&route.path).map_err(|error| errors.add("path", error)).ok();
    let headers = header_matches_of(route, errors);
    let policies = limits_of(route, names, errors);
    let methods = Methods::new(&route.methods);
    let access = access_of(&route.access, &methods, names, errors);
    let (hosts, pattern) = (hosts?, pattern?);
    let action = action_of(&route.action, &pattern, names, errors)?;
    let mut changes = |changes, key| changes_of(changes, key, &pattern, errors);
    Some(Route {
        id,
        name: route.name.as_str().into(),
        action,
        policies,
        request_headers: changes(&route.request_headers, "headers"),
        response_headers: changes(&route.response_headers, "response-headers"),
        body_bytes_max: route.body_bytes_max,
        upgrade: route.upgrade,
        holds: false,
        answer_paths: None,
        body_paths: None,
        penalises: false,
        tries: false,
        path_escapes: route.path_escapes,
        timeouts: route.timeouts,
        retry: route.retry.clone(),
        compress: route.compress.clone(),
        remembers: false,
        access,
        strangers: Box::default(),
        hosts,
        pattern,
        methods,
        headers,
        limits_shown: None,
        windows: 0,
    })
}

fn hosts_of(route: &definition::RouteDefinition, errors: &mut PlaceErrors<'_>) -> Option<Box<[HostPattern]>> {
    let mut hosts = Vec::new();
    for (number, text) in route.hosts.iter().enumerate() {
        match HostPattern::parse(text) {
            Ok(host) if hosts.contains(&host) => {}
            Ok(host) => hosts.push(host),
            Err(error) => errors.add(format!("host[{number}]"), error),
        }
    }
    (hosts.is_empty() == route.hosts.is_empty()).then(|| hosts.into())
}

fn header_matches_of(
    route: &definition::RouteDefinition,
    errors: &mut PlaceErrors<'_>,
) -> Box<[HeaderMatch]> {
    let mut headers: Vec<HeaderMatch> = Vec::new();
    for header in &route.headers {
        let value = match header.value.as_deref() {
            Some(value) if header.name == HOST => match HostPattern::parse(value) {
                Ok(HostPattern::Exact(host)) => Some(host.into_boxed_bytes()),
                Ok(HostPattern::Wildcard(_)) => {
                    errors.add("match", DefinitionProblem::HostWildcard);
                    continue;
                }
                Err(error) => {
                    errors.add("match", error);
                    continue;
                }
            },
            value => value.map(|value| Box::from(value.as_bytes())),
        };
        let header = HeaderMatch { name: header.name.clone(), value };
        match headers.iter_mut().find(|earlier| earlier.name == header.name) {
            None => headers.push(header),
            Some(earlier) if earlier.agrees_with(&header) => {
                // The later one is taken, because one with a value asks for all that the other does.
                if earlier.value.is_none() {
                    *earlier = header;
                }
            }
            Some(_) => {
                let problem = DefinitionProblem::HeaderNeverMatches { name: header.name.to_string() };
                errors.add("match", problem);
            }
        }
    }
    headers.into()
}

fn limits_of(
    route: &definition::RouteDefinition,
    names: &RouteNames<'_>,
    errors: &mut PlaceErrors<'_>,
) -> Box<[PolicyId]> {
    let mut policies = Vec::new();
    for (number, name) in route.limits.iter().enumerate() {
        let problem = match names.policies.get(name.as_str()) {
            Some(policy) if !policies.contains(policy) => {
                policies.push(*policy);
                continue;
            }
            Some(_) => DefinitionProblem::PolicyTwice { name: name.clone() },
            None => DefinitionProblem::UnknownPolicy { name: name.clone() },
        };
        errors.add(format!("limit[{number}]"), problem);
    }
    policies.into()
}

/// Ways to authenticate. A name that is unknown or stands twice is reported.
fn access_of(
    access: &definition::AccessDefinition,
    methods: &Methods,
    names: &RouteNames<'_>,
    errors: &mut PlaceErrors<'_>,
) -> RouteAccess {
    let mut auth = Vec::new();
    for (number, name) in access.auth.iter().enumerate() {
        match names.auth.get(name.as_str()) {
            Some(method) if !auth.contains(method) => auth.push(*method),
            Some(_) => {}
            None => {
                let problem = DefinitionProblem::UnknownAuth { name: name.clone() };
                errors.add(format!("auth[{number}]"), problem);
            }
        }
    }
    RouteAccess {
        auth: auth.into(),
        require: access.require.clone().map(Box::new),
        addresses: access.addresses.clone(),
        cors: access.cors.as_ref().map(|cors| Box::new(Cors::new(cors, methods))),
    }
}

fn action_of(
    action: &definition::ActionDefinition,
    pattern: &Pattern,
    names: &RouteNames<'_>,
    errors: &mut PlaceErrors<'_>,
) -> Option<Action> {
    match action {
        definition::ActionDefinition::Forward { to, rewrite } => {
            let rewrite = rewrite.as_deref().map(|text| Rewrite::parse(text, pattern)).transpose();
            let rewrite = rewrite.map_err(|error| errors.add("rewrite", error));
            let to = destination_of(to, pattern, names, errors);
            Some(Action::Forward { to, rewrite: rewrite.unwrap_or(None) })
        }
        definition::ActionDefinition::Respond(respond) => respond_of(respond, pattern, errors),
        definition::ActionDefinition::Echo => Some(Action::Echo),
        definition::ActionDefinition::RedirectHttps(redirect) => {
            Some(Action::RedirectHttps(redirect.clone()))
        }
        definition::ActionDefinition::Redirect { to, status } => match Location::parse(to, pattern) {
            Ok(to) => Some(Action::Redirect { to, status: *status }),
            Err(error) => {
                errors.add("redirect", error);
                None
            }
        },
    }
}

fn respond_of(
    respond: &definition::RespondDefinition,
    pattern: &Pattern,
    errors: &mut PlaceErrors<'_>,
) -> Option<Action> {
    let mut headers = Vec::with_capacity(respond.headers.len());
    for (name, text) in &respond.headers {
        if changes::is_framing(name) {
            errors.add("respond.headers", DefinitionProblem::FramingHeader { name: name.to_string() });
            continue;
        }
        match HeaderTemplate::parse(text, pattern) {
            Ok(template) => headers.push((name.clone(), template)),
            Err(error) => errors.add("respond.headers", error),
        }
    }
    let kind = respond.headers.iter().find(|(name, _)| *name == CONTENT_TYPE);
    let body = match CompiledBody::parse(&respond.body, kind.map(|(_, text)| text.as_str()), pattern) {
        Ok(body) => body,
        Err(error) => {
            errors.add("respond.body", error);
            return None;
        }
    };
    // A type is added, because without one a browser guesses, and a value that a client chose could make it guess
    // HTML.
    if kind.is_none() && matches!(body, CompiledBody::Made(..)) {
        headers.push((CONTENT_TYPE, HeaderTemplate::Fixed(TEXT)));
    }
    Some(Action::Respond(Respond { status: respond.status, headers: headers.into(), body }))
}

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

fn destination_of(
    to: &definition::DestinationDefinition,
    pattern: &Pattern,
    names: &RouteNames<'_>,
    errors: &mut PlaceErrors<'_>,
) -> Destination {
    let mut parts: Vec<UpstreamShare> = Vec::with_capacity(to.parts.len());
    for definition::WeightedUpstream { upstream: name, weight } in &to.parts {
        let problem = match names.upstreams.get(name.as_str()) {
            Some(upstream) if parts.iter().all(|part| part.upstream != *upstream) => {
                let number = rendezvous::number(&[name.as_bytes()]);
                parts.push(UpstreamShare { upstream: *upstream, weight: *weight, number, hash: None });
                continue;
            }
            Some(_) => DefinitionProblem::UpstreamTwice { name: name.clone() },
            None => DefinitionProblem::UnknownUpstream { name: name.clone() },
        };
        errors.add("to", problem);
    }
    if to.parts.iter().all(|part| part.weight == 0) {
        errors.add("to", DefinitionProblem::NoWeight);
    }
    if let Some(Dimension::Param(name)) = &to.sticky
        && pattern.param(name).is_none()
    {
        errors.add("sticky", DefinitionProblem::ParamNotInPath { name: name.clone() });
    }
    let mirror = to.mirror.as_ref().and_then(|mirror| mirror_of(mirror, &parts, names, errors));
    // Where there is none any will do, because an error has been reported.
    let upstream = parts.first().map_or(UpstreamId::new(0), |part| part.upstream);
    let sticky = to.sticky.clone().map(|by| Affinity::new(by, names.ipv6_prefix));
    let choice = (parts.len() > 1)
        .then(|| Box::new(UpstreamChoice { parts: parts.into(), sticky, id: ChoiceId::new(0) }));
    Destination { upstream, choice, mirror }
}

/// A mirror has connections of its own, because copies that a server is slow to answer would make requests to it
/// wait.
fn mirror_of(
    mirror: &definition::MirrorDefinition,
    parts: &[UpstreamShare],
    names: &RouteNames<'_>,
    errors: &mut PlaceErrors<'_>,
) -> Option<Box<Mirror>> {
    let definition::MirrorDefinition { upstream: name, share_ppm, body_bytes_max } = mirror;
    let problem = match names.upstreams.get(name.as_str()) {
        Some(upstream) if parts.iter().all(|part| part.upstream != *upstream) => {
            let (share_ppm, body_bytes_max) = (*share_ppm, *body_bytes_max);
            let (upstream, name, id) = (*upstream, name.as_str().into(), ChoiceId::new(0));
            return Some(Box::new(Mirror { upstream, name, share_ppm, body_bytes_max, id }));
        }
        Some(_) => DefinitionProblem::MirrorIsUpstream { name: name.clone() },
        None => DefinitionProblem::UnknownUpstream { name: name.clone() },
    };
    errors.add("mirror", problem);
    None
}

fn changes_of(
    written: &definition::HeaderChangesDefinition,
    key: &str,
    pattern: &Pattern,
    errors: &mut PlaceErrors<'_>,
) -> HeaderChanges {
    let mut check = |change, name: &http::HeaderName| {
        if changes::is_framing(name) {
            let problem = DefinitionProblem::FramingHeader { name: name.to_string() };
            errors.add(format!("{key}.{change}"), problem);
        }
    };
    written.remove.iter().for_each(|name| check("remove", name));
    written.set.iter().for_each(|(name, _)| check("set", name));
    written.add.iter().for_each(|(name, _)| check("add", name));
    let mut compiled = |change: &str, list: &[(http::HeaderName, String)]| {
        let templates = list.iter().filter_map(|(name, text)| {
            let is_host = |template: &HeaderTemplate| match template {
                HeaderTemplate::Fixed(value) => *name != HOST || changes::names_host(value),
                HeaderTemplate::Made(_) => true,
            };
            let template = HeaderTemplate::parse(text, pattern);
            let template = template
                .and_then(|made| if is_host(&made) { Ok(made) } else { Err(template::Error::NotHost) });
            template
                .map(|template| (name.clone(), template))
                .map_err(|error| errors.add(format!("{key}.{change}"), error))
                .ok()
        });
        templates.collect()
    };
    HeaderChanges {
        remove: written.remove.clone().into(),
        set: compiled("set", &written.set),
        add: compiled("add", &written.add),
        always: written.always,
    }
}
