//! Reads `decisions` of `[log]`: which decisions on limits are sampled, and where they are written.

use observe::record::Sink;
use observe::record::decisions::{DecisionSampling, DecisionsConfig, PER_SECOND_MAX, RETENTION};

use crate::process::log;
use crate::reader::Value;

/// Every refusal is kept in memory, and written nowhere, because a flood would fill a disk that nobody gave for it.
pub(crate) fn unwritten() -> DecisionsConfig {
    DecisionsConfig {
        to: Sink::Off,
        draws: DecisionSampling::default(),
        in_database: false,
        retention: RETENTION,
    }
}

/// Reads it; `false` turns samples off.
pub(crate) fn read(value: &Value<'_>) -> DecisionsConfig {
    if value.as_boolean() == Some(false) {
        return DecisionsConfig { draws: DecisionSampling::OFF, ..unwritten() };
    }
    let Some(table) = value.table() else { return unwritten() };
    let to = log::sink(&table, "samples of decisions").unwrap_or(Sink::Stdout);
    let mut decisions = DecisionsConfig { to, in_database: true, ..unwritten() };
    table.share("sample", &mut decisions.draws.admitted_ppm);
    table.share("denied", &mut decisions.draws.denied_ppm);
    table.set("max", &mut decisions.draws.per_second_max, per_second);
    table.boolean("database", &mut decisions.in_database);
    table.duration("retention", &mut decisions.retention);
    decisions
}

fn per_second(value: Value<'_>) -> Option<u32> {
    let text = value.text()?;
    let number = text.text.strip_suffix("/s").map(|number| number.replace('_', ""));
    let is_plain = |number: &String| number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.filter(is_plain).and_then(|number| number.parse().ok());
    let number = number.filter(|number| (1..=PER_SECOND_MAX).contains(number));
    number.iter().for_each(|number: &u32| text.spell(format!("{number}/s")));
    if number.is_none() {
        let hint = format!("write it from `\"1/s\"` to `\"{PER_SECOND_MAX}/s\"`");
        text.wrong(format!("{} is not a number of decisions per second", text.shown()), hint);
    }
    number
}
