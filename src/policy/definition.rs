//! Routes and policies as a configuration defines them, before they are compiled. Any source can fill these plain values:
//! a file today, a database later. References are still names here; `compile` resolves them.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

pub use super::access::{AddressRules, Require};
pub use super::response::compress::Compress;
use super::retry::{Retry, Statuses};
use crate::json::JsonPath;
use limit::{Algorithm, Penalty, Quota, Sharing, WhenDown, Zone};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteDefinition {
    /// Unique name; made from methods, host and path if the operator gave none.
    pub name: String,
    /// Hosts, lower case: `api.example.com` or `*.example.com`. Empty: any host.
    pub hosts: Vec<String>,
    /// Path pattern: `/v1/orders/{id}`, `/files/{*rest}` (the rest may be empty).
    pub path: String,
    /// Methods, upper case. Empty: any.
    pub methods: Vec<http::Method>,
    pub headers: Vec<HeaderMatchDefinition>,
    /// Names of the policies that apply, in the order written.
    pub limits: Vec<String>,
    pub action: ActionDefinition,
    /// Header changes on the way to the upstream.
    pub request_headers: HeaderChangesDefinition,
    /// Header changes on the way to the client.
    pub response_headers: HeaderChangesDefinition,
    /// Longest request body, bytes. `None`: what the listener allows.
    pub body_bytes_max: Option<u64>,
    /// Whether `Connection: upgrade` (WebSocket) may pass.
    pub upgrade: bool,
    /// What happens to a path that servers read in more than one way.
    pub path_escapes: PathEscapes,
    /// Deadlines instead of its upstream's.
    pub timeouts: RouteTimeouts,
    /// When its requests are sent a second time. `None`: when its upstream says so.
    pub retry: Option<Retry>,
    /// How its answers are compressed; routes share the rules. `None`: they are not.
    pub compress: Option<Arc<Compress>>,
    pub access: AccessDefinition,
}

/// Deadlines that a route has instead of its upstream's. `None`: the upstream's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteTimeouts {
    /// From the end of the request to the answer's head.
    pub response: Option<Duration>,
    /// The same for a try that may be followed by another one.
    pub per_try: Option<Duration>,
    pub total: Option<Duration>,
    /// Between two pieces of the answer's body.
    pub stall: Option<Duration>,
    /// How long a tunnel may carry nothing. `None`: an hour.
    pub tunnel_idle: Option<Duration>,
}

