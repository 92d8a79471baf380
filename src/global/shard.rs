//! [`Shard`]: the breakers, the condition and the counters of one shard.
//!
//! Pipelines and probes write it; a request reads one byte of it, to know whether to ask. It sends nothing itself.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limit::breaker::{Breaker, HALF_OPEN_EVERY, Phase, TRIED_EVERY};
use crate::random::Random;

use super::condition::Condition;
use super::round_trip::RoundTrip;

/// One shard: the keys that are in the same place, come what may.
pub(super) struct Shard {
    /// For operators: a server, or a tag of a cluster.
    pub(super) name: String,
    /// The hash tag of its keys, in a cluster.
    pub(super) tag: Option<String>,
    /// Index of the node that has it now.
    pub(super) node: AtomicUsize,
    /// Whether it answers at all.
    up: Gate,
    /// Whether it answers within the deadline.
    quick: Gate,
    breakers: Mutex<Breakers>,
    condition: AtomicU8,
    /// When it was in trouble last.
    troubled_ns: AtomicU64,
    /// How long nearly all calls take, nanoseconds; 0: none was answered yet.
    round_trip_ns: AtomicU64,
    /// Counts since the start.
    pub(super) stats: Stats,
}

/// What was counted of a shard since the start.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// Scripts sent.
    pub(super) calls: AtomicU64,
    /// Operations in them.
    pub(super) operations: AtomicU64,
    /// Calls whose reply came after the deadline, or not.
    pub(super) late: AtomicU64,
    /// Operations without an answer.
    pub(super) lost: AtomicU64,
    /// Operations answered with an error.
    pub(super) refused: AtomicU64,
    /// Calls sent again.
    pub(super) resent: AtomicU64,
    /// Connections opened.
    pub(super) connects: AtomicU64,
    /// Times its breaker opened.
    pub(super) opened: AtomicU64,
}

/// How a shard became another.
pub(super) struct Change {
    pub(super) before: Condition,
    pub(super) now: Condition,
    /// What the server said.
    pub(super) why: String,
    /// How often in a row it was so before.
    pub(super) relapses: u32,
}

struct Breakers {
    up: Breaker,
    quick: Breaker,
    random: Random,
    round_trip: RoundTrip,
    relapses: Relapses,
    told: Told,
    lateness: Lateness,
}

/// Whether the log was told that answers come late as a rule.
#[derive(Default)]
struct Lateness {
    is_told: bool,
    /// Since when it is otherwise, nanoseconds; 0: it is as was told.
    other_since_ns: u64,
}

/// How often in a row trouble came back as soon as it was over: what is found out about a shard goes well, and what it is
/// there for does not.
#[derive(Default)]
struct Relapses {
    count: u32,
    /// When it was over last, nanoseconds.
    over_ns: u64,
}

/// What the log was told last.
struct Told {
    condition: Condition,
    /// When, nanoseconds.
    at_ns: u64,
    /// Why the shard is as it is.
    why: String,
}

impl Relapses {
    /// There is trouble where there was none.
    fn begin(&mut self, now_ns: u64) {
        let is_relapse = self.over_ns > 0 && now_ns.saturating_sub(self.over_ns) < RELAPSE_NS;
        self.count = if is_relapse { self.count.saturating_add(1) } else { 0 };
    }

    fn are_many(&self) -> bool {
        self.count > RELAPSES
    }
}

/// A breaker's phase where any thread may look.
#[derive(Default)]
struct Gate {
    phase: AtomicU8,
    tickets: AtomicU32,
}

impl Gate {
    /// One relaxed load where it is closed.
    #[inline]
    fn lets_through(&self) -> bool {
        let every = match self.phase.load(Ordering::Relaxed) {
            CLOSED => return true,
            HALF_OPEN => HALF_OPEN_EVERY,
            _ => TRIED_EVERY,
        };
        self.tickets.fetch_add(1, Ordering::Relaxed) % every == every - 1
    }

    fn set(&self, phase: Phase) {
        let number = match phase {
            Phase::Closed => CLOSED,
            Phase::Open => OPEN,
            Phase::HalfOpen => HALF_OPEN,
        };
        self.phase.store(number, Ordering::Relaxed);
    }
}

