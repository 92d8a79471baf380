//! Bad input from a client: the status, the close, one line in the access log, and nothing at the upstream.

use std::time::Duration;

use crate::support::client::closes_within;
use crate::support::h2::{Connection, RST_STREAM};
use crate::support::{Gateway, Upstream, text};

/// A gateway with small limits before an upstream that records.
fn before(upstream: &Upstream) -> Gateway {
    Gateway::start(&format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\n\
         timeouts = {{ header = \"300ms\", idle = \"2s\", body-stall = \"300ms\" }}\n\
         max = {{ header-bytes = \"8KiB\", headers = 50, uri-bytes = \"2KiB\", body = \"1MiB\" }}\n\
         [[route]]\npath = \"/small/{{*rest}}\"\nto = \"http://{0}\"\nmax-body = 100\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{0}\"",
        upstream.addr()
    ))
}

/// Sends bytes; they must be answered with one of these statuses and a close, logged once with one of these reasons.
fn refused(
    gateway: &Gateway,
    upstream: &Upstream,
    bytes: impl AsRef<[u8]>,
    statuses: &[u16],
    reasons: &[&str],
) {
    let lines = gateway.access_log().len();
    let mut client = gateway.client();
    let shown = text(&bytes.as_ref()[..bytes.as_ref().len().min(200)]);
    let answer = client.try_send(bytes).response();
    assert!(statuses.contains(&answer.status), "{} to {shown:?}", answer.status);
    assert!(client.is_closed(), "the connection stays open after {shown:?}");
    let line =
        crate::support::eventually("a line in the access log", || gateway.access_log().get(lines).cloned());
    assert_eq!(line["status"].as_u64(), Some(answer.status.into()), "{shown:?}: {line}");
    assert!(reasons.contains(&line["reason"].as_str().unwrap_or_default()), "{shown:?}: {line}");
    assert_eq!(gateway.access_log().len(), lines + 1, "one line for {shown:?}");
    assert!(upstream.is_quiet(), "{shown:?} reached the upstream");
}

#[test]
fn malformed_requests_are_400_and_a_close() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    for bytes in [
        "GARBAGE\r\n\r\n",
        "GET /\r\n\r\n",
        "GET / HTTP/9.9\r\nHost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "G\u{0}T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\u{1} HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-A : b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: empty\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-A: a\u{0}b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\na",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ] {
        refused(&gateway, &upstream, bytes, &[400, 505], &["malformed"]);
    }
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn a_malformed_request_is_the_last_of_its_connection() {
    let upstream = Upstream::ok();
    let gateway =
        Gateway::start(&format!("[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"", upstream.addr()));
    for malformed in [
        "GET /first HTTP/1.1\r\n\r\n",
        "GET /first HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /first%00 HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = gateway.client();
        client.send(format!("{malformed}GET /second HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.response();
        assert_eq!((answer.status, answer.header("connection")), (400, Some("close")), "{malformed:?}");
        assert!(closes_within(client.socket(), Duration::from_secs(5)), "{malformed:?}");
    }
    assert!(upstream.is_quiet(), "a request behind a malformed one reached the upstream");
    let mut h2 = Connection::open(gateway.plain());
    h2.request(1, "GET", "/a%00", true);
    h2.answer(1);
    h2.request(3, "GET", "/b", true);
    assert_eq!(h2.answer(3), b"ok", "HTTP/2 goes on");
    let mut client = gateway.client();
    assert_eq!(client.request("TRACE", "/", &[], "").status, 501);
    assert_eq!(client.get("/").status, 200, "a method that is not served is no reason to close");
}

#[test]
fn every_refusal_has_an_id_and_its_line_says_only_what_is_known() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    for (refused, status) in [
        ("GET /a HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET /a%00 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("TRACE /a HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 501),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(3000)), 414),
        ("GET /half".to_owned(), 408),
    ] {
        let answer = gateway.client().send(&refused).response();
        assert_eq!(answer.status, status, "{refused:?}");
        let id = answer.header("x-request-id").unwrap_or_else(|| panic!("no id for {refused:?}"));
        let line = gateway.logged_where("the id", |line| line["request_id"] == id);
        assert_eq!(line["status"], status);
        let known = status != 408;
        for field in ["method", "path", "total_us"] {
            assert_eq!(line.get(field).is_some(), known, "{field} in {line}");
        }
    }
    gateway.client().try_send("GARBAGE\r\n\r\n").response();
    let line = gateway.logged_where("no path", |line| line["status"] == 400 && line.get("path").is_none());
    assert_eq!(line["request_id"].as_str().map(str::len), Some(32), "{line}");
    assert_eq!((line.get("method"), line.get("total_us")), (None, None), "{line}");
}

#[test]
fn what_could_hide_a_second_request_never_does() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    for fields in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: gzip",
        "Content-Length: 4, 4",
        "Content-Length: +4",
    ] {
        let mut client = gateway.client();
        client.try_send(format!(
            "POST /outer HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        client.rest();
    }
    // Whatever was forwarded of these, a hidden request was not.
    assert_eq!(gateway.get("/last").status, 200);
    loop {
        let request = upstream.request();
        assert!(!request.line.contains("hidden"), "{request:?}");
        if request.line.contains("last") {
            break;
        }
    }
}

#[test]
fn a_target_that_is_too_long_is_414() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(3000));
    refused(&gateway, &upstream, request, &[414], &["uri-too-long"]);
    let huge = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(100_000));
    refused(&gateway, &upstream, huge, &[414, 431], &["uri-too-long", "headers-too-large"]);
}

