//! Requests and their operations in any order of events: requests come, operations are answered in any order, late or
//! not at all, clients leave while they wait, requests end, costs are reconciled. Afterwards no unit is missing, none
//! was counted twice, and no state is left behind.

use proptest::prelude::*;

use super::*;

/// The next event. A number chooses the request it happens to.
#[derive(Clone, Debug)]
enum Event {
    /// A request comes, for these of the four limits.
    Comes([bool; 4], u64),
    Answered(usize),
    /// A question gets lost on its way.
    Lost(usize),
    /// A request that waits has its deadline, or sees that all is said.
    Resumed(usize),
    /// A client goes away.
    Gone(usize),
    /// An admitted request ends.
    Ends(usize),
    /// Another one ends, and cost this.
    Resolved(usize, u64),
    /// Time passes, milliseconds, and the node looks after what it holds.
    Sweeps(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let which = any::<prop::sample::Index>().prop_map(|index| index.index(1 << 16));
    prop_oneof![
        6 => (any::<[bool; 4]>(), 1u64..4).prop_map(|(limits, cost)| Event::Comes(limits, cost)),
        6 => which.clone().prop_map(Event::Answered),
        1 => which.clone().prop_map(Event::Lost),
        3 => which.clone().prop_map(Event::Resumed),
        2 => which.clone().prop_map(Event::Gone),
        2 => which.clone().prop_map(Event::Ends),
        2 => (which, 0u64..6).prop_map(|(index, cost)| Event::Resolved(index, cost)),
        1 => (0u64..300).prop_map(Event::Sweeps),
    ]
}

struct AdmittedRequest {
    charges: Vec<Charge>,
    decision: Decision,
    taken_ns: u64,
}

struct Play {
    desk: Arc<FakeRedis>,
    node: Arc<Limiter>,
    /// Two exact windows of two shards, permits, a leased window.
    limits: [Charge; 4],
    waiting: Vec<(Waiting, Vec<Charge>, Decision, u64)>,
    admitted: Vec<AdmittedRequest>,
    /// Units that were spent for good, of the first, the second and the last limit.
    spent: [u64; 4],
    /// The same of what was decided without Redis.
    alone: [u64; 4],
    now_ns: u64,
}

impl Play {
    fn new(when_down: WhenDown) -> Play {
        let desk = Arc::new(FakeRedis::default());
        let node = node(&desk);
        let limits = [
            // A day's units: nothing comes back on its own.
            of_a_day(&node, exact(&node, 2, LIMIT), 0.0, when_down),
            of_a_day(&node, exact(&node, 3, LIMIT), 0.0, when_down),
            permits(&node, 4, LIMIT / 4, when_down),
            of_a_day(&node, exact(&node, 5, LIMIT), 0.1, when_down),
        ];
        Play {
            desk,
            node,
            limits,
            waiting: Vec::new(),
            admitted: Vec::new(),
            spent: [0; 4],
            alone: [0; 4],
            now_ns: NOW,
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Comes(which, cost) => self.comes(which, cost),
            Event::Answered(which) => self.answered(which, true),
            Event::Lost(which) => self.answered(which, false),
            Event::Resumed(which) => self.resumed(which),
            Event::Gone(which) if !self.waiting.is_empty() => {
                drop(self.waiting.swap_remove(which % self.waiting.len()));
            }
            Event::Ends(which) => self.ends(which, None),
            Event::Resolved(which, cost) => self.ends(which, Some(cost)),
            Event::Sweeps(pause_ms) => {
                self.now_ns += pause_ms * MS;
                self.node.sweep(self.now_ns);
            }
            Event::Gone(_) => {}
        }
    }

    fn comes(&mut self, which: [bool; 4], cost: u64) {
        let chosen = self.limits.iter().zip(which).filter(|(_, is_chosen)| *is_chosen);
        let charges: Vec<Charge> = chosen.map(|(limit, _)| Charge { cost, ..*limit }).collect();
        let mut decision = Decision::default();
        match self.node.decide(&charges, ClientAddress::default(), self.now_ns, &mut decision) {
            Some(waiting) => self.waiting.push((waiting, charges, decision, self.now_ns)),
            None => self.decided(charges, decision, self.now_ns),
        }
    }

    fn decided(&mut self, charges: Vec<Charge>, decision: Decision, taken_ns: u64) {
        if decision.is_admitted() {
            self.admitted.push(AdmittedRequest { charges, decision, taken_ns });
        }
    }

    fn answered(&mut self, which: usize, is_answered: bool) {
        let (op, done) = {
            let mut queue = self.desk.queue.lock().expect("no test panics here");
            if queue.is_empty() {
                return;
            }
            let which = which % queue.len();
            // What lends and gives back is told until it is heard.
            if !is_answered
                && !matches!(queue[which].0, Op::Take(_) | Op::Hold(_) | Op::Peek(_) | Op::Look(_))
            {
                return;
            }
            queue.remove(which)
        };
        self.now_ns += MS / 2;
        let answer = if is_answered { Ok(self.desk.act(&op, self.now_ns)) } else { Err(LinkError::Lost) };
        done(answer, self.now_ns);
    }

