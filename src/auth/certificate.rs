//! The names in a client's certificate, read once for each connection. The handshake has verified the certificate before.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use base::identity::Identity;

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

    /// A place and the name there, written as in `san:uri=spiffe://mesh/edge`.
    pub fn written(text: &str) -> Option<(Name, &str)> {
        Name::ALL.iter().find_map(|(word, place)| {
            let rest = text.strip_prefix(word)?.strip_prefix('=')?;
            (!rest.is_empty()).then_some((*place, rest))
        })
    }
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
    pub not_after: i64,
    /// The identity that each method derived from it, so that it is derived once for each connection.
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

    /// Whether one of the names in this place is this one.
    pub fn has(&self, place: Name, text: &str) -> bool {
        self.names.iter().any(|(name, found)| *name == place && **found == *text)
    }

    pub(super) fn name(&self, wanted: Name) -> Option<&str> {
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
        // Reloads make new methods, so a long connection could collect identities of many.
        if identities.len() >= IDENTITIES_MAX {
            identities.clear();
        }
        identities.push((method, Arc::clone(identity)));
    }
}

/// Methods whose identities one connection remembers.
const IDENTITIES_MAX: usize = 8;
