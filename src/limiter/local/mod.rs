//! The local tier: the state of every key this node has seen recently, in memory fixed by the configuration, shared by
//! all worker threads.
//!
//! Memory is fixed when the table is made; the kernel backs it page by page as keys come. A key has a slot of 32 bytes
//! and is decided under that slot's lock bit: one compare-exchange, the arithmetic, one store. A full table evicts keys
//! that have nothing spent, which loses nothing. If there is none, a new key is decided on the overflow bucket of its
//! quota, which all such keys share, so that filling the table gives nobody a fresh burst. A state carries the
//! fingerprint of the quota it was written under and is rescaled to the present one. A sliding log does not fit a slot
//! and is kept in `logs.rs`. Penalised clients have slots of their own (`penalties.rs`).
//!
//! It does no I/O, reads no clock, and decides one charge at a time, without knowing policies.

mod families;
mod handover;
mod journal;
mod logs;
mod memory;
mod penalties;
mod quotas;
pub(crate) mod slots;
mod spend_messages;
pub mod striped_map;

use std::sync::atomic::{AtomicU64, Ordering};

pub use handover::{FORMAT, HandoverError};
pub use journal::Relative;
pub use slots::Stats;

use journal::Journal;
use limit::penalty::Record;
use limit::{Algorithm, Charge, Outcome, Quota, State};
use logs::Logs;
use quotas::{By, Quotas};
use slots::{SlotGuard, Slots};

/// The states of all keys that this node counts, in memory of a fixed size.
#[derive(Debug)]
pub struct Table {
    slots: Slots<4, 2>,
    logs: Logs,
    quotas: Quotas,
    overflows: AtomicU64,
    penalised: penalties::PenaltyFilter,
    journal: Journal,
}

/// What came of a charge, and where it was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeResult {
    /// Whether the charge was admitted, and what is left.
    pub outcome: Outcome,
    /// Where it was charged: `give_back` and `debit` must change the same state.
    pub place: StateLocation,
}

/// The state that a key was decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateLocation {
    /// The key's own slot or log.
    Slot,
    /// The bucket or log that all keys of a quota without a slot share.
    Overflow,
}

impl Table {
    /// A table of that many bytes (at least about 2 KiB), with room for one key in 32. Ten million keys take half of
    /// 640 MB, which leaves room so that few windows are full; in a fuller table more keys share overflow buckets.
    /// Sliding logs may take an eighth more.
    pub fn with_memory(bytes: usize) -> Table {
        Table {
            slots: Slots::with_memory(bytes),
            logs: Logs::with_memory(bytes / 8),
            quotas: Quotas::default(),
            overflows: AtomicU64::new(0),
            penalised: penalties::PenaltyFilter::default(),
            journal: Journal::default(),
        }
    }

    /// Announces the quotas of a configuration, at start and at every reload, before charges use them. A state of an
    /// unknown quota counts as spent when its key is charged under another, and its slot is evicted first.
    pub fn declare(&self, quotas: impl IntoIterator<Item = Quota>) {
        self.declare_by(quotas, By::Configuration);
    }

    /// Announces quotas beside those of the configuration in force.
    pub fn declare_more(&self, quotas: impl IntoIterator<Item = Quota>) {
        self.declare_by(quotas, By::Others);
    }

    fn declare_by(&self, quotas: impl IntoIterator<Item = Quota>, by: By) {
        let used = self.logs.overflow().keys().copied().collect();
        self.quotas.declare(quotas, by, used);
        let known = self.quotas.known();
        self.logs.retain(|fingerprint| known.get(fingerprint).is_some());
    }

    /// Announces one more quota, which an override has made of a declared one, before charges use it.
    pub fn declare_also(&self, quota: Quota) {
        self.quotas.declare_also(quota);
    }

    /// Takes the cost if it fits. A denied charge changes nothing, unless its policy counts denied requests.
    // Inlined so that the outcome is returned in registers and not through memory.
    #[inline(always)]
    pub fn take(&self, charge: &Charge, now_ns: u64) -> TakeResult {
        let taken = self.take_silently(charge, now_ns);
        if taken.outcome.is_admitted() || charge.count_denied {
            self.journal.note(charge, true);
        }
        taken
    }

    /// The same, and the other process is not told.
    #[inline(always)]
    fn take_silently(&self, charge: &Charge, now_ns: u64) -> TakeResult {
        if charge.quota.algorithm() == Algorithm::SlidingLog {
            return self.take_in_log(charge, now_ns);
        }
        let fingerprint = charge.quota.fingerprint();
        let found = self.slots.find(charge.key).or_else(|| self.claim(charge, fingerprint, now_ns));
        match found {
            Some(slot) => {
                let outcome = self.take_in(slot, charge, fingerprint, now_ns);
                TakeResult { outcome, place: StateLocation::Slot }
            }
            None => self.take_in_overflow(charge, fingerprint, now_ns),
        }
    }

