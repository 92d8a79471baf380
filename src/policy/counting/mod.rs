//! A policy, compiled: which requests it counts, what they cost, and under which keys. It makes charges; the limiter decides
//! them.

pub mod candidate;
pub mod exempt;
pub(super) mod outgoing;
pub mod rules;
pub mod selection;
pub mod shorthand;

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::ops::Range;
use std::time::Duration;

use http::HeaderMap;
use smallvec::SmallVec;

use super::counting::candidate::CandidateOf;
use super::counting::exempt::{ExemptEntry, Exemptions};
use super::counting::outgoing::OutgoingWindow;
use super::counting::rules::PolicyRules;
use super::definition::{Actual, Dimension, HotKeyRules, LimitOrigin, Missing};
use super::keys::key;
use super::keys::key::{AlgorithmBits, DecodedValue, KeyMaker, NoKey};
use super::keys::subject::{Encoded, Subject};
use crate::json::JsonPath;
use limit::{
    Algorithm, Charge, Key, Penalty, PenaltyCheck, PlanId, PolicyId, Quota, Sharing, Side, Trial, WhenDown,
};

#[derive(Clone, Debug)]
pub struct Policy {
    /// Its place in the table; [`Charge::policy`].
    pub id: PolicyId,
    pub name: Box<str>,
    pub shown_as: Box<str>,
    pub is_hidden: bool,
    pub by: Box<[Dimension]>,
    /// Its windows; [`Charge::window`] counts them. Those that still count by an algorithm of before come last.
    pub windows: Box<[Window]>,
    pub missing: Missing,
    pub shadow: bool,
    pub count_denied: bool,
    pub penalty: Option<Penalty>,
    pub anchor_claim: Option<Dimension>,
    pub hot_keys: HotKeyRules,
    /// How much more than a window a fleet may admit, as a fraction of it. 0: nothing, so Redis decides every request.
    pub(super) overshoot: f64,
    pub(super) when_down: WhenDown,
    pub(super) rules: PolicyRules,
    pub(super) exempt: Option<Box<Exemptions>>,
    pub(super) keys: KeyMaker,
    /// How many windows are its own, and not of before.
    pub(super) own: usize,
    pub(super) idempotency: Option<RetryMemory>,
    pub(super) tiers: Option<Tiers>,
    pub(super) origin: LimitOrigin,
    pub(super) replaces: Option<Box<CandidateOf>>,
    /// Its candidate, if it has one.
    pub tried: Option<PolicyId>,
}

#[derive(Clone, Debug)]
pub struct Window {
    pub quota: Quota,
    /// Its name in `RateLimit` and `RateLimit-Policy`: the name that clients know the policy by, with the period
    /// appended if the policy has several windows (`search-1h`). Unique in a table, and valid between quotation marks.
    pub label: Box<str>,
    /// Its plan if the fleet shares it; `None`: this node alone counts.
    pub plan: Option<PlanId>,
    /// The same for clients whose months begin on a day of their own, from the first day to the 31st; empty if none do.
    pub anchored: Box<[PlannedQuota]>,
    /// Its item of `RateLimit-Policy`: `"search-1h";q=1000;w=3600`; of the calendar, that of the window in which it was made.
    pub item: Box<str>,
    /// The window that counts beside it by the algorithm of before.
    pub(super) before: Option<u16>,
    /// If it is such a window itself.
    pub(super) outgoing: Option<Box<OutgoingWindow>>,
}

/// A policy's own windows in the order in which they were written, each with the tier that it is for.
pub fn limits(policy: &Policy) -> impl Iterator<Item = (Option<&str>, &Quota)> {
    let tier = |number| policy.part_of(number).map(|part| &*part.tier);
    policy
        .windows
        .iter()
        .take(policy.own)
        .enumerate()
        .map(move |(number, window)| (tier(number), &window.quota))
}

/// A quota, and its plan if the fleet shares it.
pub type PlannedQuota = (Quota, Option<PlanId>);

#[derive(Clone, Debug)]
pub(super) struct Tiers {
    pub parts: Box<[TierWindows]>,
    /// For identities without a tier, or with one that is not listed.
    pub default: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct TierWindows {
    pub tier: Box<str>,
    pub range: Range<usize>,
    pub overshoot: f64,
    pub when_down: WhenDown,
    pub origin: LimitOrigin,
}

impl Tiers {
    fn of(&self, tier: Option<&str>) -> Range<usize> {
        let own = tier.and_then(|tier| self.parts.iter().find(|part| *part.tier == *tier));
        own.map_or(&self.default, |part| &part.range).clone()
    }
}

#[derive(Clone, Debug)]
pub(super) struct RetryMemory {
    /// One unit for as long as a key is remembered. If it is spent, the key has been seen.
    pub quota: Quota,
    /// Its plan if the fleet shares it; `None`: this node alone remembers.
    pub plan: Option<PlanId>,
}

/// A policy refuses requests without this dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingDimension<'t> {
    pub policy: PolicyId,
    pub dimension: &'t Dimension,
}

