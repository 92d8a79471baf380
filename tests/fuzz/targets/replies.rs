//! What a Redis answers: any bytes are a reply to their last byte or none, and what is read says, written again, the
//! same.

#![no_main]

use std::num::NonZeroU64;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use limit::lease_messages::{ExactCharge, Hold, Op, Reply};
use limit::{Algorithm, Answer, Key, Lease, LeaseDemand, Outcome, Plan, Quota, Sharing, WhenDown};
use limiter::global::wire::{self, OpAnswer};

fuzz_target!(|input: ([u8; 4], &[u8])| {
    let (kinds, bytes) = input;
    let ops: Vec<Op> = kinds.iter().filter_map(|kind| operation(*kind)).collect();
    let ops: Vec<&Op> = ops.iter().collect();
    let Some(answers) = wire::read(bytes, &ops) else { return };
    assert_eq!(answers.len(), ops.len());
    assert!(wire::read(&bytes[..bytes.len() - 1], &ops).is_none(), "a reply is whole");
    assert!(wire::read(&[bytes, &[0]].concat(), &ops).is_none(), "nothing stands behind a reply");
    // Below 0 the whole call failed, which is said of each operation all the same.
    let at_us = bytes.first_chunk().map_or(0.0, |bytes| f64::from_le_bytes(*bytes)).max(0.0);
    let mut again = at_us.to_le_bytes().to_vec();
    for (answer, op) in answers.iter().zip(&ops) {
        write(answer, op, &mut again);
        if let OpAnswer::Reply(Reply::Grant(grant)) = answer {
            let mut share = Lease::default();
            let asked = share.renewal(&PLAN, Key::new(7), LeaseDemand::default(), 1 << 50);
            share.granted(&asked, grant, 1 << 50);
            share.take(&PLAN, 1, (1 << 50) + 1, 0);
        }
    }
    let read = wire::read(&again, &ops).expect("what was read can be written");
    for (one, other) in answers.iter().zip(&read) {
        assert!(is_same(one, other), "{one:?} {other:?}");
    }
});

static PLAN: LazyLock<Arc<Plan>> = LazyLock::new(|| {
    let number = |value| NonZeroU64::new(value).expect("a positive number");
    let quota = Quota::new(Algorithm::TokenBucket, number(50), number(1_000_000_000), number(90));
    let sharing = Sharing::new(&quota, 0.05, WhenDown::Local);
    Arc::new(Plan { policy: "p".into(), quota, sharing })
});

fn operation(kind: u8) -> Option<Op> {
    let part = ExactCharge {
        key: Key::new(7),
        plan: Arc::clone(&PLAN),
        cost: 3,
        shadow: false,
        count_denied: false,
    };
    let parts = (0..kind >> 4).map(|_| part.clone()).collect();
    match kind & 0xf {
        1 => Some(Op::Renew(Lease::default().renewal(
            &PLAN,
            Key::new(7),
            LeaseDemand::by([1, 3].into_iter()),
            0,
        ))),
        2 => Some(Op::Take(parts)),
        3 => Some(Op::Return { parts, taken_us: 1 }),
        4 => Some(Op::Peek(part)),
        5 => Some(Op::Debit(parts)),
        7 => Some(Op::Repay(parts)),
        8 => Some(Op::Report { parts, spent_us: 1 }),
        6 => Some(Op::Hold(Hold { part, held: 1, lasts_us: 1 })),
        _ => None,
    }
}

/// As lua/batch.lua packs an answer.
fn write(answer: &OpAnswer, op: &Op, out: &mut Vec<u8>) {
    let numbers = |numbers: &[f64], out: &mut Vec<u8>| {
        numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
    };
    match answer {
        OpAnswer::Error(text) => {
            out.push(b'E');
            out.extend((text.len() as u16).to_le_bytes());
            out.extend(text.as_bytes());
        }
        OpAnswer::Reply(Reply::Grant(grant)) => {
            out.push(b'G');
            out.extend(grant.epoch.to_le_bytes());
            let (lasts_us, deny_us) = (grant.lasts_ns as f64 / 1e3, grant.deny_ns as f64 / 1e3);
            let wait_us = grant.wait_ns as f64 / 1e3;
            numbers(&[grant.tokens, grant.rate, lasts_us, deny_us, grant.level, wait_us], out);
        }
        OpAnswer::Reply(Reply::Taken(taken)) => {
            if matches!(op, Op::Hold(_)) {
                out.push(b'P');
            } else {
                out.extend([b'T', u8::from(taken.admitted)]);
            }
            taken.outcomes.iter().for_each(|outcome| numbers(&three(outcome), out));
        }
        OpAnswer::Reply(Reply::Returned) => out.push(b'R'),
        OpAnswer::Reply(Reply::Seen(_)) => unreachable!("nothing looks"),
        OpAnswer::Reply(Reply::Peeked(outcome)) => {
            out.push(b'P');
            numbers(&three(outcome), out);
        }
    }
}

/// What a window says, in three numbers: the wait in microseconds, what remains, when it is whole.
fn three(outcome: &Outcome) -> [f64; 3] {
    let wait_us = match outcome.answer() {
        Answer::Admitted if outcome.delay_ns() == 0 => 0.0,
        Answer::Admitted => -1.0 - outcome.delay_ns() as f64 / 1e3,
        Answer::Never => -1.0,
        Answer::Later { retry_after_ns } => retry_after_ns as f64 / 1e3,
    };
    [wait_us, outcome.remaining as f64, outcome.reset_ns as f64 / 1e3]
}

/// Equal as far as doubles tell.
fn is_same(one: &OpAnswer, other: &OpAnswer) -> bool {
    match (one, other) {
        (OpAnswer::Reply(Reply::Grant(one)), OpAnswer::Reply(Reply::Grant(other))) => {
            let exact = |grant: &limit::lease_messages::Grant| {
                (grant.epoch, grant.tokens.to_bits(), grant.rate.to_bits(), grant.level.to_bits())
            };
            exact(one) == exact(other)
                && is_close(one.lasts_ns, other.lasts_ns)
                && is_close(one.deny_ns, other.deny_ns)
                && is_close(one.wait_ns, other.wait_ns)
        }
        (OpAnswer::Reply(Reply::Taken(one)), OpAnswer::Reply(Reply::Taken(other))) => {
            one.admitted == other.admitted
                && one.at_us == other.at_us
                && one.outcomes.iter().zip(&other.outcomes).all(|(one, other)| is_alike(one, other))
        }
        (OpAnswer::Reply(Reply::Peeked(one)), OpAnswer::Reply(Reply::Peeked(other))) => is_alike(one, other),
        (one, other) => one == other,
    }
}

fn is_alike(one: &Outcome, other: &Outcome) -> bool {
    std::mem::discriminant(&one.answer()) == std::mem::discriminant(&other.answer())
        && is_close(one.delay_ns(), other.delay_ns())
        && is_close(one.retry_after_ns().unwrap_or(0), other.retry_after_ns().unwrap_or(0))
        && is_close(one.remaining, other.remaining)
        && is_close(one.reset_ns, other.reset_ns)
}

fn is_close(one: u64, other: u64) -> bool {
    one.abs_diff(other) as f64 <= 2.0 + one as f64 * 1e-9
}
