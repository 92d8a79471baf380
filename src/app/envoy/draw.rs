//! Draws units of a limit for a proxy, and gives back what it has not spent: each draw is one check at the cost of all its
//! requests, so it spends of the counts that requests to the proxy and checks have.

use std::num::NonZeroU64;
use std::sync::Arc;

use smallvec::SmallVec;

use super::decide::Decider;
use super::pots::Bound;
use base::clock;
use base::quota::{Back, Left};
use gateway::proxy::snapshot::Snapshot;
use limit::{Algorithm, Answer, Charge, Worlds};
use limiter::{self, Check, Foretold, Part, Refund, Shared};
use policy::domain::{DescriptorSubject, Entry, Rule};

/// What was drawn at once.
#[derive(Debug)]
pub(super) struct Draw {
    /// For all of its requests.
    charges: SmallVec<[(Charge, Refund); 1]>,
    requests: NonZeroU64,
    taken_ns: u64,
}

/// A bucket whose rule has policies.
#[derive(Clone, Copy)]
pub(super) struct Limited<'t> {
    pub(super) snapshot: &'t Snapshot,
    pub(super) rule: &'t Rule,
    pub(super) entries: &'t [Entry<'t>],
}

/// What a limit has for a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It refuses nothing.
    Unlimited,
    /// So many requests fit, as far as is known, and what says so.
    Left(Left, Bound),
    /// A policy refuses who does not say what it counts by.
    Missing,
}

impl Decider {
    fn subject<'t>(&self, limited: &Limited<'t>, requests: NonZeroU64) -> DescriptorSubject<'t> {
        let subject = DescriptorSubject::new(limited.rule, limited.entries, None).with_requests(requests);
        subject.with_identity(|identity| self.limiter.assignments().apply(identity))
    }

    /// How many requests fit now. Nothing is spent.
    pub(super) fn room(&self, limited: &Limited<'_>) -> Room {
        let policies = limited.snapshot.table.chosen_by(limited.rule);
        let (now_ns, mut check) = (clock::now_ns(), Check::default());
        check.shared = Shared::Draws;
        let subject = self.subject(limited, NonZeroU64::MIN);
        let Ok(peeked) = self.limiter.peek(policies, &subject, now_ns, &mut check) else {
            return Room::Missing;
        };
        let windows = check.charges.iter().zip(&peeked.foretold).filter(|(charge, _)| is_enforced(charge));
        let left = windows.map(|(charge, foretold)| {
            let mut bound = Bound::of(charge);
            if check.keeps_out(charge) {
                return (0, bound);
            }
            let open = foretold.open_without_redis.filter(|_| is_without_redis(foretold));
            if let Some(units) = open {
                // Nobody has a part of a limit that admits everybody.
                bound.is_shared = false;
                return (units / bound.cost, bound);
            }
            let own = match foretold.outcome.answer() {
                Answer::Admitted => charge.cost,
                Answer::Later { .. } | Answer::Never => 0,
            };
            (foretold.outcome.remaining.saturating_add(own) / bound.cost, bound)
        });
        let Some((units, bound)) = left.min_by_key(|(units, _)| *units) else { return Room::Unlimited };
        if units == 0 {
            // Nobody draws of nothing, and without Redis nothing comes back to a lease until somebody does.
            let client = policies.client_of(&subject).into();
            let alone = check.charges.iter().zip(&peeked.foretold);
            for (charge, _) in alone.filter(|(_, foretold)| is_without_redis(foretold)) {
                self.limiter.begin_without_answer(charge, client, now_ns);
            }
        }
        let enforced = check.charges.iter().filter(|charge| is_enforced(charge));
        let is_quick = enforced.map(|charge| charge.quota.period_ns().get()).max() <= Some(QUICK_NS);
        Room::Left(Left { units, is_quick }, bound)
    }

    /// Draws units for so many requests, or for as many as there are. Returns what was drawn.
    pub(super) async fn draw(&self, limited: &Limited<'_>, requests: u64) -> Option<Draw> {
        let requests = NonZeroU64::new(requests)?;
        match self.try_to_draw(limited, requests).await {
            Ok(draw) => Some(draw),
            Err(left) => self.try_to_draw(limited, NonZeroU64::new(left.min(requests.get() - 1))?).await.ok(),
        }
    }

    /// Draws units for so many requests, or says how many there are.
    async fn try_to_draw(&self, limited: &Limited<'_>, requests: NonZeroU64) -> Result<Draw, u64> {
        let policies = limited.snapshot.table.chosen_by(limited.rule);
        let parts = [Part { policies, subject: self.subject(limited, requests), limit: None }];
        let (now_ns, mut check) = (clock::now_ns(), Check::default());
        check.shared = Shared::Draws;
        if let Some(pending) = self.limiter.check_together(&parts, 0, now_ns, &mut check) {
            self.limiter.finish_together(pending, &mut check).await;
        }
        self.count(limited.snapshot, &parts, &check, now_ns);
        let decided = check.charges.iter().zip(&check.decision.outcomes);
        if !check.is_admitted() {
            let left = decided.filter(|(charge, _)| is_enforced(charge));
            let left =
                left.map(|(charge, outcome)| outcome.remaining / (charge.cost / requests).max(1)).min();
            return Err(left.unwrap_or(0));
        }
        let taken = check.charges.iter().enumerate();
        let taken = taken.filter(|(index, charge)| check.decision.has_taken(*index, charge));
        let charges = taken.map(|(index, charge)| (*charge, check.decision.refund(index))).collect();
        self.stats.drawn(requests.get());
        Ok(Draw { charges, requests, taken_ns: now_ns })
    }

    /// Charges requests that have passed and that nothing is left for.
    pub(super) fn owe(&self, limited: &Limited<'_>, requests: u64) {
        let Some(requests) = NonZeroU64::new(requests) else { return };
        let policies = limited.snapshot.table.chosen_by(limited.rule);
        // Whom a policy refuses who does not say what it counts by has no count to be charged to.
        let _ = self.limiter.charge_passed(policies, &self.subject(limited, requests), clock::now_ns());
    }

    /// Gives back what was drawn and is not spent.
    pub(super) fn return_draws(&self, all: Vec<Back<Arc<Draw>>>) {
        let now_ns = clock::now_ns();
        for Back { receipt, units } in all {
            self.stats.returned(units);
            for (charge, refund) in &receipt.charges {
                if is_of_now(charge, receipt.taken_ns, now_ns) {
                    let cost = charge.cost / receipt.requests * units;
                    self.limiter.refund(&Charge { cost, ..*charge }, *refund, receipt.taken_ns);
                }
            }
        }
    }
}

impl Draw {
    /// How many requests it is for.
    pub(super) fn requests(&self) -> u64 {
        self.requests.get()
    }
}

/// Whether a charge can refuse what is decided.
fn is_enforced(charge: &Charge) -> bool {
    !charge.shadow && charge.world() == Worlds::OWN
}

fn is_without_redis(foretold: &Foretold) -> bool {
    foretold.decider == limiter::Decider::Fallback
}

/// Whether what was taken then still counts. A lease does not know of which window its units are.
fn is_of_now(charge: &Charge, taken_ns: u64, now_ns: u64) -> bool {
    let period_ns = charge.quota.period_ns().get();
    match charge.quota.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingWindow => taken_ns / period_ns == now_ns / period_ns,
        _ => now_ns.saturating_sub(taken_ns) < period_ns,
    }
}

/// A limit that is whole again after so long does not wait for what a proxy will tell.
const QUICK_NS: u64 = 5_000_000_000;
