//! Hands over to a new binary. The process goes on with its work until the successor serves, and if that does not come
//! to serve, for good.

use std::sync::Arc;

use super::{End, Gateway, refuse_upgrade, reopen};
use crate::lines::say;
use crate::signals::{SignalRequest, Signals};
use crate::upgrade::{Handover, Hello, RunningUpgrade, Successor, UpgradeRequester, WITHIN_MAX, in_one_line};
use crate::upkeep::Upkeep;
use crate::{error_chain, service_manager};
use base::clock;
use config::Shutdown;
use limiter::local;

impl Gateway {
    /// Starts a successor and waits until it serves. Returns how this process is to end then; `None` if it serves on.
    pub(super) async fn hand_over(&mut self, signals: &mut Signals, upkeep: &mut Upkeep) -> Option<End> {
        let report = UpgradeRequester::open();
        let succeeded = self.handover().map_err(anyhow::Error::from).and_then(|handover| {
            say("upgrading");
            Ok(self.program.clone().succeed(handover)?)
        });
        let (running, mut told) = match succeeded {
            Ok(running) => running,
            Err(error) => return self.not_upgraded(report, &error),
        };
        loop {
            tokio::select! {
                told = &mut told => return match told.map_err(anyhow::Error::from).and_then(|told| Ok(told?)) {
                    Ok(successor) => Some(self.upgraded(running, report, successor)),
                    Err(error) => self.not_upgraded(report, &error),
                },
                asked = signals.next() => match asked {
                    SignalRequest::Reload => say("upgrading, SIGHUP is ignored"),
                    SignalRequest::Reopen => reopen(&self.publisher.process.logs),
                    SignalRequest::Upgrade => refuse_upgrade("an upgrade is under way"),
                    SignalRequest::Stop => {
                        report.end(false, "the process received a stop signal during the upgrade");
                        return Some(End::Stop);
                    }
                },
                () = upkeep.turn() => {}
            }
        }
    }

    fn handover(&self) -> std::io::Result<Handover> {
        let mut passed = self.publisher.listeners.share()?;
        for serving in self.admin_serving.iter().chain(&self.grpc_serving) {
            passed.extend(serving.share()?);
        }
        let (described, sockets) = passed.into_iter().map(|it| (it.described, it.socket)).unzip();
        let limiter = Arc::clone(&self.publisher.process.limiter);
        let hello = Hello {
            states: local::FORMAT,
            clock_ahead_ns: clock::ahead_ns(),
            salt: self.publisher.process.salt,
            table_bytes: self.table_bytes,
            sockets: described,
            names: self.publisher.names(),
            servers: self.publisher.servers(),
        };
        let Shutdown { upgrade, drain, .. } = self.publisher.config.shutdown.clone();
        let within = upgrade.min(WITHIN_MAX);
        Ok(Handover { hello, sockets, limiter, within, drain })
    }

    fn upgraded(&mut self, running: RunningUpgrade, report: UpgradeRequester, successor: Successor) -> End {
        let Successor { pid, beside } = successor;
        running.finish();
        self.successor = beside;
        service_manager::main_process(pid);
        let done = format!("process {pid} serves, process {} drains", std::process::id());
        say(format_args!("upgraded: {done}"));
        for serving in self.admin_serving.iter_mut().chain(&mut self.grpc_serving) {
            serving.step_aside();
        }
        // Whoever hears it and asks for readiness then asks the successor.
        report.end(true, &done);
        End::Upgraded
    }

    fn not_upgraded(&self, report: UpgradeRequester, error: &anyhow::Error) -> Option<End> {
        let error = error_chain(error);
        self.publisher.process.metrics.upgrade_failed();
        tracing::error!("not upgraded, this process continues to serve: {}", in_one_line(&error));
        report
            .end(false, &format!("not upgraded, process {} continues to serve: {error}", std::process::id()));
        None
    }
}
