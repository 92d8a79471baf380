//! The header fields that the gateway adds and removes, both ways, and from which hops it accepts a client's address.

use std::time::Duration;

use crate::support::upstream::Recorded;
use crate::support::{Directory, Gateway, Nginx, Upstream, eventually, stdout_of, tls};

/// A gateway with more configuration, everything forwarded to one upstream.
fn before(upstream: &Upstream, more: &str) -> Gateway {
    Gateway::start(&format!("{more}\n[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"", upstream.addr()))
}

/// What the upstream sees of a GET with these fields.
fn seen(more: &str, fields: &[&str]) -> Recorded {
    let upstream = Upstream::ok();
    let gateway = before(&upstream, more);
    assert_eq!(gateway.client().request("GET", "/", fields, "").status, 200);
    upstream.request()
}

/// Trust in the tests' own address.
const TRUST: &str = "[client-ip]\ntrust = [\"127.0.0.1/32\", \"10.0.0.0/8\"]";

#[test]
fn hop_by_hop_fields_stay_on_their_hop() {
    let request = seen(
        "",
        &[
            "Connection: keep-alive, X-Private",
            "Connection: x-other",
            "X-Private: 1",
            "X-Other: 1",
            "Keep-Alive: timeout=5",
            "Proxy-Connection: keep-alive",
            "Proxy-Authorization: Basic eDp5",
            "TE: gzip",
            "X-Public: 1",
            "Authorization: Bearer token",
        ],
    );
    for gone in
        ["connection", "x-private", "x-other", "keep-alive", "proxy-connection", "proxy-authorization", "te"]
    {
        assert_eq!(request.header(gone), None, "{gone}");
    }
    assert_eq!(request.header("x-public").as_deref(), Some("1"));
    assert_eq!(request.header("authorization").as_deref(), Some("Bearer token"));
}

#[test]
fn hop_by_hop_fields_of_an_answer_stay_on_their_hop() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nConnection: X-Private\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Authenticate: Basic\r\nX-Public: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\
         Content-Length: 2\r\n\r\nok",
    );
    let gateway = before(&upstream, "");
    let answer = gateway.get("/");
    for gone in ["connection", "x-private", "keep-alive", "proxy-authenticate"] {
        assert_eq!(answer.header(gone), None, "{gone}");
    }
    assert_eq!(answer.header("x-public"), Some("1"));
    assert_eq!(answer.all("set-cookie"), ["a=1", "b=2"]);
}

#[test]
fn connection_cannot_remove_fields_that_the_gateway_sets() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream, "");
    let field = "Connection: Host, X-Forwarded-For, X-Request-Id, Authorization, Via";
    let answer = gateway.client().request("GET", "/", &[field, "Authorization: kept"], "");
    assert_eq!((answer.status, answer.header("connection")), (400, Some("close")));
    assert!(upstream.is_quiet());
}

