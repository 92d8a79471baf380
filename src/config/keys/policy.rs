//! The keys of `[policy.*]`, `[tier.*]` and `[rls.*]`.

use std::time::Duration;

use ::policy::definition::Missing;
use limit::{Algorithm, Penalty, WhenDown};

use super::KeyDefault::{Beside, Defaults, Means, Needs, Required, RequiredBut, Value, ValueBeside};
use super::Kind::{
    self, Any, Bool, Entry, Field, List, Map, Number, Only, Open, Secret, Share, Size, Table, Text, Texts,
    Time, TimeWithin, Words,
};
use super::{MS, SECOND, sections, words};

pub const MISSING: [(&str, Missing); 3] =
    [("ip", Missing::Ip), ("skip", Missing::Skip), ("reject", Missing::Reject)];
pub const WHEN_DOWN: [(&str, WhenDown); 3] =
    [("local", WhenDown::Local), ("allow", WhenDown::Allow), ("deny", WhenDown::Deny)];
/// The values of `headers`: whether the policy is hidden.
pub const HEADERS: [(&str, bool); 1] = [("none", true)];
/// The values of `algorithm`. Concurrency is not one of them: `in flight` in the limit selects it.
pub const ALGORITHMS: [(&str, Algorithm); 5] = [
    ("token-bucket", Algorithm::TokenBucket),
    ("sliding-window", Algorithm::SlidingWindow),
    ("fixed-window", Algorithm::FixedWindow),
    ("sliding-log", Algorithm::SlidingLog),
    ("leaky-bucket", Algorithm::LeakyBucket),
];
const WITHIN_MAX: Duration = Duration::from_nanos(Penalty::WITHIN_NS_MAX);
const PENALTY_MAX: Duration = Duration::from_secs(Penalty::SECONDS_MAX as u64);
const SHARE_OR_ZERO: Kind = Any(&[Share, Only("0")]);
/// The highest cost, because a higher one is surely a typing error; sums of costs stay far from overflow.
const COST_MAX: u64 = 1_000_000_000;
/// As much of bytes for one unit.
const UNIT_BYTES_MAX: u64 = 1 << 40;

