//! The twin of lua/window_lease.lua: names, order of operations and rounding are the script's.

use super::bucket::number_of;
use super::{DAY_US, float, is_calendar, is_count, is_plan, ns, pack, share_of, unpack, wanted_of};
use super::{GrantNumbers, LENT_EPOCHS, LENT_SHARE, RenewalNumbers};
use crate::lease_messages::LentWindow;

/// The record that Redis keeps of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Record {
    at_us: f64,
    /// Units granted in this window, and spent in the one before; of the calendar, when units were last granted, so that they are
    /// found again under another zone or anchor.
    current: f64,
    previous: f64,
    /// Demand reported in this epoch, and in the last, units a second.
    wanted: f64,
    wanted_before: f64,
    /// Units granted in this epoch, and in the last.
    out: f64,
    out_before: f64,
    /// Time since the epoch began.
    since_us: f64,
    /// How many nodes reported in this epoch, and in the last.
    nodes: f64,
    nodes_before: f64,
    /// The plan it was written under: limit, period.
    plan: [f64; 2],
}

impl Record {
    /// The bytes that the script stores.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let doubles = [self.at_us, self.current, self.previous];
        let floats = [self.wanted, self.wanted_before, self.out, self.out_before];
        pack(&doubles, &floats, self.since_us, [self.nodes, self.nodes_before], &self.plan)
    }

    /// One of which nothing is spent.
    fn fresh(now_us: f64, r: &RenewalNumbers) -> Record {
        Record { at_us: now_us, previous: r.edges.map_or(0.0, |_| now_us), ..Record::default() }
    }

    /// Whether a script may have written it.
    fn is_sound(&self, r: &RenewalNumbers) -> bool {
        let counts = [self.at_us, self.current, self.previous, self.wanted, self.wanted_before];
        let [limit, period_ns] = self.plan;
        let is_near = (self.previous - self.at_us).abs() <= (r.period_ns / 1000.0).floor() + DAY_US;
        (period_ns == r.period_ns || is_plan([limit, period_ns, limit]))
            && (r.edges.is_none() || period_ns != r.period_ns || is_near)
            && counts.into_iter().chain([self.out, self.out_before]).all(is_count)
    }

    /// The record as it is stored and read back: some numbers are floats.
    fn packed(self, r: &RenewalNumbers) -> Record {
        Record {
            since_us: if r.is_whole { 0.0 } else { self.since_us },
            wanted: float(self.wanted),
            wanted_before: float(self.wanted_before),
            out: float(self.out),
            out_before: float(self.out_before),
            plan: [r.limit, r.period_ns],
            ..self
        }
    }
}

/// A record advanced to the present, with its epoch and window.
struct Open {
    record: Record,
    /// What the clock says, which may be before the record.
    clock_us: f64,
    number: f64,
    ends_us: f64,
    window_ends_us: f64,
    period_us: f64,
    window_starts_us: f64,
}

impl Open {
    fn spent(&self, r: &RenewalNumbers) -> f64 {
        self.aging(r) + self.record.current
    }

    /// What the window before counts for, which becomes free until this one ends.
    fn aging(&self, r: &RenewalNumbers) -> f64 {
        let s = &self.record;
        if !r.is_sliding {
            return 0.0;
        }
        s.previous * ((self.window_ends_us - s.at_us) / self.period_us)
    }

    /// Time until `units` are left if no node spends any, microseconds.
    fn wait_us(&self, r: &RenewalNumbers, units: f64) -> f64 {
        let s = &self.record;
        let most = r.whole() - units;
        if self.spent(r) <= most {
            return 0.0;
        }
        let ends_us = self.window_ends_us - self.clock_us;
        if !r.is_sliding || most < 0.0 {
            return ends_us;
        }
        if s.current <= most {
            return (ends_us - self.period_us * ((most - s.current) / s.previous)).ceil().max(1.0);
        }
        ends_us + (self.period_us - self.period_us * (most / s.current)).ceil().max(0.0)
    }

