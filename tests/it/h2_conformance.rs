//! HTTP/2 by the letter: one row a rule of RFC 9113 (sections 3 to 8) and RFC 7541, in the clear and over TLS.
//!
//! Where the RFC asks for an error of a stream, one of the connection does as well (section 5.4.2), and for either so
//! does a close without GOAWAY (section 5.4.1). The code is the one that the rule names; where the implementation
//! cannot tell it from another fault of fields, PROTOCOL_ERROR is the other that may be.

use std::net::TcpStream;

use crate::support::h2::{
    ACK, CONTINUATION, Connection, DATA, END_HEADERS, END_STREAM, End, Frame, GOAWAY, HEADERS, PING,
    PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, Wire, encoded, fields,
};
use crate::support::{Directory, Gateway, PATIENCE, Upstream, eventually, tls};

/// The side of a case that breaks the rules, or keeps them.
pub type Link = Connection<Box<dyn Wire>>;

/// What must come of a case.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// The connection ends with one of these codes, or is closed.
    ConnectionError(&'static [u32]),
    /// The stream or the connection ends with one of these codes, or is closed.
    StreamError(&'static [u32]),
    /// The connection ends with this code in a GOAWAY.
    GoneAway(u32),
    /// The stream, and nothing else, ends with this code.
    Reset(u32),
    /// The connection is closed.
    Closed,
    /// A PING is answered.
    Lives,
    /// This stream is answered to its end.
    Answered(u32),
    /// The answer's first DATA is one byte long.
    OneByte,
}

use Outcome::{Answered, Closed, ConnectionError, GoneAway, Lives, OneByte, Reset, StreamError};

struct Case(&'static str, &'static str, fn(&mut Link), Outcome);

pub const PROTOCOL: u32 = 1;
pub const FLOW: u32 = 3;
pub const STREAM_CLOSED: u32 = 5;
pub const FRAME_SIZE: u32 = 6;
const REFUSED: u32 = 7;
const COMPRESSION: u32 = 9;
/// Fields that cannot be decoded.
pub const FIELDS: &[u32] = &[COMPRESSION, PROTOCOL];
/// Fields on a stream that has ended.
pub const FIELDS_CLOSED: &[u32] = &[STREAM_CLOSED, PROTOCOL];
pub const PUSH_PROMISE: u8 = 5;
pub const PADDED: u8 = 8;
const HAS_PRIORITY: u8 = 0x20;
const WHOLE: u8 = END_STREAM | END_HEADERS;

fn block(more: &[(&str, &str)]) -> Vec<u8> {
    let mut block = request_line("GET");
    block.extend(fields(more));
    block
}

fn request_line(method: &str) -> Vec<u8> {
    fields(&[(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", "/")])
}

fn get(link: &mut Link, stream: u32) {
    link.send(HEADERS, WHOLE, stream, &block(&[]));
}

/// A request whose body is still to come.
fn post(link: &mut Link, stream: u32) {
    link.send(HEADERS, END_HEADERS, stream, &request_line("POST"));
}

fn get_with(link: &mut Link, more: &[(&str, &str)]) {
    link.send(HEADERS, WHOLE, 1, &block(more));
}

/// One parameter of SETTINGS.
pub fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// Says nothing of a body for as long as it takes to answer PING.
fn is_quiet(link: &mut Link) {
    link.send(PING, 0, 0, b"anything");
    let before = std::iter::from_fn(|| link.any_frame()).take_while(|frame| frame.kind != PING);
    assert!(before.map(|frame| frame.kind).all(|kind| kind != DATA), "DATA beyond the window");
}

/// A request to its answer, so that its stream is closed.
fn done(link: &mut Link, stream: u32) {
    get(link, stream);
    link.answer(stream);
}

// A row a rule: as rustfmt would have it, the table could not be read.
#[rustfmt::skip]
const CASES: &[Case] = &[
    // 3.4 and 4: the preface, frames.
    Case("3.4", "a client's preface is answered", |_| {}, Lives),
    Case("4.1", "a frame of unknown type is passed over", |l| l.send(0x16, 0, 0, &[0; 8]), Lives),
    Case("4.1", "unknown flags are passed over", |l| l.send(PING, 0xf6, 0, &[0; 8]), Lives),
    Case("4.1", "the reserved bit is passed over", |l| l.send(PING, 0, 0x8000_0000, &[0; 8]), Lives),
    Case("4.2", "a payload of 2^14 bytes passes", |l| {
        post(l, 1);
        l.send(DATA, END_STREAM, 1, &[b'x'; 16_384]);
    }, Answered(1)),
    Case("4.2", "a payload above 2^14 bytes does not", |l| {
        post(l, 1);
        l.send(DATA, END_STREAM, 1, &[b'x'; 16_385]);
    }, StreamError(&[FRAME_SIZE])),
    Case("4.2", "nor do fields above it", |l| {
        let long = "x".repeat(16_400);
        get_with(l, &[("a", &long)]);
    }, ConnectionError(&[FRAME_SIZE])),
    Case("4.3", "fields that cannot be decoded", |l| {
        l.send(HEADERS, WHOLE, 1, &[0x40]);
    }, ConnectionError(FIELDS)),
    Case("4.3", "PRIORITY between fields", |l| {
        l.send(HEADERS, END_STREAM, 1, &block(&[]));
        l.send(PRIORITY, 0, 1, &[0, 0, 0, 0, 255]);
    }, ConnectionError(&[PROTOCOL])),
    Case("4.3", "another stream's HEADERS between fields", |l| {
        l.send(HEADERS, END_STREAM, 1, &block(&[]));
        get(l, 3);
    }, ConnectionError(&[PROTOCOL])),
    // 5.1: the states of a stream.
    Case("5.1 idle", "DATA", |l| l.send(DATA, END_STREAM, 1, b"x"), ConnectionError(&[PROTOCOL])),
    Case("5.1 idle", "RST_STREAM", |l| l.send(RST_STREAM, 0, 1, &[0, 0, 0, 8]), ConnectionError(&[PROTOCOL])),
    Case("5.1 idle", "WINDOW_UPDATE", |l| {
        l.send(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 100]);
    }, ConnectionError(&[PROTOCOL])),
    Case("5.1 idle", "CONTINUATION", |l| {
        l.send(CONTINUATION, WHOLE, 1, &block(&[]));
    }, ConnectionError(&[PROTOCOL])),
    Case("5.1 idle", "PRIORITY", |l| { l.send(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]); get(l, 1); }, Answered(1)),
    Case("5.1 half-closed", "DATA", |l| {
        get(l, 1);
        l.send(DATA, END_STREAM, 1, b"x");
    }, StreamError(&[STREAM_CLOSED])),
    Case("5.1 half-closed", "HEADERS", |l| { get(l, 1); get(l, 1); }, StreamError(FIELDS_CLOSED)),
    Case("5.1 half-closed", "CONTINUATION", |l| {
        get(l, 1);
        l.send(CONTINUATION, WHOLE, 1, &block(&[]));
    }, StreamError(&[STREAM_CLOSED, PROTOCOL])),
    Case("5.1 half-closed", "WINDOW_UPDATE", |l| {
        get(l, 1);
        l.send(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
    }, Answered(1)),
    Case("5.1 half-closed", "PRIORITY", |l| {
        get(l, 1);
        l.send(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]);
    }, Answered(1)),
    Case("5.1 half-closed", "RST_STREAM", |l| { get(l, 1); l.send(RST_STREAM, 0, 1, &[0, 0, 0, 8]); }, Lives),
    Case("5.1 half-closed", "WINDOW_UPDATE of a shut window", |l| {
        l.send(SETTINGS, 0, 0, &setting(4, 0));
        get(l, 1);
        l.send(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
    }, OneByte),
    Case("5.1 half-closed", "PRIORITY before WINDOW_UPDATE", |l| {
        l.send(SETTINGS, 0, 0, &setting(4, 0));
        get(l, 1);
        l.send(PRIORITY, 0, 1, &[0, 0, 0, 0, 255]);
        l.send(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
    }, OneByte),
    Case("5.1 reset", "DATA", |l| {
        post(l, 1);
        l.send(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
        l.send(DATA, END_STREAM, 1, b"x");
    }, StreamError(&[STREAM_CLOSED])),
    Case("5.1 reset", "HEADERS", |l| {
        post(l, 1);
        l.send(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
        get(l, 1);
    }, StreamError(FIELDS_CLOSED)),
    Case("5.1 reset", "CONTINUATION", |l| {
        post(l, 1);
        l.send(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
        l.send(CONTINUATION, WHOLE, 1, &block(&[]));
    }, StreamError(&[STREAM_CLOSED, PROTOCOL])),
    Case("5.1 closed", "DATA", |l| {
        done(l, 1);
        l.send(DATA, END_STREAM, 1, b"x");
    }, StreamError(&[STREAM_CLOSED])),
    Case("5.1 closed", "HEADERS", |l| { done(l, 1); get(l, 1); }, ConnectionError(FIELDS_CLOSED)),
    Case("5.1 closed", "CONTINUATION", |l| {
        done(l, 1);
        l.send(CONTINUATION, WHOLE, 1, &block(&[]));
    }, ConnectionError(&[STREAM_CLOSED, PROTOCOL])),
    Case("5.1 closed", "PRIORITY", |l| { done(l, 1); l.send(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]); }, Lives),
    Case("5.1 closed", "WINDOW_UPDATE", |l| {
        done(l, 1);
        l.send(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
    }, Lives),
    Case("5.1.1", "a stream of an even number", |l| get(l, 2), ConnectionError(&[PROTOCOL])),
    Case("5.1.1", "a stream of a lower number", |l| {
        get(l, 5);
        get(l, 3);
    }, ConnectionError(&[PROTOCOL, STREAM_CLOSED])),
    Case("5.1.2", "more streams than may be", |l| {
        (0..101).for_each(|n| post(l, 2 * n + 1));
    }, StreamError(&[PROTOCOL, REFUSED])),
    Case("5.3.1", "HEADERS that depend on themselves", |l| {
        let payload = [&[0, 0, 0, 1, 255][..], &block(&[])].concat();
        l.send(HEADERS, WHOLE | HAS_PRIORITY, 1, &payload);
    }, StreamError(&[PROTOCOL])),
    Case("5.3.1", "PRIORITY that depends on itself", |l| {
        l.send(PRIORITY, 0, 2, &[0, 0, 0, 2, 255]);
    }, StreamError(&[PROTOCOL])),
    Case("5.4.1", "an error is said before the close", |l| l.send(PING, 0, 3, &[0; 8]), GoneAway(PROTOCOL)),
    Case("5.4.1", "an error closes the connection", |l| l.send(PING, 0, 0, &[0; 6]), Closed),
    Case("5.5", "an unknown frame is passed over", |l| l.send(0xff, 0, 1, b"xx"), Lives),
    Case("5.5", "but not between fields", |l| {
        l.send(HEADERS, END_STREAM, 1, &block(&[]));
        l.send(0xff, 0, 1, b"xx");
    }, ConnectionError(&[PROTOCOL])),
    // 6: each kind of frame.
    Case("6.1", "DATA in pieces", |l| {
        post(l, 1);
        l.data(1, b"a", false);
        l.data(1, b"b", true);
    }, Answered(1)),
    Case("6.1", "DATA with padding", |l| {
        post(l, 1);
        l.send(DATA, END_STREAM | PADDED, 1, b"\x02ab\0\0");
    }, Answered(1)),
    Case("6.1", "DATA on stream 0", |l| l.send(DATA, END_STREAM, 0, b"x"), ConnectionError(&[PROTOCOL])),
    Case("6.1", "DATA after the end", |l| {
        get(l, 1);
        l.send(DATA, 0, 1, b"x");
    }, StreamError(&[STREAM_CLOSED])),
    Case("6.1", "DATA with more padding than payload", |l| {
        post(l, 1);
        l.send(DATA, END_STREAM | PADDED, 1, &[6, 0, 0, 0, 0]);
    }, ConnectionError(&[PROTOCOL])),
    Case("6.1", "DATA with padding as long as its payload", |l| {
        post(l, 1);
        l.send(DATA, END_STREAM | PADDED, 1, &[5, 0, 0, 0, 0]);
    }, ConnectionError(&[PROTOCOL])),
    Case("6.2", "HEADERS with padding", |l| {
        let payload = [&[2][..], &block(&[]), &[0, 0]].concat();
        l.send(HEADERS, WHOLE | PADDED, 1, &payload);
    }, Answered(1)),
    Case("6.2", "HEADERS with a priority", |l| {
        let payload = [&[0, 0, 0, 0, 255][..], &block(&[])].concat();
        l.send(HEADERS, WHOLE | HAS_PRIORITY, 1, &payload);
    }, Answered(1)),
    Case("6.2", "HEADERS on stream 0", |l| get(l, 0), ConnectionError(&[PROTOCOL])),
    Case("6.2", "HEADERS with more padding than payload", |l| {
        let mut payload = block(&[]);
        payload[0] = 200;
        l.send(HEADERS, WHOLE | PADDED, 1, &payload);
    }, ConnectionError(&[PROTOCOL])),
    Case("6.2", "HEADERS with a byte more of padding than payload", |l| {
        let block = block(&[]);
        let padding = u8::try_from(block.len() + 2).expect("it is short");
        l.send(HEADERS, WHOLE | PADDED, 1, &[&[padding][..], &block].concat());
    }, StreamError(&[PROTOCOL])),
    Case("6.3", "PRIORITY", |l| { l.send(PRIORITY, 0, 1, &[0x80, 0, 0, 0, 255]); get(l, 1); }, Answered(1)),
    Case("6.3", "PRIORITY of the least weight", |l| { l.send(PRIORITY, 0, 1, &[0; 5]); get(l, 1); }, Answered(1)),
    Case("6.3", "PRIORITY below a stream that is idle", |l| {
        l.send(PRIORITY, 0, 3, &[0, 0, 0, 1, 0]);
        get(l, 1);
    }, Answered(1)),
    Case("6.3", "PRIORITY of a later stream", |l| {
        l.send(PRIORITY, 0, 3, &[0, 0, 0, 0, 255]);
        get(l, 1);
    }, Answered(1)),
    Case("6.3", "PRIORITY on stream 0", |l| {
        l.send(PRIORITY, 0, 0, &[0, 0, 0, 1, 255]);
    }, ConnectionError(&[PROTOCOL])),
    Case("6.3", "PRIORITY of another length", |l| {
        post(l, 1);
        l.send(PRIORITY, 0, 1, &[0, 0, 0, 0]);
    }, StreamError(&[FRAME_SIZE])),
    Case("6.4", "RST_STREAM", |l| { post(l, 1); l.send(RST_STREAM, 0, 1, &[0, 0, 0, 8]); }, Lives),
    Case("6.4", "RST_STREAM on stream 0", |l| {
        l.send(RST_STREAM, 0, 0, &[0, 0, 0, 8]);
    }, ConnectionError(&[PROTOCOL])),
    Case("6.4", "RST_STREAM of another length", |l| {
        post(l, 1);
        l.send(RST_STREAM, 0, 1, &[0, 0, 0]);
    }, ConnectionError(&[FRAME_SIZE])),
    Case("6.5", "SETTINGS", |l| l.send(SETTINGS, 0, 0, &setting(3, 100)), Lives),
    Case("6.5", "SETTINGS of every parameter", |l| {
        let all = [(1, 4_096), (2, 1), (3, 100), (4, 65_535), (5, 16_384), (6, 100)];
        l.send(SETTINGS, 0, 0, &all.map(|(id, value)| setting(id, value)).concat());
    }, Lives),
    Case("6.5", "an answer to SETTINGS with a payload", |l| {
        l.send(SETTINGS, ACK, 0, &[0]);
    }, ConnectionError(&[FRAME_SIZE])),
    Case("6.5", "SETTINGS of a stream", |l| {
        l.send(SETTINGS, 0, 1, &setting(3, 100));
    }, ConnectionError(&[PROTOCOL])),
    Case("6.5", "SETTINGS of another length", |l| {
        l.send(SETTINGS, 0, 0, &[0, 3, 0]);
    }, ConnectionError(&[FRAME_SIZE])),
    Case("6.5.2", "ENABLE_PUSH of 2", |l| {
        l.send(SETTINGS, 0, 0, &setting(2, 2));
    }, ConnectionError(&[PROTOCOL])),
    Case("6.5.2", "a window above 2^31-1", |l| {
        l.send(SETTINGS, 0, 0, &setting(4, 1 << 31));
    }, ConnectionError(&[FLOW])),
    Case("6.5.2", "a frame size below 2^14", |l| {
        l.send(SETTINGS, 0, 0, &setting(5, 16_383));
    }, ConnectionError(&[PROTOCOL])),
    Case("6.5.2", "a frame size above 2^24-1", |l| {
        l.send(SETTINGS, 0, 0, &setting(5, 1 << 24));
    }, ConnectionError(&[PROTOCOL])),
    Case("6.5.2", "an unknown parameter is passed over", |l| {
        l.send(SETTINGS, 0, 0, &setting(0xff, 1));
    }, Lives),
    Case("6.5.3", "the last of two values holds", |l| {
        l.send(SETTINGS, 0, 0, &[setting(4, 100), setting(4, 1)].concat());
        get(l, 1);
    }, OneByte),
    Case("6.7", "an answer nobody asked for is passed over", |l| l.send(PING, ACK, 0, b"unasked!"), Lives),
    Case("6.7", "PING of a stream", |l| l.send(PING, 0, 1, &[0; 8]), ConnectionError(&[PROTOCOL])),
    Case("6.7", "PING of another length", |l| l.send(PING, 0, 0, &[0; 6]), ConnectionError(&[FRAME_SIZE])),
    Case("6.8", "GOAWAY of a stream", |l| l.send(GOAWAY, 0, 1, &[0; 8]), ConnectionError(&[PROTOCOL])),
    Case("6.8", "GOAWAY of another length", |l| l.send(GOAWAY, 0, 0, &[0; 7]), ConnectionError(&[FRAME_SIZE])),
    Case("6.8", "GOAWAY closes when idle", |l| l.send(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0bye"), Closed),
    Case("6.9", "WINDOW_UPDATE", |l| {
        l.send(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
        get(l, 1);
        l.send(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
    }, Answered(1)),
    Case("6.9", "WINDOW_UPDATE of 0", |l| l.send(WINDOW_UPDATE, 0, 0, &[0; 4]), ConnectionError(&[PROTOCOL])),
    Case("6.9", "WINDOW_UPDATE of 0 on a stream", |l| {
        post(l, 1);
        l.send(WINDOW_UPDATE, 0, 1, &[0; 4]);
    }, StreamError(&[PROTOCOL])),
    Case("6.9", "WINDOW_UPDATE of another length", |l| {
        l.send(WINDOW_UPDATE, 0, 0, &[0; 3]);
    }, ConnectionError(&[FRAME_SIZE])),
    Case("6.9.1", "DATA fits the window", |l| {
        l.send(SETTINGS, 0, 0, &setting(4, 1));
        get(l, 1);
    }, OneByte),
    Case("6.9.1", "a window above 2^31-1", |l| {
        l.try_write(&encoded(WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255]).repeat(2));
    }, GoneAway(FLOW)),
    Case("6.9.1", "a stream's window above 2^31-1", |l| {
        // At once: behind the end of the answer nobody looks at its window.
        let update = encoded(WINDOW_UPDATE, 0, 1, &[0x7f, 255, 255, 255]);
        l.try_write(&[encoded(HEADERS, END_HEADERS, 1, &request_line("POST")), update.repeat(2)].concat());
    }, Reset(FLOW)),
    Case("6.9.2", "windows change with SETTINGS", |l| {
        l.send(SETTINGS, 0, 0, &setting(4, 0));
        get(l, 1);
        l.send(SETTINGS, 0, 0, &setting(4, 1));
    }, OneByte),
    Case("6.9.2", "a negative window is made up for first", |l| {
        l.send(SETTINGS, 0, 0, &setting(4, 1));
        get(l, 1);
        assert_eq!(l.until(DATA).payload.len(), 1);
        l.send(SETTINGS, 0, 0, &setting(4, 0));
        l.send(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
        is_quiet(l);
        l.send(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
    }, OneByte),
    Case("6.10", "fields in three frames", |l| {
        let block = block(&[]);
        let (one, rest) = block.split_at(10);
        let (two, three) = rest.split_at(10);
        l.send(HEADERS, END_STREAM, 1, one);
        l.send(CONTINUATION, 0, 1, two);
        l.send(CONTINUATION, END_HEADERS, 1, three);
    }, Answered(1)),
    Case("6.10", "long fields in three frames", |l| {
        let long = "x".repeat(4_000);
        l.send(HEADERS, END_STREAM, 1, &block(&[]));
        l.send(CONTINUATION, 0, 1, &fields(&[("x-dummy", &long)]));
        l.send(CONTINUATION, END_HEADERS, 1, &fields(&[("x-dummy", &long)]));
    }, Answered(1)),
    Case("6.10", "DATA between fields", |l| {
        l.send(HEADERS, 0, 1, &request_line("POST"));
        l.send(DATA, END_STREAM, 1, b"x");
    }, ConnectionError(&[PROTOCOL])),
    Case("6.10", "CONTINUATION, then another kind", |l| {
        l.send(HEADERS, END_STREAM, 1, &block(&[]));
        l.send(CONTINUATION, 0, 1, &fields(&[("a", "b")]));
        l.send(DATA, END_STREAM, 1, b"x");
    }, ConnectionError(&[PROTOCOL])),
    Case("6.10", "CONTINUATION on stream 0", |l| {
        l.send(HEADERS, END_STREAM, 1, &block(&[]));
        l.send(CONTINUATION, END_HEADERS, 0, &fields(&[("a", "b")]));
    }, ConnectionError(&[PROTOCOL])),
    Case("6.10", "CONTINUATION of whole fields", |l| {
        post(l, 1);
        l.send(CONTINUATION, END_HEADERS, 1, &fields(&[("a", "b")]));
    }, ConnectionError(&[PROTOCOL])),
    Case("6.10", "CONTINUATION after the last", |l| {
        l.send(HEADERS, 0, 1, &block(&[]));
        l.send(CONTINUATION, END_HEADERS, 1, &fields(&[("a", "b")]));
        l.send(CONTINUATION, END_HEADERS, 1, &fields(&[("a", "b")]));
    }, ConnectionError(&[PROTOCOL])),
    Case("6.10", "CONTINUATION behind DATA", |l| {
        post(l, 1);
        l.send(DATA, 0, 1, b"x");
        l.send(CONTINUATION, END_HEADERS, 1, &fields(&[("a", "b")]));
    }, ConnectionError(&[PROTOCOL])),
    Case("7", "RST_STREAM with an unknown code", |l| {
        post(l, 1);
        l.send(RST_STREAM, 0, 1, &[0, 0, 0, 255]);
    }, Lives),
    Case("7", "GOAWAY with an unknown code closes when idle", |l| {
        l.send(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 255]);
    }, Closed),
    // 8: messages.
    Case("8.1", "HEAD", |l| l.send(HEADERS, WHOLE, 1, &request_line("HEAD")), Answered(1)),
    Case("8.1", "trailers", |l| {
        post(l, 1);
        l.send(DATA, 0, 1, b"x");
        l.send(HEADERS, WHOLE, 1, &fields(&[("x-sum", "1")]));
    }, Answered(1)),
    Case("8.1", "a second head that ends nothing", |l| {
        post(l, 1);
        l.send(DATA, 0, 1, b"x");
        l.send(HEADERS, END_HEADERS, 1, &fields(&[("x-sum", "1")]));
    }, StreamError(&[PROTOCOL])),
    Case("8.2.1", "a name in upper case", |l| get_with(l, &[("X-TEST", "a")]), StreamError(&[PROTOCOL])),
    Case("8.2.1", "a line end in a value", |l| {
        get_with(l, &[("x-test", "a\r\nb: c")]);
    }, StreamError(&[PROTOCOL])),
    Case("8.2.1", "a NUL in a value", |l| get_with(l, &[("x-test", "a\0b")]), StreamError(&[PROTOCOL])),
    Case("8.2.1", "a space in a name", |l| get_with(l, &[("x test", "a")]), StreamError(&[PROTOCOL])),
    Case("8.2.1", "a colon in a name", |l| get_with(l, &[("x:test", "a")]), StreamError(&[PROTOCOL])),
    Case("8.2.1", "a name of no length", |l| get_with(l, &[("", "a")]), StreamError(&[PROTOCOL])),
    Case("8.2.2", "connection", |l| get_with(l, &[("connection", "keep-alive")]), StreamError(&[PROTOCOL])),
    Case("8.2.2", "transfer-encoding", |l| {
        get_with(l, &[("transfer-encoding", "chunked")]);
    }, StreamError(&[PROTOCOL])),
    Case("8.2.2", "upgrade", |l| get_with(l, &[("upgrade", "h2c")]), StreamError(&[PROTOCOL])),
    Case("8.2.2", "te that is not trailers", |l| {
        get_with(l, &[("trailers", "test"), ("te", "trailers, deflate")]);
    }, StreamError(&[PROTOCOL])),
    Case("8.2.2", "te: trailers", |l| get_with(l, &[("te", "trailers")]), Answered(1)),
    Case("8.3", "an unknown pseudo-header", |l| get_with(l, &[(":test", "ok")]), StreamError(&[PROTOCOL])),
    Case("8.3", "a pseudo-header of answers", |l| {
        get_with(l, &[(":status", "200")]);
    }, StreamError(&[PROTOCOL])),
    Case("8.3", "a pseudo-header in trailers", |l| {
        post(l, 1);
        l.send(HEADERS, WHOLE, 1, &fields(&[(":method", "200")]));
    }, StreamError(&[PROTOCOL])),
    Case("8.3", "a pseudo-header in trailers that end nothing", |l| {
        post(l, 1);
        l.send(DATA, 0, 1, b"x");
        l.send(HEADERS, END_HEADERS, 1, &fields(&[(":method", "POST")]));
    }, StreamError(&[PROTOCOL])),
    Case("8.3", "a pseudo-header behind a field", |l| {
        let block = fields(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), ("x-test", "ok"), (":path", "/")]);
        l.send(HEADERS, WHOLE, 1, &block);
    }, StreamError(&[PROTOCOL])),
    Case("8.3.1", ":path of no length", |l| {
        l.send(HEADERS, WHOLE, 1, &fields(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "")]));
    }, StreamError(&[PROTOCOL])),
    Case("8.3.1", "no :method", |l| {
        l.send(HEADERS, WHOLE, 1, &fields(&[(":scheme", "http"), (":path", "/"), (":authority", "a")]));
    }, StreamError(&[PROTOCOL])),
    Case("8.3.1", "neither :method nor :scheme", |l| {
        l.send(HEADERS, WHOLE, 1, &fields(&[(":path", "/"), (":authority", "a")]));
    }, StreamError(&[PROTOCOL])),
    Case("8.3.1", "no :scheme", |l| {
        l.send(HEADERS, WHOLE, 1, &fields(&[(":method", "GET"), (":path", "/"), (":authority", "a")]));
    }, StreamError(&[PROTOCOL])),
    Case("8.3.1", "no :path", |l| {
        l.send(HEADERS, WHOLE, 1, &fields(&[(":method", "GET"), (":scheme", "http"), (":authority", "a")]));
    }, StreamError(&[PROTOCOL])),
    Case("8.3.1", "two :method", |l| get_with(l, &[(":method", "GET")]), StreamError(&[PROTOCOL])),
    Case("8.3.1", "two :scheme", |l| get_with(l, &[(":scheme", "http")]), StreamError(&[PROTOCOL])),
    Case("8.3.1", "two :path", |l| get_with(l, &[(":path", "/")]), StreamError(&[PROTOCOL])),
    Case("8.1.1", "more DATA than content-length", |l| {
        let block = [request_line("POST"), fields(&[("content-length", "1")])].concat();
        l.send(HEADERS, END_HEADERS, 1, &block);
        l.send(DATA, END_STREAM, 1, b"test");
    }, StreamError(&[PROTOCOL])),
    Case("8.1.1", "more DATA in several than content-length", |l| {
        let block = [request_line("POST"), fields(&[("content-length", "1")])].concat();
        l.send(HEADERS, END_HEADERS, 1, &block);
        l.send(DATA, 0, 1, b"test");
        l.send(DATA, END_STREAM, 1, b"test");
    }, StreamError(&[PROTOCOL])),
    Case("8.1.1", "less DATA than content-length", |l| {
        let block = [request_line("POST"), fields(&[("content-length", "9")])].concat();
        l.send(HEADERS, END_HEADERS, 1, &block);
        l.send(DATA, END_STREAM, 1, b"test");
    }, StreamError(&[PROTOCOL])),
    Case("8.1.1", "two values of content-length", |l| {
        let block = [request_line("POST"), fields(&[("content-length", "1"), ("content-length", "2")])].concat();
        l.send(HEADERS, END_HEADERS, 1, &block);
        l.send(DATA, END_STREAM, 1, b"t");
    }, StreamError(&[PROTOCOL])),
    Case("8.4", "PUSH_PROMISE of a client", |l| {
        let payload = [&[0, 0, 0, 2][..], &block(&[])].concat();
        l.send(PUSH_PROMISE, END_HEADERS, 1, &payload);
    }, ConnectionError(&[PROTOCOL])),
    // RFC 7541.
    Case("7541 2.3.3", "an index beyond the tables", |l| {
        l.send(HEADERS, WHOLE, 1, &[block(&[]), vec![0xc6]].concat());
    }, ConnectionError(FIELDS)),
    Case("7541 2.3.3", "a name beyond the tables", |l| {
        l.send(HEADERS, WHOLE, 1, &[block(&[]), vec![0x7f, 7, 1, b'x']].concat());
    }, ConnectionError(FIELDS)),
    Case("7541 2.3.3", "a name beyond the tables, of no value", |l| {
        l.send(HEADERS, WHOLE, 1, &[block(&[]), vec![0x7f, 7, 0]].concat());
    }, ConnectionError(FIELDS)),
    Case("7541 4.2", "a table's size behind fields", |l| {
        l.send(HEADERS, WHOLE, 1, &[block(&[]), vec![0x20]].concat());
    }, ConnectionError(FIELDS)),
    Case("7541 5.2", "padding of more than seven bits", |l| {
        l.send(HEADERS, WHOLE, 1, &[block(&[]), b"\0\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff".to_vec()].concat());
    }, ConnectionError(FIELDS)),
    Case("7541 5.2", "padding by zeros", |l| {
        l.send(HEADERS, WHOLE, 1, &[block(&[]), b"\0\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90".to_vec()].concat());
    }, ConnectionError(FIELDS)),
    Case("7541 5.2", "the end-of-string symbol", |l| {
        l.send(HEADERS, WHOLE, 1, &[block(&[]), b"\0\x85\xf2\xb2\x4a\x84\xff\x87\x49\x51\xff\xff\xff\xfa\x7f".to_vec()].concat());
    }, ConnectionError(FIELDS)),
    Case("7541 6.1", "index 0", |l| {
        l.send(HEADERS, WHOLE, 1, &[block(&[]), vec![0x80]].concat());
    }, ConnectionError(FIELDS)),
    Case("7541 6.1", "indexed fields", |l| {
        l.send(HEADERS, WHOLE, 1, &[vec![0x82, 0x86, 0x84], fields(&[(":authority", "a")])].concat());
    }, Answered(1)),
    Case("7541 6.2.1", "literals with indexing", |l| {
        l.send(HEADERS, WHOLE, 1, &[block(&[]), b"\x40\x01a\x01b\xbe\x7a\x03foo".to_vec()].concat());
    }, Answered(1)),
    Case("7541 6.2.1", "literals in Huffman's code", |l| {
        l.send(HEADERS, WHOLE, 1, &[block(&[]), b"\x40\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x9f".to_vec()].concat());
    }, Answered(1)),
    Case("7541 6.2.3", "literals never to be indexed", |l| {
        l.send(HEADERS, WHOLE, 1, &[block(&[]), b"\x10\x01a\x01b".to_vec()].concat());
    }, Answered(1)),
    Case("7541 6.2.2", "literals without indexing", |l| {
        l.send(HEADERS, WHOLE, 1, &[block(&[]), b"\x0f\x2b\x03foo\0\x85\xf2\xb2\x4a\x84\xff\x84\x9c\x48\xac\xa4".to_vec()].concat());
    }, Answered(1)),
    Case("7541 6.2.3", "literals never to be indexed, in every form", |l| {
        l.send(HEADERS, WHOLE, 1, &[block(&[]), b"\x1f\x2b\x03foo\x10\x85\xf2\xb2\x4a\x84\xff\x84\x9c\x48\xac\xa4".to_vec()].concat());
    }, Answered(1)),
    Case("7541 6.3", "a smaller table", |l| {
        l.send(HEADERS, WHOLE, 1, &[vec![0x3f, 0x61], block(&[])].concat());
    }, Answered(1)),
    Case("7541 6.3", "a smaller table and the largest", |l| {
        l.send(HEADERS, WHOLE, 1, &[vec![0x3f, 0x61, 0x3f, 0xe1, 0x1f], block(&[])].concat());
    }, Answered(1)),
    Case("7541 6.3", "a table a byte larger than allowed", |l| {
        l.send(HEADERS, WHOLE, 1, &[vec![0x3f, 0xe2, 0x1f], block(&[])].concat());
    }, ConnectionError(FIELDS)),
    Case("7541 6.3", "a table's new size", |l| {
        l.send(HEADERS, WHOLE, 1, &[vec![0x20, 0x3f, 0xe1, 0x1f], block(&[])].concat());
    }, Answered(1)),
    Case("7541 6.3", "a table larger than allowed", |l| {
        l.send(HEADERS, WHOLE, 1, &[vec![0x3f, 0xff, 0xff, 0xff, 0x0f], block(&[])].concat());
    }, ConnectionError(FIELDS)),
];

/// Over what a case is run.
#[derive(Clone, Copy, Debug)]
enum Listener {
    /// In the clear, beside HTTP/1.1.
    Plain,
    /// In the clear, HTTP/2 alone.
    Http2,
    /// Over TLS.
    Tls,
}

/// A gateway with a listener of each kind, before an upstream that says `ok`.
fn gateway(upstream: &Upstream) -> Gateway {
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let config = format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\n[listener.http2]\nbind = \"127.0.0.1:0\"\nhttp = [\"h2\"]\n\
         [listener.tls]\nbind = \"127.0.0.1:0\"\n\
         certs = [{{ cert = \"{0}.pem\", key = \"{0}.key\" }}]\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{1}\"",
        directory.join("a").display(),
        upstream.addr()
    );
    Gateway::start_in(directory, &config)
}

fn connect(gateway: &Gateway, listener: Listener) -> Box<dyn Wire> {
    let addr = match listener {
        Listener::Tls => {
            let stream = tls::connect(gateway.listener("tls"), "localhost", &["h2"]);
            return Box::new(stream.expect("TLS is served"));
        }
        Listener::Plain => gateway.plain(),
        Listener::Http2 => gateway.listener("http2"),
    };
    let stream = TcpStream::connect_timeout(&addr, PATIENCE).expect("somebody listens there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
    Box::new(stream)
}

/// What went otherwise than it must.
pub fn judge(link: &mut Link, outcome: Outcome) -> Result<(), String> {
    let mut end_with = |codes: &[u32], stream: bool| match link.end() {
        End::Closed => Ok(()),
        End::GoneAway(code) if codes.contains(&code) => Ok(()),
        End::Reset(code) if stream && codes.contains(&code) => Ok(()),
        end => Err(format!("{end:?}")),
    };
    match outcome {
        ConnectionError(codes) => end_with(codes, false),
        StreamError(codes) => end_with(codes, true),
        GoneAway(code) => match link.end() {
            End::GoneAway(said) if said == code && link.end() == End::Closed => Ok(()),
            end => Err(format!("{end:?}")),
        },
        Reset(code) => match link.end() {
            End::Reset(said) if said == code => judge(link, Lives),
            end => Err(format!("{end:?}")),
        },
        Closed => loop {
            match link.end() {
                End::Closed => return Ok(()),
                End::Silent => return Err("still open".to_owned()),
                End::Reset(_) | End::GoneAway(_) => {}
            }
        },
        Lives => {
            link.send(PING, 0, 0, b"are you?");
            let is_answer =
                |frame: &Frame| frame.kind == PING && frame.flags == ACK && frame.payload == b"are you?";
            let answer = std::iter::from_fn(|| link.any_frame())
                .find(|frame| frame.kind == GOAWAY || is_answer(frame));
            answer.filter(is_answer).map(drop).ok_or_else(|| "no answer to PING".to_owned())
        }
        Answered(stream) => loop {
            match link.frame() {
                Some(frame) if matches!(frame.kind, RST_STREAM | GOAWAY) => return Err(format!("{frame:?}")),
                Some(frame) if frame.stream == stream && frame.flags & END_STREAM != 0 => return Ok(()),
                Some(_) => {}
                None => return Err("closed".to_owned()),
            }
        },
        OneByte => match std::iter::from_fn(|| link.frame()).find(|frame| frame.kind == DATA) {
            Some(data) if data.payload.len() == 1 => Ok(()),
            other => Err(format!("{other:?}")),
        },
    }
}

fn every_case(listener: Listener) {
    let upstream = Upstream::ok();
    let gateway = gateway(&upstream);
    let mut wrong = Vec::new();
    for Case(clause, what, act, outcome) in CASES {
        let mut link = Connection::over(connect(&gateway, listener));
        act(&mut link);
        if let Err(came) = judge(&mut link, *outcome) {
            wrong.push(format!("{clause}: {what}: {came} instead of {outcome:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
}

#[test]
fn every_rule_holds_in_the_clear() {
    every_case(Listener::Plain);
}

#[test]
fn every_rule_holds_where_nothing_else_is_spoken() {
    every_case(Listener::Http2);
}

#[test]
fn every_rule_holds_over_tls() {
    every_case(Listener::Tls);
}

#[test]
fn a_wrong_preface_ends_the_connection() {
    let upstream = Upstream::ok();
    let gateway = gateway(&upstream);
    let others = ["INVALID CONNECTION PREFACE\r\n\r\n", "SOURCE /radio ICE/1.0\r\n\r\n"];
    let broken = "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n";
    let http1 = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (listener, prefaces) in [
        (Listener::Plain, &others[..]),
        (Listener::Http2, &[others[0], others[1], broken, http1]),
        (Listener::Tls, &[others[0], others[1], broken, http1]),
    ] {
        for preface in prefaces {
            let mut stream = connect(&gateway, listener);
            stream.write_all(preface.as_bytes()).expect("the gateway listens");
            let mut said = Vec::new();
            let ended = stream.read_to_end(&mut said);
            // Neither an answer of another protocol, nor a reset that takes with it what was said before.
            assert!(ended.is_ok(), "{listener:?}: {preface:?}: {ended:?}");
            assert!(said.is_empty() || said.starts_with(b"\0\0"), "{}", crate::support::text(&said));
        }
    }
    // What may be HTTP/1.1 is told what is wrong with it.
    for (bytes, status) in [(broken, "505"), ("GET /\r\n\r\n", "400"), ("GET / http/1.1\r\n\r\n", "400")] {
        let mut stream = connect(&gateway, Listener::Plain);
        stream.write_all(bytes.as_bytes()).expect("the gateway listens");
        let mut said = Vec::new();
        stream.read_to_end(&mut said).expect("an answer, then the end");
        let said = crate::support::text(&said);
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{said}");
    }
    assert_eq!(gateway.metric("sluicegate_worker_panics_total", &[]), 0.0);
}

#[test]
fn settings_are_the_first_frame_and_ours_are_answered() {
    let upstream = Upstream::ok();
    let gateway = gateway(&upstream);
    for listener in [Listener::Plain, Listener::Http2, Listener::Tls] {
        let mut link = Connection::over(connect(&gateway, listener));
        let first = link.any_frame().expect("a frame");
        assert_eq!((first.kind, first.flags & ACK), (SETTINGS, 0));
        let answered =
            std::iter::from_fn(|| link.any_frame()).any(|frame| (frame.kind, frame.flags) == (SETTINGS, ACK));
        assert!(answered);
    }
}

#[test]
fn another_first_frame_ends_the_connection() {
    let upstream = Upstream::ok();
    let gateway = gateway(&upstream);
    let firsts = [
        encoded(PING, 0, 0, b"are you?"),
        encoded(SETTINGS, ACK, 0, &[]),
        encoded(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        encoded(HEADERS, WHOLE, 1, &block(&[])),
        encoded(0x16, 0, 0, &[0; 8]),
    ];
    for listener in [Listener::Plain, Listener::Http2, Listener::Tls] {
        for first in &firsts {
            let mut link = Connection::silent(connect(&gateway, listener));
            link.try_write(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &first[..]].concat());
            let ours = link.any_frame().map(|frame| frame.kind);
            assert_eq!(ours, Some(SETTINGS), "{listener:?}: {first:x?}");
            assert_eq!(judge(&mut link, GoneAway(PROTOCOL)), Ok(()), "{listener:?}: {first:x?}");
        }
    }
    assert!(upstream.is_quiet());
    eventually("each has its line", || {
        let lines = gateway.access_log();
        (lines.iter().filter(|line| line["reason"] == "malformed").count() == 15).then_some(())
    });
    let counted = gateway.metric("sluicegate_refused_requests_total", &["reason=\"malformed\""]);
    assert_eq!(counted, 15.0);
}
