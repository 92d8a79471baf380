//! Reads `count` of a policy: the statuses that it charges.

use policy::definition::{Actual, CountedStatuses, GRPC_CODES, GRPC_STATUSES, PolicyDefinition};
use policy::retry::Statuses;

use limit::Algorithm;

use crate::printer::{array, text};
use crate::reader::{Table, Value};
use crate::upstream::health;

/// `{ status = [401, 403] }`, `{ not-status = "2xx" }`, `{ grpc-status = 7 }`, `{ not-grpc-status = "ok" }`, or several.
pub(crate) fn read(table: &Table<'_>, policy: &mut PolicyDefinition) {
    let Some(value) = table.value("count") else { return };
    if let Some(value) = table.value("overshoot").filter(|value| !value.is_zero()) {
        value.warn("`overshoot` changes nothing: Redis decides every request of this policy", "leave it out");
    }
    let Some(table) = value.table() else { return };
    let checkpoint = table.checkpoint();
    let statuses = |of_http, of_calls| {
        let mut ranges = table.value(of_http).map(|value| health::statuses(&value, 100)).unwrap_or_default();
        ranges.extend(table.value(of_calls).map(|value| codes(&value)).unwrap_or_default());
        ranges
    };
    let among = statuses("status", "grpc-status");
    let counted = CountedStatuses { among, except: statuses("not-status", "not-grpc-status") };
    let is_all = counted == CountedStatuses::default();
    if (is_all || !(100..=599).any(|status| (0..=16).any(|code| counted.contains(status, Some(code)))))
        && !checkpoint.is_flawed()
    {
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

fn codes(value: &Value<'_>) -> Statuses {
    let values = if value.is_array() { value.array().unwrap_or_default() } else { vec![value.clone()] };
    if values.is_empty() {
        value.wrong("the list of statuses is empty", CODE_HINT);
    }
    let codes: Vec<u16> = values.iter().filter_map(code).collect();
    value.spell(array(codes.iter().map(|code| text(GRPC_CODES[usize::from(*code)]))));
    Statuses::new(codes.into_iter().map(|code| GRPC_STATUSES + code..=GRPC_STATUSES + code).collect())
}

fn code(value: &Value<'_>) -> Option<u16> {
    if value.is_integer() {
        return u16::try_from(value.integer()?).ok().filter(|code| usize::from(*code) < GRPC_CODES.len());
    }
    let text = value.text()?;
    // As gRPC spells them, too: `7`, `PERMISSION_DENIED`.
    let written = text.text.replace('_', "-").to_ascii_lowercase();
    let code = GRPC_CODES
        .iter()
        .enumerate()
        .position(|(number, name)| *name == written || number.to_string() == written);
    if code.is_none() {
        text.wrong(format!("{} is not a gRPC status", text.shown()), CODE_HINT);
    }
    code.and_then(|code| u16::try_from(code).ok())
}

const CODE_HINT: &str = "write it like `7` or `\"permission-denied\"`";
