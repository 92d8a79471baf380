//! Overrides: other limits for one consumer or one tenant, for a time. They lie beside the compiled policies, so that a
//! change compiles nothing, and change charges before they are decided.
//!
//! An override of a consumer is for policies that count by `consumer`. One of a tenant is for those that count by
//! `tenant`, and for those that count by `consumer` where the consumer has none of its own. Of several one applies:
//! consumer before tenant, absolute before multiplicative, the newest. They are not multiplied with each other.
//!
//! A key keeps its state under an override as it does over a reload: what was spent stays spent, so that a higher limit
//! hands out no burst and a lower one holds at once.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::holders::by_holder::{ByHolder, ByName};
use crate::holders::own_limits::ScaledWindows;
use crate::holders::standings::Standings;
use policy::definition::Dimension;
use policy::{Holder, Policy};

/// The overrides in force, by whose they are: of one holder the one that applies first first.
#[derive(Debug, Default)]
pub struct Overrides {
    limits: ByHolder<Arc<Override>>,
    /// Who is refused whatever policies say, which checks look at first.
    pub blocked: Standings,
    /// Whom no policy charges or refuses.
    pub unlimited: Standings,
}

/// One override: whom it is for, what it changes, and until when.
#[derive(Debug)]
pub struct Override {
    /// Its id, by which operators name it.
    pub id: Box<str>,
    /// The only policy it is for. `None`: every policy that counts by its holder.
    pub policy: Option<Box<str>>,
    /// Of a consumer's: the only tenant that it must act for. `None`: any, or none.
    pub tenant: Option<Box<str>>,
    /// What it does to a limit.
    pub change: Change,
    /// Why it was made, for operators.
    pub reason: Box<str>,
    /// By whom; empty if that is not known.
    pub by: Box<str>,
    /// When it was made; of two of one kind the later wins. Microseconds since the Unix epoch.
    pub version: i64,
    /// When it ends, on the monotonic clock. `u64::MAX`: never.
    pub until_ns: u64,
    pub(crate) scaled: ScaledWindows,
}

/// What an override does to a policy's windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// The limit of the policy's first window; its other windows and its bursts are multiplied as the first one is. 0: the
    /// policy refuses every request.
    Absolute(u64),
    /// What limits and bursts are multiplied by; positive.
    Multiplicative(f64),
    /// Whoever it is for is refused, whatever policies say.
    Block(BlockAnswer),
    /// No policy charges or refuses whoever it is for.
    Unlimited,
}

/// How whoever is blocked is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockAnswer {
    /// That it may not.
    Forbidden,
    /// That it may again when the block ends.
    TooMany,
}

impl Override {
    /// An override for every policy that counts by its holder, that never ends.
    pub fn new(id: &str, change: Change, reason: &str, version: i64) -> Override {
        Override {
            id: id.into(),
            policy: None,
            tenant: None,
            change,
            reason: reason.into(),
            by: Box::default(),
            version,
            until_ns: u64::MAX,
            scaled: ScaledWindows::default(),
        }
    }

    fn is_for(&self, policy: &Policy, now_ns: u64) -> bool {
        now_ns < self.until_ns && self.policy.as_ref().is_none_or(|name| policy.is_named(name))
    }

    /// The same of a holder that acts for this tenant.
    fn matches(&self, policy: &Policy, tenant: Option<&str>, now_ns: u64) -> bool {
        self.is_for(policy, now_ns) && self.tenant.as_deref().is_none_or(|only| tenant == Some(only))
    }

    /// What a limit is multiplied by, if the first window of the policy admits `first` units.
    pub(crate) fn factor(&self, first: NonZeroU64) -> f64 {
        match self.change {
            Change::Absolute(limit) => limit as f64 / first.get() as f64,
            Change::Multiplicative(factor) => factor,
            // Nobody asks, because these lie beside the limits.
            Change::Block(_) | Change::Unlimited => 1.0,
        }
    }

    /// Whether a limit of this size refuses every request.
    pub fn refuses_all(&self) -> bool {
        self.change == Change::Absolute(0)
    }

    /// The answer to whoever it refuses.
    pub fn answer(&self) -> BlockAnswer {
        match self.change {
            Change::Block(answer) => answer,
            Change::Absolute(_) | Change::Multiplicative(_) | Change::Unlimited => BlockAnswer::TooMany,
        }
    }

    /// Nanoseconds until it ends. `None`: never.
    pub fn left_ns(&self, now_ns: u64) -> Option<u64> {
        (self.until_ns != u64::MAX).then(|| self.until_ns.saturating_sub(now_ns))
    }
}

impl Overrides {
    /// Adds an override, or replaces the one with its id.
    pub fn put(&self, holder: &Holder, put: Override) {
        self.limits.change(holder, |mut held| {
            held.retain(|old| old.id != put.id);
            insert(&mut held, Arc::new(put));
            held
        });
    }

