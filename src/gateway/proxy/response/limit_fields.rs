//! The rate-limit fields of an answer: `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11), and
//! the older `X-RateLimit-*`. `Retry-After` is `service/problem.rs`'s.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::proxy::config::LimitHeaders;
use crate::proxy::reservation::DecisionByStatus;
use crate::proxy::response::upstream_limits::{self, UpstreamLimit};
use crate::proxy::snapshot::Snapshot;
use limit::{Algorithm, Charge, Outcome, Quota};
use limiter::{Decision, Limiter, Provenance, SharedWindow};
use metrics::DecidingTier;
use observe::record::RemainingLimit;
use policy::RouteTable;
use policy::counting::{self, SF_INTEGER_MAX};

/// The rate-limit fields of one answer: of all windows, with the binding one first, the one with the least left.
#[derive(Debug, Default)]
pub struct RateLimitFields {
    ietf: Option<(HeaderValue, HeaderValue)>,
    /// Whether `X-RateLimit-*` are told.
    is_legacy: bool,
    /// Of the binding window: its limit, what is left of it, and the time at which it is whole.
    left: [u64; 3],
    /// Seconds until a unit is there again, if the request took the last.
    retry_seconds: Option<u64>,
    /// When the decision was made, by the wall clock.
    unix_seconds: u64,
    /// `RateLimit-Debug`, for who may see it.
    pub debug: Option<HeaderValue>,
    /// If the status of the answer says what of the decision is charged.
    pub unsettled: Option<Box<UnsettledFields>>,
}

/// What the fields of a decision are made of once it is settled.
#[derive(Debug)]
pub struct UnsettledFields {
    pub decided: Rc<DecisionByStatus>,
    pub snapshot: Arc<Snapshot>,
    pub limiter: Arc<Limiter>,
}

impl RateLimitFields {
    /// The fields of a decision made at `unix_seconds`. `policies` gives the value of `RateLimit-Policy`; `shared`: how the fleet
    /// shares a charge's window.
    pub fn of(
        style: LimitHeaders,
        unix_seconds: u64,
        table: &RouteTable,
        policies: impl FnOnce() -> Option<HeaderValue>,
        charges: &[Charge],
        decision: &Decision,
        shared: impl Fn(&Charge) -> Option<SharedWindow>,
    ) -> RateLimitFields {
        let is_shown = |charge: &Charge| counting::is_shown(&table.policies()[charge.policy.index()], charge);
        let binding = decision.binding.filter(|index| is_shown(&charges[*index]));
        let binding = binding.or_else(|| decision.binding_of(charges, is_shown));
        let Some(binding) = binding else { return RateLimitFields::default() };
        let left = |index: usize| {
            let (charge, outcome) = (&charges[index], &decision.outcomes[index]);
            let reset_ns = reset_ns(charge, outcome, decision.tier, unix_seconds, &shared);
            (remaining(charge, outcome), reset_ns.div_ceil(SECOND_NS))
        };
        let (remaining, reset_seconds) = left(binding);
        let ietf = matches!(style, LimitHeaders::Ietf | LimitHeaders::Both).then(|| {
            let window = |index: usize| (charges[index].policy, charges[index].window);
            // Once each, because several subjects may be charged in one window.
            let is_first = |index: usize| {
                window(index) != window(binding)
                    && (charges[index].part == 0 || (0..index).all(|other| window(other) != window(index)))
            };
            let others = (0..charges.len())
                .filter(|&index| is_shown(&charges[index]) && decision.is_known(index) && is_first(index));
            let mut state = Vec::with_capacity(ITEM_BYTES);
            push_item(table, &charges[binding], (remaining, reset_seconds), &mut state);
            others.for_each(|index| push_item(table, &charges[index], left(index), &mut state));
            Some((policies()?, HeaderValue::from_maybe_shared(bytes::Bytes::from(state)).ok()?))
        });
        let is_legacy = matches!(style, LimitHeaders::Legacy | LimitHeaders::Both);
        let left = [limit(&charges[binding]), remaining, unix_seconds + reset_seconds];
        let retry_seconds = (remaining == 0 && decision.is_admitted())
            .then(|| first_unit_seconds(&charges[binding].quota, reset_seconds));
        let ietf = ietf.flatten();
        RateLimitFields { ietf, is_legacy, left, retry_seconds, unix_seconds, debug: None, unsettled: None }
    }

