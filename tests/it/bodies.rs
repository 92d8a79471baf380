//! Large bodies: constant memory, and a slow side that slows the other one down.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Nginx, Upstream, heavy};

const GIB: u64 = 1 << 30;
/// What the gateway may grow by while a body passes, whatever its length.
const GROWTH_KIB_MAX: u64 = 16 * 1024;
/// What the kernel may hold for two connections on loopback, with room to spare.
const BUFFERED_MAX: u64 = 64 << 20;

fn config(upstream: std::net::SocketAddr) -> String {
    format!("[[route]]\npath = \"/{{*rest}}\"\nmax-body = \"2GiB\"\nto = \"http://{upstream}\"")
}

#[test]
fn a_download_of_1_gib_takes_constant_memory() {
    let _alone = heavy();
    let nginx = Nginx::start("sendfile on;");
    nginx.file("large", GIB);
    let gateway = Gateway::start(&config(nginx.addr()));
    let before = gateway.memory_peak_kib();
    let mut client = gateway.client();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.number("content-length")), (200, GIB));
    client.discard(GIB);
    assert_eq!(client.get("/none").status, 404, "the connection is in step");
    let growth = gateway.memory_peak_kib() - before;
    assert!(growth < GROWTH_KIB_MAX, "grew by {growth} KiB");
    assert_eq!(gateway.logged("/large")["bytes_out"].as_u64(), Some(GIB));
}

#[test]
fn an_upload_of_1_gib_takes_constant_memory() {
    let _alone = heavy();
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        if peer.try_head().is_some() {
            peer.discard(GIB);
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nall");
        }
    });
    let gateway = Gateway::start(&config(upstream.addr()));
    let before = gateway.memory_peak_kib();
    let mut client = gateway.client();
    client.send(format!("POST /large HTTP/1.1\r\nHost: a\r\nContent-Length: {GIB}\r\n\r\n"));
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..1024 {
        client.send(&piece);
    }
    assert_eq!(client.response().text(), "all");
    let growth = gateway.memory_peak_kib() - before;
    assert!(growth < GROWTH_KIB_MAX, "grew by {growth} KiB");
    assert_eq!(gateway.logged("/large")["bytes_in"].as_u64(), Some(GIB));
}

#[test]
fn a_slow_reader_stalls_the_upstream() {
    let (upstream, sent) = pouring();
    let gateway = Gateway::start(&config(upstream.addr()));
    let before = gateway.memory_peak_kib();
    let mut client = gateway.client();
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let held = at_rest(&sent);
    assert!(held < BUFFERED_MAX, "{held} bytes were taken from the upstream that nobody reads");
    let growth = gateway.memory_peak_kib() - before;
    assert!(growth < GROWTH_KIB_MAX, "grew by {growth} KiB");
    client.discard(2 * held);
    assert!(sent.load(Ordering::Relaxed) > held, "the upstream goes on");
}

#[test]
fn a_stream_whose_window_is_shut_stalls_the_upstream() {
    let (upstream, sent) = pouring();
    let gateway = Gateway::start(&config(upstream.addr()));
    let before = gateway.memory_peak_kib();
    // Nothing is read and no window is opened: 64 KiB may come, and the gateway may hold a little more.
    let mut client = crate::support::h2::Connection::open(gateway.plain());
    client.request(1, "GET", "/shut", true);
    let held = at_rest(&sent);
    assert!(held < BUFFERED_MAX, "{held} bytes were taken from the upstream that nobody reads");
    let growth = gateway.memory_peak_kib() - before;
    assert!(growth < GROWTH_KIB_MAX, "grew by {growth} KiB");
}

#[test]
fn a_slow_upstream_stalls_the_client() {
    let (_held_open, release) = std::sync::mpsc::channel::<()>();
    let release = std::sync::Mutex::new(release);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        peer.try_head();
        // Reads nothing more until the test is over.
        release.lock().expect("nobody panics with it").recv().ok();
    });
    let gateway = Gateway::start(&config(upstream.addr()));
    let before = gateway.memory_peak_kib();
    let mut client = gateway.client();
    client.send(format!("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: {GIB}\r\n\r\n"));
    let (sent, count) = counter();
    let stream = client.socket().try_clone().expect("a socket can be shared");
    thread::spawn(move || pour(stream, &count));
    let held = at_rest(&sent);
    assert!(held < BUFFERED_MAX, "{held} bytes were taken from the client that nobody reads");
    let growth = gateway.memory_peak_kib() - before;
    assert!(growth < GROWTH_KIB_MAX, "grew by {growth} KiB");
}

/// An upstream that answers with a body of 1 GiB, and how many bytes of it were taken.
fn pouring() -> (Upstream, Arc<AtomicU64>) {
    let (sent, count) = counter();
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {GIB}\r\n\r\n"));
            pour(peer.into_stream(), &count);
        }
    });
    (upstream, sent)
}

fn counter() -> (Arc<AtomicU64>, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    (Arc::clone(&count), count)
}

/// Writes without end and counts what is taken.
fn pour(mut stream: TcpStream, count: &AtomicU64) {
    let piece = vec![b'x'; 64 * 1024];
    while let Ok(written) = stream.write(&piece) {
        count.fetch_add(written as u64, Ordering::Relaxed);
    }
}

/// The count once it has begun and then not moved for half a second.
fn at_rest(count: &AtomicU64) -> u64 {
    let deadline = Instant::now() + crate::support::PATIENCE;
    let mut last = (0, Instant::now());
    while Instant::now() < deadline {
        let now = count.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        } else if now > 0 && last.1.elapsed() > Duration::from_millis(500) {
            return now;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("it never rests: {} bytes", last.0);
}

#[test]
fn a_client_that_goes_away_ends_the_upstream_s_work() {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            let tell = tell.lock().expect("nobody panics with it");
            tell.send("received").ok();
            // Nothing is answered: only the gateway's close can end this read.
            let read = peer.into_stream().read(&mut [0]);
            tell.send(if matches!(read, Ok(0)) { "closed" } else { "broken" }).ok();
        }
    });
    let gateway = Gateway::start(&config(upstream.addr()));
    let mut client = gateway.client();
    client.send("GET /gone HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(told.recv_timeout(crate::support::PATIENCE), Ok("received"));
    drop(client);
    assert_eq!(told.recv_timeout(crate::support::PATIENCE), Ok("closed"));
    assert_eq!(gateway.logged("/gone")["reason"], "client-gone");
}
