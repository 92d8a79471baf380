//! Writes limits and dimensions as [`shorthand`](policy::counting::shorthand) reads them.

use std::num::NonZeroU64;

use limit::{Algorithm, Quota};
use policy::definition::Dimension;

/// Writes a window: `100/m burst 20`, or `5/10s` if it has no bucket.
pub fn show_window(window: &Quota) -> String {
    let period = || show_period(window.period_ns());
    let period = window.calendar().map_or_else(period, |calendar| calendar.unit().word().to_owned());
    let rate = format!("{}/{period}", window.limit());
    match window.algorithm() {
        Algorithm::TokenBucket => format!("{rate} burst {}", window.burst()),
        Algorithm::LeakyBucket => format!("{rate} burst {}", window.burst()),
        Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => rate,
        Algorithm::Concurrency => format!("{} in flight", window.limit()),
    }
}

/// Writes a dimension: `ip`, `header:x-api-key`.
pub(crate) fn show_dimension(dimension: &Dimension) -> String {
    match dimension {
        Dimension::Consumer => "consumer".to_owned(),
        Dimension::Tenant => "tenant".to_owned(),
        Dimension::Ip => "ip".to_owned(),
        Dimension::Route => "route".to_owned(),
        Dimension::Method => "method".to_owned(),
        Dimension::Host => "host".to_owned(),
        Dimension::Header(name) => format!("header:{name}"),
        Dimension::Query(name) => format!("query:{name}"),
        Dimension::Param(name) => format!("param:{name}"),
        Dimension::Claim(name) => format!("claim:{name}"),
        Dimension::Body(path) => format!("body:{path}"),
        Dimension::Entry(key) => format!("entry:{key}"),
        Dimension::Cookie(name) => format!("cookie:{name}"),
        Dimension::Path => "path".to_owned(),
    }
}

/// The period in the largest unit that divides it. A configured period is a whole number of seconds.
fn show_period(period_ns: NonZeroU64) -> String {
    let seconds = period_ns.get() / 1_000_000_000;
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let (unit_seconds, unit) =
        units.into_iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit)).unwrap_or((1, "s"));
    match seconds / unit_seconds {
        1 => unit.to_owned(),
        count => format!("{count}{unit}"),
    }
}
