//! Reads what makes a policy a candidate: `replaces` and `rollout`. What a candidate leaves open it takes from the
//! policy that it is to replace.

use std::collections::HashMap;

use base::units::show_share;
use policy::definition::CandidateDefinition;

use crate::load::sections::NamedTable;
use crate::printer::text;
use crate::reader::{Table, Value};

pub(crate) fn on_top(policies: Vec<NamedTable<'_>>) -> Vec<NamedTable<'_>> {
    if !policies.iter().any(|named| named.table.has(REPLACES)) {
        return policies;
    }
    let by_name: HashMap<&str, &Table<'_>> =
        policies.iter().map(|named| (named.name.as_str(), &named.table)).collect();
    let below = |named: &NamedTable<'_>| {
        // Without the delay then, because that of another means nothing beside an algorithm of its own.
        let keys = if named.table.has("algorithm") { &TAKEN[1..] } else { TAKEN };
        Some(by_name.get(replaced(&named.table)?.as_str())?.to_below(keys))
    };
    let below: Vec<_> = policies.iter().map(below).collect();
    let above = |(NamedTable { name, table }, below)| NamedTable { name, table: Table::above(table, below) };
    policies.into_iter().zip(below).map(above).collect()
}

fn replaced(table: &Table<'_>) -> Option<String> {
    if !table.has(REPLACES) {
        return None;
    }
    let name = table.value(REPLACES).filter(Value::is_string)?;
    name.text().map(|text| text.text)
}

pub(crate) fn read(table: &Table<'_>) -> Option<CandidateDefinition> {
    let replaces = table.value(REPLACES);
    let rollout = table.value("rollout");
    let Some(replaces) = replaces else {
        if let Some(rollout) = rollout {
            rollout.wrong_key(
                "only a candidate has a `rollout`",
                "write `replaces = \"…\"` with the name of the policy that it is to replace",
            );
        }
        return None;
    };
    let rollout_ppm = match &rollout {
        None => Some(0),
        Some(value) if value.is_zero() => Some(0),
        Some(value) => value.share_ppm(),
    };
    table.spell("rollout", text(&show_share(rollout_ppm?)));
    Some(CandidateDefinition { policy: replaces.text()?.text, rollout_ppm: rollout_ppm? })
}

const REPLACES: &str = "replaces";
/// What a candidate takes from its policy. Not `limit`, which is what is tried, and not `shadow`.
const TAKEN: &[&str] = &[
    "max-delay",
    "algorithm",
    "by",
    "missing",
    "match",
    "cost",
    "count",
    "exempt",
    "headers",
    "shown-as",
    "count-denied",
    "idempotency-key",
    "penalty",
    "hot-keys",
    "overshoot",
    "when-redis-down",
];
