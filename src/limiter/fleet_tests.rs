//! Two tiers without a network: nodes over a desk that answers when a test says so.

mod turmoil;

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;

use super::*;
use crate::limit::central::{Grant, Op, Part, Reply, Taken, Unanswered};
use crate::limit::{Algorithm, Answer, Centre, Plan, Sharing, State, WhenDown};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const NOW: u64 = 3_600 * SECOND;

/// The centre: the real arithmetic, and a queue of what it was asked.
#[derive(Default)]
struct Desk {
    is_down: Mutex<bool>,
    queue: Mutex<Vec<(Op, Done)>>,
    leased: Mutex<HashMap<u128, Centre>>,
    exact: Mutex<HashMap<u128, State>>,
    held: Mutex<HashMap<u128, u64>>,
    /// Permits that other nodes hold of every key.
    elsewhere: AtomicU64,
    held_back_percent: AtomicU32,
}

impl Link for Desk {
    fn send(&self, op: Op, done: Done) {
        self.queue.lock().expect("no test panics here").push((op, done));
    }

    fn is_up(&self, _key: u128) -> bool {
        !*self.is_down.lock().expect("no test panics here")
    }

    fn ramp_percent(&self, _key: u128) -> u32 {
        100 - self.held_back_percent.load(Ordering::Relaxed)
    }

    fn same_shard(&self, one: u128, other: u128) -> bool {
        one & 1 == other & 1
    }

    fn nodes(&self) -> u32 {
        2
    }
}

impl Desk {
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

    /// Loses everything asked so far.
    fn lose(&self, now_ns: u64) {
        let asked = std::mem::take(&mut *self.queue.lock().expect("no test panics here"));
        asked.into_iter().for_each(|(_, done)| done(Err(Unanswered::Lost), now_ns));
    }

