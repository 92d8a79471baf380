//! A Redis that answers later than requests wait: nodes, a way there and back, and virtual time.

use std::collections::VecDeque;
use std::time::Duration;

use super::*;
use limit::lease_messages::Renewal;

/// The way to a Redis that is a round trip away, from all nodes.
struct Far {
    desk: FakeRedis,
    nodes: u32,
    round_trip_ns: u64,
    deadline: Duration,
    now_ns: AtomicU64,
    /// Questions and answers on their way, in the order in which they arrive: the way takes always as long.
    there: Mutex<VecDeque<(u64, Op, Done)>>,
    back: Mutex<VecDeque<(u64, Reply, Done)>>,
}

/// One node's.
struct Way {
    far: Arc<Far>,
    rank: u32,
}

impl Link for Way {
    fn send(&self, op: Op, done: Done) {
        let at_ns = self.far.now_ns.load(Ordering::Relaxed) + self.far.round_trip_ns / 2;
        self.far.there.lock().expect("no test panics here").push_back((at_ns, op, done));
    }

    fn is_up(&self, _key: Key) -> bool {
        true
    }

    fn is_quick(&self, _key: Key) -> bool {
        self.far.round_trip_ns <= self.far.deadline.as_nanos() as u64
    }

    fn round_trip_ns(&self, _key: Key) -> u64 {
        self.far.round_trip_ns
    }

    fn deadline(&self, _key: Key) -> Duration {
        self.far.deadline
    }

    fn nodes(&self) -> u32 {
        self.far.nodes
    }

    fn rank(&self, _key: Key) -> u32 {
        self.rank
    }
}

impl Far {
    /// Lets what has arrived by now be answered and heard.
    fn arrive(&self, now_ns: u64) {
        self.now_ns.store(now_ns, Ordering::Relaxed);
        let is_there = |(at_ns, ..): &mut (u64, Op, Done)| *at_ns <= now_ns;
        while let Some((at_ns, op, done)) =
            { self.there.lock().expect("no test panics here").pop_front_if(is_there) }
        {
            let reply = self.desk.act(&op, at_ns);
            let back_ns = at_ns + self.round_trip_ns / 2;
            self.back.lock().expect("no test panics here").push_back((back_ns, reply, done));
        }
        let is_back = |(at_ns, ..): &mut (u64, Reply, Done)| *at_ns <= now_ns;
        while let Some((_, reply, done)) =
            { self.back.lock().expect("no test panics here").pop_front_if(is_back) }
        {
            done(Ok(reply), now_ns);
        }
    }
}

/// A fleet behind it, of which every node is asked at random.
struct Scene {
    far: Arc<Far>,
    nodes: Vec<Arc<Limiter>>,
    charges: Vec<Charge>,
    random: base::random::Random,
    waiting: Vec<(u64, u64, Decision, Waiting)>,
    now_ns: u64,
    /// When each unit was admitted.
    admitted: Vec<u64>,
    /// Refused without a 429, because Redis was taken to be down.
    down: usize,
    refused: Vec<u64>,
}

impl Scene {
    fn new(
        nodes: u32,
        quota: Quota,
        overshoot: f64,
        when_down: WhenDown,
        round_trip_ms: u64,
        deadline_ms: u64,
    ) -> Scene {
        let far = Arc::new(Far {
            desk: FakeRedis::default(),
            nodes,
            round_trip_ns: round_trip_ms * MS,
            deadline: Duration::from_millis(deadline_ms),
            now_ns: AtomicU64::new(NOW),
            there: Mutex::default(),
            back: Mutex::default(),
        });
        let limiter = |rank| {
            let way = Arc::new(Way { far: Arc::clone(&far), rank });
            Arc::new(Limiter::in_fleet(Table::with_memory(1 << 16), Fleet::new(way, 1 << 16)))
        };
        let nodes: Vec<_> = (0..nodes).map(limiter).collect();
        let charge = |node: &Arc<Limiter>| {
            let fleet = node.fleet().expect("a fleet's node");
            let sharing = Sharing::new(&quota, overshoot, when_down);
            let plan = fleet.plans().id(Plan { policy: "p".into(), quota, sharing });
            node.table().declare([quota, quota.share_of(fleet.nodes())]);
            Charge { plan: Some(plan), ..Charge::one(Key::new(7 << 64 | 9 << 16), quota) }
        };
        let charges = nodes.iter().map(charge).collect();
        let random = base::random::Random::new(11);
        let (waiting, admitted, refused) = (Vec::new(), Vec::new(), Vec::new());
        Scene { far, nodes, charges, random, waiting, now_ns: NOW, admitted, down: 0, refused }
    }

