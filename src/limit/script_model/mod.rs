//! The Rust twin of the scripts that Redis runs for leases, for simulations and to test the scripts against. A gateway
//! uses it only to read records for operators; it decides nothing there.
//!
//! It uses floating point because Lua has nothing else. Twin and scripts do the same operations in the same order, so
//! their results are equal bit by bit.

mod bucket;
mod window;

use std::time::Duration;

use smallvec::SmallVec;

use super::lease_messages::{Grant, LentWindow, Renewal};
use super::plan::{EPOCH_MIN_NS, SMALL};
use super::{Algorithm, Plan};

/// Redis's record of one key, and what the scripts make of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScriptModel {
    bucket: Option<bucket::Record>,
    window: Option<window::Record>,
}

impl ScriptModel {
    /// The bytes that Redis stores for the key; `None` if it stores none.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        self.bucket.map(bucket::Record::to_bytes).or(self.window.map(window::Record::to_bytes))
    }

    /// Answers a renewal at `now_us` of Redis's clock, microseconds since 1970.
    pub fn renew(&mut self, renewal: &Renewal, now_us: u64) -> Grant {
        let asked = RenewalNumbers::asked(renewal, now_us);
        match renewal.plan.quota.algorithm() {
            Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                window::renew(&mut self.window, now_us as f64, &asked)
            }
            _ => bucket::renew(&mut self.bucket, now_us as f64, &asked),
        }
    }
}

/// Reads a record as of `now_us`, and for how long it has been unchanged, nanoseconds. `None` if the bytes are no
/// record.
pub fn look(record: &[u8], plan: &Plan, now_us: u64) -> Option<(LentWindow, u64)> {
    let asked = RenewalNumbers::of(plan, now_us);
    let (lent, at_us) = match plan.quota.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingWindow => window::look(record, now_us as f64, &asked)?,
        _ => bucket::look(record, now_us as f64, &asked)?,
    };
    Some((lent, ns(now_us as f64 - at_us)))
}

/// The state of a key without a record: nothing is spent.
pub fn untouched(plan: &Plan) -> LentWindow {
    LentWindow { level: plan.quota.capacity() as f64, ..LentWindow::default() }
}

/// Microseconds as nanoseconds, at least 0.
fn ns(us: f64) -> u64 {
    (us as u64).saturating_mul(1_000)
}

/// A renewal and its plan, in the numbers of a script.
#[derive(Clone, Debug, Default)]
struct RenewalNumbers {
    is_sliding: bool,
    /// A window that is lent until it ends.
    is_whole: bool,
    limit: f64,
    period_ns: f64,
    refill: f64,
    /// Of a window of the calendar: the number of the first, and when it and those that follow begin.
    edges: Option<(f64, [f64; 4])>,
    burst: f64,
    epoch_us: f64,
    epoch: f64,
    demand: f64,
    reported: f64,
    rate: f64,
    pending: f64,
    hint: f64,
    spent: f64,
    refilled: f64,
    delta: f64,
    keep: f64,
    release: bool,
    ahead: bool,
    /// What each waiting request costs, in order; empty if each costs one unit.
    costs: SmallVec<[f64; 4]>,
}

impl RenewalNumbers {
    fn asked(renewal: &Renewal, now_us: u64) -> RenewalNumbers {
        RenewalNumbers {
            epoch: f64::from(renewal.epoch),
            demand: renewal.demand,
            reported: renewal.reported,
            rate: renewal.rate,
            pending: renewal.pending as f64,
            hint: renewal.hint,
            spent: renewal.spent,
            refilled: renewal.refilled,
            delta: renewal.delta,
            keep: renewal.keep,
            release: renewal.release,
            ahead: renewal.ahead,
            costs: renewal.costs.iter().map(|cost| *cost as f64).collect(),
            ..RenewalNumbers::of(&renewal.plan, now_us)
        }
    }

    fn window_at(&self, period_us: f64, at_us: f64) -> f64 {
        let Some((first, starts_us)) = self.edges else { return (at_us / period_us).floor() };
        let last = starts_us.len() - 1;
        let place = starts_us.iter().rposition(|start_us| *start_us <= at_us).unwrap_or(0);
        let is_beyond = place == last || at_us < starts_us[0];
        let beyond = if is_beyond { ((at_us - starts_us[place]) / (period_us - 1.0)).floor() } else { 0.0 };
        first + place as f64 + beyond
    }

