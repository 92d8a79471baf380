//! Divides limits among the proxies that report what they let through (`envoy.service.rate_limit_quota.v3`): what is divided
//! is drawn from the same counts as everything else is charged to, and who gets how much of it is arithmetic of `quota`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::assignments::{abandoned, assigned, usual};
use super::decide::Decider;
use super::draw::{Draw, Limited, Room};
use super::ledger::{Bucket, Name, Reporter, SHARES_MAX};
use super::pots::{Bound, round};
use base::clock;
use base::quota::{Assignment, BucketId, Left, StreamId, Turn, Usage};
use gateway::proxy::snapshot::Snapshot;
use policy::domain::{Entry, Matched};
use rls::{Blanket, BucketAction, BucketId as WireId, BucketQuotaUsage, Entry as WireEntry, Told};

/// What came of a bucket of a report.
struct Answered {
    name: Arc<Name>,
    actions: Vec<BucketAction>,
    /// Whether the stream has a share of it.
    has_share: bool,
    /// Whether it should be given more before its next report.
    waits: bool,
}

/// What is done about a bucket.
enum Course<'t> {
    Abandon,
    Blanket(Blanket),
    Limit(Limited<'t>),
}

impl Decider {
    pub(super) async fn answer_report(
        &self,
        reporter: &mut Reporter,
        mut usages: Vec<BucketQuotaUsage>,
    ) -> Vec<BucketAction> {
        let snapshot = self.snapshot();
        let mut told = Vec::with_capacity(usages.len());
        if reporter.waiting.is_empty() {
            reporter.round = round(clock::now_ns());
        }
        while !usages.is_empty() {
            let rest = usages.split_off(usages.len().min(AT_ONCE));
            let domain = &reporter.domain;
            let answers =
                usages.into_iter().filter_map(|usage| self.answer(&snapshot, reporter.stream, domain, usage));
            for answered in join_all(answers).await {
                let Answered { name, actions, has_share, waits } = answered;
                told.extend(actions);
                keep(&mut reporter.waiting, &name, waits);
                keep(&mut reporter.buckets, &name, has_share);
            }
            usages = rest;
        }
        self.sweep(reporter);
        told
    }

    /// Tells a stream to forget buckets, whatever it says of them.
    pub(super) fn abandon_all(
        &self,
        reporter: &mut Reporter,
        usages: Vec<BucketQuotaUsage>,
    ) -> Vec<BucketAction> {
        let named = usages.into_iter().filter_map(|usage| self.named(&reporter.domain, usage.bucket_id));
        let mut told = Vec::new();
        for (name, id) in named.collect::<Vec<_>>() {
            let Answered { name, actions, .. } = self.abandon(name, reporter.stream, id);
            told.extend(actions);
            reporter.waiting.remove(&name);
            reporter.buckets.remove(&name);
        }
        told
    }

    /// Gives those that wait what there is.
    pub(super) async fn top_up(&self, reporter: &mut Reporter) -> Vec<BucketAction> {
        let snapshot = self.snapshot();
        let waiting: Vec<Arc<Name>> = reporter.waiting.drain().collect();
        reporter.round = round(clock::now_ns());
        let mut told = Vec::new();
        for names in waiting.chunks(AT_ONCE) {
            let answers = names.iter().map(|name| self.add(&snapshot, reporter.stream, name));
            for (name, (actions, waits)) in names.iter().zip(join_all(answers).await) {
                told.extend(actions);
                keep(&mut reporter.waiting, name, waits);
            }
        }
        self.sweep(reporter);
        told
    }

    pub(super) fn end_reporter(&self, reporter: Reporter) {
        reporter.buckets.iter().for_each(|name| self.leave(name, reporter.stream));
    }

    /// Forgets the buckets that a stream says nothing of.
    fn sweep(&self, reporter: &mut Reporter) {
        let now_ns = clock::now_ns();
        if !reporter.is_sweep_due(now_ns) {
            return;
        }
        let stream = reporter.stream;
        let is_silent = |name: &Arc<Name>| self.ledger.with(name, |shares| shares.is_silent(stream, now_ns));
        for name in reporter.buckets.extract_if(|name| is_silent(name)) {
            self.leave(&name, stream);
            reporter.waiting.remove(&name);
        }
    }

    fn leave(&self, name: &Arc<Name>, stream: StreamId) {
        let now_ns = clock::now_ns();
        let back = self.ledger.with(name, |shares| shares.has(stream).then(|| shares.leave(stream, now_ns)));
        if let Some(back) = back {
            self.stats.no_share();
            self.return_draws(back);
        }
    }

