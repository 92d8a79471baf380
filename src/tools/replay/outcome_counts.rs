//! What one configuration did with the requests of a log.

use super::minutes::Minutes;
use super::tally::{Distinct, HeavyHitters};
use limit::Key;
use policy::Policy;
use policy::definition::Dimension;

#[derive(Debug, Default)]
pub struct OutcomeCounts {
    pub requests: u64,
    pub admitted: u64,
    pub denied: u64,
    pub no_route: u64,
    /// Requests that are refused or answered before limits are asked: an address that a route does not admit, a path or a
    /// head that is refused, a body that says that it is too large, a redirect of the listener, a preflight.
    pub before_limits: u64,
    /// Requests of routes without a policy.
    pub unlimited: u64,
    /// Requests without an address; they count as one client.
    pub no_address: u64,
    pub minutes: Minutes,
    /// In the order of the table.
    pub policies: Vec<PolicyCounts>,
}

#[derive(Debug, Default)]
pub struct PolicyCounts {
    /// Requests that it admitted, whatever others said.
    pub admitted: u64,
    /// Requests that it refused because a window was over; of a shadow those that it would have refused.
    pub denied: u64,
    /// Requests that a penalty of it refused.
    pub penalised: u64,
    /// Requests that it refused because they lack a dimension.
    pub missing: u64,
    /// The keys that it counted.
    pub keys: Distinct,
    /// Those of them that it refused.
    pub keys_denied: Distinct,
    pub worst: HeavyHitters<Key>,
    /// By minute, of the requests that it decided.
    pub minutes: Minutes,
    /// Dimensions that lines may lack, with how many requests had no value for it.
    pub lacking: Vec<(Dimension, u64)>,
    /// Requests whose cost only the answer tells, and the log does not.
    pub unknown_costs: u64,
    /// Requests without a duration, that a window of those in flight counted for no time.
    pub no_duration: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    NoRoute,
    /// It does not come to limits.
    BeforeLimits,
    Unlimited,
    Admitted,
    Denied,
}

impl Outcome {
    pub fn is_denied(self) -> bool {
        self == Outcome::Denied
    }
}

impl OutcomeCounts {
    pub fn new(policies: &[Policy]) -> OutcomeCounts {
        let policies = policies.iter().map(PolicyCounts::new).collect();
        OutcomeCounts { policies, ..OutcomeCounts::default() }
    }

    /// Counts a request that began at this time, nanoseconds since 1970.
    pub fn add(&mut self, outcome: Outcome, began_ns: u64) {
        self.requests += 1;
        let count = match outcome {
            Outcome::NoRoute => &mut self.no_route,
            Outcome::BeforeLimits => &mut self.before_limits,
            Outcome::Unlimited => &mut self.unlimited,
            Outcome::Admitted => &mut self.admitted,
            Outcome::Denied => &mut self.denied,
        };
        *count += 1;
        self.minutes.add(began_ns, outcome.is_denied());
    }
}

impl PolicyCounts {
    fn new(policy: &Policy) -> PolicyCounts {
        let may_lack = |by: &&Dimension| {
            !matches!(by, Dimension::Route | Dimension::Method | Dimension::Param(_) | Dimension::Entry(_))
        };
        let lacking = policy.by.iter().filter(may_lack).map(|by| (by.clone(), 0)).collect();
        PolicyCounts { lacking, ..PolicyCounts::default() }
    }
}
