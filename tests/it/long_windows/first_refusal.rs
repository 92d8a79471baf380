//! A client within its limit is not refused, however its requests are spread, and no unit gets lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{Caller, Fleet, LEASED, Window, about_an_hour, policy, route};
use crate::support::heavy;

/// To which node requests go, and how fast.
#[derive(Clone, Copy, Debug)]
enum Traffic {
    /// To any node.
    Uniform,
    /// To one node after the other.
    Alternating,
    /// Twelve at once to one node, then to the next.
    Bursty,
    /// The last units far apart.
    Thin,
}

const TRAFFIC: [Traffic; 4] = [Traffic::Uniform, Traffic::Alternating, Traffic::Bursty, Traffic::Thin];

impl Traffic {
    /// The node of the next request, after a pause where the traffic makes one.
    fn next(self, turn: u64, nodes: usize, caller: &Caller, size: u64) -> usize {
        match self {
            Traffic::Uniform => (turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % nodes,
            Traffic::Bursty => {
                if turn.is_multiple_of(12) {
                    caller.pause(Duration::from_millis(70));
                }
                (turn / 12) as usize % nodes
            }
            Traffic::Thin if caller.admitted + THIN >= size => {
                // Less than a unit in two leases of a node.
                caller.pause(Duration::from_secs(1).div_f64((0.7 * nodes as f64).max(3.0)));
                turn as usize % nodes
            }
            Traffic::Alternating | Traffic::Thin => turn as usize % nodes,
        }
    }
}

/// Spends a window until it refuses, and asks on for a while.
fn spend(fleet: &Fleet, window: Window<'_>, traffic: Traffic, round: &str) -> Caller {
    let nodes = fleet.nodes.len();
    let (mut caller, path) = (fleet.caller(&format!("{traffic:?}{round}")), format!("/{}", window.policy));
    let admitting = (0..window.size * 2).take_while(|turn| {
        let node = traffic.next(*turn, nodes, &caller, window.size);
        caller.is_admitted(1, node, &path)
    });
    let first = admitting.count() as u64;
    (0..2 * nodes).for_each(|node| drop(caller.ask(node % nodes, &path)));
    caller.check(first * 100 >= window.size * 98, || format!("refused after {first}"));
    let most = window.size as f64 + window.refilled(caller.begun.elapsed()) + nodes as f64;
    caller.check(caller.admitted as f64 <= most, || format!("more than {most:.1} admitted"));
    caller
}

fn fleet_of(count: usize) {
    let _alone = heavy();
    let period = about_an_hour();
    let cases: Vec<(&str, u64)> =
        LEASED.into_iter().flat_map(|algorithm| SIZES.map(|size| (algorithm, size))).collect();
    let names: Vec<String> = cases.iter().map(|(algorithm, size)| format!("{algorithm}-{size}")).collect();
    let config: String = names
        .iter()
        .zip(&cases)
        .map(|(name, (algorithm, size))| {
            policy(name, algorithm, &[&format!("{size}/{period}s")], "") + &route(name, &[name])
        })
        .collect();
    let fleet = Fleet::start(count, &config);
    let windows: Vec<_> = names
        .iter()
        .zip(&cases)
        .map(|(policy, (algorithm, size))| Window {
            policy,
            index: 0,
            algorithm,
            size: *size,
            hourly: size * 3_600 / period,
        })
        .collect();
    fleet.play(|round| {
        let (played, next) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        let play = || {
            while let index = next.fetch_add(1, Ordering::Relaxed)
                && let Some(window) = windows.get(index / TRAFFIC.len())
            {
                let caller = spend(&fleet, *window, TRAFFIC[index % TRAFFIC.len()], round);
                played.lock().unwrap_or_else(PoisonError::into_inner).push((*window, caller));
            }
        };
        thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(play))));
        played.into_inner().unwrap_or_else(PoisonError::into_inner)
    });
}

#[test]
fn one_node_refuses_no_request_early() {
    fleet_of(1);
}

#[test]
fn three_nodes_refuse_no_request_early() {
    fleet_of(3);
}

#[test]
fn eight_nodes_refuse_no_request_early() {
    fleet_of(8);
}

const SIZES: [u64; 2] = [100, 400];
/// Units that thin traffic asks for.
const THIN: u64 = 8;
/// Callers at a time.
const AT_ONCE: usize = 8;