    /// How long a lease lasts: its units are spent or too old before the window ends.
    fn lasts_us(&self, r: &RenewalNumbers) -> f64 {
        let age_us = if r.is_whole { 0.0 } else { (r.epoch_us / 5.0).floor() };
        (self.ends_us.min(self.window_ends_us - age_us) - self.record.at_us).max(0.0)
    }

    /// What all nodes want, units a second.
    fn wanted(&self) -> f64 {
        let s = &self.record;
        wanted_of([s.wanted_before, s.wanted], [s.nodes_before, s.nodes])
    }

    fn share(&self, all: f64, demand: f64) -> f64 {
        share_of(all, [self.record.nodes_before, self.record.nodes], demand)
    }

    /// For how long a node denies on its own when a window leaves it nothing.
    fn deny_us(&self, r: &RenewalNumbers, demand: f64, rate: f64) -> f64 {
        let (s, lasts_us, all) = (&self.record, self.lasts_us(r), self.wanted());
        let share = self.share(all, demand);
        if !r.is_whole {
            let is_over = r.whole() - self.spent(r) < 1.0;
            return self.wait_us(r, if is_over { (batch(r) * share).max(1.0) } else { 1.0 });
        }
        let (wait_us, is_short) = if r.is_sliding {
            let wait_us = self.wait_us(r, least_useful(r, demand, share).max(1.0)).min(lasts_us);
            (wait_us, rate < 0.5 * (r.refill * share).min(demand) && all < 9.0 * r.refill)
        } else {
            let gone_s = (s.at_us - self.window_starts_us) / 1e6;
            (self.wait_us(r, 1.0), s.current - all * gone_s > r.limit / 20.0)
        };
        if is_short { wait_us.min((self.period_us / 20.0).floor()) } else { wait_us }
    }

    /// Books what a lease returns or owes, in the window in which it was granted.
    fn settle(&mut self, r: &RenewalNumbers, delta: f64) {
        let s = &mut self.record;
        let given_us = given_us(r.epoch, s.at_us);
        let starts_us = self.window_starts_us;
        if delta > 0.0 {
            s.current = (s.current + delta).min(s.current.max(2.0 * r.limit));
        } else if given_us >= starts_us {
            s.current = (s.current + delta).max(0.0);
        } else if r.is_sliding && given_us >= starts_us - self.period_us {
            s.previous = (s.previous + delta).max(0.0);
        }
        if r.edges.is_some() && (delta > 0.0 || s.previous > s.at_us) {
            s.previous = s.at_us;
        }
    }
}

/// Reads a record as of `now_us`, and when it was last changed; `None` if the bytes are no record.
pub(super) fn look(record: &[u8], now_us: f64, r: &RenewalNumbers) -> Option<(LentWindow, f64)> {
    let ([at_us, current, previous], floats, [since_us, _], [nodes, nodes_before], plan) = unpack(record)?;
    let [wanted, wanted_before, out, out_before] = floats;
    let saved = Record {
        at_us,
        current,
        previous,
        wanted,
        wanted_before,
        out,
        out_before,
        since_us,
        nodes,
        nodes_before,
        plan,
    };
    let saved = Some(saved).filter(|saved| saved.is_sound(r))?;
    let open = open(Some(saved), now_us, r);
    let s = &open.record;
    let lent = LentWindow {
        level: r.limit - open.spent(r),
        out: s.out + s.out_before,
        promised: 0.0,
        nodes: s.nodes.max(s.nodes_before) as u32,
        lasts_ns: ns(open.ends_us - s.at_us),
    };
    Some((lent, at_us))
}