    /// The same with what came back, because the status does not count.
    fn settled(self, unsettled: &UnsettledFields) -> RateLimitFields {
        let UnsettledFields { decided, snapshot, limiter } = unsettled;
        let Some(decision) = &*decided.settled.borrow() else { return self };
        let policies = || self.ietf.map(|(policies, _)| policies);
        let shared = |charge: &Charge| limiter.shared_window(charge);
        let (style, table) = (snapshot.limit_headers, &snapshot.table);
        let charges = &decided.charges;
        let fields =
            RateLimitFields::of(style, self.unix_seconds, table, policies, charges, decision, shared);
        RateLimitFields { debug: self.debug, ..fields }
    }

    /// Puts the fields on an answer. What an upstream's fields say stays where it is tighter: its items are joined with the
    /// gateway's own, the older fields tell the least of both, and `Retry-After` is the later.
    ///
    /// Most values are marked as never indexed (RFC 7541 section 7.1.3), because they change with every answer: in
    /// HPACK's table they would push out fields that do repeat. If `kept`, they are indexed all the same, for their
    /// names (see `answer_fields::keeps_names`).
    pub fn insert(mut self, headers: &mut HeaderMap, kept: bool) {
        if let Some(unsettled) = self.unsettled.take() {
            return self.settled(&unsettled).insert(headers, kept);
        }
        let changing = |mut value: HeaderValue| {
            value.set_sensitive(!kept);
            value
        };
        let unix_seconds = self.unix_seconds;
        if let Some(own) = self.retry_seconds
            && headers.contains_key(RETRY_AFTER)
            && upstream_limits::retry_after(headers, unix_seconds).is_none_or(|theirs| theirs < own)
        {
            headers.insert(RETRY_AFTER, own.into());
        }
        if let Some(debug) = self.debug {
            headers.insert(RATELIMIT_DEBUG, changing(debug));
        }
        if self.ietf.is_none() && !self.is_legacy {
            return;
        }
        let theirs = UpstreamLimit::of(headers, unix_seconds);
        let tighter = theirs.filter(|theirs| theirs.is_tighter(self.left, unix_seconds));
        let left @ [_, remaining, reset] =
            tighter.map_or(self.left, |theirs| theirs.left(self.left[2], unix_seconds));
        if let Some(own) = self.ietf {
            let (policy, state) = match &theirs {
                Some(theirs) => theirs.join(headers, tighter.is_some(), own),
                None => own,
            };
            headers.insert(RATELIMIT_POLICY, policy);
            headers.insert(RATELIMIT, changing(state));
        }
        let mut put = |names: [HeaderName; 3], [limit, remaining, reset]: [u64; 3]| {
            // Those of an upstream only where they do not say the same.
            let is_looser = |sent: &HeaderValue| upstream_limits::number(sent) != Some(remaining);
            let [limit_name, remaining_name, reset_name] = names;
            if self.is_legacy && limit_name == X_RATELIMIT[0]
                || headers.get_all(&remaining_name).iter().any(is_looser)
            {
                headers.insert(limit_name, limit.into());
                headers.insert(remaining_name, changing(remaining.into()));
                // What cannot be read may be later than all that can.
                let is_unread =
                    |sent: &HeaderValue| upstream_limits::seconds_until(sent, unix_seconds).is_none();
                if tighter.is_none() || !headers.get(&reset_name).is_some_and(is_unread) {
                    headers.insert(reset_name, changing(reset.into()));
                }
            }
        };
        put(X_RATELIMIT, left);
        if theirs.is_some() {
            put(DRAFT_RATELIMIT, [left[0], remaining, reset.saturating_sub(unix_seconds)]);
        }
    }
}

/// The numbers of the binding window, for logs and traces.
pub fn left(charges: &[Charge], decision: &Decision) -> Option<RemainingLimit> {
    let index = decision.binding?;
    let (charge, outcome) = (&charges[index], &decision.outcomes[index]);
    Some(RemainingLimit { limit: limit(charge), remaining: remaining(charge, outcome) })
}

/// What is told as the limit: `q` of `RateLimit-Policy`.
fn limit(charge: &Charge) -> u64 {
    charge.quota.capacity().min(SF_INTEGER_MAX)
}

