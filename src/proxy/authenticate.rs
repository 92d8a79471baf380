//! Who may pass: asks the methods that a route names who sent the request, and turns what they say into a refusal.
//!
//! If no method recognises the client, the answer is the same whatever was wrong, and nothing of the request reaches an
//! upstream.

use std::rc::Rc;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Uri};

use super::context::RequestContext;
use super::snapshot::View;
use crate::auth::place::{self, Carried, Place};
use crate::auth::{self, Asked, Wait};
use crate::clock;
use crate::identity::Identity;
use crate::policy::{Facts, Found, HttpSubject, Route};
use crate::service::refusal::Refusal;

/// Who sent the request, and what is answered if that is not enough.
#[derive(Debug, Default)]
pub struct Passed {
    /// The client, if the route asks and a method recognised it.
    pub identity: Option<Arc<Identity>>,
    /// Why the request goes no further; its limits are asked first, so that guessing runs into them.
    pub refusal: Option<Refusal>,
}

/// Asks who sent the request, if the route wants to know.
pub async fn identify(context: &mut RequestContext, found: &Found<'_, '_>, facts: &Facts<'_, '_>) -> Passed {
    let route = found.route;
    if route.access.auth.is_empty() {
        return Passed::default();
    }
    let view = Rc::clone(&context.view);
    let indices = route.access.auth.iter().map(|index| usize::from(*index));
    let methods = indices.map(|index| (&*view.snapshot.auth[index], &*view.caches[index]));
    let conn = Rc::clone(&context.conn);
    let asked = Asked {
        headers: facts.headers,
        query: facts.query,
        certificate: conn.certificate.as_deref(),
        now: context.services.unix(context.facts.started),
    };
    let verifications = &context.services.shared.auth_verifications;
    let may_try = |wait: &Wait| {
        // The token that asks for keys was let through when its signature was to be checked.
        if matches!(wait, Wait::Keys(_)) {
            return true;
        }
        let may = may_try(context, found, facts);
        verifications.add(u64::from(may));
        may
    };
    let outcome = auth::authenticate(methods.clone(), &asked, may_try).await;
    let Some((identity, _)) = outcome.known else {
        // Not refused if a credential was not verified: the limits that decide next may know more than was foreseen.
        if outcome.unverified.is_some() {
            return Passed::refused(Refusal::AuthBusy);
        }
        let challenges = methods.filter_map(|(method, _)| method.challenge.clone()).collect();
        return Passed::refused(Refusal::Unauthenticated(challenges, outcome.cause()));
    };
    context.facts.identity = Some(Arc::clone(&identity));
    let missing = route.access.require.as_ref().and_then(|require| require.check(&identity).err());
    Passed { identity: Some(identity), refusal: missing.map(Refusal::Forbidden) }
}

impl Passed {
    fn refused(refusal: Refusal) -> Passed {
        Passed { refusal: Some(refusal), ..Passed::default() }
    }
}

/// The target and fields as the upstream may see them: without the credentials that the route's methods keep back,
/// whichever of them recognised the client.
pub fn hide_credentials(view: &View, route: &Route, uri: &Uri, headers: &mut HeaderMap) -> Uri {
    let mut uri = uri.clone();
    let methods = route.access.auth.iter().map(|index| &view.snapshot.auth[usize::from(*index)].config);
    for config in methods.filter(|config| !config.pass) {
        for place in config.places() {
            match place {
                Place::Header(name) => drop(headers.remove(name)),
                // What another scheme carries is not this method's, and may be the upstream's own.
                Place::Bearer => match place::authorization(headers, config.scheme()) {
                    Carried::Nothing => {}
                    Carried::One(_) | Carried::Several => drop(headers.remove(AUTHORIZATION)),
                },
                Place::Query(name) => {
                    let Some(query) = uri.query() else { continue };
                    let query = place::without(query, name);
                    uri = with_query(&uri, query.as_deref());
                }
            }
        }
    }
    uri
}

/// Whether the limits that count anybody alike have room for one more. Where not, the answer is 429 whoever it is, and
/// no password is worked out and no signature checked: who guesses too often keeps nobody else waiting. Nothing is
/// spent by the question. A limit that might admit the client once it is known is not asked.
fn may_try(context: &RequestContext, found: &Found<'_, '_>, facts: &Facts<'_, '_>) -> bool {
    let policies = context.view.snapshot.table.chosen(found.route, true);
    let (limiter, now_ns) = (&context.services.shared.limiter, clock::ns_of(context.facts.started));
    limiter.has_room(policies, &HttpSubject::new(found, facts), now_ns)
}

/// Stars credentials out of the target that the access log will show, and out of the page it names as the one before:
/// that may be a page of ours.
pub fn hide_parameters(context: &mut RequestContext) {
    let snapshot = &context.view.snapshot;
    let names = &snapshot.secret_parameters;
    if names.is_empty() {
        return;
    }
    snapshot.shown.mask_queries(&mut context.facts.shown, |query| place::masked(query, names));
    if let Some(shown) = context.facts.uri.query().and_then(|query| place::masked(query, names)) {
        context.facts.uri = with_query(&context.facts.uri, Some(&shown));
    }
}

/// The same target with another query.
pub fn with_query(uri: &Uri, query: Option<&str>) -> Uri {
    let target = match query {
        Some(query) => format!("{}?{query}", uri.path()),
        None => uri.path().to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = http::uri::PathAndQuery::from_maybe_shared(target).ok();
    // What was a target is one with a shorter query; where not, the path alone still is.
    Uri::from_parts(parts).unwrap_or_else(|_| Uri::from_static("/"))
}
