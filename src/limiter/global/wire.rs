//! The wire format of lua/batch.lua: encodes operations, decodes replies. A call names each key and plan once and
//! operations refer to them by index, because most operations of a call share a few plans, and many may share a key.
//!
//! This is where bytes of Redis become an [`Outcome`] of `limit`. A reply is decoded to its last byte or rejected: one
//! that is shorter, longer or holds a strange number is no reply.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::{iter, ptr, slice};

use smallvec::SmallVec;

use base::clock;
use limit::lease_messages::{
    ExactCharge, Grant, Hold, Op, Renewal, Reply, TakeReply, WindowBalance, WindowRecord,
};
use limit::{Algorithm, Answer, Key, Outcome, Plan, script_model};

/// The answer to one operation of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum OpAnswer {
    /// The reply that the operation asks for.
    Reply(Reply),
    /// An error that Redis gave for this operation alone.
    Error(String),
}

pub(super) struct Call<'o> {
    /// The process that sends them; permits are counted by process.
    incarnation: u64,
    /// The keys, each once, with a plan that names it.
    pub(super) keys: Vec<(Key, &'o Plan)>,
    known_keys: HashMap<(Key, &'o str, u8), u16>,
    known_plans: HashMap<*const Plan, u16>,
    /// The number of the key that says since when the server has its data; 0: the call has none.
    since: u8,
    /// How many keys the call has before these: its record.
    before: u16,
    /// The plans, encoded as they follow the head of the first argument.
    pub(super) plans: Vec<u8>,
    /// The operations, encoded as the second argument.
    pub(super) operations: Vec<u8>,
    /// The run being written: the index of its length in `operations`, and its kind.
    run: Option<(usize, u8)>,
}

impl<'o> Call<'o> {
    /// A call of `ops`, at most 64, whose keys are numbered after `before` others. The last of these says since when the server
    /// has its data, if `has_since`.
    pub(super) fn new(
        ops: impl Iterator<Item = &'o Op>,
        before: u8,
        has_since: bool,
        incarnation: u64,
    ) -> Call<'o> {
        let mut call = Call {
            incarnation,
            keys: Vec::new(),
            known_keys: HashMap::new(),
            known_plans: HashMap::new(),
            before: before.into(),
            since: if has_since { before } else { 0 },
            plans: Vec::new(),
            operations: Vec::new(),
            run: None,
        };
        ops.for_each(|op| {
            if !call.write_in_run(op) {
                call.run = None;
                call.write(op);
            }
        });
        call
    }

    /// Writes an operation of one plain charge, or a peek at one, into a run, if its numbers fit a byte each. Most
    /// operations are such, and the script has a fast loop for runs.
    fn write_in_run(&mut self, op: &'o Op) -> bool {
        let (kind, part) = match op {
            Op::Take(parts) => match &parts[..] {
                [part] => (TAKES, part),
                _ => return false,
            },
            Op::Peek(part) => (PEEKS, part),
            _ => return false,
        };
        let is_plain = !part.shadow && !part.count_denied && part.cost > 0;
        let Ok(cost) = u8::try_from(part.cost) else { return false };
        if !is_plain || self.keys.len() + usize::from(self.before) >= RUN_MAX || self.plans.len() >= PLANS_MAX
        {
            return false;
        }
        // Both fit a byte, because the lengths were checked above.
        let (key, plan) = (self.key(part.key, &part.plan) as u8, self.plan(&part.plan) as u8);
        match self.run {
            Some((length, of)) if of == kind && self.operations[length] < u8::MAX => {
                self.operations[length] += 1
            }
            _ => {
                self.run = Some((self.operations.len() + 1, kind));
                self.operations.extend([kind, 1]);
            }
        }
        self.operations.extend([key, plan, cost]);
        true
    }

    fn write(&mut self, op: &'o Op) {
        let flags = |part: &ExactCharge| u8::from(part.shadow) | u8::from(part.count_denied) << 1;
        match op {
            Op::Renew(renewal) => {
                self.operations.extend([1, 1]);
                let (release, ahead) = (u8::from(renewal.release), u8::from(renewal.ahead));
                let flags = (RELEASE * release) | (AHEAD * ahead);
                self.write_part(renewal.key, &renewal.plan, 0, flags);
                self.write_renewal(renewal);
            }
            Op::Take(parts) => self.write_parts(2, parts, flags),
            Op::Return { parts, taken_us } => {
                self.write_parts(3, parts, flags);
                self.number(*taken_us as f64);
                self.operations.push(self.since);
            }
            Op::Peek(part) => self.write_parts(4, slice::from_ref(part), flags),
            Op::Debit(parts) => self.write_parts(5, parts, |_| 0),
            Op::Repay(parts) => self.write_parts(5, parts, |_| BOUNDED),
            Op::Report { parts, spent_us } => {
                self.write_parts(5, parts, |_| REPORTED);
                self.number(*spent_us as f64);
            }
            Op::Look(part) => self.write_parts(7, slice::from_ref(part), flags),
            Op::Hold(hold) => {
                self.write_parts(6, slice::from_ref(&hold.part), flags);
                self.operations.extend(self.incarnation.to_le_bytes());
                self.number(hold.held as f64);
                self.number(hold.lasts_us as f64);
            }
        }
    }

    fn write_parts(&mut self, kind: u8, parts: &'o [ExactCharge], flags: impl Fn(&ExactCharge) -> u8) {
        // `Global::send` refuses an operation of more than `PARTS_MAX` parts.
        self.operations.extend([kind, parts.len() as u8]);
        for part in parts {
            self.write_part(part.key, &part.plan, part.cost, flags(part));
        }
    }

    fn write_part(&mut self, key: Key, plan: &'o Plan, cost: u64, flags: u8) {
        let (key, plan) = (self.key(key, plan), self.plan(plan));
        self.operations.extend(key.to_le_bytes());
        self.operations.extend(plan.to_le_bytes());
        match u8::try_from(cost) {
            Ok(cost) => self.operations.extend([cost, flags]),
            Err(_) => {
                self.operations.extend([0, flags | COST_FOLLOWS]);
                self.number(cost as f64);
            }
        }
    }

    fn write_renewal(&mut self, renewal: &Renewal) {
        self.operations.extend(renewal.epoch.to_le_bytes());
        let Renewal { demand, reported, rate, pending, hint, spent, refilled, delta, keep, .. } = *renewal;
        for value in [demand, reported, rate, pending as f64, hint, spent, refilled, delta, keep] {
            self.number(value);
        }
        // A renewal has at most `COSTS_MAX` costs.
        self.operations.push(renewal.costs.len() as u8);
        renewal.costs.iter().for_each(|cost| self.number(*cost as f64));
    }

    /// The number of a key in the call. 64 operations of 255 parts each fit a `u16`.
    fn key(&mut self, key: Key, plan: &'o Plan) -> u16 {
        let next = self.before + self.keys.len() as u16 + 1;
        let index = *self.known_keys.entry((key, &plan.policy, plan.mark())).or_insert(next);
        if index == next {
            self.keys.push((key, plan));
        }
        index
    }

    fn plan(&mut self, plan: &'o Plan) -> u16 {
        let next = self.known_plans.len() as u16 + 1;
        let index = *self.known_plans.entry(ptr::from_ref(plan)).or_insert(next);
        if index == next {
            let quota = &plan.quota;
            let edges = quota.calendar().map(|calendar| calendar.edges(clock::unix()));
            let of_calendar = if edges.is_some() { OF_CALENDAR } else { 0 };
            self.plans.push(quota.algorithm().number() | of_calendar);
            let [limit, period_ns, burst] =
                [quota.limit(), quota.period_ns(), quota.burst()].map(NonZeroU64::get);
            for value in [limit, period_ns, burst, plan.sharing.epoch_ns / 1_000] {
                self.plans.extend((value as f64).to_le_bytes());
            }
            for value in edges.iter().flat_map(|edges| iter::once(edges.first).chain(edges.starts_us)) {
                self.plans.extend((value as f64).to_le_bytes());
            }
        }
        index
    }

    /// Lua's numbers are doubles: whole ones are exact up to 2^53, which is 104 days in nanoseconds and 9e15 units.
    fn number(&mut self, value: f64) {
        self.operations.extend(value.to_le_bytes());
    }
}

