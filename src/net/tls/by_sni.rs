//! Which certificate a client gets: by the name that it asks for (RFC 6066 section 3), and by the signatures that it can
//! check (RFC 8446 section 4.2.3), so that one name may have keys of two types.

use std::collections::HashMap;
use std::fmt;
use std::iter;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{SignatureAlgorithm, SignatureScheme};

use super::ServerCertificate;

/// The certificates of a listener by their names: the exact name goes before the wildcard over its first label (RFC 6125
/// section 6.4.3), and that before the first pair of the file.
pub(super) struct BySni {
    exact: HashMap<String, NamePairs>,
    wildcard: HashMap<String, NamePairs>,
    default: NamePairs,
}

/// The pairs for one name, the preferred one first.
#[derive(Default)]
struct NamePairs(Vec<Arc<CertifiedKey>>);

impl NamePairs {
    /// Adds a pair: those whose keys are RSA's come last, because their signatures cost a server twenty times as much. Of
    /// one type the first in the file goes first.
    fn add(&mut self, key: &Arc<CertifiedKey>) {
        let place = self.0.partition_point(|held| !is_rsa(held) || is_rsa(key));
        self.0.insert(place, Arc::clone(key));
    }

    fn usable(&self, schemes: &[SignatureScheme]) -> Option<&Arc<CertifiedKey>> {
        self.0.iter().find(|key| key.key.choose_scheme(schemes).is_some())
    }
}

fn is_rsa(key: &CertifiedKey) -> bool {
    key.key.algorithm() == SignatureAlgorithm::RSA
}

impl BySni {
    pub(super) fn new(certificates: &[ServerCertificate]) -> BySni {
        let mut named =
            BySni { exact: HashMap::new(), wildcard: HashMap::new(), default: NamePairs::default() };
        for certificate in certificates {
            for name in &certificate.names {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut named.wildcard, parent),
                    None => (&mut named.exact, name.as_str()),
                };
                map.entry(name.to_owned()).or_default().add(&certificate.key);
            }
        }
        // The first pair, and those that stand beside it with keys of another type.
        let first = certificates.first().map(|first| &first.names);
        for certificate in certificates.iter().filter(|certificate| Some(&certificate.names) == first) {
            named.default.add(&certificate.key);
        }
        named
    }

    /// The pairs that a client of this name may get, the best first.
    fn by_name(&self, name: Option<&str>) -> impl Iterator<Item = &NamePairs> {
        let name = name.map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        let exact = name.as_ref().and_then(|name| self.exact.get(name));
        let parent = name.as_ref().and_then(|name| name.split_once('.'));
        let wildcard = parent.and_then(|(_, parent)| self.wildcard.get(parent));
        exact.into_iter().chain(wildcard).chain(iter::once(&self.default))
    }

    /// The pair for a client that asks for this name and can check these signatures. Where it can check none of ours it
    /// gets the pair of its name, so that the handshake fails for what is wrong.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<&Arc<CertifiedKey>> {
        let usable = self.by_name(name).find_map(|keys| keys.usable(schemes));
        usable.or_else(|| self.by_name(name).find_map(|keys| keys.0.first()))
    }
}

impl fmt::Debug for BySni {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BySni({} names)", self.exact.len() + self.wildcard.len())
    }
}

impl ResolvesServerCert for BySni {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Schemes that no cipher suite of the client goes with have been taken out of these already.
        self.choose(hello.server_name(), hello.signature_schemes()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rustls::crypto::aws_lc_rs;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

    use super::*;

    /// A certificate for these names, its key by this algorithm.
    fn certificate(algorithm: &'static rcgen::SignatureAlgorithm, names: &[&str]) -> ServerCertificate {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let key = rcgen::KeyPair::generate_for(algorithm).expect("a key");
        let signed = rcgen::CertificateParams::new(names.clone()).expect("names").self_signed(&key);
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let chain = vec![signed.expect("signed").der().clone()];
        let key = CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider()).expect("a pair");
        let path = PathBuf::new();
        ServerCertificate {
            key: Arc::new(key),
            names,
            not_before: 0,
            not_after: 0,
            has_alternatives: true,
            path,
            is_stand_in: false,
        }
    }

    const ANY: [SignatureScheme; 3] =
        [SignatureScheme::RSA_PSS_SHA256, SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519];

    #[test]
    fn the_exact_name_goes_before_the_wildcard_before_the_default() {
        let of = |names: &[&str]| certificate(&rcgen::PKCS_ECDSA_P256_SHA256, names);
        let first = of(&["first.example"]);
        let wild = of(&["*.example.com"]);
        let exact = of(&["api.example.com"]);
        let named = BySni::new(&[first.clone(), wild.clone(), exact.clone()]);
        for (name, expected) in [
            (Some("api.example.com"), &exact),
            (Some("API.Example.com."), &exact),
            (Some("www.example.com"), &wild),
            (Some("a.b.example.com"), &first),
            (Some("example.com"), &first),
            (Some("first.example"), &first),
            (None, &first),
        ] {
            let found = named.choose(name, &ANY).expect("there is a default");
            assert!(Arc::ptr_eq(found, &expected.key), "{name:?}");
        }
        assert!(BySni::new(&[]).choose(Some("a"), &ANY).is_none());
    }

    #[test]
    fn of_two_types_of_keys_a_client_gets_the_one_that_it_can_check() {
        let rsa = certificate(&rcgen::PKCS_RSA_SHA256, &["a.test", "*.a.test"]);
        let again = certificate(&rcgen::PKCS_RSA_SHA256, &["a.test", "*.a.test"]);
        let ecdsa = certificate(&rcgen::PKCS_ECDSA_P256_SHA256, &["a.test", "*.a.test"]);
        let old = [SignatureScheme::RSA_PKCS1_SHA256];
        let unknown = [SignatureScheme::ED448];
        for order in [[&rsa, &again, &ecdsa], [&ecdsa, &rsa, &again], [&rsa, &ecdsa, &again]] {
            let named = BySni::new(&order.map(Clone::clone));
            for name in [Some("a.test"), Some("www.a.test"), Some("elsewhere"), None] {
                for (schemes, expected) in [(&ANY[..], &ecdsa), (&old, &rsa), (&unknown, &ecdsa)] {
                    let found = named.choose(name, schemes).expect("there is a default");
                    assert!(Arc::ptr_eq(found, &expected.key), "{name:?} {schemes:?}");
                }
            }
        }
    }

    #[test]
    fn a_pair_that_a_client_cannot_check_gives_way_to_a_wildcard_that_it_can() {
        let exact = certificate(&rcgen::PKCS_ED25519, &["a.test.example"]);
        let wild = certificate(&rcgen::PKCS_ECDSA_P256_SHA256, &["*.test.example"]);
        let named = BySni::new(&[exact.clone(), wild.clone()]);
        let of = |schemes: &[SignatureScheme]| named.choose(Some("a.test.example"), schemes).cloned();
        assert!(of(&ANY).is_some_and(|found| Arc::ptr_eq(&found, &exact.key)));
        assert!(of(&ANY[..2]).is_some_and(|found| Arc::ptr_eq(&found, &wild.key)));
    }
}
