//! What is shown to an authority that checks whether this gateway controls a name: a token over plain HTTP, or a
//! certificate made for the question. Workers read it; a keeper writes it while an order runs.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use instant_acme::KeyAuthorization;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};

use super::config::PATH;

/// Challenges that wait to be checked, of all orders. Without one, looking costs an atomic load.
#[derive(Debug, Default)]
pub struct Challenges {
    shown: ArcSwap<Vec<OpenChallenge>>,
    /// Writers take turns, because each replaces the whole list.
    writing: Mutex<()>,
}

/// What proves control of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Proof {
    /// A token over plain HTTP, and what it is answered with.
    Http { name: String, token: String, text: String },
    /// A digest in a certificate for the name.
    Tls { name: String, digest: Vec<u8> },
}

impl Proof {
    pub(super) fn http(name: &str, token: &str, authorization: &KeyAuthorization) -> Proof {
        let text = authorization.as_str().to_owned();
        Proof::Http { name: name.to_owned(), token: token.to_owned(), text }
    }

    pub(super) fn tls(name: &str, authorization: &KeyAuthorization) -> Proof {
        Proof::Tls { name: name.to_owned(), digest: authorization.digest().as_ref().to_vec() }
    }
}

#[derive(Clone, Debug)]
struct OpenChallenge {
    name: String,
    answer: ChallengeAnswer,
}

#[derive(Clone, Debug)]
enum ChallengeAnswer {
    Http { token: String, text: String },
    Tls(Arc<CertifiedKey>),
}

impl Challenges {
    /// The text for a path below [`PATH`]; `None` if nobody here has asked for that token. The host that the request
    /// names does not matter, because the token is what proves control.
    pub fn text(&self, path: &str) -> Option<String> {
        let wanted = path.strip_prefix(PATH)?;
        self.shown.load().iter().find_map(|shown| match &shown.answer {
            ChallengeAnswer::Http { token, text } if token == wanted => Some(text.clone()),
            ChallengeAnswer::Http { .. } | ChallengeAnswer::Tls(_) => None,
        })
    }

    /// The certificate for a handshake that offers [`ALPN`](super::ALPN) and nothing else (RFC 8737 section 3).
    pub fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.shown.load().iter().find_map(|shown| match &shown.answer {
            ChallengeAnswer::Tls(key) if shown.name.eq_ignore_ascii_case(name) => Some(Arc::clone(key)),
            ChallengeAnswer::Tls(_) | ChallengeAnswer::Http { .. } => None,
        })
    }

    /// Shows what is added to it until it is dropped.
    pub(super) fn show(self: &Arc<Self>) -> ChallengeGuard {
        ChallengeGuard { challenges: Arc::clone(self), names: Vec::new() }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<OpenChallenge>)) {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shown = self.shown.load().as_ref().clone();
        change(&mut shown);
        self.shown.store(Arc::new(shown));
    }
}

/// The challenges of one order. Dropped with it, however it ends.
pub(super) struct ChallengeGuard {
    challenges: Arc<Challenges>,
    names: Vec<String>,
}

impl ChallengeGuard {
    /// Shows one more, in place of any other of the same name.
    pub(super) fn add(&mut self, proof: &Proof) -> Result<(), Error> {
        let (name, answer) = match proof {
            Proof::Http { name, token, text } => {
                (name.clone(), ChallengeAnswer::Http { token: token.clone(), text: text.clone() })
            }
            Proof::Tls { name, digest } => {
                (name.clone(), ChallengeAnswer::Tls(Arc::new(challenge_certificate(name, digest)?)))
            }
        };
        self.names.push(name.clone());
        self.challenges.change(|shown| {
            shown.retain(|other| other.name != name);
            shown.push(OpenChallenge { name, answer });
        });
        Ok(())
    }
}

impl Drop for ChallengeGuard {
    fn drop(&mut self) {
        let names = std::mem::take(&mut self.names);
        self.challenges.change(|shown| shown.retain(|shown| !names.contains(&shown.name)));
    }
}

/// Why no certificate can be made for a challenge.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name cannot stand in a certificate.
    #[error(transparent)]
    Certificate(#[from] rcgen::Error),
    /// The key that was just made cannot be used.
    #[error(transparent)]
    Key(#[from] rustls::Error),
}

/// The self-signed certificate of RFC 8737 section 3: the name, and the digest in a critical extension.
fn challenge_certificate(name: &str, digest: &[u8]) -> Result<CertifiedKey, Error> {
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()])?;
    params.custom_extensions = vec![rcgen::CustomExtension::new_acme_identifier(digest)];
    let key = rcgen::KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok(CertifiedKey::new(vec![certificate.der().clone()], any_supported_type(&private)?))
}