impl RouteDefinition {
    /// A route to everybody that echoes requests on this path.
    pub fn new(name: String, path: String) -> RouteDefinition {
        RouteDefinition { name, path, ..RouteDefinition::default() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessDefinition {
    /// Names of the authentication methods, in the order they are tried. Empty: the route does not authenticate.
    pub auth: Vec<String>,
    /// Which identities may use it. `None`: all.
    pub require: Option<Require>,
    pub addresses: AddressRules,
    /// Which other origins' scripts may use it. `None`: the upstream decides.
    pub cors: Option<CorsDefinition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsDefinition {
    /// `https://app.example.com`, `https://*.example.com`, or `*` for any.
    pub origins: Vec<String>,
    /// What scripts may send. Empty: what the route serves.
    pub methods: Vec<http::Method>,
    /// Headers that scripts may send; `*` for any.
    pub headers: Vec<String>,
    /// Headers of answers that scripts may read.
    pub expose: Vec<String>,
    /// Whether a browser may send cookies and other credentials.
    pub credentials: bool,
    /// How long a browser may cache a preflight.
    pub max_age: Duration,
}

/// What happens to encoded slashes and backslashes, double encoding and `;` in a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathEscapes {
    #[default]
    Refuse,
    /// They stay. The upstream must then read them as the gateway does, as no slash.
    Keep,
}

/// One header that a route requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatchDefinition {
    pub name: http::HeaderName,
    /// The exact value; `None`: it only has to be there.
    pub value: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum ActionDefinition {
    Forward {
        to: DestinationDefinition,
        /// New path, with the route's parameters in braces. `None`: as it came.
        rewrite: Option<String>,
    },
    Respond(RespondDefinition),
    /// Is answered here with what came: the built-in echo upstream.
    #[default]
    Echo,
    /// Is sent to the same path over https.
    RedirectHttps(HttpsRedirect),
    Redirect {
        /// A path or a URL, with `{...}`.
        to: String,
        /// One of the statuses that clients follow.
        status: http::StatusCode,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpsRedirect {
    /// Another host. `None`: the request's.
    pub host: Option<String>,
    /// The port that clients find it on.
    pub port: u16,
    /// One of the statuses that clients follow.
    pub status: http::StatusCode,
}

/// The upstream of a route, or several among which its requests are divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationDefinition {
    /// At least one, each once.
    pub parts: Vec<WeightedUpstream>,
    /// What a caller keeps its upstream by. `None`: each request is divided anew.
    pub sticky: Option<Dimension>,
    /// Where copies of requests go. `None`: nowhere.
    pub mirror: Option<MirrorDefinition>,
}

impl DestinationDefinition {
    pub fn one(upstream: String) -> DestinationDefinition {
        let parts = vec![WeightedUpstream { upstream, weight: 1 }];
        DestinationDefinition { parts, ..DestinationDefinition::default() }
    }
}

/// Where copies of a route's requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorDefinition {
    pub upstream: String,
    /// How many of the requests are copied, parts per million.
    pub share_ppm: u32,
    /// Requests with a larger body are not copied, bytes.
    pub body_bytes_max: usize,
}

/// One upstream of a route, and its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedUpstream {
    pub upstream: String,
    /// Its share against the others; 0: none.
    pub weight: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RespondDefinition {
    pub status: http::StatusCode,
    /// Its headers. Values may hold `{...}`.
    pub headers: Vec<(http::HeaderName, String)>,
    /// Its body. It may hold `{...}`.
    pub body: String,
}

/// Header changes of one direction; applied as remove, set, add.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeaderChangesDefinition {
    pub remove: Vec<http::HeaderName>,
    /// Replaced, or added if absent. Values may contain `{...}`.
    pub set: Vec<(http::HeaderName, String)>,
    /// Added to existing values. Values may contain `{...}`.
    pub add: Vec<(http::HeaderName, String)>,
    /// Of answers: the gateway's own refusals are changed, too.
    pub always: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyDefinition {
    /// Unique name, as `RateLimit-Policy` shows it.
    pub name: String,
    /// The name that clients read. `None`: its own.
    pub shown_as: Option<String>,
    /// Whether responses do not mention it.
    pub is_hidden: bool,
    /// The dimensions of the key, in the order written.
    pub by: Vec<Dimension>,
    /// The windows, all of which must admit. Empty: no limit. By tier: the windows of one tier after the other.
    pub windows: Vec<Quota>,
    /// Which windows belong to which tier, if they depend on the identity's tier.
    pub tiers: Option<TiersDefinition>,
    /// What happens where a dimension is absent.
    pub missing: Missing,
    /// Which requests of its routes it counts. Empty: all.
    pub matches: MatchesDefinition,
    pub cost: CostDefinition,
    pub exempt: ExemptDefinition,
    /// Counted and reported, never rejected.
    pub shadow: bool,
    /// Refused requests are counted too.
    pub count_denied: bool,
    /// What identifies a client's retry, which is not charged again.
    pub idempotency: Option<Idempotency>,
    /// How much more than a window a fleet may admit, millionths of it. 0: nothing, so Redis decides every request.
    pub overshoot_ppm: u32,
    /// What happens while Redis is down.
    pub when_down: WhenDown,
    /// How clients that ignore `Retry-After` are kept out.
    pub penalty: Option<Penalty>,
    /// The claim that says on which day the months of a client begin.
    pub anchor_claim: Option<String>,
    /// From when on one of its keys is hot, and what is done then.
    pub hot_keys: HotKeyRules,
    /// What it is a candidate for, if it is one.
    pub replaces: Option<CandidateDefinition>,
    pub origin: LimitOrigin,
}

/// From when on a key of a policy is hot, and what is done then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotKeyRules {
    /// Its share of the policy's decisions, or of its shard's, millionths.
    pub above_ppm: u32,
    /// The limit by which each node decides it alone; `None`: it is only reported.
    pub local_only: Option<Quota>,
}

impl HotKeyRules {
    /// A key with a larger share than this is hot.
    pub fn above(&self) -> f64 {
        f64::from(self.above_ppm) / 1e6
    }
}

impl Default for HotKeyRules {
    fn default() -> HotKeyRules {
        HotKeyRules { above_ppm: 50_000, local_only: None }
    }
}

/// What makes a policy a candidate: it is asked wherever another policy is, on counts of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateDefinition {
    /// The name of the policy that it is to replace.
    pub policy: String,
    /// The share of that policy's keys that it decides about, millionths. For the others it is only compared.
    pub rollout_ppm: u32,
}

/// Where a limit was written. Each goes before those above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitOrigin {
    /// In gateway.toml, or a file that it includes.
    #[default]
    File,
    Database,
    TierTable,
}

