//! The sweep: returns leases that nobody uses, reports what fallback spent, repeats permits, and sends debts.
//!
//! Every key that was granted something, or is in fallback, is in the due queue (`sweep_queue.rs`) until it holds and owes
//! nothing. A sweep looks at those that are due. A lease in use is looked at about once in six requests, as that is how
//! long it is quiet before it is idle. No request waits for the sweep.

use std::sync::Arc;

use crate::Limiter;
use crate::exact::advances::KEPT_NS;
use crate::fleet::Fleet;
use crate::leases::sweep_queue::AWAY;
use limit::{Key, LEAD_MIN_NS, Lease, Plan, PlanId};

/// What there is to do for a key.
enum Step {
    /// It decides without a Redis that is back.
    Renew,
    Return,
    WaitUntil(u64),
}

impl Fleet {
    /// Has the sweep look at a key when it is due. Call it after each message about it and whatever makes it due sooner.
    /// `is_left`: nothing was granted to it.
    pub(crate) fn watch(&self, key: Key, is_left: bool, now_ns: u64) {
        let Some((under, words)) = self.shares.peek(key) else { return };
        let Some(plan) = self.plans.get(under) else { return };
        if let Some(due_ns) = self.due_ns(key, &Lease::from_words(words), plan, now_ns) {
            self.sweep_queue.put(key, self.link.shard(key), due_ns, is_left, now_ns);
        }
    }

    /// Changes the lease of a key that has one in a way that may make it due sooner.
    pub(crate) fn change_watched(&self, key: Key, now_ns: u64, change: impl FnOnce(&mut Lease)) {
        let sooner_ns = self.change_known(key, |under, share| {
            let due_ns = |share: &Lease| self.due_ns(key, share, self.plans.get(under)?, now_ns);
            let before_ns = due_ns(share);
            change(share);
            due_ns(share).filter(|due_ns| before_ns.is_none_or(|before_ns| *due_ns < before_ns))
        });
        if let Some(due_ns) = sooner_ns.flatten() {
            self.sweep_queue.put(key, self.link.shard(key), due_ns, false, now_ns);
        }
    }

    /// When a key has to be looked at; `None`: it says nothing, or an answer will put it back.
    fn due_ns(&self, key: Key, share: &Lease, plan: &Plan, now_ns: u64) -> Option<u64> {
        if share.says_nothing(plan, now_ns) {
            return None;
        }
        let due_ns = share.due_ns(plan, now_ns)?;
        let needs_redis = share.is_fallback() || share.is_idle(plan, now_ns);
        if due_ns > now_ns || !needs_redis || self.link.answers(key) {
            return Some(due_ns);
        }
        // A denial ends without Redis, too.
        let is_denied = !share.is_fallback() && share.view(now_ns).denied_ns > 0;
        Some(if is_denied { now_ns.saturating_add(HELD_BACK_NS) } else { AWAY })
    }

    /// What is to be done for a key that is due, and its plan; `None`: nothing any more.
    fn look(&self, key: Key, now_ns: u64) -> Option<(Step, Option<PlanId>)> {
        let step = self.change_known(key, |under, share| {
            let plan = self.plans.get(under)?;
            if share.says_nothing(plan, now_ns) {
                return None;
            }
            share.forgive(now_ns);
            if share.is_wanted_back(now_ns) && self.link.answers(key) {
                return Some((Step::Renew, under));
            }
            let is_over = share.is_idle(plan, now_ns) && share.has_something_of_redis();
            if is_over && self.link.is_up(key) && !self.is_held_back_as(key, share) {
                return Some((Step::Return, under));
            }
            let due_ns = self.due_ns(key, share, plan, now_ns)?;
            let due_ns = if due_ns > now_ns { due_ns } else { now_ns.saturating_add(HELD_BACK_NS) };
            Some((Step::WaitUntil(due_ns), under))
        });
        step.flatten()
    }
}

impl Limiter {
    /// Returns idle leases, adapts this node's shares to the number of nodes, and sends permits and debts that are due.
    /// Call it every `SWEEP_EVERY`.
    pub fn sweep(self: &Arc<Self>, now_ns: u64) {
        let Some(fleet) = &self.fleet else { return };
        let quotas = fleet.plans.resize(fleet.link.nodes());
        if !quotas.is_empty() {
            self.table.declare_more(quotas);
        }
        self.sweep_leases(fleet, now_ns);
        self.say_permits(fleet, now_ns);
        self.tell_debts(fleet, now_ns);
        self.send_unsent(fleet, now_ns);
        self.return_unused(fleet, KEPT_NS, now_ns);
    }