    fn window_start_us(&self, period_us: f64, index: f64) -> f64 {
        let Some((first, starts_us)) = self.edges else { return index * period_us };
        let near = (index - first).clamp(0.0, (starts_us.len() - 1) as f64);
        starts_us[near as usize] + (index - first - near) * (period_us - 1.0)
    }

    /// When the window of another calendar unit ends in which units were last spent, as far as the windows around now tell. It
    /// is over at the start of a longer one that they do not lie in, and days begin when that did; else it is the longest that
    /// it can be.
    fn calendar_ends_us(&self, now_us: f64, spent_us: f64, old_us: f64) -> f64 {
        let period_us = (self.period_ns / 1000.0).floor();
        let starts_us = self.window_start_us(period_us, self.window_at(period_us, now_us));
        if self.edges.is_none() || old_us >= period_us {
            return spent_us + old_us - 1.0;
        }
        if spent_us < starts_us {
            return starts_us;
        }
        if old_us - 1.0 > DAY_US {
            return spent_us + old_us - 1.0;
        }
        starts_us + (((spent_us - starts_us) / DAY_US).floor() + 1.0) * DAY_US
    }

    /// Units for future requests: none if a waiting request is refused and, if requests have costs of their own, none
    /// below what the waiting ones cost together.
    fn useful(&self, extra: f64, served: f64) -> f64 {
        let is_vain = served < self.pending || !self.costs.is_empty() && extra < self.pending;
        if is_vain { 0.0 } else { extra }
    }

    /// Whether so little refills in an epoch that leases would hold units which other nodes need. Units then go to the
    /// node that asks first.
    fn is_small(&self) -> bool {
        self.refill * (self.epoch_us / 1e6) < if self.ahead { SMALL_AHEAD } else { SMALL }
    }

    /// Units for the waiting requests out of `whole`: in their order, each gets all it costs or nothing.
    fn served(&self, whole: f64) -> f64 {
        if self.pending <= whole {
            return self.pending;
        }
        if self.costs.is_empty() {
            return whole.max(0.0);
        }
        let serve = |served: f64, cost: &f64| if served + cost <= whole { served + cost } else { served };
        self.costs.iter().fold(0.0, serve)
    }

    /// What a window may have spent: of a sliding one nearly a unit more than the limit, because what weighs of the window
    /// before is rounded down to a unit.
    fn whole(&self) -> f64 {
        if self.is_sliding { self.limit + NEARLY_ONE } else { self.limit }
    }

    /// The plan's numbers, with no renewal.
    fn of(plan: &Plan, now_us: u64) -> RenewalNumbers {
        let quota = &plan.quota;
        RenewalNumbers {
            is_sliding: quota.algorithm() == Algorithm::SlidingWindow,
            is_whole: plan.is_lent_whole(),
            // Of a plan without leases, to which units of an older one are returned, the shortest.
            epoch_us: match plan.sharing.epoch_ns {
                0 => EPOCH_MIN_NS / 1_000,
                epoch_ns => epoch_ns / 1_000,
            } as f64,
            edges: quota.calendar().map(|calendar| {
                let edges = calendar.edges(Duration::from_micros(now_us));
                (edges.first as f64, edges.starts_us.map(|start_us| start_us as f64))
            }),
            ..RenewalNumbers::default()
        }
        .under([quota.limit(), quota.period_ns()].map(|number| number.get() as f64), quota.capacity() as f64)
    }

    /// The same under another plan.
    fn under(self, [limit, period_ns]: [f64; 2], burst: f64) -> RenewalNumbers {
        RenewalNumbers { limit, period_ns, burst, refill: limit * 1e9 / period_ns, ..self }
    }
}

/// Less than a unit by more than sums of doubles lose.
const NEARLY_ONE: f64 = 1.0 - 1.0 / 1_048_576.0;

/// Packs a record as the scripts do: doubles, floats, the time since the epoch began, the two counts of nodes, and the plan.
/// Its key is kept for ever.
fn pack(doubles: &[f64], floats: &[f64], since_us: f64, nodes: [f64; 2], plan: &[f64]) -> Vec<u8> {
    let bytes = |doubles: &[f64]| doubles.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let doubles = bytes(doubles).into_iter();
    let floats = floats.iter().flat_map(|number| (*number as f32).to_le_bytes());
    let nodes = nodes.into_iter().flat_map(|number| (number as u16).to_le_bytes());
    doubles
        .chain(floats)
        .chain((since_us as u32 + STAYS_MAX * SINCE_US).to_le_bytes())
        .chain(nodes)
        .chain(bytes(plan))
        .collect()
}

