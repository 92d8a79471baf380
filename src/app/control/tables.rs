//! Rows of the database into the tables in memory that requests look at.

use std::collections::HashMap;
use std::sync::Arc;

use super::keys;
use crate::counts::{Clocks, Counts, resets};
use auth::IssuedKeys;
use auth::keys::digest_bytes;
use base::clock;
use control::database::{self, DatabaseRows, OverrideKind, RowKind, RowName, Time};
use limiter::{BlockAnswer, Change, Limiter, Override, Reset};
use policy::definition::Dimension;
use policy::nat64::Nat64;
use policy::{Holder, NamedValue};

pub(super) struct Tables {
    limiter: Arc<Limiter>,
    issued: Arc<IssuedKeys>,
    /// What a grant is carried over by.
    counts: Counts,
    /// Whose each reset is.
    reset: HashMap<String, Holder>,
    /// Whether rows have been put into force before: what a grant leaves spent is carried over, and at the start there is
    /// nothing.
    has_counted: bool,
    /// Whose each override is, because a row that is gone tells its id alone.
    holders: HashMap<String, OverrideTarget>,
    clocks: Clocks,
    /// The translators by which the addresses of overrides were read.
    nat64: Nat64,
}

impl Tables {
    pub(super) fn new(counts: Counts, issued: Arc<IssuedKeys>) -> Tables {
        Tables {
            limiter: Arc::clone(&counts.limiter),
            counts,
            issued,
            reset: HashMap::new(),
            has_counted: false,
            holders: HashMap::new(),
            clocks: Clocks::now(),
            nat64: Nat64::default(),
        }
    }

    /// Whether overrides mean something else than when all were put into force: somebody has set the wall clock, by which
    /// they end, or a reload has changed the translators.
    pub(super) fn is_outdated(&self) -> bool {
        Clocks::now().apart_us(self.clocks) > SET_US
            || self.nat64 != self.counts.current.load().client_ip.nat64
    }

    /// Puts this in the place of all there is.
    pub(super) fn replace(&mut self, state: &DatabaseRows) {
        let clocks = Clocks::now();
        self.clocks = clocks;
        self.nat64 = self.counts.current.load().client_ip.nat64.clone();
        let live = state.overrides.iter().filter_map(|row| of_row(row, clocks, &self.nat64));
        let live: Vec<(OverrideTarget, Override)> = live.collect();
        self.holders = live.iter().map(|(target, made)| (made.id.to_string(), target.clone())).collect();
        let (mut limits, mut blocked, mut unlimited) = (Vec::new(), Vec::new(), Vec::new());
        for (target, made) in live {
            match target {
                OverrideTarget::Limit(holder) => limits.push((holder, made)),
                OverrideTarget::Block(of, _) => blocked.push((of, made)),
                OverrideTarget::Unlimited(of, _) => unlimited.push((of, made)),
            }
        }
        self.limiter.overrides().replace(limits);
        self.limiter.overrides().blocked.replace(blocked);
        self.limiter.overrides().unlimited.replace(unlimited);
        let assignments = state.assignments.iter();
        let assignments = assignments.map(|row| (row.user_id.as_str().into(), row.tier.as_str().into()));
        self.limiter.assignments().replace(assignments);
        self.issued.replace(state.api_keys.iter().filter_map(keys::of_row));
        self.replace_resets(&state.resets);
    }

    fn replace_resets(&mut self, rows: &[database::ResetRow]) {
        for row in by_version(rows).filter(|row| self.has_counted && !self.reset.contains_key(&row.id)) {
            resets::carry(&self.counts, row);
        }
        self.has_counted = true;
        let made: Vec<(Holder, Reset)> = rows.iter().filter_map(of_reset).collect();
        self.reset = made.iter().map(|(holder, made)| (made.id.to_string(), holder.clone())).collect();
        self.limiter.resets().replace(made);
    }

