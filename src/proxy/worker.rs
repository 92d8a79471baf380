//! A worker: one thread, one runtime, its own listening sockets, its own connections to the upstreams.
//!
//! A request on an open connection, on a key that is in the table, over an idle connection upstream takes no lock and
//! wakes no other thread. Locks, all of them short, are taken where a client's connection opens or closes (its
//! listener's count by address), where a connection upstream is opened (a permit), where a key comes into the table,
//! and, only if it is free, where a chunk of log lines is handed over; another worker is woken to adopt a connection.
//!
//! The control runtime speaks to it in [`Order`]s; it answers by ending.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::task::Context;
use std::time::{Duration, Instant};
use std::{panic, thread};

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::body::RequestBody;
use super::gather::Room;
use super::idle::{self, IdleConnections};
use super::listener::{self, Listener};
use super::overload::Overload;
use super::snapshot::{Snapshot, View};
use super::unread::Unread;
use crate::auth::{self, Method};
use crate::cause::Cause;
use crate::limiter::Limiter;
use crate::random::Random;
use crate::service::reason::Reason;
use crate::{clock, metrics, record, upstream};

/// What the control runtime tells a worker.
#[derive(Debug)]
pub enum Order {
    /// Accept on this socket.
    Listen(std::net::TcpListener, Arc<Listener>),
    /// Stop accepting on the listener of this name; its connections go on until they are done.
    Close(String),
    /// Serve this connection, which another worker accepted.
    Adopt(std::net::TcpStream, Arc<Listener>),
    /// Accept no more, finish what runs, end at the deadline at the latest.
    Drain(Instant),
}

/// What every worker is made with.
#[derive(Debug)]
pub struct Shared {
    /// The snapshot in force.
    pub current: Arc<ArcSwap<Snapshot>>,
    /// The limiter.
    pub limiter: Arc<Limiter>,
    /// What is given up for want of memory.
    pub overload: Arc<Overload>,
    /// The memory for bodies of requests that have no connection upstream yet.
    pub gathered: Arc<Room>,
    /// Where refusals are counted, by [`Reason`].
    pub refusals: Vec<Arc<metrics::Refusal>>,
    /// Where causes are counted, by [`Cause`].
    pub causes: Vec<Arc<metrics::Refusal>>,
    /// Panics of the workers' threads.
    pub panics: metrics::Counter,
    /// Connections the kernel would not hand over.
    pub accept_errors: metrics::Counter,
    /// Credentials that were looked at because nothing was known of them.
    pub auth_verifications: metrics::Counter,
    /// Connections of each worker, for the balance between them.
    pub loads: Vec<AtomicUsize>,
    /// How each worker is reached.
    pub orders: Vec<mpsc::Sender<Order>>,
}

/// One worker's own things; never leaves its thread.
pub struct Worker {
    /// Its number, from 0.
    pub index: usize,
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// Its cells of the metrics.
    pub metrics: metrics::Worker,
    /// Its part of the access log.
    pub log: record::Buffer,
    /// TLS handshakes that may be under way at once.
    pub handshakes: Semaphore,
    /// Its connections that have nothing to say.
    pub lot: IdleConnections,
    snapshot: RefCell<Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>>,
    view: RefCell<Rc<View>>,
    random: Random,
    /// Bodies of requests that were answered before they were whole.
    pub unread: Unread,
    /// Wall-clock time less monotonic time, nanoseconds; as fresh as the last tick.
    unix_offset_ns: Cell<i64>,
    draining: Cell<bool>,
    cut: Cell<bool>,
    drain: Notify,
    emptied: Notify,
}

