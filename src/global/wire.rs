//! Operations and replies as lua/batch.lua packs them.
//!
//! A reply is read to its last byte or not at all: what is shorter, longer or not a number is no reply.

use smallvec::SmallVec;

use crate::limit::central::{Grant, Hold, Op, Part, Renewal, Reply, Taken};
use crate::limit::{Algorithm, Answer, Outcome, Plan};

/// One operation's part of a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Answered {
    /// What it asked for.
    Reply(Reply),
    /// Redis' error, of this operation alone.
    Error(String),
}

/// Appends an operation of this process; its keys travel beside it, see [`keys`].
pub(super) fn write(out: &mut Vec<u8>, op: &Op, incarnation: u64) {
    match op {
        Op::Renew(renewal) => {
            out.extend([1, 1]);
            write_renewal(out, renewal);
        }
        Op::Take(parts) => {
            out.extend([2, count(parts)]);
            parts.iter().for_each(|part| write_part(out, part));
        }
        Op::Return { parts, taken_us } => {
            out.extend([3, count(parts)]);
            number(out, *taken_us as f64);
            parts.iter().for_each(|part| write_part(out, part));
        }
        Op::Peek(part) => {
            out.extend([4, 1]);
            write_part(out, part);
        }
        Op::Debit(parts) => {
            out.extend([5, count(parts)]);
            parts.iter().for_each(|part| write_part(out, part));
        }
        Op::Hold(hold) => {
            out.extend([6, 1]);
            write_part(out, &hold.part);
            out.extend(incarnation.to_le_bytes());
            number(out, hold.held as f64);
            number(out, hold.lasts_us as f64);
        }
    }
}

/// The keys of an operation and their plans, in their order.
pub(super) fn keys(op: &Op) -> SmallVec<[(u128, &Plan); 2]> {
    match op {
        Op::Renew(renewal) => SmallVec::from_iter([(renewal.key, &*renewal.plan)]),
        Op::Take(parts) | Op::Return { parts, .. } | Op::Debit(parts) => {
            parts.iter().map(|part| (part.key, &*part.plan)).collect()
        }
        Op::Peek(part) | Op::Hold(Hold { part, .. }) => SmallVec::from_iter([(part.key, &*part.plan)]),
    }
}

/// Reads the reply to `ops`: one answer for each.
pub fn read(reply: &[u8], ops: &[&Op]) -> Option<Vec<Answered>> {
    let mut rest = Reader(reply);
    let at_us = rest.whole()?;
    let answers: Option<Vec<_>> = ops.iter().map(|op| rest.answered(op, at_us)).collect();
    answers.filter(|_| rest.0.is_empty())
}

fn write_renewal(out: &mut Vec<u8>, renewal: &Renewal) {
    write_plan(out, &renewal.plan);
    out.extend(renewal.epoch.to_le_bytes());
    let Renewal { demand, reported, rate, pending, hint, spent, delta, keep, .. } = *renewal;
    for value in [demand, reported, rate, pending as f64, hint, spent, delta, keep] {
        number(out, value);
    }
    out.push(u8::from(renewal.release));
}

fn write_part(out: &mut Vec<u8>, part: &Part) {
    write_plan(out, &part.plan);
    number(out, part.cost as f64);
    out.push(u8::from(part.shadow) | u8::from(part.count_denied) << 1);
}

fn write_plan(out: &mut Vec<u8>, plan: &Plan) {
    let quota = &plan.quota;
    out.push(algorithm(quota.algorithm()));
    let numbers =
        [quota.limit().get(), quota.period_ns().get(), quota.burst().get(), plan.sharing.epoch_ns / 1_000];
    for value in numbers {
        number(out, value as f64);
    }
}

/// The algorithm's number in lua/.
fn algorithm(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::TokenBucket => 1,
        Algorithm::FixedWindow => 2,
        Algorithm::SlidingWindow => 3,
        Algorithm::SlidingLog => 4,
        Algorithm::LeakyBucket => 5,
        Algorithm::Concurrency => 6,
    }
}

/// Lua's numbers are doubles: whole ones are exact up to 2^53, which is 104 days in nanoseconds and 9e15 units.
fn number(out: &mut Vec<u8>, value: f64) {
    out.extend(value.to_le_bytes());
}

/// A policy has at most 16 windows, a request so few policies that its parts fit a byte; see [`PARTS_MAX`].
fn count(parts: &[Part]) -> u8 {
    u8::try_from(parts.len()).unwrap_or(u8::MAX)
}

struct Reader<'r>(&'r [u8]);

