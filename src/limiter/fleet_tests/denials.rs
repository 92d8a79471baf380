//! What Redis refuses: how long a node remembers it, and what ends it.

use super::*;

#[test]
fn an_exact_window_is_one_for_all_nodes() {
    let desk = Arc::new(FakeRedis::default());
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
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = exact(&node, 1, 10);
    let dear = Charge { cost: 10, ..charge };
    assert!(decide(&node, &desk, &[dear], NOW).is_admitted());
    let refused = decide(&node, &desk, &[charge], NOW);
    assert_eq!((refused.tier, refused.retry_after_ns()), (DecidingTier::Global, Some(SECOND / 10)));
    for _ in 0..5 {
        let refused = decide(&node, &desk, &[charge], NOW + 50 * MS);
        assert_eq!((refused.is_admitted(), refused.tier), (false, DecidingTier::Local));
    }
    assert_eq!(desk.answer(NOW), 0, "nothing was asked");
    assert!(decide(&node, &desk, &[charge], NOW + 101 * MS).is_admitted());
    // A dearer denial says nothing of a cheaper request.
    assert!(!decide(&node, &desk, &[Charge { cost: 5, ..charge }], NOW + 210 * MS).is_admitted());
    assert!(decide(&node, &desk, &[charge], NOW + 210 * MS).is_admitted());
}

#[test]
fn a_window_that_would_have_fitted_shows_what_it_has() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let (narrow, wide) = (exact(&node, 1, 10), exact(&node, 3, 100));
    let of = |cost| [Charge { cost, ..narrow }, Charge { cost, ..wide }];
    assert!(decide(&node, &desk, &of(10), NOW).is_admitted());
    for tier in [DecidingTier::Global, DecidingTier::Local] {
        let refused = decide(&node, &desk, &of(1), NOW);
        assert_eq!((refused.is_admitted(), refused.tier), (false, tier));
        assert_eq!(refused.outcomes[1].remaining, 90, "nothing was spent of it");
    }
}

#[test]
fn each_window_says_who_decided_it() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let (narrow, wide, lent) = (exact(&node, 1, 10), exact(&node, 3, 100), leased(&node, 5, 100));
    let charges = |cost| [lent, Charge { cost, ..narrow }, Charge { cost, ..wide }];
    let who = |decision: &Decision, charges: &[Charge]| -> Vec<_> {
        let by = |which| node.inspect().provenance(decision, which, NOW + MS);
        charges.iter().enumerate().map(by).map(|it| (it.by, it.age_ns.is_some())).collect()
    };
    for turn in 1..50 {
        decide(&node, &desk, &[lent], NOW - SECOND + turn * 20 * MS);
    }
    let admitted = decide(&node, &desk, &charges(10), NOW);
    assert_eq!(who(&admitted, &charges(10)), [("lease", true), ("redis", true), ("redis", true)]);
    let refused = decide(&node, &desk, &charges(1), NOW);
    assert_eq!(who(&refused, &charges(1)), [("lease", true), ("redis", true), ("redis", true)]);
    let refused = decide(&node, &desk, &charges(1), NOW);
    assert_eq!(who(&refused, &charges(1)), [("lease", true), ("remembered", true), ("unasked", true)]);
    let never = decide(&node, &desk, &charges(11), NOW);
    assert_eq!(who(&never, &charges(11)), [("lease", true), ("unasked", true), ("unasked", true)]);
    desk.set_down(true);
    let alone = decide(&node, &desk, &[wide], NOW);
    assert_eq!(who(&alone, &[wide]), [("fallback", true)]);
}

#[test]
fn of_what_redis_never_said_nothing_is_remembered() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charges = [exact(&node, 1, 1), exact(&node, 3, 1)];
    let lent = leased(&node, 5, 100);
    let who = |decision: &Decision, charges: &[Charge]| -> Vec<_> {
        let by = |which| node.inspect().provenance(decision, which, NOW);
        charges.iter().enumerate().map(by).map(|it| it.by).collect()
    };
    // Refused by one window, so that Redis was never asked about the lease.
    assert!(decide(&node, &desk, &charges[..1], NOW).is_admitted());
    assert!(!decide(&node, &desk, &charges[..1], NOW).is_admitted());
    let refused = decide(&node, &desk, &[charges[0], lent], NOW);
    assert_eq!(who(&refused, &[charges[0], lent]), ["remembered", "unasked"]);
    let charges = [exact(&node, 7, 2), exact(&node, 9, 2)];
    desk.set_down(true);
    let mut decisions = (0..5).map(|_| decide(&node, &desk, &charges, NOW));
    let refused = decisions.find(|decision| !decision.is_admitted()).expect("there are two units");
    assert_eq!(refused.violated(&charges).count(), 2);
    assert_eq!(who(&refused, &charges), ["fallback", "fallback"]);
}

