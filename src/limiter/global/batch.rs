//! Operations that travel together: one script call for one shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use redis::Cmd;
use tokio::task::AbortHandle;

use base::clock;
use limit::Key;
use limit::lease_messages::{LinkError, Op, Reply};

use super::link::Done;
use super::name::Names;
use super::script::Script;
use super::shard::ShardId;
use super::wire;

/// One operation with its callback, from `Global::send` until it is answered.
pub(super) struct Entry {
    pub(super) op: Op,
    pub(super) asker: Asker,
    pub(super) shard: ShardId,
    /// When `Global::send` was called, nanoseconds.
    pub(super) asked_ns: u64,
    /// How often a cluster has redirected it.
    pub(super) moves: u8,
    /// Its node is to take it although the slot is only on its way there.
    pub(super) asking: bool,
    /// Its slot is moving from one node to another.
    pub(super) is_moving: bool,
}

pub(super) enum QueueItem {
    Entry(Entry),
    /// A batch that another pipeline has sent and got no answer to; its shard has moved to this pipeline's node.
    Batch(Box<Batch>),
}

/// The callback of an entry. It is called exactly once: if an entry is just dropped, its `Drop` calls it.
pub(super) struct Asker(Option<Done>);

impl Asker {
    pub(super) fn new(done: Done) -> Asker {
        Asker(Some(done))
    }

    pub(super) fn complete(mut self, result: Result<Reply, LinkError>, now_ns: u64) {
        if let Some(done) = self.0.take() {
            done(result, now_ns);
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(LinkError::Lost), clock::now_ns());
        }
    }
}

impl Entry {
    /// Its first key, by which it has its pipeline.
    pub(super) fn key(&self) -> Key {
        wire::keys(&self.op).first().map_or_else(Key::default, |(key, _)| *key)
    }

    /// Entries of equal kind may share a batch, and batches go out in this order: reports before questions, so that a
    /// question sees what was reported. A redirected entry goes in a batch of its own.
    pub(super) fn kind(&self) -> (ShardId, bool, bool) {
        (self.shard, !self.is_kept(), self.moves > 0)
    }

    /// Whether it goes into a batch with a record, which is sent again until it is answered. A `Take` does not, because
    /// its request has stopped waiting by then. Nor does an operation on a slot that is moving: a record is one more
    /// key that would have to be on the same node.
    pub(super) fn is_kept(&self) -> bool {
        let is_report = |op: &Op| {
            matches!(op, Op::Renew(_) | Op::Return { .. } | Op::Debit(_) | Op::Repay(_) | Op::Report { .. })
        };
        !self.is_moving && is_report(&self.op)
    }
}

/// The place in Redis that keeps the number and the answer of a batch, one of the eight that a pipeline has for each
/// shard. Dropping it frees the place for a later batch, whose number is higher, so that a copy of this batch that
/// arrives after that is refused as stale.
pub(super) struct Record {
    pub(super) index: u8,
    used: Arc<AtomicU8>,
}

impl Record {
    /// A free record, by the bits of `used`; `None` if all are taken.
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

/// The entries of one call. One without entries is a probe of the shard.
pub(super) struct Batch {
    pub(super) shard: ShardId,
    pub(super) entries: Vec<Entry>,
    pub(super) command: Arc<Cmd>,
    /// The record it is remembered in; `None` if it is sent only once.
    pub(super) record: Option<Record>,
    pub(super) asking: bool,
    pub(super) first_ns: u64,
    pub(super) sent_ns: u64,
    /// It is not sent again before this, nanoseconds.
    pub(super) rests_until_ns: u64,
    /// Number of the pipeline's connection it was last sent over; 0 before the first.
    pub(super) serial: u64,
    pub(super) flush: u64,
    /// Aborts the task that waits for its reply.
    pub(super) call: Option<AbortHandle>,
    /// It was sent more than once, so Redis may have applied it even if the last answer is an error.
    pub(super) is_repeated: bool,
    /// It has been counted as late, so that it is counted once.
    pub(super) is_late: bool,
    /// It has been counted as unanswered by its current connection.
    pub(super) is_silent: bool,
}

impl Batch {
    pub(super) fn new(shard: ShardId, entries: Vec<Entry>, command: Cmd, flush: u64, now_ns: u64) -> Batch {
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

    /// When it is given up, nanoseconds. A batch with a record is sent again until then.
    pub(super) fn ends_ns(&self) -> u64 {
        self.first_ns.saturating_add(if self.record.is_some() { KEPT_NS } else { LOST_NS })
    }

    pub(super) fn fail(self, why: LinkError, now_ns: u64) {
        for entry in self.entries {
            entry.asker.complete(Err(why), now_ns);
        }
    }
}

/// Encodes a call. `record` is the number of the batch and the name of the record's key, `since` the name of the key that says
/// since when the server has its data.
pub(super) fn command<'o>(
    script: &Script,
    names: &Names,
    tag: Option<&str>,
    record: Option<(u64, Vec<u8>)>,
    since: Option<Vec<u8>>,
    ops: impl Iterator<Item = &'o Op>,
    incarnation: u64,
) -> Cmd {
    let before = u8::from(record.is_some()) + u8::from(since.is_some());
    let call = wire::Call::new(ops, before, since.is_some(), incarnation);
    let keys = call.keys.len() + usize::from(before);
    let bytes = 64 + 40 * keys + call.plans.len() + call.operations.len();
    let mut command = Cmd::with_capacity(keys + 5, bytes);
    command.arg("EVALSHA").arg(&script.hash).arg(keys);
    let number = record.as_ref().map_or(0, |(number, _)| *number);
    if let Some((_, name)) = &record {
        command.arg(name);
    }
    if let Some(name) = &since {
        command.arg(name);
    }
    let mut buffer = Vec::with_capacity(256);
    for (key, plan) in &call.keys {
        buffer.clear();
        names.write_key(&mut buffer, tag, plan, *key);
        command.arg(&buffer);
    }
    buffer.clear();
    buffer.extend((number as f64).to_le_bytes());
    buffer.extend(RECORD_MS.to_le_bytes());
    buffer.extend(&call.plans);
    command.arg(&buffer);
    command.arg(&call.operations);
    command
}

/// How long Redis keeps a record, milliseconds: twice as long as a batch is sent again, so that a copy which was stuck
/// in the network is still recognised when it arrives.
const RECORD_MS: f64 = 600_000.0;
/// How long a batch with a record is sent again, nanoseconds: no longer, because an outage of five minutes needs an
/// operator anyway.
const KEPT_NS: u64 = 300_000_000_000;
/// An operation that is sent once is given up after this, nanoseconds.
pub(super) const LOST_NS: u64 = 1_000_000_000;
/// Operations in one call, which bounds how long Redis is busy with it.
pub(super) const OPERATIONS_MAX: usize = 64;
