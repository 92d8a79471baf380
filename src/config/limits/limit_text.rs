//! Writes limits as [`shorthand`](policy::counting::shorthand) reads them.

use limit::{Algorithm, Quota};
use policy::counting::shorthand::show_period;

/// Writes a window: `100/m burst 20`, or `5/10s` if it has no bucket.
pub fn show_window(window: &Quota) -> String {
    // A configured period is a whole number of seconds.
    let period = || show_period(window.period_ns().get() / 1_000_000_000);
    let period = window.calendar().map_or_else(period, |calendar| calendar.unit().word().to_owned());
    let rate = format!("{}/{period}", window.limit());
    match window.algorithm() {
        Algorithm::TokenBucket => format!("{rate} burst {}", window.burst()),
        Algorithm::LeakyBucket => format!("{rate} burst {}", window.burst()),
        Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => rate,
        Algorithm::Concurrency => format!("{} in flight", window.limit()),
    }
}

/// Units with an underscore between thousands.
pub fn show_units(units: u64) -> String {
    match units {
        0..1_000 => units.to_string(),
        _ => format!("{}_{:03}", show_units(units / 1_000), units % 1_000),
    }
}