#[test]
fn a_head_that_is_too_large_is_431() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    for count_and_length in [(1, 20_000), (60, 1), (40, 1000), (2000, 1000)] {
        let (count, length) = count_and_length;
        let fields: String = (0..count).map(|n| format!("X-{n}: {}\r\n", "x".repeat(length))).collect();
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        refused(&gateway, &upstream, request, &[431], &["headers-too-large"]);
    }
    let fields: String = (0..40).map(|n| format!("X-{n}: y\r\n")).collect();
    assert_eq!(
        gateway.client().send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).response().status,
        200
    );
}

/// Every bound is to the field, the one that nobody wrote included.
#[test]
fn fields_are_counted_to_the_last() {
    let route = "[[route]]\npath = \"/{*rest}\"\nrespond = { status = 200 }";
    for (written, most) in [("", 100), ("max = { headers = 99 }\n", 99), ("max = { headers = 101 }\n", 101)] {
        let gateway = Gateway::start(&format!("[listener.plain]\nbind = \"127.0.0.1:0\"\n{written}{route}"));
        // Host is one of them.
        for (count, status) in [(most - 1, 200), (most, 431)] {
            let fields: String = (0..count).map(|n| format!("X-{n}: y\r\n")).collect();
            let answer =
                gateway.client().send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).response();
            assert_eq!(answer.status, status, "{} fields with {written:?}", count + 1);
        }
    }
}

