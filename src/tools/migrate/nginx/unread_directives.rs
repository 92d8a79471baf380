//! Lists what nobody has read, with the reason where one is known.

use super::super::draft::Draft;
use super::super::values::is_among;
use super::lexer::Directive;

/// Lists every directive that was not taken. A block that was not is one entry; in one that was, each of its own is.
pub(super) fn list(directives: &[Directive], draft: &mut Draft) {
    for directive in directives {
        let name = directive.name.as_str();
        if is_among(name, NEEDLESS) || NEEDLESS_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            draft.notes.needless(&directive.place, name);
        } else if !directive.is_taken() {
            draft.notes.left_out_line(directive, why(name));
        } else {
            list(directive.block(), draft);
        }
    }
}

fn why(name: &str) -> &'static str {
    if is_among(name, CONVERTED) {
        return "no location that was taken over uses it";
    }
    let found = WHY
        .iter()
        .find(|(known, _)| known.strip_suffix('*').map_or(*known == name, |prefix| name.starts_with(prefix)));
    found.map_or("it has no counterpart, or `migrate` does not know it", |(_, why)| why)
}

/// Words that change no answer.
const NEEDLESS: &str = "\
    user pid daemon master_process events load_module env error_log access_log log_format log_not_found \
    log_subrequest sendfile sendfile_max_chunk tcp_nopush tcp_nodelay types_hash_max_size \
    server_names_hash_bucket_size server_names_hash_max_size variables_hash_bucket_size variables_hash_max_size \
    map_hash_bucket_size map_hash_max_size limit_req_log_level limit_conn_log_level resolver resolver_timeout \
    keepalive keepalive_requests keepalive_time zone proxy_http_version proxy_bind proxy_socket_keepalive \
    proxy_headers_hash_max_size proxy_headers_hash_bucket_size proxy_ssl_server_name proxy_ssl_session_reuse \
    ssl_session_cache ssl_session_timeout ssl_session_tickets ssl_prefer_server_ciphers ssl_buffer_size \
    reset_timedout_connection client_body_temp_path client_body_buffer_size client_header_buffer_size server_tokens \
    default_type types set";

const NEEDLESS_PREFIXES: &[&str] =
    &["worker_", "open_file_cache", "proxy_temp_", "proxy_buffer", "proxy_busy_", "proxy_max_temp_"];

/// Words that become part of a route.
const CONVERTED: &str = "\
    allow deny add_header client_max_body_size grpc_pass grpc_set_header proxy_hide_header proxy_pass return rewrite";

const WHY: &[(&str, &str)] = &[
    ("gzip*", "write `compress` at its routes, or [compress] for all"),
    ("brotli*", "write `compress` at its routes, or [compress] for all"),
    ("proxy_cache*", "responses are not cached"),
    ("proxy_store*", "responses are not stored"),
    ("expires", "set the header with `response-headers`"),
    ("error_page", "upstreams' errors pass unchanged; refusals have a format of their own"),
    ("proxy_intercept_errors", "upstreams' errors pass unchanged"),
    ("proxy_redirect", "`Location` passes as the upstream wrote it"),
    ("proxy_cookie_*", "cookies pass as the upstream wrote them"),
    ("sub_filter*", "bodies are not changed"),
    ("mirror*", "write `mirror = \"http://…\"` at the route: copies go to an upstream, not to a path"),
    ("map", "the gateway has no maps: write a route for each case"),
    ("geo", "the gateway has no maps of addresses: write `allow` and `deny`"),
    ("split_clients", "write a route to several upstreams with their weights"),
    ("stream", "the gateway forwards only HTTP"),
    ("mail", "the gateway forwards only HTTP"),
    (
        "if",
        "the gateway has no conditions, and its requests are served like all others: write a route for each case, with \
         `methods` or `match`",
    ),
    ("auth_basic*", "write an `[auth.<name>]` with `kind = \"basic\"`, and its name in `auth` of the route"),
    ("proxy_set_header", "it becomes `headers` of a route, but its location was not taken over"),
    ("limit_rate*", "bandwidth is not limited"),
    ("limit_*", "no location that was taken over counts by it"),
    ("ssl_ciphers", "write `ciphers` at the listener, with IANA names"),
    ("ssl_conf_command", "write `ciphers` and `min-version` at the listener"),
    ("ssl_ecdh_curve", "the curves are fixed"),
    ("ssl_dhparam", "finite-field Diffie-Hellman is not supported"),
    ("ssl_stapling*", "OCSP is not stapled"),
    ("root", "files are not served: name a server that does"),
    ("alias", "files are not served: name a server that does"),
    ("index", "files are not served"),
    ("autoindex*", "files are not served"),
    ("try_files", "files are not served"),
    ("fastcgi_*", "FastCGI is not supported: name a server that speaks HTTP"),
    ("uwsgi_*", "the uwsgi protocol is not supported: start uWSGI with `--http`"),
    ("scgi_*", "SCGI is not supported"),
    ("memcached_*", "memcached is not supported"),
    ("charset*", "set `content-type` with `response-headers`"),
    ("perl*", "the gateway has no scripts"),
    ("js_*", "the gateway has no scripts"),
    ("lua_*", "the gateway has no scripts"),
    (
        "large_client_header_buffers",
        "write `max = { header-bytes = \"32KiB\", uri-bytes = \"8KiB\" }` at the listener",
    ),
    ("upstream", "no route that was taken over leads there"),
    ("proxy_next_upstream*", "it becomes `retry` of an upstream, but its location was not taken over"),
    ("proxy_connect_timeout", "it becomes `timeouts` of an upstream, but its location was not taken over"),
    ("proxy_read_timeout", "it becomes `timeouts` of an upstream, but its location was not taken over"),
    ("proxy_send_timeout", "it becomes `timeouts` of an upstream, but its location was not taken over"),
    ("proxy_pass_request_*", "bodies and headers always pass"),
    ("proxy_ignore_client_abort", "a request ends when its client disconnects"),
    ("set_real_ip_from", "`client-ip.trust` is the same in all servers"),
    ("real_ip_*", "`client-ip.trust` is the same in all servers"),
    ("merge_slashes", "slashes of a path are always merged"),
    ("hash", "this cannot be hashed: `balance = \"hash:…\"` needs a dimension"),
    ("sticky", "write `sticky = { cookie = …, secret = … }` at the upstream"),
    ("internal", "clients' requests do not reach it in nginx, so there is nothing to serve"),
];
