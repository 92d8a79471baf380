//! Two tiers without a network: nodes over a desk that answers when a test says so.

mod calendar;
mod denials;
mod fallback;
mod leases;
mod outages;
mod permits;
mod random_order;
mod scaled_plans;
mod slow;
mod trials;

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;

use super::*;
use crate::global::ShardId;
use limit::lease_messages::{ExactCharge, Grant, LinkError, Op, Reply, TakeReply};
use limit::{Algorithm, Answer, Key, Plan, ScriptModel, Sharing, State, WhenDown};
use metrics::DecidingTier;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const NOW: u64 = 3_600 * SECOND;

/// Redis: the real arithmetic, and a queue of what it was asked.
#[derive(Default)]
struct FakeRedis {
    is_down: Mutex<bool>,
    queue: Mutex<Vec<(Op, Done)>>,
    leased: Mutex<HashMap<Key, ScriptModel>>,
    exact: Mutex<HashMap<Key, State>>,
    held: Mutex<HashMap<Key, u64>>,
    /// Permits that other nodes hold of every key.
    elsewhere: AtomicU64,
    held_back_percent: AtomicU32,
    /// Beside this node and another one.
    more_nodes: AtomicU32,
}

impl Link for FakeRedis {
    fn send(&self, op: Op, done: Done) {
        self.queue.lock().expect("no test panics here").push((op, done));
    }

    fn is_up(&self, _key: Key) -> bool {
        !*self.is_down.lock().expect("no test panics here")
    }

    fn round_trip_ns(&self, _key: Key) -> u64 {
        1_000_000
    }

    fn ramp_percent(&self, _key: Key) -> u32 {
        100 - self.held_back_percent.load(Ordering::Relaxed)
    }

    fn shard(&self, key: Key) -> ShardId {
        ShardId::new((key.low() & 1) as usize)
    }

    fn nodes(&self) -> u32 {
        2 + self.more_nodes.load(Ordering::Relaxed)
    }
}

impl FakeRedis {
    /// Answers everything asked so far, and what is asked because of it; how many questions that were.
    fn answer(&self, now_ns: u64) -> usize {
        let mut count = 0;
        loop {
            let asked = std::mem::take(&mut *self.queue.lock().expect("no test panics here"));
            if asked.is_empty() {
                return count;
            }
            for (op, done) in asked {
                count += 1;
                let reply = self.act(&op, now_ns);
                done(Ok(reply), now_ns);
            }
        }
    }

    fn lose(&self, now_ns: u64) {
        self.refuse(now_ns, LinkError::Lost);
    }

    /// Ends everything asked so far without an answer.
    fn refuse(&self, now_ns: u64, why: LinkError) {
        let asked = std::mem::take(&mut *self.queue.lock().expect("no test panics here"));
        asked.into_iter().for_each(|(_, done)| done(Err(why), now_ns));
    }

    fn act(&self, op: &Op, now_ns: u64) -> Reply {
        match op {
            Op::Renew(renewal) => {
                let mut leased = self.leased.lock().expect("no test panics here");
                Reply::Grant(leased.entry(renewal.key).or_default().renew(renewal, now_ns / 1_000))
            }
            Op::Take(parts) => {
                let mut exact = self.exact.lock().expect("no test panics here");
                let state = |exact: &HashMap<Key, State>, part: &ExactCharge| {
                    exact.get(&part.key).copied().unwrap_or_default().take(
                        &part.plan.quota,
                        part.cost,
                        now_ns,
                    )
                };
                let mut outcomes: SmallVec<[_; 2]> = parts.iter().map(|part| state(&exact, part).1).collect();
                let admitted = outcomes.iter().all(|outcome| outcome.is_admitted());
                for (outcome, part) in outcomes.iter_mut().zip(parts.iter()).filter(|_| !admitted) {
                    let left = state(&exact, &ExactCharge { cost: 0, ..part.clone() }).1.remaining;
                    *outcome = Outcome::new(outcome.answer(), left, outcome.reset_ns);
                }
                for part in parts.iter().filter(|_| admitted) {
                    let taken = state(&exact, part).0;
                    exact.insert(part.key, taken);
                }
                Reply::Taken(TakeReply { at_us: now_ns / 1_000, outcomes, admitted })
            }
            Op::Return { parts, taken_us } => {
                let mut exact = self.exact.lock().expect("no test panics here");
                for part in parts {
                    let state = exact.entry(part.key).or_default();
                    *state = state.give_back(&part.plan.quota, part.cost, taken_us * 1_000);
                }
                Reply::Returned
            }
            Op::Repay(parts) => {
                let mut exact = self.exact.lock().expect("no test panics here");
                for part in parts {
                    let state = exact.entry(part.key).or_default();
                    *state = state.repay(&part.plan.quota, part.cost, now_ns);
                }
                Reply::Returned
            }
            Op::Report { parts, spent_us } => {
                let mut exact = self.exact.lock().expect("no test panics here");
                for part in parts {
                    let state = exact.entry(part.key).or_default();
                    *state = state.report(&part.plan.quota, part.cost, spent_us * 1_000, now_ns);
                }
                Reply::Returned
            }
            Op::Debit(parts) => {
                let mut exact = self.exact.lock().expect("no test panics here");
                for part in parts {
                    let state = exact.entry(part.key).or_default();
                    *state = state.debit(&part.plan.quota, part.cost, now_ns);
                }
                Reply::Returned
            }
            Op::Hold(hold) => {
                let elsewhere = self.elsewhere.load(Ordering::Relaxed);
                let out = State([hold.held + elsewhere, 0]);
                let (State([out, _]), outcome) = out.take(&hold.part.plan.quota, hold.part.cost, now_ns);
                self.held.lock().expect("no test panics here").insert(hold.part.key, out - elsewhere);
                let admitted = outcome.is_admitted();
                Reply::Taken(TakeReply {
                    at_us: now_ns / 1_000,
                    outcomes: [outcome].into_iter().collect(),
                    admitted,
                })
            }
            Op::Peek(part) => {
                let exact = self.exact.lock().expect("no test panics here");
                let state = exact.get(&part.key).copied().unwrap_or_default();
                Reply::Peeked(state.take(&part.plan.quota, part.cost, now_ns).1)
            }
            Op::Look(_) => unreachable!("no test asks that"),
        }
    }

