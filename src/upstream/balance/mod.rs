//! Which server is next. Each balance is a file here: `round_robin` gives each server its turn, `two_choices` lets another
//! server take the turn if it is less loaded, `least_requests` gives it to the least loaded of all. `hash` asks no turn: it
//! keeps a key at its server.
//!
//! A new balance is a variant of [`Balance`], its word in `config/upstream.rs`, and a file with a function that picks; the
//! match in [`Balancer::next`] then names it. Servers that rest or are not healthy, and the one a retry comes from, are left
//! out here, for every balance alike. State belongs to one worker.

mod hash;
mod least_requests;
mod round_robin;
mod two_choices;
mod weights;

use std::cell::RefCell;
use std::time::Instant;

use self::round_robin::RoundRobinTurns;
use self::weights::{FIRST, Weights};
use super::config::Balance;
use super::health::{UpstreamHealth, WHOLE};
use super::ids::ServerIndex;
use base::clock;
use base::ids::IdVec;
use base::random::Random;
use base::rendezvous;

/// Which server a request is to go to, and which not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerPreference {
    /// The one that its client's cookie names.
    pub kept: Option<ServerIndex>,
    /// What a server is kept by, if it is by a hash.
    pub key: Option<u64>,
    /// The one a retry comes from: not drawn as long as there is another one.
    pub avoid: Option<ServerIndex>,
}

/// One worker's choice among an upstream's servers.
#[derive(Debug)]
pub struct Balancer {
    kind: Balance,
    weights: Weights,
    /// Each server as a number, where servers are kept by a key.
    numbers: IdVec<ServerIndex, u64>,
    turns: RoundRobinTurns,
    random: Random,
    resting: RefCell<IdVec<ServerIndex, Option<Instant>>>,
}

impl Balancer {
    /// A balancer over servers of these labels and weights; `seed` sets workers apart.
    pub fn new(kind: Balance, servers: &[(&str, u32)], seed: u64) -> Balancer {
        let weights = Weights::new(servers.iter().map(|(_, weight)| *weight).collect());
        let numbers = kind.dimension().map(|_| hash::numbers(servers)).unwrap_or_default();
        let (turns, random) = (RoundRobinTurns::new(&weights), Random::new(seed));
        if matches!(kind, Balance::P2c | Balance::Hash(_)) {
            // Otherwise all workers would begin with the same server and send it their first requests together.
            for _ in 0..random.next() % weights.total.unsigned_abs().clamp(1, FIRST_TURNS_MAX) {
                let next = turns.next(&weights, |_| true);
                turns.take(&weights, next, |_| true);
            }
        }
        let resting = RefCell::new(vec![None; weights.each.len()].into());
        Balancer { kind, weights, numbers, turns, random, resting }
    }

    /// The next server, given how many exchanges each has now. One that is not healthy is not drawn, as long
    /// as another one is.
    pub fn next(
        &self,
        ServerPreference { kept, key, avoid }: ServerPreference,
        load: impl Fn(ServerIndex) -> u32,
        health: &UpstreamHealth,
        now: Instant,
    ) -> ServerIndex {
        let weights = &self.weights;
        if weights.each.len() == 1 {
            return FIRST;
        }
        let shares = health.shares(|| clock::ns_of(now));
        // By the key, each one comes back to a server that warms up just once.
        let toss = match key {
            Some(key) => rendezvous::mixed(key, TOSS),
            None if shares.is_some() => self.random.next(),
            None => 0,
        };
        let share = |index: ServerIndex| shares.map_or(WHOLE, |shares| shares.of(index));
        let is_other = |index: ServerIndex| Some(index) != avoid && !self.is_resting(index, now);
        let in_turn = |index: ServerIndex| is_other(index) && is_tossed(share(index), toss, index);
        let usable = |index: ServerIndex| Some(index) != avoid && share(index) > 0;
        if let Some(kept) = kept.filter(|&kept| is_other(kept) && share(kept) > 0) {
            return kept;
        }
        let any = |fit: &dyn Fn(ServerIndex) -> bool| weights.each.ids().any(fit);
        // A server that warms up is passed over in most turns, and one that rests in all, unless there is no other. If
        // nothing is left, one is asked all the same, because refusing without a try helps nobody.
        let level = if any(&in_turn) {
            0
        } else if shares.is_some() && any(&usable) {
            1
        } else {
            2
        };
        let fit = |index: ServerIndex| match level {
            0 => in_turn(index),
            1 => usable(index),
            _ => true,
        };
        if let Some(key) = key {
            return hash::pick(weights, &self.numbers, key, fit, load);
        }
        let first = self.turns.next(weights, fit);
        let next = match self.kind {
            Balance::RoundRobin => first,
            Balance::LeastRequests => least_requests::pick(weights, &self.turns, fit, load),
            Balance::P2c | Balance::Hash(_) => two_choices::pick(weights, first, &self.random, fit, load),
        };
        self.turns.take(weights, next, fit);
        next
    }

