//! [`Sample`]: one decision on one request as plain values, and how it is written as JSON and as lines of a log.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::record::format::date;

/// One decision on one request. Texts are printable ASCII and bounded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// When it was made, since the Unix epoch.
    pub time: Duration,
    /// The request's id; empty of another proxy's check, which has none.
    pub request_id: Box<str>,
    /// The gateway that made it.
    pub node: Arc<str>,
    /// The route; empty of another proxy's check.
    pub route: Box<str>,
    /// The domain of another proxy's check; empty of a request.
    pub domain: Box<str>,
    /// Who sent the request, as authenticated; empty if nobody is known.
    pub consumer: Box<str>,
    /// The tenant that the consumer acts for; empty without one.
    pub tenant: Box<str>,
    /// Whether the request may pass.
    pub is_admitted: bool,
    /// Whether it is refused because Redis is down (`when-redis-down = "deny"`).
    pub is_redis_down: bool,
    /// How long after `time` it would have passed, nanoseconds, if nobody had spent in between; 0 if it did, `None`: never.
    pub wait_ns: Option<u64>,
    /// From its head to this decision, nanoseconds.
    pub latency_ns: u64,
    /// The windows it was decided by, those that refused first.
    pub windows: Box<[Window]>,
    /// How many more there were.
    pub windows_left_out: usize,
}

/// One window of one policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// The policy.
    pub policy: Box<str>,
    /// The window's name in `RateLimit`.
    pub window: Box<str>,
    /// What was counted, as `policy::Naming` names it.
    pub key: Box<str>,
    /// The limit applied.
    pub limit: u64,
    /// The period, nanoseconds; 0 of what is in flight.
    pub period_ns: u64,
    /// Units left.
    pub remaining: u64,
    /// Units the request costs.
    pub cost: u64,
    /// Whether this window admits.
    pub is_allowed: bool,
    /// Whether it refuses nobody.
    pub is_shadow: bool,
    /// How long until this window admits, nanoseconds; `None`: never.
    pub wait_ns: Option<u64>,
    /// Where it was decided: `local`, `lease`, `redis`, `remembered` or `fallback`.
    pub tier: &'static str,
    /// How old the last word of Redis was that it was decided by, nanoseconds; `None`: there was none.
    pub age_ns: Option<u64>,
    /// The override that its limit comes from.
    pub overridden: Option<Box<str>>,
    /// Whether a penalty refused, because the client kept sending instead of waiting.
    pub is_penalty: bool,
}

impl Window {
    /// Whether it refused the request.
    pub fn refuses(&self) -> bool {
        !self.is_allowed && !self.is_shadow
    }
}

impl Sample {
    /// When the request would have passed, since the Unix epoch, to a millisecond; `None`: never, or nobody knows when.
    pub fn passes_at(&self) -> Option<Duration> {
        // What is in flight tells nobody when it ends, nor does Redis when it is back.
        let is_known = |window: &Window| !window.refuses() || window.period_ns > 0;
        if self.is_redis_down || !self.windows.iter().all(is_known) {
            return None;
        }
        let at = self.time + Duration::from_nanos(self.wait_ns?);
        // Rounded up: a millisecond before a window ends it is not over.
        let ms = u64::try_from(at.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Some(Duration::from_millis(ms))
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let windows: Vec<Value> = self.windows.iter().map(|window| Value::Object(window.fields())).collect();
        let mut fields = self.fields();
        fields.insert("windows".to_owned(), windows.into());
        if self.windows_left_out > 0 {
            fields.insert("windows-left-out".to_owned(), self.windows_left_out.into());
        }
        Value::Object(fields)
    }

    /// Appends the lines of a log, one for each window, with names as the access log has them. `before` stands before each.
    pub fn push_lines(&self, before: &[u8], lines: &mut Vec<Vec<u8>>) {
        for window in &self.windows {
            let fields = self.fields().into_iter().chain(window.fields());
            let named = fields.map(|(name, value)| (name.replace('-', "_"), value));
            let mut line = Map::from_iter([("kind".to_owned(), json!("decision"))]);
            line.extend(named);
            // Texts are ASCII, so nothing in the line could steer a terminal.
            lines.push([before, format!("{}\n", Value::Object(line)).as_bytes()].concat());
        }
    }

    fn fields(&self) -> Map<String, Value> {
        let text = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
        fields([
            ("time", json!(rfc3339(self.time))),
            ("request-id", text(&self.request_id)),
            ("node", json!(self.node)),
            ("route", text(&self.route)),
            ("domain", text(&self.domain)),
            ("consumer", text(&self.consumer)),
            ("tenant", text(&self.tenant)),
            ("admitted", json!(self.is_admitted)),
            ("redis-down", if self.is_redis_down { json!(true) } else { Value::Null }),
            (
                "passes-at",
                self.passes_at().filter(|_| !self.is_admitted).map_or(Value::Null, |at| json!(rfc3339(at))),
            ),
            ("latency-us", json!(self.latency_ns / 1_000)),
        ])
    }

    #[cfg(test)]
    pub(in crate::record) fn numbered(number: u64) -> Sample {
        Sample {
            request_id: number.to_string().into(),
            windows: Box::new([Window::default()]),
            ..Sample::default()
        }
    }
}

impl Window {
    fn fields(&self) -> Map<String, Value> {
        let only = |is: bool| if is { json!(true) } else { Value::Null };
        fields([
            ("policy", json!(self.policy)),
            ("window", json!(self.window)),
            ("key", json!(self.key)),
            ("limit", json!(self.limit)),
            (
                "period-ms",
                if self.period_ns > 0 { json!(self.period_ns.div_ceil(1_000_000)) } else { Value::Null },
            ),
            ("remaining", json!(self.remaining)),
            ("cost", json!(self.cost)),
            ("allowed", json!(self.is_allowed)),
            ("shadow", only(self.is_shadow)),
            (
                "wait-ms",
                self.wait_ns
                    .filter(|_| !self.is_allowed)
                    .map_or(Value::Null, |ns| json!(ns.div_ceil(1_000_000))),
            ),
            ("tier", json!(self.tier)),
            ("age-ms", self.age_ns.map_or(Value::Null, |ns| json!(ns / 1_000_000))),
            ("override", self.overridden.as_ref().map_or(Value::Null, |id| json!(id))),
            ("penalty", only(self.is_penalty)),
        ])
    }
}

/// A text that others chose, as a sample holds it: printable ASCII, cut.
pub fn printable(bytes: &[u8]) -> String {
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte);
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= TEXT_BYTES_MAX && bytes.iter().all(is_plain) => text.to_owned(),
        _ => bytes[..bytes.len().min(TEXT_BYTES_MAX)].escape_ascii().to_string(),
    }
}