/// Starts worker `index` on a thread of its own and waits until it runs; it ends after an [`Order::Drain`].
///
/// # Errors
/// Where there is no thread for it, or no descriptors for its runtime.
pub fn spawn(
    index: usize,
    shared: Arc<Shared>,
    cells: metrics::Worker,
    log: record::Buffer,
    orders: mpsc::Receiver<Order>,
) -> std::io::Result<thread::JoinHandle<()>> {
    let (started, starts) = std::sync::mpsc::sync_channel(1);
    let thread = thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .event_interval(EVENT_INTERVAL)
            .build_local(LocalOptions::default());
        match runtime.and_then(|runtime| Ok((runtime, IdleConnections::open()?))) {
            Ok((runtime, (lot, poll))) => {
                let _ = started.send(Ok(()));
                let worker = Rc::new(Worker::new(index, shared, cells, log, lot));
                runtime.block_on(run(worker, poll, orders));
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        }
    })?;
    starts.recv().unwrap_or_else(|_| Err(std::io::Error::other("it ended in a panic")))?;
    Ok(thread)
}

async fn run(worker: Rc<Worker>, poll: mio::Poll, mut orders: mpsc::Receiver<Order>) {
    tokio::task::spawn_local(idle::watch(Rc::clone(&worker), poll));
    let mut listeners: HashMap<String, Vec<JoinHandle<()>>> = HashMap::new();
    let mut tick = tokio::time::interval(TICK);
    let deadline = loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Listen(socket, listener)) => {
                    let name = listener.config.load().name.clone();
                    let task = tokio::task::spawn_local(listener::accept(Rc::clone(&worker), socket, listener));
                    listeners.entry(name).or_default().push(task);
                }
                Some(Order::Close(name)) => listeners.remove(&name).into_iter().flatten().for_each(|task| task.abort()),
                Some(Order::Adopt(socket, listener)) => listener::adopt(&worker, socket, listener),
                Some(Order::Drain(deadline)) => break deadline,
                // The process is going down without a word: so do we.
                None => break clock::instant(),
            },
            _ = tick.tick() => worker.upkeep(),
        }
    };
    worker.draining.set(true);
    worker.drain.notify_waiters();
    // The accept loops take what the kernel has accepted already, then close their sockets.
    for task in listeners.into_values().flatten() {
        let _ = task.await;
    }
    while worker.connections() > 0 {
        tokio::select! {
            () = worker.emptied.notified() => {}
            _ = tick.tick() => worker.upkeep(),
            // A connection may have been handed over by a worker that had not heard yet.
            Some(Order::Adopt(socket, listener)) = orders.recv() => listener::adopt(&worker, socket, listener),
            () = tokio::time::sleep_until(deadline.into()) => {
                tracing::warn!(worker = worker.index, connections = worker.connections(), "drain deadline: closing what is left");
                worker.cut.set(true);
                break;
            }
        }
    }
    worker.log.hand_over();
}

impl Worker {
    fn new(
        index: usize,
        shared: Arc<Shared>,
        cells: metrics::Worker,
        log: record::Buffer,
        lot: IdleConnections,
    ) -> Worker {
        count_panics(shared.panics.clone());
        let mut snapshot = Cache::new(Arc::clone(&shared.current));
        let random = Random::seeded();
        let view = View { snapshot: Arc::clone(snapshot.load()), pools: Vec::new(), caches: Vec::new() };
        let view = Rc::new(view.with_pools(&[], random.next()).with_caches(&[]));
        Worker {
            index,
            shared,
            metrics: cells,
            log,
            handshakes: Semaphore::new(HANDSHAKES_MAX),
            lot,
            snapshot: RefCell::new(snapshot),
            view: RefCell::new(view),
            random,
            unread: Unread::default(),
            unix_offset_ns: Cell::new(unix_offset_ns()),
            draining: Cell::new(false),
            cut: Cell::new(false),
            drain: Notify::new(),
            emptied: Notify::new(),
        }
    }

    /// The snapshot in force, once a request. Notices a reload by one load of a pointer.
    pub fn view(&self) -> Rc<View> {
        let mut snapshot = self.snapshot.borrow_mut();
        let current = snapshot.load();
        let mut view = self.view.borrow_mut();
        if !Arc::ptr_eq(current, &view.snapshot) {
            let next = View { snapshot: Arc::clone(current), pools: Vec::new(), caches: Vec::new() };
            *view = Rc::new(next.with_pools(&view.pools, self.random()).with_caches(&view.caches));
        }
        Rc::clone(&view)
    }

