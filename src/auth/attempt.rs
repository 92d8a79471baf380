//! A name and a password as a request sends them (RFC 7617 section 2), not verified yet.

use std::fmt;
use std::sync::LazyLock;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};

use super::cache::{Digest, digest_of};

/// A name and a password that have not been verified.
pub struct PasswordAttempt {
    pub(super) digest: Digest,
    pub(super) name: String,
    pub(super) password: Vec<u8>,
}

impl fmt::Debug for PasswordAttempt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Attempt")
    }
}

impl PasswordAttempt {
    /// `name:password`; the name ends at the first colon.
    pub(super) fn read(credential: Vec<u8>) -> Option<PasswordAttempt> {
        let colon = credential.iter().position(|byte| *byte == b':')?;
        let name = String::from_utf8(credential[..colon].to_vec()).ok()?;
        let password = credential[colon + 1..].to_vec();
        // Salted, because an unsalted digest of a password could be looked up in a table of common passwords.
        let digest = digest_of(&[&SALT[..], &credential].concat());
        Some(PasswordAttempt { digest, name, password })
    }
}

static SALT: LazyLock<[u8; 16]> = LazyLock::new(|| {
    let mut salt = [0; 16];
    // If there are no random numbers, the salt is zero, because digests stay correct, and they are kept in memory only.
    let _ = SystemRandom::new().fill(&mut salt);
    salt
});