    /// So many requests a second to any of the nodes, for so long.
    fn play(&mut self, rate: u64, seconds: u64) {
        let end_ns = self.now_ns + seconds * SECOND;
        let mut next_ns = self.now_ns;
        while self.now_ns < end_ns {
            while next_ns <= self.now_ns {
                // Half to one and a half of the mean gap.
                next_ns += SECOND / rate / 2 + self.random.next() % (SECOND / rate);
                let node = self.random.next() as usize % self.nodes.len();
                self.ask((node, 1));
            }
            self.step();
        }
    }

    /// A request to a node, which costs so much.
    fn ask(&mut self, (node, cost): (usize, u64)) {
        let mut decision = Decision::default();
        let charge = Charge { cost, ..self.charges[node] };
        match self.nodes[node].decide(&[charge], ClientAddress::default(), self.now_ns, &mut decision) {
            Some(waiting) => self.waiting.push((self.now_ns, cost, decision, waiting)),
            None => self.decided(cost, &decision, self.now_ns),
        }
    }

    /// Half a millisecond.
    fn step(&mut self) {
        self.now_ns += MS / 2;
        self.far.arrive(self.now_ns);
        let deadline_ns = self.far.deadline.as_nanos() as u64;
        for index in (0..self.waiting.len()).rev() {
            let (since_ns, _, _, waiting) = &self.waiting[index];
            let is_late = self.now_ns - since_ns >= deadline_ns && waiting.longer(self.now_ns).is_zero();
            if waiting.is_resolved() || is_late {
                let (since_ns, cost, mut decision, waiting) = self.waiting.swap_remove(index);
                waiting.resume(self.now_ns, &mut decision);
                self.decided(cost, &decision, since_ns);
            }
        }
        if self.now_ns.is_multiple_of(50 * MS) {
            self.nodes.iter().for_each(|node| node.sweep(self.now_ns));
        }
    }

    fn decided(&mut self, cost: u64, decision: &Decision, since_ns: u64) {
        if decision.is_admitted() {
            self.admitted.extend((0..cost).map(|_| since_ns));
        } else {
            self.refused.push(since_ns);
        }
        self.down += usize::from(decision.is_redis_down);
    }
}

fn quota(algorithm: Algorithm, limit: u64, seconds: u64, burst: u64) -> Quota {
    let positive = |number| NonZeroU64::new(number).expect("tests give no zero");
    Quota::new(algorithm, positive(limit), positive(seconds * SECOND), positive(burst))
}

/// What one exact limit admits of as many requests.
fn alone(quota: &Quota, rate: u64, seconds: u64) -> u64 {
    let mut state = State::default();
    let mut admitted = 0;
    for turn in 0..rate * seconds {
        let (next, outcome) = state.take(quota, 1, NOW + turn * SECOND / rate);
        admitted += u64::from(outcome.is_admitted());
        state = next;
    }
    admitted
}

