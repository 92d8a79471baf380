//! The twin of lua/lease.lua: names, order of operations and rounding are the script's.

use super::{DEEPEST, EXACT, LENT_EPOCHS, LENT_SHARE, RenewalNumbers, STAYS_MAX};
use super::{float, is_count, is_plan, ns, pack, share_of, unpack, wanted_of};
use crate::lease_messages::{Grant, LentWindow};

/// The record that Redis keeps of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Record {
    at_us: f64,
    level: f64,
    /// Sum of the rates granted in this epoch, units a second.
    promised: f64,
    /// Demand reported in this epoch, and in the last, units a second.
    wanted: f64,
    wanted_before: f64,
    /// Units granted in this epoch, and in the last.
    out: f64,
    out_before: f64,
    /// For how long the bucket did not refill in this epoch, and in the last, because it was full with what nodes held: parts of
    /// an epoch (`FULL_PARTS`), less what refilled after all.
    full: f64,
    full_before: f64,
    /// It has been full since it last refused.
    is_unrefused: bool,
    /// Time since the epoch began; in a record that is stored, in ticks.
    since_us: f64,
    /// How many epochs have ended, up to two, since the bucket last refilled in place of units too old to be spent.
    calm: f64,
    /// How many nodes reported in this epoch, and in the last.
    nodes: f64,
    nodes_before: f64,
    /// The plan it was written under: limit, period, burst.
    plan: [f64; 3],
}

impl Record {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let floats = [self.promised, self.wanted, self.wanted_before, self.out, self.out_before];
        let nodes = [self.nodes, self.nodes_before];
        pack(&[self.at_us + MARK_US + self.calm, self.level], &floats, self.since_us, nodes, &self.plan)
    }

    /// Units that nodes may hold unspent: those granted in this epoch and accrued since, and those of the last epoch
    /// unless they are too old to be spent.
    fn unspent(&self, is_aged: bool) -> f64 {
        let aging = if is_aged { 0.0 } else { self.out_before };
        self.out + self.promised * (self.since_us / 1e6) + aging
    }

    /// Drops from the units that nodes held too long those in whose place the bucket has refilled; `held`: what others hold.
    fn drop_refilled(&mut self, burst: f64, held: f64) {
        let missing = (burst - held.max(0.0) - self.level).max(0.0);
        if missing < self.out_before {
            (self.out_before, self.calm) = (missing, 0.0);
        }
    }

    /// Refills now what was due while the bucket was full: as much as a node says that would have refilled in place of what it
    /// spent, if the bucket was full for so long since the node's last report. Of a lease that is not of this epoch or the
    /// last, and of one too old to be spent, nothing.
    fn make_good(&mut self, r: &RenewalNumbers, is_first: bool, is_aged: bool, ends_us: f64) {
        let is_old = is_first && (is_aged || r.epoch != number_of(ends_us - 2.0 * r.epoch_us));
        if r.refilled <= 0.0 || r.release || is_old {
            return;
        }
        let noted = note_of(r.rate);
        let (before, since) = match is_first {
            true => ((self.full_before - noted).max(0.0), self.full),
            false => (0.0, (self.full - noted).max(0.0)),
        };
        let part = r.refill * (r.epoch_us / 1e6) / FULL_PARTS;
        let room = r.burst - self.unspent(is_aged).max(0.0) - self.level;
        let units = r.refilled.min((before + since) * part).min(room).max(0.0);
        self.level += units;
        self.full_before -= (units / part).min(before);
        self.full -= (units / part - before).max(0.0);
    }

    /// Whether a script may have written it. A bucket is full before its key expires, `stays_s` after the record's second;
    /// or later, if that is the most that a record can say.
    fn is_sound(&self, stays_s: f64) -> bool {
        let [limit, period_ns, burst] = self.plan;
        let full_us = self.at_us + (burst - self.level) / (limit * 1e9 / period_ns) * 1e6;
        let counts = [self.at_us, self.promised, self.wanted, self.wanted_before];
        is_plan(self.plan)
            && counts.into_iter().all(is_count)
            && (-DEEPEST * burst..=burst).contains(&self.level)
            && [self.out, self.out_before].into_iter().all(|units| units.abs() < EXACT)
            && (stays_s == f64::from(STAYS_MAX) || full_us <= ((self.at_us / 1e6).floor() + stays_s) * 1e6)
    }

    /// The record as it is stored and read back: some numbers are floats.
    fn packed(self, r: &RenewalNumbers) -> Record {
        let [full, full_before] = [self.full, self.full_before].map(whole_parts);
        let high = (full / 256.0).floor() + (full_before / 256.0).floor() * 16.0;
        Record {
            promised: counting(self.promised, high),
            wanted: counting(self.wanted, full % 256.0),
            wanted_before: counting(self.wanted_before, full_before % 256.0),
            full,
            full_before,
            out: float(self.out),
            out_before: counting(self.out_before, FULL_MARK + f64::from(u8::from(self.is_unrefused))),
            plan: [r.limit, r.period_ns, r.burst],
            since_us: (self.since_us / TICK_US).floor(),
            ..self
        }
    }
}

