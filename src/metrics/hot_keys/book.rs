//! [`Book`]: what is known of heavy keys, gathered from all workers: the last minute, and an hour minute by minute. It is pure: it
//! reads no clock, and whoever has it turns it each second.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::inbox::KeyBatch;
use super::named_key::NamedKey;
use super::sketch::KeyCounts;
use super::slots::{self, MinuteSlots, covered};

/// What is known of heavy keys.
#[derive(Debug, Default)]
pub struct Book {
    keys: HashMap<u64, KnownKey>,
    policies: HashMap<Box<str>, PolicyHistory>,
    shards: Vec<MinuteSlots>,
    /// Those that are over, the oldest first.
    minutes: VecDeque<(u64, Vec<HotKeyStat>)>,
    /// When this began, seconds since the Unix epoch.
    since: u64,
    second: u64,
    /// What came before this second has been counted.
    counted: u64,
}

#[derive(Debug)]
struct KnownKey {
    named: Arc<NamedKey>,
    last: MinuteSlots,
    /// Of those the ones since the policy's decisions are known, so that one is a part of the other.
    of_policy: MinuteSlots,
    /// The second in which it came first after a minute without it, and what was counted in that: it began anywhere in it.
    begun: (u64, KeyCounts),
    /// The minute that runs and the one before it.
    minutes: [(u64, KeyCounts); 2],
    is_hot: bool,
}

#[derive(Clone, Copy, Debug)]
struct PolicyHistory {
    ever: u64,
    last: MinuteSlots,
    since: u64,
}

/// What is asked of a policy when a book is turned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyFacts {
    /// Decisions that it has ever made.
    pub decided: u64,
    /// A key with a larger share of them than this is hot.
    pub above: f64,
}

/// What one key did in one minute.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKeyStat {
    pub key: Arc<NamedKey>,
    /// Its decisions in the whole minute.
    pub counts: KeyCounts,
    /// The minute: so many since the Unix epoch.
    pub minute: u64,
}

/// A key that has become hot, or is no longer.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKeyChange {
    pub key: Arc<NamedKey>,
    pub is_hot: bool,
    pub standing: KeyStanding,
}

/// How a key stands in the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeyStanding {
    pub requests_per_second: f64,
    pub denied_per_second: f64,
    /// Its part of its policy's decisions, 0 to 1.
    pub of_policy: f64,
    /// Its part of its shard's; `None`: it has none.
    pub of_shard: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKeyFilter {
    pub policy: Option<String>,
    /// The last so many minutes, 1 to 60.
    pub minutes: u64,
    /// So many of a policy at most.
    pub each: usize,
}

/// A key as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKeyReport {
    pub key: Arc<NamedKey>,
    pub is_hot: bool,
    /// Decisions a second, over the minutes that were asked for.
    pub requests_per_second: f64,
    pub denied_per_second: f64,
    /// How it stands in the last minute; `None`: it was not seen in it.
    pub standing: Option<KeyStanding>,
    /// Each minute that is over and in which it was among the first of its policy, the oldest first.
    pub minutes: Vec<(u64, KeyCounts)>,
}

/// A key with the sum of its minutes, and each of them.
type Row = (Arc<NamedKey>, KeyCounts, Vec<(u64, KeyCounts)>);

impl Book {
    /// Takes in what a worker has counted.
    pub(super) fn take(&mut self, batch: KeyBatch) {
        for named in batch.names {
            let has_room = self.keys.len() < KEYS_MAX;
            match self.keys.entry(named.key) {
                // Named again, because a reload may have changed how keys are named.
                Entry::Occupied(mut known) if *known.get().named != named => {
                    known.get_mut().named = Arc::new(named);
                }
                Entry::Vacant(place) if has_room => {
                    place.insert(KnownKey::new(named));
                }
                Entry::Occupied(_) | Entry::Vacant(_) => {}
            }
        }
        self.counted = self.counted.max(batch.second + 1);
        for (key, counts) in batch.counts {
            if let Some(known) = self.keys.get_mut(&key) {
                // What is handed over late was decided before the policy was counted.
                let decided = self.policies.get(&known.named.policy);
                let is_whole = decided.is_some_and(|decided| batch.second >= decided.since);
                known.count(batch.second, counts, is_whole);
            }
        }
        if self.shards.len() < batch.shards.len() {
            self.shards.resize(batch.shards.len(), MinuteSlots::default());
        }
        for (shard, decided) in self.shards.iter_mut().zip(batch.shards) {
            shard.add(batch.second, KeyCounts { requests: decided, denied: 0 });
        }
    }

