use std::sync::Arc;

use proptest::prelude::{any, prop, prop_assert, proptest};
use smallvec::smallvec;

use super::*;
use limit::{Algorithm, Key, Quota, Sharing, WhenDown};

fn part() -> ExactCharge {
    let number = |value| NonZeroU64::new(value).expect("a positive number");
    let quota = Quota::new(Algorithm::TokenBucket, number(5), number(1_000_000_000), number(9));
    let sharing = Sharing::new(&quota, 0.05, WhenDown::Local);
    let plan = Arc::new(Plan { policy: "p".into(), quota, sharing });
    ExactCharge { key: Key::new(7), plan, cost: 3, shadow: true, count_denied: true }
}

#[test]
fn a_key_and_a_plan_are_said_once() {
    let one = part();
    let (large, repaid) = (ExactCharge { cost: 1_000, shadow: false, ..one.clone() }, one.clone());
    let other = ExactCharge { key: Key::new(8), ..part() };
    let ops = [Op::Take(smallvec![one, other]), Op::Debit(smallvec![large]), Op::Repay(smallvec![repaid])];
    let call = Call::new(ops.iter(), 1, false, 0);
    let keys: Vec<Key> = call.keys.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, [7, 8].map(Key::new));
    assert_eq!(call.plans.len(), 2 * 33, "two of the three are one");
    assert_eq!(call.plans[1..9], 5.0_f64.to_le_bytes());
    let mut expected = vec![2, 2, 2, 0, 1, 0, 3, 3, 3, 0, 2, 0, 3, 3, 5, 1, 2, 0, 1, 0, 0, COST_FOLLOWS];
    expected.extend(1_000.0_f64.to_le_bytes());
    expected.extend([5, 1, 2, 0, 1, 0, 3, BOUNDED]);
    assert_eq!(call.operations, expected);
}

#[test]
fn plain_charges_go_in_a_run() {
    let plain = || ExactCharge { shadow: false, count_denied: false, ..part() };
    let take = |part| Op::Take(smallvec![part]);
    let ops = [
        take(plain()),
        take(ExactCharge { key: Key::new(8), cost: 1, ..plain() }),
        take(part()),
        take(plain()),
        Op::Peek(plain()),
    ];
    let call = Call::new(ops.iter(), 0, false, 0);
    let expected: [&[u8]; 4] =
        [&[8, 2, 1, 1, 3, 2, 2, 1], &[2, 1, 1, 0, 3, 0, 3, 3], &[8, 1, 1, 4, 3], &[9, 1, 1, 5, 3]];
    assert_eq!(call.operations, expected.concat());
    let mut reply = Vec::new();
    let mut say = |letters: &[u8], numbers: &[f64]| {
        reply.extend(letters);
        numbers.iter().for_each(|number| reply.extend(number.to_le_bytes()));
    };
    say(b"", &[42.0]);
    say(b"C\x02", &[4.0, 2.5, -1.0]);
    say(b"\x03\0BAD", &[]);
    say(b"T\x01", &[0.0, 4.0, 2.5]);
    say(b"C\x01", &[-2.0, 9.0, 7.0]);
    say(b"C\x01", &[-5.0, 9.0, -3.0]);
    let ops: Vec<&Op> = ops.iter().collect();
    let answers = read(&reply, &ops).expect("it is a reply");
    let taken = |outcome: Outcome| {
        let admitted = outcome.is_admitted();
        OpAnswer::Reply(Reply::Taken(TakeReply { at_us: 42, outcomes: smallvec![outcome], admitted }))
    };
    assert_eq!(answers[0], taken(Outcome::new(Answer::Admitted, 4, 2_500)));
    assert_eq!(answers[1], OpAnswer::Error("BAD".to_owned()));
    assert_eq!(answers[3], taken(Outcome::new(Answer::Later { retry_after_ns: 7_000 }, 0, 9_000)));
    assert_eq!(answers[4], OpAnswer::Reply(Reply::Peeked(Outcome::delayed(2_000, 3, 9_000))));
    assert_eq!(read(&reply[..reply.len() - 1], &ops), None);
    assert_eq!(read(&reply, &ops[..4]), None);
    let mut reply = (-1.0_f64).to_le_bytes().to_vec();
    reply.extend(b"\x03\0OOM");
    assert_eq!(read(&reply, &ops[..2]), Some(vec![OpAnswer::Error("OOM".to_owned()); 2]));
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
    let taken = TakeReply { at_us: 42, outcomes: smallvec![outcome], admitted: true };
    assert_eq!(read(&reply, &[&op]), Some(vec![OpAnswer::Reply(Reply::Taken(taken))]));
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
        let alone = Op::Take(smallvec![part()]);
        if let Some(answers) = read(&reply, &[&alone, &alone]) {
            prop_assert!(answers.len() == 2);
        }
        if let Some(answers) = read(&reply, &[&op, &Op::Peek(part())]) {
            prop_assert!(answers.len() == 2);
        }
        let mut looked = 42.0_f64.to_le_bytes().to_vec();
        looked.push(b'L');
        looked.extend(&reply);
        if let Some(answers) = read(&looked, &[&Op::Look(part())]) {
            prop_assert!(answers.len() == 1);
        }
    }
}
