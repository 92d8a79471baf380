//! What answers say: when to come back, and what is left.

use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Caller, Fleet, LEASED, Window, about_an_hour, policy, route};
use crate::support::{Response, eventually, heavy};

fn config(limit: &str) -> String {
    LEASED.map(|name| policy(name, name, &[limit], "") + &route(name, &[name])).concat()
}

fn window(algorithm: &str, size: u64, period: u64) -> Window<'_> {
    Window { policy: algorithm, index: 0, algorithm, size, hourly: size * 3_600 / period }
}

/// Spends a short window and waits as long as it is told, three times; then it is admitted, by the node that said so or
/// by another one.
fn wait_as_told(caller: &mut Caller, algorithm: &str, cost: u64) {
    let path = format!("/{algorithm}");
    for round in 0..3 {
        let refused = (0..200).find_map(|turn| {
            let answer = caller.ask_for(cost, turn % 3, &path);
            (answer.status == 429).then_some((turn, answer))
        });
        let (turn, refused) = refused.expect("it is spent");
        let wait = refused.number("retry-after");
        caller.check(wait <= 5, || format!("{cost}: {wait} s"));
        caller.pause(Duration::from_secs(wait));
        let answer = caller.ask_for(cost, (turn + round) % 3, &path);
        caller.check(answer.status == 200, || format!("{cost} refused after {wait} s"));
    }
}