    /// Says that it is this second now, since the Unix epoch.
    pub(super) fn turn(
        &mut self,
        second: u64,
        mut facts: impl FnMut(&str) -> PolicyFacts,
    ) -> Vec<HotKeyChange> {
        if self.since == 0 {
            self.since = second;
        }
        let before = std::mem::replace(&mut self.second, second);
        // Later than its end, because a minute's last batches come within the second after it.
        let is_over = |second: u64| second.saturating_sub(LATER) / MINUTE;
        if before > 0 && is_over(before) < is_over(second) {
            self.close(is_over(second) - 1);
        }
        let mut thresholds: HashMap<Box<str>, f64> = HashMap::new();
        for known in self.keys.values() {
            let policy = &known.named.policy;
            if !thresholds.contains_key(policy) {
                let facts = facts(policy);
                thresholds.insert(policy.clone(), facts.above);
                let new = PolicyHistory { ever: facts.decided, last: MinuteSlots::default(), since: second };
                let decided = self.policies.entry(policy.clone()).or_insert(new);
                let requests = facts.decided.saturating_sub(decided.ever);
                decided.ever = facts.decided;
                decided.last.add(second.saturating_sub(1), KeyCounts { requests, denied: 0 });
            }
        }
        self.policies.retain(|policy, _| thresholds.contains_key(policy));
        self.judge(&thresholds)
    }

    /// Says which keys are hot and which are no longer.
    fn judge(&mut self, thresholds: &HashMap<Box<str>, f64>) -> Vec<HotKeyChange> {
        let (seconds, mut hot) = (covered(self.second, self.since), self.hot());
        let until = self.until();
        let Book { keys, policies, shards, second, .. } = self;
        let mut changes = Vec::new();
        for known in keys.values_mut() {
            let counts = known.last.sum(*second);
            // Once hot a key stays so until it is clearly less, because otherwise one on the edge would be told of each
            // second.
            let edge = if known.is_hot { LESS } else { 1.0 };
            let is_much = counts.requests as f64 >= FLOOR * edge * seconds;
            let decided = policies.get(&known.named.policy);
            if !known.is_hot
                && (!is_much || decided.is_none_or(|it| second.saturating_sub(it.since) < SETTLED))
            {
                continue;
            }
            let standing = standing(known, decided, shards, *second, until);
            let above = thresholds.get(&known.named.policy).map_or(f64::INFINITY, |above| above * edge);
            // Not of a policy that counts everybody together, because its only key is no news.
            let is_of_policy = standing.of_policy > above && !known.named.name.is_empty();
            let is_of_shard = standing.of_shard.is_some_and(|share| share > above);
            let is_hot = is_much && (is_of_policy || is_of_shard);
            if is_hot != known.is_hot && (!is_hot || hot < HOT_MAX) {
                known.is_hot = is_hot;
                hot = if is_hot { hot + 1 } else { hot - 1 };
                changes.push(HotKeyChange { key: Arc::clone(&known.named), is_hot, standing });
            }
        }
        changes.sort_by(|one, two| {
            two.standing.requests_per_second.total_cmp(&one.standing.requests_per_second)
        });
        changes
    }

    /// The seconds that counts are about: from when this began to where they have come.
    fn until(&self) -> (u64, u64) {
        (self.since, self.counted.min(self.second))
    }

    fn close(&mut self, minute: u64) {
        let stat = |known: &KnownKey| {
            let counts = known.of(minute);
            (counts.requests > 0).then(|| HotKeyStat { key: Arc::clone(&known.named), counts, minute })
        };
        let mut rows: Vec<HotKeyStat> = self.keys.values().filter_map(stat).collect();
        rows.sort_unstable_by(heavier);
        let mut of_policy: HashMap<Box<str>, usize> = HashMap::new();
        rows.retain(|row| {
            let count = of_policy.entry(row.key.policy.clone()).or_default();
            *count += 1;
            *count <= EACH_MAX
        });
        rows.truncate(ROWS_MAX);
        self.minutes.push_back((minute, rows));
        while self.minutes.len() > MINUTES_MAX as usize {
            self.minutes.pop_front();
        }
        self.forget(minute);
    }

