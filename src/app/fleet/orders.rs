//! Starts a keeper for every certificate that the listeners order by ACME, and stops those that are no longer configured.
//! What a keeper writes comes into force as every changed file does: `publisher/watch.rs` reads it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::JoinHandle;

use acme::config::Challenge;
use acme::{self, AcmeCounts, Challenges, Keeper};
use gateway::service::config::ListenerConfig;
use metrics::Families;
use net::fetch::Connect;
use net::tls::AlpnChallenge;

pub(crate) struct Orders {
    challenges: Arc<Challenges>,
    counts: Arc<AcmeCounts>,
    /// Those of the fleet, if this is a node of one.
    values: Option<Arc<dyn acme::FleetValues>>,
    connect: Connect,
    running: Vec<RunningKeeper>,
}

struct RunningKeeper {
    wanted: OrderedCertificate,
    task: JoinHandle<()>,
}

/// A certificate and how it can be proved. A keeper stays as long as both do.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OrderedCertificate {
    config: acme::Config,
    ways: Vec<Challenge>,
}

impl Orders {
    pub(crate) fn new(
        challenges: Arc<Challenges>,
        values: Option<Arc<dyn acme::FleetValues>>,
        connect: Connect,
    ) -> Orders {
        Orders { challenges, counts: Arc::default(), values, connect, running: Vec::new() }
    }

    /// Starts and stops keepers until there is one for each certificate of these listeners. A keeper that stays is not
    /// disturbed, even in the middle of an order.
    pub(crate) fn follow(&mut self, listeners: &[ListenerConfig]) {
        let wanted = wanted(listeners);
        self.running.retain(|running| {
            let stays = wanted.contains(&running.wanted);
            if !stays {
                running.task.abort();
            }
            stays
        });
        for wanted in wanted {
            if self.running.iter().any(|running| running.wanted == wanted) {
                continue;
            }
            let OrderedCertificate { config, ways } = wanted.clone();
            let (challenges, counts) = (Arc::clone(&self.challenges), Arc::clone(&self.counts));
            let connect = self.connect.clone();
            let keeper = Keeper::new(config, ways, challenges, connect, counts, self.values.clone());
            self.running.push(RunningKeeper { wanted, task: keeper.spawn() });
        }
    }

    pub(crate) fn collect(&self) -> impl Fn(&mut Families<'_>) -> fmt::Result + Send + Sync + use<> {
        let counts = Arc::clone(&self.counts);
        move |families| {
            let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
            families.counters(
                "acme_orders",
                "Certificate orders, by result",
                None,
                [
                    ([("result", "issued")], count(&counts.issued)),
                    ([("result", "failed")], count(&counts.failed)),
                ],
            )
        }
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        self.running.iter().for_each(|running| running.task.abort());
    }
}

/// One entry for each certificate: several listeners may present the same.
fn wanted(listeners: &[ListenerConfig]) -> Vec<OrderedCertificate> {
    let mut wanted: Vec<OrderedCertificate> = Vec::new();
    for listener in listeners {
        for config in &listener.acme {
            let ways = listener.ways(config, listeners);
            match wanted.iter_mut().find(|other| other.config == *config) {
                Some(other) => {
                    let more: Vec<_> = ways.into_iter().filter(|way| !other.ways.contains(way)).collect();
                    other.ways.extend(more);
                }
                None => wanted.push(OrderedCertificate { config: config.clone(), ways }),
            }
        }
    }
    wanted
}

/// What a listener with an ordered certificate shows to an authority in a handshake.
pub(crate) fn challenged(challenges: &Arc<Challenges>) -> AlpnChallenge {
    let challenges = Arc::clone(challenges);
    AlpnChallenge { alpn: acme::ALPN, by_name: Arc::new(move |name| challenges.certificate(name)) }
}
