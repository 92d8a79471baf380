//! The threads that answer: each has a runtime of its own and the connections that it was handed.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::config::GrpcClient;
use super::connection::converse;
use super::connection_tls::ConnectionTls;
use super::descriptors::Reflection;
use super::limits::HANDED_MAX;
use super::service::{RateLimits, RlsService};
use super::stats::{ConnectionCount, RlsStats};
use net::listening::AcceptedStream;

pub struct Threads {
    threads: Vec<Thread>,
}

struct Thread {
    handed: mpsc::Sender<HandedConnection>,
    load: Arc<AtomicUsize>,
    joined: thread::JoinHandle<()>,
}

pub(super) struct HandedConnection {
    socket: OwnedFd,
    is_tcp: bool,
    tls: Option<(Arc<ServerConfig>, Arc<[GrpcClient]>)>,
    /// Both count it until it ends.
    counted: (ConnectionCount, Load),
}

/// A connection in the count of its thread.
struct Load(Arc<AtomicUsize>);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Threads {
    /// Starts a thread for each of `starts`, which is called on it.
    ///
    /// # Errors
    /// If one cannot be started.
    pub fn start<R: RateLimits>(
        starts: impl IntoIterator<Item = impl FnOnce() -> R + Send + 'static>,
        stats: &RlsStats,
        health: &HealthReporter,
    ) -> std::io::Result<Threads> {
        let threads = starts.into_iter().enumerate().map(|(index, start)| {
            let (sender, handed) = mpsc::channel(HANDED_MAX);
            let (stats, health) = (stats.clone(), health.clone());
            let (started, starts) = std::sync::mpsc::sync_channel(1);
            let joined = thread::Builder::new().name(format!("grpc-{index}")).spawn(move || {
                let runtime = Builder::new_current_thread()
                    .enable_io()
                    .enable_time()
                    .event_interval(EVENT_INTERVAL)
                    .build_local(LocalOptions::default());
                let runtime = match runtime {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(started.send(Err(error))),
                };
                let _ = started.send(Ok(()));
                let (stop, stopped) = watch::channel(());
                let service = Rc::new(RlsService {
                    rate_limits: start(),
                    health: HealthServer::new(HealthService::from_health_reporter(health)),
                    reflection: Reflection::new(),
                    stats,
                    held: Arc::default(),
                    unread: Rc::default(),
                    stopped,
                });
                runtime.block_on(run(service, handed, stop));
            })?;
            starts
                .recv()
                .unwrap_or_else(|_| Err(std::io::Error::other("the thread panicked while it started")))?;
            Ok(Thread { handed: sender, load: Arc::default(), joined })
        });
        Ok(Threads { threads: threads.collect::<std::io::Result<_>>()? })
    }

    /// Gives a connection to the thread that has the fewest.
    pub(super) fn hand(
        &self,
        stream: AcceptedStream,
        tls: Option<(Arc<ServerConfig>, Arc<[GrpcClient]>)>,
        connected: ConnectionCount,
    ) -> std::io::Result<()> {
        let least = self.threads.iter().min_by_key(|thread| thread.load.load(Ordering::Relaxed));
        let Some(thread) = least else { return Ok(()) };
        // Taken out of this runtime, because the thread registers the socket with its own.
        let (socket, is_tcp) = match stream {
            AcceptedStream::Tcp(stream) => {
                stream.set_nodelay(true)?;
                (stream.into_std()?.into(), true)
            }
            AcceptedStream::Unix(stream) => (stream.into_std()?.into(), false),
        };
        thread.load.fetch_add(1, Ordering::Relaxed);
        let counted = (connected, Load(Arc::clone(&thread.load)));
        // If its queue is full, the connection is closed, because that thread does not keep up with those it has.
        thread
            .handed
            .try_send(HandedConnection { socket, is_tcp, tls, counted })
            .map_err(|_| std::io::Error::other("the thread's queue of new connections is full"))
    }

    /// Lets calls under way end. Returns when they have.
    pub(super) async fn end(self) {
        let joins = self.threads.into_iter().map(|thread| {
            // First, because the thread ends only when nobody can hand it a connection.
            drop(thread.handed);
            tokio::task::spawn_blocking(move || thread.joined.join().is_ok())
        });
        for join in joins.collect::<Vec<_>>() {
            if !join.await.unwrap_or(false) {
                tracing::error!("gRPC thread panicked");
            }
        }
    }
}

async fn run<R: RateLimits>(
    service: Rc<RlsService<R>>,
    mut handed: mpsc::Receiver<HandedConnection>,
    stop: watch::Sender<()>,
) {
    let mut connections = JoinSet::new();
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            next = handed.recv() => match next {
                Some(next) => {
                    connections.spawn_local(serve(Rc::clone(&service), next, service.stopped.clone()));
                }
                None => break,
            },
            Some(_) = connections.join_next() => {}
            _ = tick.tick() => service.rate_limits.upkeep(),
        }
    }
    // Before the connections are waited for, because this is what tells them to end.
    drop(stop);
    while connections.join_next().await.is_some() {}
    service.rate_limits.upkeep();
}

async fn serve<R: RateLimits>(
    service: Rc<RlsService<R>>,
    handed: HandedConnection,
    stopped: watch::Receiver<()>,
) {
    let HandedConnection { socket, is_tcp, tls, counted } = handed;
    let served = match is_tcp {
        true => serve_tcp(service, socket, tls, stopped).await,
        false => match UnixStream::from_std(socket.into()) {
            Ok(stream) => {
                converse(stream, service, stopped).await;
                Ok(())
            }
            Err(error) => Err(error),
        },
    };
    if let Err(error) = served {
        tracing::debug!(%error, "gRPC connection failed");
    }
    drop(counted);
}

async fn serve_tcp<R: RateLimits>(
    service: Rc<RlsService<R>>,
    socket: OwnedFd,
    tls: Option<(Arc<ServerConfig>, Arc<[GrpcClient]>)>,
    stopped: watch::Receiver<()>,
) -> std::io::Result<()> {
    let stream = TcpStream::from_std(socket.into())?;
    let Some((settings, clients)) = tls else {
        converse(stream, service, stopped).await;
        return Ok(());
    };
    let secured = ConnectionTls { settings, clients, stats: service.stats.clone() };
    if let Some(stream) = secured.accept(stream).await {
        converse(stream, service, stopped).await;
    }
    Ok(())
}

/// How often the rate limits' own work is due.
const TICK: Duration = Duration::from_millis(250);
/// As of workers: sockets are looked at after so many polls of tasks.
const EVENT_INTERVAL: u32 = 61;
