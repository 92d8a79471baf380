//! Which server is next. Each balance is a file here: `round_robin` gives each server its turn, `two_choices` lets another
//! server take the turn if it is less loaded.
//!
//! A new balance is a variant of [`Balance`], its word in `config/upstream.rs`, and a file with a function that picks; the
//! match in [`Balancer::next`] then names it. Servers that rest, and the one a retry comes from, are left out here, for
//! every balance alike. State belongs to one worker.

mod round_robin;
mod two_choices;
mod weights;

use std::cell::RefCell;
use std::time::Instant;

use self::round_robin::Turns;
use self::weights::Weights;
use super::config::Balance;
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
    /// there: the server a retry comes from.
    pub fn next(&self, load: impl Fn(usize) -> u32, avoid: Option<usize>, now: Instant) -> usize {
        let weights = &self.weights;
        if weights.each.len() == 1 {
            return 0;
        }
        let fit = |index: usize| Some(index) != avoid && !self.is_resting(index, now);
        // If all servers rest, one is asked all the same: refusing without a try helps nobody.
        let any = !(0..weights.each.len()).any(fit);
        let fit = |index: usize| any || fit(index);
        let first = self.turns.next(weights, fit);
        let next = match self.kind {
            Balance::RoundRobin => first,
            Balance::P2c => two_choices::pick(weights, first, &self.random, fit, load),
        };
        self.turns.take(weights, next, fit);
        next
    }

    /// A server that could not be reached is left alone until `until`, while others can be asked.
    pub fn rest(&self, index: usize, until: Instant) {
        self.resting.borrow_mut()[index] = Some(until);
    }

    fn is_resting(&self, index: usize, now: Instant) -> bool {
        self.resting.borrow()[index].is_some_and(|until| now < until)
    }
}

/// The balance begins at most so many turns in.
const FIRST_TURNS_MAX: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn tally(balancer: &Balancer, load: impl Fn(usize) -> u32 + Copy, draws: usize) -> Vec<usize> {
        let now = crate::clock::instant();
        let mut tally = vec![0; balancer.weights.each.len()];
        for _ in 0..draws {
            tally[balancer.next(load, None, now)] += 1;
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
        let (mut loads, mut sent) = (vec![0_u32; weights.len()], vec![0_usize; weights.len()]);
        // When each client's answer comes, and from where.
        let mut waits: Vec<(f64, Option<usize>)> = vec![(0.0, None); clients];
        for _ in 0..REQUESTS {
            let client =
                (0..clients).min_by(|a, b| waits[*a].0.total_cmp(&waits[*b].0)).expect("there is one");
            if let Some(server) = waits[client].1 {
                loads[server] -= 1;
            }
            let server = balancer.next(|index| loads[index], None, now);
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
        for kind in [Balance::P2c, Balance::RoundRobin] {
            let balancer = Balancer::new(kind, vec![1, 1], 7);
            balancer.rest(0, now + Duration::from_secs(1));
            assert!((0..100).all(|_| balancer.next(|_| 0, None, now) == 1));
            let later = now + Duration::from_secs(2);
            assert!((0..100).any(|_| balancer.next(|_| 0, None, later) == 0));
            assert!((0..100).all(|_| balancer.next(|_| 0, Some(1), later) == 0));
            balancer.rest(1, now + Duration::from_secs(1));
            assert!((0..100).any(|_| balancer.next(|_| 0, None, now) == 0));
        }
    }
}