/// The day on which the months of a client begin, as its identity says in one digit or two; the policy's own day without one
/// from 1 to 31.
fn anchor_of(policy: &Policy, subject: &impl Subject) -> Option<usize> {
    let mut text = Encoded::new();
    subject.write(policy.anchor_claim.as_ref()?, &mut text);
    std::str::from_utf8(&text)
        .ok()
        .filter(|text| text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit()))?
        .parse()
        .ok()
}

/// The day on which the months of a charge of this policy begin, if it is its client's own.
pub fn own_anchor(policy: &Policy, charge: &Charge) -> Option<u8> {
    let quotas = [charge.quota, policy.windows[usize::from(charge.window)].quota];
    let [own, usual] = quotas.map(|quota| quota.calendar().map(|calendar| calendar.anchor()));
    own.filter(|_| own != usual)
}

/// A charge of 0 units on a key.
fn charge_on(
    policy: &Policy,
    key: Key,
    window: usize,
    (quota, plan): PlannedQuota,
    trial: Option<Trial>,
) -> Charge {
    Charge {
        key,
        quota,
        cost: 0,
        policy: policy.id,
        // This never saturates, because a policy has far fewer windows than that.
        window: u16::try_from(window).unwrap_or(u16::MAX),
        shadow: policy.is_shadow(trial),
        count_denied: policy.count_denied,
        is_overridden: false,
        part: 0,
        trial,
        plan,
    }
}

pub fn is_shown(policy: &Policy, charge: &Charge) -> bool {
    !charge.shadow && !policy.is_hidden
}

impl Window {
    /// Its quotas: that of the policy, and those of clients whose months begin on a day of their own.
    pub fn quotas(&self) -> impl Iterator<Item = Quota> {
        std::iter::once(self.quota).chain(self.anchored.iter().map(|(quota, _)| *quota))
    }

    /// Its quota and its plan for a client whose months begin on this day.
    fn of_day(&self, day: Option<usize>) -> PlannedQuota {
        let own = day.and_then(|day| self.anchored.get(day.checked_sub(1)?));
        own.copied().unwrap_or((self.quota, self.plan))
    }
}

