//! What answers about counts are made of: the snapshot in force, the limiter, the metrics, the clocks.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::hot_keys::HotKeys;
use base::clock;
use control::database::Time;
use gateway::proxy::snapshot::Snapshot;
use limiter::Limiter;
use metrics::Metrics;
use metrics::usage;

#[derive(Clone)]
pub(crate) struct Counts {
    pub(crate) current: Arc<ArcSwap<Snapshot>>,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) metrics: Arc<Metrics>,
    /// What is gathered of usage by the minute. `None`: nothing is.
    pub(crate) usage: Option<Arc<usage::UsageCollector>>,
    /// What is known of heavy keys. `None`: nothing is.
    pub(crate) hot_keys: Option<HotKeys>,
    /// Both clocks when this process started, if a check may say at which time it is decided.
    pub(crate) clocks: Option<Clocks>,
}

/// The monotonic clock beside that of the wall at one moment. Read once, so that the same time of the wall is the same time
/// of every decision.
#[derive(Clone, Copy)]
pub(crate) struct Clocks {
    pub(crate) now_ns: u64,
    pub(crate) wall: Time,
}

impl Clocks {
    pub(crate) fn now() -> Clocks {
        Clocks::of(clock::now_ns(), clock::unix())
    }

    /// The two readings, one after the other. That of the wall is made that of the scale, on which windows begin and end,
    /// so that the edge of a window is the same on both; unless somebody has set the wall clock.
    fn of(now_ns: u64, unix: Duration) -> Clocks {
        let origin_s = clock::origin_of(unix.as_secs(), now_ns / 1_000_000_000);
        let on_scale = Duration::from_secs(origin_s) + Duration::from_nanos(now_ns);
        let is_same = on_scale.abs_diff(unix) <= APART_MAX;
        let wall = if is_same { on_scale } else { unix };
        Clocks { now_ns, wall: Time(i64::try_from(wall.as_micros()).unwrap_or(i64::MAX)) }
    }
}

/// How far the readings may be apart although nobody has set a clock: the thread may have waited between them.
const APART_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_is_read_off_the_scale_unless_it_has_been_set() {
        let unix = Duration::new(1_795_046_400, 123_456_789);
        let now_ns = clock::aligned_ns(unix);
        let exact = Time(1_795_046_400_123_456);
        for late_ns in [0, 300, 1_200, 90_000_000] {
            let clocks = Clocks::of(now_ns, unix + Duration::from_nanos(late_ns));
            assert_eq!((clocks.now_ns, clocks.wall), (now_ns, exact), "{late_ns}");
        }
        let set = Clocks::of(now_ns, unix + Duration::from_secs(7_200));
        assert_eq!(set.wall, exact.after(Duration::from_secs(7_200)));
    }
}