/// An answer to a head that no parser read is as whole as any other.
#[test]
fn a_refused_head_gets_the_problem_the_listeners_fields_and_its_id() {
    let gateway = Gateway::start(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\nresponse-headers.set = { x-l = \"L\" }\n\
         [listener.small]\nbind = \"127.0.0.1:0\"\nmax = { header-bytes = \"2KiB\" }\n\
         response-headers.set = { x-l = \"L\" }\n\
         [[route]]\npath = \"/{*rest}\"\nrespond = { status = 200 }",
    );
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: a\r\n".repeat(120));
    let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(9_000));
    let name = "GET / HTTP/1.1\r\nHost: a\r\nX(: a\r\n\r\n".to_owned();
    let method = "G(T / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
    let after = format!("GET /first HTTP/1.1\r\nHost: a\r\n\r\n{many}");
    for (head, status) in [(long, 431), (many, 431), (target, 414), (name, 400), (method, 400), (after, 431)]
    {
        let shown = &head[..head.len().min(60)];
        let mut client = gateway.client();
        client.send(&head);
        let mut answer = client.response();
        if head.starts_with("GET /first") {
            assert_eq!(answer.status, 200);
            answer = client.response();
        }
        assert_eq!((answer.status, answer.header("x-l")), (status, Some("L")), "{shown:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{shown:?}");
        let id = answer.header("x-request-id").expect("the refusal has an id").to_owned();
        gateway.logged_where(&id, |line| line["request_id"] == *id && line["status"] == status);
        assert!(status == 414 || client.is_closed(), "{shown:?}");
    }
    let url = format!("http://{}/", gateway.listener("small"));
    let field = format!("x: {}", "x".repeat(4_000));
    let shown = crate::support::stdout_of("curl", &["-sSi", "--http2-prior-knowledge", "-H", &field, &url]);
    assert!(shown.starts_with("HTTP/2 431"), "{shown}");
    for part in ["x-l: L", "x-request-id: ", "headers-too-large"] {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn a_body_over_the_limit_is_413() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let announced = gateway.client().request("POST", "/small/a", &[], &"x".repeat(101));
    assert_eq!((announced.status, announced.header("content-type")), (413, Some("application/problem+json")));
    let line = gateway.logged("/small/a");
    assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (Some(413), Some("body-too-large")));
    assert!(upstream.is_quiet());
    let mut client = gateway.client();
    client.send("POST /small/b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..3 {
        client.try_send(format!("32\r\n{}\r\n", "x".repeat(50)));
    }
    assert_eq!(client.try_send("0\r\n\r\n").response().status, 413);
    assert_eq!(gateway.logged("/small/b")["reason"], "body-too-large");
    assert_eq!(gateway.client().request("POST", "/small/c", &[], &"x".repeat(100)).status, 200);
    assert_eq!(gateway.client().request("POST", "/d", &[], &"x".repeat(200_000)).status, 200);
    assert_eq!(
        gateway.client().request("POST", "/e", &["Content-Type: a/b"], &"x".repeat(1_100_000)).status,
        413
    );
}

#[test]
fn a_body_over_the_limit_is_413_over_http_2() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let url = format!("http://{}/small/h2", gateway.plain());
    let body = crate::support::Directory::new();
    let file = body.write("body", "x".repeat(101)).display().to_string();
    let listing = crate::support::stdout_of("nghttp", &["-nv", "-d", &file, &url]);
    assert!(listing.contains(":status: 413"), "{listing}");
    assert!(upstream.is_quiet());
}

#[test]
fn a_client_that_still_sends_gets_its_early_answer_over_http_2() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let url = format!("http://{}/small/curl", gateway.plain());
    let body = crate::support::Directory::new();
    let file = body.write("body", "x".repeat(4_000_000)).display().to_string();
    // curl takes a reset that it meets while it sends for a failure, whatever came before (RFC 9113, 8.1).
    for _ in 0..5 {
        let said = crate::support::run(
            "curl",
            &["-sS", "--http2-prior-knowledge", "-T", &file, "-o", "/dev/null", "-w", "%{http_code}", &url],
        );
        assert_eq!((text(&said.stdout), text(&said.stderr)), ("413".to_owned(), String::new()));
    }
    // One that never stops is reset in the end.
    let mut client = Connection::open(gateway.plain());
    client.request(1, "POST", "/small/on", false);
    client.data(1, &[b'x'; 200], false);
    let reset = client.until(RST_STREAM);
    assert_eq!((reset.stream, &reset.payload[..]), (1, &[0; 4][..]), "NO_ERROR");
}

#[test]
fn a_slow_head_ends_at_the_deadline() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let mut client = gateway.client();
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\nX-");
    let said = text(&client.rest());
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 408 "), "{said}");
    assert!(said.is_empty() || said.contains("\"reason\":\"header-timeout\""), "{said}");
    let line = gateway.logged_where("the reason header-timeout", |line| line["reason"] == "header-timeout");
    assert_eq!(line["status"], 408);
    assert!(upstream.is_quiet());
}

