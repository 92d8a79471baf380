//! What a fleet admits beyond an exact limit while Redis is away, and what is left of the limit afterwards.

use limit::{Calendar, CalendarUnit, Zone};

use super::*;

const HOUR: u64 = 3_600 * SECOND;
const LIMIT: u64 = 20;

/// Twenty an hour by each algorithm, and twenty a day of the calendar.
fn quotas() -> Vec<Quota> {
    let [limit, hour, day] =
        [LIMIT, HOUR, 24 * HOUR].map(|number| NonZeroU64::new(number).expect("tests give no zero"));
    let hourly =
        [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog];
    let day = Quota::new(Algorithm::FixedWindow, limit, day, limit);
    let day = day.on_calendar(Calendar::new(CalendarUnit::Day, Zone::utc(), 0));
    hourly.map(|algorithm| Quota::new(algorithm, limit, hour, limit)).into_iter().chain([day]).collect()
}

/// One node and two for each of these limits, with what to call them.
fn fleets() -> impl Iterator<Item = (String, Quota, Nodes)> {
    quotas().into_iter().flat_map(|quota| [(quota, 1), (quota, 2)]).map(|(quota, count)| {
        let name = format!("{:?} {:?}, {count} nodes", quota.algorithm(), quota.calendar());
        (name, quota, Nodes::new(count, quota))
    })
}

/// Some nodes, one exact limit.
struct Nodes {
    desk: Arc<FakeRedis>,
    nodes: Vec<(Arc<Limiter>, Charge)>,
}

impl Nodes {
    fn new(count: usize, quota: Quota) -> Nodes {
        let desk = Arc::new(FakeRedis::default());
        let one = |_| {
            let node = node(&desk);
            let plans = node.fleet().expect("a fleet's node").plans();
            let sharing = Sharing::new(&quota, 0.0, WhenDown::Local);
            let plan = plans.id(Plan { policy: "p".into(), quota, sharing });
            node.table().declare([quota, quota.share_of(2)]);
            let charge = Charge { quota, plan: Some(plan), ..exact(&node, 1, LIMIT) };
            (node, charge)
        };
        let nodes = (0..count).map(one).collect();
        Nodes { desk, nodes }
    }

    /// So many requests to each node, of which those that are admitted count, if `counts`, or come back: how many were.
    fn ask(&self, times: usize, counts: bool, now_ns: u64) -> u64 {
        let mut admitted = 0;
        for (node, charge) in (0..times).flat_map(|_| &self.nodes) {
            let decision = decide(node, &self.desk, &[*charge], now_ns);
            admitted += u64::from(decision.is_admitted());
            if decision.is_admitted() && !counts {
                node.refund(charge, decision.refund(0), now_ns);
            }
        }
        admitted
    }

    fn set_down(&self, is_down: bool, now_ns: u64) {
        self.desk.set_down(is_down);
        self.nodes.iter().for_each(|(node, _)| node.sweep(now_ns));
        self.desk.answer(now_ns);
    }

    /// When the next request of a refused client may come.
    fn retry_ns(&self, now_ns: u64) -> u64 {
        let (node, charge) = &self.nodes[0];
        let refused = decide(node, &self.desk, &[*charge], now_ns);
        let outcome = refused.outcomes[0];
        assert!(outcome.reset_ns >= refused.retry_after_ns().unwrap_or(0), "{refused:?}");
        refused.retry_after_ns().unwrap_or(0)
    }

    fn left(&self, now_ns: u64) -> u64 {
        self.desk.left(&self.nodes[0].1, now_ns)
    }
}

#[test]
fn what_is_admitted_beyond_a_limit_without_redis_is_forgotten() {
    for (name, quota, fleet) in fleets() {
        // Long before the end of the hour, which is that of the day.
        let begun = 24 * HOUR - HOUR;
        fleet.ask(3, true, begun);
        fleet.set_down(true, begun + SECOND);
        fleet.ask(4, false, begun + SECOND);
        let alone = fleet.ask(60, true, begun + SECOND);
        assert!(alone >= LIMIT - 3, "{name}: {alone}");
        let back = begun + 3 * SECOND;
        fleet.set_down(false, back);
        assert_eq!((fleet.left(back), fleet.ask(5, true, back)), (0, 0), "{name}");
        let (retry_ns, to_end_ns) = (fleet.retry_ns(back), begun + HOUR - back);
        let most_ns = match quota.algorithm() {
            Algorithm::TokenBucket => HOUR / LIMIT,
            Algorithm::FixedWindow => to_end_ns,
            // The one request of this pair of windows that fits first.
            _ => to_end_ns + HOUR / LIMIT,
        };
        assert!((1..=most_ns).contains(&retry_ns), "{name}: {retry_ns} of {most_ns}");
        // All of it is there again when it would be without an outage.
        let whole = match quota.algorithm() {
            Algorithm::FixedWindow => begun + HOUR,
            Algorithm::TokenBucket => back + HOUR,
            _ => begun + 2 * HOUR,
        };
        assert_eq!(fleet.ask(60, true, whole + SECOND), LIMIT, "{name}");
    }
}

#[test]
fn what_is_admitted_within_a_limit_without_redis_counts() {
    for (name, quota, fleet) in fleets() {
        let begun = 24 * HOUR - HOUR;
        let before = fleet.ask(1, true, begun);
        fleet.set_down(true, begun + SECOND);
        fleet.ask(2, false, begun + SECOND);
        let alone = fleet.ask(3, true, begun + SECOND);
        // Long in a fixed window, which forgets nothing until it ends.
        let is_fixed = quota.algorithm() == Algorithm::FixedWindow;
        let back = begun + if is_fixed { HOUR / 2 } else { 3 * SECOND };
        fleet.set_down(false, back);
        assert_eq!(fleet.left(back), LIMIT - before - alone, "{name}");
    }
}

#[test]
fn what_was_spent_without_redis_counts_in_its_own_window() {
    let fixed = quotas().into_iter().filter(|quota| quota.algorithm() == Algorithm::FixedWindow);
    for quota in fixed {
        let name = format!("{:?}", quota.calendar());
        let edge = 24 * HOUR;
        // Redis comes back in the next window, in which each node has spent some, or nothing.
        for more in [0, 3] {
            let fleet = Nodes::new(2, quota);
            fleet.set_down(true, edge - 2 * SECOND);
            fleet.ask(60, true, edge - SECOND);
            let spent = fleet.ask(more, true, edge + SECOND);
            assert_eq!(spent, 2 * more as u64, "{name}");
            fleet.set_down(false, edge + 2 * SECOND);
            assert_eq!(fleet.left(edge + 2 * SECOND), LIMIT - spent, "{name}");
        }
        // It was told in time, and the message was long on its way.
        let fleet = Nodes::new(1, quota);
        fleet.set_down(true, edge - 2 * SECOND);
        fleet.ask(60, true, edge - 2 * SECOND);
        fleet.desk.set_down(false);
        fleet.nodes[0].0.sweep(edge - SECOND);
        assert_eq!(fleet.desk.answer(edge + SECOND), 1, "{name}");
        assert_eq!(fleet.left(edge + SECOND), LIMIT, "{name}");
    }
}
