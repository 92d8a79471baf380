//! Decisions of one policy: how they came out, and who made them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cells::{Cells, WorkerToken};
use crate::families::{Families, LabelledSeries};

#[derive(Debug)]
pub struct PolicySeries {
    cells: Cells<{ COMPARISONS_FIRST + Comparison::ALL.len() }>,
    /// Whether it is compared with another, or ever was: its comparisons are shown.
    is_compared: AtomicBool,
}

words! {
    /// What became of a cost that is known only when its request has been answered.
    pub enum CostOutcome {
        /// The answer said it, or it was measured.
        Known: "known",
        /// The answer was whole and did not say it: the estimate stays.
        Absent: "absent",
        /// The answer broke off, its client left, or none came: the estimate stays.
        Cut: "cut",
        /// The answer was in a coding that is not read: the estimate stays.
        Encoded: "encoded",
        /// The upstream answered with an error that said none, or was never asked: nothing is charged.
        Waived: "waived",
    }
}

words! {
    /// Who decided a request for a policy, the nearest first.
    #[derive(Default, PartialOrd, Ord)]
    pub enum DecidingTier {
        /// This node, by its own table or a lease.
        #[default]
        Local: "local",
        Global: "global",
        /// This node, because Redis did not answer.
        Fallback: "fallback",
    }
}

words! {
    /// What a policy decided of a request.
    pub enum PolicyDecision {
        Admitted: "admitted",
        /// A window was over: the request was refused.
        Denied: "denied",
        /// A window was over, but the policy is in shadow: the request passed.
        ShadowDenied: "shadow-denied",
        /// A dimension of the key was absent, and the policy refuses that.
        MissingRejected: "missing-rejected",
        /// A penalty denied the request, because the client did not wait when it was told to.
        Penalised: "penalised",
        /// A penalty would have denied it, but the policy is in shadow.
        ShadowPenalised: "shadow-penalised",
        /// The policy exempts the client: nothing was charged.
        Exempt: "exempt",
    }
}

words! {
    /// How a candidate compares with the policy that it is to replace, or an algorithm with that of before, of one request.
    pub enum Comparison {
        /// Both would admit it, or both would deny it.
        Agreed: "agreed",
        /// The policy in force (or the algorithm of before) would deny it, the candidate (or the algorithm of now) would not.
        OnlyOldDenies: "only-old-denies",
        OnlyNewDenies: "only-new-denies",
    }
}

impl Comparison {
    /// Of whether each of them would deny it.
    pub fn of(old_denies: bool, new_denies: bool) -> Comparison {
        match (old_denies, new_denies) {
            (true, false) => Comparison::OnlyOldDenies,
            (false, true) => Comparison::OnlyNewDenies,
            (true, true) | (false, false) => Comparison::Agreed,
        }
    }
}

impl PolicySeries {
    pub(crate) fn new(workers: usize) -> PolicySeries {
        PolicySeries { cells: Cells::new(workers), is_compared: AtomicBool::new(false) }
    }

    pub fn decided(&self, worker: &WorkerToken, decision: PolicyDecision) {
        self.cells.count(worker, decision as usize);
    }

    pub fn decided_by(&self, worker: &WorkerToken, tier: DecidingTier) {
        self.cells.count(worker, PolicyDecision::ALL.len() + tier as usize);
    }

    /// From now on it is compared with the policy that it is to replace.
    pub fn expect_comparisons(&self) {
        self.is_compared.store(true, Ordering::Relaxed);
    }

    /// It was compared with the policy that it is to replace.
    pub fn compared(&self, worker: &WorkerToken, comparison: Comparison) {
        self.cells.count(worker, COMPARISONS_FIRST + comparison as usize);
    }

    /// A request whose cost was to be known later is over.
    pub fn reconciled(&self, worker: &WorkerToken, cost: CostOutcome) {
        self.cells.count(worker, COSTS_FIRST + cost as usize);
    }

    pub(crate) fn costs(&self, cost: CostOutcome) -> u64 {
        self.cells.total(COSTS_FIRST + cost as usize)
    }

    pub(crate) fn decisions(&self, decision: PolicyDecision) -> u64 {
        self.cells.total(decision as usize)
    }

    /// How many decisions it has made about keys.
    pub fn decided_ever(&self) -> u64 {
        let about_keys =
            PolicyDecision::ALL.into_iter().filter(|decision| *decision != PolicyDecision::MissingRejected);
        about_keys.map(|decision| self.decisions(decision)).fold(0, u64::wrapping_add)
    }
}

pub(crate) fn families(
    policies: &[LabelledSeries<PolicySeries>],
    families: &mut Families<'_>,
) -> fmt::Result {
    families.counters_of_each(
        ("decisions", "Decisions of each policy, by outcome"),
        ["policy", "outcome"],
        policies,
        |policy| PolicyDecision::ALL.map(|decision| (decision.word(), policy.decisions(decision))),
    )?;
    let count = |policy: &PolicySeries, slot| policy.cells.total(slot);
    families.counters_of_each(
        ("comparisons", "Comparisons of each candidate or changed algorithm with what it replaces"),
        ["policy", "outcome"],
        policies.iter().filter(|(_, policy)| policy.is_compared.load(Ordering::Relaxed)),
        |it| Comparison::ALL.map(|one| (one.word(), count(it, COMPARISONS_FIRST + one as usize))),
    )?;
    families.counters_of_each(
        ("decisions_by", "Decisions of each policy, by where they were made"),
        ["policy", "tier"],
        policies,
        |it| {
            DecidingTier::ALL.map(|tier| (tier.word(), count(it, PolicyDecision::ALL.len() + tier as usize)))
        },
    )?;
    // The others have no series of them, because few policies have costs that are known later.
    let has_costs = |policy: &PolicySeries| CostOutcome::ALL.iter().any(|cost| policy.costs(*cost) > 0);
    families.counters_of_each(
        ("costs", "Costs that are known only from the response, by outcome"),
        ["policy", "outcome"],
        policies.iter().filter(|(_, policy)| has_costs(policy)),
        |policy| CostOutcome::ALL.map(|cost| (cost.word(), policy.costs(cost))),
    )
}

/// Behind the slots of decisions.
const COSTS_FIRST: usize = PolicyDecision::ALL.len() + DecidingTier::ALL.len();
const COMPARISONS_FIRST: usize = COSTS_FIRST + CostOutcome::ALL.len();
