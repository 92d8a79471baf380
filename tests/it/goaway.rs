//! Servers over HTTP/2 that have done nothing with a request and say so: with a GOAWAY, a reset with REFUSED_STREAM, or a bound
//! on streams (RFC 9113 sections 5.1.2, 6.8 and 8.7). It goes again, whatever it is.

use std::collections::HashSet;
use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::h2::{
    Connection, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, fields,
};
use crate::support::{Directory, Gateway, Nginx, Python, Response, Upstream, heavy, python, stdout_of};

type Peer = Connection<TcpStream>;

/// The stream of the next request that is whole, and its body.
fn request(peer: &mut Peer) -> Option<(u32, Vec<u8>)> {
    let mut body = Vec::new();
    loop {
        let frame = peer.frame()?;
        if frame.kind == DATA {
            body.extend(&frame.payload);
        }
        if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
            return Some((frame.stream, body));
        }
    }
}

/// Answers with a body, and with trailers as gRPC has them.
fn answer(peer: &mut Peer, stream: u32, body: &[u8]) {
    peer.send(HEADERS, END_HEADERS, stream, &fields(&[(":status", "200")]));
    peer.send(DATA, 0, stream, body);
    peer.send(HEADERS, END_HEADERS | END_STREAM, stream, &fields(&[("grpc-status", "0")]));
}

fn refuse(peer: &mut Peer, stream: u32) {
    peer.send(RST_STREAM, 0, stream, &7_u32.to_be_bytes());
}

/// GOAWAY after this stream, with this code.
fn go_away(peer: &mut Peer, last: u32, code: u32) {
    peer.send(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat());
}

/// Before this server, twice: no retry is asked for or allowed, and one failure would eject it.
fn before(upstream: &Upstream, more: &str) -> Gateway {
    let again = format!(", \"http://{}\"", upstream.addr());
    before_one(upstream, &again, more)
}

/// Before it once, and `others`.
fn before_one(upstream: &Upstream, others: &str, more: &str) -> Gateway {
    Gateway::start(&format!(
        "workers = 1\n[upstream.u]\nservers = [\"http://{}\"{others}]\nhttp = \"h2\"\n\
         retry = {{ times = 0, budget = \"0%\" }}\neject = {{ after = 1 }}\n{more}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"",
        upstream.addr()
    ))
}

fn post(gateway: &Gateway, body: &str) -> Response {
    gateway.client().request("POST", "/call", &["Content-Type: application/grpc"], body)
}

fn is_not_blamed(gateway: &Gateway) {
    assert_eq!(gateway.metric("sluicegate_upstream_ejections_total", &["u"]), 0.0);
}

#[test]
fn a_request_beyond_the_last_stream_of_a_goaway_goes_again_with_its_body() {
    let processed = Arc::new(AtomicUsize::new(0));
    let (connections, count) = (AtomicUsize::new(0), Arc::clone(&processed));
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Connection::serve(stream);
        let is_first = connections.fetch_add(1, Ordering::SeqCst) == 0;
        if is_first {
            // Two requests are here; the first alone is processed.
            let (first, body) = request(&mut peer).expect("a request");
            request(&mut peer).expect("another");
            go_away(&mut peer, first, 0);
            count.fetch_add(1, Ordering::SeqCst);
            answer(&mut peer, first, &body);
        }
        while let Some((stream, body)) = request(&mut peer) {
            assert!(!is_first, "no stream is opened after a GOAWAY");
            count.fetch_add(1, Ordering::SeqCst);
            answer(&mut peer, stream, &body);
        }
    });
    let gateway = &before_one(&upstream, "", "");
    thread::scope(|scope| {
        let calls = ["one", "other"].map(|body| (body, scope.spawn(move || post(gateway, body))));
        for (body, call) in calls {
            let answer = call.join().expect("it ends");
            assert_eq!((answer.status, answer.text().as_str()), (200, body));
        }
    });
    assert_eq!(post(gateway, "third").text(), "third");
    assert_eq!(processed.load(Ordering::SeqCst), 3);
}

#[test]
fn a_refused_stream_goes_again_whatever_its_method() {
    let (streams, processed) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&processed);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Connection::serve(stream);
        while let Some((stream, body)) = request(&mut peer) {
            if streams.fetch_add(1, Ordering::SeqCst) % 3 == 0 {
                refuse(&mut peer, stream);
            } else {
                count.fetch_add(1, Ordering::SeqCst);
                answer(&mut peer, stream, &body);
            }
        }
    });
    let gateway = before(&upstream, "");
    for number in 0..15 {
        let body = format!("call {number}");
        let answer = post(&gateway, &body);
        assert_eq!((answer.status, answer.text()), (200, body));
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!(processed.load(Ordering::SeqCst), 30);
    is_not_blamed(&gateway);
}

