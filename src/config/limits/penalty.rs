//! Reads `penalty` of a policy.

use std::time::Duration;

use limit::{Algorithm, Penalty, Quota};

use crate::reader::Table;

/// `after`, `within`, `factor` and `max`.
type Values = (u32, Duration, u32, Duration);

/// `{ after = 20, within = "1m", factor = 2, max = "1h" }`, all but `after` with a default.
pub(crate) fn read(table: Table<'_>, windows: &[Quota]) -> Option<Penalty> {
    let mut values = (0, Duration::from_secs(60), 2, Duration::from_secs(3_600));
    keys(&table, &mut values);
    if !windows.is_empty() && windows.iter().all(|window| window.algorithm() == Algorithm::Concurrency) {
        table.wrong(
            "`penalty` cannot be combined with a limit of requests in flight, whose refusals have no `Retry-After`",
            "leave `penalty` out, or write a limit over time",
        );
    }
    let (after, within, factor, max) = values;
    let within_ns = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
    // Penalties are whole seconds, because `Retry-After` is.
    let max_seconds = u32::try_from(max.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX);
    (after > 0).then(|| Penalty::new(after, within_ns, factor, max_seconds))
}

fn keys(keys: &Table<'_>, (after, within, factor, max): &mut Values) {
    keys.number("after", after);
    keys.duration("within", within);
    keys.number("factor", factor);
    keys.duration("max", max);
}