    fn act(&self, op: &Op, now_ns: u64) -> Reply {
        match op {
            Op::Renew(renewal) => {
                let mut leased = self.leased.lock().expect("no test panics here");
                Reply::Grant(leased.entry(renewal.key).or_default().renew(renewal, now_ns / 1_000))
            }
            Op::Take(parts) => {
                let mut exact = self.exact.lock().expect("no test panics here");
                let state = |exact: &HashMap<u128, State>, part: &Part| {
                    exact.get(&part.key).copied().unwrap_or_default().take(
                        &part.plan.quota,
                        part.cost,
                        now_ns,
                    )
                };
                let outcomes: SmallVec<[_; 2]> = parts.iter().map(|part| state(&exact, part).1).collect();
                let admitted = outcomes.iter().all(|outcome| outcome.is_admitted());
                for part in parts.iter().filter(|_| admitted) {
                    let taken = state(&exact, part).0;
                    exact.insert(part.key, taken);
                }
                Reply::Taken(Taken { at_us: now_ns / 1_000, outcomes, admitted })
            }
            Op::Return { parts, taken_us } => {
                let mut exact = self.exact.lock().expect("no test panics here");
                for part in parts {
                    let state = exact.entry(part.key).or_default();
                    *state = state.give_back(&part.plan.quota, part.cost, taken_us * 1_000);
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
                Reply::Taken(Taken {
                    at_us: now_ns / 1_000,
                    outcomes: [outcome].into_iter().collect(),
                    admitted,
                })
            }
            Op::Peek(_) | Op::Look(_) => unreachable!("no test asks that"),
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

fn node(desk: &Arc<Desk>) -> Arc<Limiter> {
    let link: Arc<dyn Link> = Arc::clone(desk) as Arc<dyn Link>;
    let fleet = Fleet::new(link, 1 << 16, Duration::from_millis(2));
    Arc::new(Limiter::in_fleet(Table::with_memory(1 << 16), fleet))
}

/// A charge against `limit` a second, shared so.
fn charge(node: &Limiter, key: u64, limit: u64, overshoot: f64, when_down: WhenDown) -> Charge {
    let limit = NonZeroU64::new(limit).expect("tests give no zero");
    let period_ns = NonZeroU64::new(SECOND).expect("not zero");
    let quota = Quota::new(Algorithm::TokenBucket, limit, period_ns, limit);
    let sharing = Sharing::new(&quota, overshoot, when_down);
    let plans = node.fleet().expect("a fleet's node").plans();
    let plan = plans.number(Plan { policy: "p".into(), quota, sharing });
    node.declare([quota, quota.share_of(2)]);
    let key = u128::from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(key << 40 | key);
    Charge { plan, ..Charge::one(key, quota) }
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
    let plan = plans.number(Plan { policy: "p".into(), quota, sharing });
    Charge { quota, plan, ..units }
}

/// Decides, with the centre answering at once where it is asked.
fn decide(node: &Arc<Limiter>, desk: &Desk, charges: &[Charge], now_ns: u64) -> Decision {
    let mut decision = Decision::default();
    if let Some(waiting) = node.decide(charges, Caller::default(), now_ns, &mut decision) {
        desk.answer(now_ns);
        assert!(waiting.is_settled());
        node.resume(waiting, now_ns, &mut decision);
    } else {
        desk.answer(now_ns);
    }
    decision
}

/// Decides with a centre that does not answer in time.
fn decide_late(node: &Arc<Limiter>, charges: &[Charge], now_ns: u64) -> Decision {
    let mut decision = Decision::default();
    if let Some(waiting) = node.decide(charges, Caller::default(), now_ns, &mut decision) {
        node.resume(waiting, now_ns + 2 * MS, &mut decision);
    }
    decision
}

#[test]
fn an_exact_window_is_one_for_all_nodes() {
    let desk = Arc::new(Desk::default());
    let nodes = [node(&desk), node(&desk)];
    let admitted = (0..20)
        .filter(|turn| {
            let node = &nodes[turn % 2];
            decide(node, &desk, &[exact(node, 1, 10)], NOW).is_admitted()
        })
        .count();
    assert_eq!(admitted, 10);
}

#[test]
fn a_denial_is_remembered_until_it_ends() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = exact(&node, 1, 10);
    let dear = Charge { cost: 10, ..charge };
    assert!(decide(&node, &desk, &[dear], NOW).is_admitted());
    let refused = decide(&node, &desk, &[charge], NOW);
    assert_eq!((refused.tier, refused.retry_after_ns()), (Tier::Global, Some(SECOND / 10)));
    for _ in 0..5 {
        let refused = decide(&node, &desk, &[charge], NOW + 50 * MS);
        assert_eq!((refused.is_admitted(), refused.tier), (false, Tier::Local));
    }
    assert_eq!(desk.answer(NOW), 0, "nothing was asked");
    assert!(decide(&node, &desk, &[charge], NOW + 101 * MS).is_admitted());
    // A dearer denial says nothing of a cheaper request.
    assert!(!decide(&node, &desk, &[Charge { cost: 5, ..charge }], NOW + 210 * MS).is_admitted());
    assert!(decide(&node, &desk, &[charge], NOW + 210 * MS).is_admitted());
}

#[test]
fn costs_have_room_however_large_they_are() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = exact(&node, 1, 1 << 40);
    let admits = |cost| decide(&node, &desk, &[Charge { cost, ..charge }], NOW).is_admitted();
    assert!(admits((1 << 40) - (1 << 33)));
    // A refusal of so much says nothing of half of it.
    assert!(!admits(1 << 34));
    assert!(admits(1 << 33));
    // All that a limit can hold, wanted by several.
    for charge in [leased(&node, 2, u64::MAX), permits(&node, 3, u64::MAX, WhenDown::Local)] {
        let dear = Charge { cost: u64::MAX, ..charge };
        let begin = |_| node.decide(&[dear], Caller::default(), NOW, &mut Decision::default());
        let waiting: Vec<_> = (0..4).map(begin).collect();
        desk.answer(NOW);
        assert!(waiting.iter().flatten().all(Waiting::is_settled));
    }
}

#[test]
fn a_denial_ends_where_units_come_back() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = Charge { cost: 9, ..exact(&node, 1, 10) };
    let cheap = Charge { cost: 5, ..charge };
    let denied = |charge| {
        let decision = decide(&node, &desk, &[charge], NOW);
        (!decision.is_admitted(), decision.tier)
    };
    // A cost that is settled, and an answer that came too late for its request.
    let undo = decide(&node, &desk, &[charge], NOW).undo(0);
    assert_eq!([denied(cheap), denied(cheap)], [(true, Tier::Global), (true, Tier::Local)]);
    node.settle(&charge, undo, NOW, 1, NOW);
    assert_eq!(desk.answer(NOW), 1);
    let late = node.decide(&[cheap], Caller::default(), NOW, &mut Decision::default()).expect("it asks");
    let (op, done) = desk.queue.lock().expect("no test panics here").remove(0);
    let taken = desk.act(&op, NOW);
    assert_eq!([denied(cheap), denied(cheap)], [(true, Tier::Global), (true, Tier::Local)]);
    drop(late);
    done(Ok(taken), NOW);
    assert_eq!(desk.answer(NOW), 1);
    assert_eq!(denied(cheap), (false, Tier::Global));
}

#[test]
fn a_changed_limit_ends_what_was_denied_under_the_old_one() {
    for overshoot in [0.0, 0.3] {
        let desk = Arc::new(Desk::default());
        let node = node(&desk);
        let limited = |limit| Charge { cost: 2, ..charge(&node, 1, limit, overshoot, WhenDown::Local) };
        let begin = |charge| node.decide(&[charge], Caller::default(), NOW, &mut Decision::default());
        let (old, new) = (limited(1_000), limited(5_000));
        let asked = begin(old).expect("it waits");
        let deny = || {
            let (op, done) = desk.queue.lock().expect("no test panics here").remove(0);
            let hour_ns = 3_600 * SECOND;
            let outcome = Outcome::new(Answer::Later { retry_after_ns: hour_ns }, 0, hour_ns);
            done(
                Ok(match op {
                    Op::Renew(_) => Reply::Grant(Grant { epoch: 1, deny_ns: hour_ns, ..Grant::default() }),
                    _ => {
                        Reply::Taken(Taken { outcomes: [outcome].into_iter().collect(), ..Taken::default() })
                    }
                }),
                NOW,
            );
        };
        deny();
        drop(asked);
        assert!(begin(old).is_none(), "it is remembered");
        drop(begin(new).expect("what is left of the new limit only the centre knows"));
        desk.lose(NOW);
        // The answer to what was asked under a limit that has changed by then.
        let (old, new) = (limited(6_000), limited(7_000));
        drop(begin(old).expect("it waits"));
        drop(begin(new).expect("it waits"));
        deny();
        assert!(begin(new).is_some(), "and does still");
    }
}

#[test]
fn a_long_denial_is_asked_about_again_by_one_request_now_and_then() {
    let desk = Arc::new(Desk::default());
    let nodes = [node(&desk), node(&desk)];
    let [first, second] = [0, 1].map(|index: usize| {
        let limit = exact(&nodes[index], 1, 10).quota.limit();
        let day = NonZeroU64::new(86_400 * SECOND).expect("not zero");
        let quota = Quota::new(Algorithm::TokenBucket, limit, day, limit);
        let sharing = Sharing::new(&quota, 0.0, WhenDown::Local);
        let plan = Plan { policy: "day".into(), quota, sharing };
        let plan = nodes[index].fleet().expect("it is in a fleet").plans().number(plan);
        Charge { quota, plan, ..exact(&nodes[index], 1, 10) }
    });
    let dear = Charge { cost: 10, ..first };
    let taken = decide(&nodes[0], &desk, &[dear], NOW);
    let refused = decide(&nodes[1], &desk, &[second], NOW);
    assert!(refused.retry_after_ns().is_some_and(|wait_ns| wait_ns > 3_600 * SECOND));
    for turn in 1..=5 {
        let now = NOW + turn * 501 * MS;
        for others in 0..10 {
            let refused = decide(&nodes[1], &desk, &[second], now + others);
            let tier = if others == 0 { Tier::Global } else { Tier::Local };
            assert_eq!((refused.is_admitted(), refused.tier), (false, tier));
            assert!(refused.retry_after_ns().is_some_and(|wait_ns| wait_ns > 3_600 * SECOND));
        }
    }
    // The dear one cost less than it was thought to.
    nodes[0].settle(&dear, taken.undo(0), NOW, 3, NOW + 3 * SECOND);
    desk.answer(NOW + 3 * SECOND);
    let now = NOW + 4 * SECOND;
    for left in (0..7).rev() {
        let decision = decide(&nodes[1], &desk, &[second], now);
        assert_eq!((decision.is_admitted(), decision.outcomes[0].remaining), (true, left));
    }
    assert!(!decide(&nodes[1], &desk, &[second], now).is_admitted());
    desk.set_down(true);
    let refused = decide_late(&nodes[1], &[second], now + 3 * SECOND);
    assert_eq!(
        (refused.is_admitted(), refused.tier),
        (false, Tier::Local),
        "who could say otherwise is away"
    );
}

#[test]
fn what_came_back_is_there_without_the_store_too() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = charge(&node, 1, 10, 0.0, WhenDown::Local);
    let dear = Charge { cost: 6, ..charge };
    for (cost, now_ns) in [(1, NOW), (3, NOW)] {
        let decision = decide(&node, &desk, &[dear], now_ns);
        assert!(decision.is_admitted());
        node.settle(&dear, decision.undo(0), now_ns, cost, now_ns);
        desk.answer(now_ns);
    }
    assert_eq!(desk.left(&charge, NOW), 6);
    let alone = |charge: &Charge| {
        (0..20).filter(|_| decide_late(&node, &[*charge], NOW + 20 * MS).is_admitted()).count()
    };
    desk.set_down(true);
    assert_eq!(alone(&charge), 6);
    desk.set_down(false);
    // What was decided without an answer that came late is spent here once.
    let late = Charge { key: charge.key + (1 << 80), ..dear };
    decide_late(&node, &[late], NOW);
    desk.answer(NOW);
    desk.set_down(true);
    assert_eq!(alone(&Charge { cost: 1, ..late }), 4);
}

