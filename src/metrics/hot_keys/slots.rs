//! What was counted in the last minute, in slots of ten seconds.

use super::sketch::KeyCounts;

/// What was counted in the last minute.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MinuteSlots {
    /// The newest slot: so many since the Unix epoch.
    newest: u64,
    counts: [KeyCounts; SLOTS as usize],
}

impl MinuteSlots {
    /// Counts at a second since the Unix epoch; one that is too old counts nothing.
    pub(super) fn add(&mut self, second: u64, counts: KeyCounts) {
        let slot = second / SECONDS;
        self.move_to(slot);
        if slot + SLOTS > self.newest {
            self.counts[(slot % SLOTS) as usize].add(counts);
        }
    }

    /// What was counted in the last minute before this second.
    pub(super) fn sum(&self, second: u64) -> KeyCounts {
        let mut moved = *self;
        moved.move_to(second / SECONDS);
        let mut sum = KeyCounts::default();
        moved.counts.iter().for_each(|counts| sum.add(*counts));
        sum
    }

    fn move_to(&mut self, slot: u64) {
        let gone = slot.saturating_sub(self.newest).min(SLOTS);
        for back in 0..gone {
            self.counts[((slot - back) % SLOTS) as usize] = KeyCounts::default();
        }
        self.newest = self.newest.max(slot);
    }
}

/// The first second that [`MinuteSlots::sum`] is about.
pub(super) fn first(second: u64) -> u64 {
    (second / SECONDS + 1).saturating_sub(SLOTS) * SECONDS
}

/// How many seconds [`MinuteSlots::sum`] is about, for one who has counted since `since`.
pub(super) fn covered(second: u64, since: u64) -> f64 {
    second.saturating_sub(first(second).max(since)).max(1) as f64
}

const SLOTS: u64 = 6;
const SECONDS: u64 = 10;
