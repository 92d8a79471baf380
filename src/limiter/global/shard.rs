//! [`Shard`]: the breakers, the condition and the counters of one shard.
//!
//! Pipelines and probes write it; a request reads one byte of it, to know whether to ask. It sends nothing itself.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::clock;
use base::random::Random;
use limit::breaker::{Breaker, HALF_OPEN_EVERY, Phase, TRIED_EVERY};
use limit::lease_messages::Op;
use metrics::Histogram;

use super::condition::Condition;
use super::config::deadline_of;
use super::round_trip::RoundTrip;

base::id! {
    /// A shard: its position among those of this process, which stay as they are from start to end. Another process, or the
    /// next, may have others.
    ShardId
}

base::id! {
    /// A server of Redis, as the shared tier addresses it: its position among the nodes of this process. Those are only
    /// added, so that it stays valid.
    NodeId
}

/// One shard: keys that are always on the same server.
pub(super) struct Shard {
    /// The name in logs and metrics: the server's address, or in a cluster `cluster {tag}`.
    pub(super) name: String,
    /// The hash tag in the names of its keys; `None` outside a cluster.
    pub(super) tag: Option<String>,
    /// The node that has it now.
    node: AtomicUsize,
    /// Whether it answers at all.
    up: Gate,
    /// Whether it answers within the deadline.
    quick: Gate,
    breakers: Mutex<Breakers>,
    /// When an error last showed that it is in trouble, nanoseconds.
    troubled_ns: AtomicU64,
    /// How long nearly all calls take, nanoseconds; 0: none was answered yet.
    round_trip_ns: AtomicU64,
    /// How long the quickest one took, nanoseconds.
    shortest_ns: AtomicU64,
    /// How far its clock is ahead of this node's monotonic one, microseconds; 0: it has not said so yet.
    ahead_us: AtomicI64,
}

/// What was counted of a shard since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Script calls sent, those sent again not included.
    pub calls: u64,
    /// Operations in those calls, up to 64 in each.
    pub operations: u64,
    /// Calls not answered within the deadline.
    pub late: u64,
    /// Operations without an answer, those that were never sent included.
    pub lost: u64,
    /// Operations that Redis answered with an error, or whose slot no node would take.
    pub refused: u64,
    /// Calls sent again under the same number, after a broken or silent connection.
    pub resent: u64,
    /// Connections opened and proven by a write.
    pub connects: u64,
    /// Times its breaker opened for trouble the shard reported.
    pub opened: u64,
    /// Units spent from leases, as renewals report them.
    pub leased_units: u64,
    /// Units that requests waited for.
    pub awaited_units: u64,
}

impl Counts {
    /// Counts an operation of a call. Units are counted here, and not when they are spent, because a request that spends from
    /// a lease does not look up its shard.
    pub(super) fn asked(&mut self, op: &Op) {
        self.operations += 1;
        match op {
            // Costs are whole, and so is what was spent on them.
            Op::Renew(renewal) => {
                self.leased_units += renewal.spent.round() as u64;
                self.awaited_units += renewal.pending;
            }
            Op::Take(parts) => self.awaited_units += parts.iter().map(|part| part.cost).sum::<u64>(),
            Op::Hold(hold) => self.awaited_units += hold.part.cost,
            Op::Return { .. } | Op::Debit(_) | Op::Repay(_) | Op::Report { .. } => {}
            Op::Peek(_) | Op::Look(_) => {}
        }
    }
}

pub(super) struct Change {
    pub(super) before: Condition,
    pub(super) now: Condition,
    pub(super) why: String,
    /// How often in a row this trouble has come back.
    pub(super) relapses: u32,
}

struct Breakers {
    up: Breaker,
    quick: Breaker,
    random: Random,
    round_trip: RoundTrip,
    call_durations: Histogram,
    relapses: RepeatedFailures,
    condition: Condition,
    logged: LoggedChange,
    lateness: Lateness,
    counts: Counts,
}