    fn set_down(&self, is_down: bool) {
        *self.is_down.lock().expect("no test panics here") = is_down;
    }

    /// Permits that one node has said it holds.
    fn held(&self, charge: &Charge) -> u64 {
        self.held.lock().expect("no test panics here").get(&charge.key).copied().unwrap_or(0)
    }

    /// Units left of an exact window.
    fn left(&self, charge: &Charge, now_ns: u64) -> u64 {
        let exact = self.exact.lock().expect("no test panics here");
        exact.get(&charge.key).copied().unwrap_or_default().take(&charge.quota, 0, now_ns).1.remaining
    }
}

fn node(desk: &Arc<FakeRedis>) -> Arc<Limiter> {
    let link: Arc<dyn Link> = Arc::clone(desk) as Arc<dyn Link>;
    let fleet = Fleet::new(link, 1 << 16);
    Arc::new(Limiter::in_fleet(Table::with_memory(1 << 16), fleet))
}

/// A charge against `limit` a second, shared so.
fn charge(node: &Limiter, key: u64, limit: u64, overshoot: f64, when_down: WhenDown) -> Charge {
    let limit = NonZeroU64::new(limit).expect("tests give no zero");
    let period_ns = NonZeroU64::new(SECOND).expect("not zero");
    let quota = Quota::new(Algorithm::TokenBucket, limit, period_ns, limit);
    let sharing = Sharing::new(&quota, overshoot, when_down);
    let plans = node.fleet().expect("a fleet's node").plans();
    let plan = plans.id(Plan { policy: "p".into(), quota, sharing });
    node.table().declare([quota, quota.share_of(2)]);
    let key =
        Key::new(u128::from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(key << 40 | key));
    Charge { plan: Some(plan), ..Charge::one(key, quota) }
}

fn exact(node: &Limiter, key: u64, limit: u64) -> Charge {
    charge(node, key, limit, 0.0, WhenDown::Local)
}

fn leased(node: &Limiter, key: u64, limit: u64) -> Charge {
    charge(node, key, limit, 0.3, WhenDown::Local)
}

/// Permits, as many in the whole fleet.
fn permits(node: &Limiter, key: u64, limit: u64, when_down: WhenDown) -> Charge {
    let units = charge(node, key, limit, 0.0, when_down);
    let quota = units.quota.counted_by(Algorithm::Concurrency);
    let sharing = Sharing::new(&quota, 0.0, when_down);
    let plans = node.fleet().expect("a fleet's node").plans();
    let plan = plans.id(Plan { policy: "p".into(), quota, sharing });
    Charge { quota, plan: Some(plan), ..units }
}

/// Decides, with Redis answering at once where it is asked.
fn decide(node: &Arc<Limiter>, desk: &FakeRedis, charges: &[Charge], now_ns: u64) -> Decision {
    let mut decision = Decision::default();
    if let Some(waiting) = node.decide(charges, ClientAddress::default(), now_ns, &mut decision) {
        desk.answer(now_ns);
        assert!(waiting.is_resolved());
        waiting.resume(now_ns, &mut decision);
    } else {
        desk.answer(now_ns);
    }
    decision
}