/// A record advanced to the present, with its epoch.
struct Open {
    record: Record,
    /// The epoch's number in grants.
    number: f64,
    ends_us: f64,
    /// Whether units granted before this epoch are too old to be spent.
    is_aged: bool,
    /// How much less a lower limit holds than the plan that the record goes on under, because it does not fit; else 0.
    less: f64,
}

/// Reads a record as of `now_us`, and when it was last changed; `None` if the bytes are no record.
pub(super) fn look(record: &[u8], now_us: f64, r: &RenewalNumbers) -> Option<(LentWindow, f64)> {
    let ([at_us, level], floats, [since_us, stays_s], [nodes, nodes_before], plan) = unpack(record)?;
    let [promised, wanted, wanted_before, out, out_before] = floats;
    let mark_us = at_us.rem_euclid(TICK_US);
    let (at_us, calm) = (at_us - mark_us, (mark_us - MARK_US).max(0.0));
    let [high, full, full_before, mark] = [promised, wanted, wanted_before, out_before]
        .map(|number| f64::from((number as f32).to_bits() & 0xff));
    let (full, full_before) = (full + high % 16.0 * 256.0, full_before + (high / 16.0).floor() * 256.0);
    let is_counted = [FULL_MARK, FULL_MARK + 1.0].contains(&mark);
    let [full, full_before] = [full, full_before].map(|parts| if is_counted { parts } else { 0.0 });
    let saved = Record {
        at_us,
        calm,
        level,
        promised,
        wanted,
        wanted_before,
        full,
        full_before,
        is_unrefused: mark == FULL_MARK + 1.0,
        out,
        out_before,
        since_us,
        nodes,
        nodes_before,
        plan,
    };
    let saved = Some(saved).filter(|saved| saved.is_sound(stays_s))?;
    let Open { record: s, ends_us, is_aged, less, .. } = open_any(Some(saved), now_us, r);
    let lent = LentWindow {
        level: s.level - less,
        out: s.unspent(is_aged).max(0.0),
        promised: s.promised,
        nodes: s.nodes.max(s.nodes_before) as u32,
        lasts_ns: ns(ends_us - s.at_us),
    };
    Some((lent, at_us))
}