impl LimitOrigin {
    pub fn word(self) -> &'static str {
        match self {
            LimitOrigin::File => "file",
            LimitOrigin::Database => "database",
            LimitOrigin::TierTable => "tier-table",
        }
    }

    /// For operators; `None` for what is in their file.
    pub fn sentence(self) -> Option<&'static str> {
        match self {
            LimitOrigin::File => None,
            LimitOrigin::Database => Some("from a policy of the database"),
            LimitOrigin::TierTable => Some("from the tier table of the database"),
        }
    }
}

/// A tier that policies share: `[tier.*]`. What it leaves open each policy decides for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierDefinition {
    pub name: String,
    /// Its windows; without an algorithm of its own token buckets, which a policy may turn into others.
    pub windows: Vec<Quota>,
    pub algorithm: Option<Algorithm>,
    /// Whose calendar its windows follow; without one the policy's.
    pub time_zone: Option<&'static Zone>,
    /// The day on which its months begin; without one the policy's.
    pub anchor: Option<u8>,
    /// As [`PolicyDefinition::overshoot_ppm`].
    pub overshoot_ppm: Option<u32>,
    /// As [`PolicyDefinition::when_down`].
    pub when_down: Option<WhenDown>,
    pub origin: LimitOrigin,
    /// Whether it is the strictest of the files, which clients without a tier have.
    pub is_default: bool,
}

impl TierDefinition {
    /// A tier without a limit, that leaves everything open.
    pub fn new(name: String) -> TierDefinition {
        TierDefinition { name, ..TierDefinition::default() }
    }
}

/// How a policy's windows are divided among tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TiersDefinition {
    /// Each tier's part, in the order of the windows.
    pub parts: Vec<TierPart>,
    /// The tier of identities that have none, or one that is not listed.
    pub default: String,
    /// What the windows of tiers count by that have no algorithm of their own.
    pub algorithm: Algorithm,
    /// Whether these are all tiers that policies share, and nothing else.
    pub are_shared: bool,
}

/// One tier's part of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierPart {
    pub name: String,
    /// How many windows it has. 0: no limit.
    pub windows: usize,
    /// As [`PolicyDefinition::overshoot_ppm`].
    pub overshoot_ppm: u32,
    /// As [`PolicyDefinition::when_down`].
    pub when_down: WhenDown,
    pub origin: LimitOrigin,
}

impl TiersDefinition {
    /// The name of the part that is for every tier without one of its own.
    pub const EVERYBODY: &str = "default";
}

/// How a policy recognises a client's retry of a request that it has charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The field that has the key.
    pub header: http::HeaderName,
    pub window: Duration,
    /// Whether a policy that knows its clients only by their addresses takes keys.
    pub by_address: bool,
}

impl Idempotency {
    pub const WINDOW: Duration = Duration::from_secs(24 * 3_600);
}

/// One part of a policy's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dimension {
    /// The name of the authenticated identity.
    Consumer,
    Tenant,
    /// The client's address: an IPv6 address by its prefix, an IPv4-mapped one as IPv4.
    Ip,
    Route,
    Method,
    /// The host, in the form it is routed by.
    Host,
    /// The value of a header other than `Host`, whose normal form counts by [`Dimension::Host`], because it has many
    /// spellings.
    Header(http::HeaderName),
    /// The value of a query parameter, percent-decoded.
    Query(String),
    /// A parameter of the route's path, percent-decoded.
    Param(String),
    /// A claim of the identity. A list counts as its texts in order, joined by commas.
    Claim(String),
    /// A field of a JSON request's body, read from its first 64 KiB.
    Body(JsonPath),
    /// The value of an entry of a descriptor, which only rules of domains have.
    Entry(String),
    Cookie(String),
    /// The path in its normal form, without the query. Only choices of upstreams and servers stay by it; no policy counts
    /// by it.
    Path,
}

impl Dimension {
    /// Whether only authentication can provide it.
    pub fn needs_identity(&self) -> bool {
        matches!(self, Dimension::Consumer | Dimension::Tenant | Dimension::Claim(_))
    }

    /// Whether usage is counted for its values.
    pub fn is_name(&self) -> bool {
        matches!(self, Dimension::Consumer | Dimension::Tenant)
    }

