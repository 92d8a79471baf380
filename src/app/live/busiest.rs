//! The busiest of many, in an order that does not jump: a row that was busy a few seconds ago is still among them.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::rates::tenth;

/// One of many, as it is now.
pub(super) struct Row<'n> {
    pub(super) name: &'n str,
    pub(super) first: f64,
    /// And among equals by this.
    pub(super) then: f64,
    pub(super) shown: Value,
    /// The fields of it that are added up over those that are not shown by name.
    pub(super) rates: &'static [&'static str],
}

pub(super) struct Busiest {
    most: usize,
    scores: HashMap<Box<str>, [f64; 2]>,
}

impl Busiest {
    /// Shows so many by name.
    pub(super) fn new(most: usize) -> Busiest {
        Busiest { most, scores: HashMap::new() }
    }

    /// The busiest with their names, and all others together.
    pub(super) fn shown(&mut self, rows: Vec<Row<'_>>) -> Value {
        for row in &rows {
            let known = self.scores.get_mut(row.name);
            if known.is_none() && row.first + row.then == 0.0 {
                continue;
            }
            let score = match known {
                Some(score) => score,
                None => self.scores.entry(row.name.into()).or_default(),
            };
            *score = [score[0] * KEPT + row.first, score[1] * KEPT + row.then];
        }
        // Routes without requests are not among the rows, and fade the same.
        let named: HashSet<&str> = rows.iter().map(|row| row.name).collect();
        for (_, score) in self.scores.iter_mut().filter(|(name, _)| !named.contains(&***name)) {
            *score = score.map(|score| score * KEPT);
        }
        self.scores.retain(|_, score| score[1] > FORGOTTEN);
        let score = |row: &Row<'_>| self.scores.get(row.name).copied().unwrap_or_default();
        let mut rows: Vec<([f64; 2], Row<'_>)> = rows.into_iter().map(|row| (score(&row), row)).collect();
        rows.sort_by(|(one, a), (other, b)| {
            let by = |index: usize| other[index].total_cmp(&one[index]);
            by(0).then(by(1)).then(a.name.cmp(b.name))
        });
        let others = rows.split_off(rows.len().min(self.most));
        let shown = |(_, Row { name, mut shown, .. }): (_, Row<'_>)| {
            shown["name"] = json!(name);
            shown
        };
        let busiest: Value = rows.into_iter().map(shown).collect();
        json!({ "busiest": busiest, "others": together(&others) })
    }
}

/// How many there are, and the sum of each of their rates.
fn together(others: &[([f64; 2], Row<'_>)]) -> Value {
    let mut sums = Map::new();
    sums.insert("count".to_owned(), json!(others.len()));
    sums.insert("per-second".to_owned(), json!(tenth(others.iter().map(|(_, row)| row.then).sum())));
    for rate in others.first().map_or(&[][..], |(_, row)| row.rates) {
        let sum = others.iter().filter_map(|(_, row)| row.shown[rate].as_f64()).sum();
        sums.insert((*rate).to_owned(), json!(tenth(sum)));
    }
    Value::Object(sums)
}

/// What is left of a score after a second: half after seven.
const KEPT: f64 = 0.9;
/// A score that is this low is that of a row nobody uses.
const FORGOTTEN: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, denied: f64, all: f64) -> Row<'_> {
        Row { name, first: denied, then: all, shown: json!({ "denied": denied }), rates: &["denied"] }
    }

    fn names(shown: &Value) -> Vec<&str> {
        let busiest = shown["busiest"].as_array().expect("a list");
        busiest.iter().map(|row| row["name"].as_str().expect("a name")).collect()
    }

    #[test]
    fn who_refuses_comes_first_and_the_rest_is_added_up() {
        let mut busiest = Busiest::new(2);
        let rows =
            vec![row("idle", 0.0, 0.0), row("busy", 0.0, 100.0), row("strict", 1.0, 2.0), row("b", 0.0, 5.0)];
        let shown = busiest.shown(rows);
        assert_eq!(names(&shown), ["strict", "busy"]);
        assert_eq!(shown["others"], json!({ "count": 2, "per-second": 5.0, "denied": 0.0 }));
    }

    #[test]
    fn one_quiet_second_changes_no_order_and_a_quiet_minute_does() {
        let mut busiest = Busiest::new(1);
        busiest.shown(vec![row("a", 9.0, 9.0), row("b", 1.0, 1.0)]);
        for second in 0..60 {
            let shown = busiest.shown(vec![row("a", 0.0, 0.0), row("b", 1.0, 1.0)]);
            assert_eq!(names(&shown), [if second < 5 { "a" } else { "b" }], "{second}");
        }
    }

    #[test]
    fn rows_that_nobody_uses_are_forgotten() {
        let mut busiest = Busiest::new(1);
        let names: Vec<String> = (0..10_000).map(|index| index.to_string()).collect();
        busiest.shown(names.iter().map(|name| row(name, 0.0, 1.0)).collect());
        assert_eq!(busiest.scores.len(), 10_000);
        (0..60).for_each(|_| drop(busiest.shown(Vec::new())));
        assert!(busiest.scores.is_empty());
    }
}
