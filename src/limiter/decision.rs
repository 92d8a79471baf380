//! [`Decision`]: what was decided of the charges of one request, and by whom. A plain value that the walk over the charges
//! fills in.

use std::collections::HashMap;
use std::net::IpAddr;

use smallvec::SmallVec;

use crate::check::charge_state::Refund;
use limit::{Algorithm, Charge, Key, Outcome, TrialSet};
use metrics::DecidingTier;

/// What was decided about one request, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The outcome of each charge, in the order of the charges. If the request is refused, `remaining` is what is left
    /// without it.
    pub outcomes: SmallVec<[Outcome; 4]>,
    /// Index of the charge that the rate-limit fields of the answer describe: the one with the least left or, if
    /// refused, the one with the longest wait. Never a shadow's; `None` if there are only shadows.
    pub binding: Option<usize>,
    /// Which tier decided; if several did, the farthest from this node.
    pub tier: DecidingTier,
    /// Whether it is refused because Redis is down (`when-redis-down = "deny"`).
    pub is_redis_down: bool,
    /// Whether it waits for what is asked of Redis; else it is decided before the answer.
    pub(crate) waits: bool,
    /// Where it is refused; beside the request's own world those of its trials.
    pub(crate) refused: TrialSet,
    /// Where a penalty refuses it: no charge of these is decided.
    pub(crate) kept_out: TrialSet,
    /// Where charges that are not in `refunds` go back to: their slot or, for a request with one charge, the lease.
    usual: Refund,
    /// Charges that go back elsewhere, by index. Nearly always empty without Redis.
    refunds: SmallVec<[(u16, Refund); 2]>,
    /// The charges that something else decided than this node with what it holds, by index.
    pub(crate) elsewhere: SmallVec<[(u16, RemoteDecider); 2]>,
}

/// Who decided a charge, if not this node with what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteDecider {
    /// Redis, which was asked for it.
    Redis,
    /// This node without Redis, as `when-redis-down` of the policy says.
    Fallback,
    /// Nobody: another window had refused the request, and this one was not asked.
    Nobody,
    /// This node, by a penalty that it remembers, before anything was decided.
    Penalty,
}

/// The address of the client, as the policies count it (IPv6 clients by network). Only the fallback of
/// `when-redis-down = "allow"` uses it: that limits by address whatever the policy counts by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientAddress(pub(crate) u128);

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> ClientAddress {
        ClientAddress(match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        })
    }
}

impl Decision {
    /// Whether the request may pass in its own world, whatever its trials say.
    #[inline]
    pub fn is_admitted(&self) -> bool {
        !self.refused.has(TrialSet::OWN)
    }

    /// Whether the world in which a charge counts is refused: then the charge is not taken.
    #[inline]
    pub(crate) fn is_refused_to(&self, charge: &Charge) -> bool {
        self.refused.has(charge.world())
    }

    /// Whether the charge of this index is taken, and may be given back.
    pub fn has_taken(&self, index: usize, charge: &Charge) -> bool {
        self.outcomes.get(index).is_some_and(Outcome::is_admitted) && !self.is_refused_to(charge)
    }

    /// The decision as it is once some of the charges have come back, if they were taken.
    pub fn refunded(&self, charges: &[Charge], is_back: impl Fn(&Charge) -> bool) -> Decision {
        let mut after = self.clone();
        for (index, charge) in charges.iter().enumerate() {
            if self.has_taken(index, charge) && is_back(charge) {
                after.outcomes[index] = charge.refunded(after.outcomes[index]);
            }
        }
        after.bind(charges);
        after
    }

    /// Nanoseconds until every window that refused would admit: 0 if admitted, `None` if one never will.
    pub fn retry_after_ns(&self) -> Option<u64> {
        if self.is_admitted() {
            return Some(0);
        }
        self.binding.and_then(|index| self.outcomes[index].retry_after_ns())
    }

    /// Nanoseconds an admitted request waits in the slowest of its queues. A shadow delays nobody.
    pub fn delay_ns(&self, charges: &[Charge]) -> u64 {
        let enforced = charges.iter().zip(&self.outcomes).filter(|(charge, _)| !charge.shadow);
        enforced.map(|(_, outcome)| outcome.delay_ns()).max().unwrap_or(0)
    }

    /// Whether the charge of this index was decided: otherwise another window has refused, and Redis was not asked.
    pub fn is_known(&self, index: usize) -> bool {
        self.elsewhere(index) != Some(RemoteDecider::Nobody)
    }

    /// How the charge of this index is given back.
    pub fn refund(&self, index: usize) -> Refund {
        let other = self.refunds.iter().find(|(of, _)| usize::from(*of) == index);
        other.map_or(self.usual, |(_, refund)| *refund)
    }

    pub(crate) fn note(&mut self, index: usize, refund: Refund) {
        if refund != self.usual {
            // A request has no more charges than a route has windows, far fewer than that.
            self.refunds.push((u16::try_from(index).unwrap_or(u16::MAX), refund));
        }
    }