    /// Puts these into force and takes those away that are gone.
    pub(super) fn change(&mut self, changed: &DatabaseRows, gone: &[RowName]) {
        let clocks = Clocks::now();
        for row in &changed.overrides {
            match of_row(row, clocks, &self.nat64) {
                Some((target, made)) => {
                    match &target {
                        OverrideTarget::Limit(holder) => self.limiter.overrides().put(holder, made),
                        OverrideTarget::Block(of, _) => self.limiter.overrides().blocked.put(of, made),
                        OverrideTarget::Unlimited(of, _) => self.limiter.overrides().unlimited.put(of, made),
                    }
                    self.holders.insert(row.id.clone(), target);
                }
                None => self.remove(&row.id),
            }
        }
        for row in &changed.assignments {
            self.limiter.assignments().assign(&row.user_id, Some(&row.tier));
        }
        changed.api_keys.iter().filter_map(keys::of_row).for_each(|key| self.issued.put(key));
        for row in by_version(&changed.resets) {
            resets::carry(&self.counts, row);
            if let Some((holder, made)) = of_reset(row) {
                self.reset.insert(row.id.clone(), holder.clone());
                self.limiter.resets().put(&holder, made);
            }
        }
        for (kind, key) in gone {
            match kind {
                // Another one stands in its place already.
                RowKind::Reset => drop(self.reset.remove(key)),
                RowKind::Override => self.remove(key),
                RowKind::Assignment => self.limiter.assignments().assign(key, None),
                RowKind::ApiKey => digest_bytes(key).iter().for_each(|digest| self.issued.remove(digest)),
                RowKind::Policy | RowKind::Tier => {}
            }
        }
    }

    pub(super) fn sweep(&mut self) {
        let now_ns = clock::now_ns();
        self.limiter.overrides().sweep(now_ns);
        let ended = |target: &OverrideTarget| match target {
            OverrideTarget::Limit(_) => false,
            OverrideTarget::Block(_, until_ns) | OverrideTarget::Unlimited(_, until_ns) => {
                *until_ns <= now_ns
            }
        };
        let ended = self.holders.iter().filter(|(_, target)| ended(target)).map(|(id, _)| id.clone());
        ended.collect::<Vec<_>>().iter().for_each(|id| self.remove(id));
    }

    fn remove(&mut self, id: &str) {
        match self.holders.remove(id) {
            Some(OverrideTarget::Limit(holder)) => self.limiter.overrides().remove(&holder, id),
            Some(OverrideTarget::Block(of, _)) => self.limiter.overrides().blocked.remove(&of, id),
            Some(OverrideTarget::Unlimited(of, _)) => self.limiter.overrides().unlimited.remove(&of, id),
            None => {}
        }
    }
}

/// Where an override lies and under which name; what no limit looks at also until when.
#[derive(Clone, Debug)]
enum OverrideTarget {
    Limit(Holder),
    Block(NamedValue, u64),
    Unlimited(NamedValue, u64),
}

// A row ends by the wall clock, and requests read the monotonic one.
impl Clocks {
    /// By how much one clock has moved beside the other since, microseconds.
    fn apart_us(self, before: Clocks) -> u64 {
        let walked_us = i128::from(self.now_ns) / 1_000 - i128::from(before.now_ns) / 1_000;
        let shown_us = i128::from(self.wall.0) - i128::from(before.wall.0);
        u64::try_from((walked_us - shown_us).abs()).unwrap_or(u64::MAX)
    }

    /// A time of the wall clock on the monotonic one; `None` if it is over.
    fn monotonic_ns(self, time: Time) -> Option<u64> {
        let ahead_us = u64::try_from(time.0.checked_sub(self.wall.0)?).ok().filter(|ahead| *ahead > 0)?;
        Some(self.now_ns.saturating_add(ahead_us.saturating_mul(1_000)))
    }
}