#[test]
fn tries_that_cost_nothing_have_a_bound() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Connection::serve(stream);
        while let Some((stream, _)) = request(&mut peer) {
            count.fetch_add(1, Ordering::SeqCst);
            refuse(&mut peer, stream);
        }
    });
    let gateway = before(&upstream, "");
    assert_eq!(post(&gateway, "a").status, 502);
    assert_eq!(tries.load(Ordering::SeqCst), 7);
    assert_eq!(gateway.logged("/call")["retries"], 6);
}

#[test]
fn a_body_of_which_more_was_sent_than_is_kept_is_not_sent_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Connection::serve(stream);
        while let Some((stream, body)) = request(&mut peer) {
            match count.fetch_add(1, Ordering::SeqCst) % 2 {
                0 => refuse(&mut peer, stream),
                _ => answer(&mut peer, stream, &body),
            }
        }
    });
    let gateway = before(&upstream, "uploads = { gather = \"4KiB\" }");
    let ask = |bytes| {
        tries.store(0, Ordering::SeqCst);
        let answer = post(&gateway, &"x".repeat(bytes));
        (answer.status, tries.load(Ordering::SeqCst))
    };
    assert_eq!(ask(4 << 10), (200, 2));
    assert_eq!(ask((4 << 10) + 1), (502, 1));
}

#[test]
fn a_goaway_with_an_error_is_held_against_its_server_and_takes_a_try() {
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Connection::serve(stream);
        while request(&mut peer).is_some() {
            go_away(&mut peer, 0, 2);
        }
    });
    let gateway = before(&upstream, "");
    assert_eq!(post(&gateway, "a").status, 502);
    assert_eq!(gateway.logged("/call")["retries"], 0);
}

#[test]
fn a_server_has_no_more_streams_than_it_takes() {
    let upstream = Upstream::raw(move |mut stream| {
        stream.read_exact(&mut [0; 24]).expect("a client begins with its preface");
        let mut peer = Connection::silent(stream);
        peer.send(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 2]);
        let mut open = HashSet::new();
        while let Some(frame) = peer.frame() {
            if frame.kind == HEADERS {
                open.insert(frame.stream);
                assert!(open.len() <= 2, "{open:?}");
            }
            // The second is answered when both are there, so that the others wait.
            if open.len() == 2 {
                for stream in open.drain() {
                    peer.send(HEADERS, END_HEADERS | END_STREAM, stream, &fields(&[(":status", "200")]));
                }
            }
        }
    });
    let gateway = before_one(&upstream, "", "connections = { max = 1 }");
    let url = format!("http://{}/", gateway.plain());
    let load = stdout_of("h2load", &["-n", "40", "-c", "1", "-m", "20", &url]);
    assert!(load.contains("40 succeeded, 0 failed"), "{load}");
}

#[test]
fn a_server_that_closes_its_connections_in_good_order_loses_nothing() {
    let _alone = heavy();
    let nginx = Nginx::start(
        "http2_max_concurrent_streams 3; keepalive_requests 10; location / { return 200 \"hello\"; }",
    );
    let gateway = Gateway::start(&format!(
        "[upstream.u]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n[[route]]\npath = \"/{{*rest}}\"\nto = \"u\"",
        nginx.addr()
    ));
    // No longer than what is kept of a body, so that it can go again.
    let directory = Directory::new();
    directory.write("body", "b".repeat(16_000));
    let body = directory.join("body").display().to_string();
    let body = body.as_str();
    let url = format!("http://{}/", gateway.plain());
    for more in [&[][..], &["-d", body], &["--h1"], &["--h1", "-d", body]] {
        let load = [&["-n", "2000", "-c", "10", "-m", "10"], more, &[&url]].concat();
        let report = stdout_of("h2load", &load);
        assert!(report.contains("2000 succeeded, 0 failed, 0 errored"), "{more:?}: {report}");
        assert!(report.contains("status codes: 2000 2xx"), "{more:?}: {report}");
    }
}

#[test]
fn grpc_goes_through_a_server_that_closes_its_connections() {
    let server = Python::serve("grpc_server.py");
    let nginx = Nginx::start(&format!(
        "http2_max_concurrent_streams 3; keepalive_requests 2; location / {{ grpc_pass grpc://{}; }}",
        server.addr()
    ));
    let gateway = Gateway::start(&format!(
        "[upstream.u]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n[[route]]\npath = \"/{{*rest}}\"\nto = \"u\"",
        nginx.addr()
    ));
    for _ in 0..3 {
        assert_eq!(python::client("grpc_client.py", &[&gateway.plain().to_string()]), "called\n");
    }
}