pub(super) fn renew(saved: &mut Option<Record>, now_us: f64, r: &RenewalNumbers) -> Grant {
    let Open { record: mut s, number, ends_us, is_aged, less } = open_any(*saved, now_us, r);
    let old = (less > 0.0).then(|| r.clone().under([s.plan[0], s.plan[1]], s.plan[2]));
    let (limit, r) = (r.limit, old.as_ref().unwrap_or(r));
    let left_s = (ends_us - s.at_us) / 1e6;
    let is_first = r.epoch != number;
    settle(&mut s, r, is_first, is_aged, ends_us);
    s.make_good(r, is_first, is_aged, ends_us);
    if r.release {
        if !is_first {
            s.promised = 0f64.max(s.promised - r.rate);
            s.out += r.rate * (r.epoch_us / 1e6);
            s.wanted = 0f64.max(s.wanted - r.reported);
            s.nodes = 0f64.max(s.nodes - 1.0);
        }
        *saved = Some(s.packed(r));
        return Grant { epoch: number as u32, level: s.level - less, ..Grant::default() };
    }
    if less > 0.0 {
        *saved = Some(s.packed(r));
        // The next unit comes as under the old plan. Nodes count by the new one, so they are told the level of which it comes then.
        let missing = 1.0 - (s.level - less);
        let (lasts_ns, deny_ns) = (ns(ends_us - s.at_us), ns((missing / r.refill * 1e6).floor()));
        let level = 1.0 - missing * limit / r.limit;
        return Grant { epoch: number as u32, lasts_ns, deny_ns, level, ..Grant::default() };
    }
    let demand = r.demand.max(0.001);
    let (rate, reported) = if is_first { (0.0, 0.0) } else { (r.rate, r.reported) };
    s.nodes = (s.nodes + f64::from(u8::from(is_first))).min(65535.0);
    s.wanted = (s.wanted + demand - reported).max(demand);
    let nodes = [s.nodes_before, s.nodes];
    let share = share_of(wanted_of([s.wanted_before, s.wanted], nodes), nodes, demand);
    let known = s.nodes.max(s.nodes_before);
    let is_divided = s.is_unrefused && !r.is_small() && known <= FEW_NODES;
    let is_unlent = is_divided && s.level < (LAST_UNITS * (known - 1.0)).min(r.burst / 2.0);
    let is_tight = is_divided && known > 1.0 && is_tight(&s, r);
    let is_rateless = is_tight && s.level < per_epoch(r) * RATELESS_EPOCHS + LAST_UNITS * (known - 1.0);
    let mut n = Node { demand, share, rate, is_first, left_s, is_divided, is_unlent, is_tight, is_rateless };
    lease_rate(&mut s, r, &mut n);
    let (tokens, part) = lease_tokens(&mut s, r, &n, is_aged);
    s.is_unrefused &= tokens >= r.pending;
    let is_served = is_unlent && s.is_unrefused;
    let deny_us = if is_served { 0.0 } else { lease_deny(&s, r, &n, part) };
    let rate = n.rate;
    *saved = Some(s.packed(r));
    let (lasts_ns, deny_ns) = (ns(ends_us - s.at_us), ns(deny_us));
    Grant { epoch: number as u32, tokens, rate, lasts_ns, deny_ns, level: s.level, wait_ns: 0 }
}

/// Opens a record of any plan. One of another is advanced under that, and then carried over: what was spent stays spent.
fn open_any(saved: Option<Record>, now_us: f64, r: &RenewalNumbers) -> Open {
    let Some(changed) = saved.filter(|saved| saved.plan != [r.limit, r.period_ns, r.burst]) else {
        return open(saved, now_us, r);
    };
    let [limit, period_ns, burst] = changed.plan;
    let old = r.clone().under([limit, period_ns], burst);
    let mut open = open(saved, now_us, &old);
    let (less, s) = (burst - r.burst, &mut open.record);
    (s.full, s.full_before) = (0.0, 0.0);
    let smaller = if less > 0.0 { r.burst / burst } else { 1.0 };
    let slower = if r.refill < old.refill { r.refill / old.refill } else { 1.0 };
    // Of what they hold, nodes keep a share as large as that of the limit; the rest is here. What is too old to be spent may
    // be returned as far as the bucket has not refilled in its place.
    let accrued = s.promised * (s.since_us / 1e6);
    let lent = s.out + accrued;
    let missing = (burst - lent.max(0.0) - s.level).max(0.0);
    let aging = if open.is_aged { s.out_before.min(missing) } else { s.out_before };
    let freed = ((lent + aging) * (1.0 - smaller)).min(burst - s.level).max(0.0);
    if period_ns == r.period_ns && s.level + freed - less < -DEEPEST * r.burst {
        // No limit was ever that far above this one: nothing is left.
        let mut nothing = self::open(None, now_us, r);
        (nothing.record.level, nothing.record.is_unrefused) = (0.0, false);
        return nothing;
    }
    if less > 0.0 && period_ns == r.period_ns && s.level + freed < less {
        return Open { less, ..open };
    }
    s.level += freed;
    (s.promised, s.calm) = (s.promised * slower, 0.0);
    (s.out, s.out_before) = (lent * smaller - accrued * slower, s.out_before * smaller);
    // What another period's limit does not hold is forgiven; a debt is not.
    let (debt, spent) = ((-s.level).max(0.0), burst - s.level);
    s.level = (r.burst - spent.min(r.burst + debt)).max(-DEEPEST * r.burst);
    open
}