/// A row as the limiter has it; `None` if it has ended.
fn of_row(row: &database::OverrideRow, clocks: Clocks, nat64: &Nat64) -> Option<(OverrideTarget, Override)> {
    let until_ns = match row.expires_at {
        Some(time) => clocks.monotonic_ns(time)?,
        None => u64::MAX,
    };
    let change = match row.kind {
        OverrideKind::Absolute(limit) => Change::Absolute(limit),
        OverrideKind::Multiplicative(factor) => Change::Multiplicative(factor),
        OverrideKind::Block(429) => Change::Block(BlockAnswer::TooMany),
        OverrideKind::Block(_) => Change::Block(BlockAnswer::Forbidden),
        OverrideKind::Unlimited => Change::Unlimited,
    };
    let text = |text: &Option<String>| text.as_deref().map(Box::from);
    let standing = |of| match change {
        Change::Block(_) => OverrideTarget::Block(of, until_ns),
        _ => OverrideTarget::Unlimited(of, until_ns),
    };
    let is_limit = matches!(change, Change::Absolute(_) | Change::Multiplicative(_));
    let (target, tenant) = match (&row.user_id, &row.tenant_id, &row.subject) {
        (Some(user), tenant, _) if is_limit => {
            (OverrideTarget::Limit(Holder::Consumer(user.as_str().into())), text(tenant))
        }
        (None, Some(tenant), _) if is_limit => {
            (OverrideTarget::Limit(Holder::Tenant(tenant.as_str().into())), None)
        }
        (Some(user), tenant, _) => {
            (standing(NamedValue::Of(Dimension::Consumer, user.as_str().into())), text(tenant))
        }
        (None, Some(tenant), _) => {
            (standing(NamedValue::Of(Dimension::Tenant, tenant.as_str().into())), None)
        }
        (None, None, Some(subject)) if !is_limit => {
            let written: NamedValue = subject.parse().ok()?;
            (standing(written.clone().carried(nat64).unwrap_or(written)), None)
        }
        // Left out, because the tables and the API refuse such a row.
        (None, None, _) => return None,
    };
    let mut made = Override::new(&row.id, change, &row.reason, row.version);
    (made.policy, made.tenant, made.until_ns) = (text(&row.policy), tenant, until_ns);
    made.by = row.created_by.as_str().into();
    Some((target, made))
}

/// Each grant begins with what the counts before it have spent.
fn by_version(rows: &[database::ResetRow]) -> impl Iterator<Item = &database::ResetRow> {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by_key(|row| row.version);
    rows.into_iter()
}

fn of_reset(row: &database::ResetRow) -> Option<(Holder, Reset)> {
    Some((resets::holder(row)?, Reset::new(&row.id, row.policy.as_deref(), row.version)))
}

/// What the wall clock may drift from the monotonic one before it counts as set, microseconds.
const SET_US: u64 = 500_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_noticed_and_one_that_drifts_is_not() {
        let before = Clocks { now_ns: 10_000_000_000, wall: Time(1_000_000_000_000) };
        let after = |seconds: u64, set_us: i64| Clocks {
            now_ns: before.now_ns + seconds * 1_000_000_000,
            wall: Time(before.wall.0 + seconds as i64 * 1_000_000 + set_us),
        };
        for (clocks, apart_us) in [
            (after(0, 0), 0),
            (after(3_600, 0), 0),
            (after(60, 30_000), 30_000),
            (after(60, 5_000_000), 5_000_000),
            (after(60, -86_400_000_000), 86_400_000_000),
        ] {
            assert_eq!(clocks.apart_us(before), apart_us);
        }
    }

    #[test]
    fn a_row_ends_on_the_monotonic_clock_when_its_time_comes() {
        let clocks = Clocks { now_ns: 7_000_000_000, wall: Time(1_000_000) };
        assert_eq!(clocks.monotonic_ns(Time(1_000_001)), Some(7_000_001_000));
        assert_eq!(clocks.monotonic_ns(Time(601_000_000)), Some(607_000_000_000));
        assert_eq!(clocks.monotonic_ns(Time(1_000_000)), None);
        assert_eq!(clocks.monotonic_ns(Time(i64::MIN)), None);
        assert_eq!(clocks.monotonic_ns(Time(i64::MAX)), Some(u64::MAX));
    }
}
