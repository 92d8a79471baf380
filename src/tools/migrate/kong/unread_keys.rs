//! Keys that nothing here reads: those that change no answer, and why others have no counterpart.

use super::super::yaml_file::UnreadKeys;

pub(super) const UNREAD: UnreadKeys =
    UnreadKeys { needless: NEEDLESS, why: WHY, numbers: NUMBERS, flags: FLAGS };

const NUMBERS: &str = "\
    allowed_payload_size connect_timeout day error_code hour http_failures max_age minute month port read_timeout \
    redis_database redis_port retries second status_code successes tcp_failures timeouts weight write_timeout year";

const FLAGS: &str = "\
    credentials disable_penalty echo_downstream enabled fault_tolerant hide_client_headers \
    hide_credentials keep_incoming_path preserve_host redis_ssl ssl strip_path tls_verify";

const NEEDLESS: &str = "\
    _comment _format_version _ignore _info _transform _workspace created_at hash_fallback id instance_name \
    max_retry_after protocols regex_priority request_buffering response_buffering slots tags updated_at";

const WHY: &[(&str, &str)] = &[
    ("certificates", "write them into files: `certs` of the listener names files"),
    ("ca_certificates", "write them into files: `tls.ca` and `client-ca` name files"),
    ("snis", "certificates are chosen by the names they contain"),
    ("client_certificate", "write it into files: `tls.cert` and `tls.key` of the upstream"),
    ("consumer_groups", "write tiers: [tier.…], and `tier` in the file of keys"),
    ("basicauth_credentials", "`sluicegate hash-key --basic` makes the entry of a user"),
    ("upstreams", "no service leads to it"),
    ("plugins", "no route that was taken over uses it"),
    ("targets", "no service leads to its upstream"),
    ("consumers", "no plugin that was taken over asks for them"),
    ("keyauth_credentials", "its consumer is not in this file"),
    ("jwt_secrets", "no plugin that was taken over asks for them"),
    ("vaults", "write `${NAME}` or `${file:/path}` instead of a secret"),
    ("https_redirect_status_code", "write `redirect = \"https\"` at a listener without TLS"),
    ("path_handling", "paths are joined by one slash"),
    ("message", "refusals have a body of their own"),
    ("status", "refusals by address are answered 403"),
];