/// Whether the log's last line says that answers come late as a rule.
#[derive(Default)]
struct Lateness {
    is_logged: bool,
    /// Since when the opposite is true, nanoseconds; 0 if the last line still holds.
    other_since_ns: u64,
}

/// Counts how often in a row trouble came back right after it was over. That happens if probes succeed while charges
/// fail.
#[derive(Default)]
struct RepeatedFailures {
    count: u32,
    /// When it was last over, nanoseconds.
    over_ns: u64,
}

/// The last change that was logged, and the reason for the present condition.
#[derive(Default)]
struct LoggedChange {
    condition: Condition,
    at_ns: u64,
    /// The error behind the present condition.
    why: String,
}

impl Breakers {
    fn note(&mut self, condition: Condition, why: &str) {
        if std::mem::replace(&mut self.condition, condition) != condition {
            clipped(why).clone_into(&mut self.logged.why);
        }
    }
}

impl RepeatedFailures {
    /// Trouble begins on a shard that was well.
    fn begin(&mut self, now_ns: u64) {
        let is_relapse = self.over_ns > 0 && now_ns.saturating_sub(self.over_ns) < RELAPSE_NS;
        self.count = if is_relapse { self.count.saturating_add(1) } else { 0 };
    }

    fn are_many(&self) -> bool {
        self.count > RELAPSES
    }
}

/// A copy of a breaker's phase that any thread can read without the breakers' lock.
#[derive(Default)]
struct Gate {
    phase: AtomicU8,
    tickets: AtomicU32,
}

impl Gate {
    /// Costs one relaxed load while the breaker is closed.
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
    /// A shard of which nothing is known yet. Its breakers are closed, so that the first calls are sent.
    pub(super) fn new(name: String, tag: Option<String>, node: NodeId) -> Shard {
        let breakers = Breakers {
            up: Breaker::default(),
            quick: Breaker::default(),
            random: Random::seeded(),
            round_trip: RoundTrip::default(),
            call_durations: Histogram::default(),
            relapses: RepeatedFailures::default(),
            condition: Condition::default(),
            logged: LoggedChange::default(),
            lateness: Lateness::default(),
            counts: Counts::default(),
        };
        Shard {
            name,
            tag,
            node: AtomicUsize::new(node.index()),
            up: Gate::default(),
            quick: Gate::default(),
            breakers: Mutex::new(breakers),
            troubled_ns: AtomicU64::new(0),
            round_trip_ns: AtomicU64::new(0),
            shortest_ns: AtomicU64::new(0),
            ahead_us: AtomicI64::new(0),
        }
    }

