//! Clients that half-close, that is end their side of the connection while they wait for an answer, as probes and shell
//! scripts do. Clients that are gone send the same FIN; for those the upstream must not go on working.

use std::net::Shutdown;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::upstream::{receive, reset};
use crate::support::{Client, Directory, Gateway, PATIENCE, Upstream, eventually, text, tls};

/// What an upstream tells the test: that a request has come, and when its connection ended.
#[derive(Debug, PartialEq)]
enum Told {
    Asked(String),
    Left(Instant),
}

/// An upstream that says each piece of its answer when it is told to.
struct Waiting {
    upstream: Upstream,
    told: Receiver<Told>,
    go: Sender<()>,
}

fn waiting(pieces: &[&'static str]) -> Waiting {
    let pieces = pieces.to_vec();
    let (tell, told) = channel();
    let (go, may) = channel::<()>();
    let (tell, may) = (Mutex::new(tell), Arc::new(Mutex::new(may)));
    let upstream = Upstream::raw(move |stream| {
        let tell = tell.lock().expect("nobody panics with it").clone();
        let mut peer = Client::over(stream);
        while let Some(request) = receive(&mut peer) {
            tell.send(Told::Asked(request.line)).ok();
            for (number, piece) in pieces.iter().enumerate() {
                if number > 0 && may.lock().expect("nobody panics with it").recv_timeout(PATIENCE).is_err() {
                    return;
                }
                peer.try_send(piece);
            }
        }
        tell.send(Told::Left(Instant::now())).ok();
    });
    Waiting { upstream, told, go }
}

impl Waiting {
    fn asked(&self) {
        let told = self.told.recv_timeout(PATIENCE).expect("a request reaches the upstream");
        assert!(matches!(told, Told::Asked(_)), "{told:?}");
    }

    /// When the gateway has given the request up.
    fn left(&self) -> Instant {
        match self.told.recv_timeout(PATIENCE) {
            Ok(Told::Left(at)) => at,
            other => panic!("the gateway keeps it: {other:?}"),
        }
    }

    fn go_on(&self) {
        self.go.send(()).expect("the upstream waits for it");
    }
}

fn before(waiting: &Waiting) -> Gateway {
    Gateway::start(&format!("[[route]]\nto = \"http://{}\"", waiting.upstream.addr()))
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn a_client_that_half_closes_gets_its_answer_however_long_it_waits() {
    for version in ["1.1", "1.0"] {
        let waiting = waiting(&["", OK]);
        let gateway = before(&waiting);
        let mut client = gateway.client();
        client.send(format!("GET /waits HTTP/{version}\r\nHost: a\r\n\r\n"));
        waiting.asked();
        client.shutdown();
        // The gateway has looked whether anybody is there.
        assert_eq!(client.bytes(1), b"H", "{version}");
        waiting.go_on();
        let head = client.head_text();
        assert!(head.starts_with(&format!("TTP/{version} 200 OK")), "{head}");
        assert_eq!(client.rest(), b"ok");
        let line = gateway.logged("/waits");
        assert_eq!((line["status"].as_u64(), line.get("reason")), (Some(200), None), "{line}");
    }
}

#[test]
fn a_client_that_half_closes_at_once_gets_all_its_answers() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!("[[route]]\nto = \"http://{}\"", upstream.addr()));
    for number in 1..50 {
        let mut client = gateway.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(number));
        client.shutdown();
        for _ in 0..number {
            assert_eq!(client.response().text(), "ok", "{number}");
        }
        assert!(client.is_closed(), "{number}");
    }
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    client.shutdown();
    assert_eq!(client.response().text(), "ok");
}

/// The head of an answer in chunks, and the first of them.
const BEGUN: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n";
/// The head of an answer with a length, and as much of it.
const BEGUN_LONG: &str = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n1\r\na\r\n";

#[test]
fn chunks_reach_a_half_closed_client_as_they_come() {
    for (pieces, body) in [
        (&[BEGUN, "5\r\nhello\r\n0\r\n\r\n"], "hello"),
        // The last chunk's size, too, may have a zero more.
        (&[BEGUN, "0\r\n\r\n"], ""),
    ] {
        let waiting = waiting(pieces);
        let gateway = before(&waiting);
        let mut client = gateway.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!((client.head().status, client.bytes(6)), (200, b"1\r\na\r\n".to_vec()));
        client.shutdown();
        assert_eq!(client.bytes(1), b"0", "the size of a chunk may begin with it");
        waiting.go_on();
        assert_eq!(text(&client.chunked().0), body);
    }
}

