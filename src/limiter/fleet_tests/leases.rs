//! Leases: what is asked, for whom, and what goes back.

use super::*;

#[test]
fn a_hot_key_asks_now_and_then_and_both_nodes_stay_within_the_limit() {
    let desk = Arc::new(FakeRedis::default());
    let nodes = [node(&desk), node(&desk)];
    let charges = [leased(&nodes[0], 1, 1_000), leased(&nodes[1], 1, 1_000)];
    let (mut admitted, mut local, mut asked) = (0, 0, 0);
    // 4,000 requests a second over two nodes, for ten seconds.
    for turn in 0..40_000u64 {
        let (index, now_ns) = ((turn % 2) as usize, NOW + turn * SECOND / 4_000);
        let mut decision = Decision::default();
        let waiting =
            nodes[index].decide(&charges[index..=index], ClientAddress::default(), now_ns, &mut decision);
        asked += desk.answer(now_ns);
        if let Some(waiting) = waiting {
            waiting.resume(now_ns, &mut decision);
        }
        admitted += u64::from(decision.is_admitted());
        local += u64::from(decision.tier == DecidingTier::Local);
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
fn a_lease_goes_back_under_its_plan_before_redis_decides_each_request() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let (before, after) = (leased(&node, 1, 1_000), exact(&node, 1, 5));
    for turn in 0..20 {
        decide(&node, &desk, &[before], NOW + turn * MS);
    }
    let asked = || {
        let queue = desk.queue.lock().expect("no test panics here");
        let ask = |(op, _): &(Op, Done)| match op {
            Op::Renew(renewal) => (renewal.release, renewal.plan.sharing.is_exact()),
            _ => (false, true),
        };
        queue.iter().map(ask).collect::<Vec<_>>()
    };
    let now_ns = NOW + 20 * MS;
    let mut decision = Decision::default();
    // A renewal is on its way when the limit falls, and brings units that nobody spends any more.
    node.decide(&[Charge { cost: 500, ..before }], ClientAddress::default(), now_ns, &mut decision);
    let waiting = node.decide(&[after], ClientAddress::default(), now_ns, &mut decision).expect("it asks");
    assert_eq!(asked(), [(false, false), (false, true)]);
    desk.answer(now_ns);
    waiting.resume(now_ns, &mut decision);
    let waiting = node.decide(&[after], ClientAddress::default(), now_ns, &mut decision).expect("it asks");
    assert_eq!(asked(), [(true, false), (false, true)]);
    desk.answer(now_ns);
    waiting.resume(now_ns, &mut decision);
    // From here on it remembers what Redis says, and returns nothing more.
    (0..4).for_each(|_| drop(decide(&node, &desk, &[after], now_ns)));
    let mut again = Decision::default();
    assert!(
        node.decide(&[after], ClientAddress::default(), now_ns, &mut again).is_none() && !again.is_admitted()
    );
    (0..40).for_each(|turn| node.sweep(now_ns + turn * 100 * MS));
    assert_eq!(asked(), []);
}

#[test]
fn requests_that_come_while_a_renewal_is_on_its_way_have_their_own() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = leased(&node, 1, 1_000);
    let mut first = Decision::default();
    assert!(
        node.decide(&[charge], ClientAddress::default(), NOW, &mut first).is_none(),
        "a unit may be owed"
    );
    assert_eq!((first.is_admitted(), first.tier), (true, DecidingTier::Local));
    let mut decisions: Vec<Decision> = (0..100).map(|_| Decision::default()).collect();
    let waiting: Vec<_> = decisions
        .iter_mut()
        .map(|decision| node.decide(&[charge], ClientAddress::default(), NOW, decision).expect("and no more"))
        .collect();
    assert_eq!(desk.answer(NOW + MS), 2, "one for the first, one for all others");
    for (waiting, decision) in waiting.into_iter().zip(&mut decisions) {
        assert!(waiting.is_resolved());
        waiting.resume(NOW + MS, decision);
        assert!(decision.is_admitted());
    }
}

#[test]
fn a_renewal_asks_for_those_who_still_wait_by_the_newest_plan() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let (old, new) = (leased(&node, 1, 1_000), leased(&node, 1, 2_000));
    let wait = |charge: Charge, cost| {
        let charge = Charge { cost, ..charge };
        node.decide(&[charge], ClientAddress::default(), NOW, &mut Decision::default()).expect("it waits")
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
    assert!(first.is_resolved());
}

