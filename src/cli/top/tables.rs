//! The panes of `top`: which columns they have, and the rows that follow from what is known.

use serde_json::Value;

use super::numbers::{count, duration, percent, rate};
use super::view::View;
use control::admin::{DecidedWindow, DecisionItem, DecisionList, FleetKey, HotKeyList};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Policies,
    HotKeyList,
    Refusals,
    Upstreams,
    Redis,
    Routes,
}

/// A table as it is drawn.
pub(super) struct Table {
    /// The heading of each column, and how wide it is; the first takes what is left. Widths below 0 align to the right.
    pub(super) columns: Vec<(&'static str, i16)>,
    pub(super) rows: Vec<Row>,
    /// What is said if there is no row.
    pub(super) none: String,
}

pub(super) struct Row {
    pub(super) cells: Vec<String>,
    pub(super) tone: Tone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Bad,
    Soft,
}

impl Pane {
    pub(super) const ALL: [Pane; 6] =
        [Pane::Policies, Pane::HotKeyList, Pane::Refusals, Pane::Upstreams, Pane::Redis, Pane::Routes];

    pub(super) fn title(self) -> &'static str {
        match self {
            Pane::Policies => "Policies",
            Pane::HotKeyList => "Hot keys",
            Pane::Refusals => "Refusals",
            Pane::Upstreams => "Upstreams",
            Pane::Redis => "Redis",
            Pane::Routes => "Routes",
        }
    }

    pub(super) fn next(self) -> Pane {
        Pane::ALL[(self as usize + 1) % Pane::ALL.len()]
    }

    pub(super) fn previous(self) -> Pane {
        Pane::ALL[(self as usize + Pane::ALL.len() - 1) % Pane::ALL.len()]
    }

    pub(super) fn table(self, view: &View) -> Table {
        let summary = view.summary.as_ref().unwrap_or(&Value::Null);
        let table = match self {
            Pane::Policies => policies(&summary["policies"]),
            Pane::HotKeyList => hot_keys(&view.hot_keys),
            Pane::Refusals => refusals(&view.decisions),
            Pane::Upstreams => upstreams(&summary["upstreams"]),
            Pane::Redis => redis(&summary["redis"]),
            Pane::Routes => routes(&summary["routes"]),
        };
        match view.summary {
            // Because no row means nothing before the first event.
            None => Table { none: NO_DATA.to_owned(), ..table },
            Some(_) => table,
        }
    }
}

/// What a policy refuses by second.
fn refused(policy: &Value) -> f64 {
    sum(policy, &["denied", "missing-rejected", "penalised"])
}

/// The same of all policies of a summary.
pub(super) fn refused_in_all(policies: &Value) -> f64 {
    let named = policies["busiest"].as_array().into_iter().flatten();
    named.chain([&policies["others"]]).map(refused).sum()
}

/// What it lets through, that which shadow would have refused included.
fn admitted(policy: &Value) -> f64 {
    sum(policy, &["admitted", "shadow-denied", "shadow-penalised"])
}

fn sum(policy: &Value, fields: &[&str]) -> f64 {
    fields.iter().filter_map(|field| policy[*field].as_f64()).sum()
}

fn policies(policies: &Value) -> Table {
    let row = |(name, policy): (String, &Value)| {
        let (refused, admitted) = (refused(policy), admitted(policy));
        let share =
            if refused + admitted > 0.0 { percent(refused / (refused + admitted)) } else { "-".to_owned() };
        let cells =
            vec![name, rate(&refused.into()), share, rate(&admitted.into()), count(&policy["refused-total"])];
        Row { cells, tone: if refused > 0.0 { Tone::Bad } else { Tone::Plain } }
    };
    Table {
        columns: vec![
            ("policy", 0),
            ("refused/s", -10),
            ("share refused", -14),
            ("admitted/s", -14),
            ("refused", -11),
        ],
        rows: with_others(policies, "policies").map(row).collect(),
        none: "no policy is configured, so nothing is limited".to_owned(),
    }
}

fn routes(routes: &Value) -> Table {
    let row = |(name, route): (String, &Value)| Row {
        cells: vec![
            name,
            rate(&route["per-second"]),
            rate(&route["4xx"]),
            rate(&route["5xx"]),
            duration(&route["p50"]),
            duration(&route["p99"]),
        ],
        tone: if route["5xx"].as_f64().is_some_and(|rate| rate > 0.0) { Tone::Bad } else { Tone::Plain },
    };
    Table {
        columns: vec![
            ("route", 0),
            ("requests/s", -11),
            ("4xx/s", -8),
            ("5xx/s", -8),
            ("median", -9),
            ("99 %", -9),
        ],
        rows: with_others(routes, "routes").map(row).collect(),
        none: "no request came in the last second".to_owned(),
    }
}

/// The busiest by name, and a row for all others if there are any.
fn with_others<'v>(rows: &'v Value, what: &str) -> impl Iterator<Item = (String, &'v Value)> {
    let named = rows["busiest"].as_array().into_iter().flatten();
    let named = named.map(|row| (text(&row["name"]), row));
    let others = &rows["others"];
    let label = format!("{} other {what}", count(&others["count"]));
    named.chain((others["count"].as_u64() > Some(0)).then_some((label, others)))
}

