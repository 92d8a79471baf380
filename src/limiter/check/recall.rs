//! Idempotency: recognises requests that were charged before by their idempotency key, in this node's table or, for a
//! fleet, in Redis.
//!
//! A memory is a charge of one unit on a quota of one: if it is spent, the request was charged. It is looked at before
//! the request is decided, and spent only after the request is admitted.
//!
//! Repeats are not charged, so each key has an allowance of them, and so has each client for all of its keys together. This
//! node keeps both on its own: beyond them a repeat is charged like any request.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::Limiter;
use crate::check::charge_state::{ChargeOutcome, ChargeState, Refund, said, unheard};
use crate::fleet::Fleet;
use crate::local::Table;
use crate::wait::Wait;
use limit::lease_messages::{ExactCharge, Op, Reply};
use limit::{Algorithm, Charge, Key, Quota};

/// A question to Redis about memories, in flight.
#[must_use = "nothing uses the answer unless `remembered` is called"]
pub struct Recall {
    pub(super) wait: Arc<Wait>,
    pub(super) deadline: Duration,
}

pub(super) fn is_remembered(table: &Table, memory: &Charge, now_ns: u64) -> bool {
    memory.plan.is_none() && table.is_remembered(memory, now_ns)
}

/// Spends a repeat of the request's key and of its client, if both have one left. `charge` is the first of the policy.
pub(super) fn repeat(table: &Table, memory: &Charge, charge: &Charge, now_ns: u64) -> bool {
    let is_free = has_repeats(table, memory, charge, now_ns);
    if is_free {
        repeats(memory, charge).iter().for_each(|repeat| table.remember(repeat, now_ns));
    }
    is_free
}

/// Whether both have a repeat left.
pub(super) fn has_repeats(table: &Table, memory: &Charge, charge: &Charge, now_ns: u64) -> bool {
    !repeats(memory, charge).iter().any(|repeat| table.is_remembered(repeat, now_ns))
}

/// Remembers an admitted request: in Redis if the policy is shared, else in this node's table.
pub(super) fn remember(limiter: &Limiter, memory: &Charge, now_ns: u64) {
    match limiter.shared(memory) {
        Some((shared, plan)) => {
            let parts = [ExactCharge::of(memory, &plan)].into_iter().collect();
            shared.fleet.link.send(Op::Repay(parts), Box::new(|_, _| {}));
        }
        None => limiter.table.remember(memory, now_ns),
    }
}

impl Recall {
    /// Asks Redis for the memories that the fleet shares; `None` if there are none or their shards are not quick.
    pub(super) fn ask(fleet: &Fleet, memories: &[Charge]) -> Option<Recall> {
        let plans = &fleet.plans;
        let shared: SmallVec<[_; 2]> = memories
            .iter()
            .enumerate()
            .filter_map(|(index, memory)| Some((index, memory, plans.get(memory.plan)?)))
            .filter(|(_, memory, _)| fleet.link.is_quick(memory.key))
            .collect();
        if shared.is_empty() {
            return None;
        }
        let wait = Arc::new(Wait::new(memories.len(), shared.len()));
        let deadline = fleet.deadline(shared.iter().map(|(_, memory, _)| memory.key));
        for (index, memory, plan) in shared {
            let wait = Arc::clone(&wait);
            let done = move |answer| {
                wait.resolve(index, || match answer {
                    Ok(Reply::Peeked(outcome)) => said(outcome, Refund::Nothing),
                    _ => unheard(ChargeState::Unanswered),
                });
            };
            fleet
                .link
                .send(Op::Peek(ExactCharge::of(memory, &plan)), Box::new(move |answer, _| done(answer)));
        }
        Some(Recall { wait, deadline })
    }

    /// The indices of the memories that Redis has reported as spent so far.
    pub(crate) fn remembered(self) -> SmallVec<[usize; 2]> {
        let answers = self.wait.close().into_iter().enumerate();
        let is_spent = |(_, (state, _)): &(usize, ChargeOutcome)| *state == ChargeState::Refused;
        answers.filter(is_spent).map(|(index, _)| index).collect()
    }
}

/// The charges of one repeat, which are memories, too, so that the slots of limits are never evicted for them: on the
/// allowance of its key, and on that of its client for all keys, because keys are the client's own to make.
fn repeats(memory: &Charge, charge: &Charge) -> [Charge; 2] {
    let all = charge.quota.capacity().max(REPEATS.get());
    let all = NonZeroU64::new(all).unwrap_or(REPEATS);
    [(memory.key, REPEATS), (charge.key, all)].map(|(key, units)| Charge {
        key: Key::new(key.bits() ^ REPEATS_KEY_BITS),
        quota: Quota::new(Algorithm::TokenBucket, units, MINUTE_NS, units),
        cost: 1,
        plan: None,
        ..*memory
    })
}

/// Repeats of one key a minute that are not charged.
const REPEATS: NonZeroU64 = NonZeroU64::new(10).expect("it is not zero");
const MINUTE_NS: NonZeroU64 = NonZeroU64::new(60_000_000_000).expect("it is not zero");
/// Makes the key of an allowance from that of what it is for: the square root of 2, as bits all over.
const REPEATS_KEY_BITS: u128 = 0x6a09_e667_f3bc_c908_b2fb_1366_ea95_7d3e;
