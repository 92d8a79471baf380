//! What keeps clients out in nginx keeps them out here.

use super::super::{From, MigrationOutput, migrate_text};

fn migrated(servers: &str) -> MigrationOutput {
    let text = format!("http {{\n{servers}\n}}\n");
    let migrated = migrate_text(From::Nginx, "nginx.conf", &text).expect("it can be parsed");
    assert!(migrated.errors.is_none(), "{:?}\n{}", migrated.errors, migrated.text);
    migrated
}

/// The routes of a host, each as its path and what stands below it.
fn routes<'m>(migrated: &'m MigrationOutput, host: &str) -> Vec<(&'m str, &'m str)> {
    let sections = migrated.text.split("\n\n").filter(|section| section.starts_with("[[route]]"));
    let of_host = sections.filter(|section| match host {
        "" => !section.contains("\nhost = "),
        host => section.contains(&format!("\nhost = \"{host}\"")),
    });
    let path = |section: &'m str| section.split("\npath = \"").nth(1).unwrap_or_default().split('"').next();
    of_host.map(|section| (path(section).unwrap_or_default(), section)).collect()
}

#[track_caller]
fn route<'m>(migrated: &'m MigrationOutput, host: &str, path: &str) -> &'m str {
    let found = routes(migrated, host).into_iter().find(|(known, _)| *known == path);
    found.unwrap_or_else(|| panic!("{host} {path} is not in\n{}", migrated.text)).1
}

const TLS: &str = "listen 443 ssl; ssl_certificate c.pem; ssl_certificate_key k.pem; ";
const TO_A: &str = "location / { proxy_pass http://10.0.0.1; } ";
const TO_B: &str = "location / { proxy_pass http://10.0.0.2; } ";

#[test]
fn what_one_of_the_two_web_ports_keeps_out_stays_out() {
    for guard in ["allow 127.0.0.9; deny all;", "auth_basic x; auth_basic_user_file f;"] {
        for name in ["server_name a.test;", ""] {
            let clear = format!("server {{ listen 80; {name} {TO_A} }}\n");
            let tls = format!("server {{ {TLS} {name} {guard} {TO_B} }}\n");
            for servers in [format!("{clear}{tls}"), format!("{tls}{clear}")] {
                let migrated = migrated(&servers);
                let route = route(&migrated, "", "/{*rest}");
                let is_kept = route.contains("allow = \"127.0.0.9\"") || route.contains("status = 501");
                assert!(
                    is_kept && !migrated.text.contains("to = \"upstream-10.0.0.1\""),
                    "{}",
                    migrated.text
                );
                assert!(!migrated.is_whole_but_paths());
            }
        }
    }
    // What only the clear keeps out is closed in the other.
    let clear =
        format!("server {{ listen 80; server_name a.test; location /adm/ {{ deny all; }} {TO_A} }}\n");
    let tls = format!(
        "server {{ {TLS} server_name a.test; location /adm/x/ {{ proxy_pass http://10.0.0.2; }} {TO_B} }}\n"
    );
    for servers in [format!("{clear}{tls}"), format!("{tls}{clear}")] {
        let migrated = migrated(&servers);
        for path in ["/adm/{*rest}", "/adm/x/{*rest}"] {
            assert!(route(&migrated, "", path).contains("status = 501"), "{}", migrated.text);
        }
        assert!(route(&migrated, "", "/{*rest}").contains("to = \"upstream-10.0.0.2\""), "{}", migrated.text);
        assert!(!migrated.is_whole_but_paths());
    }
}

#[test]
fn a_name_of_one_web_port_is_closed_where_the_other_ports_default_server_refuses() {
    let servers = format!(
        "server {{ listen 80; server_name z.test; {TO_A} }}\n\
         server {{ {TLS} server_name a.test; {TO_B} location /adm/ {{ deny all; }} }}\n\
         server {{ {TLS} server_name b.test; {TO_A} }}\n"
    );
    let migrated = migrated(&servers);
    let host = if routes(&migrated, "z.test").is_empty() { "" } else { "z.test" };
    assert!(route(&migrated, host, "/adm/{*rest}").contains("status = 501"), "{}", migrated.text);
    assert!(route(&migrated, host, "/{*rest}").contains("to = "), "{}", migrated.text);
    assert!(!migrated.is_whole_but_paths());
}

#[test]
fn a_server_that_asks_for_certificates_is_not_reached_in_the_clear() {
    let verify = "ssl_client_certificate ca.pem; ssl_verify_client on;";
    let servers = format!(
        "server {{ {TLS} server_name a.test; {verify} {TO_A} }}\nserver {{ listen 80; server_name a.test; {TO_B} }}\n"
    );
    let migrated = migrated(&servers);
    assert!(route(&migrated, "", "/{*rest}").contains("status = 501"), "{}", migrated.text);
}

#[test]
fn what_a_condition_keeps_out_of_an_answer_stays_out() {
    let within = "location / { if ($http_x_secret != s3) { return 403; } return 200 tok; }";
    let beneath = "if ($http_user_agent ~* bot) { return 403; } location / { return 302 http://a.test/; }";
    let rewritten = "if ($bad) { return 403; } location / { rewrite ^/(.*)$ http://a.test/$1 permanent; }";
    for guarded in [within, beneath, rewritten] {
        let migrated = migrated(&format!("server {{ listen 80; {guarded} }}\n"));
        assert!(route(&migrated, "", "/{*rest}").contains("status = 501"), "{}", migrated.text);
        assert!(!migrated.is_whole_but_paths());
    }
    let open = migrated("server { listen 80; location / { return 200 tok; } }\n");
    assert!(route(&open, "", "/{*rest}").contains("status = 200"), "{}", open.text);
}

