//! [`Provenance`]: who decided a window of a decision that was made, and how old what it knew of Redis was. For operators:
//! it looks again, a moment later, at what the decision was made from.

use crate::decision::{Decision, RemoteDecider};
use crate::inspection::Inspection;
use crate::shared_limits::SharedLimits;
use limit::{Answer, Charge, Plan};

/// Who decided one window, and by how old a word of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// `local`: this node, which counts alone, or by a penalty that it remembers. `hot`: this node, which counts a hot key
    /// alone. `lease`: this node, of units that Redis lent it. `redis`: it was asked. `remembered`: this node, by what Redis
    /// said of a window that it lends nothing of. `fallback`: this node, without Redis. `unasked`: nobody asked Redis,
    /// because another window had refused the request, or this one never admits it.
    pub by: &'static str,
    /// How long ago Redis was last heard of this window, nanoseconds; 0 if it was asked. `None`: never, or it is not shared.
    pub age_ns: Option<u64>,
}

impl Inspection<'_> {
    /// Who decided the charge of this index of a decision.
    pub fn provenance(
        &self,
        decision: &Decision,
        (index, charge): (usize, &Charge),
        now_ns: u64,
    ) -> Provenance {
        let is_penalised = decision.elsewhere(index) == Some(RemoteDecider::Penalty);
        let Some((shared, plan)) = self.limiter.shared(charge).filter(|_| !is_penalised) else {
            let by = if self.is_hot(charge) { "hot" } else { "local" };
            return Provenance { by, age_ns: None };
        };
        let is_exact = plan.sharing.is_exact();
        let age_ns = shared.leases.table.heard_ago_ns(charge, is_exact, now_ns);
        let answer = decision.outcomes[index].answer();
        let is_unheard = age_ns.is_none();
        let by = match decision.elsewhere(index) {
            Some(RemoteDecider::Redis) => return Provenance { by: "redis", age_ns: Some(0) },
            Some(RemoteDecider::Fallback) => "fallback",
            Some(RemoteDecider::Nobody) if is_counted_here(shared, &plan, (charge, answer), now_ns) => {
                "fallback"
            }
            // It never holds so much.
            _ if answer == Answer::Never => "unasked",
            Some(RemoteDecider::Nobody) if is_unheard => "unasked",
            _ if !is_exact => "lease",
            _ if answer == Answer::Admitted || is_unheard => "unasked",
            _ => "remembered",
        };
        Provenance { by, age_ns }
    }
}

/// Whether what was said of a charge that nobody decided is from this node's own count, because Redis is away.
fn is_counted_here(
    shared: &SharedLimits,
    plan: &Plan,
    (charge, answer): (&Charge, Answer),
    now_ns: u64,
) -> bool {
    let leases = &shared.leases.table;
    if plan.sharing.is_exact() {
        // What Redis said before may refuse it, whatever its own count says.
        let is_heard = || leases.known_wait_ns(charge, now_ns).is_some();
        return shared.fleet.fallback_share(charge).is_some() && (answer == Answer::Admitted || !is_heard());
    }
    leases.peek(charge.key).is_some_and(|(_, share)| share.is_fallback())
}
