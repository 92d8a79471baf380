//! Authenticates a request by the methods that its route names, and turns a failure into a refusal. The methods
//! themselves are in `auth`.
//!
//! If no method authenticates the client, the answer is the same whatever was wrong, and the request does not reach an
//! upstream.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Uri};

use crate::proxy::context::RequestContext;
use crate::proxy::snapshot::WorkerView;
use crate::service::refusal::Refusal;
use auth::credential_source::{self, CarriedCredential, CredentialSource};
use auth::{self, AuthRequest, PendingCheck};
use base::cause::Cause;
use base::clock;
use base::identity::Identity;
use policy::template::{UNFIT_PARAM, UnfitHeaderValue};
use policy::{HttpSubject, Route, RouteMatch, RoutingFacts};

#[derive(Debug, Default)]
pub struct AuthenticationResult {
    /// Who sent the request, if the route requires authentication and a method succeeded.
    pub identity: Option<Arc<Identity>>,
    /// Why the request is refused. The limits are decided before it is answered, so that guessing runs into them.
    pub refusal: Option<Refusal>,
}

/// Authenticates the client, if the route requires it.
pub async fn identify(
    context: &mut RequestContext,
    found: &RouteMatch<'_, '_>,
    facts: &RoutingFacts<'_, '_>,
) -> AuthenticationResult {
    let route = found.route;
    if route.access.auth.is_empty() {
        return AuthenticationResult::default();
    }
    let view = Rc::clone(&context.view);
    let methods = route.access.auth.iter().map(|id| (&*view.snapshot.auth[*id], &*view.caches[*id]));
    let conn = Rc::clone(&context.conn);
    let asked = AuthRequest {
        headers: facts.headers,
        query: facts.query,
        certificate: conn.certificate.as_deref(),
        now: context.services.unix(context.facts.started),
    };
    let verifications = &context.services.shared.auth_verifications;
    let has_verified = Cell::new(false);
    let may_try = |wait: &PendingCheck| {
        has_verified.set(true);
        // Not counted, because fetching keys was counted already, when the signature of the same token was about to be
        // verified.
        if matches!(wait, PendingCheck::Keys(_)) {
            return true;
        }
        let may = may_try(context, found, facts);
        verifications.add(u64::from(may));
        may
    };
    let outcome = auth::authenticate(methods.clone(), &asked, may_try).await;
    if has_verified.get() {
        context.attempts.steps.verified = context.elapsed_ns();
    }
    let Some((identity, _)) = outcome.known else {
        // 503 and not 401 if a credential was not verified, because it may be right. The limits that decide next
        // usually answer 429 instead.
        if let Some((_, cause)) = outcome.unverified {
            return AuthenticationResult::refused(Refusal::AuthBusy(cause));
        }
        return AuthenticationResult::refused(refusal(&view, route, outcome.cause()));
    };
    let identity = context.services.shared.limiter.assignments().apply(identity);
    context.facts.identity = Some(Arc::clone(&identity));
    let missing = route.access.require.as_ref().and_then(|require| require.check(&identity).err());
    AuthenticationResult { identity: Some(identity), refusal: missing.map(Refusal::Forbidden) }
}

/// The refusal of a credential. Whatever the cause, the client is told the same.
fn refusal(view: &WorkerView, route: &Route, cause: Cause) -> Refusal {
    let methods = route.access.auth.iter().map(|id| &view.snapshot.auth[*id]);
    Refusal::Unauthenticated(methods.filter_map(|method| method.challenge.clone()).collect(), cause)
}

/// The refusal of a request of which a field that its route sends cannot have the value.
pub fn unfit(view: &WorkerView, route: &Route, unfit: UnfitHeaderValue) -> Refusal {
    match unfit {
        UnfitHeaderValue::Identity => refusal(view, route, Cause::IdentityUnfit),
        UnfitHeaderValue::Param => Refusal::Malformed(UNFIT_PARAM),
    }
}

impl AuthenticationResult {
    fn refused(refusal: Refusal) -> AuthenticationResult {
        AuthenticationResult { refusal: Some(refusal), ..AuthenticationResult::default() }
    }
}

/// Removes credentials from the fields and the returned target, so that the upstream does not see them: those of every
/// method of the route that does not pass them on, whichever of them authenticated the client.
pub fn hide_credentials(view: &WorkerView, route: &Route, uri: &Uri, headers: &mut HeaderMap) -> Uri {
    let mut uri = uri.clone();
    let methods = route.access.auth.iter().map(|id| &view.snapshot.auth[*id].config);
    for config in methods.filter(|config| !config.pass) {
        for place in config.places() {
            match place {
                CredentialSource::Header(name) => drop(headers.remove(name)),
                // Only of its own scheme, because a credential of another is not this method's: it may be meant for the
                // upstream.
                CredentialSource::Bearer => {
                    match credential_source::authorization(headers, config.scheme()) {
                        CarriedCredential::Nothing => {}
                        CarriedCredential::One(_) | CarriedCredential::Several => {
                            drop(headers.remove(AUTHORIZATION))
                        }
                    }
                }
                CredentialSource::Query(name) => {
                    let Some(query) = uri.query() else { continue };
                    let query = credential_source::without(query, name);
                    uri = with_query(&uri, query.as_deref());
                }
            }
        }
    }
    uri
}

/// Whether a costly verification may begin: whether the limits that need no identity have room. If not, the answer is
/// 429 in any case: no password is hashed and no signature verified, so that a client that guesses does not slow others
/// down. Nothing is charged here. Limits that count by identity are not asked: they may admit the client once it is
/// known.
fn may_try(context: &RequestContext, found: &RouteMatch<'_, '_>, facts: &RoutingFacts<'_, '_>) -> bool {
    let policies = context.view.snapshot.table.chosen(found.route, true);
    let (limiter, now_ns) = (&context.services.shared.limiter, clock::ns_of(context.facts.started));
    limiter.has_room(policies, &HttpSubject::new(found, facts), now_ns)
}

/// Masks credentials in the query that the access log will show, and in logged fields such as `Referer`, which may name
/// a URL of this gateway.
pub fn hide_parameters(context: &mut RequestContext) {
    let snapshot = &context.view.snapshot;
    let names = &snapshot.secret_parameters;
    if names.is_empty() {
        return;
    }
    snapshot.shown.mask_queries(&mut context.facts.shown, |query| credential_source::masked(query, names));
    if let Some(shown) = context.facts.uri.query().and_then(|query| credential_source::masked(query, names)) {
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
    // A target stays valid with a shorter query, so the fallback is never taken; it avoids a panic.
    Uri::from_parts(parts).unwrap_or_else(|_| Uri::from_static("/"))
}
