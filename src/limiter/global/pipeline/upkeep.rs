//! Upkeep of a pipeline's connection: opens, watches and replaces it.
//!
//! A suspect connection is closed only after another one works, because a server that is frozen or far away is no faster
//! over a new connection.

use std::sync::Arc;

use redis::Cmd;

use limit::lease_messages::LinkError;

use super::super::batch::{Batch, Entry, LOST_NS};
use super::super::connection::{CONNECT_WITHIN, ConnectError, Connection};
use super::super::shard::ShardId;
use super::{Pipeline, SILENT_NS};

impl Pipeline {
    /// Ends calls that are too late, and opens, replaces or closes the connection as needed.
    pub(super) fn look(&mut self, now_ns: u64) {
        let is_silent = self.look_at_calls(now_ns);
        let is_suspect = is_silent || self.link.misses >= MISSES_MAX;
        let has_moved = self.moves.has_changed().unwrap_or(false);
        if has_moved {
            self.moves.mark_unchanged();
        }
        let is_wanted = match &self.link.connection {
            None => self.node.is_used() && now_ns >= self.link.next_ns,
            Some(_) => has_moved || is_suspect && now_ns >= self.link.replace_ns,
        };
        if is_wanted && self.link.opening.is_empty() {
            self.open(now_ns);
        }
        if self.link.connection.is_some() && !self.node.is_used() {
            self.disconnect(now_ns);
        }
        self.keep_asking(now_ns);
        self.keep_knowing(now_ns);
        // Entries that were not sent to a server known to be away are given up at once, so that their requests can use
        // fallback.
        let shards = &self.shared.shards;
        let is_over = |entry: &mut Entry| {
            let is_away = is_silent && !shards[entry.shard].is_closed();
            now_ns.saturating_sub(entry.asked_ns) > if is_away { SILENT_NS } else { LOST_NS }
        };
        while let Some(entry) = self.waiting.pop_front_if(is_over) {
            self.shared.give_up(entry, now_ns);
        }
        self.send_again(now_ns);
    }

    /// Counts late calls and ends those that will have no answer. Returns whether the current connection has been
    /// silent for too long.
    fn look_at_calls(&mut self, now_ns: u64) -> bool {
        let shared = Arc::clone(&self.shared);
        let (mut given_up, mut stuck, mut is_silent) = (Vec::new(), Vec::new(), false);
        for (number, batch) in &mut self.in_flight {
            let age_ns = now_ns.saturating_sub(batch.sent_ns);
            let shard = &shared.shards[batch.shard];
            if age_ns > shared.deadline_of(shard) && !batch.is_late {
                batch.is_late = true;
                self.link.misses = self.link.misses.saturating_add(1);
                shard.late(now_ns);
            }
            if age_ns > SILENT_NS && !batch.is_silent {
                batch.is_silent = true;
                shard.failed(now_ns);
            }
            let is_current = batch.serial == self.link.serial;
            is_silent |= is_current && batch.is_silent;
            if now_ns > batch.ends_ns() {
                given_up.push(*number);
            } else if batch.is_silent && !is_current {
                stuck.push(*number);
            }
        }
        for number in given_up {
            if let Some(batch) = self.take(number) {
                self.lose(batch, now_ns);
            }
        }
        for number in stuck {
            if let Some(batch) = self.take(number) {
                self.retry(number, batch, now_ns);
            }
        }
        is_silent
    }

    /// Sends the calls that no request causes: one over an idle connection, which would otherwise be found dead only by
    /// a request, and one to each shard whose breaker is open, so that its return is noticed without a request.
    fn keep_asking(&mut self, now_ns: u64) {
        if now_ns < self.link.ask_ns {
            return;
        }
        self.link.ask_ns = now_ns + ASK_NS;
        let shared = Arc::clone(&self.shared);
        let is_connected = self.link.connection.is_some();
        let is_idle = self.in_flight.is_empty() && now_ns.saturating_sub(self.link.active_ns) >= ASK_NS;
        for (index, shard) in shared.shards_of(&self.node).enumerate() {
            shared.shards[shard].look(now_ns);
            if is_connected && !shared.shards[shard].is_well() {
                self.call_alone(shard, shared.probe(Some(shard)), now_ns);
            } else if is_connected && is_idle && index == 0 {
                self.call_alone(shard, shared.touch(shard), now_ns);
            }
        }
    }

    /// Asks the server for its settings now and then, because operators can change `maxmemory-policy` at any time.
    fn keep_knowing(&mut self, now_ns: u64) {
        while let Some(Ok((server, about))) = self.link.abouts.try_join_next() {
            let is_there = self.link.connection.as_ref().is_some_and(|it| it.server == server);
            if let Some(about) = about.filter(|_| is_there) {
                self.node.learn(server, Arc::new(about));
            }
        }
        let Some(connection) = self.link.connection.clone().filter(|_| now_ns >= self.link.about_ns) else {
            return;
        };
        self.link.about_ns = now_ns + ABOUT_NS;
        if self.index == 0 && self.link.abouts.is_empty() {
            let connector = Arc::clone(&self.shared.connector);
            self.link.abouts.spawn(async move {
                let look = connector.look(&connection);
                let about = tokio::time::timeout(CONNECT_WITHIN, look).await.ok().flatten();
                (connection.server, about)
            });
        }
    }

