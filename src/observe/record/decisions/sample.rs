//! [`DecisionSample`]: one decision on one request as plain values, and how it is written as JSON and as lines of a log.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::record::format::date;

/// One decision on one request. Texts are printable ASCII and bounded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecisionSample {
    /// When it was made, since the Unix epoch.
    pub time: Duration,
    /// The request's id; empty of another proxy's check, which has none.
    pub request_id: Box<str>,
    pub node: Arc<str>,
    /// The route; empty of another proxy's check.
    pub route: Box<str>,
    /// The domain of another proxy's check; empty of a request.
    pub domain: Box<str>,
    /// Who sent the request, as authenticated; empty if nobody is known.
    pub consumer: Box<str>,
    /// The tenant that the consumer acts for; empty without one.
    pub tenant: Box<str>,
    pub is_admitted: bool,
    /// The override that refuses it before its limits do; empty without one.
    pub blocked: Box<str>,
    /// Whether it is refused because Redis is down (`when-redis-down = "deny"`).
    pub is_redis_down: bool,
    /// How long after `time` it would have passed, nanoseconds, if nobody had spent in between; 0 if it did, `None`: never.
    pub wait_ns: Option<u64>,
    /// From its head to this decision, nanoseconds.
    pub latency_ns: u64,
    /// The windows it was decided by, those that refused first.
    pub windows: Box<[SampledWindow]>,
    pub windows_left_out: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampledWindow {
    pub policy: Box<str>,
    /// The window's name in `RateLimit`.
    pub window: Box<str>,
    /// What was counted, as `policy::KeyNaming` names it.
    pub key: Box<str>,
    /// Units per period, or in flight.
    pub limit: u64,
    /// Units that it admits at once, if that is another number.
    pub burst: Option<u64>,
    /// The period, nanoseconds; 0 of what is in flight.
    pub period_ns: u64,
    pub remaining: u64,
    pub cost: u64,
    pub is_allowed: bool,
    /// Whether it refuses nobody.
    pub is_shadow: bool,
    /// How long until this window admits, nanoseconds; `None`: never.
    pub wait_ns: Option<u64>,
    /// Where it was decided: `local`, `hot`, `lease`, `redis`, `remembered`, `unasked` or `fallback`.
    pub tier: &'static str,
    /// How old the last word of Redis was that it was decided by, nanoseconds; `None`: there was none.
    pub age_ns: Option<u64>,
    /// The override that its limit comes from.
    pub overridden: Option<Box<str>>,
    /// Whether a penalty refused, because the client kept sending instead of waiting.
    pub is_penalty: bool,
    /// The day on which the client's own months begin.
    pub anchor: Option<u8>,
}

impl SampledWindow {
    pub fn refuses(&self) -> bool {
        !self.is_allowed && !self.is_shadow
    }
}