/// What is told to be left, never more than the limit, because the quota that one address has while Redis is down is
/// larger than that of its policy.
pub fn remaining(charge: &Charge, outcome: &Outcome) -> u64 {
    outcome.remaining.min(limit(charge))
}

/// Seconds until an empty window has a unit again that is whole after so many, or later. A bucket gets its units one by one.
fn first_unit_seconds(quota: &Quota, reset_seconds: u64) -> u64 {
    let unit_ns = quota.period_ns().get() / quota.limit().get();
    let others_ns = quota.capacity().saturating_sub(1).saturating_mul(unit_ns);
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            reset_seconds.saturating_sub(others_ns / SECOND_NS)
        }
        Algorithm::Concurrency => 1,
        _ => reset_seconds,
    }
}

/// Appends an item of `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11, section 4): `"name";r=50;t=30`.
fn push_item(table: &RouteTable, charge: &Charge, (remaining, reset_seconds): (u64, u64), out: &mut Vec<u8>) {
    let window = &table.policies()[charge.policy.index()].windows[usize::from(charge.window)];
    let mut digits = itoa::Buffer::new();
    let open: &[u8] = if out.is_empty() { b"\"" } else { b", \"" };
    out.extend_from_slice(open);
    out.extend_from_slice(window.label.as_bytes());
    out.extend_from_slice(b"\";r=");
    out.extend_from_slice(digits.format(remaining).as_bytes());
    // Not for permits, because they come back when a request ends: there is no time to give.
    if window.quota.algorithm() != Algorithm::Concurrency {
        out.extend_from_slice(b";t=");
        out.extend_from_slice(digits.format(reset_seconds).as_bytes());
    }
}

/// Nanoseconds until a window is whole again; of one that the fleet shares whole seconds, if this node knows only those.
pub fn reset_ns(
    charge: &Charge,
    outcome: &Outcome,
    tier: DecidingTier,
    unix_seconds: u64,
    shared: impl Fn(&Charge) -> Option<SharedWindow>,
) -> u64 {
    let Some(seconds) = shared_reset(charge, outcome, tier, unix_seconds, shared) else {
        return outcome.reset_ns;
    };
    seconds.saturating_mul(SECOND_NS).max(outcome.retry_after_ns().unwrap_or(0))
}

/// Seconds until a window that the fleet shares is whole again, if this node knows only what is left of it. Shared windows
/// begin at multiples of their period, or with the calendar, on Redis's wall clock. `None` if a node has its own while Redis does
/// not answer.
fn shared_reset(
    charge: &Charge,
    outcome: &Outcome,
    tier: DecidingTier,
    unix_seconds: u64,
    shared: impl Fn(&Charge) -> Option<SharedWindow>,
) -> Option<u64> {
    if charge.plan.is_none() || outcome.remaining >= charge.quota.capacity() {
        return None;
    }
    // A log of few units is whole a period after its newest unit, which every answer says.
    let slides = charge.quota.algorithm() == Algorithm::SlidingWindow && !charge.quota.is_few();
    let is_window = slides || charge.quota.algorithm() == Algorithm::FixedWindow;
    // Redis says exactly when a window without leases is whole, of a leased one only what is left.
    let shared = is_window.then(|| shared(charge)).flatten()?;
    match tier {
        DecidingTier::Global if !shared.is_leased => return None,
        DecidingTier::Fallback if !shared.is_leased || !shared.answers => return None,
        _ => {}
    }
    let unix = shared.unix(Duration::from_secs(unix_seconds));
    // To the nearest second, because this node's clock is read in whole ones, and that of Redis is hardly ahead or behind.
    let ends_in = (charge.quota.window_left_ns(unix) + SECOND_NS / 2) / SECOND_NS;
    let period_seconds = charge.quota.period_ns().get().div_ceil(SECOND_NS);
    // What was spent in a sliding window counts, with falling weight, until the end of the next.
    Some(if slides { ends_in + period_seconds } else { ends_in })
}

/// Whole seconds, up to a tenth and at most a minute late so that refused clients do not all come back at once, and never
/// early: a client that heeds it must not be refused again. Rounding up is late, too: nothing is added to it, and short
/// waits, of which it is the larger part, have no jitter.
pub fn jittered(wait_ns: u64, random: u64) -> u64 {
    let spread_ns = if wait_ns < SPREAD_FROM_NS { 0 } else { (wait_ns / 10).min(LATE_MAX_NS) };
    // Below a minute times a thousand, so it fits.
    let late_ns = spread_ns * (random % 1_000) / 1_000;
    let rounded = wait_ns.div_ceil(SECOND_NS).max(1);
    rounded.max(wait_ns.saturating_add(late_ns) / SECOND_NS)
}