pub(super) fn keys(op: &Op) -> SmallVec<[(Key, &Plan); 2]> {
    match op {
        Op::Renew(renewal) => SmallVec::from_iter([(renewal.key, &*renewal.plan)]),
        Op::Take(parts)
        | Op::Return { parts, .. }
        | Op::Debit(parts)
        | Op::Repay(parts)
        | Op::Report { parts, .. } => parts.iter().map(|part| (part.key, &*part.plan)).collect(),
        Op::Peek(part) | Op::Look(part) | Op::Hold(Hold { part, .. }) => {
            SmallVec::from_iter([(part.key, &*part.plan)])
        }
    }
}

/// Splits a reply into the number of keys of a wrong type that the call replaced, and the rest.
pub fn repaired(reply: &[u8]) -> (u64, &[u8]) {
    let mut rest = Reader(reply);
    match (rest.number(), rest.number()) {
        (Some(REPAIRED), Some(count)) => (count.max(0.0) as u64, rest.0),
        _ => (0, reply),
    }
}

/// What the clock of Redis read at a call, microseconds since 1970; `None` if the reply does not say.
pub(super) fn read_us(reply: &[u8]) -> Option<u64> {
    Reader(reply).number().filter(|read_us| *read_us > 0.0).map(|read_us| read_us as u64)
}

