//! [`SecondLooks`]: keys of which Redis is asked once more what is left.
//!
//! While Redis answers late, each node admits its even part of what is left by its last word. When it tells Redis of it, the
//! answer does not count what others have admitted at the same time. So a node that has told of much admits no other part
//! until it has asked again, a little later. It goes on asking, each time after half as long again: what it last heard is then
//! never much older than a third of the time since its own last part, while clients take their bursts from node to node.

use std::collections::HashMap;
use std::sync::Arc;

use crate::leases::Leases;
use crate::mostly_empty::MostlyEmpty;
use limit::lease_messages::{ExactCharge, Op, Renewal, Reply};
use limit::{Key, Plan, PlanId, hear_level};

/// What is to be asked, by key.
#[derive(Debug, Default)]
pub(crate) struct SecondLooks(MostlyEmpty<HashMap<Key, SecondLook>>);

#[derive(Debug)]
struct SecondLook {
    plan_id: Option<PlanId>,
    /// From when on it is asked, nanoseconds; `u64::MAX`: it has been.
    due_ns: u64,
    /// From the answer to the next question, nanoseconds.
    pause_ns: u64,
    /// What this node has told of since it asked, units, and of how many it admits no more until then.
    told: f64,
    told_max: f64,
    /// Whether it admits no more.
    is_held: bool,
}

impl SecondLooks {
    /// Whether this node admits nothing of the key beyond what Redis gives it.
    pub(crate) fn hold(&self, key: Key) -> bool {
        !self.0.is_empty() && self.0.with(|keys| keys.get(&key).is_some_and(|look| look.is_held))
    }

    fn take_due(&self, now_ns: u64) -> Vec<(Key, Option<PlanId>)> {
        self.0.with(|keys| {
            let due = keys.iter_mut().filter(|(_, look)| look.due_ns <= now_ns);
            due.map(|(key, look)| {
                (look.due_ns, look.told) = (u64::MAX, 0.0);
                (*key, look.plan_id)
            })
            .collect()
        })
    }

    /// What is left was heard at `now_ns`. Asks again later, if `is_late`.
    fn heard(&self, key: Key, is_late: bool, now_ns: u64) {
        self.0.with(|keys| {
            let Some(look) = keys.get_mut(&key) else { return };
            look.pause_ns = if look.told > 0.0 { LATER_NS } else { look.pause_ns * 3 / 2 };
            look.is_held = look.told >= look.told_max;
            look.due_ns = now_ns + look.pause_ns;
            if !is_late || look.pause_ns > LAST_NS {
                keys.remove(&key);
            }
        });
    }
}

impl Leases {
    /// This node tells Redis of so many units that it has admitted ahead of an answer.
    pub(crate) fn note_ahead(
        &self,
        key: Key,
        (plan_id, plan): (Option<PlanId>, &Plan),
        units: f64,
        now_ns: u64,
    ) {
        let (nodes, whole) = (f64::from(self.fleet.nodes()), plan.quota.capacity() as f64);
        // One unit may be owed at any time, and what comes back fast is not worth a question.
        if units < 2.0 || nodes < 2.0 || plan.quota.period_ns().get() < LONG_NS {
            return;
        }
        self.table.looks.0.with(|keys| {
            if keys.len() >= LOOKS_MAX && !keys.contains_key(&key) {
                return;
            }
            let (due_ns, told_max) = (now_ns + LATER_NS, whole / (nodes * HELD));
            let new = SecondLook { plan_id, due_ns, pause_ns: LATER_NS, told: 0.0, told_max, is_held: false };
            let look = keys.entry(key).or_insert(new);
            if look.due_ns != u64::MAX {
                (look.due_ns, look.pause_ns) = (look.due_ns.min(due_ns), LATER_NS);
            }
            (look.plan_id, look.told_max) = (plan_id, told_max);
            look.told += units;
            look.is_held |= look.told >= look.told_max;
        });
    }

    /// Asks what is left of the keys that are due.
    pub(crate) fn look_again(self: &Arc<Self>, now_ns: u64) {
        if self.table.looks.0.is_empty() {
            return;
        }
        for (key, plan_id) in self.table.looks.take_due(now_ns) {
            // Under a plan that has been replaced, the question would bring its limit back.
            let is_current = self.table.change_known(key, |under, _| under == plan_id) == Some(true);
            let Some(plan) = self.fleet.plans.get(plan_id).filter(|_| is_current) else {
                self.table.looks.heard(key, false, now_ns);
                continue;
            };
            let plan = plan.into_owned();
            let op = match plan.sharing.is_exact() {
                true => Op::Peek(ExactCharge { key, plan, cost: 0, shadow: false, count_denied: false }),
                false => Op::Renew(Renewal::report(key, plan, 0.0)),
            };
            let leases = Arc::clone(self);
            let done = move |answer, at_ns| {
                let is_late = !leases.fleet.link.is_quick(key);
                leases.table.looks.heard(key, is_late, at_ns);
                let _ = leases.table.change_known(key, |under, share| match answer {
                    Ok(Reply::Peeked(left)) if under == plan_id => {
                        share.hear(left.remaining, left.reset_ns, now_ns);
                    }
                    Ok(Reply::Grant(grant)) if under == plan_id => hear_level(share, grant.level),
                    _ => {}
                });
            };
            self.fleet.link.send(op, Box::new(done));
        }
    }
}

/// A node admits no more once it has told of its even part of the limit, divided by this.
const HELD: f64 = 2.0;
const LONG_NS: u64 = 10_000_000_000;
/// By then others have told Redis what they admitted at the same time.
const LATER_NS: u64 = 100_000_000;
/// The longest pause between two questions.
const LAST_NS: u64 = 60_000_000_000;
/// The most keys; others are not looked at again.
const LOOKS_MAX: usize = 65_536;
