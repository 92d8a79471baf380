//! `sluicegate migrate`: what it prints passes `check`, does what the other gateway does, and lists the rest.

use std::process::Output;

use crate::documents::documents_with;
use crate::support::gateway::binary;
use crate::support::tls::{Authority, certify};
use crate::support::{Client, Directory, Gateway, Upstream, text};

/// Runs `migrate` on files of a directory of its own, the first of which is the main one, and checks what it prints.
pub struct Migrated {
    /// The exit code, without the line that every file has about its paths.
    pub code: Option<i32>,
    pub text: String,
    pub directory: Directory,
}

impl Migrated {
    pub fn of(from: &str, files: &[(&str, &str)]) -> Migrated {
        Migrated::with(from, files, &[])
    }

    pub fn with(from: &str, files: &[(&str, &str)], options: &[&str]) -> Migrated {
        let directory = Directory::new();
        std::fs::create_dir_all(directory.join("conf.d")).expect("the target directory is writable");
        std::fs::create_dir_all(directory.join("certs")).expect("the target directory is writable");
        certify(&directory, "certs/api", &["example.com"]);
        for (name, content) in files {
            directory.write(name, content);
        }
        let output = migrate(&directory, &[&["migrate", from, files[0].0], options].concat());
        let printed = text(&output.stdout);
        let code =
            output.status.code().map(|code| if lists_paths_alone(&printed) { code - LISTED } else { code });
        let migrated = Migrated { code, text: printed, directory };
        let checked = migrated.check();
        let said = format!("{}{}{}", text(&output.stderr), text(&checked.stdout), text(&checked.stderr));
        assert_eq!(checked.status.code(), Some(0), "{said}\n{}", migrated.text);
        migrated
    }

    /// `sluicegate check` of what was printed.
    fn check(&self) -> Output {
        self.directory.write("gateway.toml", &self.text);
        migrate(&self.directory, &["check", "--config", "gateway.toml"])
    }

    /// The lines of the section whose first lines are these.
    pub fn section(&self, begin: &str) -> &str {
        let start = self.text.find(&format!("\n{begin}\n"));
        let start = start.unwrap_or_else(|| panic!("{begin} is not in\n{}", self.text));
        self.text[start + 1..].split("\n\n").next().unwrap_or_default().trim_end()
    }

    /// The line at the top about a line of a file.
    pub fn said_of(&self, place: &str) -> &str {
        let lines = self.text.lines().take_while(|line| line.starts_with('#'));
        let mut said = lines.filter(|line| line.starts_with(&format!("#   {place}: ")));
        said.next().unwrap_or_else(|| panic!("nothing is said of {place} in\n{}", self.text))
    }

    /// Asserts that the whole section is there.
    #[track_caller]
    pub fn has(&self, section: &str) {
        let begin = section.lines().take(2).collect::<Vec<_>>().join("\n");
        assert_eq!(self.section(&begin), section.trim_end(), "{}", self.text);
    }
}

/// Whether nothing is listed but how paths are read.
fn lists_paths_alone(printed: &str) -> bool {
    let comments = printed.lines().take_while(|line| line.starts_with('#'));
    let lines = comments.skip_while(|line| !line.starts_with("# Taken over"));
    let listed: Vec<&str> = lines.skip(1).take_while(|line| *line != "#").collect();
    matches!(listed.as_slice(), [only] if only.contains("`: paths with "))
        && !printed.contains("\n# Left out: ")
}

/// The exit code if something is listed.
const LISTED: i32 = 3;

pub fn migrate(directory: &Directory, arguments: &[&str]) -> Output {
    let mut command = binary();
    command.current_dir(directory.join("")).args(arguments);
    command.output().expect("the binary under test can be started")
}

/// A server with these lines, beside zones for limits.
fn nginx_server(lines: &str) -> String {
    format!(
        "events {{}}\nhttp {{\nlimit_req_zone $binary_remote_addr zone=one:10m rate=1r/s;\n\
         limit_conn_zone $binary_remote_addr zone=addr:10m;\nlimit_conn_zone $server_name zone=perserver:10m;\n\
         server {{\nlisten 8080;\n{lines}\n}}\n}}\n"
    )
}

#[test]
fn nginx_rates_become_the_algorithm_that_does_the_same() {
    let lines = "location /a/ { limit_req zone=one burst=5; proxy_pass http://127.0.0.1:1; }\n\
                 location /b/ { limit_req zone=one burst=5 nodelay; proxy_pass http://127.0.0.1:1; }\n\
                 location /c/ { limit_req zone=one; proxy_pass http://127.0.0.1:1; }\n";
    let migrated = Migrated::of("nginx", &[("nginx.conf", &nginx_server(lines))]);
    // A burst that waits is a queue; one that does not is a bucket of the burst and the one that is due.
    migrated.has("[policy.one]\nby = [\"ip\"]\nlimit = \"1/s burst 5\"\nalgorithm = \"leaky-bucket\"");
    migrated.has("[policy.one-2]\nby = [\"ip\"]\nlimit = \"1/s burst 6\"");
    migrated.has("[policy.one-3]\nby = [\"ip\"]\nlimit = \"1/s burst 1\"");
    assert!(migrated.said_of("nginx.conf:9").contains("each burst has its own counts"));
    assert_eq!(migrated.code, Some(3));
}