    /// Returns and renews the leases that are due, at most `SENT_MAX`, because a request's question must not queue
    /// behind thousands of returns, and a return that finds the pipeline's queue full has to be sent again.
    fn sweep_leases(self: &Arc<Self>, fleet: &Fleet, now_ns: u64) {
        let queue = &fleet.sweep_queue;
        queue.wake(|key| fleet.link.answers(key), |key| fleet.link.shard(key), now_ns);
        let mut room = SENT_MAX;
        for stripe in queue.stripes() {
            while room > 0 {
                let due = queue.take(stripe, room, now_ns);
                if due.is_empty() {
                    break;
                }
                for key in due {
                    let Some((step, plan_id)) = fleet.look(key, now_ns) else { continue };
                    if let Step::WaitUntil(due_ns) = step {
                        queue.put(key, fleet.link.shard(key), due_ns, false, now_ns);
                        continue;
                    }
                    let Some(plan) = fleet.plans.get(plan_id) else { continue };
                    room -= 1;
                    match step {
                        Step::Renew => self.renew(fleet, key, plan_id, plan, None, now_ns),
                        _ => self.release(fleet, key, plan_id, plan, now_ns),
                    }
                }
            }
        }
        fleet.follow(queue.longest(|key| fleet.lead_for(key), now_ns).unwrap_or(LEAD_MIN_NS));
    }

    /// Returns all leases, when this node stops, and sends permits and debts. Whether to call again in a moment: something
    /// is held or owed, or no answer has come yet to what was asked or returned. A return may find no connection, and has
    /// to be sent again then.
    pub fn release_all(self: &Arc<Self>, now_ns: u64) -> bool {
        let Some(fleet) = &self.fleet else { return false };
        // Looked at first, because an answer makes its key a watched one, or a debt, before it is no longer missing.
        let is_asked = !fleet.renewals.is_empty() || !fleet.questions.is_empty();
        self.return_unused(fleet, 0, now_ns);
        self.say_permits(fleet, now_ns);
        self.tell_debts(fleet, now_ns);
        self.send_unsent(fleet, now_ns);
        self.release_leases(fleet, now_ns) || is_asked || !fleet.debts.is_empty() || !fleet.unsent.is_empty()
    }

    /// Returns up to `SENT_MAX` leases, due or not. A shard that seems to be away is tried all the same, because no
    /// sweep comes after this one, and if a process was stopped for a moment, Redis only seemed to be silent. Whether
    /// any lease was out.
    fn release_leases(self: &Arc<Self>, fleet: &Fleet, now_ns: u64) -> bool {
        let mut held = Vec::new();
        for stripe in fleet.sweep_queue.stripes() {
            for key in fleet.sweep_queue.keys(stripe) {
                let is_held = fleet.change_known(key, |under, share| {
                    let plan = fleet.plans.get(under).filter(|plan| !share.says_nothing(plan, now_ns))?;
                    // Not to a Redis that is away, because nobody takes it, and a node that stops must not wait for
                    // that.
                    let can_go = !share.is_fallback() || fleet.link.is_up(key);
                    let is_held = share.has_something_of_redis() && !share.is_in_flight() && can_go;
                    Some((is_held, under, Arc::clone(plan)))
                });
                match is_held.flatten() {
                    None => fleet.sweep_queue.remove(key),
                    Some((true, under, plan)) if held.len() < SENT_MAX => held.push((key, under, plan)),
                    Some(_) => {}
                }
            }
        }
        for (key, under, plan) in &held {
            self.release(fleet, *key, *under, plan, now_ns);
        }
        !held.is_empty()
    }
}

/// The most leases returned or renewed at a time: about what one call on each connection to a Redis takes.
const SENT_MAX: usize = 512;
/// A lease that is due and may not go yet is looked at again after this: Redis has just come back and gets its keys
/// little by little, or another thread has changed the lease meanwhile.
const HELD_BACK_NS: u64 = 100_000_000;
