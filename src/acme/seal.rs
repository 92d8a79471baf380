//! Seals what nodes of a fleet leave for each other: whoever can read Redis learns no key of a certificate from it, and
//! whoever can write there can make no node answer an authority.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;

use base::secret::Secret;

/// Seals and opens under one secret (AES-256-GCM, a random nonce in front).
pub(super) struct Seal(RandomizedNonceKey);

impl fmt::Debug for Seal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Seal")
    }
}

impl Seal {
    /// A key is made of the secret, so that it may be of any length and be used for something else, too. `None` if the
    /// cryptographic library has none, which it never says.
    pub(super) fn new(secret: &Secret) -> Option<Seal> {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.0.as_bytes());
        let key = hmac::sign(&secret, PURPOSE);
        RandomizedNonceKey::new(&AES_256_GCM, key.as_ref()).ok().map(Seal)
    }

    /// Seals it for this name: under another one it does not open.
    pub(super) fn close(&self, name: &str, plain: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = plain.to_vec();
        let nonce = self.0.seal_in_place_append_tag(Aad::from(name.as_bytes()), &mut sealed).ok()?;
        Some([nonce.as_ref().as_slice(), &sealed].concat())
    }

    /// What was sealed for this name; `None` if it was not, by this secret.
    pub(super) fn open(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut plain = sealed.to_vec();
        let length = self.0.open_in_place(nonce, Aad::from(name.as_bytes()), &mut plain).ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

const PURPOSE: &[u8] = b"sluicegate: certificates that a fleet shares";

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(secret: &str) -> Seal {
        Seal::new(&Secret(secret.to_owned())).expect("the library has AES")
    }

    #[test]
    fn what_is_sealed_opens_under_its_secret_and_name_only() {
        let sealed = seal("one").close("a", b"the key").expect("it fits");
        assert_eq!(seal("one").open("a", &sealed).as_deref(), Some(&b"the key"[..]));
        assert!(!sealed.windows(3).any(|part| part == b"key"));
        assert_ne!(seal("one").close("a", b"the key").expect("it fits"), sealed, "a nonce is used once");
        assert_eq!(seal("two").open("a", &sealed), None);
        assert_eq!(seal("one").open("b", &sealed), None);
        for cut in 0..sealed.len() {
            assert_eq!(seal("one").open("a", &sealed[..cut]), None);
            let mut turned = sealed.clone();
            turned[cut] ^= 1;
            assert_eq!(seal("one").open("a", &turned), None);
        }
    }
}
