//! Heavy keys on the control runtime: gathered from the workers each second, told to the log when one becomes hot, shown to
//! operators, and once a minute left in Redis for the other nodes of a fleet. No request waits for any of it.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::fleet::shared_tier::SharedTier;
use super::publisher::Publisher;
use base::clock;
use base::random::Random;
use control::admin;
use gateway::proxy::snapshot::Snapshot;
use limit::{Algorithm, Quota, sliding_log};
use limiter::global::SharedValues;
use limiter::{Check, Limiter};
use metrics::hot_keys::{
    FleetRow, HotKeyChange, HotKeyFilter, KeyCollector, KeyTally, NamedKey, PolicyFacts, ShardNumber, decode,
    encode, shown_name, sum,
};
use metrics::{Metrics, SharedCounter};
use policy::{KeyNaming, NamedSubject};

/// What is known of heavy keys, and how it is gathered.
#[derive(Clone)]
pub(crate) struct HotKeys(Arc<HotKeyState>);

struct HotKeyState {
    gathered: Arc<KeyCollector>,
    /// Of checks that are decided on the control runtime.
    checks: Mutex<KeyTally>,
    current: Arc<ArcSwap<Snapshot>>,
    limiter: Arc<Limiter>,
    metrics: Arc<Metrics>,
    /// Where the nodes of a fleet leave their minutes, and what this one is called there.
    fleet: Option<(SharedValues, String)>,
    lost: SharedCounter,
}

impl HotKeys {
    pub(crate) fn new(publisher: &Publisher, metrics: &Arc<Metrics>, tier: Option<&SharedTier>) -> HotKeys {
        let (gathered, random) = (Arc::<KeyCollector>::default(), Random::seeded());
        let (shown, lost) = (Arc::clone(&gathered), SharedCounter::default());
        let unwritten = lost.clone();
        metrics.register(move |families| {
            let hot = shown.book().hot() as u64;
            families.gauge("hot_keys", "Keys that are hot now", hot)?;
            let help =
                "Minutes of hot-key counts that could not be sent to Redis, so that other nodes do not show them";
            families.counter("hot_key_writes_lost", help, unwritten.value())
        });
        HotKeys(Arc::new(HotKeyState {
            checks: Mutex::new(gathered.tally(random.next())),
            gathered,
            current: Arc::clone(&publisher.current),
            limiter: Arc::clone(&publisher.process.limiter),
            metrics: Arc::clone(metrics),
            fleet: tier.map(|tier| (tier.shared_values(), random.name())),
            lost,
        }))
    }

    pub(crate) fn gathered(&self) -> Arc<KeyCollector> {
        Arc::clone(&self.0.gathered)
    }

    /// Counts the keys of a check that the control runtime has decided.
    pub(crate) fn count(&self, naming: &KeyNaming, check: &Check<'_>, subject: &NamedSubject) {
        check.count_keys(&self.0.limiter, (&self.checks(), naming), |_| Some(subject));
    }

    fn checks(&self) -> MutexGuard<'_, KeyTally> {
        self.0.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn follow(self) {
        // Half a second after each began the workers have left what they counted before it.
        let into = Duration::from_nanos(clock::unix().subsec_nanos().into());
        let until = (Duration::from_millis(1_500) - into).as_nanos() % 1_000_000_000;
        let first = Instant::now() + Duration::from_nanos(until as u64);
        let mut ticks = interval_at(first, Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut lines, mut written, mut local) = (Lines::default(), None, HashMap::new());
        loop {
            ticks.tick().await;
            let second = clock::unix().as_secs();
            self.checks().hand_over(second);
            let changes = self.turn(second);
            let shard_name = |shard| self.0.limiter.fleet()?.shard_name(shard);
            lines.tell(second, &changes, shard_name, |name| self.named_now(name));
            self.keep_local(&mut local);
            if let Some((minute, rows)) = self.unwritten(written) {
                written = Some(minute);
                self.write(minute, &rows).await;
            }
        }
    }

    fn turn(&self, second: u64) -> Vec<HotKeyChange> {
        let snapshot = self.0.current.load();
        self.0.gathered.turn(second, |name| PolicyFacts {
            decided: self.0.metrics.policy(name).decided_ever(),
            above: snapshot.table.policy(name).map_or(f64::INFINITY, |policy| policy.hot_keys.above()),
        })
    }

    /// Has the limiter decide hot keys by itself whose policies say so. `before` is what it does so far.
    fn keep_local(&self, before: &mut HashMap<u64, Quota>) {
        let snapshot = self.0.current.load();
        let local = |named: &Arc<NamedKey>| {
            let policy = snapshot.table.policy(&named.policy)?;
            let own = policy.hot_keys.local_only?;
            let mut algorithms = policy.windows.iter().map(|window| window.quota.algorithm());
            let algorithm = algorithms.find(|algorithm| *algorithm != Algorithm::Concurrency)?;
            let most = if algorithm == Algorithm::SlidingLog { sliding_log::LIMIT_MAX } else { u64::MAX };
            let limit = own.limit().min(NonZeroU64::new(most)?);
            Some((named.key, Quota::new(algorithm, limit, own.period_ns(), limit)))
        };
        let now: HashMap<u64, Quota> = self.0.gathered.book().hot_keys().filter_map(local).collect();
        if now != *before {
            self.0.limiter.keep_local(now.clone());
            *before = now;
        }
    }

