//! The names of keys in Redis: `prefix:policy:hash`. In a cluster our hash tag comes before the policy. After the
//! policy comes a letter for the algorithm ([`Plan::mark`]), so that a policy which changes it never
//! meets the old records.
//!
//! A name shows nothing of a client but 128 bits of a keyed hash. The policy is there for operators who look for its
//! keys; it has two characters, for a longer name a hash of it. With the usual prefix a name then fits the allocator's
//! 32 bytes, which keeps a key under 200 bytes in a Redis of ten million.

use std::hash::Hasher;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use siphasher::sip::SipHasher13;

use limit::{Key, Plan};

#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Names {
        Names { prefix: prefix.to_owned() }
    }

    pub(super) fn write_key(&self, out: &mut Vec<u8>, tag: Option<&str>, plan: &Plan, key: Key) {
        self.begin(out, tag);
        let policy = &*plan.policy;
        if policy.len() <= MARK_BYTES && policy.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            out.extend_from_slice(policy.as_bytes());
        } else {
            let mut hasher = SipHasher13::new();
            hasher.write(policy.as_bytes());
            let hash = hasher.finish();
            out.extend([hash, hash >> 6].map(|bits| ALPHABET[(bits & 63) as usize]));
        }
        out.extend([plan.mark(), b':']);
        let mut hash = [0; HASH_BYTES];
        let length = URL_SAFE_NO_PAD.encode_slice(key.bits().to_be_bytes(), &mut hash);
        out.extend_from_slice(&hash[..length.expect("22 characters hold 16 bytes in base64")]);
    }

    /// The name of a key that belongs to no limit. `!` stands where a limit's name has its policy, and no policy is
    /// written so.
    pub(super) fn own(&self, tag: Option<&str>, what: &str) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.prefix.len() + what.len() + 12);
        self.begin(&mut name, tag);
        name.push(b'!');
        name.extend_from_slice(what.as_bytes());
        name
    }

    /// The name of a channel that nodes tell each other something on. A cluster has each channel on all of its nodes.
    pub(super) fn channel(&self, what: &str) -> String {
        format!("{}:{what}", self.prefix)
    }

    fn begin(&self, out: &mut Vec<u8>, tag: Option<&str>) {
        out.extend_from_slice(self.prefix.as_bytes());
        out.push(b':');
        if let Some(tag) = tag {
            out.push(b'{');
            out.extend_from_slice(tag.as_bytes());
            out.push(b'}');
        }
    }
}

/// The key that says since when a server has its data.
pub(super) const SINCE: &str = "since";
/// Policy names up to this length are written as they are.
const MARK_BYTES: usize = 2;
/// base64url (RFC 4648, section 5).
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const HASH_BYTES: usize = 22;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::num::NonZeroU64;

    use super::*;
    use limit::{Algorithm, Quota, Sharing, WhenDown};

    fn name(tag: Option<&str>, plan: &Plan, key: Key) -> String {
        let mut name = Vec::new();
        Names::new("sg").write_key(&mut name, tag, plan, key);
        String::from_utf8(name).expect("names are text")
    }

    fn plan(policy: &str, algorithm: Algorithm, overshoot: f64) -> Plan {
        let number = |value| NonZeroU64::new(value).expect("a positive number");
        let quota = Quota::new(algorithm, number(100), number(1_000_000_000), number(100));
        Plan { policy: policy.into(), quota, sharing: Sharing::new(&quota, overshoot, WhenDown::Local) }
    }

    #[test]
    fn names_are_plain_and_short() {
        let bucket = |policy| plan(policy, Algorithm::TokenBucket, 0.2);
        assert_eq!(name(None, &bucket("p"), Key::default()), "sg:pT:AAAAAAAAAAAAAAAAAAAAAA");
        let long = name(None, &bucket("per-tenant"), Key::default());
        // Redis stores a length and a final byte beside it, so 30 bytes fit 32.
        assert!(long.len() <= 30);
        assert_ne!(long, name(None, &bucket("per-consumer"), Key::default()));
        let strange = name(Some("7"), &bucket("{}"), Key::new(u128::MAX));
        assert!(strange.starts_with("sg:{7}") && !strange[6..].contains(['{', '}']), "{strange}");
        assert!(strange.ends_with(":_____________________w"));
        assert_eq!(Names::new("sg").own(Some("7"), "up"), b"sg:{7}!up");
    }

    #[test]
    fn every_algorithm_has_its_name_however_it_is_shared() {
        let plans =
            Algorithm::ALL.iter().flat_map(|algorithm| [0.0, 0.2].map(|lent| plan("p", *algorithm, lent)));
        let names: HashSet<_> = plans.map(|plan| name(None, &plan, Key::default())).collect();
        assert_eq!(names.len(), Algorithm::ALL.len());
    }
}
