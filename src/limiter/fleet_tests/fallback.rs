//! Without Redis, or with answers that come too late.

use super::*;
use limit::Key;

#[test]
fn what_came_back_is_there_without_redis_too() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = charge(&node, 1, 10, 0.0, WhenDown::Local);
    let dear = Charge { cost: 6, ..charge };
    for (cost, now_ns) in [(1, NOW), (3, NOW)] {
        let decision = decide(&node, &desk, &[dear], now_ns);
        assert!(decision.is_admitted());
        node.reconcile(&dear, decision.refund(0), now_ns, cost, now_ns);
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
    let late = Charge { key: Key::new(charge.key.bits() + (1 << 80)), cost: 5, ..charge };
    decide_late(&node, &[late], NOW);
    desk.answer(NOW);
    desk.set_down(true);
    assert_eq!(alone(&Charge { cost: 1, ..late }), 5);
}

#[test]
fn what_settles_while_redis_is_away_is_told_afterwards() {
    for when_down in [WhenDown::Local, WhenDown::Allow, WhenDown::Deny] {
        for (why, cost, left) in [
            (LinkError::Down, 8, 2),
            (LinkError::Down, 25, 0),
            (LinkError::Down, 1, 9),
            // What may have been counted is not told once more.
            (LinkError::Lost, 8, 5),
            (LinkError::Lost, 1, 5),
        ] {
            let desk = Arc::new(FakeRedis::default());
            let node = node(&desk);
            let charge = Charge { cost: 5, ..charge(&node, 1, 10, 0.0, when_down) };
            let decision = decide(&node, &desk, &[charge], NOW);
            node.reconcile(&charge, decision.refund(0), NOW, cost, NOW);
            desk.refuse(NOW, why);
            desk.set_down(true);
            node.sweep(NOW + MS);
            assert_eq!(desk.answer(NOW), 0, "nothing is sent to who is away");
            desk.set_down(false);
            node.sweep(NOW + MS);
            desk.answer(NOW + MS);
            assert_eq!(desk.left(&charge, NOW + MS), left, "{when_down:?} {why:?} {cost}");
            let owed = desk.left(&charge, NOW + SECOND) == 0;
            assert_eq!(owed, cost == 25, "all of a debt is owed: {cost}");
        }
    }
}

/// Redis takes the charge when the request has been decided without it, or is told of it afterwards.
#[test]
fn what_settles_of_a_charge_that_redis_heard_of_late_is_told_too() {
    for (is_away, cost, left) in
        // Of what it was told afterwards nothing is given back.
        [(false, 8, 2), (false, 1, 9), (true, 8, 2), (true, 1, 5), (false, 5, 5), (true, 5, 5)]
    {
        let desk = Arc::new(FakeRedis::default());
        let node = node(&desk);
        let charge = Charge { cost: 5, ..charge(&node, 1, 10, 0.0, WhenDown::Local) };
        desk.set_down(is_away);
        let decision = decide_late(&node, &[charge], NOW);
        assert!(decision.is_admitted() && decision.tier == DecidingTier::Fallback);
        desk.set_down(false);
        let settle = |at_ns| node.reconcile(&charge, decision.refund(0), NOW, cost, at_ns);
        desk.answer(NOW);
        node.sweep(NOW);
        desk.answer(NOW);
        assert_eq!(desk.left(&charge, NOW), 5, "{is_away}");
        settle(NOW);
        node.sweep(NOW);
        desk.answer(NOW);
        assert_eq!(desk.left(&charge, NOW), left, "{is_away} {cost}");
    }
}

#[test]
fn a_late_answer_stands_for_what_was_admitted_and_is_undone_for_the_rest() {
    for when_down in [WhenDown::Local, WhenDown::Allow, WhenDown::Deny] {
        for overshoot in [0.0, 0.3] {
            let desk = Arc::new(FakeRedis::default());
            let node = node(&desk);
            // More than the unit that may be owed without asking.
            let charge = Charge { cost: 2, ..charge(&node, 1, 100, overshoot, when_down) };
            let decision = decide_late(&node, &[charge], NOW);
            // `deny` admits nothing before the first word, because of leases nothing is known yet. The client is not over its
            // limit, and nearly all answers come in time, so Redis may well be down.
            let admitted = when_down != WhenDown::Deny || overshoot == 0.0;
            assert_eq!(decision.is_redis_down, !admitted, "{when_down:?} {overshoot}");
            assert_eq!((decision.is_admitted(), decision.tier), (admitted, DecidingTier::Fallback));
            desk.answer(NOW + 5 * MS);
            let states = if overshoot == 0.0 { 2 } else { 0 };
            assert_eq!(desk.left(&charge, NOW + 5 * MS), 100 - states, "{when_down:?} {overshoot}");
        }
    }
}