#[test]
fn nginx_connections_are_requests_in_flight() {
    let lines = "limit_conn addr 10;\nlimit_conn perserver 100;\nserver_name a.example;\n\
                 location / { proxy_pass http://127.0.0.1:1; }\n";
    let migrated = Migrated::of("nginx", &[("nginx.conf", &nginx_server(lines))]);
    migrated.has("[policy.addr]\nby = [\"ip\"]\nlimit = \"10 in flight\"");
    migrated.has("[policy.\"perserver-a.example\"]\nby = []\nlimit = \"100 in flight\"");
    // The zone of rates is not used, which changes nothing; still it is said.
    assert!(migrated.said_of("nginx.conf:3").contains("limit_req_zone"));
}

#[test]
fn nginx_upstreams_keep_balance_weights_and_timeouts() {
    let config = "http {\nupstream backend {\nleast_conn;\nserver 10.0.0.1:8080 weight=5;\nserver unix:/tmp/b3;\n\
                  server 10.0.0.9:8080 backup; server 10.0.0.8:8080 drain;\n}\nserver {\nlocation / {\nproxy_pass http://backend;\n\
                  proxy_read_timeout 5m;\nproxy_set_header Host $host;\nproxy_set_header X-Real-IP $remote_addr;\n\
                  proxy_set_header Upgrade $http_upgrade;\nproxy_set_header Connection \"upgrade\";\n}\n}\n}\n";
    let migrated = Migrated::of("nginx", &[("nginx.conf", config)]);
    migrated.has(
        "[upstream.backend]\nservers = [{ url = \"http://10.0.0.1:8080\", weight = 5 }, \"unix:/tmp/b3\"]\n\
         balance = \"least-requests\"\ntimeouts = { connect = \"1m\", response = \"5m\", stall = \"5m\" }",
    );
    migrated.has(
        "[[route]]\nname = \"/{*rest}\"\npath = \"/{*rest}\"\nmax-body = \"1MiB\"\nto = \"backend\"\nupgrade = true\n\
         headers = { set = { x-real-ip = \"{ip}\", host = \"{host}\" } }",
    );
    for said in [
        "server 10.0.0.9:8080 backup`: the gateway has no backup",
        "server 10.0.0.8:8080 drain`: it takes no new",
    ] {
        assert!(migrated.text.contains(said), "{}", migrated.text);
    }
}

#[test]
fn clients_that_kept_their_server_keep_one() {
    for (line, balance) in [
        ("ip_hash;", "hash:ip"),
        ("hash $http_x_user consistent;", "hash:header:x-user"),
        ("hash $arg_user;", "hash:query:user"),
        ("hash $cookie_user;", "hash:cookie:user"),
        ("hash $uri consistent;", "hash:path"),
        ("hash $request_uri;", "hash:path"),
        ("hash $request_uri$cookie_user;", "round-robin"),
    ] {
        let config = format!(
            "http {{\nupstream b {{\n{line}\nserver a:1;\n}}\nserver {{\nlocation / {{ proxy_pass http://b; }}\n}}\n}}\n"
        );
        let migrated = Migrated::of("nginx", &[("nginx.conf", &config)]);
        let upstream = migrated.section("[upstream.b]\nservers = [\"http://a:1\"]");
        assert!(upstream.contains(&format!("balance = \"{balance}\"")), "{line}: {upstream}");
        assert_eq!(migrated.text.contains("cannot be hashed"), balance == "round-robin", "{}", migrated.text);
    }
    for (line, balance) in [
        ("source", "hash:ip"),
        ("hdr(X-User)", "hash:header:x-user"),
        ("uri", "hash:path"),
        ("url_param user", "p2c"),
    ] {
        let config = haproxy("default_backend api\n").replace("leastconn", line);
        let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &config)]);
        let upstream = migrated.section("[upstream.api]\nservers = [\"http://10.0.1.1:8080\"]");
        assert!(upstream.contains(&format!("balance = \"{balance}\"")), "{line}: {upstream}");
    }
}

#[test]
fn nginx_paths_of_proxy_pass_replace_what_the_location_matched() {
    let lines = "location /api/ { proxy_pass http://a/v1/; }\nlocation /x { proxy_pass http://a/y; }\n\
                 location = /one { proxy_pass http://a/two; }\n\
                 location /rw/ { rewrite ^/rw/(.*)$ /$1 break; proxy_pass http://a; }\n\
                 location /odd/ { proxy_pass http://a/v1; }\nlocation /$x { proxy_pass http://$host; }\n";
    let migrated = Migrated::of("nginx", &[("nginx.conf", &nginx_server(lines))]);
    for (path, rewrite) in [
        ("/api/{*rest}", "/v1/{rest}"),
        ("/x{*rest}", "/y{rest}"),
        ("/one", "/two"),
        ("/rw/{*rest}", "/{rest}"),
        ("/odd/{*rest}", "/v1{rest}"),
    ] {
        let section = migrated.section(&format!("[[route]]\nname = \"{path}\""));
        assert!(section.contains(&format!("rewrite = \"{rewrite}\"")), "{section}");
    }
    // nginx's default is the host that `proxy_pass` names.
    assert!(migrated.section("[[route]]\nname = \"/one\"").contains("headers = { set = { host = \"a\" } }"));
    assert!(migrated.said_of("nginx.conf:13").contains("its destination depends on the request"));
}