    /// Counts a refusal.
    pub fn refused(&self, reason: Reason) {
        self.shared.refusals[reason as usize].count(&self.metrics);
    }

    /// Counts what exactly was wrong.
    pub fn caused(&self, cause: Cause) {
        self.shared.causes[cause as usize].count(&self.metrics);
    }

    /// Whether this worker takes no new work.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Whether the drain's deadline has come: what still runs is broken off.
    pub fn is_cut(&self) -> bool {
        self.cut.get()
    }

    /// Ready once the drain begins.
    pub async fn drain_begins(&self) {
        let begins = self.drain.notified();
        if !self.draining.get() {
            begins.await;
        }
    }

    /// Whether the drain has begun, asked at every turn of one task. `begins` is [`Worker::drain_begins`], polled the
    /// first time so that it wakes the task then; after that a flag tells.
    pub fn drain_has_begun<F>(&self, begins: &mut Option<Pin<&mut F>>, cx: &mut Context<'_>) -> bool
    where
        F: Future<Output = ()>,
    {
        match begins.take() {
            Some(begins) => begins.poll(cx).is_ready(),
            None => self.draining.get(),
        }
    }

    /// Connections it serves.
    pub fn connections(&self) -> usize {
        self.shared.loads[self.index].load(Ordering::Relaxed)
    }

    /// How long a TLS handshake may take that begins now. Where half of the room for them is taken, clients that do
    /// not go on are given up sooner, so that those who do need not wait for them.
    pub fn handshake_deadline(&self, usual: Duration) -> Duration {
        if self.handshakes.available_permits() >= HANDSHAKES_MAX / 2 { usual } else { usual / 4 }
    }

    /// A connection begins.
    pub fn connection_opened(&self) {
        self.shared.loads[self.index].fetch_add(1, Ordering::Relaxed);
    }

    /// A connection is over.
    pub fn connection_closed(&self) {
        if self.shared.loads[self.index].fetch_sub(1, Ordering::Relaxed) == 1 {
            self.emptied.notify_waiters();
        }
    }

    /// A random number; see [`Random`].
    pub fn random(&self) -> u64 {
        self.random.next()
    }

    /// Wall-clock time at an instant, without reading that clock.
    pub fn unix(&self, instant: Instant) -> Duration {
        let now_ns = clock::ns_of(instant) as i64 + self.unix_offset_ns.get();
        Duration::from_nanos(now_ns.max(0) as u64)
    }

    /// What is done now and then: the log goes out, idle connections are closed, a reload is seen without a request.
    fn upkeep(&self) {
        self.unix_offset_ns.set(unix_offset_ns());
        self.log.hand_over();
        let now = clock::instant();
        self.unread.sweep(now);
        self.lot.expire(now);
        for pool in &self.view().pools {
            pool.sweep(now, self.shared.loads.len());
        }
    }
}

impl View {
    /// Takes over the pools of upstreams that are still the same; makes the others.
    fn with_pools(mut self, before: &[Rc<upstream::Pool<RequestBody>>], seed: u64) -> View {
        self.pools = self
            .snapshot
            .upstreams
            .iter()
            .zip(&self.snapshot.figures.upstreams)
            .map(|(upstream, _)| {
                let same = before.iter().find(|pool| pool.upstream.id == upstream.id);
                same.cloned().unwrap_or_else(|| {
                    Rc::new(upstream::Pool::new(Arc::clone(upstream), seed ^ upstream.id.rotate_left(32)))
                })
            })
            .collect();
        self
    }