#[test]
fn what_redis_has_back_is_not_missing_without_it() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = Charge { cost: 50, ..exact(&node, 1, 100) };
    // Estimates that turn out too high, a request that has gone, one that turns out dearer.
    for cost in [1, 1] {
        let decision = decide(&node, &desk, &[charge], NOW);
        node.reconcile(&charge, decision.refund(0), NOW, cost, NOW);
    }
    drop(node.decide(&[charge], ClientAddress::default(), NOW, &mut Decision::default()).expect("it waits"));
    desk.answer(NOW);
    let decision = decide(&node, &desk, &[Charge { cost: 1, ..charge }], NOW);
    node.reconcile(&Charge { cost: 1, ..charge }, decision.refund(0), NOW, 8, NOW);
    desk.answer(NOW);
    assert_eq!(desk.left(&charge, NOW), 90);
    desk.set_down(true);
    assert_eq!(node.look(&charge, NOW).remaining, 90);
}

#[test]
fn without_redis_a_node_keeps_to_its_share() {
    for (overshoot, when_down, most) in
        [(0.0, WhenDown::Local, 100), (0.3, WhenDown::Local, 100), (0.0, WhenDown::Allow, 1_000)]
    {
        let desk = Arc::new(FakeRedis::default());
        let node = node(&desk);
        let charge = charge(&node, 1, 100, overshoot, when_down);
        desk.set_down(true);
        let admitted = (0..2_000).filter(|_| decide_late(&node, &[charge], NOW).is_admitted()).count();
        assert_eq!(admitted, most, "{when_down:?} {overshoot}");
        assert_eq!(desk.answer(NOW), 0);
    }
}

/// Of a key to which no further request comes, so that no renewal does it.
#[test]
fn what_a_node_spent_alone_is_told_when_redis_is_back() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let desk = Arc::new(FakeRedis::default());
        let (cut_off, other) = (node(&desk), node(&desk));
        let hourly = |node: &Limiter| {
            let (limit, period_ns) = (NonZeroU64::new(40), NonZeroU64::new(3_600 * SECOND));
            let limit = limit.expect("not zero");
            let quota = Quota::new(algorithm, limit, period_ns.expect("not zero"), limit);
            let sharing = Sharing::new(&quota, 0.3, WhenDown::Local);
            let plan =
                node.fleet().expect("a fleet's node").plans().id(Plan { policy: "p".into(), quota, sharing });
            Charge { quota, plan: Some(plan), ..leased(node, 1, 40) }
        };
        let (here, there) = (hourly(&cut_off), hourly(&other));
        for _ in 0..6 {
            assert!(decide(&cut_off, &desk, &[here], NOW).is_admitted());
            assert!(decide(&other, &desk, &[there], NOW).is_admitted());
        }
        desk.set_down(true);
        let late = NOW + SECOND;
        let alone = (0..100).filter(|_| decide_late(&cut_off, &[here], late).is_admitted()).count();
        desk.set_down(false);
        for tick in 0..10 {
            let now_ns = late + SECOND + tick * 100 * MS;
            cut_off.sweep(now_ns);
            desk.answer(now_ns);
        }
        let after = late + 3 * SECOND;
        let rest = (0..100).filter(|_| decide(&other, &desk, &[there], after).is_admitted()).count();
        let all = 12 + alone + rest;
        assert!(alone > 5 && (38..=41).contains(&all), "{algorithm:?}: 12, {alone} alone, {rest}");
    }
}