    /// Tells a stream to forget a bucket.
    fn abandon(&self, name: Arc<Name>, stream: StreamId, id: WireId) -> Answered {
        let back = self.ledger.with(&name, |shares| shares.has(stream).then(|| shares.abandon(stream)));
        if let Some(back) = back {
            self.stats.no_share();
            self.return_draws(back);
        }
        self.stats.told(Told::Abandon);
        Answered { name, actions: vec![abandoned(id)], has_share: false, waits: false }
    }

    fn blanket(&self, name: Arc<Name>, stream: StreamId, id: WireId, rule: Blanket) -> Answered {
        self.leave(&name, stream);
        self.stats.told(match rule {
            Blanket::AllowAll => Told::Allow,
            Blanket::DenyAll => Told::Deny,
        });
        Answered { name, actions: vec![usual(id, rule)], has_share: false, waits: false }
    }

    /// What a proxy is told about a bucket that it reports; `None` if it names none.
    fn answer<'d>(
        &'d self,
        snapshot: &'d Snapshot,
        stream: StreamId,
        domain: &Arc<str>,
        usage: BucketQuotaUsage,
    ) -> Option<impl Future<Output = Answered> + 'd> {
        let (name, id) = self.named(domain, usage.bucket_id)?;
        let usage = Usage {
            allowed: usage.num_requests_allowed,
            denied: usage.num_requests_denied,
            is_begun: usage.time_elapsed.is_some_and(is_moment),
            elapsed_ns: usage.time_elapsed.map_or(0, nanoseconds),
        };
        Some(async move {
            if is_too_large(&id) {
                return self.blanket(name, stream, id, Blanket::DenyAll);
            }
            let known = Arc::clone(&name);
            let entries: Vec<Entry<'_>> = entries(&known);
            let limited = match self.course(snapshot, &known, &entries) {
                Course::Abandon => return self.abandon(name, stream, id),
                Course::Blanket(rule) => return self.blanket(name, stream, id, rule),
                Course::Limit(limited) => limited,
            };
            match self.room(&limited) {
                Room::Missing => self.blanket(name, stream, id, Blanket::DenyAll),
                Room::Unlimited => {
                    // It is counted all the same, for whoever watches what a limit would do.
                    drop(self.draw(&limited, usage.allowed).await);
                    self.blanket(name, stream, id, Blanket::AllowAll)
                }
                Room::Left(left, bound) => {
                    self.divide(&limited, (name, stream, id), usage, (left, bound)).await
                }
            }
        })
    }

    /// The name of a bucket that a proxy reports; `None` if it has none that an answer could say.
    fn named(&self, domain: &Arc<str>, id: Option<WireId>) -> Option<(Arc<Name>, WireId)> {
        let id = id.filter(|id| !id.entries.is_empty())?;
        let bucket = match id.texts() {
            Ok(texts) => BucketId::new(texts),
            Err(_) => {
                self.stats.unreadable_bucket();
                return None;
            }
        };
        Some((Arc::new(Name { domain: Arc::clone(domain), bucket }), id))
    }

    async fn divide(
        &self,
        limited: &Limited<'_>,
        (name, stream, id): (Arc<Name>, StreamId, WireId),
        usage: Usage,
        (mut left, bound): (Left, Bound),
    ) -> Answered {
        let now_ns = clock::now_ns();
        let heard = self.ledger.with(&name, |shares| {
            let is_known = shares.has(stream) || self.stats.share(SHARES_MAX);
            let heard = is_known.then(|| shares.report(stream, &usage, now_ns)).flatten();
            if is_known && heard.is_none() {
                self.stats.no_share();
            }
            heard
        });
        let Some(heard) = heard else {
            return self.blanket(name, stream, id, Blanket::DenyAll);
        };
        self.stats.unassigned(heard.unassigned);
        if heard.is_idle {
            return self.abandon(name, stream, id);
        }
        left.units -= self.pay(limited, &bound, heard.unassigned, left.units).await;
        let pots = &self.ledger.pots;
        let plan = |bucket: &mut Bucket| bucket.plan(pots, (stream, Turn::Report), (left, bound), now_ns);
        let planned = self.ledger.with_bucket(&name, plan);
        let (units, receipt) = unpacked(self.draw(limited, planned).await);
        pots.give_back(&bound, planned.saturating_sub(units));
        let answer = self.ledger.with(&name, |shares| {
            let answer = shares.answer(stream, units, receipt, now_ns);
            (answer, shares.waits(stream))
        });
        let (Some((assignment, back)), waits) = answer else {
            return Answered { name, actions: Vec::new(), has_share: false, waits: false };
        };
        self.return_draws(back);
        let actions = self.assign(id, assignment);
        Answered { name, actions, has_share: true, waits }
    }

    /// Charges requests that have passed already. Draws as many as are left, and returns how many those were; each window is
    /// charged the others as far as it can owe them.
    async fn pay(&self, limited: &Limited<'_>, bound: &Bound, passed: u64, left: u64) -> u64 {
        let paid = self.draw(limited, passed.min(left)).await.map_or(0, |draw| draw.requests());
        self.ledger.pots.take(bound, paid);
        self.owe(limited, passed - paid);
        paid
    }

    /// What a stream that waits is given of a bucket, and whether it still waits.
    async fn add(
        &self,
        snapshot: &Snapshot,
        stream: StreamId,
        name: &Arc<Name>,
    ) -> (Vec<BucketAction>, bool) {
        let (now_ns, pots) = (clock::now_ns(), &self.ledger.pots);
        let (hungers, waits, is_turn_of_own) = self.ledger.with_bucket(name, |bucket| {
            let shares = &bucket.shares;
            (shares.hungers(stream, now_ns), shares.waits(stream), bucket.is_turn_of_own(pots, now_ns))
        });
        if !(hungers || waits && is_turn_of_own) {
            return (Vec::new(), waits);
        }
        let entries = entries(name);
        let Course::Limit(limited) = self.course(snapshot, name, &entries) else {
            return (Vec::new(), false);
        };
        let Room::Left(left, bound) = self.room(&limited) else { return (Vec::new(), false) };
        if !hungers {
            self.ledger.with_bucket(name, |bucket| bucket.turn(pots, stream, (left, bound), now_ns));
            return (Vec::new(), waits);
        }
        let plan = |bucket: &mut Bucket| bucket.plan(pots, (stream, Turn::Round), (left, bound), now_ns);
        let planned = self.ledger.with_bucket(name, plan);
        let (units, receipt) = unpacked(self.draw(&limited, planned).await);
        pots.give_back(&bound, planned.saturating_sub(units));
        let (assignment, waits) = self.ledger.with(name, |shares| {
            let assignment = shares.top_up(stream, units, receipt, now_ns);
            (assignment, shares.waits(stream))
        });
        let entry = |(key, value): (&str, &str)| WireEntry { key: key.into(), value: value.into() };
        let id = || WireId { entries: name.bucket.entries().map(entry).collect() };
        (assignment.map_or(Vec::new(), |assignment| self.assign(id(), assignment)), waits)
    }

    fn assign(&self, id: WireId, assignment: Assignment) -> Vec<BucketAction> {
        let (told, actions) = assigned(id, assignment);
        self.stats.told(told);
        actions
    }

    fn course<'t>(&self, snapshot: &'t Snapshot, name: &Name, entries: &'t [Entry<'t>]) -> Course<'t> {
        let Some(domain) = snapshot.table.domain(&name.domain) else {
            self.stats.unknown_domain(1);
            return Course::Abandon;
        };
        match domain.find(entries) {
            Matched::Unknown => {
                self.stats.unknown_descriptors(1);
                Course::Abandon
            }
            Matched::Unlimited | Matched::Replaced => Course::Blanket(Blanket::AllowAll),
            Matched::Denied => Course::Blanket(Blanket::DenyAll),
            Matched::Limited(rule) => Course::Limit(Limited { snapshot, rule, entries }),
        }
    }
}