    /// Undoes a `take` that admitted: the same charge, the place it named, and the `now_ns` it was given.
    pub fn give_back(&self, charge: &Charge, place: StateLocation, taken_ns: u64) {
        self.journal.note(charge, false);
        if charge.quota.algorithm() == Algorithm::SlidingLog {
            return self.logs.give_back(charge, place, taken_ns);
        }
        self.change(charge, place, taken_ns, |state, quota| state.give_back(quota, charge.cost, taken_ns));
    }

    /// Spends a cost that became known after the charge it belongs to, on the same state. It is spent even if it does
    /// not fit, as a debt.
    pub fn debit(&self, charge: &Charge, place: StateLocation, now_ns: u64) {
        self.journal.note(charge, true);
        self.debit_silently(charge, place, now_ns);
    }

    fn debit_silently(&self, charge: &Charge, place: StateLocation, now_ns: u64) {
        if charge.quota.algorithm() == Algorithm::SlidingLog {
            return self.logs.debit(charge, place, now_ns);
        }
        self.change(charge, place, now_ns, |state, quota| state.debit(quota, charge.cost, now_ns));
    }

    /// Whether a charge was remembered and has not been refilled yet. Overflow buckets are not looked at, because other
    /// keys spend from them.
    pub fn is_remembered(&self, charge: &Charge, now_ns: u64) -> bool {
        let Some(slot) = self.slots.find(charge.key) else { return false };
        let state = self.state_in(&slot, charge, charge.quota.fingerprint(), now_ns);
        !state.take(&charge.quota, charge.cost, now_ns).1.is_admitted()
    }

    /// Remembers a charge if there is room. Its quota is not declared, so its slot is evicted first when a limit needs
    /// one: forgetting it costs one client a unit, but a limit without a slot shares an overflow bucket with all other
    /// keys.
    pub fn remember(&self, charge: &Charge, now_ns: u64) {
        self.journal.note(charge, true);
        let fingerprint = charge.quota.fingerprint();
        let found = self.slots.find(charge.key).or_else(|| self.claim(charge, fingerprint, now_ns));
        if let Some(slot) = found {
            self.take_in(slot, charge, fingerprint, now_ns);
        }
    }

    /// Changes the state that a charge was taken from.
    fn change(
        &self,
        charge: &Charge,
        place: StateLocation,
        now_ns: u64,
        change: impl FnOnce(State, &Quota) -> State,
    ) {
        let fingerprint = charge.quota.fingerprint();
        match place {
            StateLocation::Slot => {
                // There is nothing to change, because a key that was evicted had nothing spent.
                let Some(mut slot) = self.slots.find(charge.key) else { return };
                // Nor is there if a reload has changed the policy between permits and units.
                if slot.fingerprint() != fingerprint && self.is_another_kind(slot.fingerprint(), charge) {
                    return;
                }
                // What holds more than the limit of now stays under that of before.
                let kept = slot.fingerprint();
                if kept != fingerprint && self.outgrown(&slot, charge, now_ns).is_some() {
                    let Some(old) = self.quotas.known().get(kept) else { return };
                    slot.set_state(change(State(slot.state()), &old).0, kept);
                    return;
                }
                let state = self.state_in(&slot, charge, fingerprint, now_ns);
                slot.set_state(change(state, &charge.quota).0, fingerprint);
            }
            StateLocation::Overflow => {
                if let Some(state) = self.quotas.overflow().get_mut(&fingerprint) {
                    *state = change(*state, &charge.quota);
                }
            }
        }
    }

    /// Whether exactly one of the two quotas, the state's and the charge's, counts permits.
    #[cold]
    fn is_another_kind(&self, fingerprint: u32, charge: &Charge) -> bool {
        let is_permits = |quota: &Quota| quota.algorithm() == Algorithm::Concurrency;
        let known = self.quotas.known().get(fingerprint).as_ref().map(is_permits);
        known != Some(is_permits(&charge.quota))
    }

    /// What `take` would return. Nothing is spent and no slot is claimed.
    pub fn peek(&self, charge: &Charge, now_ns: u64) -> Outcome {
        if charge.quota.algorithm() == Algorithm::SlidingLog {
            return self.logs.peek(charge, &self.quotas, now_ns);
        }
        let fingerprint = charge.quota.fingerprint();
        let state = if let Some(slot) = self.slots.find(charge.key) {
            if slot.fingerprint() != fingerprint
                && let Some(outcome) = self.outgrown(&slot, charge, now_ns)
            {
                return outcome;
            }
            self.state_in(&slot, charge, fingerprint, now_ns)
        } else if self.slots.has_room(charge.key, self.is_whole(Some(charge.quota), now_ns)) {
            State::default()
        } else {
            self.quotas.overflow().get(&fingerprint).copied().unwrap_or_default()
        };
        state.take(&charge.quota, charge.cost, now_ns).1
    }

