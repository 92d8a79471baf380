//! The rate-limit fields of an upstream's answer, read so that the gateway's own do not hide a tighter limit.

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::proxy::response::limit_fields::{
    RATELIMIT, RATELIMIT_POLICY, X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET,
};
use policy::counting::SF_INTEGER_MAX;
use policy::list_field::split_unquoted;

/// What an upstream says is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct UpstreamLimit {
    /// Units in its window, if it says so.
    pub limit: Option<u64>,
    pub remaining: u64,
    /// Seconds until the window is whole, if it says so.
    pub reset_seconds: Option<u64>,
    /// Whether an item of its `RateLimit` says it.
    is_item: bool,
}

impl UpstreamLimit {
    /// The tightest of what an answer's fields say at `unix_seconds`.
    pub fn of(headers: &HeaderMap, unix_seconds: u64) -> Option<UpstreamLimit> {
        let listed = headers.get(RATELIMIT).and_then(|_| UpstreamLimit::in_list(headers));
        let legacy = headers.get(X_RATELIMIT_REMAINING).and_then(|remaining| {
            let field = |name: HeaderName| headers.get(name).and_then(number);
            // Told apart by their size, because some send the time, some the seconds until then; no time is that small.
            let reset = field(X_RATELIMIT_RESET).map(|reset| match reset {
                ..LEAST_TIME => reset,
                _ => reset.saturating_sub(unix_seconds),
            });
            let reset_seconds = reset.or_else(|| field(RETRY_AFTER));
            Some(UpstreamLimit {
                limit: field(X_RATELIMIT_LIMIT),
                remaining: number(remaining)?,
                reset_seconds,
                is_item: false,
            })
        });
        // Of equals the one that needs no item of its own.
        [listed, legacy].into_iter().flatten().min_by_key(|left| left.remaining)
    }

    /// The least of a `RateLimit`: a list of items with `r` and `t`, or `remaining=` and `reset=` as drafts before the
    /// eighth had it.
    fn in_list(headers: &HeaderMap) -> Option<UpstreamLimit> {
        let state = joined(headers, &RATELIMIT)?;
        if !is_list(&state) {
            let value = |key| split_unquoted(&state, ',').find_map(|item| parameter(item, key));
            let remaining = value("remaining")?;
            return Some(UpstreamLimit {
                limit: value("limit"),
                remaining,
                reset_seconds: value("reset"),
                is_item: false,
            });
        }
        let items = split_unquoted(&state, ',').filter_map(|item| Some((parameter(item, "r")?, item)));
        let (remaining, item) = items.min_by_key(|(remaining, _)| *remaining)?;
        let policy = joined(headers, &RATELIMIT_POLICY).unwrap_or_default();
        let mut policies = split_unquoted(&policy, ',');
        let limit =
            policies.find(|policy| name(policy) == name(item)).and_then(|policy| parameter(policy, "q"));
        Some(UpstreamLimit { limit, remaining, reset_seconds: parameter(item, "t"), is_item: true })
    }

    /// The numbers of `X-RateLimit-*`; what the upstream does not say is as the gateway's own.
    pub fn legacy(&self, [limit, _, reset]: [u64; 3], unix_seconds: u64) -> [u64; 3] {
        let reset = self.reset_seconds.map_or(reset, |seconds| unix_seconds.saturating_add(seconds));
        [self.limit.unwrap_or(limit).max(self.remaining), self.remaining, reset]
    }

    /// `RateLimit-Policy` and `RateLimit` with the upstream's items before the gateway's own. If no item says what is
    /// left, and it is less than `remaining`, the item `"upstream"` does.
    pub fn join(
        &self,
        headers: &HeaderMap,
        remaining: u64,
        own: (HeaderValue, HeaderValue),
    ) -> (HeaderValue, HeaderValue) {
        let list = |field| joined(headers, field).filter(|text| is_list(text));
        let (mut policy, mut state) = (list(&RATELIMIT_POLICY), list(&RATELIMIT));
        if !self.is_item && self.remaining < remaining {
            let reset = self.reset_seconds.map_or_else(String::new, |seconds| format!(";t={seconds}"));
            let limit = self.limit.unwrap_or_default().max(self.remaining);
            push(&mut policy, &format!("\"upstream\";q={limit}"));
            push(&mut state, &format!("\"upstream\";r={}{reset}", self.remaining));
        }
        let join = |mut theirs: Option<String>, own: HeaderValue| {
            push(&mut theirs, own.to_str().unwrap_or_default());
            theirs.and_then(|text| HeaderValue::try_from(text).ok()).unwrap_or(own)
        };
        (join(policy, own.0), join(state, own.1))
    }
}

fn push(list: &mut Option<String>, item: &str) {
    let list = list.get_or_insert_default();
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push_str(item);
}

/// All lines of a field as one.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines: Option<Vec<&str>> = headers.get_all(name).iter().map(|line| line.to_str().ok()).collect();
    lines.filter(|lines| !lines.is_empty()).map(|lines| lines.join(", "))
}

/// Whether every item has a name first, as the list of a structured field does (RFC 9651 section 3.1).
fn is_list(text: &str) -> bool {
    split_unquoted(text, ',')
        .all(|item| !name(item).is_empty() && (name(item).starts_with('"') || !name(item).contains('=')))
}

fn name(item: &str) -> &str {
    split_unquoted(item, ';').next().unwrap_or_default().trim()
}

fn parameter(item: &str, key: &str) -> Option<u64> {
    let value = |part: &str| digits(part.trim().strip_prefix(key)?.strip_prefix('=')?);
    split_unquoted(item, ';').find_map(value)
}

/// The first number of a field, behind which some list windows: `10, 10;w=1`.
fn number(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    digits(text.split([',', ';']).next()?.trim())
}

fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().map_or(SF_INTEGER_MAX, |number: u64| number.min(SF_INTEGER_MAX)))
}

/// In 2001; seconds until a reset are fewer.
const LEAST_TIME: u64 = 1_000_000_000;
