//! The names of the fields of a JSON line: this gateway's own, and those of the Elastic Common Schema. What has no name
//! there is under `sluicegate.`.

/// The keys of a line, as bytes up to the value. The opening quote of a text is part of its key, so that each field
/// takes one copy less.
pub(super) trait FieldNames {
    /// The brace, and everything up to the time.
    const TIME: &'static [u8];
    const REQUEST_ID: &'static [u8];
    const TRACE_ID: &'static [u8];
    const SPAN_ID: &'static [u8];
    const NODE: &'static [u8];
    const LISTENER: &'static [u8];
    const CLIENT: &'static [u8];
    const PEER: &'static [u8];
    /// The same of one over a Unix socket, which has no address.
    const CLIENT_UNIX: &'static [u8];
    const PEER_UNIX: &'static [u8];
    const PROTOCOL: &'static [u8];
    const TLS: &'static [u8];
    const SNI: &'static [u8];
    const METHOD: &'static [u8];
    const HOST: &'static [u8];
    const PORT: &'static [u8];
    const PATH: &'static [u8];
    const ROUTE: &'static [u8];
    const CONSUMER: &'static [u8];
    const TENANT: &'static [u8];
    const TIER: &'static [u8];
    const HEADERS: &'static [u8];
    const STATUS: &'static [u8];
    const GRPC_STATUS: &'static [u8];
    const REASON: &'static [u8];
    const CAUSE: &'static [u8];
    const DECISION: &'static [u8];
    const DECIDED: &'static [u8];
    const POLICY: &'static [u8];
    const LIMIT: &'static [u8];
    const REMAINING: &'static [u8];
    const UPSTREAM: &'static [u8];
    const SERVER: &'static [u8];
    const RETRIES: &'static [u8];
    const TOTAL: &'static [u8];
    const DECIDE: &'static [u8];
    const DELAY: &'static [u8];
    const WAIT: &'static [u8];
    const CONNECT: &'static [u8];
    const FIRST_BYTE: &'static [u8];
    const BYTES_IN: &'static [u8];
    const BYTES_OUT: &'static [u8];
    /// What the total is multiplied by: it is known in microseconds.
    const TOTAL_TIMES: u64;
    /// Bytes of a protocol's and of TLS's name that are left out: `HTTP/`, `TLSv`.
    const CUT_VERSIONS: bool;
    /// Whether the port is apart from the host.
    const SPLIT_HOST: bool;
}

pub(super) struct OwnNames;

/// The names of the Elastic Common Schema.
pub(super) struct EcsNames;

macro_rules! key {
    ($name:literal) => {
        concat!(",\"", $name, "\":").as_bytes()
    };
}

macro_rules! text_key {
    ($name:literal) => {
        concat!(",\"", $name, "\":\"").as_bytes()
    };
}

impl FieldNames for OwnNames {
    const TIME: &'static [u8] = b"{\"time\":\"";
    const REQUEST_ID: &'static [u8] = text_key!("request_id");
    const TRACE_ID: &'static [u8] = text_key!("trace_id");
    const SPAN_ID: &'static [u8] = text_key!("span_id");
    const NODE: &'static [u8] = text_key!("node");
    const LISTENER: &'static [u8] = text_key!("listener");
    const CLIENT: &'static [u8] = text_key!("client");
    const PEER: &'static [u8] = text_key!("peer");
    const CLIENT_UNIX: &'static [u8] = OwnNames::CLIENT;
    const PEER_UNIX: &'static [u8] = OwnNames::PEER;
    const PROTOCOL: &'static [u8] = text_key!("protocol");
    const TLS: &'static [u8] = text_key!("tls");
    const SNI: &'static [u8] = text_key!("sni");
    const METHOD: &'static [u8] = text_key!("method");
    const HOST: &'static [u8] = text_key!("host");
    const PORT: &'static [u8] = key!("port");
    const PATH: &'static [u8] = text_key!("path");
    const ROUTE: &'static [u8] = text_key!("route");
    const CONSUMER: &'static [u8] = text_key!("consumer");
    const TENANT: &'static [u8] = text_key!("tenant");
    const TIER: &'static [u8] = text_key!("tier");
    const HEADERS: &'static [u8] = key!("headers");
    const STATUS: &'static [u8] = key!("status");
    const GRPC_STATUS: &'static [u8] = key!("grpc_status");
    const REASON: &'static [u8] = text_key!("reason");
    const CAUSE: &'static [u8] = text_key!("cause");
    const DECISION: &'static [u8] = text_key!("decision");
    const DECIDED: &'static [u8] = text_key!("decided");
    const POLICY: &'static [u8] = text_key!("policy");
    const LIMIT: &'static [u8] = key!("limit");
    const REMAINING: &'static [u8] = key!("remaining");
    const UPSTREAM: &'static [u8] = text_key!("upstream");
    const SERVER: &'static [u8] = text_key!("server");
    const RETRIES: &'static [u8] = key!("retries");
    const TOTAL: &'static [u8] = key!("total_us");
    const DECIDE: &'static [u8] = key!("decide_us");
    const DELAY: &'static [u8] = key!("delay_us");
    const WAIT: &'static [u8] = key!("wait_us");
    const CONNECT: &'static [u8] = key!("connect_us");
    const FIRST_BYTE: &'static [u8] = key!("first_byte_us");
    const BYTES_IN: &'static [u8] = key!("bytes_in");
    const BYTES_OUT: &'static [u8] = key!("bytes_out");
    const TOTAL_TIMES: u64 = 1;
    const CUT_VERSIONS: bool = false;
    const SPLIT_HOST: bool = false;
}

