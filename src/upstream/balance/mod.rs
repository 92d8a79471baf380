//! Which server is next. Each balance is a file here: `round_robin` gives each server its turn, `two_choices` lets another
//! server take the turn if it is less loaded, `least_requests` gives it to the least loaded of all.
//!
//! A new balance is a variant of [`Balance`], its word in `config/upstream.rs`, and a file with a function that picks; the
//! match in [`Balancer::next`] then names it. Servers that rest or are not healthy, and the one a retry comes from, are left
//! out here, for every balance alike. State belongs to one worker.

mod least_requests;
mod round_robin;
mod two_choices;
mod weights;

use std::cell::RefCell;
use std::time::Instant;

use self::round_robin::Turns;
use self::weights::Weights;
use super::config::Balance;
use super::health::{Health, WHOLE};
use crate::clock;
use crate::random::Random;

/// One worker's choice among an upstream's servers.
#[derive(Debug)]
pub struct Balancer {
    kind: Balance,
    weights: Weights,
    turns: Turns,
    random: Random,
    resting: RefCell<Vec<Option<Instant>>>,
}

impl Balancer {
    /// A balancer over servers of these weights; `seed` sets workers apart.
    pub fn new(kind: Balance, weights: Vec<u32>, seed: u64) -> Balancer {
        let weights = Weights::new(weights);
        let (turns, random) = (Turns::new(&weights), Random::new(seed));
        if kind == Balance::P2c {
            // Workers that all began with the same server would send it their first requests together.
            for _ in 0..random.next() % weights.total.unsigned_abs().clamp(1, FIRST_TURNS_MAX) {
                let next = turns.next(&weights, |_| true);
                turns.take(&weights, next, |_| true);
            }
        }
        let resting = RefCell::new(vec![None; weights.each.len()]);
        Balancer { kind, weights, turns, random, resting }
    }

    /// The index of the next server, given how many exchanges each has now. `avoid` is not drawn while another is
    /// there: the server a retry comes from. Nor is one that is not healthy, as long as another one is.
    pub fn next(
        &self,
        load: impl Fn(usize) -> u32,
        health: &Health,
        avoid: Option<usize>,
        now: Instant,
    ) -> usize {
        let weights = &self.weights;
        if weights.each.len() == 1 {
            return 0;
        }
        let shares = health.shares(|| clock::ns_of(now));
        let toss = if shares.is_some() { self.random.next() } else { 0 };
        let share = |index: usize| shares.map_or(WHOLE, |shares| shares.of(index));
        let is_other = |index: usize| Some(index) != avoid && !self.is_resting(index, now);
        let in_turn = |index: usize| is_other(index) && is_tossed(share(index), toss, index);
        let usable = |index: usize| Some(index) != avoid && share(index) > 0;
        let any = |fit: &dyn Fn(usize) -> bool| (0..weights.each.len()).any(fit);
        // A server that warms up is passed over in most turns, and one that rests in all, unless there is no other. If
        // nothing is left, one is asked all the same: refusing without a try helps nobody.
        let level = if any(&in_turn) {
            0
        } else if shares.is_some() && any(&usable) {
            1
        } else {
            2
        };
        let fit = |index: usize| match level {
            0 => in_turn(index),
            1 => usable(index),
            _ => true,
        };
        let first = self.turns.next(weights, fit);
        let next = match self.kind {
            Balance::RoundRobin => first,
            Balance::LeastRequests => least_requests::pick(weights, first, fit, load),
            Balance::P2c => two_choices::pick(weights, first, &self.random, fit, load),
        };
        self.turns.take(weights, next, fit);
        next
    }

    /// Goes on from the servers before: turns that are owed and rests stay. `before` has each server's index there.
    pub fn go_on_from(&self, other: &Balancer, before: &[Option<usize>]) {
        self.turns.go_on_from(&other.turns, before);
        let known = other.resting.borrow();
        let rests = before.iter().map(|before| before.and_then(|before| known[before]));
        self.resting.replace(rests.collect());
    }

    /// Whether a server may be used that does not rest.
    pub fn has_usable(&self, health: &Health, now: Instant) -> bool {
        let is_any_awake = (0..self.weights.each.len()).any(|index| !self.is_resting(index, now));
        is_any_awake && health.has_usable(|| clock::ns_of(now))
    }

    /// A server that could not be reached is left alone until `until`, while others can be asked.
    pub fn rest(&self, index: usize, until: Instant) {
        self.resting.borrow_mut()[index] = Some(until);
    }

