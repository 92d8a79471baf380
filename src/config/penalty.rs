//! Reads and writes `penalty` of a policy.

use std::time::Duration;

use limit::{Algorithm, Penalty, Quota};

use super::printer::{table as show_table, time};
use super::reader::{Table, Value};
use super::report::quoted;
use base::units;

/// `{ after = 20, within = "1m", factor = 2, max = "1h" }`, all but `after` with a default.
pub(super) fn read(table: Table<'_>, windows: &[Quota]) -> Option<Penalty> {
    let after = table.value("after").map(|value| value.integer());
    let within = table.value("within").map(|value| bounded(&value, WITHIN_MAX));
    let factor = table.value("factor").map(|value| value.integer());
    let max = table.value("max").map(|value| bounded(&value, PENALTY_MAX));
    if !windows.is_empty() && windows.iter().all(|window| window.algorithm() == Algorithm::Concurrency) {
        table.wrong(
            "a limit of requests in flight sends no `Retry-After` that a client could ignore",
            "leave `penalty` out, or write a limit over time",
        );
    }
    let whole = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let within = within.unwrap_or(Some(Duration::from_secs(60)))?;
    let max = max.unwrap_or(Some(Duration::from_secs(3_600)))?;
    let within_ns = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
    // Penalties are whole seconds, because `Retry-After` is.
    let max_seconds = whole(max.as_secs() + u64::from(max.subsec_nanos() > 0));
    Some(Penalty::new(whole(after??), within_ns, whole(factor.unwrap_or(Some(2))?), max_seconds))
}

/// Writes the value of `penalty`.
pub(super) fn show(penalty: &Penalty) -> String {
    show_table([
        ("after", penalty.after().to_string()),
        ("within", time(Duration::from_nanos(penalty.within_ns()))),
        ("factor", penalty.factor().to_string()),
        ("max", time(Duration::from_secs(penalty.max_seconds().into()))),
    ])
}

/// A duration from one second to `max`.
fn bounded(value: &Value<'_>, max: Duration) -> Option<Duration> {
    let time = value.duration()?;
    if time > max {
        let hint = format!("write `\"{}\"` or less", units::show_duration(max));
        value.wrong(format!("{} is too long", quoted(&value.key)), hint);
        return None;
    }
    Some(time)
}

/// The longest time over which refusals are counted.
const WITHIN_MAX: Duration = Duration::from_nanos(Penalty::WITHIN_NS_MAX);
const PENALTY_MAX: Duration = Duration::from_secs(Penalty::SECONDS_MAX as u64);
