//! Client certificates: the name that a certificate authority has vouched for.
//!
//! Whether a certificate is good was decided in the handshake, by the listener's authorities. A session that is
//! resumed brings its certificate with it and sees no handshake, so that its end is looked at with every request.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::{Asked, Checked};
use crate::cause::Cause;
use crate::identity::Identity;

/// What certificates are told by the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What of a certificate is the caller's name; one without it is nobody's.
    pub consumer: Name,
    /// What of it is the organisation.
    pub tenant: Option<Name>,
    /// The plan of all of them.
    pub tier: Option<String>,
}

/// A name in a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// The first mail address of its alternative names (RFC 5280 section 4.2.1.6).
    SanEmail,
    /// The first DNS name.
    SanDns,
    /// The first URI.
    SanUri,
    /// Its subject's common name.
    SubjectCn,
    /// Its subject's organisation.
    SubjectO,
    /// Its subject's organisational unit.
    SubjectOu,
}

impl Name {
    /// Every name, as the configuration writes it.
    pub const ALL: [(&'static str, Name); 6] = [
        ("san:email", Name::SanEmail),
        ("san:dns", Name::SanDns),
        ("san:uri", Name::SanUri),
        ("subject:cn", Name::SubjectCn),
        ("subject:o", Name::SubjectO),
        ("subject:ou", Name::SubjectOu),
    ];
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Name::ALL.iter().find(|(_, name)| name == self).map_or("", |(word, _)| word);
        formatter.write_str(word)
    }
}

/// The certificate of one connection.
#[derive(Debug)]
pub struct Certificate {
    names: Vec<(Name, Box<str>)>,
    /// Unix seconds.
    not_after: i64,
    /// Who it stands for, by way to authenticate: worked out once a connection.
    identities: RefCell<Vec<(u64, Arc<Identity>)>>,
}

impl Certificate {
    /// Reads what a handshake has verified; `None` where it has a form nobody can read names from.
    pub fn read(der: &[u8]) -> Option<Certificate> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut names: Vec<(Name, Box<str>)> = Vec::new();
        for name in certificate.subject_alternative_name().ok()?.iter().flat_map(|it| &it.value.general_names)
        {
            match name {
                GeneralName::RFC822Name(text) => names.push((Name::SanEmail, (*text).into())),
                GeneralName::DNSName(text) => names.push((Name::SanDns, (*text).into())),
                GeneralName::URI(text) => names.push((Name::SanUri, (*text).into())),
                _ => {}
            }
        }
        let subject = certificate.subject();
        let texts = |name| {
            move |text: &x509_parser::x509::AttributeTypeAndValue<'_>| {
                text.as_str().ok().map(|text| (name, Box::from(text)))
            }
        };
        names.extend(subject.iter_common_name().filter_map(texts(Name::SubjectCn)));
        names.extend(subject.iter_organization().filter_map(texts(Name::SubjectO)));
        names.extend(subject.iter_organizational_unit().filter_map(texts(Name::SubjectOu)));
        let not_after = certificate.validity().not_after.timestamp();
        Some(Certificate { names, not_after, identities: RefCell::default() })
    }

    fn name(&self, wanted: Name) -> Option<&str> {
        let named = self.names.iter().find(|(name, text)| *name == wanted && !text.is_empty());
        named.map(|(_, text)| &**text)
    }
}

/// Looks at the certificate of the request's connection, for the way of this number.
pub(super) fn check(config: &Config, method: u64, asked: &Asked<'_>) -> Checked {
    let Some(certificate) = asked.certificate else { return Checked::Absent };
    if asked.unix_seconds() > certificate.not_after {
        return Checked::Refused(Cause::CertificateExpired);
    }
    let mut identities = certificate.identities.borrow_mut();
    if let Some((_, identity)) = identities.iter().find(|(known, _)| *known == method) {
        return Checked::Known(Arc::clone(identity));
    }
    let Some(consumer) = certificate.name(config.consumer) else {
        return Checked::Refused(Cause::CertificateConsumer);
    };
    let identity = Arc::new(Identity {
        consumer: Some(consumer.into()),
        tenant: config.tenant.and_then(|tenant| certificate.name(tenant)).map(Into::into),
        tier: config.tier.as_deref().map(Into::into),
        ..Identity::default()
    });
    // Reloads make new ways; what a connection remembers of old ones is bounded.
    if identities.len() >= IDENTITIES_MAX {
        identities.clear();
    }
    identities.push((method, Arc::clone(&identity)));
    Checked::Known(identity)
}

/// Ways to authenticate that one connection remembers.
const IDENTITIES_MAX: usize = 8;