#[test]
fn the_upstream_learns_of_the_client() {
    let request = seen("", &["Host: api.example.com"]);
    assert_eq!(request.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(request.all("x-forwarded-proto"), ["http"]);
    assert_eq!(request.all("x-forwarded-host"), ["api.example.com"]);
    assert_eq!(request.all("via"), ["1.1 sluicegate"]);
    assert_eq!(request.all("host"), ["api.example.com"]);
}

#[test]
fn forwarding_fields_of_an_untrusted_peer_are_overwritten() {
    let request = seen(
        "",
        &[
            "X-Forwarded-For: 6.6.6.6",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: evil.example",
            "X-Real-IP: 6.6.6.6",
            "Forwarded: for=6.6.6.6",
            "X-Request-Id: mine",
        ],
    );
    assert_eq!(request.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(request.all("x-forwarded-proto"), ["http"]);
    assert_eq!(request.all("x-forwarded-host"), ["localhost"]);
    assert_eq!((request.header("x-real-ip"), request.header("forwarded")), (None, None));
    assert_ne!(request.header("x-request-id").as_deref(), Some("mine"));
}

#[test]
fn forwarding_fields_of_a_trusted_hop_are_kept_and_continued() {
    let request = seen(
        TRUST,
        &["X-Forwarded-For: 203.0.113.9, 10.1.1.1", "X-Forwarded-Proto: https", "X-Request-Id: theirs"],
    );
    assert_eq!(request.header("x-forwarded-for").as_deref(), Some("203.0.113.9, 10.1.1.1, 127.0.0.1"));
    assert_eq!(request.all("x-forwarded-proto"), ["https"]);
    assert_eq!(request.all("x-request-id"), ["theirs"]);
}

/// Whom the access log names as the client of a request with these fields.
fn client(more: &str, fields: &[&str]) -> String {
    let upstream = Upstream::ok();
    let gateway = before(&upstream, more);
    assert_eq!(gateway.client().request("GET", "/who", fields, "").status, 200);
    gateway.logged("/who")["client"].as_str().expect("a client is text").to_owned()
}

#[test]
fn the_client_is_found_from_the_right_past_trusted_hops() {
    assert_eq!(client("", &["X-Forwarded-For: 203.0.113.9"]), "127.0.0.1");
    assert_eq!(client(TRUST, &[]), "127.0.0.1");
    assert_eq!(client(TRUST, &["X-Forwarded-For: 203.0.113.9"]), "203.0.113.9");
    assert_eq!(client(TRUST, &["X-Forwarded-For: 6.6.6.6, 203.0.113.9, 10.1.1.1"]), "203.0.113.9");
    assert_eq!(
        client(TRUST, &["X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 203.0.113.9, 10.1.1.1"]),
        "203.0.113.9"
    );
    assert_eq!(client(TRUST, &["X-Forwarded-For: 6.6.6.6, nonsense, 10.1.1.1"]), "10.1.1.1");
    assert_eq!(client(TRUST, &["X-Forwarded-For: ::ffff:203.0.113.9"]), "203.0.113.9");
}

#[test]
fn forwarded_is_spoken_where_it_is_chosen() {
    let chosen = format!("{TRUST}\nheader = \"forwarded\"");
    let fields = ["Forwarded: for=6.6.6.6, for=\"[2001:db8::1]:4711\";proto=https, for=10.1.1.1"];
    assert_eq!(client(&chosen, &fields), "2001:db8::1");
    assert_eq!(client(&chosen, &["X-Forwarded-For: 6.6.6.6"]), "127.0.0.1");
    let request = seen("[client-ip]\nheader = \"forwarded\"", &["Forwarded: for=6.6.6.6"]);
    assert_eq!(request.header("forwarded").as_deref(), Some("for=127.0.0.1;host=\"localhost\";proto=http"));
}

#[test]
fn a_request_id_is_made_passed_on_and_logged() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream, "");
    assert_eq!(gateway.get("/first").status, 200);
    let id = upstream.request().header("x-request-id").expect("the upstream is told");
    assert!(id.len() >= 16, "{id}");
    assert_eq!(gateway.logged("/first")["request_id"], id.as_str());
    assert_eq!(gateway.get("/second").status, 200);
    assert_ne!(upstream.request().header("x-request-id"), Some(id));
}

#[test]
fn trace_context_passes_unchanged() {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let request = seen("", &[&format!("traceparent: {parent}"), "tracestate: a=1,b=2"]);
    assert_eq!((request.all("traceparent"), request.all("tracestate")), (vec![parent], vec!["a=1,b=2"]));
}