#[test]
fn a_condition_that_refuses_or_sends_clients_elsewhere_closes_its_place() {
    let guards = [400, 403, 444, 451, 499, 500, 502, 503, 504].map(|status| format!("return {status};"));
    let elsewhere = ["return 302 /login;", "return https://sso.test$request_uri;", "return 200 no;"];
    let rewritten = ["rewrite ^ /login last;", "rewrite ^ /open/a break;", "rewrite ^ /login redirect;"];
    let elsewhere = elsewhere.into_iter().chain(rewritten).map(str::to_owned);
    for guard in guards.into_iter().chain(elsewhere) {
        let condition = format!("if ($http_x_key = \"\") {{ {guard} }}");
        for (within, around) in [(condition.as_str(), ""), ("", condition.as_str())] {
            let servers = format!(
                "server {{ listen 80; {around} location /a {{ {within} proxy_pass http://10.0.0.1; }} }}"
            );
            let migrated = migrated(&servers);
            assert!(route(&migrated, "", "/a{*rest}").contains("status = 501"), "{}", migrated.text);
            assert!(migrated.text.contains("the location is closed (501)"), "{}", migrated.text);
        }
    }
}

#[test]
fn a_condition_by_where_a_request_is_for_moves_it_and_is_listed() {
    for condition in [
        "if ($host != www.a.test) { return 301 https://www.a.test$request_uri; }",
        "if ($request_method = OPTIONS) { return 204; }",
        "if ($host ~* ^old\\.test$) { rewrite ^/(.*)$ https://a.test/$1 permanent; }",
    ] {
        let migrated = migrated(&format!("server {{ listen 80; {condition} {TO_A} }}"));
        assert!(route(&migrated, "", "/{*rest}").contains("to = "), "{}", migrated.text);
        assert!(
            migrated.text.contains("served like all others") && !migrated.is_whole_but_paths(),
            "{}",
            migrated.text
        );
    }
}

#[test]
fn a_script_that_may_refuse_closes_its_place() {
    for script in
        ["js_access a.b;", "rewrite_by_lua_block { ngx.exit(403) }", "perl Auth::handler;", "modsecurity on;"]
    {
        let migrated = migrated(&format!("server {{ listen 80; {script} {TO_A} }}"));
        assert!(route(&migrated, "", "/{*rest}").contains("status = 501"), "{}", migrated.text);
    }
}

#[test]
fn one_server_at_both_web_ports_is_one() {
    let servers = format!(
        "server {{ listen 80; server_name a.test; {TO_A} }}\nserver {{ {TLS} server_name a.test; {TO_A} }}\n"
    );
    let migrated = migrated(&servers);
    assert!(migrated.is_whole_but_paths() && !migrated.text.contains("501"), "{}", migrated.text);
}

#[test]
fn what_certbot_writes_sends_the_clear_to_https() {
    let clear = "server { listen 80; server_name a.test; location /.well-known/acme-challenge/ { root /var/www; }\n\
                 location / { return 301 https://$host$request_uri; } }\n";
    let tls = format!("server {{ {TLS} server_name a.test; {TO_A} }}\n");
    for servers in [format!("{clear}{tls}"), format!("{tls}{clear}")] {
        let migrated = migrated(&servers);
        assert!(migrated.text.contains("redirect = { to = \"https\", status = 301 }"), "{}", migrated.text);
        assert!(route(&migrated, "", "/{*rest}").contains("to = \"upstream-10.0.0.1\""), "{}", migrated.text);
        assert!(
            migrated.text.contains("to order certificates write") && !migrated.is_whole_but_paths(),
            "{}",
            migrated.text
        );
    }
    // Not all is sent to https, because a name that is served in the clear keeps the port from that.
    let other = format!("server {{ listen 80; server_name b.test; {TO_B} }}\n");
    let migrated = migrated(&format!("{clear}{tls}{other}"));
    assert!(!migrated.text.contains("redirect = "), "{}", migrated.text);
    assert!(!migrated.is_whole_but_paths() && migrated.text.contains("redirects none"), "{}", migrated.text);
}

#[test]
fn a_guard_that_ends_within_a_segment_holds_beyond_it() {
    for guard in ["deny all;", "auth_basic x;", "client_max_body_size 5;"] {
        for (location, path) in [
            ("/admin", "/admin{*rest}"),
            ("^~ /admin", "/admin{*rest}"),
            ("~ ^/admin", "/admin{*rest}"),
            ("~ ^/(admin)(/|$)", "/admin/{*rest}"),
            ("/admin/", "/admin/{*rest}"),
            ("= /admin", "/admin"),
        ] {
            let servers = format!(
                "server {{ listen 8080; {TO_A}\nlocation {location} {{ {guard} proxy_pass http://10.0.0.1; }} }}\n"
            );
            let migrated = migrated(&servers);
            let key = guard.split(' ').next().unwrap_or_default();
            let key = [
                ("deny", "deny = "),
                ("auth_basic", "status = 501"),
                ("client_max_body_size", "max-body = "),
            ]
            .iter()
            .find(|(known, _)| *known == key)
            .map_or("", |(_, key)| key);
            assert!(route(&migrated, "", path).contains(key), "{location} {guard}\n{}", migrated.text);
        }
    }
}

