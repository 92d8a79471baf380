//! The probe: tests whether a shard can be used by a charge on a key that no client has. It needs the same rights and
//! runs the same script as any charge, so if it succeeds, charges do.

use std::num::NonZeroU64;
use std::sync::Arc;

use redis::{Cmd, Value};

use limit::lease_messages::{ExactCharge, Op};
use limit::{Algorithm, Key, Plan, Quota, Sharing, WhenDown};

use super::batch;
use super::name::Names;
use super::script::Script;
use super::wire::{self, OpAnswer};

pub(super) struct Probe(Op);

impl Probe {
    /// One that always fits: a million a second.
    pub(super) fn new() -> Probe {
        let [second_ns, units] =
            [1_000_000_000, 1_000_000].map(|number| NonZeroU64::MIN.saturating_add(number));
        let quota = Quota::new(Algorithm::TokenBucket, units, second_ns, units);
        let plan = Plan { policy: POLICY.into(), quota, sharing: Sharing::new(&quota, 0.0, WhenDown::Allow) };
        let part = ExactCharge {
            key: Key::default(),
            plan: Arc::new(plan),
            cost: 1,
            shadow: false,
            count_denied: false,
        };
        Probe(Op::Take([part].into_iter().collect()))
    }

    pub(super) fn command(&self, script: &Script, names: &Names, tag: Option<&str>, incarnation: u64) -> Cmd {
        batch::command(script, names, tag, None, [&self.0].into_iter(), incarnation)
    }

    /// Whether it went through.
    ///
    /// # Errors
    /// With what the server said.
    pub(super) fn read(&self, reply: &Value) -> Result<(), String> {
        let answers = match reply {
            Value::BulkString(reply) => wire::read(wire::repaired(reply).1, &[&self.0]),
            // What is only touched says no more.
            Value::Okay => return Ok(()),
            _ => None,
        };
        match answers.and_then(|answers| answers.into_iter().next()) {
            Some(OpAnswer::Reply(_)) => Ok(()),
            Some(OpAnswer::Error(text)) => Err(text),
            None => Err(wire::NO_REPLY.to_owned()),
        }
    }
}

/// Stands in its key's name.
const POLICY: &str = "up";