/// Plays it with these algorithms and costs, all at the same time.
fn all_wait(cases: &[(&'static str, u64)]) {
    let _alone = heavy();
    let fleet = Fleet::start(3, &config("20/2s"));
    let play = |algorithm: &str, cost: u64, round: &str| {
        let mut caller = fleet.caller(&format!("c{cost}{round}"));
        wait_as_told(&mut caller, algorithm, cost);
        caller
    };
    for round in 0..super::ROUNDS {
        let before = fleet.without_redis();
        let wrong: Vec<String> = thread::scope(|scope| {
            let play = &play;
            let playing: Vec<_> = cases
                .iter()
                .map(|(algorithm, cost)| scope.spawn(move || play(algorithm, *cost, &round.to_string())))
                .collect();
            let wrong = |playing: ScopedJoinHandle<'_, Caller>| playing.join().expect("nobody panics").wrong;
            cases
                .iter()
                .zip(playing)
                .map(|(case, playing)| format!("{case:?}: {:?}", wrong(playing)))
                .collect()
        });
        let wrong: Vec<_> = wrong.into_iter().filter(|wrong| !wrong.ends_with("[]")).collect();
        if wrong.is_empty() {
            return;
        }
        assert!(fleet.without_redis() > before, "{}", wrong.join("\n"));
    }
    panic!("nodes decided without Redis in every round");
}

#[test]
fn a_client_that_waits_for_retry_after_is_admitted() {
    let buckets = [3, 7, 20].map(|cost| ("token-bucket", cost));
    let units = LEASED.map(|algorithm| (algorithm, 1));
    all_wait(&[units.as_slice(), &buckets].concat());
}

#[test]
fn a_costly_request_that_waits_for_retry_after_is_admitted() {
    let cases = ["fixed-window", "sliding-window"].map(|algorithm| [3, 7, 20].map(|cost| (algorithm, cost)));
    all_wait(&cases.concat());
}

/// `t` of the answer's RateLimit field.
fn reset(answer: &Response) -> f64 {
    let field = answer.header("ratelimit").expect("it was counted");
    let t = field.rsplit_once(";t=").expect("a window says when it is whole").1;
    t.parse().expect("a number of seconds")
}

/// Seconds until so many units more than are left of a hundred come back, all of which was spent in this window.
fn due(algorithm: &str, period: u64, cost: u64, left: u64) -> f64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs_f64();
    let ends_in = period as f64 - unix % period as f64;
    match algorithm {
        "token-bucket" => (cost - left) as f64 * period as f64 / 100.0,
        "fixed-window" => ends_in,
        // What was spent in this window weighs less and less in the next, rounded down.
        _ => ends_in + period as f64 * (1.0 - (101 - cost) as f64 / (100 - left) as f64),
    }
}

/// Spends all but `left` of a hundred units, and looks at what every node tells a request of this cost, twice.
fn refused(fleet: &Fleet, caller: &mut Caller, window: Window<'_>, period: u64, cost: u64, left: u64) {
    let (algorithm, path) = (window.algorithm, format!("/{}", window.algorithm));
    (0..100 - left as usize).for_each(|turn| caller.expect(true, 1, turn % 3, &path));
    // Until nodes have reported what they spent, it counts as held and may be returned, so the wait may be shorter.
    eventually("every node has told what it spent", || {
        let shown = fleet.shown(0, window.policy, window.index, &caller.key);
        (shown["at-redis"]["leased-to-nodes"].as_f64()? < 1.0).then_some(())
    });
    for node in [0, 1, 2, 0, 1, 2] {
        let due_before = due(algorithm, period, cost, left);
        let answer = caller.ask_for(cost, node, &path);
        // A bucket has refilled a little meanwhile, on a machine that stood still even enough.
        let refilled = if algorithm == "token-bucket" { caller.begun.elapsed().as_secs_f64() } else { 0.0 };
        if refilled >= due_before {
            return;
        }
        // On its way the answer gets older: it was true at some moment between both.
        let least = due(algorithm, period, cost, left) - refilled - 2.0;
        if answer.status != 429 {
            // The scene is played again where a node decided without Redis; this answer has nothing more to say.
            caller.check(false, || format!("{cost} of {left} left admitted"));
            return;
        }
        let said = [answer.number("retry-after") as f64, reset(&answer)];
        let is_so = (least..=due_before * 1.1 + 2.0).contains(&said[0]) && said[1] >= least;
        caller.check(is_so, || format!("{cost} of {left} left: {said:?} s, due in {due_before:.0} s"));
        let remaining = answer.number("x-ratelimit-remaining");
        let back = (refilled * 100.0 / period as f64).ceil() as u64;
        let is_so = remaining + 1 >= left && remaining <= left + 1 + back;
        caller.check(is_so, || format!("{remaining} of {left} left"));
    }
}

/// Plays it with these algorithms, costs, and units that are left.
fn all_are_told(cases: &[(&'static str, u64, u64)]) {
    let _alone = heavy();
    let period = about_an_hour();
    let fleet = Fleet::start(3, &config(&format!("100/{period}s")));
    let play = |(algorithm, cost, left): (&'static str, u64, u64), round: &str| {
        let mut caller = fleet.caller(&format!("c{left}-{cost}{round}"));
        let window = window(algorithm, 100, period);
        refused(&fleet, &mut caller, window, period, cost, left);
        (window, caller)
    };
    fleet.play(|round| cases.iter().map(|case| play(*case, round)).collect());
}

#[test]
fn long_windows_give_the_right_retry_after() {
    let buckets = DEAR.map(|(cost, left)| ("token-bucket", cost, left));
    all_are_told(&[LEASED.map(|algorithm| (algorithm, 1, 0)).as_slice(), &buckets].concat());
}

#[test]
fn long_windows_give_costly_requests_the_right_retry_after() {
    let of = |algorithm| DEAR.map(|(cost, left)| (algorithm, cost, left));
    all_are_told(&["fixed-window", "sliding-window"].map(of).concat());
}

/// Goes from node to node after so many requests and a pause; by how much what is left rose at most.
fn rise(fleet: &Fleet, algorithm: &str, key: &str, run: usize, pause: Duration) -> (u64, Caller) {
    let (mut caller, path) = (fleet.caller(key), format!("/{algorithm}"));
    let (mut before, mut rise) = (400, 0);
    for turn in 0..240 {
        if turn % run == 0 {
            caller.pause(pause);
        }
        let left = caller.ask(turn / run % 3, &path).number("x-ratelimit-remaining");
        rise = rise.max(left.saturating_sub(before));
        before = left;
    }
    (rise, caller)
}

/// Plays it in these algorithms: no rise beyond what a node may hold, a hundredth of 400.
fn rises(algorithms: &[&'static str], run: usize, pause: Duration) {
    let _alone = heavy();
    let period = about_an_hour();
    let fleet = Fleet::start(3, &config(&format!("400/{period}s")));
    let play = |algorithm: &'static str, round: &str| {
        let (rise, mut caller) = rise(&fleet, algorithm, round, run, pause);
        caller.check(rise <= 400 / 100 + 3, || format!("{rise} more are left"));
        (window(algorithm, 400, period), caller)
    };
    fleet.play(|round| algorithms.iter().map(|algorithm| play(algorithm, round)).collect());
}

#[test]
fn what_is_left_does_not_rise_from_request_to_request_at_another_node() {
    rises(&LEASED, 1, Duration::ZERO);
}

#[test]
fn what_is_left_does_not_rise_at_a_node_that_was_away_for_a_while() {
    rises(&LEASED, 40, Duration::from_millis(700));
}

/// Costs, and the units that are left.
const DEAR: [(u64, u64); 4] = [(30, 0), (30, 10), (11, 10), (100, 40)];