#[test]
fn without_redis_the_fields_say_how_many_more_pass() {
    for is_known in [false, true] {
        let desk = Arc::new(FakeRedis::default());
        let node = node(&desk);
        let charge = leased(&node, 1, 100);
        if is_known {
            assert!(decide(&node, &desk, &[charge], NOW).is_admitted());
        }
        desk.set_down(true);
        let first = decide_late(&node, &[charge], NOW);
        let more = (0..200).filter(|_| decide_late(&node, &[charge], NOW).is_admitted()).count();
        assert!(first.is_admitted() && more > 0, "{is_known}");
        assert_eq!(first.outcomes[0].remaining, more as u64, "{is_known}");
    }
}

#[test]
fn who_is_refused_before_a_late_answer_is_not_told_of_units_that_would_do() {
    for (limit, cost) in [(10, 1), (10, 3), (100, 1), (100, 7)] {
        let desk = Arc::new(FakeRedis::default());
        let node = node(&desk);
        let charge = Charge { cost, ..exact(&node, 1, limit) };
        // Redis counts all of them, later than the requests wait.
        let late = |_| decide_late(&node, &[charge], NOW);
        let refused = (0..200).map(late).find(|decision| !decision.is_admitted()).expect("it has a part");
        assert!(refused.outcomes[0].remaining < cost, "{limit}, {cost}: {refused:?}");
        assert!(refused.retry_after_ns().is_some_and(|wait_ns| wait_ns > 0));
    }
}

#[test]
fn every_address_has_its_own_coarse_limit_whatever_the_policy_counts() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = charge(&node, 1, 10, 0.0, WhenDown::Allow);
    let mut key = 0;
    desk.set_down(true);
    // Networks of 64 bits, as IPv6 clients are counted, and IPv4 clients.
    let networks = (1..=300u128).map(|network| (0x2001_0db8 << 32 | network) << 64);
    for address in networks.chain((1..=300).map(|host| 0xffff_0a00_0000 | host)) {
        let client = ClientAddress(address);
        let mut admits = |_: &u64| {
            let mut decision = Decision::default();
            key += 1 << 80;
            let charge = Charge { key: Key::new(key), ..charge };
            assert!(node.decide(&[charge], client, NOW, &mut decision).is_none(), "nothing to wait for");
            assert!(decision.outcomes[0].remaining <= 10, "no more than the window that clients know");
            decision.is_admitted()
        };
        assert_eq!((1..=101).filter(&mut admits).count(), 100, "{address:x}");
    }
}

#[test]
fn clocks_a_little_apart_refill_a_share_once() {
    let desk = Arc::new(FakeRedis::default());
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
fn demand_without_redis_is_counted_once() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = leased(&node, 1, 1_000);
    assert!(decide(&node, &desk, &[charge], NOW).is_admitted());
    desk.set_down(true);
    let came = (1..=400).filter(|step| decide_late(&node, &[charge], NOW + step * 10 * MS).is_admitted());
    assert_eq!(came.count(), 400);
    desk.answer(NOW + 4 * SECOND);
    desk.set_down(false);
    node.decide(&[charge], ClientAddress::default(), NOW + 4 * SECOND, &mut Decision::default());
    let asked = desk.queue.lock().expect("no test panics here").pop();
    let Some((Op::Renew(renewal), _)) = asked else { panic!("nothing is asked") };
    assert!((95.0..105.0).contains(&renewal.demand), "{renewal:?}");
}

#[test]
fn a_debt_lost_on_its_way_is_reported_again_after_fallback() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = Charge { cost: 2, ..leased(&node, 1, 1_000) };
    let begin = |now_ns| {
        let mut decision = Decision::default();
        let waiting =
            node.decide(&[charge], ClientAddress::default(), now_ns, &mut decision).expect("it waits");
        (waiting, decision)
    };
    let late = |(waiting, mut decision): (Waiting, Decision), now_ns| waiting.resume(now_ns, &mut decision);
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
            done(Err(LinkError::Lost), now);
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
fn keys_in_fallback_come_back_in_turns() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charges: Vec<Charge> = (1..=50).map(|key| leased(&node, key, 1_000)).collect();
    desk.set_down(true);
    assert!(charges.iter().all(|charge| decide_late(&node, &[*charge], NOW).tier == DecidingTier::Fallback));
    desk.set_down(false);
    let back = |held_back| {
        desk.held_back_percent.store(held_back, Ordering::Relaxed);
        let tiers = charges.iter().map(|charge| {
            let decision = decide(&node, &desk, &[*charge], NOW);
            assert!(decision.is_admitted());
            decision.tier
        });
        tiers.filter(|tier| *tier != DecidingTier::Fallback).count()
    };
    let (few, half) = (back(90), back(50));
    assert!((1..15).contains(&few) && (15..35).contains(&half), "{few} and {half} of 50");
    desk.held_back_percent.store(90, Ordering::Relaxed);
    let others = (51..=60).map(|key| leased(&node, key, 1_000));
    assert!(
        others.into_iter().all(|charge| decide(&node, &desk, &[charge], NOW).tier != DecidingTier::Fallback)
    );
    assert_eq!(back(0), 50);
}

