//! What comes in between: clients that go, reloads, penalties, retries, a node that dies. No unit gets lost by it.

use std::thread;
use std::time::{Duration, Instant};

use super::{Caller, Fleet, LEASED, Window, about_an_hour, policy, route};
use crate::support::redis::Redis;
use crate::support::toxic::Toxic;
use crate::support::upstream::reset;
use crate::support::{Gateway, Response, eventually, heavy};

/// A policy and a route for each algorithm that lends.
fn config(limit: &str, more: &str) -> String {
    LEASED.map(|name| policy(name, name, &[limit], more) + &route(name, &[name])).concat()
}

fn window(algorithm: &str, size: u64, period: u64) -> Window<'_> {
    Window { policy: algorithm, index: 0, algorithm, size, hourly: size * 3_600 / period }
}

/// Units of a policy that nodes say they have admitted.
fn admitted(fleet: &Fleet, policy: &str) -> u64 {
    let labels = [format!("policy=\"{policy}\""), "outcome=\"admitted\"".to_owned()];
    let of = |node: &Gateway| node.metric("sluicegate_decisions_total", &[&labels[0], &labels[1]]) as u64;
    fleet.nodes.iter().map(of).sum()
}

/// Requests whose clients go before there is an answer, and some that stay. How many were sent.
fn abort(fleet: &Fleet, caller: &mut Caller, path: &str) -> u64 {
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nx-key: {}\r\n\r\n", caller.key);
    for turn in 0..120 {
        let mut client = fleet.nodes[turn % 3].client();
        client.send(&head);
        // Some while the answer is on its way, some before their node has read them.
        if turn % 2 == 0 {
            caller.pause(Duration::from_millis(10));
        }
        if turn % 3 == 0 {
            reset(client.into_stream())
        } else {
            drop(client)
        }
        if turn % 10 == 0 {
            caller.ask(turn % 3, path);
        }
    }
    132
}

#[test]
fn clients_that_go_while_their_request_waits_take_nothing_along() {
    let _alone = heavy();
    let redis = Redis::start(&[]);
    let toxic = Toxic::start(redis.addr());
    let (period, addr) = (about_an_hour(), toxic.addr());
    let fleet = Fleet::at(redis, addr, 3, &config(&format!("400/{period}s"), ""));
    toxic.delay(Duration::from_millis(30));
    fleet.play(|round| {
        let mut play = |algorithm: &'static str| {
            let (before, mut caller) = (admitted(&fleet, algorithm), fleet.caller(&format!("a{round}")));
            let sent = abort(&fleet, &mut caller, &format!("/{algorithm}"));
            caller.clients.iter_mut().for_each(|client| *client = None);
            let open = |node: &Gateway| node.metric("sluicegate_connections_open", &["listener=\"plain\""]);
            eventually("their connections are closed", || {
                fleet.nodes.iter().all(|node| open(node) == 0.0).then_some(())
            });
            caller.last = Instant::now();
            // Those that stayed, and those that were admitted before their node knew that they had gone.
            caller.admitted = admitted(&fleet, algorithm) - before;
            let said = format!("{} of {sent} admitted", caller.admitted);
            let is_so = (12..sent).contains(&caller.admitted);
            caller.check(is_so, || said);
            (window(algorithm, 400, period), caller)
        };
        LEASED.map(&mut play).into()
    });
}

#[test]
fn reloads_lose_no_unit_of_leases_that_are_out() {
    let _alone = heavy();
    let period = about_an_hour();
    let [before, after] = [400, 600].map(|size| config(&format!("{size}/{period}s"), ""));
    let fleet = Fleet::start(3, &before);
    fleet.play(|round| {
        let mut callers = LEASED.map(|algorithm| (algorithm, fleet.caller(&format!("a{round}"))));
        let mut spend = |units: usize| {
            for (algorithm, caller) in &mut callers {
                (0..units).for_each(|turn| caller.expect(true, 1, turn % 3, &format!("/{algorithm}")));
            }
        };
        fleet.reload(&before);
        spend(90);
        fleet.reload(&before);
        spend(90);
        // While some know the raised limit and others do not.
        for node in &fleet.nodes {
            fleet.reload_one(node, &after);
            spend(30);
        }
        fleet.reload(&after);
        spend(30);
        let books = callers.into_iter().map(|(algorithm, caller)| {
            // What was spent stays spent: 300 before all know of 600, so 300 are left.
            (window(algorithm, 600, period), caller)
        });
        books.collect()
    });
}

#[test]
fn of_a_raised_limit_what_is_left_is_spent_to_its_last_unit() {
    let _alone = heavy();
    let period = about_an_hour();
    let [before, after] = [100, 160].map(|size| config(&format!("{size}/{period}s"), ""));
    let fleet = Fleet::start(3, &before);
    fleet.play(|round| {
        fleet.reload(&before);
        let windows = ["fixed-window", "sliding-window"];
        let mut callers = windows.map(|algorithm| (algorithm, fleet.caller(&format!("b{round}"))));
        let mut spend = |units: usize, refused: usize| {
            for (algorithm, caller) in &mut callers {
                let path = format!("/{algorithm}");
                (0..units).for_each(|turn| caller.expect(true, 1, turn % 3, &path));
                (0..refused).for_each(|turn| caller.expect(false, 1, turn % 3, &path));
            }
        };
        spend(50, 0);
        fleet.reload(&after);
        // What was spent stays spent.
        spend(110, 9);
        callers.map(|(algorithm, caller)| (window(algorithm, 160, period), caller)).into()
    });
}

