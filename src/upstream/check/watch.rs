//! The tasks of an upstream's health, on the control runtime: a check of each server now and then, and the upkeep of what
//! is known. They end with the last user of the upstream.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::exchange::ask;
use crate::{LiveUpstream, SharedServer, Upstream};
use base::clock;
use base::random::Random;

pub fn begin(live: &Arc<LiveUpstream>) {
    tokio::spawn(keep_ticking(Arc::downgrade(live)));
    let upstream = live.load();
    upstream.servers.iter().for_each(|server| watch(live, server));
}

/// Begins to check the servers that this set has and the one before had not, if the upstream is watched.
pub(crate) fn welcome(live: &Arc<LiveUpstream>, before: &Upstream, now: &Upstream) {
    if live.is_watching() {
        let new = now.servers.iter().filter(|server| before.index_of(server).is_none());
        new.for_each(|server| watch(live, server));
    }
}

fn watch(live: &Arc<LiveUpstream>, server: &Arc<SharedServer>) {
    if live.config.health.check.is_some() && server.begin_checking() {
        tokio::spawn(keep_checking(Arc::downgrade(live), Arc::downgrade(server), Random::seeded()));
    }
}

async fn keep_ticking(live: Weak<LiveUpstream>) {
    let mut compared_ns = clock::now_ns();
    while let Some(live) = live.upgrade() {
        let (upstream, now_ns) = (live.load(), clock::now_ns());
        let every = live.config.health.outliers().map(|outliers| outliers.every.as_nanos());
        if every.is_some_and(|every_ns| u128::from(now_ns - compared_ns) >= every_ns) {
            upstream.compare(now_ns);
            compared_ns = now_ns;
        }
        upstream.health.tick(now_ns);
        drop((live, upstream));
        tokio::time::sleep(TICK).await;
    }
}

/// Ends with the upstream's last user, and with the server's place in it.
async fn keep_checking(live: Weak<LiveUpstream>, server: Weak<SharedServer>, random: Random) {
    let mut pause = FIRST_WITHIN;
    if let Some(check) = live.upgrade().and_then(|live| live.config.health.check.clone()) {
        // Soon, but after a random pause, so that not every server and node is asked at once.
        pause = check.every.min(FIRST_WITHIN).mul_f64(fraction(&random));
    }
    loop {
        tokio::time::sleep(pause).await;
        let (Some(live), Some(server)) = (live.upgrade(), server.upgrade()) else { return };
        let Some(check) = &live.config.health.check else { return };
        let began = clock::instant();
        let upstream = live.load();
        let Some(index) = upstream.index_of(&server) else { return };
        if let Some(result) = ask(&upstream, index, check).await {
            // The servers may have changed meanwhile.
            let upstream = live.load();
            let Some(index) = upstream.index_of(&server) else { return };
            upstream.health.checked(index, &result, clock::now_ns());
        }
        // From beginning to beginning, because otherwise a server that hangs would be asked less often than one that
        // answers.
        let every = check.every.mul_f64(0.9 + 0.2 * fraction(&random));
        pause = every.saturating_sub(clock::instant().saturating_duration_since(began)).max(PAUSE_MIN);
    }
}

/// A number from 0 to 1.
fn fraction(random: &Random) -> f64 {
    (random.next() >> 32) as f64 / f64::from(u32::MAX)
}

/// How often what is over is ended. Requests do not wait for it: an ejection ends for them with its time.
const TICK: Duration = Duration::from_millis(250);
/// The first check comes within this time, and within `every`.
const FIRST_WITHIN: Duration = Duration::from_secs(1);
/// A check that took as long as `every` is not followed by the next one at once.
const PAUSE_MIN: Duration = Duration::from_millis(1);
