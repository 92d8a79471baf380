//! Units of a limit handed out in advance to reporters: other proxies that tell now and then what they let through, and
//! are told how much they may (`envoy.service.rate_limit_quota.v3`).
//!
//! What is handed out was drawn from the limit before, so all reporters together spend no more than the limit admits,
//! whatever they do between two reports and however late an assignment arrives. Pure: no I/O, no clock. Who reports, what
//! a bucket is limited by and where units are drawn from is up to the caller.

mod bucket;
mod share;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::time::Duration;

pub use bucket::BucketId;
use share::Share;

/// A stream of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// What a reporter did with a bucket since its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests that it let through.
    pub allowed: u64,
    /// Requests that it refused.
    pub denied: u64,
}

/// What a reporter is told about a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// It may spend these units, whatever it was told before, and no others.
    Spend {
        /// Units; they do not refill.
        units: NonZeroU64,
        /// How long.
        ttl: Duration,
        /// Goes up by one with each assignment of a bucket. A proxy takes an assignment that is like the last for no new one, so
        /// an answer must differ by it.
        number: u64,
    },
    /// It may let nothing through.
    Deny {
        /// How long.
        ttl: Duration,
    },
}

/// What is left of the limit of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Units that could be drawn now.
    pub units: u64,
    /// Which window they are of: any number that is another one in each period of the limit.
    pub window: u64,
    /// When there is more, if there are none.
    pub retry_after: Duration,
}

/// The buckets that reporters have told of, and their shares.
#[derive(Debug)]
pub struct Quotas {
    buckets: HashMap<BucketId, HashMap<StreamId, Share>>,
    /// How long an assignment holds.
    ttl: Duration,
    shares: usize,
    shares_max: usize,
}

impl Quotas {
    /// No bucket yet. Assignments hold for so long, a few reports at least; there are so many shares at most, one for each
    /// bucket of each stream.
    pub fn new(ttl: Duration, shares_max: usize) -> Quotas {
        Quotas { buckets: HashMap::new(), ttl, shares: 0, shares_max }
    }

    /// How many shares there are.
    pub fn len(&self) -> usize {
        self.shares
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shares == 0
    }

    /// Takes a report and assigns what comes next. `draw` spends so many units of the limit, or fewer, and returns how many.
    /// It is called once with what was spent without an assignment, and once with what is assigned.
    ///
    /// If a limit has less than all reporters want, each gets a part as large as its part of what they want: by what they
    /// let through and refused lately. A reporter that has said nothing for as long as an assignment holds wants nothing. A
    /// share for which there is no room is told to refuse.
    pub fn report(
        &mut self,
        stream: StreamId,
        bucket: &BucketId,
        usage: Usage,
        now_ns: u64,
        left: Left,
        mut draw: impl FnMut(u64) -> u64,
    ) -> Assignment {
        let ttl_ns = u64::try_from(self.ttl.as_nanos()).unwrap_or(u64::MAX);
        let is_new = !self.buckets.get(bucket).is_some_and(|shares| shares.contains_key(&stream));
        if is_new && self.shares >= self.shares_max {
            return Assignment::Deny { ttl: self.ttl };
        }
        self.shares += usize::from(is_new);
        let shares = self.buckets.entry(bucket.clone()).or_default();
        let share = shares.entry(stream).or_insert_with(|| Share::new(now_ns));
        let unpaid = share.report(&usage, now_ns);
        let mut units_left = left.units;
        if unpaid > 0 {
            // What passed before anybody could say something counts, too.
            units_left = units_left.saturating_sub(draw(unpaid.min(units_left)));
        }
        let wanted = share.wanted();
        let own = share.drawn(left.window);
        let (mut all, mut pool) = (0_u64, units_left);
        for share in shares.values().filter(|share| !share.is_silent(now_ns, ttl_ns)) {
            all = all.saturating_add(share.wanted());
            // What is divided is the whole window, or who reports last would get a part of what the others left.
            pool = pool.saturating_add(share.drawn(left.window));
        }
        let fair = if all <= units_left { wanted } else { part(pool, wanted, all).saturating_sub(own) };
        let fair = fair.min(wanted).min(units_left);
        let drawn = if fair == 0 { 0 } else { draw(fair).min(fair) };
        let Some(share) = shares.get_mut(&stream) else { return Assignment::Deny { ttl: self.ttl } };
        let number = share.assign(drawn, left.window);
        match NonZeroU64::new(drawn) {
            Some(units) => Assignment::Spend { units, ttl: self.ttl, number },
            None => Assignment::Deny { ttl: left.retry_after.clamp(RETRY_MIN, self.ttl.max(RETRY_MIN)) },
        }
    }

    /// Forgets a stream that ended: the next reports of others get what it would have got. Its units are spent, because it
    /// may go on with its assignments until they are over.
    pub fn end(&mut self, stream: StreamId) {
        self.retain(|known, _| *known != stream);
    }

    /// Forgets shares that nobody has told of for two times as long as an assignment holds, and returns how many.
    pub fn sweep(&mut self, now_ns: u64) -> usize {
        let silent_ns = u64::try_from(self.ttl.as_nanos()).unwrap_or(u64::MAX).saturating_mul(2);
        let before = self.shares;
        self.retain(|_, share| !share.is_silent(now_ns, silent_ns));
        before - self.shares
    }

    fn retain(&mut self, stays: impl Fn(&StreamId, &Share) -> bool) {
        self.buckets.retain(|_, shares| {
            shares.retain(|stream, share| stays(stream, share));
            !shares.is_empty()
        });
        self.shares = self.buckets.values().map(HashMap::len).sum();
    }
}

/// What of `units` belongs to who wants `wanted` of `all` that is wanted; rounded up, so that somebody gets the last unit.
fn part(units: u64, wanted: u64, all: u64) -> u64 {
    let part = (u128::from(units) * u128::from(wanted)).div_ceil(u128::from(all.max(1)));
    // At most `units`, because `wanted` is a part of `all`.
    part as u64
}

/// A reporter that is told to refuse everything asks again no sooner.
const RETRY_MIN: Duration = Duration::from_millis(100);