#[test]
fn what_is_left_without_redis_is_what_this_node_decides_by() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = exact(&node, 1, 10);
    assert!(decide(&node, &desk, &[Charge { cost: 4, ..charge }], NOW).is_admitted());
    desk.set_down(true);
    let left = |now_ns| node.inspect().without_look(&Charge { cost: 0, ..charge }, now_ns).remaining;
    // Half of ten is this node's part, and it has spent two of that: every second unit that Redis admitted.
    let first = left(NOW);
    let admits = (0..10).filter(|_| decide_late(&node, &[charge], NOW).is_admitted()).count();
    assert_eq!(first, admits as u64);
    assert_eq!(left(NOW), 0);
    // Known to be empty: refused from memory, so nothing is left.
    desk.set_down(false);
    let dear = exact(&node, 3, 10);
    assert!(decide(&node, &desk, &[Charge { cost: 10, ..dear }], NOW).is_admitted());
    assert!(!decide(&node, &desk, &[dear], NOW).is_admitted());
    desk.set_down(true);
    assert!(!decide_late(&node, &[dear], NOW).is_admitted());
    assert_eq!(node.inspect().without_look(&Charge { cost: 0, ..dear }, NOW).remaining, 0);
    // As the policy says, nobody is admitted.
    let deny = self::charge(&node, 7, 10, 0.0, WhenDown::Deny);
    assert_eq!(node.inspect().without_look(&Charge { cost: 0, ..deny }, NOW).remaining, 0);
}

#[test]
fn costs_have_room_however_large_they_are() {
    let desk = Arc::new(FakeRedis::default());
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
        let begin = |_| node.decide(&[dear], ClientAddress::default(), NOW, &mut Decision::default());
        let waiting: Vec<_> = (0..4).map(begin).collect();
        desk.answer(NOW);
        assert!(waiting.iter().flatten().all(Waiting::is_resolved));
    }
}

#[test]
fn a_denial_ends_where_units_come_back() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = Charge { cost: 9, ..exact(&node, 1, 10) };
    let cheap = Charge { cost: 5, ..charge };
    let denied = |charge| {
        let decision = decide(&node, &desk, &[charge], NOW);
        (!decision.is_admitted(), decision.tier)
    };
    // A cost that is settled, and an answer that came too late for its request.
    let refund = decide(&node, &desk, &[charge], NOW).refund(0);
    assert_eq!([denied(cheap), denied(cheap)], [(true, DecidingTier::Global), (true, DecidingTier::Local)]);
    node.reconcile(&charge, refund, NOW, 1, NOW);
    assert_eq!(desk.answer(NOW), 1);
    let late =
        node.decide(&[cheap], ClientAddress::default(), NOW, &mut Decision::default()).expect("it asks");
    let (op, done) = desk.queue.lock().expect("no test panics here").remove(0);
    let taken = desk.act(&op, NOW);
    drop(late);
    done(Ok(taken), NOW);
    assert_eq!(desk.answer(NOW), 1);
    assert_eq!(denied(cheap), (false, DecidingTier::Global));
}