impl Policy {
    /// The entry of `exempt` that a subject matches; `None` if the policy charges it.
    pub(super) fn exemption(&self, subject: &impl Subject) -> Option<ExemptEntry<'_>> {
        self.exempt.as_ref()?.entry(subject)
    }

    /// Whether it exempts by who sent a request, which nobody knows before authentication.
    pub fn exempts_identities(&self) -> bool {
        self.exempt.as_ref().is_some_and(|exempt| exempt.needs_identity())
    }

    /// Whether an admitted request must give something back when it ends.
    pub(super) fn holds(&self) -> bool {
        let holds = |window: &Window| {
            matches!(window.quota.algorithm(), Algorithm::LeakyBucket | Algorithm::Concurrency)
        };
        self.actual_cost().is_some() || self.windows.iter().any(holds)
    }

    /// The cost that the head of the answer states; `None` if it states none or the policy does not ask it.
    pub fn cost_in(&self, answer: &HeaderMap) -> Option<u64> {
        self.rules.cost_in(answer)
    }

    /// What tells the cost of a request that has been answered: until then its charge is an estimate.
    pub fn actual_cost(&self) -> Option<&Actual> {
        self.rules.cost.actual.as_ref()
    }

    /// A cost that is known later, cut to the most that a charge may come to.
    pub fn cost_cut(&self, units: u64, charge: &Charge) -> u64 {
        self.rules.cost_cut(units, &charge.quota)
    }

    pub(super) fn answer_paths(&self) -> &[JsonPath] {
        match &self.rules.cost.actual {
            Some(Actual::ResponseJson(paths)) => paths,
            _ => &[],
        }
    }

    /// The fields of a request's body that it reads.
    pub(super) fn body_paths(&self) -> impl Iterator<Item = &JsonPath> {
        let counted = self.by.iter().filter_map(|dimension| match dimension {
            Dimension::Body(path) => Some(path),
            _ => None,
        });
        counted.chain(&self.rules.cost.estimate)
    }

    /// Whether it refuses nothing on this side of a trial.
    fn is_shadow(&self, trial: Option<Trial>) -> bool {
        self.shadow || trial.is_some_and(|trial| trial.side == Side::Compared)
    }

    /// Its own windows for a tier.
    pub(super) fn windows_of(&self, tier: Option<&str>) -> Range<usize> {
        match &self.tiers {
            None => 0..self.own,
            Some(tiers) => tiers.of(tier),
        }
    }

    /// The charge that remembers a request by its idempotency key; `None` if the request has none.
    pub(super) fn memory(&self, subject: &impl Subject, trial: Option<Trial>) -> Option<Charge> {
        let memory = self.idempotency.as_ref()?;
        let mut key = Encoded::new();
        if !subject.write_idempotency_key(&self.rules, &mut key) {
            return None;
        }
        let values = self.keys.encode(subject).ok()?;
        let charge = charge_on(self, self.keys.memory(&values, &key), 0, (memory.quota, memory.plan), trial);
        Some(Charge { cost: 1, count_denied: false, ..charge })
    }

    /// Whether its decision does not depend on the identity at all, so that it can be asked before authentication. A policy by
    /// tier depends on it, and so does one that recognises retries, or has months of the client's own.
    pub fn is_blind(&self) -> bool {
        self.tiers.is_none() && self.idempotency.is_none() && self.anchor_claim.is_none()
    }

    /// The penalty to check for a request whose first charge of this policy is `charge`; `None` if the policy has none.
    pub(super) fn penalty_check(&self, charge: &Charge) -> Option<PenaltyCheck> {
        let rule = self.penalty?;
        // The algorithm is taken out of the key, so that a change of it frees nobody from a penalty.
        let key = AlgorithmBits::of(charge.quota.algorithm()).applied(charge.key);
        let key = Key::new(key.bits() ^ PENALTY_KEY_BITS);
        let Charge { part, shadow, trial, .. } = *charge;
        Some(PenaltyCheck { key, rule, policy: self.id, part, shadow, trial, wait_ns: 0 })
    }

    /// Appends a charge for each window. Appends nothing if the policy does not apply: it has no window, its `matches` does not
    /// hold, the cost is 0, or a dimension is absent and the policy says to skip (a shadow policy skips instead of rejecting).
    /// Nor does it if the policy would apply and exempts the subject, which it returns.
    ///
    /// # Errors
    /// If the request is to be refused because it lacks a dimension.
    pub fn charge<'t>(
        &'t self,
        subject: &impl Subject,
        trial: Option<Trial>,
        out: &mut SmallVec<[Charge; 4]>,
    ) -> Result<bool, MissingDimension<'t>> {
        let shadow = self.is_shadow(trial);
        let range = self.windows_of(subject.tier());
        if range.is_empty() {
            return Ok(false);
        }
        let cost = subject.cost(&self.rules);
        if cost == 0 {
            return Ok(false);
        }
        if self.exemption(subject).is_some() {
            return Ok(true);
        }
        let values = match self.keys.encode(subject) {
            Ok(values) => values,
            Err(NoKey::Reject { dimension }) if !shadow => {
                return Err(MissingDimension { policy: self.id, dimension: &self.by[dimension] });
            }
            Err(_) => return Ok(false),
        };
        // Keys go by the place in the tier, so that a client whose tier changes keeps what it has used under the same
        // algorithm.
        let first = range.start;
        let day = anchor_of(self, subject);
        let charge = |key, window: &Window, number: usize| Charge {
            cost,
            ..charge_on(self, key, number, window.of_day(day), trial)
        };
        for (number, window) in self.windows[range].iter().enumerate() {
            let key = self.keys.key(number, &values);
            let key_of = |window: &Window| AlgorithmBits::of(window.quota.algorithm()).applied(key);
            out.push(charge(key_of(window), window, first + number));
            for (number, before) in self.before(window) {
                out.push(charge(key_of(before), before, number));
            }
        }
        Ok(false)
    }

    /// Whether it applies to a subject, by the first two conditions of [`Policy::charge`].
    pub(super) fn counts(&self, subject: &impl Subject) -> bool {
        !self.windows_of(subject.tier()).is_empty() && subject.cost(&self.rules) > 0
    }

    /// A charge of 0 units on each of its windows (of all tiers) for the key with these values, one for each of [`Policy::by`].
    /// `None` if their number differs, or a value for `ip` is not an address.
    pub fn look_at(&self, values: &[String]) -> Option<Vec<Charge>> {
        let encoded = self.keys.encode_written(values)?;
        let charge = |(number, window): (usize, &Window)| {
            let key = self.keys.key(self.place(number), &encoded);
            let key = AlgorithmBits::of(window.quota.algorithm()).applied(key);
            charge_on(self, key, number, (window.quota, window.plan), None)
        };
        Some(self.windows.iter().enumerate().map(charge).collect())
    }

    /// How a fleet shares one of its windows under this quota, which an override may have changed.
    pub fn sharing(&self, window: usize, quota: &Quota) -> Sharing {
        let (overshoot, when_down) = self.shared_as(window);
        Sharing::new(quota, overshoot, when_down)
    }

    /// How much more than one of its windows a fleet may admit, as a fraction of it, and what it does without Redis.
    pub(super) fn shared_as(&self, window: usize) -> (f64, WhenDown) {
        if let Some(outgoing) = self.windows.get(window).and_then(|window| window.outgoing.as_ref()) {
            return (outgoing.overshoot, outgoing.when_down);
        }
        let part = self.part_of(window);
        part.map_or((self.overshoot, self.when_down), |part| (part.overshoot, part.when_down))
    }

    /// How a fleet shares what is no window of a tier.
    pub(super) fn sharing_of_memory(&self, quota: &Quota) -> Sharing {
        Sharing::new(quota, self.overshoot, self.when_down)
    }

    pub fn origin_of(&self, window: usize) -> LimitOrigin {
        self.part_of(window).map_or(self.origin, |part| part.origin)
    }

    /// The limit of the first of the windows that apply together with this one.
    pub fn first_limit(&self, window: usize) -> NonZeroU64 {
        self.windows[self.begin_of(window)].quota.limit()
    }

    /// The item of `RateLimit-Policy` of a charge: its window's, or another if an override has changed its quota.
    pub fn item_of(&self, charge: &Charge, unix_seconds: u64) -> Cow<'_, str> {
        let window = &self.windows[usize::from(charge.window)];
        match charge.is_overridden || charge.quota.calendar().is_some() {
            false => Cow::Borrowed(&window.item),
            true => Cow::Owned(item(&window.label, &charge.quota, unix_seconds)),
        }
    }

    /// The limit that a window has in the policy itself, whatever a charge of it is held to.
    pub fn own_limit(&self, window: usize) -> u64 {
        self.windows[window].quota.limit().get()
    }

    pub fn tier_of(&self, window: usize) -> Option<&str> {
        self.part_of(window).map(|part| &*part.tier)
    }

    fn part_of(&self, window: usize) -> Option<&TierWindows> {
        let window = self.own_of(window);
        self.tiers.as_ref()?.parts.iter().find(|part| part.range.contains(&window))
    }

    /// The first of the windows that apply together with this one.
    fn begin_of(&self, window: usize) -> usize {
        self.part_of(window).map_or(0, |part| part.range.start)
    }

    /// The position of a window within its tier, which selects its key.
    pub(super) fn place(&self, window: usize) -> usize {
        self.own_of(window) - self.begin_of(window)
    }

    /// The values of the key of a request, one for each of [`Policy::by`]; empty if a dimension is absent. It allocates: for
    /// operators, not for traffic.
    pub fn counted_as(&self, subject: &impl Subject) -> Vec<DecodedValue> {
        let encoded = self.keys.encode(subject);
        encoded.map(|encoded| key::values(&encoded)).unwrap_or_default()
    }
}

