//! Candidates: policies that are tried beside the one they are to replace (`replaces`). Which of the two decides about a
//! subject is a matter of its key; the other is compared with it.
//!
//! The share of the keys that a candidate decides about (`rollout`) is chosen by a hash with a seed of its own,
//! without the process's salt, so that the keys of a share are the same on every node and after every start, and no
//! other hash of a key says which they are. A larger share keeps the keys of a smaller one.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::counting::Policy;
use crate::keys::subject::{Encoded, Subject};
use limit::{PolicyId, Side, Trial};

/// What makes a policy a candidate.
#[derive(Clone, Debug)]
pub struct CandidateOf {
    pub policy: PolicyId,
    pub name: Box<str>,
    /// The share of the keys that it decides about, millionths.
    pub rollout_ppm: u32,
    /// The hasher of keys, after the candidate's name, so that each candidate is tried on keys of its own.
    pub(crate) state: SipHasher13,
}

impl CandidateOf {
    pub(crate) fn new(candidate: &str, (policy, name): (PolicyId, &str), rollout_ppm: u32) -> CandidateOf {
        let mut state = SipHasher13::new_with_keys(SEED.0, SEED.1);
        // With its length, so that no name and value together pass for another's.
        state.write(&(candidate.len() as u64).to_le_bytes());
        state.write(candidate.as_bytes());
        CandidateOf { policy, name: name.into(), rollout_ppm, state }
    }

    /// Whether the key with these encoded values is of the candidate's share.
    fn takes(&self, values: &[u8]) -> bool {
        let mut state = self.state;
        state.write(values);
        state.finish() % u64::from(WHOLE_PPM) < u64::from(self.rollout_ppm)
    }
}

impl Policy {
    /// What it is a candidate for, if it is one.
    pub fn replaces(&self) -> Option<&CandidateOf> {
        self.replaces.as_deref()
    }

    /// Whether what names a policy for a holder (an override, a reset) is for it: by its own name, or by that of the policy
    /// it is to replace, so that a trial takes nothing away from anybody.
    pub fn is_named(&self, name: &str) -> bool {
        *self.name == *name || self.replaces().is_some_and(|replaces| *replaces.name == *name)
    }

    /// Whether, as a candidate, it decides about a subject, rather than the policy that it is to replace.
    fn decides_about(&self, subject: &impl Subject) -> bool {
        self.decides(|| self.keys.encode(subject).ok())
    }

    /// The same for the key with these values, one for each of [`Policy::by`], as operators write them.
    pub fn decides_about_key(&self, values: &[String]) -> bool {
        self.decides(|| self.keys.encode_written(values))
    }

    fn decides(&self, values: impl FnOnce() -> Option<Encoded>) -> bool {
        let Some(replaces) = self.replaces() else { return true };
        match replaces.rollout_ppm {
            0 => false,
            WHOLE_PPM => true,
            // Either one's values do, because both policies count by the same dimensions.
            _ => values().is_some_and(|values| replaces.takes(&values)),
        }
    }

    /// The sides of a trial of this policy and its candidate for a subject, the one that decides first.
    pub(crate) fn sides<'t>(
        &'t self,
        candidate: &'t Policy,
        number: usize,
        subject: &impl Subject,
    ) -> [(&'t Policy, Option<Trial>); 2] {
        let (decides, compared) =
            if candidate.decides_about(subject) { (candidate, self) } else { (self, candidate) };
        [(decides, Trial::new(number, Side::Decides)), (compared, Trial::new(number, Side::Compared))]
    }
}

/// Any number would do that no other hash of keys begins with.
const SEED: (u64, u64) = (0x7472_6961_6c20_6f66, 0x6361_6e64_6964_6174);
pub const WHOLE_PPM: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn share(candidate: &str, rollout_ppm: u32) -> Vec<u64> {
        let replaces = CandidateOf::new(candidate, (PolicyId::new(0), "search"), rollout_ppm);
        (0..10_000_u64).filter(|key| replaces.takes(&key.to_le_bytes())).collect()
    }

    #[test]
    fn a_share_is_as_large_as_it_says_and_a_larger_one_keeps_its_keys() {
        let shares = [0, 100_000, 500_000, WHOLE_PPM].map(|ppm| share("new", ppm));
        for (share, expected) in shares.iter().zip([0, 1_000, 5_000, 10_000_usize]) {
            // Four standard deviations of the largest.
            assert!(share.len().abs_diff(expected) <= 200, "{} of {expected}", share.len());
        }
        for pair in shares.windows(2) {
            assert!(pair[0].iter().all(|key| pair[1].contains(key)));
        }
        let other = share("newer", 100_000);
        let both = shares[1].iter().filter(|key| other.contains(key)).count();
        assert!((40..=180).contains(&both), "two candidates have {both} of 1,000 keys in common");
    }

    /// Keys stay in their share when a new version of the gateway is started.
    #[test]
    fn the_keys_of_a_share_are_written_in_stone() {
        assert_eq!(share("new", 500), PINNED);
    }

    const PINNED: [u64; 8] = [2313, 3789, 4833, 5037, 5627, 6373, 8213, 8904];
}