#[test]
fn guards_of_servers_that_no_host_can_say_hold_at_the_default_server() {
    for name in ["~^adm\\.", "int.*"] {
        let servers = format!(
            "server {{ listen 80; server_name a.test; {TO_A} }}\nserver {{ listen 80; server_name {name}; deny all; {TO_B} }}\n"
        );
        let migrated = migrated(&servers);
        assert!(route(&migrated, "", "/{*rest}").contains("status = 501"), "{}", migrated.text);
    }
}

#[test]
fn servers_of_one_address_that_ask_for_other_certificates_are_closed() {
    let server = |name: &str, ca: &str, verify: &str| {
        format!(
            "server {{ {TLS} server_name {name}; ssl_client_certificate {ca}; ssl_verify_client {verify}; {TO_A} }}\n"
        )
    };
    for (first, second, is_closed) in [
        (("x.pem", "optional"), ("y.pem", "on"), true),
        (("x.pem", "on"), ("y.pem", "on"), true),
        (("x.pem", "on"), ("x.pem", "on"), false),
    ] {
        let servers =
            format!("{}{}", server("a.test", first.0, first.1), server("b.test", second.0, second.1));
        let migrated = migrated(&servers);
        let route = route(&migrated, "b.test", "/{*rest}");
        assert_eq!(route.contains("status = 501"), is_closed, "{}", migrated.text);
    }
}

#[test]
fn a_place_whose_limit_cannot_be_counted_is_closed() {
    let servers = format!(
        "limit_req_zone $server_name$uri zone=u:1m rate=1r/m;\n         server {{ listen 80; {TO_A} location /u/ {{ limit_req zone=u; proxy_pass http://10.0.0.1; }} }}\n"
    );
    let migrated = migrated(&servers);
    assert!(route(&migrated, "", "/u/{*rest}").contains("status = 501"), "{}", migrated.text);
    assert!(route(&migrated, "", "/{*rest}").contains("to = "), "{}", migrated.text);
}

#[test]
fn a_port_of_its_own_that_may_keep_clients_out_does_not_open_the_others() {
    for (main, other, guard, is_bound) in [
        ("8080", "8081", "deny all;", false),
        ("8080", "8081", "", false),
        ("127.0.0.1:8080", "10.0.0.1:8081", "", false),
        ("8080", "127.0.0.1:8081", "", true),
        ("80", "8081", "", true),
        ("80", "8081", "deny all;", false),
    ] {
        let [main, apart] = [(main, "", TO_A), (other, guard, TO_B)].map(|(port, guard, to)| {
            format!("server {{ listen {port}; server_name a.test; {guard} {to} }}\n")
        });
        let migrated = migrated(&format!("{main}{apart}"));
        assert_eq!(
            migrated.text.matches("\nbind = ").count(),
            1 + usize::from(is_bound),
            "{}",
            migrated.text
        );
        let is_listed = migrated.text.contains("its listener is left out")
            || migrated.text.contains("`migrate` cannot tell whether");
        assert_eq!(is_listed, !is_bound, "{}", migrated.text);
        assert!(
            migrated.text.contains("paths that other ports also serve") && !migrated.is_whole_but_paths(),
            "{}",
            migrated.text
        );
    }
}

#[test]
fn what_a_slash_at_the_end_opens_is_listed() {
    let servers = "server { listen 8080; location /y/ { deny all; }\nlocation = /y/ok { proxy_pass http://10.0.0.1; } }\n";
    let open = migrated(servers);
    assert!(
        open.text.contains("nginx.conf:3: `location = /y/ok`: `/y/ok/` matches this location, too"),
        "{}",
        open.text
    );
}

#[test]
fn a_closed_location_is_not_listed_as_taken_over_or_open() {
    let closed = migrated(
        "server { listen 8080; if ($http_x) { return 403; }
         location /old { rewrite ^/old/(.*)$ /new/$1 permanent; }
         location / { auth_basic x; proxy_pass http://10.0.0.1; }
         location = /ok { allow 10.0.0.0/8; deny all; return 200 ok; } }",
    );
    for said in ["Taken over, but not exactly", "matches this location, too", "or `migrate` does not know it"]
    {
        assert!(!closed.text.contains(said), "{said}: {}", closed.text);
    }
    assert!(closed.text.contains("`deny all`: no location that was taken over uses it"), "{}", closed.text);
}

#[test]
fn a_size_that_is_none_is_listed() {
    let odd = migrated(
        "server { listen 8080; location / { client_max_body_size 5z; proxy_pass http://10.0.0.1; } }",
    );
    let said = "`client_max_body_size 5z`: this is not a size: nginx's default, 1 MiB, is assumed";
    assert!(odd.text.contains(said) && odd.text.contains("1MiB"), "{}", odd.text);
}

#[test]
fn what_follows_a_location_within_a_segment_is_sent_as_nginx_sends_it() {
    for (inside, path, sent) in [
        ("proxy_pass http://10.0.0.1/d;", "/c{*rest}", "/d{rest}"),
        ("proxy_pass http://10.0.0.1/d/;", "/c{*rest}", "/d/{rest}"),
        ("rewrite ^/c(.*)$ /d$1 break; proxy_pass http://10.0.0.1;", "/c{*rest}", "/d{rest}"),
        ("rewrite ^/c/(.*)$ /d/$1 break; proxy_pass http://10.0.0.1;", "/c/{*rest}", "/d/{rest}"),
        ("rewrite ^/c(/.*)$ /e$1 break; proxy_pass http://10.0.0.1;", "/c/{*rest}", "/e/{rest}"),
    ] {
        let migrated = migrated(&format!("server {{ listen 8080; {TO_A} location /c {{ {inside} }} }}\n"));
        let route = route(&migrated, "", path);
        assert!(route.contains(&format!("rewrite = \"{sent}\"")), "{inside}\n{}", migrated.text);
        assert_eq!(migrated.is_whole_but_paths(), path == "/c{*rest}", "{inside}\n{}", migrated.text);
    }
}

