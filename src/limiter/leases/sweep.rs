//! The sweep of leases: returns those that nobody uses, and reports what fallback spent of them.
//!
//! Every key that was granted something, or is in fallback, is in the due queue (`sweep_queue.rs`) until it holds and owes
//! nothing. A sweep looks at those that are due. A lease in use is looked at about once in six requests, as that is how
//! long it is quiet before it is idle. No request waits for the sweep.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::leases::Leases;
use crate::leases::sweep_queue::AWAY;
use limit::{Key, LEAD_MIN_NS, Lease, Plan, PlanId};

enum Step {
    /// It decides without a Redis that is back.
    Renew,
    Return,
    WaitUntil(u64),
}

impl Leases {
    /// Has the sweep look at a key when it is due. Call it after each message about it and whatever makes it due sooner.
    /// `is_left`: nothing was granted to it.
    pub(crate) fn watch(&self, key: Key, is_left: bool, now_ns: u64) {
        let Some((under, lease)) = self.table.peek(key) else { return };
        let Some(plan) = self.fleet.plans.get(under) else { return };
        if let Some(due_ns) = self.due_ns(key, &lease, &plan, now_ns) {
            self.queue(key, due_ns, is_left, now_ns);
        }
    }

    /// Changes the lease of a key that has one in a way that may make it due sooner.
    pub(crate) fn change_watched(&self, key: Key, now_ns: u64, change: impl FnOnce(&mut Lease)) {
        let sooner_ns = self.table.change_known(key, |under, lease| {
            let plan = self.fleet.plans.get(under);
            let due_ns = |lease: &Lease| self.due_ns(key, lease, plan.as_ref()?, now_ns);
            let before_ns = due_ns(lease);
            change(lease);
            due_ns(lease).filter(|due_ns| before_ns.is_none_or(|before_ns| *due_ns < before_ns))
        });
        if let Some(due_ns) = sooner_ns.flatten() {
            self.queue(key, due_ns, false, now_ns);
        }
    }

    fn queue(&self, key: Key, due_ns: u64, is_left: bool, now_ns: u64) {
        self.sweep_queue.put(key, self.fleet.link.shard(key), due_ns, is_left, now_ns);
    }

    /// When a key has to be looked at; `None`: it says nothing, or an answer will put it back.
    fn due_ns(&self, key: Key, lease: &Lease, plan: &Plan, now_ns: u64) -> Option<u64> {
        if lease.says_nothing(plan, now_ns) {
            return None;
        }
        let due_ns = lease.due_ns(plan, now_ns)?;
        let needs_redis = lease.is_fallback() || lease.is_idle(plan, now_ns);
        if due_ns > now_ns || !needs_redis || self.fleet.link.answers(key) {
            return Some(due_ns);
        }
        // A denial ends without Redis, too.
        let is_denied = !lease.is_fallback() && lease.view(now_ns).denied_ns > 0;
        Some(if is_denied { now_ns.saturating_add(HELD_BACK_NS) } else { AWAY })
    }

    /// What is to be done for a key that is due, and its plan; `None`: nothing any more.
    fn look(&self, key: Key, now_ns: u64) -> Option<(Step, Option<PlanId>)> {
        let step = self.table.change_known(key, |under, lease| {
            let plan = self.fleet.plans.get(under)?;
            if lease.says_nothing(&plan, now_ns) {
                return None;
            }
            lease.forgive(now_ns);
            if lease.is_wanted_back(now_ns) && self.fleet.link.answers(key) {
                return Some((Step::Renew, under));
            }
            let is_over = lease.is_idle(&plan, now_ns) && lease.has_something_of_redis();
            if is_over && self.fleet.link.is_up(key) && !self.table.is_held_back_as(key, lease) {
                return Some((Step::Return, under));
            }
            let due_ns = self.due_ns(key, lease, &plan, now_ns)?;
            let due_ns = if due_ns > now_ns { due_ns } else { now_ns.saturating_add(HELD_BACK_NS) };
            Some((Step::WaitUntil(due_ns), under))
        });
        step.flatten()
    }

    /// Returns and renews the leases that are due, at most `SENT_MAX`, because a request's question must not queue
    /// behind thousands of returns, and a return that finds the pipeline's queue full has to be sent again.
    pub(crate) fn sweep(self: &Arc<Self>, now_ns: u64) {
        let (queue, link) = (&self.sweep_queue, &self.fleet.link);
        queue.wake(|key| link.answers(key), |key| link.shard(key), now_ns);
        let mut room = SENT_MAX;
        for stripe in queue.stripes() {
            while room > 0 {
                let due = queue.take(stripe, room, now_ns);
                if due.is_empty() {
                    break;
                }
                for key in due {
                    let Some((step, plan_id)) = self.look(key, now_ns) else { continue };
                    match step {
                        Step::WaitUntil(due_ns) => {
                            self.queue(key, due_ns, false, now_ns);
                            continue;
                        }
                        Step::Renew => self.renew(key, plan_id, None, now_ns),
                        Step::Return => self.release(key, plan_id, now_ns),
                    }
                    room -= 1;
                }
            }
        }
        let lead_ns = queue.longest(|key| self.table.lead_for(key), now_ns).unwrap_or(LEAD_MIN_NS);
        self.table.lead_ns.store(lead_ns, Ordering::Relaxed);
    }

    /// The plans that leases are under that the sweep will look at.
    pub(crate) fn plans(&self) -> impl Iterator<Item = PlanId> {
        let keys = self.sweep_queue.stripes().flat_map(|stripe| self.sweep_queue.keys(stripe));
        keys.filter_map(|key| self.table.peek(key)?.0)
    }

    /// Returns up to `SENT_MAX` leases, due or not. A shard that seems to be away is tried all the same, because no
    /// sweep comes after this one, and if a process was stopped for a moment, Redis only seemed to be silent. Whether
    /// any lease was out.
    pub(crate) fn release_all(self: &Arc<Self>, now_ns: u64) -> bool {
        let mut held = Vec::new();
        for stripe in self.sweep_queue.stripes() {
            for key in self.sweep_queue.keys(stripe) {
                let is_held = self.table.change_known(key, |under, lease| {
                    self.fleet.plans.get(under).filter(|plan| !lease.says_nothing(plan, now_ns))?;
                    // Not to a Redis that is away, because nobody takes it, and a node that stops must not wait for
                    // that.
                    let can_go = !lease.is_fallback() || self.fleet.link.is_up(key);
                    let is_held = lease.has_something_of_redis() && !lease.is_in_flight() && can_go;
                    Some((is_held, under))
                });
                match is_held.flatten() {
                    None => self.sweep_queue.remove(key),
                    Some((true, under)) if held.len() < SENT_MAX => held.push((key, under)),
                    Some(_) => {}
                }
            }
        }
        held.iter().for_each(|(key, under)| self.release(*key, *under, now_ns));
        !held.is_empty()
    }
}

/// The most leases returned or renewed at a time: about what one call on each connection to a Redis takes.
const SENT_MAX: usize = 512;
/// A lease that is due and may not go yet is looked at again after this: Redis has just come back and gets its keys
/// little by little, or another thread has changed the lease meanwhile.
const HELD_BACK_NS: u64 = 100_000_000;