#[test]
fn a_dearer_request_is_told_to_wait_longer() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = exact(&node, 1, 10);
    assert!(decide(&node, &desk, &[Charge { cost: 10, ..charge }], NOW).is_admitted());
    let wait = |cost: u64, now_ns: u64| {
        decide(&node, &desk, &[Charge { cost, ..charge }], now_ns).retry_after_ns().expect("it fits at last")
    };
    assert_eq!(wait(1, NOW), SECOND / 10);
    let (remembered, later) = (wait(5, NOW + 20 * MS), NOW + 500 * MS);
    // A wait is remembered to a microsecond.
    assert!(remembered.abs_diff(480 * MS) < 2_000, "{remembered}");
    assert!(decide(&node, &desk, &[Charge { cost: 5, ..charge }], later).is_admitted());
}

#[test]
fn what_counts_when_denied_is_told_each_time() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let counted = Charge { count_denied: true, ..exact(&node, 1, 1) };
    for turn in 0..4 {
        let decision = decide(&node, &desk, &[counted], NOW);
        assert_eq!((decision.is_admitted(), decision.tier), (turn == 0, Tier::Global));
    }
}

#[test]
fn what_one_window_refuses_costs_no_other_wherever_it_lives() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let own = Charge { plan: 0, ..exact(&node, 9, 5) };
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
fn a_hot_key_asks_now_and_then_and_both_nodes_stay_within_the_limit() {
    let desk = Arc::new(Desk::default());
    let nodes = [node(&desk), node(&desk)];
    let charges = [leased(&nodes[0], 1, 1_000), leased(&nodes[1], 1, 1_000)];
    let (mut admitted, mut local, mut asked) = (0, 0, 0);
    // 4,000 requests a second over two nodes, for ten seconds.
    for turn in 0..40_000u64 {
        let (index, now_ns) = ((turn % 2) as usize, NOW + turn * SECOND / 4_000);
        let mut decision = Decision::default();
        let waiting = nodes[index].decide(&charges[index..=index], Caller::default(), now_ns, &mut decision);
        asked += desk.answer(now_ns);
        if let Some(waiting) = waiting {
            nodes[index].resume(waiting, now_ns, &mut decision);
        }
        admitted += u64::from(decision.is_admitted());
        local += u64::from(decision.tier == Tier::Local);
        if turn % 200 == 0 {
            nodes.iter().for_each(|node| node.sweep(now_ns));
        }
    }
    assert!(admitted <= 11_000, "{admitted} of 1,000 and 10 s of 1,000");
    assert!(admitted >= 10_500, "{admitted}");
    assert!(local >= 39_600, "{local} of 40,000 decided here");
    assert!(asked <= 400, "{asked} questions");
}