    /// What other nodes have not been told of yet.
    fn unwritten(&self, written: Option<u64>) -> Option<(u64, Vec<u8>)> {
        self.0.fleet.as_ref()?;
        let book = self.0.gathered.book();
        let (minute, rows) = book.last_minute().filter(|(minute, _)| Some(*minute) != written)?;
        Some((minute, encode(rows, |name| self.named_now(name))))
    }

    /// A name with its addresses cut as `[privacy]` says now: a key may still have the one of before.
    fn named_now(&self, name: &str) -> String {
        self.0.current.load().naming.cut_again(name)
    }

    async fn write(&self, minute: u64, rows: &[u8]) {
        let Some((values, node)) = &self.0.fleet else { return };
        let name = note(minute);
        let put = values.put_beside(&name, node, rows, KEPT);
        match timeout(ANSWER_WITHIN, put).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => self.0.lost.add(1),
        }
    }

    /// The same for the admin listener.
    pub(crate) async fn shown(self, asked: HotKeyFilter) -> admin::HotKeysShown {
        let mut own = self.0.gathered.book().shown(&asked);
        for shown in &mut own {
            let NamedKey { key, policy, name, shard } = &*shown.key;
            shown.key = Arc::new(NamedKey::new(*key, policy, self.named_now(name), *shard));
        }
        let shard_names = |shard| self.0.limiter.fleet()?.shard_name(shard);
        let shards = own.iter().filter_map(|shown| shown.key.shard).map(|shard| (shard, shard_names(shard)));
        let shards = shards.filter_map(|(shard, name)| Some((shard, name?))).collect();
        // A fleet that does not answer in time is left out: what this node knows is shown at once.
        let mut fleet = timeout(FLEET_WITHIN, self.of_fleet(&asked)).await.ok().flatten();
        let rows = fleet.iter_mut().flat_map(|(_, rows)| rows);
        rows.for_each(|row| row.name = self.named_now(&row.name));
        let is_in_force = |policy: &String| self.0.current.load().table.policy(policy).is_some();
        let is_known = !own.is_empty() || asked.policy.as_ref().is_none_or(is_in_force);
        admin::HotKeysShown { is_known, own, shards, fleet }
    }

    /// What all nodes together have told of the last minutes that are over: how many nodes, and their keys.
    async fn of_fleet(&self, asked: &HotKeyFilter) -> Option<(usize, Vec<FleetRow>)> {
        let (values, _) = self.0.fleet.as_ref()?;
        let last = self.0.gathered.book().last_minute().map(|(minute, _)| minute)?;
        let mut rows = Vec::new();
        let mut nodes = BTreeSet::new();
        for minute in last.saturating_sub(asked.minutes - 1)..=last {
            for (node, told) in values.all_beside(&note(minute)).await.ok()? {
                rows.extend(decode(&told));
                nodes.insert(node);
            }
        }
        Some((nodes.len(), sum(rows, asked)))
    }
}

/// Says which keys become hot, so many a minute at most.
#[derive(Default)]
struct Lines {
    minute: u64,
    told: usize,
}

impl Lines {
    fn tell(
        &mut self,
        second: u64,
        changes: &[HotKeyChange],
        shard_name: impl Fn(ShardNumber) -> Option<String>,
        named_now: impl Fn(&str) -> String,
    ) {
        if self.minute != second / 60 {
            *self = Lines { minute: second / 60, told: 0 };
        }
        for change in changes {
            self.told += 1;
            if self.told > LINES_MAX {
                continue;
            }
            let (policy, standing) = (&*change.key.policy, change.standing);
            let name = named_now(&change.key.name);
            let key = shown_name(&name);
            let shard = change.key.shard.and_then(&shard_name).unwrap_or_default();
            let requests = format!("{:.0}/s", standing.requests_per_second);
            let denied = format!("{:.0}/s", standing.denied_per_second);
            let share = format!("{:.0}% of the policy", standing.of_policy * 100.0);
            match change.is_hot {
                true => tracing::warn!(policy, key, shard, requests, denied, share, "a key is hot"),
                false => {
                    tracing::info!(policy, key, shard, requests, denied, share, "a key is no longer hot")
                }
            }
        }
    }
}

/// The note that holds a minute of all nodes.
fn note(minute: u64) -> String {
    format!("hot-keys-{minute}")
}

/// How long a minute stays in Redis: as long as here, and a little.
const KEPT: Duration = Duration::from_secs(62 * 60);
/// How long a write may take; the next second is not waited for meanwhile.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
const FLEET_WITHIN: Duration = Duration::from_secs(2);
/// Lines of the log a minute.
const LINES_MAX: usize = 32;
