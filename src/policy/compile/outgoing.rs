//! Tables that let the algorithms of the one before count on, and that end that.

use std::collections::HashSet;

use crate::{Policy, RouteTable};

impl RouteTable {
    /// Lets policies that the table in force before counts by another algorithm go on for a while, by `now_ns` of the
    /// limiter's clock. Returns of how many policies it counts by another, without those that it has counted on already.
    pub fn count_on(&mut self, before: &RouteTable, now_ns: u64) -> usize {
        let mut labels: Option<HashSet<Box<str>>> = None;
        let mut changed = 0;
        for index in 0..self.policies.len() {
            let policy = &self.policies[index];
            let Some(old) = before.policy(&policy.name) else { continue };
            if old.by != policy.by || !old.is_changing() && old.counts_like(policy) {
                continue;
            }
            let all = labels.get_or_insert_with(|| {
                let windows = self.policies.iter().flat_map(|policy| &policy.windows);
                windows.map(|window| window.label.clone()).collect()
            });
            let policy = &mut self.policies[index];
            policy.count_on(old, now_ns, &mut |label| all.insert(label.into()));
            changed += usize::from(policy.is_changing() && !old.counts_like(policy));
        }
        self.over_ns = self.policies.iter().filter_map(Policy::over_ns).min();
        if self.over_ns.is_some() {
            self.follow_policies();
        }
        changed
    }

    /// Whether a window of before is to go on no longer.
    pub fn has_over(&self, now_ns: u64) -> bool {
        self.over_ns.is_some_and(|over_ns| over_ns <= now_ns)
    }

    /// The same table without the windows of before that are over.
    pub fn without_over(&self, now_ns: u64) -> RouteTable {
        let mut table = self.clone();
        for policy in table.policies.iter_mut().filter(|policy| policy.is_changing()) {
            policy.let_go();
        }
        table.count_on(self, now_ns);
        if table.over_ns.is_none() {
            table.follow_policies();
        }
        table
    }
}