#[test]
fn nginx_redirects_and_fixed_answers() {
    let lines = "server_name a.example;\nlocation = /ok { return 200 \"ok\\n\"; }\nlocation /gone { return 410; }\n\
                 location /old/ { rewrite ^/old/(.*)$ /new/$1 permanent; }\n\
                 location /to { return 301 https://b.example/there; }\n\
                 location /all { return 302 $scheme://b.example$request_uri; }\n\
                 location / { return 444; }\n";
    let migrated = Migrated::of("nginx", &[("nginx.conf", &nginx_server(lines))]);
    for (name, answer) in [
        (
            "/ok",
            "respond = { status = 200, body = \"ok\\u000A\", headers = { content-type = \"text/plain\" } }",
        ),
        ("/gone{*rest}", "respond = { status = 410 }"),
        ("/old/{*rest}", "redirect = { to = \"/new/{rest}\", status = 301 }"),
        // The query follows in nginx only if it is written.
        ("/to{*rest}", "redirect = { to = \"https://b.example/there?\", status = 301 }"),
        ("/all{*rest}", "redirect = { to = \"http://b.example{path}\", status = 302 }"),
        ("/{*rest}", "respond = { status = 501, body = \"left out by the migration\\n\" }"),
    ] {
        let section = migrated.section(&format!("[[route]]\nname = \"{name}\""));
        assert!(section.contains(answer), "{section}");
    }
    assert!(migrated.said_of("nginx.conf:14").contains("without a response"));
}

#[test]
fn nginx_ports_that_only_redirect_become_listeners_that_do() {
    let config = "http {\nserver {\nlisten 80;\nlisten [::]:80;\nserver_name a.example;\nreturn 301 https://$host$request_uri;\n}\n\
                  server {\nlisten 443 ssl;\nlisten [::]:443 ssl;\nhttp2 on;\nserver_name a.example;\n\
                  ssl_certificate certs/api.pem;\nssl_certificate_key certs/api.key;\n\
                  location / { proxy_pass http://127.0.0.1:1; }\n}\n\
                  server {\nlisten 443 ssl;\nserver_name *.b.example;\nssl_certificate certs/api.pem;\n\
                  ssl_certificate_key certs/api.key;\nlocation /x { return 204; }\n}\n}\n";
    let migrated = Migrated::of("nginx", &[("nginx.conf", config)]);
    migrated.has(
        "[listener.http]\nbind = \"[::]:80\"\nhttp = \"http/1.1\"\nredirect = { to = \"https\", status = 301 }",
    );
    assert!(
        migrated.section("[listener.https]\nbind = \"[::]:443\"").contains("http = [\"h2\", \"http/1.1\"]")
    );
    // The first server takes what no other names; what the second one has no location for is not the first one's.
    migrated.has("[[route]]\nname = \"/{*rest}-2\"\nhost = \"*.b.example\"\npath = \"/{*rest}\"\nrespond = { status = 404 }");
    assert_eq!(migrated.code, Some(0), "{}", migrated.text);
}

#[test]
fn nginx_places_behind_a_guard_are_closed_if_it_cannot_be_taken_over() {
    let lines = "location /a { auth_basic \"x\"; auth_basic_user_file f; proxy_pass http://a; }\n\
                 location /b { auth_request /auth; proxy_pass http://a; }\n\
                 location /c { allow 10.1.0.0/16; deny 10.0.0.0/8; allow all; proxy_pass http://a; }\n\
                 location /d { if ($http_x = \"\") { return 403; } proxy_pass http://a; }\n\
                 location /e { deny 10.1.2.3; allow 10.0.0.0/8; deny all; proxy_pass http://a; }\n\
                 location /f { limit_except GET { deny all; } proxy_pass http://a; }\n";
    let migrated = Migrated::of("nginx", &[("nginx.conf", &nginx_server(lines))]);
    for name in ["/a{*rest}", "/b{*rest}", "/c{*rest}", "/d{*rest}"] {
        let section = migrated.section(&format!("[[route]]\nname = \"{name}\""));
        assert!(section.contains("status = 501") && !section.contains("to ="), "{section}");
    }
    for line in 8..12 {
        assert!(migrated.said_of(&format!("nginx.conf:{line}")).contains("closed"));
    }
    let section = migrated.section("[[route]]\nname = \"/e{*rest}\"");
    assert!(section.contains("allow = \"10.0.0.0/8\"\ndeny = \"10.1.2.3\""), "{section}");
    assert!(migrated.section("[[route]]\nname = \"/f{*rest}\"").contains("respond = { status = 403 }"));
    assert!(migrated.section("[[route]]\nname = \"/f{*rest}-2\"").contains("methods = [\"GET\", \"HEAD\"]"));
}

#[test]
fn nginx_includes_are_read_and_named() {
    let files = [
        ("nginx.conf", "http {\n  include mime.types;\n  include conf.d/*.conf;\n  include none.conf;\n}\n"),
        ("conf.d/b.conf", "server { listen 127.0.0.1:8081; location / { return 204; } }\n"),
        (
            "conf.d/a.conf",
            "gzip on;\n# comment\nserver { listen 8082; location ~ \\.php$ { } location / { root \"/a;b\"; } }\n",
        ),
        ("conf.d/c.txt", "nothing { that is read"),
    ];
    let migrated = Migrated::of("nginx", &files);
    assert!(migrated.said_of("conf.d/a.conf:1").contains("write `compress`"));
    assert!(migrated.said_of("conf.d/a.conf:3").contains("regular expressions"));
    assert!(migrated.said_of("nginx.conf:4").contains("no such file"));
    assert!(
        migrated.text.contains("bind = \"127.0.0.1:8081\"")
            && migrated.text.contains("bind = \"0.0.0.0:8082\"")
    );
}

