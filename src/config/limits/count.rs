//! Reads `count` of a policy: the statuses that it charges.

use policy::definition::{Actual, CountedStatuses, PolicyDefinition};

use limit::Algorithm;

use crate::reader::Table;
use crate::upstream::health;

/// `{ status = [401, 403] }`, `{ not-status = "2xx" }`, or both.
pub(crate) fn read(table: &Table<'_>, policy: &mut PolicyDefinition) {
    let Some(value) = table.value("count") else { return };
    if let Some(value) = table.value("overshoot").filter(|value| !value.is_zero()) {
        value.warn("`overshoot` changes nothing: Redis decides every request of this policy", "leave it out");
    }
    let Some(table) = value.table() else { return };
    let checkpoint = table.checkpoint();
    let statuses = |key| table.value(key).map(|value| health::statuses(&value, 100)).unwrap_or_default();
    let counted = CountedStatuses { among: statuses("status"), except: statuses("not-status") };
    let is_all = counted == CountedStatuses::default();
    if (is_all || !(100..=599).any(|status| counted.contains(status))) && !checkpoint.is_flawed() {
        let message = if is_all { "`count` names no status" } else { "`count` leaves no status to count" };
        table.wrong(message, "write `count = { status = [401, 403] }` or `count = { not-status = \"2xx\" }`");
    }
    if policy.cost.actual.is_some() {
        value.wrong_key(
            "`count` cannot be combined with a cost that is known only after the response",
            "write one policy for `count` and one for the cost",
        );
    }
    if policy.idempotency.is_some() {
        value.wrong_key(
            "`count` cannot be combined with `idempotency-key`: a retry costs nothing, whatever its status",
            "remove one of them, or write one policy for each",
        );
    }
    if policy.windows.iter().any(|window| window.algorithm() == Algorithm::Concurrency) {
        value.wrong_key(
            "`count` cannot be combined with a limit of requests in flight, which counts each request until it ends",
            "move the limit of requests in flight to a policy of its own, without `count`",
        );
    }
    policy.cost.actual = Some(Actual::Status(counted));
}