#[test]
fn requests_that_come_while_a_renewal_is_on_its_way_have_their_own() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = leased(&node, 1, 1_000);
    let mut first = Decision::default();
    assert!(node.decide(&[charge], Caller::default(), NOW, &mut first).is_none(), "a unit may be owed");
    assert_eq!((first.is_admitted(), first.tier), (true, Tier::Local));
    let mut decisions: Vec<Decision> = (0..100).map(|_| Decision::default()).collect();
    let waiting: Vec<_> = decisions
        .iter_mut()
        .map(|decision| node.decide(&[charge], Caller::default(), NOW, decision).expect("and no more"))
        .collect();
    assert_eq!(desk.answer(NOW + MS), 2, "one for the first, one for all others");
    for (waiting, decision) in waiting.into_iter().zip(&mut decisions) {
        assert!(waiting.is_settled());
        node.resume(waiting, NOW + MS, decision);
        assert!(decision.is_admitted());
    }
}

#[test]
fn a_renewal_asks_for_those_who_still_wait_by_the_newest_plan() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let (old, new) = (leased(&node, 1, 1_000), leased(&node, 1, 2_000));
    let wait = |charge: Charge, cost| {
        let charge = Charge { cost, ..charge };
        node.decide(&[charge], Caller::default(), NOW, &mut Decision::default()).expect("it waits")
    };
    let first = wait(old, 2);
    let gone: Vec<_> = (0..300).map(|_| wait(old, 3)).collect();
    let (second, third) = (wait(old, 50), wait(new, 7));
    drop(gone);
    let asked = || match &desk.queue.lock().expect("no test panics here")[..] {
        [(Op::Renew(renewal), _)] => (renewal.pending, renewal.plan.quota.limit().get()),
        other => panic!("{} questions", other.len()),
    };
    assert_eq!(asked(), (2, 1_000));
    let (op, done) = desk.queue.lock().expect("no test panics here").remove(0);
    done(Ok(desk.act(&op, NOW)), NOW);
    assert_eq!(asked(), (57, 2_000));
    drop((second, third));
    desk.lose(NOW);
    assert_eq!(desk.answer(NOW), 0, "nobody is left to ask for");
    assert!(first.is_settled());
}

