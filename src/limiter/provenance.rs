//! [`Provenance`]: who decided a window of a decision that was made, and how old what it knew of Redis was. For operators:
//! it looks again, a moment later, at what the decision was made from.

use super::Limiter;
use crate::limit::Charge;
use crate::metrics::Tier;

/// Who decided one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// `local`: this node, which counts alone. `lease`: this node, of units that Redis lent it. `redis`. `remembered`: this
    /// node, by what Redis said of a window without leases. `fallback`: this node, without Redis.
    pub by: &'static str,
    /// How long ago Redis was last heard of this window, nanoseconds. `None`: never, or it is not shared.
    pub age_ns: Option<u64>,
}

impl Limiter {
    /// Who decided this charge of a decision of this tier.
    pub fn provenance(&self, charge: &Charge, tier: Tier, now_ns: u64) -> Provenance {
        let shared = self.fleet.as_ref().and_then(|fleet| Some((fleet, fleet.plans.get(charge.plan)?)));
        let Some((fleet, plan)) = shared else { return Provenance { by: "local", age_ns: None } };
        let is_exact = plan.sharing.is_exact();
        let heard = fleet.shares.peek(charge.key);
        let lease = heard.map(|(_, words)| crate::limit::Lease::from_words(words));
        let age_ns = lease.and_then(|lease| lease.age_ns(is_exact, now_ns));
        let holds_lease = || fleet.view(charge.key, now_ns).is_some_and(|view| view.has_lease);
        let by = match tier {
            Tier::Global => "redis",
            // Another window of the request may be the one without Redis.
            Tier::Fallback if is_exact || !holds_lease() => "fallback",
            _ if is_exact => "remembered",
            _ => "lease",
        };
        Provenance { by, age_ns }
    }
}
