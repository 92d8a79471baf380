//! Compares a scene with one exact bucket that sees every request at once.

use std::collections::BTreeMap;

use limit::lease_messages::{Op, Renewal};
use limit::{Plan, Quota, State};

/// Counts of one scene.
pub struct Judge {
    quota: Quota,
    epoch_s: f64,
    seconds: u64,
    keys: Vec<Key>,
    /// Requests and operations of each node and key.
    pairs: BTreeMap<(u32, u32), (u64, u64)>,
    /// When the lease of each ends.
    leases: BTreeMap<(u32, u32), u64>,
    requests: u64,
    waited: u64,
    fell_back: u64,
}

/// The reason an operation was sent.
#[derive(Clone, Copy, Debug)]
enum Cause {
    /// A request waits: the node held no lease.
    First,
    /// A request waits: the lease was over.
    Late,
    /// A request waits: the lease was spent.
    Dry,
    /// None waits: the lease was over.
    Renewed,
    /// None waits: the lease was nearly spent.
    Ahead,
    /// No request used the lease, so it was returned.
    Returned,
}

#[derive(Clone)]
struct Key {
    /// An exact bucket in front of what was offered.
    instead: State,
    /// An exact bucket behind what was admitted.
    behind: State,
    /// For each second: units the exact bucket admits, units admitted, and how many of those it would have refused.
    seconds: Vec<(u32, u32, u32)>,
    offered: u64,
    waited: u64,
    causes: [u64; 6],
}

/// The results of a scene, as the table shows them; shares are in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Results {
    /// Units admitted that one bucket would have refused, as a share of what it admits.
    pub overage: f64,
    /// Units admitted beyond the limit in the worst second of a key.
    pub worst_units: f64,
    /// The same as a share of the burst and a second's refill, less two units.
    pub worst: f64,
    /// The same without the first second, in which nodes hear of a key for the first time.
    pub later: f64,
    /// Units refused that one bucket would have admitted.
    pub false_deny: f64,
    pub operations: f64,
    /// What the goal allows for these pairs of node and key.
    pub operations_goal: f64,
    /// Requests that waited for Redis.
    pub waited: f64,
    /// Requests decided by fallback.
    pub fell_back: f64,
    /// Operations a second and node of keys far over their limit.
    pub over_limit: f64,
    pub requests: u64,
}

impl Judge {
    pub fn new(plan: &Plan, keys: usize, seconds: u64) -> Judge {
        let key = Key {
            instead: State::default(),
            behind: State::default(),
            seconds: vec![(0, 0, 0); seconds as usize + 4],
            offered: 0,
            waited: 0,
            causes: [0; 6],
        };
        Judge {
            quota: plan.quota,
            epoch_s: plan.sharing.epoch_ns as f64 / 1e9,
            seconds,
            keys: vec![key; keys],
            pairs: BTreeMap::new(),
            leases: BTreeMap::new(),
            requests: 0,
            waited: 0,
            fell_back: 0,
        }
    }

    pub fn offered(&mut self, key: usize, node: usize, cost: u64, now_ns: u64) {
        self.requests += 1;
        self.pairs.entry((key as u32, node as u32)).or_default().0 += 1;
        let key = &mut self.keys[key];
        key.offered += 1;
        let (state, outcome) = key.instead.take(&self.quota, cost, BEGIN_NS + now_ns);
        key.instead = state;
        key.seconds[second(now_ns)].0 += if outcome.is_admitted() { cost as u32 } else { 0 };
    }

    pub fn admitted(&mut self, key: usize, cost: u64, now_ns: u64) {
        let key = &mut self.keys[key];
        let (state, outcome) = key.behind.take(&self.quota, cost, BEGIN_NS + now_ns);
        key.behind = state;
        let second = &mut key.seconds[second(now_ns)];
        second.1 += cost as u32;
        second.2 += if outcome.is_admitted() { 0 } else { cost as u32 };
    }

    /// An operation, and why it was sent.
    pub fn operation(&mut self, key: usize, node: usize, renewal: &Renewal, now_ns: u64) {
        let pair = (key as u32, node as u32);
        self.pairs.entry(pair).or_default().1 += 1;
        let is_over = self.leases.get(&pair).is_none_or(|end_ns| *end_ns <= now_ns);
        let cause = match renewal.pending {
            _ if renewal.release => Cause::Returned,
            0 if is_over => Cause::Renewed,
            0 => Cause::Ahead,
            _ if renewal.epoch == 0 => Cause::First,
            _ if is_over => Cause::Late,
            _ => Cause::Dry,
        };
        self.keys[key].causes[cause as usize] += 1;
    }

