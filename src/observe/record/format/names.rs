//! The names of the fields of a JSON line: this gateway's own, and those of the Elastic Common Schema. What has no name
//! there is under `sluicegate.`.

pub(super) struct OwnNames;

pub(super) struct EcsNames;

/// The key of a number or of something nested: bytes up to the value.
macro_rules! key {
    ($name:literal) => {
        concat!(",\"", $name, "\":").as_bytes()
    };
}

/// The key of a text. Its opening quote is part of it, so that each field takes one copy less.
macro_rules! text_key {
    ($name:literal) => {
        concat!(",\"", $name, "\":\"").as_bytes()
    };
}

/// A row for each field: its constant, the form of its value, its own name, its name in the Elastic Common Schema.
macro_rules! field_names {
    ($($constant:ident $form:ident $own:literal $ecs:literal)*) => {
        pub(super) trait FieldNames {
            /// The brace, and everything up to the time.
            const TIME: &'static [u8];
            /// What the total is multiplied by: it is known in microseconds.
            const TOTAL_TIMES: u64;
            /// Bytes of a protocol's and of TLS's name that are left out: `HTTP/`, `TLSv`.
            const CUT_VERSIONS: bool;
            /// Whether the port is apart from the host.
            const SPLIT_HOST: bool;
            $(const $constant: &'static [u8];)*
        }

        impl FieldNames for OwnNames {
            const TIME: &'static [u8] = b"{\"time\":\"";
            const TOTAL_TIMES: u64 = 1;
            const CUT_VERSIONS: bool = false;
            const SPLIT_HOST: bool = false;
            $(const $constant: &'static [u8] = $form!($own);)*
        }

        impl FieldNames for EcsNames {
            const TIME: &'static [u8] =
                b"{\"ecs.version\":\"9.1.0\",\"event.dataset\":\"sluicegate.access\",\"@timestamp\":\"";
            // A thousand, because `event.duration` is in nanoseconds.
            const TOTAL_TIMES: u64 = 1_000;
            const CUT_VERSIONS: bool = true;
            const SPLIT_HOST: bool = true;
            $(const $constant: &'static [u8] = $form!($ecs);)*
        }
    };
}

// A client or peer over a Unix socket has a key of its own in the schema, because the fields `ip` hold addresses alone.
field_names! {
    REQUEST_ID text_key "request_id" "http.request.id"
    TRACE_ID text_key "trace_id" "trace.id"
    SPAN_ID text_key "span_id" "span.id"
    NODE text_key "node" "service.node.name"
    LISTENER text_key "listener" "sluicegate.listener"
    CLIENT text_key "client" "client.ip"
    PEER text_key "peer" "source.ip"
    CLIENT_UNIX text_key "client" "client.address"
    PEER_UNIX text_key "peer" "source.address"
    PROTOCOL text_key "protocol" "http.version"
    TLS text_key "tls" "tls.version"
    SNI text_key "sni" "tls.client.server_name"
    METHOD text_key "method" "http.request.method"
    HOST text_key "host" "url.domain"
    PORT key "port" "url.port"
    PATH text_key "path" "url.original"
    ROUTE text_key "route" "sluicegate.route"
    CONSUMER text_key "consumer" "user.name"
    TENANT text_key "tenant" "organization.id"
    TIER text_key "tier" "sluicegate.tier"
    HEADERS key "headers" "sluicegate.headers"
    STATUS key "status" "http.response.status_code"
    GRPC_STATUS key "grpc_status" "sluicegate.grpc_status"
    REASON text_key "reason" "error.code"
    CAUSE text_key "cause" "sluicegate.cause"
    DECISION text_key "decision" "sluicegate.decision"
    DECIDED text_key "decided" "sluicegate.decided"
    POLICY text_key "policy" "sluicegate.policy"
    LIMIT key "limit" "sluicegate.limit"
    REMAINING key "remaining" "sluicegate.remaining"
    UPSTREAM text_key "upstream" "sluicegate.upstream"
    SERVER text_key "server" "destination.address"
    RETRIES key "retries" "sluicegate.retries"
    TOTAL key "total_us" "event.duration"
    DECIDE key "decide_us" "sluicegate.decide_us"
    DELAY key "delay_us" "sluicegate.delay_us"
    WAIT key "wait_us" "sluicegate.wait_us"
    CONNECT key "connect_us" "sluicegate.connect_us"
    FIRST_BYTE key "first_byte_us" "sluicegate.first_byte_us"
    BYTES_IN key "bytes_in" "http.request.body.bytes"
    BYTES_OUT key "bytes_out" "http.response.body.bytes"
}