#[test]
fn a_mark_in_front_of_a_file_is_no_word() {
    let text = format!("{}http {{ server {{ listen 8080; {TO_A} }} }}", '\u{feff}');
    let migrated = migrate_text(From::Nginx, "nginx.conf", &text).expect("it can be parsed");
    assert!(migrated.is_whole_but_paths() && migrated.text.contains("[[route]]"), "{}", migrated.text);
}

const TO_B_OF: &str = "allow 127.0.0.0/8; deny all; proxy_pass http://10.0.0.2;";

#[test]
fn hops_that_every_server_believes_are_believed_wherever_they_stand() {
    let real_ip = "set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; real_ip_recursive on;";
    let redirecting = "server { listen 80; return 301 https://$host$request_uri; }\n";
    let within = format!("{redirecting}server {{ {TLS} {real_ip} location / {{ {TO_B_OF} }} }}");
    let around = format!("{real_ip}\n{redirecting}server {{ {TLS} location / {{ {TO_B_OF} }} }}");
    for servers in [within, around] {
        let migrated = migrated(&servers);
        assert!(migrated.text.contains("[client-ip]\ntrust = \"10.0.0.0/8\""), "{}", migrated.text);
        assert!(route(&migrated, "", "/{*rest}").contains("allow = \"127.0.0.0/8\""), "{}", migrated.text);
        assert!(migrated.is_whole_but_paths(), "{}", migrated.text);
    }
}

#[test]
fn lists_of_addresses_that_the_gateway_has_not_close_their_place() {
    let real_ip = "set_real_ip_from 10.0.0.0/8; real_ip_header";
    let listed = format!("location / {{ {TO_B_OF} }}");
    let open = "location / { proxy_pass http://10.0.0.1; }";
    let plain = "listen 80; server_name a.test;";
    for servers in [
        // From another field.
        format!("{real_ip} X-Real-IP;\nserver {{ {plain} {listed} }}"),
        format!("{real_ip} CF-Connecting-IP;\nserver {{ {plain} {listed} }}"),
        format!("set_real_ip_from 10.0.0.0/8;\nserver {{ {plain} {listed} }}"),
        format!("server {{ {plain} {real_ip} X-Real-IP; {listed} }}"),
        // Other hops than another server's, or none.
        format!(
            "server {{ {plain} {real_ip} X-Forwarded-For; {listed} }}\nserver {{ listen 80; server_name b.test; {open} }}"
        ),
        format!(
            "{real_ip} X-Forwarded-For;\nserver {{ {plain} set_real_ip_from 192.0.2.0/24; {listed} }}\n\
             server {{ listen 80; server_name b.test; {open} }}"
        ),
        format!("server {{ {plain} location / {{ {real_ip} X-Forwarded-For; {TO_B_OF} }} }}"),
        // A listener reads the PROXY protocol as its first server says.
        format!(
            "server {{ listen 80 proxy_protocol; server_name b.test; {real_ip} proxy_protocol; {open} }}\n\
             server {{ listen 80 proxy_protocol; server_name a.test; {listed} }}"
        ),
    ] {
        let migrated = migrated(&servers);
        assert!(!migrated.text.contains("to = \"upstream-10.0.0.2\""), "{servers}\n{}", migrated.text);
        assert!(migrated.text.contains("which differ from the gateway's"), "{servers}\n{}", migrated.text);
    }
    let announced = format!("server {{ listen 80 proxy_protocol; {real_ip} proxy_protocol; {listed} }}");
    let migrated = migrated(&announced);
    assert!(route(&migrated, "", "/{*rest}").contains("allow = \"127.0.0.0/8\""), "{}", migrated.text);
    assert!(migrated.is_whole_but_paths(), "{}", migrated.text);
}

#[test]
fn rewrites_to_a_place_that_keeps_clients_out_are_closed() {
    let server = |lines: &str| {
        migrated(&format!(
            "server {{ listen 80; {lines} location /denied {{ deny all; }} location /secret/x/ {{ proxy_pass http://10.0.0.1; }} {TO_B} }}"
        ))
    };
    for (rewrite, path) in [
        ("rewrite ^/secret(.*)$ /denied$1 last;", "/secret{*rest}"),
        ("rewrite ^/secret/ /denied/a;", "/secret/{*rest}"),
        ("rewrite ^/secret(.*)$ $1 last;", "/secret{*rest}"),
        ("rewrite ^/secret/(.*)$ /a/$1; rewrite ^/a/(.*)$ /denied/$1 last;", "/secret/{*rest}"),
    ] {
        let migrated = server(rewrite);
        for path in [path, "/secret/x/{*rest}"] {
            assert!(route(&migrated, "", path).contains("status = 501"), "{rewrite}\n{}", migrated.text);
        }
        assert!(route(&migrated, "", "/{*rest}").contains("to = "), "{rewrite}\n{}", migrated.text);
        assert!(
            migrated.text.contains("`: it leads to a location that refuses clients"),
            "{}",
            migrated.text
        );
    }
    for rewrite in ["rewrite ^/secr[e]t(.*)$ /denied$1 last;", "rewrite ^ /denied last;"] {
        let migrated = server(rewrite);
        assert!(!migrated.text.contains("\nto = "), "{rewrite}\n{}", migrated.text);
    }
    let migrated = server("rewrite ^/secret/(.*)$ /open/$1 last;");
    assert!(route(&migrated, "", "/secret/x/{*rest}").contains("to = "), "{}", migrated.text);
    // Within a location only `break` keeps the request there.
    for (flag, is_open) in [("", false), ("break", true)] {
        let own =
            format!("location /a/ {{ rewrite ^/a/(.*)$ /denied/$1 {flag}; proxy_pass http://10.0.0.1; }}");
        let migrated = server(&own);
        assert_eq!(route(&migrated, "", "/a/{*rest}").contains("to = "), is_open, "{}", migrated.text);
    }
}

