//! The counts that limit the buckets of proxies, each with all who take of it: the buckets of one gateway that share it,
//! requests that are decided here, and the other gateways of a fleet (`fleet_pots.rs`). Who gets how much is arithmetic of
//! `quota::Pot`; here it is kept, and requests are held to their part of it.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::quota::told::Told;
use base::quota::{Others, OwnTurn, Pot, Refill, Rivals, Wants};
use limit::{Algorithm, Charge, Key};
use limiter::{Division, Limiter};

/// The pots of a process. A lock is held for the arithmetic of one pot, by threads that answer proxies and by the control
/// runtime; no request to the gateway's own routes waits for it.
#[derive(Debug)]
pub(crate) struct Pots {
    limiter: Arc<Limiter>,
    stripes: [Mutex<HashMap<Key, Kept>>; STRIPES],
}

/// The window that has the least for a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) key: Key,
    /// Units that a request costs.
    pub(super) cost: NonZeroU64,
    pub(super) refill: Refill,
    /// Whether the gateways of a fleet count it together, so that each has a part of it.
    pub(super) is_shared: bool,
}

impl Bound {
    pub(super) fn of(charge: &Charge) -> Bound {
        let quota = &charge.quota;
        Bound {
            key: charge.key,
            cost: NonZeroU64::new(charge.cost).unwrap_or(NonZeroU64::MIN),
            refill: Refill { units: quota.limit().get(), period_ns: quota.period_ns().get() },
            // Permits come back when requests end, not at a rate that parts could be taken of.
            is_shared: charge.plan.is_some() && quota.algorithm() != Algorithm::Concurrency,
        }
    }
}

/// What a pot knows of one bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    bound: Bound,
    wants: Wants,
}

impl Place {
    /// Units that a request costs.
    pub(super) fn cost(&self) -> u64 {
        self.bound.cost.get()
    }
}

#[derive(Debug)]
struct Kept {
    pot: Pot,
    /// While requests that are decided here are a party: since there was too little for all.
    division: Option<Division>,
    refill: Refill,
    /// Whether other gateways draw of it, too, as far as this one keeps to a part of it.
    is_shared: bool,
    /// Units that were left when this was last looked for.
    left: u64,
}

impl Pots {
    pub(crate) fn new(limiter: &Arc<Limiter>) -> Pots {
        Pots { limiter: Arc::clone(limiter), stripes: std::array::from_fn(|_| Mutex::default()) }
    }

    fn stripe(&self, key: Key) -> MutexGuard<'_, HashMap<Key, Kept>> {
        // The low bits choose a place within a map of the same kind.
        let stripe = (key.high() >> 32) as usize % STRIPES;
        self.stripes[stripe].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A bucket has its turn, by the window that has the least for it: what it wants, and how many units are left for all.
    /// Requests that are decided here have theirs first, once a round. Returns what is left for streams, and what those of
    /// other buckets want of it.
    pub(super) fn turn(
        &self,
        place: &mut Option<Place>,
        (wants, bound): (Wants, Bound),
        left: u64,
        interval_ns: u64,
        now_ns: u64,
    ) -> (u64, Rivals) {
        if place.is_some_and(|place| place.bound.key != bound.key) {
            self.leave(place.take(), now_ns);
        }
        let mut stripe = self.stripe(bound.key);
        let kept = stripe.entry(bound.key).or_insert_with(|| Kept::new(bound.refill));
        match place.replace(Place { bound, wants }) {
            Some(before) => kept.pot.change(before.wants, wants),
            None => kept.pot.enter(wants),
        }
        (kept.refill, kept.is_shared, kept.left) = (bound.refill, bound.is_shared, left);
        let left = kept.turn(&self.limiter, bound.key, interval_ns, now_ns);
        let left = kept.pot.for_streams(left, round(now_ns));
        (left, kept.pot.rivals(&wants, round(now_ns)))
    }

    /// Whether requests that are decided here wait for their turn.
    pub(super) fn is_turn_of_own(&self, place: &Place, now_ns: u64) -> bool {
        self.with(place.bound.key, |kept| kept.division.is_some() && kept.pot.is_turn_of_own(round(now_ns)))
            .unwrap_or(false)
    }

    /// A bucket wants something else than before.
    pub(super) fn change(&self, place: &mut Place, wants: Wants, now_ns: u64) {
        self.with(place.bound.key, |kept| {
            kept.pot.change(place.wants, wants);
            kept.settle(now_ns);
        });
        place.wants = wants;
    }

    /// A bucket goes.
    pub(super) fn leave(&self, place: Option<Place>, now_ns: u64) {
        let Some(Place { bound, wants }) = place else { return };
        let mut stripe = self.stripe(bound.key);
        let Some(kept) = stripe.get_mut(&bound.key) else { return };
        kept.pot.leave(wants);
        kept.settle(now_ns);
        if kept.pot.is_over(now_ns) {
            stripe.remove(&bound.key);
        }
    }