/// Reads the reply to `ops`: one answer for each.
pub fn read(reply: &[u8], ops: &[&Op]) -> Option<Vec<OpAnswer>> {
    let mut rest = Reader(reply);
    let at_us = rest.number()?;
    if at_us < 0.0 {
        // A negative time: the call failed as a whole, such as for a full memory.
        let error = rest.error()?;
        return rest.0.is_empty().then(|| vec![error; ops.len()]);
    }
    let (at_us, mut run) = (at_us as u64, 0);
    let answer = |op: &&Op| {
        if run == 0 && rest.0.first() == Some(&b'C') {
            [_, run] = rest.bytes()?;
        }
        match run {
            0 => rest.answered(op, at_us),
            _ => {
                run -= 1;
                rest.answered_in_run(op, at_us)
            }
        }
    };
    let answers: Option<Vec<_>> = ops.iter().map(answer).collect();
    answers.filter(|_| rest.0.is_empty() && run == 0)
}

struct Reader<'r>(&'r [u8]);

impl<'r> Reader<'r> {
    /// One answer of a run: the units left, or a negative number if there is more to say than that it is admitted.
    fn answered_in_run(&mut self, op: &Op, at_us: u64) -> Option<OpAnswer> {
        let left = self.number()?;
        if left == -1.0 {
            return self.error();
        }
        let outcome = match left {
            0.0.. => Outcome::new(Answer::Admitted, left as u64, self.time_ns()?),
            _ => {
                let (reset_ns, wait_us) = (self.time_ns()?, self.number()?);
                outcome(wait_us, (-2.0 - left).max(0.0) as u64, reset_ns)
            }
        };
        let reply = match op {
            Op::Take(parts) if parts.len() == 1 => taken(outcome, at_us),
            Op::Peek(_) => Reply::Peeked(outcome),
            _ => return None,
        };
        Some(OpAnswer::Reply(reply))
    }

    fn answered(&mut self, op: &Op, at_us: u64) -> Option<OpAnswer> {
        let reply = match (self.byte()?, op) {
            (b'G', Op::Renew(_)) => Reply::Grant(self.grant()?),
            (b'T', Op::Take(parts)) => {
                let admitted = self.byte()? == 1;
                let outcomes = parts.iter().map(|_| self.outcome()).collect::<Option<_>>()?;
                Reply::Taken(TakeReply { at_us, outcomes, admitted })
            }
            (b'P', Op::Hold(_)) => taken(self.outcome()?, at_us),
            (b'R', Op::Return { .. } | Op::Debit(_) | Op::Repay(_) | Op::Report { .. }) => Reply::Returned,
            (b'P', Op::Peek(_)) => Reply::Peeked(self.outcome()?),
            (b'L', Op::Look(part)) => {
                let outcome = self.outcome()?;
                let length = self.byte()?;
                let record = self.take(length.into())?;
                // The reply is well-formed even if the key holds no record.
                return Some(match seen(outcome, record, &part.plan, at_us) {
                    Some(seen) => OpAnswer::Reply(Reply::Seen(seen)),
                    None => OpAnswer::Error("the key holds no valid record".to_owned()),
                });
            }
            (b'E', _) => return self.error(),
            _ => return None,
        };
        Some(OpAnswer::Reply(reply))
    }

    fn error(&mut self) -> Option<OpAnswer> {
        let length = u16::from_le_bytes(self.bytes()?);
        let text = self.take(length.into())?;
        Some(OpAnswer::Error(String::from_utf8_lossy(text).into_owned()))
    }

    fn grant(&mut self) -> Option<Grant> {
        Some(Grant {
            epoch: u32::from_le_bytes(self.bytes()?),
            tokens: self.number()?,
            rate: self.number()?,
            lasts_ns: self.whole()?.saturating_mul(1_000),
            deny_ns: self.whole()?.saturating_mul(1_000),
            level: self.number()?,
            wait_ns: self.whole()?.saturating_mul(1_000),
        })
    }