impl Shard {
    /// A shard of which nothing is known: calls are worth trying.
    pub(super) fn new(name: String, tag: Option<String>, node: usize) -> Shard {
        let breakers = Breakers {
            up: Breaker::new(),
            quick: Breaker::new(),
            random: Random::seeded(),
            round_trip: RoundTrip::default(),
            relapses: Relapses::default(),
            told: Told { condition: Condition::Unknown, at_ns: 0, why: String::new() },
            lateness: Lateness::default(),
        };
        Shard {
            name,
            tag,
            node: AtomicUsize::new(node),
            up: Gate::default(),
            quick: Gate::default(),
            breakers: Mutex::new(breakers),
            condition: AtomicU8::new(Condition::Unknown as u8),
            troubled_ns: AtomicU64::new(0),
            round_trip_ns: AtomicU64::new(0),
            stats: Stats::default(),
        }
    }

    /// Whether to ask it: it answers, or this call is to find out.
    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.up.lets_through()
    }

    /// Whether to wait for it: it answers in time, or this call is to find out. Whether it answers at all is found out
    /// without anybody waiting.
    #[inline]
    pub(super) fn is_quick(&self) -> bool {
        self.is_closed() && self.quick.lets_through()
    }

    /// Whether its breaker is closed: asks for nothing and counts nothing.
    pub(super) fn is_closed(&self) -> bool {
        self.up.phase.load(Ordering::Relaxed) == CLOSED
    }

    /// Whether it is known to answer, and in time.
    pub(super) fn is_well(&self) -> bool {
        self.is_closed() && self.quick.phase.load(Ordering::Relaxed) == CLOSED
    }

    /// Index of the node that has it now.
    pub(super) fn place(&self) -> usize {
        self.node.load(Ordering::Relaxed)
    }

    pub(super) fn condition(&self) -> Condition {
        Condition::from_number(self.condition.load(Ordering::Relaxed))
    }

    /// How long nearly all calls take, nanoseconds; 0: none was answered yet.
    #[inline]
    pub(super) fn round_trip_ns(&self) -> u64 {
        self.round_trip_ns.load(Ordering::Relaxed)
    }

    /// A call took so long.
    pub(super) fn took(&self, took_ns: u64, now_ns: u64) {
        let round_trip_ns = self.breakers().round_trip.took(took_ns, now_ns);
        self.round_trip_ns.store(round_trip_ns, Ordering::Relaxed);
    }

    /// The share of renewals that should go through now, percent.
    pub(super) fn ramp_percent(&self, now_ns: u64) -> u32 {
        self.breakers().up.ramp_percent(now_ns)
    }

    /// A call was answered after so long.
    pub(super) fn answered(&self, now_ns: u64, took_ns: u64, deadline_ns: u64) {
        let mut breakers = self.breakers();
        if took_ns <= deadline_ns {
            breakers.quick.succeeded(now_ns);
        }
        self.succeeded(&mut breakers, now_ns);
        self.publish(&breakers, now_ns);
        if now_ns.saturating_sub(self.troubled_ns.load(Ordering::Relaxed)) > CALM_NS {
            self.note(&mut breakers, Condition::Up, "");
        }
    }

    /// A charge of ours went through: whatever was wrong is over.
    pub(super) fn recovered(&self, now_ns: u64) {
        let mut breakers = self.breakers();
        self.succeeded(&mut breakers, now_ns);
        self.publish(&breakers, now_ns);
        if breakers.up.phase(now_ns) == Phase::Closed {
            self.note(&mut breakers, Condition::Up, "");
        }
    }

    /// A call went well. Where trouble keeps coming back that is believed only after a while.
    fn succeeded(&self, breakers: &mut Breakers, now_ns: u64) {
        let is_open = breakers.up.phase(now_ns) != Phase::Closed;
        let pause_ns = if breakers.relapses.are_many() { RELAPSED_NS } else { 0 };
        if is_open && now_ns.saturating_sub(self.troubled_ns.load(Ordering::Relaxed)) < pause_ns {
            return;
        }
        breakers.up.succeeded(now_ns);
        if is_open && breakers.up.phase(now_ns) == Phase::Closed {
            breakers.relapses.over_ns = now_ns;
        }
    }

    /// A call has had no answer within the deadline.
    pub(super) fn late(&self, now_ns: u64) {
        self.stats.late.fetch_add(1, Ordering::Relaxed);
        let mut breakers = self.breakers();
        let jitter = breakers.random.next();
        breakers.quick.failed(now_ns, jitter);
        self.publish(&breakers, now_ns);
    }

    /// A call failed for a reason that may be its own.
    pub(super) fn failed(&self, now_ns: u64) {
        let mut breakers = self.breakers();
        let jitter = breakers.random.next();
        breakers.up.failed(now_ns, jitter);
        self.publish(&breakers, now_ns);
    }

    /// It told what is wrong with it, or cannot be reached: no call has a chance.
    pub(super) fn troubled(&self, condition: Condition, why: &str, now_ns: u64) {
        self.troubled_ns.store(now_ns, Ordering::Relaxed);
        let mut breakers = self.breakers();
        let jitter = breakers.random.next();
        if breakers.up.phase(now_ns) == Phase::Closed {
            self.stats.opened.fetch_add(1, Ordering::Relaxed);
            breakers.relapses.begin(now_ns);
        }
        breakers.up.refused(now_ns, jitter);
        self.publish(&breakers, now_ns);
        self.note(&mut breakers, condition, why);
    }

    /// Time has passed.
    pub(super) fn look(&self, now_ns: u64) {
        let breakers = self.breakers();
        self.publish(&breakers, now_ns);
    }

    fn publish(&self, breakers: &Breakers, now_ns: u64) {
        self.up.set(breakers.up.phase(now_ns));
        self.quick.set(breakers.quick.phase(now_ns));
    }

    fn note(&self, breakers: &mut Breakers, condition: Condition, why: &str) {
        let before = self.condition.swap(condition as u8, Ordering::Relaxed);
        if before != condition as u8 {
            clipped(why).clone_into(&mut breakers.told.why);
        }
    }

    /// What the log is to be told of it now: a change, and none at the same again. Where it changes all the time, and
    /// from one trouble to another, now and then.
    pub(super) fn change(&self, now_ns: u64) -> Option<Change> {
        let now = self.condition();
        let mut breakers = self.breakers();
        let Breakers { told, relapses, .. } = &mut *breakers;
        let is_same_outage = now.is_trouble() && told.condition.is_trouble();
        let is_early = (relapses.are_many() || is_same_outage)
            && now_ns.saturating_sub(told.at_ns) < SAME_OUTAGE_TOLD_NS;
        if now == told.condition || is_early {
            return None;
        }
        let before = std::mem::replace(&mut told.condition, now);
        told.at_ns = now_ns;
        Some(Change { before, now, why: told.why.clone(), relapses: relapses.count })
    }

    /// What the log is to be told of its lateness now: that answers come late as a rule, or do no longer. It is told
    /// that they come in time when they have done so for a while, and nothing while there is other trouble.
    pub(super) fn lateness_change(&self, now_ns: u64) -> Option<bool> {
        let (is_closed, is_late) = (self.is_closed(), !self.is_well());
        let lateness = &mut self.breakers().lateness;
        if !is_closed || is_late == lateness.is_told {
            lateness.other_since_ns = 0;
            return None;
        }
        if lateness.other_since_ns == 0 {
            lateness.other_since_ns = now_ns;
        }
        let least_ns = if is_late { LATE_TOLD_AFTER_NS } else { IN_TIME_TOLD_AFTER_NS };
        if now_ns.saturating_sub(lateness.other_since_ns) < least_ns {
            return None;
        }
        *lateness = Lateness { is_told: is_late, other_since_ns: 0 };
        Some(is_late)
    }

    fn breakers(&self) -> MutexGuard<'_, Breakers> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As much of a server's text as a line of the log takes.
pub(super) fn clipped(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_MAX)]
}

const TEXT_MAX: usize = 300;
const CLOSED: u8 = 0;
const OPEN: u8 = 1;
const HALF_OPEN: u8 = 2;
/// So long after its last trouble a shard that answers is said to be well, nanoseconds. A write of ours going
/// through says so at once; operations that read may go well all the time.
const CALM_NS: u64 = 1_000_000_000;
/// Trouble that begins so soon after it was over is the same trouble, nanoseconds.
const RELAPSE_NS: u64 = 1_000_000_000;
/// How often it may be, before more is made of it than of the servers of a failover that disagree for a moment.
const RELAPSES: u32 = 3;
/// What keeps coming back is over when nothing was heard of it for so long, nanoseconds.
const RELAPSED_NS: u64 = 300_000_000;
/// So long answers come late before the log is told, nanoseconds, and so long in time.
const LATE_TOLD_AFTER_NS: u64 = 1_000_000_000;
const IN_TIME_TOLD_AFTER_NS: u64 = 5_000_000_000;
/// How often the log is told of one outage, nanoseconds.
const SAME_OUTAGE_TOLD_NS: u64 = 10_000_000_000;
