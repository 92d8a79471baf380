//! The policies that decide about one subject, and the charges they make of it for the limiter.

use std::net::IpAddr;

use smallvec::SmallVec;

use crate::counting::exempt::ExemptEntry;
use crate::counting::{MissingDimension, Policy};
use crate::keys::subject::Subject;
use limit::{Charge, PenaltyCheck, PolicyId, Trial};

/// Some policies of a table, in the order in which they are charged.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicySelection<'t> {
    pub(crate) policies: &'t [Policy],
    /// Indices of those that decide.
    pub(crate) indices: &'t [PolicyId],
    pub(crate) remembers: bool,
    pub(crate) penalises: bool,
    /// Whether one of them has a candidate, or counts by two algorithms, which are compared.
    pub tries: bool,
}

/// The policies that exempt a subject, in the order in which they are asked.
pub type ExemptingPolicies = SmallVec<[PolicyId; 2]>;

impl<'t> PolicySelection<'t> {
    /// The policies that would count a subject, and exempt it, each with the entry that it matches.
    pub fn exemptions(&self, subject: &impl Subject) -> impl Iterator<Item = (&'t Policy, ExemptEntry<'t>)> {
        self.counting(subject).filter_map(move |policy| Some((policy, policy.exemption(subject)?)))
    }

    /// The policies that would count a subject if they did not exempt it.
    pub fn counting(&self, subject: &impl Subject) -> impl Iterator<Item = &'t Policy> {
        self.asked(subject, 0).map(|(policy, _)| policy).filter(move |policy| policy.counts(subject))
    }

    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    pub fn first(&self) -> Option<&'t Policy> {
        Some(&self.policies[self.indices.first()?.index()])
    }

    pub fn policy_of(&self, charge: &Charge) -> &'t Policy {
        &self.policies[charge.policy.index()]
    }

    /// The address that counts as one client, by the first policy, because policies of one table cut it alike.
    pub fn client_of(&self, subject: &impl Subject) -> IpAddr {
        let address = subject.address();
        self.policies.first().map_or(address, |policy| policy.keys.client(address))
    }

    /// Appends what a subject is charged: every window of every policy that applies. Returns the policies that would apply
    /// and exempt it; [`PolicySelection::exemptions`] says why.
    ///
    /// # Errors
    /// If a policy refuses a subject without one of its dimensions; nothing is appended then.
    pub fn charges(
        &self,
        subject: &impl Subject,
        out: &mut SmallVec<[Charge; 4]>,
    ) -> Result<ExemptingPolicies, MissingDimension<'t>> {
        let before = out.len();
        let charged = match self.tries {
            false => {
                let asked = self.indices.iter().map(|index| (&self.policies[index.index()], None));
                charge_all(asked, subject, out)
            }
            true => charge_all(self.asked(subject, 0), subject, out),
        };
        if charged.is_err() {
            // Taken back, so that a policy before the one that refuses charges nothing.
            out.truncate(before);
        }
        charged
    }

    /// The same for one of several subjects that are decided together. `trials` is how many trials the subjects before it
    /// take part in.
    ///
    /// # Errors
    /// If a policy refuses a subject without one of its dimensions.
    pub fn charges_beside(
        &self,
        subject: &impl Subject,
        trials: &mut usize,
        out: &mut SmallVec<[Charge; 4]>,
    ) -> Result<ExemptingPolicies, MissingDimension<'t>> {
        if !self.tries {
            return self.charges(subject, out);
        }
        let asked = self.asked(subject, *trials);
        *trials += self.indices.iter().filter(|index| self.policies[index.index()].tried.is_some()).count();
        charge_all(asked, subject, out)
    }

    /// What decides about several subjects together; each has policies of its own.
    pub fn together(parts: impl Iterator<Item = PolicySelection<'t>>) -> PolicySelection<'t> {
        parts.fold(PolicySelection::default(), |all, part| PolicySelection {
            policies: part.policies,
            indices: &[],
            remembers: false,
            penalises: all.penalises || part.penalises,
            tries: all.tries || part.tries,
        })
    }

    /// The policies with their candidates, and which of the two decides about this subject. Beyond [`Trial::MAX`] trials of
    /// one decision, which `trials` counts, only the policy that decides is asked.
    pub(super) fn asked(
        &self,
        subject: &impl Subject,
        mut trials: usize,
    ) -> impl Iterator<Item = (&'t Policy, Option<Trial>)> {
        let sides = self.indices.iter().map(move |index| {
            let policy = &self.policies[index.index()];
            let Some(candidate) = policy.tried else { return [Some((policy, None)), None] };
            trials += 1;
            let [decides, compared] = policy.sides(&self.policies[candidate.index()], trials - 1, subject);
            if trials > Trial::MAX { [Some(decides), None] } else { [Some(decides), Some(compared)] }
        });
        sides.flatten().flatten()
    }

    /// For each policy with an idempotency key, the charge that remembers this subject's key. They are spent beside the others.
    /// If one is spent already, the subject is a retry for that policy.
    pub fn memories(&self, subject: &impl Subject) -> SmallVec<[Charge; 1]> {
        if !self.remembers {
            return SmallVec::new();
        }
        self.asked(subject, 0).filter_map(|(policy, trial)| policy.memory(subject, trial)).collect()
    }

    /// Whose penalties the policies of these charges keep; the charges as [`PolicySelection::charges`] appended them.
    pub fn penalty_checks(&self, charges: &[Charge]) -> SmallVec<[PenaltyCheck; 1]> {
        if !self.penalises {
            return SmallVec::new();
        }
        // Only the first charge of a policy is looked at, because its charges are adjacent, and the first window's
        // comes first.
        let firsts = charges.iter().enumerate().filter(|(index, charge)| {
            index.checked_sub(1).is_none_or(|before| !charges[before].is_beside(charge))
        });
        firsts.filter_map(|(_, charge)| self.policy_of(charge).penalty_check(charge)).collect()
    }
}

/// Appends the charges of policies and candidates. Returns those that exempt the subject.
fn charge_all<'t>(
    asked: impl Iterator<Item = (&'t Policy, Option<Trial>)>,
    subject: &impl Subject,
    out: &mut SmallVec<[Charge; 4]>,
) -> Result<ExemptingPolicies, MissingDimension<'t>> {
    let mut exempting = ExemptingPolicies::new();
    for (policy, trial) in asked {
        if policy.charge(subject, trial, out)? {
            exempting.push(policy.id);
        }
    }
    Ok(exempting)
}
