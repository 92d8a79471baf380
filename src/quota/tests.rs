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
            Assignment::Spend { units, .. } => self.units = units.get(),
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
        self.shares.report(stream, &usage, now_ns).expect("there is room");
        let owed = self.shares.take_owed(u64::MAX, now_ns);
        let paid = self.limit.draw(owed);
        self.shares.owe_again(owed - paid);
        let planned = self.shares.plan(stream, self.left(), now_ns / ROUND_NS, now_ns);
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
        let planned = self.shares.plan(stream, self.left(), now_ns / ROUND_NS, now_ns);
        let drawn = self.limit.draw(planned);
        self.shares.top_up(stream, drawn, Some(()), now_ns)
    }
}

fn units(assignment: Assignment) -> u64 {
    match assignment {
        Assignment::Spend { units, .. } => units.get(),
        Assignment::Keep { .. } | Assignment::Deny { .. } => 0,
    }
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
            } else if tick % 5 == 0
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
            scene.shares.is_scarce(StreamId(1), scene.left());
            if scene.shares.is_turn_of_own(round) {
                let of_own = (std::mem::take(&mut came), share.unwrap_or(0));
                share = scene.shares.turn_of_own(of_own, scene.limit.left, round, now_ns);
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
fn what_passed_without_an_assignment_is_drawn_by_one_alone() {
    let mut shares = Shares::<()>::default();
    for stream in [0, 1] {
        let usage = Usage { allowed: 10, denied: 0 };
        assert!(shares.report(StreamId(stream), &usage, SECOND_NS).is_some());
    }
    // While the first waits for Redis, the second comes.
    assert_eq!((shares.take_owed(15, SECOND_NS), shares.take_owed(15, SECOND_NS)), (15, 5));
    shares.owe_again(3);
    assert_eq!((shares.take_owed(15, SECOND_NS), shares.take_owed(15, SECOND_NS)), (3, 0));
}

#[test]
fn what_passed_without_an_assignment_is_paid_for() {
    let mut scene = Scene::new(20);
    let mut proxy = Proxy { usage: Usage { allowed: 30, denied: 0 }, ..Proxy::default() };
    assert_eq!(units(scene.report(1, &mut proxy, 0)), 0);
    assert_eq!((scene.limit.left, scene.shares.owed(SECOND_NS)), (0, 10));
    scene.limit.left = 60;
    let told = scene.report(1, &mut proxy, SECOND_NS);
    assert_eq!(scene.shares.owed(SECOND_NS), 0);
    assert_eq!(scene.limit.drawn, 30 + units(told));
    assert_eq!(scene.shares.owed(90 * SECOND_NS), 0);
}

#[test]
fn the_same_assignment_is_the_same_until_it_is_used_up() {
    let mut scene = Scene::new(1_000);
    let mut proxy = Proxy { usage: Usage { allowed: 0, denied: 8 }, ..Proxy::default() };
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
        Assignment::Spend { ttl, .. } | Assignment::Keep { ttl, .. } | Assignment::Deny { ttl } => {
            ttl.as_secs()
        }
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

proptest! {
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