    /// Goes on from the servers before: turns that are owed and rests stay. `before` has each server's index there.
    pub fn go_on_from(&self, other: &Balancer, before: &IdVec<ServerIndex, Option<ServerIndex>>) {
        self.turns.go_on_from(&other.turns, before);
        let known = other.resting.borrow();
        let rests = before.iter().map(|before| before.and_then(|before| known[before]));
        self.resting.replace(rests.collect());
    }

    /// Whether any server may be used.
    pub fn has_usable(&self, health: &UpstreamHealth, now: Instant) -> bool {
        self.weights.each.ids().any(|index| self.is_usable(index, health, now))
    }

    /// Whether this server may be used and does not rest. If all are used because too few may be, this one still may not.
    pub fn is_usable(&self, index: ServerIndex, health: &UpstreamHealth, now: Instant) -> bool {
        !self.is_resting(index, now) && health.is_usable(index, || clock::ns_of(now))
    }

    /// A server that could not be reached is left alone until `until`, while others can be asked.
    pub fn rest(&self, index: ServerIndex, until: Instant) {
        self.resting.borrow_mut()[index] = Some(until);
    }

    fn is_resting(&self, index: ServerIndex, now: Instant) -> bool {
        self.resting.borrow()[index].is_some_and(|until| now < until)
    }
}

/// Whether a server with this part of its share is to be had this time. `toss` is drawn anew for each request, and is the
/// same for all servers; each reads other bits of it.
fn is_tossed(share_per_mille: u32, toss: u64, index: ServerIndex) -> bool {
    if share_per_mille == WHOLE {
        return true;
    }
    let own = toss.wrapping_mul(2 * index.index() as u64 + 1).rotate_left(32);
    own % u64::from(WHOLE) < u64::from(share_per_mille)
}

/// The balance begins at most so many turns in.
const FIRST_TURNS_MAX: u64 = 1_000;