#[test]
fn what_cannot_be_read_is_an_error_with_its_line() {
    let directory = Directory::new();
    for (content, said) in [
        ("http {\n server {\n", "nginx.conf:3: the file ends within a directive or a block"),
        ("http {\n}\n}\n", "nginx.conf:3: a brace is not expected here"),
        ("a \"b\n", "nginx.conf:2: a quote is not closed"),
    ] {
        directory.write("nginx.conf", content);
        let output = migrate(&directory, &["migrate", "nginx", "nginx.conf"]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
    let output = migrate(&directory, &["migrate", "nginx", "absent.conf"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("cannot read absent.conf: No such file"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn what_is_left_out_cannot_leave_its_comment() {
    let lines = "location / { return 200; }\nmap_x \"a\n[admin]\nbind = 1\";\n";
    let migrated = Migrated::of("nginx", &[("nginx.conf", &nginx_server(lines))]);
    assert!(migrated.said_of("nginx.conf:9").contains("`map_x a [admin] bind = 1`"));
}

/// A frontend with these lines, and two backends.
fn haproxy(lines: &str) -> String {
    format!(
        "defaults\n mode http\n timeout connect 5s\n timeout server 50s\nfrontend www\n bind :8080\n{lines}\n\
         backend api\n balance leastconn\n server a1 10.0.1.1:8080 check inter 3s fall 2 rise 1\n\
         backend web\n option httpchk GET /healthz\n http-check expect status 200\n\
         server s1 10.0.0.1:8080 check weight 10\n server s2 10.0.0.2:8080 check backup\n"
    )
}

#[test]
fn haproxy_backends_keep_balance_checks_and_timeouts() {
    let lines = "use_backend api if { path_beg /api }\ndefault_backend web\n";
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &haproxy(lines))]);
    migrated.has(
        "[upstream.api]\nservers = [\"http://10.0.1.1:8080\"]\nbalance = \"least-requests\"\n\
         timeouts = { connect = \"5s\", response = \"50s\", stall = \"50s\" }\n\
         health = { tcp = true, every = \"3s\", unhealthy-after = 2, healthy-after = 1 }",
    );
    migrated.has(
        "[upstream.web]\nservers = [{ url = \"http://10.0.0.1:8080\", weight = 10 }]\nbalance = \"round-robin\"\n\
         timeouts = { connect = \"5s\", response = \"50s\", stall = \"50s\" }\n\
         health = { path = \"/healthz\", status = [\"200\"], every = \"2s\", unhealthy-after = 3, healthy-after = 2 }",
    );
    migrated.has("[[route]]\nname = \"/api{*rest}\"\npath = \"/api{*rest}\"\nto = \"api\"");
    let spare =
        "`server s2 10.0.0.2:8080 check backup`: the gateway has no backup servers, so it gets no requests";
    assert!(migrated.text.contains(spare), "{}", migrated.text);
}

#[test]
fn haproxy_words_that_change_answers_are_taken_over_or_listed() {
    for (line, said) in [
        ("retries 3", "retried at most once"),
        ("retry-on conn-failure 503 junk-response", "`junk-response` has no counterpart"),
        ("option forwardfor except 127.0.0.0/8", "for all clients"),
        ("option forwardfor if-none", "a client's own header is replaced"),
        ("option httpchk GET / HTTP/1.1\\r\\nHost:\\ a.test", "no headers"),
        ("timeout connect 0", "cannot be unlimited"),
        ("balance hdr(x-a) use_domain_only", "the whole header"),
        ("http-request deny deny_status 404 if { src 192.0.2.1 }", "refusals are answered 403"),
        ("http-request deny status 429 string no if { path /a }", "refusals are answered 429"),
        ("http-request tarpit if { src 192.0.2.1 }", "refusals are answered 403"),
        ("http-request del-header x- -m beg", "whole name"),
        (
            "http-request redirect location /b set-cookie a=b if { path /a }",
            "`set-cookie` has no counterpart",
        ),
        ("http-request return status 404 default-errorfiles if { path /a }", "`default-errorfiles`"),
        ("server s9 10.0.0.9 check", "without a port"),
        ("server s9 10.0.0.9:1 check inter 9s", "to all servers"),
    ] {
        let config = haproxy("default_backend web\n");
        let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &format!("{config} {line}\n"))]);
        assert!(migrated.said_of("haproxy.cfg:17").contains(said), "{line}\n{}", migrated.text);
        assert_eq!(migrated.code, Some(3), "{line}\n{}", migrated.text);
    }
}

#[test]
fn haproxy_tries_redirects_and_timeouts_keep_their_words() {
    let lines = "timeout client 30s\ntimeout http-keep-alive 5s\n\
                 http-request redirect prefix https://b.test drop-query if { path_beg /a/ }\n\
                 http-request deny status 410 if { path /gone }\ndefault_backend api\n";
    let config = haproxy(lines).replace(
        "\nbackend api\n",
        "\nbackend api\n retries 1\n retry-on conn-failure response-timeout 503\n timeout check 700ms\n",
    );
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &config)]);
    for said in [
        "timeouts = { idle = \"5s\", body-stall = \"30s\" }",
        "redirect = { to = \"https://b.test{path}?\", status = 302 }",
        "respond = { status = 410 }",
        "retry = { times = 1, on = [\"connect\", \"timeout\", \"503\"] }",
        "every = \"3s\", timeout = \"700ms\"",
    ] {
        assert!(migrated.text.contains(said), "{said}\n{}", migrated.text);
    }
    for word in ["timeout", "retries", "retry-on", "http-request"] {
        assert!(!migrated.text.contains(&format!(": `{word} ")), "{word}\n{}", migrated.text);
    }
}

