//! [`IssuedKeys`]: API keys that change while traffic runs. Requests read them without a lock. Who fills the table is none of its
//! business.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use smallvec::SmallVec;

use base::cause::Cause;
use base::identity::Identity;
use base::sharded_map::ShardedMap;

/// The SHA-256 of a key.
pub type Digest = [u8; 32];

/// Keys by the first bytes of their digests. The whole digest is compared in constant time.
#[derive(Default)]
pub struct IssuedKeys {
    keys: ShardedMap<u64, SamePrefixKeys>,
    /// Whether it has ever been filled. Until then nobody knows which keys there are.
    is_filled: AtomicBool,
}

/// Keys whose digests begin alike.
type SamePrefixKeys = SmallVec<[Arc<IssuedKey>; 1]>;

#[derive(Debug)]
pub struct IssuedKey {
    pub digest: Digest,
    pub identity: Arc<Identity>,
    /// When it ends, microseconds since the Unix epoch. `None`: not on its own.
    pub expires_us: Option<i64>,
    pub is_disabled: bool,
}

impl fmt::Debug for IssuedKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Issued").field("is_filled", &self.is_filled).finish_non_exhaustive()
    }
}

impl IssuedKeys {
    /// Whether it has ever been filled.
    pub fn is_filled(&self) -> bool {
        self.is_filled.load(Ordering::Acquire)
    }

    /// Puts these in the place of all there are. A key that is there before and after is there all the time.
    pub fn replace(&self, keys: impl IntoIterator<Item = IssuedKey>) {
        let mut by_prefix = HashMap::<u64, SamePrefixKeys>::new();
        for key in keys {
            put(by_prefix.entry(prefix(&key.digest)).or_default(), key);
        }
        self.keys.replace(by_prefix);
        self.is_filled.store(true, Ordering::Release);
    }

    /// Adds a key, or replaces the one with its digest.
    pub fn put(&self, key: IssuedKey) {
        self.keys.change(prefix(&key.digest), |alike| {
            let mut alike = alike.unwrap_or_default();
            put(&mut alike, key);
            Some(alike)
        });
    }

    /// Removes a key. Nothing happens if there is none.
    pub fn remove(&self, digest: &Digest) {
        self.keys.change(prefix(digest), |alike| {
            let mut alike = alike?;
            alike.retain(|key| key.digest != *digest);
            (!alike.is_empty()).then_some(alike)
        });
    }

    /// Whom a key identifies at this time, or why it is refused; `None` if there is no such key.
    pub fn find(&self, digest: &[u8], now_us: i64) -> Option<Result<Arc<Identity>, Cause>> {
        let digest: &Digest = digest.try_into().ok()?;
        let prefix = prefix(digest);
        let held = self.keys.of(&prefix)?;
        let candidates = held.get()?;
        let is_same = |key: &&Arc<IssuedKey>| verify_slices_are_equal(&key.digest, digest).is_ok();
        // Every candidate is compared, whichever it is.
        let key = candidates.iter().fold(None, |found, key| if is_same(&key) { Some(key) } else { found })?;
        Some(match key.expires_us {
            _ if key.is_disabled => Err(Cause::ApiKeyDisabled),
            Some(expires_us) if expires_us <= now_us => Err(Cause::ApiKeyExpired),
            _ => Ok(Arc::clone(&key.identity)),
        })
    }
}

fn put(alike: &mut SamePrefixKeys, key: IssuedKey) {
    alike.retain(|old| old.digest != key.digest);
    alike.push(Arc::new(key));
}

/// The first eight bytes of a digest, which maps compare in variable time. That helps no attacker, because nobody can
/// choose a digest's bytes without breaking SHA-256.
pub(super) fn prefix(digest: &[u8]) -> u64 {
    digest.first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digest whose first bytes are those of others, too.
    fn digest(number: u8) -> Digest {
        let mut digest = [7; 32];
        digest[16] = number;
        digest
    }

    fn key(number: u8) -> IssuedKey {
        let consumer = Some(format!("c{number}").into());
        let identity = Arc::new(Identity { consumer, ..Identity::default() });
        IssuedKey { digest: digest(number), identity, expires_us: None, is_disabled: false }
    }

    fn found(issued: &IssuedKeys, number: u8) -> Option<Result<String, Cause>> {
        let found = issued.find(&digest(number), 1_000)?;
        Some(found.map(|identity| identity.consumer.as_deref().unwrap_or_default().to_owned()))
    }

    #[test]
    fn a_key_is_found_by_its_whole_digest_and_by_nothing_less() {
        let issued = IssuedKeys::default();
        assert!(!issued.is_filled());
        issued.replace([key(1), key(2)]);
        assert!(issued.is_filled());
        for number in [1, 2] {
            assert_eq!(found(&issued, number), Some(Ok(format!("c{number}"))));
        }
        assert_eq!(found(&issued, 3), None);
        assert!(issued.find(&digest(1)[..31], 0).is_none());
        issued.put(key(3));
        issued.remove(&digest(1));
        issued.remove(&digest(9));
        assert_eq!([1, 2, 3].map(|number| found(&issued, number).is_some()), [false, true, true]);
        issued.replace([key(4)]);
        assert_eq!([2, 3, 4].map(|number| found(&issued, number).is_some()), [false, false, true]);
    }

    #[test]
    fn one_that_is_disabled_or_over_is_refused_with_the_cause() {
        let issued = IssuedKeys::default();
        issued.replace([
            IssuedKey { expires_us: Some(1_001), ..key(1) },
            IssuedKey { expires_us: Some(1_000), ..key(2) },
            IssuedKey { is_disabled: true, ..key(3) },
            IssuedKey { is_disabled: true, expires_us: Some(1), ..key(4) },
        ]);
        assert_eq!(found(&issued, 1), Some(Ok("c1".to_owned())));
        assert_eq!(found(&issued, 2), Some(Err(Cause::ApiKeyExpired)));
        for number in [3, 4] {
            assert_eq!(found(&issued, number), Some(Err(Cause::ApiKeyDisabled)));
        }
        issued.put(key(3));
        assert_eq!(found(&issued, 3), Some(Ok("c3".to_owned())), "enabled again");
    }
}