#[test]
fn braces_in_a_location_are_the_braces_of_a_path() {
    let migrated =
        migrated(&format!("server {{ listen 80; location \"/{{x}}/\" {{ return 403; }} {TO_B} }}"));
    let denied = route(&migrated, "", "/%7Bx%7D/{*rest}");
    assert!(denied.contains("respond = { status = 403 }"), "{}", migrated.text);
    let pattern = policy::matching::pattern::Pattern::parse("/%7Bx%7D/{*rest}").expect("a pattern");
    for path in ["/{x}/q", "/%7Bx%7D/q", "/%7bx%7d/q"] {
        let path = policy::matching::path::canonical(path).expect("a path").path;
        assert!(pattern.matches(&path), "{path}");
    }
}

#[test]
fn a_path_without_the_slash_of_an_open_place_is_listed_if_it_was_kept_out() {
    let server = |guard: &str, inner: &str| {
        migrated(&format!(
            "server {{ listen 80; location /s {{ {guard} }} location /s/pub/ {{ {inner} }} {TO_B} }}"
        ))
    };
    let said = "`/s/pub` matches this location, too, and is open, although `/s` in line";
    for inner in ["return 200 pub;", "return 301 https://b.test/;"] {
        let migrated = server("deny all;", inner);
        assert!(migrated.text.contains(said), "{}", migrated.text);
    }
    // nginx sends clients to the slash if the location passes requests on.
    for (guard, inner) in [
        ("deny all;", "proxy_pass http://10.0.0.1;"),
        ("deny all;", "return 403;"),
        ("proxy_pass http://10.0.0.1;", "return 200 pub;"),
    ] {
        let migrated = server(guard, inner);
        assert!(!migrated.text.contains("matches this location, too"), "{}", migrated.text);
    }
}

#[test]
fn fields_that_are_always_there_are_on_refusals_too() {
    let add = |more: &str| {
        let migrated = migrated(&format!("server {{ listen 80; add_header X-A 1{more}; {TO_A} }}\n"));
        route(&migrated, "", "/{*rest}").contains("add = { x-a = \"1\" }, always = true }")
    };
    assert!(add(" always") && !add(""));
}

#[test]
fn try_files_that_fall_back_to_a_named_location_go_there() {
    let server = |around: &str, files: &str, inside: &str| {
        migrated(&format!(
            "server {{ listen 80; {around} location / {{ root /www; {files} try_files $uri $uri/ @app; }}\n             location @app {{ {inside} proxy_pass http://10.0.0.1; }} }}\n"
        ))
    };
    let plain = server("", "", "");
    assert!(route(&plain, "", "/{*rest}").contains("to = \"upstream-10.0.0.1\""), "{}", plain.text);
    assert!(plain.text.contains("requests for existing files go to `@app`, too"), "{}", plain.text);
    assert!(!plain.is_whole_but_paths() && !plain.text.contains("named locations"), "{}", plain.text);
    for (around, files) in [("deny 192.0.2.1;", ""), ("", "deny 192.0.2.1;")] {
        let guarded = server(around, files, "");
        let route = route(&guarded, "", "/{*rest}");
        assert!(route.contains("to = ") && route.contains("deny = \"192.0.2.1\""), "{}", guarded.text);
    }
    for (files, inside) in [
        ("", "deny 192.0.2.1;"),
        ("", "if ($http_x = \"\") { return 403; }"),
        ("if ($http_x = \"\") { return 403; }", ""),
        ("auth_basic x;", ""),
    ] {
        let closed = server("", files, inside);
        assert!(!closed.text.contains("\nto = "), "{files} {inside}\n{}", closed.text);
    }
}

/// What a site with this map and these lines of its server becomes; the map is of `$up`.
fn mapped(map: &str, lines: &str) -> MigrationOutput {
    migrated(&format!("upstream a {{ server 10.0.0.9:81; }}\nmap {map}\nserver {{ listen 8080; {lines} }}\n"))
}

/// The upstream that a route leads to, or `closed`.
#[track_caller]
fn leads<'m>(migrated: &'m MigrationOutput, host: &str, path: &str, with: &str) -> &'m str {
    let all = routes(migrated, host).into_iter().filter(|(known, _)| *known == path);
    let asks = |section: &str| {
        section.lines().filter(|it| it.starts_with("match") || it.starts_with("methods")).collect::<String>()
    };
    let found = all.map(|(_, section)| section).find(|section| asks(section) == with);
    let found = found.unwrap_or_else(|| panic!("{host} {path} {with} is not in\n{}", migrated.text));
    match found.split("\nto = \"").nth(1) {
        Some(to) => to.split('"').next().unwrap_or_default(),
        None if found.contains("status = 501") => "closed",
        None => found,
    }
}

const TO_UP: &str = "location / { proxy_pass http://$up; }";
const ALL: &str = "/{*rest}";