#[test]
fn what_a_renewal_brings_serves_who_came_after_it_was_sent() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = leased(&node, 1, 1_000);
    let decide = |decision: &mut Decision| node.decide(&[charge], ClientAddress::default(), NOW, decision);
    assert!(decide(&mut Decision::default()).is_none(), "a unit may be owed");
    desk.answer(NOW);
    assert!(decide(&mut Decision::default()).is_none(), "it is asked for so often that it asks for more");
    let (mut early, mut late) = (Decision::default(), Decision::default());
    let waiting = [decide(&mut early).expect("no more may"), decide(&mut late).expect("nor here")];
    assert_eq!(desk.answer(NOW + MS), 1, "it brings units for those to come");
    for (waiting, decision) in waiting.into_iter().zip([&mut early, &mut late]) {
        assert!(waiting.is_resolved());
        waiting.resume(NOW + MS, decision);
        assert_eq!((decision.is_admitted(), decision.tier), (true, DecidingTier::Global));
    }
}

#[test]
fn a_lost_question_is_no_answer() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charges = [exact(&node, 1, 10), leased(&node, 2, 100)];
    let mut decision = Decision::default();
    let waiting = node.decide(&charges, ClientAddress::default(), NOW, &mut decision).expect("it waits");
    desk.lose(NOW + MS);
    assert!(waiting.is_resolved());
    waiting.resume(NOW + MS, &mut decision);
    assert_eq!((decision.is_admitted(), decision.tier), (true, DecidingTier::Fallback));
}

#[test]
fn a_draining_node_returns_its_leases() {
    let desk = Arc::new(FakeRedis::default());
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
fn a_node_that_stops_returns_what_it_holds_until_redis_has_it() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = leased(&node, 1, 1_000);
    for turn in 0..500 {
        decide(&node, &desk, &[charge], NOW + turn * MS);
    }
    let end = NOW + 500 * MS;
    let leases = node.inspect().leases().expect("it is in a fleet");
    let held = || leases.view(charge.key, end).map_or(0.0, |view| view.held);
    let before = held();
    assert!(before >= 1.0, "{before}");
    // The connection breaks just then: the return is not sent, and the shard seems to be away.
    assert!(node.release_all(end), "an answer is missing");
    desk.refuse(end, LinkError::Down);
    desk.set_down(true);
    assert!(node.release_all(end), "it is held again, and sent again");
    assert!(node.release_all(end), "an answer is missing");
    assert_eq!(desk.answer(end), 1);
    assert!(!node.release_all(end));
    assert!(held() < 1.0);
}

#[test]
fn a_node_that_stops_waits_for_what_it_has_asked_and_returns_that_too() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let yearly = of_a_year(&node, leased(&node, 1, 1_000));
    // Its request has stopped waiting; nothing of the key is known yet.
    assert!(decide_late(&node, &[yearly], NOW).is_admitted());
    assert!(node.release_all(NOW + 3 * MS), "the answer may bring units");
    while node.release_all(NOW + 4 * MS) {
        desk.answer(NOW + 4 * MS);
    }
    assert_eq!(left_for_another(&desk, NOW + 5 * MS), 999);
}

/// A charge whose limit hardly refills, so that nothing makes up for what is lost.
fn of_a_year(node: &Limiter, charge: Charge) -> Charge {
    let year_ns = NonZeroU64::new(365 * 24 * 3_600 * SECOND).expect("not zero");
    let quota = Quota::new(Algorithm::TokenBucket, charge.quota.limit(), year_ns, charge.quota.limit());
    let sharing = Sharing::new(&quota, 0.3, WhenDown::Local);
    let plan = node.fleet().expect("a fleet's node").plans().id(Plan { policy: "p".into(), quota, sharing });
    node.table().declare([quota, quota.share_of(2)]);
    Charge { quota, plan: Some(plan), ..charge }
}

/// How many units of the year's limit another node can spend.
fn left_for_another(desk: &Arc<FakeRedis>, now_ns: u64) -> usize {
    let other = node(desk);
    let yearly = of_a_year(&other, leased(&other, 1, 1_000));
    (0..2_000).filter(|_| decide(&other, desk, &[yearly], now_ns).is_admitted()).count()
}

