//! A policy, compiled: which requests it counts, what they cost, under which keys.

use std::ops::Range;

use http::HeaderMap;
use smallvec::SmallVec;

use super::definition::{Dimension, Missing};
use super::key::{self, Absent, Keys, Value};
use super::rules::Rules;
use super::subject::Subject;
use crate::limit::{Algorithm, Charge, Conduct, Key, Penalty, PlanId, PolicyId, Quota};

/// One policy.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its place in the table; [`Charge::policy`].
    pub id: PolicyId,
    /// Its name.
    pub name: Box<str>,
    /// The dimensions of its key.
    pub by: Box<[Dimension]>,
    /// Its windows; [`Charge::window`] counts them.
    pub windows: Box<[Window]>,
    /// What happens where a dimension is absent.
    pub missing: Missing,
    /// Counted and reported, never rejected.
    pub shadow: bool,
    /// Refused requests are counted too.
    pub count_denied: bool,
    /// How clients that ignore `Retry-After` are kept out.
    pub penalty: Option<Penalty>,
    pub(super) rules: Rules,
    pub(super) keys: Keys,
    pub(super) idempotency: Option<Memory>,
    pub(super) tiers: Option<Tiers>,
}

/// One window of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// How much.
    pub quota: Quota,
    /// What the fields `RateLimit` and `RateLimit-Policy` call it: the policy's name where it has one window,
    /// else with the period behind it (`search-1h`); unique in a table, and safe between quotation marks.
    pub label: Box<str>,
    /// Its plan if the fleet shares it; `None`: this node alone counts.
    pub plan: Option<PlanId>,
    /// Its item of `RateLimit-Policy`: `"search-1h";q=1000;w=3600`.
    pub item: Box<str>,
}

/// Which windows are whose.
#[derive(Clone, Debug)]
pub(super) struct Tiers {
    pub ranges: Box<[(Box<str>, Range<usize>)]>,
    /// Of identities without a tier, or with one that is not listed.
    pub default: Range<usize>,
}

impl Tiers {
    fn of(&self, tier: Option<&str>) -> Range<usize> {
        let own = tier.and_then(|tier| self.ranges.iter().find(|(name, _)| **name == *tier));
        own.map_or(&self.default, |(_, range)| range).clone()
    }

    /// Where the tier of a window begins.
    fn begin_of(&self, window: usize) -> Option<usize> {
        self.ranges.iter().find(|(_, range)| range.contains(&window)).map(|(_, range)| range.start)
    }
}

/// How a policy knows a retry.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// One unit in the time a key is remembered: spent, it was there.
    pub quota: Quota,
    /// Its plan if the fleet shares it; `None`: this node alone remembers.
    pub plan: Option<PlanId>,
}

/// A policy refuses requests without this dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingDimension<'t> {
    /// The policy.
    pub policy: PolicyId,
    /// What the request does not have.
    pub dimension: &'t Dimension,
}

impl Policy {
    /// Whether an admitted request holds something of it.
    pub(super) fn holds(&self) -> bool {
        let holds = |window: &Window| {
            matches!(window.quota.algorithm(), Algorithm::LeakyBucket | Algorithm::Concurrency)
        };
        self.rules.cost.response_header.is_some() || self.windows.iter().any(holds)
    }

    /// What an answer says its request cost; `None`: nothing, or the policy does not ask it.
    pub fn settled_cost(&self, answer: &HeaderMap) -> Option<u64> {
        self.rules.cost_in(answer)
    }

    /// Whether costs are known only when the answer says them.
    pub fn is_settled(&self) -> bool {
        self.rules.cost.response_header.is_some()
    }

    /// The charge that remembers a request by its idempotency key; `None` where it has none.
    pub(super) fn memory(&self, subject: &impl Subject) -> Option<Charge> {
        let memory = self.idempotency.as_ref()?;
        let key = subject.idempotency_key(&self.rules)?;
        let values = self.keys.encode(subject).ok()?;
        Some(Charge {
            key: self.keys.memory(&values, key),
            quota: memory.quota,
            cost: 1,
            policy: self.id,
            window: 0,
            shadow: self.shadow,
            count_denied: false,
            plan: memory.plan,
        })
    }

