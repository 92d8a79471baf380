//! The only reader of time. Everything else gets `now` as an argument, so that a test can play years in milliseconds.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use httpdate::HttpDate;

/// Monotonic nanoseconds. Whole minutes, hours, days and weeks begin on this scale when they begin on the wall clock as it
/// was when this process first read it, so that a window which is aligned to one is aligned to both. A wall clock that is
/// set later moves nothing.
///
/// The first reading is at least one hour, so that arithmetic about the recent past never meets the origin.
pub fn now_ns() -> u64 {
    ns_of(Instant::now())
}

/// An instant on the same scale, without reading the clock again.
pub fn ns_of(instant: Instant) -> u64 {
    let origin = ORIGIN.get_or_init(|| ClockOrigin { instant: Instant::now(), reads_ns: aligned_ns(unix()) });
    let since = instant.saturating_duration_since(origin.instant);
    origin.reads_ns + since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
}

/// How far this process's scale is ahead of the machine's own monotonic clock: what a successor needs to go on with it.
pub fn ahead_ns() -> i64 {
    now_ns().wrapping_sub(monotonic_ns()).cast_signed()
}

/// Goes on with the scale of another process of this machine, so that times it wrote mean the same here. Does nothing
/// once this process has read the clock.
pub fn resume(ahead_ns: i64) {
    let reads_ns = monotonic_ns().saturating_add_signed(ahead_ns);
    // Ignored if the clock has been read, because times of its scale are in use by then.
    let _ = ORIGIN.set(ClockOrigin { instant: Instant::now(), reads_ns });
}

struct ClockOrigin {
    instant: Instant,
    reads_ns: u64,
}

/// The reading that stands for a time of the wall clock: congruent to it modulo `ALIGNED_S`, and small, so that times can be
/// packed and multiplied.
pub fn aligned_ns(unix: Duration) -> u64 {
    let since_s = unix.as_secs().saturating_sub(HEAD_START_S) % ALIGNED_S;
    (HEAD_START_S + since_s) * 1_000_000_000 + u64::from(unix.subsec_nanos())
}

/// Wall-clock time at which the scale of `now_ns` reads 0, seconds since 1970: the multiple of `ALIGNED_S` that is missing
/// between the two clocks, however far the wall clock has been set since.
pub fn origin_s() -> u64 {
    origin_of(unix().as_secs(), now_ns() / 1_000_000_000)
}

/// The same for clocks that read so many seconds.
pub fn origin_of(unix_s: u64, reads_s: u64) -> u64 {
    unix_s.saturating_sub(reads_s).saturating_add(ALIGNED_S / 2) / ALIGNED_S * ALIGNED_S
}

/// Time that this thread has worked, nanoseconds.
pub fn thread_busy_ns() -> u64 {
    ns(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime))
}

fn monotonic_ns() -> u64 {
    ns(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

fn ns(time: rustix::time::Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or_default())
}

/// The monotonic clock as the runtime's timers want it.
pub fn instant() -> Instant {
    Instant::now()
}

/// Wall-clock time since the Unix epoch: for logs, `X-RateLimit-Reset` and certificates, never for a decision.
pub fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The same in whole seconds, as certificates and tokens have it.
pub fn unix_s() -> i64 {
    i64::try_from(unix().as_secs()).unwrap_or(i64::MAX)
}

/// The value of `Date` now (RFC 9110 section 6.6.1). Each thread formats it once a second.
pub fn http_date() -> HeaderValue {
    DATE.with_borrow_mut(|date| date.at(unix()))
}

/// The time that a date of HTTP says (RFC 9110 section 5.6.7), in Unix seconds.
pub fn unix_seconds_of_http_date(text: &str) -> Option<u64> {
    let date: HttpDate = text.parse().ok()?;
    SystemTime::from(date).duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// The last `Date`, and its second. hyper has such a text, too, but renews it only when the clock is ahead of it, so that it
/// stands still for as long as the wall clock has been set back.
#[derive(Default)]
struct Date {
    value: Option<(u64, HeaderValue)>,
}

impl Date {
    fn at(&mut self, unix: Duration) -> HeaderValue {
        let second = unix.as_secs();
        match &self.value {
            Some((of, value)) if *of == second => value.clone(),
            _ => {
                let text = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second)).to_string();
                let value = HeaderValue::try_from(text).expect("a date is printable ASCII");
                self.value.insert((second, value)).1.clone()
            }
        }
    }
}

thread_local!(static DATE: RefCell<Date> = RefCell::default());

static ORIGIN: OnceLock<ClockOrigin> = OnceLock::new();
const HEAD_START_S: u64 = 3_600;
/// 420 days: a multiple of weeks, of 30 days, and of whatever divides them.
const ALIGNED_S: u64 = 420 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_follows_the_wall_clock_both_ways() {
        let mut date = Date::default();
        for (unix_s, text) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_776, "Sun, 06 Nov 1994 08:49:36 GMT"),
            (784_111_777 - 3_600, "Sun, 06 Nov 1994 07:49:37 GMT"),
            (784_111_777 + 3_600, "Sun, 06 Nov 1994 09:49:37 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        ] {
            for nanos in [0, 999_999_999] {
                assert_eq!(date.at(Duration::new(unix_s, nanos)), text);
            }
        }
    }

    #[test]
    fn windows_begin_with_those_of_the_wall_clock() {
        for unix_s in [0, 3_599, 3_600, 1_795_000_000, 1_795_000_000 + 419 * 86_400, u64::from(u32::MAX)] {
            let unix = Duration::new(unix_s, 123_456_789);
            let reads_ns = u128::from(aligned_ns(unix));
            assert!((3_600_000_000_000..1 << 56).contains(&reads_ns), "{unix_s}");
            for period_s in [1u128, 20, 60, 3_600, 86_400, 7 * 86_400, 30 * 86_400] {
                let since_ns = |ns: u128| ns % (period_s * 1_000_000_000);
                if unix_s >= 3_600 {
                    assert_eq!(since_ns(reads_ns), since_ns(unix.as_nanos()), "{unix_s} {period_s}");
                }
            }
        }
        let minute_s = |time: Duration| (time.as_secs() % 60) as i64;
        let apart_s = minute_s(unix()) - minute_s(Duration::from_nanos(now_ns()));
        assert!([0, 1, 59, -1, -59].contains(&apart_s), "{apart_s}");
    }
}