    /// Units are drawn for a stream, or will be.
    pub(super) fn take(&self, bound: &Bound, requests: u64) {
        self.with(bound.key, |kept| kept.pot.take(requests.saturating_mul(bound.cost.get())));
    }

    /// Some of them were not.
    pub(super) fn give_back(&self, bound: &Bound, requests: u64) {
        if requests > 0 {
            self.with(bound.key, |kept| kept.pot.give_back(requests.saturating_mul(bound.cost.get())));
        }
    }

    /// What other gateways are told: of the counts that are divided here, and that they may draw of.
    pub(super) fn told(&self) -> Vec<Told> {
        let mut told = Vec::new();
        for stripe in &self.stripes {
            let stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            told.extend(stripe.iter().filter_map(|(key, kept)| kept.told(*key)));
        }
        told
    }

    /// Hears what other gateways want, and gives requests that are decided here their turn of counts that only others divide.
    pub(super) fn hear(&self, others: &HashMap<u128, (Others, Refill)>, now_ns: u64) {
        for (count, (others, refill)) in others {
            let key = Key::new(*count);
            let mut stripe = self.stripe(key);
            // Without a stream of it anywhere nobody divides it.
            if others.streams > 0 || stripe.contains_key(&key) {
                let kept = stripe.entry(key).or_insert_with(|| Kept::new(*refill));
                kept.is_shared = true;
                kept.pot.hear(*others, now_ns);
                if !kept.pot.has_buckets() {
                    kept.left = others.left;
                }
            }
        }
        for stripe in &self.stripes {
            let mut stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            stripe.retain(|_, kept| !kept.pot.is_over(now_ns));
            for (key, kept) in stripe.iter_mut().filter(|(_, kept)| !kept.pot.has_buckets()) {
                kept.turn(&self.limiter, *key, SECOND_NS, now_ns);
            }
        }
    }

    fn with<T>(&self, key: Key, call: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        self.stripe(key).get_mut(&key).map(call)
    }
}

impl Kept {
    fn new(refill: Refill) -> Kept {
        Kept { pot: Pot::default(), division: None, refill, is_shared: false, left: 0 }
    }

    /// What is left for streams of this gateway once requests that are decided here have had their turn. These are counted
    /// from the moment on when there is too little for all.
    fn turn(&mut self, limiter: &Arc<Limiter>, key: Key, interval_ns: u64, now_ns: u64) -> u64 {
        let round = round(now_ns);
        let division = self.division.as_ref().filter(|_| self.pot.is_turn_of_own(round));
        let turn = division
            .map(|division| OwnTurn { came: division.take_came(), unspent: division.unspent(now_ns) });
        if let Some(turn) = turn {
            self.pot.note_own(turn, round, now_ns);
        }
        let left = match self.is_shared {
            true => self.pot.left(self.left, self.refill, now_ns),
            false => self.left,
        };
        if self.division.is_none() && self.pot.is_scarce(left, now_ns) {
            self.division = limiter.divide(key);
        }
        let Some(division) = &self.division else { return left };
        division.note_streams(self.pot.all_streams(now_ns));
        if let Some(turn) = turn {
            match self.pot.turn_of_own(turn, left, interval_ns, now_ns) {
                Some(share) => division.hold(share, now_ns + HELD_NS),
                None => division.release(),
            }
        }
        left.saturating_sub(division.unspent(now_ns))
    }

    /// Lets requests take what they find, if nobody else wants any.
    fn settle(&mut self, now_ns: u64) {
        if let Some(division) = self.division.as_ref().filter(|_| !self.pot.is_wanted(now_ns)) {
            division.release();
            self.pot.release_own();
        }
    }

    fn told(&self, key: Key) -> Option<Told> {
        let demand = self.pot.demand();
        let is_told = self.is_shared && self.division.is_some() && demand > 0;
        is_told.then(|| Told {
            count: key.bits(),
            demand,
            streams: self.pot.streams(),
            left: self.left,
            refill: self.refill,
        })
    }
}

/// The number of the round that a time is in. The last round of a second begins just before it ends: what a sliding window
/// has left then cannot be drawn in the next one.
pub(super) fn round(now_ns: u64) -> u64 {
    (now_ns + EARLY_NS) / ROUND_NS
}

/// How long it is until the next one.
pub(super) fn next_round_in(now_ns: u64) -> Duration {
    Duration::from_nanos(ROUND_NS - (now_ns + EARLY_NS) % ROUND_NS)
}

const STRIPES: usize = 16;
/// How often those that wait get what there is.
pub(super) const ROUND_NS: u64 = SECOND_NS / 4;
/// Time for all to have their turn.
const EARLY_NS: u64 = SECOND_NS / 40;
/// How long requests that are decided here keep to a share that is not said anew.
const HELD_NS: u64 = 4 * ROUND_NS;
const SECOND_NS: u64 = 1_000_000_000;