#[test]
fn what_a_renewal_brings_serves_who_came_after_it_was_sent() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = leased(&node, 1, 1_000);
    let decide = |decision: &mut Decision| node.decide(&[charge], Caller::default(), NOW, decision);
    assert!(decide(&mut Decision::default()).is_none(), "a unit may be owed");
    let (mut early, mut late) = (Decision::default(), Decision::default());
    let waiting = [decide(&mut early).expect("no more may"), decide(&mut late).expect("nor here")];
    assert_eq!(desk.answer(NOW + MS), 1, "it brings units for those to come");
    for (waiting, decision) in waiting.into_iter().zip([&mut early, &mut late]) {
        assert!(waiting.is_settled());
        node.resume(waiting, NOW + MS, decision);
        assert_eq!((decision.is_admitted(), decision.tier), (true, Tier::Global));
    }
}

#[test]
fn a_request_that_goes_away_gives_back_what_it_has_and_what_it_gets() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let own = Charge { plan: 0, ..exact(&node, 9, 5) };
    let wanted = exact(&node, 2, 5);
    let mut decision = Decision::default();
    drop(node.decide(&[own, wanted], Caller::default(), NOW, &mut decision).expect("it waits"));
    assert_eq!(node.table().peek(&Charge { cost: 0, ..own }, NOW).remaining, 5);
    assert_eq!(desk.answer(NOW), 2, "taken and returned");
    assert_eq!(desk.left(&wanted, NOW), 5);
}

#[test]
fn a_late_answer_is_undone_and_the_policy_decides() {
    for (when_down, admitted) in [(WhenDown::Local, true), (WhenDown::Allow, true), (WhenDown::Deny, false)] {
        for overshoot in [0.0, 0.3] {
            let desk = Arc::new(Desk::default());
            let node = node(&desk);
            // More than the unit that may be owed without asking.
            let charge = Charge { cost: 2, ..charge(&node, 1, 100, overshoot, when_down) };
            let decision = decide_late(&node, &[charge], NOW);
            assert_eq!((decision.is_admitted(), decision.tier), (admitted, Tier::Fallback));
            assert_eq!(decision.is_store_down, !admitted);
            desk.answer(NOW + 5 * MS);
            assert_eq!(desk.left(&charge, NOW + 5 * MS), 100, "the late charge was given back");
        }
    }
}

#[test]
fn what_the_centre_has_back_is_not_missing_without_it() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = Charge { cost: 50, ..exact(&node, 1, 100) };
    // Estimates that turn out too high, a request that has gone, one that turns out dearer.
    for cost in [1, 1] {
        let decision = decide(&node, &desk, &[charge], NOW);
        node.settle(&charge, decision.undo(0), NOW, cost, NOW);
    }
    drop(node.decide(&[charge], Caller::default(), NOW, &mut Decision::default()).expect("it waits"));
    desk.answer(NOW);
    let decision = decide(&node, &desk, &[Charge { cost: 1, ..charge }], NOW);
    node.settle(&Charge { cost: 1, ..charge }, decision.undo(0), NOW, 8, NOW);
    desk.answer(NOW);
    assert_eq!(desk.left(&charge, NOW), 90);
    desk.set_down(true);
    assert_eq!(node.look(&charge, NOW).remaining, 90);
}

#[test]
fn what_was_taken_before_or_after_a_wait_comes_back_whole() {
    for algorithm in [Algorithm::SlidingLog, Algorithm::FixedWindow] {
        let desk = Arc::new(Desk::default());
        let node = node(&desk);
        let counted = |charge: Charge| {
            let quota = charge.quota.counted_by(algorithm);
            let sharing = Sharing::new(&quota, 0.0, WhenDown::Local);
            let plan = node.fleet().expect("a fleet's node").plans().number(Plan {
                policy: "p".into(),
                quota,
                sharing,
            });
            node.declare([quota, quota.share_of(2)]);
            Charge { quota, plan, cost: 5, ..charge }
        };
        // The wait ends in the second after it began.
        let begun = NOW - MS;
        let late = counted(exact(&node, 1, 100));
        let undo = decide_late(&node, &[late], begun).undo(0);
        let left =
            |charge: &Charge, now_ns| node.table().peek(&Charge { cost: 0, ..*charge }, now_ns).remaining;
        assert_eq!(left(&late, NOW + 2 * MS), 95);
        node.settle(&late, undo, begun, 2, NOW + 2 * MS);
        assert_eq!(left(&late, NOW + 2 * MS), 98);
        // Refused after the wait, for what was asked; taken before it, by this node alone.
        let own = Charge { plan: 0, ..counted(exact(&node, 2, 100)) };
        let full = Charge { cost: 6, ..exact(&node, 3, 5) };
        let own_and_full = [own, Charge { cost: 5, ..full }];
        assert!(decide_late(&node, &own_and_full, begun).is_admitted());
        assert!(!decide_late(&node, &own_and_full, begun).is_admitted());
        assert_eq!(left(&own, begun), 95, "{algorithm:?}");
    }
}

