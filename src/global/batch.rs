//! Operations that travel together: one script call for one shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use redis::Cmd;
use tokio::task::AbortHandle;

use crate::clock;
use crate::limit::lease_messages::{Op, Reply, Unanswered};

use super::name::Names;
use super::script::Script;
use super::wire;

/// Called once with the answer, and the time.
pub type Done = Box<dyn FnOnce(Result<Reply, Unanswered>, u64) + Send>;

/// One operation on its way.
pub(super) struct Entry {
    pub(super) op: Op,
    pub(super) asker: Asker,
    /// Index of the shard its keys are on.
    pub(super) shard: usize,
    /// When it was asked, nanoseconds.
    pub(super) asked_ns: u64,
    /// How often it was sent elsewhere.
    pub(super) moves: u8,
    /// Its node is to take it although the slot is only on its way there.
    pub(super) asking: bool,
    /// Its slot is on its way from one node to another.
    pub(super) is_moving: bool,
}

/// What comes to a pipeline.
pub(super) enum Posted {
    /// What somebody asks.
    Entry(Entry),
    /// What another pipeline has sent before and has no answer to: its shard is on this pipeline's node now.
    Batch(Box<Batch>),
}

/// The callback of an entry. It is called exactly once: if an entry is just dropped, its `Drop` calls it.
pub(super) struct Asker(Option<Done>);

impl Asker {
    pub(super) fn new(done: Done) -> Asker {
        Asker(Some(done))
    }

    pub(super) fn complete(mut self, result: Result<Reply, Unanswered>, now_ns: u64) {
        if let Some(done) = self.0.take() {
            done(result, now_ns);
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(Unanswered::Lost), clock::now_ns());
        }
    }
}

impl Entry {
    /// Entries that are equal in this may go together, in this order: what is reported goes before what is asked. Sent
    /// elsewhere, each goes alone.
    pub(super) fn kind(&self) -> (usize, bool, bool) {
        (self.shard, !self.is_kept(), self.moves > 0)
    }

    /// Whether it goes into a batch with a record, which is sent again until it is answered. What takes and waits
    /// is not: nobody waits any more by then. Nor is what meets a slot on its way: a record in it would keep its key
    /// back.
    pub(super) fn is_kept(&self) -> bool {
        !self.is_moving && matches!(self.op, Op::Renew(_) | Op::Return { .. } | Op::Debit(_))
    }
}

/// Where Redis keeps the number and the answer of a batch: one of the eight that a pipeline has for a shard. Dropped, it is
/// the next batch's, whose number is higher: what of this one is still on its way will be known for old.
pub(super) struct Record {
    pub(super) index: u8,
    used: Arc<AtomicU8>,
}

impl Record {
    /// One that is not `used`, one bit each.
    pub(super) fn of(used: &Arc<AtomicU8>) -> Option<Record> {
        let index = used.load(Ordering::Relaxed).trailing_ones();
        if index >= u8::BITS {
            return None;
        }
        used.fetch_or(1 << index, Ordering::Relaxed);
        Some(Record { index: index as u8, used: Arc::clone(used) })
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.used.fetch_and(!(1 << self.index), Ordering::Relaxed);
    }
}

/// Entries in one call. Without any, it asks whether the shard can be written to.
pub(super) struct Batch {
    pub(super) shard: usize,
    pub(super) entries: Vec<Entry>,
    pub(super) command: Arc<Cmd>,
    /// The record it is remembered in; `None`: it is not sent twice.
    pub(super) record: Option<Record>,
    /// Its node is to take it although the slot is only on its way there.
    pub(super) asking: bool,
    /// When it was sent first, nanoseconds.
    pub(super) first_ns: u64,
    /// When it was sent last.
    pub(super) sent_ns: u64,
    /// It is not sent again before.
    pub(super) rests_until_ns: u64,
    /// On which of the pipeline's connections.
    pub(super) serial: u64,
    /// Which flush it was part of.
    pub(super) flush: u64,
    /// Ends the wait for its reply.
    pub(super) call: Option<AbortHandle>,
    /// It was handed to a connection more than once: an earlier one may have delivered it.
    pub(super) is_repeated: bool,
    /// It was counted as late.
    pub(super) is_late: bool,
    /// It was counted as unanswered.
    pub(super) is_silent: bool,
}

impl Batch {
    /// One that is about to be sent, as part of a flush.
    pub(super) fn new(shard: usize, entries: Vec<Entry>, command: Cmd, flush: u64, now_ns: u64) -> Batch {
        Batch {
            shard,
            entries,
            command: Arc::new(command),
            record: None,
            asking: false,
            first_ns: now_ns,
            sent_ns: now_ns,
            rests_until_ns: 0,
            serial: 0,
            flush,
            call: None,
            is_repeated: false,
            is_late: false,
            is_silent: false,
        }
    }

    /// When nobody waits for its answer any more. A batch with a record is sent again until it is answered.
    pub(super) fn ends_ns(&self) -> u64 {
        self.first_ns.saturating_add(if self.record.is_some() { KEPT_NS } else { LOST_NS })
    }

    /// Ends it without an answer.
    pub(super) fn fail(self, why: Unanswered, now_ns: u64) {
        for entry in self.entries {
            entry.asker.complete(Err(why), now_ns);
        }
    }
}

/// Packs a call. `record` is the number of the batch and the name of where it is remembered.
pub(super) fn command<'o>(
    script: &Script,
    names: &Names,
    tag: Option<&str>,
    record: Option<(u64, Vec<u8>)>,
    ops: impl Iterator<Item = &'o Op>,
    incarnation: u64,
) -> Cmd {
    let call = wire::Call::new(ops, u16::from(record.is_some()), incarnation);
    let keys = call.keys().len() + usize::from(record.is_some());
    let bytes = 64 + 40 * keys + call.plans().len() + call.operations().len();
    let mut command = Cmd::with_capacity(keys + 5, bytes);
    command.arg("EVALSHA").arg(script.hash()).arg(keys);
    let number = record.as_ref().map_or(0, |(number, _)| *number);
    if let Some((_, name)) = &record {
        command.arg(name);
    }
    let mut buffer = Vec::with_capacity(256);
    for (key, plan) in call.keys() {
        buffer.clear();
        names.write_key(&mut buffer, tag, plan, *key);
        command.arg(&buffer);
    }
    buffer.clear();
    buffer.extend((number as f64).to_le_bytes());
    buffer.extend(RECORD_MS.to_le_bytes());
    buffer.extend(call.plans());
    command.arg(&buffer);
    command.arg(call.operations());
    command
}

/// How long a record stays, milliseconds: twice as long as a batch is sent again, so that one which was stuck on its
/// way is known when it comes.
const RECORD_MS: f64 = 600_000.0;
/// How long a batch with a record is sent again, nanoseconds: an outage is shorter, or somebody has to look at it.
const KEPT_NS: u64 = 300_000_000_000;
/// What is sent once and has no answer after so long will have none, nanoseconds.
pub(super) const LOST_NS: u64 = 1_000_000_000;
/// Operations in one call: what bounds the time it takes Redis.
pub(super) const OPERATIONS_MAX: usize = 64;
