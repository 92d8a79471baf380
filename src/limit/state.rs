//! What is kept of one key: a word that changes at every charge, and a number that changes once a window.

/// The state of one key under one quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Token bucket: the theoretical arrival time, ticks of 1/16 ns. Windows: the window's number (upper half) and
    /// the units counted in it (lower half). 0 says nothing has been counted.
    pub word: u64,
    /// Sliding window: the units of the window before.
    pub past: u32,
}

impl State {
    /// A key never seen.
    pub const FRESH: State = State { word: 0, past: 0 };

    /// A window's count.
    pub(super) fn windowed(number: u32, count: u32, past: u32) -> State {
        State { word: u64::from(number) << 32 | u64::from(count), past }
    }

    pub(super) fn number(self) -> u32 {
        (self.word >> 32) as u32
    }

    pub(super) fn count(self) -> u32 {
        self.word as u32
    }
}
