//! [`Pipeline`]: one connection to a node and the queue in front of it, whose operations are gathered into calls.
//!
//! A call is sent at once while at most one is in flight, so that a lone operation does not wait. While more are in
//! flight, operations gather; the more calls in flight, the more operations the next one must have.
//!
//! A connection that breaks, or answers nothing for [`SILENT_NS`], is replaced. Calls with a record are then sent again
//! under the same number until they are answered, and Redis applies them once; other calls end without an answer.
//! Nothing here decides what an operation means.

mod connection_state;
mod resend;
mod upkeep;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::{Cmd, RedisError, ServerErrorKind, Value};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use base::clock;
use base::random::Random;
use limit::lease_messages::{LinkError, Op};

use super::batch::{self, Batch, Entry, OPERATIONS_MAX, QueueItem, Record};
use super::condition::{Condition, is_elsewhere};
use super::connection::Connection;
use super::name::SINCE;
use super::node::{Locator, Node};
use super::routes::RoutingState;
use super::shard::{NodeId, ShardId};
use super::wire::{self, OpAnswer};
use connection_state::ConnectionState;

pub(super) struct Pipeline {
    shared: Arc<RoutingState>,
    node: Arc<Node>,
    index: usize,
    /// Sets this pipeline's records apart from those of other pipelines and of other processes.
    identity: String,
    queue: mpsc::Receiver<QueueItem>,
    waiting: VecDeque<Entry>,
    /// Calls in flight by number. Numbers rise, and Redis refuses a batch with a lower number than its record has.
    in_flight: HashMap<u64, Batch>,
    calls: JoinSet<CallResult>,
    /// Calls to send again once there is a connection and their pause after an error is over.
    again: Vec<(u64, Batch)>,
    /// For each shard, one bit for each record in use.
    records: HashMap<ShardId, Arc<AtomicU8>>,
    number: u64,
    flushes: u64,
    link: ConnectionState,
    /// Changes when the node's server has moved to another address.
    moves: watch::Receiver<u64>,
    random: Random,
}

/// Adds a node, and runs the pipelines to it until `stop` is set.
pub(super) fn start(
    shared: &Arc<RoutingState>,
    (name, locator): (String, Locator),
    connections: usize,
    stop: &watch::Receiver<bool>,
    pipelines: &mut JoinSet<()>,
) -> NodeId {
    let mut nodes = shared.nodes.load().to_vec();
    let id = NodeId::new(nodes.len());
    let (node, queues) = Node::new(id, name, locator, connections);
    let node = Arc::new(node);
    nodes.push(Arc::clone(&node));
    shared.nodes.store(Arc::new(nodes.into()));
    for (index, queue) in queues.into_iter().enumerate() {
        let pipeline = Pipeline::new(Arc::clone(shared), Arc::clone(&node), index, queue);
        pipelines.spawn(pipeline.run(stop.clone()));
    }
    id
}

struct CallResult {
    number: u64,
    serial: u64,
    result: Result<Value, RedisError>,
}

impl Pipeline {
    fn new(
        shared: Arc<RoutingState>,
        node: Arc<Node>,
        index: usize,
        queue: mpsc::Receiver<QueueItem>,
    ) -> Pipeline {
        let identity = format!("{:x}.{:x}.{index:x}", shared.incarnation, node.id.index());
        let moves = node.moves.subscribe();
        Pipeline {
            shared,
            node,
            index,
            identity,
            queue,
            waiting: VecDeque::new(),
            in_flight: HashMap::new(),
            calls: JoinSet::new(),
            again: Vec::new(),
            records: HashMap::new(),
            number: 0,
            flushes: 0,
            link: ConnectionState::default(),
            moves,
            random: Random::seeded(),
        }
    }

