//! Client certificates: the name that a certificate authority has vouched for.
//!
//! The handshake has verified the certificate by the listener's authorities. Because a resumed session keeps its
//! certificate without another verification, its expiry is checked at every request.

use std::sync::Arc;

pub use super::certificate::{CertificateName, ClientCertificate};
use super::request::{AuthRequest, MethodAnswer};
use base::cause::Cause;
use base::identity::Identity;

/// Which names of a certificate identify a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The client's name. A certificate without it identifies nobody.
    pub consumer: CertificateName,
    pub tenant: Option<CertificateName>,
    /// The tier of all clients with a certificate.
    pub tier: Option<String>,
}

/// Looks at the certificate of the request's connection, for the method of this number.
pub(super) fn check(config: &Config, method: u64, asked: &AuthRequest<'_>) -> MethodAnswer {
    let Some(certificate) = asked.certificate else { return MethodAnswer::Absent };
    if asked.unix_seconds() > certificate.not_after {
        return MethodAnswer::Refused(Cause::CertificateExpired);
    }
    if let Some(identity) = certificate.identity(method) {
        return MethodAnswer::Known(identity);
    }
    let Some(consumer) = certificate.name(config.consumer) else {
        return MethodAnswer::Refused(Cause::CertificateConsumer);
    };
    let identity = Arc::new(Identity {
        consumer: Some(consumer.into()),
        tenant: config.tenant.and_then(|tenant| certificate.name(tenant)).map(Into::into),
        tier: config.tier.as_deref().map(Into::into),
        ..Identity::default()
    });
    certificate.keep(method, &identity);
    MethodAnswer::Known(identity)
}
