//! A decision in sentences, made of its JSON: of a sample in memory, or of one that a database has kept for another node.

use std::fmt::Write;

use serde_json::Value;

/// What was decided about a request, a line for each fact.
pub fn told(sample: &Value) -> String {
    let mut text = String::new();
    let is = |name: &str| sample[name] == true;
    let blocked = sample["blocked"].as_str();
    let done = match (is("admitted"), is("redis-down")) {
        (true, _) => "was admitted",
        _ if blocked.is_some() => "was refused because it is blocked",
        (false, true) => "was refused because Redis was unavailable",
        (false, false) => "was refused",
    };
    // The result is ignored, because writing to a text does not fail.
    let _ = writeln!(
        text,
        "request   {} {done} at {} by node {}{}",
        shown(&sample["request-id"]),
        shown(&sample["time"]),
        shown(&sample["node"]),
        whose(sample)
    );
    if let Some(by) = blocked {
        let ends =
            sample["passes-at"].as_str().map_or_else(String::new, |at| format!(", which ends at {at}"));
        let _ = writeln!(
            text,
            "blocked   by override {0}{1}: `sluicegate ctl override show {0}` has its subject, reason and author",
            steady(by),
            steady(&ends)
        );
        return text;
    }
    let windows = sample["windows"].as_array().map(Vec::as_slice).unwrap_or_default();
    for window in windows {
        let _ = writeln!(text, "{}", window_told(window, is("redis-down")));
    }
    if let Some(left_out) = sample["windows-left-out"].as_u64() {
        let _ = writeln!(text, "note      {left_out} more windows are not shown");
    }
    match (is("admitted"), sample["passes-at"].as_str()) {
        (true, _) => {}
        (false, Some(at)) if sample["windows-left-out"].is_null() => {
            let waits =
                windows.iter().filter(|window| window["allowed"] == false && window["shadow"] != true);
            let wait_ms = waits.filter_map(|window| window["wait-ms"].as_u64()).max();
            let later = wait_ms.map_or_else(String::new, |ms| format!(", {} later", seconds(ms)));
            let _ = writeln!(text, "passes    at {at}{later}, if no other request spends in between");
        }
        // Without how much later, because the window that lets it wait longest may be among those.
        (false, Some(at)) => {
            let _ = writeln!(text, "passes    at {at}, if no other request spends in between");
        }
        (false, None) if is("redis-down") => text.push_str("passes    when Redis is available again\n"),
        (false, None) if windows.iter().any(|window| is_in_flight(window) && window["allowed"] == false) => {
            text.push_str("passes    when another request in flight ends\n");
        }
        (false, None) => text.push_str("passes    never: its cost exceeds the capacity of a window\n"),
    }
    text
}

fn whose(sample: &Value) -> String {
    let known =
        ["route", "domain", "consumer", "tenant"].into_iter().filter(|name| sample[*name].is_string());
    let named: Vec<String> = known.map(|name| format!("{name} {}", shown(&sample[name]))).collect();
    if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) }
}

/// In a line: `refused   policy search, window search-1h, key consumer=alice: 0 of 1000 left, cost 1; …`.
fn window_told(window: &Value, is_redis_down: bool) -> String {
    let (allowed, shadow) = (window["allowed"] == true, window["shadow"] == true);
    let word = match (allowed, shadow) {
        (false, false) => "refused",
        (false, true) => "shadow",
        (true, _) => "admitted",
    };
    let mut text = format!(
        "{word:<9} policy {}, window {}, key {}: {} of {} left, cost {}; decided {}",
        shown(&window["policy"]),
        shown(&window["window"]),
        shown(&window["key"]),
        window["remaining"],
        window.get("burst").unwrap_or(&window["limit"]),
        window["cost"],
        by(window)
    );
    if window["override"].is_string() {
        let _ = write!(text, "; its limit is set by override {}", shown(&window["override"]));
    }
    if window["penalty"] == true {
        text.push_str("; a penalty, because the client kept sending instead of waiting");
    }
    match window["wait-ms"].as_u64() {
        _ if allowed || is_in_flight(window) => {}
        // Nothing was counted then.
        _ if is_redis_down && window["tier"] == "fallback" => {}
        Some(wait_ms) => {
            let _ = write!(text, "; admits in {}", seconds(wait_ms));
        }
        None => text.push_str("; never admits this cost"),
    }
    text
}