fn open(saved: Option<Record>, now_us: f64, r: &RenewalNumbers) -> Open {
    let mut now_us = now_us - now_us % TICK_US;
    let mut s = Record { at_us: now_us, level: r.burst, is_unrefused: true, ..Record::default() };
    if let Some(saved) = saved {
        s = Record { since_us: saved.since_us * TICK_US, ..saved };
        if s.at_us > now_us + 2.0 * r.epoch_us {
            s.at_us = now_us;
        }
        now_us = now_us.max(s.at_us);
        s.level = s.level.min(r.burst);
    }
    let mut begins_us = s.at_us - s.since_us;
    let mut is_aged = false;
    let ends_us = begins_us + r.epoch_us;
    if !r.release && (ends_us - 1000.0..ends_us).contains(&now_us) {
        now_us = ends_us;
    }
    if now_us < ends_us {
        advance(&mut s, r, begins_us, now_us);
    } else {
        let until_us = ends_us.max(s.at_us);
        advance(&mut s, r, begins_us, until_us);
        let turns = ((now_us - begins_us) / r.epoch_us).floor();
        let lent = s.out + s.promised * (r.epoch_us / 1e6);
        s.drop_refilled(r.burst, lent);
        s.out_before += lent;
        s.calm = (s.calm + turns).min(CALM_MAX);
        (s.wanted_before, s.nodes_before) = (s.wanted, s.nodes);
        (s.wanted, s.promised, s.nodes, s.out) = (0.0, 0.0, 0.0, 0.0);
        (s.full_before, s.full) = (whole_parts(s.full), 0.0);
        advance(&mut s, r, ends_us, now_us);
        begins_us += turns * r.epoch_us;
        if turns > 1.0 {
            (s.wanted_before, s.nodes_before) = (0.0, 0.0);
            is_aged = true;
        }
    }
    s.at_us = now_us;
    s.since_us = now_us - begins_us;
    is_aged |= !is_young(s.since_us, r);
    let number = number_of(begins_us);
    Open { record: s, number, ends_us: begins_us + r.epoch_us, is_aged, less: 0.0 }
}

/// An epoch's number: its start in milliseconds, modulo 24 bits, counted from 1.
pub(super) fn number_of(begins_us: f64) -> f64 {
    let begins_ms = (begins_us / 1000.0).floor();
    begins_ms - (begins_ms / 16777215.0).floor() * 16777215.0 + 1.0
}

/// Books debts and returns, and updates what the nodes hold unspent.
fn settle(s: &mut Record, r: &RenewalNumbers, is_first: bool, is_aged: bool, ends_us: f64) {
    let (mut delta, mut spent) = (r.delta, r.spent);
    let refilled = if is_first && !is_aged { r.refill * refilled_s(r, s, ends_us) } else { 0.0 };
    if refilled > 0.0 {
        let untold = refilled.min(spent.max(0.0));
        spent -= untold;
        delta = delta.max((delta + refilled - untold).min(0.0));
    }
    if is_first {
        s.out_before -= spent;
    }
    if is_aged {
        s.drop_refilled(r.burst, s.unspent(is_aged));
    }
    if is_first {
        delta = delta.max(-s.out_before.max(0.0));
        s.out_before = (s.out_before + delta - r.keep).max(0.0);
        s.out += r.keep;
    } else {
        s.out += delta - spent;
        if r.release {
            delta += r.rate * ((ends_us - s.at_us) / 1e6);
        }
    }
    s.level = r.burst.min((s.level - delta).max(s.level.min(-r.burst)));
}

/// How long the bucket may have refilled in place of units of a lease from before the last epoch; 0: it has not, or the limit
/// is so small that it is too little to look for.
fn refilled_s(r: &RenewalNumbers, s: &Record, ends_us: f64) -> f64 {
    let gone = number_of(ends_us - r.epoch_us) - r.epoch;
    let gone_ms = gone - (gone / 16777215.0).floor() * 16777215.0;
    let is_little = r.refill * (r.epoch_us / 1e6) < LITTLE;
    if r.epoch == 0.0 || is_little || gone_ms * 1000.0 < (s.calm + 1.5) * r.epoch_us {
        return 0.0;
    }
    (gone_ms * 1000.0 + s.since_us - 1.2 * r.epoch_us - 9000.0) / 1e6
}

