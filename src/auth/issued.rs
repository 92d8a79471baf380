//! [`Issued`]: API keys that change while traffic runs. Requests read them without a lock, and a change copies a thousandth of
//! them. Who fills the table is none of its business.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use smallvec::SmallVec;

use crate::cause::Cause;
use crate::identity::Identity;

/// The SHA-256 of a key.
pub type Digest = [u8; 32];

/// Keys by the first bytes of their digests, in shards of which a change copies one. The whole digest is compared in constant
/// time.
pub struct Issued {
    shards: Box<[ArcSwapOption<Shard>]>,
    /// Whether it has ever been filled. Until then nobody knows which keys there are.
    is_filled: AtomicBool,
    /// Held while something changes, so that no change is lost to another.
    changing: Mutex<()>,
}

type Shard = HashMap<u64, SmallVec<[Arc<IssuedKey>; 1]>>;

/// One key.
#[derive(Debug)]
pub struct IssuedKey {
    /// Its digest.
    pub digest: Digest,
    /// Whom it identifies.
    pub identity: Arc<Identity>,
    /// When it ends, microseconds since the Unix epoch. `None`: not on its own.
    pub expires_us: Option<i64>,
    /// Whether it is refused.
    pub is_disabled: bool,
}

impl Default for Issued {
    fn default() -> Issued {
        Issued {
            shards: (0..SHARDS).map(|_| ArcSwapOption::empty()).collect(),
            is_filled: AtomicBool::new(false),
            changing: Mutex::new(()),
        }
    }
}

impl fmt::Debug for Issued {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Issued").field("is_filled", &self.is_filled).finish_non_exhaustive()
    }
}

impl Issued {
    /// Whether it has ever been filled.
    pub fn is_filled(&self) -> bool {
        self.is_filled.load(Ordering::Acquire)
    }

    /// Puts these in the place of all there are. A key that is there before and after is there all the time.
    pub fn replace(&self, keys: impl IntoIterator<Item = IssuedKey>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shards: Vec<Shard> = (0..SHARDS).map(|_| Shard::new()).collect();
        for key in keys {
            put(&mut shards[place(&key.digest)], key);
        }
        for (shard, keys) in self.shards.iter().zip(shards) {
            shard.store((!keys.is_empty()).then(|| Arc::new(keys)));
        }
        self.is_filled.store(true, Ordering::Release);
    }

    /// Adds a key, or replaces the one with its digest.
    pub fn put(&self, key: IssuedKey) {
        let place = place(&key.digest);
        self.change(place, |shard| put(shard, key));
    }

    /// Removes a key. Nothing happens if there is none.
    pub fn remove(&self, digest: &Digest) {
        self.change(place(digest), |shard| remove(shard, digest));
    }

    /// Whom a key identifies at this time, or why it is refused; `None` if there is no such key.
    pub fn find(&self, digest: &[u8], now_us: i64) -> Option<Result<Arc<Identity>, Cause>> {
        let digest: &Digest = digest.try_into().ok()?;
        let shard = self.shards[place(digest)].load();
        let candidates = shard.as_ref()?.get(&prefix(digest))?;
        let is_same = |key: &&Arc<IssuedKey>| verify_slices_are_equal(&key.digest, digest).is_ok();
        // Every candidate is compared, whichever it is.
        let key = candidates.iter().fold(None, |found, key| if is_same(&key) { Some(key) } else { found })?;
        Some(match key.expires_us {
            _ if key.is_disabled => Err(Cause::ApiKeyDisabled),
            Some(expires_us) if expires_us <= now_us => Err(Cause::ApiKeyExpired),
            _ => Ok(Arc::clone(&key.identity)),
        })
    }

    fn change(&self, place: usize, change: impl FnOnce(&mut Shard)) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let shard = &self.shards[place];
        let mut keys = shard.load().as_deref().cloned().unwrap_or_default();
        change(&mut keys);
        shard.store((!keys.is_empty()).then(|| Arc::new(keys)));
    }
}

fn put(shard: &mut Shard, key: IssuedKey) {
    remove(shard, &key.digest);
    shard.entry(prefix(&key.digest)).or_default().push(Arc::new(key));
}

fn remove(shard: &mut Shard, digest: &Digest) {
    let prefix = prefix(digest);
    let Some(keys) = shard.get_mut(&prefix) else { return };
    keys.retain(|key| key.digest != *digest);
    if keys.is_empty() {
        shard.remove(&prefix);
    }
}

/// The first eight bytes of a digest, which maps compare in variable time. That helps no attacker, who cannot choose a
/// digest's bytes without breaking SHA-256.
pub(super) fn prefix(digest: &[u8]) -> u64 {
    digest.first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
}

/// The shard of a digest, by bytes that the map within does not hash.
fn place(digest: &Digest) -> usize {
    usize::from(u16::from_le_bytes([digest[30], digest[31]])) % SHARDS
}

/// Of a million keys one change copies a thousand.
const SHARDS: usize = 1024;

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

    fn found(issued: &Issued, number: u8) -> Option<Result<String, Cause>> {
        let found = issued.find(&digest(number), 1_000)?;
        Some(found.map(|identity| identity.consumer.as_deref().unwrap_or_default().to_owned()))
    }

    #[test]
    fn a_key_is_found_by_its_whole_digest_and_by_nothing_less() {
        let issued = Issued::default();
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
        let issued = Issued::default();
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
