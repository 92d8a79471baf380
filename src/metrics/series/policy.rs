//! Decisions of one policy: how they came out, and who made them.

use std::fmt;
use std::sync::Arc;

use crate::metrics::cells::{Cells, Worker};
use crate::metrics::text::Families;

/// Decisions of one policy.
#[derive(Debug)]
pub struct Policy(Cells<{ Decision::ALL.len() + Tier::ALL.len() }>);

/// Who decided a request for a policy, the nearest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// This node, by its own table or a lease.
    #[default]
    Local,
    /// Redis.
    Global,
    /// This node, because Redis did not answer.
    Fallback,
}

impl Tier {
    pub(in crate::metrics) const ALL: [Tier; 3] = [Tier::Local, Tier::Global, Tier::Fallback];

    /// As metrics, logs and problems have it.
    pub fn label(self) -> &'static str {
        match self {
            Tier::Local => "local",
            Tier::Global => "global",
            Tier::Fallback => "fallback",
        }
    }
}

/// What a policy decided of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Every window admitted it.
    Admitted,
    /// A window was over: the request was refused.
    Denied,
    /// A window was over, but the policy is in shadow: the request passed.
    ShadowDenied,
    /// A dimension of the key was absent, and the policy refuses that.
    MissingRejected,
    /// A penalty denied the request, because the client did not wait when it was told to.
    Penalised,
    /// A penalty would have denied it, but the policy is in shadow.
    ShadowPenalised,
}

impl Decision {
    pub(in crate::metrics) const ALL: [Decision; 6] = [
        Decision::Admitted,
        Decision::Denied,
        Decision::ShadowDenied,
        Decision::MissingRejected,
        Decision::Penalised,
        Decision::ShadowPenalised,
    ];

    pub(in crate::metrics) fn label(self) -> &'static str {
        match self {
            Decision::Admitted => "admitted",
            Decision::Denied => "denied",
            Decision::ShadowDenied => "shadow-denied",
            Decision::MissingRejected => "missing-rejected",
            Decision::Penalised => "penalised",
            Decision::ShadowPenalised => "shadow-penalised",
        }
    }
}

impl Policy {
    pub(in crate::metrics) fn new(workers: usize) -> Policy {
        Policy(Cells::new(workers))
    }

    /// The policy decided.
    pub fn decided(&self, worker: &Worker, decision: Decision) {
        self.0.count(worker, decision as usize);
    }

    /// It was decided there.
    pub fn decided_by(&self, worker: &Worker, tier: Tier) {
        self.0.count(worker, Decision::ALL.len() + tier as usize);
    }

    pub(in crate::metrics) fn decisions(&self, decision: Decision) -> u64 {
        self.0.total(decision as usize)
    }

    pub(in crate::metrics) fn decisions_by(&self, tier: Tier) -> u64 {
        self.0.total(Decision::ALL.len() + tier as usize)
    }
}

/// The families of policies.
pub(in crate::metrics) fn families(
    policies: &[(Box<str>, Arc<Policy>)],
    families: &mut Families<'_>,
) -> fmt::Result {
    families.counters(
        "decisions",
        "What each policy decided",
        None,
        policies.iter().flat_map(|(name, policy)| {
            Decision::ALL.map(|decision| {
                ([("policy", &**name), ("outcome", decision.label())], policy.decisions(decision))
            })
        }),
    )?;
    families.counters(
        "decisions_by",
        "Where each policy's decisions were made",
        None,
        policies.iter().flat_map(|(name, policy)| {
            Tier::ALL.map(|tier| ([("policy", &**name), ("tier", tier.label())], policy.decisions_by(tier)))
        }),
    )
}