    /// Counters of the table, for the metrics.
    pub fn stats(&self) -> Stats {
        let slots = self.slots.stats();
        Stats {
            evictions: slots.evictions + self.logs.evictions.load(Ordering::Relaxed),
            overflow_decisions: self.overflows.load(Ordering::Relaxed),
            logs: self.logs.len() as u64,
            log_bytes: self.logs.bytes() as u64,
            ..slots
        }
    }

    #[cold]
    fn take_in_log(&self, charge: &Charge, now_ns: u64) -> TakeResult {
        let taken = self.logs.take(charge, &self.quotas, now_ns);
        if taken.place == StateLocation::Overflow {
            self.overflows.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// The key's slot, or one claimed for it; `None` if there is no room.
    #[cold]
    fn claim(&self, charge: &Charge, fingerprint: u32, now_ns: u64) -> Option<SlotGuard<'_, 4, 2>> {
        self.slots.find_or_claim(charge.key, fingerprint, self.is_whole(Some(charge.quota), now_ns))
    }

    /// Whether a slot's key can be evicted: it has nothing spent, its quota has been forgotten, or its penalty is over.
    /// `quota` is the charge's, which most slots of a window share, so that it need not be looked up.
    fn is_whole(&self, quota: Option<Quota>, now_ns: u64) -> impl Fn(u32, [u64; 2]) -> bool {
        let known = self.quotas.known();
        move |of: u32, state: [u64; 2]| {
            if of == Quota::NO_FINGERPRINT {
                return Record::from_words(state).is_over(now_ns);
            }
            let same = quota.filter(|quota| of == quota.fingerprint());
            let quota = same.or_else(|| known.get(of));
            quota.is_none_or(|quota| State(state).is_full(&quota, now_ns))
        }
    }

    #[inline(always)]
    fn take_in(
        &self,
        mut slot: SlotGuard<'_, 4, 2>,
        charge: &Charge,
        fingerprint: u32,
        now_ns: u64,
    ) -> Outcome {
        if slot.fingerprint() != fingerprint
            && let Some(outcome) = self.outgrown(&slot, charge, now_ns)
        {
            return outcome;
        }
        let (state, outcome) = spend(self.state_in(&slot, charge, fingerprint, now_ns), charge, now_ns);
        slot.set_state(state.0, fingerprint);
        outcome
    }

    #[cold]
    fn take_in_overflow(&self, charge: &Charge, fingerprint: u32, now_ns: u64) -> TakeResult {
        self.overflows.fetch_add(1, Ordering::Relaxed);
        let mut overflow = self.quotas.overflow();
        let shared = overflow.entry(fingerprint).or_default();
        let (state, outcome) = spend(*shared, charge, now_ns);
        *shared = state;
        TakeResult { outcome, place: StateLocation::Overflow }
    }

    /// The slot's state, rescaled if it was written under another quota than the charge's.
    #[inline]
    fn state_in(&self, slot: &SlotGuard<'_, 4, 2>, charge: &Charge, fingerprint: u32, now_ns: u64) -> State {
        if slot.fingerprint() == fingerprint {
            return State(slot.state());
        }
        self.rescaled(slot, charge, now_ns)
    }

    /// What a charge is told of a state that holds more than its quota; see [`State::outgrown`].
    #[cold]
    fn outgrown(&self, slot: &SlotGuard<'_, 4, 2>, charge: &Charge, now_ns: u64) -> Option<Outcome> {
        let old = self.quotas.known().get(slot.fingerprint())?;
        State(slot.state()).outgrown(&old, &charge.quota, charge.cost, now_ns)
    }

    #[cold]
    fn rescaled(&self, slot: &SlotGuard<'_, 4, 2>, charge: &Charge, now_ns: u64) -> State {
        match self.quotas.known().get(slot.fingerprint()) {
            Some(old) => State(slot.state()).rescale(&old, &charge.quota, now_ns),
            // Without the old quota the past cannot be read. The state counts as spent, because otherwise a reload
            // would give the key a second burst.
            None => State::spent(&charge.quota, now_ns),
        }
    }
}

#[inline(always)]
fn spend(state: State, charge: &Charge, now_ns: u64) -> (State, Outcome) {
    let (taken, outcome) = state.take(&charge.quota, charge.cost, now_ns);
    if outcome.is_admitted() || !charge.count_denied {
        return (taken, outcome);
    }
    let counted = state.count_denied(&charge.quota, charge.cost, now_ns);
    (counted, counted.take(&charge.quota, charge.cost, now_ns).1)
}

#[cfg(test)]
mod tests;