/// Fields with a value.
fn fields<const N: usize>(all: [(&str, Value); N]) -> Map<String, Value> {
    all.into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// `2026-11-21T12:26:08.123Z`
fn rfc3339(time: Duration) -> String {
    let second = date::text(time.as_secs());
    format!("{}.{:03}Z", String::from_utf8_lossy(&second), time.subsec_millis())
}

/// Bytes of a text, before they are escaped.
const TEXT_BYTES_MAX: usize = 256;
/// Windows of one sample.
pub const WINDOWS_MAX: usize = 8;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::record::decisions) fn refused() -> Sample {
        let window = Window {
            policy: "search".into(),
            window: "search-1h".into(),
            key: "consumer=alice".into(),
            limit: 40,
            period_ns: 3_600_000_000_000,
            cost: 1,
            wait_ns: Some(1_500_000_000),
            tier: "lease",
            age_ns: Some(250_000_000),
            overridden: Some("01H".into()),
            ..Window::default()
        };
        Sample {
            time: Duration::from_millis(1_700_000_000_120),
            request_id: "4f0c".into(),
            node: "edge-1".into(),
            route: "api".into(),
            consumer: "alice".into(),
            wait_ns: Some(1_500_000_000),
            windows: Box::new([window]),
            ..Sample::default()
        }
    }

    #[test]
    fn what_others_chose_is_printable() {
        assert_eq!(printable(b"4f0c-1"), "4f0c-1");
        assert_eq!(printable(b"a\x1b[31m\xff"), "a\\x1b[31m\\xff");
        assert!(printable(&[0; 5_000]).len() <= 4 * 256);
    }

    #[test]
    fn when_a_request_would_pass_is_not_said_where_nobody_knows() {
        let mut sample =
            Sample { time: Duration::from_micros(36_503_200), wait_ns: Some(3_496_700_000), ..refused() };
        assert_eq!(
            sample.passes_at(),
            Some(Duration::from_millis(40_000)),
            "a window ends then, and not before"
        );
        sample.is_redis_down = true;
        assert_eq!(sample.passes_at(), None);
        let in_flight =
            Sample { windows: Box::new([Window { period_ns: 0, ..sample.windows[0].clone() }]), ..refused() };
        assert_eq!(in_flight.passes_at(), None);
    }

    #[test]
    fn a_line_has_the_request_and_one_window() {
        let mut lines = Vec::new();
        refused().push_lines(b"<134>1 ", &mut lines);
        let line = lines[0].strip_prefix(b"<134>1 ").expect("what stands before it");
        let line: Value = serde_json::from_slice(line).expect("JSON");
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with(b"}\n"));
        assert_eq!(line["kind"], "decision");
        assert_eq!(line["request_id"], "4f0c");
        assert_eq!(line["passes_at"], "2023-11-14T22:13:21.620Z");
        assert_eq!(
            (&line["limit"], &line["wait_ms"], &line["age_ms"]),
            (&json!(40), &json!(1_500), &json!(250))
        );
        assert_eq!(line.get("penalty"), None);
        assert_eq!(refused().to_json()["windows"][0]["override"], "01H");
    }
}