#[test]
fn http_2_requests_reach_an_http_1_upstream_whole() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream, "");
    let url = format!("http://{}/over?q=1", gateway.plain());
    let arguments = [
        "-sS",
        "--http2-prior-knowledge",
        "-H",
        "Host: api.example.com",
        "-H",
        "Cookie: a=1",
        "-H",
        "Cookie: b=2",
        &url,
    ];
    assert_eq!(stdout_of("curl", &arguments), "ok");
    let request = upstream.request();
    assert_eq!(request.line, "GET /over?q=1 HTTP/1.1");
    assert_eq!(request.all("host"), ["api.example.com"]);
    assert_eq!(request.all("via"), ["2 sluicegate"]);
    assert_eq!(request.all("cookie"), ["a=1; b=2"], "RFC 9113, section 8.2.3: one line for HTTP/1.1");
}

#[test]
fn the_host_may_be_the_server_s_own() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[upstream.u]\nservers = [\"http://{}\"]\nhost = \"server\"\n[[route]]\npath = \"/\"\nto = \"u\"",
        upstream.addr()
    ));
    assert_eq!(gateway.client().request("GET", "/", &["Host: api.example.com"], "").status, 200);
    let request = upstream.request();
    assert_eq!(request.all("host"), [upstream.addr().to_string()]);
    assert_eq!(request.all("x-forwarded-host"), ["api.example.com"]);
}

#[test]
fn a_rewritten_path_has_its_one_form() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/files/{{a}}/{{*rest}}\"\nto = \"http://{0}\"\nrewrite = \"/public/{{a}}{{rest}}..\"\n\
         [[route]]\npath = \"/pair/{{a}}/{{b}}\"\nto = \"http://{0}\"\nrewrite = \"/{{a}}{{b}}\"",
        upstream.addr()
    ));
    assert_eq!(gateway.get("/files/q/b/").status, 200);
    // Text behind a part of the request makes no `..` of it.
    assert_eq!(upstream.request().line, "GET /public/qb/- HTTP/1.1");
    assert_eq!(gateway.get("/pair/50%25/41").status, 400, "put together it is encoded twice");
    assert!(upstream.is_quiet());
}

#[test]
fn a_rewrite_changes_the_path_and_keeps_the_query() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/v1/orders/{{id}}\"\nto = \"http://{0}\"\nrewrite = \"/orders/{{id}}/full\"\n\
         [[route]]\npath = \"/files/{{*rest}}\"\nto = \"http://{0}\"\nrewrite = \"/{{rest}}\"",
        upstream.addr()
    ));
    for (asked, forwarded) in [
        ("/v1/orders/7?a=b", "/orders/7/full?a=b"),
        ("/v1/orders/a%20b", "/orders/a%20b/full"),
        ("/files/x/y?z", "/x/y?z"),
        ("/files/", "/"),
    ] {
        assert_eq!(gateway.get(asked).status, 200, "{asked}");
        assert_eq!(upstream.request().line, format!("GET {forwarded} HTTP/1.1"));
    }
}

#[test]
fn a_route_changes_headers_both_ways() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nServer: secret\r\nX-Kept: 1\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\nok",
    );
    let gateway = Gateway::start(&format!(
        "[[route]]\nname = \"r\"\npath = \"/o/{{id}}\"\nto = \"http://{}\"\n\
         headers = {{ set = {{ x-order = \"{{id}}\", x-from = \"{{ip}} {{route}} {{method}}\" }}, add = {{ x-tag = \"b\" }}, remove = [\"x-debug\"] }}\n\
         response-headers = {{ set = {{ cache-control = \"private\" }}, add = {{ x-served = \"{{host}}\" }}, remove = [\"server\"] }}",
        upstream.addr()
    ));
    let fields = ["X-Debug: 1", "X-Tag: a", "X-Order: forged", "Host: h.example"];
    let answer = gateway.client().request("GET", "/o/42", &fields, "");
    let request = upstream.request();
    assert_eq!(request.all("x-order"), ["42"]);
    assert_eq!(request.all("x-from"), ["127.0.0.1 r GET"]);
    assert_eq!(request.all("x-tag"), ["a", "b"]);
    assert_eq!(request.header("x-debug"), None);
    assert_eq!((answer.header("server"), answer.header("x-kept")), (None, Some("1")));
    assert_eq!(
        (answer.header("cache-control"), answer.header("x-served")),
        (Some("private"), Some("h.example"))
    );
}

