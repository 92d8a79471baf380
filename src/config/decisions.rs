//! Reads and writes `decisions` of `[log]`: which decisions on limits are sampled, and where they are written.

use std::time::Duration;

use observe::record::Sink;
use observe::record::decisions::{DecisionsConfig, Draws, PER_SECOND_MAX, RETENTION};

use super::log;
use super::printer::{table as show_table, text as show_text};
use super::reader::{Table, Value};
use base::units::{show_duration, show_share};

/// Every refusal is kept in memory, and written nowhere: a flood would fill a disk that nobody gave for it.
pub(super) fn unwritten() -> DecisionsConfig {
    DecisionsConfig { to: Sink::Off, draws: Draws::default(), in_database: false, retention: RETENTION }
}

/// Reads it; `false` turns samples off.
pub(super) fn read(value: &Value<'_>) -> DecisionsConfig {
    if value.as_boolean() == Some(false) {
        return DecisionsConfig { draws: Draws::OFF, ..unwritten() };
    }
    let Some(table) = value.table("`decisions`") else { return unwritten() };
    let to = log::sink(&table, "samples of decisions").unwrap_or(Sink::Stdout);
    let share = |key| table.value(key).and_then(|value| value.share_ppm());
    let default = Draws::default();
    let draws = Draws {
        admitted_ppm: share("sample").unwrap_or(default.admitted_ppm),
        denied_ppm: share("denied").unwrap_or(default.denied_ppm),
        per_second_max: per_second(&table).unwrap_or(default.per_second_max),
    };
    let in_database = table.value("database").and_then(|value| value.boolean()).unwrap_or(true);
    let retention = table.value("retention").and_then(|value| value.duration(RETENTION_MIN));
    table.finish(&[]);
    DecisionsConfig { to, draws, in_database, retention: retention.unwrap_or(RETENTION) }
}

/// `max`: `"1000/s"`.
fn per_second(table: &Table<'_>) -> Option<u32> {
    let text = table.value("max")?.text()?;
    let number = text.text.strip_suffix("/s").map(|number| number.replace('_', ""));
    let is_plain = |number: &String| number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.filter(is_plain).and_then(|number| number.parse().ok());
    let number = number.filter(|number| (1..=PER_SECOND_MAX).contains(number));
    if number.is_none() {
        let hint = format!("write it from `\"1/s\"` to `\"{PER_SECOND_MAX}/s\"`");
        text.wrong(format!("{} is not a number of decisions in a second", text.shown()), hint);
    }
    number
}

/// Writes it.
pub(super) fn show(decisions: &DecisionsConfig) -> String {
    let Draws { admitted_ppm, denied_ppm, per_second_max } = decisions.draws;
    if decisions.draws == Draws::OFF {
        return "false".to_owned();
    }
    show_table([
        ("to", log::show_sink(&decisions.to)),
        ("sample", show_text(&show_share(admitted_ppm))),
        ("denied", show_text(&show_share(denied_ppm))),
        ("max", show_text(&format!("{per_second_max}/s"))),
        ("database", decisions.in_database.to_string()),
        ("retention", show_text(&show_duration(decisions.retention))),
    ])
}

/// The database is rid of what is over once an hour.
const RETENTION_MIN: Duration = Duration::from_secs(3_600);
