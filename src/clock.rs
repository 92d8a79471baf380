//! The only reader of time. Everything else gets `now` as an argument, so that a test can play years in milliseconds.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Monotonic nanoseconds since this process first read the clock.
///
/// The first reading is one hour, not zero, so that arithmetic about the recent past never meets the origin.
pub fn now_ns() -> u64 {
    ns_of(Instant::now())
}

/// The same scale for an instant already at hand.
pub fn ns_of(instant: Instant) -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = *ORIGIN.get_or_init(Instant::now);
    let since = instant.saturating_duration_since(origin);
    HEAD_START_NS + since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
}

/// The monotonic clock as the runtime's timers want it.
pub fn instant() -> Instant {
    Instant::now()
}

/// Wall-clock time since the Unix epoch: for logs, `X-RateLimit-Reset` and certificates, never for a decision.
pub fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

const HEAD_START_NS: u64 = 3_600 * 1_000_000_000;