#[test]
fn exact_limits_hold_however_late_redis_answers() {
    let limits = [
        (Algorithm::TokenBucket, 20, 1, 20, 60),
        (Algorithm::TokenBucket, 60, 60, 60, 20),
        (Algorithm::TokenBucket, 100, 3_600, 100, 20),
        (Algorithm::TokenBucket, 5, 10, 5, 20),
        (Algorithm::TokenBucket, 200, 1, 20, 400),
        // Full again before an answer about it comes.
        (Algorithm::TokenBucket, 200, 1, 10, 400),
        (Algorithm::FixedWindow, 20, 1, 20, 60),
        (Algorithm::FixedWindow, 100, 3_600, 100, 20),
        (Algorithm::SlidingWindow, 60, 10, 60, 40),
        (Algorithm::SlidingLog, 60, 60, 60, 20),
        (Algorithm::LeakyBucket, 20, 1, 20, 60),
    ];
    let downs = [WhenDown::Local, WhenDown::Allow, WhenDown::Deny];
    let mut wrong = Vec::new();
    for (turn, (algorithm, limit, period, burst, rate)) in limits.into_iter().enumerate() {
        let quota = quota(algorithm, limit, period, burst);
        for (nodes, rate) in [(1, rate), (2, rate), (4, rate), (20, rate), (20, rate * 4)] {
            for round_trip_ms in [3, 20, 50] {
                let when_down = downs[(turn + nodes as usize) % downs.len()];
                let mut scene = Scene::new(nodes, quota, 0.0, when_down, round_trip_ms, 2);
                scene.play(rate, 30);
                let (got, right) = (scene.admitted.len() as u64, alone(&quota, rate, 30));
                // Of many nodes some come to know the key only when the others have spent it.
                let (share, units) = if nodes > 4 { (0.025, 2.0) } else { (0.02, 1.0) };
                if got.abs_diff(right) as f64 > (right as f64 * share).max(units) || scene.down > 0 {
                    wrong.push(format!(
                        "{algorithm:?} {limit}/{period}s burst {burst}, {nodes} nodes, {round_trip_ms} ms, {when_down:?}: \
                         {got} of {right}, {} down",
                        scene.down
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

/// Each algorithm that bursts are counted by, exact and leased.
fn algorithms() -> impl Iterator<Item = (Algorithm, f64)> {
    [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog]
        .into_iter()
        .flat_map(|algorithm| [(algorithm, 0.0), (algorithm, 0.05)])
}

/// Requests that come together are asked for together, behind the question of the first. Those that wait for it are within no
/// deadline of their own, and no node may spend its part while Redis gives it to another.
#[test]
fn a_burst_at_all_nodes_gets_a_limit_once() {
    let mut wrong = Vec::new();
    for (algorithm, overshoot) in algorithms() {
        for (limit, nodes, apart_ms) in [9, 20, 50, 200].iter().flat_map(|limit| {
            [2, 4].into_iter().flat_map(move |nodes| [0, 1, 3, 7].map(|apart_ms| (*limit, nodes, apart_ms)))
        }) {
            for (round_trip_ms, deadline_ms) in [(6, 9), (6, 12), (10, 15), (3, 20)] {
                let quota = quota(algorithm, limit, 3_600, limit);
                let mut scene =
                    Scene::new(nodes, quota, overshoot, WhenDown::Local, round_trip_ms, deadline_ms);
                for node in 0..nodes as usize {
                    (0..limit + limit / 3 + 2).for_each(|_| scene.ask((node, 1)));
                    (0..2 * apart_ms).for_each(|_| scene.step());
                }
                (0..200).for_each(|_| scene.step());
                let got = scene.admitted.len() as u64;
                if got != limit || scene.down > 0 {
                    wrong.push(format!(
                        "{algorithm:?} {limit} {overshoot}, {nodes} nodes {apart_ms} ms apart, {round_trip_ms} ms of {deadline_ms}: {got}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

/// What one node may need later in a window is not worth what another needs now.
#[test]
fn bursts_within_a_short_window_are_admitted_at_every_node() {
    let mut wrong = Vec::new();
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        for (limit, nodes, apart) in [24, 40, 100, 1_000].iter().flat_map(|limit| {
            [2, 4].into_iter().flat_map(move |nodes| [0, 1, 4, 20, 100].map(|apart| (*limit, nodes, apart)))
        }) {
            for (percent, round_trip_ms) in
                [30, 60, 100].into_iter().flat_map(|part| [1, 6].map(|ms| (part, ms)))
            {
                let quota = quota(algorithm, limit, 1, limit);
                let mut scene = Scene::new(nodes, quota, 0.05, WhenDown::Local, round_trip_ms, 20);
                let (mut asked, mut times) = (0, Vec::new());
                for _ in 0..3 {
                    while scene.now_ns % SECOND / MS != 150 {
                        scene.step();
                    }
                    let before = scene.admitted.len() as u64;
                    let each = limit * percent / 100 / u64::from(nodes);
                    for node in 0..nodes as usize {
                        (0..each).for_each(|_| scene.ask((node, 1)));
                        (0..apart).for_each(|_| scene.step());
                    }
                    asked += each * u64::from(nodes);
                    (0..3_000).for_each(|_| scene.step());
                    times.push(scene.admitted.len() as u64 - before);
                }
                let got = scene.admitted.len() as u64;
                if got * 100 < asked * if percent == 100 { 80 } else { 100 } {
                    wrong.push(format!(
                        "{algorithm:?} {limit}/s, {percent} % at {nodes} nodes, {apart} half ms apart, {round_trip_ms} ms: {times:?} of {asked}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_first_answer_that_is_late_refuses_nothing_of_an_even_share() {
    let limits = [
        (Algorithm::TokenBucket, 1_000, 1, 1_000, 700),
        (Algorithm::TokenBucket, 100, 1, 200, 400),
        (Algorithm::TokenBucket, 1_000, 3_600, 1_000, 200),
        (Algorithm::FixedWindow, 1_000, 60, 1_000, 400),
        (Algorithm::SlidingWindow, 1_000, 60, 1_000, 400),
    ];
    for (algorithm, limit, period, burst, rate) in limits {
        let quota = quota(algorithm, limit, period, burst);
        for overshoot in [0.0, 0.05] {
            for (round_trip_ms, deadline_ms) in [(3, 2), (6, 2), (20, 2), (50, 20)] {
                for nodes in [1, 2, 4] {
                    let mut scene =
                        Scene::new(nodes, quota, overshoot, WhenDown::Local, round_trip_ms, deadline_ms);
                    scene.play(rate, 3);
                    let first_ns = scene.refused.first().copied().unwrap_or(u64::MAX);
                    let before = scene.admitted.iter().filter(|at_ns| **at_ns < first_ns).count() as u64;
                    let least = quota.capacity() / u64::from(nodes);
                    assert!(
                        first_ns == u64::MAX || before >= least,
                        "{algorithm:?} {limit}/{period}s burst {burst}, {overshoot}, {round_trip_ms} ms, {nodes} nodes: \
                         first refused after {before}"
                    );
                }
            }
        }
    }
}

#[test]
fn no_more_requests_are_in_flight_than_the_limit_however_late_redis_answers() {
    for limit in [3, 5, 10, 40] {
        for nodes in [1, 2, 4, 20] {
            for when_down in [WhenDown::Local, WhenDown::Allow, WhenDown::Deny] {
                let quota = quota(Algorithm::Concurrency, limit, 1, limit);
                let mut scene = Scene::new(nodes, quota, 0.0, when_down, 6, 2);
                // None of them ends.
                scene.play(400, 2);
                let least = if u64::from(nodes) > limit {
                    limit
                } else {
                    limit / u64::from(nodes) * u64::from(nodes)
                };
                let got = scene.admitted.len() as u64;
                assert!((least..=limit).contains(&got), "{limit} over {nodes}, {when_down:?}: {got}");
                assert_eq!(scene.down, 0, "{when_down:?}");
            }
        }
    }
}

/// Lent windows of a second, beside one exact window that sees the same requests.
#[test]
fn requests_of_many_units_get_what_one_exact_limit_gives() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        for (limit, nodes) in [(30, 1), (30, 2), (30, 4), (100, 4)] {
            for (most, load) in [(5, 1), (10, 1), (10, 3)] {
                let quota = quota(algorithm, limit, 1, limit);
                let mut scene = Scene::new(nodes, quota, 0.05, WhenDown::Local, 1, 2);
                let (mut state, mut right) = (State::default(), 0);
                let gap_ns = SECOND * (most + 1) / 2 / (limit * load);
                let (mut next_ns, end_ns) = (NOW, NOW + 90 * SECOND);
                while scene.now_ns < end_ns {
                    while next_ns <= scene.now_ns {
                        next_ns += gap_ns / 2 + scene.random.next() % gap_ns;
                        let cost = 1 + scene.random.next() % most;
                        let (next, outcome) = state.take(&quota, cost, scene.now_ns);
                        (state, right) = (next, right + if outcome.is_admitted() { cost } else { 0 });
                        let node = scene.random.next() as usize % scene.nodes.len();
                        scene.ask((node, cost));
                    }
                    scene.step();
                }
                let got = scene.admitted.len() as f64 / right as f64;
                let share = if limit / u64::from(nodes) < 10 { 0.06 } else { 0.025 };
                let name = format!("{algorithm:?} {limit}/s, {nodes} nodes, costs to {most}, {load}");
                assert!((got - 1.0).abs() <= share, "{name}: {got:.3} of {right}");
            }
        }
    }
}

#[test]
fn a_changed_limit_is_looked_at_under_its_new_plan_alone() {
    for overshoot in [0.0, 0.05] {
        let [old, new] = [200, 400].map(|limit| quota(Algorithm::TokenBucket, limit, 3_600, limit));
        let mut scene = Scene::new(2, old, overshoot, WhenDown::Local, 6, 2);
        for node in 0..2 {
            (0..200).for_each(|_| scene.ask((node, 1)));
        }
        (0..400).for_each(|_| scene.step());
        for (node, charge) in scene.nodes.iter().zip(&mut scene.charges) {
            let fleet = node.fleet().expect("a fleet's node");
            let sharing = Sharing::new(&new, overshoot, WhenDown::Local);
            let plan = fleet.plans().id(Plan { policy: "p".into(), quota: new, sharing });
            node.table().declare([new, new.share_of(fleet.nodes())]);
            *charge = Charge { plan: Some(plan), quota: new, ..*charge };
        }
        (0..2).for_each(|node| scene.ask((node, 1)));
        (0..100).for_each(|_| scene.step());
        for _ in 0..10_000 {
            scene.step();
            for (_, op, _) in &*scene.far.there.lock().expect("no test panics here") {
                if let Op::Peek(ExactCharge { plan, .. }) | Op::Renew(Renewal { plan, .. }) = op {
                    assert_eq!(plan.quota, new, "{overshoot}");
                }
            }
        }
    }
}

/// What a node admits before Redis has answered is told by the next burst, and what others have told is known by then.
#[test]
fn bursts_get_a_limit_once_however_late_redis_answers() {
    let mut wrong = Vec::new();
    for (algorithm, overshoot) in algorithms() {
        for (limit, nodes, (round_trip_ms, deadline_ms)) in [20, 200].iter().flat_map(|limit| {
            let ways = [(6, 2), (12, 9), (24, 20), (50, 20)];
            [1, 2, 4].iter().flat_map(move |nodes| ways.map(|way| (*limit, *nodes, way)))
        }) {
            // The last two: by turns at the nodes.
            let by_turns = usize::from(round_trip_ms == 6 && nodes > 1) * 2;
            for (apart_ms, pause_ms) in
                [(0, 100), (7, 300), (30, 100), (1_000, 0), (3_000, 0)].into_iter().take(3 + by_turns)
            {
                let quota = quota(algorithm, limit, 3_600, limit);
                let mut scene =
                    Scene::new(nodes, quota, overshoot, WhenDown::Local, round_trip_ms, deadline_ms);
                for _ in 0..5 {
                    for node in 0..nodes as usize {
                        (0..limit).for_each(|_| scene.ask((node, 1)));
                        (0..2 * apart_ms).for_each(|_| scene.step());
                    }
                    (0..2 * pause_ms).for_each(|_| scene.step());
                }
                let got = scene.admitted.len() as u64;
                // What others admit in a third of the time since a node's own part may be unknown to it.
                let unknown = if apart_ms < 1_000 { 0 } else { limit / 16 };
                // A bucket may owe a unit; and the last units of an exact limit go to nobody who asks too late.
                if got > limit + 1 + unknown || got + u64::from(nodes) <= limit || scene.down > 0 {
                    wrong.push(format!(
                        "{algorithm:?} {limit} {overshoot}, {nodes} nodes {apart_ms} ms apart, each {pause_ms} ms, \
                         {round_trip_ms} ms of {deadline_ms}: {got}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}