    /// Takes over what was verified by ways to authenticate that are still the same; makes the others.
    fn with_caches(mut self, before: &[Rc<auth::cache::Cache>]) -> View {
        let cache = |method: &Arc<Method>| {
            let same = before.iter().find(|cache| cache.method == method.id);
            same.cloned().unwrap_or_else(|| Rc::new(auth::cache::Cache::new(method.id)))
        };
        self.caches = self.snapshot.auth.iter().map(cache).collect();
        self
    }
}

fn unix_offset_ns() -> i64 {
    clock::unix().as_nanos() as i64 - clock::now_ns() as i64
}

/// Counts every panic of this thread from now on, wherever it is caught: by a request, by a connection, or by a task
/// that an HTTP/2 stream runs in.
fn count_panics(counter: metrics::Counter) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            PANICS.with_borrow(|counter| counter.iter().for_each(|counter| counter.add(1)));
            before(panic);
        }));
    });
    PANICS.set(Some(counter));
}

thread_local! {
    /// Where this thread's panics are counted; nowhere unless it is a worker's.
    static PANICS: RefCell<Option<metrics::Counter>> = const { RefCell::new(None) };
}

/// How often [`Worker::upkeep`] runs.
const TICK: Duration = Duration::from_millis(200);
/// TLS handshakes of one worker at once; each holds some 12 KiB.
const HANDSHAKES_MAX: usize = 4096;
/// Polls of tasks between two looks at the sockets.
const EVENT_INTERVAL: u32 = 61;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::policy::{Options, Table};
    use crate::proxy::config::{ClientIp, LimitHeaders};
    use crate::proxy::snapshot::Figures;
    use crate::{local, record};

    /// A worker without routes, and what it counts.
    pub(crate) fn worker() -> (Rc<Worker>, Arc<metrics::Metrics>) {
        let (figures, mut cells) = metrics::Metrics::new(1);
        let access = record::AccessConfig {
            to: record::Sink::Off,
            sample: Vec::new(),
            headers: Vec::new(),
            query: Default::default(),
        };
        let log = record::Log::open(&access.to, &figures.access_log).expect("nothing to open");
        let options = Options { salt: [0; 16], ipv6_prefix: 64, upstreams: &[], auth: &[] };
        let snapshot = Snapshot {
            generation: 0,
            table: Table::compile(&[], &[], &options).expect("nothing can be wrong with it"),
            upstreams: Vec::new(),
            auth: Vec::new(),
            secret_parameters: Box::default(),
            client_ip: ClientIp::default(),
            limit_headers: LimitHeaders::default(),
            sampler: record::Sampler::new(&access),
            shown: record::Shown::new(&access),
            figures: Figures {
                routes: Vec::new(),
                no_route: figures.route(""),
                policies: Vec::new(),
                upstreams: Vec::new(),
            },
        };
        let shared = Shared {
            current: Arc::new(ArcSwap::from_pointee(snapshot)),
            limiter: Arc::new(Limiter::new(local::Table::with_memory(1 << 20))),
            overload: Arc::new(Overload::new(Default::default())),
            gathered: Arc::default(),
            causes: Cause::ALL.iter().map(|cause| figures.cause(cause.word())).collect(),
            refusals: Reason::ALL.iter().map(|reason| figures.refusal(reason.code())).collect(),
            panics: figures.panics.clone(),
            accept_errors: figures.accept_errors.clone(),
            auth_verifications: figures.auth_verifications.clone(),
            loads: vec![AtomicUsize::new(0)],
            orders: Vec::new(),
        };
        let (lot, _) = IdleConnections::open().expect("there are descriptors");
        let worker = Worker::new(0, Arc::new(shared), cells.remove(0), log.buffer(), lot);
        (Rc::new(worker), figures)
    }

    #[test]
    fn half_open_handshakes_have_less_time_the_more_there_are() {
        let (worker, _) = worker();
        let usual = Duration::from_secs(4);
        assert_eq!(worker.handshake_deadline(usual), usual);
        let half = worker.handshakes.try_acquire_many(HANDSHAKES_MAX as u32 / 2 + 1).expect("there is room");
        assert_eq!(worker.handshake_deadline(usual), usual / 4);
        drop(half);
        assert_eq!(worker.handshake_deadline(usual), usual);
    }
}