#[test]
fn a_set_array_is_several_fields() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nX-B: 0\r\nX-B: 1\r\nContent-Length: 2\r\n\r\nok");
    let set = "set = { x-a = [\"1\", \"2\"], x-none = [\"{tenant}\", \"3\"] }";
    let gateway = Gateway::start(&format!(
        "[[route]]\nto = \"http://{}\"\nheaders = {{ {set} }}\nresponse-headers = {{ set = {{ x-b = [\"2\", \"3\"] }} }}",
        upstream.addr()
    ));
    let answer = gateway.client().request("GET", "/", &["X-A: forged", "X-None: forged"], "");
    let request = upstream.request();
    assert_eq!((request.all("x-a"), request.all("x-none")), (vec!["1", "2"], vec!["3"]));
    assert_eq!(answer.all("x-b"), ["2", "3"]);
}

#[test]
fn a_request_keeps_its_host_where_another_comes_out_empty() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\nto = \"http://{}\"\nheaders = {{ set = {{ host = \"{{tenant}}\" }} }}",
        upstream.addr()
    ));
    assert_eq!(gateway.client().request("GET", "/", &["Host: h.example"], "").status, 200);
    assert_eq!(upstream.request().all("host"), ["h.example"]);
}

#[test]
fn a_request_keeps_its_host_where_another_is_none() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/to/{{host_of}}\"\nto = \"http://{}\"\nheaders = {{ set = {{ host = \"{{host_of}}\" }} }}",
        upstream.addr()
    ));
    let sent = |path: &str| {
        assert_eq!(gateway.client().request("GET", path, &["Host: h.example"], "").status, 200, "{path}");
        upstream.request().all("host").join("|")
    };
    for (written, host) in [("a.example", "a.example"), ("a:8080", "a:8080"), ("%5B::1%5D:80", "[::1]:80")] {
        assert_eq!(sent(&format!("/to/{written}")), host);
    }
    for written in ["a%20b", "%5B", "a@b", "a:b", "a,b", "::1", "a%C3%A4", "a..b", "a%3fb"] {
        assert_eq!(sent(&format!("/to/{written}")), "h.example", "{written}");
    }
}

#[test]
fn a_value_that_would_break_a_header_breaks_none() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/o/{{id}}\"\nto = \"http://{}\"\nheaders = {{ set = {{ x-order = \"{{id}}\" }} }}",
        upstream.addr()
    ));
    let status = gateway.get("/o/a%0d%0aX-Evil:%201").status;
    assert!(status == 200 || status == 400, "{status}");
    if status == 200 {
        assert_eq!(upstream.request().header("x-evil"), None);
    }
}

#[test]
fn servers_share_the_requests() {
    for balance in ["p2c", "round-robin"] {
        let servers = [Upstream::answering(named("a")), Upstream::answering(named("b"))];
        let gateway = Gateway::start(&format!(
            "workers = 1\n[upstream.u]\nservers = [\"http://{}\", \"http://{}\"]\nbalance = \"{balance}\"\n\
             [[route]]\npath = \"/\"\nto = \"u\"",
            servers[0].addr(),
            servers[1].addr()
        ));
        let mut client = gateway.client();
        let names: Vec<String> = (0..40).map(|_| client.get("/").text()).collect();
        let share = names.iter().filter(|name| *name == "a").count();
        // p2c draws among equals: less than 5 of 40 has odds of one to three million.
        let expected = if balance == "p2c" { 5..=35 } else { 20..=20 };
        assert!(expected.contains(&share), "{balance}: {share} of 40");
    }
}