    /// An operation about a key that is not lent.
    pub fn asked(&mut self, op: &Op, node: usize) {
        if let Op::Take(parts) = op {
            for part in parts {
                let key = crate::fleet::index(part.key);
                self.pairs.entry((key as u32, node as u32)).or_default().1 += 1;
            }
        }
    }

    /// A lease was given that ends then.
    pub fn granted(&mut self, key: usize, node: usize, end_ns: u64) {
        self.leases.insert((key as u32, node as u32), end_ns);
    }

    pub fn waited(&mut self, key: usize) {
        self.keys[key].waited += 1;
        self.waited += 1;
    }

    pub fn fell_back(&mut self) {
        self.fell_back += 1;
    }

    pub fn results(&self) -> Results {
        let (limit, period_s) = (self.quota.limit().get() as f64, self.quota.period_ns().get() as f64 / 1e9);
        let rate = limit / period_s;
        let whole = self.quota.capacity() as f64 + rate;
        let seconds = || self.keys.iter().flat_map(|key| &key.seconds);
        let exact: u64 = seconds().map(|second| u64::from(second.0)).sum();
        let over: u64 = seconds().map(|second| u64::from(second.2)).sum();
        let short: u64 = seconds().map(|second| u64::from(second.0.saturating_sub(second.1))).sum();
        let worst_from = |first: usize| {
            let late = self.keys.iter().flat_map(|key| &key.seconds[first..]);
            late.map(|second| f64::from(second.2)).fold(0.0, f64::max)
        };
        let share_of = |units: f64| 100.0 * (units - 2.0).max(0.0) / whole;
        let operations: u64 = self.pairs.values().map(|pair| pair.1).sum();
        let allowed: f64 = self
            .pairs
            .values()
            .map(|pair| 1.4 * pair.0 as f64 / (1.0 + pair.0 as f64 / self.seconds as f64 * self.epoch_s))
            .sum();
        let is_far_over =
            |key: &u32| self.keys[*key as usize].offered as f64 > 2.5 * rate * self.seconds as f64;
        let far_over = self.pairs.iter().filter(|((key, _), _)| is_far_over(key));
        let (pairs, over_ops) = far_over.fold((0, 0), |(pairs, ops), (_, pair)| (pairs + 1, ops + pair.1));
        Results {
            overage: 100.0 * over as f64 / exact.max(1) as f64,
            worst_units: worst_from(0),
            worst: share_of(worst_from(0)),
            later: share_of(worst_from(1)),
            false_deny: 100.0 * short as f64 / exact.max(1) as f64,
            operations: operations as f64 / self.requests as f64,
            operations_goal: allowed / self.requests as f64,
            waited: 100.0 * self.waited as f64 / self.requests as f64,
            fell_back: 100.0 * self.fell_back as f64 / self.requests as f64,
            over_limit: over_ops as f64 / (f64::from(pairs).max(1.0) * self.seconds as f64),
            requests: self.requests,
        }
    }
}

fn second(now_ns: u64) -> usize {
    (now_ns / 1_000_000_000) as usize
}

const BEGIN_NS: u64 = 3_600_000_000_000;
impl Judge {
    /// Prints a line for each key, to find the reason for a result.
    pub fn detail(&self) {
        for (index, key) in self.keys.iter().enumerate().take(8) {
            let sum =
                |of: fn(&(u32, u32, u32)) -> u32| key.seconds.iter().map(|s| u64::from(of(s))).sum::<u64>();
            let exact = sum(|s| s.0);
            let short = 100.0 * sum(|s| s.0.saturating_sub(s.1)) as f64 / exact as f64;
            let pairs = self.pairs.iter().filter(|((key, _), _)| *key as usize == index);
            let (nodes, ops) = pairs.fold((0, 0), |(nodes, ops), (_, pair)| (nodes + 1, ops + pair.1));
            print!(
                "    key {index}: exact {exact} of {}, short {short:.2} %, {nodes} nodes, waited {:.2} %, {ops} ops:",
                key.offered,
                100.0 * key.waited as f64 / key.offered as f64
            );
            let causes =
                [Cause::First, Cause::Late, Cause::Dry, Cause::Renewed, Cause::Ahead, Cause::Returned];
            causes.iter().for_each(|cause| print!(" {cause:?} {}", key.causes[*cause as usize]));
            println!();
        }
    }
}
