//! Which server is next: each in turn, by weight; or the one whose turn it is unless another is less loaded.
//!
//! Turns keep the shares exact: a smooth weighted round-robin, in which a server that was passed over keeps its claim.
//! A second server, drawn at random, keeps the longest queue short ("the power of two choices", Mitzenmacher 2001).
//! Weights decide whose turn it is and nothing else. A comparison of loads divided by weights would count them twice:
//! with 95:5 and one client every load is 0 or 1, and the small server would never be the less loaded one.
//! State belongs to one worker.

use std::cell::RefCell;
use std::time::Instant;

use super::config::Balance;
use crate::random::Random;

/// One worker's choice among an upstream's servers.
#[derive(Debug)]
pub struct Balancer {
    kind: Balance,
    weights: Vec<i64>,
    total: i64,
    is_even: bool,
    /// What each server has earned and not been paid.
    claims: RefCell<Vec<i64>>,
    random: Random,
    resting: RefCell<Vec<Option<Instant>>>,
}

impl Balancer {
    /// A balancer over servers of these weights; `seed` sets workers apart.
    pub fn new(kind: Balance, weights: Vec<u32>, seed: u64) -> Balancer {
        let weights: Vec<i64> = weights.into_iter().map(|weight| i64::from(weight.max(1))).collect();
        let total = weights.iter().sum();
        let balancer = Balancer {
            kind,
            total,
            is_even: weights.windows(2).all(|two| two[0] == two[1]),
            claims: RefCell::new(vec![0; weights.len()]),
            random: Random::new(seed),
            resting: RefCell::new(vec![None; weights.len()]),
            weights,
        };
        if kind == Balance::P2c {
            // Workers that all began with the same server would send it their first requests together.
            for _ in 0..balancer.random.next() % (total.unsigned_abs()).clamp(1, FIRST_TURNS_MAX) {
                let next = balancer.in_turn(|_| true);
                balancer.take_turn(next, |_| true);
            }
        }
        balancer
    }

    /// The index of the next server, given how many exchanges each has now. `avoid` is not drawn while another is
    /// there: the server a retry comes from.
    pub fn next(&self, load: impl Fn(usize) -> u32, avoid: Option<usize>, now: Instant) -> usize {
        if self.weights.len() == 1 {
            return 0;
        }
        let fit = |index: usize| Some(index) != avoid && !self.is_resting(index, now);
        // A fleet that is all resting is asked all the same: refusing without a try helps nobody.
        let any = !(0..self.weights.len()).any(fit);
        let fit = |index: usize| any || fit(index);
        let first = self.in_turn(fit);
        let next = match self.kind {
            Balance::RoundRobin => first,
            Balance::P2c => match self.draw(|index| index != first && fit(index)) {
                Some(other) if self.is_better(other, first, load) => other,
                _ => first,
            },
        };
        self.take_turn(next, fit);
        next
    }

    /// A server that could not be reached is left alone until `until`, while others can be asked.
    pub fn rest(&self, index: usize, until: Instant) {
        self.resting.borrow_mut()[index] = Some(until);
    }

    fn is_resting(&self, index: usize, now: Instant) -> bool {
        self.resting.borrow()[index].is_some_and(|until| now < until)
    }

    /// Whether a request had better go to `other` than to `first`, whose turn it is.
    ///
    /// Servers of one weight are compared as they are: that favours none. Of unequal ones the load goes by leaps, a
    /// whole request where a fraction would be fair, so that only a load beyond what chance explains counts: more than
    /// the fair share, its standard deviation (that of a Poisson distribution) and one.
    fn is_better(&self, other: usize, first: usize, load: impl Fn(usize) -> u32) -> bool {
        if self.is_even {
            return load(other) < load(first);
        }
        let total: f64 = (0..self.weights.len()).map(|index| f64::from(load(index))).sum();
        let fair = |index: usize| total * self.weights[index] as f64 / self.total as f64;
        let excess = |index: usize| f64::from(load(index)) - fair(index) - fair(index).sqrt() - 1.0;
        excess(first) > 0.0 && excess(other) < 0.0
    }

    /// The server with the largest claim, were each to earn its weight now.
    fn in_turn(&self, fit: impl Fn(usize) -> bool) -> usize {
        let claims = self.claims.borrow();
        let claim = |index: &usize| claims[*index] + self.weights[*index];
        let all = (0..self.weights.len()).filter(|&index| fit(index));
        // The first of several, which `max_by_key` would not give.
        all.reduce(|best, index| if claim(&index) > claim(&best) { index } else { best }).unwrap_or(0)
    }

    /// Everyone who may be asked earns its weight, and the one that is asked pays for all. A claim is bounded: a server
    /// that was slow for an hour is not owed the hour.
    fn take_turn(&self, taken: usize, fit: impl Fn(usize) -> bool) {
        let mut claims = self.claims.borrow_mut();
        let mut earned = 0;
        for index in (0..self.weights.len()).filter(|&index| fit(index)) {
            let most = CLAIM_TURNS_MAX * self.total - claims[index];
            let earns = self.weights[index].min(most.max(0));
            claims[index] += earns;
            earned += earns;
        }
        claims[taken] -= earned;
    }

    /// One server drawn by weight among those that fit.
    fn draw(&self, fit: impl Fn(usize) -> bool) -> Option<usize> {
        let all = || (0..self.weights.len()).filter(|&index| fit(index));
        let total: u64 = all().map(|index| self.weights[index].unsigned_abs()).sum();
        let mut point = self.random.next() % total.max(1);
        all().find(|&index| {
            let weight = self.weights[index].unsigned_abs();
            let is_drawn = point < weight;
            point = point.saturating_sub(weight);
            is_drawn
        })
    }
}

/// A server may be owed so many turns at most.
const CLAIM_TURNS_MAX: i64 = 8;
/// The balance begins at most so many turns in.
const FIRST_TURNS_MAX: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn tally(balancer: &Balancer, load: impl Fn(usize) -> u32 + Copy, draws: usize) -> Vec<usize> {
        let now = crate::clock::instant();
        let mut tally = vec![0; balancer.weights.len()];
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