pub(super) fn renew(saved: &mut Option<Record>, now_us: f64, r: &RenewalNumbers) -> GrantNumbers {
    let mut open = open(*saved, now_us, r);
    let is_first = r.epoch != open.number;
    open.settle(r, r.delta);
    let is_new = given_us(r.epoch, open.record.at_us) < open.window_starts_us;
    let s = &mut open.record;
    if !is_first {
        s.out = (s.out - r.spent + r.delta).max(0.0);
    } else if !is_new {
        s.out_before = (s.out_before - r.spent + r.delta - r.keep).max(0.0);
    }
    let mut rate = if is_first || !r.is_whole { 0.0 } else { r.rate };
    if r.release {
        if !is_first {
            s.wanted = (s.wanted - r.reported).max(0.0);
            s.nodes = (s.nodes - 1.0).max(0.0);
            s.previous += rate * (open.period_us / 1e6);
        }
        *saved = Some(s.packed(r));
        return GrantNumbers {
            epoch: open.number,
            level: r.limit - open.spent(r),
            ..GrantNumbers::default()
        };
    }
    let (mut reported, demand) = (r.reported, r.demand.max(0.001));
    if is_first {
        reported = 0.0;
        s.nodes = (s.nodes + 1.0).min(65535.0);
        s.out += r.keep;
        // Units kept from another window count here, because they will be spent in this one.
        if is_new {
            s.current += r.keep;
        }
    }
    s.wanted = (s.wanted + demand - reported).max(demand);
    let lasts_us = open.lasts_us(r);
    let (served, extra, later) = lend(&open, r, demand, rate, lasts_us);
    let s = &mut open.record;
    if later > 0.0 {
        s.previous = (s.previous - later * (open.period_us / lasts_us)).max(0.0);
        rate += later / (lasts_us / 1e6);
    }
    if r.edges.is_some() && served + extra + r.keep > 0.0 {
        s.previous = s.at_us;
    }
    s.current += served + extra + later;
    s.out += extra + later;
    let tokens = served + extra;
    let deny_us = open.deny_us(r, demand, rate);
    let dearest = r.costs.iter().copied().fold(1.0, f64::max);
    let wait_us = if served < r.pending { open.wait_us(r, dearest) } else { 0.0 };
    let level = r.limit - open.spent(r);
    *saved = Some(open.record.packed(r));
    GrantNumbers { epoch: open.number, tokens, rate, lasts_us, deny_us, level, wait_us }
}

/// Units for waiting requests, units for future ones, and those of them that become free only until the window ends.
fn lend(open: &Open, r: &RenewalNumbers, demand: f64, rate: f64, lasts_us: f64) -> (f64, f64, f64) {
    let (left, s, left_s) = (r.whole() - open.spent(r), &open.record, lasts_us / 1e6);
    let served = r.served(left.floor());
    let is_vain = served < r.pending && !(r.is_whole && r.costs.is_empty());
    if lasts_us == 0.0 || demand * (r.epoch_us / 1e6) < THIN || is_vain {
        return (served, 0.0, 0.0);
    }
    let all = open.wanted();
    let part = open.share(all, demand);
    let (extra, later) = if r.is_whole {
        let unserved = if r.epoch == open.number { all } else { all - (s.wanted - demand) };
        let coming = open.aging(r);
        let spare = left + coming - unserved * left_s;
        let most = if s.nodes_before == 0.0 { left / NEWCOMERS } else { left };
        Portion { left, most, coming, wanted: all * left_s, spare, share: open.share(unserved, demand), part }
            .part_of(r, demand, rate, left_s)
    } else {
        (extra(open, r, left, part, demand, left_s), 0.0)
    };
    let is_little = !r.costs.is_empty() && extra < r.pending;
    if is_little { (served, 0.0, 0.0) } else { (served, extra, later) }
}

/// What there is of a window that is lent whole.
struct Portion {
    /// Units that are left, and that become free and are not lent.
    left: f64,
    /// The most of them for future requests.
    most: f64,
    coming: f64,
    /// What all nodes are expected to want until the window ends, and what is left if those want it who have not had their
    /// share.
    wanted: f64,
    spare: f64,
    /// A node's share of what those want, and of what all want.
    share: f64,
    part: f64,
}