/// Doubles, floats, the time since the epoch began and for how long the key is kept, the two counts of nodes, and the plan.
type PackedRecord<const D: usize, const F: usize, const P: usize> =
    ([f64; D], [f64; F], [f64; 2], [f64; 2], [f64; P]);

/// Reads the bytes of [`pack`]. In a record from Redis the upper 13 bits of the time say for how many seconds the key is
/// kept.
fn unpack<const D: usize, const F: usize, const P: usize>(record: &[u8]) -> Option<PackedRecord<D, F, P>> {
    let mut rest = record;
    let doubles = doubles(&mut rest)?;
    let mut floats = [0.0; F];
    for float in &mut floats {
        *float = f64::from(f32::from_le_bytes(split(&mut rest)?));
    }
    let since_us = u32::from_le_bytes(split(&mut rest)?);
    let nodes = [split(&mut rest)?, split(&mut rest)?].map(u16::from_le_bytes);
    let plan = self::doubles(&mut rest)?;
    let times = [since_us % SINCE_US, since_us / SINCE_US];
    rest.is_empty().then(|| (doubles, floats, times.map(f64::from), nodes.map(f64::from), plan))
}

fn doubles<const N: usize>(rest: &mut &[u8]) -> Option<[f64; N]> {
    let mut doubles = [0.0; N];
    for double in &mut doubles {
        *double = f64::from_le_bytes(split(rest)?);
    }
    Some(doubles)
}

fn split<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (chunk, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*chunk)
}

/// Whether a number of a record may be one that a script wrote: see lua/arithmetic.lua.
fn is_count(number: f64) -> bool {
    (0.0..EXACT).contains(&number)
}

/// Whether a record with this period is of the calendar.
fn is_calendar(period_us: f64) -> bool {
    period_us > 1.0 && (period_us - 1.0) % DAY_US == 0.0
}

fn is_plan([limit, period_ns, burst]: [f64; 3]) -> bool {
    let is_period = (1.0..=u64::MAX as f64 / 1_000.0).contains(&(period_ns / 1_000.0));
    is_period && [limit, burst].into_iter().all(|number| number >= 1.0 && is_count(number))
}

/// Whole numbers below this are exact.
const EXACT: f64 = (1_u64 << 53) as f64;
/// A day: windows of the calendar are longer than their period by less.
const DAY_US: f64 = 86_400e6;
/// The most whole buckets that a debt may be.
const DEEPEST: f64 = (1 << 20) as f64;
/// Ticks since an epoch began are below this.
const SINCE_US: u32 = 1 << 19;
/// For how many seconds a record says that its key is kept, if it is so long or longer.
const STAYS_MAX: u32 = (1 << 13) - 1;

/// A number as it is read back after it was stored as a float.
fn float(number: f64) -> f64 {
    f64::from(number as f32)
}

/// The fleet's demand: the higher of the last epoch's and this epoch's. Two bounds let it fall quickly after a rush: the
/// demand reported in this epoch plus the last epoch's for the part of the fleet that has not reported yet, and the demand
/// if all nodes wanted as much as those that have reported.
fn wanted_of(wanted: [f64; 2], nodes: [f64; 2]) -> f64 {
    let silent = (1.0 - nodes[1] / nodes[0].max(1.0)).max(0.0);
    let alike = wanted[1] * (nodes[0] / nodes[1].max(1.0)).max(1.0);
    wanted[0].max(wanted[1]).min(wanted[1] + wanted[0] * silent).min(alike)
}

/// A node's share of what all want, at least half of an even share.
fn share_of(all: f64, nodes: [f64; 2], demand: f64) -> f64 {
    (demand / all).min(1.0).max(0.5 / nodes[0].max(nodes[1]).max(1.0))
}

/// Units that all nodes may hold for future requests: what refills in this many epochs,
const LENT_EPOCHS: f64 = 2.0;
/// or, if that is more, the units left divided by this.
const LENT_SHARE: f64 = 100.0;
/// A limit that refills fewer units than this in an epoch is small for a node that asks for its lease ahead of need.
const SMALL_AHEAD: f64 = 1.5;

#[cfg(test)]
mod tests;
