//! The queue of chunks from the workers to the writer. It is bounded, and a worker never waits for it.
//!
//! One short lock guards it. A worker only tries the lock, and tries again with its next line if it is taken; the
//! writer holds it while it moves a few words. Written chunks go back to the workers empty, so that a steady load
//! allocates nothing.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::syslog::SyslogSender;

#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) text: Vec<u8>,
    pub(super) lines: u64,
}

#[derive(Debug)]
pub(super) enum Output {
    Stdout,
    Stderr,
    File(File, PathBuf),
    Syslog(SyslogSender),
    Off,
}

/// What the writer is to do next.
#[derive(Debug)]
pub(super) enum Task {
    Switch(Output),
    Write(Chunk),
}

/// What became of a chunk that was offered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OfferOutcome {
    /// The queue took it and left an empty one in its place.
    Taken,
    /// The lock was taken; the chunk is unchanged, and the worker tries again with its next line.
    Busy,
    /// The queue is full; the chunk is unchanged.
    Full,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    /// Wakes the writer when there is work.
    work: Condvar,
    /// Wakes `flush` when the writer has finished a chunk.
    progress: Condvar,
    /// Lines that found no room, until the log has said so.
    crowded_out: AtomicU64,
}

#[derive(Debug, Default)]
struct QueueState {
    chunks: VecDeque<Chunk>,
    spare: Vec<Chunk>,
    output: Option<Output>,
    off: bool,
    /// Lines of the chunk that the writer is writing.
    writing: u64,
    closed: bool,
}

impl Chunk {
    fn with_room() -> Chunk {
        Chunk { text: Vec::with_capacity(CHUNK_BYTES_MAX), lines: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.lines = 0;
    }
}

impl Queue {
    /// An empty chunk with room for [`CHUNK_BYTES_MAX`] bytes.
    pub(super) fn chunk(&self) -> Chunk {
        self.lock().spare.pop().unwrap_or_else(Chunk::with_room)
    }

    /// Hands over a worker's chunk, unless the lock is taken or the queue full.
    pub(super) fn offer(&self, chunk: &mut Chunk) -> OfferOutcome {
        match self.state.try_lock() {
            Ok(state) => self.take(state, chunk),
            Err(TryLockError::Poisoned(poisoned)) => self.take(poisoned.into_inner(), chunk),
            Err(TryLockError::WouldBlock) => OfferOutcome::Busy,
        }
    }

    /// Hands over the last chunk of a worker. It waits for the lock, because there is no next line to try again with.
    pub(super) fn offer_last(&self, chunk: &mut Chunk) -> OfferOutcome {
        self.take(self.lock(), chunk)
    }

    /// Appends lines of any thread, which are handed over at once. Returns whether they found room.
    pub(super) fn append(&self, lines: &[u8]) -> bool {
        let mut state = self.lock();
        let has_room = |chunk: &Chunk| lines.len() <= CHUNK_BYTES_MAX.saturating_sub(chunk.text.len());
        if !state.chunks.back().is_some_and(has_room) {
            if state.closed || state.chunks.len() >= CHUNKS_MAX || lines.len() > CHUNK_BYTES_MAX {
                return false;
            }
            let empty = state.spare.pop().unwrap_or_else(Chunk::with_room);
            state.chunks.push_back(empty);
        }
        if let Some(chunk) = state.chunks.back_mut() {
            chunk.text.extend_from_slice(lines);
            chunk.lines += lines_of(lines);
        }
        drop(state);
        self.work.notify_one();
        true
    }

    fn take(&self, mut state: MutexGuard<'_, QueueState>, chunk: &mut Chunk) -> OfferOutcome {
        if state.closed || state.chunks.len() >= CHUNKS_MAX {
            return OfferOutcome::Full;
        }
        let empty = state.spare.pop().unwrap_or_else(Chunk::with_room);
        state.chunks.push_back(std::mem::replace(chunk, empty));
        // Released first, so that the writer does not wake only to wait for the lock.
        drop(state);
        self.work.notify_one();
        OfferOutcome::Taken
    }

    /// Notes that so many lines found no room.
    pub(super) fn crowd_out(&self, lines: u64) {
        self.crowded_out.fetch_add(lines, Ordering::Relaxed);
    }

    /// How many lines found no room since the last call, and whether there is room now.
    pub(super) fn take_crowded_out(&self) -> (u64, bool) {
        (self.crowded_out.swap(0, Ordering::Relaxed), self.lock().chunks.len() < CHUNKS_MAX)
    }

    /// Waits for the writer's next task. `None` once the queue is closed and empty.
    pub(super) fn next(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if let Some(output) = state.output.take() {
                return Some(Task::Switch(output));
            }
            if let Some(chunk) = state.chunks.pop_front() {
                state.writing = chunk.lines;
                return Some(Task::Write(chunk));
            }
            if state.closed {
                return None;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes back a chunk that the writer has written or lost.
    pub(super) fn done(&self, mut chunk: Chunk) {
        chunk.clear();
        let mut state = self.lock();
        state.writing = 0;
        if state.spare.len() < SPARE_MAX {
            state.spare.push(chunk);
        }
        drop(state);
        self.progress.notify_all();
    }

    pub(super) fn is_written(&self) -> bool {
        !self.lock().off
    }

    /// Makes the writer use another output from its next chunk on.
    pub(super) fn switch(&self, output: Output) {
        let mut state = self.lock();
        state.off = matches!(output, Output::Off);
        state.output = Some(output);
        drop(state);
        self.work.notify_one();
    }

    /// Waits, at most for `wait`, until every chunk handed over is written. Returns whether it is.
    pub(super) fn flush(&self, wait: Duration) -> bool {
        let is_behind = |state: &mut QueueState| !state.chunks.is_empty() || state.writing > 0;
        let waited = self.progress.wait_timeout_while(self.lock(), wait, is_behind);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Takes no more chunks, drops those that are waiting, and lets the writer end. Returns how many lines were lost,
    /// those of a write that is stuck included.
    pub(super) fn close(&self) -> u64 {
        let mut state = self.lock();
        state.closed = true;
        let lost = state.chunks.drain(..).map(|chunk| chunk.lines).sum::<u64>() + state.writing;
        drop(state);
        self.work.notify_one();
        lost
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn lines_of(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Size of a chunk: about a hundred lines more than when it is due, because the lock may be held at that moment.
pub(super) const CHUNK_BYTES_MAX: usize = 200 * 1024;
/// Chunks that may wait for the writer: 6.3 MiB.
pub(super) const CHUNKS_MAX: usize = 32;
/// Empty chunks kept for reuse: 1.6 MiB.
const SPARE_MAX: usize = 8;