#[test]
fn leases_go_back_a_few_at_a_time_and_those_on_their_way_too() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let take = |key: u64, now_ns| {
        let charge = leased(&node, key << 14, 1_000);
        drop(node.decide(&[charge], ClientAddress::default(), now_ns, &mut Decision::default()));
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
fn a_lowered_limit_holds_at_once_on_every_node() {
    let desk = Arc::new(FakeRedis::default());
    let nodes = [node(&desk), node(&desk)];
    let (mut before, mut after) = (0, 0);
    // 2,000 requests a second over two nodes, which hold more than they need; after a second Redis answers nobody for a moment.
    for turn in 0..2_400_u64 {
        let (index, now_ns) = ((turn % 2) as usize, NOW + turn * SECOND / 2_000);
        let charge = leased(&nodes[index], 1, if turn < 2_000 { 10_000 } else { 100 });
        let mut decision = Decision::default();
        let waiting = nodes[index].decide(&[charge], ClientAddress::default(), now_ns, &mut decision);
        if turn < 2_000 {
            desk.answer(now_ns);
            if let Some(waiting) = waiting {
                waiting.resume(now_ns, &mut decision);
            }
            before += u64::from(decision.is_admitted());
        } else {
            after += u64::from(waiting.is_none() && decision.is_admitted());
        }
    }
    assert_eq!(before, 2_000);
    // A hundredth of what they held, and a unit that each may owe.
    assert!(after <= 12, "{after} of 400");
    // What Redis has left is a hundredth, too: nearly all of the limit is unspent.
    let now_ns = NOW + 1_200 * MS;
    let charge = leased(&nodes[0], 1, 100);
    let mut admitted = 0;
    for _ in 0..300 {
        let mut decision = Decision::default();
        let waiting = nodes[0].decide(&[charge], ClientAddress::default(), now_ns, &mut decision);
        desk.answer(now_ns);
        if let Some(waiting) = waiting {
            waiting.resume(now_ns, &mut decision);
        }
        admitted += u64::from(decision.is_admitted());
    }
    assert!((60..=110).contains(&admitted), "{admitted} of a hundred");
}

/// Units that a node has spent and not yet reported are not among those that a lower limit leaves in Redis.
#[test]
fn what_nodes_have_spent_of_a_lowered_bucket_stays_spent() {
    let positive = |number| NonZeroU64::new(number).expect("tests give no zero");
    let of = |limit, burst, seconds: u64| {
        Quota::new(Algorithm::TokenBucket, positive(limit), positive(seconds * SECOND), positive(burst))
    };
    // High and low limit and burst, period, spent.
    for (high, low, seconds, spent) in [
        ((100_000, 100_000), (1_000, 1_000), 3_600, 900),
        ((100_000, 100_000), (20_000, 20_000), 3_600, 2_000),
        ((1_000, 1_000), (500, 500), 1, 300),
        ((1_000, 1_000), (100, 1_000), 1, 300),
        ((1_000, 1_000), (1_000, 500), 1, 300),
        ((10_000, 10_000), (2_000, 2_000), 60, 1_500),
    ] {
        for spenders in [1, 2] {
            let desk = Arc::new(FakeRedis::default());
            let nodes = [node(&desk), node(&desk)];
            let charge = |(limit, burst)| {
                let quota = of(limit, burst, seconds);
                let sharing = Sharing::new(&quota, 0.01, WhenDown::Local);
                let ids = nodes.each_ref().map(|node| {
                    let plans = node.fleet().expect("a fleet's node").plans();
                    plans.id(Plan { policy: "p".into(), quota, sharing })
                });
                ids.map(|plan| Charge { plan: Some(plan), ..Charge::one(Key::new(7), quota) })
            };
            let (before, after) = (charge(high), charge(low));
            let step_ns = SECOND / 10 / spent;
            for turn in 0..spent {
                let index = (turn % spenders) as usize;
                let now_ns = NOW + turn * step_ns;
                assert!(decide(&nodes[index], &desk, &[before[index]], now_ns).is_admitted());
            }
            let now_ns = NOW + SECOND / 10;
            let ask = |turn: &u64| {
                let index = (turn % 2) as usize;
                decide(&nodes[index], &desk, &[after[index]], now_ns).is_admitted()
            };
            let admitted = (0..3 * low.1).filter(ask).count() as u64;
            // What may have refilled meanwhile, as each node and Redis see it, and the unit that each may owe.
            let refilled = (high.0 / 10 / seconds + 1) * (spenders + 1);
            let right = low.1 - spent;
            let name = format!(
                "{high:?} to {low:?} in {seconds} s, {spent} spent on {spenders}: {admitted} of {right}"
            );
            assert!(admitted <= right + refilled + 2, "{name}");
            assert!(admitted >= right - right / 20 - 2, "{name}");
        }
    }
}

/// What a lower limit does not hold runs off as under the old one, and clients are told that, as by a node alone.
#[test]
fn a_lowered_bucket_tells_when_it_admits_again() {
    let positive = |number| NonZeroU64::new(number).expect("tests give no zero");
    let of = |limit, seconds: u64| {
        Quota::new(Algorithm::TokenBucket, positive(limit), positive(seconds * SECOND), positive(limit))
    };
    for (high, spent, low, seconds) in
        [(100_000, 200, 20, 86_400), (600, 300, 20, 3_600), (60, 30, 20, 60), (60, 60, 20, 60)]
    {
        let desk = Arc::new(FakeRedis::default());
        let (node, alone) = (node(&desk), Arc::new(Limiter::new(Table::with_memory(1 << 16))));
        let charge = |limit| {
            let quota = of(limit, seconds);
            let sharing = Sharing { epoch_ns: SECOND / 2, spare: 0, when_down: WhenDown::Local };
            let plan =
                node.fleet().expect("a fleet's node").plans().id(Plan { policy: "p".into(), quota, sharing });
            node.table().declare([quota]);
            alone.table().declare([quota]);
            Charge { plan: Some(plan), ..Charge::one(Key::new(7), quota) }
        };
        let (before, after) = (charge(high), charge(low));
        let ask = |charge: Charge, now_ns| {
            [decide(&node, &desk, &[charge], now_ns), {
                let mut decision = Decision::default();
                let charge = Charge { plan: None, ..charge };
                assert!(alone.decide(&[charge], ClientAddress::default(), now_ns, &mut decision).is_none());
                decision
            }]
        };
        for _ in 0..spent {
            assert!(ask(before, NOW).iter().all(Decision::is_admitted));
        }
        // Redis hears what was spent of leases.
        for ago_ns in (1..=6).map(|turn| turn * SECOND / 2) {
            node.sweep(NOW + ago_ns);
            desk.answer(NOW + ago_ns);
        }
        for ago_ns in [4 * SECOND, 8 * SECOND] {
            let [shared, alone] =
                ask(after, NOW + ago_ns).map(|told| told.retry_after_ns().expect("refused"));
            let name = format!("{spent} of {high}, then {low} in {seconds} s");
            assert!(shared.abs_diff(alone) <= alone / 50 + SECOND, "{name}: {shared} {alone}");
        }
    }
}

/// Lowered and raised again, twice: what a node holds of the higher limit, and may not spend under the lower one, comes back.
#[test]
fn a_bucket_that_goes_down_and_up_loses_nothing() {
    let positive = |number| NonZeroU64::new(number).expect("tests give no zero");
    for (high, low) in [(6_000, 50), (6_000, 500), (600, 60)] {
        let desk = Arc::new(FakeRedis::default());
        let node = node(&desk);
        let charge = |limit| {
            let quota = Quota::new(
                Algorithm::TokenBucket,
                positive(limit),
                positive(86_400 * SECOND),
                positive(limit),
            );
            let sharing = Sharing { epoch_ns: SECOND / 2, spare: 0, when_down: WhenDown::Local };
            let plan =
                node.fleet().expect("a fleet's node").plans().id(Plan { policy: "p".into(), quota, sharing });
            Charge { plan: Some(plan), ..Charge::one(Key::new(7), quota) }
        };
        let (high_charge, low_charge) = (charge(high), charge(low));
        let (mut now_ns, mut admitted) = (NOW, 0);
        let mut ask = |charge: &Charge, times: u64, now_ns: u64| {
            let mut told = Decision::default();
            for _ in 0..times {
                told = decide(&node, &desk, &[*charge], now_ns);
                admitted += u64::from(told.is_admitted());
            }
            (told, admitted)
        };
        ask(&low_charge, low + 3, now_ns);
        for _ in 0..3 {
            now_ns += SECOND;
            let (told, admitted) = ask(&high_charge, 3, now_ns);
            let (left, right) = (told.outcomes[0].remaining, high - admitted);
            assert!(left.abs_diff(right) <= 2, "{high} and {low}: {left} left of {right}");
            now_ns += SECOND;
            let (told, _) = ask(&low_charge, 3, now_ns);
            assert!(!told.is_admitted() && told.outcomes[0].remaining == 0, "{high} and {low}");
        }
    }
}

/// Whatever a node has heard last of a window: what refuses a request has not enough for it.
#[test]
fn a_window_that_refuses_says_that_nothing_is_left() {
    let positive = |number| NonZeroU64::new(number).expect("tests give no zero");
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        for (low, seconds) in [(5, 1), (20, 1), (20, 10), (100, 10)] {
            let desk = Arc::new(FakeRedis::default());
            let node = node(&desk);
            let charge = |limit| {
                let quota =
                    Quota::new(algorithm, positive(limit), positive(seconds * SECOND), positive(limit));
                let sharing = Sharing::new(&quota, 0.05, WhenDown::Local);
                let plans = node.fleet().expect("a fleet's node").plans();
                let plan = plans.id(Plan { policy: "p".into(), quota, sharing });
                Charge { plan: Some(plan), ..Charge::one(Key::new(7), quota) }
            };
            let (before, after) = (charge(600), charge(low));
            let mut refused = 0;
            for turn in 0..2_000 {
                let cost = 1 + turn % 2;
                let charge = Charge { cost, ..if turn < 500 { before } else { after } };
                let told = decide(&node, &desk, &[charge], NOW + turn * 2 * MS);
                refused += u64::from(!told.is_admitted());
                let left = told.outcomes[0].remaining;
                assert!(told.is_admitted() || left < cost, "{algorithm:?} {low}: {left} left at {turn}");
            }
            assert!(refused > 500, "{algorithm:?} {low}: {refused}");
        }
    }
}

