//! Reads `penalty` of a policy.

use std::time::Duration;

use limit::{Algorithm, Penalty, Quota};

use crate::reader::Table;

/// `{ after = 20, within = "1m", factor = 2, max = "1h" }`, all but `after` with a default.
pub(crate) fn read(table: Table<'_>, windows: &[Quota]) -> Option<Penalty> {
    let (mut after, mut factor) = (0, 2);
    let (mut within, mut max) = (Duration::from_secs(60), Duration::from_secs(3_600));
    table.number("after", &mut after);
    table.duration("within", &mut within);
    table.number("factor", &mut factor);
    table.duration("max", &mut max);
    if !windows.is_empty() && windows.iter().all(|window| window.algorithm() == Algorithm::Concurrency) {
        table.wrong(
            "`penalty` cannot be combined with a limit of requests in flight, whose refusals have no `Retry-After`",
            "leave `penalty` out, or write a limit over time",
        );
    }
    let within_ns = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
    // Penalties are whole seconds, because `Retry-After` is.
    let max_seconds = u32::try_from(max.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX);
    (after > 0).then(|| Penalty::new(after, within_ns, factor, max_seconds))
}
