//! Reads `retry` of an upstream and of a route. The budget is an upstream's alone and not read here.

use crate::printer::{array, text as show_text};
use crate::reader::{Table, Value};
use crate::upstream::health;
use policy::retry::{Retry, Statuses};

/// Reads when a request is sent a second time, within this budget.
pub(crate) fn read(table: &Table<'_>, budget_percent: u32) -> Retry {
    let mut retry = Retry::default();
    table.number("times", &mut retry.times);
    if let Some(value) = table.value("on") {
        occasions(&value, &mut retry);
    }
    if let Some(value) = table.value("hedge-after") {
        retry.hedge_after = value.duration();
        if retry.times == 0 || budget_percent == 0 {
            value.wrong_key("`hedge-after` needs retries", "set `times` and `budget` above 0, or remove it");
        }
    }
    retry
}

/// What a request is sent again after: words, and statuses from 400 on.
fn occasions(value: &Value<'_>, retry: &mut Retry) {
    (retry.on_connect, retry.on_reset) = (false, false);
    let mut statuses = Vec::new();
    for text in value.texts() {
        if let Some(range) = health::range(&text.text) {
            if *range.start() < 400 || range.is_empty() {
                text.wrong(
                    format!("{} is not a failure that can be retried", text.shown()),
                    "write a status from 400 on, or `5xx`",
                );
            }
            statuses.push(range);
            continue;
        }
        match text.choice_beside(&OCCASIONS, &["5xx", "503"]) {
            Some(0) => retry.on_connect = true,
            Some(1) => retry.on_reset = true,
            Some(_) => retry.on_timeout = true,
            None => {}
        }
    }
    retry.on_status = Statuses::new(statuses);
    let is_on = [retry.on_connect, retry.on_reset, retry.on_timeout];
    let on = OCCASIONS.iter().filter(|(_, number)| is_on[*number]).map(|(word, _)| show_text(word));
    value.spell(array(on.chain(health::show_statuses(&retry.on_status))));
}

const OCCASIONS: [(&str, usize); 3] = [("connect", 0), ("reset-before-bytes", 1), ("timeout", 2)];
