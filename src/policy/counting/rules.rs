//! The rules of a policy about a request: whether it counts, what it costs, and where its idempotency key is.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::definition::{Actual, MeasuredUnits};
use crate::json::{self, JsonPath};
use crate::keys::subject::Encoded;
use crate::matching::method::{Fit, Methods};
use crate::matching::pattern::Pattern;
use crate::request::RoutingFacts;
use limit::Quota;

/// What a policy reads of a subject beside its dimensions.
#[derive(Clone, Debug)]
pub struct PolicyRules {
    pub(crate) matches: PolicyMatches,
    pub(crate) cost: CostRules,
    pub(crate) idempotency: Option<HeaderName>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyMatches {
    pub methods: Methods,
    pub path: Option<Pattern>,
}

#[derive(Clone, Debug)]
pub(crate) struct CostRules {
    pub default: u64,
    /// The most specific path first; of one path a method listed before any.
    pub rules: Box<[CostRule]>,
    pub header: Option<HeaderName>,
    pub estimate: Box<[JsonPath]>,
    pub actual: Option<Actual>,
    /// The most that a field may say: as written, or what the smallest window of all tiers holds.
    pub max: u64,
    pub has_max: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct CostRule {
    pub methods: Methods,
    pub path: Pattern,
    pub units: u64,
}

impl PolicyRules {
    /// Units that a request costs; 0: the policy does not count it.
    pub(crate) fn cost_of(&self, facts: &RoutingFacts<'_, '_>) -> u64 {
        if self.matches.holds(facts) { self.cost.of(facts) } else { 0 }
    }

    /// Appends the request's idempotency key with what it stands for: one method, one path and one consumer. `false`: it has
    /// none.
    pub(crate) fn write_idempotency_key(&self, facts: &RoutingFacts<'_, '_>, out: &mut Encoded) -> bool {
        let header = self.idempotency.as_ref();
        let key = header.and_then(|header| only_value(facts.headers, header)).map(HeaderValue::as_bytes);
        let Some(key) = key.filter(|key| !key.is_empty()) else { return false };
        let consumer = facts.identity.consumer.as_deref().unwrap_or_default();
        // With their lengths, so that no part of one can pass for another's.
        for part in [facts.method.as_str().as_bytes(), facts.path.as_bytes(), consumer.as_bytes(), key] {
            out.extend_from_slice(&(part.len() as u64).to_le_bytes());
            out.extend_from_slice(part);
        }
        true
    }

    /// The cost that the head of an answer tells; `None` if it tells none, or the policy does not read it.
    pub(crate) fn cost_in(&self, answer: &HeaderMap) -> Option<u64> {
        let Some(Actual::ResponseHeader(name)) = &self.cost.actual else { return None };
        read_cost(answer, name, u64::MAX)
    }

    /// A cost that is known later, cut to the most that it may be for a window: what is written as the maximum, or
    /// what this window holds, because that is one of the client's own tier.
    pub(crate) fn cost_cut(&self, units: u64, quota: &Quota) -> u64 {
        units.min(if self.cost.has_max { self.cost.max } else { quota.capacity() })
    }
}

impl PolicyMatches {
    fn holds(&self, facts: &RoutingFacts<'_, '_>) -> bool {
        self.methods.fit(facts.method).is_some()
            && self.path.as_ref().is_none_or(|path| path.matches(facts.path))
    }
}

impl CostRules {
    /// Units of a request: from the field of a trusted hop, else by the rules, else from its body. What a rule leaves
    /// uncounted stays so.
    fn of(&self, facts: &RoutingFacts<'_, '_>) -> u64 {
        let said = self.header.as_ref().filter(|_| facts.trusted_peer);
        if let Some(units) = said.and_then(|header| read_cost(facts.headers, header, self.max)) {
            return units;
        }
        match self.by_rule(facts.method, facts.path) {
            0 => 0,
            units => self.estimated(facts.body).unwrap_or(units),
        }
    }

    /// What the request's body says. At least a unit, because what costs nothing is not counted and its cost never known.
    fn estimated(&self, body: Option<&json::JsonFields>) -> Option<u64> {
        let body = body?;
        let units = self.estimate.iter().find_map(|path| body.get(path)?.units)?;
        Some(units.clamp(1, self.max.max(1)))
    }

    /// Of the rules with the most specific path that fit, the one that names the method best.
    fn by_rule(&self, method: &Method, path: &str) -> u64 {
        let mut best: Option<(&CostRule, Fit)> = None;
        for rule in &self.rules {
            // The paths are sorted, so that nothing behind the best one can be as specific.
            if best.is_some_and(|(known, _)| known.path.cmp_specific(&rule.path).is_ne()) {
                break;
            }
            if let Some(fit) = rule.methods.fit(method)
                && best.is_none_or(|(_, known)| fit > known)
                && rule.path.matches(path)
            {
                best = Some((rule, fit));
            }
        }
        best.map_or(self.default, |(rule, _)| rule.units)
    }
}

impl MeasuredUnits {
    /// Units of a request that brought and got so many bytes and took so long.
    pub fn units(&self, request_bytes: u64, response_bytes: u64, nanos: u64) -> u64 {
        let bytes = |unit: Option<std::num::NonZeroU64>, bytes: u64| {
            unit.map_or(0, |unit| bytes.div_ceil(unit.get()))
        };
        let time = self.response_time.map_or(0, |unit| {
            let unit = u64::try_from(unit.as_nanos()).unwrap_or(u64::MAX).max(1);
            nanos.div_ceil(unit)
        });
        let sum = bytes(self.request_bytes, request_bytes)
            .saturating_add(bytes(self.response_bytes, response_bytes));
        sum.saturating_add(time)
    }
}

/// A field that is one whole number, cut to `max`. Several fields, or anything else, are ignored.
fn read_cost(headers: &HeaderMap, name: &HeaderName, max: u64) -> Option<u64> {
    let digits = only_value(headers, name)?.as_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // A number too long for 64 bits is cut like any other that is too large.
    Some(std::str::from_utf8(digits).ok()?.parse().unwrap_or(u64::MAX).min(max))
}

/// The value of a field that came once; otherwise none, because two could say different things.
fn only_value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then_some(value)
}
