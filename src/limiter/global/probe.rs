//! The probe: tests whether a shard can be used by a charge on a key that no client has. It needs the same rights and
//! runs the same script as any charge, so if it succeeds, charges do. It returns nothing, too, so that a server which has
//! lost its data notes it before the first charge.

use std::num::NonZeroU64;
use std::sync::Arc;

use redis::{Cmd, Value};

use limit::lease_messages::{ExactCharge, Op};
use limit::{Algorithm, Charge, Key, Plan, Quota, Sharing, WhenDown};

use super::batch;
use super::name::{Names, SINCE};
use super::script::Script;
use super::wire::{self, OpAnswer};

pub(super) struct Probe([Op; 2]);

impl Probe {
    /// One that always fits: a million a second.
    pub(super) fn new() -> Probe {
        let [second_ns, units] =
            [1_000_000_000, 1_000_000].map(|number| NonZeroU64::MIN.saturating_add(number));
        let quota = Quota::new(Algorithm::TokenBucket, units, second_ns, units);
        let plan = Plan { policy: POLICY.into(), quota, sharing: Sharing::new(&quota, 0.0, WhenDown::Allow) };
        let part = ExactCharge::of(&Charge::one(Key::default(), quota), &Arc::new(plan));
        let none = ExactCharge { cost: 0, ..part.clone() };
        let returned = Op::Return { parts: [none].into_iter().collect(), taken_us: 0 };
        Probe([Op::Take([part].into_iter().collect()), returned])
    }

    pub(super) fn command(&self, script: &Script, names: &Names, tag: Option<&str>, incarnation: u64) -> Cmd {
        let since = Some(names.own(tag, SINCE));
        batch::command(script, names, tag, None, since, self.0.iter(), incarnation)
    }

    /// Whether it went through; else what the server said.
    pub(super) fn read(&self, reply: &Value) -> Result<(), String> {
        let answers = match reply {
            Value::BulkString(reply) => wire::read(wire::repaired(reply).1, &self.0.each_ref()),
            // What is only touched says no more.
            Value::Okay => return Ok(()),
            _ => None,
        };
        let error = |answer| if let OpAnswer::Error(text) = answer { Some(text) } else { None };
        match answers.map(|answers| answers.into_iter().find_map(error)) {
            Some(None) => Ok(()),
            Some(Some(text)) => Err(text),
            None => Err(wire::NO_REPLY.to_owned()),
        }
    }
}

/// Stands in its key's name.
const POLICY: &str = "up";
