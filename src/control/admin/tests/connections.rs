//! Connections: keep-alive, bounds, deadlines, and closing in order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{DuplexStream, duplex};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::*;
use crate::admin::activity::AdminActivity;
use crate::admin::connection::converse;
use crate::admin::limits::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::admin::serve;

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let admin = Admin::start(None, AdminLimits::default());
    let answered = admin.ask("GET /healthz", &format!("x-long: {}\r\n", "a".repeat(HEAD_BYTES_MAX))).await;
    assert_eq!(answered.first_line(), "HTTP/1.1 431 Request Header Fields Too Large");
    let many = "x: y\r\n".repeat(HEADERS_MAX);
    let answered = admin.ask("GET /healthz", &many).await;
    assert_eq!(answered.first_line(), "HTTP/1.1 431 Request Header Fields Too Large");
}

#[tokio::test]
async fn framing_that_servers_read_in_two_ways_is_refused() {
    let admin = Admin::start(None, AdminLimits::default());
    for (head, status) in [
        ("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", "HTTP/1.1 200 OK"),
        (
            "GET /healthz HTTP/1.1\r\nhost: localhost\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            "HTTP/1.1 200 OK",
        ),
        ("GET /healthz HTTP/1.1\nhost: localhost\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("GET /healthz HTTP/1.1\r\nhost: localhost\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\n", "HTTP/1.1 400 Bad Request"),
        ("\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: a\r\n b\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (
            "GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\na",
            "HTTP/1.1 400 Bad Request",
        ),
        (
            "GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 400 Bad Request",
        ),
        (
            "GET /healthz HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 400 Bad Request",
        ),
    ] {
        for piece in [head.len(), 1] {
            let mut stream = TcpStream::connect(admin.address).await.expect("connected");
            for bytes in head.as_bytes().chunks(piece) {
                // It may be refused before its end.
                let _ = stream.write_all(bytes).await;
                tokio::task::yield_now().await;
            }
            let mut answer = vec![0; status.len()];
            within(stream.read_exact(&mut answer))
                .await
                .unwrap_or_else(|error| panic!("{head:?} in pieces of {piece}: {error}"));
            assert_eq!(String::from_utf8_lossy(&answer), status, "{head:?} in pieces of {piece}");
        }
    }
}

#[tokio::test]
async fn half_a_head_ends_with_its_deadline() {
    let admin = Admin::start(None, AdminLimits { head: SHORT, ..AdminLimits::default() });
    let mut stream = TcpStream::connect(admin.address).await.expect("connected");
    stream.write_all(b"GET /healthz HTT").await.expect("sent");
    let mut rest = Vec::new();
    within(stream.read_to_end(&mut rest)).await.expect("closed in order");
    assert!(!rest.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn the_oldest_of_many_silent_connections_is_closed() {
    let limits = AdminLimits { waiting_max: 2, head: LONG, answer: LONG, ..AdminLimits::default() };
    let admin = Admin::start(None, limits);
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(admin.address).await.expect("connected"));
    }
    assert_eq!(within(silent[0].read(&mut [0])).await.unwrap_or(0), 0, "the oldest is closed");
    assert_eq!(within(admin.ask("GET /healthz", "")).await.first_line(), "HTTP/1.1 200 OK");
    assert_eq!(within(silent[1].read(&mut [0])).await.unwrap_or(0), 0, "the next one went for it");
    silent[2].write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("it is open");
    assert!(within(silent[2].read(&mut [0])).await.expect("an answer") > 0);
}

#[tokio::test]
async fn probes_are_answered_while_all_pages_are_busy() {
    let limits =
        AdminLimits { pages_max: 1, waiting_max: 2, head: LONG, answer: LONG, ..AdminLimits::default() };
    let admin = Admin::start(Some("secret"), limits);
    let token = "authorization: Bearer secret\r\n";
    // The key of this policy is never told.
    let stuck = TcpStream::connect(admin.address).await.expect("connected");
    let stuck = tokio::spawn(exchange(stuck, "GET /v1/keys/slow", token));
    let refused = loop {
        let answer = admin.ask("GET /metrics", token).await;
        if answer.first_line() != "HTTP/1.1 200 OK" {
            break answer;
        }
    };
    assert_eq!(refused.first_line(), "HTTP/1.1 503 Service Unavailable");
    assert!(refused.has_header("retry-after: 1"));
    for _ in 0..5 {
        assert_eq!(admin.ask("GET /healthz", "").await.first_line(), "HTTP/1.1 200 OK");
        // A client without the token takes no place, and ends no connection that has one.
        assert_eq!(admin.ask("GET /metrics", "").await.first_line(), "HTTP/1.1 401 Unauthorized");
    }
    assert!(!stuck.is_finished(), "it is still waited for");
    stuck.abort();
}

#[tokio::test]
async fn a_stuck_page_ends_with_its_deadline() {
    let admin = Admin::start(None, AdminLimits { answer: SHORT, ..AdminLimits::default() });
    let stuck = TcpStream::connect(admin.address).await.expect("connected");
    assert_eq!(within(exchange(stuck, "GET /v1/keys/slow", "")).await.0, "");
}

#[tokio::test]
async fn shutdown_ends_open_connections() {
    let mut admin = Admin::start(None, AdminLimits { grace: SHORT, ..AdminLimits::default() });
    let mut idle = TcpStream::connect(admin.address).await.expect("connected");
    admin.ask("GET /healthz", "").await;
    admin.stop.take().expect("running").send(()).expect("listening");
    within(&mut admin.task).await.expect("ended in order");
    assert_eq!(within(idle.read_u8()).await.expect_err("closed").kind(), std::io::ErrorKind::UnexpectedEof);
    TcpStream::connect(admin.address).await.expect_err("no longer listening");
}

#[tokio::test]
async fn a_unix_socket_is_served() {
    let path = std::env::temp_dir().join(format!("sluicegate-admin-serve-{}.sock", std::process::id()));
    let listener = BoundListener::bind("admin listener", &Bind::Unix(path.clone())).expect("bound");
    let (stop, stopped) = oneshot::channel::<()>();
    let task = serve::spawn(listener, None, Arc::new(state(Readiness::default())), stopped);
    let stream = UnixStream::connect(&path).await.expect("connected");
    assert_eq!(exchange(stream, "GET /healthz", "").await.body(), "ok\n");
    stop.send(()).expect("listening");
    within(task).await.expect("ended in order");
    assert!(!path.exists());
}

#[tokio::test]
async fn a_connection_carries_one_request_after_another() {
    let admin = Admin::start(Some("secret"), AdminLimits::default());
    let mut client = admin.connect().await;
    let token = "authorization: Bearer secret\r\n";
    for _ in 0..3 {
        assert_eq!(client.ask("GET /healthz", "").await.body(), "ok\n");
        assert_eq!(client.ask("GET /config", token).await.body(), "workers = 2\n");
        // One request's token is not the next one's.
        assert_eq!(client.ask("GET /config", "").await.first_line(), "HTTP/1.1 401 Unauthorized");
        assert_eq!(client.ask("GET /nothing", "").await.first_line(), "HTTP/1.1 404 Not Found");
        let refused = client.ask("POST /config", token).await;
        assert_eq!(refused.first_line(), "HTTP/1.1 405 Method Not Allowed");
    }
    let last = client.ask("GET /healthz", "connection: close\r\n").await;
    assert!(last.has_header("connection: close"));
    assert!(client.closes().await);
}

#[tokio::test]
async fn an_older_client_asks_for_keep_alive() {
    let admin = Admin::start(None, AdminLimits::default());
    let mut client = admin.connect().await;
    client.send("GET /healthz HTTP/1.0\r\nhost: localhost\r\nconnection: keep-alive\r\n\r\n").await;
    assert!(client.answer().await.has_header("connection: keep-alive"));
    client.send("GET /healthz HTTP/1.0\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(client.answer().await.body(), "ok\n");
    assert!(client.closes().await);
}

#[tokio::test]
async fn requests_sent_together_are_answered_in_turn() {
    let admin = Admin::start(None, AdminLimits { pages_max: 1, ..AdminLimits::default() });
    let mut client = admin.connect().await;
    let both = ["/healthz", "/config", "/readyz", "/config"].map(|page| format!("GET {page} HTTP/1.1\r\n"));
    client.send(&both.map(|line| format!("{line}host: localhost\r\n\r\n")).concat()).await;
    for body in ["ok\n", "workers = 2\n", "starting\n", "workers = 2\n"] {
        // The only place among the pages is given back each time.
        assert_eq!(client.answer().await.body(), body);
    }
}

#[tokio::test(start_paused = true)]
async fn heads_and_idle_connections_have_different_deadlines() {
    let limits =
        AdminLimits { head: Duration::from_secs(2), idle: Duration::from_secs(20), ..AdminLimits::default() };
    let mut client = over_duplex(state(Readiness::default()), limits, 64 * 1024);
    assert_eq!(client.ask("GET /healthz", "").await.body(), "ok\n");
    time::sleep(Duration::from_secs(19)).await;
    assert_eq!(client.ask("GET /healthz", "").await.body(), "ok\n");
    let answered = time::Instant::now();
    assert!(client.closes().await);
    assert_eq!(answered.elapsed().as_secs(), 20);

    let mut client = over_duplex(state(Readiness::default()), limits, 64 * 1024);
    assert_eq!(client.ask("GET /healthz", "").await.body(), "ok\n");
    time::sleep(Duration::from_secs(15)).await;
    client.send("GET /hea").await;
    let begun = time::Instant::now();
    assert!(client.closes().await);
    assert_eq!(begun.elapsed().as_secs(), 2);

    let mut client = over_duplex(state(Readiness::default()), limits, 64 * 1024);
    let begun = time::Instant::now();
    assert!(client.closes().await);
    assert_eq!(begun.elapsed().as_secs(), 2, "a connection's first head is awaited as one that has begun");
}

#[tokio::test(start_paused = true)]
async fn the_next_request_waits_until_the_answer_is_read() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let mut state = state(Readiness::default());
    state.config =
        Box::new(move || format!("{}{}", "x".repeat(4096), counted.fetch_add(1, Ordering::Relaxed)));
    // The stream holds less than one page.
    let mut client = over_duplex(state, AdminLimits::default(), 1024);
    let begun = time::Instant::now();
    client.request("GET /config", "").await;
    client.request("GET /config", "").await;
    let mut rest = Vec::new();
    // Only the runtime's clock moves here: nothing is read before the deadline.
    time::sleep(Duration::from_secs(31)).await;
    within(client.0.read_to_end(&mut rest)).await.expect("an end");
    assert_eq!(rest.len(), 1024, "no more than the stream holds");
    assert_eq!(begun.elapsed().as_secs(), 31);
    assert_eq!(asked.load(Ordering::Relaxed), 1, "the second request waits for the first one's answer");
}

#[tokio::test]
async fn pipelined_requests_do_not_delay_other_connections() {
    let order = Arc::new(Mutex::new(String::new()));
    let told = |by: char| {
        let order = Arc::clone(&order);
        let mut state = state(Readiness::default());
        state.config = Box::new(move || {
            order.lock().expect("nobody panicked").push(by);
            String::new()
        });
        over_duplex(state, AdminLimits::default(), 64 * 1024)
    };
    let (mut many, mut one) = (told('m'), told('o'));
    many.send(&"GET /config HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(12)).await;
    one.request("GET /config", "").await;
    for _ in 0..12 {
        many.answer().await;
    }
    one.answer().await;
    let order = order.lock().expect("nobody panicked").clone();
    assert!(order.find('o').is_some_and(|place| place < 4), "{order}");
}

#[tokio::test]
async fn the_connection_that_is_quiet_the_longest_is_closed() {
    let admin = Admin::start(None, AdminLimits { waiting_max: 2, ..AdminLimits::default() });
    let mut first = admin.connect().await;
    assert_eq!(first.ask("GET /healthz", "").await.body(), "ok\n");
    let mut second = admin.connect().await;
    assert_eq!(second.ask("GET /healthz", "").await.body(), "ok\n");
    // The older connection has spoken last.
    assert_eq!(first.ask("GET /healthz", "").await.body(), "ok\n");
    let mut third = admin.connect().await;
    assert_eq!(third.ask("GET /healthz", "").await.body(), "ok\n");
    assert!(second.closes().await);
    assert_eq!(first.ask("GET /healthz", "").await.body(), "ok\n");
}

#[tokio::test]
async fn a_drain_ends_connections_with_their_next_answer() {
    let mut admin = Admin::start(None, AdminLimits { grace: LONG, ..AdminLimits::default() });
    let (mut asking, mut idle) = (admin.connect().await, admin.connect().await);
    for client in [&mut asking, &mut idle] {
        assert!(!client.ask("GET /readyz", "").await.has_header("connection: close"));
    }
    admin.readiness.enter(ProcessPhase::Draining);
    let answer = asking.ask("GET /readyz", "").await;
    assert!(answer.has_header("connection: close") && answer.body() == "draining\n");
    assert!(asking.closes().await);
    admin.stop.take().expect("running").send(()).expect("listening");
    assert!(idle.closes().await, "one that is idle goes at once");
    within(&mut admin.task).await.expect("long before the grace is over");
}

/// At an upgrade the listener ends while clients connect to the socket that the successor has, too.
#[tokio::test]
async fn a_connection_that_was_accepted_before_the_end_is_answered_once() {
    let mut admin = Admin::start(None, AdminLimits { grace: LONG, ..AdminLimits::default() });
    let mut accepted = admin.connect().await;
    // An answer on another shows that this one was accepted before.
    admin.ask("GET /healthz", "").await;
    admin.stop.take().expect("running").send(()).expect("listening");
    while TcpStream::connect(admin.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let answer = accepted.ask("GET /healthz", "").await;
    assert!(answer.has_header("connection: close") && answer.body() == "ok\n");
    assert!(accepted.closes().await);
    within(&mut admin.task).await.expect("long before the grace is over");
}

/// A connection without sockets, so that a test can drive its time.
fn over_duplex(state: AdminState, limits: AdminLimits, bytes_max: usize) -> TestClient<DuplexStream> {
    let (ours, theirs) = duplex(bytes_max);
    let state = Arc::new(state);
    let router = routes::router(routes::endpoints(), &state, &limits);
    tokio::spawn(async move {
        let (_stop, stopped) = watch::channel(());
        converse(Box::new(theirs), router, AdminActivity::new(None), limits, stopped).await;
    });
    TestClient(ours)
}