impl DecisionSample {
    /// When the request would have passed, since the Unix epoch, to a millisecond; `None`: never, or nobody knows when.
    pub fn passes_at(&self) -> Option<Duration> {
        // Nobody knows, because what is in flight does not say when it ends, nor does Redis when it is back.
        let is_known = |window: &SampledWindow| !window.refuses() || window.period_ns > 0;
        if self.is_redis_down || !self.windows.iter().all(is_known) {
            return None;
        }
        let at = self.time + Duration::from_nanos(self.wait_ns?);
        // Rounded up, because a millisecond before a window ends it is not over.
        let ms = u64::try_from(at.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Some(Duration::from_millis(ms))
    }

    pub fn to_json(&self) -> Value {
        let windows: Vec<Value> =
            self.windows.iter().map(|window| object(|add| window.fields(add))).collect();
        let mut fields = object(|add| self.fields(add));
        fields["windows"] = windows.into();
        if self.windows_left_out > 0 {
            fields["windows-left-out"] = self.windows_left_out.into();
        }
        fields
    }

    /// Appends the lines of a log, one for each window and at least one, with names as the access log has them. `before` stands before each.
    pub fn push_lines(&self, before: &[u8], lines: &mut Vec<Vec<u8>>) {
        // Who is blocked has no window, and a line all the same.
        let alone = self.windows.is_empty().then_some(None);
        for window in self.windows.iter().map(Some).chain(alone) {
            let mut line = Vec::with_capacity(before.len() + LINE_BYTES_USUAL);
            line.extend_from_slice(before);
            line.extend_from_slice(br#"{"kind":"decision""#);
            let mut add = |name: &str, shown: SampleValue<'_>| push_field(&mut line, name, &shown);
            self.fields(&mut add);
            window.iter().for_each(|window| window.fields(&mut add));
            line.extend_from_slice(b"}\n");
            lines.push(line);
        }
    }

    fn fields(&self, add: &mut dyn FnMut(&'static str, SampleValue<'_>)) {
        add("time", SampleValue::Text(&rfc3339(self.time)));
        let texts = [
            ("request-id", &*self.request_id),
            ("node", &self.node),
            ("route", &self.route),
            ("domain", &self.domain),
            ("consumer", &self.consumer),
            ("tenant", &self.tenant),
        ];
        texts
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .for_each(|(name, text)| add(name, SampleValue::Text(text)));
        add("admitted", SampleValue::Flag(self.is_admitted));
        if !self.blocked.is_empty() {
            add("blocked", SampleValue::Text(&self.blocked));
        }
        if self.is_redis_down {
            add("redis-down", SampleValue::Flag(true));
        }
        if let Some(at) = self.passes_at().filter(|_| !self.is_admitted) {
            add("passes-at", SampleValue::Text(&rfc3339(at)));
        }
        add("latency-us", SampleValue::Number(self.latency_ns / 1_000));
    }

    #[cfg(test)]
    pub(in crate::record) fn numbered(number: u64) -> DecisionSample {
        DecisionSample {
            request_id: number.to_string().into(),
            windows: Box::new([SampledWindow::default()]),
            ..DecisionSample::default()
        }
    }
}

impl SampledWindow {
    fn fields(&self, add: &mut dyn FnMut(&'static str, SampleValue<'_>)) {
        add("policy", SampleValue::Text(&self.policy));
        add("window", SampleValue::Text(&self.window));
        add("key", SampleValue::Text(&self.key));
        add("limit", SampleValue::Number(self.limit));
        if self.period_ns > 0 {
            add("period-ms", SampleValue::Number(self.period_ns.div_ceil(1_000_000)));
        }
        if let Some(burst) = self.burst {
            add("burst", SampleValue::Number(burst));
        }
        add("remaining", SampleValue::Number(self.remaining));
        add("cost", SampleValue::Number(self.cost));
        add("allowed", SampleValue::Flag(self.is_allowed));
        if self.is_shadow {
            add("shadow", SampleValue::Flag(true));
        }
        if let Some(wait_ns) = self.wait_ns.filter(|_| !self.is_allowed) {
            // Rounded up, so that who waits as long does not come too early.
            add("wait-ms", SampleValue::Number(wait_ns.div_ceil(1_000_000)));
        }
        add("tier", SampleValue::Text(self.tier));
        if let Some(age_ns) = self.age_ns {
            add("age-ms", SampleValue::Number(age_ns / 1_000_000));
        }
        if let Some(id) = &self.overridden {
            add("override", SampleValue::Text(id));
        }
        if self.is_penalty {
            add("penalty", SampleValue::Flag(true));
        }
        if let Some(day) = self.anchor {
            add("anchor", SampleValue::Number(day.into()));
        }
    }
}

enum SampleValue<'s> {
    Text(&'s str),
    Number(u64),
    Flag(bool),
}

/// A text that others chose, as a sample holds it: printable ASCII, cut.
pub fn printable(bytes: &[u8]) -> String {
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte);
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= TEXT_BYTES_MAX && bytes.iter().all(is_plain) => text.to_owned(),
        _ => bytes[..bytes.len().min(TEXT_BYTES_MAX)].escape_ascii().to_string(),
    }
}

fn object(add_all: impl FnOnce(&mut dyn FnMut(&'static str, SampleValue<'_>))) -> Value {
    let mut fields = Map::new();
    add_all(&mut |name, shown| {
        let value = match shown {
            SampleValue::Text(text) => text.into(),
            SampleValue::Number(number) => number.into(),
            SampleValue::Flag(is) => is.into(),
        };
        fields.insert(name.to_owned(), value);
    });
    Value::Object(fields)
}

/// Appends a field to a line. Its text is ASCII, so that nothing in the line can steer a terminal.
fn push_field(line: &mut Vec<u8>, name: &str, shown: &SampleValue<'_>) {
    line.extend_from_slice(b",\"");
    line.extend(name.bytes().map(|byte| if byte == b'-' { b'_' } else { byte }));
    line.extend_from_slice(b"\":");
    match shown {
        SampleValue::Text(text) => serde_json::to_writer(line, text).expect("a Vec takes any text"),
        SampleValue::Number(number) => line.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes()),
        SampleValue::Flag(is) => line.extend_from_slice(if *is { b"true" } else { b"false" }),
    }
}

/// Bytes that most lines have room in.
const LINE_BYTES_USUAL: usize = 512;

/// `2026-11-21T12:26:08.123Z`
fn rfc3339(time: Duration) -> String {
    let second = date::text(time.as_secs());
    format!("{}.{:03}Z", String::from_utf8_lossy(&second), time.subsec_millis())
}

/// Bytes of a text, before they are escaped.
const TEXT_BYTES_MAX: usize = 256;
pub const WINDOWS_MAX: usize = 8;

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in crate::record::decisions) fn refused() -> DecisionSample {
        let window = SampledWindow {
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
            ..SampledWindow::default()
        };
        DecisionSample {
            time: Duration::from_millis(1_700_000_000_120),
            request_id: "4f0c".into(),
            node: "edge-1".into(),
            route: "api".into(),
            consumer: "alice".into(),
            wait_ns: Some(1_500_000_000),
            windows: Box::new([window]),
            ..DecisionSample::default()
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
        let mut sample = DecisionSample {
            time: Duration::from_micros(36_503_200),
            wait_ns: Some(3_496_700_000),
            ..refused()
        };
        assert_eq!(
            sample.passes_at(),
            Some(Duration::from_millis(40_000)),
            "a window ends then, and not before"
        );
        sample.is_redis_down = true;
        assert_eq!(sample.passes_at(), None);
        let in_flight = DecisionSample {
            windows: Box::new([SampledWindow { period_ns: 0, ..sample.windows[0].clone() }]),
            ..refused()
        };
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
