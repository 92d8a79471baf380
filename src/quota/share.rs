//! What one reporter has of one bucket: how much it wants, and what it was assigned and has not reported as spent.

use super::Usage;

/// One reporter's share of one bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// When it last reported.
    reported_ns: u64,
    /// Units that it will want until its next report.
    wanted: u64,
    /// Units of the last assignment and of the one before it. The reporter may not have had the last one when it wrote
    /// its report, so both may still be spent.
    assigned: [u64; 2],
    /// Units that it was assigned in this window of the limit.
    drawn: u64,
    window: u64,
    number: u64,
}

impl Share {
    pub fn new(now_ns: u64) -> Share {
        Share { reported_ns: now_ns, wanted: 1, assigned: [0; 2], drawn: 0, window: 0, number: 0 }
    }

    /// Takes a report. Returns how many units were spent that were never assigned.
    pub fn report(&mut self, usage: &Usage, now_ns: u64) -> u64 {
        self.reported_ns = now_ns;
        let seen = usage.allowed.saturating_add(usage.denied);
        // A quarter more than last time, so that a load that grows is not refused for a report's time.
        self.wanted = seen.saturating_add(seen.div_ceil(4)).max(1);
        self.spend(usage.allowed)
    }

    /// Takes what was spent off what was assigned, the older assignment first. Returns what neither had.
    fn spend(&mut self, units: u64) -> u64 {
        let [last, before] = &mut self.assigned;
        let of_before = units.min(*before);
        let of_last = (units - of_before).min(*last);
        *before -= of_before;
        *last -= of_last;
        units - of_before - of_last
    }

    pub fn wanted(&self) -> u64 {
        self.wanted
    }

    /// Units that it was assigned in a window.
    pub fn drawn(&self, window: u64) -> u64 {
        if self.window == window { self.drawn } else { 0 }
    }

    /// Assigns units of a window; returns the assignment's number.
    pub fn assign(&mut self, units: u64, window: u64) -> u64 {
        self.drawn = self.drawn(window).saturating_add(units);
        self.window = window;
        self.assigned = [units, self.assigned[0]];
        self.number += 1;
        self.number
    }

    /// Whether nothing was reported for so long.
    pub fn is_silent(&self, now_ns: u64, for_ns: u64) -> bool {
        now_ns.saturating_sub(self.reported_ns) > for_ns
    }
}
