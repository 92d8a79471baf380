//! Hostile HTTP/2 from clients: floods, resets, bombs and stalls. Each ends its own connection, gets its reason in
//! the access log, and costs the others nothing.

use std::net::{SocketAddr, TcpStream};

use rls::RateLimitCode;

use crate::support::h2::{
    CONTINUATION, Connection, DATA, END_HEADERS, END_STREAM, End, GOAWAY, HEADERS, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, encoded, fields,
};
use crate::support::rls::Rls;
use crate::support::{Client, Directory, Gateway, PATIENCE, Upstream, eventually, stdout_of, tls};

/// A gateway in front of this address, with more lines of its listener.
fn before(upstream: SocketAddr, listener: &str) -> Gateway {
    Gateway::start(&format!(
        "workers = 1\n[listener.plain]\nbind = \"127.0.0.1:0\"\n{listener}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{upstream}\""
    ))
}

/// An upstream that never answers.
fn silent() -> Upstream {
    Upstream::raw(|stream| drop(Client::over(stream).rest()))
}

fn connect(gateway: &Gateway) -> Connection {
    Connection::over(socket(gateway))
}

fn socket(gateway: &Gateway) -> TcpStream {
    let stream = TcpStream::connect_timeout(&gateway.plain(), PATIENCE).expect("somebody listens there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
    stream
}

/// The head of a request, as a frame.
fn head(method: &str, stream: u32, flags: u8, more: &[(&str, &str)]) -> Vec<u8> {
    let line = [(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", "/bad")];
    encoded(HEADERS, flags, stream, &fields(&[&line[..], more].concat()))
}

fn get(stream: u32) -> Vec<u8> {
    head("GET", stream, END_HEADERS | END_STREAM, &[])
}

/// Sends what `unit` makes of 0, 1, 2, … until the gateway closes; how it did.
fn flood(link: &mut Connection, most: u32, mut unit: impl FnMut(u32) -> Vec<u8>) -> End {
    for number in 0..most {
        if !link.try_write(&unit(number)) {
            break;
        }
    }
    loop {
        match link.end() {
            End::Reset(_) => {}
            end => return end,
        }
    }
}

/// Sends ten thousand frames of one kind.
fn flood_of(kind: u8, payload: &[u8], link: &mut Connection) -> End {
    let stream = if kind == PRIORITY { 3 } else { 0 };
    let frames = encoded(kind, 0, stream, payload).repeat(50);
    flood(link, 200, |_| frames.clone())
}

/// Kinds of frames that ask for work, each with a payload.
const CONTROL: [(u8, &[u8]); 7] = [
    (PING, &[0; 8]),
    (SETTINGS, &[]),
    (PRIORITY, &[0, 0, 0, 1, 9]),
    (WINDOW_UPDATE, &[0, 0, 0, 1]),
    (GOAWAY, &[0; 8]),
    (0xbe, b"whatever"),
    (0x10, &[0, 0, 0, 1, b'u']),
];

/// Whether the connection was ended for its manners, or closed before that could be said.
fn is_ended(end: End) -> bool {
    matches!(end, End::GoneAway(11) | End::Closed)
}

/// The access log has a line with this reason, and the counter of it has moved.
fn is_told(gateway: &Gateway, reason: &str) {
    let line = gateway.logged_where(reason, |line| line["reason"] == reason);
    assert_eq!(line["protocol"], "HTTP/2.0", "{line}");
    let counted = gateway.metric("sluicegate_refused_requests_total", &[&format!("reason=\"{reason}\"")]);
    assert!(counted >= 1.0, "{reason} is not counted");
}

#[test]
fn a_flood_of_any_frame_ends_its_connection_and_no_other() {
    let upstream = Upstream::ok();
    for (kind, payload) in CONTROL {
        let gateway = before(upstream.addr(), "");
        let mut good = Connection::open(gateway.plain());
        good.request(1, "GET", "/good", true);
        assert_eq!(good.answer(1), b"ok");
        let mut bad = connect(&gateway);
        let end = flood_of(kind, payload, &mut bad);
        assert!(is_ended(end), "frames of kind {kind}: {end:?}");
        is_told(&gateway, "frame-flood");
        good.request(3, "GET", "/good", true);
        assert_eq!(good.answer(3), b"ok", "frames of kind {kind}");
    }
}

#[test]
fn a_flood_of_the_grpc_listener_ends_its_connection_and_no_other() {
    let gateway = Gateway::start(
        "[admin]\nbind = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"\n\
         [rls.edge]\ndescriptors = [{ entries = { user = \"*\" }, limit = \"per-user\" }]\n\
         [policy.per-user]\nlimit = \"99/h\"\nby = [\"entry:user\"]\n",
    );
    let mut good = Rls::connect(gateway.listener("grpc"));
    for (count, (kind, payload)) in (1..).zip(CONTROL) {
        let end = flood_of(kind, payload, &mut Connection::open(gateway.listener("grpc")));
        assert!(is_ended(end), "frames of kind {kind}: {end:?}");
        assert_eq!(good.code("edge", &[("user", "ann")]), RateLimitCode::Ok, "frames of kind {kind}");
        let refused = gateway.metric("sluicegate_grpc_connections_refused_total", &[]);
        assert_eq!(refused, f64::from(count), "frames of kind {kind}");
    }
}

#[test]
fn rapid_resets_end_a_connection_of_the_grpc_listener() {
    let gateway = Gateway::start("[admin]\nbind = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"\n");
    let mut link = Connection::open(gateway.listener("grpc"));
    let end = flood(&mut link, 10_000, |number| {
        let stream = 2 * number + 1;
        let call = head("POST", stream, END_HEADERS, &[("content-type", "application/grpc")]);
        [call, encoded(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    });
    assert!(is_ended(end), "{end:?}");
}

#[test]
fn a_budget_is_a_second_s_and_a_polite_client_keeps_its_connection() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "");
    let mut client = connect(&gateway);
    for round in 0..3 {
        for _ in 0..30 {
            client.send(PING, 0, 0, &[0; 8]);
        }
        client.request(2 * round + 1, "GET", "/", true);
        assert_eq!(client.answer(2 * round + 1), b"ok");
    }
}

#[test]
fn empty_and_tiny_data_end_the_connection() {
    let upstream = silent();
    for payload in [&b""[..], b"x"] {
        let gateway = before(upstream.addr(), "");
        let mut bad = connect(&gateway);
        bad.try_write(&head("POST", 1, END_HEADERS, &[]));
        let frames = encoded(DATA, 0, 1, payload).repeat(100);
        let end = flood(&mut bad, 2_000, |_| frames.clone());
        assert!(is_ended(end), "{payload:?}: {end:?}");
        is_told(&gateway, "frame-flood");
    }
}

#[test]
fn continuation_without_end_ends_the_connection() {
    let upstream = Upstream::ok();
    for payload in [&b""[..], &fields(&[("a", "b")]), &fields(&[("a", &"x".repeat(4_000))])] {
        let gateway = before(upstream.addr(), "");
        let mut bad = connect(&gateway);
        bad.try_write(&head("GET", 1, END_STREAM, &[]));
        let end = flood(&mut bad, 5_000, |_| encoded(CONTINUATION, 0, 1, payload));
        assert!(is_ended(end), "{end:?}");
        is_told(&gateway, "frame-flood");
    }
}

#[test]
fn rapid_resets_end_the_connection() {
    let upstream = silent();
    let pair = |stream| [get(stream), encoded(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat();
    let gateway = before(upstream.addr(), "");
    let mut bulk = connect(&gateway);
    let end = flood(&mut bulk, 2_000, |number| pair(2 * number + 1));
    assert!(is_ended(end), "in bulk: {end:?}");
    is_told(&gateway, "rapid-reset");
    // One after the other: each is at the upstream before it is taken back, and the hundred and first is too many.
    let gateway = before(upstream.addr(), "");
    let mut paced = connect(&gateway);
    let reset = |stream| encoded(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
    let before = upstream.connections();
    let end = flood(&mut paced, 102, |number| {
        let stream = 2 * number + 1;
        eventually("the one before is with the upstream", || {
            (upstream.connections() >= before + number as usize).then_some(())
        });
        if number == 0 { get(stream) } else { [reset(stream - 2), get(stream)].concat() }
    });
    assert!(is_ended(end), "paced: {end:?}");
    is_told(&gateway, "rapid-reset");
}

#[test]
fn resets_that_a_client_has_us_send_end_the_connection() {
    let upstream = silent();
    let window = |stream, payload: &[u8]| encoded(WINDOW_UPDATE, 0, stream, payload);
    type Primitive = Box<dyn Fn(u32) -> Vec<u8>>;
    let primitives: [(&str, Primitive); 6] = [
        ("WINDOW_UPDATE of 0", Box::new(move |stream| window(stream, &[0; 4]))),
        ("a window too large", Box::new(move |stream| window(stream, &[0x7f, 255, 255, 255]).repeat(2))),
        ("HEADERS on a half-closed stream", Box::new(get)),
        ("DATA on a half-closed stream", Box::new(|stream| encoded(DATA, 0, stream, b"x"))),
        ("PRIORITY of another length", Box::new(|stream| encoded(PRIORITY, 0, stream, &[0; 4]))),
        (
            "PRIORITY on itself",
            Box::new(|stream| encoded(PRIORITY, 0, stream, &[&stream.to_be_bytes()[..], &[1]].concat())),
        ),
    ];
    for (name, primitive) in primitives {
        let gateway = before(upstream.addr(), "");
        let mut bad = connect(&gateway);
        let end = flood(&mut bad, 1_000, |number| {
            let stream = 2 * number + 1;
            [get(stream), primitive(stream)].concat()
        });
        assert!(matches!(end, End::GoneAway(_) | End::Closed), "{name}: {end:?}");
        let told = ["frame-flood", "malformed"];
        gateway.logged_where(name, |line| told.iter().any(|reason| line["reason"] == *reason));
    }
}

#[test]
fn requests_that_the_http_2_layer_refuses_are_logged_and_counted() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "");
    let mut client = connect(&gateway);
    client.try_write(&head("GET", 1, END_HEADERS | END_STREAM, &[("connection", "close")]));
    assert_eq!(client.end(), End::Reset(1));
    is_told(&gateway, "malformed");
    // Far above the limit it is not ours to answer.
    let filler = "x".repeat(15_000);
    client.try_write(&head("GET", 3, END_STREAM, &[("a", &filler)]));
    for flags in [0, 0, 0, 0, 0, 0, 0, 0, END_HEADERS] {
        client.try_write(&encoded(CONTINUATION, flags, 3, &fields(&[("a", &filler)])));
    }
    assert_eq!(client.until(HEADERS).stream, 3);
    is_told(&gateway, "headers-too-large");
    client.request(5, "GET", "/good", true);
    assert_eq!(client.answer(5), b"ok", "the connection goes on");
    assert_eq!(gateway.access_log().iter().filter(|line| line["reason"] != "").count(), 2);
}

#[test]
fn a_broken_connection_is_logged_once_and_one_that_is_left_is_not() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "");
    drop(connect(&gateway));
    let mut bad = connect(&gateway);
    bad.try_write(&encoded(DATA, 0, 0, b"x"));
    assert_eq!(bad.end(), End::GoneAway(1));
    is_told(&gateway, "malformed");
    assert_eq!(gateway.access_log().len(), 1);
}

#[test]
fn downloads_through_small_windows_are_no_flood() {
    let body = "x".repeat(2 << 20);
    let upstream =
        Upstream::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    let gateway = before(upstream.addr(), "");
    let url = format!("http://{}/", gateway.plain());
    for bits in ["10", "14", "16"] {
        let load = stdout_of("h2load", &["-n", "2", "-c", "1", "-m", "2", "-w", bits, "-W", bits, &url]);
        assert!(load.contains("2 succeeded, 0 failed"), "{bits} bits: {load}");
    }
    stdout_of("curl", &["-sS", "--http2-prior-knowledge", "-o", "/dev/null", &url]);
    stdout_of("nghttp", &["-n", "-w", "12", "-W", "12", &url]);
    assert_eq!(gateway.metric("sluicegate_refused_requests_total", &[]), 0.0);
}

#[test]
fn streams_beyond_the_limit_are_refused_and_far_beyond_it_the_connection_goes() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "");
    let burst = |link: &mut Connection, count: u32| {
        let heads: Vec<u8> = (0..count).flat_map(|number| get(2 * number + 1)).collect();
        link.try_write(&heads);
    };
    let mut eager = connect(&gateway);
    burst(&mut eager, 150);
    let (mut refused, mut answered) = (0, 0);
    while refused + answered < 150 {
        let frame = eager.frame().expect("the connection goes on");
        match frame.kind {
            RST_STREAM => refused += 1,
            DATA if frame.flags & END_STREAM != 0 => answered += 1,
            _ => {}
        }
    }
    assert!(answered >= 100, "{answered} answered, {refused} refused");
    let mut bad = connect(&gateway);
    let end = flood(&mut bad, 1, |_| (0..1_000).flat_map(|number| get(2 * number + 1)).collect());
    assert!(is_ended(end), "{end:?}");
    is_told(&gateway, "too-many-streams");
}

#[test]
fn a_flood_behind_tls_is_ended_too() {
    let upstream = Upstream::ok();
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let config = format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\ncerts = [{{ cert = \"{0}.pem\", key = \"{0}.key\" }}]\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{1}\"",
        directory.join("a").display(),
        upstream.addr()
    );
    let gateway = Gateway::start_in(directory, &config);
    let secured = tls::connect(gateway.plain(), "localhost", &["h2"]).expect("TLS is served");
    let mut bad = Connection::over(secured);
    let frames = encoded(PING, 0, 0, &[0; 8]).repeat(50);
    while bad.try_write(&frames) {}
    assert!(is_ended(bad.end()));
    is_told(&gateway, "frame-flood");
}

#[test]
fn a_body_of_another_length_than_announced_has_one_line() {
    let upstream = silent();
    let gateway = before(upstream.addr(), "");
    let post = head("POST", 1, END_HEADERS, &[("content-length", "1")]);
    let data = |flags, bytes: &[u8]| encoded(DATA, flags, 1, bytes);
    // Before anybody has read the head, and when the request is with the upstream.
    for (number, body) in [b"two".as_slice(), b""].iter().cycle().take(4).enumerate() {
        let mut client = connect(&gateway);
        if number < 2 {
            client.try_write(&[&post[..], &data(END_STREAM, body)].concat());
        } else {
            client.try_write(&post);
            eventually("it is with the upstream", || (upstream.connections() > number - 2).then_some(()));
            client.try_write(&data(END_STREAM, body));
        }
        assert_eq!(client.end(), End::Reset(1), "{number}");
        client.request(3, "GET", "/limits", true);
        client.try_write(&encoded(RST_STREAM, 0, 3, &[0, 0, 0, 8]));
        let lines = eventually("both have ended", || {
            Some(gateway.access_log()).filter(|lines| lines.len() == 2 * (number + 1))
        });
        let line = |path: &str| lines.iter().rev().find(|line| line["path"] == path);
        let bad = line("/bad").unwrap_or_else(|| panic!("no line of {number}: {lines:#?}"));
        assert_eq!((&bad["reason"], &bad["status"]), (&"malformed".into(), &400.into()), "{number}");
        assert_eq!(line("/limits").expect("it has a line")["reason"], "client-gone", "{number}");
        let malformed = gateway.metric("sluicegate_refused_requests_total", &["reason=\"malformed\""]);
        assert_eq!(malformed, (number + 1) as f64);
    }
}

#[test]
fn a_body_whose_stream_is_reset_is_not_whole_whatever_the_code_says() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "");
    let mut client = connect(&gateway);
    client.try_write(&get(1));
    assert_eq!(client.answer(1), b"ok");
    assert!(upstream.request().line.starts_with("GET"));
    // There is a connection now over which a whole request would go at once.
    for stream in [3, 5, 7] {
        let post = head("POST", stream, END_HEADERS, &[]);
        let data = encoded(DATA, 0, stream, b"half");
        client.try_write(&[post, data, encoded(RST_STREAM, 0, stream, &[0; 4])].concat());
    }
    assert!(upstream.is_quiet());
    client.try_write(&get(9));
    assert_eq!(client.answer(9), b"ok");
}
