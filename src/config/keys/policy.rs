//! The keys of `[policy.*]`, `[tier.*]` and `[rls.*]`.

use std::time::Duration;

use ::policy::definition::Missing;
use limit::{Algorithm, Penalty, WhenDown};

use super::Kind::{
    self, Any, Bool, Entry, List, Map, Number, Only, Open, Share, Size, Table, Text, Texts, Time, TimeWithin,
    Words,
};
use super::Unwritten::{Beside, Defaults, Means, Needs, Required, RequiredBut, Value, ValueBeside};
use super::{MS, SECOND, sections, words};

/// The values of `missing`.
pub const MISSING: [(&str, Missing); 3] =
    [("ip", Missing::Ip), ("skip", Missing::Skip), ("reject", Missing::Reject)];
/// The values of `when-redis-down`.
pub const WHEN_DOWN: [(&str, WhenDown); 3] =
    [("local", WhenDown::Local), ("allow", WhenDown::Allow), ("deny", WhenDown::Deny)];
/// The values of `algorithm`. Concurrency is not one of them: `in flight` in the limit selects it.
pub const ALGORITHMS: [(&str, Algorithm); 5] = [
    ("token-bucket", Algorithm::TokenBucket),
    ("sliding-window", Algorithm::SlidingWindow),
    ("fixed-window", Algorithm::FixedWindow),
    ("sliding-log", Algorithm::SlidingLog),
    ("leaky-bucket", Algorithm::LeakyBucket),
];
/// The longest time over which refusals are counted.
const WITHIN_MAX: Duration = Duration::from_nanos(Penalty::WITHIN_NS_MAX);
const PENALTY_MAX: Duration = Duration::from_secs(Penalty::SECONDS_MAX as u64);
const SHARE_OR_ZERO: Kind = Any(&[Share, Only("0")]);
/// A higher cost is surely a typing error, and sums of costs stay far from overflow.
const COST_MAX: u64 = 1_000_000_000;
/// As much of bytes for one unit.
const UNIT_BYTES_MAX: u64 = 1 << 40;