    /// Forgets keys that were not seen in this minute nor after it; of too many the lighter ones.
    fn forget(&mut self, minute: u64) {
        self.keys.retain(|_, known| known.is_hot || known.minutes.iter().any(|(at, _)| *at >= minute));
        if self.keys.len() > KEPT_MAX {
            let mut weights: Vec<u64> = self.keys.values().map(|known| known.of(minute).requests).collect();
            let middle = weights.len() - KEPT_MAX;
            let (_, least, _) = weights.select_nth_unstable(middle);
            let least = *least;
            self.keys.retain(|_, known| known.is_hot || known.of(minute).requests > least);
        }
    }

    /// The keys that use most of each policy, the heaviest of a policy first, policies by name.
    pub fn shown(&self, asked: &HotKeyFilter) -> Vec<HotKeyReport> {
        let running = self.second / MINUTE;
        let first = running.saturating_sub(asked.minutes - 1);
        let is_asked =
            |named: &NamedKey| asked.policy.as_ref().is_none_or(|policy| *named.policy == **policy);
        let mut all: HashMap<u64, Row> = HashMap::new();
        let over = self.minutes.iter().filter(|(minute, _)| *minute >= first && asked.minutes > 1);
        for stat in over.flat_map(|(_, rows)| rows).filter(|stat| is_asked(&stat.key)) {
            let (_, sum, minutes) = all
                .entry(stat.key.key)
                .or_insert_with(|| (Arc::clone(&stat.key), KeyCounts::default(), Vec::new()));
            sum.add(stat.counts);
            minutes.push((stat.minute, stat.counts));
        }
        let closed = self.minutes.back().map_or(0, |(minute, _)| *minute);
        let until = self.until();
        for known in self.keys.values().filter(|known| is_asked(&known.named)) {
            let counts = match asked.minutes {
                1 => known.last.sum(self.second),
                _ => {
                    let mut open = KeyCounts::default();
                    let of_open = known.minutes.iter().filter(|(at, _)| *at > closed && *at >= first);
                    of_open.for_each(|(_, counts)| open.add(*counts));
                    open
                }
            };
            if counts.requests > 0 {
                let (_, sum, _) = all
                    .entry(known.named.key)
                    .or_insert_with(|| (Arc::clone(&known.named), KeyCounts::default(), Vec::new()));
                sum.add(counts);
            }
        }
        let seconds = self.second.saturating_sub((first * MINUTE).max(self.since)).max(1) as f64;
        let mut policies: BTreeMap<Box<str>, Vec<HotKeyReport>> = BTreeMap::new();
        for (key, (named, sum, minutes)) in all {
            let known = self.keys.get(&key);
            let rates = match known.filter(|_| asked.minutes == 1) {
                Some(known) => known.rates(self.second, until),
                None => (sum.requests as f64 / seconds, sum.denied as f64 / seconds),
            };
            let shown = HotKeyReport {
                is_hot: known.is_some_and(|known| known.is_hot),
                requests_per_second: rates.0,
                denied_per_second: rates.1,
                standing: known.map(|known| {
                    let decided = self.policies.get(&known.named.policy);
                    standing(known, decided, &self.shards, self.second, until)
                }),
                minutes,
                key: named,
            };
            policies.entry(shown.key.policy.clone()).or_default().push(shown);
        }
        for keys in policies.values_mut() {
            keys.sort_unstable_by(|one, two| {
                let by_rate = two.requests_per_second.total_cmp(&one.requests_per_second);
                by_rate.then_with(|| one.key.name.cmp(&two.key.name))
            });
            keys.truncate(asked.each);
        }
        policies.into_values().flatten().take(ROWS_MAX).collect()
    }

    pub fn hot(&self) -> usize {
        self.keys.values().filter(|known| known.is_hot).count()
    }

    pub fn hot_keys(&self) -> impl Iterator<Item = &Arc<NamedKey>> {
        self.keys.values().filter(|known| known.is_hot).map(|known| &known.named)
    }

    /// The last minute that is over, with its keys.
    pub fn last_minute(&self) -> Option<(u64, &[HotKeyStat])> {
        self.minutes.back().map(|(minute, rows)| (*minute, &rows[..]))
    }
}