/// Whether an answer is a refusal that a penalty gave.
fn is_penalty(answer: &Response) -> bool {
    let said = if answer.status == 429 { answer.json() } else { return false };
    let violations = said["violations"].as_array().expect("a refusal says why");
    violations.iter().any(|violation| violation["penalty"] == true)
}

#[test]
fn penalties_charge_no_units() {
    let _alone = heavy();
    let period = about_an_hour();
    let penalty = "penalty = { after = 3, within = \"1m\", factor = 2, max = \"1h\" }";
    let of = |algorithm: &&str| {
        let [short, long] = ["short", "long"].map(|name| format!("{name}-{algorithm}"));
        policy(&short, algorithm, &[&format!("12/{period}s")], penalty)
            + &policy(&long, algorithm, &[&format!("500/{period}s")], "")
            + &route(algorithm, &[&long, &short])
    };
    let fleet = Fleet::start(3, &LEASED.iter().map(of).collect::<String>());
    let names = LEASED.map(|algorithm| format!("long-{algorithm}"));
    fleet.play(|round| {
        let play = |(index, algorithm): (usize, &'static str)| {
            let policy = names[index].as_str();
            let (path, mut caller) = (format!("/{algorithm}"), fleet.caller(&format!("a{round}")));
            let penalised = (0..90).filter(|turn| is_penalty(&caller.ask(turn % 3, &path))).count();
            caller.check(penalised > 50, || format!("{penalised} penalised"));
            (Window { policy, ..window(algorithm, 500, period) }, caller)
        };
        LEASED.into_iter().enumerate().map(play).collect()
    });
}

#[test]
fn retries_with_a_key_are_charged_once_over_all_nodes() {
    let _alone = heavy();
    let period = about_an_hour();
    let limit = format!("300/{period}s");
    let fleet = Fleet::start(3, &config(&limit, "idempotency-key = \"header:x-retry\""));
    let play = |algorithm: &'static str, round: &str| {
        let mut caller = fleet.caller(&format!("a{round}"));
        let fields = format!("x-key: {}", caller.key);
        let mut charged = |turn: usize, node: usize| {
            let retry = format!("x-retry: {turn}");
            let answer = caller.client(node).request("GET", &format!("/{algorithm}"), &[&fields, &retry], "");
            assert_eq!(answer.status, 200);
            u64::from(answer.header("x-ratelimit-remaining").is_some())
        };
        let first: u64 = (0..60).map(|turn| charged(turn, turn % 3)).sum();
        let again: u64 =
            (1..4).map(|round| (0..60).map(|turn| charged(turn, (turn + round) % 3)).sum::<u64>()).sum();
        caller.check((first, again) == (60, 0), || format!("{first} and {again} charged"));
        (caller.admitted, caller.last) = (first + again, Instant::now());
        (window(algorithm, 300, period), caller)
    };
    fleet.play(|round| LEASED.map(|algorithm| play(algorithm, round)).into());
}

/// Asks one node until it is gone, as fast as it can; what it admitted until then.
fn until_gone(caller: &mut Caller, node: usize, path: &str) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nx-key: {}\r\n\r\n", caller.key);
    let many = head.repeat(MANY);
    loop {
        caller.client(node).try_send(&many);
        for _ in 0..MANY {
            let Some(head) = caller.client(node).try_head() else { return };
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            caller.admitted += 1;
        }
    }
}

#[test]
fn a_node_that_is_killed_takes_little_of_a_window_along() {
    let _alone = heavy();
    let period = about_an_hour();
    let size = 400_000;
    let mut fleet = Fleet::start(5, &config(&format!("{size}/{period}s"), ""));
    for (algorithm, victim) in LEASED.into_iter().zip((2..5).rev()) {
        let window = window(algorithm, size, period);
        let mut caller = fleet.caller("k");
        let held = || fleet.shown(victim, algorithm, 0, "k")["lease"]["held"].as_f64().unwrap_or(0.0);
        thread::scope(|scope| {
            let caller = &mut caller;
            scope.spawn(move || until_gone(caller, victim, &format!("/{algorithm}")));
            // It is killed when it holds about as much as ever.
            let most = (0..40).map(|_| held()).fold(0.0, f64::max);
            eventually("it holds much", || (held() >= 0.7 * most).then_some(()));
            fleet.nodes[victim].signal("KILL");
        });
        fleet.nodes.truncate(victim);
        let lost = fleet.lost(window, &caller);
        // A hundredth of what was left, and what was in flight.
        let most = size as f64 / 100.0 + MANY as f64;
        assert!((-2.0..=most).contains(&lost), "{algorithm}: {lost} of {size} lost");
    }
}

/// Requests on one connection at a time.
const MANY: usize = 16;