/// A cost that is known long after its request, on a key of which no other request comes.
#[test]
fn what_is_owed_after_a_lease_has_ended_is_reported_by_the_next_sweep() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = leased(&node, 1, 1_000);
    decide(&node, &desk, &[charge], NOW);
    let decision = decide(&node, &desk, &[charge], NOW);
    assert_eq!(decision.refund(0), Refund::Lease);
    for later in 1..200 {
        node.sweep(NOW + later * 50 * MS);
        desk.answer(NOW + later * 50 * MS);
    }
    let later = NOW + 10 * SECOND;
    node.reconcile(&charge, decision.refund(0), NOW, 501, later);
    node.sweep(later + SECOND);
    let told = match &desk.queue.lock().expect("no test panics here")[..] {
        [(Op::Renew(renewal), _)] => renewal.delta,
        other => panic!("{} messages", other.len()),
    };
    assert_eq!(told, 500.0);
}

/// The unit that a node owed so that its first request need not wait.
#[test]
fn what_a_lost_first_renewal_owed_is_reported_by_a_sweep() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = leased(&node, 1, 1_000);
    let mut decision = Decision::default();
    assert!(node.decide(&[charge], ClientAddress::default(), NOW, &mut decision).is_none(), "it is owed");
    desk.refuse(NOW + MS, LinkError::Down);
    node.sweep(NOW + SECOND);
    let told = match &desk.queue.lock().expect("no test panics here")[..] {
        [(Op::Renew(renewal), _)] => renewal.delta,
        other => panic!("{} messages", other.len()),
    };
    assert_eq!(told, 1.0);
}