/// Whether a window counts what is in flight: such a one has no period.
fn is_in_flight(window: &Value) -> bool {
    window["limit"].is_u64() && window["period-ms"].is_null()
}

fn by(window: &Value) -> String {
    let by = match window["tier"].as_str().unwrap_or_default() {
        "local" if window["penalty"] == true => "by its penalty",
        "hot" => "by this node's local count, because the key is hot",
        "lease" => "from this node's lease",
        "redis" => "by Redis",
        "remembered" => "by a remembered response of Redis",
        "unasked" if window["allowed"] == true => "without Redis, because another window had refused",
        "unasked" => "without Redis, because the cost exceeds the limit",
        "fallback" => "by this node's fallback, without Redis",
        _ => "by this node's local count",
    };
    match window["age-ms"].as_u64() {
        Some(age_ms) if window["tier"] != "redis" => {
            format!("{by}; Redis last answered {} before", seconds(age_ms))
        }
        _ => by.to_owned(),
    }
}

fn shown(value: &Value) -> String {
    steady(value.as_str().unwrap_or("-"))
}

/// A text as it may stand on a terminal, whoever wrote it. What is escaped in it already stays as it is.
pub fn steady(text: &str) -> String {
    let mut steady = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '"' | '\'' | '\\' => steady.push(one),
            other => steady.extend(other.escape_debug()),
        }
    }
    steady
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03} s", ms / 1_000, ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::refused;
    use super::*;

    #[test]
    fn a_refusal_is_told_in_sentences() {
        assert_eq!(
            told(&refused().to_json()),
            "request   4f0c was refused at 2023-11-14T22:13:20.120Z by node edge-1 (route api, consumer alice)\n\
             refused   policy search, window search-1h, key consumer=alice: 0 of 40 left, cost 1; decided from this \
             node's lease; Redis last answered 0.250 s before; its limit is set by override 01H; admits in 1.500 s\n\
             passes    at 2023-11-14T22:13:21.620Z, 1.500 s later, if no other request spends in between\n"
        );
    }

    #[test]
    fn what_is_left_is_told_of_what_is_admitted_at_once() {
        let mut sample = refused();
        sample.windows[0].burst = Some(3);
        let sample = sample.to_json();
        assert_eq!((&sample["windows"][0]["limit"], &sample["windows"][0]["burst"]), (&40.into(), &3.into()));
        assert!(told(&sample).contains(": 0 of 3 left,"), "{sample}");
    }

    #[test]
    fn what_is_escaped_is_not_escaped_again() {
        assert_eq!(steady("header:x=\"q\\\"\u{1b}"), "header:x=\"q\\\"\\u{1b}");
    }

    #[test]
    fn nobody_is_promised_a_time_that_nobody_knows() {
        let mut sample = refused();
        sample.windows[0].period_ns = 0;
        let text = told(&sample.to_json());
        assert!(text.ends_with("override 01H\npasses    when another request in flight ends\n"), "{text}");
        sample.is_redis_down = true;
        assert!(told(&sample.to_json()).ends_with("passes    when Redis is available again\n"));
    }

    #[test]
    fn what_is_missing_or_forged_is_told_all_the_same() {
        let forged = serde_json::json!({ "request-id": "\u{1b}[31m", "windows": [{ "policy": 7 }] });
        let text = told(&forged);
        assert!(text.contains("\\u{1b}[31m was refused at - by node -"), "{text}");
        assert!(text.ends_with("passes    never: its cost exceeds the capacity of a window\n"), "{text}");
    }
}