    /// Runs until `stop` is set and every answer has come, but not longer than [`STOP_NS`] after it.
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stop_ns = None;
        let mut incoming = Vec::with_capacity(OPERATIONS_MAX);
        loop {
            // Not received from at the end, because a closed and empty queue is always ready, and in a biased `select!`
            // it would starve the timers below.
            let may_come = stop_ns.is_none() || !self.queue.is_empty();
            let (has_room, has_waiting) = (self.waiting.len() < WAITING_MAX, !self.waiting.is_empty());
            tokio::select! {
                biased;
                Some(completed) = self.calls.join_next(), if !self.calls.is_empty() => {
                    // An aborted call fails here; `take` has removed its batch already.
                    if let Ok(completed) = completed { self.complete(completed) }
                }
                Some(opened) = self.link.opening.join_next(), if !self.link.opening.is_empty() => {
                    if let Ok(opened) = opened { self.opened(opened, clock::now_ns()) }
                }
                count = self.queue.recv_many(&mut incoming, OPERATIONS_MAX), if has_room && may_come => {
                    if count == 0 && stop_ns.is_none() {
                        stop_ns = Some(clock::now_ns());
                    }
                    incoming.drain(..).for_each(|posted| self.take_up(posted));
                }
                _ = stop.changed(), if stop_ns.is_none() => {
                    stop_ns = Some(clock::now_ns());
                    self.queue.close();
                }
                () = tokio::time::sleep(Duration::from_nanos(GATHER_NS)), if has_waiting => {}
                _ = tick.tick() => {
                    self.look(clock::now_ns());
                    if !self.node.is_used() && self.in_flight.is_empty() {
                        // Because nodes that have left a cluster stay in the list, their pipelines must cost little.
                        tick.reset_after(REST);
                    }
                }
            }
            self.flush(clock::now_ns());
            if let Some(since_ns) = stop_ns {
                let is_over = clock::now_ns().saturating_sub(since_ns) > STOP_NS;
                let is_idle = self.waiting.is_empty() && self.in_flight.is_empty() && self.again.is_empty();
                if is_over || is_idle && self.queue.is_empty() {
                    return;
                }
            }
        }
    }

    /// Sends the queued entries if enough have gathered or the first has waited long enough.
    fn flush(&mut self, now_ns: u64) {
        if self.link.connection.is_none() {
            // The limiter is told at once, because without a connection no answer can come in time.
            return self.waiting.drain(..).for_each(|entry| self.shared.give_up(entry, now_ns));
        }
        while let Some(first) = self.waiting.front() {
            let flushes: usize = self.flushes_in_flight();
            let is_due = self.waiting.len() >= GATHERED.get(flushes).copied().unwrap_or(usize::MAX)
                || flushes < GATHERED.len() && now_ns.saturating_sub(first.asked_ns) >= GATHER_NS;
            if !is_due {
                return;
            }
            let count = self.waiting.len().min(FLUSH_MAX);
            let mut entries: Vec<Entry> = self.waiting.drain(..count).collect();
            self.flushes += 1;
            entries.sort_by_key(Entry::kind);
            let (mut entries, mut held) = (entries.into_iter().peekable(), Vec::new());
            while let Some(entry) = entries.next() {
                let kind = entry.kind();
                let mut group = vec![entry];
                let most = if kind.2 { 1 } else { OPERATIONS_MAX };
                while group.len() < most
                    && let Some(next) = entries.next_if(|next| next.kind() == kind)
                {
                    group.push(next);
                }
                held.extend(self.submit(group, now_ns));
            }
            if !self.hold_back(held, now_ns) {
                return;
            }
        }
    }

    fn flushes_in_flight(&self) -> usize {
        let current = self.in_flight.values().filter(|batch| batch.serial == self.link.serial);
        let mut flushes: Vec<u64> = current.map(|batch| batch.flush).collect();
        flushes.sort_unstable();
        flushes.dedup();
        flushes.len()
    }

    /// Sends one call with entries of one kind. Returns them if all records of their shard are in use: a call in flight
    /// must be answered first.
    fn submit(&mut self, entries: Vec<Entry>, now_ns: u64) -> Vec<Entry> {
        let Some(first) = entries.first() else { return entries };
        let (shard_id, asking, is_kept) = (first.shard, first.asking, first.is_kept());
        let record = is_kept.then(|| Record::of(self.records.entry(shard_id).or_default()));
        if let Some(None) = record {
            return entries;
        }
        let record = record.flatten();
        self.number += 1;
        let shared = Arc::clone(&self.shared);
        let shard = &shared.shards[shard_id];
        let tag = shard.tag.as_deref();
        let name = record.as_ref().map(|record| {
            (self.number, shared.names.own(tag, &format!("{}.{}", self.identity, record.index)))
        });
        let ops = entries.iter().map(|entry| &entry.op);
        // Not without a record, because a slot that moves may have its keys on two nodes.
        let returns = is_kept && ops.clone().any(|op| matches!(op, Op::Return { .. }));
        let since = returns.then(|| shared.names.own(tag, SINCE));
        let (script, names) = (&shared.connector.script, &shared.names);
        let command = batch::command(script, names, tag, name, since, ops, shared.incarnation);
        shard.count(|counts| {
            counts.calls += 1;
            entries.iter().for_each(|entry| counts.asked(&entry.op));
        });
        let batch = Batch::new(shard_id, entries, command, self.flushes, now_ns);
        self.send(self.number, Batch { record, asking, ..batch }, now_ns);
        Vec::new()
    }

    /// Sends a batch over the current connection, or keeps it for the next one.
    fn send(&mut self, number: u64, mut batch: Batch, now_ns: u64) {
        let Some(connection) = self.link.connection.clone() else {
            self.again.push((number, batch));
            return;
        };
        batch.is_repeated = batch.serial != 0;
        let (serial, asking) = (self.link.serial, batch.asking);
        (batch.serial, batch.sent_ns, batch.is_silent) = (serial, now_ns, false);
        let (command, shared) = (Arc::clone(&batch.command), Arc::clone(&self.shared));
        let mut sent = Box::pin(async move {
            let mut result = call(&connection, &command, asking).await;
            if let Err(error) = &result
                && error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
            {
                // The server has lost the script (a restart, or `SCRIPT FLUSH`). It has not run, so it may be loaded
                // and called again.
                let load = redis::cmd("SCRIPT").arg("LOAD").arg(&shared.connector.script.text).to_owned();
                result = match connection.call(&load).await {
                    Ok(_) => call(&connection, &command, asking).await,
                    Err(error) => Err(error),
                };
            }
            CallResult { number, serial, result }
        });
        // Handed to the connection here and not in the task, because the runtime runs the newest task first, so a
        // question could overtake a report that was submitted before it.
        let first = sent.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let call = self.calls.spawn(async move {
            match first {
                Poll::Ready(completed) => completed,
                Poll::Pending => sent.await,
            }
        });
        batch.call = Some(call);
        self.in_flight.insert(number, batch);
        self.link.active_ns = now_ns;
    }

    /// A call was answered, or its connection broke.
    fn complete(&mut self, completed: CallResult) {
        let now_ns = clock::now_ns();
        let Some(batch) = self.in_flight.remove(&completed.number) else { return };
        let shared = Arc::clone(&self.shared);
        let shard = &shared.shards[batch.shard];
        if completed.serial == self.link.serial {
            self.link.active_ns = now_ns;
        }
        match completed.result {
            Ok(value) => {
                let took_ns = now_ns.saturating_sub(batch.sent_ns);
                let deadline_ns = shared.deadline_ns(batch.shard);
                shard.took(took_ns, now_ns);
                if took_ns <= deadline_ns {
                    (self.link.misses, self.link.replacements) = (0, 0);
                } else if !batch.is_late {
                    self.link.misses = self.link.misses.saturating_add(1);
                    shard.late(now_ns);
                }
                self.answer(batch, &value, took_ns, now_ns);
            }
            Err(error) if error.is_io_error() || error.is_connection_dropped() => {
                shard.failed(now_ns);
                if completed.serial == self.link.serial {
                    self.disconnect(now_ns);
                }
                self.retry(completed.number, batch, now_ns);
            }
            Err(error) if batch.is_repeated => self.put_off(completed.number, batch, &error, now_ns),
            Err(error) if is_elsewhere(&error) => shared.reroute(batch, &error, now_ns),
            Err(error) => self.refused(batch, &error, now_ns),
        }
    }

    /// Completes every entry of a batch with its part of the reply.
    fn answer(&mut self, batch: Batch, value: &Value, took_ns: u64, now_ns: u64) {
        let shared = Arc::clone(&self.shared);
        let shard = &shared.shards[batch.shard];
        let (repaired, reply) = match value {
            Value::BulkString(reply) => wire::repaired(reply),
            _ => (0, &[][..]),
        };
        // A record of an earlier answer says the time of that.
        if !batch.is_repeated
            && took_ns <= SILENT_NS
            && let Some(read_us) = wire::read_us(reply)
        {
            shard.reads(read_us, now_ns.saturating_sub(took_ns / 2));
        }
        if batch.entries.is_empty() {
            return match shared.probe.read(value) {
                Ok(()) => {
                    shard.recovered(now_ns);
                    shard.answered(now_ns, took_ns, shared.deadline_of(shard));
                }
                Err(why) => {
                    let condition = Condition::of_text(&why).unwrap_or(Condition::Failing);
                    self.troubled(batch.shard, condition, &why, now_ns);
                }
            };
        }
        let ops: Vec<_> = batch.entries.iter().map(|entry| &entry.op).collect();
        let answers = wire::read(reply, &ops);
        if repaired > 0 {
            shared.repaired(&shard.name, repaired, now_ns);
        }
        let Some(answers) = answers else {
            shard.troubled(Condition::Failing, wire::NO_REPLY, now_ns);
            return batch.fail(LinkError::Lost, now_ns);
        };
        let mut trouble = None;
        for (entry, answer) in batch.entries.into_iter().zip(answers) {
            match answer {
                OpAnswer::Reply(reply) => entry.asker.complete(Ok(reply), now_ns),
                OpAnswer::Error(text) => {
                    shard.count(|counts| counts.refused += 1);
                    match Condition::of_text(&text) {
                        Some(condition) => trouble = Some((condition, text)),
                        None => shared.complain(&shard.name, &text, now_ns),
                    }
                    entry.asker.complete(Err(LinkError::Refused), now_ns);
                }
            }
        }
        match trouble {
            Some((condition, text)) => self.troubled(batch.shard, condition, &text, now_ns),
            None if took_ns > SILENT_NS => {}
            None => shard.answered(now_ns, took_ns, shared.deadline_of(shard)),
        }
    }

    /// The server answered a whole call with an error: none of its operations was applied.
    fn refused(&mut self, batch: Batch, error: &RedisError, now_ns: u64) {
        let shared = Arc::clone(&self.shared);
        let (shard, count) = (batch.shard, batch.entries.len() as u64);
        shared.shards[shard].count(|counts| counts.refused += count);
        let text = error.to_string();
        match Condition::of(error) {
            Some(condition) => self.troubled(shard, condition, &text, now_ns),
            None => shared.complain(&shared.shards[shard].name, &text, now_ns),
        }
        batch.fail(LinkError::Refused, now_ns);
    }

    fn troubled(&mut self, shard: ShardId, condition: Condition, why: &str, now_ns: u64) {
        self.shared.shards[shard].troubled(condition, why, now_ns);
        self.shared.look.notify_one();
        if condition.is_worth_looking_elsewhere() {
            self.disconnect(now_ns);
        }
    }
}

