//! Tells the other gateways of a fleet how much is wanted here of the counts that are divided, and hears what is wanted of
//! them: notes in Redis, four times a second while anything is divided, and one look a second while nothing is. Without a
//! domain nothing can be divided, and Redis is not asked. What is divided is drawn from Redis as ever; without notes each
//! gateway takes what it finds. While Redis is away all keep to what they heard last, for ten seconds, as leases do.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{sleep, timeout};

use super::pots::{Pots, ROUND_NS};
use base::clock;
use base::quota::told::{Heard, encode};
use base::random::Random;
use gateway::proxy::snapshot::Snapshot;
use limiter::global::{NoteError, Notes};

/// Tells and hears, without end, while there are domains by the configuration in force.
pub(crate) async fn tell_and_hear(pots: Arc<Pots>, notes: Notes, current: Arc<ArcSwap<Snapshot>>) {
    let own = Random::seeded().name();
    let (mut heard, mut number, mut bytes) = (Heard::default(), 0, 0);
    loop {
        let told = pots.told();
        let is_busy = !told.is_empty();
        let has_domains = current.load().table.domains().next().is_some();
        // The more is told, the more rarely, so that a large fleet does not load Redis with it.
        if has_domains && number % (1 + bytes / BYTES_EACH_ROUND).min(ROUNDS_MAX) == 0 {
            let told = is_busy.then(|| encode(number, told));
            // An outage of Redis has its lines in the log already.
            let answer = timeout(ANSWER_WITHIN, exchange(&notes, &own, told.as_deref(), &mut heard)).await;
            let heard_bytes = answer.ok().and_then(Result::ok);
            heard.listen(heard_bytes.is_some(), clock::now_ns());
            bytes = heard_bytes.unwrap_or(bytes);
        }
        number += 1;
        let now_ns = clock::now_ns();
        let others = heard.others(now_ns);
        pots.hear(&others, now_ns);
        sleep(if is_busy || !others.is_empty() { Duration::from_nanos(ROUND_NS) } else { LOOK_EVERY }).await;
    }
}

/// Tells what there is to tell, and hears. Returns how many bytes all have told.
async fn exchange(
    notes: &Notes,
    own: &str,
    told: Option<&[u8]>,
    heard: &mut Heard,
) -> Result<u64, NoteError> {
    // A new name every minute, so that those who have gone are not in it for long. Who has not begun with it yet is known
    // from the one before.
    let name = format!("divided-{}", clock::unix().as_secs() / PERIOD_SECONDS);
    if let Some(told) = told {
        notes.put_beside(&name, own, told, KEPT).await?;
    }
    let mut bytes = 0;
    for (node, told) in notes.all_beside(&name).await? {
        bytes += told.len() as u64;
        if node != own.as_bytes() {
            heard.hear(&node, &told, clock::now_ns());
        }
    }
    Ok(bytes)
}

const PERIOD_SECONDS: u64 = 60;
const KEPT: Duration = Duration::from_secs(2 * PERIOD_SECONDS);
const ANSWER_WITHIN: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// For so many bytes that all tell there is a round more between two looks,
const BYTES_EACH_ROUND: u64 = 64 * 1024;
/// up to a second.
const ROUNDS_MAX: u64 = 4;