#[test]
fn a_body_with_a_length_reaches_a_client_that_half_closed_before_it() {
    let waiting = waiting(&["", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", "world"]);
    let gateway = before(&waiting);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    waiting.asked();
    client.shutdown();
    assert_eq!(client.bytes(1), b"H");
    waiting.go_on();
    assert!(client.head_text().starts_with("TTP/1.1 200 OK"));
    assert_eq!(client.bytes(5), b"hello");
    // Another client, who is taken for gone meanwhile, shows that this one could have been.
    let mut other = gateway.client();
    other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    waiting.asked();
    drop(other);
    eventually("the other is noticed", || {
        gateway.access_log().iter().any(|line| line["reason"] == "client-gone").then_some(())
    });
    waiting.go_on();
    assert_eq!(client.rest(), b"world");
}

#[test]
fn a_long_answer_that_flows_reaches_a_client_that_half_closes_within_it() {
    let begin = format!("HTTP/1.1 200 OK\r\nContent-Length: 100005\r\n\r\n{}", "x".repeat(100_000));
    let waiting = waiting(&[Box::leak(begin.into_boxed_str()), "hello"]);
    let gateway = before(&waiting);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    client.discard(100_000);
    client.shutdown();
    waiting.go_on();
    assert_eq!(client.rest(), b"hello");
}

/// How a client goes away.
type Leave = fn(Client);

const LEAVE: [(&str, Leave); 2] =
    [("closes", |client| drop(client)), ("resets", |client| reset(client.into_stream()))];

#[test]
fn a_client_that_leaves_while_it_waits_is_noticed_within_a_second() {
    for (how, leave) in LEAVE {
        for version in ["1.1", "1.0"] {
            let waiting = waiting(&[""]);
            let gateway = before(&waiting);
            let mut client = gateway.client();
            client.send(format!("GET /gone HTTP/{version}\r\nHost: a\r\n\r\n"));
            waiting.asked();
            let left = Instant::now();
            leave(client);
            let noticed = waiting.left() - left;
            assert!(noticed < Duration::from_secs(1), "who {how} over {version}: {noticed:?}");
            let line = gateway.logged("/gone");
            assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (Some(499), Some("client-gone")));
        }
    }
}

#[test]
fn a_client_that_leaves_within_a_body_is_noticed_within_a_second() {
    for ((how, leave), begun) in LEAVE.into_iter().flat_map(|leave| [(leave, BEGUN), (leave, BEGUN_LONG)]) {
        let waiting = waiting(&[begun]);
        let gateway = before(&waiting);
        let mut client = gateway.client();
        client.send("GET /gone HTTP/1.1\r\nHost: a\r\n\r\n");
        waiting.asked();
        assert_eq!((client.head().status, client.bytes(6)), (200, b"1\r\na\r\n".to_vec()));
        let left = Instant::now();
        leave(client);
        let noticed = waiting.left() - left;
        assert!(noticed < Duration::from_secs(1), "who {how}: {noticed:?} {begun:?}");
        assert_eq!(gateway.logged("/gone")["reason"], "client-gone");
    }
}

#[test]
fn half_close_works_the_same_over_tls() {
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let file = directory.join("a").display().to_string();
    let (waits, leaves) = (waiting(&["", OK]), waiting(&[""]));
    let text = format!(
        "[listener.tls]\nbind = \"127.0.0.1:0\"\ncerts = [{{ cert = \"{file}.pem\", key = \"{file}.key\" }}]\n\
         [[route]]\npath = \"/waits\"\nto = \"http://{}\"\n[[route]]\nto = \"http://{}\"",
        waits.upstream.addr(),
        leaves.upstream.addr()
    );
    let gateway = Gateway::start_in(directory, &text);
    let ask = |path: &str, of: &Waiting| {
        let stream = tls::connect(gateway.listener("tls"), "localhost", &[]).expect("the handshake succeeds");
        let socket = stream.sock.try_clone().expect("a socket can be had twice");
        let mut client = Client::over(stream);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        of.asked();
        (client, socket)
    };
    let (mut client, socket) = ask("/waits", &waits);
    socket.shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(client.bytes(1), b"H");
    waits.go_on();
    assert!(client.head_text().starts_with("TTP/1.1 200 OK"));
    let gone = ask("/gone", &leaves);
    let left = Instant::now();
    drop(gone);
    let noticed = leaves.left() - left;
    assert!(noticed < Duration::from_secs(1), "{noticed:?}");
}