/// The way of one of many nodes to a Redis that is away.
struct DownLink {
    nodes: u32,
    rank: u32,
}

impl Link for DownLink {
    fn send(&self, _op: Op, done: Done) {
        done(Err(LinkError::Down), NOW);
    }

    fn is_up(&self, _key: Key) -> bool {
        false
    }

    fn round_trip_ns(&self, _key: Key) -> u64 {
        MS
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn rank(&self, _key: Key) -> u32 {
        self.rank
    }
}

#[test]
fn a_limit_of_fewer_units_than_nodes_is_spent_by_as_many_of_them() {
    let limits = [
        (Algorithm::TokenBucket, 1, 0.0),
        (Algorithm::TokenBucket, 5, 0.0),
        (Algorithm::FixedWindow, 5, 0.0),
        (Algorithm::Concurrency, 5, 0.0),
        (Algorithm::FixedWindow, 10, 0.3),
        (Algorithm::FixedWindow, 15, 0.3),
        (Algorithm::SlidingWindow, 10, 0.3),
        (Algorithm::TokenBucket, 15, 0.3),
        (Algorithm::FixedWindow, 25, 0.0),
    ];
    for (algorithm, limit, overshoot) in limits {
        for nodes in [1, 2, 4, 12, 20, 30] {
            let mut admitted = 0;
            let mut worst = 0.0;
            for rank in 0..nodes {
                let link = Arc::new(DownLink { nodes, rank }) as Arc<dyn Link>;
                let node =
                    Arc::new(Limiter::in_fleet(Table::with_memory(1 << 16), Fleet::new(link, 1 << 16)));
                let positive = |number| NonZeroU64::new(number).expect("tests give no zero");
                let quota = Quota::new(algorithm, positive(limit), positive(3_600 * SECOND), positive(limit));
                let sharing = Sharing::new(&quota, overshoot, WhenDown::Local);
                worst = limit as f64 + sharing.worst_overshoot(&quota, nodes).1;
                let fleet = node.fleet().expect("a fleet's node");
                let plan = fleet.plans().id(Plan { policy: "p".into(), quota, sharing });
                fleet.plans().resize(nodes);
                node.table().declare([quota, quota.share_of(nodes)]);
                let charge = Charge { plan: Some(plan), ..Charge::one(Key::new(3 << 64 | 1 << 20), quota) };
                let passes = |_: &u64| decide_late(&node, &[charge], NOW).is_admitted();
                admitted += (0..2 * limit).filter(passes).count() as u64;
                let refused = decide_late(&node, &[charge], NOW);
                assert!(
                    refused.retry_after_ns().is_some_and(|wait_ns| wait_ns <= 7_200 * SECOND),
                    "{refused:?}"
                );
            }
            let name = format!("{algorithm:?} {limit} over {nodes}, {overshoot}: {admitted}");
            // With fewer units than nodes exactly those; else up to twice as many, and half of it at once if it is lent.
            let (least, most) =
                if limit <= u64::from(nodes) { (limit, limit) } else { (limit / 2, 2 * limit) };
            assert!((least..=most).contains(&admitted), "{name}");
            assert!(admitted as f64 <= worst, "{name}, `check` says {worst}");
        }
    }
}

#[test]
fn a_bucket_is_neither_whole_nor_shut_when_redis_is_back() {
    // Buckets of a second and of a minute, asked for ten times as much as they refill.
    for (limit, period) in [(100, 1), (1_000, 1), (600, 60), (60, 60)] {
        for (count, outage) in
            [2, 4, 20].into_iter().flat_map(|count| [1, 3, 20].map(|outage| (count, outage)))
        {
            // What was on its way is lost, or is answered when Redis is back.
            for is_kept in [false, true] {
                let mut asking = Questioner::new(count, limit, period);
                asking.play(8, true);
                if is_kept {
                    asking.play_ms(600, false);
                }
                asking.desk.set_down(true);
                let alone = asking.play(outage, !is_kept);
                asking.desk.set_down(false);
                let (back, right) = (asking.play(6, true), 6 * limit / period);
                // Of a bucket of a second, the first node to come back may find what the others have not reported yet.
                let more = if period == 1 { limit * 11 / 20 } else { limit / 10 };
                assert!(
                    back + 2 >= right * 7 / 10 && back <= right + more,
                    "{limit}/{period}s, {count} nodes, {outage} s without, {is_kept}: {alone}; then {back} of {right}"
                );
            }
        }
    }
}

/// Nodes of which one after the other is asked, ten times as often as their bucket refills.
struct Questioner {
    desk: Arc<FakeRedis>,
    nodes: Vec<(Arc<Limiter>, Charge)>,
    every_ns: u64,
    now_ns: u64,
    turn: usize,
    swept_ns: u64,
}

impl Questioner {
    fn new(count: u32, limit: u64, period: u64) -> Questioner {
        let desk = Arc::new(FakeRedis::default());
        desk.more_nodes.store(count - 2, Ordering::Relaxed);
        let positive = |number| NonZeroU64::new(number).expect("tests give no zero");
        let burst = positive(limit);
        let quota = Quota::new(Algorithm::TokenBucket, burst, positive(period * SECOND), burst);
        let sharing = Sharing::new(&quota, 0.3, WhenDown::Local);
        let one = |_| {
            let node = node(&desk);
            let plans = node.fleet().expect("a fleet's node").plans();
            let plan = plans.id(Plan { policy: "p".into(), quota, sharing });
            let charge = Charge { quota, plan: Some(plan), ..leased(&node, 1, 100) };
            (node, charge)
        };
        let nodes = (0..count).map(one).collect();
        Questioner {
            desk,
            nodes,
            every_ns: period * SECOND / limit / 10,
            now_ns: NOW,
            turn: 0,
            swept_ns: NOW,
        }
    }

