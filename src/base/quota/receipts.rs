//! What one reporter's units were drawn as, so that those that it does not spend can go back.

use std::collections::VecDeque;

/// Units that go back to where they were drawn from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Back<R> {
    /// What they were drawn as.
    pub receipt: R,
    /// How many of them.
    pub units: u64,
}

/// Units that were drawn and are not spent, the oldest first.
#[derive(Clone, Debug)]
pub(super) struct Receipts<R> {
    draws: VecDeque<Back<R>>,
    units: u64,
}

impl<R> Receipts<R> {
    pub fn new() -> Receipts<R> {
        Receipts { draws: VecDeque::new(), units: 0 }
    }

    /// How many units there are.
    pub fn units(&self) -> u64 {
        self.units
    }

    pub fn add(&mut self, receipt: R, units: u64) {
        if self.draws.len() == DRAWS_MAX {
            // Its units stay with the reporter; only where they came from is forgotten.
            self.draws.pop_front();
        }
        self.units = self.units.saturating_add(units);
        self.draws.push_back(Back { receipt, units });
    }

    /// Takes units off, the oldest first. Returns how many of them there were not.
    pub fn spend(&mut self, units: u64) -> u64 {
        let spent = units.min(self.units);
        self.units -= spent;
        // Draws that were forgotten were older than all of these.
        let known: u64 = self.draws.iter().map(|draw| draw.units).sum();
        let mut left = known.saturating_sub(self.units);
        while left > 0
            && let Some(oldest) = self.draws.front_mut()
        {
            let taken = left.min(oldest.units);
            oldest.units -= taken;
            left -= taken;
            if oldest.units == 0 {
                self.draws.pop_front();
            }
        }
        units - spent
    }

    /// Takes out all but so many units, the newest first: these can go back most exactly.
    pub fn take_beyond(&mut self, kept: u64) -> Vec<Back<R>>
    where
        R: Clone,
    {
        let mut back = Vec::new();
        while self.units > kept
            && let Some(newest) = self.draws.back_mut()
        {
            let units = (self.units - kept).min(newest.units);
            newest.units -= units;
            self.units -= units;
            back.push(Back { receipt: newest.receipt.clone(), units });
            if newest.units == 0 {
                self.draws.pop_back();
            }
        }
        self.units = self.units.min(kept);
        back
    }
}

/// Draws that are remembered of one reporter: those of a few reports.
const DRAWS_MAX: usize = 8;