impl FieldNames for EcsNames {
    const TIME: &'static [u8] =
        b"{\"ecs.version\":\"9.1.0\",\"event.dataset\":\"sluicegate.access\",\"@timestamp\":\"";
    const REQUEST_ID: &'static [u8] = text_key!("http.request.id");
    const TRACE_ID: &'static [u8] = text_key!("trace.id");
    const SPAN_ID: &'static [u8] = text_key!("span.id");
    const NODE: &'static [u8] = text_key!("service.node.name");
    const LISTENER: &'static [u8] = text_key!("sluicegate.listener");
    const CLIENT: &'static [u8] = text_key!("client.ip");
    const PEER: &'static [u8] = text_key!("source.ip");
    // Keys of their own, because the fields `ip` hold addresses alone.
    const CLIENT_UNIX: &'static [u8] = text_key!("client.address");
    const PEER_UNIX: &'static [u8] = text_key!("source.address");
    const PROTOCOL: &'static [u8] = text_key!("http.version");
    const TLS: &'static [u8] = text_key!("tls.version");
    const SNI: &'static [u8] = text_key!("tls.client.server_name");
    const METHOD: &'static [u8] = text_key!("http.request.method");
    const HOST: &'static [u8] = text_key!("url.domain");
    const PORT: &'static [u8] = key!("url.port");
    const PATH: &'static [u8] = text_key!("url.original");
    const ROUTE: &'static [u8] = text_key!("sluicegate.route");
    const CONSUMER: &'static [u8] = text_key!("user.name");
    const TENANT: &'static [u8] = text_key!("organization.id");
    const TIER: &'static [u8] = text_key!("sluicegate.tier");
    const HEADERS: &'static [u8] = key!("sluicegate.headers");
    const STATUS: &'static [u8] = key!("http.response.status_code");
    const GRPC_STATUS: &'static [u8] = key!("sluicegate.grpc_status");
    const REASON: &'static [u8] = text_key!("error.code");
    const CAUSE: &'static [u8] = text_key!("sluicegate.cause");
    const DECISION: &'static [u8] = text_key!("sluicegate.decision");
    const DECIDED: &'static [u8] = text_key!("sluicegate.decided");
    const POLICY: &'static [u8] = text_key!("sluicegate.policy");
    const LIMIT: &'static [u8] = key!("sluicegate.limit");
    const REMAINING: &'static [u8] = key!("sluicegate.remaining");
    const UPSTREAM: &'static [u8] = text_key!("sluicegate.upstream");
    const SERVER: &'static [u8] = text_key!("destination.address");
    const RETRIES: &'static [u8] = key!("sluicegate.retries");
    const TOTAL: &'static [u8] = key!("event.duration");
    const DECIDE: &'static [u8] = key!("sluicegate.decide_us");
    const DELAY: &'static [u8] = key!("sluicegate.delay_us");
    const WAIT: &'static [u8] = key!("sluicegate.wait_us");
    const CONNECT: &'static [u8] = key!("sluicegate.connect_us");
    const FIRST_BYTE: &'static [u8] = key!("sluicegate.first_byte_us");
    const BYTES_IN: &'static [u8] = key!("http.request.body.bytes");
    const BYTES_OUT: &'static [u8] = key!("http.response.body.bytes");
    // A thousand, because `event.duration` is in nanoseconds.
    const TOTAL_TIMES: u64 = 1_000;
    const CUT_VERSIONS: bool = true;
    const SPLIT_HOST: bool = true;
}
