//! A worker's end of the access log: formats lines into a chunk that no other thread touches.

use std::cell::RefCell;
use std::sync::Arc;

use super::format::formatter::{Formatter, LINE_BYTES_MAX};
use super::queue::{CHUNK_BYTES_MAX, Chunk, OfferOutcome, Queue};
use super::{AccessEntry, StatusSampler, Style};
use metrics::SharedCounter;

/// Gathers the lines of one worker. Dropping it hands over what is left.
#[derive(Debug)]
pub struct Buffer {
    queue: Arc<Queue>,
    dropped: SharedCounter,
    lines: RefCell<LineBuffer>,
}

#[derive(Debug)]
struct LineBuffer {
    chunk: Chunk,
    formatter: Formatter,
    drawn: u64,
}

impl Buffer {
    pub(super) fn new(queue: Arc<Queue>, dropped: SharedCounter) -> Buffer {
        let lines = LineBuffer { chunk: queue.chunk(), formatter: Formatter::new(), drawn: 0 };
        Buffer { queue, dropped, lines: RefCell::new(lines) }
    }

    /// Writes the request's line if the sampler draws it. Neither waits nor fails: a line that finds no room is counted
    /// as dropped.
    pub fn write(&self, sampler: &StatusSampler, style: &Style, entry: &AccessEntry<'_>) {
        let mut lines = self.lines.borrow_mut();
        let lines = &mut *lines;
        if !sampler.keeps(entry.status, &mut lines.drawn) || !self.has_room(lines) {
            return;
        }
        lines.formatter.push(&mut lines.chunk.text, style, entry);
        self.count(lines);
    }

    /// Whether there is a sink, so that lines need not be made for none.
    pub fn is_written(&self) -> bool {
        self.queue.is_written()
    }

    /// Writes a line as it is, with its line feed. It must have at most `LINE_BYTES_MAX` bytes.
    pub fn write_line(&self, line: &[u8]) {
        let mut lines = self.lines.borrow_mut();
        if line.len() <= LINE_BYTES_MAX && self.has_room(&mut lines) {
            lines.chunk.text.extend_from_slice(line);
            self.count(&mut lines);
        }
    }

    /// Whether one more line finds room, which is counted as dropped otherwise.
    #[inline]
    fn has_room(&self, lines: &mut LineBuffer) -> bool {
        if lines.chunk.text.len() > CHUNK_BYTES_MAX - LINE_BYTES_MAX {
            // Every line since the chunk was due has found the lock taken. It is tried once more, because lines are
            // dropped otherwise.
            self.hand_over_from(&mut lines.chunk);
            if lines.chunk.lines > 0 {
                self.lose(1);
                return false;
            }
        }
        true
    }

    #[inline]
    fn count(&self, lines: &mut LineBuffer) {
        lines.chunk.lines += 1;
        if lines.chunk.text.len() >= CHUNK_BYTES_DUE {
            self.hand_over_from(&mut lines.chunk);
        }
    }

    /// Hands over the lines gathered so far, unless the lock is taken. The worker calls it every [`super::TICK`].
    pub fn hand_over(&self) {
        self.hand_over_from(&mut self.lines.borrow_mut().chunk);
    }

    fn hand_over_from(&self, chunk: &mut Chunk) {
        if chunk.lines > 0 && self.queue.offer(chunk) == OfferOutcome::Full {
            self.give_up(chunk);
        }
    }

    fn give_up(&self, chunk: &mut Chunk) {
        self.lose(chunk.lines);
        // Emptied, so that the lines to come find room.
        chunk.clear();
    }

    fn lose(&self, lines: u64) {
        self.dropped.add(lines);
        self.queue.crowd_out(lines);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut lines = self.lines.borrow_mut();
        if lines.chunk.lines > 0 && self.queue.offer_last(&mut lines.chunk) == OfferOutcome::Full {
            self.give_up(&mut lines.chunk);
        }
    }
}

/// A chunk of this size is handed over. It is not smaller, because a writer is woken, and pages of the file are begun
/// and ended, once for each: a quarter of this took a third more processor time a line.
const CHUNK_BYTES_DUE: usize = 128 * 1024;
/// A due chunk has room for one more line, however long, so that it may find the lock taken.
const _: () = assert!(CHUNK_BYTES_DUE <= CHUNK_BYTES_MAX - LINE_BYTES_MAX);