#[test]
fn haproxy_rates_of_stick_tables_are_sliding_windows_that_count_what_they_refuse() {
    let lines = "stick-table type ip size 100k expire 30s store http_req_rate(10s)\nhttp-request track-sc0 src\n\
                 http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }\ndefault_backend web\n";
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &haproxy(lines))]);
    migrated.has(
        "[policy.www]\nby = [\"ip\"]\nlimit = \"20/10s\"\nalgorithm = \"sliding-window\"\ncount-denied = true",
    );
    migrated.has("[[route]]\nname = \"/{*rest}\"\npath = \"/{*rest}\"\nlimit = \"www\"\nto = \"web\"");
}

#[test]
fn haproxy_rules_keep_their_order() {
    let lines = "acl static hdr(host) -i static.example.com\nhttp-request deny if { path_beg /internal }\n\
                 use_backend api if { path_beg /api }\nuse_backend web if static\nuse_backend web if { path_beg /api/v2 }\n\
                 default_backend web\n";
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &haproxy(lines))]);
    // A host goes before a path here, so what was asked before it is asked for this host too.
    migrated.has(
        "[[route]]\nname = \"/internal{*rest}-2\"\nhost = \"static.example.com\"\npath = \"/internal{*rest}\"\n\
         respond = { status = 403 }",
    );
    migrated.has(
        "[[route]]\nname = \"/api{*rest}-2\"\nhost = \"static.example.com\"\npath = \"/api{*rest}\"\nto = \"api\"",
    );
    assert!(migrated.said_of("haproxy.cfg:11").contains("never reached"), "{}", migrated.text);
}

#[test]
fn haproxy_changes_of_fields_hold_in_the_order_of_frontend_and_backend() {
    let lines = "http-request del-header X-Internal\nhttp-request set-header X-Client %[src]\n\
                 http-request add-header X-Tag a\nhttp-request set-header X-Gone 1\n\
                 http-request del-header X-Gone\nhttp-response set-header X-Frame-Options DENY\n\
                 http-response del-header Server\ndefault_backend api\n";
    let config = haproxy(lines).replace(
        "\nbackend api\n",
        "\nbackend api\n http-request set-header X-Client behind\n http-request add-header X-Tag b\n \
         http-response set-header X-Frame-Options SAMEORIGIN\n http-response set-header X-B 1\n",
    );
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &config)]);
    // A frontend sees requests first and answers last.
    migrated.has(
        "headers = { remove = [\"x-internal\", \"x-gone\"], set = { x-client = \"behind\" }, add = { x-tag = [\"a\", \"b\"] } }\n\
         response-headers = { remove = \"server\", set = { x-b = \"1\", x-frame-options = \"DENY\" } }",
    );
}

#[test]
fn haproxy_sends_the_clients_address_in_a_field_of_any_name() {
    let lines = "option forwardfor header X-Client-IP\ndefault_backend api\n";
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &haproxy(lines))]);
    migrated.has("headers = { set = { x-client-ip = \"{ip}\" } }");
    let plain =
        Migrated::of("haproxy", &[("haproxy.cfg", &haproxy(&lines.replace(" header X-Client-IP", "")))]);
    assert!(!plain.text.contains("headers ="), "{}", plain.text);
}

#[test]
fn haproxy_addresses_are_let_in_by_frontend_and_backend_both() {
    let lists = |front: &str, behind: &str| {
        let config = haproxy(&format!("{front}default_backend api\n"))
            .replace("\nbackend api\n", &format!("\nbackend api\n{behind}"));
        Migrated::of("haproxy", &[("haproxy.cfg", &config)])
    };
    let deny = |range: &str| format!(" http-request deny if {{ src {range} }}\n");
    let allow = |range: &str| format!(" http-request deny unless {{ src {range} }}\n");
    let denied = lists(&deny("10.1.0.0/16"), &deny("10.2.0.0/16")).text;
    assert!(denied.contains("\ndeny = [\"10.1.0.0/16\", \"10.2.0.0/16\"]\n"), "{denied}");
    let allowed = lists(&allow("10.0.0.0/8"), "").text;
    assert!(allowed.contains("\nallow = \"10.0.0.0/8\"\n"), "{allowed}");
    for both in [
        lists(&allow("10.0.0.0/8"), &allow("10.2.0.0/16")),
        lists(&format!("{}{}", allow("10.0.0.0/8"), allow("192.0.2.0/24")), ""),
    ] {
        assert!(both.text.contains("\nrespond = { status = 501"), "{}", both.text);
        assert!(!both.text.contains("\nallow = "), "{}", both.text);
        assert!(both.text.contains("closed (501)"), "{}", both.text);
    }
}

#[test]
fn haproxy_rules_that_refuse_close_what_they_cannot_say() {
    let closed = "http-request deny unless { hdr(x-key) -m found }\ndefault_backend web\n";
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &haproxy(closed))]);
    assert!(migrated.section("[[route]]\nname = \"/{*rest}\"").contains("status = 501"));
    assert!(migrated.said_of("haproxy.cfg:7").contains("closed"));
    let addresses = "http-request deny unless { src 10.0.0.0/8 }\nhttp-request deny if { src 10.1.2.3 }\n\
                     http-request set-header X-Real-IP %[src]\ndefault_backend web\n";
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &haproxy(addresses))]);
    migrated.has(
        "[[route]]\nname = \"/{*rest}\"\npath = \"/{*rest}\"\nto = \"web\"\nallow = \"10.0.0.0/8\"\n\
         deny = \"10.1.2.3\"\nheaders = { set = { x-real-ip = \"{ip}\" } }",
    );
}