    fn outcome(&mut self) -> Option<Outcome> {
        Some(outcome(self.number()?, self.whole()?, self.time_ns()?))
    }

    /// A number, at least 0, rounded down so that no unit is invented.
    fn whole(&mut self) -> Option<u64> {
        self.number().map(|value| value.max(0.0) as u64)
    }

    /// Microseconds as nanoseconds, rounded up so that a client never retries too early.
    fn time_ns(&mut self) -> Option<u64> {
        self.number().map(|value_us| (value_us * 1e3).ceil() as u64)
    }

    fn number(&mut self) -> Option<f64> {
        Some(f64::from_le_bytes(self.bytes()?)).filter(|value| value.is_finite())
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    fn take(&mut self, count: usize) -> Option<&'r [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }
}

/// The reply for an operation of one part, which is admitted if its part is.
fn taken(outcome: Outcome, at_us: u64) -> Reply {
    let admitted = outcome.is_admitted();
    Reply::Taken(TakeReply { at_us, outcomes: SmallVec::from_iter([outcome]), admitted })
}

/// The result of a look; `None` if the key does not hold a record.
fn seen(outcome: Outcome, record: &[u8], plan: &Plan, at_us: u64) -> Option<WindowRecord> {
    if plan.sharing.is_exact() {
        return Some(WindowRecord {
            left: WindowBalance::Exact(outcome),
            unchanged_ns: unchanged_ns(record, plan, at_us),
        });
    }
    let (lent, unchanged_ns) = match record {
        [] => (script_model::untouched(plan), None),
        // A record that was of exact charges does not say.
        _ => script_model::look(record, plan, at_us)
            .map(|(lent, ago_ns)| (lent, (outcome.remaining == 0).then_some(ago_ns)))?,
    };
    Some(WindowRecord { left: WindowBalance::Leased(lent), unchanged_ns })
}

/// The outcome of an exact window, as lua/take.lua encodes it.
fn outcome(wait_us: f64, remaining: u64, reset_ns: u64) -> Outcome {
    let answer = match wait_us {
        0.0 => Answer::Admitted,
        -1.0 => Answer::Never,
        // Below -1: admitted, after a delay (leaky bucket).
        wait_us if wait_us < 0.0 => {
            return Outcome::delayed(((-1.0 - wait_us) * 1e3).ceil() as u64, remaining, reset_ns);
        }
        wait_us => Answer::Later { retry_after_ns: (wait_us * 1e3).ceil() as u64 },
    };
    Outcome::new(answer, remaining, reset_ns)
}

/// For how long the record of an exact window has been unchanged. Only buckets tell, because their records hold the
/// time of the last change.
fn unchanged_ns(record: &[u8], plan: &Plan, at_us: u64) -> Option<u64> {
    let is_bucket = matches!(plan.quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
    let then_us = Reader(record.get(8..).filter(|_| is_bucket && record.len() == BUCKET_BYTES)?).whole()?;
    Some(at_us.saturating_sub(then_us).saturating_mul(1_000))
}

/// Marks the reply of a call that replaced keys of a wrong type.
const REPAIRED: f64 = -2.0;
pub(super) const NO_REPLY: &str = "the reply does not have the format of the gateway's script";
/// The record of an exact bucket (lua/token_bucket.lua).
const BUCKET_BYTES: usize = 44;
/// The most parts of an operation: their number is one byte.
pub(super) const PARTS_MAX: usize = 255;
/// The kinds of runs, beside those of single operations (1 to 7).
const TAKES: u8 = 8;
const PEEKS: u8 = 9;
/// The most keys of a call that has runs: a run numbers them by one byte.
const RUN_MAX: usize = 255;
/// The same for plans, in bytes.
const PLANS_MAX: usize = 255 * PLAN_BYTES;
const PLAN_BYTES: usize = 33;
/// Added to the number of an algorithm, so that where windows of the calendar begin can follow.
const OF_CALENDAR: u8 = 128;
/// Of a debit: no more than one whole limit is owed after it.
const BOUNDED: u8 = 1;
/// Of a debit: nothing is owed after it, and when it was spent follows.
const REPORTED: u8 = 2;
/// Flags of a part, beside 1 for shadow and 2 for counting denied requests.
const COST_FOLLOWS: u8 = 4;
const RELEASE: u8 = 8;
const AHEAD: u8 = 16;

#[cfg(test)]
mod tests;
