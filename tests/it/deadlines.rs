//! How long an upstream may take: by its own word, the route's, and the client's call.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::h2::{Connection, DATA, END_HEADERS, END_STREAM, HEADERS, fields};
use crate::support::{Gateway, Upstream};

/// An HTTP/2 upstream that reads and never answers.
fn silent() -> Upstream {
    Upstream::raw(|stream| {
        let mut peer = Connection::serve(stream);
        while peer.frame().is_some() {}
    })
}

/// An HTTP/1.1 upstream that takes a request and never answers.
fn mute() -> Upstream {
    Upstream::raw(|stream| drop(std::io::copy(&mut &stream, &mut std::io::sink())))
}

/// Sends a call with this `grpc-timeout` and returns whether its answer is one head.
fn call(gateway: &Gateway, path: &str, kind: &str, timeout: &str) -> bool {
    let mut h2 = Connection::open(gateway.plain());
    let head = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
        ("content-type", kind),
        ("grpc-timeout", timeout),
        ("te", "trailers"),
    ];
    h2.send(HEADERS, END_HEADERS, 1, &fields(&head));
    h2.send(DATA, END_STREAM, 1, b"\0\0\0\0\0");
    h2.until(HEADERS).flags & END_STREAM == END_STREAM
}

/// How a request ended, by the access log: status, reason, and whether it took less than two seconds.
fn end(line: &Value) -> (Option<u64>, Option<&str>, bool) {
    let is_quick = line["total_us"].as_u64().is_some_and(|us| us < 2_000_000);
    (line["status"].as_u64(), line["reason"].as_str(), is_quick)
}

#[test]
fn a_call_s_timeout_ends_it_at_the_gateway() {
    let (h2, h1) = (silent(), mute());
    // It accepts, and says nothing of HTTP/2: the wait for the connection is within the call's time, too.
    let backlog = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let gateway = Gateway::start(&format!(
        "[upstream.h2]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n\
         [upstream.backlog]\nservers = [\"http://{}\"]\nhttp = \"h2\"\ntimeouts = {{ connect = \"20s\" }}\n\
         [[route]]\npath = \"/h2/{{*rest}}\"\nto = \"h2\"\n[[route]]\npath = \"/backlog/{{*rest}}\"\nto = \"backlog\"\n\
         [[route]]\npath = \"/h1/{{*rest}}\"\nto = \"http://{}\"",
        h2.addr(),
        backlog.local_addr().expect("it is bound"),
        h1.addr()
    ));
    for path in ["/h2/1", "/h1/1", "/backlog/1"] {
        assert!(call(&gateway, path, "application/grpc", "300m"), "{path} is refused in one head");
        let line = gateway.logged(path);
        assert_eq!(end(&line), (Some(200), Some("upstream-timeout"), true), "{line}");
    }
}

#[test]
fn only_a_call_is_ended_by_its_timeout_and_never_later_than_the_route_says() {
    let upstream = silent();
    let gateway = Gateway::start(&format!(
        "[upstream.u]\nservers = [\"http://{}\"]\nhttp = \"h2\"\ntimeouts = {{ total = \"20s\" }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\ntimeouts = {{ total = \"600ms\" }}",
        upstream.addr()
    ));
    for (path, kind, timeout) in [
        ("/long", "application/grpc", "10S"),
        ("/broken", "application/grpc", "1s"),
        ("/other", "application/json", "1m"),
    ] {
        call(&gateway, path, kind, timeout);
        let line = gateway.logged(path);
        let took = line["total_us"].as_u64().unwrap_or_default();
        assert!((600_000..5_000_000).contains(&took), "{path}: {line}");
        assert_eq!(line["reason"], "upstream-timeout", "{line}");
    }
}

#[test]
fn a_route_s_timeouts_go_before_its_upstream_s() {
    let upstream = mute();
    let late = Upstream::raw(|stream| {
        let mut client = crate::support::Client::over(stream);
        if crate::support::upstream::receive(&mut client).is_some() {
            std::thread::park_timeout(Duration::from_millis(700));
            client.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let gateway = Gateway::start(&format!(
        "[upstream.mute]\nservers = [\"http://{}\"]\n\
         [upstream.late]\nservers = [\"http://{}\"]\ntimeouts = {{ response = \"100ms\", total = \"200ms\" }}\n\
         [[route]]\npath = \"/response\"\nto = \"mute\"\ntimeouts = {{ response = \"200ms\" }}\n\
         [[route]]\npath = \"/total\"\nto = \"mute\"\ntimeouts = {{ total = \"200ms\" }}\n\
         [[route]]\npath = \"/longer\"\nto = \"late\"\ntimeouts = {{ response = \"20s\", total = \"30s\" }}\n\
         [[route]]\npath = \"/as-it-is\"\nto = \"late\"",
        upstream.addr(),
        late.addr()
    ));
    for path in ["/response", "/total", "/as-it-is"] {
        let began = Instant::now();
        assert_eq!(gateway.get(path).status, 504, "{path}");
        assert!(began.elapsed() < Duration::from_secs(5), "{path}");
        assert_eq!(gateway.logged(path)["reason"], "upstream-timeout");
    }
    assert_eq!(gateway.get("/longer").text(), "ok");
}
