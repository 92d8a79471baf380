//! The sweep: returns leases that nobody uses, reports what fallback spent, repeats permits, and sends debts.
//!
//! Every key that was granted something, or is in fallback, is watched until it holds and owes nothing. The sweep runs on the control runtime; no
//! request waits for it.

use std::sync::Arc;

use crate::Limiter;
use crate::exact::advances::KEPT_NS;
use crate::fleet::Fleet;
use limit::{Key, LEAD_MIN_NS, Lease, Plan};

impl Limiter {
    /// Returns idle leases, adapts this node's shares to the number of nodes, and sends permits and debts that are due.
    /// Call it every `SWEEP_EVERY`.
    pub fn sweep(self: &Arc<Self>, now_ns: u64) {
        let Some(fleet) = &self.fleet else { return };
        let quotas = fleet.plans.resize(fleet.link.nodes());
        if !quotas.is_empty() {
            self.table.declare_more(quotas);
        }
        self.release_where(fleet, now_ns, true, |key, share, plan| {
            share.is_idle(plan, now_ns) && fleet.link.is_up(key) && !fleet.is_held_back_as(key, share)
        });
        self.say_permits(fleet, now_ns);
        self.tell_debts(fleet, now_ns);
        self.send_unsent(fleet, now_ns);
        self.return_unused(fleet, KEPT_NS, now_ns);
    }

    /// Returns all leases, when this node stops, and sends permits and debts. Whether to call again in a moment: something
    /// is held or owed, or no answer has come yet to what was asked or returned. A return may find no connection, and has
    /// to be sent again then.
    pub fn release_all(self: &Arc<Self>, now_ns: u64) -> bool {
        let Some(fleet) = &self.fleet else { return false };
        // Looked at first: an answer makes its key a watched one, or a debt, before it is no longer missing.
        let is_asked = !fleet.renewals.is_empty() || !fleet.questions.is_empty();
        self.return_unused(fleet, 0, now_ns);
        self.say_permits(fleet, now_ns);
        self.tell_debts(fleet, now_ns);
        self.send_unsent(fleet, now_ns);
        // A shard that seems to be away is tried all the same. No sweep comes after this one, and if a process was
        // stopped for a moment, Redis only seemed to be silent.
        self.release_where(fleet, now_ns, false, |_, _, _| true)
            || is_asked
            || !fleet.debts.is_empty()
            || !fleet.unsent.is_empty()
    }

    /// Returns the leases for which `is_over` holds, at most `RELEASED_MAX`: a request's question must not queue behind
    /// thousands of returns, and a return that finds the pipeline's queue full has to be sent again. `resumes`: renews
    /// those that decide without a Redis that is back. Whether any lease was out, in flight or held.
    fn release_where(
        self: &Arc<Self>,
        fleet: &Fleet,
        now_ns: u64,
        resumes: bool,
        is_over: impl Fn(Key, &Lease, &Plan) -> bool,
    ) -> bool {
        let (mut over, mut is_any_out) = (Vec::new(), false);
        let (plans, mut lead_ns) = (&fleet.plans, LEAD_MIN_NS);
        fleet.watched.keys().retain(|&key, &mut number| {
            let Some(plan) = plans.get(number) else { return false };
            lead_ns = lead_ns.max(fleet.lead_for(key));
            let kept = fleet.change_known(key, |_, share| {
                if share.says_nothing(plan, now_ns) {
                    return false;
                }
                share.forgive(now_ns);
                // In fallback nobody takes anything, and a node that stops must not wait for that.
                let can_go = !share.is_fallback() || fleet.link.is_up(key);
                let is_held = share.has_something_of_redis() && !share.is_in_flight() && can_go;
                is_any_out |= is_held || share.is_in_flight();
                let is_back = resumes && share.is_wanted_back(now_ns) && fleet.link.answers(key);
                if over.len() < RELEASED_MAX && (is_back || is_held && is_over(key, share, plan)) {
                    over.push((key, number, is_back));
                }
                true
            });
            kept.unwrap_or(false)
        });
        fleet.follow(lead_ns);
        for (key, number, is_back) in over {
            match plans.get(number) {
                Some(plan) if is_back => self.renew(fleet, key, number, plan, None, now_ns),
                Some(plan) => self.release(fleet, key, number, plan, now_ns),
                None => {}
            }
        }
        is_any_out
    }
}

/// The most leases returned at a time: about what one call on each connection to a Redis takes.
const RELEASED_MAX: usize = 512;