fn hot_keys(known: &Result<HotKeyList, String>) -> Table {
    let columns =
        vec![("key", 0), ("policy", 16), ("requests/s", -11), ("refused/s", -10), ("of policy", -10)];
    let known = match known {
        Ok(known) => known,
        Err(why) => return Table { columns, rows: Vec::new(), none: why.clone() },
    };
    let row = |key: &str, policy: &str, [requests, refused]: [f64; 2], of_policy: String, tone| {
        let cells =
            vec![key.to_owned(), policy.to_owned(), rate(&requests.into()), rate(&refused.into()), of_policy];
        (requests, Row { cells, tone })
    };
    let mut rows: Vec<(f64, Row)> = match &known.fleet {
        Some(fleet) => {
            let all = fleet.items.iter().map(
                |FleetKey { key, policy, requests_per_second, denied_per_second, .. }| {
                    row(key, policy, [*requests_per_second, *denied_per_second], String::new(), Tone::Plain)
                },
            );
            all.collect()
        }
        None => {
            let own = known.items.iter().map(|it| {
                let tone = if it.hot { Tone::Bad } else { Tone::Plain };
                let rates = [it.requests_per_second, it.denied_per_second];
                row(&it.key, &it.policy, rates, percent(it.of_policy), tone)
            });
            own.collect()
        }
    };
    rows.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    Table { columns, rows, none: "no key was counted in the last minute".to_owned() }
}

fn refusals(known: &Result<DecisionList, String>) -> Table {
    let columns = vec![("request", 0), ("at", 9), ("policy", 16), ("key", 24)];
    let known = match known {
        Ok(known) => known,
        Err(why) => return Table { columns, rows: Vec::new(), none: why.clone() },
    };
    let row = |refusal: &DecisionItem| {
        let window = refusal.windows.first();
        let shown = |text: fn(&DecidedWindow) -> &String| window.map(text).cloned().unwrap_or_default();
        // The time of day of a text as RFC 3339 has it, in UTC.
        let time = refusal.time.get(11..19).unwrap_or_default().to_owned();
        let id = refusal.request_id.clone().unwrap_or_default();
        Row { cells: vec![id, time, shown(|it| &it.policy), shown(|it| &it.key)], tone: Tone::Plain }
    };
    let rows = known.items.iter().filter(|decision| !decision.admitted).map(row).collect();
    Table { columns, rows, none: "no request was refused lately".to_owned() }
}

fn upstreams(upstreams: &Value) -> Table {
    let mut rows = Vec::new();
    for upstream in upstreams["first"].as_array().into_iter().flatten() {
        let servers = upstream["first"].as_array().into_iter().flatten();
        let shown = servers.clone().count() as u64;
        rows.extend(servers.map(|server| {
            let is_well = server["state"] == "healthy" || server["state"] == "warming-up";
            Row {
                cells: vec![
                    text(&server["server"]),
                    text(&upstream["name"]),
                    text(&server["state"]),
                    count(&server["open"]),
                    count(&server["waiting"]),
                ],
                tone: if is_well { Tone::Plain } else { Tone::Bad },
            }
        }));
        let all = upstream["servers"].as_u64().unwrap_or_default();
        if all > shown {
            rows.push(soft(format!("{} more", all - shown), text(&upstream["name"])));
        }
    }
    if upstreams["others"].as_u64() > Some(0) {
        rows.push(soft(format!("{} other upstreams", count(&upstreams["others"])), String::new()));
    }
    Table {
        columns: vec![("server", 0), ("upstream", 18), ("state", 12), ("open", -7), ("waiting", -8)],
        rows,
        none: "no upstream is configured".to_owned(),
    }
}

fn soft(first: String, second: String) -> Row {
    Row { cells: vec![first, second], tone: Tone::Soft }
}

fn redis(shards: &Value) -> Table {
    let row = |shard: &Value| {
        let is_up = shard["up"] == true;
        let state = match (is_up, shard["in-time"] == true) {
            (true, true) => "up".to_owned(),
            (true, false) => "slow".to_owned(),
            (false, _) => text(&shard["condition"]),
        };
        Row {
            cells: vec![
                text(&shard["shard"]),
                state,
                rate(&shard["operations"]),
                duration(&shard["round-trip"]),
                rate(&shard["late"]),
                rate(&shard["lost"]),
            ],
            tone: if is_up { Tone::Plain } else { Tone::Bad },
        }
    };
    Table {
        columns: vec![
            ("shard", 0),
            ("state", 12),
            ("ops/s", -9),
            ("round trip", -11),
            ("late/s", -7),
            ("lost/s", -7),
        ],
        rows: shards.as_array().into_iter().flatten().map(row).collect(),
        none: "this node does not share its limits: add [redis] to share them".to_owned(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

const NO_DATA: &str = "no data yet: the gateway has not answered";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::top::source::Update;

    #[test]
    fn no_pane_says_anything_of_a_gateway_that_has_not_answered() {
        let mut view = View::new(String::new());
        let shown = |view: &View| Pane::ALL.map(|pane| pane.table(view).none);
        assert_eq!(shown(&view), [NO_DATA; 6]);
        view.hear(Update::Away("the gateway answers 401 Unauthorized".to_owned()));
        view.hear(Update::HotKeyList(Err("a token is needed".to_owned())));
        assert_eq!(shown(&view), [NO_DATA; 6]);
        view.hear(Update::Summary(json!({})));
        assert!(!shown(&view).contains(&NO_DATA.to_owned()));
        assert_eq!(Pane::HotKeyList.table(&view).none, "a token is needed");
    }
}
