//! Everything that serves the requests of one worker: the snapshot in force, the limiter, the access log, the metrics.
//!
//! A request on an open connection, on a key that is in the table, over an idle connection upstream takes no lock and
//! wakes no other thread.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;

use super::request::buffered_body::BufferBudget;
use super::request::request_body::RequestBody;
use super::request::unread_bodies::UnreadBodies;
use super::snapshot::{Snapshot, WorkerView};
use crate::service::overload::Overload;
use crate::service::reason::Reason;
use acme::Challenges;
use auth::{self, Method};
use base::cause::Cause;
use base::clock;
use base::random::{EvenNumbers, Random};
use limiter::Limiter;
use metrics::hot_keys;
use metrics::usage;
use observe::record;
use observe::trace::SpanQueue;

/// What the services of all workers share.
#[derive(Debug)]
pub struct SharedServices {
    /// The snapshot in force. A reload replaces it.
    pub current: Arc<ArcSwap<Snapshot>>,
    /// Decides the limits of every request.
    pub limiter: Arc<Limiter>,
    /// The responses to ACME challenges.
    pub challenges: Arc<Challenges>,
    /// How much work is shed to save memory.
    pub overload: Arc<Overload>,
    /// The memory for bodies of requests that have no connection upstream yet.
    pub gathered: Arc<BufferBudget>,
    /// The memory for copies of bodies that mirrors get.
    pub copies: Arc<BufferBudget>,
    /// Counters of refusals, indexed by [`Reason`].
    pub refusals: Vec<Arc<metrics::RefusalSeries>>,
    /// Counters of causes, indexed by [`Cause`].
    pub causes: Vec<Arc<metrics::RefusalSeries>>,
    /// Counters of calls of gRPC, indexed by the status that ended them; the last is of all others.
    pub calls: Vec<Arc<metrics::RefusalSeries>>,
    /// Counts credentials that had to be verified because the worker's cache did not have them.
    pub auth_verifications: metrics::SharedCounter,
    /// What is gathered of usage by the minute. `None`: nothing is.
    pub usage: Option<Arc<usage::UsageCollector>>,
    pub decisions: Arc<record::decisions::SampleMemory>,
    /// What is gathered of heavy keys. `None`: nothing is.
    pub hot_keys: Option<Arc<hot_keys::KeyCollector>>,
    pub spans: SpanQueue,
    pub workers: usize,
}

/// One worker's services; they never leave its thread.
pub struct Services {
    pub shared: Arc<SharedServices>,
    /// The worker's cells of the metrics.
    pub metrics: metrics::WorkerToken,
    /// The worker's part of the access log.
    pub log: record::Buffer,
    pub decisions: record::decisions::SampleBuffer,
    /// The worker's part of usage by the minute.
    pub usage: Option<usage::UsageTally>,
    /// The worker's part of the heavy keys.
    pub hot_keys: Option<hot_keys::KeyTally>,
    /// Request bodies that were not read to the end before the answer.
    pub unread: Rc<UnreadBodies>,
    /// Each body that is being compressed has a copy.
    pub compressions: Rc<()>,
    /// Each copy of a request that is on its way to a mirror has a copy.
    pub mirrored: Rc<()>,
    snapshot: RefCell<Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>>,
    view: RefCell<Rc<WorkerView>>,
    random: Random,
    /// Wall-clock time minus monotonic time; renewed at every tick, so that requests need not read the wall clock.
    unix_offset_ns: Cell<i64>,
}

impl Services {
    /// Must be called on the worker's own thread.
    pub fn new(shared: Arc<SharedServices>, cells: metrics::WorkerToken, log: record::Buffer) -> Services {
        let mut snapshot = Cache::new(Arc::clone(&shared.current));
        let random = Random::seeded();
        let view = WorkerView::new(snapshot.load(), &random);
        let view = Rc::new(view.with_pools(&[], random.next()).with_caches(&[]));
        let usage = shared.usage.clone().map(usage::UsageTally::new);
        let decisions = record::decisions::SampleBuffer::new(Arc::clone(&shared.decisions));
        let hot_keys = shared.hot_keys.as_ref().map(|keys| keys.tally(random.next()));
        Services {
            shared,
            metrics: cells,
            log,
            decisions,
            usage,
            hot_keys,
            unread: Rc::default(),
            compressions: Rc::default(),
            mirrored: Rc::default(),
            snapshot: RefCell::new(snapshot),
            view: RefCell::new(view),
            random,
            unix_offset_ns: Cell::new(unix_offset_ns()),
        }
    }

