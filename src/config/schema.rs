//! The JSON schema of gateway.toml, for editors and for checks without this program.
//!
//! It is a second description of the keys, made of types that hold nothing: the reader stays the one that decides. A test
//! asks the reader for the keys of every table and compares, so neither can have a key that the other lacks. The schema
//! knows keys, types and words; what needs two keys or a file (names that exist, routes that tie) is for `check`.

#![expect(dead_code, clippy::large_enum_variant, reason = "the types are described, never made")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::Value;

/// The schema as JSON.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12();
    let mut schema = settings.into_generator().into_root_schema_for::<Gateway>();
    // TOML has no null: a key is there or it is not.
    RecursiveTransform(without_null).transform(&mut schema);
    schema.insert("title".to_owned(), "gateway.toml".into());
    schema.to_value()
}

fn without_null(schema: &mut schemars::Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    let Some(Value::Array(any)) = schema.get_mut("anyOf") else { return };
    any.retain(|one| one.get("type").is_none_or(|name| name != "null"));
    if let [Value::Object(only)] = any.as_slice() {
        let only = only.clone();
        schema.remove("anyOf");
        only.into_iter().for_each(|(key, value)| {
            schema.insert(key, value);
        });
    }
}

type Named<T> = Option<BTreeMap<String, T>>;

/// One string or an array of strings.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Texts {
    One(String),
    Several(Vec<String>),
}