/// Sets what a key is tossed by apart from which server it belongs to.
const TOSS: u64 = 0x746f_7373;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, HealthCheckConfig};
    use policy::definition::Dimension;
    use std::time::Duration;

    /// Servers that all are healthy, and are watched by these rules.
    fn health(servers: usize, slow_start: Option<Duration>) -> UpstreamHealth {
        let check =
            HealthCheckConfig { unhealthy_after: 1, healthy_after: 1, ..HealthCheckConfig::default() };
        let rules =
            config::HealthConfig { check: Some(check), slow_start, ..config::HealthConfig::default() };
        UpstreamHealth::new("u", rules, (0..servers).map(|index| index.to_string()))
    }

    fn balancer(kind: Balance, weights: Vec<u32>, seed: u64) -> Balancer {
        let labels: Vec<String> = (0..weights.len()).map(|index| format!("s{index}:80")).collect();
        let servers: Vec<_> = labels.iter().map(String::as_str).zip(weights).collect();
        Balancer::new(kind, &servers, seed)
    }

    const SECOND: ServerIndex = ServerIndex::new(1);
    const THIRD: ServerIndex = ServerIndex::new(2);

    fn avoiding(avoid: Option<ServerIndex>) -> ServerPreference {
        ServerPreference { avoid, ..ServerPreference::default() }
    }

    fn hashed(key: u64) -> ServerPreference {
        ServerPreference { key: Some(key), ..ServerPreference::default() }
    }

    fn tally(balancer: &Balancer, load: impl Fn(ServerIndex) -> u32 + Copy, draws: usize) -> Vec<usize> {
        let now = base::clock::instant();
        let mut tally = IdVec::from(vec![0; balancer.weights.each.len()]);
        let health = health(tally.len(), None);
        for _ in 0..draws {
            tally[balancer.next(ServerPreference::default(), load, &health, now)] += 1;
        }
        tally.to_vec()
    }

    #[test]
    fn round_robin_gives_each_its_weight() {
        let balancer = balancer(Balance::RoundRobin, vec![1, 2, 3], 7);
        assert_eq!(tally(&balancer, |_| 0, 600), [100, 200, 300]);
    }

    #[test]
    fn two_choices_shun_the_loaded_server() {
        let balancer = balancer(Balance::P2c, vec![1, 1, 1], 7);
        let tally = tally(&balancer, |server| if server == FIRST { 100 } else { 0 }, 9_000);
        assert!(tally[0] < 9_000 / 6, "{tally:?}");
        assert!(tally[1] > 3_000 && tally[2] > 3_000, "{tally:?}");
    }

    /// Shares of 20,000 requests when each client sends its next one as soon as its last one is answered, which takes
    /// a random time of the same mean on every server but `slow`, where it takes ten times as long.
    fn shares(weights: &[u32], clients: usize, slow: Option<usize>) -> Vec<f64> {
        const REQUESTS: usize = 20_000;
        let balancer = balancer(Balance::P2c, weights.to_vec(), 7);
        let (random, now) = (Random::new(1), base::clock::instant());
        let health = health(weights.len(), None);
        let mut loads = IdVec::from(vec![0_u32; weights.len()]);
        let mut sent = IdVec::from(vec![0_usize; weights.len()]);
        // When each client's answer comes, and from where.
        let mut waits: Vec<(f64, Option<ServerIndex>)> = vec![(0.0, None); clients];
        for _ in 0..REQUESTS {
            let client =
                (0..clients).min_by(|a, b| waits[*a].0.total_cmp(&waits[*b].0)).expect("there is one");
            if let Some(server) = waits[client].1 {
                loads[server] -= 1;
            }
            let server = balancer.next(ServerPreference::default(), |server| loads[server], &health, now);
            loads[server] += 1;
            sent[server] += 1;
            let uniform = (random.next() % 1_000_000 + 1) as f64 / 1_000_001.0;
            let mean = if slow == Some(server.index()) { 10.0 } else { 1.0 };
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
        let now = base::clock::instant();
        for kind in [Balance::P2c, Balance::RoundRobin, Balance::LeastRequests] {
            let balancer = balancer(kind, vec![1, 1], 7);
            let health = health(2, None);
            balancer.rest(FIRST, now + Duration::from_secs(1));
            assert!(
                (0..100).all(|_| balancer.next(ServerPreference::default(), |_| 0, &health, now) == SECOND)
            );
            let later = now + Duration::from_secs(2);
            assert!(
                (0..100).any(|_| balancer.next(ServerPreference::default(), |_| 0, &health, later) == FIRST)
            );
            assert!((0..100).all(|_| balancer.next(avoiding(Some(SECOND)), |_| 0, &health, later) == FIRST));
            assert!(balancer.has_usable(&health, now));
            balancer.rest(SECOND, now + Duration::from_secs(1));
            assert!(
                (0..100).any(|_| balancer.next(ServerPreference::default(), |_| 0, &health, now) == FIRST)
            );
            assert!(!balancer.has_usable(&health, now) && balancer.has_usable(&health, later));
        }
    }

    #[test]
    fn a_kept_server_is_next_as_long_as_it_may_be_used() {
        let (now, health) = (clock::instant(), health(3, None));
        let balancer = balancer(Balance::P2c, vec![1; 3], 7);
        let wish = ServerPreference { kept: Some(SECOND), ..ServerPreference::default() };
        let is_kept = |wish, now| (0..20).all(|_| balancer.next(wish, |_| 9, &health, now) == SECOND);
        let is_left = |wish, now| (0..20).all(|_| balancer.next(wish, |_| 9, &health, now) != SECOND);
        assert!(is_kept(wish, now));
        assert!(is_left(ServerPreference { avoid: Some(SECOND), ..wish }, now));
        balancer.rest(SECOND, now + Duration::from_secs(1));
        assert!(is_left(wish, now) && is_kept(wish, now + Duration::from_secs(2)));
        health.checked(SECOND, &Err("gone"), clock::ns_of(now));
        assert!(is_left(wish, now + Duration::from_secs(2)));
    }

    #[test]
    fn the_least_loaded_server_for_its_weight_is_next() {
        let health = health(3, None);
        let next = |loads: [u32; 3]| {
            let balancer = balancer(Balance::LeastRequests, vec![1, 1, 2], 7);
            balancer
                .next(ServerPreference::default(), |server| loads[server.index()], &health, clock::instant())
                .index()
        };
        assert_eq!(next([0, 0, 0]), 2);
        assert_eq!(next([0, 0, 2]), 0);
        assert_eq!(next([3, 1, 4]), 1);
        assert_eq!(next([3, 2, 4]), 2);
        // Where all are as loaded as they should be, shares are as the weights ask.
        let even = balancer(Balance::LeastRequests, vec![2, 2, 2], 7);
        assert_eq!(tally(&even, |_| 1, 300), [100; 3]);
    }

    #[test]
    fn servers_that_are_idle_have_their_turns_by_weight() {
        let uneven = balancer(Balance::LeastRequests, vec![1, 2, 3], 7);
        assert_eq!(tally(&uneven, |_| 0, 60), [10, 20, 30]);
        // So have those that are as busy as each other, whatever the rest does.
        let one_busy = balancer(Balance::LeastRequests, vec![1, 2, 3], 7);
        let tally = tally(&one_busy, |server| [0, 0, 1][server.index()], 60);
        // The claim of the busy one grows for a few rounds, which moves a turn.
        assert!(tally[0].abs_diff(20) <= 1 && tally[2] == 0, "{tally:?}");
    }

    #[test]
    fn a_server_that_is_not_healthy_is_asked_only_when_all_are_used() {
        let now = base::clock::instant();
        let now_ns = clock::ns_of(now);
        for kind in [Balance::P2c, Balance::RoundRobin, Balance::LeastRequests] {
            let (balancer, health) = (balancer(kind, vec![1; 3], 7), health(3, None));
            health.checked(FIRST, &Err("gone"), now_ns);
            let asked = |avoid| -> Vec<bool> {
                let next: Vec<ServerIndex> =
                    (0..99).map(|_| balancer.next(avoiding(avoid), |_| 0, &health, now)).collect();
                [FIRST, SECOND, THIRD].iter().map(|server| next.contains(server)).collect()
            };
            assert_eq!(asked(None), [false, true, true]);
            assert_eq!(asked(Some(SECOND)), [false, false, true]);
            // One that only rests is better than one that is not healthy.
            balancer.rest(SECOND, now + Duration::from_secs(1));
            balancer.rest(THIRD, now + Duration::from_secs(1));
            assert_eq!(asked(None), [false, true, true]);
            for server in [SECOND, THIRD] {
                health.checked(server, &Err("gone"), now_ns);
            }
            balancer.rest(SECOND, now);
            balancer.rest(THIRD, now);
            assert_eq!(asked(None), [true; 3]);
        }
    }

    #[test]
    fn a_server_that_is_back_takes_its_part_by_and_by() {
        let now = base::clock::instant();
        for kind in [Balance::P2c, Balance::RoundRobin, Balance::LeastRequests] {
            let balancer = balancer(kind.clone(), vec![1; 3], 7);
            let health = health(3, Some(Duration::from_secs(10)));
            health.checked(FIRST, &Err("gone"), clock::ns_of(now));
            health.checked(FIRST, &Ok::<(), &str>(()), clock::ns_of(now));
            let share = |after: u64| {
                let later = now + Duration::from_secs(after);
                let draws = (0..9_000)
                    .filter(|_| balancer.next(ServerPreference::default(), |_| 0, &health, later) == FIRST);
                draws.count() as f64 / 9_000.0
            };
            for (after, asked) in
                [(0, 0.1 / 3.0), (2, 0.2 / 3.0), (5, 0.5 / 3.0), (9, 0.9 / 3.0), (10, 1.0 / 3.0)]
            {
                assert!((share(after) - asked).abs() < 0.02, "{kind:?} after {after} s: {}", share(after));
            }
        }
    }

    const KEYS: u64 = 3_000;

    fn hashing(weights: &[u32]) -> Balancer {
        balancer(Balance::Hash(Dimension::Ip), weights.to_vec(), 7)
    }

    /// The server of each key, while nothing is on its way.
    fn owners(balancer: &Balancer, health: &UpstreamHealth, now: Instant) -> Vec<ServerIndex> {
        let key = |index: u64| rendezvous::number(&[&index.to_le_bytes()]);
        (0..KEYS).map(|index| balancer.next(hashed(key(index)), |_| 0, health, now)).collect()
    }

    #[test]
    fn a_key_keeps_its_server_on_every_worker() {
        let (now, health) = (clock::instant(), health(3, None));
        let one = owners(&hashing(&[1, 2, 3]), &health, now);
        let servers = [1, 2, 3].map(|weight| weight as f64 / 6.0);
        for (server, asked) in servers.into_iter().enumerate() {
            let share = one.iter().filter(|owner| owner.index() == server).count() as f64 / KEYS as f64;
            assert!((share - asked).abs() < 0.03, "{server}: {share}");
        }
        let other = balancer(Balance::Hash(Dimension::Ip), vec![1, 2, 3], 8);
        assert_eq!(owners(&other, &health, now), one);
    }

    #[test]
    fn a_server_that_leaves_moves_only_its_own_keys_and_gets_them_back_one_by_one() {
        let now = clock::instant();
        let (balancer, health) = (hashing(&[1; 5]), health(5, Some(Duration::from_secs(10))));
        let before = owners(&balancer, &health, now);
        health.checked(THIRD, &Err("gone"), clock::ns_of(now));
        let without = owners(&balancer, &health, now);
        assert!(without.iter().all(|owner| *owner != THIRD));
        assert!(before.iter().zip(&without).all(|(was, is)| was == is || *was == THIRD));
        health.checked(THIRD, &Ok::<(), &str>(()), clock::ns_of(now));
        let mut last = without;
        for seconds in 0..=10 {
            let next = owners(&balancer, &health, now + Duration::from_secs(seconds));
            assert!(last.iter().zip(&next).all(|(was, is)| was == is || *is == THIRD), "after {seconds} s");
            last = next;
        }
        assert_eq!(last, before);
        // A worker that cannot reach a server does the same without the others' word.
        balancer.rest(SECOND, now + Duration::from_secs(30));
        let resting = owners(&balancer, &health, now + Duration::from_secs(20));
        assert!(before.iter().zip(&resting).all(|(was, is)| was == is || *was == SECOND));
    }

    #[test]
    fn no_server_has_more_than_a_quarter_above_its_fair_share() {
        let (now, health) = (clock::instant(), health(4, None));
        for weights in [[1, 1, 1, 1], [1, 2, 3, 4]] {
            let (balancer, total) = (hashing(&weights), weights.iter().sum::<u32>());
            let loads = RefCell::new([0_u32; 4]);
            for request in 1..=1_000_u32 {
                // All have one key.
                let load = |server: ServerIndex| loads.borrow()[server.index()];
                let next = balancer.next(hashed(42), load, &health, now).index();
                loads.borrow_mut()[next] += 1;
                let most = (f64::from(request * weights[next]) * 1.25 / f64::from(total)).ceil().max(4.0);
                assert!(f64::from(loads.borrow()[next]) <= most, "{request}: {:?}", loads.borrow());
            }
            let own = balancer.next(hashed(42), |_| 0, &health, now).index();
            let share = f64::from(loads.borrow()[own]) / 1_000.0;
            let asked = 1.25 * f64::from(weights[own]) / f64::from(total);
            assert!((share - asked).abs() < 0.005, "its own server has all it may: {share}");
        }
    }

    #[test]
    fn a_request_without_a_key_goes_by_turns() {
        assert_eq!(tally(&hashing(&[2, 1]), |_| 0, 300), [200, 100]);
    }
}