    /// Removes an override. Nothing happens if there is none.
    pub fn remove(&self, holder: &Holder, id: &str) {
        self.limits.change(holder, |mut held| {
            held.retain(|old| *old.id != *id);
            held
        });
    }

    /// Replaces all of them. A holder that has one before and after has one all the time.
    pub fn replace(&self, all: impl IntoIterator<Item = (Holder, Override)>) {
        self.limits.replace(all.into_iter().map(|(holder, put)| (holder, Arc::new(put))), insert);
    }

    /// Removes those that have ended. They have no effect any more; this frees their memory.
    pub fn sweep(&self, now_ns: u64) {
        let has_ended = |held: &Arc<Override>| held.until_ns <= now_ns;
        for kind in [&self.limits.consumers, &self.limits.tenants] {
            kind.sweep(|list| {
                list.iter().any(has_ended).then(|| {
                    let kept: Box<[_]> = list.iter().filter(|held| !has_ended(held)).cloned().collect();
                    (!kept.is_empty()).then_some(kept)
                })
            });
        }
    }

    /// How many there are, those included that have ended since the last sweep.
    pub fn len(&self) -> usize {
        self.limits.len()
    }

    /// Whether there is no override at all, for anybody.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// The override that decides a policy's limit for this consumer and tenant.
    pub fn of(
        &self,
        policy: &Policy,
        consumer: Option<&str>,
        tenant: Option<&str>,
        now_ns: u64,
    ) -> Option<Arc<Override>> {
        let lists = self.lists(policy, consumer, tenant);
        lists.into_iter().find_map(|(kind, name)| first(kind, name?, policy, tenant, now_ns))
    }

    /// Where an override of a policy may be, that of the consumer before that of the tenant.
    fn lists<'n>(
        &self,
        policy: &Policy,
        consumer: Option<&'n str>,
        tenant: Option<&'n str>,
    ) -> [(&ByName<Arc<Override>>, Option<&'n str>); 2] {
        let counts_by = |dimension| policy.by.contains(&dimension);
        let consumer = consumer.filter(|_| counts_by(Dimension::Consumer));
        let is_tenants = counts_by(Dimension::Tenant) || consumer.is_some();
        [(&self.limits.consumers, consumer), (&self.limits.tenants, tenant.filter(|_| is_tenants))]
    }

    /// The override of a tenant that would decide a policy's limit if the consumer had none of its own; `None` if it has
    /// none, or the policy does not count by it.
    pub fn beneath(
        &self,
        policy: &Policy,
        consumer: &str,
        tenant: &str,
        now_ns: u64,
    ) -> Option<Arc<Override>> {
        let first = |kind, name| first(kind, name, policy, Some(tenant), now_ns);
        policy.by.contains(&Dimension::Consumer).then(|| first(&self.limits.consumers, consumer))??;
        first(&self.limits.tenants, tenant)
    }

    /// The overrides that match as well and give way to the one that [`Overrides::of`] finds, each with the reason.
    pub fn outranked(
        &self,
        policy: &Policy,
        consumer: Option<&str>,
        tenant: Option<&str>,
        now_ns: u64,
    ) -> Vec<(Arc<Override>, &'static str)> {
        let matches = |held: &&Arc<Override>| held.matches(policy, tenant, now_ns);
        let mut found = Vec::new();
        for (kind, name) in self.lists(policy, consumer, tenant) {
            let held = name.and_then(|name| kind.of(name));
            let list = held.as_ref().and_then(|held| held.get()).into_iter().flat_map(|list| list.iter());
            found.extend(list.filter(matches).map(|held| (std::ptr::from_ref(kind), Arc::clone(held))));
        }
        let mut found = found.into_iter();
        let Some((own, first)) = found.next() else { return Vec::new() };
        let reason = |kind, other: &Override| match (&first.change, &other.change) {
            _ if kind != own => "one of the consumer comes before one of its tenant",
            (Change::Absolute(_), Change::Multiplicative(_)) => {
                "an absolute one comes before a multiplicative one"
            }
            _ => "a newer one of its kind comes first",
        };
        found.map(|(kind, other)| (Arc::clone(&other), reason(kind, &other))).collect()
    }
}

fn first(
    kind: &ByName<Arc<Override>>,
    name: &str,
    policy: &Policy,
    tenant: Option<&str>,
    now_ns: u64,
) -> Option<Arc<Override>> {
    kind.of(name)?.get()?.iter().find(|held| held.matches(policy, tenant, now_ns)).map(Arc::clone)
}

fn insert(list: &mut Vec<Arc<Override>>, put: Arc<Override>) {
    let place = list.partition_point(|old| old.precedes(&put));
    list.insert(place, put);
}

impl Override {
    fn precedes(&self, other: &Override) -> bool {
        let rank = |it: &Override| (matches!(it.change, Change::Absolute(_)), it.version);
        rank(self) > rank(other)
    }
}

#[cfg(test)]
mod tests;
