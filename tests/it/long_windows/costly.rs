//! Requests that cost more than a unit: all they cost or nothing, and what they do not get is there for others.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::{Caller, Fleet, LEASED, Window, about_an_hour, policy, route};
use crate::support::heavy;

/// How requests are spread over the nodes.
#[derive(Clone, Copy, Debug)]
enum Spread {
    /// All to one.
    One,
    /// One after the other, each to the next.
    Alternating,
    /// Five to one, five to the next.
    Bunches,
    /// All at the same time, each to the next.
    AtOnce,
}

const SPREADS: [Spread; 4] = [Spread::One, Spread::Alternating, Spread::Bunches, Spread::AtOnce];

/// A fleet with a policy of so many units an hour for each algorithm that lends.
fn fleet(count: usize, size: u64, period: u64) -> Fleet {
    let limit = format!("{size}/{period}s");
    let config = LEASED.map(|name| policy(name, name, &[&limit], "") + &route(name, &[name])).concat();
    Fleet::start(count, &config)
}

fn window(algorithm: &str, size: u64, period: u64) -> Window<'_> {
    Window { policy: algorithm, index: 0, algorithm, size, hourly: size * 3_600 / period }
}

/// How many of ten requests of ten units are admitted, each by a connection of its own.
fn ten(fleet: &Fleet, caller: &mut Caller, path: &str, spread: Spread) -> usize {
    let nodes = fleet.nodes.len();
    let node = |turn: usize| match spread {
        Spread::One => nodes - 1,
        Spread::Alternating | Spread::AtOnce => turn % nodes,
        Spread::Bunches => turn / 5 % nodes,
    };
    let Spread::AtOnce = spread else {
        return (0..10).filter(|turn| caller.is_admitted(10, node(*turn), path)).count();
    };
    let together = Barrier::new(10);
    let admitted = thread::scope(|scope| {
        let asking: Vec<_> = (0..10)
            .map(|turn| {
                let (mut other, together) = (fleet.caller(&caller.key), &together);
                scope.spawn(move || {
                    together.wait();
                    other.is_admitted(10, node(turn), path)
                })
            })
            .collect();
        asking.into_iter().map(|asked| asked.join().expect("nobody panics")).filter(|is| *is).count()
    });
    caller.admitted += 10 * admitted as u64;
    admitted
}

fn ten_of_ten(count: usize) {
    let _alone = heavy();
    let period = about_an_hour();
    let fleet = fleet(count, 100, period);
    let play = |algorithm: &'static str, spread: Spread, round: &str| {
        let (path, mut caller) = (format!("/{algorithm}"), fleet.caller(&format!("{spread:?}{round}")));
        let admitted = ten(&fleet, &mut caller, &path, spread);
        caller.check(admitted == 10, || format!("{admitted} of ten"));
        (0..count).for_each(|node| caller.expect(false, 10, node, &path));
        (window(algorithm, 100, period), caller)
    };
    fleet.play(|round| {
        let of = |algorithm| SPREADS.map(|spread| play(algorithm, spread, round));
        LEASED.into_iter().flat_map(of).collect()
    });
}

#[test]
fn ten_requests_of_ten_units_are_a_hundred_at_one_node() {
    ten_of_ten(1);
}

#[test]
fn ten_requests_of_ten_units_are_a_hundred_over_three_nodes() {
    ten_of_ten(3);
}

#[test]
fn ten_requests_of_ten_units_are_a_hundred_over_eight_nodes() {
    ten_of_ten(8);
}

#[test]
fn units_that_a_refused_costly_request_leaves_go_to_others() {
    let _alone = heavy();
    let period = about_an_hour();
    let fleet = fleet(3, 100, period);
    let play = |algorithm: &'static str, round: &str| {
        let (path, mut caller) = (format!("/{algorithm}"), fleet.caller(&format!("a{round}")));
        (0..6).for_each(|turn| caller.expect(true, 10, turn % 3, &path));
        // 40 are left.
        [0, 0, 1, 2].into_iter().for_each(|node| caller.expect(false, 50, node, &path));
        caller.expect(true, 3, 1, &path);
        caller.expect(false, 38, 0, &path);
        (0..37).for_each(|turn| caller.expect(true, 1, turn % 3, &path));
        (window(algorithm, 100, period), caller)
    };
    fleet.play(|round| LEASED.map(|algorithm| play(algorithm, round)).into());
}

#[test]
fn refused_costly_requests_take_nothing_from_cheap_ones() {
    let _alone = heavy();
    let period = about_an_hour();
    let fleet = fleet(3, 400, period);
    let play = |algorithm: &'static str, round: &str| {
        let (path, mut caller) = (format!("/{algorithm}"), fleet.caller(&format!("b{round}")));
        (0..8).for_each(|turn| caller.expect(true, 45, turn % 3, &path));
        thread::scope(|scope| {
            for node in 0..3 {
                let (mut dear, path) = (fleet.caller(&caller.key), &path);
                scope.spawn(move || (0..80).for_each(|_| assert!(!dear.is_admitted(200, node, path))));
            }
            (0..40).for_each(|turn| caller.expect(true, 1, turn % 3, &path));
        });
        caller.last = Instant::now();
        (window(algorithm, 400, period), caller)
    };
    fleet.play(|round| LEASED.map(|algorithm| play(algorithm, round)).into());
}

/// Requests of 1 to 50 units to any node until ten were refused; then a unit at a time.
fn any_cost(fleet: &Fleet, path: &str, key: &str) -> Caller {
    let (mut caller, count) = (fleet.caller(key), fleet.nodes.len());
    let (mut state, mut refused) = (count as u64, 0);
    while refused < 10 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (cost, node) = (1 + (state >> 33) % 50, (state >> 50) as usize % count);
        let left = 400 - caller.admitted.min(400);
        let is_admitted = caller.is_admitted(cost, node, path);
        refused += usize::from(!is_admitted);
        // Each node may hold a unit of what is left.
        caller.check(is_admitted || cost + count as u64 > left, || format!("{cost} refused, {left} left"));
    }
    let until = Instant::now() + Duration::from_secs(3);
    let mut turns = 0..;
    while caller.admitted < 400 && Instant::now() < until {
        // What another node holds is back when it is not wanted there.
        caller.pause(Duration::from_millis(5));
        turns.next().into_iter().for_each(|turn: usize| drop(caller.ask(turn % count, path)));
    }
    let admitted = caller.admitted;
    caller.check(admitted >= 400, || format!("no more than {admitted} of 400"));
    caller
}

fn every_cost(count: usize) {
    let _alone = heavy();
    let period = about_an_hour();
    let fleet = fleet(count, 400, period);
    let play = |algorithm, round: &str| {
        (window(algorithm, 400, period), any_cost(&fleet, &format!("/{algorithm}"), &format!("c{round}")))
    };
    fleet.play(|round| LEASED.map(|algorithm| play(algorithm, round)).into());
}

#[test]
fn costs_of_every_size_spend_a_window_to_its_last_unit_over_three_nodes() {
    every_cost(3);
}

#[test]
fn costs_of_every_size_spend_a_window_to_its_last_unit_over_eight_nodes() {
    every_cost(8);
}
