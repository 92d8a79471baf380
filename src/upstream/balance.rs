//! Which server is next: round-robin by weight, or the less loaded of two drawn at random.
//!
//! "The power of two choices" (Mitzenmacher 2001): two draws are enough to keep the longest queue short, and need
//! no view of the whole fleet. State belongs to one worker.

use std::cell::RefCell;
use std::time::Instant;

use super::config::Balance;
use crate::random::Random;

/// One worker's choice among an upstream's servers.
#[derive(Debug)]
pub struct Balancer {
    kind: Balance,
    weights: Vec<u32>,
    total: u64,
    turns: RefCell<Vec<i64>>,
    random: Random,
    resting: RefCell<Vec<Option<Instant>>>,
}

impl Balancer {
    /// A balancer over servers of these weights; `seed` sets workers apart.
    pub fn new(kind: Balance, weights: Vec<u32>, seed: u64) -> Balancer {
        let total = weights.iter().map(|&weight| u64::from(weight.max(1))).sum();
        let turns = RefCell::new(vec![0; weights.len()]);
        let resting = RefCell::new(vec![None; weights.len()]);
        Balancer { kind, weights, total, turns, random: Random::new(seed), resting }
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
        match self.kind {
            Balance::RoundRobin => self.turn(fit),
            Balance::P2c => {
                let (one, two) = (self.draw(fit), self.draw(fit));
                let relative = |index: usize| {
                    (u64::from(load(index)) + 1) * 1_000 / u64::from(self.weights[index].max(1))
                };
                if relative(two) < relative(one) { two } else { one }
            }
        }
    }

    /// A server that could not be reached is left alone until `until`, while others can be asked.
    pub fn rest(&self, index: usize, until: Instant) {
        self.resting.borrow_mut()[index] = Some(until);
    }

    fn is_resting(&self, index: usize, now: Instant) -> bool {
        self.resting.borrow()[index].is_some_and(|until| now < until)
    }

    /// Smooth weighted round-robin: everyone earns its weight, the richest pays the total.
    fn turn(&self, fit: impl Fn(usize) -> bool) -> usize {
        let mut turns = self.turns.borrow_mut();
        let mut best: Option<usize> = None;
        let mut earned = 0;
        for index in (0..self.weights.len()).filter(|&index| fit(index)) {
            turns[index] += i64::from(self.weights[index].max(1));
            earned += i64::from(self.weights[index].max(1));
            if best.is_none_or(|best| turns[index] > turns[best]) {
                best = Some(index);
            }
        }
        let best = best.unwrap_or(0);
        turns[best] -= earned;
        best
    }

    /// One server drawn by weight among those that fit.
    fn draw(&self, fit: impl Fn(usize) -> bool) -> usize {
        let start = self.weighted(self.random.next() % self.total);
        let count = self.weights.len();
        (0..count).map(|step| (start + step) % count).find(|&index| fit(index)).unwrap_or(start)
    }

    fn weighted(&self, mut point: u64) -> usize {
        for (index, &weight) in self.weights.iter().enumerate() {
            let weight = u64::from(weight.max(1));
            if point < weight {
                return index;
            }
            point -= weight;
        }
        self.weights.len() - 1
    }
}

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

    #[test]
    fn two_choices_follow_the_weights() {
        let balancer = Balancer::new(Balance::P2c, vec![1, 3], 7);
        let tally = tally(&balancer, |_| 0, 10_000);
        assert!(tally[1] > 2 * tally[0], "{tally:?}");
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