#[test]
fn without_the_store_a_node_keeps_to_its_share() {
    for (overshoot, when_down, most) in
        [(0.0, WhenDown::Local, 100), (0.3, WhenDown::Local, 100), (0.0, WhenDown::Allow, 100)]
    {
        let desk = Arc::new(Desk::default());
        let node = node(&desk);
        let charge = charge(&node, 1, 100, overshoot, when_down);
        desk.set_down(true);
        let admitted = (0..1_000).filter(|_| decide_late(&node, &[charge], NOW).is_admitted()).count();
        assert_eq!(admitted, most, "{when_down:?} {overshoot}");
        assert_eq!(desk.answer(NOW), 0);
    }
}

#[test]
fn every_address_has_its_own_coarse_limit() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = charge(&node, 1, 10, 0.0, WhenDown::Allow);
    desk.set_down(true);
    // Networks of 64 bits, as IPv6 callers are counted, and IPv4 callers.
    let networks = (1..=300u128).map(|network| (0x2001_0db8 << 32 | network) << 64);
    for address in networks.chain((1..=300).map(|host| 0xffff_0a00_0000 | host)) {
        let caller = Caller { address };
        let mut admits = |_: &u64| {
            let mut decision = Decision::default();
            assert!(node.decide(&[charge], caller, NOW, &mut decision).is_none(), "nothing to wait for");
            decision.is_admitted()
        };
        assert_eq!((1..=11).filter(&mut admits).count(), 10, "{address:x}");
    }
}

#[test]
fn clocks_a_little_apart_refill_a_share_once() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = leased(&node, 1, 1_000);
    desk.set_down(true);
    let admits = |now_ns| decide_late(&node, &[charge], now_ns).is_admitted();
    let burst = (0..2_000).filter(|_| admits(NOW)).count();
    // A request that waited in vain has the time of its end, one that did not that of its beginning.
    let later = (1..=2_000).filter(|turn| admits(NOW + 10 * MS - turn % 2 * 2 * MS)).count();
    assert!((8..=11).contains(&later), "{later} in 10 ms of 1,000 a second, after {burst}");
}

#[test]
fn demand_without_the_store_is_counted_once() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = leased(&node, 1, 1_000);
    assert!(decide(&node, &desk, &[charge], NOW).is_admitted());
    desk.set_down(true);
    let came = (1..=400).filter(|step| decide_late(&node, &[charge], NOW + step * 10 * MS).is_admitted());
    assert_eq!(came.count(), 400);
    desk.answer(NOW + 4 * SECOND);
    desk.set_down(false);
    node.decide(&[charge], Caller::default(), NOW + 4 * SECOND, &mut Decision::default());
    let asked = desk.queue.lock().expect("no test panics here").pop();
    let Some((Op::Renew(renewal), _)) = asked else { panic!("nothing is asked") };
    assert!((95.0..105.0).contains(&renewal.demand), "{renewal:?}");
}

#[test]
fn a_debt_that_was_lost_on_its_way_is_told_again_by_who_went_on_alone() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = Charge { cost: 2, ..leased(&node, 1, 1_000) };
    let begin = |now_ns| {
        let mut decision = Decision::default();
        let waiting = node.decide(&[charge], Caller::default(), now_ns, &mut decision).expect("it waits");
        (waiting, decision)
    };
    let late = |(waiting, mut decision), now_ns| node.resume(waiting, now_ns, &mut decision);
    let take = || desk.queue.lock().expect("no test panics here").remove(0);
    // What is spent while the first question is on its way is owed, and told by the second.
    (0..100).for_each(|turn| late(begin(NOW + turn * MS), NOW + turn * MS));
    let now = NOW + 100 * MS;
    let last = begin(now);
    let (op, done) = take();
    done(Ok(desk.act(&op, NOW)), now);
    let told = match take() {
        (Op::Renew(renewal), done) => {
            late(last, now);
            done(Err(Unanswered::Lost), now);
            renewal.delta
        }
        (other, _) => panic!("{other:?}"),
    };
    assert!(told > 50.0, "{told}");
    let _waits = begin(now + MS);
    let (Op::Renew(renewal), _) = take() else { panic!("nothing is asked") };
    assert!((renewal.delta - told - 2.0).abs() < 0.1, "{} of {told}", renewal.delta);
}

