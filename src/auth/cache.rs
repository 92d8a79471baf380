//! Credentials that one worker has verified lately: a map from the credential's digest to the identity.
//!
//! Only valid credentials enter, so that invalid ones cannot push them out. It is bounded: two maps take turns, and an
//! entry that was not used while one of them filled up is forgotten.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

use base::identity::Identity;

pub type Digest = [u8; SHA256_OUTPUT_LEN];

/// One worker's cache for one authentication method.
#[derive(Debug)]
pub struct Cache {
    /// The method; see [`Method::id`](super::Method::id).
    pub method: u64,
    recent: RefCell<RecentCredentials>,
}

#[derive(Debug, Default)]
struct RecentCredentials {
    young: HashMap<Digest, VerifiedCredential>,
    old: HashMap<Digest, VerifiedCredential>,
}

#[derive(Clone, Debug)]
struct VerifiedCredential {
    identity: Arc<Identity>,
    /// The generation of the keys or the file that verified it.
    generation: u64,
    /// Unix seconds: from then on it must be verified again.
    until: i64,
}

impl Cache {
    /// An empty cache for the method with this id.
    pub fn new(method: u64) -> Cache {
        Cache { method, recent: RefCell::default() }
    }

    /// The identity of a credential that this generation has verified and that has not expired.
    pub(super) fn find(&self, digest: &Digest, generation: u64, now: i64) -> Option<Arc<Identity>> {
        let mut recent = self.recent.borrow_mut();
        let is_good =
            |verified: &&VerifiedCredential| verified.generation == generation && now < verified.until;
        if let Some(verified) = recent.young.get(digest) {
            return Some(verified).filter(is_good).map(|verified| Arc::clone(&verified.identity));
        }
        let verified = recent.old.remove(digest).filter(|verified| is_good(&verified))?;
        // Kept among the young ones, so that what is asked for again outlives the old ones.
        let identity = Arc::clone(&verified.identity);
        recent.keep(*digest, verified);
        Some(identity)
    }

    pub(super) fn keep(&self, digest: Digest, identity: &Arc<Identity>, generation: u64, until: i64) {
        let verified = VerifiedCredential { identity: Arc::clone(identity), generation, until };
        self.recent.borrow_mut().keep(digest, verified);
    }
}

impl RecentCredentials {
    fn keep(&mut self, digest: Digest, verified: VerifiedCredential) {
        if self.young.len() >= GENERATION_ENTRIES_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, verified);
    }
}

/// What a credential is kept under.
pub(super) fn digest_of(credential: &[u8]) -> Digest {
    let mut out = [0; SHA256_OUTPUT_LEN];
    out.copy_from_slice(digest(&SHA256, credential).as_ref());
    out
}

/// Entries of one of the two maps: a worker remembers between one and two times as many clients of each method.
const GENERATION_ENTRIES_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_memory_is_bounded() {
        let cache = Cache::new(0);
        let nobody = Arc::new(Identity::default());
        let digest = |number: u32| digest_of(&number.to_le_bytes());
        cache.keep(digest(0), &nobody, 1, i64::MAX);
        for number in 1..100_000 {
            cache.keep(digest(number), &nobody, 1, i64::MAX);
            assert!(number % 1_000 != 0 || cache.find(&digest(0), 1, 0).is_some());
        }
        let recent = cache.recent.borrow();
        assert!(recent.young.len() + recent.old.len() <= 2 * GENERATION_ENTRIES_MAX);
    }

    #[test]
    fn other_keys_or_a_later_time_ask_for_another_look() {
        let cache = Cache::new(0);
        cache.keep(digest_of(b"a"), &Arc::default(), 1, 100);
        assert!(cache.find(&digest_of(b"a"), 1, 99).is_some());
        assert!(cache.find(&digest_of(b"a"), 1, 100).is_none());
        assert!(cache.find(&digest_of(b"a"), 2, 99).is_none());
        assert!(cache.find(&digest_of(b"b"), 1, 99).is_none());
    }
}
