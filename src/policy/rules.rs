//! The rules of a policy about a request: whether it counts, what it costs, and where its idempotency key is.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::method::{Fit, Methods};
use super::pattern::Pattern;
use super::request::Facts;

/// What a policy reads of a subject beside its dimensions.
#[derive(Clone, Debug)]
pub struct Rules {
    pub(super) matches: Matches,
    pub(super) cost: Cost,
    /// The field that carries an idempotency key.
    pub(super) idempotency: Option<HeaderName>,
}

/// Which requests a policy counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Matches {
    pub methods: Methods,
    pub path: Option<Pattern>,
}

/// What a request costs.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    pub default: u64,
    /// The most specific path first; of one path a method listed before any.
    pub rules: Box<[CostRule]>,
    pub header: Option<HeaderName>,
    pub response_header: Option<HeaderName>,
    pub max: u64,
}

/// The cost of some requests.
#[derive(Clone, Debug)]
pub(super) struct CostRule {
    pub methods: Methods,
    pub path: Pattern,
    pub units: u64,
}

impl Rules {
    /// Units that a request costs; 0: the policy does not count it.
    pub(super) fn cost_of(&self, facts: &Facts<'_, '_>) -> u64 {
        if self.matches.holds(facts) { self.cost.of(facts) } else { 0 }
    }

    /// The request's idempotency key.
    pub(super) fn idempotency_key_of<'h>(&self, facts: &Facts<'_, 'h>) -> Option<&'h [u8]> {
        let key = only_value(facts.headers, self.idempotency.as_ref()?)?;
        Some(key.as_bytes()).filter(|key| !key.is_empty())
    }

    /// The cost that an answer tells; `None` if it tells none, or the policy does not read it.
    pub(super) fn cost_in(&self, answer: &HeaderMap) -> Option<u64> {
        read_cost(answer, self.cost.response_header.as_ref()?, self.cost.max)
    }
}

impl Matches {
    fn holds(&self, facts: &Facts<'_, '_>) -> bool {
        self.methods.fit(facts.method).is_some()
            && self.path.as_ref().is_none_or(|path| path.matches(facts.path))
    }
}

impl Cost {
    /// Units of a request: from the field of a trusted hop, else by the rules.
    fn of(&self, facts: &Facts<'_, '_>) -> u64 {
        let said = self.header.as_ref().filter(|_| facts.trusted_peer);
        said.and_then(|header| read_cost(facts.headers, header, self.max))
            .unwrap_or_else(|| self.by_rule(facts.method, facts.path))
    }

    /// Of the rules with the most specific path that fit, the one that names the method best.
    fn by_rule(&self, method: &Method, path: &str) -> u64 {
        let mut best: Option<(&CostRule, Fit)> = None;
        for rule in &self.rules {
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

/// A field that is one whole number, cut to `max`. Several fields, or anything else, are ignored.
fn read_cost(headers: &HeaderMap, name: &HeaderName, max: u64) -> Option<u64> {
    let digits = only_value(headers, name)?.as_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let units =
        digits.iter().fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some(units.min(max))
}

/// The value of a field that came once.
fn only_value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then_some(value)
}