#[test]
fn a_head_in_drips_ends_at_the_same_deadline() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let mut client = gateway.client();
    client.send("GET /drip HTTP/1.1\r\nHost: a\r\n");
    let begin = std::time::Instant::now();
    while client.is_taking("X-A: b\r\n") {
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(begin.elapsed().as_secs() < 5, "the deadline moves with every drip");
    }
    gateway.logged_where("the reason header-timeout", |line| line["reason"] == "header-timeout");
}

#[test]
fn a_slow_body_ends_at_the_deadline() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let mut client = gateway.client();
    client.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    let said = text(&client.rest());
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 408 "), "{said}");
    assert_eq!(gateway.logged("/slow")["reason"], "body-stall");
}

#[test]
fn a_client_s_bytes_reach_the_log_escaped() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    for request in [
        &b"GET /a\"\\b%0d%0a%1b[31m HTTP/1.1\r\nHost: a\"b\r\n\r\n"[..],
        b"GET /b HTTP/1.1\r\nHost: a\r\nUser-Agent: x\t\xc2\x9b31m\xff\r\nX-Request-Id: \"}\r\n\r\n",
        b"GET /c\xc2\x9b\x7f HTTP/1.1\r\nHost: a\xff\r\n\r\n",
        b"GET /d\x1b[31m HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        gateway.client().send(request).response();
    }
    crate::support::eventually("a line for each", || (gateway.access_log().len() == 4).then_some(()));
    let bytes = gateway.access_log_bytes();
    let raw = bytes.iter().filter(|byte| **byte != b'\n' && (**byte < 0x20 || **byte >= 0x7f)).count();
    assert_eq!(raw, 0, "{}", text(&bytes));
}

#[test]
fn broken_http_2_ends_its_connection_and_no_other() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let mut good = Connection::open(gateway.plain());
    good.request(1, "GET", "/", true);
    assert_eq!(good.answer(1), b"ok");
    for (kind, flags, stream, payload) in [
        (crate::support::h2::DATA, 0, 0, &b"x"[..]),
        (crate::support::h2::HEADERS, 4, 2, b"\x82"),
        (crate::support::h2::HEADERS, 4, 1, b"\xff\xff\xff\xff\xff\xff"),
        (crate::support::h2::SETTINGS, 0, 0, b"odd"),
        (crate::support::h2::RST_STREAM, 0, 7, b"1234"),
        (9, 4, 1, b""),
    ] {
        let mut bad = Connection::open(gateway.plain());
        bad.send(kind, flags, stream, payload);
        bad.until(crate::support::h2::GOAWAY);
    }
    good.request(3, "GET", "/", true);
    assert_eq!(good.answer(3), b"ok");
}

#[test]
fn too_many_fields_over_http_2_are_431() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let url = format!("http://{}/fields", gateway.plain());
    let fields: Vec<String> = (0..60).map(|n| format!("x-{n}: y")).collect();
    let mut arguments = vec!["-sS", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_code}"];
    arguments.extend(fields.iter().flat_map(|field| ["-H", field]));
    arguments.push(&url);
    assert_eq!(crate::support::stdout_of("curl", &arguments), "431");
    assert!(upstream.is_quiet());
}

#[test]
fn random_bytes_never_stop_the_gateway() {
    let upstream = Upstream::ok();
    let mut gateway = before(&upstream);
    // xorshift64: the same bytes in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let good =
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for _ in 0..200 {
        let mut bytes = good.to_vec();
        for _ in 0..1 + random() % 4 {
            let at = random() as usize % bytes.len();
            bytes[at] = random() as u8;
        }
        gateway.client().try_send(&bytes).shutdown();
    }
    assert_eq!(gateway.get("/").status, 200);
    assert!(gateway.is_running());
    assert_eq!(gateway.metric("sluicegate_worker_panics_total", &[]), 0.0);
}
