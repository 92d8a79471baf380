//! Reporters that behave as proxies do, over a limit that counts what is drawn.

use proptest::prelude::*;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;
const ROUND_NS: u64 = SECOND_NS / 4;

/// A limit: what is left of it, and the units that were drawn and came back.
#[derive(Default)]
struct Limit {
    left: u64,
    drawn: u64,
}

impl Limit {
    fn of(units: u64) -> Limit {
        Limit { left: units, drawn: 0 }
    }

    fn draw(&mut self, units: u64) -> u64 {
        let drawn = units.min(self.left);
        self.left -= drawn;
        self.drawn += drawn;
        drawn
    }

    fn take_back(&mut self, back: Vec<Back<()>>) {
        for Back { units, .. } in back {
            self.left += units;
            self.drawn -= units;
        }
    }
}

/// A proxy: what it may still spend, and what it did since its last report.
#[derive(Default)]
struct Proxy {
    units: u64,
    usage: Usage,
    passed: u64,
}

impl Proxy {
    fn requests(&mut self, count: u64) -> u64 {
        let passed = count.min(self.units);
        self.units -= passed;
        self.usage.allowed += passed;
        self.usage.denied += count - passed;
        self.passed += passed;
        passed
    }

    fn hears(&mut self, assignment: Assignment) {
        match assignment {
            Assignment::Begin { units, .. } | Assignment::Spend { units, .. } => self.units = units.get(),
            Assignment::Keep { .. } => {}
            Assignment::Deny { .. } => self.units = 0,
        }
    }
}

/// The shares of one bucket over one limit.
struct Scene {
    shares: Shares<()>,
    limit: Limit,
    is_quick: bool,
}

impl Scene {
    fn new(limit: u64) -> Scene {
        Scene { shares: Shares::default(), limit: Limit::of(limit), is_quick: false }
    }

    fn left(&self) -> Left {
        Left { units: self.limit.left, is_quick: self.is_quick }
    }

    /// A proxy reports; returns what it is told.
    fn report(&mut self, stream: u64, proxy: &mut Proxy, now_ns: u64) -> Assignment {
        let (stream, usage) = (StreamId(stream), std::mem::take(&mut proxy.usage));
        let heard = self.shares.report(stream, &usage, now_ns).expect("there is room");
        self.limit.draw(heard.unassigned);
        let planned = self.shares.plan(
            stream,
            self.left(),
            Rivals::default(),
            (Turn::Report, now_ns / ROUND_NS),
            now_ns,
        );
        let drawn = self.limit.draw(planned);
        let (assignment, back) = self.shares.answer(stream, drawn, Some(()), now_ns).expect("it has a share");
        self.limit.take_back(back);
        assignment
    }

    fn add(&mut self, stream: u64, now_ns: u64) -> Option<Assignment> {
        let stream = StreamId(stream);
        if !self.shares.hungers(stream, now_ns) {
            return None;
        }
        let planned = self.shares.plan(
            stream,
            self.left(),
            Rivals::default(),
            (Turn::Round, now_ns / ROUND_NS),
            now_ns,
        );
        let drawn = self.limit.draw(planned);
        self.shares.top_up(stream, drawn, Some(()), now_ns)
    }
}

/// Their gateway stood still for half a minute, or the way to it.
#[test]
fn reports_that_have_gathered_count_for_the_time_they_are_about() {
    let mut shares: Shares<()> = Shares::default();
    let usage = Usage { allowed: 500, elapsed_ns: 5 * SECOND_NS, ..Usage::default() };
    let mut reports = |at_s: u64| {
        shares.report(StreamId(1), &usage, at_s * SECOND_NS);
        // What a stream wants is known to a quarter more than it has had.
        shares.wants(0, at_s * SECOND_NS, 0).demand as f64 / 1_024.0 / 125.0
    };
    for at_s in [0, 5, 10, 15, 20] {
        reports(at_s);
    }
    let gathered: Vec<f64> = (0..6).map(|_| reports(50)).collect();
    assert!(gathered.iter().all(|demand| (0.4..1.05).contains(demand)), "{gathered:?}");
    assert!((0.8..1.05).contains(&reports(55)));
}