    /// Whether it says the same of a request whoever turns out to send it: of those that need no identity, one by tier
    /// or that knows retries does not.
    pub fn is_blind(&self) -> bool {
        self.tiers.is_none() && self.idempotency.is_none()
    }

    /// Whose conduct is watched where this is the first of the policy's charges of a request; `None`: nobody's.
    pub(super) fn conduct(&self, charge: &Charge) -> Option<Conduct> {
        let rule = self.penalty?;
        let key = Key::new(charge.key.bits() ^ CONDUCT);
        Some(Conduct { key, rule, policy: self.id, shadow: self.shadow, wait_ns: 0 })
    }

    /// Appends what the policy's windows charge a request; nothing where it does not apply: it has no window,
    /// its `matches` does not hold, the cost is 0, or a dimension is missing and the policy is to be skipped
    /// (which a shadow policy is rather than reject).
    ///
    /// # Errors
    /// Where the request is to be refused because it lacks a dimension.
    pub fn charge<'t>(
        &'t self,
        subject: &impl Subject,
        out: &mut SmallVec<[Charge; 4]>,
    ) -> Result<(), MissingDimension<'t>> {
        let range = match &self.tiers {
            None => 0..self.windows.len(),
            Some(tiers) => tiers.of(subject.tier()),
        };
        if range.is_empty() {
            return Ok(());
        }
        let cost = subject.cost(&self.rules);
        if cost == 0 {
            return Ok(());
        }
        let values = match self.keys.encode(subject) {
            Ok(values) => values,
            Err(Absent::Reject { dimension }) if !self.shadow => {
                return Err(MissingDimension { policy: self.id, dimension: &self.by[dimension] });
            }
            Err(_) => return Ok(()),
        };
        // A tier's windows have the same keys as another's, so that a client whose tier changes takes along what it has used.
        let first = range.start;
        for (number, window) in self.windows[range].iter().enumerate() {
            out.push(Charge {
                key: self.keys.key(number, &values),
                quota: window.quota,
                cost,
                policy: self.id,
                // A policy has far fewer windows than that.
                window: u16::try_from(first + number).unwrap_or(u16::MAX),
                shadow: self.shadow,
                count_denied: self.count_denied,
                plan: window.plan,
            });
        }
        Ok(())
    }
}

impl Policy {
    /// A charge of nothing on each of its windows (of all tiers) for a client with these values, one for each of
    /// [`Policy::by`]; `None` where they are another number, or one is to be an address and is none.
    pub fn look_at(&self, values: &[String]) -> Option<Vec<Charge>> {
        let encoded = self.keys.encode_written(values)?;
        let charge = |(number, window): (usize, &Window)| Charge {
            key: self.keys.key(self.place(number), &encoded),
            quota: window.quota,
            cost: 0,
            policy: self.id,
            window: u16::try_from(number).unwrap_or(u16::MAX),
            shadow: self.shadow,
            count_denied: self.count_denied,
            plan: window.plan,
        };
        Some(self.windows.iter().enumerate().map(charge).collect())
    }

    /// Which of a client's windows one is: tiers share their keys.
    fn place(&self, number: usize) -> usize {
        let begin = self.tiers.as_ref().and_then(|tiers| tiers.begin_of(number));
        number - begin.unwrap_or(0)
    }

    /// What a request it charges is counted as, one value for each of [`Policy::by`]; nothing where a dimension is
    /// missing. Copies: for operators, not for traffic.
    pub fn counted_as(&self, subject: &impl Subject) -> Vec<Value> {
        let encoded = self.keys.encode(subject);
        encoded.map(|encoded| key::values(&encoded)).unwrap_or_default()
    }
}

/// The largest integer of a structured field: 15 digits (RFC 9651, section 3.3.1).
pub const SF_INTEGER_MAX: u64 = 999_999_999_999_999;

/// Sets the key of a client's conduct apart from that of its first window: any number with bits of every place.
const CONDUCT: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