/// Whole numbers with units, the largest first: "250ms", "5s", "1m30s", "2d".
#[derive(JsonSchema)]
struct Time(#[schemars(regex(pattern = r"^(([0-9][0-9_]*(ms|s|m|h|d))+|.*\$\{.*)$"))] String);

/// A duration, or "off".
#[derive(JsonSchema)]
struct TimeOrOff(#[schemars(regex(pattern = r"^(([0-9][0-9_]*(ms|s|m|h|d))+|off|.*\$\{.*)$"))] String);

/// "512", "16KiB", "10MB", or a whole number of bytes.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Size {
    Bytes(u64),
    Text(#[schemars(regex(pattern = r"^([0-9][0-9_]* ?([KMGT]i?)?B?|.*\$\{.*)$"))] String),
}

/// "20%", "0.1%".
#[derive(JsonSchema)]
struct Share(#[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?%|.*\$\{.*)$"))] String);

/// A whole number, or a string with a reference that becomes one.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Number {
    Number(u64),
    Reference(#[schemars(regex(pattern = r"\$\{"))] String),
}

/// The keys of gateway.toml. None is required.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Gateway {
    /// More files, relative to the main one; `*` and `?` are known in the name
    include: Option<Texts>,
    /// Threads that serve requests
    workers: Option<Workers>,
    listener: Named<Listener>,
    client_ip: Option<ClientIp>,
    dns: Option<Dns>,
    overload: Option<Overload>,
    auth: Named<Auth>,
    upstream: Named<Upstream>,
    limits: Option<Limits>,
    tier: Named<Tier>,
    policy: Named<Policy>,
    compress: Option<RouteCompress>,
    route: Option<Vec<Route>>,
    /// Descriptors that other proxies ask about
    rls: Named<Domain>,
    admin: Option<OrFalse<Admin>>,
    redis: Option<Redis>,
    database: Option<Database>,
    errors: Named<Texts>,
    shutdown: Option<Shutdown>,
    node: Option<Node>,
    privacy: Option<Privacy>,
    log: Option<Log>,
    trace: Option<Trace>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Workers {
    Number(Number),
    Auto(Auto),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Auto {
    Auto,
}

/// A value, or `false` for none.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum OrFalse<T> {
    Is(T),
    Not(#[schemars(extend("const" = false))] bool),
}

/// Where clients connect.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Listener {
    /// Address and port: "127.0.0.1:8080", "[::]:443"; or a Unix socket: "unix:/run/sluicegate/edge.sock"
    bind: String,
    /// Of a Unix socket's file: "0660"
    mode: Option<String>,
    owner: Option<String>,
    group: Option<String>,
    /// What is spoken: "h2", "http/1.1"
    http: Option<Texts>,
    /// Pairs of files, or one certificate that is ordered by ACME
    certs: Option<Certs>,
    min_version: Option<TlsVersion>,
    /// Names of IANA: "TLS_AES_256_GCM_SHA384"
    ciphers: Option<Texts>,
    sni: Option<Sni>,
    underscores: Option<Refuse>,
    /// Of every answer; values are the same in all of them
    response_headers: Option<Changes>,
    reuse_port: Option<bool>,
    redirect: Option<Redirect>,
    max_connections: Option<Number>,
    max_connections_per_ip: Option<Number>,
    timeouts: Option<ListenerTimeouts>,
    max: Option<Max>,
    client_ca: Option<String>,
    client_cert: Option<Demand>,
    client_crl: Option<String>,
    allow: Option<Texts>,
    deny: Option<Texts>,
    proxy_protocol: Option<ProxyProtocol>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Certs {
    Ordered(Ordered),
    Several(Vec<Cert>),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Cert {
    Pair(Pair),
    Ordered(Ordered),
}

/// A certificate and its key, PEM.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Pair {
    cert: String,
    key: String,
    self_signed: Option<bool>,
}

/// A certificate that is ordered and renewed by ACME.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Ordered {
    acme: String,
    names: Texts,
    email: Option<String>,
    agree: bool,
    ca: Option<String>,
    challenge: Option<Challenge>,
    state: Option<String>,
    secret: Option<String>,
}

#[derive(JsonSchema)]
enum Challenge {
    #[schemars(rename = "http-01")]
    Http01,
    #[schemars(rename = "tls-alpn-01")]
    TlsAlpn01,
}

#[derive(JsonSchema)]
enum TlsVersion {
    #[schemars(rename = "1.2")]
    Tls12,
    #[schemars(rename = "1.3")]
    Tls13,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Sni {
    Strict,
    Any,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Refuse {
    Refuse,
    Keep,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Demand {
    Ask,
    Require,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Redirect {
    To(String),
    With(RedirectWith),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct RedirectWith {
    to: String,
    status: Option<Number>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct ListenerTimeouts {
    handshake: Option<Time>,
    header: Option<Time>,
    idle: Option<Time>,
    body_stall: Option<Time>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Max {
    header_bytes: Option<Size>,
    headers: Option<Number>,
    uri_bytes: Option<Size>,
    body: Option<Size>,
    streams: Option<Number>,
}

/// Connections from there begin with a header of the PROXY protocol.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct ProxyProtocol {
    from: Texts,
}

/// Whose word about a client's address is taken.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct ClientIp {
    trust: Option<Texts>,
    header: Option<Forwarded>,
    ipv6_prefix: Option<Number>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Forwarded {
    XForwardedFor,
    Forwarded,
}

/// Name servers that are asked instead of the system's.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Dns {
    servers: Option<Texts>,
}

/// What is given up as memory runs out.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Overload {
    memory: Option<OrFalse<Memory>>,
    keep_alive: Option<Share>,
    requests: Option<Share>,
    connections: Option<Share>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Memory {
    Size(Size),
    Auto(Auto),
}

/// A way to authenticate clients.
#[derive(JsonSchema)]
#[schemars(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
enum Auth {
    ApiKey {
        pass: Option<bool>,
        r#in: Option<Texts>,
        keys: ApiKeys,
    },
    Jwt {
        pass: Option<bool>,
        jwks: Option<String>,
        keys: Option<File>,
        secret: Option<String>,
        algorithms: Texts,
        issuer: Option<Texts>,
        audience: Option<Texts>,
        typ: Option<String>,
        required: Option<Texts>,
        leeway: Option<Time>,
        consumer: Option<String>,
        tenant: Option<String>,
        tier: Option<String>,
        r#in: Option<Texts>,
        tls: Option<Tls>,
        fetch: Option<Fetch>,
    },
    Mtls {
        pass: Option<bool>,
        consumer: String,
        tenant: Option<String>,
        tier: Option<String>,
    },
    Basic {
        pass: Option<bool>,
        users: File,
        keep: Option<Time>,
    },
    Anonymous {
        pass: Option<bool>,
        consumer: Option<String>,
        tenant: Option<String>,
        tier: Option<String>,
    },
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct File {
    file: String,
}

/// "database", a file, or both
#[derive(JsonSchema)]
#[schemars(untagged)]
enum ApiKeys {
    Word(ApiKeysWord),
    In(ApiKeysIn),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum ApiKeysWord {
    Database,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ApiKeysIn {
    file: Option<String>,
    database: Option<bool>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Fetch {
    every: Option<Time>,
    pause: Option<Time>,
    timeout: Option<Time>,
}

/// Whom a server is checked by, and what it is shown.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Tls {
    min_version: Option<TlsVersion>,
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    sni: Option<String>,
    verify: Option<bool>,
}

/// Servers that requests are sent to.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Upstream {
    servers: Servers,
    balance: Option<Balance>,
    sticky: Option<Sticky>,
    http: Option<Version>,
    tls: Option<Tls>,
    health: Option<Health>,
    eject: Option<Eject>,
    slow_start: Option<Time>,
    panic: Option<Share>,
    host: Option<HostHeader>,
    connections: Option<Connections>,
    timeouts: Option<UpstreamTimeouts>,
    retry: Option<Retry>,
    uploads: Option<Uploads>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Servers {
    One(String),
    Several(Vec<Server>),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Server {
    Url(String),
    Weighted(Weighted),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Weighted {
    url: String,
    weight: Option<Number>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Balance {
    Word(BalanceWord),
    /// A dimension that keeps a client's server: "hash:ip", "hash:header:x-user", "hash:cookie:session", "hash:path"
    Hash(#[schemars(regex(pattern = r"^(hash:.+|.*\$\{.*)$"))] String),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum BalanceWord {
    P2c,
    RoundRobin,
    LeastRequests,
}

/// A signed cookie that keeps a client at its server.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Sticky {
    cookie: String,
    secret: String,
    max_age: Option<Time>,
    path: Option<String>,
    same_site: Option<SameSite>,
    secure: Option<bool>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum SameSite {
    Lax,
    Strict,
    None,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Version {
    H1,
    H2,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum HostHeader {
    Client,
    Server,
}

/// Servers are asked whether they work: by one of `path`, `tcp` and `grpc`.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Health {
    path: Option<String>,
    status: Option<Status>,
    body: Option<String>,
    tcp: Option<bool>,
    grpc: Option<Grpc>,
    every: Option<Time>,
    timeout: Option<Time>,
    unhealthy_after: Option<Number>,
    healthy_after: Option<Number>,
    port: Option<Number>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Status {
    Number(u64),
    Texts(String),
    Several(Vec<NumberOrText>),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Grpc {
    Any(bool),
    Service(String),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Eject {
    after: Option<Number>,
    r#for: Option<Time>,
    most: Option<Share>,
    success_rate: Option<Share>,
    latency: Option<Number>,
    every: Option<Time>,
    requests: Option<Number>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Connections {
    max: Option<Number>,
    idle: Option<Number>,
    idle_timeout: Option<Time>,
    max_age: Option<Time>,
    wait: Option<Time>,
    waiting: Option<Number>,
    streams: Option<Number>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct UpstreamTimeouts {
    connect: Option<Time>,
    r#try: Option<Time>,
    response: Option<Time>,
    stall: Option<TimeOrOff>,
    total: Option<Time>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Retry {
    times: Option<Number>,
    on: Option<Texts>,
    budget: Option<Share>,
    /// When a second server is asked while the first has not answered
    hedge_after: Option<Time>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Uploads {
    gather: Option<Size>,
    least_rate: Option<Size>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Limits {
    memory: Option<Size>,
    headers: Option<LimitHeaders>,
    /// Whether the keys that use most of each policy are watched
    hot_keys: Option<bool>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum LimitHeaders {
    Ietf,
    Legacy,
    Both,
    None,
}

/// The windows of a tier, an empty list for no limit; and what it has of its own beside its policy.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Tier {
    limit: Texts,
    algorithm: Option<Algorithm>,
    max_delay: Option<Time>,
    overshoot: Option<Overshoot>,
    when_redis_down: Option<WhenRedisDown>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum PolicyLimit {
    Windows(Texts),
    /// Windows by tier; "default" is for every other
    ByTier(BTreeMap<String, TierLimit>),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum TierLimit {
    Windows(Texts),
    With(Tier),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Rollout {
    Share(Share),
    None(#[schemars(extend("const" = 0))] u64),
}

/// Who is counted, and how much they may.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(extend("anyOf" = [{ "required": ["by"] }, { "required": ["replaces"] }]))]
#[schemars(extend("dependentRequired" = { "rollout": ["replaces"] }))]
struct Policy {
    /// consumer, tenant, ip, route, method, host, header:x, query:x, param:x, claim:x, body:x, and entry:x of
    /// descriptors; [] counts all together.
    /// Required, but of a candidate
    by: Option<Texts>,
    /// "20/s burst 40", "1_000/h", "8 in flight", or "tier"; or a table of these by tier
    limit: PolicyLimit,
    default_tier: Option<String>,
    algorithm: Option<Algorithm>,
    max_delay: Option<Time>,
    missing: Option<Missing>,
    r#match: Option<PolicyMatch>,
    cost: Option<Cost>,
    shadow: Option<bool>,
    /// A candidate: asked wherever the policy of this name is, and compared with it
    replaces: Option<String>,
    /// Of a candidate: the share of the keys that it decides about
    rollout: Option<Rollout>,
    count_denied: Option<bool>,
    overshoot: Option<Overshoot>,
    when_redis_down: Option<WhenRedisDown>,
    idempotency_key: Option<Idempotency>,
    penalty: Option<Penalty>,
    hot_keys: Option<HotKeys>,
}

/// The descriptors of one domain, and which policies decide about them.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Domain {
    /// Whether a descriptor's own limit counts
    overrides: Option<bool>,
    descriptors: Vec<Rule>,
}

/// Some descriptors, and what is done about them: `limit`, `unlimited` or `deny`.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Rule {
    entries: Entries,
    /// Names of policies, or limits as in "100/m by ip"
    limit: Option<Texts>,
    unlimited: Option<bool>,
    deny: Option<bool>,
    /// What policies count by that is no entry, by the entries that say it: { consumer = "{user_id}" }
    dimensions: Option<BTreeMap<String, String>>,
    name: Option<String>,
    /// Names of rules that do not count where a request meets them, too
    instead_of: Option<Texts>,
}

/// Values by keys: exact, with a `*` at the end, or "*" for any.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Entries {
    AnyOrder(BTreeMap<String, String>),
    InOrder(Vec<BTreeMap<String, String>>),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Algorithm {
    TokenBucket,
    SlidingWindow,
    FixedWindow,
    SlidingLog,
    LeakyBucket,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Missing {
    Ip,
    Skip,
    Reject,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PolicyMatch {
    method: Option<Texts>,
    path: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Cost {
    Number(Number),
    /// `default`, `estimate`, `header`, `response-header`, `response-json`, `request-bytes`, `response-bytes`,
    /// `response-time`, `max`, and units by "/path" or "METHOD /path"
    Table(BTreeMap<String, CostValue>),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum CostValue {
    Number(u64),
    Texts(Texts),
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Overshoot {
    Share(Share),
    Exact(#[schemars(extend("const" = 0))] u64),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum WhenRedisDown {
    Local,
    Allow,
    Deny,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Idempotency {
    Key(String),
    With(IdempotencyWith),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct IdempotencyWith {
    key: String,
    window: Option<Time>,
    /// Whether a policy that counts by address takes keys
    by_address: Option<bool>,
}

/// From when on a key is hot, and what is done then.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct HotKeys {
    /// Its share of the policy's decisions, or of its shard's
    above: Option<Share>,
    /// "report", or "local-only:1000/m": each node decides it alone, by this limit
    then: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Penalty {
    after: Number,
    within: Option<Time>,
    factor: Option<Number>,
    max: Option<Time>,
}

/// Which requests, which limits, and where to.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Route {
    name: Option<String>,
    host: Option<Texts>,
    /// {id} is one segment, {*rest} at the end all that follows; /api{*rest} takes whatever begins so
    path: Option<String>,
    methods: Option<Texts>,
    r#match: Option<RouteMatch>,
    /// The name of an upstream, a URL, or "echo"; or several with weights
    to: Option<To>,
    /// The dimension by which a client keeps its upstream, if there are several: "consumer", "header:x-user",
    /// "cookie:session"
    sticky: Option<String>,
    /// Another upstream that gets copies of requests, whose answers are thrown away
    mirror: Option<Mirror>,
    respond: Option<Respond>,
    redirect: Option<Redirect>,
    /// Names of policies, or limits as text: "100/m burst 20 by ip"
    limit: Option<Texts>,
    rewrite: Option<String>,
    headers: Option<Changes>,
    response_headers: Option<Changes>,
    max_body: Option<Size>,
    timeouts: Option<RouteTimeouts>,
    retry: Option<RouteRetry>,
    upgrade: Option<bool>,
    path_escapes: Option<Refuse>,
    auth: Option<Texts>,
    require: Option<Require>,
    allow: Option<Texts>,
    deny: Option<Texts>,
    cors: Option<Cors>,
    compress: Option<RouteCompress>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum To {
    One(String),
    Several(Vec<Part>),
}

/// One of several upstreams, and its share of the requests.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Part {
    upstream: String,
    weight: Option<Number>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum Mirror {
    To(String),
    With(MirrorWith),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct MirrorWith {
    to: String,
    share: Option<Share>,
    max_body: Option<Size>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum RouteCompress {
    Is(bool),
    With(Compress),
}

/// Which answers are compressed, and how.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Compress {
    types: Option<Texts>,
    min: Option<Size>,
    encodings: Option<Texts>,
    level: Option<Levels>,
    set_cookie: Option<bool>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Levels {
    zstd: Option<Number>,
    br: Option<Number>,
    gzip: Option<Number>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct RouteMatch {
    header: Option<BTreeMap<String, HeaderMatch>>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum HeaderMatch {
    Any(#[schemars(extend("const" = true))] bool),
    Value(String),
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Respond {
    status: Option<Number>,
    body: Option<String>,
    headers: Option<BTreeMap<String, Texts>>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Changes {
    remove: Option<Texts>,
    set: Option<BTreeMap<String, Texts>>,
    add: Option<BTreeMap<String, Texts>>,
    /// Of answers: the gateway's own refusals, too
    always: Option<bool>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct RouteTimeouts {
    response: Option<Time>,
    r#try: Option<Time>,
    total: Option<Time>,
    stall: Option<TimeOrOff>,
    tunnel_idle: Option<TimeOrOff>,
}

/// When a request is sent a second time, instead of what the upstream says
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct RouteRetry {
    times: Option<Number>,
    on: Option<Texts>,
    hedge_after: Option<Time>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Require {
    consumers: Option<Texts>,
    tenants: Option<Texts>,
    tiers: Option<Texts>,
    claims: Option<BTreeMap<String, Texts>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Cors {
    origins: Texts,
    methods: Option<Texts>,
    headers: Option<Texts>,
    expose: Option<Texts>,
    credentials: Option<bool>,
    max_age: Option<Time>,
}

/// Pages for operators.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Admin {
    bind: Option<String>,
    /// The admin's bearer token
    token: Option<String>,
    /// Bearer tokens of others
    tokens: Option<Vec<AdminToken>>,
    hosts: Option<Texts>,
    /// TLS: pairs of files
    certs: Option<Vec<Pair>>,
    client_ca: Option<String>,
    client_cert: Option<Demand>,
    client_crl: Option<String>,
    /// Certificates of clients, and what they allow
    certificates: Option<Vec<AdminCertificate>>,
    /// Where proxies ask by gRPC
    grpc: Option<GrpcBind>,
}

/// An address, or a table with TLS.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum GrpcBind {
    Address(String),
    Table(GrpcListener),
}

/// Where proxies ask by gRPC.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct GrpcListener {
    bind: String,
    /// TLS: pairs of files
    certs: Option<Vec<Pair>>,
    client_ca: Option<String>,
    client_cert: Option<Demand>,
    client_crl: Option<String>,
    /// Names in certificates of those who may ask: "san:uri=spiffe://mesh/ns/edge"
    clients: Option<Texts>,
}

/// A client certificate of the admin listener: a name in it, and what it allows.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct AdminCertificate {
    /// Whom the audit names
    name: String,
    /// A place and the name there: "san:email=alice@example.com", "subject:cn=alice"
    shows: String,
    role: AdminRole,
}

/// A bearer token of the admin listener: its text or its digest, and what it allows.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct AdminToken {
    /// Whom the audit names
    name: String,
    token: Option<String>,
    /// "sha256:" and 64 hex digits
    digest: Option<String>,
    role: AdminRole,
    /// A date, or date and time: "2027-01-01T00:00:00Z"
    expires: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum AdminRole {
    Read,
    Operate,
    Admin,
}

/// The Redis through which the nodes of a fleet share their limits.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Redis {
    url: Option<String>,
    topology: Option<String>,
    deadline: Option<Time>,
    prefix: Option<String>,
    connections: Option<Number>,
    key_secret: Option<String>,
    ca: Option<String>,
    ring: Option<Ring>,
}

/// Where policies, tiers and overrides that change while traffic runs are kept.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Database {
    /// "sqlite:state.db", or "postgres://user@host:5432/name"
    url: String,
    /// Of PostgreSQL, as it stands
    password: Option<String>,
    /// With SQLite beside [redis]: whether there is no other node
    single_node: Option<bool>,
    /// With PostgreSQL: the file that the last good state is kept in, for a start without it
    copy: Option<String>,
    /// Rows of usage that a node writes for each minute; 0: none
    #[schemars(range(max = 20000))]
    usage_rows: Option<u64>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Ring {
    shards: Vec<Weighted>,
    dedicated: Option<Vec<Dedicated>>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Dedicated {
    url: String,
    tenants: Texts,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Shutdown {
    ready_delay: Option<Time>,
    drain: Option<Time>,
    drain_tunnels: Option<Time>,
    upgrade: Option<Time>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Node {
    /// What this gateway is called; the host's name if it is not written
    #[schemars(length(max = 255))]
    name: Option<String>,
    header: Option<Shown>,
    request_id: Option<Shown>,
}

/// Whose answers carry it
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Shown {
    Always,
    Trusted,
    Never,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Privacy {
    addresses: Option<Addresses>,
}

/// How much of a client's address is shown where keys are named
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Addresses {
    Whole,
    Prefix,
    Hash,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Log {
    level: Option<String>,
    access: Option<OrFalse<Access>>,
    decisions: Option<OrFalse<Decisions>>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Decisions {
    to: Option<LogTo>,
    sample: Option<Share>,
    denied: Option<Share>,
    /// So many a second of the whole process at most: "1000/s"
    #[schemars(regex(pattern = r"^([0-9][0-9_]*/s|.*\$\{.*)$"))]
    max: Option<String>,
    /// Whether the database gets them, if there is one
    database: Option<bool>,
    /// How long a database keeps them
    retention: Option<Time>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Access {
    /// "stdout", "stderr", "off", "syslog", "udp://host:514", or a path
    to: Option<LogTo>,
    /// "json", "common", "combined", "ecs", or a text as in "{client} {status}"
    format: Option<String>,
    headers: Option<Texts>,
    query: Option<QueryShown>,
    sample: Option<BTreeMap<String, Share>>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum LogTo {
    Place(String),
    Syslog(Syslog),
}

/// A syslog daemon.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Syslog {
    /// "syslog", "unix:/dev/log" or "udp://127.0.0.1:514"
    syslog: String,
    facility: Option<String>,
    severity: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum QueryShown {
    Keep,
    Names,
    Drop,
}

/// Which requests are traced, and where their spans go.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case", deny_unknown_fields)]
struct Trace {
    /// The collector: "http://127.0.0.1:4318"
    otlp: String,
    protocol: Option<Otlp>,
    tls: Option<Tls>,
    headers: Option<BTreeMap<String, String>>,
    sample: Option<Share>,
    decides: Option<Decides>,
    parent: Option<Heeded>,
    service: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Otlp {
    Http,
    Grpc,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Decides {
    Parent,
    Ratio,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Heeded {
    Trusted,
    Always,
    Never,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What a table must hold beside the key in question, so that the reader asks for all of its keys.
    const BESIDE: &[(&str, &str)] = &[
        ("listener", "bind = \"127.0.0.1:0\""),
        ("listener.certs[0]", "acme = \"https://a\", names = \"a.example\", agree = true"),
        ("listener.certs[1]", "cert = \"a\", key = \"b\""),
        ("listener.certs[2]", "acme = \"https://a\", names = \"a.example\", agree = true"),
        ("policy", "by = \"ip\", limit = \"tier\""),
        ("upstream.health", "path = \"/\""),
        ("redis", "topology = \"ring\""),
        ("redis.ring", "shards = [{ url = \"redis://a\" }]"),
        ("auth jwt", "jwks = \"https://a\", algorithms = \"ES256\""),
    ];

    /// A key, and what cannot stand beside it.
    const INSTEAD: &[(&str, &str)] = &[
        ("keys", "jwks = \"https://a\", "),
        ("shards", "shards = [{ url = \"redis://a\" }], "),
        ("limit", ", limit = \"tier\""),
    ];

    /// Keys that the reader looks for in order to tell one kind of table from another, or to say where they belong.
    const LOOKED_FOR: &[(&str, &str)] = &[("listener.certs[1]", "acme"), ("route.retry", "budget")];

    /// Every table of the schema: a name for it, a document with `HERE` in it, and its keys.
    struct Tables<'s> {
        root: &'s Value,
        found: Vec<(String, String, BTreeSet<String>)>,
    }

    impl<'s> Tables<'s> {
        fn resolved(&self, schema: &'s Value) -> &'s Value {
            match schema.get("$ref").and_then(Value::as_str) {
                Some(path) => self.root.pointer(path.trim_start_matches('#')).expect("it is defined"),
                None => schema,
            }
        }

        /// Looks into a schema; `around` is a document with `HERE` where its value stands.
        fn walk(&mut self, schema: &'s Value, name: &str, around: &str) {
            let schema = self.resolved(schema);
            for word in ["anyOf", "oneOf"] {
                let several = schema.get(word).and_then(Value::as_array);
                for one in several.into_iter().flatten() {
                    self.walk(one, name, around);
                }
            }
            if let Some(items) = schema.get("items") {
                self.walk(items, name, &around.replace("HERE", "[HERE]"));
            }
            if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
                self.walk(values, name, &around.replace("HERE", "{ n = HERE }"));
            }
            let Some(keys) = schema.get("properties").and_then(Value::as_object) else { return };
            let kind = keys.get("kind").and_then(|kind| kind.get("const")).and_then(Value::as_str);
            let is_one = |known: &str| known == name || known.starts_with(&format!("{name}["));
            let number = self.found.iter().filter(|(known, ..)| is_one(known)).count();
            let named = match (kind, number) {
                (Some(kind), _) => format!("{name} {kind}"),
                (None, 0) if name != "listener.certs" => name.to_owned(),
                (None, number) => format!("{name}[{number}]"),
            };
            let beside = BESIDE.iter().find(|(known, _)| *known == named);
            let mut beside = beside.map_or(String::new(), |(_, beside)| format!("{beside}, "));
            if let Some(kind) = kind {
                beside.push_str(&format!("kind = \"{kind}\", "));
            }
            let inside = around.replace("HERE", &format!("{{ {beside}HERE }}"));
            self.found.push((named, inside.clone(), keys.keys().cloned().collect()));
            for (key, schema) in keys {
                let instead = INSTEAD.iter().find(|(known, _)| known == key);
                let inside = instead.map_or(inside.clone(), |(_, beside)| inside.replace(beside, ""));
                let inside = inside.replace("HERE", &format!("{key} = HERE"));
                self.walk(schema, &format!("{name}.{key}"), &inside);
            }
        }
    }

    /// The keys that the reader asks for where `HERE` stands, or what it said instead.
    fn asked(document: &str) -> Result<BTreeSet<String>, String> {
        let document = document.replace("HERE", "qqqqqqqqqqqqqqqqqq = 1");
        let errors =
            super::super::from_text("gateway.toml", &document).expect_err("a key is unknown").to_string();
        let behind = errors.split_once("unknown key `qqqqqqqqqqqqqqqqqq`");
        let Some((_, hint)) = behind.and_then(|(_, behind)| behind.split_once("it takes ")) else {
            return Err(errors);
        };
        let hint = hint.lines().next().unwrap_or_default();
        Ok(hint.split('`').skip(1).step_by(2).map(str::to_owned).collect())
    }

    #[test]
    fn the_schema_has_the_keys_of_the_reader_and_no_others() {
        let schema = schema();
        let mut tables = Tables { root: &schema, found: Vec::new() };
        let top = schema["properties"].as_object().expect("it is an object");
        assert_eq!(Ok(top.keys().cloned().collect::<BTreeSet<_>>()), asked("HERE"));
        for (key, inner) in top {
            let tier = if key == "policy" { "\n[tier.t]\nlimit = \"1/s\"\n" } else { "" };
            tables.walk(inner, key, &format!("{key} = HERE{tier}"));
        }
        assert!(tables.found.len() > 35, "only {} tables were found", tables.found.len());
        let mut wrong = String::new();
        for (name, document, keys) in &tables.found {
            let asked = asked(document).map(|mut asked| {
                asked
                    .retain(|key| keys.contains(key) || !LOOKED_FOR.contains(&(name.as_str(), key.as_str())));
                asked
            });
            if asked.as_ref() != Ok(keys) {
                wrong.push_str(&format!("{name}\n  schema {keys:?}\n  reader {asked:?}\n  in {document}\n"));
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
    }
}