#[test]
fn haproxy_sends_what_comes_in_the_clear_to_https() {
    let lines = "bind :8443 ssl crt certs/site.pem alpn h2,http/1.1\n\
                 http-request redirect scheme https code 301 unless { ssl_fc }\ndefault_backend web\n";
    let directory = Directory::new();
    std::fs::create_dir_all(directory.join("certs")).expect("the target directory is writable");
    certify(&directory, "certs/site", &["example.com"]);
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).expect("it was written");
    let both = format!("{}{}", read("certs/site.pem"), read("certs/site.key"));
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &haproxy(lines)), ("certs/site.pem", &both)]);
    assert!(
        migrated
            .section("[listener.www]\nbind = \"0.0.0.0:8080\"")
            .contains("{ to = \"https\", status = 301 }")
    );
    assert!(
        migrated.section("[listener.www-2]\nbind = \"0.0.0.0:8443\"").contains("certs/site.pem\", key = ")
    );
}

#[test]
fn haproxy_keeps_what_tls_asks_of_clients_and_servers() {
    let authority = Authority::new("clients");
    let (cert, key) = authority.server(&["example.com"]);
    let bind = "bind :8443 ssl crt site.pem ca-file ca.pem verify required crl-file gone.pem strict-sni \
                ciphersuites TLS_AES_128_GCM_SHA256 maxconn 90";
    let lines = format!(
        "{bind}\nbind :8444 ssl crt site.pem ssl-min-ver TLSv1.2\nbind :8445 ssl crt-list list.txt\ndefault_backend web\n"
    );
    let config = format!(
        "global\n ssl-default-bind-options ssl-min-ver TLSv1.3\n tune.ssl.lifetime 300\n ssl-dh-param-file dh.pem\n{}\
         backend tls\n default-server ssl verify required ca-file ca.pem\n\
         server t1 10.0.2.1:443 verifyhost in.example.com force-tlsv13\n\
         server t2 10.0.2.2:443 verifyhost in.example.com force-tlsv13 crl-file gone.pem\n\
         server t3 10.0.2.3:443 verifyhost in.example.com force-tlsv13 unheard\n server t4 10.0.2.4:443\n",
        haproxy(&format!("{lines}use_backend tls if {{ path_beg /tls }}\n"))
    );
    let files = [
        ("haproxy.cfg", config.as_str()),
        ("site.pem", &format!("{cert}{key}")),
        ("ca.pem", &authority.pem),
        ("gone.pem", &authority.revoking(&[7])),
    ];
    let migrated = Migrated::of("haproxy", &files);
    let listener = migrated.section("[listener.www-2]\nbind = \"0.0.0.0:8443\"");
    for key in ["gone.pem\"", "client-cert = \"require\"", "min-version = \"1.3\"", "max-connections = 90"] {
        assert!(listener.contains(key), "{key}: {listener}");
    }
    assert!(
        listener.contains("client-crl = ") && listener.contains("ciphers = [\"TLS_AES_128_GCM_SHA256\", ")
    );
    assert!(migrated.said_of("haproxy.cfg:11").contains("strict-sni"));
    // A bind's own words go before those of `global`.
    assert!(!migrated.section("[listener.www-3]\nbind = \"0.0.0.0:8444\"").contains("min-version"));
    assert!(
        !migrated.text.contains("0.0.0.0:8445")
            && migrated.said_of("haproxy.cfg:13").contains("it refuses clients")
    );
    let upstream =
        migrated.section("[upstream.tls]\nservers = [\"https://10.0.2.1:443\", \"https://10.0.2.3:443\"]");
    assert!(upstream.contains("sni = \"in.example.com\", min-version = \"1.3\" }"), "{upstream}");
    for (place, said) in [(4, "ssl-dh-param-file"), (28, "left out"), (29, "unheard"), (30, "one `tls`")] {
        let line = migrated.said_of(&format!("haproxy.cfg:{place}"));
        assert!(line.contains(said), "{line}");
    }
    assert_eq!(migrated.code, Some(3));
}

#[test]
fn what_one_port_alone_served_is_closed_because_all_ports_would() {
    let guarded = "location /in/ { allow 10.0.0.0/8; deny all; proxy_pass http://a; }\nlocation / { proxy_pass http://a; }\n";
    let open = "location /in/deep/ { proxy_pass http://a; }\nlocation / { proxy_pass http://a; }\n";
    let server = |port: &str, name: &str, lines: &str| {
        format!("server {{\nlisten {port};\nserver_name {name};\n{lines}}}\n")
    };
    let closed = |migrated: &Migrated, name: &str| {
        migrated.section(&format!("[[route]]\nname = \"{name}\"")).contains("status = 501")
    };
    let of = |servers: &[String]| {
        Migrated::of("nginx", &[("nginx.conf", &format!("http {{\n{}}}\n", servers.concat()))])
    };

    let migrated = of(&[server("30131", "x.test", guarded), server("30132", "x.test", open)]);
    assert!(closed(&migrated, "/in/deep/{*rest}") && !closed(&migrated, "/{*rest}"), "{}", migrated.text);
    assert!(migrated.section("[[route]]\nname = \"/in/{*rest}\"").contains("allow = \"10.0.0.0/8\""));
    assert!(migrated.text.contains("port of its own"), "{}", migrated.text);
    assert_eq!(migrated.code, Some(3));

    // An internal server that comes first is the internal one still, and the usual pair of ports is one site.
    let internal = server("127.0.0.1:9000", "admin.test", open);
    let web = server("80", "a.test", guarded).replace("listen 80;", "listen 80;\nlisten 443;");
    let both = server("80", "b.test", open).replace("listen 80;", "listen 80;\nlisten 443;");
    let migrated = of(&[internal, web, both]);
    assert!(
        closed(&migrated, "/in/deep/{*rest}-2") && !closed(&migrated, "/in/deep/{*rest}"),
        "{}",
        migrated.text
    );
    assert!(migrated.section("[[route]]\nname = \"/in/deep/{*rest}-2\"").contains("host = \"admin.test\""));

    // The same rules at one more port stay as they are.
    let migrated = of(&[server("8081", "x.test", guarded), server("8082", "x.test", guarded)]);
    assert!(!migrated.text.contains("501"), "{}", migrated.text);
    assert_eq!(migrated.code, Some(0), "{}", migrated.text);
}