#[test]
fn keys_that_were_alone_come_back_in_turns() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charges: Vec<Charge> = (1..=50).map(|key| leased(&node, key, 1_000)).collect();
    desk.set_down(true);
    assert!(charges.iter().all(|charge| decide_late(&node, &[*charge], NOW).tier == Tier::Fallback));
    desk.set_down(false);
    let back = |held_back| {
        desk.held_back_percent.store(held_back, Ordering::Relaxed);
        let tiers = charges.iter().map(|charge| {
            let decision = decide(&node, &desk, &[*charge], NOW);
            assert!(decision.is_admitted());
            decision.tier
        });
        tiers.filter(|tier| *tier != Tier::Fallback).count()
    };
    let (few, half) = (back(90), back(50));
    assert!((1..15).contains(&few) && (15..35).contains(&half), "{few} and {half} of 50");
    desk.held_back_percent.store(90, Ordering::Relaxed);
    let others = (51..=60).map(|key| leased(&node, key, 1_000));
    assert!(others.into_iter().all(|charge| decide(&node, &desk, &[charge], NOW).tier != Tier::Fallback));
    assert_eq!(back(0), 50);
}

#[test]
fn permits_of_an_outage_are_told_when_it_is_over() {
    for when_down in [WhenDown::Local, WhenDown::Allow] {
        let desk = Arc::new(Desk::default());
        let node = node(&desk);
        let charge = permits(&node, 1, 10, when_down);
        let give_back = |undo| node.give_back(&charge, undo, NOW);
        let mut undos: Vec<Undo> = (0..2).map(|_| decide(&node, &desk, &[charge], NOW).undo(0)).collect();
        assert_eq!(desk.held(&charge), 2);
        desk.set_down(true);
        desk.held.lock().expect("no test panics here").clear();
        while undos.len() < 10 {
            let alone = decide_late(&node, &[charge], NOW);
            assert_eq!((alone.is_admitted(), alone.tier), (true, Tier::Fallback));
            undos.push(alone.undo(0));
        }
        assert!(!decide_late(&node, &[charge], NOW).is_admitted(), "with what it held before");
        undos.drain(..3).for_each(give_back);
        node.sweep(NOW);
        assert_eq!(desk.answer(NOW), 0, "nobody is told");
        desk.set_down(false);
        node.sweep(NOW);
        assert_eq!((desk.answer(NOW), desk.held(&charge)), (1, 7), "at once, and all of it");
        undos.into_iter().for_each(give_back);
        desk.answer(NOW);
        assert_eq!(desk.held(&charge), 0);
    }
}

#[test]
fn permits_that_came_and_went_in_an_outage_leave_nothing() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = permits(&node, 1, 10, WhenDown::Local);
    desk.set_down(true);
    for _ in 0..50 {
        let decision = decide_late(&node, &[charge], NOW);
        assert!(decision.is_admitted());
        node.give_back(&charge, decision.undo(0), NOW);
    }
    desk.set_down(false);
    node.sweep(NOW);
    assert_eq!(desk.answer(NOW), 0);
}

/// Requests for one permit each that come at once, the first of which is asked for alone.
fn volley(node: &Arc<Limiter>, charge: Charge, count: usize) -> Vec<Waiting> {
    let begin = |_| node.decide(&[charge], Caller::default(), NOW, &mut Decision::default());
    (0..count).map(begin).map(|waiting| waiting.expect("it waits")).collect()
}

/// How many of them are admitted.
fn admitted(node: &Arc<Limiter>, volley: Vec<Waiting>) -> usize {
    let admits = |waiting: Waiting| {
        assert!(waiting.is_settled());
        let mut decision = Decision::default();
        decision.outcomes.push(Outcome::new(Answer::Admitted, 0, 0));
        node.resume(waiting, NOW, &mut decision);
        decision.is_admitted()
    };
    volley.into_iter().map(admits).filter(|is_admitted| *is_admitted).count()
}

#[test]
fn permits_are_asked_for_together_and_given_in_turn() {
    // (Limit, held elsewhere, admitted of ten, questions).
    for (limit, elsewhere, most, questions) in [(20, 0, 10, 2), (6, 0, 6, 3), (9, 3, 6, 3), (4, 4, 0, 2)] {
        let desk = Arc::new(Desk::default());
        let node = node(&desk);
        let charge = permits(&node, 1, limit, WhenDown::Deny);
        desk.elsewhere.store(elsewhere, Ordering::Relaxed);
        let volley = volley(&node, charge, 10);
        assert_eq!(desk.answer(NOW), questions, "{limit} {elsewhere}");
        assert_eq!(admitted(&node, volley), most, "{limit} {elsewhere}");
        assert_eq!(desk.held(&charge), most as u64);
    }
}

