//! HTTP/2 by the letter towards an upstream: one row a rule of RFC 9113, with the server on the other side of it.
//!
//! Whatever the server does, its request is answered, once and as the row says, and the next one is served.

use std::io::Read;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use crate::h2_conformance::{
    FIELDS, FIELDS_CLOSED, FLOW, FRAME_SIZE, Link, Outcome, PADDED, PROTOCOL, PUSH_PROMISE, STREAM_CLOSED,
    judge, setting,
};
use crate::support::h2::{
    ACK, CONTINUATION, Connection, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, Wire, encoded, fields,
};
use crate::support::{Gateway, Upstream};

use Outcome::{ConnectionError, GoneAway, Lives, StreamError};

/// What the server does with a request on this stream, what must come of it, and the status the client gets.
struct Case(&'static str, &'static str, fn(&mut Link, u32), Outcome, &'static [u16]);

const WHOLE: u8 = END_STREAM | END_HEADERS;
/// Nothing came of it: the answer follows.
const OK: &[u16] = &[200];
/// No answer could be made of it.
const BAD: &[u16] = &[502];
/// The head of the answer had passed when the fault came, or not.
const EITHER: &[u16] = &[200, 502];

/// The head of an answer.
fn head(link: &mut Link, flags: u8, stream: u32) {
    link.send(HEADERS, flags, stream, &fields(&[(":status", "200")]));
}

/// An answer that is no more than a head with these fields.
fn only(link: &mut Link, stream: u32, block: &[(&str, &str)]) {
    link.send(HEADERS, WHOLE, stream, &fields(block));
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case("4.1", "a frame of unknown type is passed over", |l, _| l.send(0x16, 0, 0, &[0; 8]), Lives, OK),
    Case("4.1", "unknown flags are passed over", |l, _| l.send(PING, 0xf6, 0, &[0; 8]), Lives, OK),
    Case("4.1", "the reserved bit is passed over", |l, _| l.send(PING, 0, 0x8000_0000, &[0; 8]), Lives, OK),
    Case("4.2", "DATA of 2^14 bytes passes", |l, s| {
        l.send(HEADERS, END_HEADERS, s, &fields(&[(":status", "201")]));
        l.send(DATA, END_STREAM, s, &[b'x'; 16_384]);
    }, Lives, &[201]),
    Case("4.2", "DATA above 2^14 bytes", |l, s| {
        head(l, END_HEADERS, s);
        l.try_write(&encoded(DATA, END_STREAM, s, &[b'x'; 16_385]));
    }, StreamError(&[FRAME_SIZE]), EITHER),
    Case("4.2", "fields above 2^14 bytes", |l, s| {
        let long = "x".repeat(16_400);
        l.try_write(&encoded(HEADERS, WHOLE, s, &fields(&[(":status", "200"), ("a", &long)])));
    }, ConnectionError(&[FRAME_SIZE]), BAD),
    Case("4.3", "fields that cannot be decoded", |l, s| l.send(HEADERS, WHOLE, s, &[0x40]), ConnectionError(FIELDS), BAD),
    Case("4.3", "PRIORITY between fields", |l, s| {
        head(l, 0, s);
        l.send(PRIORITY, 0, s, &[0, 0, 0, 0, 255]);
    }, ConnectionError(&[PROTOCOL]), BAD),
    Case("5.1 idle", "DATA", |l, _| l.send(DATA, END_STREAM, 2, b"x"), ConnectionError(&[PROTOCOL]), BAD),
    Case("5.1 idle", "RST_STREAM", |l, _| l.send(RST_STREAM, 0, 2, &[0, 0, 0, 8]), ConnectionError(&[PROTOCOL]), BAD),
    Case("5.1 idle", "WINDOW_UPDATE", |l, _| l.send(WINDOW_UPDATE, 0, 2, &[0, 0, 0, 100]), ConnectionError(&[PROTOCOL]), BAD),
    Case("5.1 idle", "CONTINUATION", |l, _| {
        l.send(CONTINUATION, END_HEADERS, 2, &fields(&[(":status", "200")]));
    }, ConnectionError(&[PROTOCOL]), BAD),
    Case("5.1 idle", "HEADERS of a stream that was never", |l, _| head(l, WHOLE, 9_999), ConnectionError(&[PROTOCOL]), BAD),
    Case("5.1 reset", "DATA", |l, s| {
        head(l, END_HEADERS, s);
        l.send(RST_STREAM, 0, s, &[0, 0, 0, 8]);
        l.send(DATA, END_STREAM, s, b"x");
    }, StreamError(&[STREAM_CLOSED]), EITHER),
    Case("5.1 reset", "HEADERS", |l, s| {
        head(l, END_HEADERS, s);
        l.send(RST_STREAM, 0, s, &[0, 0, 0, 8]);
        head(l, WHOLE, s);
    }, StreamError(FIELDS_CLOSED), EITHER),
    Case("5.1 reset", "CONTINUATION", |l, s| {
        head(l, END_HEADERS, s);
        l.send(RST_STREAM, 0, s, &[0, 0, 0, 8]);
        l.send(CONTINUATION, END_HEADERS, s, &fields(&[("a", "b")]));
    }, StreamError(&[STREAM_CLOSED, PROTOCOL]), EITHER),
    Case("5.1 closed", "DATA", |l, s| {
        head(l, WHOLE, s);
        l.send(DATA, END_STREAM, s, b"x");
    }, StreamError(&[STREAM_CLOSED]), EITHER),
    Case("5.1 closed", "HEADERS", |l, s| { head(l, WHOLE, s); head(l, WHOLE, s); }, StreamError(FIELDS_CLOSED), EITHER),
    Case("5.1 closed", "CONTINUATION", |l, s| {
        head(l, WHOLE, s);
        l.send(CONTINUATION, END_HEADERS, s, &fields(&[("a", "b")]));
    }, ConnectionError(&[STREAM_CLOSED, PROTOCOL]), EITHER),
    Case("5.4.1", "an error is said before the close", |l, _| l.send(PING, 0, 3, &[0; 8]), GoneAway(PROTOCOL), BAD),
    Case("5.5", "an unknown frame between fields", |l, s| {
        head(l, 0, s);
        l.send(0x16, 0, 0, &[0; 8]);
    }, ConnectionError(&[PROTOCOL]), BAD),
    Case("6.1", "DATA on stream 0", |l, _| l.send(DATA, END_STREAM, 0, b"x"), ConnectionError(&[PROTOCOL]), BAD),
    Case("6.1", "DATA with more padding than payload", |l, s| {
        head(l, END_HEADERS, s);
        l.send(DATA, END_STREAM | PADDED, s, &[6, 0, 0, 0, 0]);
    }, ConnectionError(&[PROTOCOL]), EITHER),
    Case("6.2", "HEADERS on stream 0", |l, _| head(l, WHOLE, 0), ConnectionError(&[PROTOCOL]), BAD),
    Case("6.2", "HEADERS with more padding than payload", |l, s| {
        l.send(HEADERS, WHOLE | PADDED, s, &[&[200], &fields(&[(":status", "200")])[..]].concat());
    }, StreamError(&[PROTOCOL]), BAD),
    Case("6.3", "PRIORITY is passed over", |l, s| l.send(PRIORITY, 0, s, &[0, 0, 0, 0, 9]), Lives, OK),
    Case("6.3", "PRIORITY on stream 0", |l, _| l.send(PRIORITY, 0, 0, &[0, 0, 0, 1, 9]), ConnectionError(&[PROTOCOL]), BAD),
    Case("6.3", "PRIORITY of another length", |l, s| l.send(PRIORITY, 0, s, &[0; 4]), StreamError(&[FRAME_SIZE]), BAD),
    Case("6.4", "RST_STREAM on stream 0", |l, _| l.send(RST_STREAM, 0, 0, &[0, 0, 0, 8]), ConnectionError(&[PROTOCOL]), BAD),
    Case("6.4", "RST_STREAM of another length", |l, s| l.send(RST_STREAM, 0, s, &[0; 3]), ConnectionError(&[FRAME_SIZE]), BAD),
    Case("6.5", "SETTINGS of every parameter a server may send", |l, _| {
        let all = [(1, 4_096), (2, 0), (3, 100), (4, 65_535), (5, 16_384), (6, 100_000)];
        l.send(SETTINGS, 0, 0, &all.map(|(id, value)| setting(id, value)).concat());
    }, Lives, OK),
    Case("6.5", "an answer to SETTINGS with a payload", |l, _| l.send(SETTINGS, ACK, 0, &[0]), ConnectionError(&[FRAME_SIZE]), BAD),
    Case("6.5", "SETTINGS of a stream", |l, s| l.send(SETTINGS, 0, s, &setting(3, 100)), ConnectionError(&[PROTOCOL]), BAD),
    Case("6.5", "SETTINGS of another length", |l, _| l.send(SETTINGS, 0, 0, &[0, 3, 0]), ConnectionError(&[FRAME_SIZE]), BAD),
    Case("6.5.2", "a window above 2^31-1", |l, _| l.send(SETTINGS, 0, 0, &setting(4, 1 << 31)), ConnectionError(&[FLOW]), BAD),
    Case("6.5.2", "a frame size below 2^14", |l, _| l.send(SETTINGS, 0, 0, &setting(5, 16_383)), ConnectionError(&[PROTOCOL]), BAD),
    Case("6.5.2", "a frame size above 2^24-1", |l, _| l.send(SETTINGS, 0, 0, &setting(5, 1 << 24)), ConnectionError(&[PROTOCOL]), BAD),
    Case("6.5.2", "an unknown parameter is passed over", |l, _| l.send(SETTINGS, 0, 0, &setting(0xff, 1)), Lives, OK),
    Case("6.7", "PING of a stream", |l, s| l.send(PING, 0, s, &[0; 8]), ConnectionError(&[PROTOCOL]), BAD),
    Case("6.7", "PING of another length", |l, _| l.send(PING, 0, 0, &[0; 6]), ConnectionError(&[FRAME_SIZE]), BAD),
    Case("6.7", "an answer nobody asked for is passed over", |l, _| l.send(PING, ACK, 0, b"unasked!"), Lives, OK),
    Case("6.8", "GOAWAY of a stream", |l, s| l.send(GOAWAY, 0, s, &[0; 8]), ConnectionError(&[PROTOCOL]), BAD),
    Case("6.9", "WINDOW_UPDATE of 0", |l, _| l.send(WINDOW_UPDATE, 0, 0, &[0; 4]), ConnectionError(&[PROTOCOL]), BAD),
    Case("6.9", "WINDOW_UPDATE of 0 on a stream", |l, s| l.send(WINDOW_UPDATE, 0, s, &[0; 4]), StreamError(&[PROTOCOL]), BAD),
    Case("6.9", "WINDOW_UPDATE of another length", |l, _| l.send(WINDOW_UPDATE, 0, 0, &[0; 3]), ConnectionError(&[FRAME_SIZE]), BAD),
    Case("6.9.1", "a window above 2^31-1", |l, _| {
        l.try_write(&encoded(WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255]).repeat(2));
    }, GoneAway(FLOW), BAD),
    Case("6.9", "windows that open are no fault", |l, s| {
        l.send(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
        l.send(WINDOW_UPDATE, 0, s, &[0, 0, 0, 1]);
    }, Lives, OK),
    Case("6.10", "fields in three frames", |l, s| {
        l.send(HEADERS, END_STREAM, s, &fields(&[(":status", "201")]));
        l.send(CONTINUATION, 0, s, &fields(&[("a", "b")]));
        l.send(CONTINUATION, END_HEADERS, s, &fields(&[("c", "d")]));
    }, Lives, &[201]),
    Case("6.10", "DATA between fields", |l, s| {
        head(l, 0, s);
        l.send(CONTINUATION, 0, s, &fields(&[("a", "b")]));
        l.send(DATA, END_STREAM, s, b"x");
    }, ConnectionError(&[PROTOCOL]), BAD),
    Case("6.10", "CONTINUATION on stream 0", |l, s| {
        head(l, 0, s);
        l.send(CONTINUATION, END_HEADERS, 0, &fields(&[("a", "b")]));
    }, ConnectionError(&[PROTOCOL]), BAD),
    Case("6.10", "CONTINUATION of whole fields", |l, s| {
        head(l, END_HEADERS, s);
        l.send(CONTINUATION, END_HEADERS, s, &fields(&[("a", "b")]));
    }, ConnectionError(&[PROTOCOL]), EITHER),
    // The stream has ended on both sides: there is nothing to reset.
    Case("8.1", "an answer without :status", |l, s| only(l, s, &[("a", "b")]), Lives, BAD),
    Case("8.1", "an answer that is a request", |l, s| {
        only(l, s, &[(":method", "GET"), (":path", "/"), (":scheme", "http")]);
    }, Lives, BAD),
    Case("8.3", "an answer with :path", |l, s| only(l, s, &[(":status", "200"), (":path", "/")]), ConnectionError(&[PROTOCOL]), BAD),
    Case("8.2.1", "a name in upper case", |l, s| only(l, s, &[(":status", "200"), ("X-TEST", "a")]), StreamError(&[PROTOCOL]), BAD),
    Case("8.2.1", "a line end in a value", |l, s| only(l, s, &[(":status", "200"), ("x", "a\r\nb: c")]), StreamError(&[PROTOCOL]), BAD),
    Case("8.2.2", "connection", |l, s| only(l, s, &[(":status", "200"), ("connection", "close")]), StreamError(&[PROTOCOL]), BAD),
    Case("8.3", "an unknown pseudo-header", |l, s| only(l, s, &[(":status", "200"), (":x", "a")]), StreamError(&[PROTOCOL]), BAD),
    Case("8.3", "two :status", |l, s| only(l, s, &[(":status", "200"), (":status", "204")]), StreamError(&[PROTOCOL]), BAD),
    Case("8.3", "a pseudo-header behind a field", |l, s| only(l, s, &[("a", "b"), (":status", "200")]), StreamError(&[PROTOCOL]), BAD),
    Case("8.1.1", "more DATA than content-length", |l, s| {
        l.send(HEADERS, END_HEADERS, s, &fields(&[(":status", "200"), ("content-length", "1")]));
        l.send(DATA, END_STREAM, s, b"test");
    }, StreamError(&[PROTOCOL]), EITHER),
    Case("8.4", "PUSH_PROMISE", |l, s| {
        let request = fields(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")]);
        l.send(PUSH_PROMISE, END_HEADERS, s, &[&[0, 0, 0, 2], &request[..]].concat());
    }, ConnectionError(&[PROTOCOL]), BAD),
];

/// A server that does what the row says whose number it reads, and tells what came of it.
fn server(row: &Arc<AtomicUsize>) -> (Upstream, mpsc::Receiver<Result<(), String>>) {
    let (tx, verdicts) = mpsc::channel();
    let (row, tx) = (Arc::clone(row), Mutex::new(tx));
    let upstream = Upstream::raw(move |stream: TcpStream| {
        let mut link: Link = Connection::serve(Box::new(stream) as Box<dyn Wire>);
        while let Some(frame) = link.frame() {
            if frame.kind != HEADERS {
                continue;
            }
            let Some(Case(_, _, act, outcome, statuses)) = CASES.get(row.load(Ordering::SeqCst)) else {
                only(&mut link, frame.stream, &[(":status", "204")]);
                continue;
            };
            act(&mut link, frame.stream);
            let verdict = judge(&mut link, *outcome);
            if *statuses == OK {
                head(&mut link, WHOLE, frame.stream);
            }
            let told = tx.lock().unwrap_or_else(PoisonError::into_inner).send(verdict);
            told.expect("the test waits for it");
        }
    });
    (upstream, verdicts)
}

#[test]
fn every_rule_holds_towards_an_upstream() {
    let row = Arc::new(AtomicUsize::new(0));
    let (upstream, verdicts) = server(&row);
    let gateway = Gateway::start(&format!(
        "workers = 1\n[upstream.u]\nservers = [\"http://{}\"]\nhttp = \"h2\"\nretry = {{ times = 0 }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"",
        upstream.addr()
    ));
    let mut wrong = Vec::new();
    for (number, Case(clause, what, _, outcome, statuses)) in CASES.iter().enumerate() {
        row.store(number, Ordering::SeqCst);
        let mut client = gateway.client();
        client.send("GET /bad HTTP/1.1\r\nHost: a\r\n\r\n");
        let status = client.head().status;
        let verdict = verdicts.recv().expect("the server is there");
        if !statuses.contains(&status) {
            wrong.push(format!("{clause}: {what}: the client got {status} instead of {statuses:?}"));
        }
        if let Err(came) = verdict {
            wrong.push(format!("{clause}: {what}: {came} instead of {outcome:?}"));
        }
        row.store(usize::MAX, Ordering::SeqCst);
        let next = gateway.get("/next").status;
        if next != 204 {
            wrong.push(format!("{clause}: {what}: the next request got {next}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
    assert_eq!(gateway.metric("sluicegate_worker_panics_total", &[]), 0.0);
}

#[test]
fn a_server_that_does_not_begin_with_settings_is_left() {
    let (tx, verdicts) = mpsc::channel();
    let tx = Mutex::new(tx);
    let upstream = Upstream::raw(move |mut stream: TcpStream| {
        stream.read_exact(&mut [0; 24]).expect("a client begins with its preface");
        let mut link: Link = Connection::silent(Box::new(stream) as Box<dyn Wire>);
        link.send(PING, 0, 0, b"are you?");
        let verdict = judge(&mut link, GoneAway(PROTOCOL));
        let told = tx.lock().unwrap_or_else(PoisonError::into_inner).send(verdict);
        told.expect("the test waits for it");
    });
    let gateway = Gateway::start(&format!(
        "[upstream.u]\nservers = [\"http://{}\"]\nhttp = \"h2\"\nretry = {{ times = 0 }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"",
        upstream.addr()
    ));
    assert_eq!(gateway.get("/").status, 502);
    assert_eq!(verdicts.recv().expect("the server is there"), Ok(()));
}