    /// Whether to send it an operation: it answers, or this one tests whether it does again.
    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.up.lets_through()
    }

    /// Whether a request should wait for it: it answers in time, or this request tests whether it does again. No
    /// request waits to test whether it answers at all; probes do that.
    #[inline]
    pub(super) fn is_quick(&self) -> bool {
        self.is_closed() && self.quick.lets_through()
    }

    /// Whether its breaker is closed. Unlike [`Shard::is_up`] it never lets a test through.
    pub(super) fn is_closed(&self) -> bool {
        self.up.phase.load(Ordering::Relaxed) == CLOSED
    }

    /// Whether it is known to answer, and in time.
    pub(super) fn is_well(&self) -> bool {
        self.is_closed() && self.quick.phase.load(Ordering::Relaxed) == CLOSED
    }

    #[inline]
    pub(super) fn place(&self) -> NodeId {
        NodeId::new(self.node.load(Ordering::Relaxed))
    }

    pub(super) fn move_to(&self, node: NodeId) {
        self.node.store(node.index(), Ordering::Relaxed);
    }

    pub(super) fn condition(&self) -> Condition {
        self.breakers().condition
    }

    pub(super) fn counts(&self) -> Counts {
        self.breakers().counts
    }

    pub(super) fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.breakers().counts);
    }

    /// Its condition and the error behind it; `None` if it answers, or nothing is known of it yet.
    pub(super) fn trouble(&self) -> Option<(Condition, String)> {
        let breakers = self.breakers();
        breakers.condition.is_trouble().then(|| (breakers.condition, breakers.logged.why.clone()))
    }

    #[inline]
    pub(super) fn round_trip_ns(&self) -> u64 {
        self.round_trip_ns.load(Ordering::Relaxed)
    }

    /// How long a request waits for it by default.
    #[inline]
    pub(super) fn deadline(&self) -> Duration {
        let shortest_ns = self.shortest_ns.load(Ordering::Relaxed);
        deadline_of(Duration::from_nanos(self.round_trip_ns()), Duration::from_nanos(shortest_ns))
    }

    /// Its clock read `read_us` at a time of this node's.
    pub(super) fn reads(&self, read_us: u64, at_ns: u64) {
        self.ahead_us
            .store((read_us.cast_signed()).saturating_sub_unsigned(at_ns / 1_000), Ordering::Relaxed);
    }

    /// What its clock reads at a time of this node's, microseconds since 1970; until it has said so, what this node's does.
    pub(super) fn clock_us(&self, at_ns: u64) -> u64 {
        match self.ahead_us.load(Ordering::Relaxed) {
            0 => clock::origin_s() * 1_000_000 + at_ns / 1_000,
            ahead_us => (at_ns / 1_000).saturating_add_signed(ahead_us),
        }
    }

    /// Adds a call's time to the round trip.
    pub(super) fn took(&self, took_ns: u64, now_ns: u64) {
        let mut breakers = self.breakers();
        breakers.call_durations.record(Duration::from_nanos(took_ns));
        let round_trip_ns = breakers.round_trip.took(took_ns, now_ns);
        self.shortest_ns.store(breakers.round_trip.shortest_ns(), Ordering::Relaxed);
        self.round_trip_ns.store(round_trip_ns, Ordering::Relaxed);
    }

    pub(super) fn call_durations(&self) -> Histogram {
        self.breakers().call_durations.clone()
    }

    /// The share of renewals that should go through now, percent.
    pub(super) fn ramp_percent(&self, now_ns: u64) -> u32 {
        self.breakers().up.ramp_percent(now_ns)
    }

    /// A call was answered after `took_ns`.
    pub(super) fn answered(&self, now_ns: u64, took_ns: u64, deadline_ns: u64) {
        let mut breakers = self.breakers();
        if took_ns <= deadline_ns {
            breakers.quick.succeeded(now_ns);
        }
        self.succeeded(&mut breakers, now_ns);
        self.publish(&breakers, now_ns);
        if now_ns.saturating_sub(self.troubled_ns.load(Ordering::Relaxed)) > CALM_NS {
            breakers.note(Condition::Up, "");
        }
    }

    /// A probe has gone through, so the shard can be used.
    pub(super) fn recovered(&self, now_ns: u64) {
        let mut breakers = self.breakers();
        self.succeeded(&mut breakers, now_ns);
        self.publish(&breakers, now_ns);
        if breakers.up.phase(now_ns) == Phase::Closed {
            breakers.note(Condition::Up, "");
        }
    }

    /// Counts a success. If trouble keeps coming back, successes count only after a while without any.
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
        let mut breakers = self.breakers();
        breakers.counts.late += 1;
        let jitter = breakers.random.next();
        breakers.quick.failed(now_ns, jitter);
        self.publish(&breakers, now_ns);
    }

    /// A call failed for a reason that may concern only that call.
    pub(super) fn failed(&self, now_ns: u64) {
        let mut breakers = self.breakers();
        let jitter = breakers.random.next();
        breakers.up.failed(now_ns, jitter);
        self.publish(&breakers, now_ns);
    }

    /// The shard reports an error that concerns every call, or cannot be reached.
    pub(super) fn troubled(&self, condition: Condition, why: &str, now_ns: u64) {
        self.troubled_ns.store(now_ns, Ordering::Relaxed);
        let mut breakers = self.breakers();
        let jitter = breakers.random.next();
        if breakers.up.phase(now_ns) == Phase::Closed {
            breakers.counts.opened += 1;
            breakers.relapses.begin(now_ns);
        }
        breakers.up.refused(now_ns, jitter);
        self.publish(&breakers, now_ns);
        breakers.note(condition, why);
    }

    /// Lets breakers whose pause is over go half-open.
    pub(super) fn look(&self, now_ns: u64) {
        let breakers = self.breakers();
        self.publish(&breakers, now_ns);
    }

    fn publish(&self, breakers: &Breakers, now_ns: u64) {
        self.up.set(breakers.up.phase(now_ns));
        self.quick.set(breakers.quick.phase(now_ns));
    }

    /// The change that is to be logged now; `None` if the condition is the one last logged. During one outage, and if
    /// trouble keeps coming back, a change is returned only every [`SAME_OUTAGE_LOGGED_NS`].
    pub(super) fn change(&self, now_ns: u64) -> Option<Change> {
        let Breakers { condition: now, logged, relapses, .. } = &mut *self.breakers();
        let now = *now;
        let is_same_outage = now.is_trouble() && logged.condition.is_trouble();
        let is_early = (relapses.are_many() || is_same_outage)
            && now_ns.saturating_sub(logged.at_ns) < SAME_OUTAGE_LOGGED_NS;
        if now == logged.condition || is_early {
            return None;
        }
        let before = std::mem::replace(&mut logged.condition, now);
        logged.at_ns = now_ns;
        Some(Change { before, now, why: logged.why.clone(), relapses: relapses.count })
    }

    /// Whether the log should say now that answers come late as a rule (`true`), or no longer do (`false`). Both are
    /// said only after they have been so for a while, and neither during an outage.
    pub(super) fn lateness_change(&self, now_ns: u64) -> Option<bool> {
        let (is_closed, is_late) = (self.is_closed(), !self.is_well());
        let lateness = &mut self.breakers().lateness;
        if !is_closed || is_late == lateness.is_logged {
            lateness.other_since_ns = 0;
            return None;
        }
        if lateness.other_since_ns == 0 {
            lateness.other_since_ns = now_ns;
        }
        let least_ns = if is_late { LATE_LOGGED_AFTER_NS } else { IN_TIME_LOGGED_AFTER_NS };
        if now_ns.saturating_sub(lateness.other_since_ns) < least_ns {
            return None;
        }
        *lateness = Lateness { is_logged: is_late, other_since_ns: 0 };
        Some(is_late)
    }

    fn breakers(&self) -> MutexGuard<'_, Breakers> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first [`TEXT_MAX`] bytes of a server's text, for a log line.
pub(super) fn clipped(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_MAX)]
}

const TEXT_MAX: usize = 300;
const CLOSED: u8 = 0;
const OPEN: u8 = 1;
const HALF_OPEN: u8 = 2;
/// How long after its last trouble a shard that answers counts as up, nanoseconds. Answers alone do not prove it,
/// because reads succeed on a server that refuses writes; a probe proves it at once.
const CALM_NS: u64 = 1_000_000_000;
/// Trouble that begins again within this time is a relapse, nanoseconds.
const RELAPSE_NS: u64 = 1_000_000_000;
/// Relapses up to this number are normal: the servers of a failover disagree for a moment.
const RELAPSES: u32 = 3;
/// After more relapses, trouble is over only once it has not shown for this long, nanoseconds.
const RELAPSED_NS: u64 = 300_000_000;
/// How long answers must come late, and in time again, before either is logged, nanoseconds.
const LATE_LOGGED_AFTER_NS: u64 = 1_000_000_000;
const IN_TIME_LOGGED_AFTER_NS: u64 = 5_000_000_000;
/// How often changes within one outage are logged, nanoseconds.
const SAME_OUTAGE_LOGGED_NS: u64 = 10_000_000_000;
