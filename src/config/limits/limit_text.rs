//! Writes limits as [`shorthand`](policy::counting::shorthand) reads them.

use limit::{Algorithm, Quota};

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

/// A period in the largest unit that divides it.
pub fn show_period(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let (unit_seconds, unit) =
        units.into_iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit)).unwrap_or((1, "s"));
    match seconds / unit_seconds {
        1 => unit.to_owned(),
        count => format!("{count}{unit}"),
    }
}