impl Portion {
    /// Units for a node's future requests, and those that become free until the window ends, which is in `left_s`.
    fn part_of(&self, r: &RenewalNumbers, demand: f64, mut rate: f64, left_s: f64) -> (f64, f64) {
        let (expected, held) = (demand * left_s, r.keep + rate * left_s);
        // Of requests with costs of their own none is certain to fit into what a node holds.
        let certain = if r.costs.is_empty() { expected } else { 0.0 };
        let (doubt, least) = (expected.sqrt(), least_useful(r, demand, self.part).min(certain));
        let mut later = self.coming * self.share;
        // What nodes have not spent of a rate when the window ends is lost, a unit or more each: they share little first come,
        // first served.
        let least_apart = if self.part < 0.2 { 100.0 } else { 40.0 };
        if r.limit * self.part < least_apart || rate == 0.0 && later < 10.0 {
            later = 0.0;
        }
        let now = ((self.left * self.share).min(self.most).max(least) - r.pending)
            .min(self.left.floor() - r.pending)
            .max(0.0);
        let sure = (certain - 1.5 * doubt - held).max(0.0);
        let mut most = (now + later).min(certain + self.spare.max(0.0) * self.part - held);
        if sure < most {
            most = sure + (most - sure) * (0.5 + 0.5 * (self.spare.max(0.0) / self.wanted).min(1.0));
        }
        let need = (1.2 * expected + 2.0 * doubt - held).min(most.max(least)).max(0.0);
        // Units at once are for a while only, because other nodes miss them if traffic moves.
        let soon = expected.min((demand * (r.epoch_us / 8e6)).max(MANY));
        let slack = 2.0 * soon.sqrt();
        later = later.min(need - slack.min(now).min(need));
        if later < 1.0 {
            later = 0.0;
        }
        rate += later / left_s;
        let at_once = (1.2 * soon + slack - r.keep - rate * (soon / demand)).max(0.0);
        ((need - later).min(now).min(at_once.max(least)).floor(), later)
    }
}

/// Fewer units than this are not worth a message. `share`: the node's of the limit.
fn least_useful(r: &RenewalNumbers, demand: f64, share: f64) -> f64 {
    (demand * 0.02 + 2.0).min(8.0).min(r.limit / 50.0).min(r.limit * share / 10.0)
}

/// Units of a long sliding window that become free while nodes deny on their own. Then each gets its share of them at once,
/// because a node that asks for each as it becomes free asks for nearly every request.
fn batch(r: &RenewalNumbers) -> f64 {
    let per_epoch = r.refill * (r.epoch_us / 1e6);
    if r.is_sliding && !r.is_whole { (r.limit / 80.0).min(per_epoch / 2.0) } else { 0.0 }
}

/// Of another window: units for future requests.
fn extra(open: &Open, r: &RenewalNumbers, left: f64, mut share: f64, demand: f64, left_s: f64) -> f64 {
    let s = &open.record;
    let due = batch(r) * share;
    if share >= 0.25 {
        share /= 2.0;
    }
    let dither = (s.at_us - (s.at_us / 1000.0).floor() * 1000.0) / 1000.0;
    let need = (1.2 * demand * left_s + 2.0 * (demand * left_s).sqrt() - r.keep).max(0.0);
    let lendable =
        (r.refill * (r.epoch_us / 1e6) * LENT_EPOCHS).max(left / LENT_SHARE) - s.out - s.out_before;
    let most = (due.max(left * share + dither) - r.pending).min(lendable).min(left.floor() - r.pending);
    need.min(most).floor().max(0.0)
}

/// The end of the millisecond in which the epoch of this number began, at the last time before `now_us` that the number
/// was used. A renewal without an epoch counts as of now.
fn given_us(number: f64, now_us: f64) -> f64 {
    if number == 0.0 {
        return now_us;
    }
    let now_ms = (now_us / 1000.0).floor();
    let ago_ms = now_ms - (number - 1.0);
    (now_ms + 1.0 - (ago_ms - (ago_ms / 16777215.0).floor() * 16777215.0)) * 1000.0
}