sections! {
    POLICY = "[policy.<name>]" {
        /// what is counted apart: any mix of dimensions, at most 16; `[]` counts all requests together
        "by": Texts, RequiredBut("replaces");
        /// one or several windows, at most 16: `["20/s burst 40", "1_000/h", "8 in flight"]`. Every one must admit.
        /// `"tier"`, or a table of windows by tier
        "limit": Any(&[Texts, Map(&Any(&[Texts, Table(&TIER_PART)]))]),
            Needs("a policy needs `limit`", "write `limit = \"100/m\"`");
        /// of a limit by tier: the tier of clients that have none, or one that is not configured. With a table its
        /// `default`, if it has one
        "default-tier": Text, Means("the strictest");
        /// how windows count
        "algorithm": Words(|| words(&ALGORITHMS)), Value("token-bucket");
        /// of a leaky bucket: the longest a request waits. Its queue is cut to what drains in that time
        "max-delay": Time(MS);
        /// where a dimension is absent: `ip` takes the client's address in its place, `skip` leaves the policy out,
        /// `reject` answers 400
        "missing": Words(|| words(&MISSING)), Value("ip");
        /// which requests of its routes it counts: `{ method = ["POST"], path = "/v1/{*rest}" }`
        "match": Table(&MATCH), Means("all");
        /// units a request costs
        "cost": Any(&[Number(1, COST_MAX), Open(&COST, &Number(0, COST_MAX))]), Value("1");
        /// counted and reported, never refused
        "shadow": Bool, Value("false");
        /// the name of a policy: this one is its candidate, asked wherever that one is and compared with it
        /// ([more](limits.md#trying-the-next-version-of-a-limit))
        "replaces": Text;
        /// of a candidate: the share of the keys that it decides about
        "rollout": SHARE_OR_ZERO, Beside("replaces");
        /// refused requests are counted too; but they are never in flight
        "count-denied": Bool, Value("false");
        /// with `[redis]`: how much more than the limit a fleet may admit, as a share of what the window admits in
        /// one period, a bucket's burst included. `0`: Redis decides every request
        "overshoot": SHARE_OR_ZERO, Value("5%");
        /// with `[redis]`, while it is away: `local` enforces this gateway's part of the limit, `allow` admits
        /// everything up to ten times the limit for each client address, counted by this gateway alone and whatever
        /// `by` says (what is in flight: up to the limit for each key), `deny` answers 503
        "when-redis-down": Words(|| words(&WHEN_DOWN)), Value("local");
        /// `"header:idempotency-key"`, or `{ key = "header:…", window = "24h", by-address = false }`: what tells a
        /// retry
        "idempotency-key": Any(&[Text, Table(&IDEMPOTENCY)]);
        /// denies clients that do not wait for longer. Each node remembers penalties on its own, also
        /// with `[redis]`, until it restarts: at another node the client meets the limit and no penalty
        "penalty": Table(&PENALTY);
        /// from when on [a key is hot](hot-keys.md#when-a-key-is-hot), and what is done then
        "hot-keys": Table(&HOT_KEYS), Defaults;
    }
    MATCH = "`match`" {
        /// methods that are counted
        "method": Texts, Means("any");
        /// paths that are counted: `"/v1/{*rest}"`
        "path": Text, Means("any");
    }
    COST = "`cost`" {
        /// units of a request that nothing else says the cost of
        "default": Number(1, COST_MAX), Value("1");
        /// a field of the request that says its cost, believed from trusted hops only (`client-ip.trust`); before
        /// any path's
        "header": Text;
        /// a field of the upstream's answer that says it. Until its head comes the request is charged by the rest
        /// of the table, as an estimate
        "response-header": Text;
        /// what is reserved until the cost is known: a number, as `default`, or fields of the request's body, of
        /// which the first that is there counts (`"body:max_tokens"`)
        "estimate": Any(&[Number(1, COST_MAX), Texts]), Means("`default`");
        /// where the number stands in a JSON answer, or in the events of a stream, while it passes
        /// (`"usage.total_tokens"`); at most 8, which are added up
        "response-json": Texts;
        /// so many bytes of the request's or the answer's body are a unit
        "request-bytes": Size(1, UNIT_BYTES_MAX);
        /// so many bytes of the request's or the answer's body are a unit
        "response-bytes": Size(1, UNIT_BYTES_MAX);
        /// so much time until the answer is over is a unit; from 1 ms
        "response-time": Time(MS);
        /// the most any of these may say; more is taken for that
        "max": Number(1, COST_MAX), Means("what the smallest window holds; of a cost that is known later, what each window holds");
    }
    IDEMPOTENCY = "`idempotency-key`" {
        /// the field that tells a retry: `"header:idempotency-key"`
        "key": Text, Needs("`idempotency-key` needs a `key`", "write `key = \"header:idempotency-key\"`");
        /// how long it is remembered, at most 30 days
        "window": Time(SECOND), Value("24h");
        /// whether a policy that counts by address takes keys
        "by-address": Bool, Value("false");
    }
    PENALTY = "`penalty`" {
        /// how many refusals pass before it
        "after": Number(1, Penalty::AFTER_MAX as u64),
            Needs("a penalty needs `after`: how many refusals pass before it", "write `after = 20`");
        /// the time over which they are counted
        "within": TimeWithin(SECOND, WITHIN_MAX, ""), Value("1m");
        /// how many times as long the next one is
        "factor": Number(1, Penalty::FACTOR_MAX as u64), Value("2");
        /// the longest
        "max": TimeWithin(SECOND, PENALTY_MAX, ""), Value("1h");
    }
    HOT_KEYS = "`hot-keys`" {
        /// its share of the policy's decisions, or of its shard's
        "above": Share, Value("5%");
        /// `"report"`, or `"local-only:1000/m"`: each node decides it alone, by this limit
        "then": Text, Value("report");
    }
    TIER = "[tier.<name>]" {
        /// its windows; `[]` is no limit
        "limit": Texts, Required;
        /// how its windows count
        "algorithm": Words(|| words(&ALGORITHMS)), Means("the policy's");
        /// of a leaky bucket: the longest a request waits
        "max-delay": Time(MS), Means("the policy's");
        /// how a fleet shares them: `overshoot = 0` is exact, for this tier alone
        "overshoot": SHARE_OR_ZERO, Means("the policy's");
        /// what is done while Redis is away
        "when-redis-down": Words(|| words(&WHEN_DOWN)), Means("the policy's");
    }
    TIER_PART = "`limit.<name>`" + TIER {}
    DOMAIN = "[rls.<name>]" {
        /// whether a limit that comes with a descriptor counts instead of those of its rule
        "overrides": Bool, Value("false");
        /// the rules, at most 100,000; their order decides nothing but what policies are called that are written as
        /// text: `rls:<domain>:<name>` in a rule with a `name`, else `rls:<domain>#<n>`
        "descriptors": List(&Table(&RULE)), Needs(
            "a domain needs `descriptors`",
            "write `descriptors = [{ entries = { remote_address = \"*\" }, limit = \"100/m by ip\" }]`",
        );
    }
    RULE = "a rule" {
        /// what the entries of a descriptor must be, all of them: `[{ generic_key = "checkout" }, { user_id = "*"
        /// }]`, in this order, at most 32. A table of several keys takes them in any order, at most 4
        "entries": Any(&[Map(&Entry(&Text)), List(&Map(&Entry(&Text)))]),
            Needs("a rule needs `entries`", "write `entries = { remote_address = \"*\" }`");
        /// names of policies, or [limits as text](#limits-as-text). All of them must admit
        "limit": Texts;
        /// instead of `limit`: every request passes, and nothing is counted
        "unlimited": Bool, ValueBeside(&[], "false");
        /// instead of `limit`: no request passes
        "deny": Bool, ValueBeside(&[], "false");
        /// what policies count by that is no entry, and which entries say it: `{ consumer = "{user_id}", route =
        /// "orders" }`
        "dimensions": Map(&Entry(&Text)), ValueBeside(&[], "{}");
        /// what `instead-of` of other rules calls it, and what its limits as text are called by
        "name": Text;
        /// names of rules that do not count where another descriptor of the same request meets them
        "instead-of": Texts;
    }
    TIER_ROW = "a row" {
        "tier": Text;
        "resource": Text;
        "limit": Text;
        "algorithm": Text;
        "burst": Number(1, u64::MAX);
    }
}