    fn resumed(&mut self, which: usize) {
        if !self.waiting.is_empty() {
            let (waiting, charges, mut decision, taken_ns) =
                self.waiting.swap_remove(which % self.waiting.len());
            waiting.resume(self.now_ns, &mut decision);
            self.decided(charges, decision, taken_ns);
        }
    }

    fn ends(&mut self, which: usize, cost: Option<u64>) {
        if self.admitted.is_empty() {
            return;
        }
        let AdmittedRequest { charges, decision, taken_ns } =
            self.admitted.swap_remove(which % self.admitted.len());
        for (index, charge) in charges.iter().enumerate() {
            let refund = decision.refund(index);
            if charge.quota.algorithm() == Algorithm::Concurrency {
                self.node.refund(charge, refund, taken_ns);
                continue;
            }
            if let Some(cost) = cost {
                self.node.reconcile(charge, refund, taken_ns, cost, self.now_ns);
            }
            let limit = self.limits.iter().position(|limit| limit.key == charge.key).expect("it is one");
            if matches!(refund, Refund::Redis { .. } | Refund::Lease) {
                self.spent[limit] += cost.unwrap_or(charge.cost);
            } else {
                self.alone[limit] += cost.unwrap_or(0).max(charge.cost);
            }
        }
    }

    /// Everything is answered, and everybody has ended.
    fn ends_all(&mut self) {
        while !self.waiting.is_empty() || !self.admitted.is_empty() {
            self.desk.answer(self.now_ns);
            self.resumed(0);
            self.ends(0, None);
        }
        // What was lost is said again.
        for _ in 0..3 {
            self.node.sweep(self.now_ns);
            self.desk.answer(self.now_ns);
        }
    }
}

/// The same charge, of a window a day long.
fn of_a_day(node: &Limiter, charge: Charge, overshoot: f64, when_down: WhenDown) -> Charge {
    let (limit, day) = (charge.quota.limit(), NonZeroU64::new(86_400 * SECOND).expect("not zero"));
    let quota = Quota::new(Algorithm::TokenBucket, limit, day, limit);
    let sharing = Sharing::new(&quota, overshoot, when_down);
    node.table().declare([quota, quota.share_of(2)]);
    let plans = node.fleet().expect("a fleet's node").plans();
    let plan = plans.id(Plan { policy: "p".into(), quota, sharing });
    Charge { quota, plan: Some(plan), ..charge }
}

const LIMIT: u64 = 40;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn nothing_is_missing_and_nothing_counted_twice(
        when_down in prop::sample::select(vec![WhenDown::Deny, WhenDown::Local]),
        events in prop::collection::vec(event(), 1..250),
    ) {
        let mut play = Play::new(when_down);
        for event in events {
            play.happens(event);
            let shared = play.node.shared.as_ref().expect("it is in a fleet");
            // A node alone may let in what a question on its way asks for, too.
            prop_assert!(when_down == WhenDown::Local || play.desk.held(&play.limits[2]) <= LIMIT / 4);
            prop_assert!(shared.permits.holdings.0.len() <= 1 && shared.leases.renewals.0.len() <= 1);
        }
        play.ends_all();
        for (index, limit) in play.limits.iter().enumerate().take(2) {
            let left = play.desk.left(limit, play.now_ns);
            // What was decided without Redis is told it as far as it knows that it was not asked.
            let (least, most) = (play.spent[index], play.spent[index] + play.alone[index]);
            let expected = LIMIT.saturating_sub(most)..=LIMIT.saturating_sub(least);
            prop_assert!(expected.contains(&left), "of limit {}: {} of {:?}", index, left, expected);
        }
        prop_assert_eq!(play.desk.held(&play.limits[2]), 0);
        let shared = play.node.shared.as_ref().expect("it is in a fleet");
        prop_assert_eq!((shared.permits.holdings.0.len(), shared.leases.renewals.0.len()), (0, 0));
        prop_assert!(shared.exact.questions.is_empty());
        // What is owed is told with the next request.
        play.happens(Event::Comes([false, false, false, true], 1));
        play.ends_all();
        // All that the lease did not give back may still be spent, and no more.
        while play.node.release_all(play.now_ns) {
            play.desk.answer(play.now_ns);
        }
        play.desk.answer(play.now_ns);
        let other = super::node(&play.desk);
        let last = of_a_day(&other, exact(&other, 5, LIMIT), 0.1, when_down);
        // A record holds what is out as a share in 24 bits; what rounding took of the last unit refills in microseconds.
        let now_ns = play.now_ns + MS;
        let rest = (0..2 * LIMIT).filter(|_| decide(&other, &play.desk, &[last], now_ns).is_admitted());
        let most = LIMIT + u64::from(Sharing::new(&last.quota, 0.1, when_down).spare);
        let (rest, spent) = (rest.count() as u64, play.spent[3]);
        prop_assert!(rest + spent <= most.max(spent + 1), "{rest} and {spent} of {most}");
        // Nor is any unit missing, which nobody spent.
        prop_assert!(when_down == WhenDown::Local || rest + spent >= LIMIT, "{rest} and {spent} of {LIMIT}");
    }
}