    pub(crate) fn note_elsewhere(&mut self, index: usize, elsewhere: RemoteDecider) {
        self.elsewhere.push((u16::try_from(index).unwrap_or(u16::MAX), elsewhere));
    }

    /// Who decided the charge of this index, if not this node with what it holds.
    pub(crate) fn elsewhere(&self, index: usize) -> Option<RemoteDecider> {
        self.elsewhere.iter().find(|(of, _)| usize::from(*of) == index).map(|(_, elsewhere)| *elsewhere)
    }

    /// Lets `decide` decide the charge of this index, which may be without Redis, and notes whether it was.
    pub(crate) fn decide_at<R>(&mut self, index: usize, decide: impl FnOnce(&mut Decision) -> R) -> R {
        let before = std::mem::take(&mut self.tier);
        let decided = decide(self);
        if self.tier == DecidingTier::Fallback {
            self.note_elsewhere(index, RemoteDecider::Fallback);
        }
        self.tier = self.tier.max(before);
        decided
    }

    /// The charges that refused, with their outcomes, without shadows.
    pub fn violated<'c>(&'c self, charges: &'c [Charge]) -> impl Iterator<Item = (&'c Charge, &'c Outcome)> {
        charges
            .iter()
            .zip(&self.outcomes)
            .filter(|(charge, outcome)| !charge.shadow && !outcome.is_admitted())
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.outcomes.clear();
        self.binding = None;
        self.tier = DecidingTier::Local;
        self.is_redis_down = false;
        self.waits = false;
        self.usual = Refund::default();
        self.refunds.clear();
        self.elsewhere.clear();
        self.refused = TrialSet::NONE;
        self.kept_out = TrialSet::NONE;
    }

    /// Records the outcome of the request's only charge.
    #[inline(always)]
    pub(crate) fn decided(&mut self, charge: &Charge, outcome: Outcome, refund: Refund) {
        self.usual = refund;
        self.binding = if charge.shadow { None } else { Some(0) };
        if !outcome.is_admitted() {
            self.refused = charge.refuses();
        }
        self.outcomes.push(outcome);
    }

    /// Lets charges of one window say the same of what is left, where the request is refused. Redis decides them one after the
    /// other, so the later ones found taken what the earlier ones gave back.
    pub(crate) fn agree(&mut self, charges: &[Charge]) {
        // Only subjects that are decided together have a window twice.
        if charges.first().map(|charge| charge.part) == charges.last().map(|charge| charge.part) {
            return;
        }
        let is_undone = |charge: &Charge, refused: TrialSet| {
            let stays = charge.count_denied && charge.quota.algorithm() != Algorithm::Concurrency;
            refused.has(charge.world()) && !stays
        };
        let refused = self.refused;
        let mut most: HashMap<(Key, TrialSet), (u64, u64)> = HashMap::new();
        let undone = charges.iter().zip(&self.outcomes).filter(|(charge, _)| is_undone(charge, refused));
        for (charge, outcome) in undone {
            let (remaining, reset_ns) =
                most.entry((charge.key, charge.world())).or_insert((outcome.remaining, outcome.reset_ns));
            *remaining = outcome.remaining.max(*remaining);
            *reset_ns = outcome.reset_ns.min(*reset_ns);
        }
        for (charge, outcome) in charges.iter().zip(&mut self.outcomes) {
            if let Some((remaining, reset_ns)) = most.get(&(charge.key, charge.world()))
                && is_undone(charge, refused)
            {
                *outcome = Outcome::new(outcome.answer(), *remaining, *reset_ns);
            }
        }
    }

    pub(crate) fn bind(&mut self, charges: &[Charge]) {
        self.binding = self.bound(charges, !self.is_admitted(), |charge| !charge.shadow);
    }

    /// The charge among these that binds: if one of them refuses, that with the longest wait, otherwise that with the
    /// least left.
    pub fn binding_of(&self, charges: &[Charge], is_among: impl Fn(&Charge) -> bool) -> Option<usize> {
        let mut outcomes = charges.iter().zip(&self.outcomes).filter(|(charge, _)| is_among(charge));
        let is_refused = outcomes.any(|(_, outcome)| !outcome.is_admitted());
        self.bound(charges, is_refused, is_among)
    }

    fn bound(
        &self,
        charges: &[Charge],
        is_refused: bool,
        is_among: impl Fn(&Charge) -> bool,
    ) -> Option<usize> {
        let among =
            charges.iter().zip(&self.outcomes).enumerate().filter(|(_, (charge, _))| is_among(charge));
        let bound = if is_refused {
            // `None` means never, the longest wait of all.
            among.max_by_key(|(_, (_, outcome))| outcome.retry_after_ns().unwrap_or(u64::MAX))
        } else {
            // Of two with the same remainder, the one that takes longer to be full again.
            among.min_by_key(|(_, (_, outcome))| (outcome.remaining, u64::MAX - outcome.reset_ns))
        };
        bound.map(|(index, _)| index)
    }
}