#[test]
fn a_bucket_is_the_same_whatever_the_order_of_its_entries() {
    let bucket = BucketId::new([("user", "ann"), ("shop", "1")]);
    assert_eq!(bucket, BucketId::new([("shop", "1"), ("user", "ann")]));
    assert_ne!(bucket, BucketId::new([("shop", "1")]));
    assert_eq!(bucket.entries().collect::<Vec<_>>(), [("shop", "1"), ("user", "ann")]);
}

/// Lets proxies with so many requests a second run for so many seconds, over a limit that refills by so much; returns how
/// much each passed once they are known, after ten seconds. They report each five seconds, as Envoy does.
fn run(demands: &[u64], refill: u64, seconds: u64, is_quick: bool) -> Vec<u64> {
    let mut scene = Scene { is_quick, ..Scene::new(refill) };
    let mut proxies: Vec<Proxy> = demands.iter().map(|_| Proxy::default()).collect();
    let mut known: Vec<u64> = Vec::new();
    for tick in 0..seconds * 20 {
        let now_ns = 77 * SECOND_NS + tick * SECOND_NS / 20;
        if tick == 200 {
            known = proxies.iter().map(|proxy| proxy.passed).collect();
        }
        scene.limit.left = (scene.limit.left + refill / 20).min(refill);
        for (index, (proxy, demand)) in proxies.iter_mut().zip(demands).enumerate() {
            proxy.requests(demand / 20);
            // Each at a time of its own.
            if tick % 100 == 7 * index as u64 {
                let told = scene.report(index as u64, proxy, now_ns);
                proxy.hears(told);
            }
            if tick % 5 == 0
                && let Some(told) = scene.add(index as u64, now_ns)
            {
                proxy.hears(told);
            }
        }
    }
    let passed: u64 = proxies.iter().map(|proxy| proxy.passed).sum();
    assert!(passed <= scene.limit.drawn, "{passed} of {}", scene.limit.drawn);
    proxies.iter().zip(known).map(|(proxy, known)| proxy.passed - known).collect()
}

#[test]
fn shares_follow_demand() {
    let passed = run(&[6_000, 2_000], 1_000, 60, true);
    let all: u64 = passed.iter().sum();
    assert!((47_500..=50_500).contains(&all), "{passed:?}");
    assert!(passed[0].abs_diff(3 * passed[1]) < all / 20, "{passed:?}");
    let passed = run(&[2_000, 100], 1_000, 60, true);
    // What little it wants is rounded up.
    assert!(passed[0].abs_diff(20 * passed[1]) < all / 15 && passed[0] > 45_000, "{passed:?}");
}

/// Lets a proxy and requests that are decided here want so much of a limit of 100 a second, and returns what each got in the
/// last so many seconds of a minute. The proxy ends after half of it if it `ends`.
fn beside_own(demands: (u64, u64), window: bool, ends: bool, seconds: u64) -> (u64, u64) {
    let mut scene = Scene { is_quick: !window, ..Scene::new(100) };
    let mut proxy = Proxy::default();
    let (mut own, mut came, mut share) = (0, 0, None);
    let (mut pot, mut wants) = (Pot::default(), Wants::default());
    pot.enter(wants);
    let mut known = (0, 0);
    let step = |demand: u64, tick: u64| demand * (tick + 1) / 20 - demand * tick / 20;
    for tick in 0..1_200 {
        let now_ns = 77 * SECOND_NS + tick * SECOND_NS / 20;
        if tick == (60 - seconds) * 20 {
            known = (proxy.passed, own);
        }
        // A bucket, or a window of ten seconds.
        scene.limit.left = match window {
            true if tick % 200 == 0 => 1_000,
            true => scene.limit.left,
            false => (scene.limit.left + 5).min(100),
        };
        let is_over = ends && tick >= 600;
        if is_over {
            scene.shares.leave(StreamId(1), now_ns);
            share = None;
        } else {
            proxy.requests(step(demands.0, tick));
        }
        let round = now_ns / ROUND_NS;
        if !is_over && (tick % 100 == 7 || tick % 5 == 0) {
            scene.shares.expect(StreamId(1), scene.left());
            pot.change(wants, scene.shares.wants(round, now_ns, ROUND_NS));
            wants = scene.shares.wants(round, now_ns, ROUND_NS);
            if pot.is_turn_of_own(round) {
                let turn = OwnTurn { came: std::mem::take(&mut came), unspent: share.unwrap_or(0) };
                pot.note_own(turn, round, now_ns);
                share = pot.turn_of_own(turn, scene.limit.left, scene.shares.interval_ns(), now_ns);
            }
            // What is theirs no stream is given.
            let kept = share.unwrap_or(0);
            scene.limit.left -= kept;
            let told = match tick % 100 {
                7 => Some(scene.report(1, &mut proxy, now_ns)),
                _ => scene.add(1, now_ns),
            };
            told.into_iter().for_each(|told| proxy.hears(told));
            scene.limit.left += kept;
        }
        let wants = step(demands.1, tick);
        came += wants;
        let taken = wants.min(share.unwrap_or(u64::MAX)).min(scene.limit.left);
        share = share.map(|share| share - taken);
        scene.limit.left -= taken;
        own += taken;
    }
    assert!(own + scene.limit.drawn <= 6_100, "{own} and {}", scene.limit.drawn);
    (proxy.passed - known.0, own - known.1)
}