fn is_young(since_us: f64, r: &RenewalNumbers) -> bool {
    since_us < r.epoch_us / 5.0 + 10000.0
}

/// Refills within the epoch that begins at `begins_us`, in two steps if the units of the last epoch become too old in
/// between.
fn advance(s: &mut Record, r: &RenewalNumbers, begins_us: f64, to_us: f64) {
    let aged_us = begins_us + r.epoch_us / 5.0 + 10000.0;
    if s.at_us < aged_us {
        let until_us = to_us.min(aged_us);
        fill(s, r, s.out + s.promised * ((until_us - begins_us) / 1e6) + s.out_before, until_us);
    }
    if s.at_us < to_us {
        fill(s, r, s.out + s.promised * ((to_us - begins_us) / 1e6), to_us);
    }
}

fn fill(s: &mut Record, r: &RenewalNumbers, out: f64, to_us: f64) {
    let cap = (r.burst - out.max(0.0)).max(0.0);
    let lasts_s = (to_us - s.at_us) / 1e6;
    let filled = s.level + (r.refill - s.promised).max(0.0) * lasts_s;
    let full_s = if filled < cap { 0.0 } else { (filled - cap) / r.refill };
    s.is_unrefused |= full_s > 0.0;
    // Without a unit that nodes hold, nothing is spent without telling.
    s.full += if out >= 1.0 { full_s / (r.epoch_us / 1e6) * FULL_PARTS } else { 0.0 };
    s.level = cap.min(filled);
    s.at_us = to_us;
}

struct Node {
    demand: f64,
    /// Its share of the fleet's demand, from 0 to 1.
    share: f64,
    rate: f64,
    is_first: bool,
    left_s: f64,
    /// The bucket has not refused since it was full, and its nodes are few: so none may hold what the others will need.
    is_divided: bool,
    /// And what is left is so little that Redis decides each request: no node is refused while others hold units.
    is_unlent: bool,
    /// A unit is much of this divided bucket, which runs out: nodes hold little.
    is_tight: bool,
    /// And less is left than rates may give out before their epoch ends: none is granted, and what was granted comes back.
    is_rateless: bool,
}

fn lease_rate(s: &mut Record, r: &RenewalNumbers, n: &mut Node) {
    if r.is_small() {
        return;
    }
    if n.is_rateless {
        s.promised = 0f64.max(s.promised - n.rate);
        s.out += n.rate * (s.since_us / 1e6);
        n.rate = 0.0;
        return;
    }
    let pool = (r.refill + s.level.min(0.0) / (r.epoch_us / 1e6)).max(r.refill / 2.0);
    let mut target = (pool * n.share).min(1.3 * n.demand + 0.5 / (r.epoch_us / 1e6));
    if (target - n.rate) * n.left_s < 1.5 || n.is_unlent {
        target = n.rate;
    }
    let all = s.wanted_before.max(s.wanted);
    let mut free = pool - s.promised;
    if s.wanted_before < 0.7 * all {
        free *= 0.5;
    }
    let add = (target - n.rate).min(free).max(0.0);
    let rate = noting(n.rate + add, s.full);
    let add = rate - n.rate;
    s.promised += add;
    s.out -= add * (s.since_us / 1e6);
    n.rate = rate;
}