    fn is_resting(&self, index: usize, now: Instant) -> bool {
        self.resting.borrow()[index].is_some_and(|until| now < until)
    }
}

/// Whether a server with this part of its share is to be had this time. `toss` is drawn anew for each request, and is the
/// same for all servers; each reads other bits of it.
fn is_tossed(share_per_mille: u32, toss: u64, index: usize) -> bool {
    if share_per_mille == WHOLE {
        return true;
    }
    let own = toss.wrapping_mul(2 * index as u64 + 1).rotate_left(32);
    own % u64::from(WHOLE) < u64::from(share_per_mille)
}

/// The balance begins at most so many turns in.
const FIRST_TURNS_MAX: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::config::{self, Check};
    use std::time::Duration;

    /// Servers that all are healthy, and are watched by these rules.
    fn health(servers: usize, slow_start: Option<Duration>) -> Health {
        let check = Check { unhealthy_after: 1, healthy_after: 1, ..Check::default() };
        let rules = config::Health { check: Some(check), slow_start, ..config::Health::default() };
        Health::new("u", rules, (0..servers).map(|index| index.to_string()))
    }

    fn tally(balancer: &Balancer, load: impl Fn(usize) -> u32 + Copy, draws: usize) -> Vec<usize> {
        let now = crate::clock::instant();
        let mut tally = vec![0; balancer.weights.each.len()];
        let health = health(tally.len(), None);
        for _ in 0..draws {
            tally[balancer.next(load, &health, None, now)] += 1;
        }
        tally
    }

    #[test]
    fn round_robin_gives_each_its_weight() {
        let balancer = Balancer::new(Balance::RoundRobin, vec![1, 2, 3], 7);
        assert_eq!(tally(&balancer, |_| 0, 600), [100, 200, 300]);
    }

    #[test]
    fn two_choices_shun_the_loaded_server() {
        let balancer = Balancer::new(Balance::P2c, vec![1, 1, 1], 7);
        let tally = tally(&balancer, |index| if index == 0 { 100 } else { 0 }, 9_000);
        assert!(tally[0] < 9_000 / 6, "{tally:?}");
        assert!(tally[1] > 3_000 && tally[2] > 3_000, "{tally:?}");
    }

    /// Shares of 20,000 requests when each client sends its next one as soon as its last one is answered, which takes
    /// a random time of the same mean on every server but `slow`, where it takes ten times as long.
    fn shares(weights: &[u32], clients: usize, slow: Option<usize>) -> Vec<f64> {
        const REQUESTS: usize = 20_000;
        let balancer = Balancer::new(Balance::P2c, weights.to_vec(), 7);
        let (random, now) = (Random::new(1), crate::clock::instant());
        let health = health(weights.len(), None);
        let (mut loads, mut sent) = (vec![0_u32; weights.len()], vec![0_usize; weights.len()]);
        // When each client's answer comes, and from where.
        let mut waits: Vec<(f64, Option<usize>)> = vec![(0.0, None); clients];
        for _ in 0..REQUESTS {
            let client =
                (0..clients).min_by(|a, b| waits[*a].0.total_cmp(&waits[*b].0)).expect("there is one");
            if let Some(server) = waits[client].1 {
                loads[server] -= 1;
            }
            let server = balancer.next(|index| loads[index], &health, None, now);
            loads[server] += 1;
            sent[server] += 1;
            let uniform = (random.next() % 1_000_000 + 1) as f64 / 1_000_001.0;
            let mean = if slow == Some(server) { 10.0 } else { 1.0 };
            waits[client] = (waits[client].0 - uniform.ln() * mean, Some(server));
        }
        sent.iter().map(|&count| count as f64 / REQUESTS as f64).collect()
    }

    #[test]
    fn shares_are_as_the_weights_ask_whatever_the_number_of_clients() {
        for weights in [&[95, 5][..], &[1, 2], &[5, 3, 2], &[1, 1, 1], &[1, 1_000], &[90, 9, 1]] {
            let total: u32 = weights.iter().sum();
            for clients in [1, 2, 5, 20, 60, 300] {
                let shares = shares(weights, clients, None);
                for (share, weight) in shares.iter().zip(weights) {
                    let asked = f64::from(*weight) / f64::from(total);
                    assert!((share - asked).abs() < 0.005, "{weights:?}, {clients} clients: {shares:?}");
                }
            }
        }
    }

    #[test]
    fn a_slow_server_gets_less_than_its_share() {
        for (weights, slow) in [(&[1, 1][..], 0), (&[1, 1, 1], 2), (&[1, 2], 1), (&[2, 1, 1], 0)] {
            let asked = f64::from(weights[slow]) / f64::from(weights.iter().sum::<u32>());
            let shares = shares(weights, 60, Some(slow));
            assert!(shares[slow] < asked / 2.0, "{weights:?}: {shares:?}");
        }
    }

    #[test]
    fn a_resting_or_avoided_server_is_asked_only_when_all_are() {
        let now = crate::clock::instant();
        for kind in [Balance::P2c, Balance::RoundRobin, Balance::LeastRequests] {
            let balancer = Balancer::new(kind, vec![1, 1], 7);
            let health = health(2, None);
            balancer.rest(0, now + Duration::from_secs(1));
            assert!((0..100).all(|_| balancer.next(|_| 0, &health, None, now) == 1));
            let later = now + Duration::from_secs(2);
            assert!((0..100).any(|_| balancer.next(|_| 0, &health, None, later) == 0));
            assert!((0..100).all(|_| balancer.next(|_| 0, &health, Some(1), later) == 0));
            assert!(balancer.has_usable(&health, now));
            balancer.rest(1, now + Duration::from_secs(1));
            assert!((0..100).any(|_| balancer.next(|_| 0, &health, None, now) == 0));
            assert!(!balancer.has_usable(&health, now) && balancer.has_usable(&health, later));
        }
    }

    #[test]
    fn the_least_loaded_server_for_its_weight_is_next() {
        let health = health(3, None);
        let next = |loads: [u32; 3]| {
            let balancer = Balancer::new(Balance::LeastRequests, vec![1, 1, 2], 7);
            balancer.next(|index| loads[index], &health, None, clock::instant())
        };
        assert_eq!(next([0, 0, 0]), 2);
        assert_eq!(next([0, 0, 2]), 0);
        assert_eq!(next([3, 1, 4]), 1);
        assert_eq!(next([3, 2, 4]), 2);
        // Where all are as loaded as they should be, shares are as the weights ask.
        let balancer = Balancer::new(Balance::LeastRequests, vec![2, 2, 2], 7);
        assert_eq!(tally(&balancer, |_| 1, 300), [100; 3]);
    }

    #[test]
    fn a_server_that_is_not_healthy_is_asked_only_when_all_are_used() {
        let now = crate::clock::instant();
        let now_ns = clock::ns_of(now);
        for kind in [Balance::P2c, Balance::RoundRobin, Balance::LeastRequests] {
            let (balancer, health) = (Balancer::new(kind, vec![1; 3], 7), health(3, None));
            health.checked(0, &Err("gone"), now_ns);
            let asked = |avoid| -> Vec<bool> {
                let next: Vec<usize> = (0..99).map(|_| balancer.next(|_| 0, &health, avoid, now)).collect();
                (0..3).map(|index| next.contains(&index)).collect()
            };
            assert_eq!(asked(None), [false, true, true]);
            assert_eq!(asked(Some(1)), [false, false, true]);
            // One that only rests is better than one that is not healthy.
            balancer.rest(1, now + Duration::from_secs(1));
            balancer.rest(2, now + Duration::from_secs(1));
            assert_eq!(asked(None), [false, true, true]);
            for server in 1..3 {
                health.checked(server, &Err("gone"), now_ns);
            }
            balancer.rest(1, now);
            balancer.rest(2, now);
            assert_eq!(asked(None), [true; 3]);
        }
    }

    #[test]
    fn a_server_that_is_back_takes_its_part_by_and_by() {
        let now = crate::clock::instant();
        for kind in [Balance::P2c, Balance::RoundRobin, Balance::LeastRequests] {
            let balancer = Balancer::new(kind, vec![1; 3], 7);
            let health = health(3, Some(Duration::from_secs(10)));
            health.checked(0, &Err("gone"), clock::ns_of(now));
            health.checked(0, &Ok::<(), &str>(()), clock::ns_of(now));
            let share = |after: u64| {
                let later = now + Duration::from_secs(after);
                let draws = (0..9_000).filter(|_| balancer.next(|_| 0, &health, None, later) == 0);
                draws.count() as f64 / 9_000.0
            };
            for (after, asked) in
                [(0, 0.1 / 3.0), (2, 0.2 / 3.0), (5, 0.5 / 3.0), (9, 0.9 / 3.0), (10, 1.0 / 3.0)]
            {
                assert!((share(after) - asked).abs() < 0.02, "{kind:?} after {after} s: {}", share(after));
            }
        }
    }
}