#[test]
fn haproxy_frontends_of_other_ports_are_closed() {
    let lines = "http-request deny if { path_beg /priv }\ndefault_backend web\nfrontend int\n bind 127.0.0.1:8090\n\
                 use_backend api if { hdr(host) -i x.test }\n";
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &haproxy(lines))]);
    migrated.has(
        "[[route]]\nname = \"/{*rest}-2\"\nhost = \"x.test\"\npath = \"/{*rest}\"\n\
         respond = { status = 501, body = \"left out by the migration\\n\" }",
    );
    assert!(migrated.said_of("haproxy.cfg:9").contains("port of its own"), "{}", migrated.text);
    assert_eq!(migrated.code, Some(3));
    // A port that only sends clients to https has no rules of its own.
    let both = "http-request redirect scheme https\nfrontend tls\n bind :8443\n default_backend web\n";
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &haproxy(both))]);
    assert!(!migrated.text.contains("status = 501"), "{}", migrated.text);
}

#[test]
fn nginx_expressions_that_keep_clients_out_keep_them_out() {
    let lines = "location ~ ^/(internal|admin)/ { deny all; }\nlocation /admin/open/ { proxy_pass http://a; }\n\
                 location = /ok { proxy_pass http://a; }\nlocation / { proxy_pass http://a; }\n";
    let migrated = Migrated::of("nginx", &[("nginx.conf", &nginx_server(lines))]);
    let route = |migrated: &Migrated, name: &str| {
        migrated.section(&format!("[[route]]\nname = \"{name}\"")).to_owned()
    };
    for name in ["/internal/{*rest}", "/admin/{*rest}", "/admin/open/{*rest}"] {
        assert!(!route(&migrated, name).contains("to ="), "{}", migrated.text);
    }
    assert!(route(&migrated, "/{*rest}").contains("to ="), "{}", migrated.text);

    for expression in ["/\\.", "/\\.(?!well-known)", "\\.(bak|git)$"] {
        let lines = format!(
            "location ~ {expression} {{ deny all; }}\nlocation ^~ /.well-known/ {{ proxy_pass http://a; }}\n\
             location = /ok {{ proxy_pass http://a; }}\nlocation / {{ proxy_pass http://a; }}\n"
        );
        let migrated = Migrated::of("nginx", &[("nginx.conf", &nginx_server(&lines))]);
        assert!(route(&migrated, "/{*rest}").contains("status = 501"), "{}", migrated.text);
        for name in ["/ok", "/.well-known/{*rest}"] {
            assert!(route(&migrated, name).contains("to ="), "{}", migrated.text);
        }
        assert!(
            migrated.said_of("nginx.conf:8").contains("error: no route can express"),
            "{}",
            migrated.text
        );
        assert_eq!(migrated.code, Some(3));
    }

    let lines = "location /a/ { proxy_pass http://a; location ~ \\.bak$ { deny all; } }\nlocation ~ ^/b/.*x$ { return 403; }\n\
                 location /c/ { proxy_pass http://a; }\nlocation ~ ^/c/ { deny all; }\nlocation / { proxy_pass http://a; }\n";
    let migrated = Migrated::of("nginx", &[("nginx.conf", &nginx_server(lines))]);
    for name in ["/a/{*rest}", "/b/{*rest}", "/c/{*rest}"] {
        assert!(route(&migrated, name).contains("status = 501"), "{}", migrated.text);
    }
    assert!(route(&migrated, "/{*rest}").contains("to ="), "{}", migrated.text);
}

#[test]
fn nginx_conditions_that_send_the_clear_to_https_are_redirects_of_a_listener() {
    let config = "http {\nserver {\nlisten 80;\nlisten 443 ssl;\nssl_certificate certs/api.pem;\n\
                  ssl_certificate_key certs/api.key;\nif ($scheme = http) { return 301 https://$host$request_uri; }\n\
                  location / { proxy_pass http://127.0.0.1:1; proxy_set_header Host $host; }\n}\n}\n";
    let migrated = Migrated::of("nginx", &[("nginx.conf", config)]);
    let listener = migrated.section("[listener.http]\nbind = \"0.0.0.0:80\"");
    assert!(listener.contains("redirect = { to = \"https\", status = 301 }"), "{listener}");
    assert!(!migrated.section("[listener.https]\nbind = \"0.0.0.0:443\"").contains("redirect"));
    assert!(!migrated.text.contains("Left out"), "{}", migrated.text);
}

#[test]
fn haproxy_connections_and_contents_that_are_rejected_stay_so() {
    let lines = "tcp-request connection reject if { src 1.2.3.4 }\ntcp-request content reject if { path_beg /admin }\n\
                 default_backend web\n";
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &haproxy(lines))]);
    assert!(migrated.section("[listener.www]\nbind = \"0.0.0.0:8080\"").contains("deny = \"1.2.3.4\""));
    assert!(migrated.section("[[route]]\nname = \"/admin{*rest}\"").contains("status = 403"));
    let unsaid = "tcp-request connection reject if { src -f list.txt }\ndefault_backend web\n";
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &haproxy(unsaid))]);
    assert!(!migrated.text.contains("[listener."), "{}", migrated.text);
    assert!(migrated.said_of("haproxy.cfg:7").contains("left out until"), "{}", migrated.text);
}