fn lease_tokens(s: &mut Record, r: &RenewalNumbers, n: &Node, is_aged: bool) -> (f64, f64) {
    let ahead_s = n.left_s.min((4.0 / n.demand).max(0.1));
    let mut slack = 2.0 * (n.demand * ahead_s).sqrt();
    let mut expected = n.demand * ahead_s;
    let is_high = s.level / LENT_SHARE >= LENT_MIN;
    let lendable = match r.is_small() && is_high {
        true => s.level / LENT_SHARE_SMALL,
        false => (s.level / LENT_SHARE).max(r.refill * (r.epoch_us / 1e6) * LENT_EPOCHS),
    };
    let mut beyond = (1.2 * n.demand - n.rate) * ahead_s;
    if s.level > r.burst / 4.0 {
        slack += 3.0;
        expected *= 4.0;
        if n.demand * (r.epoch_us / 1e6) >= 1.5 {
            let nodes = s.nodes.max(s.nodes_before);
            let even = match r.is_small() {
                true => small_part(s, n, lendable, beyond + slack + r.keep),
                false => lendable / nodes.max(2.0),
            };
            slack += (s.level / (16.0 * nodes).max(60.0)).min(even);
        }
    }
    beyond = beyond.max(r.hint.min(expected.ceil() + 1.0)).max(0.0);
    let part = if n.share >= 0.25 { n.share / 2.0 } else { (n.share * 3.0).min(0.25) };
    let share_max = if n.is_tight { 0.25 } else { 0.5 };
    let part =
        if n.is_divided && s.nodes > 1.0 { part.min(share_max / s.nodes.max(s.nodes_before)) } else { part };
    let dither = (s.at_us - (s.at_us / 1000.0).floor() * 1000.0) / 1000.0;
    let whole = s.level.floor();
    let mut most = (s.level * part + dither).max((n.demand * 0.02 + 2.0).min(8.0));
    let expected = n.demand * (r.epoch_us / 1e6);
    let mut is_thin = expected < THIN && r.hint == 0.0;
    if r.is_small() {
        most = s.level * 0.5;
        is_thin = expected < THIN_SMALL || !(is_high || is_greedy(s, r));
    }
    let wanted = if is_thin || n.is_unlent { 0.0 } else { beyond + slack };
    let lendable = if n.is_tight { per_epoch(r) * LENT_EPOCHS * TIGHT } else { lendable };
    let lendable = lendable - s.unspent(is_aged).max(0.0);
    let extra = wanted.min(most - r.pending).min(lendable).min(whole - r.pending).floor().max(0.0);
    let served = r.served(whole);
    let extra = r.useful(extra, served);
    s.level -= served + extra;
    s.out += extra;
    let tokens = served + extra;
    (tokens, part)
}

/// What a node gets of a small limit beyond what it has (`own`): a share like that of its demand.
fn small_part(s: &Record, n: &Node, lendable: f64, own: f64) -> f64 {
    let all = s.wanted.max(s.wanted_before);
    let mut part = (n.demand / all).min(0.5);
    if s.wanted_before < 0.7 * all {
        part = part.min(1.0 / s.nodes.max(s.nodes_before).max(10.0));
    }
    (lendable * part).max((lendable * 0.5).min(8.0)) - own
}

/// Whether a unit is much of a bucket and its nodes want all that refills, or have not told yet what they want; not if answers
/// take long, because then a node spends its rate before they come.
fn is_tight(s: &Record, r: &RenewalNumbers) -> bool {
    let is_over = s.nodes_before == 0.0 || s.wanted.max(s.wanted_before) > NEAR * r.refill;
    is_over && !r.ahead && per_epoch(r) <= TIGHT_UNITS && per_epoch(r) * 8.0 >= r.burst
}

fn per_epoch(r: &RenewalNumbers) -> f64 {
    r.refill * (r.epoch_us / 1e6)
}

/// Whether the fleet's demand is so far above the refill that every node would ask for every unit that comes.
fn is_greedy(s: &Record, r: &RenewalNumbers) -> bool {
    r.refill * ASKED_S > 1.0 && s.wanted.max(s.wanted_before) > GREEDY * r.refill
}

