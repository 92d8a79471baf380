//! The only reader of time. Everything else gets `now` as an argument, so that a test can play years in milliseconds.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Monotonic nanoseconds since this process first read the clock.
///
/// The first reading is one hour, not zero, so that arithmetic about the recent past never meets the origin.
pub fn now_ns() -> u64 {
    ns_of(Instant::now())
}

/// An instant on the same scale, without reading the clock again.
pub fn ns_of(instant: Instant) -> u64 {
    let origin = *ORIGIN.get_or_init(Instant::now);
    let since = instant.saturating_duration_since(origin);
    HEAD_START_NS + since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
}

/// When this process's scale begins, on the machine's own monotonic clock: what a successor needs to go on with it.
pub fn origin_ns() -> u64 {
    monotonic_ns().saturating_sub(now_ns() - HEAD_START_NS)
}

/// Goes on with the scale of another process of this machine, so that times it wrote mean the same here. Does nothing
/// once this process has read the clock.
pub fn resume(origin_ns: u64) {
    let since = Duration::from_nanos(monotonic_ns().saturating_sub(origin_ns));
    if let Some(origin) = Instant::now().checked_sub(since) {
        let _ = ORIGIN.set(origin);
    }
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or_default())
}

/// The monotonic clock as the runtime's timers want it.
pub fn instant() -> Instant {
    Instant::now()
}

/// Wall-clock time since the Unix epoch: for logs, `X-RateLimit-Reset` and certificates, never for a decision.
pub fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

static ORIGIN: OnceLock<Instant> = OnceLock::new();
const HEAD_START_NS: u64 = 3_600 * 1_000_000_000;
