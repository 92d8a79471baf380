//! What is in flight, counted by the fleet.

use super::*;

#[test]
fn permits_of_an_outage_are_reported_after_it() {
    for when_down in [WhenDown::Local, WhenDown::Allow] {
        let desk = Arc::new(FakeRedis::default());
        let node = node(&desk);
        let charge = permits(&node, 1, 10, when_down);
        let give_back = |refund| node.refund(&charge, refund, NOW);
        let mut refunds: Vec<Refund> =
            (0..2).map(|_| decide(&node, &desk, &[charge], NOW).refund(0)).collect();
        assert_eq!(desk.held(&charge), 2);
        desk.set_down(true);
        desk.held.lock().expect("no test panics here").clear();
        while refunds.len() < 10 {
            let alone = decide_late(&node, &[charge], NOW);
            assert_eq!((alone.is_admitted(), alone.tier), (true, DecidingTier::Fallback));
            refunds.push(alone.refund(0));
        }
        assert!(!decide_late(&node, &[charge], NOW).is_admitted(), "with what it held before");
        refunds.drain(..3).for_each(give_back);
        node.sweep(NOW);
        assert_eq!(desk.answer(NOW), 0, "nobody is told");
        desk.set_down(false);
        node.sweep(NOW);
        assert_eq!((desk.answer(NOW), desk.held(&charge)), (1, 7), "at once, and all of it");
        refunds.into_iter().for_each(give_back);
        desk.answer(NOW);
        assert_eq!(desk.held(&charge), 0);
    }
}

#[test]
fn permits_that_came_and_went_in_an_outage_leave_nothing() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = permits(&node, 1, 10, WhenDown::Local);
    desk.set_down(true);
    for _ in 0..50 {
        let decision = decide_late(&node, &[charge], NOW);
        assert!(decision.is_admitted());
        node.refund(&charge, decision.refund(0), NOW);
    }
    desk.set_down(false);
    node.sweep(NOW);
    assert_eq!(desk.answer(NOW), 0);
}

/// Requests for one permit each that come at once, the first of which is asked for alone.
fn volley(node: &Arc<Limiter>, charge: Charge, count: usize) -> Vec<Waiting> {
    let begin = |_| node.decide(&[charge], ClientAddress::default(), NOW, &mut Decision::default());
    (0..count).map(begin).map(|waiting| waiting.expect("it waits")).collect()
}

/// How many of them are admitted.
fn admitted(volley: Vec<Waiting>) -> usize {
    let admits = |waiting: Waiting| {
        assert!(waiting.is_resolved());
        let mut decision = Decision::default();
        decision.outcomes.push(Outcome::new(Answer::Admitted, 0, 0));
        waiting.resume(NOW, &mut decision);
        decision.is_admitted()
    };
    volley.into_iter().map(admits).filter(|is_admitted| *is_admitted).count()
}

#[test]
fn permits_are_asked_for_together_and_given_in_turn() {
    // (Limit, held elsewhere, admitted of ten, questions).
    for (limit, elsewhere, most, questions) in [(20, 0, 10, 2), (6, 0, 6, 3), (9, 3, 6, 3), (4, 4, 0, 2)] {
        let desk = Arc::new(FakeRedis::default());
        let node = node(&desk);
        let charge = permits(&node, 1, limit, WhenDown::Deny);
        desk.elsewhere.store(elsewhere, Ordering::Relaxed);
        let volley = volley(&node, charge, 10);
        assert_eq!(desk.answer(NOW), questions, "{limit} {elsewhere}");
        assert_eq!(admitted(volley), most, "{limit} {elsewhere}");
        assert_eq!(desk.held(&charge), most as u64);
    }
}

#[test]
fn no_permit_is_asked_for_a_client_that_has_gone() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charge = permits(&node, 1, 1_000, WhenDown::Deny);
    let mut volley = volley(&node, charge, 300);
    let rest = volley.split_off(2);
    drop(volley);
    let (gone, stay) = rest.into_iter().enumerate().partition::<Vec<_>, _>(|(turn, _)| turn % 100 != 0);
    drop(gone);
    assert_eq!(desk.answer(NOW), 2, "the first, who has gone by now, and all that stay");
    assert_eq!(admitted(stay.into_iter().map(|(_, waiting)| waiting).collect()), 3);
    assert_eq!(desk.held(&charge), 3);
}

#[test]
fn a_changed_limit_counts_while_permits_are_out() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let limited = |limit| permits(&node, 1, limit, WhenDown::Deny);
    let admits = |charge| decide(&node, &desk, &[charge], NOW).is_admitted();
    assert_eq!([limited(1), limited(1)].map(admits), [true, false]);
    assert_eq!([limited(3), limited(3), limited(3)].map(admits), [true, true, false]);
    assert!(!admits(limited(2)));
    assert_eq!(desk.held(&limited(3)), 3);
}