#[test]
fn a_cost_that_is_known_after_its_lease_is_told_with_the_next_sweep() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = leased(&node, 1, 1_000);
    let decision = decide(&node, &desk, &[charge], NOW);
    assert_eq!(decision.refund(0), Refund::Lease);
    let mut now_ns = NOW;
    // What the lease holds goes back, and nothing is left to look at.
    for _ in 0..100 {
        now_ns += 50 * MS;
        node.sweep(now_ns);
        desk.answer(now_ns);
    }
    node.reconcile(&charge, decision.refund(0), NOW, 501, now_ns);
    node.sweep(now_ns + 50 * MS);
    assert_eq!(desk.answer(now_ns + 50 * MS), 1, "no request has to come for it");
}

#[test]
fn a_lease_that_may_not_go_is_looked_at_again_and_goes_when_it_may() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = leased(&node, 1, 1_000);
    for turn in 0..50 {
        decide(&node, &desk, &[charge], NOW + turn * MS);
    }
    *desk.is_down.lock().expect("no test panics here") = true;
    let sweep_for = |from_ns: u64, sweeps: u64| {
        (1..=sweeps).for_each(|sweep| node.sweep(from_ns + sweep * 50 * MS));
        desk.queue.lock().expect("no test panics here").len()
    };
    assert_eq!(sweep_for(NOW, 100), 0, "nothing is asked of a Redis that is away");
    *desk.is_down.lock().expect("no test panics here") = false;
    assert_eq!(sweep_for(NOW + 5 * SECOND, 1), 1, "what it holds goes back when Redis is there again");
    desk.answer(NOW + 6 * SECOND);
    assert_eq!(sweep_for(NOW + 6 * SECOND, 100), 0);
}
