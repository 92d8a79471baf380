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
/// The longest time over which refusals are counted.
const WITHIN_MAX: Duration = Duration::from_nanos(Penalty::WITHIN_NS_MAX);
const PENALTY_MAX: Duration = Duration::from_secs(Penalty::SECONDS_MAX as u64);
const SHARE_OR_ZERO: Kind = Any(&[Share, Only("0")]);
/// The highest cost, because a higher one is surely a typing error; sums of costs stay far from overflow.
const COST_MAX: u64 = 1_000_000_000;
/// As much of bytes for one unit.
const UNIT_BYTES_MAX: u64 = 1 << 40;

sections! {
    POLICY = "[policy.<name>]" {
        /// dimensions, at most 16: each combination of their values has its own count. `[]` counts all requests
        /// together
        "by": Texts, RequiredBut("replaces");
        /// one or several windows, at most 16: `["20/s burst 40", "1_000/h", "8 in flight"]`. All must admit.
        /// `"tier"`, or a table of windows [by tier](tiers.md)
        "limit": Any(&[Texts, Map(&Any(&[Texts, Table(&TIER_PART)]))]),
            Needs("a policy needs `limit`", "write `limit = \"100/m\"`");
        /// for a limit by tier: the tier of clients without a tier or with an unknown one. If the limit is a table, the
        /// table's `default`
        "default-tier": Text, Means("the strictest");
        /// how windows [count](#algorithms)
        "algorithm": Words(|| words(&ALGORITHMS)), Means("`\"token-bucket\"`; for calendar limits `\"fixed-window\"`");
        /// the time zone of [calendar](limit-text.md#calendar) limits (day, week, month, year), as in the IANA database:
        /// `"Europe/Berlin"`
        "time-zone": Text, Means("UTC");
        /// the day on which a month begins, such as a billing day. In a shorter month, 29 to 31 mean its last day
        "anchor": Number(1, 31), Means("1");
        /// the claim that names this day for each client, from 1 to 31: a claim of its JWT, or of its entry in a file of
        /// keys. `anchor` applies to clients without a valid one
        "anchor-claim": Text;
        /// for a leaky bucket: the longest wait. The queue holds at most the requests that drain in that time
        "max-delay": Time(MS);
        /// if a dimension is absent: `ip` uses the client's address, `skip` skips the policy, `reject` answers 400
        "missing": Words(|| words(&MISSING)), Value("ip");
        /// which requests of a route the policy counts: `{ method = ["POST"], path = "/v1/{*rest}" }`
        "match": Table(&MATCH), Means("all");
        /// [units per request](cost.md)
        "cost": Any(&[Number(1, COST_MAX), Open(&COST, &Number(0, COST_MAX))]), Value("1");
        /// [which responses are charged](#responses-that-count), by status: `{ status = [401, 403] }`
        "count": Table(&COUNT), Means("all");
        /// [exemptions](#exemptions): lists of requests that the policy neither charges nor refuses. One matching entry
        /// is enough
        "exempt": Table(&EXEMPT);
        /// shadow mode: the policy counts and reports, but refuses nothing
        "shadow": Bool, Value("false");
        /// `none`: responses [do not mention](../../rate-limit-headers.md#what-a-policy-shows) the policy
        "headers": Words(|| words(&HEADERS)), Means("as in `[limits]`");
        /// the name of the policy in rate-limit headers and refusals: ASCII, without `"` and `\`
        "shown-as": Text, Means("the policy's name");
        /// makes the policy a candidate for the policy of this name: both are checked for the same requests and
        /// compared ([more](../../shadow-limits.md#a-candidate))
        "replaces": Text;
        /// for a candidate: the share of keys for which it decides
        "rollout": SHARE_OR_ZERO, Beside("replaces");
        /// whether refused requests are counted, too. They never count as in flight
        "count-denied": Bool, Value("false");
        /// with `[redis]`: how far a fleet may exceed the limit, as a share of what the window admits in one period, a
        /// bucket's burst included. `0`: Redis decides every request
        "overshoot": SHARE_OR_ZERO, Value("5%");
        /// with `[redis]`, while Redis is down: `local` enforces up to twice this node's even share of the limit;
        /// `allow` admits up to ten times the limit for each client address, counted by this node alone, regardless of
        /// `by` (a concurrency limit: up to the limit for each key); `deny` answers 503
        "when-redis-down": Words(|| words(&WHEN_DOWN)), Value("local");
        /// the header that [marks a retry](idempotency.md): `"header:idempotency-key"`, or a table
        "idempotency-key": Any(&[Text, Table(&IDEMPOTENCY)]);
        /// [longer refusals](penalty.md) for clients that ignore `Retry-After`. With `[redis]`, all nodes share them;
        /// otherwise each node remembers its own until it restarts
        "penalty": Table(&PENALTY);
        /// when [a key is hot](../../hot-keys.md#when-a-key-is-hot), and what happens then
        "hot-keys": Table(&HOT_KEYS), Defaults;
    }
    MATCH = "`match`" {
        /// methods that are counted
        "method": Texts, Means("any");
        /// paths that are counted: `"/v1/{*rest}"`
        "path": Text, Means("any");
    }
    COUNT = "`count`" {
        /// only these statuses are charged: `401`, `"5xx"`, `"400-499"`
        "status": Any(&[Number(100, 599), Texts, List(&Any(&[Number(100, 599), Text]))]), Means("all");
        /// these statuses are not charged
        "not-status": Any(&[Number(100, 599), Texts, List(&Any(&[Number(100, 599), Text]))]);
        /// gRPC calls that end with these statuses are charged: `7`, `"permission-denied"`, `"PERMISSION_DENIED"`
        "grpc-status": Any(&[Number(0, 16), Texts, List(&Any(&[Number(0, 16), Text]))]);
        /// gRPC calls that end with these statuses are not charged
        "not-grpc-status": Any(&[Number(0, 16), Texts, List(&Any(&[Number(0, 16), Text]))]);
    }
    EXEMPT = "`exempt`" {
        /// client addresses, alone or as ranges, at most 100,000: `["10.0.0.0/8", "2001:db8::/32"]`
        "ip": Texts;
        /// consumers, as authenticated
        "consumer": Texts;
        /// tenants, as authenticated
        "tenant": Texts;
        /// tiers, as authenticated or assigned
        "tier": Texts;
        /// headers and the exact value of each, which is a secret: `{ x-probe = "${file:probe.key}" }`
        "header": Map(&Field(&Secret));
    }
    COST = "`cost`" {
        /// units of a request if nothing else sets its cost
        "default": Number(1, COST_MAX), Value("1");
        /// a request header that holds the cost, from trusted hops only; it takes precedence over paths
        "header": Text;
        /// a response header of the upstream that holds the cost. Until the response arrives, the other keys of the
        /// table give the estimate
        "response-header": Text;
        /// units to reserve until the cost is known: a number, or fields of the request body; the first that is present
        /// counts (`"body:max_tokens"`)
        "estimate": Any(&[Number(1, COST_MAX), Texts]), Means("`default`");
        /// up to 8 fields of a JSON response, or of events of a stream, that are added up: `"usage.total_tokens"`, or
        /// `"usage.*.tokens"` for all elements of a list
        "response-json": Texts;
        /// bytes of the request body per unit
        "request-bytes": Size(1, UNIT_BYTES_MAX);
        /// bytes of the response body per unit
        "response-bytes": Size(1, UNIT_BYTES_MAX);
        /// time per unit until the response is complete, at least 1 ms
        "response-time": Time(MS);
        /// the highest cost that a header, a body or a measurement can set; higher values are reduced to it
        "max": Number(1, COST_MAX),
            Means("the capacity of the smallest window; for a cost known later, the capacity of each window");
    }
    IDEMPOTENCY = "`idempotency-key`" {
        /// the header that marks a retry: `"header:idempotency-key"`
        "key": Text, Needs("`idempotency-key` needs a `key`", "write `key = \"header:idempotency-key\"`");
        /// how long a request is remembered, at most 30 days
        "window": Time(SECOND), Value("24h");
        /// whether a policy that counts by address, or all clients together, accepts idempotency keys
        "by-address": Bool, Value("false");
    }
    PENALTY = "`penalty`" {
        /// refusals that are allowed before a penalty
        "after": Number(1, Penalty::AFTER_MAX as u64),
            Needs("a penalty needs `after`, the number of refusals before it begins", "write `after = 20`");
        /// the time over which refusals are counted
        "within": TimeWithin(SECOND, WITHIN_MAX, ""), Value("1m");
        /// multiplies the length of each further penalty
        "factor": Number(1, Penalty::FACTOR_MAX as u64), Value("2");
        /// the longest penalty
        "max": TimeWithin(SECOND, PENALTY_MAX, ""), Value("1h");
    }
    HOT_KEYS = "`hot-keys`" {
        /// a key is hot if its share of the decisions of the policy or of the shard is above this
        "above": Share, Value("5%");
        /// `"report"`, or `"local-only:1000/m"`: each node decides about the key on its own, by this limit
        "then": Text, Value("report");
    }
    TIER = "[tier.<name>]" {
        /// the windows of the tier; `[]` means unlimited
        "limit": Texts, Required;
        /// how its windows count
        "algorithm": Words(|| words(&ALGORITHMS)), Means("the policy's");
        /// the time zone of its [calendar](limit-text.md#calendar) windows
        "time-zone": Text, Means("the policy's");
        /// the day on which its months begin
        "anchor": Number(1, 31), Means("the policy's");
        /// for a leaky bucket: the longest wait
        "max-delay": Time(MS), Means("the policy's");
        /// how far a fleet may exceed the limits of this tier; `0`: Redis decides every request
        "overshoot": SHARE_OR_ZERO, Means("the policy's");
        /// what happens while Redis is down
        "when-redis-down": Words(|| words(&WHEN_DOWN)), Means("the policy's");
    }
    TIER_PART = "`limit.<name>`" + TIER {}
    DOMAIN = "[rls.<name>]" {
        /// whether a limit that comes with a descriptor replaces the limits of its rule
        "overrides": Bool, Value("false");
        /// the rules, at most 100,000. Limits as text are called `rls:<domain>:<name>` in a rule with a `name`,
        /// otherwise `rls:<domain>#<n>`, by the rule's position. The order of the rules matters only for these names
        "descriptors": List(&Table(&RULE)), Needs(
            "a domain needs `descriptors`",
            "write `descriptors = [{ entries = { remote_address = \"*\" }, limit = \"100/m by ip\" }]`",
        );
    }
    RULE = "a rule" {
        /// all entries of a matching descriptor: `[{ generic_key = "checkout" }, { user_id = "*" }]`, in this
        /// order, at most 32. A table of several keys matches them in any order, at most 4
        "entries": Any(&[Map(&Entry(&Text)), List(&Map(&Entry(&Text)))]),
            Needs("a rule needs `entries`", "write `entries = { remote_address = \"*\" }`");
        /// names of policies, or [limits as text](limit-text.md). All must admit
        "limit": Texts;
        /// instead of `limit`: every request passes, and nothing is counted
        "unlimited": Bool, ValueBeside(&[], "false");
        /// instead of `limit`: no request passes
        "deny": Bool, ValueBeside(&[], "false");
        /// dimensions that entries supply: `{ consumer = "{user_id}", route = "orders" }`
        "dimensions": Map(&Entry(&Text)), ValueBeside(&[], "{}");
        /// the rule's name in `instead-of` of other rules, and in the names of its limits as text
        "name": Text;
        /// names of rules that do not count if they and this rule match descriptors of the same request
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
