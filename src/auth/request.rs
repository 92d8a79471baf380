//! The question that authentication methods are asked about a request, and their answers. All kinds of methods share these
//! types; there is no logic here.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::sync::watch;

use super::attempt::PasswordAttempt;
use super::certificate::ClientCertificate;
use base::cause::Cause;
use base::identity::Identity;

/// The parts of a request that methods look at.
#[derive(Clone, Copy, Debug)]
pub struct AuthRequest<'r> {
    pub headers: &'r HeaderMap,
    /// Its query, without `?`.
    pub query: Option<&'r str>,
    pub certificate: Option<&'r ClientCertificate>,
    /// When the request came, since the Unix epoch.
    pub now: Duration,
}

impl AuthRequest<'_> {
    pub(super) fn unix_us(&self) -> i64 {
        i64::try_from(self.now.as_micros()).unwrap_or(i64::MAX)
    }

    pub(super) fn unix_seconds(&self) -> i64 {
        i64::try_from(self.now.as_secs()).unwrap_or(i64::MAX)
    }
}

/// The answer of one method to one request.
#[derive(Debug)]
pub enum MethodAnswer {
    /// The request carries no credential of this kind.
    Absent,
    Known(Arc<Identity>),
    /// The credential is invalid. The cause is for operators only, because a client that learned it could guess better.
    Refused(Cause),
    /// The credential was not verified: too many are being verified, or what it is compared with is not known yet, which
    /// has a cause.
    Unverified(Option<Cause>),
    /// The answer takes longer than a lookup; [`super::Method::resolve`] waits for it.
    Wait(PendingCheck),
}

/// What has to happen before the credential is verified.
#[derive(Debug)]
pub enum PendingCheck {
    /// A token's signature has to be checked: [`super::Method::verify`] does so without waiting.
    Token,
    /// Keys are being fetched; the channel changes when the fetch is over.
    Keys(watch::Receiver<u64>),
    /// A password has to be hashed.
    Password(PasswordAttempt),
}
