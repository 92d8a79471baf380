//! The signals the gateway listens to, and what each asks for.

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) struct Signals {
    hup: Signal,
    usr1: Signal,
    usr2: Signal,
    pub(super) stop: Stop,
}

pub(super) struct Stop {
    term: Signal,
    quit: Signal,
    int: Signal,
}

pub(super) enum SignalRequest {
    Reload,
    /// SIGUSR1: reopen the access log after it was rotated.
    Reopen,
    /// SIGUSR2: hand over to a new binary.
    Upgrade,
    /// SIGTERM, SIGQUIT or SIGINT.
    Stop,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Signals> {
        let stop = Stop {
            term: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
            int: signal(SignalKind::interrupt())?,
        };
        Ok(Signals {
            hup: signal(SignalKind::hangup())?,
            usr1: signal(SignalKind::user_defined1())?,
            usr2: signal(SignalKind::user_defined2())?,
            stop,
        })
    }

    /// Waits for the next signal. Cancel-safe, because `Signal::recv` is.
    pub(super) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.hup.recv() => SignalRequest::Reload,
            _ = self.usr1.recv() => SignalRequest::Reopen,
            _ = self.usr2.recv() => SignalRequest::Upgrade,
            () = self.stop.any() => SignalRequest::Stop,
        }
    }
}

impl Stop {
    /// Waits for any of them. Cancel-safe, because `Signal::recv` is.
    pub(super) async fn any(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.quit.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