#[test]
fn a_proxy_and_own_requests_have_shares_by_demand() {
    // Of a window that has just begun there is enough for a while if both want little more than it has: who asks first has it.
    let cases = [((200, 200), 2_000), ((300, 100), 3_000), ((100, 300), 1_000), ((80, 80), 2_000)];
    for (window, cases) in [(false, &cases[..]), (true, &cases[..3])] {
        for (demands, of_proxy) in cases {
            let (proxy, own) = beside_own(*demands, window, false, 40);
            let all = proxy + own;
            assert!((3_800..=4_100).contains(&all), "{demands:?}, {window}: {proxy} and {own}");
            assert!(proxy.abs_diff(*of_proxy) <= 200, "{demands:?}, {window}: {proxy} and {own}");
        }
    }
    let (proxy, own) = beside_own((300, 0), false, false, 40);
    assert!(proxy >= 3_800 && own == 0, "{proxy} and {own}");
    let (proxy, own) = beside_own((20, 50), false, false, 40);
    assert!(proxy >= 780 && own >= 1_950, "there is enough for both: {proxy} and {own}");
}

#[test]
fn own_requests_have_all_once_nobody_else_comes() {
    let (_, own) = beside_own((200, 200), false, true, 28);
    assert!((2_790..=2_900).contains(&own), "{own}");
}

#[test]
fn a_slow_limit_goes_round() {
    let passed = run(&[200, 200, 200], 20, 60, true);
    assert!(passed.iter().all(|passed| (300..=360).contains(passed)), "{passed:?}");
}

/// What proxies with so many requests a second pass in the first five seconds of a bucket of so many a second, and how much
/// is drawn for them: until the second report nobody knows what they want.
fn first_seconds(demands: &[u64], refill: u64) -> Vec<u64> {
    let mut scene = Scene { is_quick: true, ..Scene::new(refill) };
    let mut proxies: Vec<Proxy> = demands.iter().map(|_| Proxy::default()).collect();
    for tick in 0..100 {
        let now_ns = 77 * SECOND_NS + tick * SECOND_NS / 20;
        scene.limit.left = (scene.limit.left + refill / 20).min(refill);
        for (index, (proxy, demand)) in proxies.iter_mut().zip(demands).enumerate() {
            let told = match tick {
                0 => Some(scene.report(index as u64, proxy, now_ns)),
                _ if tick % 5 == 0 => scene.add(index as u64, now_ns),
                _ => None,
            };
            told.into_iter().for_each(|told| proxy.hears(told));
            proxy.requests(demand / 20);
        }
    }
    proxies.iter().map(|proxy| proxy.passed).collect()
}

#[test]
fn what_comes_back_soon_is_not_kept_from_those_of_which_nothing_is_known() {
    // All but what has come back since the last round.
    let alone = first_seconds(&[300], 100);
    assert!((570..=600).contains(&alone[0]), "{alone:?}");
    let two = first_seconds(&[300, 300], 100);
    assert!((570..=600).contains(&two.iter().sum::<u64>()) && two[1].abs_diff(two[0]) <= 150, "{two:?}");
    assert_eq!(first_seconds(&[40], 100), [200], "one that wants little misses nothing");
}

#[test]
fn nobody_is_refused_while_there_is_enough_for_all() {
    let mut scene = Scene::new(1_000_000);
    let mut proxy = Proxy::default();
    let mut refused = Vec::new();
    for second in 0..20 {
        let told = scene.report(1, &mut proxy, second * SECOND_NS);
        proxy.hears(told);
        refused.push(100 - proxy.requests(100));
    }
    assert_eq!(refused[2..], [0; 18]);
    assert!(scene.limit.drawn <= proxy.passed + 300, "{} for {}", scene.limit.drawn, proxy.passed);
}