/// Whether a label may have this character: it stands unescaped in a string of structured fields (RFC 9651, section 3.3.3).
pub fn is_of_label(char: char) -> bool {
    char == ' ' || char.is_ascii_graphic() && !matches!(char, '"' | '\\')
}

/// An item of `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11, section 3): a window's label with its quota. A
/// bucket's is what it holds and how long it fills: of `r` units left none is beyond the `q` that are said.
pub fn item(label: &str, quota: &Quota, unix_seconds: u64) -> String {
    let limit = quota.capacity().min(SF_INTEGER_MAX);
    // Whole seconds, rounded up so that a client that believes it never comes too early.
    let of_calendar = quota.calendar().map(|_| quota.period_at_ns(Duration::from_secs(unix_seconds)));
    let whole_ns = of_calendar.unwrap_or(quota.whole_ns());
    let seconds = whole_ns.div_ceil(1_000_000_000).min(SF_INTEGER_MAX);
    match quota.algorithm() {
        // A unit and no window, because what is in flight has no period (the quota units of the same draft).
        Algorithm::Concurrency => format!("\"{label}\";q={limit};qu=\"concurrent-requests\""),
        _ => format!("\"{label}\";q={limit};w={seconds}"),
    }
}

/// The largest integer of a structured field: 15 digits (RFC 9651, section 3.3.1).
pub const SF_INTEGER_MAX: u64 = 999_999_999_999_999;

/// Makes the key of a client's penalty record from that of its first window, so that the two have different slots. Any
/// number with bits all over would do.
const PENALTY_KEY_BITS: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