    /// The start of this decision, nanoseconds, if its duration is measured. Decisions are drawn at random, because every
    /// sixteenth request may always be for the same policy.
    pub fn time_decision(&self) -> Option<u64> {
        self.random.next().is_multiple_of(TIMED_EVERY).then(clock::now_ns)
    }

    /// The snapshot in force and the worker's pools for it. A request calls it once; a reload is noticed by one atomic
    /// load, and so is a change of servers.
    pub fn view(&self) -> Rc<WorkerView> {
        let mut snapshot = self.snapshot.borrow_mut();
        let current = snapshot.load();
        let mut view = self.view.borrow_mut();
        if !Arc::ptr_eq(current, &view.snapshot) || current.moves.count() != view.moves {
            let next = WorkerView::new(current, &self.random);
            let next = next.with_pools(&view.pools, self.random());
            *view = Rc::new(next.with_caches(&view.caches));
        }
        Rc::clone(&view)
    }

    /// The view with which the last request began, for callers that accept an older one.
    pub fn last_view(&self) -> Ref<'_, WorkerView> {
        Ref::map(self.view.borrow(), |view| &**view)
    }

    /// The same snapshot with pools for the servers there are now, if any have changed since this view was made.
    pub fn renewed(&self, view: &WorkerView) -> Option<Rc<WorkerView>> {
        if view.snapshot.moves.count() == view.moves {
            return None;
        }
        let current = self.view();
        if Arc::ptr_eq(&current.snapshot, &view.snapshot) {
            return Some(current);
        }
        // A reload came in between. Its snapshot is not taken, because a request keeps the configuration that it began
        // with.
        let pools: Vec<_> = current.pools.iter().chain(&view.pools).map(Rc::clone).collect();
        let renewed = WorkerView::new(&view.snapshot, &self.random).with_pools(&pools, self.random());
        Some(Rc::new(renewed.with_caches(&view.caches)))
    }

    pub fn refused(&self, reason: Reason) {
        self.shared.refusals[reason as usize].count(&self.metrics);
    }

    /// Counts the exact cause of a refusal.
    pub fn caused(&self, cause: Cause) {
        self.shared.causes[cause as usize].count(&self.metrics);
    }

    /// Counts a call of gRPC that ended with this status.
    pub fn called(&self, status: u32) {
        let calls = &self.shared.calls;
        let index = usize::try_from(status).unwrap_or(usize::MAX).min(calls.len() - 1);
        calls[index].count(&self.metrics);
    }

    pub fn random(&self) -> u64 {
        self.random.next()
    }

    /// The wall-clock time at `instant`, without reading the wall clock.
    pub fn unix(&self, instant: Instant) -> Duration {
        let now_ns = clock::ns_of(instant) as i64 + self.unix_offset_ns.get();
        Duration::from_nanos(now_ns.max(0) as u64)
    }

    /// The worker's periodic work: hands over log lines, usage and heavy keys, closes idle connections upstream, and notices a reload even if
    /// no request comes.
    pub fn upkeep(&self, now: Instant) {
        self.unix_offset_ns.set(unix_offset_ns());
        self.log.hand_over();
        self.decisions.hand_over();
        self.usage.iter().for_each(usage::UsageTally::hand_over);
        let second = self.unix(now).as_secs();
        self.hot_keys.iter().for_each(|tally| tally.hand_over(second));
        self.unread.sweep(now);
        for pool in &self.view().pools {
            pool.sweep(now, self.shared.workers);
        }
    }
}

impl WorkerView {
    /// A view without connections and credentials, whose turns begin anywhere.
    fn new(snapshot: &Arc<Snapshot>, random: &Random) -> WorkerView {
        // Counted before the servers are read, so that a change in between is seen later.
        let moves = snapshot.moves.count();
        let turns = (0..snapshot.table.choices()).map(|_| EvenNumbers::new(random.next())).collect();
        WorkerView {
            snapshot: Arc::clone(snapshot),
            moves,
            pools: Vec::new().into(),
            turns,
            caches: Vec::new().into(),
        }
    }

