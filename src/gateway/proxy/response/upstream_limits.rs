//! The rate-limit fields of an upstream's answer, read so that the gateway's own do not hide a tighter limit.

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::proxy::response::limit_fields::{DRAFT_RATELIMIT, RATELIMIT, RATELIMIT_POLICY, X_RATELIMIT};
use base::clock;
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
        // Most answers have none of the fields, and looking at all names costs less than asking for each.
        let is_limit = |name: &str| name.strip_prefix("x-").unwrap_or(name).starts_with("ratelimit");
        if !headers.keys().any(|name| is_limit(name.as_str())) {
            return None;
        }
        let three = |[limit, remaining, reset]: [HeaderName; 3]| {
            let reset = headers.get(reset).and_then(|reset| seconds_until(reset, unix_seconds));
            Some(UpstreamLimit {
                limit: headers.get(limit).and_then(number),
                remaining: least_left(headers, &remaining)?,
                reset_seconds: reset.or_else(|| retry_after(headers, unix_seconds)),
                is_item: false,
            })
        };
        // Of equals the one that needs no item of its own.
        [UpstreamLimit::in_list(headers), three(X_RATELIMIT), three(DRAFT_RATELIMIT)]
            .into_iter()
            .flatten()
            .min_by_key(|left| left.remaining)
    }

    /// The least of a `RateLimit`: a list of items with `r` and `t`, or `remaining=` and `reset=` as drafts before the
    /// eighth had it.
    fn in_list(headers: &HeaderMap) -> Option<UpstreamLimit> {
        let state = joined(headers, &RATELIMIT)?;
        if !is_list(&state) {
            let value = |key| split_unquoted(&state, ',').find_map(|item| parameter(item, key));
            let remaining = split_unquoted(&state, ',').find_map(|item| left_of(item, "remaining"))?;
            return Some(UpstreamLimit {
                limit: value("limit"),
                remaining,
                reset_seconds: value("reset"),
                is_item: false,
            });
        }
        let items = split_unquoted(&state, ',').filter_map(|item| Some((left_of(item, "r")?, item)));
        let (remaining, item) = items.min_by_key(|(remaining, _)| *remaining)?;
        let policy = joined(headers, &RATELIMIT_POLICY).unwrap_or_default();
        let mut policies = split_unquoted(&policy, ',');
        let limit =
            policies.find(|policy| name(policy) == name(item)).and_then(|policy| parameter(policy, "q"));
        Some(UpstreamLimit { limit, remaining, reset_seconds: parameter(item, "t"), is_item: true })
    }

    /// Whether a client reaches this limit before one of which so much is left.
    pub fn is_tighter(&self, [_, remaining, reset]: [u64; 3], unix_seconds: u64) -> bool {
        let is_later = |seconds: u64| unix_seconds.saturating_add(seconds) > reset;
        self.remaining < remaining || self.remaining == remaining && self.reset_seconds.is_some_and(is_later)
    }

    /// The limit, what is left of it, and when it is whole: if the upstream does not say, as soon as the gateway's own.
    pub fn left(&self, own_reset: u64, unix_seconds: u64) -> [u64; 3] {
        let reset = self.reset_seconds.map_or(own_reset, |seconds| unix_seconds.saturating_add(seconds));
        [self.least_limit(), self.remaining, reset]
    }

    /// The limit, or if the upstream does not say it what is left, because the gateway's own may be larger.
    fn least_limit(&self) -> u64 {
        self.limit.unwrap_or_default().max(self.remaining)
    }

    /// `RateLimit-Policy` and `RateLimit` with the upstream's items and the gateway's own. The upstream's come first if its
    /// limit `is_tighter`, with that limit in front; if no item says it, the item `"upstream"` does.
    pub fn join(
        &self,
        headers: &HeaderMap,
        is_tighter: bool,
        own: (HeaderValue, HeaderValue),
    ) -> (HeaderValue, HeaderValue) {
        let own_names = own.0.to_str().unwrap_or_default().to_owned();
        let items = |field| {
            let list = joined(headers, field).filter(|text| is_list(text)).unwrap_or_default();
            let items = split_unquoted(&list, ',').map(str::trim).filter(|item| !item.is_empty());
            items.map(|item| distinct(item, &own_names)).collect::<Vec<String>>()
        };
        let (mut policies, mut state) = (items(&RATELIMIT_POLICY), items(&RATELIMIT));
        if is_tighter && self.is_item {
            let left = |item: &String| left_of(item, "r").unwrap_or(u64::MAX);
            // Stable: the others stay in the upstream's order.
            state.sort_by_key(|item| left(item) != self.remaining);
        } else if is_tighter {
            let reset = self.reset_seconds.map_or_else(String::new, |seconds| format!(";t={seconds}"));
            let taken = format!("{own_names}, {}", state.join(", "));
            let item = |parameters: String| distinct(&format!("\"upstream\"{parameters}"), &taken);
            policies.insert(0, item(format!(";q={}", self.least_limit())));
            state.insert(0, item(format!(";r={}{reset}", self.remaining)));
        }
        let join = |mut items: Vec<String>, own: HeaderValue| {
            let place = if is_tighter { items.len() } else { 0 };
            items.insert(place, own.to_str().unwrap_or_default().to_owned());
            HeaderValue::try_from(items.join(", ")).unwrap_or(own)
        };
        (join(policies, own.0), join(state, own.1))
    }
}