fn keep(names: &mut std::collections::HashSet<Arc<Name>>, name: &Arc<Name>, stays: bool) {
    match stays {
        true => drop(names.insert(Arc::clone(name))),
        false => drop(names.remove(name)),
    }
}

fn entries(name: &Name) -> Vec<Entry<'_>> {
    name.bucket.entries().map(|(key, value)| Entry { key, value }).collect()
}

fn unpacked(draw: Option<Draw>) -> (u64, Option<Arc<Draw>>) {
    (draw.as_ref().map_or(0, Draw::requests), draw.map(Arc::new))
}

/// A time that is none is 0.
fn nanoseconds(elapsed: prost_types::Duration) -> u64 {
    Duration::try_from(elapsed).map_or(0, |elapsed| u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

/// Whether a proxy reports a bucket for the first time: each later report comes an interval after the one before, at least a
/// tenth of a second, and so does the first one on another stream.
fn is_moment(elapsed: prost_types::Duration) -> bool {
    elapsed.seconds == 0 && (0..BEGUN_WITHIN_NS).contains(&elapsed.nanos)
}

fn is_too_large(id: &WireId) -> bool {
    let bytes: usize = id.entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum();
    id.entries.len() > ENTRIES_MAX || bytes > ID_BYTES_MAX
}

/// A proxy's first report of a bucket comes with its first request.
const BEGUN_WITHIN_NS: i32 = 50_000_000;
/// Buckets of a report that may wait for Redis at once.
const AT_ONCE: usize = 64;
/// Entries of a bucket's name.
const ENTRIES_MAX: usize = 32;
/// Bytes of all keys and values of a bucket's name. A longer one is no name that anybody would limit by.
const ID_BYTES_MAX: usize = 4_096;