    /// How many pass in so many seconds.
    fn play(&mut self, seconds: u64, is_answered: bool) -> u64 {
        self.play_ms(seconds * 1_000, is_answered)
    }

    fn play_ms(&mut self, ms: u64, is_answered: bool) -> u64 {
        let (mut admitted, end_ns) = (0, self.now_ns + ms * MS);
        while self.now_ns < end_ns {
            (self.now_ns, self.turn) = (self.now_ns + self.every_ns, (self.turn + 7) % self.nodes.len());
            let (node, charge) = &self.nodes[self.turn];
            let decision = match is_answered {
                true => decide(node, &self.desk, &[*charge], self.now_ns),
                false => decide_late(node, &[*charge], self.now_ns),
            };
            admitted += u64::from(decision.is_admitted());
            if self.now_ns >= self.swept_ns + 50 * MS {
                self.swept_ns = self.now_ns;
                self.nodes.iter().for_each(|(node, _)| node.sweep(self.now_ns));
                if is_answered {
                    self.desk.answer(self.now_ns);
                }
            }
        }
        admitted
    }
}

#[test]
fn keys_that_are_asked_for_resume_when_redis_is_back() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charges: Vec<Charge> = (1..=50).map(|key| leased(&node, key, 1_000)).collect();
    desk.set_down(true);
    assert!(charges.iter().all(|charge| decide_late(&node, &[*charge], NOW).tier == DecidingTier::Fallback));
    desk.set_down(false);
    // However few keys are let back otherwise.
    desk.held_back_percent.store(90, Ordering::Relaxed);
    node.sweep(NOW + 500 * MS);
    desk.answer(NOW + 500 * MS);
    let tiers = charges.iter().map(|charge| decide(&node, &desk, &[*charge], NOW + 501 * MS).tier);
    assert!(tiers.into_iter().all(|tier| tier != DecidingTier::Fallback));
}
