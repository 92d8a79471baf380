//! Several windows on one request: what one of them refuses, no other is charged for.

use std::ops::RangeInclusive;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use super::{Caller, Fleet, LEASED, Window, about_an_hour, policy, route};
use crate::support::heavy;

/// For each algorithm the same two windows: in one policy in both orders, in two policies in both orders. What a route
/// is called, and where the second of the two limits stands.
struct Both<'w> {
    route: String,
    window: Window<'w>,
}

fn config(first: &str, second: &str) -> String {
    let of = |algorithm: &&str| {
        let name = |what: &str| format!("{what}-{algorithm}");
        let [short, long] = [name("one"), name("other")];
        policy(&name("ab"), algorithm, &[first, second], "")
            + &policy(&name("ba"), algorithm, &[second, first], "")
            + &policy(&short, algorithm, &[first], "")
            + &policy(&long, algorithm, &[second], "")
            + &route(&name("ab"), &[&name("ab")])
            + &route(&name("ba"), &[&name("ba")])
            + &route(&name("two"), &[&short, &long])
            + &route(&name("owt"), &[&long, &short])
    };
    LEASED.iter().map(of).collect()
}

/// The window of the second limit, under each route.
fn all<'w>(names: &'w [String], size: u64, hourly: u64) -> Vec<Both<'w>> {
    let mut all = Vec::new();
    for (algorithm, names) in LEASED.into_iter().zip(names.chunks(3)) {
        let window = |policy: &'w String, index| Window { policy, index, algorithm, size, hourly };
        for (route, window) in [
            ("ab", window(&names[0], 1)),
            ("ba", window(&names[1], 0)),
            ("two", window(&names[2], 0)),
            ("owt", window(&names[2], 0)),
        ] {
            all.push(Both { route: format!("{route}-{algorithm}"), window });
        }
    }
    all
}

fn names() -> Vec<String> {
    LEASED
        .iter()
        .flat_map(|algorithm| ["ab", "ba", "other"].map(|name| format!("{name}-{algorithm}")))
        .collect()
}

/// Asks one node after the other until it was refused so often, a few hundred times a second.
fn insist(fleet: &Fleet, caller: &mut Caller, route: &str) {
    let (path, mut refused) = (format!("/{route}"), 0);
    for turn in 0..1_000 {
        if refused >= REFUSED {
            break;
        }
        caller.pause(Duration::from_millis(4));
        refused += usize::from(!caller.is_admitted(1, turn % fleet.nodes.len(), &path));
    }
    caller.check(refused >= REFUSED, || format!("{refused} refused"));
}

/// Lets every route refuse, where the second limit is of so many units.
fn refuse(count: usize, first: &str, size: u64, period: u64, admitted: RangeInclusive<u64>) {
    let _alone = heavy();
    let fleet = Fleet::start(count, &config(first, &format!("{size}/{period}s")));
    let names = names();
    let play = |both: Both<'_>, round: &str| {
        let mut caller = fleet.caller(&format!("{}{round}", both.route));
        insist(&fleet, &mut caller, &both.route);
        let said = format!("{} admitted", caller.admitted);
        caller.check(admitted.contains(&caller.admitted), || said);
        caller
    };
    fleet.play(|round| {
        thread::scope(|scope| {
            let play = &play;
            let playing: Vec<_> = all(&names, size, size * 3_600 / period)
                .into_iter()
                .map(|both| (both.window, scope.spawn(move || play(both, round))))
                .collect();
            let done = |(window, playing): (_, ScopedJoinHandle<'_, _>)| {
                (window, playing.join().expect("nobody panics"))
            };
            playing.into_iter().map(done).collect()
        })
    });
}

#[test]
fn a_short_window_that_refuses_costs_the_long_one_nothing_at_one_node() {
    refuse(1, "10/10s", 300, about_an_hour(), 10..=60);
}

#[test]
fn a_short_window_that_refuses_costs_the_long_one_nothing_over_three_nodes() {
    refuse(3, "10/10s", 300, about_an_hour(), 10..=60);
}

#[test]
fn a_short_window_that_refuses_costs_the_long_one_nothing_over_eight_nodes() {
    refuse(8, "10/10s", 300, about_an_hour(), 10..=60);
}

#[test]
fn a_spent_window_that_refuses_costs_the_others_nothing() {
    let period = about_an_hour();
    refuse(3, &format!("24/{period}s"), 1_000, period, 24..=27);
}

/// Refusals after which every way to lose a unit by one has been taken.
const REFUSED: usize = 80;