#[test]
fn nobody_asks_for_a_permit_for_who_has_gone() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = permits(&node, 1, 1_000, WhenDown::Deny);
    let mut volley = volley(&node, charge, 300);
    let rest = volley.split_off(2);
    drop(volley);
    let (gone, stay) = rest.into_iter().enumerate().partition::<Vec<_>, _>(|(turn, _)| turn % 100 != 0);
    drop(gone);
    assert_eq!(desk.answer(NOW), 2, "the first, who has gone by now, and all that stay");
    assert_eq!(admitted(&node, stay.into_iter().map(|(_, waiting)| waiting).collect()), 3);
    assert_eq!(desk.held(&charge), 3);
}

#[test]
fn a_changed_limit_counts_while_permits_are_out() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let limited = |limit| permits(&node, 1, limit, WhenDown::Deny);
    let admits = |charge| decide(&node, &desk, &[charge], NOW).is_admitted();
    assert_eq!([limited(1), limited(1)].map(admits), [true, false]);
    assert_eq!([limited(3), limited(3), limited(3)].map(admits), [true, true, false]);
    assert!(!admits(limited(2)));
    assert_eq!(desk.held(&limited(3)), 3);
}

#[test]
fn a_lost_question_is_no_answer() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charges = [exact(&node, 1, 10), leased(&node, 2, 100)];
    let mut decision = Decision::default();
    let waiting = node.decide(&charges, Caller::default(), NOW, &mut decision).expect("it waits");
    desk.lose(NOW + MS);
    assert!(waiting.is_settled());
    node.resume(waiting, NOW + MS, &mut decision);
    assert_eq!((decision.is_admitted(), decision.tier), (true, Tier::Fallback));
}

#[test]
fn a_draining_node_returns_its_leases() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = leased(&node, 1, 1_000);
    for turn in 0..500 {
        decide(&node, &desk, &[charge], NOW + turn * MS);
    }
    let end = NOW + 500 * MS;
    node.release_all(end);
    assert_eq!(desk.answer(end), 1);
    let other = super::fleet_tests::node(&desk);
    let most = leased(&other, 1, 1_000);
    let left = (0..2_000).filter(|_| decide(&other, &desk, &[most], end).is_admitted()).count();
    // 500 were spent and 500 refilled, but a full bucket does not refill what was spent and not yet told.
    assert!((510..=1_001).contains(&left), "{left}");
}

#[test]
fn leases_go_back_a_few_at_a_time_and_those_on_their_way_too() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let take = |key: u64, now_ns| {
        let charge = leased(&node, key << 14, 1_000);
        drop(node.decide(&[charge], Caller::default(), now_ns, &mut Decision::default()));
    };
    (1..=600).for_each(|key| take(key, NOW));
    assert_eq!(desk.answer(NOW + MS), 600);
    while desk.queue.lock().expect("no test panics here").is_empty() {
        take(600, NOW + 2 * MS);
    }
    assert!(node.release_all(NOW + 2 * MS), "there are more");
    let first = desk.answer(NOW + 2 * MS);
    assert!((300..=513).contains(&first), "{first}");
    let mut rest = 0;
    while node.release_all(NOW + 3 * MS) {
        rest += desk.answer(NOW + 3 * MS);
    }
    rest += desk.answer(NOW + 3 * MS);
    // And the renewal of the last.
    assert_eq!(first + rest, 601);
}

#[test]
fn one_question_shows_where_shadow_and_answer_part() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let shadow = Charge { shadow: true, ..exact(&node, 1, 1) };
    assert!(decide(&node, &desk, &[shadow], NOW).is_admitted());
    let over = decide(&node, &desk, &[shadow], NOW);
    assert!(over.is_admitted());
    assert_eq!(over.outcomes[0].answer(), Answer::Later { retry_after_ns: SECOND });
}

#[test]
fn a_cost_is_settled_where_it_was_taken() {
    let desk = Arc::new(Desk::default());
    let node = node(&desk);
    let charge = Charge { cost: 5, ..exact(&node, 1, 100) };
    for (cost, left) in [(2, 98), (11, 87), (5, 82)] {
        let decision = decide(&node, &desk, &[charge], NOW);
        node.settle(&charge, decision.undo(0), NOW, cost, NOW);
        desk.answer(NOW);
        assert_eq!(desk.left(&charge, NOW), left);
    }
    let charge = leased(&node, 2, 1_000);
    decide(&node, &desk, &[charge], NOW);
    let decision = decide(&node, &desk, &[charge], NOW);
    assert_eq!(decision.undo(0), Undo::Share);
    assert!(decide(&node, &desk, &[charge], NOW).is_admitted());
    node.settle(&charge, decision.undo(0), NOW, 5_000, NOW);
    assert!(!decide(&node, &desk, &[charge], NOW).is_admitted(), "what is owed is owed at the centre too");
    assert!(decide(&node, &desk, &[charge], NOW + 10 * SECOND).is_admitted(), "and repaid");
}
