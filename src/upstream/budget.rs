//! How many retries an upstream may see: a share of its recent requests, so that an outage is not doubled by them.

use std::cell::Cell;

/// One worker's count of the last ten seconds.
#[derive(Debug)]
pub struct RetryBudget {
    percent: u64,
    second: Cell<u64>,
    requests: [Cell<u32>; SECONDS],
    retries: [Cell<u32>; SECONDS],
}

impl RetryBudget {
    /// Retries at most `percent` of the requests of the last ten seconds.
    pub fn new(percent: u32) -> RetryBudget {
        RetryBudget {
            percent: u64::from(percent),
            second: Cell::new(0),
            requests: [const { Cell::new(0) }; SECONDS],
            retries: [const { Cell::new(0) }; SECONDS],
        }
    }

    pub fn request(&self, now_ns: u64) {
        let slot = self.advance(now_ns);
        self.requests[slot].set(self.requests[slot].get().saturating_add(1));
    }

    /// Whether one more retry fits; counts it if so.
    pub fn retry(&self, now_ns: u64) -> bool {
        let fits = self.has_room(now_ns);
        if fits {
            let slot = self.advance(now_ns);
            self.retries[slot].set(self.retries[slot].get() + 1);
        }
        fits
    }

    /// Whether one more retry fits. A few always do, because otherwise a quiet upstream would never see one.
    pub fn has_room(&self, now_ns: u64) -> bool {
        self.advance(now_ns);
        let requests: u64 = self.requests.iter().map(|count| u64::from(count.get())).sum();
        let retries: u64 = self.retries.iter().map(|count| u64::from(count.get())).sum();
        self.percent > 0 && retries < (requests * self.percent / 100).max(ALWAYS)
    }

    /// Empties what has become older than ten seconds; the slot of the present second.
    fn advance(&self, now_ns: u64) -> usize {
        let second = now_ns / 1_000_000_000;
        let behind = second.saturating_sub(self.second.get()).min(SECONDS as u64);
        for back in 0..behind {
            let slot = ((second - back) % SECONDS as u64) as usize;
            self.requests[slot].set(0);
            self.retries[slot].set(0);
        }
        self.second.set(second.max(self.second.get()));
        (self.second.get() % SECONDS as u64) as usize
    }
}

const SECONDS: usize = 10;
const ALWAYS: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn retries_stay_a_share_of_requests() {
        let budget = RetryBudget::new(20);
        let mut granted = 0;
        for _ in 0..1_000 {
            budget.request(50 * SECOND);
            granted += u32::from(budget.retry(50 * SECOND));
        }
        assert_eq!(granted, 200);
    }

    #[test]
    fn a_quiet_upstream_has_a_few_and_gets_them_back() {
        let budget = RetryBudget::new(20);
        let granted = |second: u64| (0..10).filter(|_| budget.retry(second * SECOND)).count();
        assert_eq!(granted(100), 3);
        assert_eq!(granted(109), 0);
        assert_eq!(granted(110), 3);
    }

    #[test]
    fn a_budget_of_nothing_grants_nothing() {
        let budget = RetryBudget::new(0);
        budget.request(SECOND);
        assert!(!budget.retry(SECOND));
    }
}