impl Reader<'_> {
    fn answered(&mut self, op: &Op, at_us: u64) -> Option<Answered> {
        let reply = match (self.byte()?, op) {
            (b'G', Op::Renew(_)) => Reply::Grant(self.grant()?),
            (b'T', Op::Take(parts)) => {
                let admitted = self.byte()? == 1;
                let outcomes = parts.iter().map(|_| self.outcome()).collect::<Option<_>>()?;
                Reply::Taken(Taken { at_us, outcomes, admitted })
            }
            (b'P', Op::Hold(_)) => {
                let outcome = self.outcome()?;
                let admitted = outcome.is_admitted();
                Reply::Taken(Taken { at_us, outcomes: SmallVec::from_iter([outcome]), admitted })
            }
            (b'R', Op::Return { .. } | Op::Debit(_)) => Reply::Returned,
            (b'P', Op::Peek(_)) => Reply::Peeked(self.outcome()?),
            (b'E', _) => {
                let length = u16::from_le_bytes(self.bytes()?);
                let (text, rest) = self.0.split_at_checked(length.into())?;
                self.0 = rest;
                return Some(Answered::Error(String::from_utf8_lossy(text).into_owned()));
            }
            _ => return None,
        };
        Some(Answered::Reply(reply))
    }

    fn grant(&mut self) -> Option<Grant> {
        Some(Grant {
            epoch: u32::from_le_bytes(self.bytes()?),
            tokens: self.number()?,
            rate: self.number()?,
            lasts_ns: self.whole()?.saturating_mul(1_000),
            deny_ns: self.whole()?.saturating_mul(1_000),
            level: self.number()?,
        })
    }

    fn outcome(&mut self) -> Option<Outcome> {
        let wait_us = self.number()?;
        let answer = match wait_us {
            0.0 => Answer::Admitted,
            -1.0 => Answer::Never,
            // Admitted, to go on after so long.
            wait_us if wait_us < 0.0 => {
                let delay_ns = ((-1.0 - wait_us) * 1e3).ceil() as u64;
                return Some(Outcome::delayed(delay_ns, self.whole()?, self.time_ns()?));
            }
            wait_us => Answer::Later { retry_after_ns: (wait_us * 1e3).ceil() as u64 },
        };
        Some(Outcome::new(answer, self.whole()?, self.time_ns()?))
    }

    /// A number that is at least 0, rounded down.
    fn whole(&mut self) -> Option<u64> {
        self.number().map(|value| value.max(0.0) as u64)
    }

    /// Nanoseconds, rounded up to be never early.
    fn time_ns(&mut self) -> Option<u64> {
        self.number().map(|value_us| (value_us * 1e3).ceil() as u64)
    }

    fn number(&mut self) -> Option<f64> {
        Some(f64::from_le_bytes(self.bytes()?)).filter(|value| value.is_finite())
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }
}

/// The most parts an operation may have.
pub(super) const PARTS_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::Arc;

    use proptest::prelude::{any, prop, prop_assert, proptest};
    use smallvec::smallvec;

    use super::*;
    use crate::limit::{Quota, Sharing, WhenDown};

    fn part() -> Part {
        let number = |value| NonZeroU64::new(value).expect("a positive number");
        let quota = Quota::new(Algorithm::TokenBucket, number(5), number(1_000_000_000), number(9));
        let sharing = Sharing::new(&quota, 0.05, WhenDown::Local);
        let plan = Arc::new(Plan { policy: "p".into(), quota, sharing });
        Part { key: 7, plan, cost: 3, shadow: true, count_denied: true }
    }

    #[test]
    fn a_part_is_packed_as_the_script_reads_it() {
        let mut out = Vec::new();
        write(&mut out, &Op::Take(smallvec![part()]), 0);
        assert_eq!(out.len(), 2 + 1 + 4 * 8 + 8 + 1);
        assert_eq!(&out[..3], [2, 1, 1]);
        assert_eq!(out[3..11], 5.0_f64.to_le_bytes());
        assert_eq!(out[out.len() - 1], 3);
    }

    #[test]
    fn a_reply_is_read_to_its_last_byte() {
        let mut reply = 42.0_f64.to_le_bytes().to_vec();
        reply.extend(*b"T\x01");
        for value in [0.0_f64, 4.0, 2.5] {
            reply.extend(value.to_le_bytes());
        }
        let op = Op::Take(smallvec![part()]);
        let outcome = Outcome::new(Answer::Admitted, 4, 2_500);
        let taken = Taken { at_us: 42, outcomes: smallvec![outcome], admitted: true };
        assert_eq!(read(&reply, &[&op]), Some(vec![Answered::Reply(Reply::Taken(taken))]));
        assert_eq!(read(&reply[..reply.len() - 1], &[&op]), None);
        assert_eq!(read(&reply, &[]), None);
        assert_eq!(read(&reply, &[&Op::Peek(part())]), None);
        reply.push(0);
        assert_eq!(read(&reply, &[&op]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(reply in prop::collection::vec(any::<u8>(), 0..80)) {
            let op = Op::Take(smallvec![part(), part()]);
            if let Some(answers) = read(&reply, &[&op, &Op::Peek(part())]) {
                prop_assert!(answers.len() == 2);
            }
        }
    }
}