#[test]
fn what_is_not_needed_any_more_goes_back() {
    let mut scene = Scene::new(1_000);
    let mut proxy = Proxy::default();
    for second in 0..5 {
        let told = scene.report(1, &mut proxy, second * SECOND_NS);
        proxy.hears(told);
        proxy.requests(100);
    }
    assert!(scene.limit.drawn > proxy.passed);
    for second in 5..20 {
        let told = scene.report(1, &mut proxy, second * SECOND_NS);
        proxy.hears(told);
    }
    let held = scene.limit.drawn - proxy.passed;
    assert!((1..=4).contains(&held), "{held} are kept for the next request");
    assert_eq!(proxy.units, held);
    let heard = scene.shares.report(StreamId(1), &Usage::default(), 100 * SECOND_NS).expect("it is known");
    assert!(heard.is_idle, "nobody asks for it");
    let back = scene.shares.abandon(StreamId(1));
    scene.limit.take_back(back);
    assert!(scene.limit.drawn == proxy.passed && scene.shares.is_empty());
}

#[test]
fn a_stream_that_ends_gives_back_what_it_will_not_have_spent() {
    let mut scene = Scene::new(1_000);
    let mut proxy = Proxy::default();
    for second in 0..5 {
        let told = scene.report(1, &mut proxy, second * SECOND_NS);
        proxy.hears(told);
        proxy.requests(100);
    }
    let told = scene.report(1, &mut proxy, 5 * SECOND_NS);
    proxy.hears(told);
    let drawn = scene.limit.drawn;
    // It ends after a fifth of its second.
    proxy.requests(20);
    let back = scene.shares.leave(StreamId(1), 5 * SECOND_NS + SECOND_NS / 5);
    scene.limit.take_back(back);
    assert!(scene.limit.drawn < drawn - 80 && scene.limit.drawn >= proxy.passed);
    assert!(scene.shares.is_empty());
}

#[test]
fn what_passed_without_an_assignment_is_said_once() {
    let mut shares = Shares::<()>::default();
    let mut unassigned = |stream, allowed| {
        let usage = Usage { allowed, ..Usage::default() };
        shares.report(StreamId(stream), &usage, SECOND_NS).expect("there is room").unassigned
    };
    assert_eq!([(0, 10), (1, 7), (0, 0)].map(|(stream, allowed)| unassigned(stream, allowed)), [10, 7, 0]);
    shares.answer(StreamId(0), 10, Some(()), SECOND_NS).expect("it has a share");
    let usage = Usage { allowed: 13, ..Usage::default() };
    assert_eq!(shares.report(StreamId(0), &usage, SECOND_NS).map(|heard| heard.unassigned), Some(3));
}

#[test]
fn the_same_assignment_is_the_same_until_it_is_used_up() {
    let mut scene = Scene::new(1_000);
    let mut proxy = Proxy { usage: Usage { allowed: 0, denied: 8, ..Usage::default() }, ..Proxy::default() };
    let first = scene.report(1, &mut proxy, 0);
    proxy.hears(first);
    let mut told = Vec::new();
    for second in 1..6 {
        proxy.requests(3);
        told.push(scene.report(1, &mut proxy, second * SECOND_NS));
        proxy.hears(told[told.len() - 1]);
    }
    let keeps = |assignment: &Assignment| matches!(assignment, Assignment::Keep { .. });
    assert!(told.iter().any(keeps), "{told:?}");
    assert_eq!(proxy.usage.denied, 0);
    let ttl = |assignment: &Assignment| match assignment {
        Assignment::Begin { ttl, .. }
        | Assignment::Spend { ttl, .. }
        | Assignment::Keep { ttl, .. }
        | Assignment::Deny { ttl } => ttl.as_secs(),
    };
    assert_eq!((ttl(&first), ttl(&told[3])), (60, 5));
    assert!(!scene.shares.is_silent(StreamId(1), 10 * SECOND_NS));
    assert!(scene.shares.is_silent(StreamId(1), 11 * SECOND_NS));
}

