//! Windows of the calendar in a fleet: exact, leased and without Redis, all end at the same edges.

use limit::{Calendar, CalendarUnit, Zone};

use super::*;

/// So many units a month in a zone whose clocks change within it, of a key that the nodes share so.
fn monthly(node: &Limiter, key: u64, overshoot: f64) -> Charge {
    let zone = Zone::new("Test/Months", vec![(i64::MIN, 3_600), (20 * DAY_S, 7_200)]);
    let month = Calendar::new(CalendarUnit::Month, zone, 0);
    let one = charge(node, key, 1_000, overshoot, WhenDown::Local);
    let quota = one.quota.on_calendar(month);
    let sharing = Sharing::new(&quota, overshoot, WhenDown::Local);
    assert_eq!(sharing.is_exact(), overshoot == 0.0);
    let plan = node.fleet().expect("a fleet's node").plans().id(Plan { policy: "p".into(), quota, sharing });
    node.table().declare([quota, quota.share_of(2)]);
    Charge { quota, plan: Some(plan), ..one }
}

const DAY_S: i64 = 86_400;
/// When January and February 1970 end there, nanoseconds.
const JANUARY_ENDS: u64 = (31 * 86_400 - 7_200) * SECOND;
const FEBRUARY_ENDS: u64 = JANUARY_ENDS + 28 * 86_400 * SECOND;

#[test]
fn a_month_admits_its_limit_between_its_edges_leased_or_exact() {
    for overshoot in [0.3, 0.0] {
        let desk = Arc::new(FakeRedis::default());
        let nodes = [node(&desk), node(&desk)];
        let charges = [monthly(&nodes[0], 1, overshoot), monthly(&nodes[1], 1, overshoot)];
        let spent = |from_ns: u64, every_ns: u64, times: u64| {
            let times = (0..times).filter(|turn| {
                let (index, now_ns) = ((turn % 2) as usize, from_ns + turn * every_ns);
                if turn % 20 == 0 {
                    nodes.iter().for_each(|node| node.sweep(now_ns));
                    desk.answer(now_ns);
                }
                decide(&nodes[index], &desk, &charges[index..=index], now_ns).is_admitted()
            });
            times.count()
        };
        let first = spent(JANUARY_ENDS - 7 * 86_400 * SECOND, 5 * MS, 600);
        let more = spent(JANUARY_ENDS - 10 * SECOND, 5 * MS, 1_990);
        assert_eq!((first, more), (600, 400), "{overshoot}");
        let denied = decide(&nodes[0], &desk, &charges[..1], JANUARY_ENDS - 5 * MS);
        assert_eq!(denied.retry_after_ns(), Some(5 * MS), "{overshoot}");
        let next = spent(JANUARY_ENDS, 5 * MS, 2_000);
        assert_eq!(next, 1_000, "{overshoot}");
        assert_eq!(spent(FEBRUARY_ENDS - SECOND, 5 * MS, 199), 0, "{overshoot}");
        assert_eq!(spent(FEBRUARY_ENDS, 5 * MS, 100), 100, "{overshoot}");
    }
}

#[test]
fn an_exact_month_without_redis_has_this_nodes_share_until_it_ends() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let month = monthly(&node, 1, 0.0);
    desk.set_down(true);
    let admitted =
        |from_ns: u64| (0..1_500).filter(|_| decide(&node, &desk, &[month], from_ns).is_admitted()).count();
    // Twice the even share, at most the whole.
    assert_eq!(admitted(JANUARY_ENDS - 8 * 86_400 * SECOND), 1_000);
    assert_eq!(admitted(JANUARY_ENDS - 1), 0);
    let denied = decide(&node, &desk, &[month], JANUARY_ENDS - SECOND);
    assert_eq!(denied.retry_after_ns(), Some(SECOND));
    assert_eq!(admitted(JANUARY_ENDS), 1_000);
}

#[test]
fn a_leased_month_without_redis_begins_anew_with_the_next() {
    let desk = Arc::new(FakeRedis::default());
    let node = node(&desk);
    let month = monthly(&node, 1, 0.3);
    desk.set_down(true);
    let admitted =
        |now_ns: u64| (0..1_500).filter(|_| decide(&node, &desk, &[month], now_ns).is_admitted()).count();
    // Half of the share at once, and the other half over the month.
    assert_eq!(admitted(JANUARY_ENDS - 8 * 86_400 * SECOND), 500);
    assert_eq!(admitted(JANUARY_ENDS - SECOND), 129);
    let denied = decide(&node, &desk, &[month], JANUARY_ENDS - SECOND);
    assert_eq!((denied.retry_after_ns(), denied.outcomes[0].reset_ns), (Some(SECOND), SECOND));
    assert_eq!(node.look(&month, JANUARY_ENDS - SECOND).reset_ns, SECOND);
    assert_eq!(admitted(JANUARY_ENDS), 500);
    // Redis is told what was spent in February alone.
    desk.set_down(false);
    (0..20).for_each(|turn| {
        decide(&node, &desk, &[month], JANUARY_ENDS + SECOND + turn * 100 * MS);
        node.sweep(JANUARY_ENDS + SECOND + turn * 100 * MS);
        desk.answer(JANUARY_ENDS + SECOND + turn * 100 * MS);
    });
    let more = admitted(JANUARY_ENDS + 60 * SECOND);
    assert!((470..=500).contains(&more), "{more}");
}