#[test]
fn weights_are_shares() {
    let servers = [Upstream::answering(named("a")), Upstream::answering(named("b"))];
    let gateway = Gateway::start(&format!(
        "workers = 1\n[upstream.u]\nservers = [{{ url = \"http://{}\", weight = 3 }}, \"http://{}\"]\n\
         balance = \"round-robin\"\n[[route]]\npath = \"/\"\nto = \"u\"",
        servers[0].addr(),
        servers[1].addr()
    ));
    let mut client = gateway.client();
    let share = (0..40).filter(|_| client.get("/").text() == "a").count();
    assert_eq!(share, 30);
}

fn named(name: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{name}")
}

/// An nginx that speaks TLS with a certificate of its own, and that certificate's file.
fn secured(host: &str) -> (Nginx, Directory) {
    let directory = Directory::new();
    tls::certify(&directory, "upstream", &[host]);
    let file = directory.join("upstream").display().to_string();
    let server = format!(
        "ssl_certificate {file}.pem; ssl_certificate_key {file}.key; location / {{ return 200 \"$scheme $ssl_server_name\"; }}"
    );
    (Nginx::start(&server), directory)
}

/// A gateway before it that trusts the certificate.
fn trusting(nginx: &Nginx, directory: &Directory) -> Gateway {
    let text = format!("[[route]]\npath = \"/\"\nto = \"https://localhost:{}\"", nginx.addr().port());
    let file = directory.join("upstream.pem").display().to_string();
    Gateway::start_with(Directory::new(), &text, &[("SSL_CERT_FILE", &file)])
}

#[test]
fn an_upstream_is_spoken_to_over_tls() {
    let (nginx, directory) = secured("localhost");
    assert_eq!(trusting(&nginx, &directory).get("/").text(), "https localhost");
}

#[test]
fn an_upstream_with_another_s_certificate_gets_nothing() {
    let (nginx, directory) = secured("elsewhere.example");
    let gateway = trusting(&nginx, &directory);
    assert_eq!(gateway.get("/").status, 502);
    assert_eq!(gateway.logged("/")["reason"], "upstream-connect");
}

#[test]
fn the_access_log_tells_the_whole_exchange() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\nname = \"r\"\npath = \"/{{*rest}}\"\nto = \"http://{}\"\nlimit = \"10/m by ip\"",
        upstream.addr()
    ));
    let answer = gateway.client().request("POST", "/a", &["Host: api.example.com"], "12345");
    assert_eq!(answer.status, 200);
    let line = gateway.logged("/a");
    for (field, value) in [
        ("listener", "plain"),
        ("client", "127.0.0.1"),
        ("method", "POST"),
        ("host", "api.example.com"),
        ("protocol", "HTTP/1.1"),
        ("route", "r"),
        ("server", &upstream.addr().to_string()),
    ] {
        assert_eq!(line[field], value, "{field} in {line}");
    }
    assert_eq!((line["status"].as_u64(), line["bytes_in"].as_u64()), (Some(200), Some(5)), "{line}");
    assert_eq!(line["bytes_out"].as_u64(), Some(2), "{line}");
    assert!(line["total_us"].as_u64().is_some_and(|time| time > 0), "{line}");
    let time = line["time"].as_str().unwrap_or_default();
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    assert!(line["decision"].as_str().unwrap_or_default().contains("admitted"), "{line}");
}