    /// Keeps the pools of upstreams that a reload did not change, and of servers that an upstream still has, so that their
    /// connections stay; makes the others.
    fn with_pools(mut self, before: &[Rc<upstream::Pool<RequestBody>>], seed: u64) -> WorkerView {
        let pool = |(index, live): (usize, &Arc<upstream::LiveUpstream>)| {
            let upstream = live.load();
            let seed = seed ^ upstream.id.rotate_left(32);
            // The upstream keeps its index if only servers changed; after a reload it can have any.
            let near = before.get(index).filter(|pool| pool.is_of(live));
            match near.or_else(|| before.iter().find(|pool| pool.is_of(live))) {
                Some(same) if same.upstream.id == upstream.id => Rc::clone(same),
                Some(same) => Rc::new(same.renewed(upstream, seed)),
                None => Rc::new(upstream::Pool::new(upstream, seed)),
            }
        };
        self.pools = self.snapshot.upstreams.iter().enumerate().map(pool).collect();
        self
    }

    /// Keeps the verified credentials of methods that a reload did not change; makes the other caches.
    fn with_caches(mut self, before: &[Rc<auth::cache::Cache>]) -> WorkerView {
        let cache = |method: &Arc<Method>| {
            let same = before.iter().find(|cache| cache.method == method.id);
            same.cloned().unwrap_or_else(|| Rc::new(auth::cache::Cache::new(method.id)))
        };
        self.caches = self.snapshot.auth.iter().map(cache).collect();
        self
    }
}

/// Of so many decisions that wait for nothing one is measured.
pub(super) const TIMED_EVERY: u64 = 16;

fn unix_offset_ns() -> i64 {
    clock::unix().as_nanos() as i64 - clock::now_ns() as i64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::proxy::config::{ClientIp, LimitHeaders};
    use crate::proxy::config::{FieldAudience, NodeIdentity};
    use crate::proxy::snapshot::Series;
    use limiter::local;
    use observe::record;
    use policy::KeyNaming;
    use policy::{CompileOptions, RouteTable};

    /// Services without routes, and what they count.
    pub fn services() -> (Rc<Services>, Arc<metrics::Metrics>) {
        let (metrics, mut cells) = metrics::Metrics::new(1);
        let access =
            record::AccessConfig { to: record::Sink::Off, headers: Vec::new(), ..Default::default() };
        let log = record::LineLog::open(&access.to, &metrics.access_log).expect("nothing to open");
        let options = CompileOptions { salt: [0; 16], ipv6_prefix: 64, upstreams: &[], auth: &[] };
        let snapshot = Snapshot {
            generation: 0,
            table: RouteTable::compile(&[], &[], &options).expect("nothing can be wrong with it"),
            upstreams: Vec::new().into(),
            moves: Arc::default(),
            auth: Vec::new().into(),
            secret_parameters: Box::default(),
            listeners: Vec::new(),
            client_ip: ClientIp::default(),
            node: NodeIdentity::new("here", FieldAudience::Trusted, FieldAudience::Always),
            tiers: Box::default(),
            naming: KeyNaming::default(),
            limit_headers: LimitHeaders::default(),
            error_pages: None,
            sampler: record::StatusSampler::new(&access),
            draws: record::decisions::DecisionSampling::default(),
            shown: record::LoggedParts::new(&access),
            style: record::Style::default(),
            tracer: None,
            series: Series {
                routes: Vec::new(),
                no_route: metrics.route(""),
                policies: Vec::new(),
                windows: Vec::new(),
                latency: metrics.latency(),
                upstreams: Vec::new().into(),
            },
        };
        let shared = SharedServices {
            current: Arc::new(ArcSwap::from_pointee(snapshot)),
            challenges: Arc::default(),
            limiter: Arc::new(Limiter::new(local::Table::with_memory(1 << 20))),
            overload: Arc::new(Overload::new(Default::default())),
            gathered: Arc::new(BufferBudget::of_gathered()),
            copies: Arc::new(BufferBudget::of_copies()),
            causes: Cause::ALL.iter().map(|cause| metrics.cause(cause.word())).collect(),
            calls: metrics.calls(),
            refusals: Reason::ALL.iter().map(|reason| metrics.refusal(reason.word())).collect(),
            auth_verifications: metrics.auth_verifications.clone(),
            usage: None,
            decisions: Arc::default(),
            hot_keys: None,
            spans: SpanQueue::nowhere(),
            workers: 1,
        };
        let services = Services::new(Arc::new(shared), cells.remove(0), log.buffer());
        (Rc::new(services), metrics)
    }
}
