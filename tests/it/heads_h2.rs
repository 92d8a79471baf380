//! Heads over HTTP/2 that wait for their answers: a connection may have a hundred of them, and what they hold together
//! is bounded, however few bytes named their fields.

use crate::support::h2::{CONTINUATION, Connection, END_HEADERS, END_STREAM, HEADERS, fields};
use crate::support::{Client, Gateway, Upstream, eventually, heavy};

/// A gateway before an upstream that answers nothing at `/slow`.
fn before_a_slow_one() -> (Gateway, Upstream) {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while peer.try_head().is_some_and(|head| head.starts_with("GET /quick")) {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
        peer.rest();
    });
    let gateway =
        Gateway::start(&format!("[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"\n", upstream.addr()));
    (gateway, upstream)
}

/// A head for `/slow` with sixty fields, of which each is one byte after the first time (RFC 7541 section 6.1).
fn indexed(is_first: bool) -> Vec<u8> {
    let mut block = pseudo();
    if is_first {
        for letter in 0..60 {
            // A literal with incremental indexing, new name (section 6.2.1).
            block.extend([
                0x40,
                1,
                b"abcdefghijklmnopqrstuvwxyz"[letter % 26],
                1,
                b'0' + (letter / 26) as u8,
            ]);
        }
    } else {
        block.extend((0..60).map(|back| 0x80 | (62 + back)));
    }
    block
}

/// A head for `/slow` that says all of its 30 KiB.
fn spelled_out(_: bool) -> Vec<u8> {
    [pseudo(), fields(&[("x-long", &"v".repeat(15_000)), ("x-more", &"w".repeat(15_000))])].concat()
}

fn pseudo() -> Vec<u8> {
    fields(&[(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/slow")])
}

/// Sends a hundred such heads over each of eight connections.
fn hold(gateway: &Gateway, head: impl Fn(bool) -> Vec<u8>) -> Vec<Connection> {
    let connection = |_| {
        let mut link = Connection::open(gateway.plain());
        for number in 0..100 {
            let block = head(number == 0);
            let pieces: Vec<_> = block.chunks(16_000).collect();
            for (index, piece) in pieces.iter().enumerate() {
                let kind = if index == 0 { HEADERS } else { CONTINUATION };
                let begin = if index == 0 { END_STREAM } else { 0 };
                let end = if index + 1 == pieces.len() { END_HEADERS } else { 0 };
                link.send(kind, begin | end, 2 * number + 1, piece);
            }
        }
        link
    };
    (0..8).map(connection).collect()
}

#[test]
fn heads_that_wait_hold_little_together() {
    let _alone = heavy();
    let (gateway, _upstream) = before_a_slow_one();
    let mut good = gateway.client();
    assert_eq!(good.get("/quick").text(), "ok");
    let refused = || gateway.metric("sluicegate_refused_requests_total", &["reason=\"headers-too-large\""]);
    let before = gateway.memory_peak_kib();
    let long = hold(&gateway, spelled_out);
    // Half a MiB has room for seventeen of them.
    eventually("those beyond the bound are refused", || (refused() >= 8.0 * 80.0).then_some(()));
    assert!(refused() <= 8.0 * 83.0, "{} of 800 are refused", refused());
    // All heads of the eight are 23 MiB; with their connections upstream they would hold 80.
    let spent = gateway.memory_peak_kib() - before;
    assert!(spent < 40 * 1024, "{spent} KiB for eight connections");
    drop(long);
    let (before, refused_before) = (gateway.memory_peak_kib(), refused());
    let _short = hold(&gateway, indexed);
    // A field of two bytes costs as much memory as a long one, and is counted so.
    eventually("those beyond the bound are refused", || (refused() >= refused_before + 80.0).then_some(()));
    let spent = gateway.memory_peak_kib() - before;
    assert!(spent < 40 * 1024, "{spent} KiB for eight connections");
    assert_eq!(good.get("/quick").text(), "ok");
}
