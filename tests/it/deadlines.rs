//! How long an upstream may take: by its own word, the route's, and the client's call.

use std::net::TcpListener;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::h2::{Connection, DATA, END_HEADERS, END_STREAM, End, HEADERS, fields};
use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Upstream};

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

/// An upstream of events that says something at once, and again when it is told to.
fn events() -> (Upstream, mpsc::Sender<()>) {
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        let Some(request) = receive(&mut peer) else { return };
        peer.try_send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 8\r\n\r\nbegi");
        if request.line.contains("/off") {
            told.lock().expect("nobody panics with it").recv().ok();
            peer.try_send("over");
        } else {
            peer.rest();
        }
    });
    (upstream, tell)
}

#[test]
fn a_silent_stream_stands_for_as_long_as_its_route_says() {
    let (upstream, tell) = events();
    let gateway = Gateway::start(&format!(
        "[upstream.short]\nservers = [\"http://{0}\"]\ntimeouts = {{ stall = \"200ms\" }}\n\
         [upstream.off]\nservers = [\"http://{0}\"]\ntimeouts = {{ stall = \"off\" }}\n\
         [[route]]\npath = \"/short/off\"\nto = \"short\"\ntimeouts = {{ stall = \"off\" }}\n\
         [[route]]\npath = \"/short/short\"\nto = \"short\"\n\
         [[route]]\npath = \"/off/off\"\nto = \"off\"\n\
         [[route]]\npath = \"/off/short\"\nto = \"off\"\ntimeouts = {{ stall = \"200ms\" }}",
        upstream.addr()
    ));
    let begin = |path: &str| {
        let mut client = gateway.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.head().status, 200, "{path}");
        assert_eq!(client.bytes(4), b"begi", "{path}");
        client
    };
    let standing = ["/short/off", "/off/off"].map(begin);
    for path in ["/short/short", "/off/short"] {
        assert_eq!(begin(path).rest(), b"", "{path}");
        assert_eq!(gateway.logged(path)["reason"], "upstream-timeout", "{path}");
    }
    for mut client in standing {
        tell.send(()).expect("the upstream waits for it");
        assert_eq!(client.bytes(4), b"over");
    }
}

#[test]
fn a_stall_is_cut_at_its_value() {
    let (upstream, _tell) = events();
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/short\"\nto = \"http://{}\"\ntimeouts = {{ stall = \"2s\" }}",
        upstream.addr()
    ));
    let mut client = gateway.client();
    client.send("GET /short HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((client.head().status, client.bytes(4)), (200, b"begi".to_vec()));
    let silent = Instant::now();
    assert_eq!(client.rest(), b"");
    let cut_after = silent.elapsed().as_secs_f64();
    assert!((1.9..3.0).contains(&cut_after), "cut after {cut_after} s");
}

#[test]
fn a_silent_call_both_ways_is_not_the_client_s_delay() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Connection::serve(stream);
        while let Some(frame) = peer.frame() {
            if frame.kind == HEADERS {
                let head = fields(&[(":status", "200"), ("content-type", "application/grpc")]);
                peer.send(HEADERS, END_HEADERS, frame.stream, &head);
            } else if frame.kind == DATA {
                peer.send(DATA, frame.flags, frame.stream, &frame.payload);
            }
        }
    });
    let gateway = Gateway::start(&format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\ntimeouts = {{ body-stall = \"200ms\" }}\n\
         [upstream.calls]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n\
         [[route]]\npath = \"/call\"\nto = \"calls\"\ntimeouts = {{ stall = \"off\" }}\n\
         [[route]]\npath = \"/short\"\nto = \"calls\"\ntimeouts = {{ stall = \"1s\" }}",
        upstream.addr()
    ));
    let call = |path: &str| {
        let mut h2 = Connection::open(gateway.plain());
        h2.request(1, "POST", path, false);
        h2.until(HEADERS);
        h2
    };
    let mut standing = call("/call");
    assert_eq!(
        call("/short").end(),
        End::Reset(2),
        "the server's silence ends it, not the listener's deadline"
    );
    assert_eq!(gateway.logged("/short")["reason"], "upstream-timeout");
    standing.data(1, b"still", true);
    assert_eq!(standing.answer(1), b"still");
}