#[test]
fn what_the_gateway_has_is_taken_over_or_named() {
    let lines = "ssl_protocols TLSv1.3;\nssl_certificate certs/api.pem;\nssl_certificate_key certs/api.key;\n\
                 location /lua { content_by_lua_block { ngx.say(\"} {\") -- it's }\n local t = { [[ } ]], '}' } } }\n\
                 location / { proxy_pass http://a; }\n";
    let config =
        nginx_server(lines).replace("listen 8080;", "listen 8080 ssl; listen unix:/tmp/migrated.sock;");
    let migrated = Migrated::of("nginx", &[("nginx.conf", &config)]);
    assert!(
        migrated.section("[listener.port-8080]\nbind = \"0.0.0.0:8080\"").contains("min-version = \"1.3\"")
    );
    migrated.has("[listener.unix]\nbind = \"unix:/tmp/migrated.sock\"\nmode = \"0666\"\nhttp = \"http/1.1\"");
    assert!(migrated.section("[[route]]\nname = \"/lua{*rest}\"").contains("status = 501"));

    let lines =
        "bind /tmp/migrated2.sock mode 660\nmaxconn 500\nunique-id-header X-Unique-ID\ndefault_backend web\n";
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", &haproxy(lines))]);
    let listener = migrated.section("[listener.www-2]\nbind = \"unix:/tmp/migrated2.sock\"");
    assert!(listener.contains("mode = \"660\"") && listener.contains("max-connections = 500"), "{listener}");
    assert!(migrated.said_of("haproxy.cfg:9").contains("{request_id}"), "{}", migrated.text);
}

/// The blocks of a kind in all documents, each with the block of TOML that it becomes.
fn documented(kind: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for (name, document) in documents_with(&format!("```{kind}")) {
        let blocks: Vec<&str> = document.split("```").skip(1).step_by(2).collect();
        for (at, block) in blocks.iter().enumerate() {
            let Some(source) = block.strip_prefix(kind) else { continue };
            let shown = blocks.get(at + 1).and_then(|block| block.strip_prefix("toml\n"));
            let shown = shown.unwrap_or_else(|| panic!("{name} does not show what it becomes:\n{source}"));
            pairs.push((source.to_owned(), shown.to_owned()));
        }
    }
    pairs
}

#[test]
fn what_the_documentation_shows_of_each_is_what_is_printed() {
    for (from, kind, file) in [
        ("nginx", "nginx\n", "nginx.conf"),
        ("haproxy", "haproxy\n", "haproxy.cfg"),
        ("envoy", "yaml envoy\n", "envoy.yaml"),
        ("kong", "yaml kong\n", "kong.yml"),
        ("ratelimit", "yaml ratelimit\n", "ratelimit.yaml"),
    ] {
        for (source, shown) in documented(kind) {
            let migrated = Migrated::of(from, &[(file, &source)]);
            let (_, printed) = migrated.text.split_once("\n\n").expect("comments come first");
            assert_eq!(printed, shown, "the documents show another gateway.toml");
        }
    }
}

#[test]
fn descriptors_are_imported_by_either_name_of_the_command() {
    let limit = "rate_limit: { unit: hour, requests_per_unit: 4 }";
    let source = format!(
        "domain: shop\ndescriptors:\n- {{ key: user, {limit} }}\n- {{ key: user, colour: blue, {limit} }}\n"
    );
    let migrated = Migrated::of("ratelimit", &[("limits.yaml", &source)]);
    assert!(migrated.said_of("limits.yaml:4").contains("it is written twice"));
    migrated.has("[policy.shop-user]\nby = [\"entry:user\"]\nlimit = \"4/h\"\nalgorithm = \"fixed-window\"\novershoot = 0");
    let imported = migrate(&migrated.directory, &["import", "ratelimit", "limits.yaml"]);
    assert_eq!((imported.status.code(), text(&imported.stdout)), (Some(3), migrated.text));
}

#[test]
fn what_the_documentation_shows_of_traefik_does_what_it_says() {
    let (_, shown) = documented("yaml traefik\n").pop().expect("one is shown");
    let orders = Upstream::ok();
    let config =
        shown.replace("10.0.0.1:8080", &orders.addr().to_string()).replace("0.0.0.0:8000", "127.0.0.1:0");
    let gateway = Gateway::start(&config);
    let mut client = Client::connect(gateway.listener("web"));
    let mut get = |host: &str, path: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n")).response()
    };
    assert_eq!(get("other.example.com", "/api/a").status, 404);
    assert_eq!(get("api.example.com", "/api/a?b").status, 200);
    let request = orders.request();
    assert_eq!(
        (request.line.as_str(), request.header("x-from").as_deref()),
        ("GET /a?b HTTP/1.1", Some("traefik"))
    );
    let answers: Vec<_> = (0..40).map(|_| get("api.example.com", "/api/a")).collect();
    let admitted = answers.iter().filter(|answer| answer.status == 200).count();
    // A burst of 20, and what came back while they were asked.
    assert!((19..=39).contains(&admitted), "{admitted}");
    assert!(answers.iter().any(|answer| answer.status == 429 && answer.header("retry-after").is_some()));
}