#[test]
fn maps_of_hosts_lead_each_host_to_its_upstream() {
    let hosts = "$host $up { hostnames; volatile; default a; b.test 10.0.0.2:80; *.c.test 10.0.0.3; .d.test 10.0.0.4; }";
    for (map, lines) in [
        (hosts.to_owned(), TO_UP),
        (hosts.replace("$host", "$http_host"), "location / { proxy_pass http://$up$request_uri; }"),
        (hosts.replace("$host", "${host}"), "set $to http://$up; location / { set $x y; proxy_pass $to; }"),
        (
            hosts.replace("*.c.test", "~\\.c\\.test$"),
            "location / { proxy_pass $scheme://$up$uri$is_args$args; }",
        ),
        (hosts.replace("*.c.test", "\"~^(?<name>.+)\\.c\\.test$\""), TO_UP),
    ] {
        let migrated = mapped(&map, lines);
        for (host, to) in [("b.test", "upstream-10.0.0.2:80"), ("*.c.test", "upstream-10.0.0.3"), ("", "a")] {
            assert_eq!(leads(&migrated, host, ALL, ""), to, "{map} {lines}\n{}", migrated.text);
        }
        assert!(migrated.text.contains("host = [\"d.test\", \"*.d.test\"]"), "{}", migrated.text);
        assert!(migrated.is_whole_but_paths(), "{map} {lines}\n{}", migrated.text);
    }
    // Of its own names alone, if another server takes all others.
    let named = mapped(
        "$host $up { ~^(www\\.)?b\\.test$ 10.0.0.2; x.test 10.0.0.3; default a; }",
        &format!("server_name b.test w.test; {TO_UP} }} server {{ listen 8080 default_server; {TO_A}"),
    );
    assert_eq!(leads(&named, "b.test", ALL, ""), "upstream-10.0.0.2", "{}", named.text);
    assert_eq!(leads(&named, "w.test", ALL, ""), "a", "{}", named.text);
    assert_eq!(leads(&named, "", ALL, ""), "upstream-10.0.0.1", "{}", named.text);
    assert!(!named.text.contains("www.b.test") && !named.text.contains("10.0.0.3"), "{}", named.text);
}