#[test]
fn a_bucket_has_so_many_reporters() {
    let mut shares: Shares<()> = Shares::default();
    for stream in 0..SHARES_MAX as u64 {
        assert!(shares.report(StreamId(stream), &Usage::default(), 0).is_some());
    }
    assert!(shares.report(StreamId(u64::MAX), &Usage::default(), 0).is_none());
    shares.leave(StreamId(0), 0);
    assert!(shares.report(StreamId(u64::MAX), &Usage::default(), 0).is_some());
}

/// Buckets of one reporter each that one count limits, at one gateway or at several.
struct Parties {
    pots: Vec<Pot>,
    all: Vec<Party>,
    limit: Limit,
    refill: Refill,
    /// Whether all that have their turn at once look before any of them draws.
    is_stale: bool,
}

struct Party {
    /// The number of its gateway.
    at: usize,
    shares: Shares<()>,
    wants: Wants,
    proxy: Proxy,
}

impl Parties {
    /// A limit of so many a second, and buckets by their gateways.
    fn new(limit: u64, at: &[usize]) -> Parties {
        let mut pots = vec![Pot::default(); at.iter().max().map_or(0, |last| last + 1)];
        at.iter().for_each(|at| pots[*at].enter(Wants::default()));
        let party = |at: &usize| Party {
            at: *at,
            shares: Shares::default(),
            wants: Wants::default(),
            proxy: Proxy::default(),
        };
        Parties {
            pots,
            all: at.iter().map(party).collect(),
            limit: Limit::of(limit),
            refill: Refill { units: limit, period_ns: SECOND_NS },
            is_stale: false,
        }
    }

    /// The turn of a party that has seen so many units left, with its report or without.
    fn turn(&mut self, number: usize, reports: bool, seen: u64, now_ns: u64) {
        let Party { at, shares, wants, proxy } = &mut self.all[number];
        let (pot, stream, round) = (&mut self.pots[*at], StreamId(0), now_ns / ROUND_NS);
        if reports {
            let usage = std::mem::take(&mut proxy.usage);
            let heard = shares.report(stream, &usage, now_ns).expect("there is room");
            assert_eq!(heard.unassigned, 0, "they keep to what they are told");
        } else if !shares.hungers(stream, now_ns) {
            return;
        }
        let left = Left { units: if self.is_stale { seen } else { self.limit.left }, is_quick: true };
        shares.expect(stream, left);
        let now = shares.wants(round, now_ns, ROUND_NS);
        pot.change(std::mem::replace(wants, now), now);
        let units = pot.left(left.units, self.refill, now_ns);
        let left = Left { units: pot.for_streams(units, round), ..left };
        let turn = if reports { Turn::Report } else { Turn::Round };
        let planned = shares.plan(stream, left, pot.rivals(wants, round), (turn, round), now_ns);
        pot.take(planned);
        let drawn = self.limit.draw(planned);
        pot.give_back(planned - drawn);
        let told = match reports {
            true => {
                let (told, back) = shares.answer(stream, drawn, Some(()), now_ns).expect("it has a share");
                self.limit.take_back(back);
                Some(told)
            }
            false => shares.top_up(stream, drawn, Some(()), now_ns),
        };
        told.into_iter().for_each(|told| proxy.hears(told));
        let now = shares.wants(round, now_ns, ROUND_NS);
        pot.change(std::mem::replace(wants, now), now);
    }

    /// Tells each gateway what the others want.
    fn tell(&mut self, now_ns: u64) {
        let demands: Vec<u64> = self.pots.iter().map(Pot::demand).collect();
        let (all, nodes) = (demands.iter().sum::<u64>(), demands.len() as u64 - 1);
        for (pot, demand) in self.pots.iter_mut().zip(demands) {
            let others = Others { demand: all - demand, nodes, streams: nodes, left: self.limit.left };
            pot.hear(others, now_ns);
        }
    }

