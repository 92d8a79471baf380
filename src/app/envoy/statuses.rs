//! What a check is answered with: a status for each descriptor, and the rate-limit fields that an answer of the proxy has.

use http::HeaderMap;
use prost_types::Duration;

use gateway::proxy::response::limit_fields::{self, RateLimitFields};
use gateway::proxy::snapshot::Snapshot;
use limit::{Calendar, CalendarUnit, Charge, Outcome, TrialSet};
use limiter::{Check, Limiter};
use rls::{DescriptorStatus, HeaderValue, RateLimit, RateLimitCode, RateLimitResponse, RateLimitUnit};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleMatch {
    /// It passes, and nothing is counted.
    Passed,
    Denied,
    Limited,
}

pub(super) struct Answer<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) limiter: &'s Limiter,
    pub(super) unix_seconds: u64,
    pub(super) random: u64,
}

pub(super) fn passed(descriptors: usize) -> RateLimitResponse {
    RateLimitResponse {
        overall_code: RateLimitCode::Ok.into(),
        statuses: vec![ok(); descriptors],
        response_headers_to_add: Vec::new(),
    }
}

/// The answer without fields; `limited` has the statuses of the descriptors that policies decide.
pub(super) fn answered(
    overall: RateLimitCode,
    found: &[RuleMatch],
    mut limited: impl Iterator<Item = DescriptorStatus>,
) -> RateLimitResponse {
    let status = |found: &RuleMatch| match found {
        RuleMatch::Passed => ok(),
        RuleMatch::Denied => over_limit(),
        RuleMatch::Limited => limited.next().unwrap_or_else(ok),
    };
    RateLimitResponse {
        overall_code: overall.into(),
        statuses: found.iter().map(status).collect(),
        response_headers_to_add: Vec::new(),
    }
}

/// Over a limit that has no number.
pub(super) fn over_limit() -> DescriptorStatus {
    DescriptorStatus { code: RateLimitCode::OverLimit.into(), ..DescriptorStatus::default() }
}

fn ok() -> DescriptorStatus {
    DescriptorStatus { code: RateLimitCode::Ok.into(), ..DescriptorStatus::default() }
}

impl Answer<'_> {
    pub(super) fn of(&self, found: &[RuleMatch], check: &Check<'_>) -> RateLimitResponse {
        let overall = if check.is_admitted() { RateLimitCode::Ok } else { RateLimitCode::OverLimit };
        let answer = answered(overall, found, (0..).map(|part| self.status(part, check)));
        RateLimitResponse { response_headers_to_add: self.fields(check), ..answer }
    }

    /// The status of one of the subjects. Windows of shadows are not in it, because what it says reaches the proxy's
    /// clients.
    pub(super) fn status(&self, part: u16, check: &Check<'_>) -> DescriptorStatus {
        if check.blocked.is_some() {
            return over_limit();
        }
        if check.missing.is_some() && check.event.counts.iter().any(|count| count.part == part) {
            return over_limit();
        }
        let windows = check.charges.iter().zip(&check.decision.outcomes);
        // Not of a candidate, because what it would do is no business of the client's.
        let windows = windows.filter(|(charge, _)| charge.part == part && charge.world() == TrialSet::OWN);
        let windows = windows.filter(|(charge, _)| !charge.shadow);
        let windows: smallvec::SmallVec<[(&Charge, &Outcome); 4]> = windows.collect();
        let refusing = windows.iter().filter(|(_, outcome)| !outcome.is_admitted());
        // `None` counts as the longest, because it means never.
        let refusing = refusing.max_by_key(|(_, outcome)| outcome.retry_after_ns().unwrap_or(u64::MAX));
        let least =
            windows.iter().min_by_key(|(_, outcome)| (outcome.remaining, u64::MAX - outcome.reset_ns));
        let Some((charge, outcome)) = refusing.or(least) else { return ok() };
        let code = if refusing.is_some() { RateLimitCode::OverLimit } else { RateLimitCode::Ok };
        let shared = |charge: &Charge| self.limiter.shared_window(charge);
        let reset_ns =
            limit_fields::reset_ns(charge, outcome, check.decision.tier, self.unix_seconds, shared);
        DescriptorStatus {
            code: code.into(),
            current_limit: Some(self.limit(charge)),
            limit_remaining: limit_fields::remaining(charge, outcome).try_into().unwrap_or(u32::MAX),
            duration_until_reset: Some(duration(reset_ns)),
        }
    }

    fn limit(&self, charge: &Charge) -> RateLimit {
        let policy = &self.snapshot.table.policies()[charge.policy.index()];
        // The same quota as in the fields; what fills in no whole unit has none.
        let whole_ns = charge.quota.whole_ns();
        let of_length =
            || RateLimitUnit::TIMED.into_iter().find(|unit| unit.seconds() * SECOND_NS == whole_ns);
        let unit = match charge.quota.calendar().map(Calendar::unit) {
            None => of_length(),
            Some(CalendarUnit::Day) => Some(RateLimitUnit::Day),
            Some(CalendarUnit::Week) => Some(RateLimitUnit::Week),
            Some(CalendarUnit::Month) => Some(RateLimitUnit::Month),
            Some(CalendarUnit::Year) => Some(RateLimitUnit::Year),
        };
        RateLimit {
            requests_per_unit: charge.quota.capacity().try_into().unwrap_or(u32::MAX),
            unit: unit.unwrap_or(RateLimitUnit::Unknown).into(),
            name: policy.windows[usize::from(charge.window)].label.to_string(),
        }
    }

    /// The fields that the proxy's answer would have, and `Retry-After`.
    fn fields(&self, check: &Check<'_>) -> Vec<HeaderValue> {
        let Check { charges, decision, .. } = check;
        if charges.is_empty() {
            return Vec::new();
        }
        let table = &self.snapshot.table;
        let shared = |charge: &Charge| self.limiter.shared_window(charge);
        let policies = || table.rate_limit_policies(charges, self.unix_seconds);
        let style = self.snapshot.limit_headers;
        let fields =
            RateLimitFields::of(style, self.unix_seconds, table, policies, charges, decision, shared);
        let mut headers = HeaderMap::new();
        fields.insert(&mut headers, true);
        let text = |value: &http::HeaderValue| Some(value.to_str().ok()?.to_owned());
        let shown = headers.iter().filter_map(|(name, value)| Some((name.as_str(), text(value)?)));
        let mut shown: Vec<HeaderValue> =
            shown.map(|(key, value)| HeaderValue { key: key.to_owned(), value }).collect();
        if !decision.is_admitted()
            && let Some(wait_ns) = decision.retry_after_ns()
        {
            let value = limit_fields::jittered(wait_ns, self.random).to_string();
            shown.push(HeaderValue { key: "retry-after".to_owned(), value });
        }
        shown
    }
}

fn duration(ns: u64) -> Duration {
    Duration {
        seconds: (ns / SECOND_NS).try_into().unwrap_or(i64::MAX),
        // It fits, because it is below a second.
        nanos: (ns % SECOND_NS) as i32,
    }
}

const SECOND_NS: u64 = 1_000_000_000;