async fn call(connection: &Connection, command: &Cmd, asking: bool) -> Result<Value, RedisError> {
    match asking {
        false => connection.call(command).await,
        true => connection.call_asking(command).await,
    }
}

/// How many operations must have gathered before the next flush, by the number of flushes in flight. The second flush
/// goes at once, like the first, because under a light load an operation behind the first would wait for a whole round
/// trip and gather no others.
const GATHERED: [usize; 7] = [1, 1, 4, 16, 64, 128, 256];
/// An operation that has waited this long is sent even if few have gathered, nanoseconds. The runtime's timers are no
/// finer.
const GATHER_NS: u64 = 1_000_000;
/// Operations of one flush: up to four calls.
const FLUSH_MAX: usize = 4 * OPERATIONS_MAX;
/// Operations taken from the queue that wait to be sent.
const WAITING_MAX: usize = 2 * FLUSH_MAX;
/// How often a pipeline checks its calls for lateness and its connection for life.
const TICK: Duration = Duration::from_millis(10);
/// The same for a node without shards.
const REST: Duration = Duration::from_millis(100);
/// A connection that has left a call unanswered for this long is replaced, nanoseconds.
const SILENT_NS: u64 = 50_000_000;
/// How long a stop waits for the answers to what is queued, nanoseconds.
const STOP_NS: u64 = 500_000_000;