#[test]
fn a_changed_limit_ends_what_was_denied_under_the_old_one() {
    for overshoot in [0.0, 0.3] {
        let desk = Arc::new(FakeRedis::default());
        let node = node(&desk);
        let limited = |limit| Charge { cost: 2, ..charge(&node, 1, limit, overshoot, WhenDown::Local) };
        let begin = |charge| node.decide(&[charge], ClientAddress::default(), NOW, &mut Decision::default());
        let (old, new) = (limited(1_000), limited(5_000));
        let asked = begin(old).expect("it waits");
        let deny = || {
            let (op, done) = desk.queue.lock().expect("no test panics here").remove(0);
            let hour_ns = 3_600 * SECOND;
            let outcome = Outcome::new(Answer::Later { retry_after_ns: hour_ns }, 0, hour_ns);
            done(
                Ok(match op {
                    Op::Renew(_) => Reply::Grant(Grant { epoch: 1, deny_ns: hour_ns, ..Grant::default() }),
                    _ => Reply::Taken(TakeReply {
                        outcomes: [outcome].into_iter().collect(),
                        ..TakeReply::default()
                    }),
                }),
                NOW,
            );
        };
        deny();
        drop(asked);
        assert!(begin(old).is_none(), "it is remembered");
        drop(begin(new).expect("what is left of the new limit only Redis knows"));
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
    let desk = Arc::new(FakeRedis::default());
    let nodes = [node(&desk), node(&desk)];
    let [first, second] = [0, 1].map(|index: usize| {
        let limit = exact(&nodes[index], 1, 10).quota.limit();
        let day = NonZeroU64::new(86_400 * SECOND).expect("not zero");
        let quota = Quota::new(Algorithm::TokenBucket, limit, day, limit);
        let sharing = Sharing::new(&quota, 0.0, WhenDown::Local);
        let plan = Plan { policy: "day".into(), quota, sharing };
        let plan = nodes[index].fleet().expect("it is in a fleet").plans().id(plan);
        Charge { quota, plan: Some(plan), ..exact(&nodes[index], 1, 10) }
    });
    let dear = Charge { cost: 10, ..first };
    let taken = decide(&nodes[0], &desk, &[dear], NOW);
    let refused = decide(&nodes[1], &desk, &[second], NOW);
    assert!(refused.retry_after_ns().is_some_and(|wait_ns| wait_ns > 3_600 * SECOND));
    for turn in 1..=5 {
        let now = NOW + turn * 501 * MS;
        for others in 0..10 {
            let refused = decide(&nodes[1], &desk, &[second], now + others);
            let tier = if others == 0 { DecidingTier::Global } else { DecidingTier::Local };
            assert_eq!((refused.is_admitted(), refused.tier), (false, tier));
            assert!(refused.retry_after_ns().is_some_and(|wait_ns| wait_ns > 3_600 * SECOND));
        }
    }
    // The dear one cost less than it was thought to.
    nodes[0].reconcile(&dear, taken.refund(0), NOW, 3, NOW + 3 * SECOND);
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
        (false, DecidingTier::Local),
        "who could say otherwise is away"
    );
}

#[test]
fn a_costlier_request_has_to_wait_longer() {
    let desk = Arc::new(FakeRedis::default());
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
fn requests_counted_when_denied_are_reported_each_time() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let counted = Charge { count_denied: true, ..exact(&node, 1, 1) };
    for turn in 0..4 {
        let decision = decide(&node, &desk, &[counted], NOW);
        assert_eq!((decision.is_admitted(), decision.tier), (turn == 0, DecidingTier::Global));
    }
}

#[test]
fn one_question_shows_where_shadow_and_answer_part() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let shadow = Charge { shadow: true, ..exact(&node, 1, 1) };
    assert!(decide(&node, &desk, &[shadow], NOW).is_admitted());
    let over = decide(&node, &desk, &[shadow], NOW);
    assert!(over.is_admitted());
    assert_eq!(over.outcomes[0].answer(), Answer::Later { retry_after_ns: SECOND });
}

#[test]
fn a_denial_lasts_a_while_however_fast_the_limit_refills() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = exact(&node, 1, 1_000);
    assert!(decide(&node, &desk, &[Charge { cost: 1_000, ..charge }], NOW).is_admitted());
    assert_eq!(decide(&node, &desk, &[charge], NOW).retry_after_ns(), Some(MS));
    for ms in [2, 10, 19] {
        let refused = decide(&node, &desk, &[charge], NOW + ms * MS);
        assert_eq!((refused.is_admitted(), refused.tier), (false, DecidingTier::Local), "{ms} ms");
    }
    // What refilled meanwhile is there.
    let admitted = (0..40).filter(|_| decide(&node, &desk, &[charge], NOW + 21 * MS).is_admitted()).count();
    assert_eq!(admitted, 21);
}
