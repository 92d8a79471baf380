//! Who sent an explained request, by the same loop over authentication methods as in the proxy.

use std::sync::Arc;

use http::HeaderMap;

use auth::{self, MethodKind, cache::Cache};
use base::cause::Cause;
use base::clock;
use base::identity::{Identity, NOBODY};
use base::ids::IdVec;
use limiter::Assignments;
use policy::{AuthMethodId, RouteAccess};

/// Who sent the request, as far as it can be found without hashing a password or fetching keys.
pub(super) enum AuthReport {
    /// The route does not authenticate.
    Unasked,
    /// The identity, and the method that recognised it.
    Known {
        identity: Arc<Identity>,
        method: String,
        /// The method before it that would recognise a certificate.
        unless: Option<String>,
    },
    /// Why each method refused the credential it found.
    Unrecognised(Vec<(String, Cause)>),
    /// This method found a credential that only a real request can verify: a password, or a token whose keys have not
    /// been fetched.
    Unverified(String),
    /// This method asks for a certificate, which only a real connection has.
    Uncertified(String),
}

pub(super) fn authenticate(
    methods: &IdVec<AuthMethodId, Arc<auth::Method>>,
    access: &RouteAccess,
    headers: &HeaderMap,
    query: Option<&str>,
    asks_certificate: bool,
) -> AuthReport {
    if access.auth.is_empty() {
        return AuthReport::Unasked;
    }
    let asked = auth::AuthRequest { headers, query, certificate: None, now: clock::unix() };
    let own = access.auth.iter().filter_map(|id| methods.get(*id));
    // Empty caches, because those of the workers are theirs alone, and an explanation must not fill them.
    let uncached: Vec<_> = own.map(|method| (&**method, Cache::new(method.id))).collect();
    // A certificate comes only with a real connection, and its method may decide before others.
    let reads_certificate = |(method, _): &&(&auth::Method, Cache)| {
        asks_certificate && matches!(method.config.kind, MethodKind::Mtls(_))
    };
    let mtls = uncached.iter().find(reads_certificate).map(|(method, _)| method.config.name.as_str());
    let names = || uncached.iter().map(|(method, _)| method.config.name.as_str());
    let outcome = auth::authenticate_at_once(uncached.iter().map(|(method, cache)| (*method, cache)), &asked);
    match (outcome.unverified, outcome.known, mtls) {
        // Before what follows, because methods are asked in order: an unverified credential would decide first.
        (Some((method, _)), ..) => AuthReport::Unverified(method.config.name.clone()),
        (None, Some((identity, method)), mtls) => {
            let first = names().find(|name| *name == method.config.name || Some(*name) == mtls);
            let unless = mtls.filter(|mtls| first == Some(mtls)).map(str::to_owned);
            AuthReport::Known { identity, method: method.config.name.clone(), unless }
        }
        (None, None, Some(mtls)) => AuthReport::Uncertified(mtls.to_owned()),
        (None, None, None) => {
            let causes = outcome.refused.iter().map(|(name, cause)| ((*name).to_owned(), *cause));
            AuthReport::Unrecognised(causes.collect())
        }
    }
}

impl AuthReport {
    /// The same with the tier that the consumer was assigned.
    pub(super) fn assigned(self, assignments: &Assignments) -> AuthReport {
        match self {
            AuthReport::Known { identity, method, unless } => {
                AuthReport::Known { identity: assignments.apply(identity), method, unless }
            }
            other => other,
        }
    }

    pub(super) fn identity(&self) -> &Identity {
        if let AuthReport::Known { identity, .. } = self { identity } else { &NOBODY }
    }

    pub(super) fn sentence(&self) -> Option<String> {
        let text = |text: &Option<Box<str>>| text.as_deref().unwrap_or("none").escape_debug().to_string();
        match self {
            AuthReport::Unasked => None,
            AuthReport::Known { identity, method, unless } => Some(format!(
                "consumer {}, tenant {}, tier {}, authenticated by [auth.{method}]{}",
                text(&identity.consumer),
                text(&identity.tenant),
                text(&identity.tier),
                unless.as_ref().map_or(String::new(), |mtls| format!(
                    ", unless [auth.{mtls}] accepts a certificate first, which only a real request shows"
                )),
            )),
            AuthReport::Unrecognised(causes) => {
                let named = |(method, cause): &(String, Cause)| format!("{method}: {}", cause.sentence());
                let mut why: Vec<String> = causes.iter().map(named).collect();
                if why.is_empty() {
                    why.push(Cause::CredentialMissing.sentence().to_owned());
                }
                let why = why.join("; ");
                Some(format!("not authenticated ({why}); only limits that need no identity count"))
            }
            AuthReport::Unverified(method) => {
                Some(format!("unknown: {method} verifies this credential only in a real request"))
            }
            AuthReport::Uncertified(method) => Some(format!(
                "unknown: {method} asks for a client certificate, which only a real request shows; without one it is \
                 refused with 401"
            )),
        }
    }

    /// Why the request is refused, whatever its limits say.
    pub(super) fn refused(&self, access: &RouteAccess) -> Option<String> {
        match self {
            AuthReport::Unrecognised(_) => Some("401: the route asks for valid credentials".to_owned()),
            AuthReport::Known { identity, .. } => {
                let cause = access.require.as_ref()?.check(identity).err()?;
                Some(format!("403: the consumer may not use the route: {}", cause.sentence()))
            }
            AuthReport::Unasked | AuthReport::Unverified(_) | AuthReport::Uncertified(_) => None,
        }
    }
}