    /// Lets them want so many a second for a minute; returns what each passed in the last forty seconds, and what was left
    /// over at most.
    fn run(&mut self, demands: &[u64], window_ticks: Option<u64>) -> Vec<u64> {
        let (mut known, limit) = (Vec::new(), self.refill.units);
        let step = |units: u64, tick: u64| units * (tick + 1) / 20 - units * tick / 20;
        let mut allowed = limit;
        for tick in 0..1_200 {
            let now_ns = 77 * SECOND_NS + tick * SECOND_NS / 20;
            match window_ticks {
                Some(ticks) if tick % ticks == 0 => {
                    self.limit.left = limit * ticks / 20;
                    allowed += self.limit.left;
                }
                Some(_) => {}
                None => {
                    self.limit.left = (self.limit.left + step(limit, tick)).min(limit);
                    allowed += step(limit, tick);
                }
            }
            if tick % 5 == 0 && self.pots.len() > 1 {
                self.tell(now_ns);
            }
            if tick == 400 {
                known = self.all.iter().map(|party| party.proxy.passed).collect();
            }
            let seen = self.limit.left;
            for (number, demand) in demands.iter().enumerate() {
                self.all[number].proxy.requests(step(*demand, tick));
                // Streams of one gateway have their turn together, gateways at different times.
                let phase = self.all[number].at as u64;
                if tick % 20 == (7 * number as u64) % 20 {
                    self.turn(number, true, seen, now_ns);
                }
                if tick % 5 == phase % 5 {
                    self.turn(number, false, seen, now_ns);
                }
            }
            assert!(self.limit.drawn <= allowed, "{} of {allowed}", self.limit.drawn);
        }
        self.all.iter().zip(known).map(|(party, known)| party.proxy.passed - known).collect()
    }
}

/// Checks that so much passed of each, within a part of all that might.
#[track_caller]
fn passed(passed: &[u64], due: &[u64]) {
    let (all, due_all) = (passed.iter().sum::<u64>(), due.iter().sum::<u64>());
    assert!(all * 100 >= due_all * 95 && all * 100 <= due_all * 105, "{passed:?} of {due_all}");
    for (is, due) in passed.iter().zip(due) {
        assert!(is.abs_diff(*due) * 100 <= due_all * 5, "{passed:?} for {due:?}");
    }
}

const DEMANDS: [(&[u64], &[u64]); 4] = [
    (&[900, 90, 10], &[3_600, 360, 40]),
    (&[300, 300], &[2_000, 2_000]),
    (&[300, 100], &[3_000, 1_000]),
    (&[30, 10, 20], &[1_200, 400, 800]),
];

#[test]
fn buckets_of_one_count_have_shares_by_demand() {
    for (is_stale, window) in
        [false, true].into_iter().flat_map(|it| [None, Some(20), Some(200)].map(|window| (it, window)))
    {
        for (demands, due) in DEMANDS {
            let mut parties = Parties { is_stale, ..Parties::new(100, &[0, 0, 0][..demands.len()]) };
            passed(&parties.run(demands, window), due);
        }
    }
}

#[test]
fn gateways_have_shares_by_demand() {
    for window in [None, Some(20), Some(200)] {
        for (demands, due) in DEMANDS {
            passed(&Parties::new(100, &[0, 1, 2][..demands.len()]).run(demands, window), due);
        }
        // Two streams at one gateway and one at another.
        passed(&Parties::new(100, &[0, 1, 1]).run(&[200, 100, 100], window), &[2_000, 1_000, 1_000]);
    }
}

#[test]
fn what_another_gateway_does_not_want_any_more_is_not_kept_for_it() {
    let mut parties = Parties::new(100, &[0, 1]);
    parties.run(&[300, 300], None);
    let alone = Parties { pots: vec![parties.pots.swap_remove(0)], ..parties };
    let mut alone = Parties { all: alone.all.into_iter().take(1).collect(), ..alone };
    alone.limit.drawn = 0;
    let (mut last, mut seconds) = (0, Vec::new());
    for tick in 0..200 {
        let now_ns = 137 * SECOND_NS + tick * SECOND_NS / 20;
        alone.limit.left = (alone.limit.left + 5).min(100);
        alone.all[0].proxy.requests(15);
        alone.turn(0, tick % 20 == 7, 0, now_ns);
        if tick % 20 == 19 {
            let passed = alone.all[0].proxy.passed;
            seconds.push(passed - std::mem::replace(&mut last, passed));
        }
    }
    assert!(seconds[3..].iter().sum::<u64>() >= 665, "{seconds:?}");
}