    /// Whether clients that authentication refuses have it. A field of the body is none, because their bodies are not
    /// read.
    pub fn is_of_strangers(&self) -> bool {
        !self.needs_identity() && !matches!(self, Dimension::Body(_))
    }

    /// Its number in keys, which stays for ever, its word, and the name behind that, empty if it needs none.
    pub(crate) fn parts(&self) -> (u8, &'static str, Cow<'_, str>) {
        let (number, word, name) = match self {
            Dimension::Consumer => (0, "consumer", ""),
            Dimension::Tenant => (1, "tenant", ""),
            Dimension::Ip => (2, "ip", ""),
            Dimension::Route => (3, "route", ""),
            Dimension::Method => (4, "method", ""),
            Dimension::Header(name) => (5, "header", name.as_str()),
            Dimension::Query(name) => (6, "query", name.as_str()),
            Dimension::Param(name) => (7, "param", name.as_str()),
            Dimension::Claim(name) => (8, "claim", name.as_str()),
            Dimension::Host => (9, "host", ""),
            Dimension::Body(path) => return (10, "body", path.to_string().into()),
            Dimension::Entry(key) => (11, "entry", key.as_str()),
            Dimension::Cookie(name) => (12, "cookie", name.as_str()),
            Dimension::Path => (13, "path", ""),
        };
        (number, word, name.into())
    }
}

impl PolicyDefinition {
    const OVERSHOOT_PPM: u32 = 50_000;

    /// A policy that counts all requests under one key, in these windows, with the default of everything else.
    pub fn new(name: String, windows: Vec<Quota>) -> PolicyDefinition {
        let overshoot_ppm = PolicyDefinition::OVERSHOOT_PPM;
        PolicyDefinition { name, windows, overshoot_ppm, ..PolicyDefinition::default() }
    }

    /// How much more than a window a fleet may admit, as a fraction of it, if this many millionths are written. A
    /// policy that counts denied requests has no leases, because Redis must count them. Nor has one whose costs are
    /// reconciled with answers, because by then the lease is over, and a refund or a debt belongs to the whole fleet.
    pub fn overshoot(&self, written_ppm: u32) -> f64 {
        let is_exact = self.count_denied || self.cost.actual.is_some();
        if is_exact { 0.0 } else { f64::from(written_ppm) / 1e6 }
    }

    /// The tier that a window belongs to, if windows depend on the identity's tier.
    pub fn part_of(&self, window: usize) -> Option<&TierPart> {
        let mut end = 0;
        self.tiers.as_ref()?.parts.iter().find(|part| {
            end += part.windows;
            window < end
        })
    }

    /// How a fleet shares one of its windows.
    pub fn sharing(&self, window: usize) -> Sharing {
        let part = self.part_of(window);
        let (overshoot_ppm, when_down) =
            part.map_or((self.overshoot_ppm, self.when_down), |part| (part.overshoot_ppm, part.when_down));
        Sharing::new(&self.windows[window], self.overshoot(overshoot_ppm), when_down)
    }
}

impl std::fmt::Display for Dimension {
    /// As the configuration writes it: `ip`, `header:x-api-key`.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.parts() {
            (_, word, name) if name.is_empty() => formatter.write_str(word),
            (_, word, name) => write!(formatter, "{word}:{name}"),
        }
    }
}

/// What happens if a dimension of the key is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// The client's address takes its place.
    #[default]
    Ip,
    Skip,
    Reject,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchesDefinition {
    /// Any of these methods. Empty: any.
    pub methods: Vec<http::Method>,
    /// This path pattern. `None`: any.
    pub path: Option<String>,
}

/// Whom a policy neither charges nor refuses: requests that match one entry of any list. All empty: nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExemptDefinition {
    /// Client addresses; an IPv4-mapped one, or one behind a translator, is its IPv4 address.
    pub networks: Vec<IpNet>,
    pub consumers: Vec<String>,
    pub tenants: Vec<String>,
    pub tiers: Vec<String>,
    /// Headers and the exact value of each.
    pub headers: Vec<(http::HeaderName, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostDefinition {
    /// The cost if no rule fits.
    pub default: NonZeroU64,
    /// (method, or any; path pattern; cost): the most specific path wins, a named method before any.
    pub rules: Vec<(Option<http::Method>, String, u64)>,
    /// A field of the request that tells the cost, believed only from a trusted hop. It takes precedence over rules.
    pub header: Option<http::HeaderName>,
    /// Fields of the request's body that say what is reserved for it; the first that is there goes before rules.
    pub estimate: Vec<JsonPath>,
    /// What tells the cost later. Until then the request is charged by the rest.
    pub actual: Option<Actual>,
    /// The most that any of these may say; more is as much. `None`: what the smallest window holds.
    pub max: Option<NonZeroU64>,
}

/// What tells the cost of a request when it has been answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actual {
    /// A field of the upstream's answer.
    ResponseHeader(http::HeaderName),
    /// The sum of numbers in the upstream's answer, which is JSON or a stream of events.
    ResponseJson(Vec<JsonPath>),
    Measured(MeasuredUnits),
    /// The status that the client gets, or that its gRPC call ends with: it keeps what was taken, or gives it back.
    Status(CountedStatuses),
}