impl KnownKey {
    fn new(named: NamedKey) -> KnownKey {
        KnownKey {
            named: Arc::new(named),
            last: MinuteSlots::default(),
            of_policy: MinuteSlots::default(),
            begun: (0, KeyCounts::default()),
            minutes: Default::default(),
            is_hot: false,
        }
    }

    /// `is_whole`: the policy's decisions are counted beside it.
    fn count(&mut self, second: u64, counts: KeyCounts, is_whole: bool) {
        if self.last.sum(second).requests == 0 {
            self.begun = (second, KeyCounts::default());
        }
        if self.begun.0 == second {
            self.begun.1.add(counts);
        }
        self.last.add(second, counts);
        if is_whole {
            self.of_policy.add(second, counts);
        }
        let minute = second / MINUTE;
        match self.minutes.iter_mut().find(|(at, _)| *at == minute) {
            Some((_, sum)) => sum.add(counts),
            None => {
                if minute > self.minutes[0].0 {
                    self.minutes = [(minute, counts), self.minutes[0]];
                }
            }
        }
    }

    /// Decisions and denials a second in the last minute, or since it came first in it. Until it has come for
    /// [`YOUNG`] seconds, it is as if it had, because what came at once is no rate yet.
    fn rates(&self, second: u64, (since, until): (u64, u64)) -> (f64, f64) {
        let KeyCounts { mut requests, mut denied } = self.last.sum(second);
        let from = slots::first(second).max(since);
        let whole = until.saturating_sub(from);
        let (begun, first) = self.begun;
        let own = until.saturating_sub(begun + 1);
        let seconds = match begun >= from {
            true if own >= YOUNG => {
                requests = requests.saturating_sub(first.requests);
                denied = denied.saturating_sub(first.denied);
                own
            }
            true => whole.min(YOUNG),
            false => whole,
        };
        let a_second = |count: u64| count as f64 / seconds.max(1) as f64;
        (a_second(requests), a_second(denied))
    }

    fn of(&self, minute: u64) -> KeyCounts {
        self.minutes.iter().find(|(at, _)| *at == minute).map_or(KeyCounts::default(), |(_, counts)| *counts)
    }
}

fn standing(
    known: &KnownKey,
    decided: Option<&PolicyHistory>,
    shards: &[MinuteSlots],
    second: u64,
    until: (u64, u64),
) -> KeyStanding {
    let counts = known.last.sum(second);
    let (requests_per_second, denied_per_second) = known.rates(second, until);
    let shard = known.named.shard.and_then(|shard| shards.get(usize::from(shard.0)));
    KeyStanding {
        requests_per_second,
        denied_per_second,
        of_policy: share(
            known.of_policy.sum(second).requests,
            decided.map_or(0, |it| it.last.sum(second).requests),
        ),
        of_shard: shard.map(|shard| share(counts.requests, shard.sum(second).requests)),
    }
}

fn heavier(one: &HotKeyStat, two: &HotKeyStat) -> std::cmp::Ordering {
    let by_requests = two.counts.requests.cmp(&one.counts.requests);
    by_requests.then_with(|| one.key.name.cmp(&two.key.name))
}

fn share(part: u64, whole: u64) -> f64 {
    (part as f64 / whole.max(1) as f64).min(1.0)
}

const MINUTE: u64 = 60;
/// Seconds after its end in which a minute may still grow.
const LATER: u64 = 2;
/// Decisions a second without which no key is hot.
pub const FLOOR: f64 = 100.0;
/// By how much less a hot key is no longer one.
const LESS: f64 = 0.8;
/// Seconds that a key must have come for until its rate is that of those seconds.
const YOUNG: u64 = 5;
/// Seconds that a policy has been known before its keys are judged.
const SETTLED: u64 = 5;
pub const MINUTES_MAX: u64 = 60;
/// Keys of a policy in a minute that is over.
pub const EACH_MAX: usize = 20;
/// Keys of a minute that is over.
pub const ROWS_MAX: usize = 1_024;
/// Keys that are known at once, and that are left of them when a minute is over.
const KEYS_MAX: usize = 8_192;
const KEPT_MAX: usize = 4_096;
/// Keys that are hot at once.
const HOT_MAX: usize = 256;
