//! A worker from start to end: one thread, one runtime, its own listening sockets.
//!
//! The control runtime sends it [`WorkerCommand`]s and gets no replies: it joins the thread to learn that a drain is over.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::idle::IdleConnections;
use super::worker::{Deadlines, Worker, WorkerCommand, WorkerIndex, WorkerResources};
use super::{accept, panics};
use crate::service::Service;
use crate::service::drain::Drain;
use crate::service::overload::PressureStep;
use base::clock;
use net::outbox;

/// Starts worker `index` on a thread of its own and waits until its runtime is up; it ends after an [`WorkerCommand::Drain`].
/// `service` is called on that thread, because a service is not `Send`.
///
/// # Errors
/// If the thread cannot be started or its runtime gets no descriptors.
pub fn spawn<S: Service>(
    index: WorkerIndex,
    shared: Arc<WorkerResources>,
    commands: mpsc::Receiver<WorkerCommand>,
    service: impl FnOnce() -> S + Send + 'static,
) -> std::io::Result<thread::JoinHandle<()>> {
    let (started, starts) = std::sync::mpsc::sync_channel(1);
    let thread = thread::Builder::new().name(format!("worker-{}", index.index())).spawn(move || {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .event_interval(EVENT_INTERVAL)
            .build_local(LocalOptions::default());
        match runtime.and_then(|runtime| Ok((runtime, IdleConnections::open()?))) {
            Ok((runtime, (idle, poll))) => {
                let _ = started.send(Ok(()));
                panics::count(shared.panics.clone());
                let worker = Worker::new(index, shared, Rc::new(service()), Rc::new(Drain::default()), idle);
                runtime.block_on(run(Rc::new(worker), poll, commands));
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        }
    })?;
    starts.recv().unwrap_or_else(|_| Err(std::io::Error::other("the thread panicked while it started")))?;
    Ok(thread)
}

async fn run<S: Service>(
    worker: Rc<Worker<S>>,
    poll: mio::Poll,
    mut commands: mpsc::Receiver<WorkerCommand>,
) {
    tokio::task::spawn_local(outbox::deliver());
    tokio::task::spawn_local(accept::watch_idle(Rc::clone(&worker), poll));
    let mut listeners: HashMap<String, Vec<JoinHandle<()>>> = HashMap::new();
    let mut tick = tokio::time::interval(TICK);
    let deadlines = loop {
        tokio::select! {
            command = commands.recv() => match command {
                Some(WorkerCommand::Listen(socket, listener)) => {
                    let name = listener.config.load().name.clone();
                    let task = tokio::task::spawn_local(accept::accept(Rc::clone(&worker), socket, listener));
                    listeners.entry(name).or_default().push(task);
                }
                Some(WorkerCommand::Close(name)) => listeners.remove(&name).into_iter().flatten().for_each(|task| task.abort()),
                Some(WorkerCommand::Adopt(socket, peer, listener)) => accept::adopt(&worker, socket, peer, listener),
                Some(WorkerCommand::Leave) => worker.drain.leave(),
                Some(WorkerCommand::Drain(deadlines)) => break deadlines,
                // At once, because the process is going down without a word.
                None => break Deadlines::at(clock::instant()),
            },
            _ = tick.tick() => upkeep(&worker),
        }
    };
    worker.drain.begin();
    advance(&worker, &deadlines);
    // The accept loops take what the kernel has accepted already, then close their sockets.
    for task in listeners.into_values().flatten() {
        let _ = task.await;
    }
    loop {
        if worker.connections() == 0 {
            // Closed, so that other workers keep what they accept from here on; what one of them has sent already is
            // served.
            commands.close();
            let Ok(command) = commands.try_recv() else { break };
            if let WorkerCommand::Adopt(socket, peer, listener) = command {
                accept::adopt(&worker, socket, peer, listener);
            }
            continue;
        }
        tokio::select! {
            () = worker.emptied.notified() => {}
            _ = tick.tick() => {
                upkeep(&worker);
                advance(&worker, &deadlines);
            }
            // A connection may have been handed over by a worker that had not heard yet.
            Some(WorkerCommand::Adopt(socket, peer, listener)) = commands.recv() => accept::adopt(&worker, socket, peer, listener),
            () = tokio::time::sleep_until(deadlines.end(worker.drain.has_tunnels()).into()) => {
                tracing::warn!(worker = worker.index.index(), connections = worker.connections(), "drain deadline passed: closing the remaining connections");
                worker.drain.cut();
                break;
            }
        }
    }
    worker.service.close();
}

/// Lets those moments of the drain come that are due.
fn advance<S: Service>(worker: &Worker<S>, deadlines: &Deadlines) {
    let now = clock::instant();
    let drain = &worker.drain;
    if deadlines.idle <= now {
        drain.close_idle();
    }
    if deadlines.tunnels <= now {
        drain.end_tunnels();
    }
    if deadlines.requests <= now && deadlines.requests < deadlines.end(drain.has_tunnels()) {
        drain.cut();
    }
}

/// The worker's periodic work: closing idle connections that are too old, and the service's own.
fn upkeep<S: Service>(worker: &Worker<S>) {
    worker.shared.turns[worker.index].fetch_add(1, Ordering::Relaxed);
    worker.shared.busy_ns[worker.index].store(clock::thread_busy_ns(), Ordering::Relaxed);
    let now = clock::instant();
    worker.service.upkeep(now);
    if worker.shared.overload.step() > PressureStep::Normal {
        worker.memory_is_short.notify_waiters();
    }
    accept::expire(worker, now);
}

const TICK: Duration = Duration::from_millis(200);
/// Task polls between two looks at the sockets; tokio's default.
const EVENT_INTERVAL: u32 = 61;