/// The value of `RateLimit-Debug`: `policy="search";window="search-1h";decided=lease;age=0.25;node=edge-1`, the age in seconds;
/// without an age where Redis has no part.
pub fn debug(table: &RouteTable, charge: &Charge, provenance: Provenance, node: &str) -> Option<HeaderValue> {
    let policy = &table.policies()[charge.policy.index()];
    let window = &policy.windows[usize::from(charge.window)].label;
    let Provenance { by, age_ns } = provenance;
    let age = age_ns.map_or_else(String::new, |age_ns| format!(";age={:.3}", age_ns as f64 / 1e9));
    let name = &policy.name;
    HeaderValue::try_from(format!("policy=\"{name}\";window=\"{window}\";decided={by}{age};node={node}")).ok()
}

const SECOND_NS: u64 = 1_000_000_000;
/// Enough for an item with a usual name.
const ITEM_BYTES: usize = 64;
/// The shortest wait that has jitter.
const SPREAD_FROM_NS: u64 = 5 * SECOND_NS;
/// The most that a `Retry-After` is late.
const LATE_MAX_NS: u64 = 60 * SECOND_NS;
const RATELIMIT_DEBUG: HeaderName = HeaderName::from_static("ratelimit-debug");
pub(in crate::proxy) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(in crate::proxy) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// The limit, what is left of it and when it is whole, in Unix seconds.
pub(in crate::proxy) const X_RATELIMIT: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];
/// The same as drafts before the eighth had it: in seconds from now.
pub(in crate::proxy) const DRAFT_RATELIMIT: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU32, NonZeroU64};

    use super::*;
    use limit::{Answer, Key, PlanId};

    #[test]
    fn a_retry_is_never_early_and_late_by_a_tenth_or_a_minute() {
        let waits =
            [1, 900_000_000, 1_000_000_000, 1_999_999_999, 4_999_999_999, 5_000_000_001, 10_000_000_000];
        let waits =
            waits.into_iter().chain([600, 3_600, 86_400, 30 * 86_400].map(|seconds| seconds * SECOND_NS));
        for (wait_ns, random) in waits.flat_map(|wait_ns| (0..1_000).map(move |random| (wait_ns, random))) {
            let (told_ns, rounded_ns) =
                (jittered(wait_ns, random) * SECOND_NS, wait_ns.div_ceil(SECOND_NS) * SECOND_NS);
            let late_max = if wait_ns < 5 * SECOND_NS { 0 } else { (wait_ns / 10).min(60 * SECOND_NS) };
            assert!(told_ns >= wait_ns, "{wait_ns} early: {told_ns}");
            assert!(told_ns <= rounded_ns.max(wait_ns + late_max), "{wait_ns} late: {told_ns}");
        }
        assert_eq!((jittered(10 * SECOND_NS, 0), jittered(11 * SECOND_NS, 999)), (10, 12), "it spreads");
        assert!((jittered(86_400 * SECOND_NS, 0), jittered(86_400 * SECOND_NS, 999)) == (86_400, 86_459));
        assert!(jittered(u64::MAX, 999) > 0);
    }

    #[test]
    fn no_more_is_left_than_the_quota_that_is_told() {
        for algorithm in Algorithm::ALL {
            for (units, seconds, burst, shown) in [
                (100, 1, 200, "q=200;w=2"),
                (60, 60, 3, "q=3;w=3"),
                (1_000, 1, 10, "q=10;w=1"),
                (1, 86_400, 2, "q=2;w=172800"),
            ] {
                let [units, period_ns, burst] = [units, seconds * SECOND_NS, burst]
                    .map(|number| NonZeroU64::new(number).expect("none of them is zero"));
                let quota = Quota::new(algorithm, units, period_ns, burst);
                let item = policy::counting::item("a", &quota, 0);
                let charge = Charge::one(Key::default(), quota);
                let told = format!("\"a\";q={}", limit(&charge));
                assert!(item == told.clone() || item.starts_with(&(told + ";")), "{algorithm:?}: {item}");
                if algorithm == Algorithm::TokenBucket {
                    assert_eq!(item, format!("\"a\";{shown}"));
                }
                for left in [0, 1, quota.capacity(), quota.capacity() * 10, u64::MAX] {
                    let outcome = Outcome::new(Answer::Admitted, left, 0);
                    assert!(remaining(&charge, &outcome) <= limit(&charge));
                }
            }
        }
    }

    #[test]
    fn the_tighter_of_two_limits_stays_and_both_families_tell_it() {
        const NOW: u64 = 1_800_000_000;
        // What an upstream says, and what then stands in `RateLimit-Policy`, `RateLimit`, and the older three fields.
        let own = ("\"a\";q=1000;w=60", "\"a\";r=999;t=1", "1000 999 1800000001");
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str, &'a str);
        let cases: &[Case<'_>] = &[
            (&[], own.0, own.1, own.2),
            (&[("retry-after", "99")], own.0, own.1, own.2),
            (&[("x-ratelimit-remaining", "unlimited")], own.0, own.1, own.2),
            (&[("x-ratelimit-remaining", "5000"), ("x-ratelimit-limit", "6000")], own.0, own.1, own.2),
            (
                &[("x-ratelimit-remaining", "0"), ("retry-after", "99")],
                "\"upstream\";q=0, \"a\";q=1000;w=60",
                "\"upstream\";r=0;t=99, \"a\";r=999;t=1",
                "0 0 1800000099",
            ),
            (
                &[("x-ratelimit-remaining", "-5"), ("x-ratelimit-limit", "10")],
                "\"upstream\";q=10, \"a\";q=1000;w=60",
                "\"upstream\";r=0, \"a\";r=999;t=1",
                "10 0 1800000001",
            ),
            (
                &[("x-ratelimit-remaining", "7, 8;w=1"), ("x-ratelimit-remaining", "2.5")],
                "\"upstream\";q=2, \"a\";q=1000;w=60",
                "\"upstream\";r=2, \"a\";r=999;t=1",
                "2 2 1800000001",
            ),
            (
                &[("ratelimit-policy", "\"u\";q=50"), ("ratelimit", "\"u\";r=-1;t=5")],
                "\"u\";q=50, \"a\";q=1000;w=60",
                "\"u\";r=-1;t=5, \"a\";r=999;t=1",
                "50 0 1800000005",
            ),
            (
                &[
                    ("x-ratelimit-limit", "10, 10;w=1"),
                    ("x-ratelimit-remaining", "3"),
                    ("x-ratelimit-reset", "1800000007"),
                ],
                "\"upstream\";q=10, \"a\";q=1000;w=60",
                "\"upstream\";r=3;t=7, \"a\";r=999;t=1",
                "10 3 1800000007",
            ),
            (
                &[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "1800000050999")],
                "\"upstream\";q=3, \"a\";q=1000;w=60",
                "\"upstream\";r=3;t=51, \"a\";r=999;t=1",
                "3 3 1800000051",
            ),
            (
                &[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "2027-01-15T09:00:00+01:00")],
                "\"upstream\";q=3, \"a\";q=1000;w=60",
                "\"upstream\";r=3;t=1, \"a\";r=999;t=1",
                "3 3 1800000001",
            ),
            (
                &[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "Fri, 15 Jan 2027 08:00:40 GMT")],
                "\"upstream\";q=3, \"a\";q=1000;w=60",
                "\"upstream\";r=3;t=40, \"a\";r=999;t=1",
                "3 3 1800000040",
            ),
            (
                &[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "1m30s")],
                "\"upstream\";q=3, \"a\";q=1000;w=60",
                "\"upstream\";r=3, \"a\";r=999;t=1",
                "3 3 1m30s",
            ),
            (
                &[("ratelimit-policy", "\"u, v\";q=50;w=9"), ("ratelimit", "\"u, v\";r=7;t=5")],
                "\"u, v\";q=50;w=9, \"a\";q=1000;w=60",
                "\"u, v\";r=7;t=5, \"a\";r=999;t=1",
                "50 7 1800000005",
            ),
            (
                &[("ratelimit", "\"u\";r=5000;t=5"), ("ratelimit", "\"v\";r=4000")],
                own.0,
                "\"a\";r=999;t=1, \"u\";r=5000;t=5, \"v\";r=4000",
                own.2,
            ),
            (
                &[("ratelimit", "\"u\";r=8"), ("x-ratelimit-remaining", "2"), ("x-ratelimit-reset", "6")],
                "\"upstream\";q=2, \"a\";q=1000;w=60",
                "\"upstream\";r=2;t=6, \"u\";r=8, \"a\";r=999;t=1",
                "2 2 1800000006",
            ),
            (
                &[("ratelimit", "limit=20, remaining=4, reset=3")],
                "\"upstream\";q=20, \"a\";q=1000;w=60",
                "\"upstream\";r=4;t=3, \"a\";r=999;t=1",
                "20 4 1800000003",
            ),
            (
                &[("ratelimit-limit", "9"), ("ratelimit-remaining", "2"), ("ratelimit-reset", "30")],
                "\"upstream\";q=9, \"a\";q=1000;w=60",
                "\"upstream\";r=2;t=30, \"a\";r=999;t=1",
                "9 2 1800000030",
            ),
            (
                &[("ratelimit-policy", "\"u\";q=50, \"a\";q=60"), ("ratelimit", "\"u\";r=9, \"a\";r=7;t=5")],
                "\"u\";q=50, \"upstream-a\";q=60, \"a\";q=1000;w=60",
                "\"upstream-a\";r=7;t=5, \"u\";r=9, \"a\";r=999;t=1",
                "60 7 1800000005",
            ),
        ];
        for (upstream, policy, state, legacy) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in *upstream {
                headers.append(*name, HeaderValue::from_static(value));
            }
            let ietf = Some((HeaderValue::from_static(own.0), HeaderValue::from_static(own.1)));
            let left = [1_000, 999, NOW + 1];
            RateLimitFields { ietf, is_legacy: true, left, unix_seconds: NOW, ..RateLimitFields::default() }
                .insert(&mut headers, true);
            let shown = |name: HeaderName| {
                assert_eq!(headers.get_all(&name).iter().count(), 1, "{upstream:?}");
                headers[name].to_str().expect("a text").to_owned()
            };
            assert_eq!((&*shown(RATELIMIT_POLICY), &*shown(RATELIMIT)), (*policy, *state), "{upstream:?}");
            let three = X_RATELIMIT.map(shown).join(" ");
            assert_eq!(three, *legacy, "{upstream:?}");
        }
    }

    #[test]
    fn nothing_that_an_upstream_says_is_looser_than_the_gateway_s_own() {
        const NOW: u64 = 1_800_000_000;
        let said = |sent: &[(&'static str, &'static str)], is_legacy: bool| {
            let mut headers = HeaderMap::new();
            for (name, value) in sent {
                headers.append(*name, HeaderValue::from_static(value));
            }
            let own = ["\"tight\";q=5;w=60", "\"tight\";r=0;t=30"].map(HeaderValue::from_static);
            let [policy, state] = own;
            RateLimitFields {
                ietf: Some((policy, state)),
                is_legacy,
                left: [5, 0, NOW + 30],
                retry_seconds: Some(30),
                unix_seconds: NOW,
                ..RateLimitFields::default()
            }
            .insert(&mut headers, true);
            move |name: &str| headers.get(name).map(|value| value.to_str().expect("text").to_owned())
        };
        let both = said(&[("ratelimit", "\"up\";r=50;t=10")], true);
        assert_eq!(both("ratelimit").as_deref(), Some("\"tight\";r=0;t=30, \"up\";r=50;t=10"));
        assert_eq!(both("ratelimit-remaining"), None, "nobody asked for it");
        for (remaining, reset, told) in [
            ("ratelimit-remaining", "ratelimit-reset", "30"),
            ("x-ratelimit-remaining", "x-ratelimit-reset", "1800000030"),
        ] {
            let older = said(&[(remaining, "50")], false);
            assert_eq!((older(remaining).as_deref(), older(reset).as_deref()), (Some("0"), Some(told)));
        }
        // An hour of the upstream, a second of it, a date of each.
        for (theirs, told) in [
            ("3600", "3600"),
            ("1", "30"),
            ("1.5", "30"),
            ("-1", "30"),
            ("abc", "30"),
            ("", "30"),
            ("Fri, 15 Jan 2027 09:00:00 GMT", "Fri, 15 Jan 2027 09:00:00 GMT"),
            ("Fri, 15 Jan 2027 08:00:01 GMT", "30"),
        ] {
            assert_eq!(said(&[("retry-after", theirs)], true)("retry-after").as_deref(), Some(told));
        }
        assert_eq!(said(&[], true)("retry-after"), None);
        // Of equals the one that is whole later.
        let equal = said(&[("ratelimit", "\"up\";r=0;t=99")], true);
        assert_eq!(equal("ratelimit").as_deref(), Some("\"up\";r=0;t=99, \"tight\";r=0;t=30"));
        assert_eq!(equal("x-ratelimit-reset").as_deref(), Some("1800000099"));
    }

    #[test]
    fn a_bucket_has_its_next_unit_long_before_it_is_whole() {
        let quota = |algorithm| {
            let [units, period_ns] =
                [60, 60 * SECOND_NS].map(|number| NonZeroU64::new(number).expect("not zero"));
            Quota::new(algorithm, units, period_ns, units)
        };
        assert_eq!(first_unit_seconds(&quota(Algorithm::TokenBucket), 60), 1);
        assert_eq!(first_unit_seconds(&quota(Algorithm::FixedWindow), 41), 41);
    }

    #[test]
    fn a_shared_sliding_window_is_whole_when_the_next_one_ends() {
        let (limit, period_ns) = (NonZeroU64::new(60), NonZeroU64::new(60 * SECOND_NS));
        let (limit, period_ns) = (limit.expect("not zero"), period_ns.expect("not zero"));
        let quota = Quota::new(Algorithm::SlidingWindow, limit, period_ns, limit);
        let charge =
            Charge { plan: Some(PlanId::new(NonZeroU32::MIN)), ..Charge::one(Key::default(), quota) };
        let reset = |remaining, tier, unix_seconds, is_leased| {
            let outcome = Outcome::new(Answer::Admitted, remaining, 9 * SECOND_NS);
            let shared = SharedWindow { is_leased, answers: tier != DecidingTier::Fallback, ahead_us: 0 };
            shared_reset(&charge, &outcome, tier, unix_seconds, |_| Some(shared))
        };
        // Ten requests in the last second of a minute, one fourteen seconds later: whoever decided them.
        for tier in [DecidingTier::Local, DecidingTier::Global] {
            assert_eq!(reset(50, tier, 59, true), Some(61), "{tier:?}");
            assert_eq!(reset(51, tier, 73, true), Some(107), "{tier:?}");
        }
        assert_eq!(reset(51, DecidingTier::Global, 73, false), None, "Redis has said it exactly");
        assert_eq!(reset(51, DecidingTier::Fallback, 73, true), None);
        // An answer that was late once makes it no other window.
        let late = SharedWindow { is_leased: true, answers: true, ahead_us: 0 };
        let outcome = Outcome::new(Answer::Admitted, 51, 9 * SECOND_NS);
        assert_eq!(shared_reset(&charge, &outcome, DecidingTier::Fallback, 73, |_| Some(late)), Some(107));
        // By the clock of Redis, which is a minute and a half ahead, or behind.
        let fixed = Charge { quota: quota.counted_by(Algorithm::FixedWindow), ..charge };
        for (ahead_us, ends_in) in
            [(0, 47), (-300, 47), (300, 47), (90_000_000, 17), (-90_000_000, 17), (-100_000_000, 27)]
        {
            let shared = |_: &Charge| Some(SharedWindow { is_leased: true, answers: true, ahead_us });
            let outcome = Outcome::new(Answer::Later { retry_after_ns: 1 }, 0, 0);
            let told = reset_ns(&fixed, &outcome, DecidingTier::Local, 673, shared);
            assert_eq!(told, ends_in * SECOND_NS, "{ahead_us}");
        }
        // No sooner than a refused client may come back.
        let shared = |_: &Charge| Some(SharedWindow { is_leased: false, answers: true, ahead_us: 0 });
        let outcome = Outcome::new(Answer::Later { retry_after_ns: 107 * SECOND_NS }, 0, 0);
        assert_eq!(reset_ns(&fixed, &outcome, DecidingTier::Local, 673, shared), 107 * SECOND_NS);
        assert_eq!(reset(60, DecidingTier::Local, 73, true), None, "it is whole");
    }
}
