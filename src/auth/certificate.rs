//! The names in a client's certificate, read once for each connection. The handshake has verified the certificate before.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use base::identity::Identity;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// The first mail address of its alternative names (RFC 5280 section 4.2.1.6).
    SanEmail,
    /// The first DNS name.
    SanDns,
    /// The first URI.
    SanUri,
    SubjectCn,
    SubjectO,
    /// Its subject's organisational unit.
    SubjectOu,
}

impl CertificateName {
    /// Every name, as the configuration writes it.
    pub const ALL: [(&'static str, CertificateName); 6] = [
        ("san:email", CertificateName::SanEmail),
        ("san:dns", CertificateName::SanDns),
        ("san:uri", CertificateName::SanUri),
        ("subject:cn", CertificateName::SubjectCn),
        ("subject:o", CertificateName::SubjectO),
        ("subject:ou", CertificateName::SubjectOu),
    ];

    /// A place and the name there, written as in `san:uri=spiffe://mesh/edge`.
    pub fn written(text: &str) -> Option<(CertificateName, &str)> {
        CertificateName::ALL.iter().find_map(|(word, place)| {
            let rest = text.strip_prefix(word)?.strip_prefix('=')?;
            (!rest.is_empty()).then_some((*place, rest))
        })
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = CertificateName::ALL.iter().find(|(_, name)| name == self).map_or("", |(word, _)| word);
        formatter.write_str(word)
    }
}

#[derive(Debug)]
pub struct ClientCertificate {
    names: Vec<(CertificateName, Box<str>)>,
    /// Unix seconds.
    pub not_after: i64,
    /// The identity that each method derived from it, so that it is derived once for each connection.
    identities: RefCell<Vec<(u64, Arc<Identity>)>>,
}

impl ClientCertificate {
    /// Reads what a handshake has verified; `None` where it has a form nobody can read names from.
    pub fn read(der: &[u8]) -> Option<ClientCertificate> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut names: Vec<(CertificateName, Box<str>)> = Vec::new();
        for name in certificate.subject_alternative_name().ok()?.iter().flat_map(|it| &it.value.general_names)
        {
            match name {
                GeneralName::RFC822Name(text) => names.push((CertificateName::SanEmail, (*text).into())),
                GeneralName::DNSName(text) => names.push((CertificateName::SanDns, (*text).into())),
                GeneralName::URI(text) => names.push((CertificateName::SanUri, (*text).into())),
                _ => {}
            }
        }
        let subject = certificate.subject();
        let texts = |name| {
            move |text: &x509_parser::x509::AttributeTypeAndValue<'_>| {
                text.as_str().ok().map(|text| (name, Box::from(text)))
            }
        };
        names.extend(subject.iter_common_name().filter_map(texts(CertificateName::SubjectCn)));
        names.extend(subject.iter_organization().filter_map(texts(CertificateName::SubjectO)));
        names.extend(subject.iter_organizational_unit().filter_map(texts(CertificateName::SubjectOu)));
        let not_after = certificate.validity().not_after.timestamp();
        Some(ClientCertificate { names, not_after, identities: RefCell::default() })
    }

    /// Whether one of the names in this place is this one.
    pub fn has(&self, place: CertificateName, text: &str) -> bool {
        self.names.iter().any(|(name, found)| *name == place && **found == *text)
    }

    pub(super) fn name(&self, wanted: CertificateName) -> Option<&str> {
        let named = self.names.iter().find(|(name, text)| *name == wanted && !text.is_empty());
        named.map(|(_, text)| &**text)
    }

    /// Whom the method of this number has found in it before.
    pub(super) fn identity(&self, method: u64) -> Option<Arc<Identity>> {
        let identities = self.identities.borrow();
        identities.iter().find(|(known, _)| *known == method).map(|(_, identity)| Arc::clone(identity))
    }

    /// Remembers whom the method of this number has found in it.
    pub(super) fn keep(&self, method: u64, identity: &Arc<Identity>) {
        let mut identities = self.identities.borrow_mut();
        // Because reloads make new methods, a long connection could collect identities of many.
        if identities.len() >= IDENTITIES_MAX {
            identities.clear();
        }
        identities.push((method, Arc::clone(identity)));
    }
}

/// Methods whose identities one connection remembers.
const IDENTITIES_MAX: usize = 8;
