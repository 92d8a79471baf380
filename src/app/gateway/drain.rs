//! Ends the process: nothing new is accepted, what was begun is finished within the deadlines of `[shutdown]`.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;

use super::{End, Gateway, refuse_upgrade, reopen};
use crate::lines::say;
use crate::logs::Logs;
use crate::service_manager;
use crate::signals::{SignalRequest, Signals};
use crate::upgrade::DRAINS;
use base::clock;
use config::Shutdown;
use control::admin::ProcessPhase;
use gateway::server::worker::{Deadlines, WorkerCommand};
use observe::record::process;

impl Gateway {
    /// Reports not ready, waits `shutdown.ready-delay` so that load balancers notice while clients with a connection are told
    /// to leave it, stops accepting, and lets requests finish until `shutdown.drain` is over. After an upgrade nobody has to notice, so there is no delay.
    pub(super) async fn drain(mut self, mut signals: Signals, end: End) {
        let shutdown = self.publisher.config.shutdown.clone();
        let (pid, most) = (std::process::id(), shutdown.ready_delay + shutdown.drain);
        say(format_args!("draining (process {pid}): open requests have {most:?} at most"));
        self.readiness.enter(ProcessPhase::Draining);
        self.watching.iter().chain(&self.telling).for_each(tokio::task::JoinHandle::abort);
        // A process that has taken over keeps the same files of certificates.
        self.publisher.orders.follow(&[]);
        if end == End::Stop {
            service_manager::stopping();
        }
        let heard = self.publisher.process.logs.clone();
        let signals = tokio::spawn(async move { while_draining(&mut signals, &heard, end).await });
        if end == End::Stop && !shutdown.ready_delay.is_zero() {
            for worker in &self.shared.commands {
                let _ = worker.send(WorkerCommand::Leave).await;
            }
            tokio::time::sleep(shutdown.ready_delay).await;
        }
        self.publisher.listeners.let_go(end == End::Upgraded);
        let grpc = self.grpc_serving.take().map(|grpc| tokio::spawn(grpc.drain()));
        let deadlines = deadlines(&shutdown, end);
        for worker in &self.shared.commands {
            let _ = worker.send(WorkerCommand::Drain(deadlines)).await;
        }
        let within = deadlines.end(true).saturating_duration_since(clock::instant()) + STUCK_AFTER;
        if let Err(why) = join(self.workers, within).await {
            tracing::error!("{why}");
        }
        if let Some(grpc) = grpc {
            let _ = grpc.await;
        }
        if let Some(successor) = self.successor {
            // Waited for before the successor ends, because what it hears of its predecessor it passes on.
            let predecessor = self.predecessor;
            let told = tokio::task::spawn_blocking(move || {
                if let Some(predecessor) = predecessor {
                    predecessor.wait(shutdown.drain);
                }
                successor.end();
            });
            let _ = told.await;
        }
        if let Some(control) = &self.control {
            control.write_usage().await;
        }
        if let Some(shared_tier) = self.shared_tier {
            shared_tier.close(returned_within(end)).await;
        }
        signals.abort();
        let _ = signals.await;
        self.decisions.end().await;
        let (logs, exporter) = self.publisher.end();
        if let Some(exporter) = Arc::into_inner(exporter) {
            exporter.close(SPANS_WAIT).await;
        }
        let dropped = logs.close(LOG_WAIT);
        if dropped > 0 {
            tracing::warn!(dropped, "log lines were lost: a log was written too slowly during the stop");
        }
        if let Some(admin) = self.admin_serving {
            admin.end().await;
        }
        if let Some(control) = self.control {
            control.close().await;
        }
        say(format_args!("stopped (process {})", std::process::id()));
    }
}

async fn join(workers: Vec<JoinHandle<()>>, within: Duration) -> Result<(), &'static str> {
    let (told, ended) = oneshot::channel();
    // On a thread of its own: the runtime, and with it the process, would wait at its end for one of the runtime's.
    let joining = thread::Builder::new().name("join".to_owned());
    let joining = joining.spawn(move || {
        let _ = told.send(workers.into_iter().all(|worker| worker.join().is_ok()));
    });
    match tokio::time::timeout(within, ended).await {
        Ok(Ok(true)) => Ok(()),
        Ok(_) if joining.is_err() => Err("cannot start a thread that waits for the workers"),
        Ok(_) => Err("a worker panicked"),
        Err(_) => Err(
            "a worker did not stop by the deadline of the drain: the process exits without waiting for it",
        ),
    }
}

fn deadlines(shutdown: &Shutdown, end: End) -> Deadlines {
    let now = clock::instant();
    let requests = now + shutdown.drain;
    match end {
        End::Stop => Deadlines { idle: now, tunnels: now + shutdown.drain_tunnels, requests },
        // Nobody waits for this process: clients that have a connection are served once more, and tunnels stay.
        End::Upgraded => Deadlines {
            idle: now + IDLE_SERVED.min(shutdown.drain / 2),
            tunnels: now + shutdown.drain_tunnels.max(shutdown.drain),
            requests,
        },
    }
}

/// Handles signals until the drain is over. A second stop signal ends the process at once, for operators who do not want
/// to wait for `shutdown.drain`. A process that has a successor drains without a first one.
async fn while_draining(signals: &mut Signals, logs: &Logs, end: End) {
    let mut is_told = end == End::Stop;
    loop {
        match signals.next().await {
            SignalRequest::Reload => say("draining, SIGHUP is ignored"),
            SignalRequest::Reopen => reopen(logs),
            SignalRequest::Upgrade => refuse_upgrade(DRAINS),
            SignalRequest::Stop if !is_told => {
                say("already draining: a second signal stops the process at once");
                is_told = true;
            }
            SignalRequest::Stop => {
                say("stopped at once by a second signal");
                process::flush();
                std::process::exit(1);
            }
        }
    }
}

/// How long a process goes on to return its leases to a Redis that does not answer. Nobody waits for one that has a
/// successor.
fn returned_within(end: End) -> Duration {
    match end {
        End::Stop => Duration::from_secs(1),
        End::Upgraded => Duration::from_secs(10),
    }
}

/// How long after its last deadline a worker may take to end.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// How long idle connections go on to be served once after a successor has taken over.
const IDLE_SERVED: Duration = Duration::from_secs(5);
/// How long a stop waits for the access log, because its reader may be a pipe that nobody reads.
const LOG_WAIT: Duration = Duration::from_secs(2);
/// How long a drained process waits for the collector of its spans.
const SPANS_WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_worker_that_is_stuck_holds_up_no_drain() {
        let (let_go, stuck) = mpsc::channel::<()>();
        let long = Duration::from_secs(60);
        assert_eq!(join(vec![thread::spawn(|| ()), thread::spawn(|| ())], long).await, Ok(()));
        let panicked = thread::spawn(|| std::panic::resume_unwind(Box::new("down")));
        assert_eq!(join(vec![thread::spawn(|| ()), panicked], long).await, Err("a worker panicked"));
        let waits = thread::spawn(move || {
            let _ = stuck.recv();
        });
        let said = join(vec![waits], Duration::from_millis(20)).await;
        assert!(said.is_err_and(|why| why.contains("did not stop by the deadline")));
        drop(let_go);
    }
}
