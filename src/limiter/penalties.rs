//! Clients that ignore what they are told: kept out before any charge is decided, and put on record after one refuses.
//!
//! A record is this node's own, whoever decided the refusal.

use super::{Decision, Limiter};
use crate::limit::{Algorithm, Answer, Charge, Conduct, Outcome};

impl Limiter {
    /// Looks whether a policy keeps the client out: says so in every conduct, counts that it asked again, and fills
    /// `decision` where the request is refused for it. Nothing is charged then.
    pub(super) fn keep_out(
        &self,
        charges: &[Charge],
        conducts: &mut [Conduct],
        now_ns: u64,
        decision: &mut Decision,
    ) -> bool {
        let mut is_kept_out = false;
        for conduct in conducts.iter_mut() {
            let told_ns = self.table.penalty_ns(conduct.key, now_ns);
            if told_ns > 0 {
                conduct.wait_ns = self.table.note_denial(conduct.key, &conduct.rule, told_ns, now_ns);
                is_kept_out |= !conduct.shadow;
            }
        }
        if is_kept_out {
            decision.clear();
            decision.is_refused = true;
            let is_out = |charge: &Charge| conducts.iter().any(|conduct| keeps_out(conduct, charge));
            decision.outcomes.extend(charges.iter().map(|charge| match is_out(charge) {
                true => Outcome::new(Answer::Admitted, 0, 0),
                false => self.look(charge, now_ns),
            }));
            decision.impose(charges, conducts);
        }
        is_kept_out
    }

    /// Puts on record what policies have refused, where they watch it. A client whose penalty begins with this refusal
    /// is told of it.
    pub(super) fn watch(
        &self,
        charges: &[Charge],
        conducts: &mut [Conduct],
        now_ns: u64,
        decision: &mut Decision,
    ) {
        let mut begins = false;
        for conduct in conducts.iter_mut().filter(|conduct| conduct.wait_ns == 0) {
            let own = charges.iter().zip(&decision.outcomes).filter(|(charge, outcome)| {
                charge.policy == conduct.policy && is_timed(charge) && !outcome.is_admitted()
            });
            // Who costs more than a window ever holds was not told to wait.
            if let Some(told_ns) = own.filter_map(|(_, outcome)| outcome.retry_after_ns()).max() {
                conduct.wait_ns = self.table.note_denial(conduct.key, &conduct.rule, told_ns, now_ns);
                begins |= conduct.wait_ns > 0;
            }
        }
        if begins {
            decision.impose(charges, conducts);
        }
    }

    /// Whether a policy keeps the client out. Nothing is counted.
    pub(super) fn is_kept_out(&self, conducts: &[Conduct], now_ns: u64) -> bool {
        conducts.iter().any(|conduct| !conduct.shadow && self.table.penalty_ns(conduct.key, now_ns) > 0)
    }
}

impl Decision {
    /// Lets the windows of penalised clients refuse as long as the penalty lasts.
    fn impose(&mut self, charges: &[Charge], conducts: &[Conduct]) {
        for (charge, outcome) in charges.iter().zip(&mut self.outcomes) {
            let Some(conduct) = conducts.iter().find(|conduct| keeps_out(conduct, charge)) else { continue };
            if let Some(told_ns) = outcome.retry_after_ns() {
                let retry_after_ns = conduct.wait_ns.max(told_ns);
                let reset_ns = outcome.reset_ns.max(retry_after_ns);
                *outcome = Outcome::new(Answer::Later { retry_after_ns }, 0, reset_ns);
            }
        }
        self.bind(charges);
    }
}

/// Whether a charge is refused for its client's conduct. What is in flight has nothing to do with it.
fn keeps_out(conduct: &Conduct, charge: &Charge) -> bool {
    conduct.wait_ns > 0 && !conduct.shadow && conduct.policy == charge.policy && is_timed(charge)
}

fn is_timed(charge: &Charge) -> bool {
    charge.quota.algorithm() != Algorithm::Concurrency
}