/// Decides with a model that does not answer in time.
fn decide_late(node: &Arc<Limiter>, charges: &[Charge], now_ns: u64) -> Decision {
    let mut decision = Decision::default();
    if let Some(waiting) = node.decide(charges, ClientAddress::default(), now_ns, &mut decision) {
        waiting.resume(now_ns + 2 * MS, &mut decision);
    }
    decision
}

#[test]
fn what_one_window_refuses_costs_no_other_wherever_it_lives() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let own = Charge { plan: None, ..exact(&node, 9, 5) };
    let (near, far, lease) = (exact(&node, 2, 5), exact(&node, 3, 5), leased(&node, 4, 1_000));
    let full = exact(&node, 5, 1);
    assert!(decide(&node, &desk, &[full], NOW).is_admitted());
    let before = decide(&node, &desk, &[own, lease], NOW).outcomes[1].remaining;
    for round in 0..3 {
        let refused = decide(&node, &desk, &[own, near, lease, far, full], NOW + round);
        assert!(!refused.is_admitted());
        assert_eq!(refused.binding, Some(4));
        assert_eq!((refused.outcomes[0].remaining, refused.outcomes[2].remaining), (4, before), "{round}");
    }
    desk.answer(NOW);
    assert_eq!((desk.left(&near, NOW), desk.left(&far, NOW)), (5, 5));
}

#[test]
fn a_request_that_goes_away_gives_back_what_it_has_and_what_it_gets() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let own = Charge { plan: None, ..exact(&node, 9, 5) };
    let wanted = exact(&node, 2, 5);
    let mut decision = Decision::default();
    drop(node.decide(&[own, wanted], ClientAddress::default(), NOW, &mut decision).expect("it waits"));
    assert_eq!(node.table().peek(&Charge { cost: 0, ..own }, NOW).remaining, 5);
    assert_eq!(desk.answer(NOW), 2, "taken and returned");
    assert_eq!(desk.left(&wanted, NOW), 5);
}

#[test]
fn what_was_taken_before_or_after_a_wait_comes_back_whole() {
    for algorithm in [Algorithm::SlidingLog, Algorithm::FixedWindow] {
        let desk = Arc::new(FakeRedis::default());
        let node = node(&desk);
        let counted = |charge: Charge| {
            let quota = charge.quota.counted_by(algorithm);
            let sharing = Sharing::new(&quota, 0.0, WhenDown::Local);
            let plan =
                node.fleet().expect("a fleet's node").plans().id(Plan { policy: "p".into(), quota, sharing });
            node.table().declare([quota, quota.share_of(2)]);
            Charge { quota, plan: Some(plan), cost: 5, ..charge }
        };
        // The wait ends in the second after it began, in which it counts.
        let begun = NOW - MS;
        let late = counted(exact(&node, 1, 100));
        let refund = decide_late(&node, &[late], begun).refund(0);
        let left =
            |charge: &Charge, now_ns| node.table().peek(&Charge { cost: 0, ..*charge }, now_ns).remaining;
        assert_eq!(left(&late, begun), 95);
        node.reconcile(&late, refund, begun, 2, NOW + 2 * MS);
        assert_eq!(left(&late, begun), 98);
        // Refused after the wait, for what was asked; taken before it, by this node alone.
        let own = Charge { plan: None, ..counted(exact(&node, 2, 100)) };
        let full = exact(&node, 3, 10);
        let own_and_full = [own, Charge { cost: 5, ..full }];
        assert!(decide_late(&node, &own_and_full, begun).is_admitted());
        assert!(!decide_late(&node, &own_and_full, begun).is_admitted());
        assert_eq!(left(&own, begun), 95, "{algorithm:?}");
    }
}

#[test]
fn a_cost_is_reconciled_where_it_was_taken() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = Charge { cost: 5, ..exact(&node, 1, 100) };
    for (cost, left) in [(2, 98), (11, 87), (5, 82)] {
        let decision = decide(&node, &desk, &[charge], NOW);
        node.reconcile(&charge, decision.refund(0), NOW, cost, NOW);
        desk.answer(NOW);
        assert_eq!(desk.left(&charge, NOW), left);
    }
    let charge = leased(&node, 2, 1_000);
    decide(&node, &desk, &[charge], NOW);
    let decision = decide(&node, &desk, &[charge], NOW);
    assert_eq!(decision.refund(0), Refund::Lease);
    assert!(decide(&node, &desk, &[charge], NOW).is_admitted());
    node.reconcile(&charge, decision.refund(0), NOW, 5_000, NOW);
    assert!(!decide(&node, &desk, &[charge], NOW).is_admitted(), "what is owed is owed at Redis too");
    assert!(decide(&node, &desk, &[charge], NOW + 10 * SECOND).is_admitted(), "and repaid");
}
