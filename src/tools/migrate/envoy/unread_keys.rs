//! Keys that nothing here reads: those that change no answer, and why others have no counterpart.

use super::super::yaml_file::UnreadKeys;

pub(super) const UNREAD: UnreadKeys = UnreadKeys { needless: NEEDLESS, why: WHY, numbers: "", flags: "" };

const NEEDLESS: &str = "\
    access_log admin alt_stat_name codec_type common_lb_config decorator delayed_close_timeout dns_lookup_family \
    dns_refresh_rate drain_timeout drain_type enable_reuse_port flags_path generate_request_id \
    include_request_attempt_count layered_runtime merge_slashes metadata node normalize_path \
    per_connection_buffer_limit_bytes preserve_external_request_id respect_dns_ttl retry_back_off route_specifier \
    runtime_fraction runtime_key_prefix server_name socket_options stage stat_prefix stats_config \
    stats_flush_interval stats_sinks tcp_backlog_size total_weight tracing traffic_direction type \
    upstream_connection_options use_remote_address use_tcp_for_dns_lookups validate_clusters virtual_clusters \
    watchdogs @type";

const WHY: &[(&str, &str)] = &[
    ("dynamic_resources", "what a control plane sends cannot be read"),
    ("clusters", "no route leads to it"),
    ("cors", "there is no CORS filter, so it has no effect"),
    (
        "rate_limits",
        "the limits of these descriptors are in the rate limit service's configuration: `migrate ratelimit` reads it",
    ),
    ("descriptors", "no route makes these descriptors"),
    ("token_bucket", "no route makes its descriptor"),
    ("max_requests", "write a limit of requests in flight"),
    ("max_retries", "`retry.budget` limits retries"),
    ("disable_shadow_host_suffix_append", "the host of a mirrored request always ends in `-shadow`"),
    ("response_headers_to_add", "refusals have headers of their own"),
    ("secrets", "write them into files"),
    ("tls_certificate_sds_secret_configs", "write it into files: `certs` and `tls` name files"),
    ("validation_context_sds_secret_config", "write it into a file: `client-ca` and `tls.ca` name files"),
    ("trusted_ca", "write it into a file: `client-ca` and `tls.ca` name files"),
    ("idle_timeout", "use `stall` of the upstream's `timeouts`"),
    ("stream_idle_timeout", "use `stall` of the upstream's `timeouts`"),
    ("request_timeout", "`body-stall` of the listener's `timeouts` bounds slow bodies"),
    ("typed_per_filter_config", "its filter is missing or was not taken over"),
    ("overload_manager", "use [overload]"),
];
