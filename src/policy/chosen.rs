//! The policies that decide about one subject, and what they ask of the limiter for it.

use std::net::IpAddr;

use smallvec::SmallVec;

use super::counting::{MissingDimension, Policy};
use super::subject::Subject;
use crate::limit::{Charge, Conduct, PolicyId};

/// Some policies of a table, in the order in which they are charged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chosen<'t> {
    /// All policies of the table.
    pub(super) policies: &'t [Policy],
    /// Indices of those that decide.
    pub(super) indices: &'t [PolicyId],
    /// Whether one of them recognises retries.
    pub(super) remembers: bool,
    /// Whether one of them penalises clients.
    pub(super) penalises: bool,
}

impl<'t> Chosen<'t> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// The policy of a charge.
    pub fn policy_of(&self, charge: &Charge) -> &'t Policy {
        &self.policies[charge.policy.index()]
    }

    /// The address that counts as one client: policies of one table cut it alike.
    pub fn client_of(&self, subject: &impl Subject) -> IpAddr {
        let address = subject.address();
        self.policies.first().map_or(address, |policy| policy.keys.client(address))
    }

    /// Appends what a subject is charged: every window of every policy that applies.
    ///
    /// # Errors
    /// If a policy refuses a subject without one of its dimensions; nothing is appended then.
    pub fn charges(
        &self,
        subject: &impl Subject,
        out: &mut SmallVec<[Charge; 4]>,
    ) -> Result<(), MissingDimension<'t>> {
        let before = out.len();
        for &index in self.indices {
            if let Err(missing) = self.policies[index.index()].charge(subject, out) {
                out.truncate(before);
                return Err(missing);
            }
        }
        Ok(())
    }

    /// The charges that remember a subject in those policies that recognise retries, if it has a key. They are spent
    /// beside the others; one that is spent already marks a retry of its policy.
    pub fn memories(&self, subject: &impl Subject) -> SmallVec<[Charge; 1]> {
        if !self.remembers {
            return SmallVec::new();
        }
        self.indices.iter().filter_map(|index| self.policies[index.index()].memory(subject)).collect()
    }

    /// Whose penalties the policies of these charges keep; the charges as [`Chosen::charges`] appended them.
    pub fn conducts(&self, charges: &[Charge]) -> SmallVec<[Conduct; 1]> {
        if !self.penalises {
            return SmallVec::new();
        }
        // A policy's charges stand together, its first window's first.
        let firsts = charges.iter().enumerate().filter(|(index, charge)| {
            index.checked_sub(1).is_none_or(|before| charges[before].policy != charge.policy)
        });
        firsts.filter_map(|(_, charge)| self.policy_of(charge).conduct(charge)).collect()
    }
}