fn lease_deny(s: &Record, r: &RenewalNumbers, n: &Node, part: f64) -> f64 {
    if r.is_small() {
        let (least, wait_min_s) = if is_greedy(s, r) { (3.0, ASKED_S) } else { (1.0, 0.0) };
        let wait_s = if s.level >= least { 0.0 } else { ((1.0 - s.level) / r.refill).max(wait_min_s) };
        return (wait_s * 1e6).floor();
    }
    let due = r.refill * n.share;
    let nodes = s.nodes.max(s.nodes_before);
    let is_greedy = n.demand * nodes > 3.0 * r.refill;
    let level = if is_greedy { s.level - (nodes - 1.0).min(r.burst / 8.0) } else { s.level };
    if level >= (due * 0.02).max(1.0) {
        return 0.0;
    }
    let life_s = r.epoch_us / 1e6;
    let mut owned = s.promised;
    if n.left_s > 0.8 * life_s {
        owned = owned.max(r.refill.min(1.3 * s.wanted_before));
    }
    let unowned = (r.refill - owned).max(0.0);
    let mut wait_s = if unowned > 0.0 { (2.0 - level * part).max(1.0) / (unowned * n.share) } else { 1e9 };
    let is_short = n.rate < 0.5 * due.min(n.demand) && due * life_s >= 4.0 && s.wanted < 9.0 * r.refill;
    if n.is_first && n.demand <= 0.5 {
        wait_s = wait_s.min(0.1);
    }
    if is_short {
        wait_s = wait_s.min((8.0 / due).max(0.1));
    }
    if n.demand < 1.25 * due {
        wait_s = wait_s.min((4.0 / due).max(life_s * 0.8));
    }
    wait_s = if level >= 1.0 { 0.02 } else { wait_s.max(0.02) };
    (n.left_s.min(wait_s) * 1e6).floor()
}

/// The step in which a record keeps the time since its epoch began, because an epoch may have more than 19 bits of
/// microseconds.
const TICK_US: f64 = 4.0;
/// A record counts so many epochs without a refill in place of old units, in the lowest bits of its time. The count is
/// `MARK_US` more, because older scripts write 0 there.
const CALM_MAX: f64 = 2.0;
const MARK_US: f64 = 1.0;
/// What an epoch is divided into to count for how long a bucket was full, and the highest count. Two counts of 12 bits replace
/// the last bytes of three numbers that need not be so precise; in that of a fourth, `FULL_MARK` says so, and one more that the
/// bucket has been full since it last refused.
const FULL_PARTS: f64 = 4096.0;
const FULL_MARK: f64 = 164.0;

fn whole_parts(parts: f64) -> f64 {
    parts.floor().clamp(0.0, FULL_PARTS - 1.0)
}

/// A rate whose last bits note the count of its time, so that it is known for how long the bucket was full before when the
/// node reports; never more than the rate.
fn noting(rate: f64, full: f64) -> f64 {
    let bits = (rate as f32).to_bits();
    if bits < NOTES {
        return 0.0;
    }
    let noted = bits - bits % NOTES + full.ceil().clamp(0.0, FULL_PARTS - 1.0) as u32;
    f64::from(f32::from_bits(if noted > bits { noted - NOTES } else { noted }))
}

fn note_of(rate: f64) -> f64 {
    f64::from((rate as f32).to_bits() % NOTES)
}

const NOTES: u32 = 4096;

/// Of how many nodes the last units are not lent, and how many units for each other one: about what it holds.
const FEW_NODES: f64 = 10.0;
const LAST_UNITS: f64 = 8.0;
/// If no more units refill in an epoch, and an eighth of the bucket, few nodes hold only this part of what is lent otherwise,
/// once they want this much of the refill. Below these epochs' refill and the last units they have no rates.
const TIGHT_UNITS: f64 = 100.0;
const TIGHT: f64 = 0.15;
const NEAR: f64 = 0.9;
const RATELESS_EPOCHS: f64 = 0.32;

/// A number as it is read back: its float, with a count for the last byte.
fn counting(number: f64, count: f64) -> f64 {
    f64::from(f32::from_bits((number as f32).to_bits() & !0xff | count as u32))
}

/// Fewer units than this an epoch are too little to look for what has refilled in place of old leases.
const LITTLE: f64 = 24.0;
/// A fleet is greedy if its demand is more than this many times the refill.
const GREEDY: f64 = 2.0;
/// How long a node of a greedy fleet denies before it asks again, seconds.
const ASKED_S: f64 = 0.33;
/// A node with a demand below this many units an epoch is granted only what requests wait for, because it would return
/// the rest.
const THIN: f64 = 0.4;
/// The same if the limit is small.
const THIN_SMALL: f64 = 1.0;
/// A small limit is lent of if so many units at least may be lent: the level is so high that no other node misses them.
const LENT_MIN: f64 = 5.0;
/// Of a small limit so high that it is lent, this part of the units left is.
const LENT_SHARE_SMALL: f64 = 40.0;
