//! The accept loop of the admin listener.
//!
//! Silent connections cannot keep a probe out: a new connection is always accepted, and if too many connections have no
//! page, the one that has been quiet the longest is closed for it. Pages being shown have places of their own, which only
//! clients with the token get; probes need none.

use std::fs::File;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time;

use super::activity::AdminActivity;
use super::admin_tls::{AdminTls, Settings};
use super::connection::converse;
use super::limits::AdminLimits;
use super::routes;
use super::state::AdminState;
use base::clock;
use net::descriptors;
use net::listening::{AcceptedStream, BoundListener};

/// Serves until `stopped` resolves, then waits a moment for answers in flight. Every task it spawned has ended when this
/// one has.
pub fn spawn(
    listener: BoundListener,
    tls: Option<Settings>,
    state: Arc<AdminState>,
    stopped: oneshot::Receiver<()>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let limits = AdminLimits::default();
        let router = routes::router(routes::endpoints(), &state, &limits);
        let secured = tls.map(|settings| AdminTls { settings, state });
        let stopped = async {
            let _: Result<(), _> = stopped.await;
        };
        serve_within(&limits, listener, secured, router, stopped).await;
    })
}

#[derive(Default)]
struct ClosableConnections(Vec<(AbortHandle, Weak<AdminActivity>)>);

impl ClosableConnections {
    /// Adds a connection. If more than `max` have no page, closes the one that has been quiet the longest.
    fn add(&mut self, task: AbortHandle, activity: &Arc<AdminActivity>, max: usize) {
        self.0.push((task, Arc::downgrade(activity)));
        // Those that have ended go, which is seen because they have dropped their activity.
        self.0.retain(|(_, activity)| activity.strong_count() > 0);
        let quiet = self.0.iter().filter_map(|(_, activity)| activity.upgrade()?.quiet_since());
        if quiet.count() > max {
            self.end_quietest();
        }
    }

    fn end_quietest(&mut self) {
        let quiet = self.0.iter().enumerate();
        let quiet =
            quiet.filter_map(|(index, (_, activity))| Some((activity.upgrade()?.quiet_since()?, index)));
        if let Some((_, index)) = quiet.min() {
            self.0.swap_remove(index).0.abort();
        }
    }
}

pub(super) async fn serve_within(
    limits: &AdminLimits,
    listener: BoundListener,
    secured: Option<AdminTls>,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    let mut connections = JoinSet::new();
    let mut waiting = ClosableConnections::default();
    let (stop, stopped) = watch::channel(());
    // Closed to make room for a connection if the process has no descriptor left, so that probes are still answered.
    let mut spare = File::open(SPARE).ok();
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => spare = spare.or_else(|| File::open(SPARE).ok()),
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    let activity = AdminActivity::new(stream.ip());
                    let (router, known, stopped) = (router.clone(), Arc::clone(&activity), stopped.clone());
                    let task = match (stream, secured.clone()) {
                        (AcceptedStream::Tcp(stream), Some(secured)) => {
                            connections.spawn(secured.converse(stream, router, known, *limits, stopped))
                        }
                        (AcceptedStream::Tcp(stream), None) => {
                            connections.spawn(converse(Box::new(stream), router, known, *limits, stopped))
                        }
                        (AcceptedStream::Unix(stream), _) => {
                            connections.spawn(converse(Box::new(stream), router, known, *limits, stopped))
                        }
                    };
                    waiting.add(task, &activity, limits.waiting_max);
                }
                Err(error) => {
                    descriptors::ran_out("the admin listener", &error, clock::now_ns());
                    if spare.take().is_none() {
                        waiting.end_quietest();
                        // A pause, because the connection stays in the backlog, and `accept` would fail again at
                        // once, in a busy loop.
                        time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            },
        }
    }
    drop((listener, stop));
    let under_way = async { while connections.join_next().await.is_some() {} };
    if time::timeout(limits.grace, under_way).await.is_err() {
        connections.shutdown().await;
    }
}

/// Any file that always exists will do.
const SPARE: &str = "/dev/null";
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