    /// Sends a call that carries no operation of the limiter.
    fn call_alone(&mut self, shard: ShardId, command: Cmd, now_ns: u64) {
        self.number += 1;
        self.flushes += 1;
        let batch = Batch::new(shard, Vec::new(), command, self.flushes, now_ns);
        self.send(self.number, batch, now_ns);
    }

    /// Starts to open a connection; [`Pipeline::opened`] gets the result.
    fn open(&mut self, now_ns: u64) {
        self.link.next_ns = now_ns + BACKOFF_MAX_NS;
        let patience_ns = REPLACE_NS.saturating_mul(1 << self.link.replacements.min(10)).min(REPLACE_MAX_NS);
        self.link.replace_ns = now_ns + patience_ns;
        self.link.replacements = self.link.replacements.saturating_add(1);
        let (shared, node, attempt) = (Arc::clone(&self.shared), Arc::clone(&self.node), self.link.failures);
        let command = shared.probe(shared.shards_of(&node).next());
        self.link.opening.spawn(async move {
            let server = node.locate(&shared.connector, attempt).await?;
            let round = attempt / node.places();
            shared.connector.open(&server, round, &shared.probe, &command).await
        });
    }

    /// An attempt to connect has succeeded or failed.
    pub(super) fn opened(&mut self, opened: Result<Connection, ConnectError>, now_ns: u64) {
        let shared = Arc::clone(&self.shared);
        match opened {
            Ok(connection) => {
                tracing::debug!(server = %connection.server, version = connection.about.version, "connected");
                self.node.found(&connection);
                self.node.set_connected(self.index, true);
                self.link.connection = Some(connection);
                self.link.serial += 1;
                (self.link.failures, self.link.misses, self.link.active_ns) = (0, 0, now_ns);
                for shard in shared.shards_of(&self.node) {
                    shared.shards[shard].count(|counts| counts.connects += 1);
                    shared.shards[shard].recovered(now_ns);
                }
                self.send_again(now_ns);
                // Calls that the old connection has left unanswered for too long go out again over the new one.
                self.look_at_calls(now_ns);
            }
            Err(error) => {
                self.link.failures = self.link.failures.saturating_add(1);
                self.link.next_ns = now_ns + self.backoff_ns();
                shared.look.notify_one();
                // A slow connection that works stays as good as it was if a second one could not be opened.
                let is_silent =
                    self.in_flight.values().any(|batch| batch.is_silent && batch.serial == self.link.serial);
                if is_silent {
                    // Because a silent one may have lost its calls, the next attempt comes as soon as if there were no
                    // connection.
                    (self.link.replace_ns, self.link.replacements) = (self.link.next_ns, 0);
                }
                if self.link.connection.is_none() && self.node.is_away() || is_silent {
                    for shard in shared.shards_of(&self.node) {
                        shared.shards[shard].troubled(error.condition(), &error.to_string(), now_ns);
                    }
                }
            }
        }
    }

    /// Drops the connection; the next attempt may begin at once.
    pub(super) fn disconnect(&mut self, now_ns: u64) {
        if self.link.connection.take().is_some() {
            self.node.set_connected(self.index, false);
            self.link.next_ns = now_ns;
            self.link.serial += 1;
        }
    }

    /// The pause after a failed attempt: 10 ms, doubling up to 250 ms, of which a random part of up to a half is taken
    /// off so that nodes do not reconnect in step.
    fn backoff_ns(&self) -> u64 {
        let whole_ns = BACKOFF_MIN_NS.saturating_mul(1 << self.link.failures.min(10)).min(BACKOFF_MAX_NS);
        whole_ns / 2 + self.random.next() % (whole_ns / 2)
    }

    fn take(&mut self, number: u64) -> Option<Batch> {
        let batch = self.in_flight.remove(&number)?;
        if let Some(call) = &batch.call {
            call.abort();
        }
        Some(batch)
    }

    pub(super) fn lose(&mut self, batch: Batch, now_ns: u64) {
        self.shared.shards[batch.shard].count(|counts| counts.lost += batch.entries.len() as u64);
        batch.fail(LinkError::Lost, now_ns);
    }
}

/// Half the pause after the first failed attempt, nanoseconds.
const BACKOFF_MIN_NS: u64 = 5_000_000;
/// The longest pause between attempts, nanoseconds.
const BACKOFF_MAX_NS: u64 = 250_000_000;
/// How often a server is asked for its version and settings, nanoseconds.
const ABOUT_NS: u64 = 5_000_000_000;
/// Deadlines missed in a row that make a connection suspect.
const MISSES_MAX: u32 = 3;
/// A suspect connection is replaced after this time, which doubles while a new one is no better.
const REPLACE_NS: u64 = 250_000_000;
const REPLACE_MAX_NS: u64 = 30_000_000_000;
/// How long a connection may be idle before it is probed, and how often a shard that is away is, nanoseconds.
const ASK_NS: u64 = 100_000_000;
