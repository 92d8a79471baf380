//! [`Fleet`]: what this node knows of the fleet that it shares limits with: the way to Redis, the plans, and what part of a
//! limit is this node's while Redis does not answer. It holds no counts, decides nothing and sends nothing.

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::decision::ClientAddress;
use super::global::ShardId;
use super::plans::Plans;
use crate::global::link::Link;
use limit::{Algorithm, Charge, Key, Plan, PlanId, Quota, WhenDown};
use metrics::hot_keys::ShardNumber;

/// The fleet, as one of its nodes sees it.
pub struct Fleet {
    pub(super) link: Arc<dyn Link>,
    pub(super) plans: Plans,
    /// The hash state that keys of client addresses start from.
    addresses: SipHasher13,
    pub(super) lease_bytes: usize,
    pub(super) has_penalties: AtomicBool,
}

impl Fleet {
    /// A node with `bytes` for its leases.
    pub fn new(link: Arc<dyn Link>, bytes: usize) -> Fleet {
        let (plans, addresses) = (Plans::default(), SipHasher13::new());
        Fleet { link, plans, addresses, lease_bytes: bytes, has_penalties: AtomicBool::default() }
    }

    /// Says whether any policy has penalties, so that there is something to share.
    pub fn share_penalties(&self, has_penalties: bool) {
        self.has_penalties.store(has_penalties, Ordering::Relaxed);
    }

    /// Hashes client addresses under this salt, so that no client can choose addresses whose keys collide.
    pub fn salted(self, salt: &[u8; 16]) -> Fleet {
        Fleet { addresses: SipHasher13::new_with_key(salt), ..self }
    }

    /// How many nodes share limits, this one included.
    pub fn nodes(&self) -> u32 {
        self.link.nodes()
    }

    /// The plans of every configuration so far.
    pub fn plans(&self) -> &Plans {
        &self.plans
    }

    /// The name of a shard in logs and metrics.
    pub fn shard_name(&self, shard: ShardNumber) -> Option<String> {
        self.link.shard_name(ShardId::new(shard.0.into()))
    }

    /// How long a request waits for answers for these keys.
    pub(super) fn deadline(&self, keys: impl Iterator<Item = Key>) -> Duration {
        keys.map(|key| self.link.deadline(key)).max().unwrap_or_default()
    }

    /// Whether answers for a key take longer than a request may wait.
    pub(super) fn is_late(&self, key: Key) -> bool {
        u128::from(self.link.round_trip_ns(key)) > self.link.deadline(key).as_nanos()
    }

    /// Whether Redis answers, but later than a request may wait.
    pub(super) fn is_late_as_a_rule(&self, key: Key) -> bool {
        self.link.answers(key) && !self.link.is_quick(key)
    }

    /// Whether a request may overdraw the lease by one unit instead of waiting. Each node may owe one, so this needs at
    /// least as many spare units as nodes; otherwise the fleet would exceed its `overshoot`.
    pub fn may_owe(&self, charge: &Charge, plan: &Plan) -> bool {
        charge.cost == 1 && self.nodes() <= plan.sharing.spare && self.link.is_quick(charge.key)
    }

    /// The charge to the coarse limit of `when-redis-down = "allow"`. By address even if the policy counts by something
    /// else, because clients may choose that (a header, say).
    pub(super) fn coarse(&self, plan: &Plan, charge: &Charge, client: ClientAddress) -> Charge {
        let mut state = self.addresses;
        state.write_u32(PlanId::into_bits(charge.plan));
        state.write_u16(charge.window);
        state.write_u128(client.0);
        Charge { key: Key::new(state.finish128().as_u128()), quota: plan.quota.for_address(), ..*charge }
    }

    /// This node's share of a charge's quota; the quota itself if the fleet does not share it.
    pub(super) fn share_of(&self, charge: &Charge) -> Quota {
        self.plans.share(charge.plan).unwrap_or(charge.quota)
    }

    /// How many permits this node may hold without asking: its share, even if Redis is only late, because Redis goes on
    /// giving. By the policy's key even for `allow`, because Redis is told what is in flight when it is back.
    pub(super) fn permits_of(&self, charge: &Charge, when_down: WhenDown) -> Quota {
        match when_down {
            WhenDown::Local if self.link.answers(charge.key) => charge.quota.part_of(self.nodes(), 1),
            WhenDown::Local => self.share_of(charge),
            WhenDown::Allow | WhenDown::Deny => charge.quota,
        }
    }

    /// Among how many nodes the limit of a charge is divided without Redis; 0: this one is not among them. Of a limit with
    /// fewer units than there are nodes the key names as many, so that it is neither each node's nor nobody's.
    pub(super) fn spenders(&self, charge: &Charge) -> u32 {
        let nodes = self.nodes().max(1);
        let spenders = charge.quota.spenders(nodes);
        if spenders == nodes || self.link.rank(charge.key) < spenders { spenders } else { 0 }
    }

    /// The charge that this node's table counts beside Redis, so that fallback knows what was spent if Redis goes down.
    pub(super) fn own_part(&self, charge: &Charge) -> Charge {
        Charge { quota: self.share_of(charge), count_denied: true, ..*charge }
    }

    /// The quota that this node enforces for an exact window while Redis is down (`when-redis-down = "local"`); `None`
    /// if Redis is up or the policy says otherwise.
    pub(super) fn fallback_share(&self, charge: &Charge) -> Option<Quota> {
        let plan = self.plans.get(charge.plan)?;
        let sharing = &plan.sharing;
        let is_fallback =
            sharing.is_exact() && sharing.when_down == WhenDown::Local && !self.link.is_up(charge.key);
        if is_fallback { self.plans.share(charge.plan) } else { None }
    }

    /// Whether a charge can be admitted before Redis answers and charged afterwards. Not concurrency, which `permits`
    /// keeps.
    pub(super) fn is_advanced(plan: &Plan) -> bool {
        plan.sharing.is_exact() && plan.quota.algorithm() != Algorithm::Concurrency
    }
}
