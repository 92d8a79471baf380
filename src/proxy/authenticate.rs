//! Who may pass: asks the ways to authenticate that a route names, in their order, who is calling.
//!
//! The first that recognises the caller decides. Where none does, the answer is the same whatever was wrong, and
//! nothing of the request reaches an upstream.

use std::rc::Rc;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Uri};

use super::context::RequestContext;
use super::snapshot::View;
use crate::auth::cache::Cache;
use crate::auth::place::{self, Carried, Place};
use crate::auth::{Asked, Checked, Kind, Method, Wait};
use crate::cause::Cause;
use crate::clock;
use crate::identity::Identity;
use crate::policy::{Facts, Found, HttpSubject, Route};
use crate::service::refusal::Refusal;

/// Who is calling, and what is to be answered where that is not enough.
#[derive(Debug, Default)]
pub struct Passed {
    /// The caller, where it was asked for and is known.
    pub identity: Option<Arc<Identity>>,
    /// Why the request goes no further; its limits are asked first, so that guessing runs into them.
    pub refusal: Option<Refusal>,
}

/// Asks who is calling, where the route wants to know.
pub async fn identify(context: &mut RequestContext, found: &Found<'_, '_>, facts: &Facts<'_, '_>) -> Passed {
    let route = found.route;
    if route.access.auth.is_empty() {
        return Passed::default();
    }
    let view = Rc::clone(&context.view);
    let asked_for = route.access.auth.iter().map(|index| usize::from(*index));
    let ways = asked_for.map(|index| (&view.snapshot.auth[index], &*view.caches[index]));
    let conn = Rc::clone(&context.conn);
    let asked = Asked {
        headers: facts.headers,
        query: facts.query,
        certificate: conn.certificate.as_deref(),
        now: context.services.unix(context.facts.started),
    };
    let verifications = &context.services.shared.auth_verifications;
    let may_try = || {
        let may = may_try(context, found, facts);
        verifications.add(u64::from(may));
        may
    };
    let identity = match recognised(ways.clone(), &asked, may_try).await {
        Ok(recognised) => recognised,
        Err(Unrecognised::Busy) => return Passed::refused(Refusal::AuthBusy),
        Err(Unrecognised::Refused(cause)) => {
            let challenges = ways.filter_map(|(method, _)| method.challenge.clone()).collect();
            return Passed::refused(Refusal::Unauthenticated(challenges, cause));
        }
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

/// The target and fields as the upstream may see them: without what any of the route's ways is not to pass on, be it
/// the one that recognised the caller or not.
pub fn hide_credentials(view: &View, route: &Route, uri: &Uri, headers: &mut HeaderMap) -> Uri {
    let mut uri = uri.clone();
    let ways = route.access.auth.iter().map(|index| &view.snapshot.auth[usize::from(*index)].config);
    for config in ways.filter(|config| !config.pass) {
        for place in config.places() {
            match place {
                Place::Header(name) => drop(headers.remove(name)),
                // What another scheme carries is not this way's, and may be the upstream's own.
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

/// The first way that recognises the caller. One that asks for nothing is no way around a credential that is wrong.
async fn recognised<'m>(
    ways: impl Iterator<Item = (&'m Arc<Method>, &'m Cache)>,
    asked: &Asked<'_>,
    may_try: impl Fn() -> bool,
) -> Result<Arc<Identity>, Unrecognised> {
    // The upstream may believe the one that was not judged here.
    if place::is_ambiguous(asked.headers) {
        return Err(Unrecognised::Refused(Cause::CredentialTwice));
    }
    let (mut refused, mut busy): (Option<Cause>, bool) = (None, false);
    for (method, cache) in ways {
        if (busy || refused.is_some()) && matches!(method.config.kind, Kind::Anonymous(_)) {
            continue;
        }
        let mut checked = method.check(asked, cache);
        if matches!(checked, Checked::Wait(_)) && !may_try() {
            // Not refused: nobody has looked at it, and the limits that decide next may know more than was foreseen.
            checked = Checked::Busy;
        }
        if let Checked::Wait(Wait::Token) = checked {
            checked = method.verify(asked, cache);
        }
        if let Checked::Wait(wait) = checked {
            // Boxed: rare, and larger than all the rest.
            checked = Box::pin(method.settle(wait, asked, cache)).await;
        }
        match checked {
            Checked::Known(identity) => return Ok(identity),
            Checked::Absent => {}
            // One that waits again has been asked for already: nobody has looked at it.
            Checked::Busy | Checked::Wait(_) => busy = true,
            Checked::Refused(cause) => refused = Some(telling(refused, cause)),
        }
    }
    Err(if busy {
        Unrecognised::Busy
    } else {
        Unrecognised::Refused(refused.unwrap_or(Cause::CredentialMissing))
    })
}

/// The cause that tells more; of two that tell as much, the first.
pub fn telling(before: Option<Cause>, cause: Cause) -> Cause {
    before.filter(|before| before.depth() >= cause.depth()).unwrap_or(cause)
}

/// Whether the limits that count anybody alike have room for one more. Where not, the answer is 429 whoever it is, and
/// no password is worked out and no signature checked: who guesses too often keeps nobody else waiting. Nothing is
/// spent by the question. A limit that might let the caller pass once it is known is not asked.
fn may_try(context: &RequestContext, found: &Found<'_, '_>, facts: &Facts<'_, '_>) -> bool {
    let policies = context.view.snapshot.table.chosen(found.route, true);
    let (limiter, now_ns) = (&context.services.shared.limiter, clock::ns_of(context.facts.started));
    limiter.has_room(policies, &HttpSubject::new(found, facts), now_ns)
}

/// Nobody was recognised.
enum Unrecognised {
    /// There is no credential, or a wrong one.
    Refused(Cause),
    /// A credential was not looked at.
    Busy,
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