/// An upstream's item under a name that none of these items has.
fn distinct(item: &str, taken: &str) -> String {
    let mut told = name(item).trim_matches('"').to_owned();
    let parameters = &item[name(item).len()..];
    let is_taken = |told: &str| split_unquoted(taken, ',').any(|other| name(other).trim_matches('"') == told);
    if !is_taken(&told) {
        return item.to_owned();
    }
    while is_taken(&told) {
        told.insert_str(0, "upstream-");
    }
    format!("\"{told}\"{parameters}")
}

/// The seconds of `Retry-After`, which may be a date (RFC 9110 section 10.2.3).
pub(in crate::proxy) fn retry_after(headers: &HeaderMap, unix_seconds: u64) -> Option<u64> {
    headers.get(RETRY_AFTER).and_then(|value| seconds_until(value, unix_seconds))
}

/// Seconds until the time that a field says: in HTTP's form or that of RFC 3339, since 1970 in seconds or parts of one, or from
/// now. Numbers are told apart by their size, because no time in seconds is that small, and none that large.
pub(in crate::proxy) fn seconds_until(value: &HeaderValue, unix_seconds: u64) -> Option<u64> {
    let text = value.to_str().ok()?.trim();
    let time =
        || Some(OffsetDateTime::parse(text, &Rfc3339).ok()?.unix_timestamp().max(0).unsigned_abs() + 1);
    if let Some(time) = clock::unix_seconds_of_http_date(text).or_else(time) {
        return Some(time.saturating_sub(unix_seconds));
    }
    let first = text.split([',', ';']).next()?.trim();
    let (whole, part) = first.split_once('.').unwrap_or((first, "0"));
    let mut number = digits(whole)? + u64::from(digits(part)? > 0);
    while number >= LARGEST_TIME {
        number = number.div_ceil(1_000);
    }
    Some(if number < LEAST_TIME { number } else { number.saturating_sub(unix_seconds) })
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
    parameter_text(item, key).and_then(digits)
}

fn parameter_text<'i>(item: &'i str, key: &str) -> Option<&'i str> {
    split_unquoted(item, ';').find_map(|part| part.trim().strip_prefix(key)?.strip_prefix('='))
}

/// What an item says is left.
fn left_of(item: &str, key: &str) -> Option<u64> {
    parameter_text(item, key).and_then(units_left)
}

/// The least of all that the lines of a field say is left.
fn least_left(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    let items = lines.flat_map(|line| line.split(','));
    items.filter_map(|item| units_left(item.split(';').next()?.trim())).min()
}

/// What is left: nothing of a limit that is overdrawn, and whole units, because a part of one admits no request.
fn units_left(text: &str) -> Option<u64> {
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    match whole.strip_prefix('-') {
        Some(overdrawn) => digits(overdrawn).map(|_| 0),
        None => digits(whole),
    }
}

/// The first number of a field, behind which some list windows: `10, 10;w=1`.
pub(in crate::proxy) fn number(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    digits(text.split([',', ';']).next()?.trim())
}

fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().map_or(SF_INTEGER_MAX, |number: u64| number.min(SF_INTEGER_MAX)))
}

/// In 2001; seconds until a reset are fewer.
const LEAST_TIME: u64 = 1_000_000_000;
/// In the year 5138; milliseconds since 1970 are more, from 1973 on.
const LARGEST_TIME: u64 = 100_000_000_000;