/// A record under another period: what is spent as of now. A changed limit leaves the units as they are.
fn carried(saved: Record, now_us: f64, r: &RenewalNumbers) -> Record {
    let [limit, period_ns] = saved.plan;
    if period_ns == r.period_ns {
        return saved;
    }
    let period_us = (period_ns / 1000.0).floor();
    let (mut index, mut then) = ((now_us / period_us).floor(), (saved.at_us / period_us).floor());
    let mut previous = saved.previous;
    if is_calendar(period_us) {
        let is_over = now_us >= r.calendar_ends_us(now_us, previous, period_us);
        (index, then, previous) = (if is_over { 2.0 } else { 0.0 }, 0.0, 0.0);
    }
    let (mut spent, before) = match index - then {
        ..=0.0 => (saved.current, previous),
        1.0 => (0.0, saved.current),
        _ => (0.0, 0.0),
    };
    if r.is_sliding {
        spent += before * (period_us - (now_us - index.max(then) * period_us).max(0.0)) / period_us;
    }
    Record { current: spent.min(r.limit + (spent - limit).max(0.0)), ..Record::fresh(now_us, r) }
}

fn open(saved: Option<Record>, now_us: f64, r: &RenewalNumbers) -> Open {
    let period_us = (r.period_ns / 1000.0).floor();
    let (clock_us, mut now_us) = (now_us, now_us);
    let mut s = Record::fresh(now_us, r);
    if let Some(saved) = saved {
        s = carried(saved, now_us, r);
        // If the clock was set back into the window before, the record's time and window are used until the clock is there.
        let is_far = s.at_us > now_us + 2.0 * r.epoch_us;
        if is_far && r.window_at(period_us, s.at_us) != r.window_at(period_us, now_us) + 1.0 {
            s.at_us = now_us;
        }
        now_us = now_us.max(s.at_us);
    }
    let index = r.window_at(period_us, now_us);
    let starts_us = r.window_start_us(period_us, index);
    let (spent_us, window_ends_us) = match r.edges {
        None => (s.at_us, starts_us + period_us),
        Some(_) => (s.previous.min(s.at_us), r.window_start_us(period_us, index + 1.0)),
    };
    let ahead = index - r.window_at(period_us, spent_us);
    if ahead >= 1.0 {
        s.previous = match r.edges {
            Some(_) => now_us,
            None if ahead == 1.0 => s.current,
            None => 0.0,
        };
        s.current = 0.0;
    }
    let mut begins_us = if r.is_whole { (index - ahead) * period_us } else { s.at_us - s.since_us };
    if ahead >= 1.0 || now_us >= begins_us + r.epoch_us {
        let turns = ((now_us - begins_us) / r.epoch_us).floor();
        (s.wanted_before, s.nodes_before) = if turns <= 1.0 { (s.wanted, s.nodes) } else { (0.0, 0.0) };
        // Units of an earlier window cannot be spent any more.
        s.out_before = if ahead >= 1.0 { 0.0 } else { s.out_before + s.out };
        (s.wanted, s.nodes, s.out) = (0.0, 0.0, 0.0);
        begins_us = (begins_us + turns * r.epoch_us).max(starts_us);
    }
    s.at_us = now_us;
    s.since_us = now_us - begins_us;
    Open {
        record: s,
        clock_us,
        number: number_of(begins_us),
        ends_us: (begins_us + r.epoch_us).min(window_ends_us),
        window_ends_us,
        period_us,
        window_starts_us: starts_us,
    }
}

/// A node with a demand below this many units an epoch is granted only what requests wait for, because it would return
/// the rest.
const THIN: f64 = 1.0;
/// Until a window has shown which nodes want a key, one of them is granted this part of what is left, because others may have
/// the same burst.
const NEWCOMERS: f64 = 4.0;
/// A node is granted units for so many requests at least.
const MANY: f64 = 64.0;
