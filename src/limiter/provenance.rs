//! [`Provenance`]: who decided a window of a decision that was made, and how old what it knew of Redis was. For operators:
//! it looks again, a moment later, at what the decision was made from.

use super::{Decision, Elsewhere, Limiter};
use crate::limit::{Answer, Charge, Lease};

/// Who decided one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// `local`: this node, which counts alone. `lease`: this node, of units that Redis lent it. `redis`: it was asked.
    /// `remembered`: this node, by what Redis said of a window that it lends nothing of. `fallback`: this node, without
    /// Redis. `unasked`: nobody asked Redis, because another window had refused the request, or this one never admits it.
    pub by: &'static str,
    /// How long ago Redis was last heard of this window, nanoseconds; 0 if it was asked. `None`: never, or it is not shared.
    pub age_ns: Option<u64>,
}

impl Limiter {
    /// Who decided the charge of this index of a decision.
    pub fn provenance(
        &self,
        decision: &Decision,
        (index, charge): (usize, &Charge),
        now_ns: u64,
    ) -> Provenance {
        let shared = self.fleet.as_ref().and_then(|fleet| Some((fleet, fleet.plans.get(charge.plan)?)));
        let Some((fleet, plan)) = shared else { return Provenance { by: "local", age_ns: None } };
        let is_exact = plan.sharing.is_exact();
        let heard = fleet.shares.peek(charge.key);
        let age_ns = heard.and_then(|(_, words)| Lease::from_words(words).age_ns(is_exact, now_ns));
        let by = match decision.elsewhere(index) {
            Some(Elsewhere::Redis) => return Provenance { by: "redis", age_ns: Some(0) },
            Some(Elsewhere::Fallback) => "fallback",
            None | Some(Elsewhere::Nobody) if !is_exact => "lease",
            // Refused by what is known of it, unless it never holds so much.
            None | Some(Elsewhere::Nobody) => match decision.outcomes[index].answer() {
                Answer::Later { .. } => "remembered",
                Answer::Admitted | Answer::Never => "unasked",
            },
        };
        Provenance { by, age_ns }
    }
}