#[test]
fn what_keeps_clients_out_of_a_place_keeps_them_out_at_every_host_of_a_map() {
    let lines = "location /adm/ { deny all; proxy_pass http://a; } location ~ ^/int { return 403; } location /int/x/ { proxy_pass http://a; }
                 location / { auth_basic x; proxy_pass http://$up; } location /two { allow 10.0.0.0/8; deny all; proxy_pass http://$up/v; }";
    let migrated = mapped("$host $up { default a; b.test 10.0.0.2; }", lines);
    for host in ["", "b.test"] {
        assert!(
            route(&migrated, host, "/adm/{*rest}").contains("deny = [\"0.0.0.0/0\", \"::/0\"]"),
            "{}",
            migrated.text
        );
        assert!(route(&migrated, host, "/int{*rest}").contains("status = 403"), "{}", migrated.text);
        for path in ["/int/x/{*rest}", ALL] {
            assert_eq!(leads(&migrated, host, path, ""), "closed", "{}", migrated.text);
        }
        let two = route(&migrated, host, "/two{*rest}");
        assert!(
            two.contains("allow = \"10.0.0.0/8\"") && two.contains("rewrite = \"/v\""),
            "{}",
            migrated.text
        );
    }
    // What another server has stays that server's, and what none has stays closed.
    let text = format!(
        "map $host $up {{ a.test 10.0.0.2; x.b.test 10.0.0.3; c.test 10.0.0.4; }}
        server {{ listen 80; {TO_UP} }} server {{ listen 80; server_name a.test; deny all; {TO_A} }}
        server {{ listen 80; server_name *.b.test; deny all; {TO_A} }}"
    );
    let migrated = self::migrated(&text);
    assert!(!migrated.text.contains("10.0.0.2") && !migrated.text.contains("10.0.0.3"), "{}", migrated.text);
    assert_eq!(
        (leads(&migrated, "c.test", ALL, ""), leads(&migrated, "", ALL, "")),
        ("upstream-10.0.0.4", "closed")
    );
    assert!(
        !migrated.is_whole_but_paths() && migrated.text.contains("`map $host $up`: no route can say"),
        "{}",
        migrated.text
    );
}

#[test]
fn what_a_map_cannot_say_of_hosts_closes_that_part() {
    for (line, closed, open) in [
        ("~^api\\..*\\.c\\.test$ 10.0.0.2;", "*.c.test", ""),
        ("~^[^.]+\\.c\\.test$ 10.0.0.2;", "*.c.test", ""),
        ("c.test $1;", "c.test", ""),
        ("c.test $host;", "c.test", ""),
        ("c.test https://$http_host;", "c.test", ""),
        ("c.test \"\";", "c.test", ""),
        ("~^api 10.0.0.2;", "", "b.test"),
        ("~a\\.test|b\\.test$ 10.0.0.2;", "", "b.test"),
        ("www.c.* 10.0.0.2;", "", "b.test"),
    ] {
        let migrated =
            mapped(&format!("$host $up {{ hostnames; {line} b.test a; default 10.0.0.3; }}"), TO_UP);
        assert_eq!(leads(&migrated, closed, ALL, ""), "closed", "{line}\n{}", migrated.text);
        assert_ne!(leads(&migrated, open, ALL, ""), "closed", "{line}\n{}", migrated.text);
        assert!(
            !migrated.is_whole_but_paths() && migrated.text.contains("no route can say where"),
            "{}",
            migrated.text
        );
    }
    // The first expression that fits decides, and a name goes before all of them.
    let map = "$host $up { ~\\.c\\.test$ 10.0.0.2; ~^x\\.c\\.test$ 10.0.0.3; y.c.test 10.0.0.4; default a; }";
    let migrated = mapped(map, TO_UP);
    assert_eq!(leads(&migrated, "y.c.test", ALL, ""), "upstream-10.0.0.4", "{}", migrated.text);
    assert!(migrated.text.contains("host = [\"*.c.test\", \"x.c.test\"]"), "{}", migrated.text);
    assert!(!migrated.text.contains("10.0.0.3"), "{}", migrated.text);
    let ports = mapped(
        "$http_host $up { c.test:80 10.0.0.2; c.test:81 10.0.0.3; d.test:80 10.0.0.4; default a; }",
        TO_UP,
    );
    assert_eq!(leads(&ports, "c.test", ALL, ""), "closed", "{}", ports.text);
    assert_eq!(leads(&ports, "d.test", ALL, ""), "upstream-10.0.0.4", "{}", ports.text);
    assert!(ports.text.contains("a host is compared without its port"), "{}", ports.text);
}

#[test]
fn a_destination_that_a_client_writes_is_never_one() {
    for (map, lines) in [
        ("$host $up { default $host; }", TO_UP),
        ("$http_x $up { default $http_x; }", TO_UP),
        ("$arg_to $up { default a; b 10.0.0.2; }", TO_UP),
        ("$cookie_to $up { default a; b 10.0.0.2; }", TO_UP),
        ("$host$uri $up { default a; b 10.0.0.2; }", TO_UP),
        ("$http_x $up { ~(.+) $1; }", TO_UP),
        ("$host $up { default a; }", "location / { proxy_pass https://$host; }"),
        ("$host $up { default a; }", "location / { proxy_pass $scheme://$http_host$request_uri; }"),
        ("$host $up { default a; }", "location / { proxy_pass http://$up.$arg_x; }"),
        ("$host $up { default a; }", "location / { set $to $arg_x; proxy_pass http://$to; }"),
        ("$http_x $up { default $up; }", TO_UP),
    ] {
        let migrated = mapped(map, lines);
        assert!(!migrated.text.contains("\nto = "), "{map} {lines}\n{}", migrated.text);
        assert!(
            migrated.text.contains("status = 501") && !migrated.is_whole_but_paths(),
            "{}",
            migrated.text
        );
    }
}

#[test]
fn maps_of_methods_and_fields_are_routes_that_ask_for_them() {
    let migrated = mapped("$request_method $up { default a; GET 10.0.0.2; ~^(PUT|POST)$ 10.0.0.3; }", TO_UP);
    for (methods, to) in
        [("\"GET\"", "upstream-10.0.0.2"), ("\"HEAD\"", "a"), ("[\"PUT\", \"POST\"]", "upstream-10.0.0.3")]
    {
        assert_eq!(leads(&migrated, "", ALL, &format!("methods = {methods}")), to, "{}", migrated.text);
    }
    assert!(leads(&migrated, "", ALL, "") == "a" && migrated.is_whole_but_paths(), "{}", migrated.text);

    let asks = |value: &str| format!("match = {{ header = {{ x-env = {value} }} }}");
    let migrated = mapped("$http_x_env $up { default a; 1 10.0.0.2; '~^(2|3)$' 10.0.0.3; }", TO_UP);
    for (value, to) in
        [("\"1\"", "upstream-10.0.0.2"), ("\"2\"", "upstream-10.0.0.3"), ("\"3\"", "upstream-10.0.0.3")]
    {
        assert_eq!(leads(&migrated, "", ALL, &asks(value)), to, "{}", migrated.text);
    }
    assert!(leads(&migrated, "", ALL, "") == "a" && migrated.is_whole_but_paths(), "{}", migrated.text);
    for map in ["$http_x_env $up { '' a; default 10.0.0.2; }", "$http_x_env $up { ~.+ 10.0.0.2; default a; }"]
    {
        let migrated = mapped(map, TO_UP);
        assert_eq!(leads(&migrated, "", ALL, &asks("true")), "upstream-10.0.0.2", "{}", migrated.text);
        assert!(leads(&migrated, "", ALL, "") == "a" && migrated.is_whole_but_paths(), "{}", migrated.text);
    }
    // Spellings that go elsewhere are listed; if they were refused, they are not let in.
    let spelled = mapped("$http_x_env $up { default a; beta 10.0.0.2; }", TO_UP);
    assert_eq!(leads(&spelled, "", ALL, &asks("\"beta\"")), "upstream-10.0.0.2", "{}", spelled.text);
    assert!(
        !spelled.is_whole_but_paths() && spelled.text.contains("`beta 10.0.0.2`: values are case-sensitive"),
        "{}",
        spelled.text
    );
    for line in ["beta \"\";", "~*^beta$ $1;", "~bot 10.0.0.2;", "'' a; 2 10.0.0.4;"] {
        let refused = mapped(&format!("$http_x_env $up {{ default 10.0.0.5; 1 10.0.0.2; {line} }}"), TO_UP);
        assert_eq!(leads(&refused, "", ALL, ""), "closed", "{line}\n{}", refused.text);
        assert_eq!(leads(&refused, "", ALL, &asks("\"1\"")), "upstream-10.0.0.2", "{line}\n{}", refused.text);
    }
}

#[test]
fn maps_of_paths_are_routes_within_their_location() {
    let map = "$uri $up { default a; /api/1 10.0.0.2; ~^/api/v2/ 10.0.0.3; ~^/api/(x|y)/ 10.0.0.4; /adm/1 10.0.0.5; ~^/api/own/z 10.0.0.6; }";
    let lines = "location /api/ { proxy_pass http://$up; } location /api/own/ { deny all; proxy_pass http://a; } location /api/v2/in/ { deny all; proxy_pass http://a; }";
    let migrated = mapped(map, lines);
    for (path, to) in [
        ("/api/1", "upstream-10.0.0.2"),
        ("/api/v2/{*rest}", "upstream-10.0.0.3"),
        ("/api/y/{*rest}", "upstream-10.0.0.4"),
        ("/api/{*rest}", "a"),
    ] {
        assert_eq!(leads(&migrated, "", path, ""), to, "{}", migrated.text);
    }
    assert!(!migrated.text.contains("10.0.0.5") && !migrated.text.contains("10.0.0.6"), "{}", migrated.text);
    assert!(route(&migrated, "", "/api/v2/in/{*rest}").contains("deny = "), "{}", migrated.text);
    assert!(
        !migrated.is_whole_but_paths()
            && migrated.text.contains("`/api/1 10.0.0.2`: values are case-sensitive"),
        "{}",
        migrated.text
    );
    // An expression goes before the places of the map, and a rewritten path is another one.
    for more in
        ["location ~ ^/api/v { deny all; }", "location ~ \\.bak$ { deny all; }", "rewrite ^/q /api/1;"]
    {
        let closed = mapped(map, &format!("{more} {lines}"));
        assert_eq!(leads(&closed, "", "/api/{*rest}", ""), "closed", "{more}\n{}", closed.text);
        assert!(!closed.text.contains("upstream-10"), "{more}\n{}", closed.text);
    }
    for line in ["/api/b \"\";", "~*^/api/b $1;", "~/b 10.0.0.2;", "~^/api/b|/c 10.0.0.3;"] {
        let refused = mapped(&format!("$uri $up {{ {line} default a; }}"), lines);
        assert_eq!(leads(&refused, "", "/api/{*rest}", ""), "closed", "{line}\n{}", refused.text);
    }
}

#[test]
fn an_expression_that_keeps_clients_out_goes_before_every_part_of_a_location() {
    let guard = "location ~ ^/ { return 403; }";
    let limited = "location / { limit_except GET { deny all; } proxy_pass http://a; }";
    for place in [TO_UP, limited] {
        for lines in [format!("{place} {guard}"), format!("{guard} {place}")] {
            let migrated = mapped("$http_x $up { default a; 1 10.0.0.2; }", &lines);
            assert!(!migrated.text.contains("\nto = "), "{lines}\n{}", migrated.text);
        }
    }
}

#[test]
fn maps_in_maps_and_maps_of_two_locations_are_taken_over() {
    let text = "map $http_x $by_x { default a; 1 10.0.0.2; }\nmap $host $up { default $by_x; b.test 10.0.0.3; c.test $by_x; }
        upstream a { server 10.0.0.9; }
        server { listen 8080; location / { proxy_pass http://$up; } location /two { try_files $uri @two; } location @two { proxy_pass http://$up/y; } }";
    let migrated = migrated(text);
    let one = "match = { header = { x = \"1\" } }";
    for (host, with, to) in [
        ("", "", "a"),
        ("", one, "upstream-10.0.0.2"),
        ("b.test", "", "upstream-10.0.0.3"),
        ("c.test", one, "upstream-10.0.0.2"),
    ] {
        for path in [ALL, "/two{*rest}"] {
            assert_eq!(leads(&migrated, host, path, with), to, "{}", migrated.text);
        }
    }
    assert!(route(&migrated, "b.test", "/two{*rest}").contains("rewrite = \"/y\""), "{}", migrated.text);
    assert!(migrated.text.contains("the query is sent, too"), "{}", migrated.text);
    // Nothing is made of one that leads nowhere.
    let elsewhere = mapped("$http_upgrade $up { default upgrade; '' close; }", TO_A);
    assert!(
        elsewhere.text.contains("the gateway has no maps") && routes(&elsewhere, "").len() == 1,
        "{}",
        elsewhere.text
    );
}

#[test]
fn fields_whose_value_cannot_be_said_are_removed() {
    let value = |value: &str| {
        migrated(&format!(
            "map $http_x_k $user {{ default \"\"; v ok; }}\nserver {{ listen 80; location / {{ \
             proxy_set_header X-User {value}; proxy_pass http://10.0.0.1; }} }}"
        ))
    };
    for unknown in ["$remote_user", "$ssl_client_verify", "$user", "$cookie_x", "\"a-$request_time\""] {
        let migrated = value(unknown);
        assert!(route(&migrated, "", "/{*rest}").contains("remove = [\"x-user\"]"), "{}", migrated.text);
        assert!(
            migrated.text.contains("no client can choose it") && !migrated.is_whole_but_paths(),
            "{}",
            migrated.text
        );
    }
    let passed = value("$http_x_user");
    assert!(!passed.text.contains("remove = ") && !passed.text.contains("no counterpart"), "{}", passed.text);
}

#[test]
fn a_place_that_denies_everybody_and_forwards_nothing_answers_403() {
    let migrated =
        migrated(&format!("server {{ listen 80; root /var/www; location /priv/ {{ deny all; }} {TO_A} }}"));
    assert!(
        route(&migrated, "", "/priv/{*rest}").contains("respond = { status = 403 }"),
        "{}",
        migrated.text
    );
    assert!(!migrated.text.contains("scripts are not served"), "{}", migrated.text);
}

#[test]
fn paths_that_are_read_otherwise_are_listed() {
    let migrated = migrated(&format!("server {{ listen 80; {TO_A} }}"));
    assert!(!migrated.is_whole && migrated.text.contains("#   `nginx.conf`: paths with an encoded slash, "));
}
