//! Batches with a record, which a pipeline sends again until they are answered.
//!
//! They wait here while there is no connection, while a server that may have applied them answers with an error, and
//! while their slot is moving to another node. A shard has at most eight records, so operations that find none free are
//! not sent.

use redis::RedisError;

use super::super::batch::{Batch, Entry, QueueItem};
use super::super::condition::{self, Condition};
use super::Pipeline;

impl Pipeline {
    /// Queues an entry, or a batch that another pipeline has handed over, under a number of this pipeline.
    pub(super) fn take_up(&mut self, posted: QueueItem) {
        match posted {
            QueueItem::Entry(entry) => self.waiting.push_back(entry),
            QueueItem::Batch(mut batch) => {
                self.number += 1;
                self.flushes += 1;
                batch.flush = self.flushes;
                self.again.push((self.number, *batch));
            }
        }
    }

    /// Sends a batch with a record again; Redis applies it once, because it remembers the record's number. A batch
    /// without one is lost.
    pub(super) fn retry(&mut self, number: u64, batch: Batch, now_ns: u64) {
        if batch.record.is_none() || now_ns > batch.ends_ns() {
            return self.lose(batch, now_ns);
        }
        self.shared.shards[batch.shard].count(|counts| counts.resent += 1);
        self.send(number, batch, now_ns);
    }

    /// A batch that was sent before is answered with an error. The batch is sent again until the error is over, because
    /// this sending was not applied, but an earlier one may have been. By then a slot that was moving has brought its
    /// record along.
    pub(super) fn put_off(&mut self, number: u64, mut batch: Batch, error: &RedisError, now_ns: u64) {
        let shared = &self.shared;
        if error.code() == Some(STALE) {
            return self.lose(batch, now_ns);
        }
        match Condition::of(error) {
            _ if condition::is_elsewhere(error) => drop(shared.follow(batch.shard, error)),
            Some(condition) => self.troubled(batch.shard, condition, &error.to_string(), now_ns),
            None => shared.complain(&shared.shards[batch.shard].name, &error.to_string(), now_ns),
        }
        batch.rests_until_ns = now_ns + AGAIN_NS;
        self.again.push((number, batch));
    }

    /// Sends the batches that wait to be sent again: over this pipeline's connection, or by a pipeline of the node that
    /// has their shard now.
    pub(super) fn send_again(&mut self, now_ns: u64) {
        for (number, batch) in std::mem::take(&mut self.again) {
            let is_elsewhere = self.shared.shards[batch.shard].place() != self.node.id;
            if now_ns > batch.ends_ns() {
                self.lose(batch, now_ns);
            } else if is_elsewhere {
                let left = self.shared.hand_over(Box::new(batch));
                self.again.extend(left.map(|batch| (number, *batch)));
            } else if self.link.connection.is_none() || now_ns < batch.rests_until_ns {
                self.again.push((number, batch));
            } else {
                self.retry(number, batch, now_ns);
            }
        }
    }

    /// Puts entries back into the queue if their shard has no free record but will have one soon. If it will not, they
    /// are given up, so that the limiter learns at once that they were not sent. Returns whether none was put back.
    pub(super) fn hold_back(&mut self, held: Vec<Entry>, now_ns: u64) -> bool {
        let mut waits = false;
        for entry in held.into_iter().rev() {
            let is_answered =
                |batch: &Batch| batch.shard == entry.shard && batch.record.is_some() && !batch.is_silent;
            if self.in_flight.values().any(is_answered) {
                waits = true;
                self.waiting.push_front(entry);
            } else {
                self.shared.give_up(entry, now_ns);
            }
        }
        !waits
    }
}

/// The word of lua/batch.lua for a batch after which a later one was answered.
const STALE: &str = "STALE";
/// How soon a batch is sent again after an error, nanoseconds.
const AGAIN_NS: u64 = 100_000_000;