impl Actual {
    /// The statuses that are charged; `None` if that is not what tells the cost.
    pub fn statuses(&self) -> Option<&CountedStatuses> {
        match self {
            Actual::Status(statuses) => Some(statuses),
            _ => None,
        }
    }
}

/// The statuses that a policy charges: of HTTP, and those of gRPC behind [`GRPC_STATUSES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedStatuses {
    /// Only these. Empty: all.
    pub among: Statuses,
    pub except: Statuses,
}

impl CountedStatuses {
    /// Whether an answer with this status is charged; of a gRPC call, the status that it ends with counts, too.
    pub fn contains(&self, status: u16, of_call: Option<u32>) -> bool {
        let of_call = of_call.map(|code| match usize::try_from(code) {
            // As clients of gRPC read one that they do not know.
            Ok(code) if code >= GRPC_CODES.len() => GRPC_STATUSES + GRPC_UNKNOWN as u16,
            _ => GRPC_STATUSES + code as u16,
        });
        let is_in = |statuses: &Statuses| {
            statuses.contains(status) || of_call.is_some_and(|code| statuses.contains(code))
        };
        (self.among.is_empty() || is_in(&self.among)) && !is_in(&self.except)
    }

    /// Whether the end of a gRPC call has to be waited for.
    pub fn are_of_calls(&self) -> bool {
        let codes = GRPC_STATUSES..GRPC_STATUSES + GRPC_CODES.len() as u16;
        codes.into_iter().any(|code| self.among.contains(code) || self.except.contains(code))
    }
}

impl std::fmt::Display for CountedStatuses {
    /// `401, 403`; `not 200-299`; `401, permission-denied`.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [("", &self.among), ("not ", &self.except)].into_iter().filter(|(_, it)| !it.is_empty());
        let shown = |word: String| match word.parse::<u16>().ok().and_then(|it| it.checked_sub(GRPC_STATUSES))
        {
            Some(code) => GRPC_CODES[usize::from(code)].to_owned(),
            None => word,
        };
        let parts: Vec<String> = parts
            .map(|(word, statuses)| {
                format!("{word}{}", statuses.words().map(shown).collect::<Vec<_>>().join(", "))
            })
            .collect();
        formatter.write_str(&parts.join(", but "))
    }
}

/// How much of what the gateway measures is one unit; what is begun counts whole, and several are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeasuredUnits {
    pub request_bytes: Option<NonZeroU64>,
    pub response_bytes: Option<NonZeroU64>,
    /// From the decision to the end of the answer. Not zero.
    pub response_time: Option<Duration>,
}

impl Default for CostDefinition {
    fn default() -> Self {
        CostDefinition {
            default: NonZeroU64::MIN,
            rules: Vec::new(),
            header: None,
            estimate: Vec::new(),
            actual: None,
            max: None,
        }
    }
}

pub const HTTPS_PORT: u16 = 443;
/// What is added to a status of gRPC where it stands among those of HTTP.
pub const GRPC_STATUSES: u16 = 1_000;
/// How a call ends that says no status.
pub const GRPC_UNKNOWN: u32 = 2;
pub const GRPC_CODES: [&str; 17] = [
    "ok",
    "cancelled",
    "unknown",
    "invalid-argument",
    "deadline-exceeded",
    "not-found",
    "already-exists",
    "permission-denied",
    "resource-exhausted",
    "failed-precondition",
    "aborted",
    "out-of-range",
    "unimplemented",
    "internal",
    "unavailable",
    "data-loss",
    "unauthenticated",
];
/// What stands before the unit of a window of the calendar where a row of the database names an algorithm, because such a window
/// has no other.
pub const BY_CALENDAR: &str = "calendar-";
