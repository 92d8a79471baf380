//! The loop over the methods of a route: the first that recognises the client decides.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use super::cache::Cache;
use super::config::MethodKind;
use super::credential_source;
use super::method::Method;
use super::request::{AuthRequest, MethodAnswer, PendingCheck};
use base::cause::Cause;
use base::identity::Identity;

/// The answers of a route's methods to one request.
#[derive(Debug, Default)]
pub struct AuthOutcome<'m> {
    /// Who sent the request, and the method that recognised the client.
    pub known: Option<(Arc<Identity>, &'m Method)>,
    /// The first method whose credential was not verified, because `may_try` forbade it, too many are
    /// being verified, or for the cause that is named.
    pub unverified: Option<(&'m Method, Option<Cause>)>,
    /// The names of the methods whose credentials are invalid, or of the field that is ambiguous, and why.
    pub refused: SmallVec<[(&'m str, Cause); 2]>,
}

impl AuthOutcome<'_> {
    /// Why the client is not recognised: the cause of the method that got farthest; of two that got as far, the first.
    pub fn cause(&self) -> Cause {
        let causes = self.refused.iter().map(|(_, cause)| *cause);
        let most = causes.reduce(|most, cause| if cause.depth() > most.depth() { cause } else { most });
        most.unwrap_or(Cause::CredentialMissing)
    }
}

/// Asks the methods in turn. `may_try` says whether a credential may be verified that takes more than a lookup: a client
/// that guesses is held up by its limits there. An anonymous method does not recognise a client whose credential another
/// method has refused, because otherwise a wrong credential would be worth more than none.
pub async fn authenticate<'m>(
    methods: impl Iterator<Item = (&'m Method, &'m Cache)>,
    asked: &AuthRequest<'_>,
    may_try: impl Fn(&PendingCheck) -> bool,
) -> AuthOutcome<'m> {
    let mut outcome = AuthOutcome::default();
    // Refused, because the upstream may read the field that was not verified here.
    if credential_source::is_ambiguous(asked.headers) {
        outcome.refused.push(("authorization", Cause::CredentialTwice));
        return outcome;
    }
    for (method, cache) in methods {
        let is_in_doubt = outcome.unverified.is_some() || !outcome.refused.is_empty();
        if is_in_doubt && matches!(method.config.kind, MethodKind::Anonymous(_)) {
            continue;
        }
        match check(method, cache, asked, &may_try).await {
            MethodAnswer::Known(identity) => {
                outcome.known = Some((identity, method));
                return outcome;
            }
            MethodAnswer::Absent => {}
            MethodAnswer::Unverified(cause) => {
                outcome.unverified = outcome.unverified.or(Some((method, cause)))
            }
            MethodAnswer::Wait(_) => outcome.unverified = outcome.unverified.or(Some((method, None))),
            MethodAnswer::Refused(cause) => outcome.refused.push((&method.config.name, cause)),
        }
    }
    outcome
}

/// The same without waiting, for explanations: signatures are checked; passwords, and tokens whose keys have to be
/// fetched, stay unverified.
pub fn authenticate_at_once<'m>(
    methods: impl Iterator<Item = (&'m Method, &'m Cache)>,
    asked: &AuthRequest<'_>,
) -> AuthOutcome<'m> {
    let outcome = pin!(authenticate(methods, asked, |wait| matches!(wait, PendingCheck::Token)));
    match outcome.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        // Cannot be, because `may_try` forbids everything that waits.
        Poll::Pending => AuthOutcome::default(),
    }
}

/// The answer of one method. It is still [`MethodAnswer::Wait`] if it may not be waited for.
async fn check(
    method: &Method,
    cache: &Cache,
    asked: &AuthRequest<'_>,
    may_try: &impl Fn(&PendingCheck) -> bool,
) -> MethodAnswer {
    let mut checked = method.check(asked, cache);
    if let MethodAnswer::Wait(PendingCheck::Token) = &checked
        && may_try(&PendingCheck::Token)
    {
        checked = method.verify(asked, cache);
    }
    match checked {
        MethodAnswer::Wait(wait) if !matches!(wait, PendingCheck::Token) && may_try(&wait) => {
            // Boxed, because it is rare and larger than all the rest.
            Box::pin(method.resolve(wait, asked, cache)).await
        }
        checked => checked,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderMap;

    use super::super::config::{AnonymousIdentity, Config};
    use super::*;

    fn outcome_of(lines: &[&'static str]) -> (Option<String>, Cause) {
        let consumer = Some("guest".to_owned());
        let kind = MethodKind::Anonymous(AnonymousIdentity { consumer, ..AnonymousIdentity::default() });
        let method = Method::new(Config { name: "anybody".to_owned(), kind, pass: false }, &[]);
        let (method, cache) = (method.expect("it reads no file"), Cache::new(0));
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("authorization", http::HeaderValue::from_static(line));
        }
        let asked = AuthRequest { headers: &headers, query: None, certificate: None, now: Duration::ZERO };
        let outcome = authenticate_at_once([(&method, &cache)].into_iter(), &asked);
        let consumer = outcome.known.as_ref().and_then(|(identity, _)| identity.consumer.as_deref());
        (consumer.map(str::to_owned), outcome.cause())
    }

    #[test]
    fn a_credential_that_stands_twice_proves_nothing_to_any_method() {
        assert_eq!(outcome_of(&[]).0.as_deref(), Some("guest"));
        assert_eq!(outcome_of(&["Bearer x"]).0.as_deref(), Some("guest"), "no method looks at it");
        assert_eq!(outcome_of(&["Bearer x", "Bearer y"]), (None, Cause::CredentialTwice));
    }

    #[test]
    fn the_most_specific_cause_is_reported() {
        let refused = |causes: &[Cause]| {
            let refused = causes.iter().map(|cause| ("a", *cause)).collect();
            AuthOutcome { refused, ..AuthOutcome::default() }.cause()
        };
        assert_eq!(refused(&[]), Cause::CredentialMissing);
        let (deep, deeper) = (Cause::ApiKeyUnknown, Cause::TokenClaims);
        assert!(deeper.depth() > deep.depth());
        assert_eq!(refused(&[deep, deeper, deep]), deeper);
        let as_deep = Cause::UserUnknown;
        assert_eq!(as_deep.depth(), deeper.depth());
        assert_eq!(refused(&[deeper, as_deep]), deeper, "the first of two that tell as much");
    }
}