proptest! {
    /// Whatever buckets want and whenever they report, the sums of a pot are those of its buckets.
    #[test]
    fn a_pot_knows_what_its_buckets_want(
        steps in prop::collection::vec((0_usize..4, 0_u64..60, 0_u64..3, any::<bool>()), 1..100),
    ) {
        let (mut pot, mut now_ns) = (Pot::default(), SECOND_NS);
        let mut all: Vec<(Shares<()>, Wants)> = (0..4).map(|_| (Shares::default(), Wants::default())).collect();
        all.iter().for_each(|(_, wants)| pot.enter(*wants));
        for (number, denied, later, draws) in steps {
            now_ns += later * SECOND_NS / 8;
            let (round, stream) = (now_ns / ROUND_NS, StreamId(7));
            let (shares, wants) = &mut all[number];
            shares.report(stream, &Usage { allowed: 0, denied, ..Usage::default() }, now_ns);
            if draws {
                let left = Left { units: 5, is_quick: false };
                shares.plan(stream, left, pot.rivals(wants, round), (Turn::Round, round), now_ns);
            }
            let now = shares.wants(round, now_ns, ROUND_NS);
            pot.change(std::mem::replace(wants, now), now);
            let but = pot.rivals(&Wants::default(), round);
            let needs: u64 = all.iter().map(|(_, wants)| wants.needs).sum();
            let waits: u64 = all.iter().map(|(_, wants)| wants.soon - wants.gone_in(round).0).sum();
            prop_assert_eq!((but.needs, but.waits), (needs, waits));
        }
        all.iter().for_each(|(_, wants)| pot.leave(*wants));
        prop_assert!(!pot.has_buckets() && !pot.is_wanted(now_ns) && pot.demand() == 0 && pot.is_over(now_ns));
    }

    /// Gateways that know what the others want take no more of what comes back than there is, whenever they look.
    #[test]
    fn parts_of_gateways_are_no_more_than_all(
        demands in prop::collection::vec(1_u64..1 << 40, 2..5),
        looks in prop::collection::vec((0_usize..5, 0_u64..300_000_000), 1..200),
        units in 1_u64..1 << 30,
    ) {
        let refill = Refill { units, period_ns: 10 * SECOND_NS };
        let all: u64 = demands.iter().sum();
        let mut parts = vec![fleet_part::FleetPart::default(); demands.len()];
        let (mut now_ns, mut taken) = (SECOND_NS, 0_u128);
        for (at, later_ns) in looks {
            now_ns += later_ns;
            let at = at % parts.len();
            let others = Others { demand: all - demands[at], nodes: 1, streams: 1, left: 0 };
            parts[at].hear(others, now_ns);
            // Nothing has gathered: half a second of the refill is left at most.
            let left = parts[at].left(units / 20, demands[at], refill, now_ns);
            prop_assume!(u128::from(all) * 2 > u128::from(units / 20) * 1_024);
            parts[at].take(left);
            taken += u128::from(left);
        }
        // A round's for each gateway at the beginning, and a unit for each.
        let came = u128::from(units) * u128::from(now_ns - SECOND_NS) / (10 * u128::from(SECOND_NS));
        prop_assert!(taken <= came + u128::from(units) / 40 + 5, "{taken} of {came}");
    }

    /// Whatever comes and whenever it is reported: no more passes than was drawn.
    #[test]
    fn no_more_passes_than_was_drawn(
        steps in prop::collection::vec((0_u64..4, 0_u64..60, any::<bool>(), any::<bool>(), prop::bool::weighted(0.1)), 1..200),
        limit in 1_u64..100,
    ) {
        let mut scene = Scene::new(limit);
        let mut proxies: Vec<Proxy> = (0..4).map(|_| Proxy::default()).collect();
        let mut passed = 0;
        for (number, (stream, requests, reports, adds, ends)) in (0_u64..).zip(steps) {
            let now_ns = number * SECOND_NS / 10;
            if number % 10 == 0 {
                scene.limit.left = limit;
            }
            let proxy = &mut proxies[stream as usize];
            if ends {
                // It stops, and comes back as another one. What goes back was hardly spent; here it counts as spent.
                drop(scene.shares.leave(StreamId(stream), now_ns));
                *proxy = Proxy::default();
            }
            passed += proxy.requests(requests);
            if reports {
                let told = scene.report(stream, proxy, now_ns);
                proxy.hears(told);
            }
            if adds && let Some(told) = scene.add(stream, now_ns) {
                proxy.hears(told);
            }
            prop_assert!(passed <= scene.limit.drawn, "{passed} of {}", scene.limit.drawn);
        }
    }
}