#[test]
fn the_access_log_tells_how_long_each_step_took() {
    let upstream = Upstream::replying(|_| {
        std::thread::sleep(Duration::from_millis(150));
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()
    });
    let gateway = Gateway::start(&format!(
        "workers = 1\n[upstream.u]\nservers = [\"http://{}\"]\nconnections = {{ max = 1, wait = \"10s\" }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\nlimit = \"10/m by ip\"",
        upstream.addr()
    ));
    let (mut opens, mut waits) = (gateway.client(), gateway.client());
    opens.send("GET /opens HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is at the upstream", || (upstream.connections() == 1).then_some(()));
    waits.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((opens.response().status, waits.response().status), (200, 200));
    assert_eq!(waits.get("/reuses").status, 200);
    for (path, steps) in [
        ("/opens", &["decide_us", "connect_us", "first_byte_us"][..]),
        ("/waits", &["decide_us", "wait_us", "first_byte_us"]),
        ("/reuses", &["decide_us", "first_byte_us"]),
    ] {
        let line = gateway.logged(path);
        let all = ["decide_us", "wait_us", "connect_us", "first_byte_us"];
        let known: Vec<&str> = all.into_iter().filter(|step| line.get(step).is_some()).collect();
        assert_eq!(known, steps, "{line}");
        let sum: u64 = all.iter().filter_map(|step| line[step].as_u64()).sum();
        assert!(sum <= line["total_us"].as_u64().expect("a number"), "steps of one whole: {line}");
        assert!(line["first_byte_us"].as_u64().is_some_and(|time| time >= 150_000), "{line}");
    }
    let logged = |path| gateway.logged(path)["first_byte_us"].as_f64().expect("it was there before");
    let logged: f64 = ["/opens", "/waits", "/reuses"].into_iter().map(logged).sum();
    let counted = gateway.metric("sluicegate_upstream_first_byte_seconds_sum", &[]) * 1e6;
    assert!((counted - logged).abs() < 10.0, "log and metric mean the same: {logged} and {counted}");
}

#[test]
fn a_phrase_of_a_server_goes_on_over_http_1() {
    for (said, passed) in [
        ("299 Rather odd", "299 Rather odd"),
        ("520", "520 "),
        ("520 ", "520 "),
        ("299 \u{e9}", "299 "),
        ("200 Fine", "200 Fine"),
        ("200 ", "200 OK"),
        ("404 NOT FOUND", "404 NOT FOUND"),
    ] {
        let upstream = Upstream::answering(format!("HTTP/1.1 {said}\r\nContent-Length: 2\r\n\r\nok"));
        let gateway = before(&upstream, "");
        let mut client = gateway.client();
        for _ in 0..2 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let head = client.head_text();
            assert_eq!(head.lines().next(), Some(&*format!("HTTP/1.1 {passed}")), "{said}");
            assert_eq!(client.bytes(2), b"ok");
        }
        let url = format!("http://{}/", gateway.plain());
        let code = &said[..3];
        let over_h2 = ["-sS", "--http2-prior-knowledge", "-w", " %{http_code}", &url];
        assert_eq!(stdout_of("curl", &over_h2), format!("ok {code}"));
    }
}

#[test]
fn a_205_goes_on_without_content() {
    for body in ["Content-Length: 4\r\n\r\nbody", "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"]
    {
        let upstream = Upstream::answering(format!("HTTP/1.1 205 Reset Content\r\n{body}"));
        let gateway = before(&upstream, "");
        let mut client = gateway.client();
        for _ in 0..2 {
            let answer = client.get("/");
            assert_eq!((answer.status, answer.text().as_str()), (205, ""));
            assert_eq!(answer.header("content-length"), Some("0"));
        }
        let url = format!("http://{}/", gateway.plain());
        let over_h2 = ["-sSi", "--http2-prior-knowledge", &url];
        let said = stdout_of("curl", &over_h2);
        assert!(said.starts_with("HTTP/2 205") && said.contains("content-length: 0\r\n"), "{said}");
        assert!(said.ends_with("\r\n\r\n"), "{said}");
    }
}

#[test]
fn a_304_has_no_length_in_either_protocol() {
    let upstream =
        Upstream::answering("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: \"q\"\r\n\r\n");
    let gateway = before(&upstream, "");
    let url = format!("http://{}/", gateway.plain());
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        let said = stdout_of("curl", &["-sSi", protocol, &url]).to_ascii_lowercase();
        assert!(said.contains(" 304") && said.contains("etag: \"q\""), "{said}");
        assert!(!said.contains("content-length"), "{said}");
    }
}
