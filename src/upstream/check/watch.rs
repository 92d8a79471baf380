//! The tasks of an upstream's health, on the control runtime: a check of each server now and then, and the upkeep of what
//! is known. They end with the last user of the upstream.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::ask::ask;
use crate::clock;
use crate::random::Random;
use crate::upstream::Upstream;

/// Begins to watch an upstream.
pub fn begin(upstream: &Arc<Upstream>) {
    tokio::spawn(keep_ticking(Arc::downgrade(upstream)));
    if upstream.config.health.check.is_some() {
        for index in 0..upstream.servers.len() {
            tokio::spawn(keep_checking(Arc::downgrade(upstream), index, Random::seeded()));
        }
    }
}

async fn keep_ticking(upstream: Weak<Upstream>) {
    while let Some(upstream) = upstream.upgrade() {
        upstream.health.tick(clock::now_ns());
        drop(upstream);
        tokio::time::sleep(TICK).await;
    }
}

async fn keep_checking(upstream: Weak<Upstream>, index: usize, random: Random) {
    let mut pause = FIRST_WITHIN;
    if let Some(check) = upstream.upgrade().and_then(|upstream| upstream.config.health.check.clone()) {
        // Soon, but not every server and node at once.
        pause = check.every.min(FIRST_WITHIN).mul_f64(fraction(&random));
    }
    loop {
        tokio::time::sleep(pause).await;
        let Some(upstream) = upstream.upgrade() else { return };
        let Some(check) = &upstream.config.health.check else { return };
        let began = clock::instant();
        if let Some(result) = ask(&upstream, index, check).await {
            upstream.health.checked(index, &result, clock::now_ns());
        }
        // From beginning to beginning, or a server that hangs would be asked less often than one that answers.
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