sections! {
    POLICY = "[policy.<name>]", "policy" {
        "by": Texts, RequiredBut("replaces");
        "limit": Any(&[Texts, Map(&Any(&[Texts, Table(&TIER_PART)]))]),
            Needs("a policy needs `limit`", "write `limit = \"100/m\"`");
        "default-tier": Text, Means("the strictest");
        "algorithm": Words(|| words(&ALGORITHMS)), Means("`\"token-bucket\"`; for calendar limits `\"fixed-window\"`");
        "time-zone": Text, Means("UTC");
        "anchor": Number(1, 31), Means("1");
        "anchor-claim": Text;
        "max-delay": Time(MS);
        "missing": Words(|| words(&MISSING)), Value("ip");
        "match": Table(&MATCH), Means("all");
        "cost": Any(&[Number(1, COST_MAX), Open(&COST, &Number(0, COST_MAX))]), Value("1");
        "count": Table(&COUNT), Means("all");
        "exempt": Table(&EXEMPT);
        "shadow": Bool, Value("false");
        "headers": Words(|| words(&HEADERS)), Means("as in `[limits]`");
        "shown-as": Text, Means("the policy's name");
        "replaces": Text;
        "rollout": SHARE_OR_ZERO, Beside("replaces");
        "count-denied": Bool, Value("false");
        "overshoot": SHARE_OR_ZERO, Value("5%");
        "when-redis-down": Words(|| words(&WHEN_DOWN)), Value("local");
        "idempotency-key": Any(&[Text, Table(&IDEMPOTENCY)]);
        "penalty": Table(&PENALTY);
        "hot-keys": Table(&HOT_KEYS), Defaults;
    }
    MATCH = "`match`", "policy.match" {
        "method": Texts, Means("any");
        "path": Text, Means("any");
    }
    COUNT = "`count`", "policy.count" {
        "status": Any(&[Number(100, 599), Texts, List(&Any(&[Number(100, 599), Text]))]), Means("all");
        "not-status": Any(&[Number(100, 599), Texts, List(&Any(&[Number(100, 599), Text]))]);
        "grpc-status": Any(&[Number(0, 16), Texts, List(&Any(&[Number(0, 16), Text]))]);
        "not-grpc-status": Any(&[Number(0, 16), Texts, List(&Any(&[Number(0, 16), Text]))]);
    }
    EXEMPT = "`exempt`", "policy.exempt" {
        "ip": Texts;
        "consumer": Texts;
        "tenant": Texts;
        "tier": Texts;
        "header": Map(&Field(&Secret));
    }
    COST = "`cost`", "policy.cost" {
        "default": Number(1, COST_MAX), Value("1");
        "header": Text;
        "response-header": Text;
        "estimate": Any(&[Number(1, COST_MAX), Texts]), Means("`default`");
        "response-json": Texts;
        "request-bytes": Size(1, UNIT_BYTES_MAX);
        "response-bytes": Size(1, UNIT_BYTES_MAX);
        "response-time": Time(MS);
        "max": Number(1, COST_MAX),
            Means("the capacity of the smallest window; for a cost known later, the capacity of each window");
    }
    IDEMPOTENCY = "`idempotency-key`", "policy.idempotency-key" {
        "key": Text, Needs("`idempotency-key` needs a `key`", "write `key = \"header:idempotency-key\"`");
        "window": Time(SECOND), Value("24h");
        "by-address": Bool, Value("false");
    }
    PENALTY = "`penalty`", "policy.penalty" {
        "after": Number(1, Penalty::AFTER_MAX as u64),
            Needs("a penalty needs `after`, the number of refusals before it begins", "write `after = 20`");
        "within": TimeWithin(SECOND, WITHIN_MAX, ""), Value("1m");
        "factor": Number(1, Penalty::FACTOR_MAX as u64), Value("2");
        "max": TimeWithin(SECOND, PENALTY_MAX, ""), Value("1h");
    }
    HOT_KEYS = "`hot-keys`", "policy.hot-keys" {
        "above": Share, Value("5%");
        "then": Text, Value("report");
    }
    TIER = "[tier.<name>]", "tier" {
        "limit": Texts, Required;
        "algorithm": Words(|| words(&ALGORITHMS)), Means("the policy's");
        "time-zone": Text, Means("the policy's");
        "anchor": Number(1, 31), Means("the policy's");
        "max-delay": Time(MS), Means("the policy's");
        "overshoot": SHARE_OR_ZERO, Means("the policy's");
        "when-redis-down": Words(|| words(&WHEN_DOWN)), Means("the policy's");
    }
    TIER_PART = "`limit.<name>`", "tier" + TIER {}
    DOMAIN = "[rls.<name>]", "rls" {
        "overrides": Bool, Value("false");
        "descriptors": List(&Table(&RULE)), Needs(
            "a domain needs `descriptors`",
            "write `descriptors = [{ entries = { remote_address = \"*\" }, limit = \"100/m by ip\" }]`",
        );
    }
    RULE = "a rule", "rls.descriptors" {
        "entries": Any(&[Map(&Entry(&Text)), List(&Map(&Entry(&Text)))]),
            Needs("a rule needs `entries`", "write `entries = { remote_address = \"*\" }`");
        "limit": Texts;
        "unlimited": Bool, ValueBeside(&[], "false");
        "deny": Bool, ValueBeside(&[], "false");
        "dimensions": Map(&Entry(&Text)), ValueBeside(&[], "{}");
        "name": Text;
        "instead-of": Texts;
    }
    TIER_ROW = "a row", "tier-table" {
        "tier": Text;
        "resource": Text;
        "limit": Text;
        "algorithm": Text;
        "burst": Number(1, u64::MAX);
    }
}
