//! Reporters that behave as proxies do, over a limit that counts what is drawn.

use proptest::prelude::*;

use super::*;

/// A limit of so many units in each period.
struct Window {
    number: u64,
    limit: u64,
    drawn: u64,
}

impl Window {
    fn left(&self) -> Left {
        let units = self.limit - self.drawn;
        Left { units, window: self.number, retry_after: Duration::from_secs(1) }
    }

    fn draw(&mut self, units: u64) -> u64 {
        let drawn = units.min(self.limit - self.drawn);
        self.drawn += drawn;
        drawn
    }
}

/// A proxy: what it may still spend, and what it did since its last report.
#[derive(Default)]
struct Proxy {
    units: u64,
    usage: Usage,
    /// An answer that has not arrived.
    on_its_way: Option<Assignment>,
}

impl Proxy {
    /// As many requests as come; returns how many pass.
    fn requests(&mut self, count: u64) -> u64 {
        let passed = count.min(self.units);
        self.units -= passed;
        self.usage.allowed += passed;
        self.usage.denied += count - passed;
        passed
    }

    fn arrive(&mut self) {
        match self.on_its_way.take() {
            Some(Assignment::Spend { units, .. }) => self.units = units.get(),
            Some(Assignment::Deny { .. }) => self.units = 0,
            None => {}
        }
    }
}

fn bucket() -> BucketId {
    BucketId::new([("user", "ann"), ("shop", "1")])
}

/// A proxy reports, and an answer is on its way to it.
fn report(quotas: &mut Quotas, stream: u64, proxy: &mut Proxy, window: &mut Window, now_ns: u64) {
    let usage = std::mem::take(&mut proxy.usage);
    let left = window.left();
    let told = quotas.report(StreamId(stream), &bucket(), usage, now_ns, left, |units| window.draw(units));
    proxy.on_its_way = Some(told);
}

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn a_bucket_is_the_same_whatever_the_order_of_its_entries() {
    assert_eq!(bucket(), BucketId::new([("shop", "1"), ("user", "ann")]));
    assert_ne!(bucket(), BucketId::new([("shop", "1")]));
    assert_eq!(bucket().entries().collect::<Vec<_>>(), [("shop", "1"), ("user", "ann")]);
}

#[test]
fn shares_follow_demand_and_what_one_leaves_goes_to_others() {
    let (mut quotas, mut proxies) =
        (Quotas::new(Duration::from_secs(5), 100), [Proxy::default(), Proxy::default()]);
    let mut passed = Vec::new();
    for second in 0..40_u64 {
        let mut window = Window { number: second, limit: 100, drawn: 0 };
        // Three times as many here as there; from the twentieth second on only there.
        let demand = if second < 20 { [300, 100] } else { [0, 400] };
        for (stream, proxy) in proxies.iter_mut().enumerate() {
            report(&mut quotas, stream as u64, proxy, &mut window, second * SECOND_NS);
            proxy.arrive();
        }
        passed.push([0, 1].map(|stream| proxies[stream].requests(demand[stream])));
    }
    for pair in &passed[5..20] {
        assert!(pair[0].abs_diff(75) <= 2 && pair[1].abs_diff(25) <= 2, "{pair:?}");
    }
    for pair in &passed[25..] {
        assert!(pair[1] >= 95 && pair[0] == 0, "{pair:?}");
    }
}

#[test]
fn nothing_is_left_for_anybody_until_there_is_more() {
    let mut quotas = Quotas::new(Duration::from_secs(5), 100);
    let mut window = Window { number: 0, limit: 1, drawn: 0 };
    let mut proxies = [Proxy::default(), Proxy::default()];
    for (stream, proxy) in proxies.iter_mut().enumerate() {
        report(&mut quotas, stream as u64, proxy, &mut window, 0);
    }
    assert!(matches!(proxies[0].on_its_way, Some(Assignment::Spend { units: NonZeroU64::MIN, .. })));
    assert_eq!(proxies[1].on_its_way, Some(Assignment::Deny { ttl: Duration::from_secs(1) }));
}

