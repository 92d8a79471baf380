//! Trials of two policies whose windows the fleet shares: what one refuses is charged to the other, in Redis and in leases.

use super::*;
use limit::{PolicyId, Side, Trial};

type Made = fn(&Limiter, u64, u64) -> Charge;

/// The charges of a trial: one window that decides, and those that are compared with it.
fn trial(node: &Limiter, make: Made, decides: u64, compared: &[u64]) -> Vec<Charge> {
    let live = Charge { trial: Trial::new(0, Side::Decides), ..make(node, 1, decides) };
    let trial = Trial::new(0, Side::Compared);
    let compared = compared.iter().zip(2..).map(|(limit, key)| Charge {
        trial,
        shadow: true,
        policy: PolicyId::new(1),
        ..make(node, key, *limit)
    });
    [live].into_iter().chain(compared).collect()
}

#[test]
fn each_of_two_policies_admits_what_it_would_alone() {
    for make in [exact as Made, leased] {
        for (decides, compared) in [(10, 20), (20, 10), (15, 15)] {
            let desk = Arc::new(FakeRedis::default());
            let node = node(&desk);
            let charges = trial(&node, make, decides, &[compared]);
            let (mut own, mut other) = (0, 0);
            for _ in 0..30 {
                let decision = decide(&node, &desk, &charges, NOW);
                own += u64::from(decision.is_admitted());
                other += u64::from(decision.has_taken(1, &charges[1]));
                assert_eq!(decision.has_taken(0, &charges[0]), decision.is_admitted());
                assert_eq!(decision.outcomes[1].is_admitted(), decision.has_taken(1, &charges[1]));
            }
            assert_eq!((own, other), (decides, compared));
        }
    }
}

#[test]
fn the_windows_of_a_compared_policy_are_charged_all_or_none() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charges = trial(&node, exact, 3, &[20, 5]);
    for _ in 0..12 {
        decide(&node, &desk, &charges, NOW);
    }
    assert_eq!([0, 1, 2].map(|at| desk.left(&charges[at], NOW)), [0, 15, 0]);
}

#[test]
fn without_an_answer_in_time_each_of_the_two_falls_back_on_its_own() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let charges = trial(&node, exact, 10, &[20]);
    let (mut own, mut other) = (0, 0);
    for _ in 0..40 {
        let decision = decide_late(&node, &charges, NOW);
        own += u64::from(decision.is_admitted());
        other += u64::from(decision.has_taken(1, &charges[1]));
        desk.answer(NOW);
    }
    // Each within this node's part of what is left, as long as that is much; what came late for the others went back.
    assert_eq!((own, other), (7, 16));
    assert_eq!([0, 1].map(|at| desk.left(&charges[at], NOW)), [3, 4]);
}
