//! Penalties: refuses clients that have one before any charge is decided, and records denials after one.
//!
//! Each node decides by its own table. The nodes of a fleet tell each other of denials and penalties afterwards
//! (`fleet_penalties.rs`).

use crate::Limiter;
use crate::check::Check;
use crate::decision::{Decision, RemoteDecider};
use crate::local::Table;
use limit::{Algorithm, Answer, Charge, Outcome, PenaltyCheck, TrialSet};

impl Check<'_> {
    /// Refuses a client that has a penalty: fills `decision` and returns true, and nothing is charged. The request
    /// counts as one more denial, so that a client that keeps asking prolongs its penalty; but not by what only `looks`.
    ///
    /// In a trial of two policies the penalty of one does not keep the other from being charged. Then it returns false, and
    /// `decision` says which charges are kept out.
    pub(crate) fn keep_out(&mut self, limiter: &Limiter) -> bool {
        let Check { charges, penalties, looks, decision, begun_ns: now_ns, .. } = self;
        let mut kept_out = TrialSet::NONE;
        for penalty in penalties.iter_mut() {
            let told_ns = limiter.table.penalty_ns(penalty.key, *now_ns);
            if told_ns > 0 {
                penalty.wait_ns = match looks.contains(&penalty.part) {
                    true => told_ns,
                    false => note_denial(limiter, penalty, told_ns, *now_ns),
                };
                kept_out.add(penalty.refuses());
            }
        }
        if kept_out == TrialSet::NONE {
            return false;
        }
        decision.clear();
        (decision.refused, decision.kept_out) = (kept_out, kept_out);
        if !charges.iter().all(|charge| decision.is_refused_to(charge)) {
            return false;
        }
        // Looked at all the same, because windows that are used up refuse the request, too, perhaps for longer.
        decision.outcomes.extend(charges.iter().map(|charge| limiter.foresee_refused(charge, *now_ns)));
        for (index, _) in charges.iter().enumerate().filter(|(_, charge)| charge.plan.is_some()) {
            decision.note_elsewhere(index, RemoteDecider::Nobody);
        }
        decision.impose(charges, penalties);
        true
    }

    /// Records the refusals of policies that have a `penalty`, but not of what only `looks`. If that begins a penalty, the
    /// decision names its longer wait.
    pub(crate) fn watch(&mut self, limiter: &Limiter) {
        let Check { charges, penalties, looks, decision, begun_ns: now_ns, .. } = self;
        let mut begins = decision.kept_out != TrialSet::NONE;
        for penalty in penalties.iter_mut().filter(|it| it.wait_ns == 0 && !looks.contains(&it.part)) {
            let own = charges.iter().zip(&decision.outcomes).filter(|(charge, outcome)| {
                let is_own = (charge.policy, charge.part) == (penalty.policy, penalty.part);
                is_own && is_timed(charge) && !outcome.is_admitted()
            });
            // Not a cost that never fits, because it has no wait that the client could have ignored.
            if let Some(told_ns) = own.filter_map(|(_, outcome)| outcome.retry_after_ns()).max() {
                penalty.wait_ns = note_denial(limiter, penalty, told_ns, *now_ns);
                begins |= penalty.wait_ns > 0;
            }
        }
        if begins {
            decision.impose(charges, penalties);
        }
    }
}

/// Counts a denial of a client that was told to wait `told_ns`, on this node and for the fleet. Returns for how long it is
/// penalised, nanoseconds; 0: not at all.
fn note_denial(limiter: &Limiter, penalty: &PenaltyCheck, told_ns: u64, now_ns: u64) -> u64 {
    if let Some(shared) = &limiter.shared {
        shared.penalties.add(penalty, told_ns);
    }
    limiter.table.change_penalty(penalty.key, now_ns, |record| record.denied(&penalty.rule, told_ns, now_ns))
}

/// Whether a policy refuses the client for a penalty. Nothing is counted.
pub(super) fn is_kept_out(table: &Table, penalties: &[PenaltyCheck], now_ns: u64) -> bool {
    let refuses = |penalty: &&PenaltyCheck| penalty.refuses().has(TrialSet::OWN);
    penalties.iter().filter(refuses).any(|penalty| table.penalty_ns(penalty.key, now_ns) > 0)
}

impl Decision {
    /// Makes the windows under a penalty refuse for at least as long as the penalty lasts.
    fn impose(&mut self, charges: &[Charge], penalties: &[PenaltyCheck]) {
        for (index, charge) in charges.iter().enumerate() {
            let Some(penalty) = penalties.iter().find(|penalty| keeps_out(penalty, charge)) else { continue };
            let outcome = &mut self.outcomes[index];
            if let Some(told_ns) = outcome.retry_after_ns() {
                let retry_after_ns = penalty.wait_ns.max(told_ns);
                let reset_ns = outcome.reset_ns.max(retry_after_ns);
                *outcome = Outcome::new(Answer::Later { retry_after_ns }, 0, reset_ns);
                // Otherwise something has refused it, and the penalty begins with that.
                if self.kept_out.has(charge.world()) && charge.plan.is_some() {
                    self.elsewhere.retain(|(of, _)| usize::from(*of) != index);
                    self.note_elsewhere(index, RemoteDecider::Penalty);
                }
            }
        }
        self.bind(charges);
    }
}

/// Whether a penalty refuses this charge. None applies to concurrency, because that has no wait that a client could
/// ignore.
fn keeps_out(penalty: &PenaltyCheck, charge: &Charge) -> bool {
    let is_own = (penalty.policy, penalty.part) == (charge.policy, charge.part);
    penalty.wait_ns > 0 && !penalty.shadow && is_own && is_timed(charge)
}

fn is_timed(charge: &Charge) -> bool {
    charge.quota.algorithm() != Algorithm::Concurrency
}