#[test]
fn what_passed_without_an_assignment_is_paid_for() {
    let mut quotas = Quotas::new(Duration::from_secs(5), 100);
    let mut window = Window { number: 0, limit: 100, drawn: 0 };
    let mut proxy = Proxy { usage: Usage { allowed: 30, denied: 0 }, ..Proxy::default() };
    report(&mut quotas, 1, &mut proxy, &mut window, 0);
    assert_eq!(window.drawn, 30 + 38, "what passed, and a quarter more for what comes");
    proxy.arrive();
    proxy.requests(38);
    let drawn = window.drawn;
    report(&mut quotas, 1, &mut proxy, &mut window, SECOND_NS);
    assert_eq!(window.drawn - drawn, 32, "what was assigned is not paid for twice");
}

#[test]
fn assignments_have_numbers_and_streams_that_end_or_fall_silent_are_forgotten() {
    let mut quotas = Quotas::new(Duration::from_secs(5), 100);
    let mut window = Window { number: 0, limit: 100, drawn: 0 };
    let mut proxy = Proxy::default();
    let mut numbers = Vec::new();
    for _ in 0..3 {
        report(&mut quotas, 1, &mut proxy, &mut window, 0);
        let Some(Assignment::Spend { number, .. }) = proxy.on_its_way else { panic!("there is enough") };
        numbers.push(number);
    }
    assert_eq!(numbers, [1, 2, 3]);
    report(&mut quotas, 2, &mut Proxy::default(), &mut window, 0);
    assert_eq!(quotas.len(), 2);
    quotas.end(StreamId(1));
    assert_eq!((quotas.len(), quotas.sweep(10 * SECOND_NS)), (1, 0));
    assert_eq!((quotas.sweep(10 * SECOND_NS + 1), quotas.is_empty()), (1, true));
}

#[test]
fn a_share_without_room_is_told_to_refuse() {
    let mut quotas = Quotas::new(Duration::from_secs(5), 1);
    let mut window = Window { number: 0, limit: 100, drawn: 0 };
    let mut proxies = [Proxy::default(), Proxy::default()];
    for (stream, proxy) in proxies.iter_mut().enumerate() {
        report(&mut quotas, stream as u64, proxy, &mut window, 0);
    }
    assert!(matches!(proxies[0].on_its_way, Some(Assignment::Spend { .. })));
    assert_eq!(proxies[1].on_its_way, Some(Assignment::Deny { ttl: Duration::from_secs(5) }));
    quotas.end(StreamId(0));
    report(&mut quotas, 1, &mut proxies[1], &mut window, 0);
    assert!(matches!(proxies[1].on_its_way, Some(Assignment::Spend { .. })));
}

proptest! {
    /// Whatever comes, whenever it is reported, and however late answers arrive: no more passes than was drawn, and no more
    /// is drawn in a window than the limit.
    #[test]
    fn no_more_passes_than_was_drawn(
        steps in prop::collection::vec((0_usize..4, 0_u64..60, any::<bool>(), any::<bool>(), prop::bool::weighted(0.1)), 1..200),
        limit in 1_u64..100,
    ) {
        let mut quotas = Quotas::new(Duration::from_secs(5), 100);
        let mut proxies: Vec<Proxy> = (0..4).map(|_| Proxy::default()).collect();
        let mut window = Window { number: 0, limit, drawn: 0 };
        let (mut drawn, mut passed) = (0, 0);
        for (number, (stream, requests, reports, arrives, ends)) in (0_u64..).zip(steps) {
            if number % 10 == 0 {
                drawn += window.drawn;
                window = Window { number: window.number + 1, drawn: 0, ..window };
            }
            let proxy = &mut proxies[stream];
            passed += proxy.requests(requests);
            if ends {
                quotas.end(StreamId(stream as u64));
            }
            if reports {
                report(&mut quotas, stream as u64, proxy, &mut window, number * SECOND_NS / 10);
            }
            if arrives {
                proxy.arrive();
            }
            prop_assert!(window.drawn <= limit);
            prop_assert!(passed <= drawn + window.drawn, "{passed} of {}", drawn + window.drawn);
        }
    }
}
